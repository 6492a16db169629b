"""The words for how facts end in a contradiction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ops.placement import Layout, Partial, Placement, Shard, layout_text
from solver.constraints.layouts import Place
from solver.explain.facts import Facts, Leads, Only, Rows
from solver.explain.propagate import Step
from solver.explain.refusal import added, refusal
from solver.explain.universe import Ways, bits
from solver.explain.walk import Again, Beat, Given

FEW = 3
"""Layouts that are told one by one; where more are left, those that are not are told."""
MOST = 4
"""Layouts of a list."""


SHORT = {
    "communication": {
        'communication="none"': ", as nothing may be sent,",
        'communication="frozen"': ", as nothing is resharded,",
    },
    "notation": {},
}
"""Facts of which a sentence says that they are used and not again what they are."""


class Words:
    """Tells beats in sentences.

    Parameters
    ----------
    facts : Facts
        On one mesh axis a layout is told as its placement there.
    """

    def __init__(self, facts: Facts) -> None:
        self.facts, self.problem = facts, facts.problem
        self.axes = [axis for axis, size in enumerate(self.problem.mesh.sizes) if size > 1]

    @property
    def where(self) -> str:
        """The mesh axes that the sentences speak of, as they open with."""
        names = [self.problem.mesh.axes[axis] for axis in self.axes]
        return f"on {names[0]}" if len(names) == 1 else f"in layouts on [{', '.join(names)}]"

    def tell(self, beat: Beat | Again) -> str:
        """Return the sentence of a beat."""
        if isinstance(beat, Again):
            return self._again(beat)
        step = beat.step
        if beat.last:
            return self._end(beat)
        if isinstance(step.constraint, Only):
            wanted = step if step.left else replace(step, left=step.constraint.allowed)
            return f"{self._lies(wanted)}, since {self.facts.named(step.constraint.reason)[0].text}"
        if isinstance(step.constraint, Leads):
            return self._led(step, step.constraint)
        return self._row(beat, step.constraint)

    # -------------------------------------------------------------------------------------------------- the sentences

    def _again(self, again: Again) -> str:
        end = self._tensor(again.end)
        if again.ops > 1:
            return f"and so in {again.times} more layer{'s' * (again.times > 1)}, to {end}"
        op = self.problem.graph.nodes[again.op].op if again.op else "tensor"
        return f"and so in {again.times} more {op}{'s' * (again.times > 1)}, to {end}"

    def _led(self, step: Step, leads: Leads) -> str:
        reason = self.facts.reasons[leads.reason]
        if reason.kind in SHORT:
            return f"so{SHORT[reason.kind].get(reason.source, '')} {self._lies(step)}"
        return f"so {self._lies(step)}, since {reason.text}"

    def _lies(self, step: Step) -> str:
        """Return how a place lies, as a sentence of its own."""
        what, can = self._tensor(step.place), "can only" if _few(step) else "cannot"
        kind = step.place[0]
        if kind in ("needed", "asked"):
            return f"{self._op(str(step.place[1]))} {can} read {what} as {self._told(step)}"
        if kind == "delivered":
            return f"{what} {can} leave as {self._told(step)}"
        stored = kind == "held" and self.problem.graph.tensors[str(step.place[1])].producer is None
        return f"{what} {can} be {'stored' if stored else 'made' if kind == 'made' else 'kept'} {self._told(step)}"

    def _row(self, beat: Beat, rows: Rows) -> str:
        step, op = beat.step, self._op(rows.node)
        what, can = self._tensor(step.place), "can only" if _few(step) else "cannot"
        if not beat.given:
            return self.refused(step, rows)[0]
        reads = f"{op}{self._unread(beat.given, rows)}{self._given(beat.given, rows)}"
        if step.place[0] == "made":
            return f"{reads} and so {can} make {what} {self._told(step)}"
        rule = self.problem.bound[rows.node].rule.text
        return f"{reads} and so {can} read {what} as {self._told(step)}{self._added(beat, rows)} ({rule})"

    def _added(self, beat: Beat, rows: Rows) -> str:
        """Say what an op would add once on every device, were the operand that it is added to an unreduced sum."""
        step, bound = beat.step, self.problem.bound[rows.node]
        if Partial("sum") not in self._labels(step.place, step.gone):
            return ""
        for other in (one.step for one in beat.given if one.step.place[0] == "needed"):
            whole = Partial("sum") not in self._labels(other.place, other.left)
            if whole and added(bound, step.place[2], other.place[2]):
                unreduced = f"were {self._tensor(step.place)} an unreduced sum"
                return f": {unreduced}, every device would add {self._tensor(other.place)}"
        return ""

    def _labels(self, place: Place, ways: Ways) -> set[Placement]:
        universe = self.facts.universe(place)
        return {label for i in bits(ways) for label in universe.ways[i]}

    def _unread(self, given: Sequence[Given], rows: Rows) -> str:
        """Say why an op cannot read a cut tensor as it arrives, where it can in no other cut."""
        for one in given:
            place, universe = one.step.place, self.facts.universe(one.step.place)
            arrives = one.step.left & universe.filled(one.source) if one.source else 0
            cut = sum(1 << i for i in bits(arrives) if any(isinstance(label, Shard) for label in universe.ways[i]))
            if cut and not cut & self._usable(one.step, rows):
                labels = list(dict.fromkeys(label for i in bits(cut) for label in universe.ways[i]))
                why, _ = refusal(self.problem, rows.node, place, labels)
                padded = "" if arrives & ~cut else "padded with zeros "
                return f" cannot read {self._tensor(place)} as {self._list(place, cut)}: {why}; {padded}it"
        return ""

    @staticmethod
    def _usable(step: Step, rows: Rows) -> Ways:
        """Return the ways left to a place that some row of an op has."""
        return step.left & sum({1 << row[rows.places.index(step.place)] for row in rows.table.rows})

    def _given(self, given: Sequence[Given], rows: Rows) -> str:
        said = []
        for one in given:
            step = one.step
            usable = self._usable(step, rows) or step.left
            verb, as_ = ("make", "") if step.place[0] == "made" else ("read", " as")
            if usable.bit_count() > FEW:
                said.append(f"cannot {verb} {self._tensor(step.place)}{as_} {self._gone(step)}")
            else:
                said.append(f"{verb}s {self._tensor(step.place)}{as_} {self._padded(step.place, usable, one.source)}")
        return " " + " and ".join(said)

    def _padded(self, place: Place, ways: Ways, source: Ways) -> str:
        """List ways to read a tensor, apart from those that only padding its blocks with zeros leads to."""
        made = self.facts.universe(place).filled(source) if source else 0
        if not made or not ways & ~made or not ways & made:
            return self._list(place, ways)
        return f"{self._list(place, ways & made)}, or padded with zeros as {self._list(place, ways & ~made)},"

    def _end(self, beat: Beat) -> str:
        step, constraint = beat.step, beat.step.constraint
        but = "but " if beat.given else ""
        what = self._tensor(step.place)
        if isinstance(constraint, Only):
            if all(_is_wish(self.facts, one) for one in (step, *(given.step for given in beat.given))) and beat.given:
                asked = (self._list(step.place, ways) for ways in (step.gone, constraint.allowed))
                return f"{what} cannot be {' and '.join(asked)} at once"
            return f"{but}{self._reason(constraint.reason)}"
        if isinstance(constraint, Leads):
            other = constraint.source if step.place == constraint.target else constraint.target
            left = next((one.step.left for one in beat.given if one.step.place == other), 0)
            ends = (left, step.gone) if other == constraint.source else (step.gone, left)
            return (
                f"but {self._reason(constraint.reason)}: {what} "
                f"{self._comes(constraint.source)} {self._list(step.place, ends[0])} and "
                f"{self._goes(constraint.target)} {self._list(step.place, ends[1])}"
            )
        needs = [one.step for one in beat.given if one.step.place != step.place]
        if not needs:
            return f"{but}{self.refused(step, constraint)[0]}"
        both = {constraint.places.index(one.place): (one.place, one.left) for one in needs}
        both[constraint.places.index(step.place)] = step.place, step.gone
        clauses = [self._does_so(*both[slot]) for slot in sorted(both)]
        rule = self.problem.bound[constraint.node].rule.text
        return f"but {self._op(constraint.node)} cannot {' and '.join(clauses)} at once ({rule})"

    def _does_so(self, place: Place, ways: Ways) -> str:
        if place[0] == "made":
            return f"make {self._tensor(place)} {self._list(place, ways)}"
        return f"read {self._tensor(place)} as {self._list(place, ways)}"

    # ------------------------------------------------------------------------------------------------------ the parts

    def _comes(self, source: Place) -> str:
        return "is stored" if source[0] == "held" else "is made"

    def _goes(self, target: Place) -> str:
        if target[0] == "needed":
            return f"is read by {self._op(str(target[1]))} as"
        return {"held": "is kept", "delivered": "leaves as", "asked": "is read as"}.get(str(target[0]), "is needed")

    def _does(self, step: Step) -> str:
        """Return what an op would do with the layouts that are lost, as an infinitive."""
        lost = self._list(step.place, step.gone) if not step.left else self._gone(step)
        if step.place[0] == "made":
            return f"make {self._tensor(step.place)} {lost}"
        return f"read {self._tensor(step.place)} as {lost}"

    def refused(self, step: Step, rows: Rows) -> tuple[str, str]:
        """Return what an op cannot read or make whatever else holds, and the capability that would let it.

        Parameters
        ----------
        step : Step
        rows : Rows
            Its constraint.
        """
        subject, own = f"{self._op(rows.node)} ", f"{self._op(rows.node)}: "
        facts = [
            f"its kernel would communicate, and {reason.text}" if reason.chosen else reason.text.removeprefix(own)
            for reason in step.reasons
            if reason.kind != "rule"
        ]
        if facts:
            return f"{subject}cannot {self._does(step)}: {' and '.join(facts)}", ""
        universe = self.facts.universe(step.place)
        labels = list(dict.fromkeys(label for i in bits(step.gone) for label in universe.ways[i]))
        why, capability = refusal(self.problem, rows.node, step.place, labels)
        return f"{subject}cannot {self._does(step)}: {why}", capability

    def _reason(self, number: int) -> str:
        return self.facts.reasons[number].text

    def _op(self, node: str) -> str:
        return f"{self.problem.graph.nodes[node].op} {node!r}"

    def _tensor(self, place: Place) -> str:
        """Return the name of what lies somewhere; with that of the operand where an op reads it more than once."""
        name = self.facts.tensor[place]
        uses = self.problem.graph.operand_uses(str(place[1])) if place[0] == "needed" else []
        if sum(use.tensor == name for use in uses) > 1:
            return f"{name!r} ({next(use.operand for use in uses if use.slot == place[2])})"
        return repr(name)

    def _told(self, step: Step) -> str:
        return self._list(step.place, step.left) if _few(step) else self._gone(step)

    def _gone(self, step: Step) -> str:
        """Return what is lost for good on a mesh axis; where only combinations are, some of them."""
        universe = self.facts.universe(step.place)
        lost = []
        for axis in self.axes:
            for label in dict.fromkeys(universe.ways[i][axis] for i in bits(step.gone)):
                if not universe.having(axis, label) & step.left:
                    on = "" if len(self.axes) == 1 else f" on {self.problem.mesh.axes[axis]}"
                    lost.append(placement_text(label) + on)
        return one_of(lost) if lost else self._list(step.place, step.gone)

    def _list(self, place: Place, ways: Ways) -> str:
        universe = self.facts.universe(place)
        if ways == universe.all:
            return "anything"
        names = dict.fromkeys(universe.names[i] or universe.ways[i] for i in bits(ways))
        names = {name: None for name in names if _as_sum(name) == name or _as_sum(name) not in names}
        layouts = [self._layout(name) for name in names]
        if len(layouts) > MOST:
            layouts = [*layouts[:MOST], f"{len(layouts) - MOST} more"]
        return one_of(layouts)

    def _layout(self, layout: Layout) -> str:
        return placement_text(layout[self.axes[0]]) if len(self.axes) == 1 else layout_text(layout)


def _is_wish(facts: Facts, step: Step) -> bool:
    return isinstance(step.constraint, Only) and facts.reasons[step.constraint.reason].chosen


def _as_sum(layout: Layout) -> Layout:
    """Return a layout with P(sum) for P(avg): one is scaled into the other where it lies, so one of them is told."""
    return tuple(Partial("sum") if label == Partial("avg") else label for label in layout)


def _few(step: Step) -> bool:
    return step.left.bit_count() <= FEW


def placement_text(placement: Placement) -> str:
    """Return a placement as a sentence says it."""
    if isinstance(placement, Shard) and placement.part:
        return f"strided {placement}"
    return f"unreduced {placement}" if isinstance(placement, Partial) else str(placement)


def one_of(words: Sequence[str]) -> str:
    """Join alternatives.

    Examples
    --------
    >>> one_of(["R", "S(0)", "S(1)"])
    'R, S(0) or S(1)'
    """
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
