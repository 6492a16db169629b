"""The constraints of a problem over the layouts of its places, each with its reason: what is propagated."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import combinations, product
from math import prod

from ops.bind import BoundRule
from ops.placement import Parts, Placement, Replicate
from solver.choice_tables import table, table_with
from solver.constraints.layouts import Layouts, Place, always, clash_reason
from solver.constraints.model import may_be_stored, spoken_of, storage_reason
from solver.constraints.op_rules import OpRules, Picked
from solver.constraints.pins import pin_reason
from solver.constraints.policy_kinds import Policy
from solver.constraints.reason import Reason, policy_reason
from solver.constraints.repeats import repeated_places, repeats_of
from solver.constraints.reshard import (
    communication_reason,
    confined,
    confining,
    delivery_reason,
    local_reach,
    source_of,
    staying,
    targets_of,
)
from solver.constraints.ties import tie_reason
from solver.constraints.variables import Clauses
from solver.cost.tariff import Tariff
from solver.deadline import keep_time
from solver.explain.universe import Relation, Universe, Ways, equal, leading
from solver.problem import Problem
from solver.problem_policy import forbidden

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
    several : dict
        Of a number that stands for several facts together theirs.

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
        self.several: dict[int, tuple[int, ...]] = {}
        self._layouts = Layouts(Clauses(), problem, explaining=True)
        self._rules = OpRules(Clauses(), problem, explaining=True)
        self._universes: dict[Parts, Universe] = {}
        self._relations: dict[object, tuple[Relation, Relation]] = {}
        self._tables: dict[object, OpTable] = {}
        self._near = confined(problem)
        self._add_storage()
        for node in problem.graph.nodes:
            keep_time()
            self._add_rows(node)
        for node, of, reason in repeats_of(problem):
            for (first, _), (other, tensor) in zip(
                repeated_places(problem, of), repeated_places(problem, node), strict=True
            ):
                self._same(reason, tensor, first, other)
        self._add_reshards()
        self._add_ties()
        for subject in dict.fromkeys((*problem.pins_on, *problem.demands_on)):
            self._add_wishes(subject)

    def _number(self, reason: Reason) -> int:
        if reason not in self.number:
            self.number[reason] = len(self.reasons)
            self.reasons.append(reason)
        return self.number[reason]

    def _together(self, reasons: Sequence[Reason]) -> int:
        """Return the number under which stands what follows from several facts together."""
        numbers = tuple(map(self._number, reasons))
        if len(numbers) == 1:
            return numbers[0]
        both = self._number(Reason("several", "", " and ".join(reason.text for reason in reasons)))
        self.several[both] = numbers
        return both

    def named(self, number: int) -> tuple[Reason, ...]:
        """Return the facts behind a number."""
        return tuple(self.reasons[one] for one in self.several.get(number, (number,)))

    def holding(self, active: Collection[Reason] | None) -> bytearray:
        """Return 1 at the number of each fact that is among some, or of every fact."""
        if active is None:
            return bytearray(b"\1") * len(self.reasons)
        found = bytearray(len(self.reasons))
        for reason in (*active, WRITTEN):
            if (number := self.number.get(reason)) is not None:
                found[number] = 1
        for both, numbers in self.several.items():
            found[both] = all(found[number] for number in numbers)
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
        asked = {*problem.spoken_of, *problem.ties, *problem.ties.values(), *self._near}
        for tensor, fact in problem.graph.tensors.items():
            if fact.producer is None and tensor in asked:
                place = self._place(("held", tensor), tensor)
                allowed = self._ways_of(tensor).within(_storable(problem, tensor))
                self.constraints.append(Only(self._number(storage_reason(problem, tensor)), place, allowed))
                self._legal(place)
            elif fact.producer is not None and tensor in problem.spoken_of:
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
        for place in (source, target):
            self._place(place, tensor)
        relations = self._equal(self._ways_of(tensor))
        self.constraints.append(Leads(self._number(reason), source, target, *relations))

    def _add_reshards(self) -> None:
        """Add what a restricted communication leaves of the ways from where a tensor is made to where it is needed."""
        problem = self.problem
        for tensor in problem.graph.tensors if self._near else ():
            keep_time()
            if tensor not in self._near:
                continue
            for number, relations in self._restrictions(tensor):
                source = source_of(problem, tensor)
                for target in targets_of(problem, tensor):
                    for place in (source, target):
                        self._place(place, tensor)
                    self.constraints.append(Leads(number, source, target, *relations))
        for tensor in problem.graph.outputs:
            if tensor in self._near and problem.delivered_as(tensor) is None:
                allowed = self._ways_of(tensor).within(partial(problem.may_deliver, tensor))
                fact = self._number(delivery_reason(problem, tensor))
                self.constraints.append(Only(fact, ("delivered", tensor), allowed))

    def _restrictions(self, tensor: str) -> Iterator[tuple[int, tuple[Relation, Relation]]]:
        """Yield what restricts the ways of a tensor, by its number, and where these lead then; loose, and not."""
        problem = self.problem
        if problem.communication == "frozen":
            yield self._wish, self._equal(self._ways_of(tensor))
        elif problem.communication == "none":
            yield self._wish, self._reach(tensor, None)
        else:
            for together in confining(problem, tensor, explaining=True):
                yield self._together(list(map(policy_reason, together))), self._reach(tensor, together)

    @cached_property
    def _wish(self) -> int:
        return self._number(communication_reason(self.problem))

    def _equal(self, universe: Universe) -> tuple[Relation, Relation]:
        if (key := id(universe)) not in self._relations:
            self._relations[key] = _both(universe.one_way, partial(equal, universe))
        return self._relations[key]

    def _reach(self, tensor: str, together: Sequence[Policy] | None) -> tuple[Relation, Relation]:
        """Return what moves that may run lead to: of tensors with equal parts it is the same."""
        problem, universe = self.problem, self._ways_of(tensor)
        tariff = None if together is None else Tariff(forbidden(problem.mesh, together, tensor))
        if (key := (id(universe), tariff and tariff.forbidden)) not in self._relations:
            prices = table(problem, tensor) if tariff is None else table_with(problem, tensor, tariff)
            stays = always if tariff is None else staying(tariff)
            make = partial(leading, universe, local_reach(prices), stays=stays)
            self._relations[key] = _both(universe.one_way, make)
        return self._relations[key]

    def _add_ties(self) -> None:
        problem = self.problem
        for follower, leader in problem.ties.items():
            source = problem.graph.tensors[follower].producer is None
            if source or follower in self._near:
                place = self._place(("held" if source else "delivered", follower), follower)
                self._same(tie_reason(problem, follower), leader, ("held", leader), place)

    def _add_wishes(self, subject: str) -> None:
        """Add pins, and what policies want of a layout; a use on parts may be written in any legal way."""
        problem = self.problem
        pins = [pin for pin in problem.pins_on.get(subject, ()) if problem.mesh.sizes[pin.axis] > 1]
        demanded = problem.demands_on.get(subject, ())
        if not pins and not demanded:
            return
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
        for demand in demanded:
            ways = 0
            for placement in demand.placements:
                ways |= self.universe(place).having(demand.axis, placement)
            self.constraints.append(Only(self._number(policy_reason(demand.policy)), place, ways))


WRITTEN = Reason("notation", "", "a layout may be written in several ways")
"""What is so by definition: it is never left out, and never told."""


def _both(one_way: bool, make: Callable[[bool], Relation]) -> tuple[Relation, Relation]:
    """Return a relation, and the loose one, given how to make each."""
    exact = make(False)
    return exact, exact if one_way else make(True)


def _storable(problem: Problem, tensor: str) -> Callable[[int, Placement], bool]:
    return lambda axis, label: may_be_stored(problem, tensor, label)
