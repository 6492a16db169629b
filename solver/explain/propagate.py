"""Arc consistency over the layouts of places: what follows from some facts, step by step, without a solver."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from solver.constraints.layouts import Place
from solver.constraints.reason import Reason
from solver.deadline import keep_time
from solver.explain.facts import WRITTEN, Constraint, Facts, Leads, Only, OpTable, Rows
from solver.explain.universe import Relation, Ways

NOTHING: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that follows.

    Parameters
    ----------
    constraint : Constraint
        By which it follows.
    place : tuple
        What can no longer lie in some ways.
    gone : int
        The ways that the end hangs on, of those that go here.
    left : int
        The ways that are left after it.
    because : tuple of int
        The steps before it that it needs.
    reasons : tuple of Reason
        The facts that it needs.
    """

    constraint: Constraint
    place: Place
    gone: Ways
    left: Ways
    because: tuple[int, ...]
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class Trail:
    """How some facts end where a place has no way left to lie.

    Parameters
    ----------
    steps : tuple of Step
        In order; the last one leaves nothing.
    """

    steps: tuple[Step, ...]

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """The facts that it needs, each once, in the order of the steps."""
        found = dict.fromkeys(reason for step in self.steps for reason in step.reasons)
        return tuple(reason for reason in found if reason is not WRITTEN)


@dataclass(frozen=True, slots=True)
class _Event:
    constraint: Constraint
    place: Place
    gone: Ways
    left: Ways


class Propagator:
    """Asks what follows from sets of facts.

    Parameters
    ----------
    facts : Facts
    among : collection of Reason, optional
        The facts that it will be asked about; all by default.
    """

    def __init__(self, facts: Facts, among: Collection[Reason] | None = None) -> None:
        self.facts = facts
        self.constraints = facts.constraints if among is None else _joined(facts, among)
        places = dict.fromkeys(place for constraint in self.constraints for place in constraint.places)
        self.all: dict[Place, Ways] = {place: facts.universe(place).all for place in places}
        self.watching: dict[Place, list[Constraint]] = {place: [] for place in places}
        for constraint in self.constraints:
            if not isinstance(constraint, Only):
                for place in constraint.places:
                    self.watching[place].append(constraint)
        self._revised: dict[object, tuple[Ways, ...]] = {}
        self._offered: dict[tuple[int, frozenset[int]], list[tuple[int, ...]]] = {}

    def revised(self, table: OpTable, blocking: frozenset[int], masks: tuple[Ways, ...]) -> tuple[Ways, ...]:
        """Return the ways of the slots of an op that some row joins."""
        key = id(table), blocking, masks
        if key not in self._revised:
            found = [0] * len(masks)
            for row in self._rows(table, blocking):
                if all(mask >> way & 1 for mask, way in zip(masks, row, strict=True)):
                    for slot, way in enumerate(row):
                        found[slot] |= 1 << way
            self._revised[key] = tuple(found)
        return self._revised[key]

    def _rows(self, table: OpTable, blocking: frozenset[int]) -> list[tuple[int, ...]]:
        key = id(table), blocking
        if key not in self._offered:
            pairs = zip(table.rows, table.blocked, strict=True)
            self._offered[key] = [row for row, blocked in pairs if not blocked & blocking]
        return self._offered[key]

    def replicated(self, active: Collection[Reason]) -> bool:
        """Tell whether some facts let everything be replicated: that op for op, and way for way, holds together."""
        holding = self.facts.holding(active)
        return all(one.allowed & 1 for one in self.constraints if isinstance(one, Only) and holding[one.reason])

    def follow(
        self, active: Collection[Reason] | None = None, begin: Iterable[Reason] = (), *, loose: bool = False
    ) -> Trail | Settled:
        """Find what follows from facts.

        Parameters
        ----------
        active : collection of Reason, optional
            The facts that hold; all of them by default.
        begin : iterable of Reason, optional
            Facts that are looked at first, one after the other: all that follows from one comes before the next.
            So the contradiction is found near to them.
        loose : bool, optional
            See `solver.explain.universe.equal`.

        Returns
        -------
        Trail or Settled
            How they end in a contradiction; or, where this does not find one, what is left of each place.
        """
        run = Settled(self, active, loose)
        constraints = [constraint for constraint in self.constraints if run.on[constraint.reason]]
        rank = {self.facts.number[reason]: place for place, reason in enumerate(begin)}
        first = [constraint for constraint in constraints if constraint.reason in rank]
        if not all(run.narrow(one) for one in constraints if isinstance(one, Only) and one.reason not in rank):
            return run.trail()
        for constraint in sorted(first, key=lambda one: rank[one.reason]):
            run.queue(constraint)
            if not run.settle():
                return run.trail()
        for constraint in constraints:
            if not isinstance(constraint, Leads) or not run.untouched(constraint):
                run.queue(constraint)
        return run if run.settle() else run.trail()


