"""aten: lookups and scatters by integer tensors, and embeddings."""

from __future__ import annotations

from collections.abc import Sequence

from solver.importers.aten_site import Lowering, Number, Site
from solver.importers.sketch import Value

Indices = Sequence["Value | None"]


# ---------------------------------------------------------------------------------------------------------- embeddings


def _embedding(
    site: Site,
    weight: Value,
    indices: Value,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Value:
    """The padding index is a matter of the gradient alone."""
    return site.emit("embedding", indices, weight)


def _embedding_backward(
    site: Site, grad: Value, indices: Value, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Value:
    if scale_grad_by_freq:
        raise site.refuse("gradients scaled by how often an index occurs are not supported")
    shapes = {"x": indices.shape, "weight": (num_weights, grad.shape[-1])}
    padding = {"padding_idx": padding_idx} if padding_idx >= 0 else {}
    return site.emit("embedding_grad", indices, grad, **padding, forward_shapes=shapes)


# ------------------------------------------------------------------------------------------------------- by positions


def _addressed(site: Site, indices: Indices, rank: int) -> list[int]:
    """Return the dims that index tensors address, one each."""
    dims = [dim for dim, index in enumerate(indices) if index is not None]
    if any(index is not None and index.dtype in ("bool", "uint8") for index in indices):
        raise site.refuse("it is indexed by a mask, and only data say how many elements that takes: use where")
    if not dims or len(indices) > rank:
        raise site.refuse(f"it is indexed by {len(dims)} tensors, and its operand has rank {rank}")
    return dims


def _to_front(dims: Sequence[int], rank: int) -> list[int]:
    """Return the order of dims in which those that are addressed come first."""
    return [*dims, *(dim for dim in range(rank) if dim not in dims)]


def _place(dims: Sequence[int]) -> int:
    """Return where the dims of the points stand in what is taken: where neighbours stood, else in front."""
    return dims[0] if list(dims) == list(range(dims[0], dims[0] + len(dims))) else 0


def _index(site: Site, x: Value, indices: Indices) -> Value:
    dims = _addressed(site, indices, len(x.shape))
    given = [index for index in indices if index is not None]
    if len(dims) == 1:
        return site.emit("index_select", x, given[0], axis=dims[0])
    points = _points(site, given)
    front = site.transpose(x, _to_front(dims, len(x.shape)))
    taken = site.emit("gather_nd", front, site.emit("stack", points, axis=len(points[0].shape)))
    return site.transpose(taken, _moved(len(points[0].shape), _place(dims), len(taken.shape)))


def _points(site: Site, given: Sequence[Value]) -> list[Value]:
    """Return index tensors in one shape."""
    rank = max(len(index.shape) for index in given)
    padded = [(1,) * (rank - len(index.shape)) + index.shape for index in given]
    shape = [max(sizes) for sizes in zip(*padded, strict=True)]
    return [site.expand(site.cast(index, "int64"), shape) for index in given]


def _moved(count: int, place: int, rank: int) -> list[int]:
    """Return the order of dims that moves the first `count` to a place further on."""
    rest = list(range(count, rank))
    return [*rest[:place], *range(count), *rest[place:]]


def _index_put(
    site: Site, x: Value, indices: Indices, values: Value, accumulate: bool = False, unsafe: bool = False
) -> Value:
    """Addressed dims are brought to the front, and so are the points among the dims of the values."""
    if (
        len(indices) == 1
        and indices[0] is not None
        and indices[0].dtype == "bool"
        and not values.shape
        and not accumulate
    ):
        mask = site.reshape(indices[0], indices[0].shape + (1,) * (len(x.shape) - len(indices[0].shape)))
        return site.emit("where", mask, site.cast(values, x.dtype), x)
    dims = _addressed(site, indices, len(x.shape))
    given = [index for index in indices if index is not None]
    order = _to_front(dims, len(x.shape))
    values = site.cast(values, x.dtype)
    points = max(len(index.shape) for index in given)
    place, rank = _place(dims), points + len(x.shape) - len(dims)
    if place:
        wide = site.reshape(values, (1,) * (rank - len(values.shape)) + values.shape)
        front = [*range(place, place + points), *range(place), *range(place + points, rank)]
        values = site.transpose(wide, front)
    made = site.emit("index_put", site.transpose(x, order), given, values, accumulate=accumulate)
    return site.transpose(made, [order.index(dim) for dim in range(len(order))])


def _index_select(site: Site, x: Value, dim: int, index: Value) -> Value:
    return site.emit("index_select", x, index, axis=site.axis(dim, len(x.shape)))


def _index_add(site: Site, x: Value, dim: int, index: Value, source: Value, *, alpha: Number = 1) -> Value:
    source = source if alpha == 1 else site.emit("scale", source, scale=alpha)
    return site.emit("index_add", x, index, source, axis=site.axis(dim, len(x.shape)))


# -------------------------------------------------------------------------------------------------------- along one dim


def _gather(site: Site, x: Value, dim: int, index: Value, *, sparse_grad: bool = False) -> Value:
    if not x.shape:
        return site.expand(x, index.shape)
    axis = site.axis(dim, len(x.shape))
    return site.emit("take_along_axis", _within(site, x, index, axis), index, axis=axis)


def _within(site: Site, x: Value, index: Value, axis: int | None = None) -> Value:
    """Return what of a tensor an index has places for: in its other dims it may be shorter, from the start on."""
    axes = [dim for dim, (size, own) in enumerate(zip(index.shape, x.shape, strict=True)) if dim != axis and size < own]
    if not axes:
        return x
    return site.emit("slice", x, axes=axes, starts=[0] * len(axes), ends=[index.shape[dim] for dim in axes])


def _scatter(reduce: str) -> Lowering:
    def lowering(site: Site, x: Value, dim: int, index: Value, src: Value) -> Value:
        return _put(site, x, dim, index, _within(site, src, index), reduce)

    return lowering


def _scatter_value(site: Site, x: Value, dim: int, index: Value, value: Number, *, reduce: str | None = None) -> Value:
    if reduce is not None:
        raise site.refuse(f"a scatter of a number with reduce={reduce!r} is not supported")
    return _put(
        site, x, dim, index, site.emit("full", shape=[1] * len(x.shape), dtype=x.dtype, fill_value=value), "assign"
    )


def _put(site: Site, x: Value, dim: int, index: Value, values: Value, reduce: str) -> Value:
    axis = site.axis(dim, len(x.shape))
    narrow = [
        d
        for d, (size, own) in enumerate(zip(index.shape, x.shape, strict=True))
        if d != axis and size < own and size == 1
    ]
    if narrow:
        return _put_narrow(site, x, axis, index, values, reduce, narrow)
    return site.emit("put_along_axis", x, index, site.cast(values, x.dtype), axis=axis, reduce=reduce)


def _put_narrow(
    site: Site, x: Value, axis: int, index: Value, values: Value, reduce: str, narrow: Sequence[int]
) -> Value:
    """An index of size 1 speaks of the first element of a dim here and of every one there: put into that part alone."""
    where = {"axes": list(narrow), "starts": [0] * len(narrow), "ends": [1] * len(narrow)}
    part = site.emit("slice", x, **where)
    made = site.emit("put_along_axis", part, index, site.cast(values, x.dtype), axis=axis, reduce=reduce)
    return site.emit("slice_scatter", x, made, **where, strides=[1] * len(narrow))


INDEXING: dict[str, Lowering] = {
    "aten.embedding.default": _embedding,
    "aten.embedding_dense_backward.default": _embedding_backward,
    **dict.fromkeys(("aten.index.Tensor", "aten._unsafe_index.Tensor"), _index),
    **dict.fromkeys(("aten.index_put.default", "aten._unsafe_index_put.default"), _index_put),
    "aten.index_select.default": _index_select,
    "aten.index_add.default": _index_add,
    "aten.gather.default": _gather,
    "aten.scatter.src": _scatter("assign"),
    "aten.scatter.value": _scatter_value,
    "aten.scatter_add.default": _scatter("add"),
}
