"""ONNX ops that move elements and compute nothing: reshape, slice, concat, gather and their relatives."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from solver.importers.onnx_fold import known
from solver.importers.onnx_site import Shapes, Site
from solver.importers.sketch import Value


def _reshape(site: Site) -> Value:
    x = site.operand(0)
    table = tuple(int(size) for size in np.atleast_1d(site.table(1, "shape")))
    shape = _resolved(site, x.shape, table)
    if site.declared is not None and site.declared.tables.get(site.node.output[0]) == table:
        shape = _rebatched(site, x.shape, shape, table, site.declared)
    if shape is None:
        raise site.baked(f"it makes {list(table)} of {site.node.input[0]!r} {list(x.shape)}: the sizes do not match")
    site.shapes.tables[site.node.output[0]] = table
    return x if shape == x.shape else site.emit("reshape", x, shape=list(shape))


def _resolved(site: Site, source: tuple[int, ...], table: tuple[int, ...]) -> tuple[int, ...] | None:
    """The shape that a reshape's table asks for, None where it does not fit."""
    allow_zero = site.attr("allowzero", 0)
    sizes = [
        source[dim] if size == 0 and not allow_zero and dim < len(source) else size for dim, size in enumerate(table)
    ]
    total, rest = math.prod(source), math.prod(size for size in sizes if size != -1)
    if sizes.count(-1) > 1 or min(sizes, default=0) < -1:
        raise site.refuse(f"its shape {list(table)} has more than one unknown size")
    if -1 in sizes and rest and total % rest == 0:
        sizes[sizes.index(-1)] = total // rest
    return tuple(sizes) if math.prod(sizes) == total and -1 not in sizes else None


def _rebatched(
    site: Site, source: tuple[int, ...], shape: tuple[int, ...] | None, table: tuple[int, ...], declared: Shapes
) -> tuple[int, ...] | None:
    """Put the new batch where the old one is written in the table of a reshape, if that is certain.

    It is where the node kept dim 0 apart from all the rest, as declared and now. A table under which the result follows
    the batch by itself stays as it is.
    """
    before, result = declared.of[site.node.input[0]], declared.of[site.node.output[0]]
    if before[:1] == source[:1]:
        return shape
    old, new = before[0], source[0]
    if shape is not None and result[1:] == shape[1:] and result[0] * new == shape[0] * old:
        return shape
    if result[:1] != (old,) or not math.prod(result[1:]) == math.prod(source[1:]) == math.prod(before[1:]):
        raise site.baked(
            f"the declared sizes are written into its shape {list(table)} ({list(before)} -> {list(result)}), and with "
            f"{list(source)} it cannot be told which of them is the batch"
        )
    rewritten = (new, *result[1:])
    site.notes.append(f"{site.where}: {list(table)}, written for a batch of {old}, is {list(rewritten)} here")
    return rewritten


def _flatten(site: Site) -> Value:
    x = site.operand(0)
    axis = site.attr("axis", 1)
    axis = axis + len(x.shape) if axis < 0 else axis
    shape = [math.prod(x.shape[:axis]), math.prod(x.shape[axis:])]
    return x if tuple(shape) == x.shape else site.emit("reshape", x, shape=shape)


def _squeeze(site: Site) -> Value:
    x = site.operand(0)
    axes = site.ints(1, "axes")
    if axes is None:
        axes = [dim for dim, size in enumerate(x.shape) if size == 1]
    axes = sorted(site.axis(axis, len(x.shape)) for axis in axes)
    for axis in axes:
        if x.shape[axis] != 1:
            raise site.baked(
                f"it takes away dim {axis} of {site.node.input[0]!r}, which has size {x.shape[axis]} and not 1"
            )
    return site.emit("squeeze", x, axis=axes) if axes else x


def _unsqueeze(site: Site) -> Value:
    x = site.operand(0)
    axes = site.ints(1, "axes") or []
    return site.emit("unsqueeze", x, axis=sorted(site.axis(axis, len(x.shape) + len(axes)) for axis in axes))


def _transpose(site: Site) -> Value:
    x = site.operand(0)
    perm = list(site.attr("perm", list(range(len(x.shape)))[::-1]))
    return x if perm == list(range(len(x.shape))) else site.emit("transpose", x, perm=perm)


def _expand(site: Site) -> Value:
    x = site.operand(0)
    wanted = tuple(int(size) for size in np.atleast_1d(site.table(1, "shape")))
    try:
        shape = np.broadcast_shapes(x.shape, wanted)
    except ValueError:
        raise site.baked(
            f"it stretches {site.node.input[0]!r} of shape {list(x.shape)} to {list(wanted)}: the sizes do not match"
        ) from None
    return x if shape == x.shape else site.emit("expand", x, shape=list(shape))


