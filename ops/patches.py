"""Windows of an image laid out as columns, and columns added up to an image."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ops.bind import Shape
from ops.dims import Array, elements_of, shape_of
from ops.grad import Grad
from ops.notation import RuleError
from ops.op import Attrs, LocalContext, Shapes
from ops.registry import family
from ops.rule import Rule, rule
from ops.window import Window, at_tap, padded, per_dim, taps, taps_of, unpadded, windows


def _windows(
    space: Sequence[int], kernel_sizes: Any, strides: Any, paddings: Any, dilations: Any
) -> tuple[Window, ...]:
    """Return the window of both space dims; four paddings are top, left, bottom, right."""
    sides = paddings
    if isinstance(paddings, list | tuple) and len(paddings) == 4:
        top, left, bottom, right = paddings
        sides = [top, bottom, left, right]
    kernel = per_dim(kernel_sizes, 2, "kernel_sizes")
    return windows(tuple(space), kernel, strides, sides, dilations)


def _unfolded(x: Array, **how: Any) -> Array:
    slid = _windows(x.shape[2:], **how)
    columns = taps(padded(x, slid), slid).transpose(0, 1, 4, 5, 2, 3)
    return columns.reshape(len(x), -1, math.prod(w.out for w in slid))


def _folded(x: Array, space: Sequence[int], **how: Any) -> Array:
    slid = _windows(space, **how)
    channels = x.shape[1] // math.prod(w.kernel for w in slid)
    image = np.zeros((len(x), channels, *(w.reach for w in slid)), x.dtype)
    view = taps(image, slid)
    columns = x.reshape(len(x), channels, -1, *(w.out for w in slid))
    for index, tap in enumerate(taps_of(slid)):
        under = at_tap(view, tap)
        under += columns[:, :, index]
    return unpadded(image, slid)


class _Dims(NamedTuple):
    """The dims of image and columns as a rule writes them."""

    image: str
    channels: str
    places: str
    whole: str
    sizes: dict[str, int]
    apart: bool
    """Whether each element of the image lies in one window at most."""


def _dims(slid: Sequence[Window]) -> _Dims:
    """Write the space dims: cut where windows fill them side by side, whole where windows meet or leave a rest."""
    image, places, whole = [], [], []
    sizes = {"k": math.prod(w.kernel for w in slid)}
    for dim, window in enumerate(slid):
        name, inner = f"s{dim}", f"p{dim}"
        filled = window.before == window.after == 0 and window.size == window.out * window.stride
        if window.out > 1:
            places.append(name)
            sizes[name] = window.out
        if window.out == 1 or not filled or window.span > window.stride:
            image.append("_")
            whole += [name] if window.out > 1 else []
        elif window.stride == 1:
            image.append(name)
        else:
            image.append(f"({name} {inner})")
            sizes[inner] = window.stride
            whole.append(inner)
    if sizes["k"] == 1:
        del sizes["k"]
    else:
        whole.append("k")
    flat = f"({' '.join(places)})" if len(places) > 1 else "".join(places) or "1"
    apart = all(window.out == 1 or window.span <= window.stride for window in slid)
    return _Dims(" ".join(image), "(c k)" if "k" in sizes else "c", flat, " ".join(whole), sizes, apart)


def _unfold_shape(shapes: Shapes, attrs: Attrs) -> tuple[Shape]:
    x = shape_of(shapes, "x")
    slid = _windows(x[2:], **attrs)
    return ((x[0], x[1] * math.prod(w.kernel for w in slid), math.prod(w.out for w in slid)),)


@family(
    "unfold",
    "x[] -> out[]",
    kernel=_unfolded,
    shape=_unfold_shape,
    flops=elements_of("out"),
    grad=Grad(
        lambda out_grad, *, shapes, **how: _folded(out_grad, shape_of(shapes, "x")[2:], **how),
        reads="",
        shapes=True,
        flops=elements_of("out_grad"),
    ),
)
def unfold(
    x: Shape,
    kernel_sizes: int | Sequence[int],
    strides: int | Sequence[int] = 1,
    paddings: int | Sequence[int] = 0,
    dilations: int | Sequence[int] = 1,
) -> Rule:
    """Each window of an image as a column (im2col). A space dim may be cut where windows fill it side by side."""
    if len(x) != 4:
        raise RuleError(f"unfold takes an image of rank 4, not x {x}")
    dims = _dims(_windows(x[2:], kernel_sizes, strides, paddings, dilations))
    return rule(
        f"x[n c {dims.image}] -> out[n {dims.channels} {dims.places}]",
        whole=dims.whole,
        linear="x",
        monotone="x",
        sizes=dims.sizes,
    )


def _local_sizes(attrs: Attrs, ctx: LocalContext) -> Attrs:
    return {**attrs, "output_sizes": list(shape_of(ctx.results, "out")[2:])}


@family(
    "fold",
    "x[] -> out[]",
    kernel=lambda x, output_sizes, **how: _folded(x, per_dim(output_sizes, 2, "output_sizes"), **how),
    shape=lambda shapes, attrs: (
        (
            shape_of(shapes, "x")[0],
            shape_of(shapes, "x")[1] // math.prod(per_dim(attrs["kernel_sizes"], 2, "kernel_sizes")),
            *per_dim(attrs["output_sizes"], 2, "output_sizes"),
        ),
    ),
    local=_local_sizes,
    flops=elements_of("x"),
    grad=Grad(
        lambda out_grad, *, output_sizes, **how: _unfolded(out_grad, **how), reads="", flops=elements_of("out_grad")
    ),
)
def fold(
    x: Shape,
    output_sizes: int | Sequence[int],
    kernel_sizes: int | Sequence[int],
    strides: int | Sequence[int] = 1,
    paddings: int | Sequence[int] = 0,
    dilations: int | Sequence[int] = 1,
) -> Rule:
    """Columns added up to the image whose windows they are (col2im)."""
    slid = _windows(per_dim(output_sizes, 2, "output_sizes"), kernel_sizes, strides, paddings, dilations)
    taken, places = math.prod(w.kernel for w in slid), math.prod(w.out for w in slid)
    if len(x) != 3 or x[1] % taken or x[2] != places:
        raise RuleError(f"fold takes columns [batch, channels x {taken}, {places}], not x {x}")
    dims = _dims(slid)
    return rule(
        f"x[n {dims.channels} {dims.places}] -> out[n c {dims.image}]",
        whole=dims.whole,
        linear="x",
        monotone="x" * dims.apart,
        sizes=dims.sizes,
    )
