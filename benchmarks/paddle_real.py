"""PaddlePaddle's own completion of a program, read back onto our graph.

A program is written in PIR with its inputs and parameters placed by `paddle.distributed.shard_tensor`, on a mesh of any
size in one process: each op's rule of Paddle runs when the op is added, forward and then in `append_backward`. What the
rules say, `op.dist_attr`, is where each op reads its operands and makes its results; Paddle's partition pass puts a
reshard wherever a tensor lies otherwise.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist
from paddle.distributed.auto_parallel.static.mix_to_dist_pass import apply_mix2dist_pass
from paddle.distributed.auto_parallel.static.pir_pass import ReshardPasses, apply_partition_pass

from ops.placement import Layout, Partial, Placement, Replicate, Shard, parse_placement
from solver.graph import Graph
from solver.greedy.follow import Followed, follow
from solver.importers.paddle_ops import translate
from solver.importers.paddle_placements import KINDS
from solver.importers.paddle_reading import STRUCTURE, Reading
from solver.importers.paddle_site import Site
from solver.importers.sketch import Step, Value
from solver.mesh import Mesh
from solver.problem import Problem, problem

COMMUNICATION = {
    "pd_op.all_reduce": "all_reduce",
    "pd_op.all_gather": "all_gather",
    "pd_op.reduce_scatter": "reduce_scatter",
    "pd_op.all_to_all": "all_to_all",
}
"""Ops that Paddle's reshard pass writes, and our names of them."""


@dataclass
class Writer:
    """What a network is written with: its inputs and parameters, placed.

    Parameters
    ----------
    mesh : Mesh
    placements : mapping
        Input or parameter -> ``"dp=S(0),tp=R"``; replicated where nothing is said.
    """

    mesh: Mesh
    placements: Mapping[str, str]

    def __post_init__(self) -> None:
        ids = np.arange(math.prod(self.mesh.sizes)).reshape(self.mesh.sizes)
        self.process_mesh = dist.ProcessMesh(ids, dim_names=list(self.mesh.axes))

    def data(self, name: str, shape: tuple[int, ...], dtype: str = "float32") -> Any:
        """Add an input."""
        return self._place(name, paddle.static.data(name, list(shape), dtype))

    def parameter(self, name: str, *shape: int) -> Any:
        """Add a parameter."""
        return self._place(name, paddle.create_parameter(list(shape), "float32", attr=paddle.ParamAttr(name=name)))

    def _place(self, name: str, value: Any) -> Any:
        wish = dict(one.split("=") for one in self.placements.get(name, "").split(",") if one)
        placed = [parse_placement(wish.get(axis, "R")) for axis in self.mesh.axes]
        return dist.shard_tensor(value, self.process_mesh, [_theirs(one) for one in placed])


@dataclass(frozen=True)
class Completed:
    """A program that PaddlePaddle has completed, as a graph of ours.

    Parameters
    ----------
    graph : Graph
    placed : mapping
        Input or parameter -> the layout that was asked for.
    held : mapping
        Tensor -> the layout that the program gives it, to which what its op makes is resharded at once.
    made : mapping
        Tensor -> the layout in which its op makes it; a source as it is stored. What only one of both has is not there.
    needed : mapping
        Use, ``op/operand`` -> the layout in which the op reads it.
    ops : mapping
        Op of ours -> the op of Paddle that it came from.
    collectives : mapping or None
        Kind -> how many Paddle's partition and reshard passes write; None where they fail.
    """

    graph: Graph
    placed: Mapping[str, Layout]
    made: Mapping[str, Layout]
    held: Mapping[str, Layout]
    needed: Mapping[str, Layout]
    ops: Mapping[str, str]
    collectives: Mapping[str, int] | None

    def problem(self, mesh: Mesh) -> Problem:
        """Return the question for a planner of ours: inputs and parameters are pinned where they were placed."""
        pins = {name: dict(zip(mesh.axes, layout, strict=True)) for name, layout in self.placed.items()}
        return problem(self.graph, mesh, pins=pins)

    def plan(self, mesh: Mesh) -> Followed:
        """Return Paddle's layouts as a plan of ours, with our prices."""
        return follow(self.problem(mesh), self.made, self.needed, self.held)


def complete(
    write: Callable[[Writer], Any], mesh: Mesh, placements: Mapping[str, str], *, backward: bool = True
) -> Completed:
    """Let PaddlePaddle complete a network.

    Parameters
    ----------
    write : callable
        Writes the network with a `Writer` and returns its loss.
    mesh : Mesh
    placements : mapping
        Input or parameter -> ``"dp=S(0),tp=R"``.
    backward : bool, optional
        With what `append_backward` adds.

    Returns
    -------
    Completed
    """
    writer = Writer(mesh, placements)
    paddle.enable_static()
    program, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(program, startup), paddle.utils.unique_name.guard():
        loss = write(writer)
        apply_mix2dist_pass(program)
        gradients = paddle.static.append_backward(loss) if backward else []
    return read(program, len(mesh.sizes), [loss], [pair for pair in gradients if pair[1] is not None])