def _tile(site: Site) -> Value:
    x = site.operand(0)
    times = [int(count) for count in np.atleast_1d(site.table(1, "repeats"))]
    return x if set(times) <= {1} else site.emit("tile", x, repeat_times=times)


def _concat(site: Site) -> Value:
    xs = [site.operand(slot) for slot in range(len(site.operands))]
    filled = [x for x in xs if 0 not in x.shape] or xs[:1]
    if len(filled) == 1:
        return filled[0]
    return site.emit("concat", filled, axis=site.axis(site.attr("axis", 0), len(filled[0].shape)))


def _split(site: Site) -> Sequence[Value]:
    x, count = site.operand(0), len(site.node.output)
    axis = site.axis(site.attr("axis", 0), len(x.shape))
    if axis == 0:
        _refuse_baked(site, "splits")
    sections = site.ints(1, "split")
    if sections is None:
        count = site.attr("num_outputs", count)
        size = -(-x.shape[axis] // count)
        sections = [max(0, min(size, x.shape[axis] - size * i)) for i in range(count)]
    if sum(sections) != x.shape[axis]:
        raise site.baked(f"it splits dim {axis} of size {x.shape[axis]} into {sections}: the sizes do not match")
    filled = [section for section in sections if section]
    parts = iter(site.emit_all("split", x, num_or_sections=filled, axis=axis) if len(filled) > 1 else [x])
    empty = np.zeros((*x.shape[:axis], 0, *x.shape[axis + 1 :]), x.dtype)
    return [next(parts) if section else known(empty) for section in sections]


def _slice(site: Site) -> Value:
    x = site.operand(0)
    starts, ends = site.ints(1, "starts") or [], site.ints(2, "ends") or []
    axes = site.ints(3, "axes") or list(range(len(starts)))
    steps = site.ints(4, "steps") or [1] * len(starts)
    kept = []
    for axis, start, end, step in zip(
        (site.axis(axis, len(x.shape)) for axis in axes), starts, ends, steps, strict=True
    ):
        picked = range(*slice(start, end, step).indices(x.shape[axis]))
        if axis == 0 and end == _declared_batch(site):
            _refuse_baked(site, f"takes elements {start} to {end}")
        if picked != range(x.shape[axis]):
            kept.append((axis, picked))
    kept.sort(key=lambda item: item[0])
    if not kept:
        return x
    if all(picked.step == 1 for _, picked in kept):
        return site.emit(
            "slice",
            x,
            axes=[a for a, _ in kept],
            starts=[p.start for _, p in kept],
            ends=[max(p.start, p.stop) for _, p in kept],
        )
    return _strided(site, x, kept)


def _strided(site: Site, x: Value, kept: Sequence[tuple[int, range]]) -> Value:
    """Slices with steps; a step that runs to the front flips first."""
    flipped = [axis for axis, picked in kept if picked.step < 0]
    if flipped:
        x = site.emit("flip", x, axis=flipped)
    ranges = [
        (axis, range(x.shape[axis] - 1 - p.start, x.shape[axis] - 1 - p.stop, -p.step) if p.step < 0 else p)
        for axis, p in kept
    ]
    ranges = [(axis, picked) for axis, picked in ranges if picked != range(x.shape[axis])]
    if not ranges:
        return x
    return site.emit(
        "strided_slice",
        x,
        axes=[axis for axis, _ in ranges],
        starts=[p.start for _, p in ranges],
        ends=[p.stop for _, p in ranges],
        strides=[p.step for _, p in ranges],
    )


def _declared_batch(site: Site) -> int | None:
    """The declared size of dim 0 of the first operand, where it is another one now."""
    if site.declared is None:
        return None
    declared = site.declared.of[site.node.input[0]]
    return declared[0] if declared[:1] != site.operand(0).shape[:1] else None


def _refuse_baked(site: Site, does: str) -> None:
    declared = _declared_batch(site)
    if declared is not None:
        name, now = site.node.input[0], site.operand(0).shape[0]
        raise site.baked(f"it {does} along dim 0 of {name!r}, whose size is {declared} in the file and {now} here")


_PAD_MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}


