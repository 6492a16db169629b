"""Ops of Paddle that name, list or make known values, and those that are no step of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from solver.importers.paddle_site import Site, dtype_of, known
from solver.importers.sketch import Value


def _full(site: Site) -> None:
    dtype = str(site.attr("dtype"))
    value = np.asarray(site.attr("value")).astype("float32" if dtype == "bfloat16" else dtype)
    site.bind(out=Value(tuple(site.ints("shape")), dtype, "known", "", np.broadcast_to(value, site.ints("shape"))))


def _full_like(site: Site) -> None:
    x = site.value("x")
    dtype = site.attr("dtype") or x.dtype
    value = np.asarray(site.attr("value")).astype("float32" if dtype == "bfloat16" else dtype)
    site.bind(out=Value(x.shape, dtype, "known", "", np.broadcast_to(value, x.shape)))


def _int_array(site: Site) -> None:
    site.bind(out=known(np.asarray(site.attrs["value"], "int64"), "int64"))


def _shape(site: Site) -> None:
    dtype = "int32" if site.kind == "shape" else "int64"
    site.bind(out=known(np.asarray(site.value("input").shape, dtype), dtype))


def _numel(site: Site) -> None:
    site.bind(size=known(np.asarray(np.prod(site.value("x").shape, dtype="int64")), "int64"))


def _assign_value(site: Site) -> None:
    dtype = str(dtype_of(site.attrs["dtype"]))
    values = np.asarray([getattr(item, "value", item) for item in site.attrs["values"]])
    made = known(values.reshape(site.ints("shape")), dtype)
    site.bind(out=made, output=made)


def _arange(site: Site) -> None:
    start, end, step = (site.attr(name) for name in ("start", "end", "step"))
    dtype = str(site.attr("dtype"))
    site.bind(out=known(np.arange(start, end, step), dtype))


def _linspace(site: Site) -> None:
    start, stop, number = (site.attr(name) for name in ("start", "stop", "number"))
    site.bind(out=known(np.linspace(start, stop, int(number)), str(site.attr("dtype"))))


def _eye(site: Site) -> None:
    rows, columns = int(site.attr("num_rows")), int(site.attr("num_columns"))
    site.bind(out=known(np.eye(rows, rows if columns < 0 else columns), str(site.attr("dtype"))))


def _cast(site: Site) -> None:
    x, dtype = site.value("x"), str(site.attr("dtype"))
    if x.dtype == dtype:
        site.bind(out=x)
    elif x.data is not None:
        site.bind(out=known(x.data, dtype))
    else:
        site.bind(out=site.emit("cast", x, dtype=dtype))


def _same(site: Site) -> None:
    """Their result is their operand: memory is not a matter of layout, and a copy that is not written to is none."""
    (operand, *_), (result, *_) = site.inputs, site.results
    site.bind(**{result: site.found(operand)})


def _set_value(site: Site) -> None:
    """A write into a slice: a tensor, or a number all over."""
    x, axes = site.value("x"), site.ints("axes")
    starts, ends, strides = (site.ints(name) for name in ("starts", "ends", "steps"))
    if site.ints("none_axes"):
        raise site.refuse("a write through a new dim (None in the index) becomes nothing here; reshape first")
    shape = list(x.shape)
    for axis, start, end, stride in zip(axes, starts, ends, strides, strict=True):
        shape[axis] = len(range(*slice(start, end, stride).indices(x.shape[axis])))
    if "values" in site.inputs:
        value = site.value("values")
        dropped = [shape[axis] for axis in range(len(shape)) if axis not in site.ints("decrease_axes")]
        if list(value.shape) != shape:
            value = site.emit("expand", value, shape=dropped) if list(value.shape) != dropped else value
            value = site.emit("reshape", value, shape=shape)
    else:
        numbers = np.asarray([getattr(item, "value", item) for item in site.attrs["values"]])
        whole = np.broadcast_to(numbers.reshape(site.ints("shape") or (1,)), shape)
        value = known(whole, x.dtype)
    made = site.emit("slice_scatter", x, value, axes=axes, starts=starts, ends=ends, strides=strides)
    site.bind(out=made)


def _set_value_grad(site: Site) -> None:
    grad, axes = site.value("out_grad"), site.ints("axes")
    starts, ends, strides = (site.ints(name) for name in ("starts", "ends", "steps"))
    named = {"axes": axes, "starts": starts, "ends": ends, "strides": strides}
    picked = site.emit("strided_slice", grad, **named) if "values_grad" in site.results else None
    if picked is not None:
        value = site.value("values")
        if value.shape != picked.shape:
            raise site.refuse("the value that was written was broadcast; expand it before it is written")
        site.bind(values_grad=picked)
    if "x_grad" in site.results:
        shape = list(grad.shape)
        for axis, start, end, stride in zip(axes, starts, ends, strides, strict=True):
            shape[axis] = len(range(*slice(start, end, stride).indices(grad.shape[axis])))
        zeros = known(np.broadcast_to(np.zeros((), np.float32), shape), grad.dtype)
        site.bind(x_grad=site.emit("slice_scatter", grad, zeros, **named))


def _increment(site: Site) -> None:
    x = site.value("x")
    site.bind(out=site.emit("scale", x, scale=1.0, bias=float(site.attr("value"))))


def _argsort(site: Site) -> None:
    x = site.value("x")
    given: dict[str, Any] = {name: site.attr(name) for name in ("axis", "descending", "stable")}
    if "out" in site.results and not site.results["out"].use_empty():
        site.bind(out=site.emit("sort", x, **given))
    site.bind(indices=site.emit("argsort", x, **given))


KNOWN: dict[str, Callable[[Site], None]] = {
    "full": _full,
    "full_like": _full_like,
    "full_with_tensor": _full,
    "full_int_array": _int_array,
    "shape": _shape,
    "shape64": _shape,
    "numel": _numel,
    "assign_value": _assign_value,
    "arange": _arange,
    "linspace": _linspace,
    "eye": _eye,
    "cast": _cast,
    "assign": _same,
    "assign_out": _same,
    "share_data": _same,
    "memcpy": _same,
    "print": _same,
    "set_value": _set_value,
    "set_value_with_tensor": _set_value,
    "set_value_with_tensor_grad": _set_value_grad,
    "increment": _increment,
    "argsort": _argsort,
}
"""What each becomes, by the names of `solver.importers.paddle_ops`."""
