"""Windows of memory by strides, against numpy's own."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops import rule_for
from ops.run import Device, steps
from solver.graph import Graph
from solver.importers.aten_strided import as_strided, as_strided_scatter
from solver.importers.errors import UnsupportedNodeError


def run(graph: Graph, given: dict[str, np.ndarray], name: str) -> np.ndarray:
    """Run the ops of a graph one by one."""
    held = {t.name: t.value for t in graph.tensors.values() if t.value is not None} | given
    for node in graph.nodes.values():
        op, bound = rule_for(node.op), graph.bind(node.name)
        running = steps(op, bound, [held[t] for t in node.operands], node.attrs, Device(bound))
        try:
            next(running)
        except StopIteration as stop:
            held |= dict(zip(node.results, stop.value, strict=True))
    return held[name]


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
    graph, x = Graph(), np.arange(math.prod(shape), dtype=np.float64).reshape(shape)
    made = as_strided(graph, graph.input("x", shape, "float64"), size, stride, offset)
    assert [node.op for node in graph.nodes.values()] == ops
    assert (run(graph, {"x": x}, made.name) == window(x, size, stride, offset)).all()


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
    graph, x = Graph(), np.arange(math.prod(shape), dtype=np.float64).reshape(shape)
    source = graph.input("x", shape, "float64")
    made = as_strided(graph, source, size, stride, offset)
    expected = window(x, size, stride, offset)
    assert made.shape == expected.shape
    assert (run(graph, {"x": x}, made.name) == expected).all()
    value = -1.0 - np.arange(expected.size, dtype=np.float64).reshape(expected.shape)
    given = graph.input("value", value.shape, "float64")
    try:
        written = as_strided_scatter(graph, source, given, size, stride, offset)
    except UnsupportedNodeError:
        assert "gather" in {node.op for node in graph.nodes.values()} or 0 in stride
        return
    goal = x.copy()
    window(goal, size, stride, offset)[...] = value
    assert (run(graph, {"x": x, "value": value}, written.name) == goal).all()


def test_a_window_that_leaves_its_tensor_is_refused() -> None:
    graph = Graph()
    x = graph.input("x", (4, 6))
    with pytest.raises(UnsupportedNodeError, match=r"size \[4, 6\], strides \[6, 1\] and offset 1 leaves a tensor"):
        as_strided(graph, x, (4, 6), (6, 1), 1)


def test_a_window_that_repeats_elements_is_not_written_to() -> None:
    graph = Graph()
    x, value = graph.input("x", (6,)), graph.input("value", (4, 3))
    with pytest.raises(UnsupportedNodeError, match="more than once"):
        as_strided_scatter(graph, x, value, (4, 3), (1, 1))