def _pad(site: Site) -> Value:
    x = site.operand(0)
    rank = len(x.shape)
    pads = site.ints(1, "pads") or site.attr("paddings")
    axes = [site.axis(axis, rank) for axis in (site.ints(3, "axes") or range(rank))]
    before, after = [0] * rank, [0] * rank
    for axis, front, back in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        before[axis], after[axis] = front, back
    if not any(before) and not any(after):
        return x
    mode = _PAD_MODES.get(site.attr("mode", "constant"))
    value = site.table(2, "constant value").item() if site.has(2) else site.attr("value", 0.0)
    return pad(site, x, list(zip(before, after, strict=True)), mode or "constant", value)


def pad(site: Site, x: Value, widths: Sequence[tuple[int, int]], mode: str = "constant", value: float = 0.0) -> Value:
    """Pad every dim of x; a negative width cuts off."""
    cut = [
        (axis, max(0, -front), x.shape[axis] - max(0, -back))
        for axis, (front, back) in enumerate(widths)
        if front < 0 or back < 0
    ]
    if cut:
        x = site.emit(
            "slice", x, axes=[a for a, _, _ in cut], starts=[s for _, s, _ in cut], ends=[e for _, _, e in cut]
        )
    flat = [max(0, width) for pair in widths for width in pair]
    return site.emit("pad", x, pad=flat, mode=mode, value=value) if any(flat) else x


def _gather(site: Site) -> Value:
    x, index = site.operand(0), site.operand(1)
    axis = site.axis(site.attr("axis", 0), len(x.shape))
    if axis == 0 and _declared_batch(site) == 1:
        _refuse_baked(site, "picks elements")
    if index.data is not None:
        table = np.where(index.data < 0, index.data + x.shape[axis], index.data)
        index = known(table, index.name)
        if index.shape == ():
            at = int(table)
            part = site.emit("slice", x, axes=[axis], starts=[at], ends=[at + 1])
            return site.emit("squeeze", part, axis=[axis])
    if axis == 0 and len(x.shape) == 2 and x.role == "weight":
        return site.emit("embedding", index, x)
    if len(index.shape) == 1:
        return site.emit("gather", x, index, axis=axis)
    flat = site.emit("reshape", index, shape=[math.prod(index.shape)])
    picked = site.emit("gather", x, flat, axis=axis)
    return site.emit("reshape", picked, shape=[*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]])


def _gather_nd(site: Site) -> Value:
    if site.attr("batch_dims", 0):
        raise site.refuse("its batch_dims are not supported")
    return site.emit("gather_nd", site.operand(0), site.operand(1))


def _scatter(site: Site) -> Value:
    reduce = {"none": "assign", "add": "add", "mul": "multiply", "max": "amax", "min": "amin"}[
        site.attr("reduction", "none")
    ]
    axis = site.attr("axis", 0)
    return site.emit("put_along_axis", site.operand(0), site.operand(1), site.operand(2), axis=axis, reduce=reduce)


def _depth_to_space(site: Site) -> Value:
    x, block = site.operand(0), site.attr("blocksize")
    n, c, h, w = x.shape
    if site.attr("mode", "DCR") == "DCR":
        split, perm = [n, block, block, c // block**2, h, w], [0, 3, 4, 1, 5, 2]
    else:
        split, perm = [n, c // block**2, block, block, h, w], [0, 1, 4, 2, 5, 3]
    apart = site.emit("transpose", site.emit("reshape", x, shape=split), perm=perm)
    return site.emit("reshape", apart, shape=[n, c // block**2, h * block, w * block])


def _space_to_depth(site: Site) -> Value:
    x, block = site.operand(0), site.attr("blocksize")
    n, c, h, w = x.shape
    apart = site.emit("reshape", x, shape=[n, c, h // block, block, w // block, block])
    apart = site.emit(
        "transpose", apart, perm=[0, 3, 5, 1, 2, 4] if site.attr("mode", "DCR") == "DCR" else [0, 1, 3, 5, 2, 4]
    )
    return site.emit("reshape", apart, shape=[n, c * block**2, h // block, w // block])


def _trilu(site: Site) -> Value:
    diagonal = int(site.table(1, "k").item()) if site.has(1) else 0
    return site.emit("triu" if site.attr("upper", 1) else "tril", site.operand(0), diagonal=diagonal)


VIEWS: dict[str, Callable[[Site], Any]] = {
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Transpose": _transpose,
    "Expand": _expand,
    "Tile": _tile,
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "Pad": _pad,
    "Gather": _gather,
    "GatherElements": lambda site: site.emit(
        "take_along_axis", site.operand(0), site.operand(1), axis=site.attr("axis", 0)
    ),
    "GatherND": _gather_nd,
    "ScatterElements": _scatter,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
    "Trilu": _trilu,
}
