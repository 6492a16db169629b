"""The graph as an op-by-op propagation of shardings sees it: one flow of dims from operands to each result.

A compiler's graph has an op for every result, of two operands where it is pointwise, and a broadcast wherever shapes
differ, so a flow is one of those. Its factors are those of the op's rule; a dim without one has a factor of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ops.bind import BoundRule, BoundTensor, Factor
from solver.graph import Graph, Node, Tensor
from solver.problem import Problem

Dims: TypeAlias = tuple[tuple[str, ...], ...]
"""Per dim its factors, major first."""

MOVED = frozenset(
    f"{op}{grad}" for op in ("slice", "strided_slice", "split", "concat", "pad", "unbind") for grad in ("", "_grad")
)
"""Ops that keep the place of a dim and change its size: a compiler shards it through, and permutes."""


RESHAPES = frozenset({"reshape", "flatten", "squeeze", "unsqueeze"})


@dataclass(frozen=True, slots=True)
class Value:
    """What flows read and make.

    Parameters
    ----------
    tensor : str
        The tensor of the graph that it is, or is a copy of.
    shape : tuple of int
    dtype : str
    role : str
        ``tensor``, ``constant`` (its values known, a copy for every use), ``broadcast``, ``step`` (on the way to a
        result of many operands) or ``use`` (what a pinned use reads).
    """

    tensor: str
    shape: tuple[int, ...]
    dtype: str
    role: str


@dataclass(frozen=True, slots=True)
class Flow:
    """How shardings flow between some values and one that is made of them.

    Parameters
    ----------
    op : str
        The op of the graph, or ``broadcast`` or ``constraint``.
    kind : str
        ``pointwise``, ``reshape``, ``transpose``, ``broadcast`` or ``other``.
    operands : tuple of int
        Indices of values.
    result : int
        Index of a value.
    dims : tuple of Dims
        Of the operands, then of the result.
    sizes : mapping
        Factor -> size.
    types : mapping
        Factor -> ``pass``, ``reduction``, ``replication`` (must be whole where the op runs) or ``permutation``.
    """

    op: str
    kind: str
    operands: tuple[int, ...]
    result: int
    dims: tuple[Dims, ...]
    sizes: Mapping[str, int]
    types: Mapping[str, str]

    @property
    def values(self) -> tuple[int, ...]:
        """The operands, then the result."""
        return (*self.operands, self.result)


class Flows:
    """The flows of a graph in program order.

    Parameters
    ----------
    problem : Problem
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.values: list[Value] = []
        self.of: dict[str, int] = {}
        """Tensor -> its value; constants have none."""
        self.constraints: dict[int, str] = {}
        """Value -> the use whose pins it carries."""
        self.flows: list[Flow] = []
        for tensor in problem.graph.tensors.values():
            if tensor.producer is None and tensor.role != "constant":
                self._add_tensor(tensor)
        for node in problem.graph.nodes.values():
            self._add_node(problem.graph, node)

    def _add_tensor(self, tensor: Tensor) -> int:
        self.of[tensor.name] = self._value(Value(tensor.name, tensor.shape, tensor.dtype, "tensor"))
        return self.of[tensor.name]

    def _value(self, value: Value) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def _add_node(self, graph: Graph, node: Node) -> None:
        bound = self.problem.bound[node.name]
        read = {use.slot: self._read(use.name, graph.tensors[use.tensor]) for use in graph.operand_uses(node.name)}
        for slot, name in enumerate(node.results):
            made = self._add_tensor(graph.tensors[name])
            reads = [k for k in _reads(node, bound, slot) if k in read]
            self._flow(node.op, bound, reads, [read[k] for k in reads], slot, made)

    def _read(self, use: str, tensor: Tensor) -> int:
        if tensor.role == "constant":
            return self._value(Value(tensor.name, tensor.shape, tensor.dtype, "constant"))
        if use not in self.problem.pins_on:
            return self.of[tensor.name]
        copied = self._value(Value(tensor.name, tensor.shape, tensor.dtype, "use"))
        self.constraints[copied] = use
        dims = tuple((f"d{dim}",) for dim in range(len(tensor.shape)))
        self._append("constraint", "pointwise", [self.of[tensor.name]], copied, [dims, dims])
        return copied

    def _flow(self, op: str, bound: BoundRule, slots: Sequence[int], read: list[int], slot: int, made: int) -> None:
        present, result = [one for k in slots if (one := bound.operands[k]) is not None], bound.results[slot]
        dims = _named_dims(op, present, result)
        types = {name: _type(bound, name, dims[-1]) for of in dims for names in of for name in names}
        if _is_pointwise(present, result, types):
            self._pointwise(op, read, made, dims)
        else:
            self._append(op, _kind(op, dims, types), read, made, dims, types, bound.factors)

    def _pointwise(self, op: str, read: list[int], made: int, dims: list[Dims]) -> None:
        """Add pointwise flows of two operands each, and a broadcast of each operand that is smaller than the result."""
        shape = self.values[made].shape
        smaller = [k for k, value in enumerate(read) if self.values[value].shape != shape]
        if smaller and len(read) == 1:
            self._append("broadcast", "broadcast", read, made, dims)
            return
        for k in smaller:
            value = self.values[read[k]]
            wide = self._value(Value(value.tensor, shape, value.dtype, "broadcast"))
            self._append("broadcast", "broadcast", [read[k]], wide, [dims[k], dims[-1]])
            read[k] = wide
        while len(read) > 2 and op != "where":
            first, second, *others = read
            step = self._value(Value(self.values[made].tensor, shape, self.values[made].dtype, "step"))
            self._append(op, "pointwise", [first, second], step, [dims[-1]] * 3)
            read = [step, *others]
        self._append(op, "pointwise", read, made, [dims[-1]] * (len(read) + 1))

    def _append(
        self,
        op: str,
        kind: str,
        read: Sequence[int],
        made: int,
        dims: Sequence[Dims],
        types: Mapping[str, str] | None = None,
        factors: Mapping[str, Factor] | None = None,
    ) -> None:
        """Add a flow; a factor that fills a dim has the size of the largest such dim, as a border makes dims differ."""
        sizes = {name: 1 for of in dims for names in of for name in names}
        for value, of in zip((*read, made), dims, strict=True):
            for names, size in zip(of, self.values[value].shape, strict=True):
                for name in names:
                    known = size if len(names) == 1 or factors is None else factors[name].size
                    sizes[name] = max(known, sizes[name])
        kinds = {name: (types or {}).get(name, "pass") for name in sizes}
        self.flows.append(Flow(op, kind, tuple(read), made, tuple(dims), sizes, kinds))


