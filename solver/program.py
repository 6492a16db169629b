"""The SPMD program that a plan lowers to: local ops with localised attributes, and moves between devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ops.bind import BoundRule, Row, Shape
from ops.op import promote
from ops.placement import Layout
from ops.registry import rule_for
from ops.run import Cut, Device, local_attrs
from solver.choice import OUTPUT, Evaluation
from solver.cost.reshard import Move
from solver.graph import Node, Use
from solver.graph_values import ITEMSIZE
from solver.layout import local_shape
from solver.problem import Problem

BufferNames: TypeAlias = str | tuple[str, ...] | None
"""The buffers of one operand of an op: a name, names (variadic), or None (absent)."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """What every device stores of one tensor in one layout.

    Parameters
    ----------
    name : str
    tensor : str
    layout : Layout
    shape : tuple of int
        Of one device's block.
    dtype : str
    transient : bool
        Between two moves of one reshard.
    """

    name: str
    tensor: str
    layout: Layout
    shape: Shape
    dtype: str
    transient: bool = False


@dataclass(frozen=True, slots=True)
class LocalOp:
    """One op that every device runs on its own blocks.

    Parameters
    ----------
    node : str
    op : str
    operands : tuple
        Per operand of the op the buffers it reads.
    results : tuple of str
        The buffers it writes.
    attrs : tuple of mapping
        The attributes on each device, in the order of ``mesh.coordinates()``; equal ones are one object.
    reduces : tuple of int
        The mesh axes over which its kernel reduces the arrays that it hands over, in mesh order.
    itemsize : int
        The bytes of an element that such a reduction sends.
    """

    node: str
    op: str
    operands: tuple[BufferNames, ...]
    results: tuple[str, ...]
    attrs: tuple[Mapping[str, Any], ...]
    reduces: tuple[int, ...] = ()
    itemsize: int = 0


@dataclass(frozen=True, slots=True)
class Transfer:
    """One move of a reshard: a collective, or a local change of layout.

    Parameters
    ----------
    source, target : str
        Buffers.
    move : Move
    groups : tuple of tuple of int
        The device ids that take part together, one group a line of the mesh axis; all devices for a permute.
    """

    source: str
    target: str
    move: Move
    groups: tuple[tuple[int, ...], ...]


Step: TypeAlias = LocalOp | Transfer


@dataclass(frozen=True)
class Program:
    """What every device runs, step by step.

    Parameters
    ----------
    plan : Evaluation
        What it was lowered from.
    buffers : mapping
        Name -> buffer.
    steps : tuple of Step
    sources : mapping
        Input, parameter, state or constant -> the buffer that stores it.
    outputs : mapping
        Graph output -> the buffer that holds it at the end.
    """

    plan: Evaluation
    buffers: Mapping[str, Buffer]
    steps: tuple[Step, ...]
    sources: Mapping[str, str]
    outputs: Mapping[str, str]

    @property
    def problem(self) -> Problem:
        """The question that the plan answers."""
        return self.plan.problem

    def __str__(self) -> str:
        lines = []
        for step in self.steps:
            if isinstance(step, Transfer):
                axes = ",".join(self.problem.mesh.axes[axis] for axis in step.move.axes)
                lines.append(f"{step.target} = {step.move.kind}[{axes}]({step.source})  # {step.move.bytes} bytes sent")
            else:
                read = ", ".join(_written(names) for names in step.operands)
                lines.append(f"{', '.join(step.results)} = {step.op}({read})")
        return "\n".join(lines) or f"out = {', '.join(self.outputs.values())}"


def _written(names: BufferNames) -> str:
    return "None" if names is None else names if isinstance(names, str) else f"[{', '.join(names)}]"


def lower(plan: Evaluation) -> Program:
    """Lower a plan to the program that every device runs.

    Parameters
    ----------
    plan : Evaluation

    Returns
    -------
    Program
        Steps in the order of docs/semantics.md, section 5: before an op the copies that its uses ask for, after it the
        shared copies of its results, at the end the copies of graph outputs.
    """
    return _Lowering(plan).program()


@dataclass
class _Lowering:
    plan: Evaluation
    buffers: dict[str, Buffer] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    copies: dict[str, str] = field(default_factory=dict)

    def program(self) -> Program:
        graph = self.plan.problem.graph
        sources = {
            t.name: self._buffer(t.name, t.name, self.plan.made(t.name))
            for t in graph.tensors.values()
            if t.producer is None
        }
        for node in graph.nodes.values():
            self._op(node)
        outputs = {tensor: self._output(tensor) for tensor in graph.outputs}
        return Program(self.plan, self.buffers, tuple(self.steps), sources, outputs)

    def _op(self, node: Node) -> None:
        plan = self.plan
        read = {use.slot: self._operand(use) for use in plan.problem.graph.operand_uses(node.name)}
        slots = iter(range(sum(len(names) if isinstance(names, tuple) else 1 for names in node.operands)))
        operands = tuple(_grouped(names, slots, read) for names in node.operands)
        results = tuple(self._buffer(tensor, tensor, plan.made(tensor)) for tensor in node.results)
        rows = plan.rows(node.name)
        bound = plan.problem.bound[node.name]
        reduces = tuple(
            axis for axis, row in enumerate(rows) if row.cut is not None and bound.factors[row.cut[0]].kind == "synced"
        )
        attrs = self._attrs(node, bound, rows)
        self.steps.append(LocalOp(node.name, node.op, operands, results, attrs, reduces, self._itemsize(node)))
        for tensor in node.results:
            self._shared(tensor)  # a path of no moves where there is no copy

    def _itemsize(self, node: Node) -> int:
        """Return the item size of the dtype in which an op computes: what its floating operands meet in."""
        graph = self.plan.problem.graph
        dtypes = [graph.tensors[use.tensor].dtype for use in graph.operand_uses(node.name)]
        dtypes += [graph.tensors[tensor].dtype for tensor in node.results]
        floating = [dtype for dtype in dtypes if dtype.startswith(("float", "bfloat"))]
        return ITEMSIZE[promote(floating) if floating else dtypes[0]]

    def _operand(self, use: Use) -> str:
        plan = self.plan
        target = plan.needed(use)
        source = self._source(use.tensor, plan.source_of(use.tensor, target))
        return self._reshard(source, target, f"{use.tensor} for {use.name}")

    def _output(self, tensor: str) -> str:
        target = self.plan.delivered(tensor)
        source = self._source(tensor, self.plan.source_of(tensor, target))
        return self._reshard(source, target, f"{tensor} for {OUTPUT}")

    def _source(self, tensor: str, layout: Layout) -> str:
        """Return the buffer of what was made, or of the shared copy."""
        return tensor if layout == self.plan.made(tensor) else self._shared(tensor)

    def _shared(self, tensor: str) -> str:
        """Return the buffer of the shared copy of a tensor; it is made at the first call."""
        if tensor not in self.copies:
            self.copies[tensor] = self._reshard(tensor, self.plan.held(tensor), f"{tensor} held")
        return self.copies[tensor]

    def _reshard(self, source: str, target: Layout, name: str) -> str:
        """Add the moves from a buffer to a layout; return the buffer that they end in."""
        held = self.buffers[source]
        path = self.plan.table(held.tensor).path(held.layout, target)
        for count, move in enumerate(path, 1):
            last = count == len(path)
            free = self._free_name(name if last else f"{name} via {count}")
            reached = self._buffer(held.tensor, free, move.target, transient=not last)
            self.steps.append(Transfer(source, reached, move, self._groups(move)))
            source = reached
        return source

    def _free_name(self, name: str) -> str:
        """Return a name for a buffer that no tensor and no other buffer has."""
        while name in self.buffers or name in self.plan.problem.graph.tensors:
            name += "'"
        return name

    def _groups(self, move: Move) -> tuple[tuple[int, ...], ...]:
        mesh = self.plan.problem.mesh
        if len(move.axes) == 1:
            return tuple(map(tuple, mesh.groups(move.axes[0])))
        return (tuple(int(device) for device in mesh.device_ids.reshape(-1)),)

    def _buffer(self, tensor: str, name: str, layout: Layout, *, transient: bool = False) -> str:
        problem = self.plan.problem
        fact = problem.graph.tensors[tensor]
        shape = local_shape(layout, fact.shape, problem.parts(tensor), problem.mesh.sizes)
        self.buffers[name] = Buffer(name, tensor, layout, shape, fact.dtype, transient)
        return name

    def _attrs(self, node: Node, bound: BoundRule, rows: Sequence[Row]) -> tuple[Mapping[str, Any], ...]:
        """Return the attributes of an op on each device; equal ones are one object."""
        op, mesh = rule_for(node.op), self.plan.problem.mesh
        found: list[Mapping[str, Any]] = []
        for coordinate in mesh.coordinates():
            placed = zip(rows, mesh.sizes, coordinate, strict=True)
            cuts = [Cut(*row.cut, size, place) for row, size, place in placed if row.cut is not None]
            attrs = local_attrs(op, node.attrs, Device(bound, cuts))
            found.append(next((same for same in found if same == attrs), attrs))
        return tuple(found)


def _grouped(names: str | tuple[str, ...] | None, slots: Iterator[int], read: Mapping[int, str]) -> BufferNames:
    if isinstance(names, tuple):
        return tuple(read[next(slots)] for _ in names)
    return read.get(next(slots))
