"""Ops that join tensors or cut them apart: the dim they work along is whole."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from ops.bind import Shape
from ops.dims import Array, axes_in, axis_in, named_dims, shape_of
from ops.grad import Grad
from ops.notation import RuleError
from ops.op import Attrs, Shapes
from ops.registry import family
from ops.rule import Rule, rule

Ints: TypeAlias = Sequence[int]


def _shapes_of(shapes: Shapes, name: str) -> list[Shape]:
    """Return the shapes of a variadic operand."""
    return [tuple(shape) for shape in shapes[name] or () if isinstance(shape, tuple)]


def _text(names: Sequence[str]) -> str:
    return " ".join(names)


def _free(names: Sequence[str], *dims: int) -> list[str]:
    """Return dim names, some of them never cut."""
    return ["_" if dim in dims else name for dim, name in enumerate(names)]


def at(axis: int, index: Any) -> Any:
    """Return the index that speaks of one dim only."""
    return (*[slice(None)] * axis, index)


# ------------------------------------------------------------------------------------------------------------- joining


def _concat_shape(shapes: Shapes, attrs: Attrs) -> tuple[Shape]:
    first, *others = _shapes_of(shapes, "x")
    axis = axis_in(attrs["axis"], len(first), "axis")
    return ((*first[:axis], sum(shape[axis] for shape in (first, *others)), *first[axis + 1 :]),)


def _concat_back(out_grad: Array, *, axis: int, shapes: Shapes) -> list[Array]:
    sizes = [shape[axis % len(shape)] for shape in _shapes_of(shapes, "x")]
    return np.split(out_grad, list(itertools.accumulate(sizes))[:-1], axis)


@family(
    "concat",
    "*x[] -> out[]",
    kernel=lambda x, axis: np.concatenate(x, axis),
    shape=_concat_shape,
    grad=Grad(_concat_back, reads="", shapes=True),
)
def concat(x: Sequence[Shape], axis: int = 0) -> Rule:
    """Tensors one after another along a dim."""
    rank = len(x[0])
    dims = _text(_free(named_dims(rank), axis_in(axis, rank, "axis")))
    return rule(f"*x[{dims}] -> out[{dims}]", linear="x")


def _stack_shape(shapes: Shapes, attrs: Attrs) -> tuple[Shape]:
    given = _shapes_of(shapes, "x")
    if len(set(given)) > 1:
        raise RuleError(f"cannot stack tensors of different shapes: {given}")
    axis = axis_in(attrs["axis"], len(given[0]) + 1, "axis")
    return ((*given[0][:axis], len(given), *given[0][axis:]),)


def _unstacked(x: Array, axis: int) -> list[Array]:
    return [x.take(i, axis) for i in range(x.shape[axis])]


@family(
    "stack",
    "*x[] -> out[]",
    kernel=lambda x, axis: np.stack(x, axis),
    shape=_stack_shape,
    grad=Grad(lambda out_grad, *, axis: _unstacked(out_grad, axis), reads=""),
)
def stack(x: Sequence[Shape], axis: int = 0) -> Rule:
    """Tensors of one shape along a new dim."""
    names = named_dims(len(x[0]))
    place = axis_in(axis, len(names) + 1, "axis")
    return rule(f"*x[{_text(names)}] -> out[{_text([*names[:place], '_', *names[place:]])}]", linear="x")


# ------------------------------------------------------------------------------------------------------- cutting apart


def _sections(size: int, num_or_sections: int | Ints) -> list[int]:
    if isinstance(num_or_sections, int):
        if num_or_sections < 1 or size % num_or_sections:
            raise RuleError(f"cannot split a dim of size {size} into {num_or_sections} equal sections")
        return [size // num_or_sections] * num_or_sections
    sections = [int(section) for section in num_or_sections]
    if sections.count(-1) == 1:
        sections[sections.index(-1)] = size - sum(sections) - 1
    if min(sections, default=0) < 0 or sum(sections) != size:
        raise RuleError(f"cannot split a dim of size {size} into sections {list(num_or_sections)}")
    return sections


def _split_kernel(x: Array, num_or_sections: int | Ints, axis: int) -> list[Array]:
    sections = _sections(x.shape[axis], num_or_sections)
    return np.split(x, list(itertools.accumulate(sections))[:-1], axis)


def _split_shape(shapes: Shapes, attrs: Attrs) -> tuple[list[Shape]]:
    x = shape_of(shapes, "x")
    axis = axis_in(attrs["axis"], len(x), "axis")
    sections = _sections(x[axis], attrs["num_or_sections"])
    return ([(*x[:axis], section, *x[axis + 1 :]) for section in sections],)


@family(
    "split",
    "x[] -> *out[]",
    kernel=_split_kernel,
    shape=_split_shape,
    grad=Grad(lambda out_grad, *, num_or_sections, axis: np.concatenate(out_grad, axis), reads=""),
)
def split(x: Shape, num_or_sections: int | Ints, axis: int = 0) -> Rule:
    """A tensor cut along a dim, into equal sections or those named; -1 is what is left."""
    dims = _text(_free(named_dims(len(x)), axis_in(axis, len(x), "axis")))
    return rule(f"x[{dims}] -> *out[{dims}]", linear="x", monotone="x")


def _unbind_shape(shapes: Shapes, attrs: Attrs) -> tuple[list[Shape]]:
    x = shape_of(shapes, "input")
    axis = axis_in(attrs["axis"], len(x), "axis")
    return ([(*x[:axis], *x[axis + 1 :])] * x[axis],)


@family(
    "unbind",
    "input[] -> *out[]",
    kernel=_unstacked,
    shape=_unbind_shape,
    grad=Grad(lambda out_grad, *, axis: np.stack(out_grad, axis), reads=""),
)
def unbind(input: Shape, axis: int = 0) -> Rule:
    """A tensor cut along a dim into slices without that dim."""
    names = named_dims(len(input))
    place = axis_in(axis, len(names), "axis")
    return rule(
        f"input[{_text(_free(names, place))}] -> *out[{_text(_without(names, [place]))}]",
        linear="input",
        monotone="input",
    )


# -------------------------------------------------------------------------------------------------------------- slices


def _picks(x: Shape, axes: Ints, starts: Ints, ends: Ints, strides: Ints) -> list[slice]:
    """Return the slice of every dim."""
    places = axes_in(list(axes), len(x), "axes")
    if not len(places) == len(starts) == len(ends) == len(strides):
        raise RuleError(f"axes={list(axes)}, starts={list(starts)} and ends={list(ends)} do not name as many dims")
    picks = [slice(None)] * len(x)
    for axis, start, end, stride in zip(places, starts, ends, strides, strict=True):
        if stride == 0:
            raise RuleError(f"strides={list(strides)} has a 0")
        picks[axis] = slice(int(start), int(end), int(stride))
    return picks


def _kept(x: Shape, picks: Sequence[slice]) -> list[bool]:
    """Return, for each dim, whether it is kept as it is, so that it may be cut."""
    return [pick.indices(size) == (0, size, 1) for size, pick in zip(x, picks, strict=True)]


def _sliced(x: Shape, picks: Sequence[slice]) -> Shape:
    return tuple(len(range(*pick.indices(size))) for size, pick in zip(x, picks, strict=True))


def _slice_dims(x: Shape, picks: Sequence[slice]) -> list[str]:
    return [
        "1" if size == 1 else name if kept else "_"
        for size, name, kept in zip(x, named_dims(len(x)), _kept(x, picks), strict=True)
    ]


def _gone(x: Shape, picks: Sequence[slice], decrease_axis: Ints) -> list[int]:
    """Return the dims that leave the result, each of size 1 after the slice."""
    gone = axes_in(list(decrease_axis), len(x), "decrease_axis")
    made = _sliced(x, picks)
    for axis in gone:
        if made[axis] != 1:
            raise RuleError(
                f"decrease_axis={list(decrease_axis)} takes away dim {axis}, of which {made[axis]} are left"
            )
    return gone


def _without(items: Sequence[Any], gone: Sequence[int]) -> list[Any]:
    return [item for dim, item in enumerate(items) if dim not in gone]


def _slice_picks(x: Shape, axes: Ints, starts: Ints, ends: Ints) -> list[slice]:
    return _picks(x, axes, starts, ends, [1] * len(axes))


def _slice_kernel(input: Array, axes: Ints, starts: Ints, ends: Ints, decrease_axis: Ints) -> Array:
    picks = _slice_picks(input.shape, axes, starts, ends)
    return np.asarray(input[tuple(picks)]).squeeze(tuple(_gone(input.shape, picks, decrease_axis)))


def _slice_shape(shapes: Shapes, attrs: Attrs) -> tuple[Shape]:
    x = shape_of(shapes, "input")
    picks = _slice_picks(x, attrs["axes"], attrs["starts"], attrs["ends"])
    return (tuple(_without(_sliced(x, picks), _gone(x, picks, attrs["decrease_axis"]))),)


def _slice_back(out_grad: Array, *, axes: Ints, starts: Ints, ends: Ints, decrease_axis: Ints, shapes: Shapes) -> Array:
    x = shape_of(shapes, "input")
    picks = _slice_picks(x, axes, starts, ends)
    grad = np.zeros(x, out_grad.dtype)
    grad[tuple(picks)] = out_grad.reshape(_sliced(x, picks))
    return grad


@family(
    "slice",
    "input[] -> out[]",
    kernel=_slice_kernel,
    shape=_slice_shape,
    grad=Grad(_slice_back, reads="", shapes=True),
)
def slice_(input: Shape, axes: Ints, starts: Ints, ends: Ints, decrease_axis: Ints = ()) -> Rule:
    """Neighbouring elements along some dims; dims of which one is left may go."""
    picks = _slice_picks(input, axes, starts, ends)
    dims = _slice_dims(input, picks)
    return rule(
        f"input[{_text(dims)}] -> out[{_text(_without(_made_dims(dims), _gone(input, picks, decrease_axis)))}]",
        linear="input",
        monotone="input",
    )


def _made_dims(dims: Sequence[str]) -> list[str]:
    """Return the dims of a slice's result: what was of size 1 may be empty."""
    return ["_" if dim == "1" else dim for dim in dims]


