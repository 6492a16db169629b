"""How a variable shares out what it holds among its edges: the ways of a sweep.

Any shares that sum to at most one keep the bound from falling. The three ways here differ in how fast it rises, and in
how far:

- ``BY_SPAN``: everything is handed on, in proportion to the span of the prices of each edge. Most variables have one or
  two edges that decide and several that hardly do (the statistics of a normalization, a bias), which an even share
  would starve the others for.
- ``EVENLY``: everything is handed on in even shares.
- ``PATIENT``: even shares of the larger of the two numbers of edges, as in TRW-S (Kolmogorov 2006); slow, and it ends
  higher than the other two on graphs with many cycles.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from solver.search.network import IntArray

BY_SPAN, EVENLY, PATIENT = range(3)
"""The ways of a sweep."""

LEAST_SPAN = 0.01
"""The least span that counts, as a fraction of the mean one."""


def shares(tail: IntArray, head: IntArray, span: IntArray, count: int) -> tuple[NDArray[np.float64], ...]:
    """Return the share that each edge gets of its tail on the way forward, and of its head on the way back.

    Parameters
    ----------
    tail, head : int64 arrays
        The ends of each edge.
    span : int64 array
        Per edge the difference between its dearest and its cheapest allowed price.
    count : int
        Of variables.

    Returns
    -------
    of_tail, of_head : float64 arrays, shape (ways, edges)
        One row for each of `BY_SPAN`, `EVENLY`, `PATIENT`.
    """
    even = np.ones(len(tail))
    wide = np.maximum(span, max(1.0, LEAST_SPAN * span.mean())) if len(span) else even
    of_tail, of_head = np.empty((3, len(tail))), np.empty((3, len(tail)))
    for way, weight in ((BY_SPAN, wide), (EVENLY, even), (PATIENT, even)):
        out, into = np.bincount(tail, weight, count), np.bincount(head, weight, count)
        if way == PATIENT:
            out = into = np.maximum(out, into)
        of_tail[way], of_head[way] = weight / out[tail], weight / into[head]
    return of_tail, of_head
