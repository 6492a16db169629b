"""The compiled loops made ready before the time of a plan begins to count."""

from __future__ import annotations

from functools import cache

import numpy as np

from solver.search.branch import solve
from solver.search.copies import useful_pairs
from solver.search.network import Edge, Network, Variable


@cache
def make_ready() -> None:
    """Compile the loops of the search, or load them from where they were kept.

    The first time after an installation this takes some ten to twenty seconds, later a moment.
    """
    prices = np.array([[0, 2], [2, 0]])
    prices.setflags(write=False)  # as tables of a graph are, which makes a type of their own
    one = np.arange(2, dtype=np.int32)
    pairs = useful_pairs(one, None, prices, [one], None, copies=True)
    edges = [Edge(f"{u}{v}", u, v, prices, pairs.columns, pairs.held) for u, v in ((0, 1), (0, 2))]
    edges.append(Edge("12", 1, 2, 2 - prices, pairs.columns, pairs.held))
    solve(Network(tuple(Variable(str(i), "tensor", pairs.cost) for i in range(3)), tuple(edges)))