def _strided_kernel(x: Array, axes: Ints, starts: Ints, ends: Ints, strides: Ints) -> Array:
    return x[tuple(_picks(x.shape, axes, starts, ends, strides))]


def _strided_back(out_grad: Array, *, axes: Ints, starts: Ints, ends: Ints, strides: Ints, shapes: Shapes) -> Array:
    x = shape_of(shapes, "x")
    grad = np.zeros(x, out_grad.dtype)
    grad[tuple(_picks(x, axes, starts, ends, strides))] = out_grad
    return grad


def _strided_shape(shapes: Shapes, attrs: Attrs) -> tuple[Shape]:
    x = shape_of(shapes, "x")
    return (_sliced(x, _picks(x, attrs["axes"], attrs["starts"], attrs["ends"], attrs["strides"])),)


@family(
    "strided_slice",
    "x[] -> out[]",
    kernel=_strided_kernel,
    shape=_strided_shape,
    grad=Grad(_strided_back, reads="", shapes=True),
)
def strided_slice(x: Shape, axes: Ints, starts: Ints, ends: Ints, strides: Ints) -> Rule:
    """Every so many elements along some dims."""
    dims = _slice_dims(x, _picks(x, axes, starts, ends, strides))
    return rule(f"x[{_text(dims)}] -> out[{_text(_made_dims(dims))}]", linear="x", monotone="x")


