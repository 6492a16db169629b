"""DTensor's own propagation over a captured graph of aten ops, read back onto our graph.

Nothing runs and nothing communicates: under a fake process group each aten call is given to DTensor's propagator with
the layouts that its operands have by then, in the order in which eager PyTorch would run them, as DTensor's dispatcher
does. It answers where the call reads its operands, after redistributing them, and makes its results.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.tensor import DeviceMesh, DTensor
from torch.distributed.tensor import Partial as TheirPartial
from torch.distributed.tensor import Replicate as TheirReplicate
from torch.distributed.tensor import Shard as TheirShard
from torch.distributed.tensor._collective_utils import redistribute_cost
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._op_schema import OpSchema

from benchmarks.agreement import Told, told
from ops.placement import PARTIAL_KINDS, Layout, Partial, Placement, Replicate, Shard, parse_placement
from solver.graph import Graph
from solver.greedy.dtensor import HOST, Choosing
from solver.greedy.follow import Followed, follow
from solver.greedy.walk import Walk
from solver.importers.aten import _Reading
from solver.importers.capture import Capture, CapturedNode, Ref, Spec
from solver.importers.sketch import Value
from solver.mesh import Mesh
from solver.problem import Problem, problem

WORLD = 1024
"""Devices of the fake process group: more than any mesh of a benchmark has."""


@cache
def device_mesh(mesh: Mesh) -> Any:
    """Return a mesh of DTensor whose collectives do nothing."""
    join_fake_world()
    ids = np.arange(math.prod(mesh.sizes)).reshape(mesh.sizes)
    return DeviceMesh("cpu", torch.from_numpy(ids), mesh_dim_names=mesh.axes)


def join_fake_world() -> None:
    """Begin a process group that does nothing, once in a process, on hosts of as many devices as ours has."""
    from torch.distributed.device_mesh import _mesh_resources
    from torch.testing._internal.distributed.fake_pg import FakeStore

    _mesh_resources.num_devices_per_host = lambda kind: HOST
    if not dist.is_initialized():
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=WORLD)


@dataclass(frozen=True)
class Call:
    """One aten call as DTensor propagates it.

    Parameters
    ----------
    node : CapturedNode
    steps : tuple of str
        The ops of ours that it becomes.
    read : tuple of str
        The nodes of the capture that it reads, in order.
    reads : tuple
        The layout of each before the call; None for one that ours cannot say.
    needed, made : tuple
        Per tensor that it reads, in order, and per result: the layout.
    refused : str
        What DTensor says where it has no strategy for the call; then all of its tensors are taken whole.
    """

    node: CapturedNode
    steps: tuple[str, ...]
    read: tuple[str, ...]
    reads: tuple[Layout | None, ...]
    needed: tuple[Layout | None, ...]
    made: tuple[Layout | None, ...]
    refused: str = ""


@dataclass(frozen=True)
class Propagated:
    """A capture that DTensor has propagated, as a graph of ours.

    Parameters
    ----------
    graph : Graph
    placed : mapping
        Source -> the layout that was asked for.
    calls : tuple of Call
    tensors : mapping
        Node of the capture, or node and number of one of several results -> the tensor of ours.
    made : mapping
        Tensor -> the layout in which DTensor makes it; a tensor of ours that stands in the middle of a call has none.
    """

    graph: Graph
    placed: Mapping[str, Layout]
    calls: tuple[Call, ...]
    tensors: Mapping[str, str]
    made: Mapping[str, Layout]

    def problem(self, mesh: Mesh) -> Problem:
        """Return the question for a planner of ours: inputs and parameters are pinned where they were placed."""
        pins = {name: dict(zip(mesh.axes, layout, strict=True)) for name, layout in self.placed.items()}
        return problem(self.graph, mesh, pins=pins)

    def plan(self, mesh: Mesh) -> Followed:
        """Return DTensor's layouts as a plan of ours, with our prices."""
        return follow(self.problem(mesh), self.made, self.needed)

    @property
    def needed(self) -> dict[str, Layout]:
        """Use -> the layout in which DTensor reads it, of calls that are one op of ours."""
        found: dict[str, Layout] = {}
        for call in self.calls:
            if call.refused or len(call.steps) != 1:
                continue
            uses = self.graph.operand_uses(call.steps[0])
            for name, layout in zip(call.read, call.needed, strict=False):
                free = [use.name for use in uses if use.tensor == self.tensors.get(name) and use.name not in found]
                if layout is not None and free:
                    found[free[0]] = layout
        return found

    @property
    def refused(self) -> Counter[str]:
        """Which aten ops DTensor has no strategy for, and how often they are called."""
        return Counter(call.node.op for call in self.calls if call.refused)


