# ruff: noqa: E402
"""Whole training steps in JAX: loss and every gradient agree, and their plans hold, are run and checked."""

from __future__ import annotations

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed: pip install 'shardproof[jax]'")
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_disable_most_optimizations", True)
from ops import Partial, Shard, rule_for
from solver import Graph, Mesh, Plan, from_jax, plan
from tests.jax_models import MIXED, MODELS, Model, mixed
from tests.jax_runs import compare, run, sources

SQUARE = Mesh({"dp": 2, "tp": 2}, hardware="h100")
CUBE = Mesh({"dp": 2, "tp": 2, "sp": 2}, hardware="h100")
PLANS = [
    *(pytest.param(name, SQUARE, 60, id=f"{name}-square") for name in MODELS),
    *(pytest.param(name, CUBE, 60, id=f"{name}-cube") for name in ("mlp", "vmapped")),
    *(
        pytest.param(name, CUBE, 600, id=f"{name}-cube", marks=pytest.mark.slow)
        for name in ("gpt_one_layer", "scanned", "convolved")
    ),
]
GAP = 0.005


def brought_in(model: Model) -> Graph:
    return from_jax(model.fn, *model.args, **model.declared)


def planned(graph: Graph, mesh: Mesh, batch: tuple[str, ...], timeout: float = 60) -> Plan:
    return plan(graph, mesh, pins={name: {"dp": Shard(0)} for name in batch}, timeout=timeout, gap=GAP)


@pytest.mark.parametrize("name", MODELS)
def test_loss_and_every_gradient_agree(name: str) -> None:
    model = MODELS[name]
    kept = set(range(4)) - set(model.declared.get("internal", ()))

    def visible(*args: object) -> list[object]:
        made = model.fn(*args)
        return [part for at, part in enumerate(made) if at in kept]

    compare(brought_in(model), visible, model.args, tolerance=1e-9)


@pytest.mark.parametrize(("name", "mesh", "timeout"), PLANS)
def test_a_plan_is_checked_and_run(name: str, mesh: Mesh, timeout: float) -> None:
    model = MODELS[name]
    graph = brought_in(model)
    found = planned(graph, mesh, model.batch, timeout)
    assert found.status in ("optimal", "feasible")
    assert found.gap is not None
    assert found.gap <= GAP
    assert found.check().ok, found.check().findings
    done = found.simulate(values=sources(graph, model.args))
    assert done.ok, done.findings


def test_mixed_precision_keeps_its_dtypes_and_computes_the_same() -> None:
    graph = from_jax(jax.value_and_grad(mixed("bfloat16")), *MIXED, parameters=0, gradients={1: 0})
    dtypes = {
        graph.tensors[name].dtype for node in graph.nodes.values() if node.op == "matmul" for name in node.results
    }
    assert dtypes == {"bfloat16"}
    assert {graph.tensors[name].dtype for name in graph.outputs} == {"float32"}
    double = jax.tree.map(lambda a: np.asarray(a, np.float64), MIXED)
    wanted = jax.tree.leaves(jax.value_and_grad(mixed("float64"))(*double))
    for mine, theirs in zip(run(graph, MIXED).values(), wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-6)
    found = planned(graph, SQUARE, ("x", "y"))
    assert found.check().ok
    assert found.simulate().ok


def test_gradients_of_a_cut_batch_are_partial_and_reduced_once() -> None:
    def spec(*shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, "float32")

    layers = [{"w": spec(1024, 1024), "b": spec(1024)} for _ in range(2)]
    model = MODELS["mlp"]
    graph = from_jax(model.fn, layers, spec(16384, 1024), spec(16384, 1024), **model.declared)
    found = plan(graph, Mesh({"dp": 2}, hardware="h100"), pins={name: {"dp": Shard(0)} for name in model.batch})
    reshards = [reshard.tensor for reshard in found.reshards]
    for name in graph.gradients:
        chain = [name]
        while rule_for((node := graph.nodes[graph.tensors[chain[-1]].producer or ""]).op).view:
            chain.append(str(node.operands[0]))
        assert found.made(chain[-1])["dp"] == Partial("sum")
        assert sum(reshards.count(tensor) for tensor in chain) == 1
