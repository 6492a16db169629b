"""The optimum and its proof: the bound, the incumbent, and branching where they do not meet."""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from solver.search.bound import Dual, picoseconds
from solver.search.flat import SCALE_BITS, flatten
from solver.search.limits import Limits, Report
from solver.search.network import INF, BoolArray, Network, arc_consistency
from solver.search.root import REGION_NODES, REGION_SWEEPS, Root
from solver.search.split import proposals
from solver.search.tree import NOTHING, Leaf, Part, Tree, grown, least_units

BELOW = 10, 0.05
"""No more sweeps of a part when so many of them gained less than this fraction of what is missing."""

TREE_BYTES = 2**31
"""No more branching once the messages of the leaves take this much memory."""


@dataclass(frozen=True, eq=False)
class Result:
    """What a search found and proved.

    Parameters
    ----------
    assignment : tuple of int or None
        The best allowed assignment, None where none was found.
    cost : int
        Its price in picoseconds, INF without one.
    tree : Tree
        The proof of the bound.
    bound : int
        Picoseconds that every allowed assignment costs at least; INF when there is none.
    infeasible : bool
        Proved that no assignment is allowed.
    sweeps, nodes : int
        The work done.
    seconds : float
        The time taken.
    losses : mapping
        Where the assignment paid above the bound before any branching, in picoseconds, by what pays: the name of a
        variable, or of an edge. Empty where the two met.
    """

    assignment: tuple[int, ...] | None
    cost: int
    tree: Tree
    bound: int
    infeasible: bool
    sweeps: int
    nodes: int
    seconds: float
    losses: Mapping[str, int] = field(default_factory=dict)


def solve(
    network: Network, timeout: float = 60.0, gap: float = 0.0, progress: Report | None = None, nodes: int = 100_000
) -> Result:
    """Find the cheapest assignment and prove it.

    Parameters
    ----------
    network : Network
        The network.
    timeout : float, optional
        Seconds after which the best so far is returned.
    gap : float, optional
        The fraction of the cost by which the bound may stay below it.
    progress : callable, optional
        Called with a `Progress` after every sweep; the search stops when it returns True.
    nodes : int, optional
        The most parts of the tree to look at.

    Returns
    -------
    Result
        Optimal when ``bound == cost``. KeyboardInterrupt ends the search early, with the best so far.
    """
    limits = Limits(time.monotonic(), timeout, gap, progress, nodes, 2**62)
    search: _Search | None = None
    try:
        start = arc_consistency(network)
        if not start.feasible:
            return Result(None, INF, NOTHING, INF, True, 0, 1, limits.seconds)
        search = _Search(network, flatten(network, start.domains), start.domains, limits, 0)
        search.run()
    except KeyboardInterrupt:
        if search is None:
            zeros = tuple(
                (np.zeros(len(e.table), np.int64), np.zeros(e.table.shape[1], np.int64)) for e in network.edges
            )
            return Result(None, INF, Leaf(zeros, 0), 0, False, 0, 0, limits.seconds)
    return search.result()


def solve_hastily(network: Network) -> tuple[int, ...] | None:
    """Return a good assignment of a small network, the same each time; None where nothing is allowed or found."""
    start = arc_consistency(network)
    if not start.feasible:
        return None
    limits = Limits(time.monotonic(), math.inf, 0.0, None, REGION_NODES, REGION_SWEEPS)
    search = _Search(network, flatten(network, start.domains), start.domains, limits, 1)
    search.run()
    return search.incumbent.assignment


class _Search(Root):
    """The work of `solve`."""

    open: list[tuple[int, int, Part]]

    def run(self) -> None:
        """Raise the bound of the root, then of the part with the least bound, until nothing is open."""
        self.open = []
        self._raise_root()
        self._push(self.root)
        per_leaf = 8 * sum(sum(edge.table.shape) for edge in self.network.edges)
        most_nodes = min(self.limits.nodes, 2 * max(16, TREE_BYTES // max(1, per_leaf)))
        while self.open and self.nodes < most_nodes and not self._finished(self.open[0][0]):
            children = self._divide(self.open[0][2])
            if children is None:
                break
            heapq.heappop(self.open)
            for child in children:
                self._push(child)

    def tree(self) -> Tree:
        """Return the proof."""
        return grown(self.start)

    def _push(self, part: Part) -> None:
        if part.dual is not None:
            heapq.heappush(self.open, (part.units, self.nodes, part))
        self.nodes += 1

    def _tell(self, units: int) -> None:
        super()._tell(self.open[0][0] if self.open else units)

    def _divide(self, part: Part) -> tuple[Part, Part] | None:
        """Split a part in the most promising of the proposed ways and raise the bounds of both sides."""
        assert part.dual is not None
        best: tuple[list[int], int, BoolArray, Part, Part] | None = None
        for variable, chosen in proposals(part.dual):
            domain = part.domains[variable]
            one_side = domain & np.isin(self.flat.group[variable], chosen)
            left, right = (self._child(part, part.dual, variable, side) for side in (one_side, domain & ~one_side))
            gains = sorted((left.units, right.units))
            if best is None or gains > best[0]:
                best = gains, variable, one_side, left, right
            self._tell(part.units)
            if self._finished(gains[0]):
                break
        if best is None:
            return None
        _, variable, one_side, left, right = best
        for child in (left, right):
            if child.dual is not None:
                self._raise(child, *BELOW)
        other_side = part.domains[variable] & ~one_side
        part.split = variable, np.flatnonzero(one_side), np.flatnonzero(other_side), left, right
        part.dual = None
        return left, right

    def _child(self, part: Part, dual: Dual, variable: int, side: BoolArray) -> Part:
        """Return one side of a split after two sweeps, without a dual where nothing is allowed on it."""
        found = arc_consistency(
            self.network, (*part.domains[:variable], side, *part.domains[variable + 1 :]), [variable]
        )
        if not found.feasible:
            return Part(found.domains, None)
        cost = self.flat.restrict(dual.state.cost, part.domains, found.domains)
        child = Part(found.domains, Dual(self.flat, cost, dual))
        assert child.dual is not None
        child.dual.sweep()
        child.dual.sweep()
        self.sweeps += 2
        child.units = child.dual.units
        return child

    def result(self) -> Result:
        """Return the tree and what it proves."""
        tree = self.tree()
        units = least_units(tree)
        infeasible = units >= INF << SCALE_BITS and self.incumbent.choice is None
        bound = INF if infeasible else min(picoseconds(units), self.incumbent.cost)
        return Result(
            self.incumbent.assignment,
            self.incumbent.cost,
            tree,
            bound,
            infeasible,
            self.sweeps,
            self.nodes,
            self.limits.seconds,
            self.losses if bound < self.incumbent.cost else {},
        )
