"""Small plans of many kinds, for the tests of what comes after planning."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any
from unittest.mock import patch

from ops.placement import Partial, Shard
from solver import plan
from solver.graph import Graph
from solver.mesh import Mesh
from solver.plan import Plan
from solver.search import root
from tests.graphs import HAND_MADE, HARDWARE, biased, flattened, mlp, shared, squared

MESH = Mesh({"dp": 2, "tp": 2}, hardware=HARDWARE["bandwidth"])
LINE = Mesh({"dp": 1, "tp": 4}, hardware=HARDWARE["latency"])
CUBE = Mesh({"dp": 2, "tp": 2, "pp": 2}, hardware=HARDWARE["compute"])
FAST = Mesh({"dp": 2, "tp": 2}, hardware={**HARDWARE["compute"], "peak": {"float32": 10**6}})
"""Computing is so slow that every plan cuts what it can, and reshards between."""


def planned(graph: Graph, mesh: Mesh = FAST, **wishes: Any) -> Plan:
    found = plan(graph, mesh, **wishes)
    assert found.status == "optimal", found
    return found


def tower(depth: int = 3) -> Graph:
    """Products and row statistics in turn: sums, gathers and copies on the way."""
    g = Graph("tower")
    x = g.input("x", (8, 8))
    for i in range(depth):
        y = g.op("matmul", x, g.parameter(f"w{i}", (8, 8)), name=f"h{i}")
        s = g.op("softmax", y, axis=i % 2, name=f"s{i}")
        x = g.op("add", s, g.op("transpose", y, perm=[1, 0], name=f"t{i}"), name=f"x{i}")
    g.output(x)
    return g


@cache
def communicating() -> Plan:
    """A plan with shared copies, reductions and gathers."""
    return planned(
        tower(), pins={"h0": {"dp": Shard(0), "tp": Shard(1)}, "s0/x": {"dp": Shard(1)}, "x2": {"dp": Shard(0)}}
    )


@cache
def partial_output() -> Plan:
    """A plan whose output leaves as terms of a sum."""
    return planned(biased_product(), pins={"p": {"tp": Partial("sum")}})


def biased_product() -> Graph:
    g = Graph("product")
    g.output(g.op("matmul", g.input("x", (4, 8)), g.parameter("w", (8, 4)), name="p"))
    return g


@cache
def every_plan() -> tuple[Plan, ...]:
    """Plans by hand, each graph on two meshes, and the two above."""
    return tuple(_plans())


def _plans() -> Iterator[Plan]:
    for graph in HAND_MADE:
        yield planned(graph(), FAST)
        yield planned(graph(), LINE)
    for graph in (mlp, biased, flattened, squared, shared):
        yield planned(graph(), CUBE)
    yield communicating()
    yield partial_output()


def looked_up(between: bool, times: int = 1) -> Graph:
    """An embedding that meets itself in a product, and is used once more: its bound needs branching."""
    g = Graph("looked_up")
    for n in [""] if times == 1 else map(str, range(times)):
        w = g.parameter(f"w{n}", (4, 4))
        x = g.op("embedding", g.input(f"ids{n}", (1,), dtype="int64"), w, name=f"e{n}")
        y = g.op("relu", x, name=f"r{n}") if between else x
        g.output(g.op("matmul", y, y, transpose_x=True, name=f"p{n}"), g.op("relu", x if between else w, name=f"q{n}"))
    return g


@cache
def split_plans() -> tuple[Plan, ...]:
    """Plans whose proof is a tree with splits."""
    found = tuple(planned(looked_up(between), MESH) for between in (True, False))
    assert all('"left"' in json.dumps(p.certificate) for p in found)
    return found


@cache
def blocked_plan() -> Plan:
    """A plan of two parts that have nothing to do with each other; each needs branching, and has a proof of its own."""
    with patch.object(root, "BLOCK", 5), patch.object(root, "NARROWER", 0.0):
        found = planned(looked_up(True, times=2), MESH)
    assert '"blocks"' in json.dumps(found.certificate)
    return found
