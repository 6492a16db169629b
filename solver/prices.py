"""What each wish costs: the plan against the best plan without that wish (its shadow price), in time and bytes."""

from __future__ import annotations

import time

from solver.explain.blame import Wish, every_wish, lets_go, without
from solver.explanation import Finding
from solver.plan import SECONDS, Plan
from solver.planner import plan_problem
from solver.problem import Problem
from solver.words import duration, size

MOST_PRICED = 20
"""Wishes that are priced; each takes a plan."""
AT_ONCE = 4
"""A wish gets this part of the time that is left, so that one of them does not take it all from the others."""


def prices(found: Plan, deadline: float) -> tuple[list[Finding], list[Finding]]:
    """Price each wish: pins, what may be sent, policies, budgets and a person's own constraints.

    Parameters
    ----------
    found : Plan
        With a choice.
    deadline : float
        A time of `time.monotonic`: what there was no time for is told as not priced.

    Returns
    -------
    list of Finding, list of Finding
        Of pins, and of all else; what costs most first.
    """
    wishes = list(every_wish(found.problem))
    told: dict[bool, list[Finding]] = {True: [], False: []}
    planned = 0
    for number, wish in enumerate(wishes):
        if idle := _idle(found.problem, wish):
            finding = _finding(wish, f"has no effect: {idle}", (0, 0), 0)
        elif planned >= MOST_PRICED:
            finding = _finding(wish, "is not priced: too many others are")
        else:
            planned += 1
            left = deadline - time.monotonic()
            finding = _priced(found, wish, left / min(AT_ONCE, len(wishes) - number))
        told[wish.kind == "pin"].append(finding)
    pins, others = (sorted(findings, key=_rank) for findings in (told[True], told[False]))
    return pins, others


def _rank(finding: Finding) -> tuple[bool, bool, float]:
    """Put what costs most first, what is not priced behind it, and what costs nothing last."""
    return finding.within == (0, 0), finding.within is None, -(finding.within or (0, 0))[1]


def saved(found: Plan, other: Plan) -> tuple[int, int]:
    """Return the least and the most that the best plan of another question can save, in picoseconds.

    Both are the same where both plans are proved to be the best.
    """
    return _least(found) - _time(other), _time(found) - _least(other)


def _priced(found: Plan, wish: Wish, seconds: float) -> Finding:
    if seconds <= 0:
        return _finding(wish, "is not priced: there was no time")
    other = plan_problem(without(found.problem, wish.facts), seconds)
    if other.status == "infeasible":
        return _finding(wish, "is needed: without it there is no plan")
    if other.choice is None:
        return _finding(wish, "is not priced: no plan without it was found in time")
    low, high = saved(found, other)
    within = (low if lets_go(found.problem, wish) else max(0, low)), high
    fewer = found.memory.peak - other.memory.peak
    of = " of communication" if found.problem.objective == "communication" else ""
    if within == (0, 0):
        nothing = "has no effect: this plan is the best without it, too"
        return _finding(wish, f"costs nothing{of}" if wish.kind == "pin" or of else nothing, within, 0)
    peak = f"{size(abs(fewer))} {'lower' if fewer > 0 else 'higher'}"
    beside = f", whose peak of memory per device is {peak}" if fewer else ""
    return _finding(wish, f"{_cost(*within)}{of} against the best plan without it{beside}", within, fewer)


def _cost(low: int, high: int) -> str:
    """Say what a wish costs at least and at most; less than nothing is what it saves, as one that lets ties go."""
    if high <= 0:
        return f"saves {duration(-high)}" + ("" if low == high else " or more")
    if low == high:
        return f"costs {duration(high)}"
    return f"costs at most {duration(high)}" if low <= 0 else f"costs from {duration(low)} to {duration(high)}"


def _finding(wish: Wish, said: str, within: tuple[int, int] | None = None, fewer: int | None = None) -> Finding:
    exact = within is not None and within[0] == within[1]
    return Finding(
        "wish",
        wish.written,
        f"{wish.named} {said}",
        within[1] / SECONDS if within is not None and exact else None,
        fewer,
        within=None if within is None else (within[0] / SECONDS, within[1] / SECONDS),
        change=wish.change,
        place=wish.facts[0].place,
    )


def _idle(asked: Problem, wish: Wish) -> str:
    """Say why a wish asks for nothing, where it speaks of mesh axes of size 1 only."""
    if not wish.axes or any(asked.mesh.sizes[asked.mesh.axis(axis)] > 1 for axis in wish.axes):
        return ""
    one = len(wish.axes) == 1
    return f"{' and '.join(wish.axes)} {'is a mesh axis' if one else 'are mesh axes'} of size 1"


def _time(found: Plan) -> int:
    """Return what was to be least of a plan, in picoseconds."""
    assert found.cost_ps is not None
    return found.cost_ps


def _least(found: Plan) -> int:
    """Return what every plan of a question takes at least."""
    return _time(found) if found.status == "optimal" else min(_time(found), max(found.bound_ps, found.solver_bound_ps))
