"""The one compiled loop of the reshard tables: shortest times over a graph of moves."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]


@njit(cache=True)  # type: ignore[untyped-decorator]
def relax(starts: Ints, targets: Ints, weights: Ints, times: Ints) -> None:
    """Lower times to the shortest ones, in place.

    Sweeps over the nodes, forward and backward in turn, until nothing changes. Whole numbers only, so the result
    depends on no order.

    Parameters
    ----------
    starts : ndarray
        The moves of node v are those from ``starts[v]`` to ``starts[v + 1]``.
    targets, weights : ndarray
        Where each move leads, and how long it takes.
    times : ndarray
        One row a node, one column a goal: 0 at the goal, a number that stands for no way elsewhere.

    Examples
    --------
    >>> times = np.array([[9], [9], [0]])
    >>> relax(np.array([0, 2, 3, 3]), np.array([2, 1, 2]), np.array([5, 1, 1]), times)
    >>> times[:, 0].tolist()
    [2, 1, 0]
    """
    nodes, goals = times.shape
    forward = True
    again = True
    while again:
        again = False
        for place in range(nodes):
            node = place if forward else nodes - 1 - place
            for move in range(starts[node], starts[node + 1]):
                reached, weight = targets[move], weights[move]
                for goal in range(goals):
                    time = times[reached, goal] + weight
                    if time < times[node, goal]:
                        times[node, goal] = time
                        again = True
        forward = not forward
