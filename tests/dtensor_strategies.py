"""What DTensor lets an aten call take and make on one mesh axis, asked of its own tables, and what we let it.

Nothing communicates: the process group is a fake one, and only strategies are read. A row is written as in the truth
harness, ``S(0) R -> P(sum)``: a placement for each tensor of the call in the order of its first use, then the results.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from aten_cases.case import Case, Item, Node, T
from test_aten_lowering import Call
from truth_mesh import agree, assemble, blocks, split

import ops
from ops import composes
from solver import Graph
from solver.importers.aten import lower
from solver.importers.capture import INPUT, Capture, CapturedNode
from solver.importers.errors import ImporterError

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'shardproof[torch]'")
distributed = pytest.importorskip("torch.distributed.tensor", reason="needs a PyTorch with DTensor")

from benchmarks.torch_real import join_fake_world  # noqa: E402

SIZE = 2
COMBINATIONS = 24
"""Placements of the arguments of a call that strategies are asked for; more are sampled."""
KINDS = ("sum", "avg", "max", "min")

Slot = T | Item | Node
"""A tensor that a call reads: a random one, or what an op before it made."""
Row = tuple[tuple[ops.Placement, ...], tuple[ops.Placement, ...]]


def row_text(case: Case, call: Call, row: Row) -> str:
    """Write a row with its op and the dtypes that it reads: ``aten.add.Tensor(float32, int64) P(sum) R -> P(sum)``."""
    dtypes = ", ".join(str(call.real(slot).dtype).removeprefix("torch.") for slot in dict.fromkeys(tensors_of(case)))
    return f"{case.op}({dtypes}) {' '.join(map(str, row[0]))} -> {' '.join(map(str, row[1]))}"


# --------------------------------------------------------------------------------------------------------- DTensor


@cache
def mesh() -> Any:
    """A mesh of two devices whose collectives do nothing."""
    join_fake_world()
    return distributed.DeviceMesh("cpu", list(range(SIZE)))


def overload(name: str) -> Any:
    namespace, packet, own = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), own)


def is_registered(name: str) -> bool:
    known = distributed.DTensor._op_dispatcher.sharding_propagator
    return overload(name) in known.op_single_dim_strategy_funcs or overload(name) in known.op_strategy_funcs


def tensors_of(case: Case) -> list[Slot]:
    """The tensors of a call, argument by argument, the same one as often as it stands there."""

    def listed(arg: Any) -> Iterator[Slot]:
        if isinstance(arg, Slot):
            yield arg
        elif isinstance(arg, list | tuple):
            for one in arg:
                yield from listed(one)

    return [tensor for arg in (*case.args, *case.kwargs.values()) for tensor in listed(arg)]


def their_rows(case: Case, call: Call) -> set[Row]:
    """Every strategy that DTensor lists for a call, whatever the placements of the arguments are."""
    slots = tensors_of(case)
    found: set[Row] = set()
    for placed in _placements([call.real(slot) for slot in slots]):
        try:
            strategies = _strategies(case, call, dict(enumerate(placed)))
        except RuntimeError:  # A placement that an op in place cannot keep.
            continue
        for strategy in strategies:
            specs = strategy.input_specs or [strategy.output_spec] * len(slots)
            made = strategy.output_specs
            results = made if isinstance(made, list | tuple) else [made]
            row = _row(call, slots, list(specs), [spec for spec in results if spec is not None])
            if row is not None:
                found.add(_as_wanted(row, case, call))
    return found


def _as_wanted(row: Row, case: Case, call: Call) -> Row:
    """Keep the placements of the results that a case compares; DTensor may write one for all."""
    if len(row[1]) == 1:
        return row[0], row[1] * len(call.wanted)
    made = list(call.result) if isinstance(call.result, list | tuple) else [call.result]
    wanted = [index for index in case.results or range(len(made)) if made[index] is not None]
    return row[0], tuple(row[1][index] for index in wanted) if len(row[1]) == len(made) else row[1]


def _placements(tensors: Sequence[Any]) -> list[tuple[Any, ...]]:
    replicate, shard, partial = distributed.Replicate(), distributed.Shard, distributed.Partial
    choices: list[list[Any]] = []
    for tensor in tensors:
        cut = [shard(dim) for dim, size in enumerate(tensor.shape) if size % SIZE == 0]
        own = [partial(kind) for kind in KINDS] if tensor.is_floating_point() else []
        choices.append([replicate, *cut, *own])
    single = [
        tuple(placed if place == other else replicate for other in range(len(tensors)))
        for place, listed in enumerate(choices)
        for placed in listed
    ]
    every = list(itertools.islice(itertools.product(*choices), 20 * COMBINATIONS))
    draw = random.Random(7)
    return [*single, *(draw.sample(every, COMBINATIONS) if len(every) > COMBINATIONS else every)]


def _strategies(case: Case, call: Call, placed: dict[int, Any]) -> list[Any]:
    from torch.distributed.tensor._op_schema import OpStrategy
    from torch.distributed.tensor._ops.single_dim_strategy import _expand_single_dim_strategy_to_mesh

    count = itertools.count()

    def given(arg: Any) -> Any:
        if isinstance(arg, Slot):
            tensor, placement = call.real(arg), placed[next(count)]
            if isinstance(placement, distributed.Shard):
                tensor = tensor.chunk(SIZE, placement.dim)[0]
            return distributed.DTensor.from_local(tensor, mesh(), [placement], run_check=False)
        if isinstance(arg, list | tuple):
            return type(arg)(given(one) for one in arg)
        return getattr(torch, arg.removeprefix("torch.")) if isinstance(arg, str) and arg[:6] == "torch." else arg

    args = tuple(given(arg) for arg in case.args)
    kwargs = {key: given(arg) for key, arg in case.kwargs.items()}
    dispatcher, op = distributed.DTensor._op_dispatcher, overload(case.op)
    known = dispatcher.sharding_propagator
    schema = dispatcher.unwrap_to_op_info(op, args, kwargs).schema
    wrapped = known._wrap_with_op_strategy(schema)
    if op in known.op_single_dim_strategy_funcs:
        meta = known._propagate_tensor_meta_non_cached(schema)
        expanded = _expand_single_dim_strategy_to_mesh(mesh(), wrapped, known.op_single_dim_strategy_funcs[op], meta)
        strategy = expanded(op, wrapped.args_meta, wrapped.kwargs_meta)
    else:
        strategy = known.op_strategy_funcs[op](wrapped)
    return strategy.strategies if isinstance(strategy, OpStrategy) else []


def _row(call: Call, slots: Sequence[Slot], specs: Sequence[Any], results: Sequence[Any]) -> Row | None:
    """Read a strategy; None where it cuts unevenly, in a way or by a kind that we do not have, or one tensor twice."""
    if len(specs) != len(slots):
        return None
    operands: dict[Slot, ops.Placement] = {}
    for slot, spec in zip(slots, specs, strict=True):
        placement = _placement(spec.placements[0])
        if placement is None or operands.setdefault(slot, placement) != placement:
            return None
        shape = call.real(slot).shape
        if isinstance(placement, ops.Shard) and (placement.dim >= len(shape) or shape[placement.dim] % SIZE):
            return None
    made = tuple(_placement(spec.placements[0]) for spec in results)
    return None if None in made else (tuple(operands.values()), tuple(p for p in made if p is not None))


def _placement(placement: Any) -> ops.Placement | None:
    if isinstance(placement, distributed.Replicate):
        return ops.Replicate()
    if isinstance(placement, distributed.Partial):
        return ops.Partial(placement.reduce_op) if placement.reduce_op in KINDS else None
    return ops.Shard(placement.dim) if type(placement) is distributed.Shard else None


# ------------------------------------------------------------------------------------------------------------ ours


def our_ways(graph: Graph) -> list[dict[str, ops.Placement]]:
    """Every way to run the lowered call in which nothing is resharded: where each tensor that an op touches lies."""
    ways = [{name: ops.Replicate() for name, tensor in graph.tensors.items() if tensor.value is not None}]
    for node in graph.nodes.values():
        bound = graph.bind(node.name)
        rows = [row for row in bound.rows if composes(bound, [row], [SIZE])]
        own = [_placed(graph, node.name, row) for row in rows]
        ways = [
            way | placed
            for way in ways
            for placed in own
            if placed is not None and all(way.get(name, p) == p for name, p in placed.items())
        ]
    return ways


def _placed(graph: Graph, node: str, row: ops.Row) -> dict[str, ops.Placement] | None:
    """Where a row places the tensors of a node; None where it places one tensor in two ways."""
    placed: dict[str, ops.Placement] = dict(zip(graph.nodes[node].results, row.results, strict=True))
    for use in graph.operand_uses(node):
        asked = row.operands[use.slot]
        if asked is not None and placed.setdefault(use.tensor, asked) != asked:
            return None
    return placed


@dataclass(frozen=True)
class Lowered:
    """A call as our ops, and the tensor that each of its slots is; None for one that the lowering does not need."""

    graph: Graph
    names: list[str | None]

    def allows(self, row: Row, ways: Sequence[dict[str, ops.Placement]]) -> bool:
        """Tell whether a row is one of our ways; an input that nothing reads lies as it likes."""
        wanted = {name: p for name, p in zip(self.names, row[0], strict=True) if name is not None}
        return any(
            all(way.get(name, p) == p for name, p in wanted.items())
            and all((wanted | way).get(name) == p for name, p in zip(self.graph.outputs, row[1], strict=True))
            for way in ways
        )


def lowered(case: Case, call: Call) -> Lowered:
    """Lower a call; what ops before it made are inputs, where the lowering does not ask who made them."""
    slots = list(dict.fromkeys(tensors_of(case)))
    captured = [call.captured(slot).name for slot in slots]
    try:
        graph = lower(Capture("case", _alone(call, captured)))
    except ImporterError:
        graph = lower(Capture("case", call.nodes))
        return Lowered(graph, [_made(slot, name, graph) for slot, name in zip(slots, captured, strict=True)])
    return Lowered(graph, [name if name in graph.tensors else None for name in captured])


def _alone(call: Call, inputs: Sequence[str]) -> list[CapturedNode]:
    """Return the nodes of a call itself, after placeholders for all that it reads."""
    place = next(index for index, node in enumerate(call.nodes) if node.name == "made")
    vals = {node.name: node.val for node in call.nodes}
    return [*(CapturedNode(name, "placeholder", val=vals[name], role=INPUT) for name in inputs), *call.nodes[place:]]


def _made(slot: Slot, name: str, graph: Graph) -> str | None:
    """Return the tensor that an op before the call made."""
    if isinstance(slot, T) or slot.node not in graph.nodes:
        return name if name in graph.tensors else None
    results = graph.nodes[slot.node].results
    index = slot.index if isinstance(slot, Item) else 0
    return results[index] if index < len(results) else None


# ------------------------------------------------------------------------------------------------------ the numbers


def holds(case: Case, call: Call, row: Row) -> bool:
    """Run the call by PyTorch on two simulated devices, as a row says, and compare with the whole run."""
    try:
        return _holds(case, call, row)
    except (RuntimeError, IndexError, ValueError):  # The call does not take the parts, or they cannot be partial.
        return False


def _holds(case: Case, call: Call, row: Row) -> bool:
    operands = dict(zip(dict.fromkeys(tensors_of(case)), row[0], strict=True))
    whole = [result.numpy() for result in call.wanted.values()]
    held: dict[Slot, Any] = {}
    for index, (tensor, placement) in enumerate(operands.items()):
        array, layout = call.real(tensor).numpy(), (placement,)
        parts = tuple((size,) for size in array.shape)
        terms = {
            at: np.asarray(term) for at, term in split(array, layout, (SIZE,), np.random.default_rng(index)).items()
        }
        held[tensor] = blocks(terms, layout, parts, (SIZE,))
    local: list[dict[tuple[int, ...], Any]] = [{} for _ in whole]
    for rank in range(SIZE):

        def given(arg: Any, at: tuple[int, ...] = (rank,)) -> Any:
            if isinstance(arg, Slot):
                return torch.from_numpy(held[arg][at].copy())
            if isinstance(arg, list | tuple):
                return type(arg)(given(one) for one in arg)
            return getattr(torch, arg.removeprefix("torch.")) if isinstance(arg, str) and arg[:6] == "torch." else arg

        made = overload(case.op)(*map(given, case.args), **{key: given(arg) for key, arg in case.kwargs.items()})
        listed = list(made) if isinstance(made, list | tuple) else [made]
        wanted = range(len(listed)) if case.results is None else case.results
        for index, result in enumerate(listed[place] for place in wanted if listed[place] is not None):
            local[index][(rank,)] = result.numpy()
    return not any(
        agree(assemble(mine, (placement,), tuple((n,) for n in goal.shape), (SIZE,), goal), goal)
        for mine, placement, goal in zip(local, row[1], whole, strict=True)
    )
