"""Where to branch: the variables at which the messages disagree, and how to part their values."""

from __future__ import annotations

import numpy as np

from solver.search.arrays import Flat, State
from solver.search.bound import Dual
from solver.search.incumbent import edge_prices
from solver.search.kernels import DEAD, least_sums
from solver.search.network import IdArray, IntArray

CANDIDATES = 8
"""How many variables are tried."""


def tension(dual: Dual, choice: IdArray, closed: State) -> tuple[IntArray, IntArray]:
    """Return what a choice pays above the least, at each variable and at each edge.

    Parameters
    ----------
    dual : Dual
        The messages.
    choice : int32 array
        A flat value for each variable.
    closed : State
        What `dual.closed` gave.

    Returns
    -------
    node, edge : int64 arrays
        In units; their sum is the price of the choice less the bound.
    """
    flat = dual.network.flat
    column = flat.column_start[:-1] + flat.pool[flat.into + choice[flat.head]]
    made, held = (flat.row_start[:-1] + flat.pool[at + choice[flat.tail]] for at in (flat.made, flat.held))
    felt = np.minimum(closed.to_tail[made], closed.to_tail[held]), closed.to_head[column]
    paid = np.minimum(closed.cost[flat.start[:-1] + choice], DEAD)
    np.add.at(paid, flat.tail, felt[0])
    np.add.at(paid, flat.head, felt[1])
    least = np.zeros(len(paid), np.int64)
    least_sums(flat, closed, dual.values, least)
    return paid - least, edge_prices(flat, choice) - felt[0] - felt[1]


def proposals(dual: Dual) -> list[tuple[int, IntArray]]:
    """Propose splits of a part whose bound does not meet its best assignment.

    Parameters
    ----------
    dual : Dual
        The messages of the part.

    Returns
    -------
    list of (int, int64 array)
        A variable and the flat values of the one side, the most promising first; none where no variable has a choice.
    """
    flat, state = dual.network.flat, dual.state
    alive = state.cost < DEAD
    left = np.add.reduceat(alive, flat.start[:-1], dtype=np.int64) if len(flat.start) > 1 else np.zeros(0, np.int64)
    node, edge = tension(dual, state.choice, dual.closed())
    score = np.minimum(node, DEAD).astype(np.float64)
    for ends in (flat.tail, flat.head):
        np.add.at(score, ends, np.minimum(edge, DEAD) / 2)
    order = np.argsort(-score, kind="stable")
    return [
        (int(i), chosen) for i in order[left[order] > 1][:CANDIDATES] for chosen in _parts(flat, state, int(i), edge)
    ]


def _parts(flat: Flat, state: State, i: int, edge: IntArray) -> list[IntArray]:
    """Return up to two ways to part the values of a variable: what an edge takes for the chosen one, and it alone."""
    first, count = int(flat.start[i]), int(flat.start[i + 1] - flat.start[i])
    alive = state.cost[first : first + count] < DEAD
    chosen = int(state.choice[i])
    sides = [(int(edge[e]), int(flat.made[e])) for e in flat.out_edge[flat.out_start[i] : flat.out_start[i + 1]]]
    sides += [(int(edge[e]), int(flat.into[e])) for e in flat.in_edge[flat.in_start[i] : flat.in_start[i + 1]]]
    found = [np.array([chosen])]
    for _, at in sorted(sides, reverse=True):
        codes = flat.pool[at : at + count]
        same = alive & (codes == codes[chosen])
        if 1 < same.sum() < alive.sum():
            return [np.flatnonzero(same), *found]
    return found
