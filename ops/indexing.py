"""Lookups: elements of a tensor by integer indices.

A dim that is looked up may be cut where the runtime can mask: each device answers for the indices of its own block and
gives zeros for the others, so that the results are P(sum).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from ops.bind import Shape
from ops.dims import Array, axis_in, elements_of, shape_of, sum_to
from ops.grad import Grad
from ops.notation import RuleError
from ops.op import Attrs, LocalContext, Shapes
from ops.registry import family, op
from ops.rule import Rule, rule

MASKED = "masked_lookup"

Block: TypeAlias = tuple[int, int] | None
"""The first index of a dim that a device holds and the size of the whole dim; None where it holds all of it."""


def local_block(operand: str, dim: Callable[[Attrs], int]) -> Callable[[Attrs, LocalContext], Attrs]:
    """Return the ``local=`` of an op that looks up factor v, which a dim of an operand holds."""

    def local(attrs: Attrs, ctx: LocalContext) -> Attrs:
        count = ctx.count("v")
        if count == 1:
            return attrs
        return {**attrs, "block": (ctx.start("v"), count * shape_of(ctx.operands, operand)[dim(attrs)])}

    return local


def own_indices(index: Array, size: int, block: Block) -> tuple[Array, Array | None]:
    """Return indices into the local block, and which of them are inside; None where all must be.

    Raises
    ------
    IndexError
        For an index that is no element of the whole dim.
    """
    start, whole = block or (0, size)
    if index.size and not -whole <= index.min() <= index.max() < whole:
        raise IndexError(f"index {index.min()} or {index.max()} is outside a dim of size {whole}")
    index = np.where(index < 0, index + whole, index)
    if block is None:
        return index, None
    inside = (index >= start) & (index < start + size)
    return np.where(inside, index - start, 0), inside


def spread_mask(inside: Array, axis: int, rank: int) -> Array:
    """Lay a mask over indices along the dims they take from one on."""
    return inside.reshape((1,) * axis + inside.shape + (1,) * (rank - axis - 1))


def masked(values: Array, inside: Array | None) -> Array:
    """Put zeros where a mask is false."""
    return values if inside is None else np.where(inside, values, np.zeros((), values.dtype))


def along(axis: int, index: Any) -> Any:
    """Return the index that speaks of one dim only."""
    return (*[slice(None)] * axis, index)


# ------------------------------------------------------------------------------------------------- gather, embedding


def _look_up(x: Array, index: Array, axis: int, block: Block) -> Array:
    own, inside = own_indices(index, x.shape[axis], block)
    return masked(x.take(own, axis), None if inside is None else spread_mask(inside, axis, x.ndim))


def _look_up_back(index: Array, grad: Array, x: Shape, axis: int, block: Block) -> Array:
    """Add each grad where its element came from."""
    own, inside = own_indices(index, x[axis], block)
    made = np.zeros(x, grad.dtype)
    np.add.at(made, along(axis, own), masked(grad, None if inside is None else spread_mask(inside, axis, len(x))))
    return made


def _gather(x: Array, index: Array, axis: int, block: Block) -> Array:
    return _look_up(x, index, axis % x.ndim, block)


def _gather_back(index: Array, out_grad: Array, *, axis: int, block: Block, shapes: Shapes) -> Array:
    x = shape_of(shapes, "x")
    return _look_up_back(index, out_grad, x, axis % len(x), block)


for _name in ("gather", "index_select"):
    op(
        _name,
        "x[a* v@axis b*], index[i*] -> out[a* i* b*]",
        sum="v",
        needs={"v": MASKED},
        linear="x",
        attrs={"axis": 0, "block": None},
        kernel=_gather,
        dtype=lambda dtypes, attrs: (dtypes["x"],),
        domain={"index": "v"},
        local=local_block("x", lambda attrs: attrs["axis"]),
        flops=elements_of("out"),
        grad=Grad(_gather_back, reads="index", of="x", shapes=True, flops=elements_of("out_grad")),
    )


def _padded_at(x: Array, padding_idx: int | None, rows: int, block: Block) -> Array | None:
    """Return where ids are the padding id."""
    if padding_idx is None:
        return None
    whole = block[1] if block else rows
    return np.asarray(x == (padding_idx + whole if padding_idx < 0 else padding_idx))


def _embedding(x: Array, weight: Array, padding_idx: int | None, block: Block) -> Array:
    out = _look_up(weight, x, 0, block)
    padding = _padded_at(x, padding_idx, len(weight), block)
    return out if padding is None else masked(out, ~padding[..., None])


def _embedding_back(x: Array, out_grad: Array, *, padding_idx: int | None, block: Block, shapes: Shapes) -> Array:
    weight = shape_of(shapes, "weight")
    padding = _padded_at(x, padding_idx, weight[0], block)
    grad = out_grad if padding is None else masked(out_grad, ~padding[..., None])
    return _look_up_back(x, grad, weight, 0, block)


op(
    "embedding",
    "x[i*], weight[v d] -> out[i* d]",
    sum="v",
    needs={"v": MASKED},
    linear="weight",
    attrs={"padding_idx": None, "block": None},
    kernel=_embedding,
    dtype=lambda dtypes, attrs: (dtypes["weight"],),
    domain={"x": "v"},
    local=local_block("weight", lambda attrs: 0),
    flops=elements_of("out"),
    grad=Grad(_embedding_back, reads="x", of="weight", shapes=True, flops=elements_of("out_grad")),
)


def _one_hot(x: Array, num_classes: int, start: int) -> Array:
    return np.asarray(x[..., None] == np.arange(start, start + num_classes), np.float32)


@family(
    "one_hot",
    "x[] -> out[]",
    kernel=_one_hot,
    attrs={"start": 0},
    dtype="float32",
    domain={"x": "v"},
    local=lambda attrs, ctx: {
        **attrs,
        "start": ctx.start("v"),
        "num_classes": attrs["num_classes"] // ctx.count("v"),
    },
)
def one_hot(x: Shape, num_classes: int) -> Rule:
    """A 1 at each index of a new last dim, zeros elsewhere."""
    return rule("x[i*] -> out[i* v]", needs={"v": MASKED}, sizes={"v": num_classes})


# ---------------------------------------------------------------------------------------------------------- gather_nd


def _points(index: Array) -> tuple[Array, ...]:
    return tuple(np.moveaxis(index, -1, 0))


def _gather_nd_back(index: Array, out_grad: Array, *, shapes: Shapes) -> Array:
    grad = np.zeros(shape_of(shapes, "x"), out_grad.dtype)
    np.add.at(grad, _points(index), out_grad)
    return grad


def addressed(x: Shape, index: Shape, what: str = "index") -> tuple[str, str]:
    """Write the dims of x that a last dim of coordinates addresses, and those that ride along.

    Raises
    ------
    RuleError
        Where there are more coordinates than dims.
    """
    if not index or index[-1] > len(x):
        raise RuleError(f"{what} {index} holds coordinates of more dims than x {x} has, or none")
    return " ".join("_" * index[-1]), " ".join(f"r{dim}" for dim in range(len(x) - index[-1]))


@family(
    "gather_nd",
    "x[], index[] -> out[]",
    kernel=lambda x, index: x[_points(index)],
    dtype=lambda dtypes, attrs: (dtypes["x"],),
    flops=elements_of("out"),
    grad=Grad(_gather_nd_back, reads="index", of="x", shapes=True, flops=elements_of("out_grad")),
)
def gather_nd(x: Shape, index: Shape) -> Rule:
    """Elements or slices by coordinates of the first dims, which are whole."""
    first, rest = addressed(x, index)
    return rule(f"x[{first} {rest}], index[i* _] -> out[i* {rest}]", linear="x")


# ------------------------------------------------------------------------------------------------------ along one dim


def paired_dims(arr: Shape, indices: Shape, axis: int, name: str) -> tuple[list[str], list[str], list[str]]:
    """Write the dims of a tensor, of the indices along one of its dims, and of what is taken.

    Raises
    ------
    RuleError
        Where the shapes do not go together.
    """
    if len(arr) != len(indices):
        raise RuleError(f"{name}: arr {arr} and indices {indices} differ in rank")
    left: list[str] = []
    index: list[str] = []
    taken: list[str] = []
    for dim, (mine, size) in enumerate(zip(arr, indices, strict=True)):
        factor = f"d{dim}"
        if dim == axis:
            words = ("v", "i", "i")
        elif mine == size:
            words = (factor, factor, factor)
        elif size == 1:
            words = (factor, "1", factor)
        elif mine == 1:
            words = ("1", factor, factor)
        elif size < mine:
            words = ("_", "_", "_")
        else:
            raise RuleError(f"{name}: indices {indices} do not fit dim {dim} of arr {arr}")
        for dims, word in zip((left, index, taken), words, strict=True):
            dims.append(word)
    return left, index, taken


def grid(arr: Shape, index: Array, axis: int) -> tuple[Array, ...]:
    """Return coordinates into a tensor: indices along one dim, their own place along the others."""
    shape = tuple(
        n if dim == axis or n != 1 else size for dim, (n, size) in enumerate(zip(index.shape, arr, strict=True))
    )
    coordinates = list(np.ogrid[tuple(slice(0, size) for size in shape)]) if shape else []
    for dim, size in enumerate(arr):
        if size == 1 and dim != axis:
            coordinates[dim] = np.zeros_like(coordinates[dim])
    coordinates[axis] = index
    return tuple(np.broadcast_arrays(*coordinates))


def _take_along(arr: Array, indices: Array, axis: int, block: Block) -> Array:
    axis %= arr.ndim
    own, inside = own_indices(indices, arr.shape[axis], block)
    return masked(arr[grid(arr.shape, own, axis)], inside)


def _take_along_back(indices: Array, out_grad: Array, *, axis: int, block: Block, shapes: Shapes) -> Array:
    arr = shape_of(shapes, "arr")
    axis %= len(arr)
    own, inside = own_indices(indices, arr[axis], block)
    grad = np.zeros(arr, out_grad.dtype)
    np.add.at(grad, grid(arr, own, axis), masked(out_grad, inside))
    return grad


@family(
    "take_along_axis",
    "arr[], indices[] -> out[]",
    kernel=_take_along,
    attrs={"block": None},
    shape=lambda shapes, attrs: (_taken_shape(shapes, attrs["axis"]),),
    dtype=lambda dtypes, attrs: (dtypes["arr"],),
    domain={"indices": "v"},
    local=local_block("arr", lambda attrs: attrs["axis"]),
    flops=elements_of("out"),
    grad=Grad(_take_along_back, reads="indices", of="arr", shapes=True, flops=elements_of("out_grad")),
)
def take_along_axis(arr: Shape, indices: Shape, axis: int) -> Rule:
    """Elements by indices along one dim, each at its own place along the others, which may be repeated."""
    left, index, taken = paired_dims(arr, indices, axis_in(axis, len(arr), "axis"), "take_along_axis")
    return rule(
        f"arr[{' '.join(left)}], indices[{' '.join(index)}] -> out[{' '.join(taken)}]",
        sum="v",
        needs={"v": MASKED},
        linear="arr",
    )


def _taken_shape(shapes: Shapes, axis: int) -> Shape:
    arr, indices = shape_of(shapes, "arr"), shape_of(shapes, "indices")
    axis = axis_in(axis, len(arr), "axis")
    return tuple(
        size if dim == axis or size != 1 else mine for dim, (mine, size) in enumerate(zip(arr, indices, strict=True))
    )


# --------------------------------------------------------------------------------------------------------------- masks


def _masked_fill_back(mask: Array, out_grad: Array, *, value: float, shapes: Shapes) -> Array:
    return sum_to(masked(out_grad, ~mask), shape_of(shapes, "x"))


def _masked_fill(x: Array, mask: Array, value: float) -> Array:
    return np.where(mask, np.asarray(value, x.dtype), x)


@family(
    "masked_fill",
    "x[], mask[] -> out[]",
    kernel=_masked_fill,
    dtype=lambda dtypes, attrs: (dtypes["x"],),
    grad=Grad(_masked_fill_back, reads="mask", of="x", shapes=True),
)
def masked_fill(x: Shape, mask: Shape, value: float) -> Rule:
    """X with a number where a mask is true."""
    return rule("x[...], mask[...] -> out[...]", linear="x" if value == 0 else "", monotone="x")


# ------------------------------------------------------------------------------------------------ where elements are


def _nonzero(x: Array, size: int) -> Array:
    """Return the coordinates of the elements that are not zero, in order, then zeros until there are `size` rows."""
    found = np.argwhere(x)
    if len(found) > size:
        raise ValueError(f"nonzero: x holds {len(found)} elements that are not zero, more than size={size}")
    return np.concatenate([found, np.zeros((size - len(found), x.ndim), found.dtype)])


@family(
    "nonzero",
    "x[] -> out[]",
    kernel=_nonzero,
    shape=lambda shapes, attrs: ((attrs["size"], len(shape_of(shapes, "x"))),),
    dtype="int64",
    flops=elements_of("x"),
)
def nonzero(x: Shape, size: int | None = None) -> Rule:
    """Coordinates of what is not zero: every device finds them all, and a static graph says how many there may be."""
    total = math.prod(x)
    if size is None:
        raise RuleError(
            "nonzero makes a row for each element that is not zero, and only the data say how many there are: "
            "give size=, the most there can be; the rows left over are zeros"
        )
    if not 0 < size <= total:
        raise RuleError(f"nonzero: size={size} is not between 1 and the {total} elements of x {x}")
    return rule(f"x[{' '.join('_' for _ in x)}] -> out[_ _]")
