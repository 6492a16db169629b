"""ONNX op -> our ops: element-wise, products, reductions, and the table of everything."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from solver.importers.onnx_fold import dtype_name, known
from solver.importers.onnx_layers import LAYERS
from solver.importers.onnx_recurrent import RECURRENT
from solver.importers.onnx_resize import RESIZE
from solver.importers.onnx_site import Site
from solver.importers.onnx_views import VIEWS
from solver.importers.sketch import Value

Translation: TypeAlias = Callable[[Site], Value | Sequence[Value]]
"""What a node becomes: its results in order (one value where it has one)."""


def _same(op: str) -> Translation:
    """An op of one operand and no attributes."""
    return lambda site: site.emit(op, site.operand(0))


def _binary(op: str) -> Translation:
    return lambda site: site.emit(op, site.operand(0), site.operand(1))


def _with(op: str, **defaults: tuple[str, float]) -> Translation:
    """An op of one operand whose attributes carry other names: ours=(theirs, default)."""
    return lambda site: site.emit(
        op, site.operand(0), **{ours: float(site.attr(theirs, default)) for ours, (theirs, default) in defaults.items()}
    )


def _pow(site: Site) -> Value:
    """A known exponent is an attribute."""
    x, y = site.operand(0), site.operand(1)
    if y.data is not None and y.data.size == 1 and len(y.shape) <= len(x.shape) and x.floating:
        return site.emit("pow", x, factor=float(y.data.item()))
    out = site.emit("pow", x, y)
    return out if out.dtype == x.dtype else site.emit("cast", out, dtype=x.dtype)


def _divide(site: Site) -> Value:
    x, y = site.operand(0), site.operand(1)
    if not x.floating:
        raise site.refuse(f"there is no op here that divides integers ({x.dtype}) as ONNX does, towards zero")
    return site.emit("divide", x, y)


def _folded(op: str) -> Translation:
    """An op of two operands, repeated over any number of them."""

    def translate(site: Site) -> Value:
        total, *others = (site.operand(slot) for slot in range(len(site.operands)))
        for other in others:
            total = site.emit(op, total, other)
        return total

    return translate


def _sum(site: Site) -> Value:
    terms = [site.operand(slot) for slot in range(len(site.operands))]
    if len(terms) == 1:
        return terms[0]
    if len({term.shape for term in terms}) == 1:
        return site.emit("add_n", terms)
    return _folded("add")(site)  # type: ignore[return-value]


def _mean_of(site: Site) -> Value:
    total = _sum(site)
    return site.emit("divide", total, site.number(len(site.operands), total))


def _identity(site: Site) -> Value:
    return site.operand(0)


def _dropout(site: Site) -> list[Value]:
    training = site.has(2) and bool(site.table(2, "training mode")) if site.opset >= 12 else False
    if training or (len(site.node.output) > 1 and site.node.output[1]):
        raise site.refuse("only dropout in inference, without its mask, can be planned")
    return [site.operand(0)]


def _cast(site: Site) -> Value:
    return _as_dtype(site, dtype_name(site.attr("to")))


def _cast_like(site: Site) -> Value:
    return _as_dtype(site, site.operand(1).dtype)


def _as_dtype(site: Site, dtype: str) -> Value:
    x = site.operand(0)
    if x.dtype == dtype:
        return x
    if x.role == "known" and x.data is not None:
        return known(x.data.astype(dtype))
    return site.emit("cast", x, dtype=dtype)


def _clip(site: Site) -> Value:
    bounds: list[float | None] = []
    for slot, name in ((1, "min"), (2, "max")):
        given = site.table(slot, name).item() if site.has(slot) else site.attr(name)
        bounds.append(None if given is None or math.isinf(given) or abs(given) >= np.finfo(np.float32).max else given)
    if bounds == [None, None]:
        return site.operand(0)
    return site.emit("clip", site.operand(0), min=bounds[0], max=bounds[1])


def _gemm(site: Site) -> Value:
    out = site.emit(
        "matmul",
        site.operand(0),
        site.weight(1),
        transpose_x=bool(site.attr("transA", 0)),
        transpose_y=bool(site.attr("transB", 0)),
    )
    alpha, beta, bias = float(site.attr("alpha", 1.0)), float(site.attr("beta", 1.0)), site.weight(2)
    if alpha != 1.0:
        out = site.emit("multiply", out, site.number(alpha, out))
    if bias is None or beta == 0.0:
        return out
    if beta != 1.0:
        bias = site.emit("multiply", bias, site.number(beta, bias))
    return site.emit("add", out, bias)


def _einsum(site: Site) -> Value:
    return site.emit(
        "einsum", [site.operand(slot) for slot in range(len(site.operands))], equation=site.attr("equation")
    )


def _reduce(op: str) -> Callable[[Site], Value]:
    def translate(site: Site) -> Value:
        return _reduced(site, op, site.operand(0))

    return translate


def _reduced(site: Site, op: str, x: Value) -> Value:
    axes = site.ints(1, "axes") or []
    if not axes and site.attr("noop_with_empty_axes", 0):
        return x
    axis = sorted(site.axis(axis, len(x.shape)) for axis in axes) or list(range(len(x.shape)))
    return site.emit(op, x, axis=axis, keepdim=bool(site.attr("keepdims", 1)))


def _reduce_l1(site: Site) -> Value:
    return _reduced(site, "sum", site.emit("abs", site.operand(0)))


def _squares(site: Site) -> Value:
    return _reduced(site, "sum", site.emit("multiply", site.operand(0), site.operand(0)))


def _reduce_l2(site: Site) -> Value:
    return site.emit("sqrt", _squares(site))


def _reduce_log_sum(site: Site) -> Value:
    return site.emit("log", _reduced(site, "sum", site.operand(0)))


def _arg(op: str) -> Translation:
    def translate(site: Site) -> Value:
        x, keepdim = site.operand(0), bool(site.attr("keepdims", 1))
        axis = site.axis(site.attr("axis", 0), len(x.shape))
        if not site.attr("select_last_index", 0):
            return site.emit(op, x, axis=axis, keepdim=keepdim)
        first = site.emit(op, site.emit("flip", x, axis=[axis]), axis=axis, keepdim=keepdim)
        return site.emit("subtract", site.number(x.shape[axis] - 1, first), first)

    return translate


def _softmax(op: str) -> Translation:
    """Before version 13 softmax flattened everything from its axis on."""

    def translate(site: Site) -> Value:
        x = site.operand(0)
        axis = site.axis(site.attr("axis", -1 if site.opset >= 13 else 1), len(x.shape))
        if site.opset >= 13 or math.prod(x.shape[axis + 1 :]) == 1:
            return site.emit(op, x, axis=axis)
        flat = site.emit("reshape", x, shape=[*x.shape[:axis], math.prod(x.shape[axis:])])
        return site.emit("reshape", site.emit(op, flat, axis=axis), shape=list(x.shape))

    return translate


def _gelu(site: Site) -> Value:
    return site.emit("gelu", site.operand(0), approximate=site.attr("approximate", "none") == "tanh")


def _prelu(site: Site) -> Value:
    """X where it is positive, slope * x elsewhere, by the ops that broadcast like ONNX does."""
    x, slope = site.operand(0), site.weight(1)
    positive = site.emit("relu", x)
    negative = site.emit("minimum", x, site.number(0, x))
    return site.emit("add", positive, site.emit("multiply", slope, negative))


def _mod(site: Site) -> Value:
    return site.emit("fmod" if site.attr("fmod", 0) else "remainder", site.operand(0), site.operand(1))


def _cumsum(site: Site) -> Value:
    if site.attr("exclusive", 0) or site.attr("reverse", 0):
        raise site.refuse("exclusive and reverse sums are not supported")
    return site.emit("cumsum", site.operand(0), axis=int(site.table(1, "axis").item()))


def _topk(site: Site) -> Sequence[Value]:
    k = site.attr("k") if site.opset < 10 else int(site.table(1, "k").item())
    return site.emit_all(
        "topk",
        site.operand(0),
        k=k,
        axis=site.attr("axis", -1),
        largest=bool(site.attr("largest", 1)),
        sorted=bool(site.attr("sorted", 1)),
    )


_SAME = {
    **{
        name: name.lower()
        for name in ("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Erf")
    },
    **{
        name: name.lower()
        for name in ("Exp", "Floor", "Log", "Neg", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin")
    },
    **{name: name.lower() for name in ("Sinh", "Softsign", "Sqrt", "Tan", "Tanh", "Mish")},
    "Softplus": "softplus",
    "HardSwish": "hardswish",
    "Not": "logical_not",
    "BitwiseNot": "bitwise_not",
    "IsNaN": "isnan",
}

_BINARY = {
    "Add": "add",
    "Sub": "subtract",
    "Mul": "multiply",
    "MatMul": "matmul",
    "And": "logical_and",
    "Or": "logical_or",
    "Xor": "logical_xor",
    "Equal": "equal",
    "Less": "less_than",
    "LessOrEqual": "less_equal",
    "Greater": "greater_than",
    "GreaterOrEqual": "greater_equal",
    "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
}

TABLE: dict[str, Translation] = {
    **{theirs: _same(ours) for theirs, ours in _SAME.items()},
    **{theirs: _binary(ours) for theirs, ours in _BINARY.items()},
    **{
        theirs: _reduce(ours) for theirs, ours in {"ReduceSum": "sum", "ReduceMean": "mean", "ReduceMax": "max"}.items()
    },
    **{
        theirs: _reduce(ours)
        for theirs, ours in {"ReduceMin": "min", "ReduceProd": "prod", "ReduceLogSumExp": "logsumexp"}.items()
    },
    "ReduceL1": _reduce_l1,
    "ReduceL2": _reduce_l2,
    "ReduceSumSquare": _squares,
    "ReduceLogSum": _reduce_log_sum,
    "ArgMax": _arg("argmax"),
    "ArgMin": _arg("argmin"),
    "Softmax": _softmax("softmax"),
    "LogSoftmax": _softmax("log_softmax"),
    "Div": _divide,
    "Pow": _pow,
    "Sum": _sum,
    "Mean": _mean_of,
    "Max": _folded("maximum"),
    "Min": _folded("minimum"),
    "Identity": _identity,
    "Dropout": _dropout,
    "Cast": _cast,
    "CastLike": _cast_like,
    "Clip": _clip,
    "Gemm": _gemm,
    "Einsum": _einsum,
    "Mod": _mod,
    "CumSum": _cumsum,
    "TopK": _topk,
    "Gelu": _gelu,
    "PRelu": _prelu,
    "LeakyRelu": _with("leaky_relu", negative_slope=("alpha", 0.01)),
    "Elu": _with("elu", alpha=("alpha", 1.0)),
    "Celu": _with("celu", alpha=("alpha", 1.0)),
    "Selu": _with("selu", scale=("gamma", 1.0507009873554805), alpha=("alpha", 1.6732632423543772)),
    "HardSigmoid": _with("hardsigmoid", slope=("alpha", 0.2), offset=("beta", 0.5)),
    "Where": lambda site: site.emit("where", site.operand(0), site.operand(1), site.operand(2)),
    **VIEWS,
    **LAYERS,
    **RECURRENT,
    **RESIZE,
}
"""Every ONNX op that can be translated; the others are inlined where they are defined by a function, or refused."""
