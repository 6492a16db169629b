"""Which wishes keep every plan from a budget: found by planning without them, one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ops.placement import Partial
from solver.constraints.expression import expression_reason
from solver.constraints.pins import pin_reason
from solver.constraints.policy_kinds import Traffic, Untie, Zero
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


@dataclass(frozen=True)
class Blame:
    """What keeps every plan from a budget.

    Parameters
    ----------
    wishes : tuple of Wish
        Those that have a part in it, whole: as they are taken back.
    facts : tuple of Fact
        Of what they say only that with which every plan exceeds the budget.
    proved : bool
        Whether without any one of these facts, and with the others, a plan within the budget was found.
    """

    wishes: tuple[Wish, ...]
    facts: tuple[Fact, ...]
    proved: bool


def blamed(asked: Problem, exceeds: Exceeds, seconds: float, also: Sequence[Wish] = ()) -> Blame:
    """Leave out what is asked for without which the budget is exceeded all the same.

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
    Blame

    Notes
    -----
    First whole wishes are left out, one after the other. Of one that is needed, as a pin on many tensors, one half of
    what it says is left out, then the other, down to single facts (Junker, QuickXplain, AAAI 2004).
    """
    wishes = (*binding(asked), *also)
    every = [fact for wish in wishes for fact in wish.facts]
    asking = _Asking(asked, exceeds, wishes, time.monotonic() + seconds)
    if not every or asking(()):
        return Blame((), (), True)
    kept: list[Fact] = []
    waiting = [wish.facts for wish in wishes]
    while waiting:
        group = waiting.pop(0)
        if asking([*kept, *(fact for others in waiting for fact in others)]):
            continue
        half = len(group) // 2
        if half and not asking.over():
            waiting += [group[:half], group[half:]]
        else:
            kept += group
    proved = all(asking([other for other in kept if other != fact]) is False for fact in kept)
    named = tuple(wish for wish in wishes if not set(kept).isdisjoint(wish.facts))
    return Blame(named, tuple(fact for fact in every if fact in kept), proved)


class _Asking:
    """Finds out whether the budget is exceeded with some facts, without asking again for what follows."""

    def __init__(self, asked: Problem, exceeds: Exceeds, wishes: Sequence[Wish], deadline: float) -> None:
        self._asked, self._exceeds, self._deadline = asked, exceeds, deadline
        self._every = [fact for wish in wishes for fact in wish.facts]
        self._freeing = {fact for wish in wishes if lets_go(asked, wish) for fact in wish.facts}
        self._held: list[set[Fact]] = []
        """Facts with each of which there is a plan within the budget."""

    def over(self) -> bool:
        """Whether the time is used up."""
        return time.monotonic() > self._deadline

    def __call__(self, facts: Sequence[Fact]) -> bool | None:
        """Tell whether every plan with these facts exceeds the budget; None where there was no time, too."""
        left = set(facts)
        if any(left <= held and self._freeing.isdisjoint(held - left) for held in self._held):
            return False
        if self.over():
            return None
        answer = self._exceeds(without(self._asked, [fact for fact in self._every if fact not in left]))
        if answer is False:
            self._held.append(left)
        return answer


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


def without(asked: Problem, facts: Collection[Fact]) -> Problem:
    """Return a problem without some facts of wishes."""
    gone = {(fact.kind, fact.source) for fact in facts}
    unpinned = {(fact.subject, fact.source) for fact in facts if fact.kind == "pin"}
    fewer = asked.with_pins(tuple(pin for pin in asked.pins if (pin.subject, pin.source) not in unpinned))
    return replace(
        fewer,
        memory=None if any(kind == "budget" for kind, _ in gone) else asked.memory,
        communication="any" if any(kind == "communication" for kind, _ in gone) else asked.communication,
        policy=tuple(one for one in asked.policy if ("policy", str(one)) not in gone),
        expressions=tuple(one for one in asked.expressions if ("expression", one.text) not in gone),
    )


def only(asked: Problem, facts: Collection[Fact], also: Sequence[Wish] = ()) -> Problem:
    """Return a problem with some facts only of what may keep plans from a budget, and from another one."""
    every = [fact for wish in (*binding(asked), *also) for fact in wish.facts]
    return without(asked, [fact for fact in every if fact not in facts])


def lets_go(asked: Problem, wish: Wish) -> bool:
    """Tell whether a wish allows something that is not allowed without it, so that it may save time."""
    policies = any(str(one) == wish.written and isinstance(one, Untie | Zero) for one in asked.policy)
    pins = any(pin.source == wish.written and isinstance(pin.placement, Partial) for pin in asked.pins)
    return policies if wish.kind == "policy" else pins and wish.kind == "pin"


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
