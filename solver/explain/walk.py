"""From a trail to what is worth telling: one beat an op, what repeats told once. No words here."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

from solver.constraints.layouts import Place
from solver.explain.facts import Facts, Leads, Only, Rows
from solver.explain.propagate import Step, Trail
from solver.explain.universe import Ways

LONGEST = 400
"""Beats of the longest block that is looked for again."""


@dataclass(frozen=True, slots=True)
class Given:
    """What a beat follows from and is told with it: what an op reads, or has to make.

    Parameters
    ----------
    step : Step
    source : int
        The ways in which the tensor is made or stored, where it is read as what these lead to; 0 where it is not.
    """

    step: Step
    source: Ways = 0


@dataclass(frozen=True, slots=True)
class Beat:
    """One thing to tell.

    Parameters
    ----------
    step : Step
    given : tuple of Given
    last : bool
        Whether nothing is left after it.
    """

    step: Step
    given: tuple[Given, ...]
    last: bool = False


@dataclass(frozen=True, slots=True)
class Again:
    """The beats before it, which repeat by structure.

    Parameters
    ----------
    times : int
        How often they come again.
    ops : int
        How many ops one round has.
    op : str
        The first op of a round.
    end : Place
        Where the last round ends.
    """

    times: int
    ops: int
    op: str
    end: Place


def walk(facts: Facts, trail: Trail) -> tuple[Beat | Again, ...]:
    """Order what a trail says into beats, from the first pin to the contradiction.

    Parameters
    ----------
    facts : Facts
    trail : Trail

    Returns
    -------
    tuple of Beat or Again
    """
    beats = _beats(facts, _end_at_the_fact(facts, in_chains(trail.steps)))
    shapes = [_shape(facts, beat) for beat in beats]
    told: list[Beat | Again] = []
    at = 0
    while at < len(beats):
        period, times = _repeated(shapes, at)
        told += beats[at : at + period]
        if times > 1:
            nodes = [node for beat in beats[at : at + period] if (node := node_of(beat.step))]
            end = beats[at + period * times - 1].step.place
            told.append(Again(times - 1, len(set(nodes)), nodes[0] if nodes else "", end))
        at += period * times
    return tuple(told)


def in_chains(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Order steps so that each stands right behind what it follows from, chain by chain, and drop what ends nowhere."""
    needs: list[list[int]] = []
    latest: dict[Place, int] = {}
    for number, step in enumerate(steps):
        before = latest.get(step.place)  # what is left there counts what went before
        needs.append(sorted({*step.because, *(() if before is None else (before,))}))
        latest[step.place] = number
    order: dict[int, int] = {}
    waiting = [len(steps) - 1]
    while waiting:
        number = waiting[-1]
        missing = [one for one in needs[number] if one not in order]
        if missing:
            waiting.append(missing[0])
        else:
            order.setdefault(number, len(order))
            waiting.pop()
    return tuple(
        replace(steps[number], because=tuple(sorted(order[one] for one in steps[number].because))) for number in order
    )


def node_of(step: Step) -> str:
    """Return the op whose rows a step comes from; nothing for any other step."""
    return step.constraint.node if isinstance(step.constraint, Rows) else ""


def _beats(facts: Facts, steps: Sequence[Step]) -> list[Beat]:
    """Tell what a tensor arrives as with the op that reads it, and a pin where it clashes only.

    What a policy asks of a tensor is told: the core has only the policy.
    """
    told_with: set[int] = set()
    for step in steps:
        if isinstance(step.constraint, Rows):
            told_with.update(before for before in step.because if isinstance(steps[before].constraint, Leads))
    end = steps[-1]
    if isinstance(end.constraint, Rows) and not end.because:  # what it cannot read is told with why
        told_with.update(
            i for i, one in enumerate(steps) if one.place == end.place and isinstance(one.constraint, Leads)
        )
    beats: list[Beat] = []
    for number, step in enumerate(steps):
        last = number == len(steps) - 1
        if not last and (number in told_with or _untold(facts, step)):
            continue
        latest = {steps[before].place: steps[before] for before in step.because}
        if last and (before := next((one for one in reversed(steps[:-1]) if one.place == step.place), None)):
            latest[step.place] = before
        beats.append(Beat(step, tuple(Given(one, _source(steps, one)) for one in latest.values()), last))
    return beats


def _untold(facts: Facts, step: Step) -> bool:
    """Tell whether a step only says again what is asked for, or what is so anyhow."""
    only = step.constraint
    return isinstance(only, Only) and all(reason.kind != "policy" for reason in facts.named(only.reason))


def _end_at_the_fact(facts: Facts, steps: Sequence[Step]) -> tuple[Step, ...]:
    """Let a fact of the graph end the steps.

    Where a pin asks for what one fact forbids that is the fact; where something leads to a place that one fact has
    narrowed it is told what leads there, and then the fact.
    """
    end = steps[-1]
    leads = end.constraint
    if all(isinstance(step.constraint, Only) for step in steps):
        return tuple(sorted(steps, key=lambda step: not facts.named(step.constraint.reason)[0].chosen))
    if not isinstance(leads, Leads):
        return tuple(steps)
    for number, fact in enumerate(steps):
        if isinstance(fact.constraint, Only) and fact.place == leads.target and _alone(steps, fact):
            before = [one for one in end.because if steps[one].place == leads.source]
            source = steps[before[-1]].left if before else 0
            reached = leads.loose.image(source) if source else 0
            if not reached:
                continue
            led = Step(leads, leads.target, fact.constraint.allowed, reached, tuple(before), end.reasons)
            told = Step(fact.constraint, fact.place, reached, 0, (len(steps) - 1,), fact.reasons)
            return (*steps[:number], fact, *steps[number + 1 : -1], led, told)
    return tuple(steps)


def _alone(steps: Sequence[Step], fact: Step) -> bool:
    return sum(one.place == fact.place for one in steps[:-1]) == 1


def _is_led(step: Step) -> bool:
    return isinstance(step.constraint, Leads) and step.place == step.constraint.target


def _source(steps: Sequence[Step], step: Step) -> Ways:
    """Return what leads to a place, as it is left when it does."""
    return steps[step.because[-1]].left if _is_led(step) and step.because else 0


def _shape(facts: Facts, beat: Beat) -> Hashable:
    """Return what is equal of beats that differ only in where they stand."""
    step, problem = beat.step, facts.problem
    where: Hashable = type(step.constraint).__name__
    if isinstance(step.constraint, Rows):
        where = id(problem.bound[step.constraint.node]), step.constraint.places.index(step.place)
    given = tuple((one.step.place[0], one.step.place[2:], one.step.left, one.source) for one in beat.given)
    return where, step.place[0], step.left, step.gone, given, beat.last


def _repeated(shapes: Sequence[Hashable], at: int) -> tuple[int, int]:
    """Return the length of the block here that repeats, and how often it stands in a row: what saves most."""
    best = 1, 1
    saved = 0
    for period in range(1, min(LONGEST, (len(shapes) - at) // 2) + 1):
        if shapes[at] != shapes[at + period]:
            continue
        times = 1
        block = shapes[at : at + period]
        while shapes[at + period * times : at + period * (times + 1)] == block:
            times += 1
        if period * (times - 1) > saved:
            best, saved = (period, times), period * (times - 1)
    return best
