"""The few prices of a table that make up all others, so that a sweep need not walk over all of a large table."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from solver.search.kernels import compiled
from solver.search.network import INF, BoolArray, IntArray

LARGE = 2**18
"""Tables of fewer prices are faster as they are: they stay in a processor's cache."""


class Skeleton(NamedTuple):
    """Steps whose cheapest sums are a table: from row ``i`` those between ``start[i]`` and ``start[i + 1]``."""

    start: IntArray
    at: IntArray
    price: IntArray

    def turned(self) -> Skeleton:
        """Return the steps by where they lead."""
        count = len(self.start) - 1
        source = np.repeat(np.arange(count), np.diff(self.start))
        order = np.argsort(self.at, kind="stable")
        start = np.searchsorted(self.at[order], np.arange(count + 1)).astype(np.int64)
        return Skeleton(start, source[order], self.price[order])


def skeleton(table: IntArray) -> Skeleton | None:
    """Find the steps of a square table of prices that obeys the triangle inequality.

    Parameters
    ----------
    table : int64 array, shape (n, n)
        Prices between layouts; ``INF`` where there is no way.

    Returns
    -------
    Skeleton or None
        None where the table is none of shortest ways: a sum undercuts it, or staying is not free.

    Notes
    -----
    The transitive reduction of a weighted graph (Aho, Garey, Ullman 1972). From each row the others are met in the
    order of their price; one that a cheaper step and the table reach as cheaply needs no step of its own. Rows that are
    free to change into each other explain others only in the order of their numbers, so that none waits for itself.

    Examples
    --------
    >>> skeleton(np.array([[0, 1, 3], [1, 0, 2], [3, 2, 0]])).at.tolist()
    [1, 0, 2, 1]
    """
    if table.shape[0] != table.shape[1] or table.diagonal().any():
        return None
    needed = np.zeros(table.shape, np.bool_)
    order = np.argsort(table, axis=1, kind="stable")
    if not _find(table, order, needed):
        return None
    row, at = np.nonzero(needed)
    start = np.searchsorted(row, np.arange(len(table) + 1)).astype(np.int64)
    return Skeleton(start, at, table[row, at])


@compiled
def _find(table: IntArray, order: IntArray, needed: BoolArray) -> bool:
    """Mark the pairs that need a step; return False where a sum of two prices undercuts a third."""
    count = len(table)
    reached = np.empty(count, np.int64)
    for i in range(count):
        reached[:] = INF
        for j in order[i]:
            price = table[i, j]
            if price >= INF:
                break
            if j == i or reached[j] == price:
                continue
            if reached[j] < price:
                return False
            needed[i, j] = True
            if price == 0 and table[j, i] == 0 and j > i:
                continue
            for k in range(count):
                reached[k] = min(reached[k], price + table[j, k])
        for j in range(count):
            if reached[j] < table[i, j]:
                return False
    return True
