"""JAX's gathers and scatters by their dimension numbers, and slices that start where data say.

Every one is a lookup along one dim: the dims that are looked up go in front and become one, whose index is counted from
theirs; dims that the index tensor shares with x stay apart, and the lookup goes along the dim beside them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from solver.importers.jax_fold import known, number_of
from solver.importers.jax_site import Site, Translation
from solver.importers.jax_views import sliced
from solver.importers.sketch import Value

_IN_BOUNDS = "indices are taken to be in bounds"


@dataclass
class Lookup:
    """Which elements of a tensor are read or written.

    Parameters
    ----------
    shape : tuple of int
        Of the tensor.
    shared : list of (int, int)
        A dim of the tensor and the dim of the index tensor that go together.
    starts : dict
        A dim that is looked up -> where its window starts, None for 0; all of the shape of the index tensor.
    windows : dict
        A dim that is looked up and stays -> the size of its window.
    places : tuple of int
        The shape of the index tensor.
    """

    shape: tuple[int, ...]
    places: tuple[int, ...]
    starts: dict[int, Value | None] = field(default_factory=dict)
    windows: dict[int, int] = field(default_factory=dict)
    shared: list[tuple[int, int]] = field(default_factory=list)

    @property
    def dims(self) -> list[int]:
        """The dims that are looked up."""
        return sorted(self.starts)

    @property
    def ride(self) -> list[int]:
        """The dims that ride along, as they are."""
        taken = {*self.starts, *(dim for dim, _ in self.shared)}
        return [dim for dim in range(len(self.shape)) if dim not in taken]

    @property
    def order(self) -> list[int]:
        """The dims of the tensor as a lookup takes them: shared, looked up, riding along."""
        return [*(dim for dim, _ in self.shared), *self.dims, *self.ride]

    @property
    def flat(self) -> tuple[int, ...]:
        """The shape of the tensor with one dim in place of those that are looked up."""
        sizes = [math.prod(self.shape[dim] for dim in self.dims)]
        return (*(self.shape[dim] for dim, _ in self.shared), *sizes, *(self.shape[dim] for dim in self.ride))

    @property
    def labels(self) -> list[tuple[str, int]]:
        """What the dims of the elements are: of the index tensor (shared ones first), of windows, riding along."""
        shared = [at for _, at in self.shared]
        own = [at for at in range(len(self.places)) if at not in shared]
        return [*(("i", at) for at in (*shared, *own)), *(("w", dim) for dim in (*self.windows, *self.ride))]

    def sizes(self) -> list[int]:
        """The sizes of the dims of the elements, in the order of `labels`."""
        return [self.places[at] if kind == "i" else self.windows.get(at, self.shape[at]) for kind, at in self.labels]

    def index(self, site: Site) -> Value:
        """Return the index along the one dim: a dim for each of the index tensor, then one for each window."""
        rank, total, stride = len(self.places), None, 1
        for dim in reversed(self.dims):
            start = self.starts[dim]
            if len(self.starts) == 1 and start is not None and not self.windows:
                start = unwrapped(site, start, self.shape[dim])
            term = known(np.zeros((1,) * rank, np.int32)) if start is None else start
            term = site.reshape(term, (*term.shape, *[1] * len(self.windows)))
            if self.windows.get(dim, 1) > 1:
                along = [1] * rank + [size if at == dim else 1 for at, size in self.windows.items()]
                term = site.pointwise("add", term, known(np.arange(self.windows[dim]).reshape(along), term.dtype))
            if stride > 1:
                term = site.pointwise("multiply", term, site.number(stride, term))
            total = term if total is None else site.pointwise("add", total, site.cast(term, total.dtype))
            stride *= self.shape[dim]
        assert total is not None
        whole = site.expand(total, (*self.places, *self.windows.values()))
        shared = [at for _, at in self.shared]
        return site.transpose(whole, [*shared, *(at for at in range(len(whole.shape)) if at not in shared)])


def unwrapped(site: Site, index: Value, size: int) -> Value:
    """Return an index as it was before negative ones were counted from the end, which every lookup does by itself."""
    step = index.maker
    if step is None:
        return index
    inner = list(step.inputs())
    if step.op == "cast" and "int" in inner[0].dtype:
        return unwrapped(site, inner[0], size)
    if step.op == "reshape":
        found = unwrapped(site, inner[0], size)
        return index if found is inner[0] else site.reshape(found, index.shape)
    if step.op == "where":
        negative, moved, plain = inner
        tested, added = negative.maker, moved.maker
        if tested is not None and added is not None and (tested.op, added.op) == ("less_than", "add"):
            (left, zero), (term, more) = tested.inputs(), added.inputs()
            if left is plain is term and number_of(zero) == 0 and number_of(more) == size:
                return plain
    return index


def _component(site: Site, indices: Value, at: int) -> Value:
    """One of the coordinates that stand in the last dim of an index tensor."""
    count, shape = indices.shape[-1], indices.shape[:-1]
    step = indices.maker
    if step is not None and step.op == "concat" and len(list(step.inputs())) == count:
        return site.reshape(list(step.inputs())[at], shape)
    if count == 1:
        return site.reshape(indices, shape)
    starts, ends = [0] * len(shape) + [at], [*shape, at + 1]
    return site.reshape(sliced(site, indices, starts, ends), shape)


def _bounded(site: Site, start: Value, most: int, mode: Any) -> Value:
    """An index as a mode keeps it in bounds."""
    if "CLIP" in str(mode):
        return site.pointwise("clip", start, min=0, max=most)
    if "FILL_OR_DROP" in str(mode):
        site.note(_IN_BOUNDS)
    return start


def _lookup(
    site: Site,
    x: Value,
    indices: Value,
    coordinates: Sequence[int],
    shared: tuple[Sequence[int], Sequence[int]],
    windows: Mapping[int, int],
) -> Lookup:
    """Read dimension numbers; ``windows`` holds the dims that stay in the result."""
    found = Lookup(x.shape, indices.shape[:-1], shared=[(int(a), int(b)) for a, b in zip(*shared, strict=True)])
    for at, dim in enumerate(map(int, coordinates)):
        size = windows.get(dim, 1)
        if size < x.shape[dim] or (size == 1 and dim not in windows):
            start = _component(site, indices, at)
            found.starts[dim] = _bounded(site, start, x.shape[dim] - size, site.params.get("mode"))
    for dim, size in windows.items():
        if size < x.shape[dim]:
            found.starts.setdefault(dim, None)
    if not found.starts:
        raise site.refuse(f"its windows {dict(windows)} take all of x {x.shape} at every index, which looks up nothing")
    found.windows = {dim: windows[dim] for dim in found.dims if dim in windows}
    return found


# -------------------------------------------------------------------------------------------------------------- gathers


def _gather(site: Site) -> Value:
    (x, indices), numbers = site.operands, site.params["dimension_numbers"]
    gone = {int(dim) for dim in (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)}
    sizes = {dim: int(size) for dim, size in enumerate(site.params["slice_sizes"]) if dim not in gone}
    shared = (numbers.operand_batching_dims, numbers.start_indices_batching_dims)
    lookup = _lookup(site, x, indices, numbers.start_index_map, shared, sizes)
    offset = [int(dim) for dim in numbers.offset_dims]
    kept, places = iter(sizes), iter(range(len(lookup.places)))
    wanted = [("w", next(kept)) if at in offset else ("i", next(places)) for at in range(len(site.shape))]
    return _read(site, x, lookup, wanted)


def _read(site: Site, x: Value, lookup: Lookup, wanted: Sequence[tuple[str, int]]) -> Value:
    """Read elements, their dims in the order that is wanted."""
    index = lookup.index(site)
    source = site.reshape(site.transpose(x, lookup.order), lookup.flat)
    beside, ride = len(lookup.shared), len(lookup.ride)
    if beside:
        size = math.prod(index.shape[beside:])
        lined = site.reshape(index, (*index.shape[:beside], size, *[1] * ride))
        made = site.emit("take_along_axis", source, lined, axis=beside)
    elif (start := _consecutive(index)) is not None:
        made = sliced(site, source, [start, *[0] * ride], [start + index.shape[0], *source.shape[1:]])
    elif len(source.shape) == 2:
        made = site.emit("embedding", index, source)
    else:
        made = site.emit("gather", source, index, axis=0)
    labels = lookup.labels
    return site.transpose(site.reshape(made, lookup.sizes()), [labels.index(label) for label in wanted])


def _consecutive(index: Value) -> int | None:
    """The first of numbers that follow each other, where they are known."""
    if index.data is None or len(index.shape) != 1 or not index.data.size:
        return None
    start = int(index.data[0])
    return start if start >= 0 and (index.data == np.arange(start, start + index.data.size)).all() else None


# ------------------------------------------------------------------------------------------------------------- scatters


def _scatter(kind: str) -> Translation:
    def translate(site: Site) -> Value:
        (x, indices, updates), numbers = site.operands, site.params["dimension_numbers"]
        gone = {int(dim) for dim in (*numbers.inserted_window_dims, *numbers.operand_batching_dims)}
        at = [int(dim) for dim in numbers.update_window_dims]
        kept = [dim for dim in range(len(x.shape)) if dim not in gone]
        sizes = {dim: updates.shape[place] for dim, place in zip(kept, at, strict=True)}
        shared = (numbers.operand_batching_dims, numbers.scatter_indices_batching_dims)
        lookup = _lookup(site, x, indices, numbers.scatter_dims_to_operand_dims, shared, sizes)
        dims, places = iter(kept), iter(range(len(lookup.places)))
        given = [("w", next(dims)) if place in at else ("i", next(places)) for place in range(len(updates.shape))]
        return _write(site, x, lookup, updates, given, kind)

    return translate


def _write(site: Site, x: Value, lookup: Lookup, updates: Value, given: Sequence[tuple[str, int]], kind: str) -> Value:
    """Write elements, whose dims stand in the order that is given."""
    if kind == "sub":
        updates, kind = site.pointwise("neg", updates), "add"
    index, values = lookup.index(site), site.transpose(updates, [given.index(label) for label in lookup.labels])
    source = site.reshape(site.transpose(x, lookup.order), lookup.flat)
    made = _placed(site, source, index, values, lookup, kind)
    moved = site.reshape(made, [lookup.shape[dim] for dim in lookup.order])
    return site.transpose(moved, [lookup.order.index(dim) for dim in range(len(lookup.shape))])


def _placed(site: Site, x: Value, index: Value, values: Value, lookup: Lookup, kind: str) -> Value:
    """Put or add values along the one dim; into zeros as the backward of a lookup does."""
    beside, ride = len(lookup.shared), x.shape[len(lookup.shared) + 1 :]
    count = math.prod(index.shape[beside:])
    zeros = kind == "add" and number_of(x) == 0
    if zeros and not beside:
        grad = site.reshape(values, (*index.shape, *ride))
        if len(x.shape) == 2:
            return site.emit("embedding_grad", index, grad, forward_shapes=_shapes(x=index, weight=x))
        return site.emit("gather_grad", index, grad, axis=0, forward_shapes=_shapes(x=x, index=index))
    if not beside and kind in ("add", "assign"):
        line, rows = site.reshape(index, (count,)), site.reshape(values, (count, *ride))
        return site.emit("index_add", x, line, rows, axis=0) if kind == "add" else site.emit("scatter", x, line, rows)
    line = site.reshape(index, (*x.shape[:beside], count, *[1] * len(ride)))
    rows = site.reshape(values, (*x.shape[:beside], count, *ride))
    if zeros:
        shapes = _shapes(arr=x, indices=line)
        return site.emit("take_along_axis_grad", line, rows, axis=beside, forward_shapes=shapes)
    return site.emit("put_along_axis", x, line, rows, axis=beside, reduce=kind)


def _shapes(**operands: Value) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple((name, value.shape) for name, value in operands.items())


# ------------------------------------------------------------------------------------------------------- dynamic slices


def _starts(site: Site, x: Value, sizes: Sequence[int], starts: Sequence[Value]) -> list[int | Value]:
    """Where each dim starts: numbers where they are known, kept in bounds as JAX does."""
    found: list[int | Value] = []
    for size, window, start in zip(x.shape, sizes, starts, strict=True):
        number = 0 if window == size else number_of(start)
        if number is None:
            found.append(site.pointwise("clip", start, min=0, max=size - window))
        else:
            found.append(min(max(int(number), 0), size - window))
    return found


def _dynamic_slice(site: Site) -> Value:
    """A slice where its start is known; else a lookup of neighbours, one dim after another."""
    x, *given = site.operands
    sizes = [int(size) for size in site.params["slice_sizes"]]
    starts = _starts(site, x, sizes, given)
    fixed = [start if isinstance(start, int) else 0 for start in starts]
    ends = [
        at + size if isinstance(start, int) else whole
        for at, size, start, whole in zip(fixed, sizes, starts, x.shape, strict=True)
    ]
    x = sliced(site, x, fixed, ends)
    for dim, start in enumerate(starts):
        if not isinstance(start, int):
            index = site.pointwise("add", site.reshape(start, (1,)), known(np.arange(sizes[dim]), start.dtype))
            x = site.emit("gather", x, index, axis=dim)
    return x


def _dynamic_update_slice(site: Site) -> Value:
    """A slice put in place; where its start is computed, elements put at their indices."""
    x, update, *given = site.operands
    starts = _starts(site, x, update.shape, given)
    cut = [dim for dim, size in enumerate(x.shape) if update.shape[dim] < size]
    if not cut:
        return update
    first = [start for start in (starts[dim] for dim in cut) if isinstance(start, int)]
    if len(first) == len(cut):
        ends = [start + update.shape[dim] for start, dim in zip(first, cut, strict=True)]
        return site.emit("slice_scatter", x, update, axes=cut, starts=first, ends=ends, strides=[1] * len(cut))
    lookup = Lookup(x.shape, (), windows={dim: update.shape[dim] for dim in cut})
    for dim in cut:
        start = starts[dim]
        lookup.starts[dim] = known(np.array(start, np.int32)) if isinstance(start, int) else start
    return _write(site, x, lookup, update, [("w", dim) for dim in range(len(x.shape))], "assign")


INDEXING: dict[str, Callable[[Site], Any]] = {
    "gather": _gather,
    "scatter": _scatter("assign"),
    "scatter-add": _scatter("add"),
    "scatter-sub": _scatter("sub"),
    "scatter-mul": _scatter("multiply"),
    "scatter-min": _scatter("amin"),
    "scatter-max": _scatter("amax"),
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
}
"""Primitives that read and write elements where indices point."""
