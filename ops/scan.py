"""Running sums, products and extremes along a dim, which is whole; without an axis the tensor is flattened."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ops.bind import Shape
from ops.dims import Array, axis_in, named_dims, shape_of
from ops.grad import Grad
from ops.notation import RuleError
from ops.op import Attrs, Shapes
from ops.registry import family
from ops.rule import Rule, rule


def _along(x: Array, axis: int | None) -> tuple[Array, int]:
    return (x.reshape(-1), 0) if axis is None else (x, axis % max(x.ndim, 1))


def _dims(x: Shape, axis: int | None) -> tuple[str, str]:
    if axis is None and len(x) != 1:
        return " ".join("_" for _ in x), "_"
    place = axis_in(axis or 0, len(x), "axis")
    dims = " ".join("_" if dim == place else name for dim, name in enumerate(named_dims(len(x))))
    return dims, dims


def _shape(results: int, attribute: str = "axis") -> Any:
    def shape(shapes: Shapes, attrs: Attrs) -> tuple[Shape, ...]:
        x = shape_of(shapes, "x")
        return ((math.prod(x),) if attrs[attribute] is None else x,) * results

    return shape


def _reverse_sum(x: Array, axis: int) -> Array:
    return np.flip(np.cumsum(np.flip(x, axis), axis), axis)


def _cumsum(x: Array, axis: int | None, exclusive: bool, reverse: bool) -> Array:
    flat, place = _along(x, axis)
    total = _reverse_sum(flat, place) if reverse else np.cumsum(flat, place, dtype=flat.dtype)
    return total - flat if exclusive else total


def _cumsum_back(out_grad: Array, *, axis: int | None, exclusive: bool, reverse: bool, shapes: Shapes) -> Array:
    place = 0 if axis is None else axis % out_grad.ndim
    return _cumsum(out_grad, place, exclusive, not reverse).reshape(shape_of(shapes, "x"))


@family("cumsum", "x[] -> out[]", kernel=_cumsum, shape=_shape(1), grad=Grad(_cumsum_back, reads="", shapes=True))
def cumsum(x: Shape, axis: int | None = None, exclusive: bool = False, reverse: bool = False) -> Rule:
    """The sum of all elements up to each; exclusive: before each; reverse: from each on."""
    left, right = _dims(x, axis)
    return rule(f"x[{left}] -> out[{right}]", linear="x")


def _cumprod(x: Array, dim: int | None) -> Array:
    flat, place = _along(x, dim)
    return np.cumprod(flat, place, dtype=flat.dtype)


def _cumprod_back(x: Array, out: Array, out_grad: Array, *, dim: int | None) -> Array:
    flat, place = _along(x, dim)
    if np.all(flat):
        return np.asarray(_reverse_sum(out_grad * out, place) / flat).reshape(x.shape)
    grad = np.zeros_like(flat)
    for i in range(flat.shape[place]):
        without = np.array(flat)
        at: Any = (*[slice(None)] * place, i)
        since: Any = (*[slice(None)] * place, slice(i, None))
        without[at] = 1
        grad[at] = (out_grad * np.cumprod(without, place))[since].sum(place)
    return grad.reshape(x.shape)


@family(
    "cumprod",
    "x[] -> out[]",
    kernel=_cumprod,
    shape=_shape(1, "dim"),
    grad=Grad(_cumprod_back, reads="x out", linear={"x": "out"}),
)
def cumprod(x: Shape, dim: int | None = None) -> Rule:
    """The product of all elements up to each."""
    left, right = _dims(x, dim)
    return rule(f"x[{left}] -> out[{right}]")


def _extreme(accumulate: Any, x: Array, axis: int | None) -> tuple[Array, Array]:
    """Return the running extreme and the last index that holds it."""
    flat, place = _along(x, axis)
    out = accumulate(flat, place)
    along = np.arange(flat.shape[place]).reshape([-1 if dim == place else 1 for dim in range(flat.ndim)])
    return out, np.maximum.accumulate(np.where(flat == out, along, 0), place).astype(np.int64)


def _extreme_back(indices: Array, out_grad: Array, *, axis: int | None, dtype: str, shapes: Shapes) -> Array:
    """Add each grad where its extreme is; where places are cut, each device adds its own."""
    x = shape_of(shapes, "x")
    grad = np.zeros((math.prod(x),) if axis is None else x, out_grad.dtype)
    where: list[Any] = list(np.ogrid[tuple(slice(0, size) for size in out_grad.shape)])
    where[0 if axis is None else axis % len(x)] = indices
    np.add.at(grad, tuple(where), out_grad)
    return grad.reshape(x)


def _register_extreme(name: str, ufunc: Any) -> None:
    def kernel(x: Array, axis: int | None, dtype: str) -> tuple[Array, Array]:
        out, indices = _extreme(ufunc.accumulate, x, axis)
        return out, indices.astype(dtype)

    @family(
        name,
        "x[] -> out[], indices[]",
        kernel=kernel,
        shape=_shape(2),
        dtype=lambda dtypes, attrs: ("first", str(attrs["dtype"])),
        grad=Grad(_extreme_back, reads="indices", outs="out", cuts="j", shapes=True),
    )
    def extreme(x: Shape, axis: int | None = None, dtype: str = "int64") -> Rule:
        """The extreme of all elements up to each, and where it is; the last where several hold it."""
        if dtype not in ("int32", "int64"):
            raise RuleError(f"{name}: dtype={dtype!r} of the indices is neither int32 nor int64")
        if axis is None and len(x) != 1:
            left, right = " ".join("_" for _ in x), "j"
        else:
            place = axis_in(axis or 0, len(x), "axis")
            left, right = (
                " ".join(own if dim == place else other for dim, other in enumerate(named_dims(len(x))))
                for own in ("v", "j")
            )
        return rule(f"x[{left}] -> out[{right}], indices[{right}]", whole="v j" if "v" in left else "j")


_register_extreme("cummax", np.maximum)
_register_extreme("cummin", np.minimum)


def _logcumsumexp(x: Array, axis: int | None) -> Array:
    flat, place = _along(x, axis)
    return np.asarray(np.logaddexp.accumulate(flat, place))


def _logcumsumexp_back(x: Array, out: Array, out_grad: Array, *, axis: int | None) -> Array:
    flat, place = _along(x, axis)
    top = flat.max(place, keepdims=True)
    return np.asarray(np.exp(flat - top) * _reverse_sum(out_grad * np.exp(top - out), place)).reshape(x.shape)


@family(
    "logcumsumexp",
    "x[] -> out[]",
    kernel=_logcumsumexp,
    shape=_shape(1),
    grad=Grad(_logcumsumexp_back, reads="x out"),
)
def logcumsumexp(x: Shape, axis: int | None = None) -> Rule:
    """The logarithm of the sum of the exponentials of all elements up to each."""
    left, right = _dims(x, axis)
    return rule(f"x[{left}] -> out[{right}]")