def _joined(facts: Facts, among: Collection[Reason]) -> list[Constraint]:
    """Return the constraints of some facts, without ways that lead to a place of which nothing else is demanded."""
    holding = facts.holding(among)
    kept = [constraint for constraint in facts.constraints if holding[constraint.reason]]
    while True:
        times = Counter(place for constraint in kept for place in constraint.places)
        fewer = [
            one
            for one in kept
            if not isinstance(one, Leads) or not one.idle or all(times[place] > 1 for place in one.places)
        ]
        if len(fewer) == len(kept):
            return kept
        kept = fewer


class Settled:
    """One propagation: what is left, and what happened; made by `Propagator.follow`.

    Attributes
    ----------
    left : dict
        Place -> the ways in which it may still lie.
    """

    def __init__(self, asked: Propagator, active: Collection[Reason] | None, loose: bool) -> None:
        self.asked, self._loose = asked, loose
        self.left = dict(asked.all)
        self.on = asked.facts.holding(active)
        self._events: list[_Event] = []
        self._queue: deque[Constraint] = deque()
        self._queued: set[Constraint] = set()

    def queue(self, constraint: Constraint) -> None:
        """Look at a constraint once more."""
        if constraint not in self._queued:
            self._queued.add(constraint)
            self._queue.append(constraint)

    def narrow(self, only: Only) -> bool:
        """Leave a place the ways that a fact allows, and draw no conclusion yet; False where it has none left."""
        before = self.left[only.place]
        if (left := before & only.allowed) != before:
            self.left[only.place] = left
            self._events.append(_Event(only, only.place, before & ~left, left))
        return bool(left)

    def untouched(self, leads: Leads) -> bool:
        """Tell whether both its places are as they were, so that nothing follows."""
        every, left, (source, target) = self.asked.all, self.left, leads.places
        return leads.idle and left[source] == every[source] and left[target] == every[target]

    def settle(self) -> bool:
        """Draw all conclusions; False where a place has no way left to lie."""
        now, on, queue, queued = self.left, self.on, self._queue, self._queued
        while queue:
            keep_time()
            constraint = queue.popleft()
            queued.discard(constraint)
            for place, left in self._revise(constraint, now):
                before = now[place]
                if left == before:
                    continue
                now[place] = left
                self._events.append(_Event(constraint, place, before & ~left, left))
                if not left:
                    return False
                for other in self.asked.watching[place]:
                    if other is not constraint and on[other.reason] and other not in queued:
                        queued.add(other)
                        queue.append(other)
        return True

    def _revise(self, constraint: Constraint, left: dict[Place, Ways]) -> list[tuple[Place, Ways]]:
        if isinstance(constraint, Only):
            return [(constraint.place, left[constraint.place] & constraint.allowed)]
        if isinstance(constraint, Leads):
            source, target, relation = constraint.source, constraint.target, self._relation(constraint)
            reached = left[target] & relation.image(left[source])
            return [(target, reached), (source, left[source] & relation.image(reached, back=True))]
        masks = tuple(left[place] for place in constraint.places)
        revised = self.asked.revised(constraint.table, self._blocking(constraint), masks)
        pairs = list(zip(constraint.places, revised, strict=True))
        if revised and not revised[0]:  # no row at all
            self._blamed_first(constraint, pairs, left)
        return pairs

    def _blamed_first(self, constraint: Rows, pairs: list[tuple[Place, Ways]], left: dict[Place, Ways]) -> None:
        """Put first what no row leaves as it lies, whatever lies beside it; then what lies in fewer ways than it might.

        Where that is one place, the others are not to blame.
        """
        joined = self.asked.revised(constraint.table, NOTHING, tuple(self.asked.all[place] for place, _ in pairs))
        alone = {place for (place, _), ways in zip(pairs, joined, strict=True) if not ways & left[place]}
        pairs.sort(key=lambda pair: (pair[0] not in alone, left[pair[0]] == self.asked.all[pair[0]]))

    def _relation(self, leads: Leads) -> Relation:
        return leads.loose if self._loose else leads.relation

    def _blocking(self, constraint: Rows) -> frozenset[int]:
        if not constraint.forbidding:
            return NOTHING
        return frozenset(i for i, number in enumerate(constraint.forbidding) if self.on[number])

    # -------------------------------------------------------------------------------------------------- an example

    def example(self) -> dict[Place, Ways] | None:
        """Look, place by place and without going back far, for a way to lie that meets all facts.

        Returns
        -------
        dict or None
            Place -> its one way; None where none was found, which proves nothing.
        """
        undecided = True
        while undecided:
            undecided = False
            for place in self.left:
                ways = self.left[place]
                if not ways & 1 and ways & (ways - 1):
                    undecided = True
                    if not self._try(place, ways & -ways):
                        return None
            if (unmet := self._unmet()) is not None:
                undecided = True
                if not self._try(unmet, 1):
                    return None
        return {place: ways & -ways for place, ways in self.left.items()}

    def _unmet(self) -> Place | None:
        """Return an undecided place of a fact that does not hold where all take the first way that is left to them."""
        first = {place: ways & -ways for place, ways in self.left.items()}
        cut = (place for place, way in first.items() if way != 1)  # what is replicated everywhere holds together
        for constraint in dict.fromkeys(one for place in cut for one in self.asked.watching[place]):
            keep_time()
            if self.on[constraint.reason] and any(ways != first[at] for at, ways in self._revise(constraint, first)):
                return next(place for place in constraint.places if self.left[place] != first[place])
        return None

    def _try(self, place: Place, way: Ways) -> bool:
        """Decide on a way, or where that fails against it; False where both fail."""
        before, events = self.left[place], len(self._events)
        for ways in (way, before & ~way):
            if not ways:
                return False
            self.left[place] = ways
            self._queue.extend(c for c in self.asked.watching[place] if self.on[c.reason])
            self._queued.update(self._queue)
            if self.settle():
                return True
            self._queue.clear()
            self._queued.clear()
            for event in self._events[events:]:
                self.left[event.place] |= event.gone
            del self._events[events:]
            self.left[place] = before
        return False

    # ------------------------------------------------------------------------------------------------- the way back

    def trail(self) -> Trail:
        """Return what the last event hangs on."""
        gone: dict[Place, list[tuple[int, Ways]]] = {}
        for number, event in enumerate(self._events):
            gone.setdefault(event.place, []).append((number, event.gone))
        needed: dict[Place, Ways] = {self._events[-1].place: self.asked.all[self._events[-1].place]}
        kept: dict[int, tuple[Ways, dict[Place, Ways], tuple[Reason, ...]]] = {}
        for number in reversed(range(len(self._events))):
            keep_time()
            event = self._events[number]
            wanted = event.gone & needed.get(event.place, 0)
            if not wanted:
                continue
            needs, reasons = self._needs(number, event, wanted, gone)
            for place, ways in needs.items():
                needed[place] = needed.get(place, 0) | ways
            kept[number] = wanted, needs, reasons
        place_of = {number: i for i, number in enumerate(sorted(kept))}
        steps = []
        for number in sorted(kept):
            event, (wanted, needs, reasons) = self._events[number], kept[number]
            because = tuple(
                place_of[before]
                for place, ways in needs.items()
                for before, lost in gone.get(place, ())
                if before < number and lost & ways and before in place_of
            )
            steps.append(Step(event.constraint, event.place, wanted, event.left, because, reasons))
        return Trail(tuple(steps))

    def _needs(
        self, number: int, event: _Event, wanted: Ways, gone: dict[Place, list[tuple[int, Ways]]]
    ) -> tuple[dict[Place, Ways], tuple[Reason, ...]]:
        """Return the ways of other places that had to be gone, and the facts, for some ways of a place to go."""
        constraint = event.constraint
        if isinstance(constraint, Only):
            return {}, self.asked.facts.named(constraint.reason)
        if isinstance(constraint, Leads):
            back = event.place == constraint.target
            other = constraint.source if back else constraint.target
            needed = self._relation(constraint).image(wanted, back)
            return {other: needed}, self.asked.facts.named(constraint.reason)
        return self._needs_of_rows(constraint, number, event.place, wanted, gone)

    def _needs_of_rows(
        self, constraint: Rows, number: int, at: Place, wanted: Ways, gone: dict[Place, list[tuple[int, Ways]]]
    ) -> tuple[dict[Place, Ways], tuple[Reason, ...]]:
        """Blame for each row that would leave a way one place, the earliest where there are several, or a fact."""
        slot, blocking = constraint.places.index(at), self._blocking(constraint)
        needs: dict[Place, Ways] = {}
        known = self.asked.facts.reasons
        reasons: dict[Reason, None] = {known[constraint.reason]: None}
        for row, blocked in zip(constraint.table.rows, constraint.table.blocked, strict=True):
            if not wanted >> row[slot] & 1:
                continue
            killers = [
                (before, place, 1 << way)
                for place, way in zip(constraint.places, row, strict=True)
                for before, lost in gone.get(place, ())
                if place != at and before < number and lost >> way & 1
            ]
            if killers:
                _, place, way_bit = min(killers, key=lambda killer: killer[0])
                needs[place] = needs.get(place, 0) | way_bit
            else:
                reasons[known[constraint.forbidding[min(blocked & blocking)]]] = None
        return needs, tuple(reasons)
