"""Softmax and the norms: what a statistic is taken over stays whole."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ops.bind import Shape
from ops.dims import Array, axis_in
from ops.grad import Grad
from ops.notation import RuleError
from ops.registry import family, op
from ops.rule import Rule, rule

# -------------------------------------------------------------------------------------------------------------- softmax


def softmax_of(x: Array, axis: int) -> Array:
    """Return exp(x) over its sum along a dim, without overflow."""
    if x.ndim == 0:
        return np.ones_like(x)
    powers = np.exp(x - x.max(axis, keepdims=True))
    return np.asarray(powers / powers.sum(axis, keepdims=True))


def _log_softmax(x: Array, axis: int) -> Array:
    shifted = x - x.max(axis, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis, keepdims=True)))


def softmax_back(out: Array, out_grad: Array, axis: int) -> Array:
    """Return the grad of the operand of a softmax."""
    return np.asarray(out * (out_grad - (out_grad * out).sum(axis, keepdims=True)))


op(
    "softmax",
    "x[a* c@axis b*] -> out[a* c b*]",
    whole="c",
    attrs={"axis": -1},
    kernel=softmax_of,
    flops=lambda shapes, attrs: 5 * math.prod(shapes["x"]),
    grad=Grad(softmax_back, reads="out"),
)
op(
    "log_softmax",
    "x[a* c@axis b*] -> out[a* c b*]",
    whole="c",
    attrs={"axis": -1},
    kernel=_log_softmax,
    flops=lambda shapes, attrs: 5 * math.prod(shapes["x"]),
    grad=Grad(
        lambda out, out_grad, *, axis: out_grad - np.exp(out) * out_grad.sum(axis, keepdims=True),
        reads="out",
    ),
)


# ------------------------------------------------------------------------------------------- statistics over one block


def standardized(x: Array, axes: Sequence[int], epsilon: float) -> tuple[Array, Array]:
    """Return x with mean 0 and variance 1 over some dims, and one over its deviation."""
    centered = x - x.mean(tuple(axes), keepdims=True)
    inverse = 1 / np.sqrt((centered * centered).mean(tuple(axes), keepdims=True) + epsilon)
    return centered * inverse, inverse


def standardized_back(normal: Array, inverse: Array, grad: Array, axes: Sequence[int]) -> Array:
    """Return the grad of x where `standardized` gets a grad."""
    mean = grad.mean(tuple(axes), keepdims=True)
    slope = (grad * normal).mean(tuple(axes), keepdims=True)
    return np.asarray(inverse * (grad - mean - normal * slope))


def scaled(normal: Array, scale: Array | None, bias: Array | None, shape: Sequence[int]) -> Array:
    """Multiply by a scale and add a bias, either absent, that lie along a shape."""
    out = normal if scale is None else normal * scale.reshape(shape)
    return out if bias is None else out + bias.reshape(shape)


def affine_form(scale: Shape | None) -> str:
    """Return the form of what `scaled` returns in scale and bias."""
    return "1 + bias" if scale is None else "scale + bias"


def affine_grads(
    normal: Array, grad: Array, scale: Array | None, bias: Any, axes: Sequence[int]
) -> tuple[Array | None, Array | None]:
    """Return the grads of scale and bias, summed over some dims; bias is its shape."""
    return (
        None if scale is None else np.asarray((grad * normal).sum(tuple(axes))).reshape(scale.shape),
        None if bias is None else np.asarray(grad.sum(tuple(axes))).reshape(bias),
    )


# ----------------------------------------------------------------------------------------------- layer norm, rms norm


def _begin(rank: int, begin_norm_axis: int) -> int:
    return axis_in(begin_norm_axis, rank, "begin_norm_axis")


def _affine_dims(shape: Shape | None, normal: Shape, what: str) -> str:
    """Write a scale or bias over whole dims: one dim for all of them, or a dim each."""
    if shape is None:
        return "_"
    if shape != normal and shape != (math.prod(normal),):
        raise RuleError(f"{what} has shape {shape}, but the dims that are normalized are {normal}")
    return " ".join("_" for _ in shape)


def _layer_norm(
    x: Array, scale: Array | None, bias: Array | None, epsilon: float, begin_norm_axis: int
) -> tuple[Array, Array, Array]:
    begin = _begin(x.ndim, begin_norm_axis)
    axes = range(begin, x.ndim)
    normal, _ = standardized(x, axes, epsilon)
    return scaled(normal, scale, bias, x.shape[begin:]), x.mean(tuple(axes)), x.var(tuple(axes))


def _layer_norm_back(
    x: Array,
    scale: Array | None,
    out_grad: Array,
    *,
    epsilon: float,
    begin_norm_axis: int,
    shapes: Any,
) -> tuple[Array | None, ...]:
    begin = _begin(x.ndim, begin_norm_axis)
    axes = range(begin, x.ndim)
    normal, inverse = standardized(x, axes, epsilon)
    slope = scaled(out_grad, scale, None, x.shape[begin:])
    return (
        standardized_back(normal, inverse, slope, axes),
        *affine_grads(normal, out_grad, scale, shapes["bias"], range(begin)),
    )


@family(
    "layer_norm",
    "x[], scale?[], bias?[] -> out[], mean[], variance[]",
    kernel=_layer_norm,
    flops=lambda shapes, attrs: 8 * math.prod(shapes["x"]),
    grad=Grad(_layer_norm_back, reads="x scale", outs="out", linear={"x": "scale"}, shapes=True),
)
def layer_norm(
    x: Shape, scale: Shape | None, bias: Shape | None, epsilon: float = 1e-5, begin_norm_axis: int = 1
) -> Rule:
    """Mean 0 and variance 1 over the dims from one on, then a scale and a bias for each element of them."""
    normal = x[_begin(len(x), begin_norm_axis) :]
    scales, biases = _affine_dims(scale, normal, "scale"), _affine_dims(bias, normal, "bias")
    return rule(
        f"x[a* c*@begin_norm_axis], scale?[{scales}], bias?[{biases}] -> out[a* c*], mean[a*], variance[a*]",
        whole="c*",
        linear={"out": affine_form(scale)},
    )


def _rms_norm(x: Array, scale: Array | None, bias: Array | None, epsilon: float, begin_norm_axis: int) -> Array:
    begin = _begin(x.ndim, begin_norm_axis)
    inverse = 1 / np.sqrt((x * x).mean(tuple(range(begin, x.ndim)), keepdims=True) + epsilon)
    return scaled(x * inverse, scale, bias, x.shape[begin:])


def _rms_norm_back(
    x: Array, scale: Array | None, out_grad: Array, *, epsilon: float, begin_norm_axis: int, shapes: Any
) -> tuple[Array | None, ...]:
    begin = _begin(x.ndim, begin_norm_axis)
    axes = tuple(range(begin, x.ndim))
    inverse = 1 / np.sqrt((x * x).mean(axes, keepdims=True) + epsilon)
    normal = x * inverse
    slope = scaled(out_grad, scale, None, x.shape[begin:])
    return (
        inverse * (slope - normal * (slope * normal).mean(axes, keepdims=True)),
        *affine_grads(normal, out_grad, scale, shapes["bias"], range(begin)),
    )


@family(
    "rms_norm",
    "x[], scale?[], bias?[] -> out[]",
    kernel=_rms_norm,
    flops=lambda shapes, attrs: 5 * math.prod(shapes["x"]),
    grad=Grad(_rms_norm_back, reads="x scale", linear={"x": "scale"}, shapes=True),
)
def rms_norm(
    x: Shape, scale: Shape | None, bias: Shape | None, epsilon: float = 1e-6, begin_norm_axis: int = -1
) -> Rule:
    """Mean square 1 over the dims from one on, then a scale and a bias for each element of them."""
    normal = x[_begin(len(x), begin_norm_axis) :]
    scales, biases = _affine_dims(scale, normal, "scale"), _affine_dims(bias, normal, "bias")
    return rule(
        f"x[a* c*@begin_norm_axis], scale?[{scales}], bias?[{biases}] -> out[a* c*]",
        whole="c*",
        linear=affine_form(scale),
    )


def _length(x: Array, p: float, axis: int, epsilon: float) -> Array:
    return np.asarray(np.maximum((np.abs(x) ** p).sum(axis, keepdims=True) ** (1 / p), epsilon))


def _normalize_back(x: Array, out_grad: Array, *, p: float, axis: int, epsilon: float) -> Array:
    length = _length(x, p, axis, epsilon)
    slope = np.sign(x) * np.abs(x) ** (p - 1) * length ** (1 - p)
    inner = (out_grad * x).sum(axis, keepdims=True) / length**2
    return np.asarray(out_grad / length - np.where(length > epsilon, slope * inner, 0))


op(
    "normalize",
    "x[a* c@axis b*] -> out[a* c b*]",
    whole="c",
    attrs={"p": 2, "axis": 1, "epsilon": 1e-12},
    kernel=lambda x, p, axis, epsilon: x / _length(x, p, axis, epsilon),
    flops=lambda shapes, attrs: 4 * math.prod(shapes["x"]),
    grad=Grad(_normalize_back, reads="x"),
)
