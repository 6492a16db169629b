"""A budget of traffic: the plan of least time among those that send no more than so many bytes over a mesh axis."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from solver.choice import Choice, Evaluation
from solver.constraints.check import Checker
from solver.constraints.model import whole_graph
from solver.constraints.policy_kinds import Traffic
from solver.constraints.reason import policy_reason
from solver.cost.tariff import LEVIED, MOST_LEVIED, MOST_LEVY
from solver.deadline import ending_when
from solver.explain.blame import Blame, Wish, binding, blamed, memory_wish, only, without
from solver.explanation import Explanation, Fact, Repair, StoryStep
from solver.garbage import collecting_later
from solver.memory_budget import beyond
from solver.plan import SECONDS, UNPROVED, Plan
from solver.planner_clock import Clock
from solver.problem import Problem
from solver.problem_wishes import place_of
from solver.repairs import repair
from solver.search.levies import Levies
from solver.search.network import INF
from solver.search.smt import CONFIRMING, confirm
from solver.search.traffic import LARGEST, Branching
from solver.words import size, size_up, sizes_apart

ROUNDS = 12
"""Multipliers that are tried."""


def within_traffic(
    asked: Problem,
    policy: Traffic,
    search: Callable[[Problem], Plan],
    gap: float,
    explaining: float = 0.0,
    clock: Clock | None = None,
) -> Plan:
    """Plan within a budget of traffic.

    Parameters
    ----------
    asked : Problem
    policy : Traffic
    search : callable
        Finds a plan of least price.
    gap : float
        The fraction of the cost by which the bound may stay below it.
    explaining : float, optional
        Seconds to find out which wishes keep every plan from the budget; without any all of them are told.
    clock : Clock, optional
        The time that there is for branching; without it there is none.

    Returns
    -------
    Plan
        Optimal where the bound is reached, else feasible with its gap; infeasible where every plan sends more;
        unknown where none was found.

    Notes
    -----
    With a multiplier k every byte over the mesh axis costs k more. That is at most k * N for a plan within the budget
    of N bytes, so what every plan costs then, less k * N, bounds its time (Lagrange). A plan says with its levy by
    which multiplier its ways are chosen, so that it takes the paths that were found, and not faster ones that send
    more. Where one multiplier leaves a gap, parts of the plans have their own (`solver.search.traffic`); not where a
    person's own expressions are asked for beside it. With a memory budget half of the time is for what holds without
    it, bounds and plans that happen to be within it, and the rest for one multiplier beside those of memory.
    """
    known = _Known(asked, policy)
    if asked.memory is not None and clock is not None:
        _without_memory(known, search, gap, clock)
        if known.met(gap):
            return known.plan()
    free = search(asked)
    if free.choice is None:
        return free if known.choice is None else known.plan()
    sent = known.learn(free, 0)
    if sent <= policy.most and free.status == "optimal":
        return replace(free, certificate=known.certificate)
    thrifty = _thriftiest(asked, known.axis, search)
    known.stages = thrifty.stages
    known.take(thrifty.choice, known.heaviest)
    if thrifty.bound_ps > policy.most:
        told = _TooLittle(asked, policy, search, explaining).told(free, thrifty)
        return Plan(asked, "infeasible", explanation=told, stages=known.stages)
    first = _first(free.evaluation, sent)
    if clock is None or asked.memory is not None or not _branched(known, asked, first, gap, clock):
        _try_multipliers(known, first, search, gap, clock)
    return known.plan()


def _first(free: Evaluation, sent: int) -> int:
    """Return a multiplier to begin with: what is sent without a budget is as dear as the time that it takes."""
    return max(1, min(LARGEST // 2, LEVIED * free.total // max(1, sent)))


def _without_memory(known: _Known, search: Callable[[Problem], Plan], gap: float, clock: Clock) -> None:
    """Learn what holds without the memory budget, which bounds the plans within it too, and which plans are within."""
    asked, policy = replace(known.asked, memory=None), known.policy
    free = search(asked)
    if free.choice is None:
        return
    sent = known.learn(free, 0)
    if sent > policy.most and not known.met(gap):
        thrifty = _thriftiest(asked, known.axis, search)
        known.take(thrifty.choice, known.heaviest)
        if thrifty.bound_ps <= policy.most:
            clock.stage("traffic")
            _branched(known, asked, _first(free.evaluation, sent), gap, clock.part(clock.left() / 2))
            known.stages = clock.stages()


def _try_multipliers(
    known: _Known, high: int, search: Callable[[Problem], Plan], gap: float, clock: Clock | None
) -> None:
    """Look for the one multiplier that bounds all plans best."""
    low, asked, policy = 0, known.asked, known.policy
    for _ in range(ROUNDS):
        if known.met(gap) or (known.choice is not None and clock is not None and clock.over()):
            break
        multiplier = high if not known.enough else (low + high) // 2
        if known.enough and multiplier == low:
            break
        if known.learn(search(replace(asked, levy=((known.axis, multiplier),))), multiplier) > policy.most:
            low, high = multiplier, high if known.enough else min(LARGEST, 4 * high)
        else:
            high, known.enough = multiplier, True


def _branched(known: _Known, asked: Problem, first: int, gap: float, clock: Clock) -> bool:
    """Branch, beginning with some multiplier; return whether anything was proved."""
    if asked.expressions:
        return False
    clock.stage("traffic")
    levies = Levies(asked, known.look, INF if known.choice is None else known.cost)
    branching = Branching(levies, gap, clock.over, clock.report)
    with ending_when(clock.over), collecting_later():
        branching.run(first)
    found = branching.proved()
    if found is None:
        return False
    if found[0] >= known.bound:
        known.bound, known.certificate = found
    if known.choice is not None and known.bound >= known.cost:
        clock.stage("decision")
        seconds = max(CONFIRMING, clock.left())
        known.confirmed = confirm(known.asked, known.choice, Checker(whole_graph(known.asked)), seconds)
    known.stages = clock.stages()
    return True


class _Known:
    """What is known so far: the best plan within the budget, and the best bound with its proof."""

    def __init__(self, asked: Problem, policy: Traffic) -> None:
        self.asked, self.policy, self.axis = asked, policy, asked.mesh.axis(policy.axis)
        self.heaviest = _heaviest(asked)
        self.choice: Choice | None = None
        self.cost = self.bound = 0
        self.enough, self.confirmed = False, True
        self.certificate: Mapping[str, Any] = {"multiplier": 0, "certificate": UNPROVED}
        self.stages: Mapping[str, float] = {}

    def met(self, gap: float) -> bool:
        """Tell whether the best plan is near enough to the bound."""
        return self.choice is not None and self.cost - self.bound <= gap * self.cost

    def learn(self, found: Plan, multiplier: int) -> int:
        """Take what a plan with a multiplier says; return what it sends by the paths that it takes then."""
        self.stages = found.stages
        bound = found.bound_ps - multiplier * self.policy.most // LEVIED
        if found.certificate is not None and bound >= self.bound:
            self.bound, self.certificate = bound, {"multiplier": multiplier, "certificate": found.certificate}
        self.take(found.choice, 0, multiplier, 8 * multiplier, self.heaviest)
        return self.policy.most + 1 if found.choice is None else found.evaluation.sent_over(self.axis)

    def take(self, choice: Choice | None, *levies: int) -> None:
        """Keep the plan that takes its ways by one of some levies, if it is within the budget and cheaper."""
        for levy in dict.fromkeys(levies if choice is not None else ()):
            assert choice is not None
            one = replace(choice, levy=levy)
            plan = Evaluation(self.asked, one)
            within = plan.sent_over(self.axis) <= self.policy.most and not beyond(self.asked, one)
            if within and (self.choice is None or plan.total < self.cost):
                self.choice, self.cost = one, plan.total

    def look(self, plan: Evaluation) -> int:
        """Take a plan, and what it chooses with another levy where that may be better; return the best cost, or INF."""
        choice, sent, most = plan.choice, plan.sent_over(self.axis), self.policy.most
        if sent <= most and (self.choice is None or plan.total < self.cost):
            self.take(choice, choice.levy, 0)
        elif sent > most and (self.choice is None or plan.total + choice.levy * (sent - most) // LEVIED < self.cost):
            self.take(choice, self.heaviest)
        return INF if self.choice is None else self.cost

    def plan(self) -> Plan:
        """Return the best plan with the best bound."""
        if self.choice is None:
            return Plan(self.asked, "unknown", stages=self.stages)
        bound = min(self.bound, self.cost)
        figures = self.choice, self.certificate, bound, bound, "certificate"
        proved = self.confirmed and bound == self.cost
        return Plan(self.asked, "optimal" if proved else "feasible", *figures, stages=self.stages)


def _thriftiest(asked: Problem, axis: int, search: Callable[[Problem], Plan]) -> Plan:
    """Return the plan that sends least over a mesh axis; its bound is that of the bytes."""
    return search(replace(asked, counted=(0, 0), levy=((axis, LEVIED),)))


def _heaviest(asked: Problem) -> int:
    """Return a levy beside which time hardly counts, and which stays within what a collective may cost by it."""
    largest = max((math.prod(one.shape) * one.itemsize for one in asked.graph.tensors.values()), default=1)
    return min(MOST_LEVY, MOST_LEVIED * LEVIED // max(1, 2 * largest))


class _TooLittle:
    """Says what keeps every plan from a budget: the wishes that do, what is sent at least, and what would do."""

    def __init__(self, asked: Problem, policy: Traffic, search: Callable[[Problem], Plan], seconds: float) -> None:
        self.asked, self.policy, self.search = asked, policy, search
        self.axis = asked.mesh.axis(policy.axis)
        self.deadline, self.half = time.monotonic() + seconds, seconds / 2

    def told(self, free: Plan, thrifty: Plan) -> Explanation:
        """Return the explanation, given the best plan without the budget and the one that sends least."""
        wishes = (*binding(self.asked), *memory_wish(self.asked))
        to_blame = Blame(wishes, tuple(fact for wish in wishes for fact in wish.facts), proved=False)
        if self.half:
            to_blame = blamed(self.asked, self._exceeds, self.half, tuple(memory_wish(self.asked)))
        reason = policy_reason(self.policy)
        budget = Fact(reason.kind, "", reason.text, reason.source, place_of(self.asked.place, "policy"))
        least, _ = sizes_apart(self._least(to_blame.facts, thrifty), self.policy.most)
        text = f"every plan{' with these' * bool(to_blame.facts)} sends at least {least} over {self.policy.axis}"
        found = [mended for wish in to_blame.wishes if (mended := self._dropping(wish)) is not None]
        found.append(repair(f"drop the policy {self.policy}", {"drop_policy": [str(self.policy)]}, free))
        if thrifty.choice is not None:
            plan = Evaluation(self.asked, replace(thrifty.choice, levy=_heaviest(self.asked)))
            sent = plan.sent_over(self.axis)
            allowed = f"allow {size_up(sent)} over {self.policy.axis}"
            if sent > thrifty.bound_ps:
                allowed += f" (the least found; every plan sends at least {size(thrifty.bound_ps)})"
            change = {"traffic": sent, "bound": thrifty.bound_ps}
            found.append(Repair(allowed, change, plan.total / SECONDS, plan.memory.peak))
        repairs = tuple(sorted(found, key=lambda one: (one.cost is None, one.cost or 0.0)))
        steps = (StoryStep(text, self.policy.axis, kind="figure"),)
        return Explanation((*to_blame.facts, budget), (), to_blame.proved, repairs, steps=steps)

    def _least(self, facts: Sequence[Fact], thrifty: Plan) -> int:
        """Return what is sent at least where nothing is asked for but some facts."""
        also = tuple(memory_wish(self.asked))
        if len(facts) == sum(len(wish.facts) for wish in (*binding(self.asked), *also)):
            return thrifty.bound_ps
        alone = _thriftiest(only(self.asked, facts, also), self.axis, self.search).bound_ps
        return alone if alone > self.policy.most else thrifty.bound_ps

    def _exceeds(self, fewer: Problem) -> bool | None:
        least = _thriftiest(fewer, self.axis, self.search)
        if least.bound_ps > self.policy.most:
            return True
        if least.choice is None:
            return None
        thrifty = Evaluation(fewer, replace(least.choice, levy=_heaviest(fewer)))
        return False if thrifty.sent_over(self.axis) <= self.policy.most else None

    def _dropping(self, wish: Wish) -> Repair | None:
        """Plan without a wish; None where there is no plan within the budget, or no time to look for one."""
        if time.monotonic() > self.deadline:
            return None
        found = within_traffic(without(self.asked, wish.facts), self.policy, self.search, 0.0)
        if found.choice is None:
            return None
        if "memory" in wish.change:
            peak = found.memory.peak
            return repair(f"allow {size_up(peak)} of memory per device", {"memory": peak}, found)
        return repair(wish.text, wish.change, found)
