"""The cheapest plan within a memory budget, and a bound on all of them (docs/memory.md)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from solver.choice import Choice
from solver.cost.moments import START, step_of
from solver.deadline import OutOfTimeError
from solver.problem import Problem
from solver.search.build import Built
from solver.search.cases import Cases, broken
from solver.search.certify import certificate
from solver.search.limits import Progress, Report
from solver.search.memory_branch import Branching
from solver.search.memory_dual import Priced, Raised, within
from solver.search.memory_mix import mixed
from solver.search.memory_network import storing
from solver.search.memory_peak import Peaks
from solver.search.multipliers import Multipliers, Plane
from solver.search.network import INF, IntArray

ROUNDS = 60
"""The most multipliers that are tried."""
IDLE = 8
"""No more of them when so many in a row gained nothing."""
MOMENT = 0.01
"""Seconds that are too few to begin anything."""
NEAR = 0.0003
"""Bounds and assignments are looked for until this fraction is missing."""
MOST_MOMENTS = 12
"""With more moments the bound is not tightened any further."""
DEAR = 30
"""How many times dearer than time the bytes are where the least peak is looked for."""
SMALL = 40
"""With at most so many steps a problem is split until it is settled."""
WEIGHT_BITS = 10
"""Weights sum to this power of two."""


@dataclass(frozen=True, eq=False)
class Fit:
    """A plan as the search knows it.

    Parameters
    ----------
    built : Built
    assignment : tuple of int
    cost : int
        Picoseconds.
    peak : int
        Bytes.
    moment : str
        The one that stands for the step of the peak.
    """

    built: Built
    assignment: tuple[int, ...]
    cost: int
    peak: int
    moment: str

    @property
    def choice(self) -> Choice:
        """What the plan chooses."""
        return self.built.choice(self.assignment)


@dataclass(frozen=True, eq=False)
class Proof:
    """A bound and the certificate that proves it.

    Parameters
    ----------
    bound : int
        Picoseconds that every plan within the budget takes, INF where there is none; of the least memory, bytes that
        every plan fills at its peak.
    write : callable
        Writes the certificate (docs/memory.md).
    exact : callable
        Computes the picoseconds that the certificate proves: the search stops at a little less.
    """

    bound: int
    write: Callable[[], dict[str, Any]]
    exact: Callable[[], int]


def _leaf_proof(bound: int, priced: Priced, raised: Raised, budget: int) -> Proof:
    """Return the proof that is one leaf, with multipliers or weights."""

    def write() -> dict[str, Any]:
        written = certificate(priced.storing.built, raised.leaf, raised.bits)
        written["tree"]["multipliers" if raised.timed else "weights"] = [int(one) for one in raised.multipliers]
        return {**written, "moments": list(priced.storing.moments.names)}

    return Proof(bound, write, lambda: within(priced.proved(raised), raised, budget))


class BudgetSearch:
    """Looks for plans within a budget and for multipliers that prove how cheap they can be.

    Parameters
    ----------
    problem : Problem
        With a memory budget.
    cases : Cases
        What was found without the budget.
    left : callable
        The seconds that are left.
    gap : float, optional
        The fraction of the cost by which the bound may stay below it.
    report : callable, optional
        Called with a `Progress` now and then; the search stops when it returns True.
    """

    def __init__(
        self,
        problem: Problem,
        cases: Cases,
        left: Callable[[], float],
        gap: float = 0.0,
        report: Report | None = None,
    ) -> None:
        assert problem.memory is not None
        self.problem, self.budget, self.left = problem, problem.memory, left
        self._near, self._report, self._stopped, self._begin = max(NEAR, gap), report, False, time.monotonic()
        self.best: Fit | None = None
        """The cheapest plan within the budget."""
        self.proof: Proof | None = None
        self.least: Proof | None = None
        """What every plan fills at its peak."""
        self.moments: list[str] = []
        self.multipliers = np.zeros(0, np.int64)
        """Those of the best bound, in units of ``2**-SCALE_BITS`` ps a byte."""
        self.planes: list[Plane] = []
        self.seen: list[Fit] = []
        self._cases = cases
        self._multipliers = Multipliers()
        built, found = cases.searched.built, cases.searched.found
        assert found.assignment is not None
        self.cheapest = max(1, found.cost)
        memory = Peaks(built).of(found.assignment)
        self.smallest = Fit(built, found.assignment, found.cost, memory.peak, self._moment(memory.at))
        """The plan with the least peak."""
        self.unbudgeted = memory.peak
        """What the cheapest plan of all fills at its peak."""

    def again(
        self, problem: Problem, left: Callable[[], float], gap: float = 0.0, report: Report | None = None
    ) -> BudgetSearch:
        """Return a search of the same problem with another budget, which begins with what this one saw.

        Parameters
        ----------
        problem : Problem
        left, gap, report
            As they are for the search itself.
        """
        other = BudgetSearch(problem, self._cases, left, gap, report)
        other.smallest, other.least = self.smallest, self.least
        other.proof = self.proof if self.budget >= other.budget else None
        known = [fit for fit in (self.smallest, self.best, *self.seen) if fit is not None and fit.peak <= other.budget]
        for fit in sorted(known, key=lambda fit: fit.cost):
            if broken(problem, fit.choice) is None:
                other.best = fit
                break
        if self.planes and len(self.moments) == len(self.multipliers):  # else it was split, with every step a moment
            other.moments, other.multipliers = list(self.moments), np.zeros(len(self.moments), np.int64)
            other.planes, other.seen = list(self.planes), list(self.seen)
            other.storing, other.priced, other.peaks = self.storing, self.priced, self.peaks
        return other

    # ---------------------------------------------------------------------------------------------------- the budget

    def run(self) -> None:
        """Raise the bound and look for plans, until both meet or there is no time; Ctrl-C ends it early."""
        with contextlib.suppress(KeyboardInterrupt, OutOfTimeError):
            if not self.moments:
                self._add_moment(self.smallest.moment)
            else:
                self._mix()
            self._raise_bound(self.left() / 2)
            if self.best is None:
                self.find_least()
                if not self.hopeless:
                    self._raise_bound()
            self._mix()
            self._branch()

    def _branch(self) -> None:
        """Where the problem is small, split it with every step as a moment until bound and plan meet."""
        graph = self.problem.graph
        uses = [use for node in graph.nodes for use in graph.operand_uses(node)]
        moments = [START, *map(step_of, graph.nodes), *(f"before {use.name}" for use in uses)]
        if self.over or len(moments) > SMALL or self.hopeless:
            return
        paid = dict(zip(self.moments, self.multipliers.tolist(), strict=True))
        self.moments = moments
        self.storing = storing(self.problem, moments)
        self.priced, self.peaks = Priced(self.storing), Peaks(self.storing.built)
        self.planes, self.seen = [], []

        def see(assignment: tuple[int, ...]) -> int:
            self._see(assignment)
            return INF if self.best is None else self.best.cost

        branching = Branching(self.priced, self.budget, see, self._late)
        start = np.array([paid.get(moment, 0) for moment in moments], np.int64)
        bound = branching.run(start, INF if self.best is None else self.best.cost)
        if bound > self.bound and branching.root.split is not None:
            self.proof = Proof(bound, branching.certificate, branching.proved)

    def _raise_bound(self, kept: float = 0.0) -> None:
        """Try multipliers where the planes promise most, and between there and the best so far; add moments.

        While no plan is known some seconds are kept for the least memory.
        """
        most = Fraction(4 * self.cheapest, self.budget)
        best: tuple[int, IntArray] = self._cases.bound, np.zeros(len(self.moments), np.int64)
        idle = 0
        for number in range(ROUNDS):
            if self.over or (self.best is None and self.left() <= kept):
                return
            promised, multipliers = self._multipliers.highest(self.planes, self.budget, most)
            if promised - best[0] <= NEAR * best[0]:
                if self.best is not None or max(multipliers) < most or most * self.budget > 10**5 * self.cheapest:
                    return
                most *= 8
                continue
            k = self.priced.whole(multipliers)
            if number % 2:
                k = (k + best[1]) // 2
            bound, wanted = self._try(k)
            idle = 0 if bound > best[0] + NEAR * best[0] else idle + 1
            if bound > best[0]:
                best = bound, k
                self.multipliers = k
            if wanted is not None and len(self.moments) < MOST_MOMENTS:
                self._add_moment(wanted)
                best, idle = (best[0], self.multipliers), 0
            if idle == IDLE:
                return

    def _try(self, k: IntArray, *, timed: bool = True) -> tuple[int, str | None]:
        """Raise a bound with multipliers; return it, and the moment where a plan breaks the budget, if a new one."""
        raised = self.priced.raised(k, time=timed, over=self._late)
        if timed:
            bound = within(raised.leaf.units, raised, self.budget)
            if bound > self.bound:
                self.proof = _leaf_proof(bound, self.priced, raised, self.budget)
        else:
            bound = -(-raised.leaf.units // max(1, raised.paid))
            if self.least is None or bound > self.least.bound:
                self.least = _leaf_proof(bound, self.priced, raised, self.budget)
        wanted = None
        for assignment in raised.assignments:
            wanted = self._see(assignment, timed=timed) or wanted
        return bound, wanted

    def _see(self, assignment: tuple[int, ...], *, timed: bool = True) -> str | None:
        """Keep what is better than what was seen; return the moment of its peak, if that is too high and a new one."""
        built = self.storing.built
        cost, memory = built.network.cost(assignment), self.peaks.of(assignment)
        fit = Fit(built, assignment, cost, memory.peak, self._moment(memory.at))
        better = fit.peak <= self.budget and (self.best is None or fit.cost < self.best.cost)
        smaller = fit.peak < self.smallest.peak
        if (better or smaller) and broken(self.problem, fit.choice) is None:
            self.best = fit if better else self.best
            self.smallest = fit if smaller else self.smallest
        self._tell()
        self.seen.append(fit)
        self.planes.append(Plane(cost, tuple(int(one) for one in self.storing.bytes(assignment))))
        return fit.moment if timed and fit.peak > self.budget and fit.moment not in self.moments else None

    @property
    def bound(self) -> int:
        """What every plan within the budget costs at least, in picoseconds."""
        return max(self._cases.bound, self.proof.bound if self.proof else 0)

    def proved(self) -> int:
        """Return what the certificate proves, exactly."""
        return self._cases.bound if self.proof is None else self.proof.exact()

    @property
    def certificate(self) -> dict[str, Any]:
        """The proof of the bound."""
        return self._cases.certificate() if self.proof is None else self.proof.write()

    @property
    def over(self) -> bool:
        """Whether there is nothing left to do, or no time."""
        met = self.best is not None and self.best.cost - self.bound <= self._near * self.best.cost
        return met or self._late()

    @property
    def hopeless(self) -> bool:
        """Whether it is proved that every plan fills more."""
        return self.least is not None and self.least.bound > self.budget

    def _moment(self, step: str | None) -> str:
        """Return the moment that stands for a step of a program."""
        graph = self.problem.graph
        if step is None or step in graph.nodes:
            return START if step is None else step_of(step)
        kind, name = step.split(" ", 2)[1:]
        if kind == "needed":
            return f"before {name}"
        producer, uses = graph.tensors[name].producer, self.problem.uses[name]
        if kind == "held" and producer is None:
            return step_of(uses[0].op)
        return START if producer is None else step_of(producer)

    def _add_moment(self, moment: str) -> None:
        """Take one more moment into account; there every assignment that was seen stores no more than at its peak."""
        counted = storing(self.problem, [*self.moments, moment])
        self.priced, self.peaks = Priced(counted), Peaks(counted.built)
        self.moments.append(moment)
        self.multipliers = np.append(self.multipliers, 0)
        self.storing = counted
        peaks = [fit.peak for fit in self.seen]
        self.planes = [Plane(plane.time, (*plane.bytes, peak)) for plane, peak in zip(self.planes, peaks, strict=True)]
        if not self.planes:
            self._try(np.zeros(1, np.int64))

    # ------------------------------------------------------------------------------------------------- the least

    def find_least(self) -> None:
        """Look for the plan with the least peak, and for weights that prove how small a peak can be."""
        for _ in range(ROUNDS):
            least = self.least.bound if self.least else 0
            if self._late() or self.smallest.peak - least <= NEAR * least:
                return
            promised, weights = self._multipliers.highest(self.planes, 0, Fraction(1), convex=True, timed=False)
            if promised - least <= NEAR * least:
                return
            self._try(np.array([int(one * 2**WEIGHT_BITS) for one in weights], np.int64), timed=False)
            price = Fraction(DEAR * self.cheapest, self.smallest.peak)
            wanted = self._try(self.priced.whole([one * price for one in weights]))[1]
            if wanted is not None and len(self.moments) < MOST_MOMENTS:
                self._add_moment(wanted)

    def _mix(self) -> None:
        """Mix what was seen within the budget with what was seen beyond it."""
        alike = [fit for fit in self.seen if fit.built is self.storing.built]
        small = sorted((fit for fit in alike if fit.peak <= self.budget), key=lambda fit: fit.cost)
        cheap = sorted((fit for fit in alike if fit.peak > self.budget), key=lambda fit: fit.peak)
        for one in small[:3]:
            for other in cheap[:6]:
                if self.over:
                    return
                tried = mixed(self.storing, self.peaks, other.assignment, one.assignment, self.budget, self._late)
                self._see(tried)

    def _late(self) -> bool:
        return self._stopped or self.left() <= MOMENT

    def _tell(self) -> None:
        """Report how far the search is, and notice when to stop."""
        if self._report is not None:
            cost = None if self.best is None else self.best.cost
            state = Progress(len(self.planes), 0, self.bound, cost, time.monotonic() - self._begin)
            self._stopped |= bool(self._report(state))