def _reads(node: Node, bound: BoundRule, slot: int) -> list[int]:
    """Return the operand slots that a result is made of: of a linear grad those that its derivative reads."""
    present = {k: operand for k, operand in enumerate(bound.operands) if operand is not None}
    result, bare = bound.results[slot], [k for k, operand in present.items() if not any(operand.dims)]
    if result.dims and not any(result.dims) and bare:
        return bare
    base = result.name.removesuffix("_grad")
    terms = [term for term in bound.terms if base in term]
    if base == result.name or len(terms) != 1:
        return list(present)
    elsewhere = frozenset[str]().union(*bound.terms) - terms[0] | {base}
    return [k for k, operand in present.items() if operand.name not in elsewhere]


def _named_dims(op: str, operands: Sequence[BoundTensor], result: BoundTensor) -> list[Dims]:
    """Return the factors of every dim of the operands and the result; a dim without one is named after its place."""
    moved = op in MOVED and all(len(operand.dims) == len(result.dims) for operand in operands)
    found = []
    for k, tensor in enumerate((*operands, result)):
        own = [f"moved {dim}" if moved else f"own {k} {dim}" for dim in range(len(tensor.dims))]
        twice = [dim for dim, names in enumerate(tensor.dims) if set(names) & set(sum(tensor.dims[:dim], ()))]
        found.append(
            tuple((own[dim],) if dim in twice else names or (own[dim],) for dim, names in enumerate(tensor.dims))
        )
    return found


def _type(bound: BoundRule, name: str, result: Dims) -> str:
    if name not in bound.factors:
        return "permutation" if name.startswith("moved") else "replication"
    kind = bound.factors[name].kind
    if kind in ("whole", "synced"):
        return "replication"
    if kind == "halo":
        return "permutation"
    return "pass" if any(name in names for names in result) else "reduction"


def _is_pointwise(operands: Sequence[BoundTensor], result: BoundTensor, types: Mapping[str, str]) -> bool:
    """Tell whether every operand lies along the last dims of the result, with its factors or a dim of size 1."""
    plain = all(len(names) == 1 or size == 1 for names, size in zip(result.dims, result.shape, strict=True))
    factors = (name for tensor in (*operands, result) for names in tensor.dims for name in names)
    if not plain or not operands or any(types[name] != "pass" for name in factors):
        return False
    along = list(zip(reversed(result.dims), reversed(result.shape), strict=True))
    return all(
        len(operand.dims) <= len(along)
        and all(
            size == 1 or (names, size) == of
            for names, size, of in zip(reversed(operand.dims), reversed(operand.shape), along, strict=False)
        )
        for operand in operands
    )


def _kind(op: str, dims: Sequence[Dims], types: Mapping[str, str]) -> str:
    """Tell a transpose or reshape from other flows."""
    if len(dims) != 2 or "reduction" in types.values():
        return "other"
    if op.removesuffix("_grad") in RESHAPES:
        return "reshape"
    permuted = sorted(dims[0]) == sorted(dims[1]) and all(len(names) == 1 for names in dims[0])
    return "transpose" if permuted and dims[0] != dims[1] else "other"
