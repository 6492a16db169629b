"""Functions of several tensors, element by element, with broadcasting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ops.bind import Shape
from ops.dims import Array, shape_of, sum_to
from ops.grad import Grad
from ops.notation import RuleError
from ops.op import Attrs, Op, Shapes, promote
from ops.registry import family, op
from ops.rule import Rule, rule
from ops.unary import sigmoid

_BROADCAST = "x[...], y[...] -> out[...]"


def binary(name: str, kernel: Callable[..., Any], *, slopes: Callable[..., Any] | None = None, **facts: Any) -> Op:
    """Register a function of two tensors that broadcast.

    Parameters
    ----------
    name : str
    kernel : callable
    slopes : callable, optional
        ``(x, y, out_grad) -> (x_grad, y_grad)``, in the shape of the result.
    **facts
        Clauses and op facts, as for `ops.registry.op`.
    """
    return op(name, _BROADCAST, kernel=kernel, grad=None if slopes is None else _grad(slopes, "x y"), **facts)


def _grad(slopes: Callable[..., Any], reads: str, of: str = "x y") -> Grad:
    def kernel(*tensors: Array, shapes: Shapes, **attrs: Any) -> tuple[Array, ...]:
        grads = slopes(*tensors, **attrs)
        return tuple(
            sum_to(np.asarray(grad, tensors[-1].dtype), shape_of(shapes, name))
            for name, grad in zip(of.split(), grads, strict=True)
        )

    return Grad(kernel, reads=reads, of=of, shapes=True)


def _linear(name: str, kernel: Callable[..., Any], signs: tuple[int, int], **clauses: Any) -> Op:
    """Register x plus or minus y: its grad reads nothing but shapes."""
    grad = _grad(lambda out_grad: tuple(sign * out_grad for sign in signs), "")
    return op(name, _BROADCAST, kernel=kernel, linear="x + y", grad=grad, **clauses)


_linear("add", np.add, (1, 1), monotone="x y")
_linear("subtract", np.subtract, (1, -1), monotone="x", antitone="y")
binary("multiply", np.multiply, linear="x*y", slopes=lambda x, y, g: (g * y, g * x))


def _divide(x: Array, y: Array) -> Array:
    """The quotient; of integers it is a float, as in Paddle."""
    return np.asarray(x / y)


def _true_dtype(dtypes: Any, attrs: Attrs) -> tuple[str]:
    found = [dtype for dtype in (dtypes.get("x"), dtypes.get("y")) if dtype is not None and "float" in dtype]
    return ("first",) if found else ("float32",)


binary(
    "divide",
    _divide,
    linear="x",
    dtype=_true_dtype,
    domain={"y": "positive"},
    slopes=lambda x, y, g: (g / y, -g * x / (y * y)),
)
binary("maximum", np.maximum, monotone="x y", slopes=lambda x, y, g: (g * (x >= y), g * (x < y)))
binary("minimum", np.minimum, monotone="x y", slopes=lambda x, y, g: (g * (x <= y), g * (x > y)))
binary("fmax", np.fmax, slopes=lambda x, y, g: (g * ((x >= y) | np.isnan(y)), g * ((x < y) | np.isnan(x))))
binary("fmin", np.fmin, slopes=lambda x, y, g: (g * ((x <= y) | np.isnan(y)), g * ((x > y) | np.isnan(x))))
binary("remainder", np.mod, domain={"y": "positive"}, slopes=lambda x, y, g: (g, -g * np.floor(x / y)))
binary("fmod", np.fmod, domain={"y": "positive"}, slopes=lambda x, y, g: (g, -g * np.trunc(x / y)))
binary("floor_divide", np.floor_divide, domain={"y": "positive"})
binary(
    "atan2",
    np.arctan2,
    slopes=lambda x, y, g: (g * y / (x * x + y * y), -g * x / (x * x + y * y)),
)
binary(
    "logaddexp", np.logaddexp, monotone="x y", slopes=lambda x, y, g: (g / (1 + np.exp(y - x)), g / (1 + np.exp(x - y)))
)


def _pow(x: Array, y: Array | None, factor: float | None) -> Array:
    return np.asarray(x**factor if y is None else np.power(x, y), x.dtype)


def _pow_grad(x: Array, y: Array | None, out_grad: Array, factor: float | None, shapes: Shapes) -> list[Array]:
    if y is None:
        return [np.asarray(out_grad * factor * x ** (factor - 1), x.dtype)] if factor else [np.zeros_like(x)]
    grads = (out_grad * y * np.power(x, y - 1), out_grad * np.power(x, y) * np.log(x))
    return [sum_to(np.asarray(g, x.dtype), shape_of(shapes, name)) for g, name in zip(grads, "xy", strict=True)]


@family(
    "pow",
    "x[], y?[] -> out[]",
    kernel=_pow,
    domain={"x": "positive", "y": "positive"},
    grad=Grad(_pow_grad, reads="x y", shapes=True),
)
def power(x: Shape, y: Shape | None, factor: float | None = None) -> Rule:
    """Raise x to the power y, or to a number."""
    if (y is None) == (factor is None):
        raise RuleError("pow takes either the operand y or the attribute factor")
    odd = factor is not None and factor > 0 and factor % 2 == 1
    return rule("x[...], y?[...] -> out[...]", linear="x" * (factor == 1), monotone="x" * odd)


# Comparisons and logic.
for _name, _kernel in {
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less_than": np.less,
    "less_equal": np.less_equal,
    "greater_than": np.greater,
    "greater_equal": np.greater_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
}.items():
    binary(_name, _kernel, dtype="bool")

binary("bitwise_and", np.bitwise_and)
binary("bitwise_or", np.bitwise_or)
binary("bitwise_xor", np.bitwise_xor)


# Three tensors, and any number of them.
def _where_grad(condition: Array, out_grad: Array) -> tuple[Array, Array]:
    return np.where(condition, out_grad, 0), np.where(condition, 0, out_grad)


def _chosen_dtype(dtypes: Any, attrs: Attrs) -> tuple[str]:
    floating = [dtypes[name] for name in "xy" if "float" in dtypes[name]]
    return (promote(floating) if floating else str(dtypes["x"]),)


op(
    "where",
    "condition[...], x[...], y[...] -> out[...]",
    linear="x + y",
    monotone="x y",
    kernel=np.where,
    dtype=_chosen_dtype,
    grad=_grad(_where_grad, "condition"),
)


def _lerp_grad(x: Array, y: Array, weight: Array, out_grad: Array) -> tuple[Array, Array, Array]:
    return out_grad * (1 - weight), out_grad * weight, out_grad * (y - x)


op(
    "lerp",
    "x[...], y[...], weight[...] -> out[...]",
    linear="x + y",
    kernel=lambda x, y, weight: x + weight * (y - x),
    grad=_grad(_lerp_grad, "x y weight", "x y weight"),
)


def _add_n(inputs: list[Array]) -> Array:
    total = inputs[0].copy()
    for term in inputs[1:]:
        total += term
    return total


def _add_n_grad(out_grad: Array, shapes: Shapes) -> list[Array]:
    return [out_grad] * len(shapes["inputs"] or ())


op(
    "add_n",
    "*inputs[a*] -> out[a*]",
    linear="inputs",
    monotone="inputs",
    kernel=_add_n,
    grad=Grad(_add_n_grad, reads="", shapes=True),
)


# Activations with a second tensor.
def _prelu(x: Array, weight: Array, data_format: str) -> Array:
    return np.asarray(np.where(x > 0, x, _along_channel(weight, x, data_format) * x))


def _along_channel(weight: Array, x: Array, data_format: str) -> Array:
    if weight.size == 1 or data_format[-1] == "C":
        return weight
    return weight.reshape(-1, *[1] * (x.ndim - 2))


def _prelu_grad(x: Array, weight: Array, out_grad: Array, data_format: str) -> tuple[Array, Array]:
    slope = _along_channel(weight, x, data_format)
    x_grad = np.where(x > 0, out_grad, slope * out_grad)
    each = np.where(x > 0, 0, x * out_grad)
    if weight.size == 1:
        return x_grad, each.sum().reshape(1)
    channel = x.ndim - 1 if data_format[-1] == "C" else 1
    return x_grad, each.sum(tuple(dim for dim in range(x.ndim) if dim != channel))


@family("prelu", "x[], weight[] -> out[]", kernel=_prelu, grad=Grad(_prelu_grad, linear={"x": "weight + 1"}))
def prelu(x: Shape, weight: Shape, data_format: str = "NCHW") -> Rule:
    """Let x through above 0, a learnt multiple of it below: one multiple for all, or one per channel."""
    if weight == (1,):
        return rule("x[a*], weight[_] -> out[a*]")
    if data_format[-1] == "C":
        return rule("x[n a* c], weight[c] -> out[n a* c]")
    return rule("x[n c a*], weight[c] -> out[n c a*]")


def _swiglu(x: Array, y: Array | None) -> Array:
    gate, up = (x, y) if y is not None else np.split(x, 2, axis=-1)
    return np.asarray(gate * sigmoid(gate) * up)


def _swiglu_grad(x: Array, y: Array | None, out_grad: Array) -> list[Array]:
    gate, up = (x, y) if y is not None else np.split(x, 2, axis=-1)
    s = sigmoid(gate)
    grads = [out_grad * up * s * (1 + gate * (1 - s)), out_grad * gate * s]
    return grads if y is not None else [np.concatenate(grads, axis=-1)]


@family("swiglu", "x[], y?[] -> out[]", kernel=_swiglu, grad=Grad(_swiglu_grad))
def swiglu(y: Shape | None) -> Rule:
    """silu(x) * y; without y, x holds both, one half of the last dim each."""
    if y is None:
        return rule("x[a* (half c)], y?[_] -> out[a* c]", whole="half", sizes={"half": 2})
    return rule("x[a*], y?[a*] -> out[a*]", linear="y")
