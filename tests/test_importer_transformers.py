"""Models of transformers, captured on the spot: planned, proved and simulated, they compute what torch computes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import pytest

from solver import Graph, Mesh, Plan, from_torch, plan
from solver.values import given_values, run_whole

pytest.importorskip("torch", reason="needs PyTorch: pip install 'shardproof[torch]'")
pytest.importorskip("transformers", reason="needs transformers: pip install 'shardproof[frameworks]'")
from graphs import HARDWARE
from torch_models import IMAGE_MODELS, WORD_MODELS, Array, Truth, agree, tiny, truth, values

SLOW = {**HARDWARE["compute"], "peak": {"float32": 10**9}}
"""Computing so dear that every device has to take its share."""
MESHES = {"2x2": {"dp": 2, "tp": 2}, "2x2x2": {"dp": 2, "fsdp": 2, "tp": 2}}
MODELS = [*WORD_MODELS, *IMAGE_MODELS]


@dataclass(frozen=True)
class Step:
    """A training step as it came in, and what torch makes of it."""

    graph: Graph
    values: dict[str, Array]
    inputs: tuple[str, ...]
    truth: Truth


@cache
def step(name: str) -> Step:
    module, inputs = tiny(name)
    graph = from_torch(module, (), inputs)
    true = truth(module, (), inputs, lambda made: made.loss)
    return Step(graph, values(module, graph, inputs), tuple(inputs), true)


@pytest.mark.parametrize("name", MODELS)
def test_loss_and_every_gradient_are_torchs(name: str) -> None:
    s = step(name)
    found = run_whole(s.graph, given_values(s.graph, s.values))
    (loss,) = (output for output in s.graph.outputs if output not in s.graph.ties)
    assert abs(found[loss] - s.truth.loss) <= 1e-6 * s.truth.loss
    assert set(s.graph.gradients.values()) == set(s.truth.gradients)
    agree({s.graph.gradients[output]: found[output] for output in s.graph.gradients}, s.truth.gradients)


@pytest.mark.parametrize("name", MODELS)
def test_plans_on_2x2(name: str) -> None:
    assert hold(step(name), MESHES["2x2"], gap=0).status == "optimal"


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_plans_on_2x2x2(name: str) -> None:
    hold(step(name), MESHES["2x2x2"], gap=0.001)


def hold(s: Step, mesh: dict[str, int], gap: float) -> Plan:
    """Plan with the batch on the first mesh axis, check the proof, run the plan on the weights of the model."""
    pins = dict.fromkeys(s.inputs, "dp=S(0)")
    found = plan(s.graph, Mesh(mesh, hardware=SLOW), pins=pins, gap=gap, timeout=300)
    assert found.gap is not None
    assert found.gap <= gap
    assert found.check().ok
    ran = found.simulate(values=s.values)
    assert ran.ok, ran
    assert ran.bytes_sent > 0
    return found
