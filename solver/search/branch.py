"""The optimum and its proof: the bound, the incumbent, and branching where they do not meet."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from solver.search.bound import Dual, Messages, picoseconds
from solver.search.flat import SCALE_BITS, flatten
from solver.search.incumbent import Incumbent, dive, orders
from solver.search.network import INF, Domains, IntArray, Network, arc_consistency
from solver.search.split import proposals

SEEDS = range(8)
"""Seeds of the random orders in which assignments are read off."""

TREE_BYTES = 2**31
"""No more branching once the messages of the leaves take this much memory."""


@dataclass(frozen=True, eq=False)
class Leaf:
    """A part of the values whose bound is proved by messages.

    Parameters
    ----------
    messages : Messages or None
        They prove `units` on what arc consistency leaves of this part; None where it leaves nothing.
    units : int
        The bound in 1/4096 ps.
    infeasible : bool
        Arc consistency empties a domain, so no assignment is allowed here.
    """

    messages: Messages | None
    units: int
    infeasible: bool = False


@dataclass(frozen=True, eq=False)
class Split:
    """The values of one variable in two parts.

    Parameters
    ----------
    variable : int
        Index of the variable.
    left_values, right_values : int64 arrays
        Its values that are left at this point, in two disjoint parts, both with something in them.
    left, right : Leaf or Split
        What is proved on each part.
    """

    variable: int
    left_values: IntArray
    right_values: IntArray
    left: Tree
    right: Tree


Tree: TypeAlias = Leaf | Split


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
    """

    assignment: tuple[int, ...] | None
    cost: int
    tree: Tree
    bound: int
    infeasible: bool
    sweeps: int
    nodes: int
    seconds: float


def solve(network: Network, timeout: float = 60.0, gap: float = 0.0, progress: Report | None = None, nodes: int = 100_000) -> Result:
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
    begin = time.monotonic()
    start = arc_consistency(network)
    if not start.feasible:
        return Result(None, INF, Leaf(None, INF << SCALE_BITS, infeasible=True), INF, True, 0, 1, time.monotonic() - begin)
    search = _Search(network, start.domains, begin, timeout, gap, progress, nodes)
    try:
        search.run()
    except KeyboardInterrupt:
        pass
    return search.result()


class _Part:
    """A node of the tree while it grows."""

    def __init__(self, domains: Domains, dual: Dual | None, units: int) -> None:
        self.domains, self.dual, self.units = domains, dual, units
        self.split: tuple[int, IntArray, IntArray, _Part, _Part] | None = None


