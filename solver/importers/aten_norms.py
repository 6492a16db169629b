"""aten: softmax, norms, losses, and their backward."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from solver.importers.aten_site import Lowering, Saved, Site
from solver.importers.sketch import Value

# ------------------------------------------------------------------------------------------------------------- softmax


def _softmax(op: str) -> Lowering:
    def lowering(site: Site, x: Value, dim: int, half_to_float: Any = False, *, dtype: str | None = None) -> Value:
        if half_to_float:
            dtype = half_to_float if isinstance(half_to_float, str) else "float32"
        x = site.promoted(x, dtype)
        return site.emit(op, x, axis=site.axis(dim, len(x.shape)))

    return lowering


def _softmax_backward(op: str) -> Lowering:
    def lowering(site: Site, grad: Value, output: Value, dim: int, input_dtype: str) -> Value:
        axis = site.axis(dim, len(output.shape))
        return site.emit(op, output, grad, axis=axis, forward_shapes={"x": output.shape})

    return lowering


def _safe_softmax(site: Site, x: Value, dim: int, dtype: str | None = None) -> Value:
    """Softmax, and zeros where a whole slice is -inf."""
    x, axis = site.promoted(x, dtype), site.axis(dim, len(x.shape))
    masked = site.emit("equal", x, site.constant(-math.inf, x.dtype))
    some = site.emit("any", site.emit("logical_not", masked), axis=[axis], keepdim=True)
    return site.emit("where", some, site.emit("softmax", x, axis=axis), site.constant(0, x.dtype))


# ---------------------------------------------------------------------------------------------------------- layer norm


def _layer_norm_of(
    site: Site, x: Value, normalized_shape: Sequence[int], weight: Value | None, bias: Value | None, eps: float
) -> tuple[Value, ...]:
    begin = len(x.shape) - len(normalized_shape)
    return site.emit_all("layer_norm", x, weight, bias, begin_norm_axis=begin, epsilon=eps)


def _layer_norm(
    site: Site,
    x: Value,
    normalized_shape: Sequence[int],
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Value:
    return _layer_norm_of(site, x, normalized_shape, weight, bias, eps)[0]


def _native_layer_norm(
    site: Site, x: Value, normalized_shape: Sequence[int], weight: Value | None, bias: Value | None, eps: float
) -> list[Value | Saved]:
    out, mean, variance = _layer_norm_of(site, x, normalized_shape, weight, bias, eps)
    kept = (*x.shape[: len(x.shape) - len(normalized_shape)], *[1] * len(normalized_shape))
    return [out, *_statistics(site, x, mean, variance, eps, kept)]


def _statistics(
    site: Site, x: Value, mean: Value, variance: Value, eps: float, shape: Sequence[int]
) -> tuple[Saved, Saved]:
    """Return the mean and one over the deviation, which the backward here computes anew."""
    return (
        Saved("the mean of a norm", x, lambda: site.reshape(mean, shape)),
        Saved(
            "the deviation of a norm",
            x,
            lambda: site.reshape(site.emit("rsqrt", site.emit("scale", variance, bias=eps)), shape),
            eps,
        ),
    )


def _native_layer_norm_backward(
    site: Site,
    grad_out: Value,
    x: Value,
    normalized_shape: Sequence[int],
    mean: Any,
    rstd: Any,
    weight: Value | None,
    bias: Value | None,
    output_mask: Sequence[bool],
) -> list[Value | None]:
    begin = len(x.shape) - len(normalized_shape)
    shapes = _forward_shapes(x=x, scale=weight, bias=bias)
    attrs = {"begin_norm_axis": begin, "epsilon": _epsilon(site, rstd), "forward_shapes": shapes}
    return _three(site.emit_all("layer_norm_grad", x, weight, grad_out, **attrs), weight, bias, output_mask)


def _epsilon(site: Site, rstd: Any) -> float:
    """Return what the forward norm adds to the variance, which its backward is not told."""
    if isinstance(rstd, Saved) and rstd.epsilon is not None:
        return rstd.epsilon
    raise site.refuse("its deviation is not the one that the forward norm gives, so its epsilon is not known")


def _forward_shapes(**operands: Value | None) -> dict[str, Any]:
    return {name: None if value is None else value.shape for name, value in operands.items()}


def _three(
    made: Sequence[Value], weight: Value | None, bias: Value | None, output_mask: Sequence[bool]
) -> list[Value | None]:
    """Deal out the gradients of an operand, a scale and a bias, of which the op gives those that are there."""
    found = iter(made)
    dealt = [next(found) if there else None for there in (True, weight is not None, bias is not None)]
    return [one if wanted else None for one, wanted in zip(dealt, output_mask, strict=True)]


# ---------------------------------------------------------------------------------------------------------- group norm


def _group_norm(
    site: Site,
    x: Value,
    num_groups: int,
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Value:
    return site.emit("group_norm", x, weight, bias, groups=num_groups, epsilon=eps)


def _native_group_norm(
    site: Site, x: Value, weight: Value | None, bias: Value | None, n: int, c: int, hxw: int, group: int, eps: float
) -> list[Value | Saved]:
    def statistic(op: str, **attrs: Any) -> Value:
        apart = site.reshape(x, (n, group, c // group * hxw))
        return site.emit(op, apart, axis=[2], **attrs)

    def deviation() -> Value:
        return site.emit("rsqrt", site.emit("scale", statistic("var", unbiased=False), bias=eps))

    out = _group_norm(site, x, group, weight, bias, eps)
    return [
        out,
        Saved("the mean of a norm", x, lambda: statistic("mean")),
        Saved("the deviation of a norm", x, deviation, eps),
    ]


def _native_group_norm_backward(
    site: Site,
    grad_out: Value,
    x: Value,
    mean: Any,
    rstd: Any,
    weight: Value | None,
    n: int,
    c: int,
    hxw: int,
    group: int,
    output_mask: Sequence[bool],
) -> list[Value | None]:
    """The bias is not among the arguments; there is one where its gradient is asked for."""
    shapes = _forward_shapes(x=x, scale=weight)
    shapes["bias"] = (c,) if output_mask[2] else None
    attrs = {"groups": group, "epsilon": _epsilon(site, rstd), "forward_shapes": shapes}
    made = site.emit_all("group_norm_grad", x, weight, grad_out, **attrs)
    return _three(made, weight, x if output_mask[2] else None, output_mask)


# ---------------------------------------------------------------------------------------------------------- batch norm


def _batch_norm_of(
    site: Site,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Value, Value | None, Value | None]:
    """Return the result and, of a training step, the new running statistics.

    In training the statistics are those of the whole batch, as on one device; `sync_batch_norm` may cut it where the
    runtime can add up statistics. aten's momentum counts the new part, and its running variance is unbiased.
    """
    mean, variance = _running(site, x, running_mean, running_var)
    if not training:
        made = site.emit_all("batch_norm", x, mean, variance, weight, bias, is_test=True, epsilon=eps)
        return made[0], None, None
    attrs = {"momentum": 1 - momentum, "epsilon": eps}
    out, new_mean, new_variance = site.emit_all("sync_batch_norm", x, mean, variance, weight, bias, **attrs)
    if running_var is None:
        return out, None, None
    count = math.prod(x.shape) // x.shape[1]
    old = site.emit("scale", variance, scale=(momentum - 1) / max(count - 1, 1))
    unbiased = site.emit("scale", new_variance, scale=count / max(count - 1, 1))
    return out, new_mean, site.emit("add", unbiased, old)


def _running(site: Site, x: Value, mean: Value | None, variance: Value | None) -> tuple[Value, Value]:
    """Return running statistics; a norm that keeps none has ones that nothing reads."""
    if mean is not None and variance is not None:
        return mean, variance
    shape = [x.shape[1]]
    return site.emit("zeros", shape=shape, dtype=x.dtype), site.emit("ones", shape=shape, dtype=x.dtype)


def _batch_norm(
    site: Site,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> Value:
    return _batch_norm_of(site, x, weight, bias, running_mean, running_var, training, momentum, eps)[0]


def _no_training(
    site: Site,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    momentum: float,
    eps: float,
) -> list[Value | Saved]:
    out = _batch_norm(site, x, weight, bias, running_mean, running_var, False, momentum, eps)
    return [out, *_saved(x)]


def _saved(x: Value) -> list[Saved]:
    return [Saved(f"the {what} of a batch norm", x) for what in ("mean", "deviation")]


def _functional(
    site: Site,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    training: bool,
    momentum: float,
    eps: float,
) -> list[Value | Saved | None]:
    """A training step that gives the new running statistics."""
    out, mean, variance = _batch_norm_of(site, x, weight, bias, running_mean, running_var, training, momentum, eps)
    return [out, *_saved(x), mean, variance]


def _native_batch_norm_backward(
    site: Site,
    grad_out: Value,
    x: Value,
    weight: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    save_mean: Any,
    save_invstd: Any,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> list[Value | None]:
    mean, variance = _running(site, x, running_mean, running_var)
    shapes = _forward_shapes(x=x, mean=mean, variance=variance, scale=weight)
    shapes["bias"] = (x.shape[1],) if output_mask[2] else None
    op, attrs = ("sync_batch_norm_grad", {}) if train else ("batch_norm_grad", {"is_test": True})
    made = site.emit_all(op, x, mean, variance, weight, grad_out, **attrs, epsilon=eps, forward_shapes=shapes)
    return _three(made, weight, x if output_mask[2] else None, output_mask)


NORMS: dict[str, Lowering] = {
    **dict.fromkeys(("aten._softmax.default", "aten.softmax.int"), _softmax("softmax")),
    **dict.fromkeys(("aten._log_softmax.default", "aten.log_softmax.int"), _softmax("log_softmax")),
    "aten._softmax_backward_data.default": _softmax_backward("softmax_grad"),
    "aten._log_softmax_backward_data.default": _softmax_backward("log_softmax_grad"),
    "aten._safe_softmax.default": _safe_softmax,
    "aten.layer_norm.default": _layer_norm,
    "aten.native_layer_norm.default": _native_layer_norm,
    "aten.native_layer_norm_backward.default": _native_layer_norm_backward,
    "aten.group_norm.default": _group_norm,
    "aten.native_group_norm.default": _native_group_norm,
    "aten.native_group_norm_backward.default": _native_group_norm_backward,
    "aten.batch_norm.default": _batch_norm,
    "aten._native_batch_norm_legit_no_training.default": _no_training,
    "aten._native_batch_norm_legit_functional.default": _functional,
    "aten.native_batch_norm_backward.default": _native_batch_norm_backward,
}
