"""Improving an assignment where it pays more than the bound: a region is solved anew, the rest stays as it is."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from solver.search.arrays import Flat, State
from solver.search.bound import Dual
from solver.search.flat import FlatNetwork
from solver.search.incumbent import Incumbent
from solver.search.kernels import DEAD, beyond
from solver.search.network import INF, BoolArray, Edge, IdArray, IntArray, Network, Variable
from solver.search.split import tension

SIZES = (48, 192)
"""How many variables a region has, smaller ones first."""

SITES = 3
"""How many sites are tried before the assignment is left as it is."""

Solver: TypeAlias = Callable[[Network], tuple[int, ...] | None]


def improve(incumbent: Incumbent, dual: Dual, solver: Solver, over: Callable[[], bool]) -> bool:
    """Solve regions of the incumbent anew, around the variables that pay most above the bound, while that helps.

    Parameters
    ----------
    incumbent : Incumbent
        It has an assignment.
    dual : Dual
        Messages of the whole network.
    solver : callable
        Returns the best assignment of a small network, or None.
    over : callable
        Whether to stop.

    Returns
    -------
    bool
        Whether there is a better incumbent now.
    """
    cost, better, closed = incumbent.cost, True, dual.closed()
    while better:
        better = False
        for region, kept in _regions(incumbent, dual, closed):
            if over():
                break
            choice = _solved(dual.network, incumbent, region, kept, solver)
            if choice is not None and incumbent.offer(choice):
                better = True
                break
    return incumbent.cost < cost


def _regions(incumbent: Incumbent, dual: Dual, closed: State) -> Iterator[tuple[IntArray, list[IntArray]]]:
    """Yield regions of each size around the variables where the incumbent pays most above the bound.

    With the flat values of each variable that are in some better assignment of the region: those that alone do not pay
    more above the bound than the incumbent pays in all of it.
    """
    flat = dual.network.flat
    assert incumbent.choice is not None
    node, edge = tension(dual, incumbent.choice, closed)
    paid = with_edges(flat, node, edge)
    sites = np.argsort(-paid, kind="stable")[:SITES]
    for size in SIZES:
        seen: set[bytes] = set()
        for site in sites[paid[sites] > 0]:
            region = around(flat, [int(site)], size)
            if region.tobytes() not in seen:
                seen.add(region.tobytes())
                inside = np.zeros(len(node), np.bool_)
                inside[region] = True
                spent = int(node[region].sum() + edge[inside[flat.tail] | inside[flat.head]].sum())
                afford = min(spent, DEAD - 1)
                yield region, [np.flatnonzero(beyond(flat, closed, int(i), dual.values) <= afford) for i in region]


def with_edges(flat: Flat, node: IntArray, edge: IntArray) -> NDArray[np.float64]:
    """Return what variables pay, each with half of what its edges pay."""
    paid = np.minimum(node, DEAD).astype(np.float64)
    for ends in (flat.tail, flat.head):
        np.add.at(paid, ends, np.minimum(edge, DEAD) / 2)
    return paid


def around(flat: Flat, sites: Sequence[int], size: int, taken: BoolArray | None = None) -> IntArray:
    """Return the nearest variables to some, and those, in program order; not what is taken, nor what lies behind it."""
    found, queue = set(sites), deque(sites)
    while queue and len(found) < size:
        i = queue.popleft()
        heads = flat.head[flat.out_edge[flat.out_start[i] : flat.out_start[i + 1]]]
        tails = flat.tail[flat.in_edge[flat.in_start[i] : flat.in_start[i + 1]]]
        for j in (*heads.tolist(), *tails.tolist()):
            if j not in found and (taken is None or not taken[j]):
                found.add(j)
                queue.append(j)
    return np.array(sorted(found), np.int64)


def _solved(
    network: FlatNetwork, incumbent: Incumbent, region: IntArray, kept: list[IntArray], solver: Solver
) -> IdArray | None:
    """Return the incumbent with the region solved anew."""
    assert incumbent.choice is not None
    found = solver(part(network, incumbent.choice, region, kept))
    if found is None:
        return None
    choice = incumbent.choice.copy()
    choice[region] = [values[k] for values, k in zip(kept, found, strict=True)]
    return choice


def part(network: FlatNetwork, choice: IdArray, region: IntArray, kept: Sequence[IntArray]) -> Network:
    """Return the network of some variables and their flat values, all others fixed.

    Parameters
    ----------
    network : FlatNetwork
        The whole network.
    choice : int32 array
        A flat value for each of its variables.
    region : int64 array
        The variables that stay free, in order.
    kept : sequence of int64 arrays
        The flat values that each of them may take.

    Returns
    -------
    Network
        Its prices differ as those of the whole network do.
    """
    flat, whole = network.flat, network.network
    place = {int(i): k for k, i in enumerate(region)}
    values = [network.values[i][flat_values] for i, flat_values in zip(region, kept, strict=True)]
    costs = [whole.variables[i].cost[own] for i, own in zip(region, values, strict=True)]
    edges: list[Edge] = []
    for i, k in place.items():
        for e in flat.in_edge[flat.in_start[i] : flat.in_start[i + 1]]:
            edge, tail = whole.edges[e], int(flat.tail[e])
            columns = edge.head_index[values[k]]
            if tail in place:
                rows = edge.tail_index[values[place[tail]]]
                edges.append(Edge(edge.name, place[tail], k, edge.table, rows, columns))
            else:
                made, held = edge.tail_index[network.values[tail][choice[tail]]]
                costs[k] = _sum(costs[k], np.minimum(edge.table[made, columns], edge.table[held, columns]))
        for e in flat.out_edge[flat.out_start[i] : flat.out_start[i + 1]]:
            edge, head = whole.edges[e], int(flat.head[e])
            if head not in place:
                made, held = edge.tail_index[values[k]].T
                column = edge.head_index[network.values[head][choice[head]]]
                costs[k] = _sum(costs[k], np.minimum(edge.table[made, column], edge.table[held, column]))
    names = [whole.variables[i] for i in region]
    return Network(tuple(Variable(v.name, v.kind, c) for v, c in zip(names, costs, strict=True)), tuple(edges))


def _sum(one: IntArray, other: IntArray) -> IntArray:
    """Return sums of prices, INF where either is forbidden."""
    found: IntArray = np.where((one < INF) & (other < INF), one + other, INF)
    return found
