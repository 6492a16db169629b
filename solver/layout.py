"""The geometry of layouts: which are legal, which are equal, and what each device holds.

A tensor dim is a product of *parts*, major first. The mesh axes whose placements name the same (dim, part) form a
*group*, in mesh order, the first outermost. A group spans from its part to the next part of that dim that is cut, or to
the end of the dim, and the product of its mesh axes cuts this span into contiguous pieces. So ``Shard(d)`` alone is
the plain contiguous cut of the whole dim, whatever the parts. Mesh axes of size 1 cut nothing: they count as R.

Everywhere below, ``layout`` is one placement per mesh axis, ``shape`` the shape of the tensor, ``parts`` the parts of
each dim, ``sizes`` the sizes of the mesh axes, and ``kinds`` the partial kinds that may appear.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ops.placement import PARTIAL_KINDS, Layout, Partial, Parts, Placement, Replicate, Shard, layout_text
from solver.deadline import keep_time

Label: TypeAlias = tuple[int, int]
"""What a Shard names: a tensor dim and a part of it."""
R = Replicate()


class LayoutError(ValueError):
    """A layout that does not fit its tensor or its mesh."""


def one_part(shape: Sequence[int]) -> Parts:
    """Give the parts of a tensor that no reshape has refined: one a dim.

    Examples
    --------
    >>> one_part((8, 6))
    ((8,), (6,))
    """
    return tuple((size,) for size in shape)


def is_partial(layout: Sequence[Placement]) -> bool:
    """Say whether any mesh axis holds terms of a reduction.

    Examples
    --------
    >>> is_partial((Shard(0), Partial("sum")))
    True
    """
    return any(isinstance(placement, Partial) for placement in layout)


def groups(layout: Sequence[Placement], sizes: Sequence[int]) -> dict[Label, tuple[int, ...]]:
    """Collect the mesh axes that cut each (dim, part), in mesh order, those of size 1 left out.

    Returns
    -------
    dict
        (dim, part) -> mesh axis indices, the outermost first; keys sorted.

    Examples
    --------
    >>> groups((Shard(1), Shard(0), Shard(1)), (2, 2, 4))
    {(0, 0): (1,), (1, 0): (0, 2)}
    """
    found: dict[Label, tuple[int, ...]] = {}
    for axis, placement in enumerate(layout):
        if isinstance(placement, Shard) and sizes[axis] > 1:
            label = placement.dim, placement.part
            found[label] = (*found.get(label, ()), axis)
    return dict(sorted(found.items()))


def spans(layout: Sequence[Placement], parts: Parts, sizes: Sequence[int]) -> dict[Label, int]:
    """Measure what each group cuts: the elements from its part to the next part that is cut.

    Returns
    -------
    dict
        (dim, part) -> size of the span.

    Examples
    --------
    >>> spans((Shard(0), Shard(0, part=1)), ((4, 6),), (2, 3))
    {(0, 0): 4, (0, 1): 6}
    """
    labels = list(groups(layout, sizes))
    ends = {label: after[1] for label, after in pairwise(labels) if label[0] == after[0]}
    return {(dim, part): prod(parts[dim][part : ends.get((dim, part))]) for dim, part in labels}


def cut_steps(layout: Sequence[Placement], parts: Parts, sizes: Sequence[int]) -> tuple[Label | None, ...]:
    """Say what each mesh axis of a legal layout cuts, in numbers that do not depend on how the layout is spelled.

    Returns
    -------
    tuple
        Per mesh axis (dim, step), None where it cuts nothing: the device with coordinate c on a mesh axis of size n
        holds the indices x of the dim with ``x // step % n == c``.

    Examples
    --------
    >>> cut_steps((Shard(0), Partial("sum"), Shard(0, part=1)), ((4, 2),), (2, 2, 2))
    ((0, 4), None, (0, 1))
    """
    found: list[Label | None] = [None] * len(sizes)
    for (dim, part), axes in groups(layout, sizes).items():
        step = prod(parts[dim][part:])
        for axis in axes:
            step //= sizes[axis]
            found[axis] = dim, step
    return tuple(found)


def why_illegal(
    layout: Sequence[Placement],
    shape: Sequence[int],
    parts: Parts,
    sizes: Sequence[int],
    names: Sequence[str] | None = None,
) -> str | None:
    """Say in one sentence why a tensor cannot lie on a mesh in this way.

    Parameters
    ----------
    layout, shape, parts, sizes
        As everywhere.
    names : sequence of str, optional
        The names of the mesh axes, for the sentence.

    Returns
    -------
    str or None
        The first reason, or None for a legal layout.

    Examples
    --------
    >>> why_illegal((Shard(0),), (6,), ((6,),), (4,), ("tp",))
    'dim 0 of size 6 cannot be cut by tp=4: 4 does not divide 6'
    >>> why_illegal((Shard(0),), (8,), ((8,),), (4,)) is None
    True
    """
    if len(layout) != len(sizes):
        return f"{layout_text(layout)} has {len(layout)} placements for {len(sizes)} mesh axes"
    axes = tuple(names) if names else tuple(f"mesh axis {axis}" for axis in range(len(sizes)))
    return (
        _names_nothing(layout, parts, axes)
        or _mixed_kinds(layout, sizes, axes)
        or _indivisible(layout, parts, sizes, axes)
    )


def _names_nothing(layout: Sequence[Placement], parts: Parts, names: Sequence[str]) -> str | None:
    for placement, name in zip(layout, names, strict=True):
        if isinstance(placement, Shard):
            dim, part = placement.dim, placement.part
            if dim >= len(parts):
                return f"{placement} on {name} names dim {dim} of a tensor of rank {len(parts)}"
            if part >= len(parts[dim]):
                return f"{placement} on {name} names part {part} of dim {dim}, whose parts are {parts[dim]}"
    return None


def _mixed_kinds(layout: Sequence[Placement], sizes: Sequence[int], names: Sequence[str]) -> str | None:
    kinds = {p.kind: names[axis] for axis, p in enumerate(layout) if isinstance(p, Partial) and sizes[axis] > 1}
    if len(kinds) < 2 or kinds.keys() == {"sum", "avg"}:
        return None
    told = " and ".join(f"P({kind}) on {name}" for kind, name in kinds.items())
    return f"{told} do not mix: a tensor carries one partial kind, only sum and avg may stand together"


def _indivisible(layout: Sequence[Placement], parts: Parts, sizes: Sequence[int], names: Sequence[str]) -> str | None:
    cut_by = groups(layout, sizes)
    for (dim, part), span in spans(layout, parts, sizes).items():
        count = prod(sizes[axis] for axis in cut_by[dim, part])
        size = prod(parts[dim])
        if not span % count:
            continue
        where = f"dim {dim} of size {size}" if span == size else f"part {part} of dim {dim}, of size {span},"
        by = " times ".join(f"{names[axis]}={sizes[axis]}" for axis in cut_by[dim, part])
        return f"{where} cannot be cut by {by}: {count} does not divide {span}"
    return None


def legal(layout: Sequence[Placement], shape: Sequence[int], parts: Parts, sizes: Sequence[int]) -> bool:
    """Say whether a tensor can lie on a mesh in this way.

    Examples
    --------
    >>> legal((Shard(0), Shard(0, part=1)), (12,), ((2, 6),), (2, 3))
    True
    """
    return why_illegal(layout, shape, parts, sizes) is None


def canonical(layout: Sequence[Placement], parts: Parts, sizes: Sequence[int]) -> Layout:
    """Give the one name of everything that puts the same data on every device as this legal layout.

    A group that follows a completely cut one, with all its mesh axes later, is the continuation of that cut and takes
    its part; a part after parts of size 1 is called by the first of them, and every part of an empty dim by its first;
    mesh axes of size 1 are R.

    Returns
    -------
    Layout

    Examples
    --------
    >>> layout_text(canonical((Shard(0), Shard(0, part=1)), ((2, 6),), (2, 3)))
    '[S(0), S(0)]'
    >>> layout_text(canonical((Shard(0, part=1), Shard(0)), ((2, 6),), (3, 2)))
    '[S(0,part=1), S(0)]'
    """
    result = [R if sizes[axis] == 1 else placement for axis, placement in enumerate(layout)]
    before: Label | None = None
    cut, last = 1, -1
    for (dim, part), axes in groups(layout, sizes).items():
        if before and before[0] == dim and cut == prod(parts[dim][before[1] : part]) and last < axes[0]:
            cut *= prod(sizes[axis] for axis in axes)
        else:
            cut = prod(sizes[axis] for axis in axes)
            empty = 0 in parts[dim]
            while part and (empty or parts[dim][part - 1] == 1):
                part -= 1
            before = dim, part
        last = axes[-1]
        for axis in axes:
            result[axis] = Shard(*before)
    return tuple(result)


@lru_cache(maxsize=512)
def raw_layouts(parts: Parts, sizes: tuple[int, ...], kinds: tuple[str, ...]) -> tuple[Layout, ...]:
    """Enumerate every legal layout, with every label of its cuts, equal ones included.

    Returns
    -------
    tuple of Layout
        In product order over the mesh axes of R, then shards by dim and part, then partial kinds.

    Examples
    --------
    >>> [layout_text(layout) for layout in raw_layouts(((4,),), (2,), ("sum",))]
    ['[R]', '[S(0)]', '[P(sum)]']
    """
    choices = placements(parts, kinds)
    shape = tuple(map(prod, parts))

    def extend(head: Layout) -> Iterator[Layout]:
        keep_time()
        # Illegal on the first mesh axes is illegal whatever follows: more cuts never lengthen a span.
        if len(head) == len(sizes):
            yield head
            return
        for choice in choices if sizes[len(head)] > 1 else (R,):
            longer = (*head, choice)
            if choice is R or legal(longer, shape, parts, sizes[: len(longer)]):
                yield from extend(longer)

    return tuple(extend(()))


def placements(parts: Parts, kinds: Sequence[str]) -> tuple[Placement, ...]:
    """List the placements that one mesh axis may have, in the order of enumeration.

    Raises
    ------
    LayoutError
        For a kind that is no partial kind.

    Examples
    --------
    >>> [str(p) for p in placements(((2, 4), (6,)), ("max",))]
    ['R', 'S(0)', 'S(0,part=1)', 'S(1)', 'P(max)']
    """
    if unknown := set(kinds) - set(PARTIAL_KINDS):
        raise LayoutError(f"{sorted(unknown)[0]!r} is not a partial kind: use some of {', '.join(PARTIAL_KINDS)}")
    shards = [Shard(dim, part) for dim, split in enumerate(parts) for part in range(len(split))]
    return (R, *shards, *(Partial(kind) for kind in PARTIAL_KINDS if kind in kinds))


def check_parts(shape: Sequence[int], parts: Parts) -> None:
    """Refuse parts that are not a factorisation of the dims.

    Raises
    ------
    LayoutError
        Where a dim has no parts, or its parts do not multiply to its size.

    Examples
    --------
    >>> check_parts((8, 6), ((2, 4), (6,)))
    """
    if len(shape) != len(parts):
        raise LayoutError(f"{len(parts)} dims of parts for a tensor of rank {len(shape)}: give the parts of every dim")
    for dim, (size, split) in enumerate(zip(shape, parts, strict=True)):
        if not split or prod(split) != size or min(split) < 0:
            raise LayoutError(f"the parts {tuple(split)} of dim {dim} do not multiply to its size {size}")


def legal_layouts(shape: Sequence[int], parts: Parts, sizes: Sequence[int], kinds: Sequence[str]) -> tuple[Layout, ...]:
    """Enumerate the layouts that a tensor may have, each once, in its canonical form.

    Returns
    -------
    tuple of Layout
        In product order over the mesh axes of R, then shards by dim and part, then partial kinds.

    Raises
    ------
    LayoutError
        Where the parts do not multiply to the shape, or a kind is no partial kind.

    Examples
    --------
    >>> [layout_text(layout) for layout in legal_layouts((4, 3), ((4,), (3,)), (2, 4), ())]
    ['[R, R]', '[R, S(0)]', '[S(0), R]']
    """
    check_parts(shape, parts)
    raw = raw_layouts(tuple(map(tuple, parts)), tuple(sizes), tuple(kinds))
    return tuple(layout for layout in raw if canonical(layout, parts, sizes) == layout)


def local_shape(
    layout: Sequence[Placement], shape: Sequence[int], parts: Parts, sizes: Sequence[int]
) -> tuple[int, ...]:
    """Give the shape of what one device holds.

    Raises
    ------
    LayoutError
        For an illegal layout, saying why.

    Examples
    --------
    >>> local_shape((Shard(0), Partial("sum")), (8, 6), ((8,), (6,)), (2, 4))
    (4, 6)
    """
    if reason := why_illegal(layout, shape, parts, sizes):
        raise LayoutError(reason)
    local = list(shape)
    for (dim, _), axes in groups(layout, sizes).items():
        local[dim] //= prod(sizes[axis] for axis in axes)
    return tuple(local)


def block(
    array: NDArray[Any], layout: Sequence[Placement], parts: Parts, sizes: Sequence[int], coordinate: Sequence[int]
) -> NDArray[Any]:
    """Cut out what one device holds; a Partial mesh axis cuts nothing.

    Parameters
    ----------
    array : ndarray
        The whole tensor.
    layout, parts, sizes
        As everywhere.
    coordinate : sequence of int
        Where the device stands on each mesh axis.

    Returns
    -------
    ndarray
        A new array or a view, of the local shape.

    Raises
    ------
    LayoutError
        For an illegal layout, saying why.

    Examples
    --------
    >>> block(np.arange(8), (Shard(0, part=1),), ((2, 4),), (2,), (1,))
    array([2, 3, 6, 7])
    """
    shape = local_shape(layout, array.shape, parts, sizes)
    for (dim, part), axes in groups(layout, sizes).items():
        piece = 0
        for axis in axes:
            piece = piece * sizes[axis] + coordinate[axis]
        count = prod(sizes[axis] for axis in axes)
        # Earlier groups of this dim have shortened what is before this part; from here to the end it is still whole.
        whole = prod(parts[dim][part:])
        if not array.shape[dim]:
            continue
        before, after = array.shape[:dim], array.shape[dim + 1 :]
        outer = array.shape[dim] // whole
        split = np.reshape(array, (*before, outer, count, whole // count, *after))
        array = np.reshape(split[(slice(None),) * (dim + 1) + (piece,)], (*before, outer * whole // count, *after))
    return np.reshape(array, shape)
