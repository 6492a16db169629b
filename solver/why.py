"""Why a tensor of a plan lies as it does, and why not otherwise."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ops.placement import Partial, Parts, Placement, Shard, layout_text
from solver.explanation import Explanation, Fact, StoryStep, told_once
from solver.layout import placements
from solver.plan import SECONDS, Plan
from solver.planner import nonnegative, plan_problem
from solver.problem import Pin, Problem, ProblemError, problem
from solver.repairs import more_capabilities, repair
from solver.words import duration

MOST_CHANGES = 6
"""Collectives that are told of what another plan does differently."""
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
    asked = _with(plan.problem, tensor, wish)
    found = plan_problem(asked, timeout)
    what = f"{tensor!r} at {_wish_text(asked, plan.problem)}"
    if found.status == "infeasible":
        assert found.explanation is not None
        told = _impossible(what, found.explanation, plan.problem)
        return _with_capabilities(told, plan, asked, timeout)
    if found.choice is None:
        return replace(_NOTHING, answer=f"Neither a plan with {what} nor a proof that there is none was found.")
    told = _priced(what, plan, found)
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
    use = plan.problem.use_named.get(tensor)
    layout = plan.layout(tensor) if use is None else plan.needed(tensor)
    lies = "lies" if use is None else "needs"
    pins = ", ".join(f"{pin.placement} on {plan.problem.mesh.axes[pin.axis]}" for pin in _pins(plan.problem, tensor))
    here = f"{tensor!r} {lies} {layout_text(tuple(layout.values()))}" + (f", pinned to {pins}" if pins else "")
    others = list(_others(plan.problem, tensor if use is None else use.tensor, layout))
    if not others:
        return replace(_NOTHING, answer=f"{here}: it can lie no other way on this mesh.")
    found, refused, unsettled = [], [], []
    for axis, placement in others:
        other = plan_problem(_with(plan.problem, tensor, {axis: placement}), timeout / len(others))
        if other.choice is not None:
            found.append((other.evaluation.total, f"{placement} on {axis}", other))
        elif other.explanation is not None:
            refused.append(other.explanation)
        else:
            unsettled.append(f"{placement} on {axis}")
    impossible = (
        f"\n{len(refused)} other placement{'s are' if len(refused) > 1 else ' is'} impossible." if refused else ""
    )
    rest = impossible + _unsettled(unsettled)
    if not found and unsettled:
        answer = f"{here}. Whether it could lie otherwise is not settled.{rest}"
        return replace(_NOTHING, minimal=False, answer=answer)
    if not found:
        return _forced(here, refused, plan.problem)
    _, what, best = min(found, key=lambda one: one[0])
    told = _priced(f"{tensor!r} at {what}", plan, best)
    comes = _provenance(plan, tensor, layout, timeout)
    best_of = "The next best that was found" if unsettled else "The next best"
    return replace(told, answer=f"{here}. {best_of} is {what}: with {told.answer}{rest}{comes}")


def _unsettled(others: Sequence[str]) -> str:
    """Say of which placements it stays open whether there is a plan with them."""
    if not others:
        return ""
    return f"\nNeither a plan nor a proof that there is none was found with {' or with '.join(others)}."


def _provenance(plan: Plan, tensor: str, layout: Mapping[str, Placement], timeout: float) -> str:
    """Say which pin a layout comes from: the one without which the best plan has the tensor otherwise."""
    asked = plan.problem
    if not any(isinstance(placement, Shard) for placement in layout.values()):
        return ""
    sources = list(dict.fromkeys(pin.source for pin in asked.pins if pin.subject != tensor))[:MOST_PINS]
    for source in sources:
        without = asked.with_pins(tuple(pin for pin in asked.pins if pin.source != source))
        other = plan_problem(without, timeout / len(sources))
        if other.choice is None:
            continue
        there = other.needed(tensor) if tensor in asked.use_named else other.layout(tensor)
        if there != layout:
            otherwise = layout_text(tuple(there.values()))
            return f"\nIt comes from the pin {source}: without it {tensor!r} would lie {otherwise}."
    return "\nIt comes from no pin on another tensor: it is what costs least."


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


def _with(asked: Problem, tensor: str, wish: Mapping[str, Any] | str) -> Problem:
    """Return a question with one more pin."""
    more = problem(asked.graph, asked.mesh, pins={tensor: wish}, capabilities=asked.capabilities)
    return asked.with_pins((*asked.pins, *(pin for pin in more.pins if pin not in asked.pins)))


def _wish_text(asked: Problem, before: Problem) -> str:
    new = asked.pins[len(before.pins) :]
    told = dict.fromkeys(f"{pin.placement} on {asked.mesh.axes[pin.axis]}" for pin in new)
    return ", ".join(told) or "what is pinned already"


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
    said = difference(more, before)
    best = "the best plan" if other.status == "optimal" else "a plan (not proved to be the best)"
    lines = [f"{what} {best} takes {duration(after)}, {said}."]
    sent_before, sent_after = _collectives(plan), _collectives(other)
    for sign, one, two in (("then", sent_after, sent_before), ("no longer", sent_before, sent_after)):
        changed = sorted((one - two).items(), key=lambda item: (-item[0][1], item[0]))
        lines += [f"  {sign} {text}: {duration(time)}" for (text, time), _ in changed[:MOST_CHANGES] if time]
    return replace(_NOTHING, cost_delta=more / SECONDS, answer="\n".join(lines))


def difference(more: int, before: int) -> str:
    """Return how much more or less time that is, in picoseconds."""
    share = f" ({more / before:+.1%})" if before else ""
    return "as much" if not more else f"{duration(abs(more))} {'more' if more > 0 else 'less'}{share}"


def _collectives(plan: Plan) -> Counter[tuple[str, int]]:
    """Return what a plan sends: a text and a time for each collective, of reshards and of kernels."""
    axes = plan.problem.mesh.axes
    found = Counter(
        (f"{told.kind}[{told.axis}] of {reshard.tensor}", move.time)
        for reshard in plan.reshards
        for told, move in zip(reshard.collectives, reshard.moves, strict=True)
    )
    for node, steps in plan.kernels.items():
        found.update((f"{one.kind}[{','.join(axes[axis] for axis in one.axes)}] in {node}", one.time) for one in steps)
    return found
