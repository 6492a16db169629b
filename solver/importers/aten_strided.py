"""Windows of memory by strides (``as_strided``), as ops on the tensor whose elements lie there in row-major order.

The strides of a window are digits of the index of an element: where they divide each other and no digit carries, the
window is a slice of a reshape, transposed. Dims whose windows overlap share a digit and are gathered by a table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from solver.graph import Graph, Tensor
from solver.importers.errors import UnsupportedNodeError


class _Digit(NamedTuple):
    """One digit of the index of an element: what it counts, how many values it has, and those that a window takes."""

    unit: int
    radix: int
    taken: NDArray[np.int64]
    """The values, of one dim for each dim of the window that moves the digit."""

    @property
    def first(self) -> int:
        return int(self.taken.min())

    @property
    def last(self) -> int:
        return int(self.taken.max())

    @property
    def is_slice(self) -> bool:
        """Whether the values are neighbours, in order."""
        return self.taken.ndim < 2 and bool((np.diff(self.taken.reshape(-1)) == 1).all())


class _Window(NamedTuple):
    """A window of memory: its digits, and which of its dims they move, largest stride first."""

    digits: tuple[_Digit, ...]
    moving: tuple[int, ...]
    size: tuple[int, ...]
    repeated: bool
    """Whether a stride of 0 repeats elements."""


def as_strided(graph: Graph, x: Tensor, size: Sequence[int], stride: Sequence[int], offset: int = 0) -> Tensor:
    """Add the window of a tensor that lies in memory in row-major order.

    Parameters
    ----------
    graph : Graph
    x : Tensor
    size, stride : sequence of int
        By dim of the window.
    offset : int
        The element of x at which it begins.

    Returns
    -------
    Tensor

    Raises
    ------
    UnsupportedNodeError
        Where the window leaves the tensor.

    Examples
    --------
    >>> g = Graph()
    >>> made = as_strided(g, g.input("x", (4, 6)), (3, 4), (1, 6), offset=2)
    >>> str(made), [node.op for node in g.nodes.values()]
    ('transpose_1 float32[3, 4]', ['slice', 'transpose'])
    """
    window = _window(x.shape, size, stride, offset)
    made = _reshaped(graph, x, [digit.radix for digit in window.digits])
    axes = [axis for axis, digit in enumerate(window.digits) if digit.is_slice and len(digit.taken) < digit.radix]
    if axes:
        made = graph.op("slice", made, **_bounds(window, axes))
    for axis, digit in reversed(list(enumerate(window.digits))):
        if not digit.is_slice:
            table = graph.constant(_free_name(graph, "strided_table"), digit.taken)
            made = graph.op("gather", made, table, axis=axis)
    made = _reshaped(graph, made, [window.size[dim] for dim in window.moving])
    order = sorted(range(len(window.moving)), key=lambda position: window.moving[position])
    if order != sorted(order):
        made = graph.op("transpose", made, perm=order)
    moving = set(window.moving)
    made = _reshaped(graph, made, [count if dim in moving else 1 for dim, count in enumerate(window.size)])
    return made if made.shape == window.size else graph.op("expand", made, shape=list(window.size))


def as_strided_scatter(
    graph: Graph, x: Tensor, value: Tensor, size: Sequence[int], stride: Sequence[int], offset: int = 0
) -> Tensor:
    """Add a tensor like x with other values in a window of it.

    Parameters
    ----------
    graph : Graph
    x, value : Tensor
    size, stride, offset
        As for `as_strided`.

    Raises
    ------
    UnsupportedNodeError
        Where the window leaves the tensor, takes an element more than once, or is no slice of a reshape.

    Examples
    --------
    >>> g = Graph()
    >>> x, value = g.input("x", (4, 6)), g.input("value", (3, 4))
    >>> str(as_strided_scatter(g, x, value, (3, 4), (1, 6), offset=2))
    'slice_scatter_1 float32[4, 6]'
    """
    window = _window(x.shape, size, stride, offset)
    if window.repeated or not all(digit.is_slice for digit in window.digits):
        raise UnsupportedNodeError(
            f"a window of size {list(size)} and strides {list(stride)} takes elements of {x} more than once, or is no "
            "slice of a reshape of it: no op here writes to it"
        )
    order = sorted(range(len(window.moving)), key=lambda position: window.moving[position])
    made = _reshaped(graph, value, [window.size[window.moving[position]] for position in order])
    back = sorted(range(len(order)), key=lambda dim: order[dim])
    if back != sorted(back):
        made = graph.op("transpose", made, perm=back)
    made = _reshaped(graph, made, [digit.taken.size for digit in window.digits])
    digits = _reshaped(graph, x, [digit.radix for digit in window.digits])
    axes = list(range(len(window.digits)))
    made = graph.op("slice_scatter", digits, made, **_bounds(window, axes), strides=[1] * len(axes))
    return _reshaped(graph, made, x.shape)


def _window(shape: Sequence[int], size: Sequence[int], stride: Sequence[int], offset: int) -> _Window:
    elements = math.prod(shape)
    reach = offset + sum((count - 1) * step for count, step in zip(size, stride, strict=True))
    if min((*stride, offset), default=0) < 0 or reach >= elements:
        raise UnsupportedNodeError(
            f"a window of size {list(size)}, strides {list(stride)} and offset {offset} leaves a tensor of shape "
            f"{list(shape)}, which has {elements} elements"
        )
    moving = [dim for dim, count in enumerate(size) if count > 1 and stride[dim] > 0]
    moving.sort(key=lambda dim: -stride[dim])
    groups = [(stride[dim], np.arange(size[dim])) for dim in moving]
    digits = _digits(groups, elements, offset)
    repeated = any(count > 1 and step == 0 for count, step in zip(size, stride, strict=True))
    return _Window(digits, tuple(moving), tuple(size), repeated)


def _digits(groups: list[tuple[int, NDArray[np.int64]]], elements: int, offset: int) -> tuple[_Digit, ...]:
    """Return the digits that groups of dims move, largest unit first; a group that carries joins the one before it."""
    above, found = elements, list[_Digit]()
    for place, (unit, steps) in enumerate(groups):
        common = math.gcd(unit, above)
        taken = offset // common % (above // common) + steps * (unit // common)
        if taken.max() >= above // common and place:
            upper, upper_steps = groups[place - 1]
            shared = math.gcd(upper, unit)
            joined = np.add.outer(upper_steps * (upper // shared), steps * (unit // shared))
            return _digits([*groups[: place - 1], (shared, joined), *groups[place + 1 :]], elements, offset)
        found.append(_Digit(common, above // common, taken))
        above = common
    if above > 1 or not found:
        found.append(_Digit(1, above, np.array([offset % above])))
    return tuple(found)


def _bounds(window: _Window, axes: Sequence[int]) -> dict[str, Any]:
    digits = [window.digits[axis] for axis in axes]
    return {
        "axes": list(axes),
        "starts": [digit.first for digit in digits],
        "ends": [digit.last + 1 for digit in digits],
    }


def _reshaped(graph: Graph, x: Tensor, shape: Sequence[int]) -> Tensor:
    return x if x.shape == tuple(shape) else graph.op("reshape", x, shape=list(shape))


def _free_name(graph: Graph, name: str) -> str:
    return next(found for index in range(len(graph.tensors) + 1) if (found := f"{name}_{index}") not in graph.tensors)
