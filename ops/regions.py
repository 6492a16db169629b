"""Regions of images: boxes, each pooled to one size."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ops.bind import Shape
from ops.dims import Array, shape_of
from ops.grad import Grad
from ops.indexing import MASKED
from ops.notation import RuleError
from ops.op import Attrs, LocalContext, Shapes
from ops.registry import family
from ops.rule import Rule, rule


def _samples(low: float, high: float, bins: int, ratio: int, size: int) -> Array:
    """Return the matrix [bins, size] that takes the mean of bilinear samples along one dim of a region."""
    each = ratio if ratio > 0 else max(1, math.ceil((high - low) / bins))
    place = low + (np.arange(bins * each) + 0.5) * ((high - low) / (bins * each))
    inside = (place >= -1) & (place <= size)
    place = np.clip(place, 0, size - 1)
    first = np.minimum(np.floor(place).astype(int), max(size - 2, 0))
    part = place - first
    matrix = np.zeros((bins * each, size))
    rows = np.arange(bins * each)
    matrix[rows, np.minimum(first + 1, size - 1)] = part * inside
    matrix[rows, first] += (1 - part) * inside
    return np.asarray(matrix.reshape(bins, each, size).mean(1))


def _samples_of(boxes: Array, boxes_num: Array | None, even: bool, first_box: int, share: int, images: int) -> Array:
    """Return the image of each local box; `share` devices share the boxes of each image."""
    if boxes_num is None:
        return np.zeros(len(boxes), np.int64)
    if even:
        if boxes_num.tolist() != [len(boxes) * share // images] * images:
            raise ValueError(f"roi_align: boxes_num={boxes_num.tolist()} are not even, as even_boxes says")
        return np.repeat(np.arange(images), len(boxes) // images)
    ends = np.cumsum(boxes_num)
    if ends[-1] < first_box + len(boxes):
        raise ValueError(f"roi_align: boxes_num={boxes_num.tolist()} counts fewer boxes than there are")
    return np.searchsorted(ends, np.arange(first_box, first_box + len(boxes)), side="right")


def _regions(
    x: Shape,
    boxes: Array,
    boxes_num: Array | None,
    pooled_height: int,
    pooled_width: int,
    spatial_scale: float,
    sampling_ratio: int,
    aligned: bool,
    even_boxes: bool,
    first_box: int = 0,
    first_image: int = 0,
    share: int = 1,
) -> list[tuple[int, int, Array, Array]]:
    """Return, for each box of an image held here, its place, its image and the matrices that pool rows and columns."""
    images = _samples_of(boxes, boxes_num, even_boxes, first_box, share, x[0]) - first_image
    found = []
    for place, (image, box) in enumerate(zip(images, boxes, strict=True)):
        if not 0 <= image < x[0]:
            continue
        left, top, right, bottom = box * spatial_scale - (0.5 if aligned else 0.0)
        if not aligned:
            right, bottom = max(right, left + 1), max(bottom, top + 1)
        rows = _samples(top, bottom, pooled_height, sampling_ratio, x[2])
        found.append((place, int(image), rows, _samples(left, right, pooled_width, sampling_ratio, x[3])))
    return found


def _roi_align(x: Array, boxes: Array, boxes_num: Array | None, **attrs: Any) -> Array:
    out = np.zeros((len(boxes), x.shape[1], attrs["pooled_height"], attrs["pooled_width"]), x.dtype)
    for place, image, rows, columns in _regions(x.shape, boxes, boxes_num, **attrs):
        out[place] = rows @ x[image] @ columns.T
    return out


def _roi_align_back(boxes: Array, boxes_num: Array | None, out_grad: Array, *, shapes: Shapes, **attrs: Any) -> Array:
    x = shape_of(shapes, "x")
    grad = np.zeros(x, out_grad.dtype)
    for place, image, rows, columns in _regions(x, boxes, boxes_num, **attrs):
        grad[image] += rows.T @ out_grad[place] @ columns
    return grad


def _local_boxes(attrs: Attrs, ctx: LocalContext) -> Attrs:
    """Tell a device which boxes and images it holds."""
    if ctx.operands["boxes_num"] is None:
        return attrs
    if attrs["even_boxes"]:
        return {**attrs, "share": ctx.count("k")}
    first_box = ctx.start("k") if ctx.count("k") > 1 else 0
    return {**attrs, "first_box": first_box, "first_image": ctx.start("n") if ctx.count("n") > 1 else 0}


def _roi_shape(shapes: Shapes, attrs: Attrs) -> tuple[Shape]:
    return ((shape_of(shapes, "boxes")[0], shape_of(shapes, "x")[1], attrs["pooled_height"], attrs["pooled_width"]),)


@family(
    "roi_align",
    "x[], boxes[], boxes_num?[] -> out[]",
    kernel=_roi_align,
    shape=_roi_shape,
    dtype=lambda dtypes, attrs: (dtypes["x"],),
    local=_local_boxes,
    grad=Grad(_roi_align_back, reads="boxes boxes_num", of="x", shapes=True),
)
def roi_align(
    x: Shape,
    boxes: Shape,
    boxes_num: Shape | None,
    pooled_height: int = 1,
    pooled_width: int = 1,
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = True,
    even_boxes: bool = False,
) -> Rule:
    """Boxes of images, each pooled to one size.

    In which image a box lies is data: a device that holds some images answers for their boxes alone. With `even_boxes`
    the caller promises as many boxes in each image, and a cut of the batch cuts the boxes with it.
    """
    images = x[0] if x else 0
    if boxes_num is None:
        if images != 1:
            raise RuleError(f"roi_align: boxes of {images} images need boxes_num, the number of boxes in each")
        return rule("x[1 c _ _], boxes[k _], boxes_num?[_] -> out[k c _ _]", linear="x")
    if boxes_num != (images,):
        raise RuleError(f"roi_align: boxes_num {boxes_num} is not one number for each of {images} images")
    if not even_boxes:
        text = "x[n c _ _], boxes[k _], boxes_num?[_] -> out[k c _ _]"
        return rule(text, sum="n", needs={"n": MASKED}, linear="x", major="k")
    if not boxes or not images or boxes[0] % images:
        raise RuleError(f"roi_align: boxes {boxes} are not as many in each of {images} images, as even_boxes says")
    sizes = {"n": images, "k": boxes[0] // images}
    text = "x[n c _ _], boxes[(n k) _], boxes_num?[n] -> out[(n k) c _ _]"
    return rule(text, linear="x", sizes=sizes)
