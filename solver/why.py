"""Why a tensor of a plan lies as it does, and why not otherwise."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ops.placement import Partial, Parts, Placement, Shard, layout_text
from solver.difference import difference, parts
from solver.difference import told as told_parts
from solver.explanation import Explanation, Fact, StoryStep, told_once
from solver.explanation_plan import Alternative, Lies
from solver.layout import placements
from solver.plan import SECONDS, Plan
from solver.planner import nonnegative, plan_problem
from solver.problem import Pin, Problem, ProblemError, problem
from solver.repairs import more_capabilities, repair
from solver.words import duration

MOST_PINS = 5
"""Pins that are tried as what a layout comes from."""


def why_not(plan: Plan, tensor: str, wish: Mapping[str, Any] | str, timeout: float) -> Explanation:
    """Return what it would take for a tensor, or a use, to lie otherwise.

    Parameters
    ----------
    plan : Plan
        With a choice.
    tensor : str
        A tensor, or a use as ``op/operand``.
    wish : mapping or str
        Placements, as in a pin.
    timeout : float
        Seconds.

    Returns
    -------
    Explanation
        Where it is impossible with the core; else with the price and what changes.

    Raises
    ------
    ProblemError
        Where there is no plan, or the wish names nothing or cannot be read.
    """
    timeout = nonnegative("timeout", timeout)
    _has_a_choice(plan)
    wanted = _read(plan.problem, tensor, wish)
    asked = _with(plan.problem, wanted)
    found = plan_problem(asked, timeout)
    told = _not_so(_Question(plan, tensor, wanted), asked, found, timeout)
    placed = {asked.mesh.axes[pin.axis]: pin.placement for pin in wanted}
    return replace(told, lies=_lies(plan, tensor), alternatives=(_alternative(placed, plan, found, told.answer),))


@dataclass(frozen=True)
class _Question:
    """What is asked about a tensor of a plan."""

    plan: Plan
    tensor: str
    wanted: tuple[Pin, ...]

    @property
    def text(self) -> str:
        """What is asked, as a sentence has it."""
        axes = self.plan.problem.mesh.axes
        told = dict.fromkeys(f"{pin.placement} on {axes[pin.axis]}" for pin in self.wanted)
        return f"{self.tensor!r} at {', '.join(told)}"

    @property
    def already(self) -> bool:
        """Whether the plan has it so."""
        layout = _layout(self.plan, self.tensor)
        axes = self.plan.problem.mesh.axes
        return all(layout[axes[pin.axis]] == pin.placement for pin in self.wanted)


def _not_so(question: _Question, asked: Problem, found: Plan, timeout: float) -> Explanation:
    """Put into words what became of a wish."""
    what, plan = question.text, question.plan
    if found.status == "infeasible":
        assert found.explanation is not None
        told = _impossible(what, found.explanation, plan.problem)
        return _with_capabilities(told, plan, asked, timeout)
    if found.choice is None:
        return replace(_NOTHING, answer=f"Neither a plan with {what} nor a proof that there is none was found.")
    told = _priced(f"{what}, where it lies already," if question.already else what, plan, found)
    return replace(told, answer=f"With {told.answer}{_leaving(asked, plan.problem)}")


def why(plan: Plan, tensor: str, timeout: float) -> Explanation:
    """Return what keeps a tensor in its layout: the next best it could have instead, or the facts that leave no other.

    Parameters
    ----------
    plan : Plan
        With a choice.
    tensor : str
        A tensor, or a use as ``op/operand``.
    timeout : float
        Seconds for all the plans that this takes.

    Returns
    -------
    Explanation

    Raises
    ------
    ProblemError
        Where there is no plan or no such tensor.
    """
    timeout = nonnegative("timeout", timeout)
    _has_a_choice(plan)
    use, lies, layout = plan.problem.use_named.get(tensor), _lies(plan, tensor), _layout(plan, tensor)
    pins = ", ".join(f"{placement} on {axis}" for axis, placement in lies.pinned.items())
    verb = "lies" if use is None else "needs"
    here = f"{tensor!r} {verb} {layout_text(tuple(layout.values()))}" + (f", pinned to {pins}" if pins else "")
    others = list(_others(plan.problem, tensor if use is None else use.tensor, layout))
    if not others:
        return replace(_NOTHING, lies=lies, answer=f"{here}: it can lie no other way on this mesh.")
    tried = [_try(plan, tensor, axis, placement, timeout / len(others)) for axis, placement in others]
    told = _next_best(plan, here, tensor, tried)
    if told.cost_delta is not None:
        pin, comes = _provenance(plan, tensor, layout, timeout)
        lies, told = replace(lies, pin=pin), replace(told, answer=told.answer + comes)
    return replace(told, lies=lies, alternatives=tuple(one.alternative for one in tried))


@dataclass(frozen=True)
class _Tried:
    """A plan with another placement."""

    what: str
    other: Plan
    alternative: Alternative


def _try(plan: Plan, tensor: str, axis: str, placement: Placement, seconds: float) -> _Tried:
    other = plan_problem(_with(plan.problem, _read(plan.problem, tensor, {axis: placement})), seconds)
    what, because = f"{placement} on {axis}", ""
    if other.explanation is not None:
        because = _impossible(f"{tensor!r} at {what}", other.explanation, plan.problem).answer
    return _Tried(what, other, _alternative({axis: placement}, plan, other, because))


def _next_best(plan: Plan, here: str, tensor: str, tried: Sequence[_Tried]) -> Explanation:
    """Tell the cheapest of other placements; where none is possible what forbids them all."""
    found = [one for one in tried if one.other.choice is not None]
    refused = [one.other.explanation for one in tried if one.other.explanation is not None]
    unsettled = [one.what for one in tried if one.other.choice is None and one.other.explanation is None]
    count = len(refused)
    impossible = f"\n{count} other placement{'s are' if count > 1 else ' is'} impossible." if count else ""
    rest = impossible + _unsettled(unsettled)
    if not found and unsettled:
        answer = f"{here}. Whether it could lie otherwise is not settled.{rest}"
        return replace(_NOTHING, minimal=False, answer=answer)
    if not found:
        return _forced(here, refused, plan.problem)
    best = min(found, key=lambda one: one.other.evaluation.cost)
    told = _priced(f"{tensor!r} at {best.what}", plan, best.other)
    best_of = "The next best that was found" if unsettled else "The next best"
    return replace(told, answer=f"{here}. {best_of} is {best.what}: with {told.answer}{rest}")


def _unsettled(others: Sequence[str]) -> str:
    """Say of which placements it stays open whether there is a plan with them."""
    if not others:
        return ""
    return f"\nNeither a plan nor a proof that there is none was found with {' or with '.join(others)}."


def _provenance(plan: Plan, tensor: str, layout: Mapping[str, Placement], timeout: float) -> tuple[str | None, str]:
    """Say which pin a layout comes from: the one without which the best plan has the tensor otherwise."""
    asked = plan.problem
    if not any(isinstance(placement, Shard) for placement in layout.values()):
        return None, ""
    sources = list(dict.fromkeys(pin.source for pin in asked.pins if pin.subject != tensor))[:MOST_PINS]
    for source in sources:
        without = asked.with_pins(tuple(pin for pin in asked.pins if pin.source != source))
        other = plan_problem(without, timeout / len(sources))
        if other.choice is None:
            continue
        there = _layout(other, tensor)
        if there != layout:
            otherwise = layout_text(tuple(there.values()))
            return source, f"\nIt comes from the pin {source}: without it {tensor!r} would lie {otherwise}."
    return None, "\nIt comes from no pin on another tensor: it is what costs least."


def _pins(asked: Problem, tensor: str) -> list[Pin]:
    return [pin for pin in asked.pins_on.get(tensor, ()) if asked.mesh.sizes[pin.axis] > 1]


def _leaving(asked: Problem, before: Problem) -> str:
    """Say where a wish changes what is delivered: a pin on P lets an output leave as a partial sum."""
    new = asked.pins[len(before.pins) :]
    leaving = {pin.subject for pin in new if isinstance(pin.placement, Partial) and pin.subject in asked.graph.outputs}
    return "".join(f"\n  {name!r} may then leave unreduced, which it may not otherwise" for name in sorted(leaving))


_NOTHING = Explanation((), (), minimal=True)


def _has_a_choice(plan: Plan) -> None:
    if plan.choice is None:
        raise ProblemError(f"there is no plan to ask: the status is {plan.status}")


def _read(asked: Problem, tensor: str, wish: Mapping[str, Any] | str) -> tuple[Pin, ...]:
    """Read what is asked about a tensor as pins."""
    return problem(asked.graph, asked.mesh, pins={tensor: wish}, capabilities=asked.capabilities).pins


def _with(asked: Problem, more: Sequence[Pin]) -> Problem:
    """Return a question with more pins."""
    return asked.with_pins((*asked.pins, *(pin for pin in more if pin not in asked.pins)))


def _layout(plan: Plan, subject: str) -> Mapping[str, Placement]:
    return plan.layout(subject) if subject not in plan.problem.use_named else plan.needed(subject)


def _others(asked: Problem, tensor: str, layout: Mapping[str, Placement]) -> Iterator[tuple[str, Placement]]:
    """Yield every R and S on one mesh axis that the tensor does not have."""
    for (axis, placed), size in zip(layout.items(), asked.mesh.sizes, strict=True):
        for placement in placements(asked.parts(tensor), ()) if size > 1 else ():
            if placement != placed and _divides(asked.parts(tensor), placement, size):
                yield axis, placement


def _divides(parts: Parts, placement: Placement, size: int) -> bool:
    if not isinstance(placement, Shard):
        return True
    return math.prod(parts[placement.dim][placement.part :]) % size == 0


def _asked_before(facts: tuple[Fact, ...], asked: Problem) -> tuple[Fact, ...]:
    """Return the facts that the person chose, without the wish that was only a question."""
    known = {(pin.subject, pin.source) for pin in asked.pins}
    return tuple(fact for fact in facts if fact.kind != "pin" or (fact.subject, fact.source) in known)


def _impossible(what: str, told: Explanation, asked: Problem) -> Explanation:
    chosen = _asked_before(told.core, asked)
    told = replace(told, steps=_without_the_question(told, chosen), core=chosen)
    lines = [f"No plan has {what}" + (", since" if chosen else "")]
    return replace(told, answer="\n".join([*lines, *told_once(chosen), *told.because()]))


def _with_capabilities(told: Explanation, plan: Plan, asked: Problem, timeout: float) -> Explanation:
    """Add what the runtime would have to be able to do for a placement to be possible, and the price."""
    repairs = []
    for change in more_capabilities(asked, time.monotonic() + timeout):
        other = plan_problem(change.asked, timeout)
        if other.choice is not None:
            repairs.append(repair(change.text, change.change, other))
    repairs.sort(key=lambda one: one.cost or 0.0)
    before = plan.evaluation.total
    lines = []
    for one in repairs:
        (name,) = one.change["capabilities"]
        more = round((one.cost or 0.0) * SECONDS) - before
        lines.append(f"With the capability {name} it is possible: {difference(more, before)} than this plan takes.")
    return replace(told, repairs=tuple(repairs), answer="\n".join([told.answer, *lines]))


def _without_the_question(told: Explanation, chosen: tuple[Fact, ...]) -> tuple[StoryStep, ...]:
    """Return the steps of a story, in which what was only asked about is no pin."""
    steps = told.steps
    for fact in told.core:
        if fact not in chosen:
            wanted = fact.text.replace("you pinned", "you ask for", 1).replace(" to ", " at ", 1)
            steps = tuple(replace(step, text=step.text.replace(fact.text, wanted)) for step in steps)
    return steps


def _forced(here: str, refused: list[Explanation], asked: Problem) -> Explanation:
    chosen = tuple(dict.fromkeys(fact for told in refused for fact in _asked_before(told.core, asked)))
    support = tuple(dict.fromkeys(fact for told in refused for fact in told.support))
    stories = (_without_the_question(told, _asked_before(told.core, asked)) for told in refused)
    steps = tuple(dict.fromkeys(step for story in stories for step in story))
    told = Explanation(chosen, support, minimal=False, steps=steps)
    lines = [f"{here}, and no plan has it otherwise" + (", since" if chosen else "")]
    return replace(told, answer="\n".join([*lines, *told_once(chosen), *told.because()]))


def _priced(what: str, plan: Plan, other: Plan) -> Explanation:
    before, after = plan.evaluation.total, other.evaluation.total
    more = after - before
    best = "the best plan" if other.status == "optimal" else "a plan (not proved to be the best)"
    changes = parts(plan, other)
    lines = [f"{what} {best} takes {duration(after)}, {difference(more, before)}.", *told_parts(changes)]
    return replace(_NOTHING, cost_delta=more / SECONDS, parts=changes, answer="\n".join(lines))


def _alternative(placement: Mapping[str, Placement], plan: Plan, other: Plan, because: str) -> Alternative:
    """Return what became of another placement; why, where it is impossible."""
    placed = _written(placement)
    if other.choice is None:
        return Alternative(placed, other.status, because=because)
    more = (other.evaluation.total - plan.evaluation.total) / SECONDS
    return Alternative(placed, other.status, other.evaluation.total / SECONDS, more, parts(plan, other))


def _written(layout: Mapping[str, Placement]) -> dict[str, str]:
    return {axis: str(placement) for axis, placement in layout.items()}


def _lies(plan: Plan, subject: str) -> Lies:
    pinned = {plan.problem.mesh.axes[pin.axis]: pin.placement for pin in _pins(plan.problem, subject)}
    return Lies(subject, _written(_layout(plan, subject)), _written(pinned))
