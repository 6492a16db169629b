"""Why there is no plan, and what would do, as values and in words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from solver.explanation_plan import Alternative, Lies, Part
from solver.words import all_of, duration, size_up

NAME, NUMBER = re.compile(r"'[^'\n]*'|(?<=\(by )[^:\n]*"), re.compile(r"_?\d+")
ORDER = ("pin", "expression", "tie", "communication", "policy", "budget")
"""How wishes are listed: by kind, as they were given within one."""
DROPPED = {
    "pin": "drop this pin",
    "expression": "drop this constraint",
    "tie": "let this tie go",
    "communication": 'let communication be "any"',
    "policy": "drop this policy",
    "budget": "drop this budget",
}
"""How a wish that cannot hold by itself is given up."""
TERMS = {
    "padded with zeros": "each device keeps a part and holds zeros in place of the others, which sends nothing",
    "strided S(": "of a dim made of several parts a later one is cut, so that a device holds a piece of every block",
}
"""What the words of a story mean that not everybody knows."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A reason of an explanation, as it is kept with a plan.

    Parameters
    ----------
    kind, subject, text, source : str
        See `solver.constraints.reason.Reason`.
    place : str
        Where a wish was set: a file and a line, or an option of the command.
    alike : tuple of str
        Other subjects of which the same holds, as the same op in other layers.
    """

    kind: str
    subject: str
    text: str
    source: str
    place: str = ""
    alike: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the fact as plain JSON values."""
        return {
            "kind": self.kind,
            "subject": self.subject,
            "text": self.text,
            "source": self.source,
            "place": self.place,
            "alike": list(self.alike),
        }


