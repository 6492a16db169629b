"""One tiny GPT, brought in on several ways: what its plans cost, and where they differ, op by op."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from ops import Shard
from solver import Graph, Mesh, Plan, plan
from solver.training import training_step
from solver.values import given_values, run_whole
from tests import tiny_gpt
from tests.plan_differences import differences, spent, told
from tests.training_models import tiny_gpt as written_here

MESH = Mesh({"dp": 2, "tp": 2}, hardware="h100")


def _jax() -> Graph:
    jax = pytest.importorskip("jax", reason="JAX is not installed: pip install 'shardproof[jax]'")
    from solver import from_jax
    from tests.jax_models import gpt_loss

    return from_jax(
        jax.value_and_grad(gpt_loss),
        tiny_gpt.weights(),
        *tiny_gpt.tokens(dtype="int32"),
        parameters=0,
        gradients={1: 0},
        names=("", "ids", "labels"),
    )


def _paddle() -> Graph:
    pytest.importorskip("paddle", reason="PaddlePaddle is not installed: pip install 'shardproof[paddle]'")
    from solver import from_paddle
    from tests.paddle_models import build, gpt, gpt_tokens

    built = build(gpt, gpt_tokens())
    return from_paddle(built.program, fetch=[built.loss], gradients=built.gradients)


def _torch() -> Graph:
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'shardproof[torch]'")
    from solver import from_torch
    from tests.torch_models import gpt

    module, inputs = gpt()
    return from_torch(module.float(), (), inputs)


WAYS: dict[str, Callable[[], Graph]] = {
    "autodiff": lambda: training_step(written_here(), "loss"),
    "jax": _jax,
    "paddle": _paddle,
    "torch": _torch,
}
"""Way in -> the step that gives the loss first and then a gradient for each weight, tied to it."""


@cache
def brought_in(way: str) -> Graph:
    return WAYS[way]()


@cache
def planned(way: str) -> Plan:
    return plan(brought_in(way), MESH, pins={"ids": {"dp": Shard(0)}, "labels": {"dp": Shard(0)}}, timeout=60)


@pytest.mark.parametrize("way", WAYS)
def test_loss_and_gradients_are_those_of_the_model(way: str) -> None:
    """The loss is numpy's; the gradients give its slope along a direction."""
    graph, weights = brought_in(way), tiny_gpt.weights(dtype="float64")
    ids, labels = tiny_gpt.tokens()
    dtype = graph.tensors["ids"].dtype
    found = run_whole(graph, given_values(graph, {**weights, "ids": ids.astype(dtype), "labels": labels.astype(dtype)}))
    assert found[graph.outputs[0]] == pytest.approx(tiny_gpt.loss(weights, ids, labels), rel=1e-6)
    grads = {weight: found[name] for name, weight in graph.gradients.items()}
    assert grads.keys() == weights.keys()
    random = np.random.default_rng(3)
    for names in (list(weights)[:1], list(weights)):
        step = {name: random.standard_normal(weights[name].shape) for name in names}
        ahead, behind = (
            tiny_gpt.loss({**weights, **{name: weights[name] + h * step[name] for name in names}}, ids, labels)
            for h in (1e-5, -1e-5)
        )
        slope = sum(float((grads[name] * step[name]).sum()) for name in names)
        assert slope == pytest.approx((ahead - behind) / 2e-5, rel=1e-4)


@pytest.mark.parametrize("way", WAYS)
def test_what_a_plan_spends_adds_up_to_its_cost(way: str) -> None:
    found = planned(way)
    assert found.status == "optimal"
    assert sum(time for _, time in spent(found).values()) == found.cost_ps


@pytest.mark.parametrize("way", [way for way in WAYS if way != "autodiff"])
def test_the_differences_of_two_ways_are_told_op_by_op(way: str) -> None:
    """They add up; ``pytest -s`` shows the table."""
    one, other = planned(way), planned("autodiff")
    assert one.cost_ps is not None
    assert other.cost_ps is not None
    rows = differences(one, other)
    assert sum(row[3] - row[4] for row in rows) == one.cost_ps - other.cost_ps
    print(f"\n{told(one, other, (way, 'autodiff'))}")
