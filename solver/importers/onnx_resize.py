"""ONNX resize: along each dim a fixed linear map of its elements, found here by the standard's own formulas."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ops.registry import rule_for
from solver.importers.onnx_fold import known
from solver.importers.onnx_site import Site
from solver.importers.sketch import Value

Matrix = NDArray[np.float64]


def _resize(site: Site) -> Value:
    """Our interpolation, where it takes the same elements by the same weights; else gathers and products, by dim."""
    x = site.operand(0)
    if site.attr("antialias", 0) or site.attr("coordinate_transformation_mode") == "tf_crop_and_resize":
        raise site.refuse("antialiasing and cropping while resizing are not supported")
    sizes, scales = _target(site, x)
    changed = [axis for axis in range(len(sizes)) if (sizes[axis], scales[axis]) != (x.shape[axis], 1.0)]
    if 0 in changed and x.shape[0] != 1:
        raise site.baked(f"it makes {sizes} of {list(x.shape)}, a batch of another size")
    maps = {axis: _map(site, x.shape[axis], sizes[axis], scales[axis]) for axis in changed}
    if changed and min(changed) >= 2 and len(sizes) <= 5:
        attrs = _interpolation(site.attr("mode", "nearest"), x, maps, sizes)
        if attrs is not None:
            return site.emit("interpolate", x, **attrs)
    for axis, weights in maps.items():
        x = _along(site, x, axis, weights)
    return x


def _interpolation(mode: str, x: Value, maps: Mapping[int, Matrix], sizes: Sequence[int]) -> dict[str, Any] | None:
    """The attributes with which our interpolation is the given maps, None where there are none."""
    space = len(sizes) - 2
    names = {"nearest": "nearest", "linear": ("linear", "bilinear", "trilinear")[space - 1], "cubic": "bicubic"}
    kernel = rule_for("interpolate").kernel
    for align_corners, align_mode in ((False, 0), (False, 1), (True, 0)):
        ways = {"mode": names[mode], "align_corners": align_corners, "align_mode": align_mode}
        ours = {
            axis: kernel(np.eye(x.shape[axis])[None], size=[sizes[axis]], scale_factor=None, data_format="NCL", **ways)[
                0
            ].T
            for axis in maps
        }
        if all(np.allclose(ours[axis], maps[axis]) for axis in maps):
            return {"size": list(sizes[2:]), **ways, "data_format": ("NCL", "NCHW", "NCDHW")[space - 1]}
    return None


def _target(site: Site, x: Value) -> tuple[list[int], list[float]]:
    """The new shape and the factor of each dim."""
    axes = [site.axis(axis, len(x.shape)) for axis in site.attr("axes") or range(len(x.shape))]
    sizes, scales = list(x.shape), [1.0] * len(x.shape)
    slot = 1 if site.node.op_type == "Upsample" or site.opset < 11 else 2
    factors = site.table(slot, "scales") if site.has(slot) else np.array(site.attr("scales") or [])
    if factors.size:
        for axis, factor in zip(axes, factors.tolist(), strict=True):
            sizes[axis], scales[axis] = math.floor(x.shape[axis] * factor), factor
        return sizes, scales
    wanted = [int(size) for size in site.table(3, "sizes")]
    ratios = [size / x.shape[axis] for axis, size in zip(axes, wanted, strict=True)]
    policy = site.attr("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch":
        ratio = min(ratios) if policy == "not_larger" else max(ratios)
        wanted = [math.floor(ratio * x.shape[axis] + 0.5) for axis in axes]
        ratios = [ratio] * len(axes)
    for axis, size, factor in zip(axes, wanted, ratios, strict=True):
        sizes[axis], scales[axis] = size, factor
    return sizes, scales


def _map(site: Site, old: int, new: int, scale: float) -> Matrix:
    """The matrix [new, old] that the standard defines for one dim."""
    at = _coordinates(site, old, new, scale)
    if site.attr("mode", "nearest") == "nearest":
        return np.eye(old)[_nearest(site, at, old)]
    return _weights(site, at, old)


def _along(site: Site, x: Value, axis: int, weights: Matrix) -> Value:
    """Resize one dim: pick elements, or multiply by the weights."""
    if site.attr("mode", "nearest") == "nearest":
        return site.emit("gather", x, known(weights.argmax(axis=1)), axis=axis)
    last = len(x.shape) - 1
    order = [*(dim for dim in range(len(x.shape)) if dim != axis), axis]
    if axis != last:
        x = site.emit("transpose", x, perm=order)
    x = site.emit("matmul", x, known(weights.T.astype(x.dtype)))
    return x if axis == last else site.emit("transpose", x, perm=np.argsort(order).tolist())


def _coordinates(site: Site, old: int, new: int, scale: float) -> Matrix:
    """Where each new element lies among the old ones."""
    mode = site.attr("coordinate_transformation_mode", "half_pixel" if site.opset >= 11 else "asymmetric")
    at = np.arange(new, dtype=np.float64)
    if mode == "asymmetric":
        return at / scale
    if mode == "align_corners":
        return at * (old - 1) / (scale * old - 1) if new > 1 else at * 0
    if mode == "pytorch_half_pixel" and new == 1:
        return at * 0
    middle = (at + 0.5) / scale - 0.5
    if mode == "half_pixel_symmetric":
        return middle + old / 2 * (1 - new / (scale * old))
    if mode not in ("half_pixel", "pytorch_half_pixel"):
        raise site.refuse(f"coordinate_transformation_mode={mode!r} is not supported")
    return middle


def _nearest(site: Site, at: Matrix, old: int) -> NDArray[np.int64]:
    mode = site.attr("nearest_mode", "round_prefer_floor" if site.opset >= 11 else "floor")
    round_to: dict[str, Callable[[Matrix], Matrix]] = {
        "round_prefer_floor": lambda x: np.ceil(x - 0.5),
        "round_prefer_ceil": lambda x: np.floor(x + 0.5),
        "floor": np.floor,
        "ceil": np.ceil,
    }
    return np.clip(round_to[mode](at), 0, old - 1).astype(np.int64)


def _weights(site: Site, at: Matrix, old: int) -> Matrix:
    """The matrix [new, old] of a linear or cubic interpolation; what lies outside is the border's element."""
    first = np.floor(at)
    part = at - first
    if site.attr("mode") == "linear":
        taps = {0: 1 - part, 1: part}
    else:
        taps = _cubic(float(site.attr("cubic_coeff_a", -0.75)), part)
    made = np.zeros((len(at), old))
    for offset, weight in taps.items():
        column = first.astype(np.int64) + offset
        if site.attr("exclude_outside", 0):
            weight = np.where((column >= 0) & (column < old), weight, 0)
        np.add.at(made, (np.arange(len(at)), np.clip(column, 0, old - 1)), weight)
    total: Matrix = made.sum(axis=1, keepdims=True)
    return made / total


def _cubic(a: float, part: Matrix) -> dict[int, Matrix]:
    def near(t: Matrix) -> Matrix:
        return (a + 2) * t**3 - (a + 3) * t**2 + 1

    def far(t: Matrix) -> Matrix:
        return a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a

    return {-1: far(part + 1), 0: near(part), 1: near(1 - part), 2: far(2 - part)}


RESIZE: dict[str, Callable[[Site], Any]] = {"Resize": _resize, "Upsample": _resize}
