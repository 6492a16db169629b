"""aten: reductions, running sums, orders, counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

from solver.importers.aten_site import Lowering, Number, Site
from solver.importers.sketch import Value

Dims: TypeAlias = "int | Sequence[int] | None"


def _reduced(site: Site, op: str, x: Value, dim: Dims, keepdim: bool, **attrs: Any) -> Value:
    """Reduce some dims, or all where none is named; of rank 0 there is nothing to reduce."""
    axes = site.axes(dim, len(x.shape))
    return site.emit(op, x, axis=axes, keepdim=keepdim, **attrs) if axes else x


def _sum(site: Site, x: Value, dim: Dims = None, keepdim: bool = False, *, dtype: str | None = None) -> Value:
    """Integers and truths are counted in whole numbers; a float is cast first where another dtype is asked for."""
    return _reduced(site, "sum", site.promoted(x, dtype), dim, keepdim)


def _sum_all(site: Site, x: Value, *, dtype: str | None = None) -> Value:
    return _sum(site, x, dtype=dtype)


def _mean(site: Site, x: Value, dim: Dims = None, keepdim: bool = False, *, dtype: str | None = None) -> Value:
    return _reduced(site, "mean", site.promoted(x, dtype), dim, keepdim)


def _mean_all(site: Site, x: Value, *, dtype: str | None = None) -> Value:
    return _mean(site, x, dtype=dtype)


def _over(op: str) -> Lowering:
    def lowering(site: Site, x: Value, dim: Dims = None, keepdim: bool = False) -> Value:
        return _reduced(site, op, x, dim, keepdim)

    return lowering


def _of_truths(op: str) -> Lowering:
    def lowering(site: Site, x: Value, dim: Dims = None, keepdim: bool = False) -> Value:
        truths = x if x.dtype == "bool" else site.emit("not_equal", x, site.constant(0, x.dtype))
        return _reduced(site, op, truths, dim, keepdim)

    return lowering


def _extremum(op: str) -> Lowering:
    """The largest or smallest along a dim, and where it lies."""

    def lowering(site: Site, x: Value, dim: int, keepdim: bool = False) -> list[Value]:
        axis = site.axis(dim, len(x.shape))
        if not x.shape:
            return [x, site.constant(0, "int64")]
        found = site.emit(op, x, axis=[axis], keepdim=keepdim)
        return [found, site.emit(f"arg{op}", x, axis=axis, keepdim=keepdim)]

    return lowering


def _argument(op: str) -> Lowering:
    def lowering(site: Site, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
        return site.emit(op, x, axis=None if dim is None else site.axis(dim, len(x.shape)), keepdim=keepdim)

    return lowering


def _variance(site: Site, x: Value, dim: Dims, correction: Number | None, keepdim: bool) -> Value:
    """The variance by any correction: ours are 0 and 1."""
    count = math.prod(x.shape[axis] for axis in site.axes(dim, len(x.shape)))
    given = 1 if correction is None else correction
    if given in (0, 1):
        return _reduced(site, "var", x, dim, keepdim, unbiased=given == 1)
    plain = _reduced(site, "var", x, dim, keepdim, unbiased=False)
    return site.emit("scale", plain, scale=count / max(count - given, 0) if count > given else math.inf)


def _var(site: Site, x: Value, dim: Dims = None, *, correction: Number | None = None, keepdim: bool = False) -> Value:
    return _variance(site, x, dim, correction, keepdim)


def _var_mean(
    site: Site, x: Value, dim: Dims = None, *, correction: Number | None = None, keepdim: bool = False
) -> list[Value]:
    return [_variance(site, x, dim, correction, keepdim), _reduced(site, "mean", x, dim, keepdim)]


def _cumsum(site: Site, x: Value, dim: int, *, dtype: str | None = None) -> Value:
    x = site.promoted(x, dtype)
    return site.emit("cumsum", x, axis=site.axis(dim, len(x.shape))) if x.shape else x


def _topk(site: Site, x: Value, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Sequence[Value]:
    return site.emit_all("topk", x, k=k, axis=site.axis(dim, len(x.shape)), largest=largest, sorted=sorted)


def _sort(site: Site, x: Value, dim: int = -1, descending: bool = False) -> list[Value]:
    attrs = {"axis": site.axis(dim, len(x.shape)), "descending": descending, "stable": True}
    return [site.emit(op, x, **attrs) for op in ("sort", "argsort")]


def _sort_stable(site: Site, x: Value, *, stable: bool | None, dim: int = -1, descending: bool = False) -> list[Value]:
    return _sort(site, x, dim, descending)


def _argsort(site: Site, x: Value, dim: int = -1, descending: bool = False) -> Value:
    return _sort(site, x, dim, descending)[1]


def _histc(site: Site, x: Value, bins: int = 100, min: Number = 0, max: Number = 0) -> Value:
    return site.cast(site.emit("histogram", x, bins=bins, min=min, max=max), x.dtype)


REDUCTIONS: dict[str, Lowering] = {
    "aten.sum.default": _sum_all,
    "aten.sum.dim_IntList": _sum,
    "aten.mean.default": _mean_all,
    "aten.mean.dim": _mean,
    "aten.amax.default": _over("amax"),
    "aten.amin.default": _over("amin"),
    "aten.max.default": _over("max"),
    "aten.min.default": _over("min"),
    "aten.logsumexp.default": _over("logsumexp"),
    "aten.max.dim": _extremum("max"),
    "aten.min.dim": _extremum("min"),
    **dict.fromkeys(("aten.any.default", "aten.any.dim", "aten.any.dims"), _of_truths("any")),
    **dict.fromkeys(("aten.all.default", "aten.all.dim", "aten.all.dims"), _of_truths("all")),
    "aten.argmax.default": _argument("argmax"),
    "aten.argmin.default": _argument("argmin"),
    "aten.var.correction": _var,
    "aten.var_mean.correction": _var_mean,
    "aten.cumsum.default": _cumsum,
    "aten.topk.default": _topk,
    "aten.sort.default": _sort,
    "aten.sort.stable": _sort_stable,
    "aten.argsort.default": _argsort,
    "aten.histc.default": _histc,
}