def their_cost(shape: tuple[int, ...], mesh: Mesh, source: Layout, target: Layout) -> float:
    """Return what DTensor says that a redistribution of a float32 tensor costs, in microseconds."""
    meta = _meta(Spec(shape, "float32"))
    specs = [DTensorSpec(device_mesh(mesh), tuple(map(_theirs, one)), tensor_meta=meta) for one in (source, target)]
    return float(redistribute_cost(*specs))


def op_by_op(theirs: Propagated, mesh: Mesh) -> Iterator[Told]:
    """Yield what DTensor and our re-creation of it do at each call, of the operands that DTensor has there.

    Calls that DTensor refuses, and those whose operands lie in a way that we cannot say, are left out.

    Parameters
    ----------
    theirs : Propagated
    mesh : Mesh

    Yields
    ------
    Told
    """
    walk = Walk(theirs.problem(mesh))
    choosing, nodes = Choosing(walk), theirs.graph.nodes
    for call in theirs.calls:
        if not call.steps:
            continue
        known = [
            _hold(walk, theirs.tensors[name], layout)
            for name, layout in zip(call.read, call.reads, strict=True)
            if name in theirs.tensors
        ]
        for step in call.steps:
            walk.take(step, choosing.choice(nodes[step]))
        results = [name for name in _results(call) if name in theirs.tensors]
        tensors = [theirs.tensors[name] for name in results]
        ours = [walk.made[tensor] for tensor in tensors]
        said = [_known(walk, tensor, theirs.made.get(tensor)) for tensor in tensors]
        if all(known) and not call.refused and all(one is not None for one in said):
            text = f"{call.node.op}: in {told(call.reads)} | theirs {told(call.needed)} -> {told(said)} | "
            yield Told(nodes[call.steps[-1]], text + f"ours -> {told(ours)}", said == ours)
        for tensor in tensors:
            _hold(walk, tensor, theirs.made.get(tensor))


def _results(call: Call) -> list[str]:
    return [call.node.name, *(f"{call.node.name}.{index}" for index in range(len(call.made)))]


def _known(walk: Walk, tensor: str, layout: Layout | None) -> Layout | None:
    return None if layout is None else walk.known(tensor, layout)


def _hold(walk: Walk, tensor: str, layout: Layout | None) -> bool:
    """Let uses read a tensor where DTensor has it; tell whether ours can lie so."""
    known = _known(walk, tensor, layout)
    if known is not None:
        walk.hold(tensor, known)
    return known is not None


def propagate(capture: Capture, mesh: Mesh, placements: Mapping[str, str]) -> Propagated:
    """Let DTensor propagate layouts through a capture.

    Parameters
    ----------
    capture : Capture
    mesh : Mesh
    placements : mapping
        Input, parameter or buffer of the graph -> ``"dp=S(0),tp=R"``; replicated where nothing is said.

    Returns
    -------
    Propagated
    """
    return _Run(capture, mesh, placements).run()


