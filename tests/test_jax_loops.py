"""A scan in JAX: written out trip by trip, and every trip lies as the first one does."""

from __future__ import annotations

import pytest

jax = pytest.importorskip("jax", reason="jax is not installed: pip install '.[jax]'")

import numpy as np  # noqa: E402
from jax import lax  # noqa: E402

from solver import Mesh, from_jax, plan  # noqa: E402
from solver.graph import Graph  # noqa: E402


def loop(trips: int) -> Graph:
    def step(x, w):  # type: ignore[no-untyped-def]
        return jax.numpy.tanh(x @ w), None

    def fn(params, x):  # type: ignore[no-untyped-def]
        return lax.scan(step, x, params)[0]

    return from_jax(fn, np.ones((trips, 8, 8)), np.ones((4, 8)), parameters=0, names=("w", "x"))


def test_trips_repeat_the_first_one() -> None:
    graph = loop(4)
    ops = [graph.nodes[name].op for name in graph.repeats]
    assert sorted(set(ops)) == ["matmul", "reshape", "tanh"]
    assert len(ops) == 3 * 3
    assert not set(graph.repeats) & set(graph.repeats.values())


def test_every_trip_lies_alike_whatever_is_pinned_in_one() -> None:
    graph = loop(3)
    products = [name for name, node in graph.nodes.items() if node.op == "matmul"]
    mesh = Mesh({"tp": 2})
    free, pinned = plan(graph, mesh), plan(graph, mesh, pins={f"{products[1]}/y": "tp=S(1)"})
    for found in (free, pinned):
        assert found.status == "optimal"
        for use in ("x", "y"):
            assert len({str(found.needed(f"{name}/{use}")) for name in products}) == 1
        assert found.check().ok
        assert found.simulate().ok
    assert {str(pinned.needed(f"{name}/y")["tp"]) for name in products} == {"S(1)"}
