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

from ops.registry import families
from solver.importers.aten_site import Lowering, Site
from solver.importers.sketch import Value


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


# Ops whose results lie in memory as their operand says, in another order or with gaps.
_REORDERED = frozenset({"transpose", "expand", "slice", "strided_slice", "split", "unbind"})
# Ops whose results take the order of their operands.
_KEEPING = frozenset(
    {"reshape", "squeeze", "unsqueeze", *families()["ops.unary"], *families()["ops.elementwise"]} - {"assign"}
)


def _check_row_major(site: Site, x: Value) -> None:
    """Refuse a window of a tensor that may lie in memory in another order than its dims say."""
    seen, waiting = {id(x)}, [x]
    while waiting:
        step = waiting.pop().maker
        if step is None:
            continue
        if step.op in _REORDERED:
            raise site.refuse(
                f"it is a window of memory by strides, and {x.name or step.name!r} may lie there in another order than "
                "row by row: call contiguous() before as_strided"
            )
        if step.op in _KEEPING:
            fresh = [value for value in step.inputs() if id(value) not in seen]
            seen.update(map(id, fresh))
            waiting += fresh


def _as_strided(
    site: Site, x: Value, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Value:
    """The window of a tensor that lies in memory in row-major order."""
    _check_row_major(site, x)
    window = _window(site, x.shape, size, stride, storage_offset or 0)
    made = site.reshape(x, [digit.radix for digit in window.digits])
    axes = [axis for axis, digit in enumerate(window.digits) if digit.is_slice and len(digit.taken) < digit.radix]
    if axes:
        made = site.emit("slice", made, **_bounds(window, axes))
    for axis, digit in reversed(list(enumerate(window.digits))):
        if not digit.is_slice:
            made = site.emit("gather", made, site.constant(digit.taken, "int64"), axis=axis)
    made = site.reshape(made, [window.size[dim] for dim in window.moving])
    order = sorted(range(len(window.moving)), key=lambda position: window.moving[position])
    made = site.transpose(made, order)
    moving = set(window.moving)
    made = site.reshape(made, [count if dim in moving else 1 for dim, count in enumerate(window.size)])
    return site.expand(made, window.size)


def _as_strided_scatter(
    site: Site,
    x: Value,
    src: Value,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> Value:
    """A tensor like x with other values in a window of it, which must be a slice of a reshape."""
    _check_row_major(site, x)
    window = _window(site, x.shape, size, stride, storage_offset or 0)
    if window.repeated or not all(digit.is_slice for digit in window.digits):
        raise site.refuse(
            f"a window of size {list(size)} and strides {list(stride)} takes elements of {list(x.shape)} more than "
            "once, or is no slice of a reshape of it: no op here writes to it"
        )
    order = sorted(range(len(window.moving)), key=lambda position: window.moving[position])
    made = site.reshape(site.cast(src, x.dtype), [window.size[window.moving[position]] for position in order])
    made = site.transpose(made, sorted(range(len(order)), key=lambda dim: order[dim]))
    made = site.reshape(made, [digit.taken.size for digit in window.digits])
    digits = site.reshape(x, [digit.radix for digit in window.digits])
    axes = list(range(len(window.digits)))
    made = site.emit("slice_scatter", digits, made, **_bounds(window, axes), strides=[1] * len(axes))
    return site.reshape(made, x.shape)


def _window(site: Site, shape: Sequence[int], size: Sequence[int], stride: Sequence[int], offset: int) -> _Window:
    elements = math.prod(shape)
    reach = offset + sum((count - 1) * step for count, step in zip(size, stride, strict=True))
    if min((*stride, offset), default=0) < 0 or reach >= elements:
        raise site.refuse(
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


STRIDED: dict[str, Lowering] = {
    "aten.as_strided.default": _as_strided,
    "aten.as_strided_scatter.default": _as_strided_scatter,
}
