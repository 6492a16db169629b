"""Time against memory: the cheapest plan within each of some budgets, with its bound."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from solver.choice import Choice
from solver.memory_budget import Searches
from solver.plan import Plan
from solver.planner import plan_problem
from solver.problem import Problem, ProblemError
from solver.words import size

LEAST = 1 / 3
"""The part of the time that the least memory gets: what is set up and seen for it serves every budget."""


@dataclass(frozen=True)
class Point:
    """A budget and what was found within it.

    Parameters
    ----------
    budget : int or None
        Bytes per device; None where there was none.
    plan : Plan
        The quickest that was found for this budget or a smaller one, with the best bound that was proved for it or a
        larger one. Of status ``unknown`` where there was none.
    """

    budget: int | None
    plan: Plan


@dataclass(frozen=True)
class Frontier:
    """Plans from the quickest to the smallest.

    Parameters
    ----------
    points : tuple of Point
        The one without a budget first, then by falling budgets; neither times nor bounds fall.
    least : int or None
        Bytes that every plan fills at its peak at least, where that was proved.
    """

    points: tuple[Point, ...]
    least: int | None


def frontier(
    quickest: Plan, points: int = 8, timeout: float = 60.0, tell: Callable[[str], bool | None] | None = None
) -> Frontier:
    """Plan within budgets between the peak of the quickest plan and the least memory that works.

    A plan that is best within a budget is so within every budget down to its own peak. So each point is spent between
    two plans, where memory and time differ most.

    Parameters
    ----------
    quickest : Plan
        A plan without a budget.
    points : int, optional
        The most points that there are to be, 2 or more.
    timeout : float, optional
        Seconds for all budgets together. The least memory gets its part, and each budget a like part of what is left.
    tell : callable, optional
        Called with what is done, now and then; all stops, with the points found so far, when it returns True.

    Returns
    -------
    Frontier

    Raises
    ------
    ProblemError
        Where there is no plan to begin with, or fewer than 2 points are asked for.
    """
    if type(points) is not int or points < 2:
        raise ProblemError(f"points={points!r}: a frontier has two ends, so give 2 or more")
    asked = quickest.problem
    if quickest.choice is None or asked.memory is not None:
        raise ProblemError("a frontier begins with a plan without a memory budget")
    told = tell or (lambda what: None)
    end, searches = time.monotonic() + timeout, Searches()

    def planned(budget: int, part: float, what: str) -> Plan:
        seconds = part * max(0.0, end - time.monotonic())
        return plan_problem(replace(asked, memory=budget), seconds, lambda stage, state: told(what), searches)

    what = "the least memory, before the budgets"
    if told(what):
        return Frontier((Point(None, quickest),), None)
    refused = planned(1, LEAST, what)
    closest, peak = refused.closest, quickest.memory.peak
    least = closest.least if closest is not None else 0
    found = [Point(None, quickest)]
    smallest = None if closest is None or closest.smallest is None else _chosen(asked, closest.smallest)
    budget: int | None = max(1, least, peak // 2) if smallest is None else smallest.memory.peak
    if smallest is not None and smallest.memory.peak < peak:
        found = _monotone([*found, Point(budget, smallest)])
    for number in range(1, points):
        if budget is None or budget >= peak:
            break
        what = f"budget {number} of {points - 1}, {size(budget)}"
        if told(what):
            break
        found = _monotone([*found, Point(budget, planned(budget, 1 / (points - number), what))])
        budget = _between(found)
    return Frontier(tuple(found), least or None)


def _chosen(asked: Problem, choice: Choice) -> Plan:
    """Return a plan of which nothing is proved, with its own peak as the budget."""
    peak = Plan(asked, "feasible", choice).memory.peak
    return Plan(replace(asked, memory=peak), "feasible", choice)


def _monotone(found: Sequence[Point]) -> list[Point]:
    """Return points by falling budgets, one for each: with the quickest plan of a budget that is no larger.

    And with the best bound of a budget that is no smaller.
    """
    found = sorted(found, key=lambda point: -math.inf if point.budget is None else -point.budget)
    proved, bounds = found[0].plan, {}
    for point in found:
        if point.plan.choice is not None and _bound(point.plan) >= _bound(proved):
            proved = point.plan
        bounds[point.budget] = proved
    told: dict[int | None, Point] = {}
    best: Plan | None = None
    for point in reversed(found):
        known = [plan for plan in (point.plan, best) if plan is not None and plan.choice is not None]
        best = min(known, key=_price, default=None)
        plan = point.plan if best is None else _joined(point.plan, best, bounds[point.budget])
        told[point.budget] = Point(point.budget, plan)
    return list(reversed(told.values()))


def _bound(plan: Plan) -> tuple[int, int]:
    return plan.bound_ps, plan.solver_bound_ps


def _price(plan: Plan) -> tuple[int, int, int]:
    return plan.evaluation.cost, plan.evaluation.total, plan.memory.peak


def _joined(own: Plan, best: Plan, proved: Plan) -> Plan:
    """Return the answer to the question of one plan with the choice of another and the bound of a third."""
    if own is best and own is proved:
        return own
    cost = best.evaluation.cost
    alike = proved.choice is not None and proved.cost_ps == cost
    compute = proved.compute_bound_ps if alike else 0  # with other communication it says nothing
    done = cost <= proved.solver_bound_ps
    if own.problem.objective == "communication":
        done = done and best.evaluation.computing <= compute
    return Plan(
        own.problem,
        "optimal" if done else "feasible",
        best.choice,
        proved.certificate,
        proved.bound_ps,
        proved.solver_bound_ps,
        proved.proof,
        stages=own.stages,
        compute_bound_ps=compute,
    )


def _between(found: Sequence[Point]) -> int | None:
    """Return the budget in the middle of where the least is known; None where every plan is known."""
    best, widest = None, 0.0
    for quick, small in pairwise(found):
        if quick.plan.choice is None or small.plan.choice is None or small.budget is None:
            continue
        peak = quick.plan.memory.peak
        slower = math.log(max(1, small.plan.cost_ps or 0) / max(1, quick.plan.cost_ps or 0))
        if peak > small.budget + 1 and (area := slower * math.log(peak / small.budget)) > widest:
            best, widest = max(small.budget + 1, math.isqrt((peak - 1) * small.budget)), area
    return best
