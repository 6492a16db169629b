"""Real ONNX networks from the file to the proof: planned, checked without the solver, run on simulated devices."""

from __future__ import annotations

import pytest

pytest.importorskip("onnx")
from benchmarks.models import gpt, gpt_training
from benchmarks.onnx_models import MESHES, MODELS
from solver import Mesh, load, plan

QUICK = [("squeezenet", "2x4"), ("magika", "2x2x2")]
EVERY = [(name, mesh) for name in MODELS for mesh in MESHES]


def planned_whole(name: str, mesh: str) -> None:
    """Plan one model; hold status, gap, certificate, outputs and bytes."""
    file = MODELS[name].find()
    if file is None:
        pytest.skip(f"the package {MODELS[name].package} is not installed")
    found = plan(load(file, MODELS[name].dims, MODELS[name].input_shapes), Mesh(MESHES[mesh]), timeout=300)
    assert (found.status, found.gap, found.proof) == ("optimal", 0, "certificate")
    checked = found.check()
    assert checked.ok, checked
    assert checked.bound == found.cost_ps
    ran = found.simulate()
    assert ran.ok, ran
    assert max(ran.max_error.values()) < 1e-9
    assert ran.bytes_sent == sum(move.bytes for reshard in found.reshards for move in reshard.moves)


@pytest.mark.parametrize(("name", "mesh"), QUICK)
def test_a_real_network_is_planned_checked_and_run(name: str, mesh: str) -> None:
    planned_whole(name, mesh)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "mesh"), [case for case in EVERY if case not in QUICK])
def test_every_real_network_is_planned_checked_and_run(name: str, mesh: str) -> None:
    planned_whole(name, mesh)


@pytest.mark.parametrize(
    ("layers", "mesh"),
    [
        (24, {"dp": 8, "tp": 8}),
        (4, {"pod": 2, "dp": 8, "tp": 8}),
        pytest.param(1, {"pod": 2, "dp": 4, "tp": 4, "sp": 4}, marks=pytest.mark.slow),
    ],
)
def test_a_gpt_is_planned_to_proof(layers: int, mesh: dict[str, int]) -> None:
    found = plan(gpt(layers), Mesh(mesh), timeout=300)
    assert (found.status, found.gap, found.proof) == ("optimal", 0, "certificate")
    checked = found.check()
    assert checked.ok, checked
    assert checked.bound == found.cost_ps


@pytest.mark.parametrize("layers", [1, pytest.param(8, marks=pytest.mark.slow)])
def test_a_training_step_of_a_gpt_is_planned_to_proof(layers: int) -> None:
    step = gpt_training(layers, clip_norm=1.0)
    learned = {name for name, tensor in step.tensors.items() if tensor.role == "parameter"}
    assert set(step.gradients.values()) == learned
    found = plan(step, Mesh({"dp": 8, "tp": 8}), timeout=300)
    assert (found.status, found.gap, found.proof) == ("optimal", 0, "certificate")
    checked = found.check()
    assert checked.ok, checked
    assert checked.bound == found.cost_ps
