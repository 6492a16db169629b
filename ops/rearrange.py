"""Ops that repeat or reorder the elements of one tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ops.bind import Shape
from ops.dims import Array, axes_in, axis_in, local_shape, named_dims, same_shape, shape_of, sum_to
from ops.given import whole_numbers
from ops.grad import Grad
from ops.notation import RuleError
from ops.op import Attrs, LocalContext, Range, Shapes
from ops.registry import family
from ops.rule import Rule, rule


def _expanded(x: Shape, shape: Sequence[int]) -> Shape:
    shape = whole_numbers(shape, "shape")
    front = len(shape) - len(x)
    if front < 0:
        raise RuleError(f"cannot expand {x} to {shape}: it has fewer dims")
    made = tuple(x[dim - front] if size == -1 and dim >= front else size for dim, size in enumerate(shape))
    for mine, size in zip(x, made[front:], strict=True):
        if mine not in (1, size):
            raise RuleError(f"cannot expand {x} to {shape}: a dim of size {mine} does not become {size}")
    return made


def _expand_dims(x: Shape, out: Shape) -> tuple[str, str]:
    """Return the dims of x and of the result: a dim that is stretched is 1 on the left and a factor on the right."""
    names = named_dims(len(out))
    mine = ["1" if size == 1 else name for size, name in zip(x, names[len(out) - len(x) :], strict=True)]
    return " ".join(mine), " ".join("1" if size == 1 else name for size, name in zip(out, names, strict=True))


def _expand_rule(x: Shape, shape: Sequence[int]) -> Rule:
    out = _expanded(x, shape)
    left, right = _expand_dims(x, out)
    sizes = {name: size for name, size in zip(named_dims(len(out)), out, strict=True) if size != 1}
    return rule(f"x[{left}] -> out[{right}]", linear="x", monotone="x", sizes=sizes)


def _expand_back(out_grad: Array, *, shapes: Shapes, **_: Any) -> Array:
    return sum_to(out_grad, shape_of(shapes, "x"))


def _expand_kernel(x: Array, shape: Sequence[int]) -> Array:
    return np.broadcast_to(x, _expanded(x.shape, shape))


for _name in ("expand", "broadcast_to"):

    @family(
        _name,
        "x[] -> out[]",
        kernel=_expand_kernel,
        local=local_shape,
        grad=Grad(_expand_back, reads="", shapes=True),
    )
    def expand(x: Shape, shape: Sequence[int]) -> Rule:
        """Dims of size 1, and new ones in front, are repeated to a shape; -1 keeps a size."""
        return _expand_rule(x, shape)


@family(
    "expand_as",
    "x[], y[] -> out[]",
    kernel=lambda x, y: np.broadcast_to(x, y.shape),
    dtype=lambda dtypes, attrs: (dtypes["x"],),
    grad=Grad(_expand_back, reads="", of="x", shapes=True),
)
def expand_as(x: Shape, y: Shape) -> Rule:
    """X repeated to the shape of y."""
    left, right = _expand_dims(x, _expanded(x, y))
    return rule(f"x[{left}], y[{right}] -> out[{right}]", linear="x", monotone="x")


def _tiled(x: Shape, repeat_times: Sequence[int]) -> list[tuple[int, int]]:
    """Return (times, size) for each dim of the result."""
    counts = whole_numbers(repeat_times, "repeat_times")
    rank = max(len(x), len(counts))
    times = [1] * (rank - len(counts)) + counts
    return list(zip(times, [1] * (rank - len(x)) + list(x), strict=True))


def _tile_back(out_grad: Array, *, repeat_times: Sequence[int], shapes: Shapes) -> Array:
    x = shape_of(shapes, "x")
    pairs = _tiled(x, repeat_times)
    apart = out_grad.reshape([size for pair in pairs for size in pair])
    return np.asarray(apart.sum(tuple(range(0, 2 * len(pairs), 2)))).reshape(x)


def _tile_shape(shapes: Shapes, attrs: Attrs) -> tuple[Shape]:
    return (tuple(times * size for times, size in _tiled(shape_of(shapes, "x"), attrs["repeat_times"])),)


@family(
    "tile",
    "x[] -> out[]",
    kernel=lambda x, repeat_times: np.tile(x, tuple(repeat_times)),
    shape=_tile_shape,
    grad=Grad(_tile_back, reads="", shapes=True),
)
def tile(x: Shape, repeat_times: Sequence[int]) -> Rule:
    """X repeated along its dims; a dim that is repeated is whole."""
    pairs = _tiled(x, repeat_times)
    right = [name if times == 1 else "_" for name, (times, _) in zip(named_dims(len(pairs)), pairs, strict=True)]
    return rule(f"x[{' '.join(right[len(pairs) - len(x) :])}] -> out[{' '.join(right)}]", linear="x", monotone="x")


def _interleave_back(out_grad: Array, *, repeats: int, axis: int | None, shapes: Shapes) -> Array:
    x = shape_of(shapes, "x")
    if axis is None:
        return np.asarray(out_grad.reshape(-1, repeats).sum(1)).reshape(x)
    at = axis % len(x)
    return np.asarray(out_grad.reshape(*x[: at + 1], repeats, *x[at + 1 :]).sum(at + 1))


@family(
    "repeat_interleave",
    "x[] -> out[]",
    kernel=lambda x, repeats, axis: np.repeat(x, repeats, axis),
    grad=Grad(_interleave_back, reads="", shapes=True),
)
def repeat_interleave(x: Shape, repeats: int, axis: int | None = None) -> Rule:
    """Each element `repeats` times in a row; without an axis x is flattened first."""
    names = named_dims(len(x))
    if axis is None:
        right = f"({' '.join([*names, 'r'])})"
    else:
        at = axis_in(axis, len(x), "axis")
        right = " ".join(f"({name} r)" if dim == at else name for dim, name in enumerate(names))
    return rule(f"x[{' '.join(names)}] -> out[{right}]", whole="r", linear="x", monotone="x", sizes={"r": repeats})


def _all_but(x: Shape, kept: Sequence[int]) -> Rule:
    """Return the rule in which the dims listed are whole and the others pass."""
    dims = " ".join("_" if dim in kept else name for dim, name in enumerate(named_dims(len(x))))
    return rule(f"x[{dims}] -> out[{dims}]", linear="x", monotone="x")


def _axis_tuple(axis: int | Sequence[int]) -> tuple[int, ...]:
    return (axis,) if isinstance(axis, int) else tuple(axis)


@family(
    "flip",
    "x[] -> out[]",
    kernel=lambda x, axis: np.flip(x, _axis_tuple(axis)),
    shape=same_shape,
    grad=Grad(lambda out_grad, *, axis: np.flip(out_grad, _axis_tuple(axis)), reads=""),
)
def flip(x: Shape, axis: int | Sequence[int]) -> Rule:
    """The order of elements along some dims reversed; these are whole."""
    return _all_but(x, axes_in(axis, len(x), "axis"))


_SHIFT = "shift"


def _rolled_dims(rank: int, shifts: int | Sequence[int], axis: int | Sequence[int] | None) -> list[tuple[int, int]]:
    """Return (dim, how far) for each dim that is rolled; without an axis the flat tensor is, which dim 0 cuts."""
    steps = [shifts] if isinstance(shifts, int) else [int(step) for step in shifts]
    dims = [0] if axis is None else [axis_in(at, rank, "axis") for at in _axis_tuple(axis)]
    if len(steps) == 1:
        steps *= len(dims)
    if len(steps) != len(dims):
        raise RuleError(f"roll: shifts={shifts} and axis={axis} differ in length")
    return list(zip(dims, steps, strict=True)) if rank else []


def _roll(x: Array, shifts: Any, axis: Any, window: tuple[int, int] | None = None) -> Array:
    """Roll the local block; of the flat tensor, where dim 0 is cut, a window of the rows around it is taken."""
    if axis is not None:
        for dim, step in _rolled_dims(x.ndim, shifts, axis):
            x = np.roll(x, step, dim)
        return x
    if window is None:
        return np.roll(x.reshape(-1), sum(step for _, step in _rolled_dims(x.ndim, shifts, axis))).reshape(x.shape)
    first, rows = window
    size = rows * math.prod(x.shape[1:])
    return x.reshape(-1)[first : first + size].reshape(rows, *x.shape[1:])


def _roll_back(
    out_grad: Array, *, shifts: Any, axis: Any, shapes: Shapes, window: tuple[int, int] | None = None
) -> Array:
    if window is None:
        return _roll(out_grad, [-step for _, step in _rolled_dims(out_grad.ndim, shifts, axis)], axis)
    grad = np.zeros(shape_of(shapes, "x"), out_grad.dtype)
    grad.reshape(-1)[window[0] : window[0] + out_grad.size] = out_grad.reshape(-1)
    return grad


def _rolled_block(x: Shape, attrs: Attrs, dim: int, block: int, count: int) -> tuple[int, int, int]:
    """Return the indices of x, round the ring, in one block of a rolled dim; the last number is where it begins.

    The flat tensor is rolled by elements, so a block of rows may begin within a row.
    """
    step = sum(step for at, step in _rolled_dims(len(x), attrs["shifts"], attrs["axis"]) if at == dim)
    row = math.prod(x[1:]) if attrs["axis"] is None else 1
    rows = x[dim] // count
    first, offset = divmod(block * rows * row - step % (x[dim] * row), row)
    return first, first + rows + (offset > 0), offset


def _roll_reach(shapes: Shapes, attrs: Attrs, factor: str, block: int, count: int) -> dict[str, Range]:
    return {"x": _rolled_block(shape_of(shapes, "x"), attrs, int(factor[1:]), block, count)[:2]}


def _local_roll(attrs: Attrs, ctx: LocalContext) -> Attrs:
    """What is left to do where the blocks of cut dims have been passed round."""
    x = shape_of(ctx.whole, "x")
    moves = _rolled_dims(len(x), attrs["shifts"], attrs["axis"])
    if attrs["axis"] is None:
        count = ctx.count("d0")
        if count == 1:
            return attrs
        return {**attrs, "window": (_rolled_block(x, attrs, 0, ctx.block("d0"), count)[2], x[0] // count)}
    left = [(dim, step) for dim, step in moves if ctx.count(f"d{dim}") == 1]
    return {**attrs, "axis": [dim for dim, _ in left], "shifts": [step for _, step in left]}


@family(
    "roll",
    "x[] -> out[]",
    kernel=_roll,
    shape=same_shape,
    local=_local_roll,
    reach=_roll_reach,
    grad=Grad(_roll_back, reads="", cuts="d*", shapes=True),
)
def roll(x: Shape, shifts: int | Sequence[int], axis: int | Sequence[int] | None = None) -> Rule:
    """Elements moved along some dims, those that leave come in at the other end: a cut dim passes its blocks round."""
    rolled = {f"d{dim}" for dim, _ in _rolled_dims(len(x), shifts, axis)}
    names = named_dims(len(x)) if axis is not None else ["d0", *["_"] * (len(x) - 1)][: len(x)]
    moved = [name for name in names if name in rolled]
    dims = " ".join(names)
    return rule(
        f"x[{dims}] -> out[{dims}]",
        halo=" ".join(moved),
        needs=dict.fromkeys(moved, _SHIFT),
        linear="x",
        monotone="x",
    )


def _diagonal_shape(shapes: Shapes, attrs: Attrs) -> tuple[Shape]:
    x = shape_of(shapes, "x")
    pair = axes_in([attrs["axis1"], attrs["axis2"]], len(x), "axis1, axis2")
    length = np.diagonal(np.broadcast_to(0, (x[pair[0]], x[pair[1]])), attrs["offset"]).size
    return ((*(size for dim, size in enumerate(x) if dim not in pair), length),)


def _diagonal_back(out_grad: Array, *, offset: int, axis1: int, axis2: int, shapes: Shapes) -> Array:
    grad = np.zeros(shape_of(shapes, "x"), out_grad.dtype)
    moved = np.moveaxis(grad, (axis1, axis2), (-2, -1))
    along = np.arange(out_grad.shape[-1])
    moved[..., along + max(0, -offset), along + max(0, offset)] = out_grad
    return grad


@family(
    "diagonal",
    "x[] -> out[]",
    kernel=lambda x, offset, axis1, axis2: np.diagonal(x, offset, axis1, axis2),
    shape=_diagonal_shape,
    grad=Grad(_diagonal_back, reads="", shapes=True),
)
def diagonal(x: Shape, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Rule:
    """The elements where two dims have equal indices but for an offset, as a last dim."""
    pair = axes_in([axis1, axis2], len(x), "axis1, axis2")
    names = named_dims(len(x))
    left = " ".join("_" if dim in pair else name for dim, name in enumerate(names))
    right = " ".join(name for dim, name in enumerate(names) if dim not in pair)
    return rule(f"x[{left}] -> out[{right} _]", linear="x", monotone="x")
