"""The SPMD program that a plan lowers to: local ops with localised attributes, and moves between devices."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from ops.bind import BoundRule, Row, Shape
from ops.halo import Exchange, exchanges
from ops.placement import Layout
from ops.registry import rule_for
from ops.run import Cut, Device, local_attrs
from solver.choice import OUTPUT, Evaluation
from solver.cost.compute import computed_in
from solver.cost.kernel_steps import KernelStep
from solver.cost.reshard import Move
from solver.graph import Node, Use
from solver.graph_values import ITEMSIZE
from solver.layout import local_shape
from solver.problem import Problem

Exchanged: TypeAlias = tuple[Exchange, KernelStep]
"""An exchange of borders and its price."""
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
    shapes : tuple of tuple of int
        Where it comes with borders, its shape on each device, in the order of ``mesh.coordinates()``; else empty.
    """

    name: str
    tensor: str
    layout: Layout
    shape: Shape
    dtype: str
    transient: bool = False
    shapes: tuple[Shape, ...] = ()


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


@dataclass(frozen=True, slots=True)
class Borders:
    """One exchange of borders around a kernel: gathered before it, or, what it made beyond its block, added up after.

    Parameters
    ----------
    node : str
        The op.
    source, target : str
        Buffers; the one on the side of the kernel has borders.
    step : KernelStep
    exchange : Exchange
    groups : tuple of tuple of int
        The device ids that take part together, in the order of their blocks.
    """

    node: str
    source: str
    target: str
    step: KernelStep
    exchange: Exchange
    groups: tuple[tuple[int, ...], ...]


