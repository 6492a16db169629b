"""JAX primitives that compute element by element."""

from __future__ import annotations

import math
from typing import Any

from solver.importers.jax_fold import known, number_of, uniform
from solver.importers.jax_site import Site, Translation
from solver.importers.sketch import Value


def _same(op: str) -> Translation:
    return lambda site: site.pointwise(op, site.operands[0])


def _binary(op: str) -> Translation:
    return lambda site: site.pointwise(op, *site.operands)


def _by_dtype(of_bool: str, of_integers: str) -> Translation:
    return lambda site: site.pointwise(of_bool if site.dtype == "bool" else of_integers, *site.operands)


def _identity(site: Site) -> list[Value]:
    return list(site.operands)


def _filled(site: Site, x: Value) -> Value:
    """X in the shape of the result."""
    return site.expand(x, site.shape)


# ---------------------------------------------------------------------------------------------- products with a number


def scaled(site: Site, x: Value, scale: float = 1.0, bias: float = 0.0) -> Value:
    """Return a multiple of x plus a number."""
    if scale == 1 and bias == 0:
        return x
    return site.pointwise("scale", x, scale=float(scale), bias=float(bias))


def _with_number(site: Site) -> tuple[Value, Any, bool]:
    """The operand that is no number, the number (None where there is none), and whether the number comes first."""
    x, y = site.operands
    if not x.floating or (x.data is not None and y.data is not None):
        return x, None, False
    first, second = number_of(x), number_of(y)
    if second is not None:
        return x, second, False
    return (y, first, True) if first is not None else (x, None, False)


def _add(site: Site) -> Value:
    x, number, _ = _with_number(site)
    if number is None or not math.isfinite(number):
        return site.pointwise("logical_or" if site.dtype == "bool" else "add", *site.operands)
    return _filled(site, scaled(site, x, bias=number))


def _sub(site: Site) -> Value:
    x, number, first = _with_number(site)
    if number is None or not math.isfinite(number):
        return site.pointwise("subtract", *site.operands)
    return _filled(site, scaled(site, x, -1.0, number) if first else scaled(site, x, bias=-number))


def _mul(site: Site) -> Value:
    x, number, _ = _with_number(site)
    if number is None or not math.isfinite(number):
        return site.pointwise("logical_and" if site.dtype == "bool" else "multiply", *site.operands)
    return _filled(site, scaled(site, x, number))


def _div(site: Site) -> Value:
    x, y = site.operands
    if not x.floating:
        return site.pointwise("trunc_divide", x, y)
    _, number, first = _with_number(site)
    if number == 1 and first:
        return _filled(site, site.pointwise("reciprocal", y))
    if number is None or first or not number or not math.isfinite(number):
        return site.pointwise("divide", x, y)
    return _filled(site, scaled(site, x, 1 / number))


# -------------------------------------------------------------------------------------------------------------- powers


def _integer_pow(site: Site) -> Value:
    x, y = site.operands[0], site.params["y"]
    if y == 1:
        return x
    if y == 2:
        return site.pointwise("square", x)
    if y == -1:
        return site.pointwise("reciprocal", x)
    if y == 0:
        return uniform(site.shape, 1, site.dtype)
    return site.pointwise("pow", x, factor=float(y) if x.floating else int(y))


def _pow(site: Site) -> Value:
    x, y = site.operands
    factor = number_of(y)
    if factor is not None and x.floating:
        return _filled(site, site.pointwise("pow", x, factor=float(factor)))
    return site.pointwise("pow", x, site.cast(y, x.dtype))


def _cbrt(site: Site) -> Value:
    x = site.operands[0]
    root = site.pointwise("pow", site.pointwise("abs", x), factor=1 / 3)
    return site.pointwise("multiply", site.pointwise("sign", x), root)


def _exp2(site: Site) -> Value:
    return site.pointwise("exp", scaled(site, site.operands[0], math.log(2)))


def _erfc(site: Site) -> Value:
    return scaled(site, site.pointwise("erf", site.operands[0]), -1.0, 1.0)


def _round(site: Site) -> Value:
    x = site.operands[0]
    if "EVEN" in str(site.params["rounding_method"]):
        return site.pointwise("round", x)
    away = site.pointwise("floor", scaled(site, site.pointwise("abs", x), bias=0.5))
    return site.pointwise("multiply", site.pointwise("sign", x), away)


# ------------------------------------------------------------------------------------------------- choices and extremes


