"""From a search within a memory budget to a plan, or to what the budget lacks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

from solver.choice import Choice, Evaluation
from solver.constraints.check import Checker
from solver.constraints.policy_kinds import Traffic
from solver.deadline import ending_when
from solver.explain.blame import binding, blamed, memory_wish, only, without
from solver.explanation import Explanation, Fact, Repair, StoryStep
from solver.plan import SECONDS, Closest, Plan
from solver.planner_clock import Clock
from solver.problem import Problem
from solver.repairs import repair
from solver.search.cases import broken
from solver.search.memory import MOMENT, BudgetSearch
from solver.search.network import INF
from solver.search.smt import CONFIRMING, confirm
from solver.words import size, size_up, sizes_apart


def beyond(asked: Problem, choice: Choice) -> bool:
    """Tell whether a plan fills more than the memory budget allows."""
    return asked.memory is not None and Evaluation(asked, choice).memory.peak > asked.memory


def within_budget(search: BudgetSearch, checker: Checker, clock: Clock) -> Plan:
    """Search within a memory budget, and say what was found.

    Parameters
    ----------
    search : BudgetSearch
        Not run yet.
    checker : Checker
        Holds the whole-graph model.
    clock : Clock

    Returns
    -------
    Plan
        Infeasible where it is proved that every plan fills more; unknown where there was no time to find out.
    """
    clock.stage("memory")
    with ending_when(clock.over):
        search.run()
    asked, best = search.problem, search.best
    if best is not None:
        clock.stage("decision")
        confirmed = confirm(asked, best.choice, checker, max(CONFIRMING, clock.left()))
        clock.stage("certificate")
        bound = min(search.proved(), best.cost)
        return Plan(
            asked,
            "optimal" if confirmed and best.cost <= bound else "feasible",
            best.choice,
            search.certificate,
            bound,
            bound,
            "certificate",
            stages=clock.stages(),
        )
    late = search.left() <= MOMENT
    closest = Closest(search.least.bound if search.least else 0, _allowed(search), late)
    refuted = search.proof if search.proof is not None and search.proof.bound >= INF else None
    if search.hopeless:
        refuted = search.least
    if refuted is not None:
        told = lacking(search)
        stages = clock.stages()
        return Plan(asked, "infeasible", certificate=refuted.write(), explanation=told, stages=stages, closest=closest)
    return Plan(asked, "unknown", stages=clock.stages(), closest=closest)


def _allowed(search: BudgetSearch) -> Choice | None:
    """Return the smallest plan that was found, where it keeps to all that was asked but the budget."""
    asked, choice = search.problem, search.smallest.choice
    traffic = asked.budget
    if traffic is not None and Evaluation(asked, choice).sent_over(asked.mesh.axis(traffic.axis)) > traffic.most:
        return None
    return choice if broken(asked, choice) is None else None


class Searches:
    """What was searched for budgets before, so that a search for another one of the same problem begins with it."""

    def __init__(self) -> None:
        self._last: list[tuple[BudgetSearch, Checker]] = []

    def keep(self, search: BudgetSearch, checker: Checker) -> None:
        """Remember a search, in place of one of the same problem."""
        self._last = [one for one in self._last if not _same(one[0].problem, search.problem)]
        self._last.append((search, checker))

    def find(self, asked: Problem) -> tuple[BudgetSearch, Checker] | None:
        """Return what was searched of a problem with another budget; None where its budget keeps nobody from it."""
        for search, checker in self._last:
            if _same(search.problem, asked) and asked.memory is not None and search.unbudgeted > asked.memory:
                return search, checker
        return None


def _same(one: Problem, other: Problem) -> bool:
    names = (field.name for field in fields(one) if field.name != "memory")
    return all(getattr(one, name) == getattr(other, name) for name in names)


def blame(asked: Problem, told: Explanation, solve: Callable[[Problem], Plan], seconds: float) -> Explanation:
    """Tell of the wishes only those that a budget cannot be met with, and what giving up each of them would do.

    Parameters
    ----------
    asked : Problem
    told : Explanation
        What `within_budget` says.
    solve : callable
        Plans without some wishes. Which wishes are to blame is found without a budget of traffic: `within_budget`
        refutes without it.
    seconds : float
        Half of it finds the wishes; the other half prices what would do.

    Returns
    -------
    Explanation
    """
    deadline = time.monotonic() + seconds

    def exceeds(fewer: Problem) -> bool | None:
        found = solve(_without_traffic(fewer))
        if found.choice is not None:
            return False
        return True if found.explanation is not None else None

    to_blame = blamed(asked, exceeds, seconds / 2)
    repairs = list(told.repairs)
    for wish in to_blame.wishes:
        found = solve(without(asked, wish.facts)) if time.monotonic() < deadline else None
        if found is not None and found.choice is not None:
            repairs.append(repair(wish.text, wish.change, found))
    budget = [fact for fact in told.core if fact.kind == "budget"]
    return replace(
        told,
        core=(*to_blame.facts, *budget),
        minimal=to_blame.proved,
        steps=_steps_of(asked, to_blame.facts, solve) or told.steps,
        repairs=tuple(sorted(repairs, key=lambda one: one.cost or 0.0)),
    )


def _without_traffic(asked: Problem) -> Problem:
    return replace(asked, policy=tuple(one for one in asked.policy if not isinstance(one, Traffic)))


def _steps_of(asked: Problem, facts: Sequence[Fact], solve: Callable[[Problem], Plan]) -> tuple[StoryStep, ...]:
    """Return what is filled at least where nothing is asked for but some facts; none where that was not found out."""
    if len(facts) == sum(len(wish.facts) for wish in binding(asked)) and asked.budget is None:
        return ()
    found = solve(_without_traffic(only(asked, facts)))
    return () if found.explanation is None else found.explanation.steps


def lacking(search: BudgetSearch) -> Explanation:
    """Return why no plan fits into a budget, and the least one that does."""
    smallest, least = search.smallest, search.least
    asked = search.problem
    memory = Evaluation(asked, smallest.choice).memory
    lowest = max(search.budget + 1, least.bound if least else 0)
    allowed, at_least, filled = sizes_apart(search.budget, lowest, memory.peak)
    wishes = binding(asked)
    core = [fact for wish in (*wishes, *memory_wish(asked, allowed)) for fact in wish.facts]
    parts = ", ".join(f"{part} {size(count)}" for part, count in memory.parts.items() if count)
    at = f" while {memory.at!r} runs" if memory.at else ""
    least_text = f"every plan{' with these' * bool(wishes)} fills at least {at_least} of each device"
    found_text = f"the smallest plan found fills {filled}{at}: {parts}"
    steps = (
        StoryStep(least_text, "memory", kind="figure"),
        StoryStep(found_text, memory.at or "memory", kind="figure"),
    )
    change: dict[str, Any] = {"memory": memory.peak, "bound": lowest}
    beside = ""
    traffic = asked.budget
    if traffic is not None:
        sent = Evaluation(asked, smallest.choice).sent_over(asked.mesh.axis(traffic.axis))
        if sent > traffic.most:
            beside, change["drop_policy"] = f", without the policy {traffic}", [str(traffic)]
    plainly = replace(asked, counted=(1, 1), levy=())
    works = Repair(
        f"least memory {'found ' * (memory.peak > lowest)}that works{beside}: {size_up(memory.peak)}",
        change,
        Evaluation(plainly, smallest.choice).total / SECONDS,
        memory.peak,
    )
    return Explanation(tuple(core), (), not wishes, (works,), steps=steps)
