"""Names, positions and sizes of dims: what the families of ops share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from ops.bind import Shape
from ops.given import whole_number, whole_numbers
from ops.notation import RuleError
from ops.op import Attrs, LocalContext, Shapes

Array: TypeAlias = np.ndarray[Any, Any]

_FORMATS = ("NC", "NCL", "NCHW", "NCDHW", "NLC", "NHWC", "NDHWC")


def named_dims(rank: int) -> list[str]:
    """Return one factor name per dim: d0, d1, ..."""
    return [f"d{i}" for i in range(rank)]


def axis_in(axis: int, rank: int, what: str) -> int:
    """Return an axis counted from the front.

    Raises
    ------
    RuleError
        Where it names no dim.
    """
    if not -rank <= whole_number(axis, what) < rank:
        raise RuleError(f"{what}={axis} names no dim of a tensor of rank {rank}")
    return axis % rank


def axes_in(axes: int | Sequence[int], rank: int, what: str) -> list[int]:
    """Return axes counted from the front, each once."""
    listed = whole_numbers(axes if isinstance(axes, list | tuple) else [axes], what)
    found = [axis_in(axis, rank, what) for axis in listed]
    if len(set(found)) < len(found):
        raise RuleError(f"{what}={listed} names a dim of a tensor of rank {rank} twice")
    return found


def shape_of(shapes: Shapes, name: str) -> Shape:
    """Return the shape of an operand that is there and not variadic."""
    given = shapes[name]
    if given is None:
        raise RuleError(f"the operand {name} is absent")
    return tuple(size for size in given if isinstance(size, int))


def same_shape(shapes: Shapes, attrs: Attrs) -> tuple[Shape]:
    """Return the shape of x, for ops whose result has it."""
    return (shape_of(shapes, "x"),)


def local_shape(attrs: Attrs, ctx: LocalContext) -> Attrs:
    """The attribute ``shape`` of one device: the local shape of the result."""
    out = ctx.results.get("out")
    return attrs if out is None else {**attrs, "shape": list(out)}


def indices_in(digits: Sequence[tuple[int, int, int]]) -> Array:
    """Return the indices in a whole dim that digits (first, count, whole) name, as `ops.run.Device.spans` gives them.

    Examples
    --------
    >>> indices_in(((0, 2, 2), (2, 1, 3))).tolist()
    [2, 5]
    """
    found: Array = np.zeros(1, np.int64)
    for first, count, whole in digits:
        found = (found[:, None] * whole + np.arange(first, first + count)).ravel()
    return found


def sum_to(grad: Array, shape: Shape) -> Array:
    """Sum a grad over the dims along which a tensor of that shape was broadcast."""
    front = grad.ndim - len(shape)
    axes = [*range(front), *(front + dim for dim, size in enumerate(shape) if size == 1 != grad.shape[front + dim])]
    return grad.sum(tuple(axes)).reshape(shape) if axes else grad


def channel_axis(data_format: str, rank: int) -> int:
    """Return the dim of the channels: the last of NHWC and its like, else dim 1.

    Raises
    ------
    RuleError
        For a tensor without channels, and a format that is none.
    """
    if data_format not in _FORMATS:
        raise RuleError(f"data_format={data_format!r} is not one of {', '.join(_FORMATS)}")
    if rank < 2:
        raise RuleError(f"a tensor of rank {rank} has no channel dim")
    return rank - 1 if data_format.endswith("C") and data_format != "NC" else 1


def elements_of(name: str) -> Callable[[Shapes, Attrs], int]:
    """Return the flops of an op that moves or adds each element of one tensor once."""
    return lambda shapes, attrs: math.prod(shape_of(shapes, name))
