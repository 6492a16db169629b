"""Fused ops: several in one kernel, with the rules of what they compute."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ops.bind import Shape
from ops.dims import Array
from ops.grad import Grad
from ops.normalization import affine_grads
from ops.notation import RuleError
from ops.op import Attrs, Shapes
from ops.registry import family, op, rule_for
from ops.rule import Rule, rule

# ------------------------------------------------------------------------------------------------------------- products

_ACTIVATIONS = ("none", "relu", "gelu")


def _product(x: Array, y: Array, bias: Array, trans_x: bool, trans_y: bool) -> Array:
    return np.asarray((x.T if trans_x else x) @ (y.T if trans_y else y) + bias)


def _epilogue(x: Array, y: Array, bias: Array, trans_x: bool, trans_y: bool, activation: str) -> Array:
    made = _product(x, y, bias, trans_x, trans_y)
    if activation == "none":
        return made
    return np.asarray(rule_for(activation).kernel(made, **rule_for(activation).attrs), made.dtype)


def _epilogue_grad(
    x: Array,
    y: Array,
    bias: Array | None,
    out_grad: Array,
    trans_x: bool,
    trans_y: bool,
    activation: str,
) -> list[Array]:
    grad = out_grad
    if activation == "relu" and bias is not None:
        grad = out_grad * (_product(x, y, bias, trans_x, trans_y) > 0)
    elif activation == "gelu" and bias is not None:
        grad = rule_for("gelu_grad").kernel(_product(x, y, bias, trans_x, trans_y), out_grad, approximate=False)
    x_grad, y_grad = rule_for("matmul_grad").kernel(x, y, grad, trans_x, trans_y)
    return [x_grad, y_grad, grad.reshape(-1, grad.shape[-1]).sum(0)]


@family(
    "fused_gemm_epilogue",
    "x[], y[], bias[] -> out[]",
    kernel=_epilogue,
    flops=lambda shapes, attrs: 2 * math.prod(shapes["x"]) * shapes["bias"][0],
    grad=Grad(_epilogue_grad, flops=lambda shapes, attrs: 4 * math.prod(shapes["x"]) * shapes["bias"][0]),
)
def fused_gemm_epilogue(x: Shape, trans_x: bool = False, trans_y: bool = False, activation: str = "none") -> Rule:
    """A product, a bias, an activation; a partial sum must not meet an activation."""
    if activation not in _ACTIVATIONS:
        raise RuleError(f"fused_gemm_epilogue has no activation {activation!r}: choose from {', '.join(_ACTIVATIONS)}")
    if trans_x and len(x) != 2:
        raise RuleError(f"fused_gemm_epilogue: x {x} is no matrix, so trans_x cannot be had")
    left, right = "k a" if trans_x else "a* k", "n k" if trans_y else "k n"
    text = f"x[{left}], y[{right}], bias[n] -> out[{'a' if trans_x else 'a*'} n]"
    return rule(text, sum="k", linear="x*y + bias") if activation == "none" else rule(text, whole="k")


def _param_grad(
    x: Array, dout: Array, dweight: Array | None, dbias: Array | None, multi_precision: bool, has_bias: bool
) -> tuple[Array, Array | None]:
    rows, grads = x.reshape(-1, x.shape[-1]), dout.reshape(-1, dout.shape[-1])
    weight = rows.T @ grads
    return (
        np.asarray(weight if dweight is None else dweight + weight, weight.dtype if dweight is None else dweight.dtype),
        (grads.sum(0) if dbias is None else dbias + grads.sum(0)) if has_bias else None,
    )


def _param_shapes(shapes: Shapes, attrs: Attrs) -> tuple[Any, ...]:
    rows, columns = (shapes["x"] or ())[-1], (shapes["dout"] or ())[-1]
    return (rows, columns), (columns,) if attrs["has_bias"] else None


def _param_dtypes(dtypes: Any, attrs: Attrs) -> tuple[str, ...]:
    weight = str(dtypes.get("dweight") or dtypes["x"])
    return (weight, str(dtypes.get("dbias") or dtypes["dout"])) if attrs["has_bias"] else (weight,)


@family(
    "fused_linear_param_grad_add",
    "x[], dout[], dweight?[], dbias?[] -> dweight_out[], dbias_out?[]",
    kernel=_param_grad,
    shape=_param_shapes,
    dtype=_param_dtypes,
    flops=lambda shapes, attrs: 2 * math.prod(shapes["x"]) * shapes["dout"][-1],
    attrs={"multi_precision": True},
)
def fused_linear_param_grad_add(dbias: Shape | None, has_bias: bool = True) -> Rule:
    """The grads of the weight and the bias of a linear layer, added to those there are: rows add up to a P(sum)."""
    if dbias is not None and not has_bias:
        raise RuleError("fused_linear_param_grad_add: dbias is given, but has_bias is False")
    return rule(
        "x[a* k], dout[a* n], dweight?[k n], dbias?[n] -> dweight_out[k n], dbias_out?[n]",
        sum="a*",
        linear="dout + dweight + dbias" if has_bias else "x*dout + dweight",
    )


# ---------------------------------------------------------------------------------------------------------------- norms


def _norm(x: Array, scale: Array, epsilon: float) -> tuple[Array, Array]:
    invvar = 1 / np.sqrt((x * x).mean(-1) + epsilon)
    return np.asarray(x * invvar[..., None] * scale, x.dtype), invvar


def _norm_grad(x: Array, scale: Array, invvar: Array, y_grad: Array, epsilon: float) -> tuple[Array | None, ...]:
    normal = x * invvar[..., None]
    slope = y_grad * scale
    x_grad = invvar[..., None] * (slope - normal * (slope * normal).mean(-1, keepdims=True))
    return x_grad, affine_grads(normal, y_grad, scale, None, range(x.ndim - 1))[0]


op(
    "fused_rms_norm",
    "x[a* c], scale[c] -> y[a* c], invvar[a*]",
    whole="c",
    attrs={"epsilon": 1e-6},
    linear={"y": "scale"},
    kernel=_norm,
    flops=lambda shapes, attrs: 5 * math.prod(shapes["x"]),
    grad=Grad(_norm_grad, reads="x scale invvar", outs="y", linear={"x": "scale"}),
)
