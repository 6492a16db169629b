"""aten: functions of elements, their backward, comparisons and logic."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from solver.importers.aten_site import Lowering, Number, Site, holds
from solver.importers.sketch import Value

Operand: TypeAlias = "Value | Number"


def _unary(op: str) -> Lowering:
    """A function of real numbers; integers are made some first."""
    return lambda site, x: site.emit(op, site.floating(x))


def _exact(op: str) -> Lowering:
    """A function that keeps integers."""
    return lambda site, x: site.emit(op, x)


def _backward(op: str) -> Lowering:
    """The backward of a function that reads one tensor, its operand or result: aten names the gradient first."""
    return lambda site, grad, x: site.emit(op, x, grad, forward_shapes={"x": x.shape})


# --------------------------------------------------------------------------------------------------------- arithmetic


def _operands(site: Site, x: Operand, y: Operand, dtype: str) -> tuple[Value, Value]:
    """Return two operands as tensors that the op meets in a dtype: integers and truths become numbers of it."""
    return _as_numbers(site, x, dtype), _as_numbers(site, y, dtype)


def _as_numbers(site: Site, x: Operand, dtype: str) -> Value:
    if not isinstance(x, Value):
        return site.constant(_held(site, x, dtype), dtype)
    site.held(x, dtype if "float" not in dtype else "float64")
    return x if x.floating and "float" in dtype else site.cast(x, dtype)


def _held(site: Site, number: Number, dtype: str) -> Number:
    """Return a number that a dtype holds."""
    if isinstance(number, float) and not number.is_integer() and not holds(dtype, "float16"):
        raise site.refuse(f"it reads the number {number}, which a result of dtype {dtype} does not hold")
    return number


def _scaled(site: Site, x: Value, scale: Number = 1, bias: Number = 0) -> Value:
    """A multiple of a tensor plus a number, in the dtype of the result."""
    if scale == 1 and bias == 0:
        return _as_numbers(site, x, site.dtype)
    x, scale, bias = _as_numbers(site, x, site.dtype), _held(site, scale, site.dtype), _held(site, bias, site.dtype)
    return site.emit(
        "scale", x, **{key: value for key, value in (("scale", scale), ("bias", bias)) if value != (key == "scale")}
    )


def _sum_of(op: str, sign: int) -> Lowering:
    """X plus, or minus, alpha times y; either may be a number."""

    def lowering(site: Site, x: Operand, y: Operand, alpha: Number = 1) -> Value:
        if not isinstance(y, Value) and isinstance(x, Value):
            return _scaled(site, x, bias=sign * y * alpha)
        if not isinstance(x, Value) and isinstance(y, Value):
            return _scaled(site, y, scale=sign * alpha, bias=x)
        x, y = _operands(site, x, y, site.dtype)
        return site.emit(op, x, y if alpha == 1 else site.emit("scale", y, scale=alpha))

    return lowering


def _reversed_sum(site: Site, x: Operand, y: Operand, alpha: Number = 1) -> Value:
    return _sum_of("subtract", -1)(site, y, x, alpha)  # type: ignore[return-value]


def _multiply(site: Site, x: Operand, y: Operand) -> Value:
    if isinstance(x, Value) and isinstance(y, Value):
        return site.emit("multiply", *_operands(site, x, y, site.dtype))
    tensor, number = (x, y) if isinstance(x, Value) else (y, x)
    if not isinstance(tensor, Value):
        raise TypeError("neither factor is a tensor")
    return _scaled(site, tensor, scale=number)  # type: ignore[arg-type]


def _divide(site: Site, x: Operand, y: Operand) -> Value:
    if isinstance(x, Value) and not isinstance(y, Value):
        return _scaled(site, x, scale=1 / y) if y else site.emit("divide", *_operands(site, x, y, site.dtype))
    return site.emit("divide", *_operands(site, x, y, site.dtype))


def _divide_mode(site: Site, x: Operand, y: Operand, *, rounding_mode: str | None = None) -> Value:
    if rounding_mode is None:
        return _divide(site, x, y)
    op = {"floor": "floor_divide", "trunc": "trunc_divide"}[rounding_mode]
    return site.emit(op, *_operands(site, x, y, site.dtype))


def _binary(op: str) -> Lowering:
    """A function of two tensors, or of a tensor and a number, in the dtype of its result."""
    return lambda site, x, y: site.emit(op, *_operands(site, x, y, site.dtype))


def _pow(site: Site, x: Value, exponent: Number) -> Value:
    x = _as_numbers(site, x, site.dtype)
    if exponent == 1:
        return x
    return site.emit("square", x) if exponent == 2 else site.emit("pow", x, factor=exponent)


def _clamp(site: Site, x: Value, min: Number | None = None, max: Number | None = None) -> Value:
    return site.emit("clip", _as_numbers(site, x, site.dtype), min=min, max=max)


def _clamp_max(site: Site, x: Value, max: Number) -> Value:
    return _clamp(site, x, None, max)


# ----------------------------------------------------------------------------------------------- comparisons and logic


def _compare(op: str) -> Lowering:
    """Compare two tensors, or a tensor and a number, in the dtype that they meet in."""

    def lowering(site: Site, x: Operand, y: Operand) -> Value:
        return site.emit(op, *_met(site, x, y))

    return lowering


def _met(site: Site, x: Operand, y: Operand) -> tuple[Value, Value]:
    """Return two operands as tensors of kinds that compare: truths, integers, or real numbers."""
    tensors = [one for one in (x, y) if isinstance(one, Value)]
    floats = [one.dtype for one in tensors if one.floating]
    if floats:
        return _operands(site, x, y, floats[0])
    if any(isinstance(one, float) and one != int(one) for one in (x, y) if not isinstance(one, Value)):
        return _operands(site, x, y, "float32")
    whole = [one.dtype for one in tensors if one.dtype != "bool"]
    if whole:
        return _operands(site, x, y, max(whole, key=lambda dtype: int(dtype[-1] == "4")))
    return _operands(site, x, y, "bool" if len(tensors) == 2 or isinstance(x, bool) or isinstance(y, bool) else "int64")


def _logical(op: str) -> Lowering:
    """An op on truths; what is none is true where it is not zero."""
    return lambda site, *tensors: site.emit(op, *(_truth(site, x) for x in tensors))


def _truth(site: Site, x: Value) -> Value:
    return x if x.dtype == "bool" else site.emit("not_equal", x, site.constant(0, x.dtype))


def _bitwise(name: str) -> Lowering:
    """An op on bits, which of truths is one of logic."""

    def lowering(site: Site, x: Operand, *others: Operand) -> Value:
        tensors = [_as_numbers(site, one, site.dtype) for one in (x, *others)]
        return site.emit(f"{'logical' if site.dtype == 'bool' else 'bitwise'}_{name}", *tensors)

    return lowering


# ------------------------------------------------------------------------------------------------------------- choices


def _where(site: Site, condition: Value, x: Operand, y: Operand) -> Value:
    return site.emit("where", condition, *_operands(site, x, y, site.dtype))


def _masked_fill(site: Site, x: Value, mask: Value, value: Number) -> Value:
    return site.emit("masked_fill", x, mask, value=value)


def _masked_fill_tensor(site: Site, x: Value, mask: Value, value: Value) -> Value:
    return site.emit("where", mask, site.cast(value, x.dtype), x)


# --------------------------------------------------------------------------------------------------------- activations


def _gelu(site: Site, x: Value, *, approximate: str = "none") -> Value:
    return site.emit("gelu", x, approximate=approximate == "tanh")


def _gelu_backward(site: Site, grad: Value, x: Value, *, approximate: str = "none") -> Value:
    return site.emit("gelu_grad", x, grad, approximate=approximate == "tanh")


def _softplus(site: Site, x: Value, beta: Number = 1, threshold: Number = 20) -> Value:
    return site.emit("softplus", x, beta=float(beta), threshold=float(threshold))


def _softplus_backward(site: Site, grad: Value, x: Value, beta: Number, threshold: Number) -> Value:
    return site.emit("softplus_grad", x, grad, beta=float(beta), threshold=float(threshold))


def _threshold_backward(site: Site, grad: Value, x: Value, threshold: Number) -> Value:
    if threshold == 0:
        return site.emit("relu_grad", x, grad, forward_shapes={"x": x.shape})
    above = site.emit("greater_than", x, site.constant(threshold, x.dtype))
    return site.emit("where", above, grad, site.constant(0, grad.dtype))


def _leaky_relu(site: Site, x: Value, negative_slope: Number = 0.01) -> Value:
    return site.emit("leaky_relu", x, negative_slope=float(negative_slope))


def _leaky_relu_backward(site: Site, grad: Value, x: Value, negative_slope: Number, self_is_result: bool) -> Value:
    return site.emit("leaky_relu_grad", x, grad, negative_slope=float(negative_slope))


def _hardtanh(site: Site, x: Value, min_val: Number = -1, max_val: Number = 1) -> Value:
    return site.emit("hardtanh", x, min=float(min_val), max=float(max_val))


def _hardtanh_backward(site: Site, grad: Value, x: Value, min_val: Number, max_val: Number) -> Value:
    return site.emit("hardtanh_grad", x, grad, min=float(min_val), max=float(max_val))


def _table(make: Callable[[str], Lowering], names: str) -> dict[str, Lowering]:
    """Rows ``theirs=ours``, or one word where both are the same, of overloads that are called default."""
    pairs = (word.partition("=")[::2] for word in names.split())
    return {f"aten.{theirs}.default": make(ours or theirs) for theirs, ours in pairs}


_UNARY = """exp expm1 log log1p log2 log10 sin cos tan asin acos atan sinh cosh asinh acosh atanh erf sqrt rsqrt
    reciprocal sigmoid tanh"""
_EXACT = """neg abs square sign floor ceil round trunc relu silu mish hardswish relu6 log_sigmoid isnan isinf
    isfinite"""
_BACKWARD = """sigmoid_backward=sigmoid_grad tanh_backward=tanh_grad silu_backward=silu_grad
    mish_backward=mish_grad hardswish_backward=hardswish_grad"""
_COMPARISONS = {
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less_than",
    "le": "less_equal",
    "gt": "greater_than",
    "ge": "greater_equal",
}

POINTWISE: dict[str, Lowering] = {
    **_table(_unary, _UNARY),
    **_table(_exact, _EXACT),
    **_table(_backward, _BACKWARD),
    **dict.fromkeys(("aten.add.Tensor", "aten.add.Scalar"), _sum_of("add", 1)),
    **dict.fromkeys(("aten.sub.Tensor", "aten.sub.Scalar"), _sum_of("subtract", -1)),
    **dict.fromkeys(("aten.rsub.Scalar", "aten.rsub.Tensor"), _reversed_sum),
    **dict.fromkeys(("aten.mul.Tensor", "aten.mul.Scalar"), _multiply),
    **dict.fromkeys(("aten.div.Tensor", "aten.div.Scalar"), _divide),
    **dict.fromkeys(("aten.div.Tensor_mode", "aten.div.Scalar_mode"), _divide_mode),
    **dict.fromkeys(("aten.floor_divide.default", "aten.floor_divide.Scalar"), _binary("floor_divide")),
    **dict.fromkeys(("aten.fmod.Scalar", "aten.fmod.Tensor"), _binary("fmod")),
    **dict.fromkeys(("aten.remainder.Scalar", "aten.remainder.Tensor"), _binary("remainder")),
    **dict.fromkeys(("aten.minimum.default", "aten.min.other"), _binary("minimum")),
    **dict.fromkeys(("aten.maximum.default", "aten.max.other"), _binary("maximum")),
    "aten.atan2.default": _binary("atan2"),
    "aten.pow.Tensor_Scalar": _pow,
    **dict.fromkeys(("aten.pow.Tensor_Tensor", "aten.pow.Scalar"), _binary("pow")),
    "aten.clamp.default": _clamp,
    "aten.clamp_min.default": _clamp,
    "aten.clamp_max.default": _clamp_max,
    **{
        f"aten.{theirs}.{kind}": _compare(ours)
        for theirs, ours in _COMPARISONS.items()
        for kind in ("Tensor", "Scalar")
    },
    **_table(_logical, "logical_and logical_or logical_xor logical_not"),
    **dict.fromkeys(("aten.bitwise_and.Tensor", "aten.bitwise_and.Scalar", "aten.__and__.Tensor"), _bitwise("and")),
    **dict.fromkeys(("aten.bitwise_or.Tensor", "aten.bitwise_or.Scalar", "aten.__or__.Tensor"), _bitwise("or")),
    **dict.fromkeys(("aten.bitwise_xor.Tensor", "aten.bitwise_xor.Scalar"), _bitwise("xor")),
    "aten.bitwise_not.default": _bitwise("not"),
    **{f"aten.where.{kind}": _where for kind in ("self", "ScalarOther", "ScalarSelf", "Scalar")},
    "aten.masked_fill.Scalar": _masked_fill,
    "aten.masked_fill.Tensor": _masked_fill_tensor,
    "aten.gelu.default": _gelu,
    "aten.gelu_backward.default": _gelu_backward,
    "aten.softplus.default": _softplus,
    "aten.softplus_backward.default": _softplus_backward,
    "aten.threshold_backward.default": _threshold_backward,
    "aten.leaky_relu.default": _leaky_relu,
    "aten.leaky_relu_backward.default": _leaky_relu_backward,
    "aten.hardtanh.default": _hardtanh,
    "aten.hardtanh_backward.default": _hardtanh_backward,
}
