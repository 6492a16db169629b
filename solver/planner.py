"""From a question to a plan: feasibility first, then the bound and the incumbent, then Z3's decision."""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from solver.choice import Choice, Evaluation
from solver.constraints.check import Checker
from solver.constraints.expression import read_expressions
from solver.constraints.model import read_choice, whole_graph
from solver.deadline import OutOfTimeError, ending_when, leaving_at
from solver.explain.core import Core, find_core, other_cores, refuted
from solver.explain.tell import tell
from solver.explanation import Explanation
from solver.garbage import collecting_later
from solver.graph import Graph
from solver.memory_budget import beyond, blame, within_budget
from solver.mesh import Mesh
from solver.plan import UNPROVED, Plan
from solver.planner_communication import communication_first
from solver.planner_traffic import within_traffic
from solver.problem import DEFAULT_CAPABILITIES, Problem, ProblemError, problem
from solver.problem_wishes import COMMAND
from solver.repairs import find_repairs
from solver.search.branch import solve
from solver.search.build import build
from solver.search.cases import Searched, broken, in_cases
from solver.search.coarse import coarser
from solver.search.limits import Progress, Report
from solver.search.memory import BudgetSearch
from solver.search.network import INF
from solver.search.ready import make_ready
from solver.search.smt import ContradictionError, Decision, decide, is_model
from solver.search.thrift import thriftier

EXPLAINING = 1.0, 10.0
"""Seconds that the core gets, and that the repairs get, however little time is left, and however much."""
MOMENT = 1.0
"""Seconds beyond the time that the network may take: without it there is no search at all."""
Explain: TypeAlias = "Callable[[Problem, Core | None, Checker | None, _Clock], Explanation]"
"""What is done about a problem without a plan, given a core where it is known, and its model where it is written."""
OnProgress = Callable[[str, Progress | None], bool | None]
"""Called with the stage, now and then, and during the search with how far it is; all stops when it returns True."""


def plan(
    graph: Graph,
    mesh: Mesh,
    *,
    pins: Mapping[str, Any] | None = None,
    communication: str = "any",
    objective: str = "time",
    memory: int | str | None = None,
    constraints: Sequence[Any] = (),
    policy: Sequence[Any] = (),
    capabilities: frozenset[str] = DEFAULT_CAPABILITIES,
    overlap: Mapping[str, float] | None = None,
    timeout: float = 60.0,
    gap: float = 0.0,
    progress: OnProgress | None = None,
) -> Plan:
    """Find a plan of least time for a graph on a mesh, and prove it.

    Parameters
    ----------
    graph : Graph
    mesh : Mesh
    pins : mapping, optional
        Tensor, glob or ``op/operand`` -> placements: ``{"x": {"dp": Shard(0)}, "*.weight": "tp=S(1)"}``.
    communication : str, optional
        ``any``, ``none`` (no byte leaves a device) or ``frozen`` (nothing is resharded).
    objective : str, optional
        ``time``: least compute and communication time; ``communication``: least communication time, then least
        compute.
    memory : int or str, optional
        What a plan may fill of one device at its peak: bytes, or a size as ``"80GB"`` or ``"74.5GiB"``.
    constraints : sequence of z3.BoolRef, optional
        Expressions over `solver.sharded` and `solver.partial` that the plan fulfils:
        ``[z3.Or(sharded("w", 0, "tp"), sharded("w", 1, "tp"))]``.
    policy : sequence, optional
        What may communicate, what stays cut, which ties go: ``(no_communication("dp"), zero(1, "dp"))``
        (`solver.constraints.policy`).
    capabilities : frozenset of str, optional
        What the runtime can do.
    overlap : mapping, optional
        Kind of collective -> the fraction of its time that runs beside compute and does not count:
        ``{"all_gather": 0.5}``.
    timeout : float, optional
        Seconds, not counting the first plan after an installation compiling the search for some ten to twenty.
    gap : float, optional
        The fraction of the cost by which the proved bound may stay below it.
    progress : callable, optional
        Called with the name of the stage, now and then, and during the search with a `Progress`; return True to stop
        early.

    Returns
    -------
    Plan
        With status ``optimal``, ``feasible`` (and its gap), ``infeasible`` (and why) or ``unknown``.

    Raises
    ------
    ValueError
        Where a wish names nothing in the graph or mesh, cannot be read, or is not planned with yet; where a time is
        longer than can be counted.
    KeyboardInterrupt
        After Ctrl-C before there was a plan; later it ends the search, with the best plan so far.
    """
    seconds, gap = nonnegative("timeout", timeout), nonnegative("gap", gap)
    if progress is not None:
        progress("compiling", None)
    make_ready()
    clock = _Clock(seconds, progress)
    clock.stage("constraints")
    with collecting_later():
        asked = problem(
            graph,
            mesh,
            pins=pins,
            communication=communication,
            objective=objective,
            capabilities=capabilities,
            policy=policy,
            overlap=overlap,
            expressions=read_expressions(constraints),
            memory=memory,
            place=_caller(),
        )
    return _plan(asked, gap, clock, _mended)


