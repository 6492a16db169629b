"""The time of an op: by hand, one row at a time and many at once, and against exact fractions."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.bind import BoundRule, composes
from ops.placement import Replicate, Shard
from ops.registry import rule_for
from solver.cost.compute import compute_time, compute_times
from solver.graph import Graph
from solver.layout import local_shape
from solver.mesh import Mesh

SLOW = {
    "name": "slow",
    "peak": {"float32": 1000, "bfloat16": 4000, "int8": 8000},
    "memory_bandwidth": 10_000,
    "memory": 10**9,
    "node_size": 8,
    "inside": {"bandwidth": 1000, "latency": 0},
    "network": {"bandwidth": 1000, "latency": 0},
}
SECOND = 10**12


def dtypes_of(g: Graph, node: str) -> dict[str, str]:
    return {use.operand: g.tensors[use.tensor].dtype for use in g.operand_uses(node)}


def timed(g: Graph, node: str, mesh: Mesh, *rows: int) -> int:
    bound = g.bind(node)
    return compute_time(g.nodes[node], bound, [bound.rows[row] for row in rows], dtypes_of(g, node), mesh)


def product(dtype: str = "float32", inner: int = 100) -> Graph:
    g = Graph()
    g.output(g.op("matmul", g.input("x", (8, inner), dtype), g.input("y", (inner, 6), dtype), name="out"))
    return g


def row_that(bound: BoundRule, cut: str | None, why: str = "") -> int:
    return next(i for i, r in enumerate(bound.rows) if (r.cut and r.cut[0]) == cut and why in r.why)


def test_a_product_computes_two_operations_an_element_at_the_peak_of_its_dtype() -> None:
    mesh = Mesh({"tp": 4}, hardware=SLOW)
    assert timed(product(), "out", mesh, 0) == 2 * 8 * 100 * 6 * SECOND // 1000
    assert timed(product("bfloat16"), "out", mesh, 0) == 2 * 8 * 100 * 6 * SECOND // 4000
    assert timed(product("float64"), "out", mesh, 0) == timed(product(), "out", mesh, 0)


def test_each_mesh_axis_that_cuts_a_factor_shares_the_work() -> None:
    g, mesh = product(), Mesh({"dp": 2, "tp": 4}, hardware=SLOW)
    bound = g.bind("out")
    m, k = row_that(bound, "m"), row_that(bound, "k")
    whole = timed(g, "out", mesh, 0, 0)
    assert timed(g, "out", mesh, m, 0) * 2 == whole
    assert timed(g, "out", mesh, m, k) * 8 == whole


def test_a_partial_that_passes_through_shares_nothing() -> None:
    g, mesh = product(), Mesh({"tp": 4}, hardware=SLOW)
    passing = row_that(g.bind("out"), None, "passes")
    assert timed(g, "out", mesh, passing) == timed(g, "out", mesh, 0)


def test_memory_counts_where_it_is_slower() -> None:
    mesh = Mesh({"tp": 2}, hardware={**SLOW, "memory_bandwidth": 7})
    g = product(inner=4)
    moved = 4 * (8 * 4 + 4 * 6 + 8 * 6)
    assert timed(g, "out", mesh, 0) == -(-moved * SECOND // 7)
    shared = 4 * (8 * 4 // 2 + 4 * 6 + 8 * 6 // 2)
    assert timed(g, "out", mesh, row_that(g.bind("out"), "m")) == -(-shared * SECOND // 7)


def test_a_tensor_in_two_slots_is_read_twice() -> None:
    mesh = Mesh({"tp": 2}, hardware={**SLOW, "memory_bandwidth": 1})
    g = Graph()
    x = g.input("x", (4, 4))
    g.output(g.op("matmul", x, x, name="square"))
    assert timed(g, "square", mesh, 0) == 3 * 64 * SECOND


def test_a_view_takes_no_time() -> None:
    g, mesh = Graph(), Mesh({"tp": 2}, hardware=SLOW)
    g.output(g.op("reshape", g.input("x", (4, 4)), shape=(16,), name="flat"))
    assert timed(g, "flat", mesh, 0) == 0
    assert (
        compute_times(g.nodes["flat"], g.bind("flat"), np.zeros((3, 1), np.int64), {"x": "float32"}, mesh).tolist()
        == [0] * 3
    )


def test_results_count_in_their_own_dtype() -> None:
    mesh = Mesh({"tp": 2}, hardware={**SLOW, "memory_bandwidth": 1})
    g = Graph()
    g.output(g.op("cast", g.input("x", (5,)), dtype="float64", name="wide"))
    assert timed(g, "wide", mesh, 0) == (5 * 4 + 5 * 8) * SECOND


def test_an_op_without_operands_writes_its_result() -> None:
    mesh = Mesh({"tp": 2}, hardware={**SLOW, "memory_bandwidth": 1})
    g = Graph()
    g.output(g.op("full", shape=(5,), fill_value=1.0, dtype="float64", name="ones"))
    assert timed(g, "ones", mesh, 0) == 5 * 8 * SECOND


def test_integers_count_at_their_own_peak_and_absent_operands_not_at_all() -> None:
    mesh = Mesh({"tp": 2}, hardware={**SLOW, "memory_bandwidth": 10**9})
    assert timed(product("int8"), "out", mesh, 0) == 2 * 8 * 100 * 6 * SECOND // 8000
    g = Graph()
    x = g.input("x", (4, 8))
    g.op("layer_norm", x, None, g.parameter("b", (8,)), begin_norm_axis=1, name="n")
    tiny = Mesh({"tp": 2}, hardware={**SLOW, "memory_bandwidth": 1})
    assert timed(g, "n", tiny, 0) == 4 * (32 + 8 + 32 + 4 + 4) * SECOND


@pytest.mark.parametrize(
    ("op", "shapes", "attrs", "products"),
    [
        ("matmul", {"x": (4, 6), "y": (6, 8)}, {}, 2),
        ("bmm", {"x": (4, 6, 8), "y": (4, 8, 2)}, {}, 2),
        ("linear", {"x": (4, 6), "weight": (6, 8), "bias": (8,)}, {}, 2),
        ("addmm", {"input": (4, 8), "x": (4, 6), "y": (6, 8)}, {}, 2),
        ("fused_gemm_epilogue", {"x": (4, 6), "y": (6, 8), "bias": (8,)}, {}, 2),
        ("einsum", {"operands": [(4, 6), (6, 8)]}, {"equation": "ij,jk->ik"}, 2),
        ("conv2d", {"x": (2, 4, 6, 6), "filter": (8, 4, 3, 3)}, {}, 2),
        ("sum", {"x": (4, 6)}, {}, 1),
        ("multiply", {"x": (4, 6), "y": (4, 6)}, {}, 1),
    ],
)
def test_backward_takes_a_product_for_each_operand(
    op: str, shapes: dict[str, Any], attrs: dict[str, Any], products: int
) -> None:
    forward = rule_for(op)
    assert forward.grad is not None
    once = forward.flops(forward.bind(shapes, attrs), attrs)
    made = dict(zip((spec.name for spec in forward.results), forward.infer_shapes(shapes, attrs), strict=True))
    read = {name: {**shapes, **made}.get(name) for name in forward.grad.reading(forward)}
    read |= {f"{name}_grad": made[name] for name in forward.grad.receiving(forward)}
    backward, whole = rule_for(f"{op}_grad"), {**attrs, "forward_shapes": tuple(shapes.items())}
    assert backward.flops(backward.bind(read, whole), whole) == products * once


def test_a_large_op_is_exact_beyond_64_bits() -> None:
    mesh = Mesh({"tp": 2}, hardware="h100")
    g = Graph()
    g.output(g.op("matmul", g.input("x", (2**20, 2**14)), g.input("y", (2**14, 2**17)), name="out"))
    whole = Fraction(2 * 2 ** (20 + 14 + 17) * SECOND, mesh.hardware.flops("float32"))
    assert timed(g, "out", mesh, 0) == math.ceil(whole)
    choices = np.zeros((1, 1), np.int64)
    times = compute_times(g.nodes["out"], g.bind("out"), choices, dtypes_of(g, "out"), mesh)
    assert times.tolist() == [math.ceil(whole)]


# ------------------------------------------------------------------------------------------------- the naive twin

OPS: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("matmul", [(4, 8), (8, 12)], {}),
    ("matmul", [(2, 4, 8), (8, 12)], {}),
    ("transpose", [(4, 8)], {"perm": [1, 0]}),
    ("add", [(4, 8), (8,)], {}),
    ("concat", [[(4, 8), (2, 8)]], {"axis": 0}),
    ("split", [(4, 8)], {"num_or_sections": 2, "axis": 1}),
    ("layer_norm", [(4, 8), None, (8,)], {"begin_norm_axis": 1}),
    ("softmax", [(4, 8)], {"axis": 1}),
    ("conv2d", [(4, 2, 8, 8), (4, 2, 3, 3)], {"padding": 1}),
]


@st.composite
def cases(draw: st.DrawFn) -> tuple[Graph, Mesh]:
    op, shapes, attrs = draw(st.sampled_from(OPS))
    dtypes = st.sampled_from(["float32", "bfloat16"])
    g = Graph()

    def make(shape: Any) -> Any:
        if isinstance(shape, list):
            return [make(one) for one in shape]
        return shape and g.input(f"t{len(g.tensors)}", shape, draw(dtypes))

    g.op(op, *map(make, shapes), name="op", **attrs)
    sizes = draw(st.lists(st.sampled_from([1, 2, 4]), min_size=1, max_size=3))
    bandwidth = draw(st.sampled_from([1, 7, 1000, 10**6]))
    return g, Mesh({f"a{i}": n for i, n in enumerate(sizes)}, hardware={**SLOW, "memory_bandwidth": bandwidth})


def naive(g: Graph, choice: tuple[int, ...], mesh: Mesh) -> int:
    node, bound = g.nodes["op"], g.bind("op")
    if rule_for(node.op).view:
        return 0
    tensors = [use.tensor for use in g.operand_uses("op")] + list(node.results)
    present = [i for i, slot in enumerate((*bound.operands, *bound.results)) if slot is not None]
    moved = Fraction(0)
    for tensor, slot in zip(tensors, present, strict=True):
        placed = [(bound.rows[i].operands + bound.rows[i].results)[slot] for i in choice]
        layout = tuple(p if isinstance(p, Shard) else Replicate() for p in placed)
        fact = g.tensors[tensor]
        parts = tuple((size,) for size in fact.shape)
        moved += math.prod(local_shape(layout, fact.shape, parts, mesh.sizes)) * fact.itemsize
    flops = Fraction(rule_for(node.op).flops(bound, node.attrs))
    for axis, i in enumerate(choice):
        flops /= mesh.sizes[axis] if bound.rows[i].cut else 1
    inputs = {fact.dtype for fact in map(g.tensors.__getitem__, tensors) if fact.role == "input"}
    peak = 4000 if inputs == {"bfloat16"} else 1000
    return max(math.ceil(flops * SECOND / peak), math.ceil(moved * SECOND / mesh.hardware.memory_bandwidth))


@given(cases())
def test_many_rows_at_once_cost_what_each_costs_and_what_fractions_say(case: Any) -> None:
    g, mesh = case
    node, bound = g.nodes["op"], g.bind("op")
    offered = [range(len(bound.rows)) if size > 1 else (0,) for size in mesh.sizes]
    choices = [c for c in itertools.product(*offered) if composes(bound, [bound.rows[i] for i in c], mesh.sizes)][:200]
    times = compute_times(node, bound, np.array(choices, np.int64), dtypes_of(g, "op"), mesh)
    assert times.dtype == np.int64
    assert times.tolist() == [timed(g, "op", mesh, *choice) for choice in choices]
    assert times.tolist() == [naive(g, choice, mesh) for choice in choices]


@pytest.mark.parametrize("sizes", [(2,), (2, 2)])
def test_no_choices_no_times(sizes: tuple[int, ...]) -> None:
    g, mesh = product(), Mesh({f"a{i}": n for i, n in enumerate(sizes)}, hardware=SLOW)
    empty = np.zeros((0, len(sizes)), np.int64)
    assert compute_times(g.nodes["out"], g.bind("out"), empty, dtypes_of(g, "out"), mesh).shape == (0,)
