"""Less common functions, element by element: gamma and error functions, shrinkages, steps."""

from __future__ import annotations

import math

import numpy as np

from ops.dims import Array, shape_of, sum_to
from ops.elementwise import binary
from ops.grad import Grad
from ops.op import Shapes
from ops.registry import family, op
from ops.rule import Rule, rule
from ops.unary import unary

# ----------------------------------------------------------------------------------------------- gamma, error functions

_LGAMMA = np.frompyfunc(math.lgamma, 1, 1)
_ERF = np.frompyfunc(math.erf, 1, 1)
_SHIFT = 8
"""Above this number the series below are exact to double precision."""


def _lgamma(x: Array) -> Array:
    return np.asarray(_LGAMMA(x), np.asarray(x).dtype)


def _digamma(x: Array) -> Array:
    """The derivative of lgamma: moved up to where a series is exact, reflected below 0."""
    mirrored = np.where(x > 0, x, 1 - x)
    steps = sum(1 / (mirrored + k) for k in range(_SHIFT))
    far = mirrored + _SHIFT
    inverse = 1 / (far * far)
    series = inverse * (1 / 12 - inverse * (1 / 120 - inverse * (1 / 252 - inverse * (1 / 240 - inverse / 132))))
    found = np.log(far) - 0.5 / far - series - steps
    return np.asarray(np.where(x > 0, found, found - math.pi / np.tan(math.pi * x)), np.asarray(x).dtype)


def _trigamma(x: Array) -> Array:
    """The derivative of digamma."""
    mirrored = np.where(x > 0, x, 1 - x)
    steps = sum(1 / (mirrored + k) ** 2 for k in range(_SHIFT))
    far = mirrored + _SHIFT
    inverse = 1 / (far * far)
    series = (1 + inverse * (1 / 6 - inverse * (1 / 30 - inverse * (1 / 42 - inverse / 30)))) / far + 0.5 * inverse
    found = series + steps
    return np.asarray(np.where(x > 0, found, (math.pi / np.sin(math.pi * x)) ** 2 - found))


def _erfinv(x: Array) -> Array:
    """Newton steps on erf from an approximation by logarithms."""
    tail = np.log1p(-x * x)
    first = 2 / (math.pi * 0.147) + tail / 2
    found = np.sign(x) * np.sqrt(np.sqrt(first * first - tail / 0.147) - first)
    for _ in range(4):
        found = found - (_ERF(found).astype(float) - x) * (math.sqrt(math.pi) / 2) * np.exp(found * found)
    return np.asarray(found, np.asarray(x).dtype)


def _logit(x: Array, eps: float | None) -> Array:
    inside = x if eps is None else np.clip(x, eps, 1 - eps)
    return np.asarray(np.log(inside / (1 - inside)), x.dtype)


def _logit_slope(x: Array, eps: float | None) -> Array:
    slope = 1 / (x * (1 - x))
    return np.asarray(slope if eps is None else np.where((x >= eps) & (x <= 1 - eps), slope, 0))


unary("lgamma", _lgamma, domain={"x": "positive"}, slope=_digamma)
unary("digamma", _digamma, domain={"x": "positive"}, slope=_trigamma)
unary(
    "erfinv",
    _erfinv,
    domain={"x": "unit"},
    slope=lambda out: math.sqrt(math.pi) / 2 * np.exp(out * out),
    reads="out",
)


def _logit_back(x: Array, out_grad: Array, *, eps: float | None) -> Array:
    return np.asarray(out_grad * _logit_slope(x, eps), out_grad.dtype)


@family("logit", "x[] -> out[]", kernel=_logit, domain={"x": "unit"}, grad=Grad(_logit_back))
def logit(eps: float | None = None) -> Rule:
    """log(x / (1 - x)); with eps the operand is drawn inside [eps, 1 - eps], so that it grows on the whole line."""
    return rule("x[a*] -> out[a*]", monotone="x" * (eps is not None and 0 < eps <= 0.5))


# ---------------------------------------------------------------------------------------------------- shrinkages, steps


def _soft(x: Array, threshold: float) -> Array:
    return np.asarray(np.sign(x) * np.maximum(np.abs(x) - threshold, 0), x.dtype)


def _outside(x: Array, threshold: float) -> Array:
    return np.asarray(np.abs(x) > threshold)


unary(
    "hardshrink",
    lambda x, threshold: np.where(_outside(x, threshold), x, np.zeros((), x.dtype)),
    attrs={"threshold": 0.5},
    monotone="x",
    slope=_outside,
)
unary("softshrink", _soft, attrs={"threshold": 0.5}, monotone="x", slope=_outside)


def _stanh_grad(x: Array, out_grad: Array, *, scale_a: float, scale_b: float) -> Array:
    return np.asarray(out_grad * scale_a * scale_b * (1 - np.tanh(scale_a * x) ** 2), out_grad.dtype)


@family("stanh", "x[] -> out[]", kernel=lambda x, scale_a, scale_b: scale_b * np.tanh(scale_a * x),
        grad=Grad(_stanh_grad))  # fmt: skip
def stanh(scale_a: float = 0.67, scale_b: float = 1.7159) -> Rule:
    """A scaled tanh of a scaled operand."""
    rises = scale_a * scale_b >= 0
    return rule("x[a*] -> out[a*]", monotone="x" * rises, antitone="x" * (not rises))


def _thresholded(x: Array, threshold: float, value: float) -> Array:
    return np.where(x > threshold, x, np.asarray(value, x.dtype))


def _thresholded_grad(x: Array, out_grad: Array, *, threshold: float, value: float) -> Array:
    return np.asarray(out_grad * (x > threshold), out_grad.dtype)


@family("thresholded_relu", "x[] -> out[]", kernel=_thresholded, grad=Grad(_thresholded_grad))
def thresholded_relu(threshold: float = 1.0, value: float = 0.0) -> Rule:
    """The operand above a threshold, one value below."""
    return rule("x[a*] -> out[a*]", monotone="x" * (value <= threshold))


def _heaviside_grad(x: Array, out_grad: Array, *, shapes: Shapes) -> Array:
    return sum_to(np.asarray(out_grad * (x == 0), out_grad.dtype), shape_of(shapes, "y"))


op(
    "heaviside",
    "x[...], y[...] -> out[...]",
    kernel=np.heaviside,
    monotone="y",
    grad=Grad(_heaviside_grad, reads="x", of="y", shapes=True),
)
binary("trunc_divide", lambda x, y: np.trunc(x / y).astype(np.result_type(x, y)), domain={"y": "positive"})
