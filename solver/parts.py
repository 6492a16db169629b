"""The parts of every tensor dim: how a layout survives a reshape.

A dim that several factors make, ``(a b)`` of a reshape, asks for a boundary between them. Boundaries travel along the
dims that one factor holds, and from a tensor to what is tied to it, through the whole graph, until nothing moves. The
boundaries of a dim, as the number of elements behind them, must form a chain of divisors; where reshapes ask for more
than that, the cheapest of them, in bytes of their tensors, are refused and keep their plain row.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ops.bind import BoundRule, BoundTensor, Factor
from ops.placement import PARTIAL_KINDS, Parts
from solver.chains import Ask, Class, Equation, settle
from solver.graph import Graph, Node
from solver.graph_values import flat

DimParts: TypeAlias = tuple[int, ...]
Cell: TypeAlias = int
"""One dim of one tensor, or a factor that stands in compound dims only."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A reshape whose dims keep parts that do not express it.

    Parameters
    ----------
    node : str
    why : str
        The dim it cannot split, and who splits it otherwise.
    """

    node: str
    why: str

    def __str__(self) -> str:
        return self.why


@dataclass(frozen=True, slots=True)
class Refinement:
    """The parts of all tensors of a graph.

    Parameters
    ----------
    parts : mapping
        Tensor -> the parts of each dim, major first.
    refused : tuple of Refusal
        In program order.
    """

    parts: Mapping[str, Parts]
    refused: tuple[Refusal, ...] = ()


def refine(graph: Graph) -> Refinement:
    """Find the common parts that the reshapes of a graph ask for.

    Parameters
    ----------
    graph : Graph

    Returns
    -------
    Refinement
    """
    dims = _Dims(graph)
    requests = dims.requests()
    boundaries, lost = settle([request.ask for request in requests])
    parts = {
        tensor.name: tuple(
            _dim_parts(size, boundaries.get(dims.find(dims.cell(tensor.name, dim)), ()))
            for dim, size in enumerate(tensor.shape)
        )
        for tensor in graph.tensors.values()
    }
    order = {name: index for index, name in enumerate(graph.nodes)}
    refused = [
        Refusal(split.node, _why(split, requests[winner].splits[0] if winner != loser else None))
        for loser, winner in lost.items()
        for split in requests[loser].splits
    ]
    return Refinement(parts, tuple(sorted(refused, key=lambda refusal: order[refusal.node])))


def node_factor_parts(node: Node, bound: BoundRule, parts: Mapping[str, Parts]) -> dict[str, DimParts]:
    """Read the parts of a bound op's factors off the parts of its tensors.

    Parameters
    ----------
    node : Node
    bound : BoundRule
        The op bound without parts.
    parts : mapping
        Tensor -> parts, as `refine` gives them.

    Returns
    -------
    dict
        Only factors that differ from one part. ``()`` for a factor that may not be cut: the parts of a compound dim
        do not end where it begins; a factor of size 1 there has no part either, so that the parts of a dim are those
        of its factors in a row.
    """
    found: dict[str, DimParts] = {}
    slots = _slots(node, bound)
    units = _units(bound)
    for unit in units:
        found |= _unit_parts(unit, bound, slots, parts)
    single = set().union(*units)
    for tensor, slot in slots:
        for names, split in zip(slot.dims, parts[tensor], strict=True):
            if len(names) > 1:
                found |= {name: () for name in names if bound.factors[name].size == 1}
            elif names and names[0] not in single and len(split) > 1 and _spreads(bound.factors[names[0]], bound):
                found[names[0]] = split
    return found


def bind_refined(
    graph: Graph, parts: Mapping[str, Parts], capabilities: frozenset[str] | None = None
) -> dict[str, BoundRule]:
    """Bind every op of a graph with the parts of its tensors.

    Parameters
    ----------
    graph : Graph
    parts : mapping
        As `refine` gives them.
    capabilities : frozenset of str, optional
        As for `Graph.bind`.

    Returns
    -------
    dict
        Op -> bound rule; ops that are equal share one.
    """
    found: dict[str, BoundRule] = {}
    known: dict[tuple[int, tuple[Parts, ...]], BoundRule] = {}
    for name, node in graph.nodes.items():
        bound = graph.bind(name)
        key = id(bound), tuple(parts[tensor] for tensor in (*flat(node.operands), *node.results) if tensor is not None)
        if key not in known:
            known[key] = graph.bind(name, node_factor_parts(node, bound, parts), capabilities)
        found[name] = known[key]
    return found


@dataclass(frozen=True, slots=True)
class _Split:
    """Where an op uses a dim as a product of factors."""

    node: str
    tensor: str
    dim: int
    sizes: tuple[int, ...]

    def __str__(self) -> str:
        return f"dim {self.dim} of {self.tensor!r} as {' x '.join(map(str, self.sizes))}"


@dataclass(frozen=True, slots=True)
class _Request:
    """Equal asks of one or more ops."""

    ask: Ask
    splits: tuple[_Split, ...]


@dataclass(frozen=True, slots=True)
class _Pattern:
    """What a bound rule says about parts, the same for all ops that share it.

    Parameters
    ----------
    ties : mapping
        Factor -> the (slot, dim) that it holds alone and that must share their parts.
    asks : tuple
        Per unit its compound dims: (slot, dim, ((factor, size), ...)).
    """

    ties: Mapping[str, tuple[tuple[int, int], ...]]
    asks: tuple[tuple[tuple[int, int, tuple[tuple[str, int], ...]], ...], ...]


def _pattern(bound: BoundRule) -> _Pattern:
    units = [unit for unit in _units(bound) if _asks(unit, bound)]
    tied = {name for unit in units for name in unit if not _solid(bound.factors[name], bound)}
    tied |= {name for name, factor in bound.factors.items() if _spreads(factor, bound)}
    ties: dict[str, list[tuple[int, int]]] = {name: [] for name in bound.factors if name in tied}
    asks: list[list[tuple[int, int, tuple[tuple[str, int], ...]]]] = [[] for _ in units]
    for index, slot in enumerate((*bound.operands, *bound.results)):
        for dim, names in enumerate(slot.dims if slot is not None else ()):
            large = _large(names, bound)
            if len(large) == 1 and large[0] in tied:
                ties[large[0]].append((index, dim))
            for unit, ask in zip(units, asks, strict=True):
                if len(large) > 1 and large[0] in unit:
                    ask.append((index, dim, tuple((name, bound.factors[name].size) for name in large)))
    return _Pattern({name: tuple(places) for name, places in ties.items()}, tuple(map(tuple, asks)))


class _Dims:
    """The dims of a graph, united where a factor of an op holds them, where tensors are tied, and where ops repeat."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._first: dict[str, Cell] = {}
        self._parent: list[Cell] = []
        self._asking: list[tuple[list[Equation], int, _Split]] = []
        self._patterns: dict[int, _Pattern] = {}
        for tensor in graph.tensors.values():
            self._first[tensor.name] = len(self._parent)
            self._parent += range(len(self._parent), len(self._parent) + len(tensor.shape))
        for node in graph.nodes.values():
            self._read(node, graph.bind(node.name))
        for follower, leader in graph.ties.items():
            for dim in range(len(graph.tensors[leader].shape)):
                self._united([self.cell(leader, dim), self.cell(follower, dim)])
        for later, of in graph.repeats.items():
            for one, other in zip(self._tensors(of), self._tensors(later), strict=True):
                for dim in range(len(graph.tensors[one].shape)):
                    self._united([self.cell(one, dim), self.cell(other, dim)])

    def _tensors(self, node: str) -> list[str]:
        return [*(use.tensor for use in self.graph.operand_uses(node)), *self.graph.nodes[node].results]

    def cell(self, tensor: str, dim: int) -> Cell:
        """Return the cell of a dim."""
        return self._first[tensor] + dim

    def find(self, cell: Cell) -> Class:
        """Return the class of a cell: the first cell united with it."""
        while self._parent[cell] != cell:
            self._parent[cell] = self._parent[self._parent[cell]]
            cell = self._parent[cell]
        return cell

    def requests(self) -> list[_Request]:
        """Return what the compound dims ask for, equal asks together, in program order."""
        equal: dict[tuple[Equation, ...], list[tuple[int, _Split]]] = {}
        for equations, weight, split in self._asking:
            key = tuple((self.find(cell), tuple(map(self._found, members))) for cell, members in equations)
            equal.setdefault(key, []).append((weight, split))
        return [
            _Request(Ask(equations, sum(weight for weight, _ in members)), tuple(split for _, split in members))
            for equations, members in equal.items()
        ]

    def _found(self, member: tuple[Cell | None, int]) -> tuple[Class | None, int]:
        cell, size = member
        return None if cell is None else self.find(cell), size

    def _read(self, node: Node, bound: BoundRule) -> None:
        if id(bound) not in self._patterns:
            self._patterns[id(bound)] = _pattern(bound)
        pattern = self._patterns[id(bound)]
        names = [name or "" for name in (*flat(node.operands), *node.results)]
        cells = {
            factor: self._united([self.cell(names[slot], dim) for slot, dim in places])
            for factor, places in pattern.ties.items()
        }
        for ask in pattern.asks:
            equations = [
                (self.cell(names[slot], dim), tuple((cells.get(factor), size) for factor, size in members))
                for slot, dim, members in ask
            ]
            weight = max(self.graph.tensors[names[slot]].bytes for slot, _, _ in ask)
            slot, dim, members = ask[0]
            self._asking.append((equations, weight, _Split(node.name, names[slot], dim, tuple(n for _, n in members))))

    def _united(self, cells: Sequence[Cell]) -> Cell:
        """Unite the dims that hold one factor; a factor that stands in compound dims only gets a cell of its own."""
        if not cells:
            self._parent.append(len(self._parent))
            return len(self._parent) - 1
        for cell in cells[1:]:
            first, second = sorted((self.find(cells[0]), self.find(cell)))
            self._parent[second] = first
        return cells[0]


