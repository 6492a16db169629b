"""Convolutions: the window is no image space, and a channel of a group is a part of the channel dim."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ops.bind import Shape
from ops.correlation import correlate, filter_gradient, spread
from ops.dims import Array, shape_of
from ops.grad import Grad
from ops.notation import RuleError
from ops.op import Attrs, LocalContext, Range, Shapes
from ops.registry import family
from ops.rule import Rule, rule
from ops.window import (
    FORMATS,
    Padding,
    SpaceDims,
    Window,
    as_given,
    channels_first,
    channels_last,
    cut_space,
    image,
    image_shape,
    paddings,
    per_dim,
    space_dims,
    space_of,
    space_reach,
    widths,
    windows,
)


def _with_bias(out: Array, bias: Array | None, rank: int) -> Array:
    return out if bias is None else out + bias.reshape(-1, *[1] * rank)


def _bias_gradient(out_grad: Array, shapes: Shapes) -> Array | None:
    return None if shapes["bias"] is None else np.asarray(out_grad.sum((0, *range(2, out_grad.ndim))))


# ------------------------------------------------------------------------------------------------------- the channels


def _channels(groups: int, inner: int, outer: int) -> dict[str, str]:
    """Write the channel dims of x and of the result, and the names of a channel in a group of each."""
    if groups == 1:
        return {"x": "c", "out": "m", "c": "c", "m": "m"}
    c, m = "c" if inner > 1 else "1", "m" if outer > 1 else "1"
    return {"x": "(g c)" if inner > 1 else "g", "out": "(g m)" if outer > 1 else "g", "c": c, "m": m}


def _check_groups(channels: int, filter: Shape, groups: int, what: str) -> None:
    if groups < 1 or channels % groups or filter[0] % groups:
        raise RuleError(f"{groups} groups do not divide {channels} channels of {what} and dim 0 of filter {filter}")


def _local_groups(attrs: Attrs, ctx: LocalContext) -> Attrs:
    """The groups that one device holds."""
    groups = attrs["groups"]
    return attrs if groups is None or groups == 1 else {**attrs, "groups": groups // ctx.count("g")}


def _flops(image: str) -> Any:
    """Return the flops of a convolution: for each element of an image, the window and the channels of its group."""

    def flops(shapes: Shapes, attrs: Attrs) -> int:
        return 2 * math.prod(shape_of(shapes, image)) * math.prod(shape_of(shapes, "filter")[1:])

    return flops


def _grad_flops(image: str) -> Any:
    once = _flops(image)
    return lambda shapes, attrs: 2 * once(shapes, attrs)


# ----------------------------------------------------------------------------------------------------- convolutions


def _slid(x: Shape, filter: Shape, stride: Any, padding: Padding, dilation: Any, last: bool) -> tuple[Window, ...]:
    return windows(space_of(x, last), filter[2:], stride, padding, dilation)


def _conv_rule(x: Shape, filter: Shape, groups: int, slid: Sequence[Window], last: bool) -> Rule:
    channels = x[-1] if last else x[1]
    _check_groups(channels, filter, groups, "x")
    if channels // groups != filter[1]:
        raise RuleError(f"filter {filter} takes {filter[1]} channels a group, x {x} has {channels} in {groups} groups")
    dims = _channels(groups, filter[1], filter[0] // groups)
    space = space_dims(slid)
    return _rule(
        image("n", dims["x"], space.dense, last),
        f"{dims['out']} {dims['c']}",
        image("n", dims["out"], space.sparse, last),
        dims,
        space,
        groups,
    )


def _rule(x: str, weight: str, out: str, dims: dict[str, str], space: SpaceDims, groups: int) -> Rule:
    clauses = space.clauses()
    if groups > 1:
        clauses["sizes"] = {**clauses["sizes"], "g": groups}
    window = " ".join("_" for _ in space.dense)
    return rule(
        f"x[{x}], filter[{weight} {window}], bias?[{dims['out']}] -> out[{out}]",
        sum="c" if dims["c"] == "c" else "",
        linear="x*filter + bias",
        **clauses,
    )


def _register_conv(name: str, rank: int, default_groups: int | None = 1) -> None:
    def forward(
        x: Array,
        filter: Array,
        bias: Array | None,
        stride: Any,
        padding: Any,
        dilation: Any,
        groups: Any,
        data_format: str,
    ) -> Array:
        last = channels_last(data_format, rank)
        slid = _slid(x.shape, filter.shape, stride, padding, dilation, last)
        first = channels_first(x, last)
        out = correlate(first, filter, slid, groups or first.shape[1])
        return as_given(_with_bias(out, bias, rank), last)

    def backward(
        x: Array,
        filter: Array,
        out_grad: Array,
        *,
        stride: Any,
        padding: Any,
        dilation: Any,
        groups: Any,
        data_format: str,
        shapes: Shapes,
    ) -> tuple[Array | None, ...]:
        last = channels_last(data_format, rank)
        slid = _slid(x.shape, filter.shape, stride, padding, dilation, last)
        first, grad = channels_first(x, last), channels_first(out_grad, last)
        count = groups or first.shape[1]
        return (
            as_given(spread(grad, filter, slid, count), last),
            filter_gradient(first, grad, filter.shape, slid, count),
            _bias_gradient(grad, shapes),
        )

    def whole(shapes: Shapes, attrs: Attrs) -> tuple[Window, ...]:
        last = channels_last(attrs["data_format"], rank)
        x, filter = shape_of(shapes, "x"), shape_of(shapes, "filter")
        return _slid(x, filter, attrs["stride"], attrs["padding"], attrs["dilation"], last)

    def shape(shapes: Shapes, attrs: Attrs) -> tuple[Shape]:
        x, filter = shape_of(shapes, "x"), shape_of(shapes, "filter")
        places = [window.out for window in whole(shapes, attrs)]
        return (image_shape(x[0], filter[0], places, channels_last(attrs["data_format"], rank)),)

    def reach(shapes: Shapes, attrs: Attrs, factor: str, block: int, count: int) -> dict[str, Range]:
        return {"x": space_reach(whole(shapes, attrs), factor, block, count)}

    def local(attrs: Attrs, ctx: LocalContext) -> Attrs:
        found = cut_space(whole(ctx.whole, attrs), ctx)
        return {**_local_groups(attrs, ctx), **({} if found is None else {"padding": paddings(found)})}

    @family(
        name,
        "x[], filter[], bias?[] -> out[]",
        kernel=forward,
        shape=shape,
        local=local,
        reach=reach,
        flops=_flops("out"),
        grad=Grad(backward, reads="x filter", cuts="s*", shapes=True, flops=_grad_flops("out_grad")),
    )
    def convolution(
        x: Shape,
        filter: Shape,
        stride: int | Sequence[int] = 1,
        padding: Padding = 0,
        dilation: int | Sequence[int] = 1,
        groups: int | None = default_groups,
        data_format: str = FORMATS[rank][0],
    ) -> Rule:
        """Each place of a window: the window's elements times a filter, summed over taps and channels of a group."""
        last = _checked(x, filter, rank, data_format)
        slid = _slid(x, filter, stride, padding, dilation, last)
        return _conv_rule(x, filter, groups or (x[-1] if last else x[1]), slid, last)


