"""Reductions over some dims, or over all of them: sums, means, extrema, norms, and where an extremum lies.

A reduced dim is a factor r0, r1, ...; a kept one k0, k1, ... So the backward of a reduction can say what it cuts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from ops.bind import Shape
from ops.dims import Array, axes_in
from ops.grad import Grad, Linear
from ops.notation import RuleError
from ops.op import Attrs, LocalContext
from ops.registry import family, op
from ops.rule import Rule, rule
from ops.unary import numpy_dtype

Axis: TypeAlias = int | Sequence[int] | None
_EMPTY = "x[] -> out[]"


def reduced_axes(axis: Axis, rank: int) -> tuple[int, ...]:
    """Return the dims that an axis attribute names; all of them where it is None or empty."""
    if axis is None or (not isinstance(axis, int) and len(axis) == 0):
        return tuple(range(rank))
    return tuple(sorted(axes_in(axis, rank, "axis")))


def reduction(x: Shape, axis: Axis, keepdim: bool, kind: str, **clauses: str) -> Rule:
    """Return the rule of a reduction.

    Parameters
    ----------
    x : tuple of int
    axis : int, sequence of int or None
    keepdim : bool
        Whether a reduced dim stays, with size 1.
    kind : str
        What cutting a reduced dim means.
    **clauses : str
        ``linear``, ``monotone``.
    """
    axes = reduced_axes(axis, len(x))
    left = [f"r{d}" if d in axes else f"k{d}" for d in range(len(x))]
    right = [("1" if keepdim else "") if d in axes else f"k{d}" for d in range(len(x))]
    kinds: dict[str, Any] = {kind: " ".join(f"r{d}" for d in axes), **clauses}
    return rule(f"x[{' '.join(left)}] -> out[{' '.join(right)}]", **kinds)


def over(function: Callable[..., Any]) -> Callable[..., Array]:
    """Make a kernel of a numpy reduction that takes ``axis`` as a tuple and ``keepdims``."""

    def kernel(x: Array, axis: Axis, keepdim: bool, **attrs: Any) -> Array:
        return np.asarray(function(x, axis=reduced_axes(axis, x.ndim), keepdims=keepdim, **attrs))

    return kernel


def expanded(reduced: Array, rank: int, axis: Axis, keepdim: bool) -> Array:
    """Give a reduced tensor its reduced dims back, with size 1."""
    return reduced if keepdim else np.expand_dims(reduced, reduced_axes(axis, rank))


def pointwise(slope: Callable[..., Any], reads: str = "x out", whole: bool = False, linear: Linear = None) -> Grad:
    """Return the grad of a reduction whose derivative at an element needs that element and the result only.

    Parameters
    ----------
    slope : callable
        ``(x, out, **attrs) -> array``, the result with its reduced dims.
    reads : str
        ``x out`` or ``x``.
    whole : bool
        Whether the derivative needs all reduced elements after all.
    linear : mapping or callable, optional
        The form of the derivative in what it reads, as for `ops.grad.Grad`.
    """

    def kernel(x: Array, *rest: Array, axis: Axis, keepdim: bool, **attrs: Any) -> Array:
        spread = [expanded(tensor, x.ndim, axis, keepdim) for tensor in rest]
        return np.asarray(spread[-1] * slope(x, *spread[:-1], axis=axis, **attrs), x.dtype)

    return Grad(kernel, reads=reads, whole="r*" * whole, cuts="r*" * (not whole), linear=linear)


# Sums and means.
def _sum_dtype(dtypes: Any, attrs: Attrs) -> tuple[str]:
    """Integers and truth values are counted in int64."""
    if attrs.get("dtype"):
        return (str(attrs["dtype"]),)
    given = str(dtypes["x"])
    return (given if "float" in given or given == "int64" else "int64",)


def _sum(x: Array, axis: Axis, keepdim: bool, dtype: str | None) -> Array:
    """Convert first where that changes between integers and floats; a float stays as wide as it is."""
    floating = np.issubdtype(x.dtype, np.floating)
    given = x if dtype is None or (floating and "float" in dtype) else x.astype(numpy_dtype(dtype))
    return np.asarray(given.sum(reduced_axes(axis, x.ndim), keepdims=keepdim))


def _sum_grad(out_grad: Array, shapes: Any, axis: Axis, keepdim: bool, dtype: str | None) -> Array:
    shape = shapes["x"]
    return np.broadcast_to(expanded(out_grad, len(shape), axis, keepdim), shape).copy()


@family("sum", _EMPTY, kernel=_sum, dtype=_sum_dtype, grad=Grad(_sum_grad, reads="", shapes=True))
def total(x: Shape, x_dtype: str | None, axis: Axis = None, keepdim: bool = False, dtype: str | None = None) -> Rule:
    """Sum; truth values are counted, and a count is no sum of partial truths, nor is one of rounded floats."""
    rounded = x_dtype is not None and "float" in x_dtype and dtype is not None and "float" not in dtype
    return reduction(x, axis, keepdim, "sum", linear="" if x_dtype == "bool" or rounded else "x")


def _blocks(attrs: Attrs, ctx: LocalContext, factors: Sequence[str]) -> dict[str, Any]:
    return {**attrs, "blocks": math.prod(ctx.count(factor) for factor in factors)}


def _mean_local(attrs: Attrs, ctx: LocalContext) -> Attrs:
    """Tell the backward in how many blocks the mean is cut."""
    shape = ctx.operands["x"] or ()
    return _blocks(attrs, ctx, [f"r{d}" for d in reduced_axes(attrs["axis"], len(shape))])


def _mean(x: Array, axis: Axis, keepdim: bool, blocks: int = 1) -> Array:
    return np.asarray(x.mean(reduced_axes(axis, x.ndim), keepdims=keepdim))


def _mean_grad(out_grad: Array, shapes: Any, axis: Axis, keepdim: bool, blocks: int = 1) -> Array:
    shape = shapes["x"]
    count = blocks * math.prod(shape[d] for d in reduced_axes(axis, len(shape)))
    return np.broadcast_to(expanded(out_grad, len(shape), axis, keepdim) / count, shape).astype(out_grad.dtype)


@family("mean", _EMPTY, kernel=_mean, local=_mean_local, grad=Grad(_mean_grad, reads="", cuts="r*", shapes=True))
def mean(x: Shape, axis: Axis = None, keepdim: bool = False) -> Rule:
    """Mean: a cut reduced dim leaves the mean of the blocks."""
    return reduction(x, axis, keepdim, "avg", linear="x")


def _mean_all_local(attrs: Attrs, ctx: LocalContext) -> Attrs:
    return _blocks(attrs, ctx, [f"a{d}" for d in range(len(ctx.operands["x"] or ()))])


def _mean_all_grad(out_grad: Array, shapes: Any, blocks: int = 1) -> Array:
    return np.full(shapes["x"], out_grad / (blocks * math.prod(shapes["x"])), out_grad.dtype)


op(
    "mean_all",
    "x[a*] -> out[]",
    avg="a*",
    linear="x",
    kernel=lambda x, blocks=1: np.asarray(x.mean()),
    local=_mean_all_local,
    grad=Grad(_mean_all_grad, reads="", cuts="a*", shapes=True),
)


@family("count_nonzero", _EMPTY, kernel=over(np.count_nonzero), dtype="int64")
def count_nonzero(x: Shape, axis: Axis = None, keepdim: bool = False) -> Rule:
    """Number of elements that are not zero."""
    return reduction(x, axis, keepdim, "sum")


# Extrema and logic.
def _extremum(name: str, kernel: Callable[..., Any], kind: str, grad: Grad | None, **facts: Any) -> None:
    @family(name, _EMPTY, kernel=over(kernel), grad=grad, **facts)
    def register(x: Shape, axis: Axis = None, keepdim: bool = False) -> Rule:
        return reduction(x, axis, keepdim, kind, monotone="x")


def _shared_slope(x: Array, out: Array, axis: Axis) -> Array:
    """Equal extrema share the grad."""
    hit = x == out
    return np.asarray(hit / hit.sum(reduced_axes(axis, x.ndim), keepdims=True))


_extremum("max", np.max, "max", pointwise(lambda x, out, axis: x == out))
_extremum("min", np.min, "min", pointwise(lambda x, out, axis: x == out))
_extremum("amax", np.max, "max", pointwise(_shared_slope, whole=True))
_extremum("amin", np.min, "min", pointwise(_shared_slope, whole=True))
_extremum("any", np.any, "any", None, dtype="bool")
_extremum("all", np.all, "all", None, dtype="bool")


# Products, norms and moments, which no partial kind puts together.
@family("prod", _EMPTY, kernel=over(np.prod), grad=pointwise(lambda x, out, axis: out / x, linear={"x": "out"}))
def prod(x: Shape, axis: Axis = None, keepdim: bool = False) -> Rule:
    """Product."""
    return reduction(x, axis, keepdim, "whole")


def _logsumexp(x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
    top = x.max(axis, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0).astype(x.dtype)
    out = np.log(np.exp(x - top).sum(axis, keepdims=True)) + top
    return np.asarray(out if keepdims else out.reshape(x.sum(axis).shape))


@family("logsumexp", _EMPTY, kernel=over(_logsumexp), grad=pointwise(lambda x, out, axis: np.exp(x - out)))
def logsumexp(x: Shape, axis: Axis = None, keepdim: bool = False) -> Rule:
    """Logarithm of the sum of exponentials; its grad is a softmax, which needs the result only."""
    return reduction(x, axis, keepdim, "whole")


def _norm(x: Array, axis: tuple[int, ...], keepdims: bool, porder: float) -> Array:
    size = np.abs(x)
    if porder == math.inf:
        return np.asarray(size.max(axis, keepdims=keepdims))
    if porder == -math.inf:
        return np.asarray(size.min(axis, keepdims=keepdims))
    if porder == 0:
        return np.asarray((size != 0).sum(axis, keepdims=keepdims), x.dtype)
    return np.asarray((size**porder).sum(axis, keepdims=keepdims) ** (1 / porder))


def _norm_slope(x: Array, out: Array, axis: Axis, porder: float) -> Array:
    if porder in (math.inf, -math.inf):
        return np.asarray(np.sign(x) * (np.abs(x) == out))
    if porder == 0:
        return np.zeros_like(x)
    return np.asarray(np.sign(x) * (np.abs(x) / out) ** (porder - 1))


def _norm_form(attrs: Attrs) -> dict[str, str]:
    """The derivative of the Euclidean norm is x over it."""
    return {"x": "x"} if attrs["porder"] == 2 else {}


@family("p_norm", _EMPTY, kernel=over(_norm), grad=pointwise(_norm_slope, linear=_norm_form))
def p_norm(x: Shape, porder: float = 2.0, axis: Axis = None, keepdim: bool = False) -> Rule:
    """p-norm of a vector; those of order 0, 1 and infinity are sums and extrema."""
    kind = {math.inf: "max", -math.inf: "min", 0.0: "sum", 1.0: "sum"}.get(float(porder), "whole")
    return reduction(x, axis, keepdim, kind)


def _frobenius(x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
    return np.asarray(np.sqrt((x * x).sum(axis, keepdims=keepdims)))


@family(
    "frobenius_norm",
    _EMPTY,
    kernel=over(_frobenius),
    grad=pointwise(lambda x, out, axis: x / out, linear={"x": "x"}),
)
def frobenius_norm(x: Shape, axis: Axis = None, keepdim: bool = False) -> Rule:
    """Root of the sum of squares."""
    return reduction(x, axis, keepdim, "whole")


def _squared_l2_norm_grad(x: Array, out_grad: Array) -> Array:
    return 2 * x * out_grad


op(
    "squared_l2_norm",
    "x[a*] -> out[1]",
    sum="a*",
    kernel=lambda x: np.asarray((x * x).sum()).reshape(1),
    grad=Grad(_squared_l2_norm_grad, linear={"x": "x"}),
)


def _count(x: Array, axis: Axis, unbiased: bool) -> int:
    return int(math.prod(x.shape[d] for d in reduced_axes(axis, x.ndim))) - unbiased


def _var(x: Array, axis: Axis, keepdim: bool, unbiased: bool) -> Array:
    return np.asarray(x.var(reduced_axes(axis, x.ndim), keepdims=keepdim, ddof=int(unbiased)))


def _centred(x: Array, axis: Axis) -> Array:
    return np.asarray(x - x.mean(reduced_axes(axis, x.ndim), keepdims=True))


def _var_slope(x: Array, axis: Axis, unbiased: bool) -> Array:
    return np.asarray(2 * _centred(x, axis) / _count(x, axis, unbiased))


@family("var", _EMPTY, kernel=_var, grad=pointwise(_var_slope, reads="x", whole=True, linear={"x": "x"}))
def var(x: Shape, axis: Axis = None, unbiased: bool = True, keepdim: bool = False) -> Rule:
    """Variance."""
    return reduction(x, axis, keepdim, "whole")


def _std_slope(x: Array, out: Array, axis: Axis, unbiased: bool) -> Array:
    return np.asarray(_centred(x, axis) / (_count(x, axis, unbiased) * out))


@family(
    "std",
    _EMPTY,
    kernel=lambda x, **attrs: np.sqrt(_var(x, **attrs)),
    grad=pointwise(_std_slope, whole=True, linear={"x": "x"}),
)
def std(x: Shape, axis: Axis = None, unbiased: bool = True, keepdim: bool = False) -> Rule:
    """Standard deviation."""
    return reduction(x, axis, keepdim, "whole")


# Where an extremum lies: an index, which nothing puts together.
def _position(function: Callable[..., Any]) -> Callable[..., Array]:
    def kernel(x: Array, axis: int | None, keepdim: bool, dtype: str) -> Array:
        found = np.asarray(function(x, axis=axis, keepdims=keepdim if x.ndim else False))
        return found.astype(dtype)

    return kernel


def _index_dtype(dtypes: Any, attrs: Attrs) -> tuple[str]:
    return (str(attrs["dtype"]),)


def _argument(name: str, function: Callable[..., Any]) -> None:
    @family(name, _EMPTY, kernel=_position(function), dtype=_index_dtype)
    def register(x: Shape, axis: int | None = None, keepdim: bool = False, dtype: str = "int64") -> Rule:
        if axis is not None and not isinstance(axis, int):
            raise RuleError(f"{name} takes one axis or None, not {axis!r}")
        return reduction(x, axis, keepdim, "whole")


_argument("argmax", np.argmax)
_argument("argmin", np.argmin)
