"""The constraints of a problem over the layouts of its places, each with its reason: what is propagated."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, product
from math import prod

from ops.bind import BoundRule
from ops.placement import Parts, Placement, Replicate
from solver.choice import table
from solver.constraints.layouts import Layouts, Place, clash_reason
from solver.constraints.model import may_be_stored, spoken_of, storage_reason
from solver.constraints.op_rules import OpRules, Picked
from solver.constraints.pins import pin_reason
from solver.constraints.reason import Reason
from solver.constraints.repeats import repeat_reason, repeated_places
from solver.constraints.reshard import (
    communication_reason,
    confined,
    delivery_reason,
    local_reach,
    source_of,
    targets_of,
)
from solver.constraints.ties import tie_reason
from solver.constraints.variables import Clauses
from solver.explain.universe import Relation, Universe, Ways, equal, leading
from solver.problem import Pin, Problem

MOST_ROWS = 5000
"""Rows of one op, over all mesh axes together, that are still looked at one by one."""


class TooLargeError(RuntimeError):
    """There are more rows, or layouts, than can be looked at one by one."""


@dataclass(frozen=True, eq=False, slots=True)
class Only:
    """A place may lie in some ways only; `reason` is the number of the fact that says so."""

    reason: int
    place: Place
    allowed: Ways

    @property
    def places(self) -> tuple[Place, ...]:
        """What it speaks of."""
        return (self.place,)


@dataclass(frozen=True, eq=False, slots=True)
class Leads:
    """One place lies in what another one leads to.

    Parameters
    ----------
    reason : int
        The number of the fact.
    source, target : tuple
    relation : Relation
    loose : Relation
        The same where the parts of a dim count as one.
    """

    reason: int
    source: Place
    target: Place
    relation: Relation
    loose: Relation

    @property
    def idle(self) -> bool:
        """Whether nothing follows from it where both places may lie in any way."""
        return self.relation.total and self.loose.total

    @property
    def places(self) -> tuple[Place, ...]:
        """What it speaks of."""
        return (self.source, self.target)


@dataclass(frozen=True, eq=False, slots=True)
class OpTable:
    """What the rows of equal ops say, over all mesh axes together.

    Parameters
    ----------
    rows : tuple
        Per row the way in which each slot lies.
    blocked : tuple
        Per row the numbers of the facts that keep it from being taken.
    """

    rows: tuple[tuple[int, ...], ...]
    blocked: tuple[frozenset[int], ...]


@dataclass(frozen=True, eq=False, slots=True)
class Rows:
    """An op takes one of its rows.

    Parameters
    ----------
    reason : int
        The number of the fact.
    node : str
    places : tuple
        Its uses and results.
    table : OpTable
    forbidding : tuple of int
        The numbers of the facts that `OpTable.blocked` counts.
    """

    reason: int
    node: str
    places: tuple[Place, ...]
    table: OpTable
    forbidding: tuple[int, ...]


Constraint = Only | Leads | Rows


class Facts:
    """All constraints of a problem: what the graph demands in program order, then what a person chose.

    Parameters
    ----------
    problem : Problem

    Attributes
    ----------
    tensor : dict
        Place -> the tensor that lies there; all places that something is demanded of.
    constraints : list
    reasons : list of Reason
        The facts, each once; a constraint names its fact by the number here.
    number : dict
        Reason -> its number.

    Raises
    ------
    TooLargeError
        Where an op has too many rows.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.tensor: dict[Place, str] = {}
        self.constraints: list[Constraint] = []
        self.reasons: list[Reason] = []
        self.number: dict[Reason, int] = {}
        self._layouts = Layouts(Clauses(), problem, explaining=True)
        self._rules = OpRules(Clauses(), problem, explaining=True)
        self._universes: dict[Parts, Universe] = {}
        self._relations: dict[object, tuple[Relation, Relation]] = {}
        self._tables: dict[object, OpTable] = {}
        self._near = confined(problem)
        self._add_storage()
        for node in problem.graph.nodes:
            self._add_rows(node)
        for node, of in problem.graph.repeats.items():
            for (first, _), (other, tensor) in zip(
                repeated_places(problem, of), repeated_places(problem, node), strict=True
            ):
                self._same(repeat_reason(node, of), tensor, first, other)
        if problem.communication != "any":
            self._add_reshards()
        self._add_ties()
        for subject, pins in problem.pins_on.items():
            self._add_pins(subject, [pin for pin in pins if problem.mesh.sizes[pin.axis] > 1])

    def _number(self, reason: Reason) -> int:
        if reason not in self.number:
            self.number[reason] = len(self.reasons)
            self.reasons.append(reason)
        return self.number[reason]

    def holding(self, active: Collection[Reason] | None) -> bytearray:
        """Return 1 at the number of each fact that is among some, or of every fact."""
        if active is None:
            return bytearray(b"\1") * len(self.reasons)
        found = bytearray(len(self.reasons))
        for reason in (*active, WRITTEN):
            if (number := self.number.get(reason)) is not None:
                found[number] = 1
        return found

    def universe(self, place: Place) -> Universe:
        """Return the ways in which a place may lie."""
        return self._ways_of(self.tensor[place])

    def _ways_of(self, tensor: str) -> Universe:
        parts = self.problem.parts(tensor)
        if parts not in self._universes:
            self._universes[parts] = Universe(self.problem, tensor)
        return self._universes[parts]

    def _place(self, place: Place, tensor: str) -> Place:
        self.tensor.setdefault(place, tensor)
        return place

    def _add_storage(self) -> None:
        """Add where sources and pinned results are kept, those that something is demanded of."""
        problem = self.problem
        asked = {*problem.pins_on, *problem.ties, *problem.ties.values()}
        for tensor, fact in problem.graph.tensors.items():
            if fact.producer is None and (problem.communication != "any" or tensor in asked):
                place = self._place(("held", tensor), tensor)
                allowed = self._ways_of(tensor).within(_storable(problem, tensor))
                self.constraints.append(Only(self._number(storage_reason(problem, tensor)), place, allowed))
                self._legal(place)
            elif fact.producer is not None and tensor in problem.pins_on:
                self._legal(self._place(("held", tensor), tensor))

    def _legal(self, place: Place) -> None:
        universe, tensor = self.universe(place), self.tensor[place]
        for clash, why in self._layouts.clashes(tensor):
            wrong = universe.all
            for axis, label in clash:
                wrong &= universe.having(axis, label)
            number = self._number(clash_reason(tensor, clash, why))
            self.constraints.append(Only(number, place, universe.all & ~wrong))

    def _add_rows(self, node: str) -> None:
        problem = self.problem
        places = spoken_of(problem, node, self._near)
        if not places:
            return
        bound = problem.bound[node]
        facts = self._rules.facts(bound)
        key = id(bound), tuple((place[0], place[2] if place[0] == "needed" else problem.graph.tensors[tensor].slot,
                                id(self._ways_of(tensor))) for place, tensor in places)  # fmt: skip
        reasons, clashes = [], []
        for reason, picked in facts.forbidden(problem, node):
            reasons.append(self._number(reason))
            clashes.append(picked)
        if key not in self._tables:
            self._tables[key] = self._table(bound, facts.offered, places, clashes)
        number = self._number(facts.reason(problem.graph.nodes[node].op, node))
        where = tuple(self._place(place, tensor) for place, tensor in places)
        self.constraints.append(Rows(number, node, where, self._tables[key], tuple(reasons)))

    def _table(
        self,
        bound: BoundRule,
        offered: Sequence[tuple[int, ...]],
        places: Sequence[tuple[Place, str]],
        clashes: Sequence[tuple[Picked, ...]],
    ) -> OpTable:
        if prod(map(len, offered)) > MOST_ROWS:
            raise TooLargeError(f"{bound.rule.text} has more than {MOST_ROWS} rows on this mesh")
        columns = []
        for place, tensor in places:
            index = self._ways_of(tensor).index
            if place[0] == "made":
                slot = self.problem.graph.tensors[tensor].slot
                columns.append((index, [row.results[slot] for row in bound.rows]))
            else:
                columns.append((index, [row.operands[int(str(place[2]))] or Replicate() for row in bound.rows]))
        rows = list(product(*offered))
        ways = tuple(tuple(index[tuple(column[k] for k in row)] for index, column in columns) for row in rows)
        sets = [frozenset(picked) for picked in clashes]
        counts = [sorted({len(one) for one in picked}) for picked in clashes]
        blocked = tuple(
            frozenset(
                number
                for number, wrong in enumerate(sets)
                if any(some in wrong for count in counts[number] for some in combinations(tuple(enumerate(row)), count))
            )
            for row in rows
        )
        return OpTable(ways, blocked)

    def _same(self, reason: Reason, tensor: str, source: Place, target: Place) -> None:
        universe = self._ways_of(tensor)
        if (key := id(universe)) not in self._relations:
            self._relations[key] = _both(universe.one_way, partial(equal, universe))
        for place in (source, target):
            self._place(place, tensor)
        self.constraints.append(Leads(self._number(reason), source, target, *self._relations[key]))

    def _add_reshards(self) -> None:
        """Add what a restricted communication leaves of the ways from where a tensor is made to where it is needed."""
        problem = self.problem
        reason = communication_reason(problem)
        number = self._number(reason)
        for tensor in problem.graph.tensors:
            source = source_of(problem, tensor)
            for target in targets_of(problem, tensor):
                if problem.communication == "frozen":
                    self._same(reason, tensor, source, target)
                else:
                    for place in (source, target):
                        self._place(place, tensor)
                    self.constraints.append(Leads(number, source, target, *self._reach(tensor)))
        for tensor in problem.graph.outputs:
            if problem.delivered_as(tensor) is None:
                allowed = self._ways_of(tensor).within(partial(problem.may_deliver, tensor))
                fact = self._number(delivery_reason(problem, tensor))
                self.constraints.append(Only(fact, ("delivered", tensor), allowed))

    def _reach(self, tensor: str) -> tuple[Relation, Relation]:
        """Return what moves that send nothing lead to: of tensors with equal parts it is the same."""
        universe = self._ways_of(tensor)
        if (key := (id(universe), "reach")) not in self._relations:
            reach = local_reach(table(self.problem, tensor))
            self._relations[key] = _both(universe.one_way, partial(leading, universe, reach))
        return self._relations[key]

    def _add_ties(self) -> None:
        problem = self.problem
        for follower, leader in problem.ties.items():
            source = problem.graph.tensors[follower].producer is None
            if source or problem.communication != "any":
                place = self._place(("held" if source else "delivered", follower), follower)
                self._same(tie_reason(problem, follower), leader, ("held", leader), place)

    def _add_pins(self, subject: str, pins: Sequence[Pin]) -> None:
        """Add pins; a use on parts may be written in any legal way."""
        if not pins:
            return
        problem = self.problem
        place: Place = ("held", subject)
        if subject not in problem.graph.tensors:
            use = problem.use_named[subject]
            place = ("needed", use.op, use.slot)
            if not problem.one_way(use.tensor):
                asked = self._place(("asked", use.op, use.slot), use.tensor)
                self._legal(asked)
                self._same(WRITTEN, use.tensor, asked, place)
                place = asked
        for pin in pins:
            allowed = self.universe(place).having(pin.axis, pin.placement)
            self.constraints.append(Only(self._number(pin_reason(problem, pin)), place, allowed))


WRITTEN = Reason("notation", "", "a layout may be written in several ways")
"""What is so by definition: it is never left out, and never told."""


def _both(one_way: bool, make: Callable[[bool], Relation]) -> tuple[Relation, Relation]:
    """Return a relation, and the loose one, given how to make each."""
    exact = make(False)
    return exact, exact if one_way else make(True)


def _storable(problem: Problem, tensor: str) -> Callable[[int, Placement], bool]:
    return lambda axis, label: may_be_stored(problem, tensor, label)