Step: TypeAlias = LocalOp | Transfer | Borders


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
            if isinstance(step, LocalOp):
                read = ", ".join(_written(names) for names in step.operands)
                inside = [one for one in self.plan.kernel(step.node) if not one.tensor]
                told = "".join(f", {one.kind}[{self._axes(one.axes)}] {one.bytes} bytes sent" for one in inside)
                lines.append(f"{', '.join(step.results)} = {step.op}({read})" + f"  # {told[2:]}" * bool(told))
            else:
                what = step.move if isinstance(step, Transfer) else step.step
                called = f"{what.kind}[{self._axes(what.axes)}]({step.source})"
                lines.append(f"{step.target} = {called}  # {what.bytes} bytes sent")
        return "\n".join(lines) or f"out = {', '.join(self.outputs.values())}"

    def _axes(self, axes: Sequence[int]) -> str:
        return ",".join(self.problem.mesh.axes[axis] for axis in axes)


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
        rows = plan.rows(node.name)
        bound = plan.problem.bound[node.name]
        planned = self._exchanges(node)
        for slot, applied in _by_slot(planned, adds=False):
            read[slot] = self._gather(node, read[slot], applied)
        operands = tuple(_grouped(names, slots, read) for names in node.operands)
        results = [self._buffer(tensor, tensor, plan.made(tensor)) for tensor in node.results]
        after: list[Borders] = []
        for slot, applied in _by_slot(planned, adds=True):
            after += self._scatter(node, results[slot], applied)
            results[slot] = after[-len(applied)].source
        synced = [step.axes[0] for step in plan.kernel(node.name) if not step.tensor]
        reduces = tuple(dict.fromkeys(synced))  # a kernel hands over one array after the other
        attrs, itemsize = self._attrs(node, bound, rows), ITEMSIZE[computed_in(node, bound, plan.dtypes(node.name))]
        self.steps += [LocalOp(node.name, node.op, operands, tuple(results), attrs, reduces, itemsize), *after]
        for tensor in node.results:
            self._shared(tensor)  # a path of no moves where there is no copy

    # ------------------------------------------------------------------------------------------------------- borders

    def _exchanges(self, node: Node) -> list[Exchanged]:
        """Return what devices exchange around the kernel of an op, each with its price."""
        told = [step for step in self.plan.kernel(node.name) if step.tensor]
        if not told:
            return []
        bound = self.plan.problem.bound[node.name]
        device = self._device(bound, self.plan.rows(node.name), [0] * len(self.plan.problem.mesh.sizes))
        return list(zip(exchanges(rule_for(node.op), bound, node.attrs, device.counts), told, strict=True))

    def _gather(self, node: Node, source: str, applied: Sequence[Exchanged]) -> str:
        """Add the exchanges that bring an operand its borders; return the buffer that has them."""
        like = source
        for count, (exchange, step) in enumerate(applied, 1):
            target = self._bordered(like, applied[:count])
            self.steps.append(Borders(node.name, source, target, step, exchange, self._lines(step.axes)))
            source = target
        return source

    def _scatter(self, node: Node, target: str, applied: Sequence[Exchanged]) -> list[Borders]:
        """Return the exchanges that add up what a kernel has made beyond its block; the last one ends in a result."""
        found: list[Borders] = []
        source = self._bordered(target, applied)
        for count, (exchange, step) in enumerate(applied, 1):
            reached = target if count == len(applied) else self._bordered(target, applied[count:])
            found.append(Borders(node.name, source, reached, step, exchange, self._lines(step.axes)))
            source = reached
        return found

    def _bordered(self, like: str, applied: Sequence[Exchanged]) -> str:
        """Add a buffer like another one, with borders along the dims of some exchanges."""
        mesh, buffer = self.plan.problem.mesh, self.buffers[like]
        shapes = []
        for coordinate in mesh.coordinates():
            shape = list(buffer.shape)
            for exchange, step in applied:
                first, end = exchange.ranges[_block(step.axes, coordinate, mesh.sizes)]
                shape[exchange.dim] = end - first
            shapes.append(tuple(shape))
        name = self._free_name(f"{like} with borders")
        self.buffers[name] = replace(buffer, name=name, transient=True, shapes=tuple(shapes))
        return name

    def _lines(self, axes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Return the device ids that differ on some mesh axes only, in the order of the blocks that these cut."""
        ids = self.plan.problem.mesh.device_ids
        others = [axis for axis in range(ids.ndim) if axis not in axes]
        sizes = self.plan.problem.mesh.sizes
        lines = ids.transpose(*others, *axes).reshape(-1, math.prod(sizes[axis] for axis in axes))
        return tuple(tuple(int(device) for device in line) for line in lines)

    # ------------------------------------------------------------------------------------------------------ reshards

    def _operand(self, use: Use) -> str:
        plan = self.plan
        target = plan.needed(use)
        source = self._source(use.tensor, plan.source_of(use.tensor, target, use.name))
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
        path = self.plan.path(held.tensor, held.layout, target)
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
            attrs = local_attrs(op, node.attrs, self._device(bound, rows, coordinate))
            found.append(next((same for same in found if same == attrs), attrs))
        return tuple(found)

    def _device(self, bound: BoundRule, rows: Sequence[Row], coordinate: Sequence[int]) -> Device:
        placed = zip(rows, self.plan.problem.mesh.sizes, coordinate, strict=True)
        return Device(bound, [Cut(*row.cut, size, place) for row, size, place in placed if row.cut is not None])


def _by_slot(planned: Sequence[Exchanged], *, adds: bool) -> Iterator[tuple[int, list[Exchanged]]]:
    """Yield the exchanges of each operand, or of each result, in order."""
    wanted = [one for one in planned if one[0].adds == adds]
    for slot in dict.fromkeys(exchange.slot for exchange, _ in wanted):
        yield slot, [one for one in wanted if one[0].slot == slot]


def _block(axes: Sequence[int], coordinate: Sequence[int], sizes: Sequence[int]) -> int:
    """Return which block a device holds of what some mesh axes cut."""
    index = 0
    for axis in axes:
        index = index * sizes[axis] + coordinate[axis]
    return index


def _grouped(names: str | tuple[str, ...] | None, slots: Iterator[int], read: Mapping[int, str]) -> BufferNames:
    if isinstance(names, tuple):
        return tuple(read[next(slots)] for _ in names)
    return read.get(next(slots))