def plan_problem(asked: Problem, timeout: float, progress: OnProgress | None = None) -> Plan:
    """Answer a question that has been read already; where there is no plan say why, but look for no repairs.

    Parameters
    ----------
    asked : Problem
    timeout : float
        Seconds.
    progress : callable, optional
        As in `plan`.

    Returns
    -------
    Plan

    Raises
    ------
    ValueError
        For a time that is no number from 0 up.
    """
    return _plan(asked, 0.0, _Clock(nonnegative("timeout", timeout), progress), _explained)


def _plan(asked: Problem, gap: float, clock: _Clock, explain: Explain | None) -> Plan:
    if asked.objective == "communication":
        return communication_first(asked, lambda weighed: _best(weighed, gap, clock, explain))
    if asked.budget is not None:
        seconds = 0.0 if explain is None else clock.moment(*EXPLAINING)
        return within_traffic(asked, asked.budget, lambda one: _best(one, gap, clock, explain), gap, seconds, clock)
    return _best(asked, gap, clock, explain)


def _best(asked: Problem, gap: float, clock: _Clock, explain: Explain | None) -> Plan:
    if (core := refuted(asked, time.monotonic() + clock.moment(*EXPLAINING), quick=True)) is not None:
        told = None if explain is None else explain(asked, core, None, clock)
        return Plan(asked, "infeasible", explanation=told, stages=clock.stages())
    with collecting_later():
        checker = Checker(whole_graph(asked))
    clock.stage("feasibility")
    verdict = checker.search(seconds=clock.left())
    if verdict.status == "unsat":
        told = None if explain is None else explain(asked, None, checker, clock)
        return Plan(asked, "infeasible", explanation=told, stages=clock.stages())
    if verdict.status == "unknown":
        return Plan(asked, "unknown", stages=clock.stages())

    def first() -> Choice:
        return _tidy(asked, read_choice(checker.clauses, asked, verdict.true))

    whole = in_cases(asked, lambda case: _searched(case, gap, clock))
    if whole is None:
        return _unproved(asked, first(), clock)
    cases, best = whole
    if cases.bound == INF:
        raise ContradictionError("Z3 finds a plan where the network has none")
    if best.found.assignment is None:
        return _unproved(asked, first(), clock)
    if asked.memory is not None and beyond(asked, best.built.choice(best.found.assignment)):
        return _within(BudgetSearch(asked, cases, clock.left, gap, clock.report_on(asked)), checker, clock, explain)
    clock.stage("decision")
    with collecting_later():
        decision = _decided(best, checker, gap, first, clock)
    if beyond(asked, decision.choice):
        return _within(BudgetSearch(asked, cases, clock.left, gap, clock.report_on(asked)), checker, clock, explain)
    clock.stage("certificate")
    others = min((case.searched.bound for case in cases.ends() if case.searched is not best), default=INF)
    proved = min(cases.bound, decision.cost)
    bound = max(proved, min(others, decision.bound))
    with collecting_later():
        certificate = cases.certificate()
    return Plan(
        asked,
        "optimal" if decision.confirmed and decision.cost <= bound else "feasible",
        decision.choice,
        certificate,
        proved,
        bound,
        "certificate+z3" if bound > proved else "certificate",
        stages=clock.stages(),
        losses=best.losses if proved < decision.cost else {},
    )