class _Search:
    """The work of `solve`."""

    def __init__(self, network: Network, domains: Domains, begin: float, timeout: float, gap: float,
                 progress: Report | None, nodes: int) -> None:
        self.network, self.begin, self.timeout, self.gap, self.progress, self.limit = network, begin, timeout, gap, progress, nodes
        self.flat = flatten(network, domains)
        self.incumbent = Incumbent(self.flat)
        self.root = _Part(domains, Dual(self.flat), 0)
        self.open: list[tuple[int, int, _Part]] = []
        self.sweeps, self.nodes, self.stopped = 0, 1, False
        per_leaf = 8 * sum(sum(edge.table.shape) for edge in network.edges)
        self.most_leaves = max(16, TREE_BYTES // max(1, per_leaf))

    def run(self) -> None:
        """Raise the bound of the root, then of the part with the least bound, until nothing is open."""
        self._raise_root()
        heapq.heappush(self.open, (self.root.units, 0, self.root))
        while self.open and not self.stopped and not self._closed(self.open[0][0]):
            if self.nodes >= min(self.limit, 2 * self.most_leaves):
                break
            part = self.open[0][2]
            children = self._divide(part)
            if children is None:
                break
            heapq.heappop(self.open)
            for child in children:
                if child.dual is not None:
                    heapq.heappush(self.open, (child.units, self.nodes, child))
                self.nodes += 1

    def _closed(self, units: int) -> bool:
        """Whether no part with this bound needs more work."""
        cost = self.incumbent.cost
        return cost < INF and cost - picoseconds(units) <= self.gap * cost

    def _raise_root(self) -> None:
        """Sweep over the whole network; where that finds nothing allowed, dive."""
        dual, part = self.root.dual, self.root
        assert dual is not None
        waiting = orders(len(self.network.variables), SEEDS)
        self._raise(part, 30, 0.01, often=True)
        for order in waiting:
            if self.stopped or self._closed(part.units):
                break
            self.incumbent.read(dual, order)
        if self.incumbent.choice is None and not self.stopped:
            choice = dive(dual, part.domains)
            if choice is not None:
                self.incumbent.offer(choice)

    def _raise(self, part: _Part, window: int, enough: float, often: bool = False) -> None:
        """Sweep until the part is closed, or the bound gains less than `enough` of what is missing in `window` sweeps."""
        dual = part.dual
        assert dual is not None
        history: list[int] = []
        while not self.stopped:
            changed = dual.sweep()
            self.sweeps += 1
            part.units = dual.units
            history.append(part.units)
            if often and (len(history) <= 5 or len(history) % 5 == 0):
                self.incumbent.offer(dual.state.choice)
            self._tell(part)
            if not changed or self._closed(part.units):
                break
            if len(history) > window and self._slow(history[-1] - history[-1 - window], part.units, enough):
                break
        self.incumbent.offer(dual.state.choice)

    def _slow(self, gained: int, units: int, enough: float) -> bool:
        cost = self.incumbent.cost
        missing = (cost << SCALE_BITS) - units if cost < INF else units // 100
        return gained <= enough * missing

    def _tell(self, part: _Part) -> None:
        """Report, and notice when to stop."""
        seconds = time.monotonic() - self.begin
        if seconds > self.timeout:
            self.stopped = True
        if self.progress is not None:
            cost = self.incumbent.cost
            least = min([part.units, *(self.open[:1] and [self.open[0][0]])])
            bound = min(picoseconds(least), cost)
            if self.progress(Progress(self.sweeps, self.nodes, bound, cost if cost < INF else None, seconds)):
                self.stopped = True

    def _divide(self, part: _Part) -> tuple[_Part, _Part] | None:
        """Split a part in the most promising of the proposed ways and raise the bounds of both sides."""
        assert part.dual is not None
        best: tuple[tuple[int, int], int, IntArray, IntArray, _Part, _Part] | None = None
        for variable, chosen in proposals(part.dual):
            domain = part.domains[variable]
            left = domain & np.isin(self.flat.group[variable], chosen)
            right = domain & ~left
            pair = self._child(part, variable, left), self._child(part, variable, right)
            for child in pair:
                if child.dual is not None:
                    for _ in range(2):
                        child.dual.sweep()
                        self.sweeps += 1
                    child.units = child.dual.units
            gains = sorted(child.units for child in pair)
            if best is None or (gains[0], gains[1]) > best[0]:
                best = (gains[0], gains[1]), variable, np.flatnonzero(left), np.flatnonzero(right), *pair
            self._tell(part)
            if self.stopped:
                break
        if best is None:
            return None
        _, variable, left_values, right_values, *children = best
        for child in children:
            if child.dual is not None and not self._closed(child.units):
                self._raise(child, 10, 0.05)
        part.split = variable, left_values, right_values, children[0], children[1]
        part.dual = None
        return children[0], children[1]

    def _child(self, part: _Part, variable: int, domain: np.ndarray) -> _Part:
        """Return one side of a split, without a dual where nothing is allowed on it."""
        narrowed = (*part.domains[:variable], domain, *part.domains[variable + 1:])
        found = arc_consistency(self.network, narrowed, [variable])
        if not found.feasible:
            return _Part(found.domains, None, INF << SCALE_BITS)
        return _Part(found.domains, Dual(self.flat, self.flat.restrict(found.domains), part.dual), part.units)

    def result(self) -> Result:
        """Return the tree and what it proves; the parts give up their duals."""
        shared: dict[bytes, IntArray] = {}

        def share(array: IntArray) -> IntArray:
            return shared.setdefault(array.tobytes(), array)

        done: dict[int, Tree] = {}
        least = INF << SCALE_BITS
        stack = [self.root]
        while stack:
            part = stack.pop()
            if part.split is None:
                if part.dual is None:
                    done[id(part)] = Leaf(None, INF << SCALE_BITS, infeasible=True)
                else:
                    messages = tuple((share(a), share(b)) for a, b in part.dual.messages())
                    done[id(part)] = Leaf(messages, part.units)
                least = min(least, part.units)
            else:
                variable, left_values, right_values, left, right = part.split
                if id(left) in done:
                    done[id(part)] = Split(variable, left_values, right_values, done[id(left)], done[id(right)])
                else:
                    stack += [part, left, right]
        infeasible = least >= INF << SCALE_BITS and self.incumbent.choice is None
        bound = INF if infeasible else min(picoseconds(least), self.incumbent.cost)
        return Result(self.incumbent.assignment, self.incumbent.cost, done[id(self.root)], bound, infeasible,
                      self.sweeps, self.nodes, time.monotonic() - self.begin)
