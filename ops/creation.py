"""Tensors made from nothing or from a shape, and triangles, whose mask depends on the position."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ops.bind import Shape
from ops.dims import Array, local_shape, named_dims
from ops.given import whole_numbers
from ops.grad import Grad
from ops.notation import RuleError
from ops.op import REQUIRED, Attrs, LocalContext, Shapes
from ops.registry import family, op
from ops.rule import Rule, rule
from ops.unary import numpy_dtype

Number = int | float | bool


def given_shape(shapes: Shapes, attrs: Attrs) -> tuple[Shape]:
    """Return the shape that the attribute ``shape`` gives."""
    shape = tuple(whole_numbers(attrs["shape"], "shape"))
    if any(size < 0 for size in shape):
        raise RuleError(f"shape={list(shape)} has a negative size")
    return (shape,)


def given_dtype(dtypes: Any, attrs: Attrs) -> tuple[str]:
    """Return the dtype that the attribute ``dtype`` gives, or else that of the operand."""
    return (str(attrs["dtype"]) if attrs["dtype"] else "first",)


def _filled(name: str, value: Number | None) -> None:
    """Register an op that fills a shape with a value, or with the attribute ``fill_value``."""

    def kernel(shape: Sequence[int], dtype: str, fill_value: Number = value or 0) -> Array:
        return np.full(shape, fill_value, numpy_dtype(dtype))

    extra = {"fill_value": REQUIRED} if value is None else {}

    @family(name, "-> out[]", kernel=kernel, attrs=extra, shape=given_shape, dtype=given_dtype, local=local_shape)
    def register(shape: Sequence[int] = REQUIRED, dtype: str = "float32") -> Rule:
        return rule(f"-> out[{' '.join(named_dims(len(shape)))}]")


def _filled_like(name: str, value: Number | None) -> None:
    """Register an op that fills the shape of x with a value, or with the attribute ``fill_value``."""

    def kernel(x: Array, dtype: str | None, fill_value: Number = value or 0) -> Array:
        return np.full_like(x, fill_value, dtype=numpy_dtype(dtype) if dtype else None)

    attrs = {"dtype": None, **({"fill_value": REQUIRED} if value is None else {})}
    op(name, "x[a*] -> out[a*]", kernel=kernel, attrs=attrs, dtype=given_dtype)


for _name, _value in {"full": None, "zeros": 0, "ones": 1}.items():
    _filled(_name, _value)
    _filled_like(f"{_name}_like", _value)


# Sequences: the device knows where its block starts.
def _block(factor: str) -> Callable[[Attrs, LocalContext], Attrs]:
    def local(attrs: Attrs, ctx: LocalContext) -> Attrs:
        out = ctx.results["out"] or ()
        return {**attrs, "first": ctx.start(factor), "count": out[0]}

    return local


def _arange_length(start: Number, end: Number, step: Number) -> int:
    if step == 0:
        raise RuleError("arange needs a step other than 0")
    if not all(map(math.isfinite, (start, end, step))):
        raise RuleError(f"arange from start={start} to end={end} by step={step}: give numbers that are finite")
    return max(0, math.ceil((end - start) / step))


def _arange(start: Number, end: Number, step: Number, dtype: str, first: int, count: int) -> Array:
    return np.asarray(start + step * np.arange(first, first + count), numpy_dtype(dtype))


@family(
    "arange",
    "-> out[]",
    kernel=_arange,
    shape=lambda shapes, attrs: ((_arange_length(attrs["start"], attrs["end"], attrs["step"]),),),
    dtype=given_dtype,
    local=_block("n"),
)
def arange(start: Number = 0, end: Number = REQUIRED, step: Number = 1, dtype: str = "int64") -> Rule:
    """Numbers from start to end, the end left out."""
    return rule("-> out[n]", major="n")


def _linspace(start: float, stop: float, num: int, dtype: str, first: int, count: int) -> Array:
    step = (stop - start) / max(num - 1, 1)
    return np.asarray(start + step * np.arange(first, first + count), numpy_dtype(dtype))


@family(
    "linspace",
    "-> out[]",
    kernel=_linspace,
    shape=lambda shapes, attrs: ((int(attrs["num"]),),),
    dtype=given_dtype,
    local=_block("n"),
)
def linspace(start: float = REQUIRED, stop: float = REQUIRED, num: int = REQUIRED, dtype: str = "float32") -> Rule:
    """Evenly spaced numbers, the end included."""
    return rule("-> out[n]", major="n")


# Diagonals: a cut of rows or columns shifts the diagonal.
def _shifted(name: str) -> Callable[[Attrs, LocalContext], Attrs]:
    def local(attrs: Attrs, ctx: LocalContext) -> Attrs:
        return {**attrs, name: attrs.get(name, 0) + ctx.start("m") - ctx.start("n")}

    return local


def _eye_local(attrs: Attrs, ctx: LocalContext) -> Attrs:
    rows, columns = ctx.results["out"] or (0, 0)
    return {**_shifted("diagonal")(attrs, ctx), "num_rows": rows, "num_columns": columns}


def _eye(num_rows: int, num_columns: int | None, dtype: str, diagonal: int = 0) -> Array:
    return np.eye(num_rows, num_columns, diagonal, numpy_dtype(dtype))


@family(
    "eye",
    "-> out[]",
    kernel=_eye,
    shape=lambda shapes, attrs: ((attrs["num_rows"], attrs["num_columns"] or attrs["num_rows"]),),
    dtype=given_dtype,
    local=_eye_local,
)
def eye(num_rows: int = REQUIRED, num_columns: int | None = None, dtype: str = "float32") -> Rule:
    """Ones on the diagonal, zeros elsewhere."""
    return rule("-> out[m n]", major="m n")


def _triangle(name: str, kernel: Callable[..., Array]) -> None:
    op(
        name,
        "x[a* m n] -> out[a* m n]",
        linear="x",
        monotone="x",
        major="m n",
        kernel=kernel,
        attrs={"diagonal": 0},
        local=_shifted("diagonal"),
        grad=Grad(lambda out_grad, diagonal: kernel(out_grad, diagonal), reads=""),
    )


_triangle("tril", lambda x, diagonal: np.tril(x, diagonal))
_triangle("triu", lambda x, diagonal: np.triu(x, diagonal))
