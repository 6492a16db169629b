"""What a plan may choose, enumerated by the checker itself (docs/certificate.md): variables and edges.

Equal ops share their joint rows and prices, equal tensors their pairs; nothing of the search is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ops.placement import Layout
from solver.certificate_choices import Alive, Choices, Ints, Link, Name, Prices, added, with_mask
from solver.certificate_consistency import consistent
from solver.certificate_copies import paying_pairs, wanted_pairs
from solver.certificate_rows import Joint, joint
from solver.choice_tables import table
from solver.cost.compute import compute_times
from solver.cost.kernel_steps import kernel_times
from solver.cost.moves import Geometry, geometry
from solver.cost.reshard import INF
from solver.graph import Use
from solver.problem import Problem


class Model:
    """The variables and edges of a problem."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.graph = problem.graph
        self._shared: dict[Any, Any] = {}
        self._joints: dict[str, Joint] = {}
        self._prices: dict[str, Prices] = {}

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

    def _numbers(self, tensor: str, layouts: Iterable[Layout]) -> Ints:
        index = self._index(tensor)
        return np.array(sorted(index[layout] for layout in layouts), np.int64)

    def _stored(self, tensor: str) -> Ints:
        """Return the numbers of the layouts in which a source may be stored; equal sources share them."""
        wished = tensor if tensor in self.problem.spoken_of else None
        key = "stored", self.problem.parts(tensor), self.graph.tensors[tensor].role, wished
        if key not in self._shared:
            self._shared[key] = self._once(self._numbers(tensor, self.problem.stored(tensor)))
        found: Ints = self._shared[key]
        return found

    def _distinct(self, column: Ints) -> Ints:
        """Return the layouts in a column of joint rows, each once; equal ones are one array."""
        key = "distinct", id(column)  # of an array that lives as long as this model does
        if key not in self._shared:
            self._shared[key] = self._once(np.unique(column).astype(np.int64))
        found: Ints = self._shared[key]
        return found

    def _once(self, layouts: Ints) -> Ints:
        """Return the array of these numbers of layouts that is there already."""
        found: Ints = self._shared.setdefault(("layouts", layouts.tobytes()), layouts)
        return found

    def _price(self, tensor: str) -> Prices:
        """Return the prices between the layouts of a tensor, and where they are allowed."""
        if tensor not in self._prices:
            self._prices[tensor] = self._priced(tensor)
        return self._prices[tensor]

    def _priced(self, tensor: str) -> Prices:
        if self.problem.communication == "frozen":
            return self._equal_only(len(self._index(tensor)))
        fact, tariff = self.graph.tensors[tensor], self.problem.tariff(tensor)
        key = "price", self.problem.parts(tensor), fact.itemsize, tensor in self.problem.bucketed, tariff
        if key not in self._shared:
            self._shared[key] = with_mask(table(self.problem, tensor).time)
        found: Prices = self._shared[key]
        return found

    def _price_back(self, tensor: str) -> Prices:
        """Return the same from the second layout to the first."""
        price, allowed = self._price(tensor)
        key = "back", id(price)
        if key not in self._shared:
            self._shared[key] = price.T, None if allowed is None else allowed.T
        found: Prices = self._shared[key]
        return found

    def _equal_only(self, count: int) -> Prices:
        key = "equal", count
        if key not in self._shared:
            self._shared[key] = with_mask(np.where(np.eye(count, dtype=np.bool_), 0, INF))
        found: Prices = self._shared[key]
        return found

    def _delivery(self, tensor: str) -> Ints | None:
        """Return per layout the price of delivering a graph output; None for a tensor that is none, or tied."""
        if not self.graph.is_output(tensor) or self._tied_output(tensor):
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
        return not self._unspoken(tensor) or self._readers(tensor) > 1

    def _relayed(self, tensor: str) -> bool:
        """Tell whether a tensor is read twice, so that a copy is read by both: its value is what is held."""
        return self._unspoken(tensor) and self._readers(tensor) == 2

    def _unspoken(self, tensor: str) -> bool:
        """Tell whether a tensor is a result of which no wish speaks."""
        return self.graph.tensors[tensor].producer is not None and tensor not in self.problem.spoken_of

    def _readers(self, tensor: str) -> int:
        return len(self.problem.uses[tensor]) + self.graph.is_output(tensor)

    def _joint(self, node: str) -> Joint:
        """Return the joint rows of an op, pins aside; equal ops share them."""
        if node not in self._joints:
            problem, bound, results = self.problem, self.problem.bound[node], self.graph.nodes[node].results
            operands = {use.slot: use.tensor for use in self.graph.operand_uses(node)}
            key = "joint", id(bound), tuple(problem.parts(tensor) for tensor in (*operands.values(), *results))
            if key not in self._shared:
                spaces = {slot: self._space(tensor) for slot, tensor in operands.items()}
                self._shared[key] = joint(bound, problem, spaces, [self._space(tensor) for tensor in results])
            self._joints[node] = self._shared[key]
        return self._joints[node]

    def _op(self, node: str) -> Choices:
        rows, alone = self._joint(node), self._computing(node)
        price = alone.price
        for tensor, made in zip(self.graph.nodes[node].results, rows.results, strict=True):
            delivery = self._delivery(tensor)
            if delivery is not None and not self._has_variable(tensor):
                price = added(price, delivery[made])
        for use in self.graph.operand_uses(node):
            allowed = self.problem.pinned(use.name, use.tensor)
            if allowed is not None:
                meets = np.isin(rows.operands[use.slot], self._numbers(use.tensor, allowed))
                price = np.where(meets, price, INF)
        return alone if price is alone.price else Choices(price, rows.rows)

    def _computing(self, node: str) -> Choices:
        """Return the joint rows of an op with what computing takes, and no price beside it; equal ops share them."""
        bound, rows = self.problem.bound[node], self._joint(node).rows
        key = "compute", id(bound), id(rows)
        if key not in self._shared:
            fact = self.graph.nodes[node]
            dtypes = {use.operand: self.graph.tensors[use.tensor].dtype for use in self.graph.operand_uses(node)}
            asked = fact, bound, rows, dtypes, self.problem.mesh
            counted = self.problem.counted[1]
            price = compute_times(*asked) * counted + kernel_times(*asked, self.problem.tariff())
            self._shared[key] = Choices(price, rows)
        found: Choices = self._shared[key]
        return found

    def _tensor(self, tensor: str) -> Choices:
        return self._held_alone(tensor) if self._relayed(tensor) else self._made_and_held(tensor)

    def _held_alone(self, tensor: str) -> Choices:
        count, delivery, tied = len(self._index(tensor)), self._delivery(tensor), self._tied_output(tensor)
        key = "held", count, tied, None if delivery is None else delivery.tobytes()
        if key not in self._shared:
            price = np.zeros(count, np.int64) if delivery is None else np.minimum(delivery, INF)
            self._shared[key] = Choices(price, np.stack([np.arange(count)] * (3 if tied else 2), axis=1))
        found: Choices = self._shared[key]
        return found

    def _made_and_held(self, tensor: str) -> Choices:
        problem, fact, price = self.problem, self.graph.tensors[tensor], self._price(tensor)[0]
        allowed: Ints | None = None
        if fact.producer is None:
            made = self._stored(tensor)
        else:
            made = self._distinct(self._joint(fact.producer).results[fact.slot])
            pinned = problem.pinned(tensor, tensor)
            allowed = None if pinned is None else self._numbers(tensor, pinned)
        asked = [self._distinct(self._joint(use.op).operands[use.slot]) for use in problem.uses[tensor]]
        delivery, tied = self._delivery(tensor), self._tied_output(tensor)
        if tied:
            asked.append(self._stored(problem.ties[tensor]))
        written = [array if array is None else array.tobytes() for array in (allowed, delivery)]
        key = "pairs", id(price), tied, *written, id(made), *sorted(map(id, asked))
        if key not in self._shared:
            pairs = self._pairs(price, made, allowed, asked, delivery)
            if tied:
                pairs = np.unique(np.concatenate([pairs[:, [0, 1, 0]], pairs[:, [0, 1, 1]]]), axis=0)
            own = price[pairs[:, 0], pairs[:, 1]]
            if delivery is not None:
                own = added(own, np.minimum(delivery[pairs[:, 0]], delivery[pairs[:, 1]]))
            self._shared[key] = Choices(own, pairs)
        found: Choices = self._shared[key]
        return found

    def _pairs(
        self, price: Ints, made: Ints, allowed: Ints | None, asked: Sequence[Ints], delivery: Ints | None
    ) -> Ints:
        """Return (made, held): no copy, one that can save more than it costs, or what a pin asks for."""
        alone = made if allowed is None else made[np.isin(made, allowed)]
        found = np.stack([alone, alone], axis=1)
        if self.problem.communication == "frozen":
            return found
        copies = paying_pairs(price, made, asked, delivery) if allowed is None else wanted_pairs(price, made, allowed)
        return np.concatenate([found, copies])

    # -------------------------------------------------------------------------------------------------------- edges

    @cached_property
    def links(self) -> list[Link]:
        """Every edge."""
        found = []
        for node in self.graph.nodes:
            found += [self._use(use) for use in self.graph.operand_uses(node)]
            for slot, tensor in enumerate(self.graph.nodes[node].results):
                head: Name = ("tensor", tensor)
                if head in self.choices:
                    same = self._equal_only(len(self._index(tensor)))
                    price = self._price(tensor) if self._relayed(tensor) else same
                    asks = self.choices[head].made
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
            Link(name, ("op", of), ("op", node), *self._equal_only(len(self._index(tensor))), self._twice(one), two)
            for name, tensor, one, two in sides
        ]

    def _tie(self, follower: str, leader: str) -> Link:
        """Return the edge from the storage of a leader to that of a follower, or to what it is delivered from."""
        tail: Name = ("tensor", leader)
        offers = self.choices[tail].stored_twice
        fact, head = self.graph.tensors[follower], ("tensor", follower)
        if fact.producer is None:
            same = self._equal_only(len(self._index(leader)))
            return Link(f"tie:{follower}", tail, head, *same, offers, self.choices[head].made)
        back = self._price_back(follower)
        if head in self.choices:
            return Link(f"tie:{follower}", tail, head, *back, offers, self.choices[head].left)
        made = self._joint(fact.producer).results[fact.slot]
        return Link(f"tie:{follower}", tail, ("op", fact.producer), *back, offers, made)

    def _use(self, use: Use) -> Link:
        fact = self.graph.tensors[use.tensor]
        tail: Name = ("tensor", use.tensor)
        if tail in self.choices:
            offers = self.choices[tail].both
        else:
            tail = ("op", str(fact.producer))
            offers = self._made(tail[1], fact.slot)
        asks = self._joint(use.op).operands[use.slot]
        return Link(use.name, tail, ("op", use.op), *self._price(use.tensor), offers, asks)

    def _made(self, node: str, slot: int) -> Ints:
        """Return the layouts that an op offers: what it makes."""
        return self._twice(self._joint(node).results[slot])

    def _twice(self, made: Ints) -> Ints:
        """Return what is offered where there is no copy, for an array that lives as long as this model does."""
        key = "twice", id(made)
        if key not in self._shared:
            self._shared[key] = np.stack([made, made], axis=1)
        found: Ints = self._shared[key]
        return found

    # -------------------------------------------------------------------------------------------------- consistency

    def everything(self) -> Alive:
        """Return all values that are not forbidden by themselves."""
        return {name: choices.allowed for name, choices in self.choices.items()}

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
        return consistent(self.links, self._at, alive, changed)
