"""What a plan may choose, enumerated by the checker itself (docs/certificate.md): variables, edges, consistency.

Equal ops share their joint rows, equal tensors their pairs; nothing of the search is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ops.placement import Layout
from solver.certificate_rows import Joint, joint
from solver.choice import table
from solver.cost.compute import compute_times
from solver.cost.kernel_steps import kernel_times
from solver.cost.moves import Geometry, geometry
from solver.cost.reshard import INF
from solver.graph import Use
from solver.problem import Problem

Ints: TypeAlias = NDArray[Any]
Bools: TypeAlias = NDArray[np.bool_]
Name: TypeAlias = tuple[str, str]
"""``("op", name)`` or ``("tensor", name)``."""
Alive: TypeAlias = dict[Name, Bools]


@dataclass(frozen=True, eq=False)
class Choices:
    """The values of one variable.

    Parameters
    ----------
    price : int array
        Of each value, in picoseconds; INF where it is forbidden.
    keys : int array, shape (values, ...)
        Each value as a certificate names it: rows per mesh axis, or (made, held), of a tied output also which of
        the two it is delivered from. Of a relayed tensor what is held stands in all places.
    stored : int array, shape (moments, values), or None
        The bytes that each value stores at the moments of a certificate with a memory budget; None where it is none.
    """

    price: Ints
    keys: Ints
    stored: Ints | None = None

    @cached_property
    def most(self) -> int:
        """The largest price that is not forbidden."""
        return int(self.price.max(where=self.price < INF, initial=0))


@dataclass(frozen=True, eq=False)
class Link:
    """One edge: what the tail offers and the head asks for, as numbers of layouts.

    Parameters
    ----------
    name : str
    tail, head : Name
    price : int array
        Between the layouts of the tensor; INF where forbidden.
    allowed : bool array or None
        Where the price is not forbidden; None where that is everywhere.
    offers : int array, shape (values of the tail, 2)
    asks : int array, shape (values of the head,)
    stored : int array, shape (moments, *price), or None
        The bytes that are stored along the edge at the moments of a certificate with a memory budget.
    """

    name: str
    tail: Name
    head: Name
    price: Ints
    allowed: Bools | None
    offers: Ints
    asks: Ints
    stored: Ints | None = None

    def sides(self, alive: Alive) -> tuple[Bools, Bools]:
        """Return which layouts the values that are left offer and ask for."""
        offered, asked = np.zeros(self.price.shape[0], np.bool_), np.zeros(self.price.shape[1], np.bool_)
        offered[self.offers[alive[self.tail]]] = True
        asked[self.asks[alive[self.head]]] = True
        return offered, asked


class Model:
    """The variables and edges of a problem."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.graph = problem.graph
        self._shared: dict[Any, Any] = {}

    # ------------------------------------------------------------------------------------------- layouts and prices

    def _space(self, tensor: str) -> Geometry:
        return geometry(self.problem.parts(tensor), self.problem.mesh.sizes, self.problem.kinds)

    def _index(self, tensor: str) -> dict[Layout, int]:
        """Return the number of each layout of a tensor."""
        key = "index", self.problem.parts(tensor)
        if key not in self._shared:
            self._shared[key] = {layout: i for i, layout in enumerate(self.problem.layouts(tensor))}
        found: dict[Layout, int] = self._shared[key]
        return found

    def _numbers(self, tensor: str, layouts: Any) -> Ints:
        index = self._index(tensor)
        return np.array(sorted(index[layout] for layout in layouts), np.int64)

    def _price(self, tensor: str) -> tuple[Ints, Bools | None]:
        """Return the prices between the layouts of a tensor, and where they are allowed."""
        if self.problem.communication == "frozen":
            return self._equal_only(len(self._index(tensor)))
        fact, tariff = self.graph.tensors[tensor], self.problem.tariff(tensor)
        key = "price", self.problem.parts(tensor), fact.itemsize, tensor in self.problem.bucketed, tariff
        if key not in self._shared:
            self._shared[key] = _with_mask(table(self.problem, tensor).time)
        found: tuple[Ints, Bools | None] = self._shared[key]
        return found

    def _equal_only(self, count: int) -> tuple[Ints, Bools | None]:
        key = "equal", count
        if key not in self._shared:
            self._shared[key] = _with_mask(np.where(np.eye(count, dtype=np.bool_), 0, INF))
        found: tuple[Ints, Bools | None] = self._shared[key]
        return found

    def _delivery(self, tensor: str) -> Ints | None:
        """Return per layout the price of delivering a graph output; None for a tensor that is none, or tied."""
        if tensor not in self.graph.outputs or self._tied_output(tensor):
            return None
        found: Ints = self._price(tensor)[0][:, self._numbers(tensor, self.problem.delivered(tensor))].min(axis=1)
        return found

    def _tied_output(self, tensor: str) -> bool:
        return tensor in self.problem.ties and self.graph.tensors[tensor].producer is not None

    # ---------------------------------------------------------------------------------------------------- variables

    @cached_property
    def choices(self) -> dict[Name, Choices]:
        """The values of every variable."""
        found: dict[Name, Choices] = {("op", node): self._op(node) for node in self.graph.nodes}
        for tensor in self.graph.tensors:
            if self._has_variable(tensor):
                found["tensor", tensor] = self._tensor(tensor)
        return found

    def _has_variable(self, tensor: str) -> bool:
        free = self.graph.tensors[tensor].producer is not None and tensor not in self.problem.spoken_of
        return not free or self._readers(tensor) > 1

    def _relayed(self, tensor: str) -> bool:
        """Tell whether a tensor is read twice, so that a copy is read by both: its value is what is held."""
        free = self.graph.tensors[tensor].producer is not None and tensor not in self.problem.spoken_of
        return free and self._readers(tensor) == 2

    def _readers(self, tensor: str) -> int:
        return len(self.problem.uses[tensor]) + (tensor in self.graph.outputs)

    def _joint(self, node: str) -> Joint:
        """Return the joint rows of an op, pins aside; equal ops share them."""
        problem, bound, results = self.problem, self.problem.bound[node], self.graph.nodes[node].results
        operands = {use.slot: use.tensor for use in self.graph.operand_uses(node)}
        key = "joint", id(bound), tuple(problem.parts(tensor) for tensor in (*operands.values(), *results))
        if key not in self._shared:
            spaces = {slot: self._space(tensor) for slot, tensor in operands.items()}
            self._shared[key] = joint(bound, problem, spaces, [self._space(tensor) for tensor in results])
        found: Joint = self._shared[key]
        return found

    def _op(self, node: str) -> Choices:
        rows, price = self._joint(node), self._compute(node)
        for tensor, made in zip(self.graph.nodes[node].results, rows.results, strict=True):
            delivery = self._delivery(tensor)
            if delivery is not None and not self._has_variable(tensor):
                price = _add(price, delivery[made])
        for use in self.graph.operand_uses(node):
            allowed = self.problem.pinned(use.name, use.tensor)
            if allowed is not None:
                meets = np.isin(rows.operands[use.slot], self._numbers(use.tensor, allowed))
                price = np.where(meets, price, INF)
        return Choices(price, rows.rows)

    def _compute(self, node: str) -> Ints:
        bound, fact = self.problem.bound[node], self.graph.nodes[node]
        dtypes = {use.operand: self.graph.tensors[use.tensor].dtype for use in self.graph.operand_uses(node)}
        rows = self._joint(node).rows
        key = "compute", id(bound), id(rows), fact.op, *sorted(dtypes.items())
        if key not in self._shared:
            asked = fact, bound, rows, dtypes, self.problem.mesh
            counted = self.problem.counted[1]
            self._shared[key] = compute_times(*asked) * counted + kernel_times(*asked, self.problem.tariff())
        found: Ints = self._shared[key]
        return found

    def _tensor(self, tensor: str) -> Choices:
        return self._held_alone(tensor) if self._relayed(tensor) else self._made_and_held(tensor)

    def _held_alone(self, tensor: str) -> Choices:
        count, delivery = len(self._index(tensor)), self._delivery(tensor)
        price = np.zeros(count, np.int64) if delivery is None else np.minimum(delivery, INF)
        held = np.arange(count)
        return Choices(price, np.stack([held] * (3 if self._tied_output(tensor) else 2), axis=1))

    def _made_and_held(self, tensor: str) -> Choices:
        problem, fact, price = self.problem, self.graph.tensors[tensor], self._price(tensor)[0]
        allowed: Ints | None = None
        if fact.producer is None:
            made = self._numbers(tensor, problem.stored(tensor))
        else:
            made = np.unique(self._joint(fact.producer).results[fact.slot])
            pinned = problem.pinned(tensor, tensor)
            allowed = None if pinned is None else self._numbers(tensor, pinned)
        asked = [np.unique(self._joint(use.op).operands[use.slot]) for use in problem.uses[tensor]]
        delivery, tied = self._delivery(tensor), self._tied_output(tensor)
        if tied:
            asked.append(self._numbers(tensor, problem.stored(problem.ties[tensor])))
        written = [array if array is None else array.tobytes() for array in (made, allowed, delivery)]
        key = "pairs", id(price), tied, *written, *sorted(array.tobytes() for array in asked)
        if key not in self._shared:
            pairs = self._pairs(price, made, allowed, asked, delivery)
            if tied:
                pairs = np.unique(np.concatenate([pairs[:, [0, 1, 0]], pairs[:, [0, 1, 1]]]), axis=0)
            own = price[pairs[:, 0], pairs[:, 1]]
            if delivery is not None:
                own = _add(own, np.minimum(delivery[pairs[:, 0]], delivery[pairs[:, 1]]))
            self._shared[key] = Choices(own, pairs)
        found: Choices = self._shared[key]
        return found

    def _pairs(
        self, price: Ints, made: Ints, allowed: Ints | None, asked: Sequence[Ints], delivery: Ints | None
    ) -> Ints:
        """Return (made, held): no copy, one that can save more than it costs, or what a pin asks for."""
        alone = made if allowed is None else made[np.isin(made, allowed)]
        found = [np.stack([alone, alone], axis=1)]
        if self.problem.communication != "frozen":
            worth = None if allowed is not None else _Worth(price, asked, delivery)
            for m in made:
                held = allowed if worth is None else worth.copies(m)
                assert held is not None
                held = held[(held != m) & (price[m, held] < INF)]
                found.append(np.stack([np.full_like(held, m), held], axis=1))
        return np.concatenate(found)

    # -------------------------------------------------------------------------------------------------------- edges

    @cached_property
    def links(self) -> list[Link]:
        """Every edge."""
        found = []
        for node in self.graph.nodes:
            found += [self._use(use) for use in self.graph.operand_uses(node)]
            for slot, tensor in enumerate(self.graph.nodes[node].results):
                if self._has_variable(tensor):
                    head: Name = ("tensor", tensor)
                    same = self._equal_only(len(self._index(tensor)))
                    price = self._price(tensor) if self._relayed(tensor) else same
                    asks = self.choices[head].keys[:, 0]
                    found.append(Link(f"made:{tensor}", ("op", node), head, *price, self._made(node, slot), asks))
        found += [self._tie(follower, leader) for follower, leader in self.problem.ties.items()]
        return found + [link for node, of in self.problem.repeats.items() for link in self._repeat(node, of)]

    def _repeat(self, node: str, of: str) -> list[Link]:
        """Return the edges that give an op the layouts of the op that it repeats."""
        first, second = self._joint(of), self._joint(node)
        sides = [
            (f"repeat:{use.name}", use.tensor, first.operands[use.slot], second.operands[use.slot])
            for use in self.graph.operand_uses(node)
        ]
        for slot, tensor in enumerate(self.graph.nodes[node].results):
            sides.append((f"repeat:{node}>{tensor}", tensor, first.results[slot], second.results[slot]))
        return [
            Link(
                name, ("op", of), ("op", node), *self._equal_only(len(self._index(tensor))), np.stack([one] * 2, 1), two
            )
            for name, tensor, one, two in sides
        ]

    def _tie(self, follower: str, leader: str) -> Link:
        """Return the edge from the storage of a leader to that of a follower, or to what it is delivered from."""
        tail: Name = ("tensor", leader)
        offers = self.choices[tail].keys[:, [0, 0]]
        fact, head = self.graph.tensors[follower], ("tensor", follower)
        if fact.producer is None:
            same = self._equal_only(len(self._index(leader)))
            return Link(f"tie:{follower}", tail, head, *same, offers, self.choices[head].keys[:, 0])
        price, allowed = self._price(follower)
        back = price.T, None if allowed is None else allowed.T
        if head in self.choices:
            return Link(f"tie:{follower}", tail, head, *back, offers, self.choices[head].keys[:, 2])
        made = self._joint(fact.producer).results[fact.slot]
        return Link(f"tie:{follower}", tail, ("op", fact.producer), *back, offers, made)

    def _use(self, use: Use) -> Link:
        fact = self.graph.tensors[use.tensor]
        tail: Name = ("tensor", use.tensor)
        if self._has_variable(use.tensor):
            offers = self.choices[tail].keys[:, :2]
        else:
            tail = ("op", str(fact.producer))
            offers = self._made(tail[1], fact.slot)
        asks = self._joint(use.op).operands[use.slot]
        return Link(use.name, tail, ("op", use.op), *self._price(use.tensor), offers, asks)

    def _made(self, node: str, slot: int) -> Ints:
        """Return the layouts that an op offers: what it makes, twice, since there is no copy."""
        made = self._joint(node).results[slot]
        return np.stack([made, made], axis=1)

    # -------------------------------------------------------------------------------------------------- consistency

    def everything(self) -> Alive:
        """Return all values that are not forbidden by themselves."""
        return {name: choices.price < INF for name, choices in self.choices.items()}

    @cached_property
    def _at(self) -> dict[Name, list[int]]:
        found: dict[Name, list[int]] = {name: [] for name in self.choices}
        for number, link in enumerate(self.links):
            found[link.tail].append(number)
            found[link.head].append(number)
        return found

    @cached_property
    def consistent_values(self) -> Alive | None:
        """What consistency leaves of everything."""
        return self.consistent(self.everything())

    def consistent(self, alive: Alive, changed: Name | None = None) -> Alive | None:
        """Take out values that have no partner on one of their edges, until none is left.

        Parameters
        ----------
        alive : dict
        changed : Name, optional
            The only variable that has lost values since all was consistent.

        Returns
        -------
        dict or None
            What is left; None where a variable has no value left.
        """
        alive = dict(alive)
        if not all(mask.any() for mask in alive.values()):
            return None
        waiting = dict.fromkeys(range(len(self.links)) if changed is None else self._at[changed])
        while waiting:
            link = self.links[next(iter(waiting))]
            del waiting[next(iter(waiting))]
            for name, supported in _supported(link, alive):
                left = alive[name] & supported
                if not left.any():
                    return None
                if left.sum() < alive[name].sum():
                    alive[name] = left
                    waiting |= dict.fromkeys(self._at[name])
        return alive


