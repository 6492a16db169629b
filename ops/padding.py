"""Padding: elements added at the ends of dims; a cut dim takes what its blocks hold of the padded one."""

from __future__ import annotations

from typing import Any

import numpy as np

from ops.bind import Shape
from ops.dims import Array, named_dims, shape_of
from ops.grad import Grad
from ops.notation import RuleError
from ops.op import Attrs, LocalContext, Range, Shapes
from ops.registry import family
from ops.rule import Rule, rule
from ops.slicing import Ints, at

_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def _widths(rank: int, pad: Ints) -> list[tuple[int, int]]:
    """Return the padding of each dim; a list that is shorter speaks of the last dims, the last one first."""
    pairs = list(zip(pad[::2], pad[1::2], strict=False))
    if len(pad) % 2 or len(pairs) > rank or min(pad, default=0) < 0:
        raise RuleError(
            f"pad={list(pad)} does not give two widths for each dim of a tensor of rank {rank}, or some of its last"
        )
    return pairs if len(pairs) == rank else [(0, 0)] * (rank - len(pairs)) + pairs[::-1]


def _pad_kernel(x: Array, pad: Ints, mode: str, value: float) -> Array:
    if mode == "constant":
        return np.pad(x, _widths(x.ndim, pad), constant_values=value)
    named: Any = _MODES[mode]
    return np.pad(x, _widths(x.ndim, pad), mode=named)


def _pad_back(out_grad: Array, *, pad: Ints, mode: str, value: float, shapes: Shapes) -> Array:
    x = shape_of(shapes, "x")
    grad = out_grad
    for axis, (before, after) in enumerate(_widths(len(x), pad)):
        if mode == "constant":
            grad = grad[at(axis, slice(before, before + x[axis]))]
        elif before or after:
            named: Any = _MODES[mode]
            source = np.pad(np.arange(x[axis]), (before, after), mode=named)
            inner = np.zeros((*grad.shape[:axis], x[axis], *grad.shape[axis + 1 :]), grad.dtype)
            np.add.at(inner, at(axis, source), grad)
            grad = inner
    return grad


def _pad_shape(shapes: Shapes, attrs: Attrs) -> tuple[Shape]:
    x = shape_of(shapes, "x")
    return (tuple(b + size + a for size, (b, a) in zip(x, _widths(len(x), attrs["pad"]), strict=True)),)


def _pad_block(size: int, width: tuple[int, int], block: int, count: int, least: int) -> tuple[int, int, int, int]:
    """Return the indices of x in one block of a padded dim, at least so many, and the padding before and after them."""
    length = (size + sum(width)) // count
    low = block * length - width[0]
    first = min(max(low, 0), size - least)
    end = max(first + least, min(low + length, size))
    before = min(max(-low, 0), length - (end - first))
    return first, end, before, length - before - (end - first)


def _block_of(x: Shape, attrs: Attrs, dim: int, block: int, count: int) -> tuple[int, int, int, int]:
    return _pad_block(x[dim], _widths(len(x), attrs["pad"])[dim], block, count, attrs["mode"] != "constant")


def _pad_reach(shapes: Shapes, attrs: Attrs, factor: str, block: int, count: int) -> dict[str, Range]:
    return {"x": _block_of(shape_of(shapes, "x"), attrs, int(factor[1:]), block, count)[:2]}


def _local_pad(attrs: Attrs, ctx: LocalContext) -> Attrs:
    x = shape_of(ctx.whole, "x")
    pad = list(_widths(len(x), attrs["pad"]))
    for dim, pair in enumerate(pad):
        if any(pair) and (count := ctx.count(f"d{dim}")) > 1:
            pad[dim] = _block_of(x, attrs, dim, ctx.block(f"d{dim}"), count)[2:]
    return {**attrs, "pad": [width for pair in pad for width in pair]}


@family(
    "pad",
    "x[] -> out[]",
    kernel=_pad_kernel,
    shape=_pad_shape,
    local=_local_pad,
    reach=_pad_reach,
    grad=Grad(_pad_back, reads="", cuts="d*", shapes=True),
)
def pad(x: Shape, pad: Ints, mode: str = "constant", value: float = 0.0) -> Rule:
    """Elements added at the ends of dims: a constant, or elements of x by mode; these reach across a cut."""
    if mode not in _MODES:
        raise RuleError(f"mode={mode!r} is not one of {', '.join(_MODES)}")
    widths = _widths(len(x), pad)
    padded = [dim for dim, pair in enumerate(widths) if any(pair)]
    near = mode in ("constant", "replicate")
    names = named_dims(len(x))
    dims = " ".join("_" if dim in padded and not near else name for dim, name in enumerate(names))
    adds = mode == "constant" and value != 0 and bool(padded)
    halo = " ".join(names[dim] for dim in padded if near)
    return rule(f"x[{dims}] -> out[{dims}]", halo=halo, linear="" if adds else "x", monotone="x")
