"""JAX's convolutions and window reductions, whose dims may stand in any order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ops.window import FORMATS
from solver.importers.jax_elementwise import scaled
from solver.importers.jax_site import Site, Translation
from solver.importers.jax_views import flipped, padded, sliced
from solver.importers.sketch import Value

Pairs = list[tuple[int, int]]


def _ints(values: Sequence[Any]) -> list[int]:
    return [int(value) for value in values]


def _pairs(values: Sequence[Any]) -> Pairs:
    return [(int(low), int(high)) for low, high in values]


# --------------------------------------------------------------------------------------------------------- convolutions


def _convolution(site: Site) -> Value:
    params, numbers = site.params, site.params["dimension_numbers"]
    x = site.transpose(site.operands[0], numbers.lhs_spec)
    filter = site.transpose(site.operands[1], numbers.rhs_spec)
    rank, groups = len(x.shape) - 2, int(params["feature_group_count"])
    if rank not in FORMATS:
        raise site.refuse(f"a convolution over {rank} space dims is not supported: over 1, 2 or 3 it is")
    if (parts := int(params["batch_group_count"])) > 1:
        x, groups = _batch_as_channels(site, x, parts), parts
    spread, pads = _ints(params["lhs_dilation"]), _pairs(params["padding"])
    strides, dilation = _ints(params["window_strides"]), _ints(params["rhs_dilation"])
    made = None
    if any(step > 1 for step in spread) and all(step == 1 for step in strides):
        made = _transposed(site, x, filter, spread, pads, dilation, groups)
    if made is None:
        made = _direct(site, x, filter, strides, spread, pads, dilation, groups)
    out = _ints(numbers.out_spec)
    return site.cast(site.transpose(made, [out.index(dim) for dim in range(len(out))]), site.dtype)


def _batch_as_channels(site: Site, x: Value, parts: int) -> Value:
    """A batch in groups, each with its own filters: the groups stand among the channels, where they do the same."""
    batch, channels, *space = x.shape
    apart = site.reshape(x, (parts, batch // parts, channels, *space))
    return site.reshape(
        site.transpose(apart, [1, 0, *range(2, len(apart.shape))]), (batch // parts, parts * channels, *space)
    )


def _direct(
    site: Site,
    x: Value,
    filter: Value,
    strides: list[int],
    spread: list[int],
    pads: Pairs,
    dilation: list[int],
    groups: int,
) -> Value:
    """A convolution of an image; zeros between its elements, and borders that are cut off, are made before."""
    if any(step > 1 for step in spread) or min(min(pair) for pair in pads) < 0:
        inner = [(min(low, 0), min(high, 0), step - 1) for (low, high), step in zip(pads, spread, strict=True)]
        x = padded(site, x, [(0, 0, 0), (0, 0, 0), *inner])
        pads = [(max(low, 0), max(high, 0)) for low, high in pads]
    return _slid(site, f"conv{len(pads)}d", x, filter, stride=strides, padding=pads, dilation=dilation, groups=groups)


def _transposed(
    site: Site, x: Value, filter: Value, spread: list[int], pads: Pairs, dilation: list[int], groups: int
) -> Value | None:
    """An image with zeros between its elements: each element of x spreads the filter, read backwards."""
    spans = [(taps - 1) * step + 1 for taps, step in zip(filter.shape[2:], dilation, strict=True)]
    cut = [(span - 1 - low, span - 1 - high) for span, (low, high) in zip(spans, pads, strict=True)]
    extra = [max(0, -high) for _, high in cut]
    room = [max(steps) for steps in zip(spread, dilation, strict=True)]
    if min(low for low, _ in cut) < 0 or any(more >= most for more, most in zip(extra, room, strict=True)):
        return None
    made, taken, *taps = filter.shape
    apart = site.reshape(filter, (groups, made // groups, taken, *taps))
    turned = site.transpose(apart, [0, 2, 1, *range(3, len(apart.shape))]) if groups > 1 else None
    swapped = (
        site.transpose(filter, [1, 0, *range(2, len(filter.shape))])
        if turned is None
        else site.reshape(turned, (groups * taken, made // groups, *taps))
    )
    return _slid(
        site,
        f"conv{len(taps)}d_transpose",
        x,
        flipped(site, swapped, list(range(2, len(filter.shape)))),
        stride=spread,
        padding=[(low, max(0, high)) for low, high in cut],
        dilation=dilation,
        groups=groups,
        output_padding=extra,
    )


def _slid(site: Site, op: str, *operands: Value, padding: Pairs, **attrs: Any) -> Value:
    """Emit an op whose windows slide over an image with its channels first."""
    flat = [width for pair in padding for width in pair]
    return site.emit(op, *operands, padding=flat, data_format=FORMATS[len(padding)][0], **attrs)


# ---------------------------------------------------------------------------------------------------- window reductions


def _image(site: Site, x: Value, space: Sequence[int]) -> tuple[Value, list[int]]:
    """X as an image: two dims in front, then those that windows slide over; and the order of its dims."""
    order = [*(dim for dim in range(len(x.shape)) if dim not in space), *space]
    moved = site.transpose(x, order)
    rest = moved.shape[: len(x.shape) - len(space)]
    front = (math.prod(rest[:-1]), rest[-1]) if rest else (1, 1)
    return site.reshape(moved, (*front, *moved.shape[len(rest) :])), order


def _from_image(site: Site, made: Value, order: list[int], sizes: Sequence[int]) -> Value:
    """Undo `_image`: ``sizes`` are those of the dims before it."""
    moved = site.reshape(made, [sizes[dim] for dim in order])
    return site.transpose(moved, [order.index(dim) for dim in range(len(order))])


def _windowed(site: Site, x: Value, fill: float) -> tuple[Value, list[int], Pairs]:
    """X with what no pooling does made before, the dims that windows slide over, and their padding."""
    params = site.params
    pads, sizes = _pairs(params["padding"]), _ints(params["window_dimensions"])
    spread = _ints(params.get("base_dilation") or [1] * len(sizes))
    steps = _ints(params["window_strides"])
    if any(step > 1 for step in params.get("window_dilation") or ()):
        raise site.refuse(f"its window dilation {tuple(params['window_dilation'])} is not supported: windows are dense")
    space = [dim for dim, size in enumerate(sizes) if size > 1]
    if len(space) not in (*FORMATS, 0):
        raise site.refuse(f"windows over {len(space)} dims are not supported: over 1, 2 or 3 they are")
    before = [
        (0, 0, step - 1) if dim in space and min(pair) >= 0 else (*pair, step - 1)
        for dim, (pair, step) in enumerate(zip(pads, spread, strict=True))
    ]
    left = [(0, 0) if widths[:2] == pair else pair for widths, pair in zip(before, pads, strict=True)]
    x = padded(site, x, before, fill)
    strides = [1 if dim in space else step for dim, step in enumerate(steps)]
    x = sliced(site, x, [0] * len(sizes), x.shape, strides)
    return x, space, [left[dim] for dim in space]


def _pool(kind: str) -> Translation:
    def translate(site: Site) -> Value:
        x = site.operands[0]
        if not x.floating:
            raise site.refuse(f"a window reduction of {x.dtype} is not supported: of real numbers it is")
        x = site.pointwise("neg", x) if kind == "min" else x
        x, space, pads = _windowed(site, x, 0.0 if kind == "sum" else -math.inf)
        if not space:
            return site.pointwise("neg", x) if kind == "min" else x
        made = _pooled(site, x, space, pads, "avg" if kind == "sum" else "max")
        if kind == "sum":
            return scaled(site, made, math.prod(_ints(site.params["window_dimensions"])))
        return site.pointwise("neg", made) if kind == "min" else made

    return translate


def _attrs(site: Site, space: list[int], pads: Pairs) -> Any:
    sizes, steps = site.params["window_dimensions"], site.params["window_strides"]
    return {
        "kernel_size": [int(sizes[dim]) for dim in space],
        "stride": [int(steps[dim]) for dim in space],
        "padding": pads,
    }


def _pooled(site: Site, x: Value, space: list[int], pads: Pairs, kind: str) -> Value:
    seen, order = _image(site, x, space)
    more: Any = {"exclusive": False} if kind == "avg" else {}
    made = _slid(site, f"{kind}_pool{len(space)}d", seen, **_attrs(site, space, pads), **more)
    return _from_image(site, made, order, site.shape)


def _select_and_scatter_add(site: Site) -> Value:
    """The backward of max pooling: each number goes to the first element that is its window's largest."""
    source, x = site.operands
    if str(site.params["select_prim"]) != "ge":
        raise site.refuse(f"it selects by {site.params['select_prim']}: only the largest (ge) is supported")
    seen, space, pads = _windowed(site, x, -math.inf)
    if seen is not x:
        raise site.refuse("its padding is negative, or it pads or strides dims that its windows do not slide over")
    image, order = _image(site, x, space)
    attrs, op = _attrs(site, space, pads), f"max_pool{len(space)}d"
    largest = _slid(site, op, image, **attrs)
    grad, _ = _image(site, source, space)
    made = _slid(site, f"{op}_grad", image, largest, grad, **attrs)
    return _from_image(site, made, order, x.shape)


WINDOWS: dict[str, Translation] = {
    "conv_general_dilated": _convolution,
    "reduce_window_sum": _pool("sum"),
    "reduce_window_max": _pool("max"),
    "reduce_window_min": _pool("min"),
    "select_and_scatter_add": _select_and_scatter_add,
}
"""Primitives whose windows slide over an image."""
