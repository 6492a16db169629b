"""Functions over every JAX primitive that the importer translates, with the arguments at which they are compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


@dataclass(frozen=True)
class Case:
    """A function and its arguments; ``ops`` must stand in its graph, ``absent`` must not."""

    name: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    ops: str = ""
    absent: str = ""
    tolerance: float = 1e-12


def floats(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape)


def positive(*shape: int) -> np.ndarray[Any, Any]:
    return np.abs(floats(*shape)) + 0.5


def unit(*shape: int) -> np.ndarray[Any, Any]:
    return np.tanh(floats(*shape))


def ints(below: int, *shape: int, seed: int = 0, dtype: str = "int32") -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, below, shape).astype(dtype)


X, Y, IDS = floats(4, 6), floats(4, 6, seed=1), ints(4, 5)

_UNARY = {
    "neg": jnp.negative, "sign": jnp.sign, "floor": jnp.floor, "ceil": jnp.ceil, "exp": jnp.exp, "expm1": jnp.expm1,
    "sin": jnp.sin, "cos": jnp.cos, "tan": jnp.tan, "atan": jnp.arctan, "sinh": jnp.sinh, "cosh": jnp.cosh,
    "tanh": jnp.tanh, "asinh": jnp.arcsinh, "logistic": jax.nn.sigmoid, "square": jnp.square, "abs": jnp.abs,
    "erf": lax.erf, "erfc": lax.erfc, "is_finite": jnp.isfinite, "cbrt": jnp.cbrt, "exp2": jnp.exp2,
    "round_even": jnp.round, "round_away": partial(lax.round, rounding_method=lax.RoundingMethod.AWAY_FROM_ZERO),
    "integer_pow_3": lambda x: x**3, "integer_pow_-1": lambda x: x**-1,
    "integer_pow_0": lambda x: lax.integer_pow(x, 0),
    "integer_pow_-2": lambda x: x**-2, "copy": jnp.copy, "stop_gradient": lax.stop_gradient,
    "reduce_precision": lambda x: lax.reduce_precision(x, 11, 52),
}  # fmt: skip
_POSITIVE = {
    "log": jnp.log, "log1p": jnp.log1p, "sqrt": jnp.sqrt, "rsqrt": lax.rsqrt, "lgamma": lax.lgamma,
    "digamma": lax.digamma, "pow": lambda x: x**1.5, "pow_tensor": lambda x: x**x,
    "pow_int": lambda x: x ** jnp.arange(6),
}  # fmt: skip
_UNIT = {"asin": jnp.arcsin, "acos": jnp.arccos, "atanh": jnp.arctanh, "erf_inv": lax.erf_inv}
_BINARY = {
    "add": jnp.add, "sub": jnp.subtract, "mul": jnp.multiply, "div": jnp.divide, "max": jnp.maximum, "min": jnp.minimum,
    "atan2": jnp.arctan2, "rem": jnp.fmod, "eq": jnp.equal, "ne": jnp.not_equal, "lt": jnp.less, "le": jnp.less_equal,
    "gt": jnp.greater, "ge": jnp.greater_equal,
}  # fmt: skip
_NUMBERS = {
    "add_number": lambda x: x + 2, "sub_number": lambda x: x - 2, "number_sub": lambda x: 2 - x,
    "mul_number": lambda x: 3 * x,
    "div_number": lambda x: x / 4, "number_div": lambda x: 4 / x, "reciprocal": lambda x: 1 / x,
    "max_number": lambda x: jnp.maximum(x, 0.5), "min_number": lambda x: jnp.minimum(0.5, x), "relu": jax.nn.relu,
    "max_nothing": lambda x: jnp.maximum(x, -jnp.inf), "mul_inf": lambda x: jnp.where(x > 9, x * jnp.inf, x),
    "clamp": lambda x: lax.clamp(-0.5, x, 0.5), "clip": lambda x: jnp.clip(x, -0.5, 0.5),
    "clamp_tensors": lambda x: lax.clamp(-jnp.abs(x) / 2, x, jnp.full((4, 6), 0.3)),
}  # fmt: skip

ELEMENTWISE = [
    *(Case(name, fn, (X,)) for name, fn in (_UNARY | _NUMBERS).items()),
    *(Case(name, fn, (positive(4, 6),)) for name, fn in _POSITIVE.items()),
    *(Case(name, fn, (unit(4, 6),)) for name, fn in _UNIT.items()),
    *(Case(name, fn, (X, Y)) for name, fn in _BINARY.items()),
    *(Case(f"{name}_broadcast", fn, (X, floats(6))) for name, fn in _BINARY.items()),
    Case("add_ints", lambda a, b: a + b * 3 - 2, (ints(9, 4), ints(9, 4, seed=1))),
    Case("div_ints", lambda a, b: lax.div(a - 4, b + 1), (ints(9, 4), ints(9, 4, seed=1))),
    Case("rem_ints", lambda a, b: lax.rem(a - 4, b + 1), (ints(9, 4), ints(9, 4, seed=1))),
    Case("pow_ints", lambda a: a**3, (ints(9, 4),)),
    Case("max_ints", lambda a: jnp.maximum(a, 3), (ints(9, 4),)),
    Case("logic", lambda a, b: ~(a > 0) & (b > 0) | ((a > 0) ^ (b < 0)), (X, Y)),
    Case("bits", lambda a, b: ~a & b | (a ^ b), (ints(99, 4), ints(99, 4, seed=1))),
    Case("shifts", lambda a: (a << 3, a >> 2), (ints(99, 4, dtype="uint32"),)),
    Case("shift_signed", lambda a: (a - 50) >> 2, (ints(99, 4),)),
    Case("where", lambda a, b: jnp.where(a > 0, a, b), (X, Y)),
    Case("where_number", lambda a: jnp.where(a > 0, a, 7.0), (X,)),
    Case("where_row", lambda a, b: jnp.where(b > 0, a, 0.0), (X, floats(6))),
    Case("select_known", lambda a: jnp.where(np.ones((4, 6), bool), a, 0.0), (X,), absent="where"),
    Case("select_n_three", lambda i, a, b, c: lax.select_n(i, a, b, c), (ints(3, 4, 6), X, Y, X + Y)),
    Case("select_scalar", lambda a, b: lax.select_n(a.sum() > 0, a, b), (X, Y)),
    Case("cast", lambda a, i: (a.astype("int32"), i.astype("float64"), i.astype("int8"), i > 4), (X, ints(9, 4))),
    Case("cast_float", lambda a: (a.astype("float32"), a.astype("bfloat16") * 2), (X,), tolerance=1e-2),
    Case("cast_bool", lambda a: (a > 0).astype("float64") * a, (X,)),
    Case("barrier", lambda a, b: lax.optimization_barrier((a, b))[0] * 2, (X, Y)),
    Case("scalars", lambda a, b: a * b + 1, (np.float64(2), np.float64(3))),
    Case("two_rows", lambda a, b: a[:, None] + b[None, :], (floats(4), floats(6))),
    Case("thin", lambda a, b: jnp.exp(jnp.broadcast_to(a, (4, 6))) * b, (floats(6), X)),
]

VIEWS = [
    Case("reshape", lambda x: x.reshape(8, 3), (X,)),
    Case("reshape_order", lambda x: lax.reshape(x, (24,), (1, 0)), (X,)),
    Case("transpose", lambda x: x.transpose(2, 0, 1), (floats(2, 3, 4),), "transpose"),
    Case("squeeze", lambda x: lax.squeeze(x, (0, 2)), (floats(1, 3, 1),), "reshape"),
    Case("expand_dims", lambda x: x[:, None], (X,)),
    Case("broadcast", lambda x: jnp.broadcast_to(x[:, None], (4, 3, 6)), (X,), "expand"),
    Case("broadcast_dims", lambda x: lax.broadcast_in_dim(x, (6, 2, 4), (2,)), (floats(4),), "expand"),
    Case("rev", lambda x: lax.rev(x, (1, 0)), (X,), "flip"),
    Case("rev_twice", lambda x: lax.rev(lax.rev(x, (1,)), (1,)) * 2, (X,), absent="flip"),
    Case("slice", lambda x: x[1:3, 2:], (X,), "slice"),
    Case("slice_stride", lambda x: x[::2, 1::3], (X,), "strided_slice"),
    Case("pick", lambda x: x[2], (X,)),
    Case("pad", lambda x: jnp.pad(x, ((1, 2), (0, 3)), constant_values=2.0), (X,), "pad"),
    Case("pad_between", lambda x: lax.pad(x, 0.0, ((1, 2, 1), (0, 3, 2))), (X,)),
    Case("pad_negative", lambda x: lax.pad(x, 1.0, ((-1, 2, 0), (-2, -1, 1))), (X,)),
    Case("concatenate", lambda x, y: jnp.concatenate([x, y, x], 1), (X, Y), "concat"),
    Case("concatenate_zeros", lambda x: jnp.concatenate([x, jnp.zeros((3, 6))]), (X,), "concat full"),
    Case("stack", lambda x, y: jnp.stack([x, y], 1), (X, Y)),
    Case("unstack", lambda x: jnp.unstack(x, axis=1), (X,), "unbind"),
    Case("tile", lambda x: jnp.tile(x, (2, 3)), (X,), "tile"),
    Case("split", lambda x: jnp.split(x, [2, 3], 1), (X,), "split"),
    Case("iota", lambda x: x + jnp.arange(6) + lax.broadcasted_iota("float64", (4, 1), 0), (X,), absent="arange"),
    Case("iota_large", lambda x: x * jnp.tril(jnp.ones((300, 300))), (floats(300, 300),), "greater_equal", "arange"),
    Case("eye", lambda x: x @ jnp.eye(6), (X,), "matmul"),
    Case("tri", lambda x: jnp.where(jnp.tri(4, 6, dtype=bool), x, -1e9), (X,), "where", "arange"),
    Case("constant_output", lambda x: (x, jnp.zeros((4, 2)), jnp.arange(3)), (X,)),
    Case("argument_output", lambda x, y: (x, y + 1, x), (X, Y)),
    Case("captured", lambda x: x @ jnp.asarray(floats(6, 3, seed=5)), (X,)),
]


def _contract(numbers: Any, *shapes: tuple[int, ...], op: str) -> Case:
    args = tuple(floats(*shape, seed=at) for at, shape in enumerate(shapes))
    return Case(f"dot_general {numbers}", partial(lax.dot_general, dimension_numbers=numbers), args, op)


PRODUCTS = [
    _contract((((1,), (0,)), ((), ())), (4, 6), (6, 3), op="matmul"),
    _contract((((0,), (0,)), ((), ())), (6, 4), (6, 3), op="matmul"),
    _contract((((1,), (1,)), ((), ())), (4, 6), (3, 6), op="matmul"),
    _contract((((0,), (1,)), ((), ())), (6, 4), (3, 6), op="matmul"),
    _contract((((2,), (0,)), ((), ())), (2, 4, 6), (6, 3), op="matmul"),
    _contract((((2,), (1,)), ((), ())), (2, 4, 6), (3, 6), op="matmul"),
    _contract((((1,), (0,)), ((), ())), (2, 6, 4), (6, 3), op="einsum"),
    _contract((((0, 1), (0, 1)), ((), ())), (2, 4, 6), (2, 4, 3), op="einsum"),
    _contract((((2,), (1,)), ((0,), (0,))), (2, 4, 6), (2, 6, 3), op="matmul"),
    _contract((((1,), (2,)), ((0,), (0,))), (2, 6, 4), (2, 3, 6), op="matmul"),
    _contract((((3,), (3,)), ((0, 1), (0, 1))), (2, 3, 4, 6), (2, 3, 5, 6), op="matmul"),
    _contract((((3,), (3,)), ((0, 2), (0, 2))), (2, 4, 3, 6), (2, 5, 3, 6), op="einsum"),
    _contract((((1,), (2,)), ((2,), (0,))), (4, 6, 2), (2, 3, 6), op="einsum"),
    _contract((((0,), (0,)), ((), ())), (6,), (6,), op="einsum"),
    _contract((((1,), (0,)), ((), ())), (4, 6), (6,), op="einsum"),
    _contract((((), ()), ((), ())), (4,), (6,), op="einsum"),
    Case("dot_int8", lambda a, b: lax.dot(a, b, preferred_element_type="int32"),
         (ints(99, 4, 6, dtype="int8"), ints(99, 6, 3, dtype="int8"))),
    Case("einsum", lambda x, y: jnp.einsum("bshd,bthd->bhst", x, y), (floats(2, 4, 3, 5), floats(2, 6, 3, 5, seed=1))),
    *(Case(name, partial(fn, axis=1), (X,)) for name, fn in {
        "sum": jnp.sum, "max": jnp.max, "min": jnp.min, "prod": jnp.prod, "mean": jnp.mean, "var": jnp.var,
        "argmax": jnp.argmax, "argmin": jnp.argmin, "cumsum": jnp.cumsum, "cumprod": jnp.cumprod, "sort": jnp.sort,
        "argsort": jnp.argsort, "logsumexp": jax.nn.logsumexp, "softmax": jax.nn.softmax}.items()),
    Case("ragged_dot", lax.ragged_dot, (floats(12, 8), floats(3, 8, 5), np.array([5, 0, 6])), "grouped_mm"),
    Case("ragged_dot_grad", jax.grad(lambda x, w, n: jnp.sum(lax.ragged_dot(x, w, n) ** 2), (0, 1)),
         (floats(12, 8), floats(3, 8, 5), np.array([5, 0, 7])), "grouped_mm"),
    Case("searchsorted", lambda x: jnp.searchsorted(np.array([-1.0, 0.0, 0.5]), x), (X,)),
    Case("sum_all", lambda x: (jnp.sum(x), jnp.sum(x, (0, 2), keepdims=True)), (floats(2, 3, 4),)),
    Case("sum_ints", lambda a: a.sum(0), (ints(9, 4, 6),)),
    Case("any_all", lambda x: (jnp.any(x > 1, 0), jnp.all(x > -1, 1)), (X,), "any all"),
    *(Case(f"{fn.__name__}{'_reverse' * reverse}", partial(fn, axis=1, reverse=reverse), (X,))
      for fn in (lax.cumsum, lax.cumprod, lax.cummax, lax.cummin, lax.cumlogsumexp) for reverse in (False, True)),
    Case("sort_axis0", lambda x: jnp.sort(x, 0), (X,), "sort"),
    Case("sort_pairs", lambda a, x: lax.sort((a, x), num_keys=1), (ints(3, 4, 6), X)),
    Case("sort_two_keys", lambda a, x, y: lax.sort((a, x, y), num_keys=2), (ints(2, 4, 6), X, Y)),
    Case("lexsort", lambda a, b: jnp.lexsort((a, b)), (ints(3, 9), ints(3, 9, seed=1))),
    Case("top_k", lambda x: lax.top_k(x, 3), (X,), "topk"),
    Case("top_k_axis", lambda x: lax.top_k(x, 3, axis=0), (X,), "topk"),
    Case("top_k_ties", lambda a: lax.top_k(a, 4), (ints(3, 4, 6),), "topk"),
]  # fmt: skip
