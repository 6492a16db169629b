"""aten: tensors made from nothing, from a shape, or by chance, and triangles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from solver.importers.aten_site import Lowering, Number, Site
from solver.importers.sketch import Value


def _filled(value: Number) -> Lowering:
    """A shape filled with a value; what else the op is given, dtype and device, the capture has settled."""

    def lowering(site: Site, *_: Any, **__: Any) -> Value:
        return _full_of(site, value)

    return lowering


def _full_of(site: Site, value: Number) -> Value:
    shape, dtype = list(site.spec.shape), site.dtype
    if value in (0, 1):
        return site.emit("ones" if value else "zeros", shape=shape, dtype=dtype)
    return site.emit("full", shape=shape, dtype=dtype, fill_value=value)


def _full(site: Site, size: Sequence[int], fill_value: Number, **_: Any) -> Value:
    return _full_of(site, fill_value)


def _fill(site: Site, x: Value, value: Value | Number) -> Value:
    return site.expand(site.cast(site.tensor(value, x.dtype), x.dtype), x.shape)


def _constant(site: Site, values: Sequence[Number]) -> Value:
    """The tensor whose values the capture holds, in row-major order."""
    if np.size(values) != math.prod(site.spec.shape):
        raise site.refuse(f"it holds {np.size(values)} values, and the capture says shape {site.spec.shape}")
    return site.constant(np.reshape(values, site.spec.shape), site.dtype)


def _full_like(site: Site, x: Value, fill_value: Number, **_: Any) -> Value:
    return _full_of(site, fill_value)


def _scalar_tensor(site: Site, s: Number, **_: Any) -> Value:
    return site.constant(s, site.dtype)


def _arange(site: Site, start: Number, end: Number, step: Number = 1, **_: Any) -> Value:
    return site.emit("arange", start=start, end=end, step=step, dtype=site.dtype)


def _arange_to(site: Site, end: Number, **_: Any) -> Value:
    return _arange(site, 0, end)


def _iota(site: Site, length: int, *, start: int = 0, step: int = 1, **_: Any) -> Value:
    return _arange(site, start, start + length * step, step)


def _triangle(op: str) -> Lowering:
    return lambda site, x, diagonal=0: site.emit(op, x, diagonal=diagonal)


# --------------------------------------------------------------------------------------------------------- by chance


def _dropout(site: Site, x: Value, p: float, train: bool) -> Value:
    return site.emit("dropout", x, p=p, seed=_seed(site)) if train and p else x


def _native_dropout(site: Site, x: Value, p: float, train: bool | None) -> list[Value]:
    """The result, and which elements were kept."""
    if not p or train is False:
        return [x, site.emit("ones", shape=list(x.shape), dtype="bool")]
    chance = site.emit("full", shape=list(x.shape), dtype=x.dtype, fill_value=1 - p)
    kept = site.emit("bernoulli", chance, seed=_seed(site))
    out = site.emit("scale", site.emit("multiply", x, kept), scale=1 / (1 - p) if p < 1 else 0)
    return [out, site.cast(kept, "bool")]


def _native_dropout_backward(site: Site, grad: Value, mask: Value, scale: float) -> Value:
    return site.emit("scale", site.emit("multiply", grad, site.cast(mask, grad.dtype)), scale=scale)


def _seed(site: Site) -> int:
    """A seed of its own for each node that draws."""
    return sum(step.op in ("dropout", "bernoulli", "uniform", "gaussian") for step in site.sketch.steps)


def _uniform(site: Site, *_: Any, **__: Any) -> Value:
    return site.emit("uniform", shape=list(site.spec.shape), dtype=site.dtype, min=0.0, max=1.0, seed=_seed(site))


def _gaussian(site: Site, *_: Any, **__: Any) -> Value:
    return site.emit("gaussian", shape=list(site.spec.shape), dtype=site.dtype, mean=0.0, std=1.0, seed=_seed(site))


def _bernoulli(site: Site, x: Value, p: float | None = None, **_: Any) -> Value:
    chance = x if p is None else site.emit("full", shape=list(x.shape), dtype=x.dtype, fill_value=p)
    return site.emit("bernoulli", chance, seed=_seed(site))


CREATION: dict[str, Lowering] = {
    **dict.fromkeys(
        (
            "aten.zeros.default",
            "aten.zeros_like.default",
            "aten.new_zeros.default",
            "aten.empty.memory_format",
            "aten.empty_like.default",
            "aten.new_empty.default",
            "aten.new_empty_strided.default",
            "aten.empty_strided.default",
        ),
        _filled(0),
    ),
    **dict.fromkeys(("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default"), _filled(1)),
    "aten.full.default": _full,
    "aten.full_like.default": _full_like,
    **dict.fromkeys(("aten.fill.Tensor", "aten.fill.Scalar"), _fill),
    "aten.scalar_tensor.default": _scalar_tensor,
    "constant": _constant,
    "aten.arange.default": _arange_to,
    "aten.arange.start": _arange,
    "aten.arange.start_step": _arange,
    "prims.iota.default": _iota,
    "aten.tril.default": _triangle("tril"),
    "aten.triu.default": _triangle("triu"),
    "aten.dropout.default": _dropout,
    "aten.native_dropout.default": _native_dropout,
    "aten.native_dropout_backward.default": _native_dropout_backward,
    **dict.fromkeys(("aten.rand.default", "aten.rand_like.default"), _uniform),
    **dict.fromkeys(("aten.randn.default", "aten.randn_like.default"), _gaussian),
    **dict.fromkeys(("aten.bernoulli.default", "aten.bernoulli.p"), _bernoulli),
}
