"""JAX primitives that move elements and compute nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from solver.importers.jax_fold import known, number_of, uniform
from solver.importers.jax_site import Site, Translation
from solver.importers.sketch import CONSTANT_LIMIT, Value


def _broadcast(site: Site) -> Value:
    """Dims of x at their places among those of the result, then repeated."""
    x, shape = site.operands[0], site.shape
    kept = [int(dim) for dim in site.params["broadcast_dimensions"]]
    number = number_of(x)
    if number is not None:
        return uniform(shape, number, x.dtype)
    sizes = [1] * len(shape)
    for dim, size in zip(kept, x.shape, strict=True):
        sizes[dim] = size
    return site.expand(site.reshape(x, sizes), shape)


def _reshape(site: Site) -> Value:
    if site.name == "reshape" and site.params["dimensions"] is not None:
        return site.reshape(site.transpose(site.operands[0], site.params["dimensions"]), site.shape)
    return site.reshape(site.operands[0], site.shape)


def _transpose(site: Site) -> Value:
    return site.transpose(site.operands[0], site.params["permutation"])


def _rev(site: Site) -> Value:
    return flipped(site, site.operands[0], sorted(int(dim) for dim in site.params["dimensions"]))


def flipped(site: Site, x: Value, axis: list[int]) -> Value:
    """Return x with the order of some dims reversed; what was reversed before, and transposed since, is as it was."""
    step = x.maker
    if step is not None and step.op == "transpose":
        order = step.attrs["perm"]
        (inner,) = step.inputs()
        turned = inner.maker
        if turned is not None and turned.op == "flip" and turned.attrs["axis"] == sorted(order[dim] for dim in axis):
            return site.transpose(next(turned.inputs()), order)
    if step is not None and step.op == "flip" and step.attrs["axis"] == axis:
        return next(step.inputs())
    return site.emit("flip", x, axis=axis) if axis else x


def _slice(site: Site) -> Value:
    starts, ends, strides = (site.params[name] for name in ("start_indices", "limit_indices", "strides"))
    return sliced(site, site.operands[0], starts, ends, strides)


def sliced(
    site: Site, x: Value, starts: Sequence[int], ends: Sequence[int], strides: Sequence[int] | None = None
) -> Value:
    """Return the elements of x from start to end in every dim."""
    steps = [1] * len(x.shape) if strides is None else [int(step) for step in strides]
    axes = [
        dim for dim, size in enumerate(x.shape) if (int(starts[dim]), steps[dim]) != (0, 1) or int(ends[dim]) != size
    ]
    if not axes:
        return x
    attrs = {"axes": axes, "starts": [int(starts[dim]) for dim in axes], "ends": [int(ends[dim]) for dim in axes]}
    if all(steps[dim] == 1 for dim in axes):
        return site.emit("slice", x, **attrs)
    return site.emit("strided_slice", x, **attrs, strides=[steps[dim] for dim in axes])


def _pad(site: Site) -> Value:
    x, fill = site.operands
    value = number_of(fill)
    if value is None:
        raise site.refuse("it pads with a number that is computed from data, and only a known one can be planned")
    return padded(site, x, [tuple(map(int, width)) for width in site.params["padding_config"]], value)


def padded(site: Site, x: Value, widths: Sequence[tuple[int, ...]], value: float = 0.0) -> Value:
    """Return x with a number before, behind and between its elements: (low, high, interior) for each dim.

    Between elements: each becomes a row of its own, which is padded; a negative width cuts off.
    """
    for dim, (_, _, interior) in enumerate(widths):
        if interior and x.shape[dim] > 1:
            size, shape = x.shape[dim], x.shape
            rows = site.reshape(x, (*shape[: dim + 1], 1, *shape[dim + 1 :]))
            flat = [0, 0] * (dim + 1) + [0, interior] + [0, 0] * (len(shape) - dim - 1)
            rows = site.emit("pad", rows, pad=flat, value=value)
            x = site.reshape(rows, (*shape[:dim], size * (interior + 1), *shape[dim + 1 :]))
            ends = [*x.shape[:dim], (size - 1) * (interior + 1) + 1, *x.shape[dim + 1 :]]
            x = sliced(site, x, [0] * len(shape), ends)
    flat = [max(0, int(width)) for low, high, _ in widths for width in (low, high)]
    if any(flat):
        x = site.emit("pad", x, pad=flat, value=value)
    starts = [max(0, -low) for low, _, _ in widths]
    ends = [size - max(0, -high) for size, (_, high, _) in zip(x.shape, widths, strict=True)]
    return sliced(site, x, starts, ends)


def _concatenate(site: Site) -> Value:
    axis = int(site.params["dimension"])
    filled = [x for x in site.operands if 0 not in x.shape] or site.operands[:1]
    return filled[0] if len(filled) == 1 else site.emit("concat", filled, axis=axis)


def _stack(site: Site) -> Value:
    return site.emit("stack", site.operands, axis=int(site.params["axis"]))


def _unstack(site: Site) -> Sequence[Value]:
    return site.emit_all("unbind", site.operands[0], axis=int(site.params["axis"]))


def _tile(site: Site) -> Value:
    return site.emit("tile", site.operands[0], repeat_times=[int(count) for count in site.params["reps"]])


def _split(site: Site) -> Sequence[Value]:
    sizes = [int(size) for size in site.params["sizes"]]
    if len(sizes) == 1:
        return [site.operands[0]]
    return site.emit_all("split", site.operands[0], num_or_sections=sizes, axis=int(site.params["axis"]))


def _iota(site: Site) -> Value:
    """Numbers along one dim; of many elements only the line is known, or made by an op, and is broadcast where used."""
    shape, dim = site.shape, int(site.params["dimension"])
    along = [size if at == dim else 1 for at, size in enumerate(shape)]
    if math.prod(shape) <= CONSTANT_LIMIT:
        return known(np.broadcast_to(np.arange(shape[dim]).reshape(along), shape), site.dtype)
    site.note("positions of more elements than a constant may hold are broadcast where they are used")
    row = site.emit("arange", start=0, end=shape[dim], dtype=site.dtype)
    return site.expand(site.reshape(row, along), shape)


VIEWS: dict[str, Translation] = {
    "broadcast_in_dim": _broadcast,
    "reshape": _reshape,
    "squeeze": _reshape,
    "transpose": _transpose,
    "rev": _rev,
    "slice": _slice,
    "pad": _pad,
    "concatenate": _concatenate,
    "stack": _stack,
    "unstack": _unstack,
    "tile": _tile,
    "split": _split,
    "iota": _iota,
}
"""Primitives whose result holds the elements of their operands at other places."""