def _supported(link: Link, alive: Alive) -> list[tuple[Name, Bools]]:
    """Return for both ends which values have a partner; nothing where every value has one."""
    if link.allowed is None:
        return []
    offered, asked = link.sides(alive)
    reaches: Bools = np.logical_or.reduce(link.allowed[:, asked], axis=1)
    reached: Bools = np.logical_or.reduce(link.allowed[offered], axis=0)
    return [(link.tail, reaches[link.offers[:, 0]] | reaches[link.offers[:, 1]]), (link.head, reached[link.asks])]


class _Worth:
    """Which shared copies can save more than they cost, given what the uses may ask for."""

    def __init__(self, price: Ints, asked: Sequence[Ints], delivery: Ints | None) -> None:
        self._price = price
        counted: dict[bytes, tuple[Ints, int]] = {}
        for array in asked:
            counted[array.tobytes()] = array, counted.get(array.tobytes(), (array, 0))[1] + 1
        self._asked = [(np.ascontiguousarray(price[:, array].T), times) for array, times in counted.values()]
        self._delivery = None if delivery is None else np.minimum(delivery, INF)

    def copies(self, m: int) -> Ints:
        """Return the layouts h where what the uses can save by reading h instead of m exceeds the price of the copy."""
        saved = np.zeros(len(self._price), np.int64)
        for columns, times in self._asked:
            most = np.maximum(0, (columns[:, m : m + 1] - columns).max(axis=0, initial=0))
            for _ in range(times):
                saved = _add(saved, most)
        if self._delivery is not None:
            saved = _add(saved, np.maximum(0, self._delivery[m] - self._delivery))
        found: Ints = np.flatnonzero(saved > self._price[m])
        return found


def _with_mask(price: Ints) -> tuple[Ints, Bools | None]:
    allowed = price < INF
    return price, None if allowed.all() else allowed


def _add(price: Ints, more: Ints) -> Ints:
    found: Ints = np.minimum(INF, price + more)
    return found
