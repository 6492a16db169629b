"""Which shared copies of a tensor can be worth making."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from solver.deadline import OutOfTimeError, keep_time
from solver.search.kernels import compiled
from solver.search.network import INF

IntArray: TypeAlias = NDArray[np.int64]
IdArray: TypeAlias = NDArray[np.int32]
BoolArray: TypeAlias = NDArray[np.bool_]
AT_ONCE = 2**26
"""How many comparisons of prices are made between two looks at the clock."""
MOST_PAIRS = 2**24
"""With more copies of one tensor to choose from there is no room for a search."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """The values of a tensor's variable.

    Parameters
    ----------
    made, held : int32 arrays
        Layout indices; equal where there is no copy.
    cost : int64 array
        The price of the copy, and of delivering the tensor where it is a graph output without a tie.
    left : int32 array or None
        Of a tied output what its delivery reads: made, or held. Each copy is there twice then.
    relay : bool
        Whether the values are held layouts alone: both reads of a tensor that is read twice read what is held.
    """

    made: IdArray
    held: IdArray
    cost: IntArray
    left: IdArray | None = None
    relay: bool = False

    @cached_property
    def columns(self) -> IdArray:
        """Made and held side by side, as an edge reads them."""
        return np.stack([self.made, self.held], axis=1)

    @cached_property
    def stored(self) -> IdArray:
        """Made twice side by side: what an edge reads that no copy serves."""
        return np.stack([self.made, self.made], axis=1)

    def leaving(self) -> Pairs:
        """Return the values of a tied output: what it is delivered from is one more choice."""
        copied = self.made != self.held
        made, held, cost = (np.concatenate([part, part[copied]]) for part in (self.made, self.held, self.cost))
        return Pairs(made, held, cost, np.concatenate([self.made, self.held[copied]]))


def relayed(count: int, delivery: IntArray | None, *, tied: bool) -> Pairs:
    """Return the values of a result that is read twice: one a layout.

    A copy that only one of two reads would read saves nothing, by the triangle inequality: either both read it or there
    is none, and then what is held is what is made. So the price of the copy stands on the edge from the op.

    Parameters
    ----------
    count : int
        Of layouts.
    delivery : int64 array or None
        Per layout the price of delivering the tensor, where one of the reads is an untied delivery.
    tied : bool
        Whether one of the reads is a tied delivery.
    """
    held = np.arange(count, dtype=np.int32)
    cost = np.zeros(count, np.int64) if delivery is None else np.minimum(delivery, INF)
    return Pairs(held, held, cost, held if tied else None, relay=True)


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
    alone = made if allowed is None else made[np.isin(made, allowed)]
    first, second = [alone], [alone]
    if copies and len(made):
        worth = prices[made] < INF
        if allowed is None:
            starts = np.cumsum([0, *map(len, needs)])
            asked, extra = np.concatenate([*needs, made[:0]]), _extra(prices, delivery)
            block = max(1, AT_ONCE // (len(prices) * max(1, len(asked))))
            for at in range(0, len(made), block):
                keep_time()
                worth[at : at + block] &= _worth(prices, made[at : at + block], asked, starts, extra)
        else:
            wanted = np.zeros(len(prices), np.bool_)
            wanted[allowed] = True
            worth &= wanted
        worth[np.arange(len(made)), made] = False
        if np.count_nonzero(worth) > MOST_PAIRS:
            raise OutOfTimeError("too many copies to choose from")
        rows, columns = np.nonzero(worth)
        first.append(made[rows])
        second.append(columns.astype(np.int32))
    one, other = np.concatenate(first), np.concatenate(second)
    cost = prices[one, other].copy()
    if delivery is not None:
        cost = np.minimum(INF, cost + np.minimum(delivery[one], delivery[other]))
    return Pairs(one, other, cost)


def _extra(prices: IntArray, delivery: IntArray | None) -> IntArray:
    """Return the price of delivering from each layout, the same everywhere where nothing is delivered."""
    return np.zeros(len(prices), np.int64) if delivery is None else np.minimum(delivery, INF)


@compiled
def _worth(prices: IntArray, made: IdArray, needs: IdArray, starts: IntArray, delivery: IntArray) -> BoolArray:
    """Return for each made layout (row) the layouts (columns) whose copy can save more than it costs."""
    found = np.zeros((len(made), len(prices)), np.bool_)
    for i in range(len(made)):
        m = made[i]
        for h in range(len(prices)):
            saved = max(0, delivery[m] - delivery[h])
            for use in range(len(starts) - 1):
                if saved > prices[m, h]:
                    break
                best = 0
                for k in range(starts[use], starts[use + 1]):
                    best = max(best, prices[m, needs[k]] - prices[h, needs[k]])
                saved = min(saved + best, INF)
            found[i, h] = saved > prices[m, h]
    return found