def _checked(x: Shape, filter: Shape, rank: int, data_format: str) -> bool:
    if len(x) != rank + 2:
        raise RuleError(f"x has shape {x}: an image with {rank} space dims has rank {rank + 2}")
    if len(filter) != rank + 2:
        raise RuleError(f"filter has shape {filter}: a window over {rank} space dims needs rank {rank + 2}")
    return channels_last(data_format, rank)


# ---------------------------------------------------------------------------------------------------------- transposed


def _extra(size: int | None, least: int, step: int) -> int:
    """Return how much is added at the end to reach a size that is asked for."""
    if size is None:
        return 0
    if not least <= size < least + step:
        raise RuleError(f"output_size={size} is not between {least} and {least + step - 1}, which the stride allows")
    return size - least


def _slid_out(
    x: Shape,
    filter: Shape,
    stride: Any,
    padding: Padding,
    dilation: Any,
    output_padding: Any,
    output_size: Any,
    last: bool,
) -> tuple[Window, ...]:
    """Return the windows over the result, each of whose places is an element of x."""
    space = space_of(x, last)
    rank = len(space)
    steps, spreads = per_dim(stride, rank, "stride"), per_dim(dilation, rank, "dilation")
    extra = [output_padding] * rank if isinstance(output_padding, int) else list(output_padding)
    goals = [output_size] * rank if output_size is None or isinstance(output_size, int) else list(output_size)
    if len(extra) != rank or len(goals) != rank:
        raise RuleError(f"output_padding={output_padding} or output_size={output_size} is not one for each space dim")
    if output_size is not None and any(extra):
        raise RuleError(f"output_padding={output_padding} and output_size={output_size} say the same: give one of them")
    full = []
    for size, kernel, step, spread_by, more in zip(space, filter[2:], steps, spreads, extra, strict=True):
        if not 0 <= more < max(step, spread_by):
            raise RuleError(
                f"output_padding={output_padding} is not below the stride {step} or the dilation {spread_by}"
            )
        full.append((size - 1) * step + (kernel - 1) * spread_by + 1 + more)
    made = []
    for dim, (before, after) in enumerate(
        widths(padding, rank, [total - size * step for total, size, step in zip(full, space, steps, strict=True)])
    ):
        if full[dim] - before - after < 1:
            raise RuleError(f"padding={padding} cuts off all {full[dim]} elements of a space dim")
        least = full[dim] - before - after
        size = least + _extra(goals[dim], least, steps[dim])
        made.append(Window(size, filter[2 + dim], steps[dim], spreads[dim], before, after, space[dim]))
    return tuple(made)