@dataclass
class _Run:
    capture: Capture
    mesh: Mesh
    placements: Mapping[str, str]
    specs: dict[str, Any] = field(default_factory=dict)
    calls: list[tuple[Call, int, int]] = field(default_factory=list)

    def run(self) -> Propagated:
        reading = _Reading(self.capture)
        value, steps = reading._value, reading.sketch.steps

        def telling(node: CapturedNode) -> Any:
            before = len(steps)
            made = value(node)
            self._node(node, before, len(steps))
            return made

        reading._value = telling  # type: ignore[method-assign]
        source = reading._source

        def telling_source(node: CapturedNode) -> Value:
            made = source(node)
            self.specs[node.name] = self._spec(node.val, self._asked(made.name))
            return made

        reading._source = telling_source  # type: ignore[method-assign]
        graph, names = reading.run(), reading.sketch.names
        tensors = {
            key: names[id(one)]
            for node, found in reading.scope.items()
            for key, one in _numbered(node, found)
            if id(one) in names
        }
        makers = {index: graph.tensors[names[id(step.results[0])]].producer
                  for index, step in enumerate(steps) if id(step.results[0]) in names}  # fmt: skip
        calls = tuple(
            Call(**{**vars(call), "steps": tuple(makers[i] for i in range(begin, end) if makers.get(i))})
            for call, begin, end in self.calls
        )
        made: dict[str, Layout] = {}
        for node, spec in self.specs.items():
            for key, one in _numbered(node, spec):
                layout = self._layout(one)
                if key in tensors and layout is not None:
                    made.setdefault(tensors[key], layout)  # a later alias may have been redistributed
        sources = {name for name, tensor in graph.tensors.items() if tensor.producer is None}
        placed = {
            name: layout for name, layout in made.items() if name in sources and graph.tensors[name].role != "constant"
        }
        return Propagated(graph, placed, calls, tensors, made)

    def _asked(self, name: str) -> list[Placement]:
        wish = dict(one.split("=") for one in self.placements.get(name, "").split(",") if one)
        return [parse_placement(wish.get(axis, "R")) for axis in self.mesh.axes]

    def _spec(self, val: Any, layout: Any) -> Any:
        return DTensorSpec(device_mesh(self.mesh), tuple(map(_theirs, layout)), tensor_meta=_meta(val))

    def _whole(self, val: Any) -> Any:
        if isinstance(val, tuple):
            return tuple(None if one is None else self._whole(one) for one in val)
        return None if val is None else self._spec(val, [Replicate()] * len(self.mesh.axes))

    def _node(self, node: CapturedNode, begin: int, end: int) -> None:
        if node.op == "getitem":
            several = self.specs[node.args[0].name]
            self.specs[node.name] = several[node.args[1]] if isinstance(several, tuple | list) else several
            return
        if node.val is None:
            return
        if node.op == "constant":
            self.specs[node.name] = self._whole(node.val)
            return
        read: list[str] = []

        def given(arg: Any) -> Any:
            if isinstance(arg, Ref):
                read.append(arg.name)
                return self.specs[arg.name]
            if isinstance(arg, list | tuple):
                return [given(one) for one in arg]
            return _plain(arg)

        args = tuple(given(arg) for arg in node.args)
        kwargs = {key: given(arg) for key, arg in node.kwargs.items()}
        before = [self.specs[name] for name in read]
        refused, needed = "", before
        if not read:
            self.specs[node.name] = self._whole(node.val)
        else:
            propagator, op = DTensor._op_dispatcher.sharding_propagator, _overload(node.op)
            schema = OpSchema(op, args, kwargs, schema_info=_schema_info(propagator, op))
            try:
                answer = propagator.propagate_op_sharding_non_cached(schema)
            # How DTensor refuses a call differs from op to op; each refusal is kept, and counted by the tests.
            except (AssertionError, IndexError, NotImplementedError, RuntimeError, ValueError, TypeError) as error:
                refused = str(error).partition("\n")[0] or type(error).__name__
                self.specs[node.name] = self._whole(node.val)
                needed = [self._whole(Spec(tuple(one.shape), "float32")) for one in before]
            else:
                made = answer.output_spec
                self.specs[node.name] = tuple(made) if isinstance(made, list | tuple) else made
                if answer.needs_redistribute and answer.redistribute_schema is not None:
                    needed = list(answer.redistribute_schema.args_spec) or before
        results = [one for _, one in _numbered(node.name, self.specs[node.name])]
        call = Call(
            node,
            (),
            tuple(read),
            tuple(map(self._layout, before)),
            tuple(map(self._layout, needed)),
            tuple(map(self._layout, results)),
            refused,
        )
        self.calls.append((call, begin, end))

    def _layout(self, spec: Any) -> Layout | None:
        """Return the layout that a spec stands for; None for one that ours cannot say."""
        if spec is None:
            return None
        found = tuple(_ours(one) for one in spec.placements)
        return None if None in found else tuple(one for one in found if one is not None)


def _numbered(node: str, found: Any) -> Iterator[tuple[str, Any]]:
    """Yield what a node gives by its name; several things by its name and their numbers."""
    if isinstance(found, list | tuple):
        yield from ((f"{node}.{index}", one) for index, one in enumerate(found) if one is not None)
    elif found is not None:
        yield node, found


def _ours(placement: Any) -> Placement | None:
    if isinstance(placement, TheirReplicate):
        return Replicate()
    if isinstance(placement, TheirPartial):
        return Partial(placement.reduce_op) if placement.reduce_op in PARTIAL_KINDS else None
    return Shard(placement.dim) if type(placement) is TheirShard else None


def _theirs(placement: Placement) -> Any:
    if isinstance(placement, Partial):
        return TheirPartial(placement.kind)
    return TheirShard(placement.dim) if isinstance(placement, Shard) else TheirReplicate()


def _meta(spec: Spec) -> TensorMeta:
    empty = torch.empty(spec.shape, dtype=getattr(torch, spec.dtype), device="meta")
    return TensorMeta(empty.shape, empty.stride(), empty.dtype)


def _overload(name: str) -> Any:
    namespace, packet, own = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), own)


def _schema_info(propagator: Any, op: Any) -> Any:
    return propagator.op_to_schema_info.get(op) or propagator.op_to_schema_info_for_single_dim_strategy.get(op)


def _plain(arg: Any) -> Any:
    """Return an argument that is no tensor as PyTorch takes it."""
    if isinstance(arg, str) and arg.startswith("torch."):
        return getattr(torch, arg.removeprefix("torch."))
    return arg
