"""Scatters: elements put or added at integer indices.

Where elements are added, the indices may be cut if x is P(sum): each device adds its own to its own term of x. Where
they are put in place of others they are whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from ops.bind import Shape
from ops.dims import Array, axis_in, elements_of, named_dims, shape_of, sum_to
from ops.grad import Grad
from ops.indexing import (
    MASKED,
    Block,
    addressed,
    along,
    grid,
    local_block,
    masked,
    own_indices,
    paired_dims,
    spread_mask,
)
from ops.notation import RuleError
from ops.op import Attrs, LocalContext, Shapes
from ops.registry import family, op
from ops.rule import Rule, rule

_NEEDS = {"v": MASKED}


def _like(name: str) -> Any:
    return lambda dtypes, attrs: (dtypes[name],)


# --------------------------------------------------------------------------------------------------- along one dim


def _kept(inside: Array | None, own: Array, values: Array, axis: int) -> tuple[Array, Array]:
    """Return the indices inside a local block, and their values along a dim."""
    if inside is None:
        return own, values
    return own[inside], values[along(axis, inside)]


def _scatter(x: Array, index: Array, updates: Array, overwrite: bool, block: Block) -> Array:
    own, inside = own_indices(index, len(x), block)
    own, updates = _kept(inside, own, updates, 0)
    out = np.array(x)
    if overwrite:
        out[own] = updates
    else:
        out[own] = 0
        np.add.at(out, own, updates)
    return out


def _scatter_back(index: Array, out_grad: Array, *, overwrite: bool, block: Block) -> tuple[Array, Array]:
    own, inside = own_indices(index, len(out_grad), block)
    taken = masked(out_grad[own], None if inside is None else spread_mask(inside, 0, out_grad.ndim))
    grad = np.array(out_grad)
    grad[own if inside is None else own[inside]] = 0
    return grad, taken


@family(
    "scatter",
    "x[], index[], updates[] -> out[]",
    kernel=_scatter,
    attrs={"block": None},
    dtype=_like("x"),
    domain={"index": "v"},
    local=local_block("x", lambda attrs: 0),
    flops=elements_of("updates"),
    grad=Grad(_scatter_back, reads="index", of="x updates", flops=elements_of("out_grad")),
)
def scatter(overwrite: bool = True) -> Rule:
    """Slices of x replaced: by the last update of each, or by the sum of its updates."""
    return rule("x[v r*], index[i], updates[i r*] -> out[v r*]", whole="i", needs=_NEEDS, linear="x + updates")


def _index_add(x: Array, index: Array, value: Array, axis: int, block: Block) -> Array:
    axis %= x.ndim
    own, inside = own_indices(index, x.shape[axis], block)
    own, value = _kept(inside, own, value, axis)
    out = np.array(x)
    np.add.at(out, along(axis, own), value)
    return out


def _index_add_back(index: Array, out_grad: Array, *, axis: int, block: Block) -> tuple[Array, Array]:
    axis %= out_grad.ndim
    own, inside = own_indices(index, out_grad.shape[axis], block)
    mask = None if inside is None else spread_mask(inside, axis, out_grad.ndim)
    return out_grad, masked(out_grad.take(own, axis), mask)


op(
    "index_add",
    "x[a* v@axis b*], index[i], value[a* i b*] -> out[a* v b*]",
    sum="i",
    needs=_NEEDS,
    linear="x + value",
    attrs={"axis": 0, "block": None},
    kernel=_index_add,
    dtype=_like("x"),
    domain={"index": "v"},
    local=local_block("x", lambda attrs: attrs["axis"]),
    flops=elements_of("value"),
    grad=Grad(_index_add_back, reads="index", of="x value", flops=elements_of("out_grad")),
)


# ------------------------------------------------------------------------------------------------------------ by points


def _scatter_nd_add(x: Array, index: Array, updates: Array) -> Array:
    out = np.array(x)
    np.add.at(out, tuple(np.moveaxis(index, -1, 0)), updates)
    return out


@family(
    "scatter_nd_add",
    "x[], index[], updates[] -> out[]",
    kernel=_scatter_nd_add,
    shape=lambda shapes, attrs: (shape_of(shapes, "x"),),
    dtype=_like("x"),
    flops=elements_of("updates"),
    grad=Grad(
        lambda index, out_grad: (out_grad, out_grad[tuple(np.moveaxis(index, -1, 0))]),
        reads="index",
        of="x updates",
        flops=elements_of("out_grad"),
    ),
)
def scatter_nd_add(x: Shape, index: Shape) -> Rule:
    """Updates added to elements or slices of x by coordinates of its first dims, which are whole."""
    first, rest = addressed(x, index)
    return rule(
        f"x[{first} {rest}], index[i* _], updates[i* {rest}] -> out[{first} {rest}]", sum="i*", linear="x + updates"
    )


Blocks: TypeAlias = tuple[Block, ...]
"""The block of each dim that is addressed; none where all are whole."""


def _local_blocks(attrs: Attrs, ctx: LocalContext) -> Attrs:
    x, indices = shape_of(ctx.operands, "x"), ctx.operands["indices"] or ()
    counts = [ctx.count(f"v{dim}") for dim in range(len(indices))]
    blocks = tuple(None if count == 1 else (ctx.start(f"v{dim}"), count * x[dim]) for dim, count in enumerate(counts))
    return {**attrs, "blocks": blocks}


def _own_points(indices: Sequence[Array], x: Shape, blocks: Blocks) -> tuple[tuple[Array, ...], Array | None]:
    """Return the points that integer tensors make together, in the local block, and which of them are inside."""
    found = [own_indices(index, x[dim], blocks[dim] if blocks else None) for dim, index in enumerate(indices)]
    points = tuple(np.broadcast_arrays(*(own for own, _ in found)))
    masks = [mask for _, mask in found if mask is not None]
    return points, np.broadcast_to(
        np.logical_and.reduce(np.broadcast_arrays(*masks)), points[0].shape
    ) if masks else None


def _index_put(x: Array, indices: Sequence[Array], value: Array, accumulate: bool, blocks: Blocks) -> Array:
    points, inside = _own_points(indices, x.shape, blocks)
    if inside is not None:
        value = np.broadcast_to(value, points[0].shape + x.shape[len(points) :])[inside]
        points = tuple(point[inside] for point in points)
    out = np.array(x)
    if accumulate:
        np.add.at(out, points, value)
    else:
        out[points] = value
    return out


def _index_put_back(
    indices: Sequence[Array], out_grad: Array, *, accumulate: bool, blocks: Blocks, shapes: Shapes
) -> tuple[Array, Array]:
    points, inside = _own_points(indices, out_grad.shape, blocks)
    grad = np.array(out_grad)
    if not accumulate:
        grad[points if inside is None else tuple(point[inside] for point in points)] = 0
    taken = out_grad[points]
    taken = masked(taken, None if inside is None else inside.reshape(inside.shape + (1,) * (taken.ndim - inside.ndim)))
    return grad, sum_to(taken, shape_of(shapes, "value"))


def _places(x: Shape, indices: Sequence[Shape], dtypes: Sequence[str | None]) -> Shape:
    """Return the shape of the points that index tensors make together."""
    for slot, dtype in enumerate(dtypes):
        if dtype is not None and "int" not in dtype:
            raise RuleError(
                f"index_put: indices.{slot} is {dtype}, and only data say how many places it points at: give integers, "
                "or use where or masked_fill for a mask"
            )
    if len(indices) > len(x):
        raise RuleError(f"index_put: {len(indices)} index tensors for x {x}, which has {len(x)} dims")
    try:
        return np.broadcast_shapes(*indices)
    except ValueError as error:
        raise RuleError(f"index_put: indices {list(indices)} do not broadcast to one shape") from error


@family(
    "index_put",
    "x[], *indices[], value[] -> out[]",
    kernel=_index_put,
    attrs={"blocks": ()},
    shape=lambda shapes, attrs: (shape_of(shapes, "x"),),
    dtype=_like("x"),
    local=_local_blocks,
    flops=elements_of("value"),
    grad=Grad(_index_put_back, reads="indices", of="x value", shapes=True, flops=elements_of("out_grad")),
)
def index_put(
    x: Shape,
    indices: Sequence[Shape],
    indices_dtype: Sequence[str | None] | None,
    value: Shape,
    accumulate: bool = False,
) -> Rule:
    """Values put or added where integer tensors, one for each of the first dims, point; the other dims ride along."""
    shape = _places(x, indices, indices_dtype or ())
    places = [f"i{dim}" for dim in range(len(shape))]
    rest = named_dims(len(x))[len(indices) :]
    full, sizes = places + rest, shape + x[len(indices) :]
    front = len(full) - len(value)
    if front < 0 or any(size not in (1, whole) for size, whole in zip(value, sizes[front:], strict=True)):
        raise RuleError(f"index_put: value {value} does not broadcast to {sizes}")
    values = ["1" if size == 1 else name for size, name in zip(value, full[front:], strict=True)]
    slots = [
        " ".join(
            "1" if size == 1 else name for size, name in zip(index, places[len(places) - len(index) :], strict=True)
        )
        for index in indices
    ]
    addressed_dims = [f"v{dim}" if size > 1 else "1" for dim, size in enumerate(x[: len(indices)])]
    dims = " ".join(addressed_dims + rest)
    held = {name for slot in slots for name in slot.split()}
    added = [name for name in places if accumulate and name in values]
    return rule(
        f"x[{dims}], {', '.join(f'indices.{i}[{slot}]' for i, slot in enumerate(slots))}, value[{' '.join(values)}] "
        f"-> out[{dims}]",
        sum=" ".join(added),
        whole=" ".join(name for name in places if name not in added and name in held | set(values)),
        needs={name: MASKED for name in addressed_dims if name != "1"},
        linear="x + value",
    )


# ------------------------------------------------------------------------------------------------------ put_along_axis

_PUT = {"add": np.add, "multiply": np.multiply, "mul": np.multiply, "amax": np.maximum, "amin": np.minimum}
_SAME = {"add": 0, "multiply": 1, "mul": 1, "amax": -np.inf, "amin": np.inf}
_REDUCES = ("assign", *_PUT)


def _inside(coordinates: tuple[Array, ...], inside: Array | None, values: Array) -> tuple[tuple[Array, ...], Array]:
    values = np.broadcast_to(values, coordinates[0].shape)
    if inside is None:
        return coordinates, values
    mask = np.broadcast_to(inside, values.shape)
    return tuple(c[mask] for c in coordinates), values[mask]


def _put_along(arr: Array, indices: Array, values: Array, axis: int, reduce: str, block: Block) -> Array:
    axis %= arr.ndim
    own, inside = own_indices(indices, arr.shape[axis], block)
    coordinates, values = _inside(grid(arr.shape, own, axis), inside, values)
    out = np.array(arr)
    if reduce == "assign":
        out[coordinates] = values
    else:
        _PUT[reduce].at(out, coordinates, values)
    return out


def _put_along_back(
    arr: Array,
    indices: Array,
    values: Array,
    out: Array,
    out_grad: Array,
    *,
    axis: int,
    reduce: str,
    block: Block,
) -> tuple[Array, Array]:
    axis %= arr.ndim
    own, inside = own_indices(indices, arr.shape[axis], block)
    where = grid(arr.shape, own, axis)
    taken, made = out_grad[where], out[where]
    grad = np.array(out_grad)
    if reduce == "assign":
        grad[_inside(where, inside, taken)[0]] = 0
    elif reduce in ("multiply", "mul"):
        grad, taken = out_grad * out / arr, taken * made / values
    elif reduce in ("amax", "amin"):
        grad, taken = out_grad * (out == arr), taken * (made == values)
    return grad, sum_to(masked(taken, inside), values.shape)


@family(
    "put_along_axis",
    "arr[], indices[], values[] -> out[]",
    kernel=_put_along,
    attrs={"block": None},
    shape=lambda shapes, attrs: (shape_of(shapes, "arr"),),
    dtype=_like("arr"),
    domain={"indices": "v"},
    local=local_block("arr", lambda attrs: attrs["axis"]),
    flops=elements_of("values"),
    grad=Grad(_put_along_back, reads="arr indices values out", of="arr values", flops=elements_of("out_grad")),
)
def put_along_axis(arr: Shape, indices: Shape, values: Shape, axis: int, reduce: str = "assign") -> Rule:
    """Values put, or reduced into arr, by indices along one dim, each at its own place along the others."""
    if reduce not in _REDUCES:
        raise RuleError(f"reduce={reduce!r} is not one of {', '.join(_REDUCES)}")
    axis = axis_in(axis, len(arr), "axis")
    left, index, taken = paired_dims(arr, indices, axis, "put_along_axis")
    sizes = _taken_sizes(arr, indices, axis)
    if len(values) != len(arr) or any(size not in (1, whole) for size, whole in zip(values, sizes, strict=True)):
        raise RuleError(f"put_along_axis: values {values} do not broadcast to {sizes}")
    value = ["1" if size == 1 != whole else name for size, name, whole in zip(values, taken, sizes, strict=True)]
    kinds = {"add": "sum", "amax": "max", "amin": "min"} if "i" in value else {}
    clauses: Any = {kinds.get(reduce, "whole"): "i"}
    if reduce in ("amax", "amin"):
        clauses["monotone"] = "arr values" if "i" in value else ""
    else:
        clauses["linear"] = "arr + values" if reduce in ("assign", "add") else "arr"
    return rule(
        f"arr[{' '.join(left)}], indices[{' '.join(index)}], values[{' '.join(value)}] -> out[{' '.join(left)}]",
        needs=_NEEDS,
        **clauses,
    )


def _taken_sizes(arr: Shape, indices: Shape, axis: int) -> Shape:
    return tuple(
        size if dim == axis or size != 1 else mine for dim, (mine, size) in enumerate(zip(arr, indices, strict=True))
    )