@dataclass(frozen=True, slots=True)
class StoryStep:
    """One sentence of a story.

    Parameters
    ----------
    text : str
    subject : str
        The op or tensor that it is about.
    again : int
        How often what was told just before repeats; 0 for a sentence of its own.
    kind : str
        That of the fact by which it follows, as a `Fact` has it; ``again`` where it repeats what was told, ``way`` for
        the ops between requests, ``figure`` for what a search found.
    source : str
        Where that fact comes from, as it was written.
    place : str
        Where it was set, if a person chose it.
    """

    text: str
    subject: str
    again: int = 0
    kind: str = ""
    source: str = ""
    place: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the step as plain JSON values."""
        return {
            "text": self.text,
            "subject": self.subject,
            "again": self.again,
            "kind": self.kind,
            "source": self.source,
            "place": self.place,
        }


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing worth knowing about a plan.

    Parameters
    ----------
    kind : str
        ``collective``, ``compute`` (ops of a kind), ``rest`` (of the time), ``wish`` (what it costs), ``undone`` (a
        pinned cut that no op reads), ``whole`` (a tensor on every device), ``forced`` (an op that nothing can cut) or
        ``capability`` (what it would save).
    subject : str
        What it is about: a collective, a kind of ops, a wish as it was written, a tensor, an op, a capability.
    text : str
        A sentence.
    seconds : float or None
        What it takes, costs or would save; None where that is not known exactly.
    bytes : int or None
        What it takes of every device; of a wish what the plan found without it fills less, negative where more.
    within : tuple of float, or None
        Of a wish the least and the most seconds that it costs, as far as both plans are proved.
    change : mapping or None
        Of a wish how a program drops it, as in a `Repair`.
    place : str
        Of a wish where it was set.
    """

    kind: str
    subject: str
    text: str
    seconds: float | None = None
    bytes: int | None = None
    within: tuple[float, float] | None = None
    change: Mapping[str, Any] | None = None
    place: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the finding as plain JSON values."""
        return {
            "kind": self.kind,
            "subject": self.subject,
            "text": self.text,
            "seconds": self.seconds,
            "bytes": self.bytes,
            "within": None if self.within is None else list(self.within),
            "change": None if self.change is None else dict(self.change),
            "place": self.place,
        }


@dataclass(frozen=True, slots=True)
class Repair:
    """A change of what was asked after which there is a plan.

    Parameters
    ----------
    text : str
        What to change, as ``drop the pin x:dp=S(0)``.
    change : mapping
        The same for a program; what it names is done together:

        ``drop``: pins to take back, each as `Fact.source` writes it (a glob with all that it pins on that mesh axis);
        ``pin``: pins to set, as ``NAME:AXIS=PLACEMENT`` (what stays of a dropped glob, or may leave unreduced);
        ``communication``: its new value; ``drop_policy``, ``drop_constraint``: texts of what to take back;
        ``untie``: followers whose ties go; ``mesh``: all axes with their sizes; ``capabilities``: what to grant beside
        what is granted; ``memory``, ``traffic``: the new budget in bytes, and ``bound``: what every plan needs of it;
        ``pad``: tensor, dim and size for `solver.padding.padded`, and the ops that then ``mask``.
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
        time = ("" if self.proved else "at most ") + duration(round(self.cost * 10**12))
        return f"{self.text}: {time}, {size_up(self.memory or 0)} of memory per device"

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
        The rules and sizes that make it so, equal ones as one.
    minimal : bool
        Whether every member of the core and of the support is proved to be needed.
    repairs : tuple of Repair
        What would do, the cheapest plan first.
    cost_delta : float or None
        Of an answer about a plan: the seconds that the other way costs more; None where there is no other way.
    answer : str
        Of an answer about a plan: the words; empty for an explanation of why there is none.
    steps : tuple of StoryStep
        How the core ends in a contradiction, in order.
    where : str
        The mesh axes that the steps speak of.
    by : str
        ``propagation`` where every step follows from the ones before it without a solver, else ``z3``.
    beside : tuple of Explanation
        Further contradictions, which share no pin, tie or expression with this one nor with each other.
    more : bool
        Whether there may be more of these than were looked for.
    findings : tuple of Finding
        Of an answer about a whole plan: what it says, one by one.
    unrepaired : str
        Why there are no repairs, where they were looked for, or that there was no time to look for all.
    lies : Lies or None
        Of an answer about a tensor: how it lies, and what keeps it there.
    alternatives : tuple of Alternative
        Of such an answer: how else it might lie, and what became of that.
    parts : tuple of Part
        Of what `cost_delta` is made; they add up to it.
    """

    core: tuple[Fact, ...]
    support: tuple[Fact, ...]
    minimal: bool
    repairs: tuple[Repair, ...] = ()
    cost_delta: float | None = None
    answer: str = ""
    steps: tuple[StoryStep, ...] = ()
    where: str = ""
    by: str = "propagation"
    beside: tuple[Explanation, ...] = ()
    more: bool = False
    findings: tuple[Finding, ...] = ()
    unrepaired: str = ""
    lies: Lies | None = None
    alternatives: tuple[Alternative, ...] = ()
    parts: tuple[Part, ...] = ()

    @property
    def text(self) -> str:
        """The explanation in words, without repairs."""
        return self.answer or self.story

    @property
    def story(self) -> str:
        """The explanation in words: what was asked, how that ends in a contradiction, and what may be done."""
        lines = self._contradiction()
        if not self.core:
            return "\n".join(lines)
        if not self.minimal:
            lines.append("Whether each of these is needed for this was not found out.")
        return "\n".join([*lines, f"hint: {self._hint()}."])

    def _contradiction(self) -> list[str]:
        """Return the lines that say what cannot be, and why."""
        if not self.core:
            return ["This graph has no plan on this mesh, whatever is asked for,", *self.because()]
        count = len(self.core)
        verdict = "No plan satisfies this:" if count == 1 else f"No plan satisfies these {count} requests together:"
        return [verdict, *told_once(self.core), *self.because()]

    def _others(self) -> Iterator[str]:
        """Yield the lines of further contradictions.

        Those that only their mesh axis tells from another, or the numbers in names, as of layers, are told with it.
        """
        groups: dict[str, list[Explanation]] = {}
        for one in (self, *self.beside):
            groups.setdefault(_unnumbered(one._anywhere()), []).append(one)
        for first, *alike in groups.values():
            yield from () if first is self else first.story.splitlines()
            as_ = "the same as above" if first is self else "  and the same"
            if axes := [one.where.removeprefix("on ") for one in alike if one._anywhere() == first._anywhere()]:
                yield f"{as_} on {all_of(axes)}"
            if layers := [one for one in alike if one._anywhere() != first._anywhere()]:
                named = "; ".join(f"with {all_of(list(dict.fromkeys(one._subjects())))}" for one in layers)
                yield f"{as_} in {len(layers)} more: {named}"

    def _subjects(self) -> Iterator[str]:
        """Yield what the requests are about."""
        yield from (repr(fact.subject) for fact in self.core if fact.subject)

    def _anywhere(self) -> str:
        """Return what cannot be, and why, without the name of the mesh axis."""
        return re.sub(rf"\b{re.escape(self.where)}\b", "on *", "\n".join(self._contradiction()))

    def _hint(self) -> str:
        which = "any one of them, and this contradiction is gone" if self.minimal else "some of them"
        hint = DROPPED[self.core[0].kind] if len(self.core) == 1 else f"drop {which}"
        kinds = {fact.kind for fact in self.support}
        if any(fact.kind == "budget" for fact in self.core):
            hint += "; or allow more memory"
        if "divisibility" in kinds:
            hint += "; or choose mesh axes of sizes that divide"
        if "kinds" in kinds:
            hint += "; or ask for one partial kind on all mesh axes (sum and avg may stand together)"
        for name in dict.fromkeys(fact.source for fact in self.support if fact.kind == "capability"):
            hint += f"; or grant the capability {name} (--capability {name}), where the runtime has it"
        return hint

    def because(self) -> list[str]:
        """Return the lines that tell how the facts meet; none where there are none."""
        if not self.steps:
            return []
        by = ", as Z3 finds" if self.by == "z3" else ""
        return [f"because{by}{', ' if self.where else ''}{self.where}:", *(f"  {step.text}" for step in self.steps)]

    def __str__(self) -> str:
        lines = [self.text]
        if count := len(self.beside):
            lines.append(f"There {'are' if count > 1 else 'is'} {count} more contradiction{'s' * (count > 1)}:")
        lines += [f"  {line}" for line in self._others()]
        if self.more:
            lines.append("There may be others: no further contradictions were looked for.")
        if self.repairs:
            after = "There is a plan after one of these, cheapest first:"
            lines += [after, *(f"  {one}" for one in self.repairs)]
        if self.unrepaired:
            lines.append(self.unrepaired)
        return "\n".join(_glossed("\n".join(lines).splitlines()))

    def to_json(self) -> dict[str, Any]:
        """Return the explanation as plain JSON values."""
        return {
            "core": [fact.to_json() for fact in self.core],
            "support": [fact.to_json() for fact in self.support],
            "minimal": self.minimal,
            "by": self.by,
            "where": self.where,
            "story": [step.to_json() for step in self.steps],
            "repairs": [repair.to_json() for repair in self.repairs],
            "others": [[fact.to_json() for fact in other.core] for other in self.beside],
            "beside": [other.to_json() for other in self.beside],
            "more": self.more,
            "unrepaired": self.unrepaired,
            "findings": [finding.to_json() for finding in self.findings],
            "choice": None if self.lies is None else self.lies.to_json(),
            "alternatives": [one.to_json() for one in self.alternatives],
            "parts": [part.to_json() for part in self.parts],
            "cost_delta": self.cost_delta,
            "text": str(self),
        }


def _unnumbered(text: str) -> str:
    """Return a text without the numbers in names and patterns, by which equal layers differ (`add`, `add_7`)."""
    return NAME.sub(lambda name: NUMBER.sub("", name[0]), text)


def _glossed(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines, and below the first with a term of the field what it means."""
    known: set[str] = set()
    for line in lines:
        yield line
        for term in (term for term in TERMS if term in line and term not in known):
            known.add(term)
            yield f"{' ' * (len(line) - len(line.lstrip()) + 2)}({term.removesuffix('S(').strip()}: {TERMS[term]})"


def told_once(facts: Sequence[Fact]) -> list[str]:
    """Return facts as lines; those that differ in nothing but their subject are told by the first of them."""
    groups: dict[tuple[str, str, str], dict[str, Fact]] = {}
    for fact in sorted(facts, key=lambda one: ORDER.index(one.kind) if one.kind in ORDER else len(ORDER)):
        alike = groups.setdefault((fact.kind, fact.text.replace(repr(fact.subject), ""), fact.source), {})
        alike.setdefault(fact.subject, fact)
    lines = []
    for (kind, _, source), alike in groups.items():
        first, *others = alike.values()
        glob = kind == "pin" and not source.startswith(f"{first.subject}:")
        lines.append(
            f"  {first.text}"
            + (f" (by {source})" if glob else "")
            + (f", and {len(others)} more of which the same holds" if others else "")
        )
    return lines
