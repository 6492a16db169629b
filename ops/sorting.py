"""Ops that order elements along a dim, which is whole; the distinct ones among them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ops.bind import Shape
from ops.dims import Array, axis_in, shape_of
from ops.grad import Grad
from ops.notation import RuleError
from ops.op import REQUIRED, Attrs, Shapes
from ops.registry import family, op
from ops.rule import Rule, rule


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


# -------------------------------------------------------------------------------------------------------------- unique


def _unique(
    x: Array,
    axis: int | None,
    size: int,
    return_index: bool,
    return_inverse: bool,
    return_counts: bool,
    dtype: str,
) -> tuple[Array | None, ...]:
    """Return the distinct elements in order, then the first of them again and again until there are `size`."""
    at = 0 if axis is None else axis
    out, indices, inverse, counts = np.unique(x, True, True, True, axis)
    found = out.shape[at]
    if found > size:
        raise ValueError(f"unique: x holds {found} distinct elements, more than size={size}")
    fill = np.concatenate([np.arange(found), np.zeros(size - found, np.int64)])
    counts = np.concatenate([counts, np.zeros(size - found, counts.dtype)])
    return (
        out.take(fill, at),
        indices[fill].astype(dtype) if return_index else None,
        inverse.reshape(-1).astype(dtype) if return_inverse else None,
        counts.astype(dtype) if return_counts else None,
    )


def _unique_shape(shapes: Shapes, attrs: Attrs) -> tuple[Shape | None, ...]:
    x, size, axis = shape_of(shapes, "x"), attrs["size"], attrs["axis"]
    at = None if axis is None else axis_in(axis, len(x), "axis")
    total = math.prod(x) if at is None else x[at]
    return (
        (size,) if at is None else (*x[:at], size, *x[at + 1 :]),
        (size,) if attrs["return_index"] else None,
        (total,) if attrs["return_inverse"] else None,
        (size,) if attrs["return_counts"] else None,
    )


def _unique_dtypes(dtypes: Any, attrs: Attrs) -> tuple[str, ...]:
    extra = sum(attrs[f"return_{name}"] for name in ("index", "inverse", "counts"))
    return (str(dtypes["x"]), *[str(attrs["dtype"])] * extra)


@family(
    "unique",
    "x[] -> out[], indices?[], inverse?[], counts?[]",
    kernel=_unique,
    shape=_unique_shape,
    dtype=_unique_dtypes,
    flops=_flops,
)
def unique(
    x: Shape,
    size: int | None = None,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    dtype: str = "int64",
) -> Rule:
    """The distinct elements, or slices: every device finds them all, and a static graph says how many there may be."""
    total = math.prod(x) if axis is None else x[axis_in(axis, len(x), "axis")]
    if size is None:
        raise RuleError(
            "unique makes as many elements as x has distinct ones, which only the data say: give size=, the most there "
            "can be; what is left over repeats the first and counts 0"
        )
    if not 0 < size <= total:
        raise RuleError(f"unique: size={size} is not between 1 and the {total} elements of x {x}")
    whole = " ".join("_" for _ in x)
    return rule(f"x[{whole}] -> out[{whole if axis is not None else '_'}], indices?[_], inverse?[_], counts?[_]")
