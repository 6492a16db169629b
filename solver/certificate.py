"""The checker of bounds (docs/certificate.md): plain integer arithmetic, nothing of the search, no solver.

It enumerates what every op and tensor may choose by itself, takes out what cannot be part of a plan, and adds up what the messages of a certificate leave.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ops.bind import BoundRule, composes
from ops.placement import Layout, Partial
from solver.choice import table
from solver.cost.compute import compute_time
from solver.cost.reshard import INF
from solver.graph import Use
from solver.problem import Problem

Ints: TypeAlias = NDArray[Any]
Name: TypeAlias = tuple[str, str]
"""``("op", name)`` or ``("tensor", name)``."""
Alive: TypeAlias = dict[Name, NDArray[np.bool_]]
LARGEST = 2**58
"""Sums of a few numbers below this fit 64 bits; larger ones are added as Python integers."""


class CertificateError(ValueError):
    """A certificate that does not have the form of docs/certificate.md."""


@dataclass(frozen=True, eq=False)
class Choices:
    """The values of one variable.

    Parameters
    ----------
    price : int array
        Of each value, in picoseconds.
    keys : list of tuple
        Each value as a certificate names it: rows per mesh axis, or (made, held).
    """

    price: Ints
    keys: list[tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class Link:
    """One edge: what the tail offers and the head asks for, as numbers of layouts.

    Parameters
    ----------
    name : str
    tail, head : Name
    price : int array
        Between the layouts of the tensor; INF where forbidden.
    offers : int array, shape (values of the tail, 2)
    asks : int array, shape (values of the head,)
    """

    name: str
    tail: Name
    head: Name
    price: Ints
    offers: Ints
    asks: Ints


def certified_bound(problem: Problem, certificate: Any) -> int:
    """Compute the bound that a certificate proves.

    Parameters
    ----------
    problem : Problem
    certificate : mapping
        As a plan file holds it. Wrong numbers in it prove less, never something false.

    Returns
    -------
    int
        Picoseconds that no plan undercuts.

    Raises
    ------
    CertificateError
        Where the certificate has another form.
    """
    model = Model(problem)
    arrays, bits = _arrays(certificate)
    least: int | None = None
    for leaf, alive in _leaves(model, certificate["tree"]):
        alive = model.consistent(alive)
        if all(mask.any() for mask in alive.values()):
            messages = _messages(model, leaf, arrays)
            bound = _leaf_bound(model, alive, messages, bits)
            least = bound if least is None else min(least, bound)
    if least is None:
        return INF
    return max(0, -(-least >> bits))


# ------------------------------------------------------------------------------------------------- what may be chosen


class Model:
    """The variables and edges of a problem, enumerated."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.graph = problem.graph
        self._joint: dict[Any, list[tuple[int, ...]]] = {}
        self._compute: dict[Any, Ints] = {}
        self._index: dict[Any, dict[Layout, int]] = {}
        self._placed: dict[Any, Ints] = {}

    # layouts and prices

    def index(self, tensor: str) -> dict[Layout, int]:
        """Return the number of each layout of a tensor."""
        key = (self.graph.tensors[tensor].shape, self.problem.parts(tensor))
        if key not in self._index:
            self._index[key] = {layout: i for i, layout in enumerate(self.problem.layouts(tensor))}
        return self._index[key]

    def price(self, tensor: str) -> Ints:
        """Return the prices between the layouts of a tensor."""
        if self.problem.communication == "frozen":
            return _equal_only(len(self.index(tensor)))
        return table(self.problem, tensor).time

    def delivery(self, tensor: str) -> Ints | None:
        """Return per layout the price of delivering a graph output; None for a tensor that is none."""
        if tensor not in self.graph.outputs:
            return None
        index = self.index(tensor)
        found: Ints = self.price(tensor)[:, [index[layout] for layout in self.problem.delivered(tensor)]].min(axis=1)
        return found

    def has_variable(self, tensor: str) -> bool:
        """Tell whether a tensor has a variable of its own."""
        readers = len(self.problem.uses[tensor]) + (tensor in self.graph.outputs)
        return self.graph.tensors[tensor].producer is None or readers > 1 or tensor in self.problem.pins_on

    # ops

    def joint(self, node: str) -> list[tuple[int, ...]]:
        """Return the joint rows of an op, pins aside."""
        bound = self.problem.bound[node]
        if id(bound) not in self._joint:
            self._joint[id(bound)] = list(_joint_rows(bound, self.problem))
        return self._joint[id(bound)]

    def placed(self, node: str, tensor: str, slot: int, *, result: bool) -> Ints:
        """Return per joint row the layout of one operand or result."""
        bound = self.problem.bound[node]
        key = (id(bound), result, slot, self.problem.parts(tensor))
        if key not in self._placed:
            index, found = self.index(tensor), []
            seen: dict[tuple[Any, ...], int] = {}
            for rows in self.joint(node):
                chosen = [bound.rows[k] for k in rows]
                raw = tuple(p for row in chosen if (p := (row.results if result else row.operands)[slot]) is not None)
                if raw not in seen:
                    seen[raw] = index[self.problem.canonical(tensor, raw)]
                found.append(seen[raw])
            self._placed[key] = np.array(found, np.int64)
        return self._placed[key]

    def _compute_of(self, node: str) -> Ints:
        bound = self.problem.bound[node]
        uses = self.graph.operand_uses(node)
        dtypes = {use.operand: self.graph.tensors[use.tensor].dtype for use in uses}
        key = (id(bound), self.graph.nodes[node].op, *sorted(dtypes.items()))
        if key not in self._compute:
            fact, mesh = self.graph.nodes[node], self.problem.mesh
            times = [
                compute_time(fact, bound, [bound.rows[k] for k in rows], dtypes, mesh) for rows in self.joint(node)
            ]
            self._compute[key] = np.array(times, np.int64)
        return self._compute[key]

    @cached_property
    def choices(self) -> dict[Name, Choices]:
        """The values of every variable."""
        found: dict[Name, Choices] = {("op", node): self._op(node) for node in self.graph.nodes}
        for tensor in self.graph.tensors:
            if self.has_variable(tensor):
                found["tensor", tensor] = self._tensor(tensor)
        return found

    def _op(self, node: str) -> Choices:
        price = self._compute_of(node)
        for slot, tensor in enumerate(self.graph.nodes[node].results):
            delivery = self.delivery(tensor)
            if delivery is not None and not self.has_variable(tensor):
                price = _add(price, delivery[self.placed(node, tensor, slot, result=True)])
        forbidden = np.zeros(len(price), np.bool_)
        for use in self.graph.operand_uses(node):
            allowed = self.problem.pinned(use.name, use.tensor)
            if allowed is not None:
                index = self.index(use.tensor)
                asked = self.placed(node, use.tensor, use.slot, result=False)
                forbidden |= ~np.isin(asked, [index[layout] for layout in allowed])
        return Choices(np.where(forbidden, INF, price), self.joint(node))

    def _tensor(self, tensor: str) -> Choices:
        problem, fact, index = self.problem, self.graph.tensors[tensor], self.index(tensor)
        allowed = problem.pinned(tensor, tensor) if fact.producer is not None else None
        if fact.producer is None:
            made = sorted(index[layout] for layout in problem.stored(tensor))
        else:
            made = [int(m) for m in np.unique(self.placed(fact.producer, tensor, fact.slot, result=True))]
        price, delivery = self.price(tensor), self.delivery(tensor)
        pairs: list[tuple[int, int]] = []
        for m in made:
            held = (
                self._copies(tensor, m)
                if allowed is None
                else [index[layout] for layout in allowed if index[layout] != m]
            )
            if allowed is None or problem.layouts(tensor)[m] in allowed:
                pairs.append((m, m))
            if problem.communication != "frozen":
                pairs += [(m, h) for h in sorted(held) if price[m, h] < INF]
        first, second = np.array([m for m, _ in pairs], np.int64), np.array([h for _, h in pairs], np.int64)
        own = price[first, second]
        if delivery is not None:
            own = _add(own, np.minimum(delivery[first], delivery[second]))
        return Choices(own, list(pairs))

    def _copies(self, tensor: str, m: int) -> list[int]:
        """Return the copies of layout m that can save more than they cost (docs/certificate.md)."""
        price, delivery = self.price(tensor), self.delivery(tensor)
        saved = np.zeros(len(price), object)
        for use in self.problem.uses[tensor]:
            asked = np.unique(self.placed(use.op, tensor, use.slot, result=False))
            saved += np.maximum(0, (price[m, asked][None, :] - price[:, asked]).max(axis=1)).astype(object)
        if delivery is not None:
            saved += np.maximum(0, np.minimum(delivery[m], INF) - np.minimum(delivery, INF)).astype(object)
        return [h for h in range(len(price)) if h != m and price[m, h] < INF and saved[h] > price[m, h]]

    # edges

    @cached_property
    def links(self) -> list[Link]:
        """Every edge."""
        found = []
        for node in self.graph.nodes:
            found += [self._use(use) for use in self.graph.operand_uses(node)]
            for slot, tensor in enumerate(self.graph.nodes[node].results):
                if self.has_variable(tensor):
                    made = self.placed(node, tensor, slot, result=True)
                    asks = np.array([m for m, _ in self.choices["tensor", tensor].keys], np.int64)
                    same = _equal_only(len(self.index(tensor)))
                    found.append(
                        Link(f"made:{tensor}", ("op", node), ("tensor", tensor), same, np.stack([made, made], 1), asks)
                    )
        return found

    def _use(self, use: Use) -> Link:
        asks = self.placed(use.op, use.tensor, use.slot, result=False)
        fact = self.graph.tensors[use.tensor]
        if self.has_variable(use.tensor):
            tail: Name = ("tensor", use.tensor)
            offers = np.array(self.choices[tail].keys, np.int64).reshape(-1, 2)
        else:
            tail = ("op", str(fact.producer))
            made = self.placed(str(fact.producer), use.tensor, fact.slot, result=True)
            offers = np.stack([made, made], 1)
        return Link(use.name, tail, ("op", use.op), self.price(use.tensor), offers, asks)

    # consistency

    def everything(self) -> Alive:
        """Return all values that are not forbidden by themselves."""
        return {name: choices.price < INF for name, choices in self.choices.items()}

    def consistent(self, alive: Alive) -> Alive:
        """Take out values that have no partner on one of their edges, until none is left."""
        alive = dict(alive)
        at: dict[Name, list[Link]] = {}
        for link in self.links:
            at.setdefault(link.tail, []).append(link)
            at.setdefault(link.head, []).append(link)
        waiting = dict.fromkeys(range(len(self.links)))
        number = {id(link): i for i, link in enumerate(self.links)}
        while waiting:
            link = self.links[next(iter(waiting))]
            del waiting[number[id(link)]]
            for name, mask in self._supported(link, alive):
                left = alive[name] & mask
                if left.sum() < alive[name].sum():
                    alive[name] = left
                    waiting |= dict.fromkeys(number[id(other)] for other in at[name])
        return alive

    @staticmethod
    def _supported(link: Link, alive: Alive) -> Iterator[tuple[Name, NDArray[np.bool_]]]:
        allowed = link.price < INF
        offered, asked = np.zeros(allowed.shape[0], np.bool_), np.zeros(allowed.shape[1], np.bool_)
        offered[link.offers[alive[link.tail]].reshape(-1)] = True
        asked[link.asks[alive[link.head]]] = True
        reaches = np.logical_or.reduce(allowed & asked, axis=1)
        reached = np.logical_or.reduce(allowed & offered[:, None], axis=0)
        yield link.tail, reaches[link.offers[:, 0]] | reaches[link.offers[:, 1]]
        yield link.head, reached[link.asks]


