"""The optimum and its proof: the bound, the incumbent, and branching where they do not meet."""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from solver.search.arrays import State
from solver.search.bound import Dual, picoseconds
from solver.search.flat import SCALE_BITS, FlatNetwork, flatten
from solver.search.incumbent import Incumbent, dive, orders
from solver.search.network import INF, BoolArray, Domains, Network, arc_consistency
from solver.search.region import improve
from solver.search.shares import BY_SPAN, EVENLY, PATIENT
from solver.search.split import proposals, tension
from solver.search.tree import NOTHING, Leaf, Part, Tree, grown

SEEDS = range(8)
"""Seeds of the random orders in which assignments are read off."""

HASTY = 12, 0.02
AT_ROOT = 30, 0.01
BELOW = 10, 0.05
"""No more sweeps when so many of them gained less than this fraction of what is missing, at the root and below it."""

LEAP_AFTER = 10
"""Patient sweeps at the root whose direction is tried out further."""

FARTHEST = 16
"""The farthest leap, as a multiple of that direction."""

DIVE_AFTER = 10
"""Sweeps at the root after which something allowed is looked for, where none was read off."""

REGION_NODES = 8
REGION_SWEEPS = 150
"""Limits of the search in a region of an incumbent; they count work, so that the same input gives the same result."""

TREE_BYTES = 2**31
"""No more branching once the messages of the leaves take this much memory."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a search is.

    Parameters
    ----------
    sweeps, nodes : int
        Sweeps done, and parts of the tree looked at.
    bound : int
        Picoseconds that every assignment costs at least.
    cost : int or None
        Picoseconds of the best assignment so far.
    seconds : float
        Time since the start.
    """

    sweeps: int
    nodes: int
    bound: int
    cost: int | None
    seconds: float


Report: TypeAlias = Callable[[Progress], bool | None]
"""Called after every sweep; the search stops when it returns True."""


