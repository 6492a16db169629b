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
from solver.memory_budget import Searches, beyond, blame, within_budget
from solver.mesh import Mesh
from solver.plan import UNPROVED, Closest, Plan
from solver.planner_clock import MOMENT, Clock, OnProgress
from solver.planner_communication import communication_first
from solver.planner_traffic import within_traffic
from solver.problem import DEFAULT_CAPABILITIES, Problem, ProblemError, problem
from solver.problem_wishes import COMMAND
from solver.repairs import find_repairs
from solver.search.branch import solve
from solver.search.build import build
from solver.search.cases import Searched, broken, in_cases
from solver.search.coarse import coarser
from solver.search.memory import BudgetSearch
from solver.search.network import INF
from solver.search.ready import make_ready
from solver.search.smt import ContradictionError, Decision, decide, is_model
from solver.search.thrift import thriftier

EXPLAINING = 1.0, 10.0
"""Seconds that the core gets, and that the repairs get, however little time is left, and however much."""
Explain: TypeAlias = "Callable[[Problem, Core | None, Checker | None, Clock], Explanation]"
"""What is done about a problem without a plan, given a core where it is known, and its model where it is written."""


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
    clock = Clock(seconds, progress)
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


def plan_problem(
    asked: Problem, timeout: float, progress: OnProgress | None = None, searches: Searches | None = None
) -> Plan:
    """Answer a question that has been read already; where there is no plan say why, but look for no repairs.

    Parameters
    ----------
    asked : Problem
    timeout : float
        Seconds.
    progress : callable, optional
        As in `plan`.
    searches : Searches, optional
        Of other memory budgets; this one begins with them, and joins them.

    Returns
    -------
    Plan

    Raises
    ------
    ValueError
        For a time that is no number from 0 up.
    """
    return _plan(asked, 0.0, Clock(nonnegative("timeout", timeout), progress), _explained, searches)


def _plan(asked: Problem, gap: float, clock: Clock, explain: Explain | None, known: Searches | None = None) -> Plan:
    def search(one: Problem) -> Plan:
        return _best(one, gap, clock, explain, known or Searches())

    if asked.objective == "communication":
        return communication_first(asked, search)
    if asked.budget is not None:
        seconds = 0.0 if explain is None else clock.moment(*EXPLAINING)
        return within_traffic(asked, asked.budget, search, gap, seconds, clock)
    return search(asked)


def _best(asked: Problem, gap: float, clock: Clock, explain: Explain | None, known: Searches) -> Plan:
    def within(search: BudgetSearch, checker: Checker) -> Plan:
        known.keep(search, checker)
        return _within(search, checker, clock, explain)

    if (before := known.find(asked)) is not None:
        return within(before[0].again(asked, clock.left, gap, clock.report_on(asked)), before[1])
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
        return within(BudgetSearch(asked, cases, clock.left, gap, clock.report_on(asked)), checker)
    clock.stage("decision")
    with collecting_later():
        decision = _decided(best, checker, gap, first, clock)
    if beyond(asked, decision.choice):
        return within(BudgetSearch(asked, cases, clock.left, gap, clock.report_on(asked)), checker)
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


def _within(search: BudgetSearch, checker: Checker, clock: Clock, explain: Explain | None) -> Plan:
    """Search within a memory budget; where every plan fills more and repairs are wanted, find what is to blame."""
    found = within_budget(search, checker, clock)
    if found.explanation is None or explain is not _mended:
        return found
    clock.stage("repairs")
    seconds = clock.moment(*EXPLAINING)

    def solve(changed: Problem) -> Plan:
        return _plan(_plainly(changed), 0.0, clock.part(seconds / 4), None)

    return replace(found, explanation=blame(search.problem, found.explanation, solve, seconds))


def _searched(asked: Problem, gap: float, clock: Clock) -> Searched | None:
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


def _decided(best: Searched, checker: Checker, gap: float, first: Callable[[], Choice], clock: Clock) -> Decision:
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


def _unproved(asked: Problem, first: Choice, clock: Clock) -> Plan:
    """Return the plan that Z3 found to begin with, where the search has none: nothing but 0 bounds its cost."""
    if beyond(asked, first):
        return Plan(asked, "unknown", stages=clock.stages(), closest=Closest(0, first, late=True))
    return Plan(asked, "feasible", first, UNPROVED, proof="certificate", stages=clock.stages())


def _tidy(asked: Problem, choice: Choice) -> Choice:
    """Leave out what is held as it is made."""
    found = Evaluation(asked, choice)
    return replace(choice, held={name: one for name, one in choice.held.items() if one != found.made(name)})


def _explained(asked: Problem, core: Core | None, checker: Checker | None, clock: Clock) -> Explanation:
    """Return why an infeasible problem is so."""
    return tell(asked, _core(asked, core, clock))


def _mended(asked: Problem, core: Core | None, checker: Checker | None, clock: Clock) -> Explanation:
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


def _core(asked: Problem, core: Core | None, clock: Clock) -> Core:
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
