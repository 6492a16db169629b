"""Prices that lean to one side, so that equal parts of a network decide alike."""

from __future__ import annotations

import numpy as np

from solver.search.bound import Dual
from solver.search.kernels import DEAD

LEANING = 0.01
"""What the dearest values together cost more, as a fraction of the bound."""


def leaning(dual: Dual) -> Dual:
    """Return messages to go on with where of values that are as good as each other the first one is cheaper.

    Where mesh axes are alike, so are the layouts that swap them, and the messages leave each layer to choose for
    itself: where two layers choose otherwise, everything between them has to change. Equal variables have their values
    in the same order, so that all lean to the same side.

    Parameters
    ----------
    dual : Dual

    Returns
    -------
    Dual
        Its bound is none of the network.
    """
    flat, cost = dual.network.flat, dual.state.cost.copy()
    most = int(LEANING * dual.total / max(1, len(flat.start) - 1))
    for first, end in zip(flat.start[:-1], flat.start[1:], strict=True):
        own = cost[first:end]
        own += np.where(own < DEAD, most * np.arange(end - first) // (end - first), 0)
    return Dual(dual.network, cost, dual)