def _within(search: BudgetSearch, checker: Checker, clock: _Clock, explain: Explain | None) -> Plan:
    """Search within a memory budget; where every plan fills more and repairs are wanted, find what is to blame."""
    found = within_budget(search, checker, clock)
    if found.explanation is None or explain is not _mended:
        return found
    clock.stage("repairs")
    seconds = clock.moment(*EXPLAINING)

    def solve(changed: Problem) -> Plan:
        return _plan(_plainly(changed), 0.0, clock.part(seconds / 4), None)

    return replace(found, explanation=blame(search.problem, found.explanation, solve, seconds))


def _searched(asked: Problem, gap: float, clock: _Clock) -> Searched | None:
    """Search the cost network of a problem; None where there was no time for it."""
    try:
        clock.stage("network")
        with ending_when(clock.over), collecting_later():
            built = build(asked)
        clock.stage("bound")
        coarse = coarser(built.network)
        return Searched(
            built,
            coarse,
            coarse.exact(solve(coarse.network, clock.left(), gap, coarse.told(clock.report_on(asked, relaxed=True)))),
        )
    except (OutOfTimeError, KeyboardInterrupt):
        return None


def _decided(best: Searched, checker: Checker, gap: float, first: Callable[[], Choice], clock: _Clock) -> Decision:
    """Let Z3 decide, beginning with the first plan where the best one breaks an expression."""
    built, found, asked = best.built, best.found, best.built.problem
    gap = 1.0 if best.coarse.shift else gap
    assert found.assignment is not None
    spared, start = thriftier(built, found.assignment), None
    if asked.expressions:
        choice = built.choice(spared)
        if broken(asked, choice) or is_model(asked, choice, checker, max(MOMENT, clock.left())).status == "unsat":
            start = first()
    return decide(built, replace(found, assignment=spared), checker, clock.left(), gap, start)


def _unproved(asked: Problem, first: Choice, clock: _Clock) -> Plan:
    """Return the plan that Z3 found to begin with, where the search has none: nothing but 0 bounds its cost."""
    if beyond(asked, first):
        return Plan(asked, "unknown", stages=clock.stages())
    return Plan(asked, "feasible", first, UNPROVED, proof="certificate", stages=clock.stages())


def _tidy(asked: Problem, choice: Choice) -> Choice:
    """Leave out what is held as it is made."""
    found = Evaluation(asked, choice)
    return replace(choice, held={name: one for name, one in choice.held.items() if one != found.made(name)})


def _explained(asked: Problem, core: Core | None, checker: Checker | None, clock: _Clock) -> Explanation:
    """Return why an infeasible problem is so."""
    return tell(asked, _core(asked, core, clock))


def _mended(asked: Problem, core: Core | None, checker: Checker | None, clock: _Clock) -> Explanation:
    """Return why an infeasible problem is so, and what would do."""
    core = _core(asked, core, clock)
    told = tell(asked, core, *other_cores(asked, core, time.monotonic() + clock.moment(*EXPLAINING)))
    clock.stage("repairs")
    allowed = clock.moment(*EXPLAINING)
    end = time.monotonic() + allowed + MOMENT

    def solve(changed: Problem, seconds: float) -> Plan | None:
        found: list[Plan] = []
        with leaving_at(end):
            found.append(_plan(_plainly(changed), 0.0, clock.part(seconds), None))
        return found[0] if found else None

    with ending_when(clock.stopped):
        repairs, unrepaired = find_repairs(asked, checker, core, allowed, solve)
    return replace(told, repairs=repairs, unrepaired=unrepaired)


