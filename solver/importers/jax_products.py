"""JAX's dot_general, its reductions, and what goes along a dim: running sums, order, the largest."""

from __future__ import annotations

import string
from collections.abc import Sequence

import numpy as np

from solver.importers.jax_site import Site, Translation
from solver.importers.sketch import Value

# --------------------------------------------------------------------------------------------------------- dot_general


def _dot_general(site: Site) -> Value:
    """A matmul where the dims stand as it wants them, else an einsum of the same indices."""
    x, y = site.operands
    if not x.floating and x.dtype != site.dtype:
        x, y = site.cast(x, site.dtype), site.cast(y, site.dtype)
    (left, right), (left_batch, right_batch) = (
        tuple(tuple(int(dim) for dim in dims) for dims in pair) for pair in site.params["dimension_numbers"]
    )
    made = _as_matmul(site, x, y, (left, right), (left_batch, right_batch))
    if made is None:
        made = site.emit("einsum", [x, y], equation=_equation(x, y, (left, right), (left_batch, right_batch)))
    return site.cast(made, site.dtype)


Pair = tuple[tuple[int, ...], tuple[int, ...]]


def _as_matmul(site: Site, x: Value, y: Value, contracted: Pair, batch: Pair) -> Value | None:
    count = len(batch[0])
    leading = tuple(range(count))
    ranks = len(x.shape) - count, len(y.shape) - count
    if batch != (leading, leading) or len(contracted[0]) != 1 or ranks[1] != 2 or ranks[0] < 2:
        return None
    k, other = contracted[0][0] - count, contracted[1][0] - count
    if ranks[0] > 2 and (count or k != ranks[0] - 1):
        return None
    return site.emit("matmul", x, y, transpose_x=k != ranks[0] - 1, transpose_y=other == 1)


def _equation(x: Value, y: Value, contracted: Pair, batch: Pair) -> str:
    """Write the dims as indices: those of the batch, what x keeps, what y keeps."""
    letters = iter(string.ascii_letters)
    left, right = [""] * len(x.shape), [""] * len(y.shape)
    for pair in (batch, contracted):
        for mine, other in zip(*pair, strict=True):
            left[mine] = right[other] = next(letters)
    shared = [left[dim] for dim in batch[0]]
    kept = []
    for dims in (left, right):
        for dim, letter in enumerate(dims):
            if not letter:
                dims[dim] = next(letters)
                kept.append(dims[dim])
    return f"{''.join(left)},{''.join(right)}->{''.join([*shared, *kept])}"


def _ragged_dot(site: Site) -> Value:
    """Rows in groups, each times a matrix of its own; or a product of each group of the summed dim."""
    x, y, sizes = site.operands
    numbers, offset = site.params["ragged_dot_dimension_numbers"], site.params.get("group_offset")
    (contracted, batch), ragged = numbers.dot_dimension_numbers, tuple(map(int, numbers.lhs_ragged_dimensions))
    groups = tuple(map(int, numbers.rhs_group_dimensions))
    if len(x.shape) != 2 or batch[0] or len(contracted[0]) != 1 or len(ragged) != 1 or offset is not None:
        raise site.refuse(f"its dimension numbers {numbers} are not supported: of two dims of x one is ragged")
    left, right = int(contracted[0][0]), int(contracted[1][0])
    offs = site.emit("cumsum", sizes, axis=0)
    if ragged[0] == left and not groups:
        x, y = site.transpose(x, [1 - left, left]), site.transpose(y, [right, 1 - right])
    elif ragged[0] != left and len(groups) == 1 and len(y.shape) == 3:
        x, y = site.transpose(x, [1 - left, left]), site.transpose(y, [groups[0], right, 3 - groups[0] - right])
    else:
        raise site.refuse(f"its dimension numbers {numbers} are not supported: rows or the summed dim are in groups")
    return site.cast(site.emit("grouped_mm", x, y, offs), site.dtype)


# ---------------------------------------------------------------------------------------------------------- reductions


def _reduce(op: str) -> Translation:
    def translate(site: Site) -> Value:
        x, axis = site.operands[0], sorted(int(dim) for dim in site.params["axes"])
        if all(x.shape[dim] == 1 for dim in axis):
            return site.reshape(x, site.shape)
        return site.cast(site.emit(op, x, axis=axis, keepdim=False), site.dtype)

    return translate


def _arg(op: str) -> Translation:
    def translate(site: Site) -> Value:
        (axis,) = site.params["axes"]
        return site.cast(site.emit(op, site.operands[0], axis=int(axis), keepdim=False), site.dtype)

    return translate


# ---------------------------------------------------------------------------------------------------------- along a dim


def _running(op: str, attribute: str = "axis") -> Translation:
    """The sum, product or extreme of all elements up to each; from the other end by flipping twice."""

    def translate(site: Site) -> Value:
        x, axis, reverse = site.operands[0], int(site.params["axis"]), bool(site.params["reverse"])
        if op == "cumsum":
            return site.emit(op, x, axis=axis, reverse=reverse)
        x = site.emit("flip", x, axis=[axis]) if reverse else x
        made = site.emit_all(op, x, **{attribute: axis})[0]
        return site.emit("flip", made, axis=[axis]) if reverse else made

    return translate


def _sort(site: Site) -> Sequence[Value]:
    """One tensor is sorted; several follow the order of the first, of equal elements that of the second, ..."""
    axis, keys = int(site.params["dimension"]), int(site.params["num_keys"])
    if len(site.operands) == 1:
        return [site.emit("sort", site.operands[0], axis=axis, stable=True)]
    order: Value | None = None
    for key in reversed(site.operands[:keys]):
        seen = key if order is None else _taken(site, key, order, axis)
        found = site.emit("argsort", seen, axis=axis, stable=True)
        order = found if order is None else _taken(site, order, found, axis)
    assert order is not None
    return [_taken(site, operand, order, axis) for operand in site.operands]


def _taken(site: Site, x: Value, order: Value, axis: int) -> Value:
    """X in an order; of the positions along the dim that is the order itself."""
    if x.data is not None and x.dtype.startswith("int") and _is_positions(x, axis):
        return site.cast(order, x.dtype)
    return site.emit("take_along_axis", x, order, axis=axis)


def _is_positions(x: Value, axis: int) -> bool:
    shape = [size if dim == axis else 1 for dim, size in enumerate(x.shape)]
    return bool(np.all(x.data == np.arange(x.shape[axis]).reshape(shape)))


def _top_k(site: Site) -> Sequence[Value]:
    x = site.operands[0]
    axis = int(site.params.get("axis", len(x.shape) - 1))
    values, indices = site.emit_all("topk", x, k=int(site.params["k"]), axis=axis)
    return [values, site.cast(indices, str(site.results[1].dtype.name))]


PRODUCTS: dict[str, Translation] = {
    "dot_general": _dot_general,
    "ragged_dot_general": _ragged_dot,
    **{
        theirs: _reduce(ours)
        for theirs, ours in {
            "reduce_sum": "sum",
            "reduce_max": "max",
            "reduce_min": "min",
            "reduce_prod": "prod",
            "reduce_and": "all",
            "reduce_or": "any",
        }.items()
    },
    "argmax": _arg("argmax"),
    "argmin": _arg("argmin"),
    "cumsum": _running("cumsum"),
    "cumprod": _running("cumprod", "dim"),
    "cummax": _running("cummax"),
    "cummin": _running("cummin"),
    "cumlogsumexp": _running("logcumsumexp"),
    "sort": _sort,
    "top_k": _top_k,
}
"""Primitives that sum over indices, reduce dims, or go along one."""
