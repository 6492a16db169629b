"""Functions of one tensor, element by element: arithmetic, exponentials, trigonometry, activations, tests, casts.

`monotone` stands where a function grows on the whole real line. log, sqrt and their like do not get it: the terms of a
P(max) may lie outside their domain, and a maximum over NaN is NaN. What is constant piece by piece has no grad.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ops.dims import Array
from ops.grad import Grad
from ops.op import REQUIRED, Op
from ops.registry import family, op
from ops.rule import Rule, rule

Function = Callable[..., Any]

_POINTWISE = "x[a*] -> out[a*]"
_EMPTY = "x[] -> out[]"


def unary(
    name: str, kernel: Function, *, slope: Function | None = None, reads: str = "x", slope_form: str = "", **facts: Any
) -> Op:
    """Register a function of one tensor.

    Parameters
    ----------
    name : str
    kernel : callable
    slope : callable, optional
        The derivative as a function of what ``reads`` names (``x`` or ``out``) and of the attributes; of the attributes
        alone where ``reads`` is empty.
    reads : str
        What the derivative reads.
    slope_form : str
        The linear form of the derivative in it, where it has one.
    **facts
        Clauses and op facts, as for `ops.registry.op`.
    """
    return op(name, _POINTWISE, kernel=kernel, grad=None if slope is None else _grad(slope, reads, slope_form), **facts)


def _grad(slope: Function, reads: str, slope_form: str = "") -> Grad:
    def kernel(*tensors: Array, **attrs: Any) -> Array:
        *read, out_grad = tensors
        return np.asarray(out_grad * slope(*read, **attrs), out_grad.dtype)

    return Grad(kernel, reads=reads, linear={"x": slope_form})


# Arithmetic.
unary("neg", np.negative, linear="x", antitone="x", slope=lambda: -1, reads="")
unary("abs", np.abs, slope=np.sign)
unary("square", np.square, slope=lambda x: 2 * x, slope_form="x")
unary("sqrt", np.sqrt, domain={"x": "positive"}, slope=lambda out: 0.5 / out, reads="out")
unary("rsqrt", lambda x: 1 / np.sqrt(x), domain={"x": "positive"}, slope=lambda out: -0.5 * out**3, reads="out")
unary("reciprocal", lambda x: 1 / x, domain={"x": "positive"}, slope=lambda out: -out * out, reads="out")
unary("sign", np.sign, monotone="x")
unary("floor", np.floor, monotone="x")
unary("ceil", np.ceil, monotone="x")
unary("round", np.round, monotone="x")
unary("trunc", np.trunc, monotone="x")

# Exponentials and logarithms.
unary("exp", np.exp, monotone="x", slope=lambda out: out, reads="out", slope_form="out")
unary("expm1", np.expm1, monotone="x", slope=lambda out: out + 1, reads="out", slope_form="out + 1")
unary("log", np.log, domain={"x": "positive"}, slope=lambda x: 1 / x)
unary("log1p", np.log1p, domain={"x": "positive"}, slope=lambda x: 1 / (1 + x))
unary("log2", np.log2, domain={"x": "positive"}, slope=lambda x: 1 / (x * math.log(2)))
unary("log10", np.log10, domain={"x": "positive"}, slope=lambda x: 1 / (x * math.log(10)))

# Trigonometry.
unary("sin", np.sin, slope=np.cos)
unary("cos", np.cos, slope=lambda x: -np.sin(x))
unary("tan", np.tan, slope=lambda out: 1 + out * out, reads="out")
unary("asin", np.arcsin, slope=lambda x: 1 / np.sqrt(1 - x * x))
unary("acos", np.arccos, slope=lambda x: -1 / np.sqrt(1 - x * x))
unary("atan", np.arctan, monotone="x", slope=lambda x: 1 / (1 + x * x))
unary("sinh", np.sinh, monotone="x", slope=np.cosh)
unary("cosh", np.cosh, slope=np.sinh)
unary("asinh", np.arcsinh, monotone="x", slope=lambda x: 1 / np.sqrt(x * x + 1))
unary("acosh", np.arccosh, slope=lambda x: 1 / np.sqrt(x * x - 1))
unary("atanh", np.arctanh, slope=lambda x: 1 / (1 - x * x))


# Activations.
def sigmoid(x: Array) -> Array:
    """Return the logistic function, without overflow on either side."""
    small = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1, small) / (1 + small))


_ERF = np.frompyfunc(math.erf, 1, 1)


def _erf(x: Array) -> Array:
    return np.asarray(_ERF(x), np.asarray(x).dtype)


def _erf_slope(x: Array) -> Array:
    return np.asarray(2 / math.sqrt(math.pi) * np.exp(-x * x))


_GELU_INNER = math.sqrt(2 / math.pi)


def _gelu(x: Array, approximate: bool) -> Array:
    if approximate:
        return np.asarray(0.5 * x * (1 + np.tanh(_GELU_INNER * (x + 0.044715 * x**3))))
    return np.asarray(0.5 * x * (1 + _erf(x / math.sqrt(2))))


def _gelu_slope(x: Array, approximate: bool) -> Array:
    if approximate:
        t = np.tanh(_GELU_INNER * (x + 0.044715 * x**3))
        return np.asarray(0.5 * (1 + t) + 0.5 * x * (1 - t * t) * _GELU_INNER * (1 + 3 * 0.044715 * x * x))
    return np.asarray(0.5 * (1 + _erf(x / math.sqrt(2))) + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi))


def _silu_slope(x: Array) -> Array:
    s = sigmoid(x)
    return np.asarray(s * (1 + x * (1 - s)))


def _softplus(x: Array, beta: float = 1.0, threshold: float = 20.0) -> Array:
    """log(1 + exp(beta x)) / beta, and x itself where beta x is above the threshold."""
    scaled = beta * x
    return np.asarray(
        np.where(scaled > threshold, x, (np.maximum(scaled, 0) + np.log1p(np.exp(-np.abs(scaled)))) / beta)
    )


def _softplus_slope(x: Array, beta: float = 1.0, threshold: float = 20.0) -> Array:
    return np.asarray(np.where(beta * x > threshold, 1, sigmoid(beta * x)))


def _mish_slope(x: Array) -> Array:
    t = np.tanh(_softplus(x))
    return np.asarray(t + x * (1 - t * t) * sigmoid(x))


def _between(x: Array, low: float, high: float) -> Array:
    return np.asarray((x > low) & (x < high))


def _hardtanh(x: Array, min: float, max: float) -> Array:
    return np.clip(x, min, max)


def _hardtanh_slope(x: Array, min: float, max: float) -> Array:
    return _between(x, min, max)


unary("relu", lambda x: np.maximum(x, 0), monotone="x", slope=lambda out: out > 0, reads="out")
unary("relu6", lambda x: np.clip(x, 0, 6), monotone="x", slope=lambda out: _between(out, 0, 6), reads="out")
unary("sigmoid", sigmoid, monotone="x", slope=lambda out: out * (1 - out), reads="out")
unary("log_sigmoid", lambda x: -_softplus(-x), monotone="x", slope=lambda x: sigmoid(-x))
unary("tanh", np.tanh, monotone="x", slope=lambda out: 1 - out * out, reads="out")
unary("erf", _erf, monotone="x", slope=_erf_slope)
unary("gelu", _gelu, attrs={"approximate": False}, slope=_gelu_slope)
unary("silu", lambda x: x * sigmoid(x), slope=_silu_slope)
unary("swish", lambda x: x * sigmoid(x), slope=_silu_slope)
unary("mish", lambda x: x * np.tanh(_softplus(x)), slope=_mish_slope)
unary("softplus", _softplus, attrs={"beta": 1.0, "threshold": 20.0}, monotone="x", slope=_softplus_slope)
unary("softsign", lambda x: x / (1 + np.abs(x)), monotone="x", slope=lambda x: 1 / (1 + np.abs(x)) ** 2)
unary("tanhshrink", lambda x: x - np.tanh(x), monotone="x", slope=lambda x: np.tanh(x) ** 2)
unary(
    "hardswish",
    lambda x: x * np.clip(x + 3, 0, 6) / 6,
    slope=lambda x: np.where(x >= 3, 1, np.where(x <= -3, 0, (2 * x + 3) / 6)),
)
unary("hardtanh", _hardtanh, attrs={"min": -1.0, "max": 1.0}, monotone="x", slope=_hardtanh_slope)


# Functions whose order depends on their attributes.
def _elu(x: Array, alpha: float) -> Array:
    return np.asarray(np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0))))


def _elu_slope(x: Array, alpha: float) -> Array:
    return np.asarray(np.where(x > 0, 1, alpha * np.exp(np.minimum(x, 0))))


@family("elu", _EMPTY, kernel=_elu, grad=_grad(_elu_slope, "x"))
def elu(alpha: float = 1.0) -> Rule:
    """The operand above 0, alpha (exp(x) - 1) below."""
    return rule(_POINTWISE, monotone="x" if alpha >= 0 else "")


@family(
    "selu",
    _EMPTY,
    kernel=lambda x, scale, alpha: scale * _elu(x, alpha),
    grad=_grad(lambda x, scale, alpha: scale * _elu_slope(x, alpha), "x"),
)
def selu(scale: float = 1.0507009873554805, alpha: float = 1.6732632423543772) -> Rule:
    """A scaled elu."""
    return rule(_POINTWISE, monotone="x" if scale >= 0 and alpha >= 0 else "")


unary(
    "celu",
    lambda x, alpha: np.maximum(x, 0) + alpha * np.expm1(np.minimum(x, 0) / alpha),
    attrs={"alpha": 1.0},
    monotone="x",
    slope=lambda x, alpha: np.where(x > 0, 1, np.exp(np.minimum(x, 0) / alpha)),
)


@family(
    "leaky_relu",
    _EMPTY,
    kernel=lambda x, negative_slope: np.where(x > 0, x, negative_slope * x),
    grad=_grad(lambda x, negative_slope: np.where(x > 0, 1, negative_slope), "x"),
)
def leaky_relu(negative_slope: float = 0.01) -> Rule:
    """The operand above 0, a multiple of it below."""
    return rule(_POINTWISE, monotone="x" if negative_slope >= 0 else "")


@family(
    "hardsigmoid",
    _EMPTY,
    kernel=lambda x, slope, offset: np.clip(slope * x + offset, 0, 1),
    grad=_grad(lambda x, slope, offset: slope * _between(slope * x + offset, 0, 1), "x"),
)
def hardsigmoid(slope: float = 0.1666667, offset: float = 0.5) -> Rule:
    """A straight line between 0 and 1."""
    return rule(_POINTWISE, monotone="x" if slope >= 0 else "", antitone="x" if slope <= 0 else "")


def _clip(x: Array, min: float | None, max: float | None) -> Array:
    return x if min is None and max is None else np.clip(x, min, max)


def _clip_slope(x: Array, min: float | None, max: float | None) -> Array:
    return np.asarray((x >= (-np.inf if min is None else min)) & (x <= (np.inf if max is None else max)))


unary("clip", _clip, attrs={"min": None, "max": None}, monotone="x", slope=_clip_slope)


def _scale(x: Array, scale: float, bias: float, bias_after_scale: bool) -> Array:
    return np.asarray(x * scale + bias if bias_after_scale else (x + bias) * scale, x.dtype)


@family("scale", _EMPTY, kernel=_scale, grad=_grad(lambda scale, bias, bias_after_scale: scale, ""))
def scale(x_dtype: str | None, scale: float = 1.0, bias: float = 0.0, bias_after_scale: bool = True) -> Rule:
    """A multiple plus a bias: a P(sum) passes only where nothing is added, and no integer is cut off."""
    whole = x_dtype is None or "float" in x_dtype or scale == int(scale)
    rises = scale >= 0
    return rule(_POINTWISE, linear="x" * (not bias and whole), monotone="x" * rises, antitone="x" * (not rises))


# Copies, casts and tests.
unary("assign", np.array, linear="x", monotone="x", slope=lambda: 1, reads="")


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return the dtype that a kernel computes in: bfloat16 and the float8s, which numpy lacks, in float32."""
    return np.dtype("float32" if name.startswith(("bfloat16", "float8")) else name)


