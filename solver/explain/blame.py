"""Which wishes keep every plan from a budget: found by planning without them, one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from solver.constraints.expression import expression_reason
from solver.constraints.pins import pin_reason
from solver.constraints.policy_kinds import Traffic, Untie
from solver.constraints.reason import Reason, policy_reason
from solver.constraints.reshard import communication_reason
from solver.explanation import Fact
from solver.problem import Problem
from solver.problem_wishes import place_of
from solver.words import size

Exceeds = Callable[[Problem], bool | None]
"""Problem -> whether every plan exceeds the budget; None where that was not found out."""


@dataclass(frozen=True)
class Wish:
    """What a person may take back as a whole: all that one pin says, or a policy, or a constraint.

    Parameters
    ----------
    facts : tuple of Fact
    text : str
        How it is taken back.
    change : dict
        The same as a `solver.explanation.Repair` has it.
    named : str
        What it is, as ``the pin x:tp=R``.
    written : str
        How it was written.
    axes : tuple of str
        The mesh axes that it names; none where it speaks of all.
    """

    facts: tuple[Fact, ...]
    text: str
    change: dict[str, Any]
    named: str
    written: str
    axes: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """The kind of its facts."""
        return self.facts[0].kind


def blamed(
    asked: Problem, exceeds: Exceeds, seconds: float, also: Sequence[Wish] = ()
) -> tuple[tuple[Wish, ...], bool]:
    """Leave out the wishes without which the budget is exceeded all the same.

    Parameters
    ----------
    asked : Problem
        Of which every plan exceeds the budget; ties and repeats are not wishes here.
    exceeds : callable
    seconds : float
        After this time what is left is returned.
    also : sequence of Wish, optional
        Another budget, as `memory_wish` says it.

    Returns
    -------
    tuple of Wish, bool
        With these every plan exceeds the budget; and whether each is proved to be needed.
    """
    deadline = time.monotonic() + seconds
    every = (*binding(asked), *also)
    wishes = list(every)
    if not wishes or exceeds(without(asked, wishes)):
        return (), True
    kept: list[Wish] = []
    proved = True
    while wishes:
        candidate = wishes.pop(0)
        rest = [*kept, *wishes]
        answer = None
        if time.monotonic() < deadline:
            answer = exceeds(without(asked, [wish for wish in every if wish not in rest]))
        if answer:
            continue
        proved = proved and answer is False
        kept.append(candidate)
    return tuple(kept), proved


def memory_wish(asked: Problem, allowed: str = "") -> Iterator[Wish]:
    """Yield the memory budget as a wish, where there is one.

    Parameters
    ----------
    asked : Problem
    allowed : str, optional
        How the budget reads; by default in the unit that reads best.
    """
    if asked.memory is not None:
        text = f"you allow {allowed or size(asked.memory)} of memory per device"
        fact = Fact("budget", "memory", text, f"memory={asked.memory}", place_of(asked.place, "budget"))
        named = f"the memory budget of {allowed or size(asked.memory)}"
        yield Wish((fact,), "allow any amount of memory", {"memory": None}, named, fact.source)


def without(asked: Problem, wishes: Sequence[Wish]) -> Problem:
    """Return a problem without some wishes."""
    gone = {(fact.kind, fact.source) for wish in wishes for fact in wish.facts}
    fewer = asked.with_pins(tuple(pin for pin in asked.pins if ("pin", pin.source) not in gone))
    return replace(
        fewer,
        memory=None if any(kind == "budget" for kind, _ in gone) else asked.memory,
        communication="any" if any(kind == "communication" for kind, _ in gone) else asked.communication,
        policy=tuple(one for one in asked.policy if ("policy", str(one)) not in gone),
        expressions=tuple(one for one in asked.expressions if ("expression", one.text) not in gone),
    )


def every_wish(asked: Problem) -> Iterator[Wish]:
    """Yield all that a person asks for: pins, what may be sent, policies, budgets, a person's own constraints."""
    axes = asked.mesh.axes
    for source in dict.fromkeys(pin.source for pin in asked.pins):
        pins = [pin for pin in asked.pins if pin.source == source]
        facts = tuple(_fact(pin_reason(asked, pin), pin.place) for pin in pins)
        named = f"the pin {source}"
        on = tuple(dict.fromkeys(axes[pin.axis] for pin in pins))
        yield Wish(facts, f"drop {named}", {"drop": [source]}, named, source, on)
    if asked.communication != "any":
        fact = _fact(communication_reason(asked), place_of(asked.place, "communication"))
        named = f'communication="{asked.communication}"'
        yield Wish((fact,), 'let communication be "any"', {"communication": "any"}, named, named)
    for one in asked.policy:
        fact = _fact(policy_reason(one), place_of(asked.place, "policy"))
        named, axis = f"the policy {one}", getattr(one, "axis", None)
        on = () if axis is None else (axis,)
        yield Wish((fact,), f"drop {named}", {"drop_policy": [str(one)]}, named, str(one), on)
    yield from memory_wish(asked)
    for expression in asked.expressions:
        fact = _fact(expression_reason(expression), place_of(asked.place, "expression"))
        named = f"the constraint {expression.text}"
        on = tuple(dict.fromkeys(atom.axis for atom in expression.atoms))
        yield Wish((fact,), f"drop {named}", {"drop_constraint": [expression.text]}, named, expression.text, on)


def binding(asked: Problem) -> list[Wish]:
    """Return the wishes that may keep plans from a budget: what lets go binds nothing, nor does a pin on one device."""
    freeing = {str(one) for one in asked.policy if isinstance(one, Traffic | Untie)}
    return [
        wish
        for wish in every_wish(asked)
        if wish.kind != "budget"
        and not (wish.kind == "policy" and wish.written in freeing)
        and not (wish.kind == "pin" and all(asked.mesh.sizes[asked.mesh.axis(axis)] == 1 for axis in wish.axes))
    ]


def _fact(reason: Reason, place: str = "") -> Fact:
    return Fact(reason.kind, reason.subject, reason.text, reason.source, place)
