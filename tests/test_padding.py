"""A size rounded up: what has to be as large is, and nothing else; what cannot be is left alone."""

from __future__ import annotations

import numpy as np
import pytest

from solver import Graph, Mesh, plan
from solver.graph import Tensor
from solver.padding import needs_a_mask, padded


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
    assert made.to_json() == heads(8).to_json()


def test_tied_tensors_stay_alike() -> None:
    g = Graph("tied")
    wte, head = g.parameter("wte", (30, 8)), g.parameter("head", (30, 8))
    g.tie(head, wte)
    e = g.op("embedding", g.input("ids", (4,), dtype="int64"), wte, name="e")
    g.output(g.op("softmax", g.op("matmul", e, head, transpose_y=True, name="logits"), name="p"))
    made = padded(g, "wte", 0, 32)
    assert made is not None
    assert {name: made.tensors[name].shape for name in ("wte", "head", "logits", "p")} == {
        "wte": (32, 8),
        "head": (32, 8),
        "logits": (4, 32),
        "p": (4, 32),
    }
    assert made.ties == {"head": "wte"}
    assert needs_a_mask(g, "wte", 0) == ["p"]
    assert needs_a_mask(g, "e", 1) == []


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
    assert repair.text == "pad dim 1 of 't' from 4 to 8"
    again = plan(heads(8), Mesh({"tp": 8}), pins={"t": "tp=S(1)"})
    assert (again.cost, again.memory.peak) == (repair.cost, repair.memory)
