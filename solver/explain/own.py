"""What a person's own expressions make of a contradiction: each atom that one of them settles, and which fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from ops.placement import Shard
from solver.constraints.expression import expression_reason
from solver.constraints.pins import pin_reason
from solver.constraints.policy_kinds import Untie
from solver.constraints.reason import Reason, policy_reason
from solver.explanation import StoryStep
from solver.formula import Atom, Expression
from solver.problem import Pin, Problem
from solver.words import all_of


@dataclass(frozen=True)
class Settled:
    """What follows from expressions.

    Parameters
    ----------
    steps : tuple of StoryStep
    fails : bool
        Whether the last step is that an expression does not hold.
    asked : Problem
        The question without expressions, in which what they ask of a tensor is a pin.
    """

    steps: tuple[StoryStep, ...]
    fails: bool
    asked: Problem


def settle(problem: Problem, chosen: Sequence[Reason], place: Callable[[Reason], str]) -> Settled:
    """Find what some wishes, expressions among them, say of the tensors that the expressions speak of.

    Parameters
    ----------
    problem : Problem
    chosen : sequence of Reason
        The wishes that cannot hold together.
    place : callable
        Reason -> where it was set.

    Returns
    -------
    Settled
    """
    own = [one for one in problem.expressions if expression_reason(one) in chosen]
    pins = tuple(pin for pin in problem.pins if pin_reason(problem, pin) in chosen)
    known = _pinned(problem, own, pins)
    asked: list[Pin] = []
    steps: list[StoryStep] = []

    def step(text: str, one: Expression, subject: str) -> None:
        reason = expression_reason(one)
        steps.append(StoryStep(text, subject, kind=reason.kind, source=reason.source, place=place(reason)))

    while True:
        for one in own:
            if one.value(known.get) is False:
                since = all_of([_said(atom, known[atom]) for atom in one.atoms if atom in known])
                but = "but " if steps else ""
                step(f"{but}{one.text} does not hold where {since}", one, one.atoms[0].tensor)
                return Settled(tuple(steps), True, problem)
        found = _forced(own, known)
        if found is None:
            break
        one, forced, since = found
        said = [_said(atom, value) for atom, value in forced.items()]
        both = "both " if len(said) == 2 else ""
        step(
            f"{one.text} asks that {both}{all_of(said)}" + (f", where {since}" if since else ""),
            one,
            next(iter(forced)).tensor,
        )
        known |= forced
        for atom, value in forced.items():
            if value and atom.dim is not None:
                axis = problem.mesh.axis(atom.axis)
                asked.append(Pin(atom.tensor, axis, Shard(atom.dim), one.text, place(expression_reason(one))))
                known |= {other: False for e in own for other in e.atoms if _excluded(atom, other)}
    kept = replace(
        problem,
        expressions=(),
        policy=tuple(one for one in problem.policy if isinstance(one, Untie) or policy_reason(one) in chosen),
        communication=problem.communication if any(one.kind == "communication" for one in chosen) else "any",
    )
    return Settled(tuple(steps), False, kept.with_pins((*pins, *asked)))


def _pinned(problem: Problem, own: Sequence[Expression], pins: Sequence[Pin]) -> dict[Atom, bool]:
    """Return what pins say of the atoms."""
    known: dict[Atom, bool] = {}
    for atom in (atom for one in own for atom in one.atoms):
        for pin in pins:
            if pin.subject == atom.tensor and problem.mesh.axes[pin.axis] == atom.axis:
                known[atom] = atom.holds((pin.placement,), 0)
    return known


def _forced(own: Sequence[Expression], known: dict[Atom, bool]) -> tuple[Expression, dict[Atom, bool], str] | None:
    """Return atoms that an expression leaves no choice about, and where that is so, in words.

    What an expression asks whatever else holds is one answer, as of an ``and``; what follows from known atoms is told
    one by one, each with those that it needs.
    """
    for one in own:
        always: dict[Atom, bool] = {}
        for atom, value in _open(one, known):
            if one.value({atom: not value}.get) is False and not any(_excluded(atom, other) for other in always):
                always[atom] = value
        if always:
            return one, always, ""
        for atom, value in _open(one, known):
            if one.value({**known, atom: not value}.get) is False:
                needed = {other: known[other] for other in one.atoms if other in known}
                for other in tuple(needed):
                    fewer = {key: needed[key] for key in needed if key != other}
                    if one.value({**fewer, atom: not value}.get) is False:
                        needed = fewer
                return one, {atom: value}, all_of([_said(other, needed[other]) for other in needed])
    return None


def _open(one: Expression, known: dict[Atom, bool]) -> Iterator[tuple[Atom, bool]]:
    """Yield what the atoms of an expression that nothing settles yet might be."""
    yield from ((atom, value) for atom in one.atoms if atom not in known for value in (True, False))


def _excluded(atom: Atom, other: Atom) -> bool:
    """Tell whether an atom cannot hold beside another one: a mesh axis cuts a tensor once."""
    return (other.tensor, other.axis) == (atom.tensor, atom.axis) and other != atom


def _said(atom: Atom, value: bool) -> str:
    """Return an atom as a sentence says it."""
    what = "a partial sum" if atom.dim is None else f"cut along dim {atom.dim}"
    return f"{atom.tensor!r} is {'' if value else 'not '}{what} on {atom.axis}"
