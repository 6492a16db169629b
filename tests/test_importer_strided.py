"""Windows of memory by strides, against numpy's own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops import rule_for
from ops.run import Device, steps
from solver.graph import Graph
from solver.importers.aten import lower
from solver.importers.capture import INPUT, Capture, CapturedNode, Ref, Spec
from solver.importers.errors import UnsupportedNodeError


def strided(shape: Sequence[int], size: Sequence[int], stride: Sequence[int], offset: int = 0) -> Graph:
    """The window of an input x."""
    node = CapturedNode("y", "aten.as_strided.default", (Ref("x"), list(size), list(stride), offset))
    return lowered({"x": shape}, node)


def written(shape: Sequence[int], size: Sequence[int], stride: Sequence[int], offset: int = 0) -> Graph:
    """An input x with an input value in a window of it."""
    args = (Ref("x"), Ref("value"), list(size), list(stride), offset)
    return lowered({"x": shape, "value": size}, CapturedNode("y", "aten.as_strided_scatter.default", args))


def lowered(inputs: Mapping[str, Sequence[int]], node: CapturedNode) -> Graph:
    places = [
        CapturedNode(name, "placeholder", val=Spec(tuple(shape), "float64"), role=INPUT)
        for name, shape in inputs.items()
    ]
    return lower(Capture("window", [*places, node, CapturedNode("output", "output", ([Ref("y")],))]))


def run(graph: Graph, given: dict[str, np.ndarray]) -> np.ndarray:
    """Run the ops of a graph one by one, up to its output."""
    held = {t.name: t.value for t in graph.tensors.values() if t.value is not None} | given
    for node in graph.nodes.values():
        op, bound = rule_for(node.op), graph.bind(node.name)
        running = steps(op, bound, [held[t] for t in node.operands], node.attrs, Device(bound))
        try:
            next(running)
        except StopIteration as stop:
            held |= dict(zip(node.results, stop.value, strict=True))
    return held[graph.outputs[0]]


def window(x: np.ndarray, size: Sequence[int], stride: Sequence[int], offset: int) -> np.ndarray:
    flat = np.ascontiguousarray(x).reshape(-1)[offset:]
    return np.lib.stride_tricks.as_strided(flat, size, [step * x.itemsize for step in stride])


VIEWS = [
    ("all of it", (4, 6), (4, 6), (6, 1), 0, []),
    ("a transpose", (4, 6), (6, 4), (1, 6), 0, ["transpose"]),
    ("a reshape", (4, 6), (2, 2, 6), (12, 6, 1), 0, ["reshape"]),
    ("rows", (4, 6), (2, 6), (6, 1), 6, ["slice"]),
    ("one of three on a minor part", (4, 6), (4, 2), (6, 1), 2, ["slice"]),
    ("heads in front", (2, 4, 6), (2, 3, 4, 2), (24, 2, 6, 1), 0, ["reshape", "transpose"]),
    ("every other column", (4, 6), (4, 3), (6, 2), 1, ["reshape", "slice", "reshape"]),
    ("repeated rows", (6,), (4, 6), (0, 1), 0, ["reshape", "expand"]),
    ("a scalar", (4, 6), (), (), 7, ["reshape", "slice", "reshape"]),
    ("a diagonal", (4, 4), (4,), (5,), 0, ["reshape", "gather"]),
    ("overlapping chunks", (2, 12, 3), (2, 5, 4, 3), (36, 6, 3, 1), 0, ["gather"]),
]


@pytest.mark.parametrize(("what", "shape", "size", "stride", "offset", "ops"), VIEWS, ids=[v[0] for v in VIEWS])
def test_a_window_becomes_the_ops_that_it_is(
    what: str, shape: tuple[int, ...], size: tuple[int, ...], stride: tuple[int, ...], offset: int, ops: list[str]
) -> None:
    graph, x = strided(shape, size, stride, offset), np.arange(math.prod(shape), dtype=np.float64).reshape(shape)
    assert [node.op for node in graph.nodes.values()] == ops
    assert (run(graph, {"x": x}) == window(x, size, stride, offset)).all()


@st.composite
def windows(draw: st.DrawFn) -> tuple[list[int], list[int], list[int], int]:
    shape = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    elements = math.prod(shape)
    size, stride, room = [], [], elements - 1
    for _ in range(draw(st.integers(0, 4))):
        step = draw(st.sampled_from([0, 1, shape[-1], math.prod(shape[-2:]), *range(2, 7)]))
        count = draw(st.integers(1, 1 + min(room // step, 4) if step else 3))
        room -= (count - 1) * step
        size.append(count)
        stride.append(step)
    return shape, size, stride, draw(st.integers(0, room))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(windows())
def test_any_window_is_the_one_of_numpy(case: tuple[list[int], list[int], list[int], int]) -> None:
    shape, size, stride, offset = case
    graph, x = strided(shape, size, stride, offset), np.arange(math.prod(shape), dtype=np.float64).reshape(shape)
    expected = window(x, size, stride, offset)
    assert graph.tensors[graph.outputs[0]].shape == expected.shape
    assert (run(graph, {"x": x}) == expected).all()
    value = -1.0 - np.arange(expected.size, dtype=np.float64).reshape(expected.shape)
    try:
        other = written(shape, size, stride, offset)
    except UnsupportedNodeError:
        assert "gather" in {node.op for node in graph.nodes.values()} or 0 in stride
        return
    goal = x.copy()
    window(goal, size, stride, offset)[...] = value
    assert (run(other, {"x": x, "value": value}) == goal).all()


def test_a_window_that_leaves_its_tensor_is_refused() -> None:
    with pytest.raises(UnsupportedNodeError, match=r"size \[4, 6\], strides \[6, 1\] and offset 1 leaves a tensor"):
        strided((4, 6), (4, 6), (6, 1), 1)


def test_a_window_that_repeats_elements_is_not_written_to() -> None:
    with pytest.raises(UnsupportedNodeError, match="more than once"):
        written((6,), (4, 3), (1, 1))


def test_a_window_of_what_lies_in_another_order_is_refused() -> None:
    turned = CapturedNode("t", "aten.t.default", (Ref("x"),), val=Spec((6, 4), "float64"))
    node = CapturedNode("y", "aten.as_strided.default", (Ref("t"), [3], [1], 0))
    places = [CapturedNode("x", "placeholder", val=Spec((4, 6), "float64"), role=INPUT)]
    with pytest.raises(UnsupportedNodeError, match="call contiguous"):
        lower(Capture("window", [*places, turned, node, CapturedNode("output", "output", ([Ref("y")],))]))
