"""Plans of training steps: ties are kept, gradients are reduced once, and the run on simulated devices is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tiny_gpt as reference
from graphs import HARDWARE, random_graphs
from hypothesis import given, settings
from slopes import Slopes, check
from training_models import BATCH, SMALL, tiny_gpt

from solver import Graph, Mesh, Plan, plan
from solver.autodiff import AutodiffError, add_gradients
from solver.graph_copy import copy_of
from solver.program import Transfer
from solver.training import training_step

REDUCING = ("all_reduce", "reduce_scatter")
Build = Callable[[], Graph]


def reduced(found: Plan) -> list[str]:
    """The tensor of each collective of the program that makes something whole out of terms."""
    moves = [step for step in found.program.steps if isinstance(step, Transfer) and step.move.kind in REDUCING]
    return [found.program.buffers[step.source].tensor for step in moves]


def assert_tied(found: Plan) -> None:
    """Every follower lies, or is delivered, as its leader is stored."""
    program, graph = found.program, found.problem.graph
    for follower, leader in graph.ties.items():
        buffer = program.sources[follower] if follower in program.sources else program.outputs[follower]
        assert program.buffers[buffer].layout == program.buffers[program.sources[leader]].layout, (follower, leader)


def cut_by_batch(graph: Graph) -> dict[str, str]:
    """Pin each use of whatever has the batch as its first dim."""
    uses = [use for node in graph.nodes for use in graph.operand_uses(node)]
    return {use.name: "dp=S(0)" for use in uses if graph.tensors[use.tensor].shape[:1] == (BATCH,)}


@pytest.mark.parametrize("optimizer", [None, "sgd", "momentum", "adamw"])
@pytest.mark.parametrize("build", SMALL, ids=[build.__name__ for build in SMALL])
def test_each_gradient_of_a_cut_batch_is_reduced_once(build: Build, optimizer: str | None) -> None:
    """Partial as it is made, one collective before the update, and none for what is not a gradient or the loss."""
    step = training_step(build(), "loss", optimizer)
    mesh = Mesh({"dp": 2}, hardware=HARDWARE["bandwidth"])
    found = plan(step, mesh, pins=cut_by_batch(step), capabilities=frozenset({"sync_batch_norm"}))
    assert found.status == "optimal"
    for gradient in step.gradients:
        assert str(found.made(gradient)["dp"]) == "P(sum)"
    assert sorted(reduced(found)) == sorted([*step.gradients, "loss"])
    assert_tied(found)
    assert found.check().ok
    ran = found.simulate(seed=1)
    assert ran.ok, str(ran)
    assert ran.bytes_sent == ran.predicted_bytes


def test_clipping_reduces_no_gradient_twice() -> None:
    """The squares are of the whole gradients, which the update reads, too."""
    step = training_step(SMALL[1](), optimizer="adamw", clip_norm=0.1)
    found = plan(step, Mesh({"dp": 2}, hardware=HARDWARE["bandwidth"]), pins=cut_by_batch(step))
    assert found.status == "optimal"
    assert all(reduced(found).count(gradient) == 1 for gradient in step.gradients)
    assert found.check().ok
    assert found.simulate(seed=1).ok


@settings(max_examples=40)
@given(random_graphs(max_ops=5, max_axes=2))
def test_random_steps_are_planned_and_run(case: Any) -> None:
    """A backward pass of anything: its plan is proved, its ties are kept, and it computes what the whole step does."""
    graph = copy_of(case.graph)
    graph.gradients.clear()
    for name in [name for name in graph.ties if graph.tensors[name].producer]:
        del graph.ties[name]  # a parameter is replaced once
    loss = next((name for name in graph.outputs if graph.tensors[name].producer), None)
    if loss is None or not any(tensor.role == "parameter" for tensor in graph.tensors.values()):
        return
    try:
        step = training_step(graph, loss, "sgd")
    except AutodiffError:
        return
    found = plan(step, case.mesh, capabilities=case.capabilities)
    assert found.status == "optimal"
    assert_tied(found)
    checked = found.check()
    assert checked.ok, str(checked)
    assert checked.bound == found.cost_ps
    ran = found.simulate(seed=2)
    assert ran.ok, str(ran)
    assert ran.bytes_sent == ran.predicted_bytes


def test_small_networks_agree_with_differences() -> None:
    for build in SMALL:
        check(build(), add_gradients(build(), "loss"), "loss")


def test_a_tiny_gpt_computes_its_meaning_and_its_gradients() -> None:
    graph = tiny_gpt(dtype="float64")
    step = add_gradients(graph)
    weights, (ids, labels) = reference.weights(dtype="float64"), reference.tokens()
    slopes = Slopes(graph, step, "loss", {**weights, "ids": ids, "labels": labels})
    assert slopes.number({}, 0.0) == pytest.approx(reference.loss(weights, ids, labels), rel=1e-12)
    assert set(slopes.grads) == set(weights)
    assert not list(slopes.wrong())
    assert slopes.kinks == 0


@pytest.mark.parametrize("optimizer", [None, "adamw"])
def test_a_tiny_gpt_is_planned_and_run(optimizer: str | None) -> None:
    sizes = reference.Sizes(layers=1)
    step = training_step(tiny_gpt(sizes), optimizer=optimizer)
    found = plan(step, Mesh({"dp": 2, "tp": 2}, hardware=HARDWARE["compute"]))
    assert found.status == "optimal", found.gap
    assert_tied(found)
    assert found.check().ok
    ran = found.simulate(seed=1)
    assert ran.ok, str(ran)
    assert ran.bytes_sent == ran.predicted_bytes


def test_gradients_of_a_tiny_gpt_are_those_of_torch() -> None:
    torch = pytest.importorskip("torch", reason="the extra torch is not installed: pip install 'shardproof[torch]'")
    torch.set_num_threads(1)
    sizes, weights, (ids, labels) = reference.SIZES, reference.weights(dtype="float64"), reference.tokens()
    leaves = {name: torch.tensor(value, requires_grad=True) for name, value in weights.items()}
    torch_loss(torch, leaves, torch.tensor(ids), torch.tensor(labels), sizes).backward()
    graph = tiny_gpt(dtype="float64")
    slopes = Slopes(graph, add_gradients(graph), "loss", {**weights, "ids": ids, "labels": labels})
    for name, leaf in leaves.items():
        np.testing.assert_allclose(slopes.grads[name], leaf.grad.numpy(), rtol=1e-9, atol=1e-12, err_msg=name)


def torch_loss(torch: Any, w: dict[str, Any], ids: Any, labels: Any, sizes: reference.Sizes) -> Any:
    """The network of tests/tiny_gpt.py in PyTorch's own functions."""
    f = torch.nn.functional

    def linear(at: str, x: Any) -> Any:
        return x @ w[f"{at}.weight"] + w[f"{at}.bias"]

    def norm(at: str, x: Any) -> Any:
        return f.layer_norm(x, x.shape[-1:], w[f"{at}.weight"], w[f"{at}.bias"], reference.EPSILON)

    x = w["wte"][ids] + w["wpe"]
    for layer in range(sizes.layers):
        at = f"h.{layer}"
        y = norm(f"{at}.ln_1", x)
        q, k, v = (
            linear(f"{at}.attn.{name}", y).reshape(*y.shape[:2], sizes.heads, sizes.head).transpose(1, 2)
            for name in "qkv"
        )
        mixed = f.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + linear(f"{at}.attn.proj", mixed.transpose(1, 2).reshape(x.shape))
        wide = linear(f"{at}.mlp.up", norm(f"{at}.ln_2", x))
        x = x + linear(f"{at}.mlp.down", f.gelu(wide, approximate="tanh"))
    logits = norm("ln_f", x) @ w["wte"].T
    return f.cross_entropy(logits.flatten(0, 1), labels.flatten())