def _joint_rows(bound: BoundRule, problem: Problem) -> Iterator[tuple[int, ...]]:
    """Yield what rows go together, one per mesh axis; where some do not, nothing longer does."""
    sizes, kinds = problem.mesh.sizes, set(problem.kinds)
    usable = [
        k
        for k, row in enumerate(bound.rows)
        if all(p.kind in kinds for p in row.operands + row.results if isinstance(p, Partial))
    ]

    def extend(head: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        depth = len(head)
        if not composes(bound, [bound.rows[k] for k in head], sizes[:depth]):
            return
        if depth == len(sizes):
            yield head
            return
        for k in usable if sizes[depth] > 1 else [0]:
            yield from extend((*head, k))

    return extend(())


def _equal_only(count: int) -> Ints:
    return np.where(np.eye(count, dtype=np.bool_), 0, INF)


def _add(price: Ints, more: Ints) -> Ints:
    found: Ints = np.minimum(INF, price + more)
    return found


# ----------------------------------------------------------------------------------------------- what is written


def _arrays(certificate: Any) -> tuple[list[list[int]], int]:
    if not isinstance(certificate, Mapping) or not {"bits", "arrays", "tree"} <= set(certificate):
        raise CertificateError("it should have bits, arrays and tree")
    bits, arrays = certificate["bits"], certificate["arrays"]
    if not isinstance(bits, int) or isinstance(bits, bool) or not 0 <= bits <= 32:
        raise CertificateError(f"bits is {bits!r}, not a whole number from 0 to 32")
    if not isinstance(arrays, list) or not all(isinstance(array, list) for array in arrays):
        raise CertificateError("arrays should be a list of lists")
    for array in arrays:
        if not all(type(value) is int for value in array):
            raise CertificateError("a message vector holds something that is not a whole number")
    return arrays, bits


def _leaves(model: Model, tree: Any) -> Iterator[tuple[Mapping[str, Any], Alive]]:
    """Yield each leaf with the values of its side of every split above it."""
    waiting: list[tuple[Any, Alive]] = [(tree, model.everything())]
    while waiting:
        node, alive = waiting.pop()
        if not isinstance(node, Mapping):
            raise CertificateError(f"a node of the tree is {node!r}")
        name = next(
            (("op" if "op" in node else "tensor", node[kind]) for kind in ("op", "tensor") if kind in node), None
        )
        if name is None:
            yield node, alive
            continue
        if name not in model.choices or not {"left_values", "left", "right"} <= set(node):
            raise CertificateError(f"a split on {name[0]} {name[1]!r} cannot be read")
        listed = {tuple(value) for value in node["left_values"]}
        left = np.array([key in listed for key in model.choices[name].keys], np.bool_)
        waiting.append((node["left"], {**alive, name: alive[name] & left}))
        waiting.append((node["right"], {**alive, name: alive[name] & ~left}))


def _messages(model: Model, leaf: Mapping[str, Any], arrays: Sequence[list[int]]) -> dict[str, tuple[Ints, Ints]]:
    """Return the two vectors of each edge; zeros, which prove something too, where a leaf names none."""
    given = leaf.get("messages", {})
    found: dict[str, tuple[Ints, Ints]] = {}
    for link in model.links:
        shape = link.price.shape
        pair = given.get(link.name)
        if pair is None:
            found[link.name] = np.zeros(shape[0], np.int64), np.zeros(shape[1], np.int64)
            continue
        try:
            vectors = arrays[pair[0]], arrays[pair[1]]
        except (IndexError, TypeError) as error:
            raise CertificateError(f"edge {link.name!r} names vectors {pair!r}, which are not there") from error
        if (len(vectors[0]), len(vectors[1])) != shape:
            raise CertificateError(
                f"edge {link.name!r} has vectors of {len(vectors[0])} and {len(vectors[1])} entries, not {shape}"
            )
        small = all(-LARGEST < value < LARGEST for vector in vectors for value in vector)
        found[link.name] = (
            np.array(vectors[0], np.int64 if small else object),
            np.array(vectors[1], np.int64 if small else object),
        )
    return found


def _leaf_bound(model: Model, alive: Alive, messages: Mapping[str, tuple[Ints, Ints]], bits: int) -> int:
    """Add the least of every variable and of every edge, in units of 2^-bits ps."""
    sums = {name: _exact(choices.price[alive[name]], bits) for name, choices in model.choices.items()}
    total = 0
    for link in model.links:
        to_tail, to_head = (vector.astype(object) for vector in messages[link.name])
        offers, asks = link.offers[alive[link.tail]], link.asks[alive[link.head]]
        sums[link.tail] = sums[link.tail] + np.minimum(to_tail[offers[:, 0]], to_tail[offers[:, 1]])
        sums[link.head] = sums[link.head] + to_head[asks]
        rows, columns = np.unique(offers), np.unique(asks)
        total += _least_of_edge(
            link.price[np.ix_(rows, columns)], messages[link.name][0][rows], messages[link.name][1][columns], bits
        )
    return total + sum(int(values.min()) for values in sums.values())


def _exact(price: Ints, bits: int) -> Ints:
    """Return prices as Python integers in units of 2^-bits ps."""
    found: Ints = price.astype(object) * 2**bits
    return found


def _least_of_edge(price: Ints, to_tail: Ints, to_head: Ints, bits: int) -> int:
    """Return the least of price - A - B where the price is not forbidden."""
    allowed = price < INF
    largest = int(price.max(initial=0, where=allowed))
    if largest << bits < LARGEST and to_tail.dtype != object and to_head.dtype != object:
        rest = (np.where(allowed, price, 0) << bits) - to_tail[:, None] - to_head[None, :]
        return int(rest.min(where=allowed, initial=2**62))
    rest = _exact(price, bits) - to_tail.astype(object)[:, None] - to_head.astype(object)[None, :]
    return int(min(rest[allowed]))
