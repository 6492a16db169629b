"""Why there is no plan, and what would do, as values and in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from solver.words import duration, size


@dataclass(frozen=True, slots=True)
class Fact:
    """A reason of an explanation, as it is kept with a plan.

    Parameters
    ----------
    kind, subject, text, source : str
        See `solver.constraints.reason.Reason`.
    """

    kind: str
    subject: str
    text: str
    source: str


@dataclass(frozen=True, slots=True)
class Repair:
    """A change of what was asked after which there is a plan.

    Parameters
    ----------
    text : str
        What to change, as ``drop the pin x:dp=S(0)``.
    change : mapping
        The same for a program: ``{"drop": [source of a pin, ...]}``, ``{"communication": "any"}``,
        ``{"mesh": {axis: size}}`` or ``{"capabilities": [name, ...]}``.
    cost : float or None
        Seconds of the plan that was found with the change; None where there was no time to price it.
    memory : int or None
        Peak bytes per device of that plan.
    proved : bool
        Whether no plan with the change is cheaper.
    """

    text: str
    change: Mapping[str, Any]
    cost: float | None = None
    memory: int | None = None
    proved: bool = False

    def __str__(self) -> str:
        if self.cost is None:
            return f"{self.text}: there is a plan, not priced"
        most = "" if self.proved else "at most "
        return f"{self.text}: {most}{duration(round(self.cost * 10**12))}, {size(self.memory or 0)} per device"

    def to_json(self) -> dict[str, Any]:
        """Return the repair as plain JSON values."""
        return {
            "text": self.text,
            "change": dict(self.change),
            "cost": self.cost,
            "memory": self.memory,
            "proved": self.proved,
        }


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why there is no plan, or why a plan is as it is.

    Parameters
    ----------
    core : tuple of Fact
        What the person chose that cannot hold together.
    support : tuple of Fact
        The rules and sizes that make it so.
    minimal : bool
        Whether every member of the core and of the support is proved to be needed.
    repairs : tuple of Repair
        What would do, the cheapest plan first.
    cost_delta : float or None
        Of an answer about a plan: the seconds that the other way costs more; None where there is no other way.
    answer : str
        Of an answer about a plan: the words; empty for an explanation of why there is none.
    """

    core: tuple[Fact, ...]
    support: tuple[Fact, ...]
    minimal: bool
    repairs: tuple[Repair, ...] = ()
    cost_delta: float | None = None
    answer: str = ""

    @property
    def text(self) -> str:
        """The explanation in words, without repairs."""
        return self.answer or self.story

    @property
    def story(self) -> str:
        """The explanation in words: what was asked, what stands against it, and what may be done."""
        wishes = told_once(self.core)
        if not wishes:
            facts = told_once(self.support)
            return "\n".join(["This graph has no plan on this mesh, whatever is asked for, because", *facts])
        count = len(self.core)
        lines = ["No plan satisfies this:" if count == 1 else f"No plan satisfies these {count} requests together:"]
        lines += wishes + self.because()
        if not self.minimal:
            return "\n".join([*lines, "There was no time to find out whether each of these is needed for this."])
        hint = "drop it" if count == 1 else "drop any one of them, and this contradiction is gone"
        if any(fact.kind == "divisibility" for fact in self.support):
            hint += "; or choose mesh axes of sizes that divide"
        if any(fact.kind == "kinds" for fact in self.support):
            hint += "; or ask for one partial kind on all mesh axes (sum and avg may stand together)"
        return "\n".join([*lines, f"hint: {hint}."])

    def because(self) -> list[str]:
        """Return the lines that tell the support; none where there is none."""
        facts = told_once(self.support)
        return ["because", *facts] if facts else []

    def __str__(self) -> str:
        if not self.repairs:
            return self.text
        return "\n".join([self.text, "There is a plan after one of these, cheapest first:", *self._remedies()])

    def _remedies(self) -> list[str]:
        return [f"  {repair}" for repair in self.repairs]

    def to_json(self) -> dict[str, Any]:
        """Return the explanation as plain JSON values."""
        return {
            "core": [fact_json(fact) for fact in self.core],
            "support": [fact_json(fact) for fact in self.support],
            "minimal": self.minimal,
            "repairs": [repair.to_json() for repair in self.repairs],
            "cost_delta": self.cost_delta,
            "text": self.text,
        }


def told_once(facts: Sequence[Fact]) -> list[str]:
    """Return facts as lines; those that differ in nothing but their subject are told by the first of them."""
    groups: dict[tuple[str, str, str], dict[str, Fact]] = {}
    for fact in facts:
        alike = groups.setdefault((fact.kind, fact.text.replace(repr(fact.subject), ""), fact.source), {})
        alike.setdefault(fact.subject, fact)
    lines = []
    for (kind, _, source), alike in groups.items():
        first, *others = alike.values()
        glob = kind == "pin" and not source.startswith(f"{first.subject}:")
        same = f"op{'s' * (len(others) > 1)} with the same rule" if kind == "rule" else "of which the same holds"
        lines.append(
            f"  {first.text}"
            + (f" (by {source})" if glob else "")
            + (f", and {len(others)} more {same}" if others else "")
        )
    return lines


def fact_json(fact: Fact) -> dict[str, str]:
    """Return a fact as plain JSON values."""
    return {"kind": fact.kind, "subject": fact.subject, "text": fact.text, "source": fact.source}
