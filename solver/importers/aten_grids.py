"""aten: images sampled at the points of a grid, windows laid out as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from solver.importers.aten_site import Lowering, Site
from solver.importers.sketch import Value

_MODES = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")


def _sampling(site: Site, mode: int, padding_mode: int, align_corners: bool) -> dict[str, Any]:
    if _MODES[mode] == "bicubic":
        raise site.refuse("only bilinear and nearest sampling can be planned, not bicubic")
    return {"mode": _MODES[mode], "padding_mode": _PADDINGS[padding_mode], "align_corners": align_corners}


def _grid_sampler(
    site: Site, x: Value, grid: Value, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Value:
    return site.emit("grid_sample", x, grid, **_sampling(site, interpolation_mode, padding_mode, align_corners))


def _grid_sampler_backward(
    site: Site,
    grad: Value,
    x: Value,
    grid: Value,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    output_mask: Sequence[bool],
) -> Sequence[Value | None]:
    attrs = _sampling(site, interpolation_mode, padding_mode, align_corners)
    made = site.emit_all("grid_sample_grad", x, grid, grad, **attrs)
    return [value if wanted else None for value, wanted in zip(made, output_mask, strict=True)]


def _affine_grid(site: Site, theta: Value, size: Sequence[int], align_corners: bool) -> Value:
    return site.emit("affine_grid", theta, out_shape=list(size), align_corners=align_corners)


def _windows(
    kernel_size: Sequence[int], dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int]
) -> dict[str, Any]:
    return {
        "kernel_sizes": list(kernel_size),
        "strides": list(stride),
        "paddings": list(padding),
        "dilations": list(dilation),
    }


def _im2col(
    site: Site,
    x: Value,
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Value:
    return site.emit("unfold", x, **_windows(kernel_size, dilation, padding, stride))


def _col2im(
    site: Site,
    x: Value,
    output_size: Sequence[int],
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Value:
    return site.emit("fold", x, output_sizes=list(output_size), **_windows(kernel_size, dilation, padding, stride))


GRIDS: dict[str, Lowering] = {
    "aten.grid_sampler_2d.default": _grid_sampler,
    "aten.grid_sampler_3d.default": _grid_sampler,
    "aten.grid_sampler_2d_backward.default": _grid_sampler_backward,
    "aten.grid_sampler_3d_backward.default": _grid_sampler_backward,
    "aten.affine_grid_generator.default": _affine_grid,
    "aten.im2col.default": _im2col,
    "aten.col2im.default": _col2im,
}
