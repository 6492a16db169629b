"""Which shared copies of a tensor can be worth making."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from solver.search.kernels import compiled
from solver.search.network import INF

IntArray: TypeAlias = NDArray[np.int64]
IdArray: TypeAlias = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Pairs:
    """The values of a tensor's variable.

    Parameters
    ----------
    made, held : int32 arrays
        Layout indices; equal where there is no copy.
    cost : int64 array
        The price of the copy, and of delivering the tensor where it is a graph output.
    """

    made: IdArray
    held: IdArray
    cost: IntArray

    @cached_property
    def columns(self) -> IdArray:
        """Made and held side by side, as an edge reads them."""
        return np.stack([self.made, self.held], axis=1)


def useful_pairs(
    made: IdArray,
    allowed: IdArray | None,
    prices: IntArray,
    needs: Sequence[IdArray],
    delivery: IntArray | None,
    *,
    copies: bool,
) -> Pairs:
    """List the (made, held) pairs that a best plan may need.

    Parameters
    ----------
    made : int32 array
        Layouts in which the tensor may be made or stored.
    allowed : int32 array or None
        Layouts that the pins leave for `held`; None where a result has no pin.
    prices : int64 array, shape (layouts, layouts)
    needs : sequence of int32 arrays
        Per use the layouts that it may need.
    delivery : int64 array or None
        Per layout the price of delivering the tensor as a graph output.
    copies : bool
        Whether there may be a copy at all.

    Returns
    -------
    Pairs

    Notes
    -----
    A copy h of m saves at most ``prices[m, n] - prices[h, n]`` at each use, for the best need n of that use. Where all
    that it can save is no more than ``prices[m, h]``, no copy is as good. Exact: it compares whole plans.
    """
    width = len(prices)
    if allowed is None:
        alone = np.repeat(made, 1)
    else:
        alone = made[np.isin(made, allowed)]
    rows, columns = [alone], [alone]
    if copies:
        targets = np.arange(width, dtype=np.int32) if allowed is None else allowed
        for m in made:
            worth = targets if allowed is not None else _worth(int(m), prices, needs, delivery)
            worth = worth[(worth != m) & (prices[m, worth] < INF)]
            rows.append(np.full(len(worth), m, np.int32))
            columns.append(worth.astype(np.int32))
    first, second = np.concatenate(rows).astype(np.int32), np.concatenate(columns).astype(np.int32)
    cost = prices[first, second].copy()
    if delivery is not None:
        cost = np.minimum(INF, cost + np.minimum(delivery[first], delivery[second]))
    return Pairs(first, second, cost)


def _worth(m: int, prices: IntArray, needs: Sequence[IdArray], delivery: IntArray | None) -> IntArray:
    """Return the layouts whose copy can save more than it costs."""
    saved = np.zeros(len(prices), np.int64)
    for need in needs:
        saved = np.minimum(saved + _best_saving(prices, m, need), INF)
    if delivery is not None:
        saved = np.minimum(saved + np.maximum(0, np.minimum(delivery[m], INF) - np.minimum(delivery, INF)), INF)
    return np.flatnonzero((saved > prices[m]) & (prices[m] < INF))


@compiled
def _best_saving(prices: IntArray, m: int, need: IdArray) -> IntArray:
    """Return per held layout the most that one use can save against reading layout m."""
    best = np.zeros(len(prices), np.int64)
    for h in range(len(prices)):
        for n in need:
            saving = prices[m, n] - prices[h, n]
            best[h] = max(best[h], saving)
    return best
