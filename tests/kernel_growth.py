"""Ops whose kernels communicate, as a random graph grows by them (`tests.graphs`)."""

from __future__ import annotations

from math import prod
from typing import Any

from hypothesis import strategies as st

from solver.graph import Tensor

KERNEL_SHAPES = [(1, 2, 8), (2, 2, 4), (2, 1, 6), (1, 1, 12), (4, 4), (6, 4), (8, 2)]
"""What such a graph begins with."""
LARGEST = 64
"""The most elements of a tensor."""


def windowed(growing: Any, x: Tensor) -> Any:
    """Slide windows that overlap, or reach into padding, over the last dim."""
    if len(x.shape) != 3 or x.shape[-1] < 2:
        return None
    op = growing.draw(st.sampled_from(["conv1d", "max_pool1d", "avg_pool1d", "conv1d_transpose"]))
    how = {"stride": growing.draw(st.sampled_from([1, 1, 2])), "padding": growing.draw(st.sampled_from([1, [0, 1]]))}
    if "pool" in op:
        return growing.graph.op(op, x, kernel_size=growing.draw(st.sampled_from([2, 3])), **how)
    width, made = growing.draw(st.sampled_from([2, 3])), growing.draw(st.sampled_from([1, 2, 4]))
    channels = x.shape[1]
    if channels * made > LARGEST // 4 or prod(x.shape) * made * 2 > LARGEST * channels:
        return None
    return growing.graph.op(
        op, x, growing.alike((made, channels, width) if op == "conv1d" else (channels, made, width)), **how
    )


def moved(growing: Any, x: Tensor) -> Any:
    """Roll one dim or all, or pad one: what lies on the other side of a cut comes across."""
    if not x.shape:
        return None
    axis = growing.draw(st.integers(0, len(x.shape) - 1))
    how = growing.draw(st.sampled_from(["roll", "flat", "pad"]))
    if how == "roll":
        return growing.graph.op("roll", x, shifts=growing.draw(st.sampled_from([1, -2])), axis=axis)
    if how == "flat":
        return growing.graph.op("roll", x, shifts=growing.draw(st.sampled_from([1, 3])))
    if 2 * prod(x.shape) > LARGEST or len(x.shape) < 2:
        return None
    return growing.graph.op("pad", x, pad=[width for dim in range(len(x.shape)) for width in (1, int(dim == axis))])


def loss(growing: Any, x: Tensor) -> Any:
    """A kernel that reduces inside: over classes, or over all that there is."""
    if len(x.shape) != 2:
        return None
    name = f"label{len(growing.graph.tensors)}"
    if growing.draw(st.booleans()):
        label = growing.graph.input(name, (x.shape[0], 1), dtype="int64")
        return growing.graph.op("c_softmax_with_cross_entropy", x, label)
    return growing.graph.op("nll_loss", x, growing.graph.input(name, x.shape[:1], dtype="int64"))