def _plainly(asked: Problem) -> Problem:
    """Return what was asked, without the weights that a search for it put on time and bytes."""
    return replace(asked, counted=(1, 1), levy=())


def _core(asked: Problem, core: Core | None, clock: _Clock) -> Core:
    clock.stage("explanation")
    return find_core(asked, clock.moment(*EXPLAINING)) if core is None else core


def _caller() -> str:
    """Return where the wishes were written: in the command, or the file and line outside this package."""
    frame = inspect.currentframe()
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module == "solver.cli":
            return COMMAND
        if module.partition(".")[0] != "solver":
            return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def nonnegative(name: str, value: Any) -> float:
    """Return a time or a gap that a person gave.

    Parameters
    ----------
    name : str
        ``timeout`` (seconds) or ``gap`` (a fraction of the cost).
    value : float

    Raises
    ------
    ProblemError
        Where it is no number, negative, or larger than a float can be.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= sys.float_info.max:
        what = "seconds" if name == "timeout" else "a fraction of the cost"
        raise ProblemError(f"{name}={value!r}: give {what}, a number from 0 up")
    return float(value)


class _Clock:
    """The time of each stage, and what is left."""

    def __init__(self, timeout: float, progress: OnProgress | None) -> None:
        self._end = time.monotonic() + timeout
        self._progress = progress
        self._stages: dict[str, float] = {}
        self._now: tuple[str, float] | None = None
        self._stopped = False

    def stage(self, name: str) -> None:
        """End the stage that runs and begin another."""
        self._close()
        self._now = name, time.monotonic()
        if self._progress is not None:
            self._stopped |= bool(self._progress(name, None))

    def stages(self) -> dict[str, float]:
        """Return the seconds of each stage."""
        self._close()
        return self._stages

    def left(self) -> float:
        """Return the seconds left, never less than a moment; that moment where the caller wants to stop."""
        return 0.001 if self._stopped else max(0.001, self._end - time.monotonic())

    def moment(self, least: float, most: float) -> float:
        """Return the seconds that a stage gets, however little time is left, and however much."""
        return min(max(least, self.left()), most)

    def part(self, seconds: float) -> _Clock:
        """Return a clock for a piece of the work, which stops where this one does."""
        stopped = None if self._progress is None else lambda name, state: self.over() and self._stopped
        return _Clock(seconds, stopped)

    def over(self) -> bool:
        """Whether the stage that runs should give up: a moment after the time is used up, as it is worth waiting for.

        Asks the caller too.
        """
        return self.stopped() or time.monotonic() > self._end + MOMENT

    def stopped(self) -> bool:
        """Tell the caller what goes on, and whether the caller wants to stop."""
        if self._progress is not None and self._now is not None:
            self._stopped |= bool(self._progress(self._now[0], None))
        return self._stopped

    def report_on(self, asked: Problem, *, relaxed: bool = False) -> Report | None:
        """Return the progress callback of a search that may know nothing of budgets: then its plans are told of no one.

        None where what it counts are not just the picoseconds of what was asked.
        """
        report = self.report
        if report is None or asked.levy or asked.counted != (1, 1):
            return None
        if asked.budget is None and (asked.memory is None or not relaxed):
            return report
        return lambda state: report(replace(state, cost=None))

    @property
    def report(self) -> Report | None:
        """The progress callback of a search whose bounds and costs are those of what was asked."""
        progress = self._progress
        if progress is None:
            return None

        def report(state: Progress) -> bool:
            self._stopped |= bool(progress("bound", state))
            return self._stopped

        return report

    def _close(self) -> None:
        if self._now is not None:
            name, begin = self._now
            self._stages[name] = self._stages.get(name, 0.0) + time.monotonic() - begin
            self._now = None
