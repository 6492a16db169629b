"""Long times in coarser units, so that the search and its proof stay within 64 bits."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from solver.search.branch import Result
from solver.search.flat import SCALE_BITS
from solver.search.limits import Progress, Report
from solver.search.network import INF, Edge, Network, Variable
from solver.search.tree import least_units

EXACT_BITS = 45
"""Prices below so many bits, 35 seconds, are searched as they are: sixteen of them in 1/4096 ps still fit."""


@dataclass(frozen=True, eq=False)
class Coarse:
    """A network as it is searched.

    Parameters
    ----------
    whole : Network
        With all prices in picoseconds.
    network : Network
        With all prices in units of ``2**shift`` ps, rounded down: what bounds it bounds the whole one.
    shift : int
        0 where `network` is the whole one.
    """

    whole: Network
    network: Network
    shift: int

    def exact(self, found: Result) -> Result:
        """Return what a search of the network says about the whole one; its tree stays in the coarser unit."""
        if not self.shift or found.infeasible:
            return found
        cost = INF if found.assignment is None else self.whole.cost(found.assignment)
        bound = -(-(least_units(found.tree) << self.shift) >> SCALE_BITS)
        return replace(found, cost=cost, bound=min(bound, cost))

    def told(self, report: Report | None) -> Report | None:
        """Let a search of the network report in picoseconds."""
        if report is None or not self.shift:
            return report

        def exactly(state: Progress) -> bool | None:
            cost = None if state.cost is None else state.cost << self.shift
            return report(replace(state, bound=state.bound << self.shift, cost=cost))

        return exactly


def coarser(network: Network) -> Coarse:
    """Choose the unit to search a network in.

    Parameters
    ----------
    network : Network

    Returns
    -------
    Coarse
        With the network itself, unless a price is beyond `EXACT_BITS`.
    """
    prices = {id(a): a for a in (*(v.cost for v in network.variables), *(e.table for e in network.edges))}
    dearest = max((int(array.max(initial=0, where=array < INF)) for array in prices.values()), default=0)
    shift = min(SCALE_BITS, max(0, dearest.bit_length() - EXACT_BITS))
    if not shift:
        return Coarse(network, network, 0)
    small = {number: np.where(array < INF, array >> shift, INF) for number, array in prices.items()}
    variables = tuple(Variable(v.name, v.kind, small[id(v.cost)]) for v in network.variables)
    edges = tuple(Edge(e.name, e.tail, e.head, small[id(e.table)], e.tail_index, e.head_index) for e in network.edges)
    return Coarse(network, Network(variables, edges), shift)
