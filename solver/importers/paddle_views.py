"""Ops of Paddle that rename, join, cut and pick: their shapes and axes are tables that must be known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from solver.importers.paddle_direct import Direct
from solver.importers.paddle_site import Site
from solver.importers.sketch import Value


def _grad_of(site: Site, name: str = "out_grad") -> Value | None:
    found = site.found(name) if site.kind.endswith("_grad") else None
    return found if isinstance(found, Value) else None


def _reshape(site: Site) -> list[int]:
    """The shape that a reshape asks for, a 0 as the size of the same dim; for its grad that of the out_grad."""
    if (grad := _grad_of(site)) is not None:
        return list(grad.shape)
    x = site.value("x")
    asked = site.ints("shape")
    return [x.shape[dim] if size == 0 and dim < len(x.shape) else size for dim, size in enumerate(asked)]


def _expand(site: Site) -> list[int]:
    if (grad := _grad_of(site)) is not None:
        return list(grad.shape)
    x, asked = site.value("x"), site.ints("shape")
    front = len(asked) - len(x.shape)
    return [x.shape[dim - front] if size == -1 else size for dim, size in enumerate(asked)]


def _back_through_perm(site: Site) -> tuple[int, ...]:
    """The shape before a transpose, from that of the out_grad."""
    perm, made = site.ints("perm"), site.value("out_grad").shape
    shape = [0] * len(perm)
    for dim, source in enumerate(perm):
        shape[source % len(perm)] = made[dim]
    return tuple(shape)


def _back_through_shuffle(site: Site) -> tuple[int, ...]:
    """The shape before a pixel_shuffle, from that of the out_grad."""
    factor, made = int(site.attr("upscale_factor")), site.value("out_grad").shape
    last = site.attr("data_format") == "NHWC"
    height, width, channels = made[1:] if last else (*made[2:], made[1])
    space, inner = (height // factor, width // factor), channels * factor**2
    return (made[0], *space, inner) if last else (made[0], inner, *space)


def _back_through_unshuffle(site: Site) -> tuple[int, ...]:
    """The shape before a pixel_unshuffle, from that of the out_grad."""
    factor, made = int(site.attr("downscale_factor")), site.value("out_grad").shape
    last = site.attr("data_format") == "NHWC"
    height, width, channels = made[1:] if last else (*made[2:], made[1])
    space, inner = (height * factor, width * factor), channels // factor**2
    return (made[0], *space, inner) if last else (made[0], inner, *space)


def _whole(name: str) -> Callable[[Site], list[int]]:
    return lambda site: site.ints(name)


def _slice(op: str, first: str, *more: str) -> Direct:
    return Direct(op, attrs={name: _whole(name) for name in ("axes", "starts", "ends", *more)})


def _pad3d(site: Site) -> list[int]:
    """Their widths speak of the space dims, the last one first; ours of all dims in order."""
    widths = site.ints("paddings")
    space = [width for dim in (4, 2, 0) for width in widths[dim : dim + 2]]
    return [0, 0, *space, 0, 0] if site.attr("data_format") == "NDHWC" else [0, 0, 0, 0, *space]


def _pads(**attrs: Any) -> Direct:
    return Direct("pad", attrs={"value": "pad_value", **attrs}, drop="data_format")


VIEWS: dict[str, Any] = {
    "reshape": Direct("reshape", attrs={"shape": _reshape}, drop="shape"),
    "expand": Direct("expand", attrs={"shape": _expand}, drop="shape"),
    "transpose": Direct("transpose", shape=_back_through_perm),
    "pixel_shuffle": Direct("pixel_shuffle", shape=_back_through_shuffle),
    "pixel_unshuffle": Direct("pixel_unshuffle", shape=_back_through_unshuffle),
    "expand_as": Direct("expand_as", drop="target_shape"),
    "tile": Direct("tile", attrs={"repeat_times": _whole("repeat_times")}),
    "roll": Direct("roll", attrs={"shifts": _whole("shifts"), "axis": lambda site: site.ints("axis") or None}),
    "split": Direct("split", attrs={"num_or_sections": _whole("sections")}),
    "split_with_num": Direct("split", attrs={"num_or_sections": "num"}),
    "slice": _slice("slice", "input", "decrease_axis"),
    "strided_slice": _slice("strided_slice", "x", "strides"),
    "pad": Direct("pad", attrs={"pad": _whole("paddings"), "value": "pad_value"}),
    "pad3d": _pads(pad=_pad3d),
    "repeat_interleave": Direct("repeat_interleave", drop="output_size"),
}
"""Ops that are one of ours, by the names of `solver.importers.paddle_ops`."""