def read(program: Any, axes: int, fetch: Sequence[Any] = (), gradients: Sequence[Any] = ()) -> Completed:
    """Read a completed program, and let Paddle partition it.

    Parameters
    ----------
    program : paddle.static.Program
        With all of its inputs and parameters placed.
    axes : int
        How many its mesh has.
    fetch, gradients : sequence, optional
        As `solver.from_paddle` takes them.

    Returns
    -------
    Completed
    """
    found = _Read(program.global_block(), axes)
    found.reading.leave(fetch, gradients)
    graph, _ = found.reading.sketch.to_graph()
    made, held, needed, ops = found.named(graph)
    placed = {name: layout for name, layout in held.items() if graph.tensors[name].producer is None}
    return Completed(graph, placed, placed | made, held, needed, ops, _partitioned(program))


def _partitioned(program: Any) -> dict[str, int] | None:
    """Let Paddle write the reshards and their collectives; return how many of each kind, None where its pass fails."""
    try:
        apply_partition_pass(program)
        ReshardPasses.apply_reshard_pass(program)
    except (AssertionError, AttributeError, RuntimeError, ValueError):
        return None
    found = Counter(COMMUNICATION.get(op.name(), "") for op in program.global_block().ops)
    return {kind: count for kind, count in sorted(found.items()) if kind}


class _Read:
    """One pass over a program: its ops as steps of ours, and what each op says of the tensors it touches."""

    def __init__(self, block: Any, axes: int) -> None:
        self.reading = Reading("program", {}, {})
        self.axes = axes
        self.made: list[tuple[Value, Layout]] = []
        self.held: list[tuple[Value, Layout]] = []
        self.needed: list[tuple[Step, Value, Layout]] = []
        self.theirs: list[tuple[Step, str]] = []
        for op in block.ops:
            before = len(self.reading.sketch.steps)
            if op.name() in STRUCTURE:
                STRUCTURE[op.name()](self.reading, op)
            else:
                translate(site := Site(op, self.reading))
                self.reading._note_end(site)
            self._tell(op, self.reading.sketch.steps[before:])

    def _tell(self, op: Any, steps: list[Step]) -> None:
        for source in op.results():
            found = self.reading.values.get(source.id) if source.initialized() and source.is_dist() else None
            if isinstance(found, Value) and found.role != "known":
                self.held.append((found, layout_of(source.dist_attr(), self.axes)))
        if op.dist_attr is None or op.name() == "builtin.combine":
            return
        self.theirs += [(step, op.name()) for step in steps]
        for value, layout in self._listed(op.results(), op.dist_attr.results()):
            if value.role != "known" and (value.maker is None or value.maker in steps):
                self.made.append((value, layout))
        asked = list(self._listed(op.operands_source(), op.dist_attr.operands()))
        for step in steps:
            for value in step.inputs():
                for index, (own, layout) in enumerate(asked):
                    if own is value:
                        self.needed.append((step, value, layout))
                        del asked[index]
                        break

    def _listed(self, values: Any, attrs: Any) -> Iterator[tuple[Value, Layout]]:
        """Yield what stands behind the values of a program, lists taken apart, and where each lies."""
        for source, attr in zip(values, attrs, strict=True):
            found = self.reading.values.get(source.id) if source.initialized() and attr else None
            if isinstance(found, Value):
                yield found, layout_of(attr.as_tensor_dist_attr(), self.axes)
            elif found is not None:
                listed = attr.as_array_attr()
                for one, own in zip(found, [listed[index] for index in range(len(listed))], strict=True):
                    yield one, layout_of(own.as_tensor_dist_attr(), self.axes)

    def named(self, graph: Graph) -> tuple[dict[str, Layout], dict[str, Layout], dict[str, Layout], dict[str, str]]:
        """Return what was made and needed, and their ops, by the names of a graph."""
        names = self.reading.sketch.names
        made = {names[id(value)]: layout for value, layout in self.made if id(value) in names}
        held = {names[id(value)]: layout for value, layout in self.held if id(value) in names}
        needed: dict[str, Layout] = {}
        for step, value, layout in self.needed:
            if id(step.results[0]) not in names:
                continue
            node = str(graph.tensors[names[id(step.results[0])]].producer)
            free = [
                use.name
                for use in graph.operand_uses(node)
                if use.tensor == names[id(value)] and use.name not in needed
            ]
            needed |= {free[0]: layout} if free else {}
        ops = {
            str(graph.tensors[names[id(step.results[0])]].producer): name
            for step, name in self.theirs
            if id(step.results[0]) in names
        }
        return made, held, needed, ops


def layout_of(attr: Any, axes: int) -> Layout:
    """Return the layout that an attribute of Paddle stands for."""
    found: list[Placement] = [Replicate()] * axes
    for axis, placement in enumerate(attr.placements):
        if placement.is_shard():
            found[axis] = Shard(placement.get_dim())
        elif placement.is_partial():
            found[axis] = Partial(KINDS[str(placement.reduce_type()).rpartition(".")[2]])
    return tuple(found)


def _theirs(placement: Placement) -> Any:
    return dist.Shard(placement.dim) if isinstance(placement, Shard) else dist.Replicate()
