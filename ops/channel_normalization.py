"""Norms that know channels: of a batch, of a sample, of a group of channels, of neighbouring channels."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np

from ops.bind import Shape
from ops.dims import Array, channel_axis, shape_of
from ops.grad import Grad
from ops.normalization import affine_form, affine_grads, scaled, standardized, standardized_back
from ops.notation import RuleError
from ops.op import Attrs, LocalContext, Shapes
from ops.registry import family
from ops.rule import Rule, rule


def _channel_dims(x: Shape, data_format: str, channel: str, space: str = "s") -> str:
    """Write the dims of x: n, the channels, and space."""
    others = ["n", *(f"{space}{i}" for i in range(len(x) - 2))]
    others.insert(channel_axis(data_format, len(x)), channel)
    return " ".join(others)


def _space_names(x: Shape) -> str:
    return " ".join(f"s{i}" for i in range(len(x) - 2))


def _but(rank: int, *kept: int) -> tuple[int, ...]:
    return tuple(dim for dim in range(rank) if dim not in kept)


def _along(rank: int, axis: int) -> list[int]:
    """Return the shape in which a vector lies along one dim."""
    return [-1 if dim == axis else 1 for dim in range(rank)]


def _uses_running(is_test: bool, use_global_stats: bool | None) -> bool:
    return is_test if use_global_stats is None else use_global_stats


def _batch_norm(
    x: Array,
    mean: Array,
    variance: Array,
    scale: Array | None,
    bias: Array | None,
    is_test: bool,
    momentum: float,
    epsilon: float,
    data_format: str,
    use_global_stats: bool | None,
) -> tuple[Array, Array, Array]:
    channel = channel_axis(data_format, x.ndim)
    shape = _along(x.ndim, channel)
    if _uses_running(is_test, use_global_stats):
        factor = 1 / np.sqrt(variance + epsilon)
        factor = factor if scale is None else factor * scale
        offset = -mean * factor if bias is None else bias - mean * factor
        return x * factor.reshape(shape) + offset.reshape(shape), mean, variance
    axes = _but(x.ndim, channel)
    normal, _ = standardized(x, axes, epsilon)
    kept = 1 - momentum
    return (
        scaled(normal, scale, bias, shape),
        momentum * mean + kept * x.mean(axes),
        momentum * variance + kept * x.var(axes),
    )


def _batch_norm_back(
    x: Array,
    mean: Array,
    variance: Array,
    scale: Array | None,
    out_grad: Array,
    *,
    is_test: bool,
    momentum: float,
    epsilon: float,
    data_format: str,
    use_global_stats: bool | None,
    shapes: Any,
) -> tuple[Array | None, ...]:
    channel = channel_axis(data_format, x.ndim)
    shape, axes = _along(x.ndim, channel), _but(x.ndim, channel)
    slope = scaled(out_grad, scale, None, shape)
    if _uses_running(is_test, use_global_stats):
        inverse = (1 / np.sqrt(variance + epsilon)).reshape(shape)
        normal = (x - mean.reshape(shape)) * inverse
        x_grad = slope * inverse
    else:
        normal, inverse = standardized(x, axes, epsilon)
        x_grad = standardized_back(normal, inverse, slope, axes)
    return x_grad, *affine_grads(normal, out_grad, scale, shapes["bias"], axes)


def _batch_norm_flops(shapes: Shapes, attrs: Attrs) -> int:
    running = _uses_running(attrs["is_test"], attrs["use_global_stats"])
    return (2 if running else 8) * math.prod(shape_of(shapes, "x"))


def _forms(running: bool, scale: Shape | None) -> dict[str, str]:
    """Return the forms of the results: with running statistics x and the mean stand in that of out."""
    if not running:
        return {"out": affine_form(scale), "mean_out": "mean + 1", "variance_out": "variance + 1"}
    by = "" if scale is None else "*scale"
    return {"out": f"x{by} + mean{by} + bias", "mean_out": "mean"}


def _grad_forms(attrs: Attrs) -> dict[str, str]:
    """Return the forms of the grads in what is read."""
    running = _uses_running(attrs["is_test"], attrs["use_global_stats"])
    return {"x": "scale"} | ({"scale": "x + mean"} if running else {})


@family(
    "batch_norm",
    "x[], mean[], variance[], scale?[], bias?[] -> out[], mean_out[], variance_out[]",
    kernel=_batch_norm,
    domain={"variance": "positive"},
    flops=_batch_norm_flops,
    grad=Grad(
        _batch_norm_back, reads="x mean variance scale", of="x scale bias", outs="out", linear=_grad_forms, shapes=True
    ),
)
def batch_norm(
    x: Shape,
    scale: Shape | None,
    is_test: bool = False,
    momentum: float = 0.9,
    epsilon: float = 1e-5,
    data_format: str = "NCHW",
    use_global_stats: bool | None = None,
) -> Rule:
    """Mean 0 and variance 1 for each channel: of the batch, which couples it and space, or as they were before."""
    running = _uses_running(is_test, use_global_stats)
    dims = _channel_dims(x, data_format, "c")
    return rule(
        f"x[{dims}], mean[c], variance[c], scale?[c], bias?[c] -> out[{dims}], mean_out[c], variance_out[c]",
        whole="" if running else f"n {_space_names(x)}",
        linear=_forms(running, scale),
    )


# A batch norm whose statistics are those of all devices.
Statistics = Generator[tuple[Array, str], Array, Any]
_SYNC = "sync_batch_norm"


def _standardized_together(x: Array, axes: Sequence[int], epsilon: float) -> Statistics:
    """Return x as `standardized` does, then mean and variance: those of equal blocks are averaged."""
    mean = yield x.mean(tuple(axes), keepdims=True), "avg"
    centered = x - mean
    variance = yield (centered * centered).mean(tuple(axes), keepdims=True), "avg"
    inverse = 1 / np.sqrt(variance + epsilon)
    return centered * inverse, inverse, mean.reshape(-1), variance.reshape(-1)


def _sync_batch_norm(
    x: Array,
    mean: Array,
    variance: Array,
    scale: Array | None,
    bias: Array | None,
    is_test: bool,
    momentum: float,
    epsilon: float,
    data_format: str,
    use_global_stats: bool | None,
) -> Statistics:
    if _uses_running(is_test, use_global_stats):
        return _batch_norm(x, mean, variance, scale, bias, is_test, momentum, epsilon, data_format, use_global_stats)
    channel = channel_axis(data_format, x.ndim)
    normal, _, own_mean, own_variance = yield from _standardized_together(x, _but(x.ndim, channel), epsilon)
    return (
        scaled(normal, scale, bias, _along(x.ndim, channel)),
        momentum * mean + (1 - momentum) * own_mean,
        momentum * variance + (1 - momentum) * own_variance,
    )


def _sync_batch_norm_back(
    x: Array, mean: Array, variance: Array, scale: Array | None, out_grad: Array, *, shapes: Any, **attrs: Any
) -> Statistics:
    if _uses_running(attrs["is_test"], attrs["use_global_stats"]):
        return _batch_norm_back(x, mean, variance, scale, out_grad, shapes=shapes, **attrs)
    channel = channel_axis(attrs["data_format"], x.ndim)
    axes = _but(x.ndim, channel)
    normal, inverse, _, _ = yield from _standardized_together(x, axes, attrs["epsilon"])
    slope = scaled(out_grad, scale, None, _along(x.ndim, channel))
    means = np.stack([slope.mean(axes, keepdims=True), (slope * normal).mean(axes, keepdims=True)])
    shift, pull = yield means, "avg"
    x_grad = inverse * (slope - shift - normal * pull)
    return x_grad, *affine_grads(normal, out_grad, scale, shapes["bias"], axes)


def _statistics(shapes: Shapes, attrs: Attrs) -> list[Shape]:
    """The mean of each channel, then its variance."""
    if _uses_running(attrs["is_test"], attrs["use_global_stats"]):
        return []
    x = shape_of(shapes, "x")
    channel = channel_axis(attrs["data_format"], len(x))
    return [tuple(size if dim == channel else 1 for dim, size in enumerate(x))] * 2


@family(
    "sync_batch_norm",
    "x[], mean[], variance[], scale?[], bias?[] -> out[], mean_out[], variance_out[]",
    kernel=_sync_batch_norm,
    reduces=_statistics,
    domain={"variance": "positive"},
    flops=_batch_norm_flops,
    grad=Grad(
        _sync_batch_norm_back,
        reads="x mean variance scale",
        of="x scale bias",
        outs="out",
        cuts="n s*",
        linear=_grad_forms,
        shapes=True,
        reduces=lambda shapes, attrs: [*(both := _statistics(shapes, attrs)), *((2, *one) for one in both[:1])],
    ),
)
def sync_batch_norm(
    x: Shape,
    scale: Shape | None,
    is_test: bool = False,
    momentum: float = 0.9,
    epsilon: float = 1e-5,
    data_format: str = "NCHW",
    use_global_stats: bool | None = None,
) -> Rule:
    """A batch norm whose devices add up their statistics, so that batch and space may be cut."""
    coupled = [] if _uses_running(is_test, use_global_stats) else ["n", *_space_names(x).split()]
    dims = _channel_dims(x, data_format, "c")
    return rule(
        f"x[{dims}], mean[c], variance[c], scale?[c], bias?[c] -> out[{dims}], mean_out[c], variance_out[c]",
        synced=" ".join(coupled),
        needs=dict.fromkeys(coupled, _SYNC),
        linear=_forms(not coupled, scale),
    )


def _instance_norm(x: Array, scale: Array | None, bias: Array | None, epsilon: float, data_format: str) -> Array:
    channel = channel_axis(data_format, x.ndim)
    normal, _ = standardized(x, _but(x.ndim, 0, channel), epsilon)
    return scaled(normal, scale, bias, _along(x.ndim, channel))


def _instance_norm_back(
    x: Array, scale: Array | None, out_grad: Array, *, epsilon: float, data_format: str, shapes: Any
) -> tuple[Array | None, ...]:
    channel = channel_axis(data_format, x.ndim)
    axes = _but(x.ndim, 0, channel)
    normal, inverse = standardized(x, axes, epsilon)
    slope = scaled(out_grad, scale, None, _along(x.ndim, channel))
    return (
        standardized_back(normal, inverse, slope, axes),
        *affine_grads(normal, out_grad, scale, shapes["bias"], _but(x.ndim, channel)),
    )


@family(
    "instance_norm",
    "x[], scale?[], bias?[] -> out[]",
    kernel=_instance_norm,
    flops=lambda shapes, attrs: 8 * math.prod(shapes["x"]),
    grad=Grad(_instance_norm_back, reads="x scale", linear={"x": "scale"}, shapes=True),
)
def instance_norm(x: Shape, scale: Shape | None, epsilon: float = 1e-5, data_format: str = "NCHW") -> Rule:
    """Mean 0 and variance 1 over space, for each channel of each sample."""
    dims = _channel_dims(x, data_format, "c")
    return rule(f"x[{dims}], scale?[c], bias?[c] -> out[{dims}]", whole=_space_names(x), linear=affine_form(scale))


def _in_groups(x: Array, groups: int, channel: int) -> Array:
    return x.reshape(*x.shape[:channel], groups, x.shape[channel] // groups, *x.shape[channel + 1 :])


def _group_norm(
    x: Array, scale: Array | None, bias: Array | None, epsilon: float, groups: int, data_format: str
) -> Array:
    channel = channel_axis(data_format, x.ndim)
    apart = _in_groups(x, groups, channel)
    normal, _ = standardized(apart, _but(apart.ndim, 0, channel), epsilon)
    return scaled(normal.reshape(x.shape), scale, bias, _along(x.ndim, channel))


def _group_norm_back(
    x: Array,
    scale: Array | None,
    out_grad: Array,
    *,
    epsilon: float,
    groups: int,
    data_format: str,
    shapes: Any,
) -> tuple[Array | None, ...]:
    channel = channel_axis(data_format, x.ndim)
    apart = _in_groups(x, groups, channel)
    axes = _but(apart.ndim, 0, channel)
    normal, inverse = standardized(apart, axes, epsilon)
    slope = _in_groups(scaled(out_grad, scale, None, _along(x.ndim, channel)), groups, channel)
    return (
        standardized_back(normal, inverse, slope, axes).reshape(x.shape),
        *affine_grads(normal.reshape(x.shape), out_grad, scale, shapes["bias"], _but(x.ndim, channel)),
    )


def _local_groups(attrs: Attrs, ctx: LocalContext) -> Attrs:
    return {**attrs, "groups": attrs["groups"] // ctx.count("g")} if attrs["groups"] > 1 else attrs


@family(
    "group_norm",
    "x[], scale?[], bias?[] -> out[]",
    kernel=_group_norm,
    local=_local_groups,
    flops=lambda shapes, attrs: 8 * math.prod(shapes["x"]),
    grad=Grad(_group_norm_back, reads="x scale", linear={"x": "scale"}, shapes=True),
)
def group_norm(
    x: Shape, scale: Shape | None, epsilon: float = 1e-5, groups: int = 1, data_format: str = "NCHW"
) -> Rule:
    """Mean 0 and variance 1 over space and the channels of a group, for each sample."""
    channels = x[channel_axis(data_format, len(x))]
    if groups < 1 or channels % groups:
        raise RuleError(f"groups={groups} do not divide the {channels} channels of x {x}")
    channel = "c" if groups == 1 else "g" if groups == channels else "(g c)"
    dims = _channel_dims(x, data_format, channel)
    return rule(
        f"x[{dims}], scale?[{channel}], bias?[{channel}] -> out[{dims}]",
        whole=f"{_space_names(x)} {'c' if 'c' in channel else ''}",
        sizes={"g": groups} if groups > 1 else {},
        linear=affine_form(scale),
    )


def _window_sum(x: Array, size: int, axis: int, forward: bool = True) -> Array:
    """Sum `size` neighbours along a dim, half of them before; backward with the sides swapped."""
    before, after = (size // 2, (size - 1) // 2) if forward else ((size - 1) // 2, size // 2)
    wide = np.pad(x, [(before, after) if dim == axis else (0, 0) for dim in range(x.ndim)])
    return np.asarray(np.lib.stride_tricks.sliding_window_view(wide, size, axis).sum(-1))


def _response(x: Array, size: int, alpha: float, k: float, axis: int) -> Array:
    return k + alpha / size * _window_sum(x * x, size, axis)


def _local_response_norm(x: Array, size: int, alpha: float, beta: float, k: float, data_format: str) -> Array:
    return np.asarray(x * _response(x, size, alpha, k, channel_axis(data_format, x.ndim)) ** -beta)


def _local_response_norm_back(
    x: Array, out_grad: Array, *, size: int, alpha: float, beta: float, k: float, data_format: str
) -> Array:
    axis = channel_axis(data_format, x.ndim)
    response = _response(x, size, alpha, k, axis)
    inner = _window_sum(out_grad * x * response ** (-beta - 1), size, axis, forward=False)
    return np.asarray(out_grad * response**-beta - 2 * alpha * beta / size * x * inner)


@family(
    "local_response_norm",
    "x[] -> out[]",
    kernel=_local_response_norm,
    flops=lambda shapes, attrs: (attrs["size"] + 6) * math.prod(shapes["x"]),
    grad=Grad(_local_response_norm_back, reads="x"),
)
def local_response_norm(
    x: Shape, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0, data_format: str = "NCHW"
) -> Rule:
    """Each element over a power of the mean square of its neighbours among the channels."""
    dims = _channel_dims(x, data_format, "c")
    return rule(f"x[{dims}] -> out[{dims}]", whole="c")