def _extreme(op: str, bound: str, nothing: float) -> Translation:
    """The larger or the smaller: of x and a number a clip, of x and the number beyond all others x itself."""

    def translate(site: Site) -> Value:
        x, number, _ = _with_number(site)
        if site.dtype == "bool":
            return site.pointwise("logical_or" if op == "maximum" else "logical_and", *site.operands)
        if number is None:
            return site.pointwise(op, *site.operands)
        if number == nothing:
            return _filled(site, x)
        if op == "maximum" and number == 0:
            return _filled(site, site.pointwise("relu", x))
        return _filled(site, site.pointwise("clip", x, **{bound: float(number)}))

    return translate


def _clamp(site: Site) -> Value:
    low, x, high = site.operands
    bounds = [number_of(low), number_of(high)]
    if None not in bounds and x.floating:
        return site.pointwise("clip", x, min=bounds[0], max=bounds[1])
    return site.pointwise("minimum", site.pointwise("maximum", x, low), high)


def _select_n(site: Site) -> Value:
    """Of several cases that of the number, or of true and false."""
    which, *cases = site.operands
    chosen = number_of(which)
    if chosen is not None:
        return cases[int(chosen)]
    if len(cases) == 1:
        return cases[0]
    if which.dtype == "bool":
        return site.pointwise("where", which, cases[1], cases[0])
    made = cases[-1]
    for index in range(len(cases) - 2, -1, -1):
        here = site.pointwise("equal", which, site.number(index, which))
        made = site.pointwise("where", here, cases[index], made)
    return _filled(site, made)


def _cast(site: Site) -> Value:
    x, dtype = site.operands[0], str(site.results[0].dtype.name)
    source = site.drawing.thin.get(id(x))
    return site.cast(x, dtype) if source is None else site.pointwise("cast", x, dtype=dtype)


def _precision(site: Site) -> Value:
    site.note(f"{site.where}: the rounding to fewer digits is left out")
    return site.operands[0]


def _shift(op: str) -> Translation:
    """A shift by known bits is a product with, or a quotient by, a power of two."""

    def translate(site: Site) -> Value:
        x, bits = site.operands
        if bits.data is None or (op == "trunc_divide" and not x.dtype.startswith("uint")):
            raise site.refuse("its bits must be known, and a number that is shifted to the right as bits unsigned")
        return site.pointwise(op, x, known(2 ** bits.data.astype("uint64"), x.dtype))

    return translate


def _constraint(site: Site) -> Value:
    site.note("sharding constraints in the function are left out: give pins instead")
    return site.operands[0]


_SAME = {
    "neg": "neg",
    "sign": "sign",
    "floor": "floor",
    "ceil": "ceil",
    "exp": "exp",
    "expm1": "expm1",
    "log": "log",
    "log1p": "log1p",
    "sin": "sin",
    "cos": "cos",
    "tan": "tan",
    "asin": "asin",
    "acos": "acos",
    "atan": "atan",
    "sinh": "sinh",
    "cosh": "cosh",
    "tanh": "tanh",
    "asinh": "asinh",
    "acosh": "acosh",
    "atanh": "atanh",
    "logistic": "sigmoid",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "square": "square",
    "abs": "abs",
    "erf": "erf",
    "erf_inv": "erfinv",
    "lgamma": "lgamma",
    "digamma": "digamma",
    "is_finite": "isfinite",
}

_BINARY = {
    "atan2": "atan2",
    "rem": "fmod",
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less_than",
    "le": "less_equal",
    "gt": "greater_than",
    "ge": "greater_equal",
    "eq_to": "equal",
    "lt_to": "less_than",
    "le_to": "less_equal",
}

ELEMENTWISE: dict[str, Translation] = {
    **{theirs: _same(ours) for theirs, ours in _SAME.items()},
    **{theirs: _binary(ours) for theirs, ours in _BINARY.items()},
    "add": _add,
    "add_any": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "max": _extreme("maximum", "min", -math.inf),
    "min": _extreme("minimum", "max", math.inf),
    "pow": _pow,
    "integer_pow": _integer_pow,
    "cbrt": _cbrt,
    "exp2": _exp2,
    "erfc": _erfc,
    "round": _round,
    "clamp": _clamp,
    "select_n": _select_n,
    "and": _by_dtype("logical_and", "bitwise_and"),
    "or": _by_dtype("logical_or", "bitwise_or"),
    "xor": _by_dtype("logical_xor", "bitwise_xor"),
    "not": _by_dtype("logical_not", "bitwise_not"),
    "shift_left": _shift("multiply"),
    "shift_right_logical": _shift("trunc_divide"),
    "shift_right_arithmetic": _shift("floor_divide"),
    "convert_element_type": _cast,
    "reduce_precision": _precision,
    "copy": _identity,
    "name": _identity,
    "device_put": _identity,
    "stop_gradient": _identity,
    "optimization_barrier": _identity,
    "sharding_constraint": _constraint,
}
"""Primitives whose result holds, for each element, a function of the elements at its place."""