def _scatter_kernel(x: Array, value: Array, axes: Ints, starts: Ints, ends: Ints, strides: Ints) -> Array:
    out = np.array(x)
    out[tuple(_picks(x.shape, axes, starts, ends, strides))] = value
    return out


def _scatter_back(out_grad: Array, *, axes: Ints, starts: Ints, ends: Ints, strides: Ints) -> tuple[Array, Array]:
    picks = tuple(_picks(out_grad.shape, axes, starts, ends, strides))
    grad = np.array(out_grad)
    grad[picks] = 0
    return grad, out_grad[picks]


@family(
    "slice_scatter",
    "x[], value[] -> out[]",
    kernel=_scatter_kernel,
    shape=lambda shapes, attrs: (shape_of(shapes, "x"),),
    grad=Grad(_scatter_back, reads=""),
)
def slice_scatter(x: Shape, value: Shape, axes: Ints, starts: Ints, ends: Ints, strides: Ints) -> Rule:
    """X with a value in place of a slice of it."""
    picks = _picks(x, axes, starts, ends, strides)
    if value != _sliced(x, picks):
        raise RuleError(f"value has shape {value}, but the slice of x {x} has {_sliced(x, picks)}")
    dims = _slice_dims(x, picks)
    return rule(f"x[{_text(dims)}], value[{_text(_made_dims(dims))}] -> out[{_text(dims)}]", linear="x + value")