def _why(split: _Split, winner: _Split | None) -> str:
    if winner is None:
        return f"{split.node!r} uses {split}, which its own other dims do not allow: it keeps its plain row"
    return (
        f"{split.node!r} cannot use {split}, since {winner.node!r} uses {winner} and that saves more: "
        "it keeps its plain row"
    )


def _dim_parts(size: int, boundaries: Iterable[int]) -> DimParts:
    """Turn the boundaries of a dim, as elements behind them, into its parts.

    Examples
    --------
    >>> _dim_parts(24, {6, 2})
    (4, 3, 2)
    """
    ends = [size, *sorted(boundaries, reverse=True), 1]
    return tuple(before // after for before, after in itertools.pairwise(ends)) if len(ends) > 2 else (size,)


def _slots(node: Node, bound: BoundRule) -> list[tuple[str, BoundTensor]]:
    """Pair the present slots of an op with the tensors of the graph."""
    names = [*flat(node.operands), *node.results]
    return [
        (name, slot)
        for name, slot in zip(names, (*bound.operands, *bound.results), strict=True)
        if name is not None and slot is not None
    ]


def _large(names: Sequence[str], bound: BoundRule) -> list[str]:
    return [name for name in names if bound.factors[name].size > 1] if len(names) > 1 else list(names)


def _solid(factor: Factor, bound: BoundRule) -> bool:
    """Whether the positions of a factor matter, so that it is cut on its major part only and keeps one part."""
    major = bound.rule.major
    return (
        factor.kind == "halo"
        or factor.capability is not None
        or factor.name in major
        or factor.name.rstrip("0123456789") in major
    )


def _spreads(factor: Factor, bound: BoundRule) -> bool:
    """Whether a factor may be cut on any part, so that its dims share their parts."""
    return factor.kind in ("pass", *PARTIAL_KINDS) and not _solid(factor, bound)


def _compound_dims(bound: BoundRule) -> list[list[str]]:
    """Return the factors above size 1 of each dim that has several."""
    slots = [slot for slot in (*bound.operands, *bound.results) if slot is not None]
    return [large for slot in slots for names in slot.dims if len(names) > 1 and len(large := _large(names, bound)) > 1]


def _units(bound: BoundRule) -> list[frozenset[str]]:
    """Return the sets of factors that compound dims join: their parts are found together or not at all."""
    units: list[frozenset[str]] = []
    for names in _compound_dims(bound):
        joined = [unit for unit in units if not unit.isdisjoint(names)]
        units = [unit for unit in units if unit.isdisjoint(names)] + [frozenset(names).union(*joined)]
    return units


def _asks(unit: frozenset[str], bound: BoundRule) -> bool:
    """Whether a minor factor of the unit could be cut: a major one is a plain cut and needs no boundary."""
    minor = {name for names in _compound_dims(bound) if names[0] in unit for name in names[1:]}
    return any(_spreads(bound.factors[name], bound) for name in minor)


def _unit_parts(
    unit: frozenset[str], bound: BoundRule, slots: Sequence[tuple[str, BoundTensor]], parts: Mapping[str, Parts]
) -> dict[str, DimParts]:
    """Return the parts of factors that compound dims join; where they do not fit together, those of the plain row."""
    found: dict[str, DimParts] = {}
    for tensor, slot in slots:
        for names, split in zip(slot.dims, parts[tensor], strict=True):
            large = _large(names, bound)
            if not unit.intersection(large) or (len(large) == 1 and _solid(bound.factors[large[0]], bound)):
                continue
            dealt = _dealt(split, large, bound)
            if dealt is None or any(found.setdefault(name, mine) != mine for name, mine in dealt.items()):
                return _plain_parts(unit, bound)
    if any(len(found[name]) > 1 and _solid(bound.factors[name], bound) for name in unit):
        return _plain_parts(unit, bound)
    return {name: split for name, split in found.items() if split != (bound.factors[name].size,)}


def _plain_parts(unit: frozenset[str], bound: BoundRule) -> dict[str, DimParts]:
    """Only factors that are major wherever they stand may be cut, contiguously."""
    return {name: () for names in _compound_dims(bound) if names[0] in unit for name in names[1:]}


def _dealt(split: DimParts, names: Sequence[str], bound: BoundRule) -> dict[str, DimParts] | None:
    """Deal the parts of a dim to its factors; None where a factor ends inside a part."""
    remaining = list(split)
    dealt: dict[str, DimParts] = {}
    for name in names:
        mine: list[int] = []
        while math.prod(mine) < bound.factors[name].size and remaining:
            mine.append(remaining.pop(0))
        if math.prod(mine) != bound.factors[name].size:
            return None
        dealt[name] = tuple(mine)
    return dealt
