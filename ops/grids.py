"""Images sampled at the points of a grid; what lies outside a device's block of the image counts as zero there."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ops.bind import Shape
from ops.dims import Array, elements_of, indices_in, shape_of
from ops.given import whole_numbers
from ops.grad import Grad
from ops.indexing import MASKED
from ops.notation import RuleError
from ops.op import Attrs, LocalContext
from ops.registry import family
from ops.rule import Rule, rule

Blocks: TypeAlias = Sequence[tuple[int, int]] | None
"""For each space dim the first index that a device holds, and the size of the whole; None where it holds all."""


class Taps(NamedTuple):
    """One element of a space dim that each point reads."""

    place: Array
    weight: Array
    slope: Array
    """What the weight grows by where the point moves by 1 in the grid."""


def _reflected(place: Array, size: int, align_corners: bool) -> tuple[Array, Array]:
    """Fold places at the borders of an image, and tell in which direction they then run."""
    low, span = (0.0, size - 1.0) if align_corners else (-0.5, float(size))
    if not span:
        return np.zeros_like(place), np.zeros_like(place)
    turns, along = np.divmod(np.abs(place - low), span)
    back = turns % 2 == 1
    return np.where(back, span - along, along) + low, np.sign(place - low) * np.where(back, -1.0, 1.0)


def _taps(points: Array, size: int, mode: str, padding_mode: str, align_corners: bool) -> list[Taps]:
    scale = (size - 1) / 2 if align_corners else size / 2
    place, slope = (points + 1) * scale - (0.0 if align_corners else 0.5), np.full(points.shape, scale)
    if padding_mode == "reflection":
        place, direction = _reflected(place, size, align_corners)
        slope = slope * direction
    if padding_mode != "zeros":
        slope = np.where((place < 0) | (place > size - 1), 0.0, slope)
        place = np.clip(place, 0, size - 1)
    if mode == "nearest":
        return [Taps(np.rint(place).astype(int), np.ones_like(place), np.zeros_like(place))]
    low = np.floor(place)
    part, first = place - low, low.astype(int)
    return [Taps(first, 1 - part, -slope), Taps(first + 1, part, slope)]


def _corners(
    x: Shape, grid: Array, blocks: Blocks, mode: str, padding_mode: str, align_corners: bool
) -> Iterator[tuple[Any, Array, tuple[Taps, ...]]]:
    """Yield what each point reads: the index in a channels-last image, whether it is held here, and its taps."""
    space = x[2:]
    held = blocks or [(0, size) for size in space]
    found = [
        _taps(grid[..., -1 - dim], whole, mode, padding_mode, align_corners) for dim, (_, whole) in enumerate(held)
    ]
    batch = np.arange(x[0]).reshape(-1, *(1 for _ in space))
    for corner in itertools.product(*found):
        own = [tap.place - start for tap, (start, _) in zip(corner, held, strict=True)]
        inside = np.all([(index >= 0) & (index < size) for index, size in zip(own, space, strict=True)], 0)
        yield (batch, *(np.where(inside, index, 0) for index in own)), inside, corner


def _weight(corner: Sequence[Taps], inside: Array, moved: int | None = None) -> Array:
    """Return the weight of a corner, or what it grows by where the points move along one space dim."""
    factors = [tap.slope if dim == moved else tap.weight for dim, tap in enumerate(corner)]
    return np.asarray(math.prod(factors[1:], start=factors[0]) * inside)


def _grid_sample(x: Array, grid: Array, blocks: Blocks, **how: Any) -> Array:
    image = np.moveaxis(x, 1, -1)
    out = np.zeros((*grid.shape[:-1], x.shape[1]), x.dtype)
    for index, inside, corner in _corners(x.shape, grid, blocks, **how):
        out += image[index] * _weight(corner, inside)[..., None].astype(x.dtype)
    return np.moveaxis(out, -1, 1)


def _grid_sample_back(x: Array, grid: Array, out_grad: Array, *, blocks: Blocks, **how: Any) -> tuple[Array, Array]:
    image, grad = np.moveaxis(x, 1, -1), np.moveaxis(out_grad, 1, -1)
    image_grad, grid_grad = np.zeros_like(image), np.zeros_like(grid)
    for index, inside, corner in _corners(x.shape, grid, blocks, **how):
        np.add.at(image_grad, index, grad * _weight(corner, inside)[..., None].astype(grad.dtype))
        slope = (grad * image[index]).sum(-1)
        for dim in range(len(corner)):
            grid_grad[..., -1 - dim] += slope * _weight(corner, inside, dim)
    return np.moveaxis(image_grad, -1, 1), grid_grad


def _local_blocks(attrs: Attrs, ctx: LocalContext) -> Attrs:
    space = shape_of(ctx.operands, "x")[2:]
    counts = [ctx.count(f"u{dim}") for dim in range(len(space))]
    blocks = [
        (ctx.start(f"u{dim}") if count > 1 else 0, size * count)
        for dim, (size, count) in enumerate(zip(space, counts, strict=True))
    ]
    return {**attrs, "blocks": blocks}


@family(
    "grid_sample",
    "x[], grid[] -> out[]",
    kernel=_grid_sample,
    attrs={"blocks": None},
    dtype=lambda dtypes, attrs: (dtypes["x"],),
    local=_local_blocks,
    flops=lambda shapes, attrs: 2 ** (len(shape_of(shapes, "x")) - 1) * math.prod(shape_of(shapes, "out")),
    grad=Grad(
        _grid_sample_back,
        flops=lambda shapes, attrs: 2 ** (len(shape_of(shapes, "x")) + 1) * math.prod(shape_of(shapes, "out_grad")),
    ),
)
def grid_sample(
    x: Shape,
    grid: Shape,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = True,
) -> Rule:
    """An image read at points between -1 and 1; a device answers for the points of its own block of the image."""
    if mode not in ("bilinear", "nearest"):
        raise RuleError(f"grid_sample: mode={mode!r} is neither bilinear nor nearest")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise RuleError(f"grid_sample: padding_mode={padding_mode!r} is not one of zeros, border, reflection")
    space = len(x) - 2
    if space not in (2, 3) or len(grid) != len(x) or grid[-1] != space:
        raise RuleError(
            f"grid_sample takes an image of 2 or 3 space dims and a point of so many numbers, not x {x} and grid {grid}"
        )
    image, points = (" ".join(f"{name}{dim}" for dim in range(space)) for name in "us")
    return rule(
        f"x[n c {image}], grid[n {points} _] -> out[n c {points}]",
        sum=image,
        needs=dict.fromkeys(image.split(), MASKED),
        linear="x",
    )


def _base(sizes: Sequence[int], spans: Any, align_corners: bool) -> Array:
    """Return the points of an even grid and a 1: [places..., space dims + 1], the last dim of the image first."""
    each = []
    for size, digits in zip(sizes, spans or [((0, size, size),) for size in sizes], strict=True):
        index = indices_in(digits)
        even = 2 * index / max(size - 1, 1) - (size > 1) if align_corners else (2 * index + 1) / size - 1
        each.append(even)
    points = np.meshgrid(*each, indexing="ij")
    return np.stack([*reversed(points), np.ones_like(points[0])], -1)


def _affine_grid(theta: Array, out_shape: Sequence[int], align_corners: bool, spans: Any) -> Array:
    base = _base(out_shape[2:], spans, align_corners).astype(theta.dtype)
    out = base.reshape(-1, base.shape[-1]) @ np.swapaxes(theta, 1, 2)
    return np.asarray(out.reshape(len(theta), *base.shape[:-1], theta.shape[1]))


def _affine_grid_back(out_grad: Array, *, out_shape: Sequence[int], align_corners: bool, spans: Any) -> Array:
    base = _base(out_shape[2:], spans, align_corners).astype(out_grad.dtype)
    flat = out_grad.reshape(len(out_grad), -1, out_grad.shape[-1])
    return np.asarray(np.swapaxes(flat, 1, 2) @ base.reshape(-1, base.shape[-1]))


@family(
    "affine_grid",
    "theta[] -> out[]",
    kernel=_affine_grid,
    attrs={"spans": None},
    shape=lambda shapes, attrs: ((attrs["out_shape"][0], *attrs["out_shape"][2:], len(attrs["out_shape"]) - 2),),
    local=lambda attrs, ctx: {**attrs, "spans": [ctx.spans(f"s{dim}") for dim in range(len(attrs["out_shape"]) - 2)]},
    flops=elements_of("out"),
    grad=Grad(_affine_grid_back, reads="", flops=elements_of("out_grad")),
)
def affine_grid(theta: Shape, out_shape: Sequence[int], align_corners: bool = True) -> Rule:
    """The points of an image under an affine map, for `grid_sample`."""
    shape = whole_numbers(out_shape, "out_shape")
    space = len(shape) - 2
    if space not in (2, 3) or min(shape) < 1 or theta != (shape[0], space, space + 1):
        raise RuleError(
            f"affine_grid: out_shape={shape} is [batch, channels, 2 or 3 space dims], and theta {theta} a map for each "
            "of the batch: [batch, space dims, space dims + 1]"
        )
    names = [f"s{dim}" for dim in range(space)]
    sizes = dict(zip(names, shape[2:], strict=True))
    return rule(f"theta[n j _] -> out[n {' '.join(names)} j]", linear="theta", sizes=sizes)
