"""Time against memory: the cheapest plan within each of some budgets, with its bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

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
    quickest: Plan, points: int = 8, timeout: float = 60.0, tell: Callable[[str], None] | None = None
) -> Frontier:
    """Plan within budgets between the peak of the quickest plan and the least memory that works.

    Parameters
    ----------
    quickest : Plan
        A plan without a budget.
    points : int, optional
        How many plans there are to be, 2 or more.
    timeout : float, optional
        Seconds for each.
    tell : callable, optional
        Called with what is done now.

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
    tell = tell or (lambda what: None)
    tell("least memory")
    refused = plan_problem(replace(asked, memory=1), timeout)
    repairs = () if refused.explanation is None else refused.explanation.repairs
    change = next((one.change for one in repairs if "memory" in one.change), {})
    found = [Point(None, quickest)]
    if "memory" in change:
        for budget in _between(quickest.memory.peak, int(change["memory"]), points):
            tell(f"budget {len(found)} of {points - 1}")
            found.append(Point(budget, plan_problem(replace(asked, memory=budget), timeout)))
    return Frontier(tuple(found), int(change["bound"]) if "bound" in change else None)


def _between(most: int, least: int, points: int) -> Iterator[int]:
    """Yield falling budgets in equal ratios, the last one the least; none where the quickest plan is as small."""
    if most > least:
        for step in range(1, points):
            yield max(least, int(most * (least / most) ** (step / (points - 1)))) if step < points - 1 else least
