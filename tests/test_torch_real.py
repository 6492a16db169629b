"""Our `dtensor` beside DTensor itself: its propagator under a fake process group, call by call."""

from __future__ import annotations

import random
from collections import defaultdict
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'shardproof[torch]'")
pytest.importorskip("torch.distributed.tensor", reason="needs a PyTorch with DTensor")
pytest.importorskip("transformers", reason="needs transformers: pip install 'shardproof[torch]'")
import torch_models  # noqa: E402
from torch_real_differences import DIFFERENCES  # noqa: E402

from benchmarks.torch_real import Propagated, op_by_op, propagate, their_cost  # noqa: E402
from ops import Partial, Replicate, Shard  # noqa: E402
from solver import Mesh  # noqa: E402
from solver.greedy.dtensor import redistribute_cost  # noqa: E402
from solver.importers.aten import lower  # noqa: E402
from solver.importers.capture import Capture  # noqa: E402
from solver.importers.torch import capture  # noqa: E402

RUNS = {
    "gpt2, batch": ("gpt2", {"dp": 2, "tp": 2}, None),
    "gpt2, drawn": ("gpt2", {"a": 2}, 0),
    "gpt2, drawn again": ("gpt2", {"a": 4}, 1),
    "llama, batch": ("llama", {"dp": 4}, None),
    "llama, drawn": ("llama", {"a": 2}, 2),
    "bert, batch": ("bert", {"dp": 4}, None),
    "bert, drawn": ("bert", {"a": 4}, 3),
    "resnet, batch": ("resnet", {"dp": 2, "tp": 2}, None),
    "resnet, drawn": ("resnet", {"a": 2, "b": 2}, 4),
}
"""A model, a mesh, and the seed by which half of what is stored is cut anywhere; without one the batch is cut."""
MET: dict[str, set[str]] = defaultdict(set)
RUN: set[str] = set()


@cache
def captured(name: str) -> Capture:
    module, inputs = torch_models.tiny(name, torch.float32)
    if hasattr(module, "set_attn_implementation"):
        module.set_attn_implementation("eager")  # the fused one of the CPU has no strategy
    return capture(module, (), inputs)


def placements(name: str, mesh: Mesh, seed: int | None) -> dict[str, str]:
    sources = [t for t in lower(captured(name)).tensors.values() if t.producer is None and t.role != "constant"]
    if seed is None:
        return {t.name: f"{mesh.axes[0]}=S(0)" for t in sources if t.role == "input"}
    draw, found = random.Random(seed), {}
    for tensor in sources:
        cut: dict[int, str] = {}
        for axis, size in zip(mesh.axes, mesh.sizes, strict=True):
            dims = [dim for dim, n in enumerate(tensor.shape) if n % size == 0 and dim not in cut]
            if dims and draw.random() < 0.4:
                cut[draw.choice(dims)] = axis
        found[tensor.name] = ",".join(f"{axis}=S({dim})" for dim, axis in cut.items())
    return {name: wish for name, wish in found.items() if wish}


def propagated(run: str) -> tuple[Propagated, Mesh]:
    name, axes, seed = RUNS[run]
    mesh = Mesh(axes)
    return propagate(captured(name), mesh, placements(name, mesh, seed)), mesh


@pytest.mark.parametrize("run", RUNS)
def test_each_call_does_of_its_operands_what_dtensor_does_or_the_difference_is_known(run: str) -> None:
    RUN.add(run)
    theirs, mesh = propagated(run)
    calls = list(op_by_op(theirs, mesh))
    for call in calls:
        if not call.same:
            known = [one for one in DIFFERENCES.get(call.node.op, {}) if fnmatchcase(call.text, one)]
            assert known, f"{call.node.op} {call.text}"
            MET[call.node.op].update(known)
    assert len(calls) > 50
    assert sum(call.same for call in calls) >= 0.95 * len(calls)
    followed = theirs.plan(mesh)
    assert followed.plan.check().ok
    assert len(followed.unlike) < 0.1 * len(theirs.graph.nodes)


def test_every_known_difference_is_met() -> None:
    if RUNS.keys() != RUN:
        pytest.skip("not all runs have run")
    assert {op: set(known) for op, known in DIFFERENCES.items()} == MET


def test_the_plan_of_their_layouts_runs() -> None:
    theirs, mesh = propagated("resnet, batch")
    assert theirs.plan(mesh).plan.simulate().ok


@pytest.mark.parametrize("axes", [(4,), (2, 4), (2, 2, 8)])
def test_a_redistribution_costs_what_dtensor_says(axes: tuple[int, ...]) -> None:
    mesh, shape = Mesh({f"a{index}": size for index, size in enumerate(axes)}), (64, 128, 32)
    placements: list[Any] = [Replicate(), Shard(0), Shard(1), Partial("sum")]
    draw = random.Random(0)
    for _ in range(100):
        source, target = (tuple(draw.choice(placements) for _ in axes) for _ in range(2))
        theirs = their_cost(shape, mesh, source, target)
        assert redistribute_cost(source, target, 64 * 128 * 32 * 4, axes) == pytest.approx(theirs), (source, target)
