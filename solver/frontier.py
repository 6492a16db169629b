"""Time against memory: the cheapest plan within each of some budgets, with its bound."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from solver.plan import Plan
from solver.planner import plan_problem
from solver.problem import ProblemError


@dataclass(frozen=True)
class Point:
    """A budget and what was found within it.

    Parameters
    ----------
    budget : int or None
        Bytes per device; None where there was none.
    plan : Plan
        Of status ``unknown`` where there was no time to find one.
    """

    budget: int | None
    plan: Plan


@dataclass(frozen=True)
class Frontier:
    """Plans from the quickest to the smallest.

    Parameters
    ----------
    points : tuple of Point
        The one without a budget first, then by falling budgets.
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
    two plans, where memory and time differ most, and a plan that comes again is told once, with the larger budget.

    Parameters
    ----------
    quickest : Plan
        A plan without a budget.
    points : int, optional
        The most plans that there are to be, 2 or more.
    timeout : float, optional
        Seconds for each.
    tell : callable, optional
        Called with what is done now, now and then; all stops, with the points found so far, when it returns True.

    Returns
    -------
    Frontier

    Raises
    ------
    ProblemError
        Where there is no plan to begin with, or fewer than 2 points are asked for.
    """
    if points < 2:
        raise ProblemError(f"points={points!r}: a frontier has two ends, so give 2 or more")
    asked = quickest.problem
    if quickest.choice is None or asked.memory is not None:
        raise ProblemError("a frontier begins with a plan without a memory budget")
    told = tell or (lambda what: None)

    def within(budget: int, what: str) -> Plan:
        return plan_problem(replace(asked, memory=budget), timeout, lambda stage, state: told(what))

    if told("least memory"):
        return Frontier((Point(None, quickest),), None)
    refused = within(1, "least memory")
    repairs = () if refused.explanation is None else refused.explanation.repairs
    change = next((one.change for one in repairs if "memory" in one.change), {})
    found = [Point(None, quickest)]
    budget: int | None = int(change.get("memory", quickest.memory.peak))
    for number in range(1, 2 * points):
        if budget is None or budget >= quickest.memory.peak or len(found) == points:
            break
        if told(f"budget {number}"):
            break
        found = _with(found, Point(budget, within(budget, f"budget {number}")))
        budget = _between(found)
    return Frontier(tuple(found), int(change["bound"]) if "bound" in change else None)


def _with(found: Sequence[Point], new: Point) -> list[Point]:
    """Return points by falling budgets with one more; of two budgets that give the same plan the larger one stays."""
    found = sorted([*found, new], key=lambda point: -math.inf if point.budget is None else -point.budget)
    return [found[0], *(after for before, after in pairwise(found) if not _alike(before, after))]


def _alike(one: Point, other: Point) -> bool:
    if one.plan.choice is None or other.plan.choice is None:
        return False
    return (one.plan.cost_ps, one.plan.memory.peak) == (other.plan.cost_ps, other.plan.memory.peak)


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