def _transposed_rule(x: Shape, filter: Shape, groups: int, slid: Sequence[Window], last: bool) -> Rule:
    channels = x[-1] if last else x[1]
    _check_groups(channels, filter, groups, "x")
    if channels != filter[0]:
        raise RuleError(f"filter {filter} takes {filter[0]} channels, x {x} has {channels}")
    space = space_dims(slid)
    dims = _channels(groups, channels // groups, filter[1])
    return _rule(
        image("n", dims["x"], space.sparse, last),
        f"{dims['x']} {dims['m']}",
        image("n", dims["out"], space.dense, last),
        dims,
        space,
        groups,
    )


def _register_transposed(name: str, rank: int) -> None:
    def forward(
        x: Array,
        filter: Array,
        bias: Array | None,
        stride: Any,
        padding: Any,
        output_padding: Any,
        output_size: Any,
        dilation: Any,
        groups: int,
        data_format: str,
    ) -> Array:
        last = channels_last(data_format, rank)
        slid = _slid_out(x.shape, filter.shape, stride, padding, dilation, output_padding, output_size, last)
        out = spread(channels_first(x, last), filter, slid, groups)
        return as_given(_with_bias(out, bias, rank), last)

    def backward(
        x: Array,
        filter: Array,
        out_grad: Array,
        *,
        stride: Any,
        padding: Any,
        output_padding: Any,
        output_size: Any,
        dilation: Any,
        groups: int,
        data_format: str,
        shapes: Shapes,
    ) -> tuple[Array | None, ...]:
        last = channels_last(data_format, rank)
        slid = _slid_out(x.shape, filter.shape, stride, padding, dilation, output_padding, output_size, last)
        first, grad = channels_first(x, last), channels_first(out_grad, last)
        return (
            as_given(correlate(grad, filter, slid, groups), last),
            filter_gradient(grad, first, filter.shape, slid, groups),
            _bias_gradient(grad, shapes),
        )

    def whole(shapes: Shapes, attrs: Attrs) -> tuple[Window, ...]:
        own = {k: attrs[k] for k in ("stride", "padding", "dilation", "output_padding", "output_size")}
        last = channels_last(attrs["data_format"], rank)
        return _slid_out(shape_of(shapes, "x"), shape_of(shapes, "filter"), **own, last=last)

    def shape(shapes: Shapes, attrs: Attrs) -> tuple[Shape]:
        x, filter, slid = shape_of(shapes, "x"), shape_of(shapes, "filter"), whole(shapes, attrs)
        last = channels_last(attrs["data_format"], rank)
        return (image_shape(x[0], filter[1] * attrs["groups"], [w.size for w in slid], last),)

    def reach(shapes: Shapes, attrs: Attrs, factor: str, block: int, count: int) -> dict[str, Range]:
        return {"x": space_reach(whole(shapes, attrs), factor, block, count, spreads=True)}

    def local(attrs: Attrs, ctx: LocalContext) -> Attrs:
        """The groups and the size of the result that one device holds, and its padding where borders come along."""
        attrs, found = _local_groups(attrs, ctx), cut_space(whole(ctx.whole, attrs), ctx, spreads=True)
        if found is not None:
            extra = [one.extra for one in found]
            return {**attrs, "padding": paddings(found), "output_padding": extra, "output_size": None}
        if attrs["output_size"] is None:
            return attrs
        last = channels_last(attrs["data_format"], rank)
        return {**attrs, "output_size": list(space_of(shape_of(ctx.results, "out"), last))}

    @family(
        name,
        "x[], filter[], bias?[] -> out[]",
        kernel=forward,
        shape=shape,
        local=local,
        reach=reach,
        flops=_flops("x"),
        grad=Grad(backward, reads="x filter", cuts="s*", shapes=True, flops=_grad_flops("x")),
    )
    def convolution(
        x: Shape,
        filter: Shape,
        stride: int | Sequence[int] = 1,
        padding: Padding = 0,
        output_padding: int | Sequence[int] = 0,
        output_size: int | Sequence[int] | None = None,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        data_format: str = FORMATS[rank][0],
    ) -> Rule:
        """The transpose of a convolution in its image: each element of x spreads a filter."""
        last = _checked(x, filter, rank, data_format)
        return _transposed_rule(
            x, filter, groups, _slid_out(x, filter, stride, padding, dilation, output_padding, output_size, last), last
        )


for _rank in FORMATS:
    _register_conv(f"conv{_rank}d", _rank)
    _register_transposed(f"conv{_rank}d_transpose", _rank)
_register_conv("depthwise_conv2d", 2, default_groups=None)