@dataclass(frozen=True, eq=False)
class Result:
    """What a search found and proved.

    Parameters
    ----------
    assignment : tuple of int or None
        The best allowed assignment, None where none was found.
    cost : int
        Its price in picoseconds, INF without one.
    tree : Leaf or Split
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
    limits = _Limits(time.monotonic(), timeout, gap, progress, nodes, 2**62)
    search: _Search | None = None
    try:
        start = arc_consistency(network)
        if not start.feasible:
            return Result(None, INF, NOTHING, INF, True, 0, 1, limits.seconds)
        search = _Search(network, start.domains, limits)
        search.run()
    except KeyboardInterrupt:
        if search is None:
            zeros = tuple(
                (np.zeros(len(e.table), np.int64), np.zeros(e.table.shape[1], np.int64)) for e in network.edges
            )
            return Result(None, INF, Leaf(zeros, 0), 0, False, 0, 0, limits.seconds)
    return search.result()


@dataclass(frozen=True, slots=True)
class _Limits:
    """When to stop."""

    begin: float
    timeout: float
    gap: float
    progress: Report | None
    nodes: int
    sweeps: int

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.begin

    @property
    def over(self) -> bool:
        return self.seconds > self.timeout


class _Search:
    """The work of `solve`."""

    def __init__(self, network: Network, domains: Domains, limits: _Limits, within: _Search | None = None) -> None:
        self.network, self.limits = network, limits
        self.depth: int = 0 if within is None else within.depth + 1
        self.flat: FlatNetwork = flatten(network, domains, None if within is None else within.flat.skeletons)
        dual = Dual(self.flat)
        self.incumbent = Incumbent(dual)
        self.root = Part(domains, dual)
        self.open: list[tuple[int, int, Part]] = []
        self.sweeps, self.nodes, self.stopped = 0, 0, False
        self.losses: dict[str, int] = {}
        per_leaf = 8 * sum(sum(edge.table.shape) for edge in network.edges)
        self.most_nodes = min(limits.nodes, 2 * max(16, TREE_BYTES // max(1, per_leaf)))

    def run(self) -> None:
        """Raise the bound of the root, then of the part with the least bound, until nothing is open."""
        self._raise_root()
        self.losses = self._losses()
        self._push(self.root)
        while self.open and self.nodes < self.most_nodes and not self._finished(self.open[0][0]):
            children = self._divide(self.open[0][2])
            if children is None:
                break
            heapq.heappop(self.open)
            for child in children:
                self._push(child)

    def _push(self, part: Part) -> None:
        if part.dual is not None:
            heapq.heappush(self.open, (part.units, self.nodes, part))
        self.nodes += 1

    def _finished(self, units: int) -> bool:
        """Whether a part with this bound needs no more work, or gets none."""
        return self.stopped or self._met(units)

    def _met(self, units: int) -> bool:
        """Whether a bound is near enough to the incumbent."""
        cost = self.incumbent.cost
        return cost < INF and cost - picoseconds(units) <= self.limits.gap * cost

    def _raise_root(self) -> None:
        """Sweep over the whole network, hastily at first, and look for better assignments, while that helps."""
        dual = self.root.dual
        assert dual is not None
        self._raise(self.root, dual, *HASTY, (BY_SPAN, EVENLY))
        self._look(dual)
        while not self._finished(self.root.units):
            self._raise(self.root, dual, *AT_ROOT)
            if not self._look(dual):
                break

    def _losses(self) -> dict[str, int]:
        """Return where the incumbent pays above the bound of the root, in picoseconds."""
        dual, choice = self.root.dual, self.incumbent.choice
        if self.depth > 0 or dual is None or choice is None or self._met(self.root.units):
            return {}
        names = [variable.name for variable in self.network.variables] + [edge.name for edge in self.network.edges]
        found: Counter[str] = Counter()
        for name, units in zip(names, np.concatenate(tension(dual, choice, dual.closed())).tolist(), strict=True):
            found[name] += units >> self.flat.shift if self.flat.shift > 0 else units << -self.flat.shift
        return {name: paid for name, paid in found.items() if paid > 0}

    def _look(self, dual: Dual) -> bool:
        """Look for a better assignment; return whether there is one."""
        improved = self.incumbent.choice is None and self._dive(dual)
        for order in orders(len(self.network.variables), SEEDS):
            if self._finished(self.root.units):
                break
            improved |= self.incumbent.read(dual, order)
            self._tell(self.root.units)
        if self.depth == 0 and self.incumbent.choice is not None:
            improved |= improve(self.incumbent, dual, self._solve_region, self._told_to_stop)
        return improved

    def _dive(self, dual: Dual) -> bool:
        """Look for anything allowed at all; return whether there is an incumbent now."""
        choice = dive(dual, self.root.domains, self._told_to_stop)
        return choice is not None and self.incumbent.offer(choice)

    def _solve_region(self, network: Network) -> tuple[int, ...] | None:
        """Return a good assignment of a part of the network."""
        start = arc_consistency(network)
        limits = replace(self.limits, gap=0.0, progress=None, nodes=REGION_NODES, sweeps=REGION_SWEEPS)
        search = _Search(network, start.domains, limits, within=self)
        search.run()
        return search.incumbent.assignment

    def _told_to_stop(self) -> bool:
        self._tell(self.root.units)
        return self._finished(self.root.units)

    def _raise(self, part: Part, dual: Dual, window: int, enough: float, ways: tuple[int, ...] = (PATIENT,)) -> None:
        """Sweep until the part needs no more, or gained less than `enough` of what is missing in `window` sweeps."""
        history: list[int] = []
        before: State | None = None
        changed = True
        while changed and not self._finished(part.units):
            changed = self._sweep(part, dual, ways[len(history) % len(ways)])
            history.append(part.units)
            if part is self.root and (len(history) <= 5 or len(history) % 5 == 0):
                self.incumbent.offer(dual.state.choice)
                if self.incumbent.choice is None and len(history) == DIVE_AFTER:
                    self._dive(dual)
            self._tell(part.units)
            if part is self.root and ways == (PATIENT,) and len(history) % LEAP_AFTER == 0:
                if before is not None:
                    self._leap(part, dual, before, history[-1] - history[-LEAP_AFTER])
                before = dual.snapshot()
            if len(history) > window and self._slow(part.units - history[-1 - window], part.units, enough):
                break
        self.incumbent.offer(dual.state.choice)

    def _sweep(self, part: Part, dual: Dual, way: int) -> bool:
        """Sweep once; return whether anything changed."""
        changed = dual.sweep(way)
        self.sweeps += 1
        part.units = dual.units
        return changed

    def _leap(self, part: Part, dual: Dual, before: State, gained: int) -> None:
        """Follow the direction of the last sweeps, farther each time, while that gains more than a sweep does."""
        now, times = dual.snapshot(), 1
        best = now
        while times <= FARTHEST and not self._finished(part.units):
            least = part.units + gained // LEAP_AFTER
            dual.leap(before, now, times)
            self._sweep(part, dual, PATIENT)
            self._tell(part.units)
            if part.units <= least:
                dual.restore(best)
                part.units = dual.units
                break
            best, times = dual.snapshot(), 2 * times

    def _slow(self, gained: int, units: int, enough: float) -> bool:
        cost = self.incumbent.cost
        missing = (cost << SCALE_BITS) - units if cost < INF else units // 100
        return gained <= enough * missing

    def _tell(self, units: int) -> None:
        """Report, and notice when to stop."""
        self.stopped |= self.limits.over or self.sweeps >= self.limits.sweeps
        if self.limits.progress is not None:
            cost = self.incumbent.cost
            bound = min(picoseconds(self.open[0][0] if self.open else units), cost)
            known = cost if cost < INF else None
            self.stopped |= bool(
                self.limits.progress(Progress(self.sweeps, self.nodes, bound, known, self.limits.seconds))
            )

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
                self._raise(child, child.dual, *BELOW)
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
        tree, units = grown(self.root)
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
