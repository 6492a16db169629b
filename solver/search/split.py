"""Where to branch: the variables at which the messages disagree, and how to part their values."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from solver.search.bound import Dual, State, closing, gather
from solver.search.flat import DEAD, Flat, compiled
from solver.search.incumbent import edge_price
from solver.search.network import IdArray, IntArray

CANDIDATES = 8
"""How many variables are tried."""


@compiled
def tension(flat: Flat, state: State, choice: IdArray, node: IntArray, edge: IntArray, values: int) -> None:
    """Set `node` and `edge` to what a choice pays above the least at each variable and edge, given closing messages."""
    total = np.empty(values, np.int64)
    for i in range(len(choice)):
        gather(flat, state, i, total)
        least = DEAD
        for a in range(flat.start[i + 1] - flat.start[i]):
            least = min(least, total[a])
        node[i] = total[choice[i]] - least
    for e in range(len(flat.tail)):
        u, v = choice[flat.tail[e]], choice[flat.head[e]]
        felt = state.to_tail[flat.row_start[e] + flat.pool[flat.made[e] + u]]
        if flat.paired[e]:
            felt = min(felt, state.to_tail[flat.row_start[e] + flat.pool[flat.held[e] + u]])
        edge[e] = edge_price(flat, e, u, v) - felt - state.to_head[flat.column_start[e] + flat.pool[flat.into[e] + v]]


def proposals(dual: Dual) -> list[tuple[int, IntArray]]:
    """Propose splits of a part whose bound does not meet its best assignment.

    Parameters
    ----------
    dual : Dual
        The messages of the part.

    Returns
    -------
    list of (int, int64 array)
        A variable and the flat values of the one side, most promising first; empty where every variable has one value left.
    """
    flat, state = dual.network.flat, dual.state
    alive = state.cost < DEAD
    left = np.add.reduceat(alive, flat.start[:-1]) if len(flat.start) > 1 else np.zeros(0, np.int64)
    closed = state._replace(to_tail=np.zeros_like(state.to_tail), to_head=np.zeros_like(state.to_head))
    closing(flat, state, closed.to_tail, closed.to_head, dual.layouts)
    node, edge = np.zeros(len(left), np.int64), np.zeros(len(flat.tail), np.int64)
    tension(flat, closed, state.choice, node, edge, dual.values)
    score = np.minimum(node, DEAD).astype(np.float64)
    np.add.at(score, flat.tail, np.minimum(edge, DEAD) / 2)
    np.add.at(score, flat.head, np.minimum(edge, DEAD) / 2)
    score[left < 2] = -1
    order = np.argsort(-score, kind="stable")[:CANDIDATES]
    found: list[tuple[int, IntArray]] = []
    for i in order[score[order] >= 0]:
        found += [(int(i), chosen) for chosen in _parts(dual, int(i), edge)]
    return found


def _parts(dual: Dual, i: int, edge: IntArray) -> list[IntArray]:
    """Return up to two ways to part the values of a variable: the chosen one alone, and all that lie like it on an edge."""
    flat, state = dual.network.flat, dual.state
    first, count = int(flat.start[i]), int(flat.start[i + 1] - flat.start[i])
    alive = state.cost[first: first + count] < DEAD
    chosen = int(state.choice[i])
    found = [np.array([chosen])]
    sides = [(int(edge[e]), int(flat.made[e])) for e in flat.out_edge[flat.out_start[i]: flat.out_start[i + 1]]]
    sides += [(int(edge[e]), int(flat.into[e])) for e in flat.in_edge[flat.in_start[i]: flat.in_start[i + 1]]]
    for _, at in sorted(sides, reverse=True):
        codes: NDArray[np.uint32] = flat.pool[at: at + count]
        same = alive & (codes == codes[chosen])
        if 1 < same.sum() < alive.sum():
            found.insert(0, np.flatnonzero(same))
            break
    return found