def _keeps_order(source: str, target: str) -> bool:
    """Tell whether a cast never falls where its operand rises: not where integers wrap."""
    return "bool" not in (source, target) and (
        "float" in target or ("float" not in source and np.can_cast(numpy_dtype(source), numpy_dtype(target)))
    )


def _keeps_sums(source: str, target: str) -> bool:
    """Tell whether a P(sum) passes a cast: only from a float to one not narrower."""
    return "float" in source and "float" in target and _digits(target) >= _digits(source)


def _digits(dtype: str) -> int:
    known = {"bfloat16": 8, "float8_e4m3fn": 4, "float8_e5m2": 3}
    return known.get(dtype) or np.finfo(dtype).nmant + 1


def _cast_rule(source: str | None, target: str, text: str, operand: str) -> Rule:
    """Tell what passes a cast of an operand; nothing but cuts where its dtype is unknown."""
    return rule(
        text,
        linear=operand * (source is not None and _keeps_sums(source, target)),
        monotone=operand * (source is not None and _keeps_order(source, target)),
    )


@family(
    "cast",
    _EMPTY,
    kernel=lambda x, dtype: x.astype(numpy_dtype(dtype)),
    dtype=lambda dtypes, attrs: (attrs["dtype"],),
)
def cast(x_dtype: str | None, dtype: str = REQUIRED) -> Rule:
    """The same numbers in another dtype."""
    return _cast_rule(x_dtype, dtype, _POINTWISE, "x")


@family(
    "cast_grad",
    "out_grad[] -> x_grad[]",
    kernel=lambda out_grad, dtype, forward_dtype: out_grad.astype(numpy_dtype(forward_dtype)),
    dtype=lambda dtypes, attrs: (attrs["forward_dtype"],),
)
def cast_grad(out_grad_dtype: str | None, dtype: str | None = None, forward_dtype: str = REQUIRED) -> Rule:
    """A cast back to the dtype that x had, which no operand tells: where that is narrower, sums do not pass."""
    return _cast_rule(out_grad_dtype, forward_dtype, "out_grad[a*] -> x_grad[a*]", "out_grad")


unary("isnan", np.isnan, dtype="bool")
unary("isinf", np.isinf, dtype="bool")
unary("isfinite", np.isfinite, dtype="bool")
unary("logical_not", np.logical_not, dtype="bool")
unary("bitwise_not", np.bitwise_not, antitone="x")
