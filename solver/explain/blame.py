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
    """

    facts: tuple[Fact, ...]
    text: str
    change: dict[str, Any]


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
    every = (*_wishes(asked), *also)
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
        fact = Fact("budget", "memory", text, f"memory={asked.memory}")
        yield Wish((fact,), "allow any amount of memory", {"memory": None})


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


def _wishes(asked: Problem) -> Iterator[Wish]:
    for source in dict.fromkeys(pin.source for pin in asked.pins if asked.mesh.sizes[pin.axis] > 1):
        pins = [pin for pin in asked.pins if pin.source == source]
        facts = tuple(_fact(pin_reason(asked, pin), pin.place) for pin in pins)
        yield Wish(facts, f"drop the pin {source}", {"drop": [source]})
    for expression in asked.expressions:
        fact = _fact(expression_reason(expression))
        yield Wish((fact,), f"drop the constraint {expression.text}", {"drop_constraint": [expression.text]})
    if asked.communication != "any":
        yield Wish((_fact(communication_reason(asked)),), 'let communication be "any"', {"communication": "any"})
    for one in asked.policy:
        if not isinstance(one, Traffic | Untie):
            yield Wish((_fact(policy_reason(one)),), f"drop the policy {one}", {"drop_policy": [str(one)]})


def _fact(reason: Reason, place: str = "") -> Fact:
    return Fact(reason.kind, reason.subject, reason.text, reason.source, place)
