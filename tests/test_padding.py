"""A size rounded up: what has to be as large is, and nothing else; what cannot be is left alone."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ops import rule_for
from solver import Graph, Mesh, plan
from solver.graph import Tensor
from solver.padding import padded
from tests.explain.notation import graph_of
from tests.padded_json import with_padding


def heads(count: int) -> Graph:
    g = Graph("heads")
    x = g.input("x", (2, 8, 12))
    k = g.op("matmul", x, g.parameter("w", (12, count * 6)), name="k")
    split = g.op("reshape", k, shape=[2, 8, count, 6], name="heads")
    g.output(g.op("transpose", split, perm=[0, 2, 1, 3], name="t"))
    return g


def test_heads_are_padded_through_a_reshape() -> None:
    made = padded(heads(4), "heads", 2, 8)
    assert made is not None
    assert made.graph.to_json() == heads(8).to_json()
    assert made.sizes == {("heads", 2): 8, ("k", 2): 48, ("w", 1): 48, ("t", 1): 8}


def test_tied_tensors_stay_alike() -> None:
    g = Graph("tied")
    wte, head = g.parameter("wte", (30, 8)), g.parameter("head", (30, 8))
    g.tie(head, wte)
    e = g.op("embedding", g.input("ids", (4,), dtype="int64"), wte, name="e")
    g.output(g.op("softmax", g.op("matmul", e, head, transpose_y=True, name="logits"), name="p"))
    made = padded(g, "wte", 0, 32)
    assert made is not None
    assert {name: made.graph.tensors[name].shape for name in ("wte", "head", "logits", "p")} == {
        "wte": (32, 8),
        "head": (32, 8),
        "logits": (4, 32),
        "p": (4, 32),
    }
    assert made.graph.ties == {"head": "wte"}
    assert made.masked == ("p",)
    inner = padded(g, "wte", 1, 16)
    assert inner is not None
    assert inner.masked == ()


def with_constant(g: Graph, x: Tensor) -> Tensor:
    return g.op("add", x, g.constant("c", np.ones((5,), np.float32)), name="y")


def with_sections(g: Graph, x: Tensor) -> Tensor:
    return g.op("split", x, num_or_sections=[2, 3], axis=1, name="y")[0]


@pytest.mark.parametrize("fixed", [with_constant, with_sections])
def test_what_something_else_fixes_is_not_padded(fixed: object) -> None:
    g = Graph("fixed")
    g.output(fixed(g, g.input("x", (4, 5))))  # type: ignore[operator]
    assert padded(g, "x", 1, 8) is None


def test_padding_is_proposed_and_priced() -> None:
    found = plan(heads(4), Mesh({"tp": 8}), pins={"t": "tp=S(1)"})
    assert found.explanation is not None
    (repair,) = [one for one in found.explanation.repairs if "pad" in one.change]
    assert repair.text == (
        "pad dim 1 of 't' from 4 to 8, with it dim 1 of 'w' from 24 to 48; dim 2 of 'heads'; dim 2 of 'k' from 24 to 48"
    )
    again = plan(heads(8), Mesh({"tp": 8}), pins={"t": "tp=S(1)"})
    assert (again.cost, again.memory.peak) == (repair.cost, repair.memory)


def test_all_that_grows_is_told_and_a_program_can_apply_it() -> None:
    """The multilayer perceptron of the README: w1 must grow with x."""
    g = graph_of(MLP, "mlp")
    found = plan(g, Mesh({"tp": 3}), pins={"x": "tp=S(1)"})
    assert found.explanation is not None
    (repair,) = [one for one in found.explanation.repairs if "pad" in one.change]
    assert repair.text == "pad dim 1 of 'x' from 64 to 66, with it dim 0 of 'w1'"
    pad = json.loads(json.dumps(repair.to_json()))["change"]["pad"]
    assert pad == {"tensor": "x", "dim": 1, "size": 66, "also": [{"tensor": "w1", "dim": 0, "size": 66}], "mask": []}
    again = plan(with_padding(g, pad), Mesh({"tp": 3}), pins={"x": "tp=S(1)"})
    assert (again.status, again.cost, again.memory.peak) == ("optimal", repair.cost, repair.memory)


REFUSED = {
    "query heads share key heads": ("k", 2, 8, "input q: 1x4x8x2; input k: 1x4x4x2; y = flash_attention(q, k, k)"),
    "the scale hangs on features": ("q", 3, 4, "input q: 1x4x2x3; input k: 1x4x2x3; y = flash_attention(q, k, k)"),
    "the last query sees all keys": (
        "q",
        1,
        4,
        "input q: 1x3x2x2; input k: 1x6x2x2; y = flash_attention(q, k, k, causal=True)",
    ),
    "channels of a group": ("x", 1, 8, "input x: 2x6x3x3; param f: 4x3x1x1; y = conv2d(x, f, groups=2)"),
    "as many groups as channels": ("x", 1, 8, "input x: 2x4x3x3; param f: 4x1x1x1; y = conv2d(x, f, groups=4)"),
    "rows of an image": ("x", 2, 4, "input x: 2x4x3x3; param f: 4x4x3x3; y = conv2d(x, f, padding=1)"),
    "a filter's window": ("f", 2, 4, "input x: 2x4x8x8; param f: 4x4x3x3; y = conv2d(x, f)"),
    "groups of a norm": ("x", 1, 8, "input x: 2x6x3; y = group_norm(x, None, None, groups=2)"),
    "the minor dim of a reshape": ("x", 1, 4, "input x: 2x3; y = reshape(x, shape=[6])"),
    "the number of classes": ("x", 1, 8, "input x: 4x6; y = label_smooth(x)"),
    "what is turned round": ("x", 1, 8, "input x: 4x6; y = flip(x, axis=[1])"),
    "a row counted from the end": (
        "w",
        0,
        8,
        "input i: 3 int64; param w: 6x2; y = embedding(i, w, padding_idx=-1)",
    ),
    "what is drawn by index": ("x", 0, 8, "input x: 6x4; y = dropout(x, p=0.5)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_where_other_elements_would_change_nothing_is_padded(name: str) -> None:
    tensor, dim, size, text = REFUSED[name]
    assert padded(graph_of(text.replace("; ", "\n") + "\noutput y", "g"), tensor, dim, size) is None


MASKED = {
    "softmax": "y = softmax(x, axis=-1)",
    "topk": "t = topk(x, k=2)\ny = relu(t.out)",
    "mean": "y = mean(x, axis=[1])",
    "max": "y = max(x, axis=[1])",
    "layer_norm": "n = layer_norm(x, None, None, begin_norm_axis=1)\ny = relu(n.out)",
    "sum of what zeros do not stay zeros in": "e = exp(x)\ny = sum(e, axis=[1])",
}


@pytest.mark.parametrize("name", MASKED)
def test_what_zeros_would_change_is_told_to_be_masked(name: str) -> None:
    made = padded(graph_of(f"input x: 4x6\n{MASKED[name]}\noutput y", "g"), "x", 1, 8)
    assert made is not None
    assert len(made.masked) == 1


MLP = """
input x: 32x64
param w1: 64x256
param w2: 256x64
up = matmul(x, w1)
act = relu(up)
down = matmul(act, w2)
output down
"""
HEADS = """
input x: 2x4x12
param wq: 12x12
param wk: 12x12
param wo: 12x5
q = matmul(x, wq)
k = matmul(x, wk)
qh = reshape(q, shape=[2, 4, 3, 4])
kh = reshape(k, shape=[2, 4, 3, 4])
a = flash_attention(qh, kh, kh, causal=True)
flat = reshape(a, shape=[2, 4, 12])
y = matmul(flat, wo)
output y
"""
DEPTHWISE = """
input x: 2x3x5x5
param f: 3x1x3x3
param g: 4x3x1x1
d = depthwise_conv2d(x, f, padding=1)
y = conv2d(d, g)
output y
"""


@pytest.mark.parametrize(
    ("text", "tensor", "dim", "size"),
    [
        (MLP, "w1", 1, 258),
        (MLP, "x", 1, 66),
        (HEADS, "qh", 2, 4),
        (DEPTHWISE, "x", 1, 4),
        (DEPTHWISE, "x", 0, 4),
    ],
)
def test_what_was_there_before_is_computed_as_before(text: str, tensor: str, dim: int, size: int) -> None:
    """No op needs a mask: zeros stay zeros up to the sums over them."""
    graph = graph_of(text, "g")
    made = padded(graph, tensor, dim, size)
    assert made is not None
    assert made.masked == ()
    rng = np.random.default_rng(0)
    roots = {name: rng.normal(size=fact.shape) for name, fact in graph.tensors.items() if fact.producer is None}
    wide = {
        name: np.pad(old, [(0, n - m) for n, m in zip(made.graph.tensors[name].shape, old.shape, strict=True)])
        for name, old in roots.items()
    }
    before, after = computed(graph, roots), computed(made.graph, wide)
    for name, old in before.items():
        np.testing.assert_allclose(after[name][tuple(map(slice, old.shape))], old, rtol=1e-6)


def computed(graph: Graph, values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Run the kernels one after the other."""
    values = dict(values)
    for node in graph.nodes.values():
        op = rule_for(node.op)
        operands = [None if name is None else values[str(name)] for name in node.operands]
        (values[node.results[0]],) = [op.kernel(*operands, **op.full_attrs(node.attrs))]
    return values
