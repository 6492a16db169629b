"""Ops on images: resizing, shuffling pixels and channels, regions of interest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ops.bind import Shape
from ops.dims import Array, channel_axis, shape_of
from ops.grad import Grad
from ops.notation import RuleError
from ops.op import Attrs, LocalContext, Range, Shapes
from ops.registry import family
from ops.rule import Rule, rule

# ---------------------------------------------------------------------------------------------------------- interpolate

_LINEAR = ("linear", "bilinear", "trilinear")
_MODES = ("nearest", *_LINEAR, "bicubic", "area")
_SHARPNESS = -0.75
"""The parameter of the cubic kernel."""


class Taps(NamedTuple):
    """What each element of a resized dim is made of."""

    indices: Array
    """[out, taps]"""
    weights: Array
    """[out, taps]"""


def _space_axes(rank: int, data_format: str) -> list[int]:
    channel = channel_axis(data_format, rank)
    return [dim for dim in range(1, rank) if dim != channel]


def _goals(x: Shape, size: Any, scale_factor: Any, data_format: str) -> list[tuple[int, int, float]]:
    """Return, for each space dim, its axis, the size that is made, and elements of x for one of the result.

    Raises
    ------
    RuleError
        Where neither or both of size and scale_factor are given, or not one for each space dim.
    """
    axes = _space_axes(len(x), data_format)
    if (size is None) == (scale_factor is None):
        raise RuleError("interpolate takes one of size and scale_factor")
    given = scale_factor if size is None else size
    listed = [given] * len(axes) if isinstance(given, int | float) else list(given)
    if not axes:
        raise RuleError(f"interpolate takes an image, not x {x}, which has no space dim")
    if len(listed) != len(axes) or not all(0 < one < math.inf for one in listed):
        raise RuleError(f"{given} is not one positive number for each of {len(axes)} space dims")
    if size is None:
        return [(axis, math.floor(x[axis] * scale), 1 / scale) for axis, scale in zip(axes, listed, strict=True)]
    return [(axis, int(goal), x[axis] / int(goal)) for axis, goal in zip(axes, listed, strict=True)]


def _taps(size: int, goal: int, ratio: float, mode: str, align_corners: bool, align_mode: int) -> Taps:
    place = np.arange(goal)
    if mode == "area":
        return _area(size, goal)
    if align_corners:
        source = place * ((size - 1) / (goal - 1)) if goal > 1 else place * 0.0
    elif mode == "nearest" or (mode in _LINEAR and align_mode == 1):
        source = place * ratio
    else:
        source = (place + 0.5) * ratio - 0.5
    if mode == "nearest":
        nearest = np.floor(source + (0.5 if align_corners else 1e-9)).astype(int)
        return Taps(np.clip(nearest, 0, size - 1)[:, None], np.ones((goal, 1)))
    if mode in _LINEAR:
        source = np.clip(source, 0, None)
    low = np.floor(source).astype(int)
    part = source - low
    if mode in _LINEAR:
        weights, first = np.stack([1 - part, part], 1), low
    else:
        weights, first = np.stack([_cubic(part + 1), _cubic(part), _cubic(1 - part), _cubic(2 - part)], 1), low - 1
    return Taps(np.clip(first[:, None] + np.arange(weights.shape[1]), 0, size - 1), weights)


def _cubic(distance: Array) -> Array:
    near = (_SHARPNESS + 2) * distance**3 - (_SHARPNESS + 3) * distance**2 + 1
    far = _SHARPNESS * (distance**3 - 5 * distance**2 + 8 * distance - 4)
    return np.asarray(np.where(distance <= 1, near, far))


def _area(size: int, goal: int) -> Taps:
    """The mean of bins, as adaptive pooling takes it."""
    place = np.arange(goal)
    start, stop = place * size // goal, -(-(place + 1) * size // goal)
    offset = np.arange(int((stop - start).max()))
    inside = offset < (stop - start)[:, None]
    return Taps(np.where(inside, start[:, None] + offset, 0), inside / (stop - start)[:, None])


def _resize(x: Array, axis: int, taps: Taps) -> Array:
    along = [-1 if dim == axis else 1 for dim in range(x.ndim)]
    if taps.indices.shape[1] == 1:
        return x.take(taps.indices[:, 0], axis)
    total: Any = 0
    for indices, weights in zip(taps.indices.T, taps.weights.T, strict=True):
        total = total + x.take(indices, axis) * weights.astype(x.dtype).reshape(along)
    return np.asarray(total)


def _resize_back(grad: Array, axis: int, taps: Taps, size: int) -> Array:
    matrix = np.zeros((len(taps.indices), size), grad.dtype)
    np.add.at(matrix, (np.arange(len(taps.indices))[:, None], taps.indices), taps.weights)
    return np.moveaxis(np.moveaxis(grad, axis, -1) @ matrix, -1, axis)


class Resized(NamedTuple):
    """One dim of an image that is resized: of the whole dim, and which elements of it a device takes and makes."""

    axis: int
    size: int
    goal: int
    ratio: float
    first: int
    """The index of the first element of x that the device has."""
    start: int
    """The index of the first element that it makes."""
    made: int


def _taps_of(dim: Resized, attrs: Attrs) -> Taps | None:
    """Return what the elements of a dim are made of; None where they stay as they are."""
    if dim.goal == dim.size and math.isclose(dim.ratio, 1):
        return None
    whole = _taps(dim.size, dim.goal, dim.ratio, attrs["mode"], attrs["align_corners"], attrs["align_mode"])
    made = slice(dim.start, dim.start + dim.made)
    return Taps(whole.indices[made] - dim.first, whole.weights[made])


def _interpolate(x: Array, resized: Sequence[Resized] | None = None, **attrs: Any) -> Array:
    for dim in _resizing(x.shape, attrs) if resized is None else resized:
        if (taps := _taps_of(dim, attrs)) is not None:
            x = _resize(x, dim.axis, taps)
    return x


def _interpolate_back(
    out_grad: Array, *, shapes: Shapes, resized: Sequence[Resized] | None = None, **attrs: Any
) -> Array:
    grad = out_grad
    for dim in _resizing(shape_of(shapes, "x"), attrs) if resized is None else resized:
        if (taps := _taps_of(dim, attrs)) is not None:
            grad = _resize_back(grad, dim.axis, taps, shape_of(shapes, "x")[dim.axis])
    return grad


def _resizing(x: Shape, attrs: Attrs) -> list[Resized]:
    goals = _goals(x, attrs["size"], attrs["scale_factor"], attrs["data_format"])
    return [Resized(axis, x[axis], goal, ratio, 0, 0, goal) for axis, goal, ratio in goals]


def _seen_by(dim: Resized, attrs: Attrs, block: int, count: int) -> Resized:
    """Return the part of a resized dim that one block of it is, with what it sees of x in front."""
    own = dim._replace(start=block * dim.goal // count, made=dim.goal // count)
    taps = _taps_of(own, attrs)
    return own if taps is None else own._replace(first=int(taps.indices.min()))


def _interpolate_reach(shapes: Shapes, attrs: Attrs, factor: str, block: int, count: int) -> dict[str, Range]:
    dim = next(dim for dim in _resizing(shape_of(shapes, "x"), attrs) if f"d{dim.axis}" == factor)
    own = _seen_by(dim, attrs, block, count)
    taps = _taps_of(own, attrs)
    return {} if taps is None else {"x": (own.first, own.first + int(taps.indices.max()) + 1)}


def _interpolated(shapes: Shapes, attrs: Attrs) -> tuple[Shape]:
    x = list(shape_of(shapes, "x"))
    for axis, goal, _ in _goals(tuple(x), attrs["size"], attrs["scale_factor"], attrs["data_format"]):
        x[axis] = goal
    return (tuple(x),)


def _change(dim: Resized, attrs: Attrs) -> str:
    """Return how a dim is resized: not at all, as a whole, so many to one, one to so many, or across blocks."""
    own, goal, ratio, mode = dim.size, dim.goal, dim.ratio, attrs["mode"]
    apart = mode in ("nearest", "area")
    if goal == own and math.isclose(ratio, 1):
        return "none"
    if 1 in (goal, own) or (attrs["align_corners"] and goal != own):
        return "whole"
    if (apart or mode in _LINEAR) and own % goal == 0 and math.isclose(ratio, own // goal):
        return "shrinks"
    if apart and goal % own == 0 and math.isclose(ratio, own / goal):
        return "repeats"
    return "across"


def _local_resizing(attrs: Attrs, ctx: LocalContext) -> Attrs:
    """What one device makes of what it has: of a dim whose borders come along its place in the whole one."""
    x, out = shape_of(ctx.operands, "x"), shape_of(ctx.results, "out")
    resized = []
    for dim in _resizing(shape_of(ctx.whole, "x"), attrs):
        axis, count = dim.axis, ctx.count(f"d{dim.axis}")
        if _change(dim, attrs) == "across" and count > 1:
            resized.append(_seen_by(dim, attrs, ctx.block(f"d{axis}"), count))
        else:
            resized.append(dim._replace(size=x[axis], goal=out[axis], made=out[axis]))
    return {**attrs, "resized": resized}


@family(
    "interpolate",
    "x[] -> out[]",
    kernel=_interpolate,
    shape=_interpolated,
    local=_local_resizing,
    reach=_interpolate_reach,
    grad=Grad(_interpolate_back, reads="", cuts="d*", shapes=True),
)
def interpolate(
    x: Shape,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool = False,
    align_mode: int = 0,
    data_format: str = "NCHW",
) -> Rule:
    """An image of another size; where it shrinks or repeats a whole number of times no element needs neighbours."""
    if mode not in _MODES:
        raise RuleError(f"mode={mode!r} is not one of {', '.join(_MODES)}")
    if align_mode not in (0, 1):
        raise RuleError(f"align_mode={align_mode} is neither 0 nor 1")
    left = [f"d{dim}" for dim in range(len(x))]
    right = list(left)
    clauses: dict[str, list[str]] = {"whole": [], "halo": []}
    sizes: dict[str, int] = {}
    attrs = {"size": size, "scale_factor": scale_factor, "mode": mode, "align_corners": align_corners}
    for dim in _resizing(x, {**attrs, "data_format": data_format}):
        kept, inner = f"d{dim.axis}", f"r{dim.axis}"
        match _change(dim, attrs):
            case "whole":
                left[dim.axis] = right[dim.axis] = "_"
            case "shrinks":
                left[dim.axis], sizes[inner] = f"({kept} {inner})", dim.size // dim.goal
                clauses["whole"].append(inner)
            case "repeats":
                right[dim.axis], sizes[inner] = f"({kept} {inner})", dim.goal // dim.size
                clauses["whole"].append(inner)
            case "across":
                clauses["halo"].append(kept)
    return rule(
        f"x[{' '.join(left)}] -> out[{' '.join(right)}]",
        whole=" ".join(clauses["whole"]),
        halo=" ".join(clauses["halo"]),
        linear="x",
        monotone="x" if mode == "nearest" else "",
        sizes=sizes,
    )


# ------------------------------------------------------------------------------------------------- pixels and channels


def _pixel_dims(channels: str, space: Sequence[str], data_format: str) -> str:
    return " ".join(["n", *space, channels] if channel_axis(data_format, 4) == 3 else ["n", channels, *space])


def _shuffled(x: Array, upscale_factor: int, data_format: str) -> Array:
    last = channel_axis(data_format, 4) == 3
    n, c, h, w = np.moveaxis(x, -1, 1).shape if last else x.shape
    r = upscale_factor
    apart = (np.moveaxis(x, -1, 1) if last else x).reshape(n, c // r**2, r, r, h, w)
    out = apart.transpose(0, 1, 4, 2, 5, 3).reshape(n, c // r**2, h * r, w * r)
    return np.moveaxis(out, 1, -1) if last else out


def _unshuffled(x: Array, downscale_factor: int, data_format: str) -> Array:
    last = channel_axis(data_format, 4) == 3
    first = np.moveaxis(x, -1, 1) if last else x
    (n, c, h, w), r = first.shape, downscale_factor
    apart = first.reshape(n, c, h // r, r, w // r, r).transpose(0, 1, 3, 5, 2, 4)
    out = apart.reshape(n, c * r**2, h // r, w // r)
    return np.moveaxis(out, 1, -1) if last else out


def _check_image(x: Shape, channels: int, space: int, what: str, data_format: str) -> None:
    if len(x) != 4:
        raise RuleError(f"x has shape {x}: an image has rank 4")
    axis = channel_axis(data_format, 4)
    if x[axis] % channels or any(x[dim] % space for dim in _space_axes(4, data_format)):
        raise RuleError(f"{what} does not divide the dims of x {x}")


@family(
    "pixel_shuffle",
    "x[] -> out[]",
    kernel=_shuffled,
    grad=Grad(
        lambda out_grad, *, upscale_factor, data_format: _unshuffled(out_grad, upscale_factor, data_format), reads=""
    ),
)
def pixel_shuffle(x: Shape, upscale_factor: int, data_format: str = "NCHW") -> Rule:
    """Channels become the elements of larger pixels."""
    _check_image(x, upscale_factor**2, 1, f"upscale_factor={upscale_factor}", data_format)
    left = _pixel_dims("(c p q)", "hw", data_format)
    right = _pixel_dims("c", ["(h p)", "(w q)"], data_format)
    sizes = {"p": upscale_factor, "q": upscale_factor}
    return rule(f"x[{left}] -> out[{right}]", whole="p q", linear="x", monotone="x", sizes=sizes)


@family(
    "pixel_unshuffle",
    "x[] -> out[]",
    kernel=_unshuffled,
    grad=Grad(
        lambda out_grad, *, downscale_factor, data_format: _shuffled(out_grad, downscale_factor, data_format), reads=""
    ),
)
def pixel_unshuffle(x: Shape, downscale_factor: int, data_format: str = "NCHW") -> Rule:
    """Elements of large pixels become channels."""
    _check_image(x, 1, downscale_factor, f"downscale_factor={downscale_factor}", data_format)
    left = _pixel_dims("c", ["(h p)", "(w q)"], data_format)
    right = _pixel_dims("(c p q)", "hw", data_format)
    sizes = {"p": downscale_factor, "q": downscale_factor}
    return rule(f"x[{left}] -> out[{right}]", whole="p q", linear="x", monotone="x", sizes=sizes)


def _channels_shuffled(x: Array, groups: int, data_format: str) -> Array:
    axis = channel_axis(data_format, x.ndim)
    apart = x.reshape(*x.shape[:axis], groups, x.shape[axis] // groups, *x.shape[axis + 1 :])
    return np.swapaxes(apart, axis, axis + 1).reshape(x.shape)


def _channels_back(out_grad: Array, *, groups: int, data_format: str) -> Array:
    own = out_grad.shape[channel_axis(data_format, out_grad.ndim)] // groups
    return _channels_shuffled(out_grad, own, data_format)


@family(
    "channel_shuffle",
    "x[] -> out[]",
    kernel=_channels_shuffled,
    local=lambda attrs, ctx: {**attrs, "groups": attrs["groups"] // ctx.count("g")},
    grad=Grad(_channels_back, reads=""),
)
def channel_shuffle(x: Shape, groups: int, data_format: str = "NCHW") -> Rule:
    """The channels of all groups in turn: the major part of the channel dim becomes the minor one."""
    _check_image(x, groups, 1, f"groups={groups}", data_format)
    left, right = (_pixel_dims(channels, "hw", data_format) for channels in ("(g c)", "(c g)"))
    return rule(f"x[{left}] -> out[{right}]", linear="x", monotone="x", sizes={"g": groups})
