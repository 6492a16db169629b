"""Blocks: parts of a network that are bounded by searches of their own, where its messages alone leave a gap.

Equal layers each leave a little, and branching on one of them closes nothing for the others: with n layers it takes a
power of n. Within fixed messages to the rest, what a block pays does not hang on other blocks, so that their gains add
up: the bound is that of the messages, and the gain of every block (block-coordinate bounds, as in dual decomposition
with larger parts: Komodakis, Paragios, Tziritas 2011).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from solver.search.arrays import State
from solver.search.bound import Dual, Messages, edge_minimum
from solver.search.flat import SCALE_BITS, FlatNetwork
from solver.search.kernels import DEAD, least_sums
from solver.search.network import INF, Domains, Edge, IntArray, Network, Variable
from solver.search.region import around
from solver.search.tree import Block, Leaf, Split, Tree, least_units, parts


class Solved(NamedTuple):
    """A block that was searched: the proof, and the flat values of its best assignment."""

    block: Block
    choice: IntArray | None


Searcher: TypeAlias = Callable[[Network], tuple[Tree, tuple[int, ...] | None]]
"""Proves a bound of a small network, whose prices are not made finer, and finds an assignment."""


class Blocks:
    """The blocks of a network with messages.

    Parameters
    ----------
    dual : Dual
        The messages; prices are not rounded.
    domains : tuple of bool arrays
        The values that are left.
    """

    def __init__(self, dual: Dual, domains: Domains) -> None:
        self.network: FlatNetwork = dual.network
        self.domains = domains
        self.closed: State = dual.closed()
        self.messages: Messages = dual.messages()
        self.least: IntArray = np.zeros(len(domains), np.int64)
        least_sums(self.network.flat, self.closed, dual.values, self.least)

    def around(self, paid: NDArray[np.float64], size: int) -> Iterator[IntArray]:
        """Yield disjoint parts of the network, those first that hold what pays most above the bound."""
        taken = np.zeros(len(paid), np.bool_)
        for site in np.argsort(-paid, kind="stable"):
            if paid[site] > 0 and not taken[site]:
                region = around(self.network.flat, [int(site)], size, taken)
                taken[region] = True
                yield region

    def joined(self, regions: Sequence[IntArray]) -> list[IntArray]:
        """Return larger regions: two that have most edges between them are one; one that is left over grows."""
        flat = self.network.flat
        owner = np.full(len(self.domains), -1)
        for n, region in enumerate(regions):
            owner[region] = n
        between = Counter(
            (one, other)
            for one, other in np.sort(np.stack([owner[flat.tail], owner[flat.head]], axis=1)).tolist()
            if 0 <= one < other
        )
        beside = nx.Graph()
        beside.add_weighted_edges_from((*pair, count) for pair, count in between.items())
        pairs = sorted(tuple(sorted(pair)) for pair in nx.max_weight_matching(beside))
        found = [np.union1d(regions[one], regions[other]) for one, other in pairs]
        taken = owner >= 0
        for n in sorted(set(range(len(regions))).difference(*pairs)):
            found.append(around(flat, regions[n].tolist(), 2 * len(regions[n]), taken))
            taken[found[-1]] = True
        return found

    def solve(self, region: IntArray, search: Searcher) -> Solved | None:
        """Search a part of the network; None where that proves nothing more than the messages."""
        place = {int(i): k for k, i in enumerate(region)}
        flat = self.network.flat
        edges = [
            int(e)
            for i in place
            for e in flat.in_edge[flat.in_start[i] : flat.in_start[i + 1]]
            if int(flat.tail[e]) in place
        ]
        costs = [self._outer_cost(i, place) for i in place]
        least = [int(cost.min()) for cost in costs]
        names = [self.network.network.variables[i] for i in place]
        variables = [
            Variable(v.name, v.kind, np.where(cost < DEAD, cost - low, INF))
            for v, cost, low in zip(names, costs, least, strict=True)
        ]
        tree, assignment = search(Network(tuple(variables), tuple(self._inner(e, place) for e in edges)))
        units = (least_units(tree) >> SCALE_BITS) + sum(least)
        gain = units - self._by_messages(list(place), edges)
        if gain <= 0:
            return None
        block = Block(tuple(place), tuple(edges), self._lifted(tree, region, edges), units, gain)
        return Solved(block, None if assignment is None else np.array(assignment, np.int64))

    def _outer_cost(self, i: int, place: Mapping[int, int]) -> IntArray:
        """Return what the flat values of a variable pay, with the messages of the edges that leave the block."""
        flat, closed = self.network.flat, self.closed
        first, count = int(flat.start[i]), int(flat.start[i + 1] - flat.start[i])
        cost = closed.cost[first : first + count].copy()
        for e in flat.in_edge[flat.in_start[i] : flat.in_start[i + 1]]:
            if int(flat.tail[e]) not in place:
                cost += closed.to_head[flat.column_start[e] + flat.pool[flat.into[e] : flat.into[e] + count]]
        for e in flat.out_edge[flat.out_start[i] : flat.out_start[i + 1]]:
            if int(flat.head[e]) not in place:
                made, held = (closed.to_tail[flat.row_start[e] + flat.pool[at : at + count]] for at in self._at(int(e)))
                cost += np.minimum(made, held)
        return np.where(closed.cost[first : first + count] < DEAD, cost, DEAD)

    def _at(self, e: int) -> tuple[int, int]:
        flat = self.network.flat
        return int(flat.made[e]), int(flat.held[e])

    def _inner(self, e: int, place: Mapping[int, int]) -> Edge:
        """Return an edge of the block, between flat values and in units."""
        flat = self.network.flat
        tail, head, rows, columns = (int(each[e]) for each in (flat.tail, flat.head, flat.rows, flat.columns))
        table = flat.tables[flat.table_start[e] : flat.table_start[e] + rows * columns].reshape(rows, columns)
        many, wide = (int(flat.start[i + 1] - flat.start[i]) for i in (tail, head))
        offers = np.stack([flat.pool[at : at + many] for at in self._at(e)], axis=1).astype(np.int32)
        asks = flat.pool[flat.into[e] : flat.into[e] + wide].astype(np.int32)
        name = self.network.network.edges[e].name
        return Edge(name, place[tail], place[head], np.where(table < DEAD, table, INF), offers, asks)

    def _by_messages(self, variables: list[int], edges: list[int]) -> int:
        """Return what the messages prove of the block without it, in 1/4096 ps."""
        total = int(self.least[variables].sum())
        for e in edges:
            edge = self.network.network.edges[e]
            total += edge_minimum(edge, *self.messages[e], self.domains[edge.tail], self.domains[edge.head])
        return total

    def _lifted(self, tree: Tree, region: IntArray, edges: list[int]) -> Tree:
        """Return the tree of a block with the variables, values and units of the whole network."""
        done: dict[int, Tree] = {}
        for node in reversed(list(parts(tree))):
            if isinstance(node, Leaf):
                messages = None if node.messages is None else self._spread(node.messages, edges)
                done[id(node)] = Leaf(messages, node.units >> SCALE_BITS, node.infeasible)
            elif isinstance(node, Split):
                i = int(region[node.variable])
                left, right = (
                    np.flatnonzero(np.isin(self.network.group[i], side))
                    for side in (node.left_values, node.right_values)
                )
                done[id(node)] = Split(i, left, right, done[id(node.left)], done[id(node.right)])
        return done[id(tree)]

    def _spread(self, messages: Messages, edges: list[int]) -> Messages:
        """Return messages between flat values as those between the layouts of the tables."""
        found = []
        for (rows, columns), e in zip(messages, edges, strict=True):
            shape = self.network.network.edges[e].table.shape
            pair = np.zeros(shape[0], np.int64), np.zeros(shape[1], np.int64)
            pair[0][self.network.row_ids[e]] = rows >> SCALE_BITS
            pair[1][self.network.column_ids[e]] = columns >> SCALE_BITS
            found.append(pair)
        return tuple(found)
