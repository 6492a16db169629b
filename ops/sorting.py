"""Ops that order elements along a dim, which is whole."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ops.bind import Shape
from ops.dims import Array, axis_in, shape_of
from ops.grad import Grad
from ops.notation import RuleError
from ops.op import REQUIRED, Attrs, Shapes
from ops.registry import op


def order_of(x: Array, axis: int, descending: bool) -> Array:
    """Return the indices that sort a tensor; equal elements keep their order."""
    if not descending:
        return np.argsort(x, axis, kind="stable")
    backward = np.argsort(np.flip(x, axis), axis, kind="stable")
    return np.flip(x.shape[axis] - 1 - backward, axis)


def put_back(indices: Array, grad: Array, x: Shape, axis: int) -> Array:
    """Put each grad where its element was taken from; no element was taken twice."""
    made = np.zeros(x, grad.dtype)
    np.put_along_axis(made, indices, grad, axis)
    return made


def _flops(shapes: Shapes, attrs: Attrs) -> int:
    x = shape_of(shapes, "x")
    return math.prod(x) * max(1, max(x, default=1).bit_length())


def _topk(x: Array, k: int, axis: int, largest: bool, sorted: bool) -> tuple[Array, Array]:
    order = order_of(x, axis, largest)
    indices = order.take(np.arange(k), axis)
    return np.take_along_axis(x, indices, axis), indices.astype(np.int64)


def _topk_shape(shapes: Shapes, attrs: Attrs) -> tuple[Shape, Shape]:
    x = shape_of(shapes, "x")
    axis = axis_in(attrs["axis"], len(x), "axis")
    if not 0 < attrs["k"] <= x[axis]:
        raise RuleError(f"k={attrs['k']} is not between 1 and the size {x[axis]} of dim {axis} of x {x}")
    made = (*x[:axis], attrs["k"], *x[axis + 1 :])
    return made, made


def _topk_back(indices: Array, out_grad: Array, *, axis: int, shapes: Shapes, **_: Any) -> Array:
    return put_back(indices, out_grad, shape_of(shapes, "x"), axis)


op(
    "topk",
    "x[a* c@axis b*] -> out[a* k b*], indices[a* k b*]",
    whole="c k",
    attrs={"k": REQUIRED, "axis": -1, "largest": True, "sorted": True},
    kernel=_topk,
    shape=_topk_shape,
    dtype=("first", "int64"),
    flops=_flops,
    grad=Grad(_topk_back, reads="indices", outs="out", cuts="k", shapes=True),
)


def _sort(x: Array, axis: int, descending: bool, stable: bool) -> Array:
    return np.take_along_axis(x, order_of(x, axis, descending), axis)


def _sort_back(x: Array, out_grad: Array, *, axis: int, descending: bool, stable: bool) -> Array:
    return put_back(order_of(x, axis, descending), out_grad, x.shape, axis)


op(
    "sort",
    "x[a* c@axis b*] -> out[a* c b*]",
    whole="c",
    attrs={"axis": -1, "descending": False, "stable": False},
    kernel=_sort,
    flops=_flops,
    grad=Grad(_sort_back, reads="x"),
)
op(
    "argsort",
    "x[a* c@axis b*] -> out[a* c b*]",
    whole="c",
    attrs={"axis": -1, "descending": False, "stable": False},
    kernel=lambda x, axis, descending, stable: order_of(x, axis, descending).astype(np.int64),
    dtype="int64",
    flops=_flops,
)
