"""aten: products that sum over an index, attention, grouped products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from solver.importers.aten_site import Lowering, Number, Saved, Site
from solver.importers.sketch import Value


def _untransposed(x: Value) -> tuple[Value, bool]:
    """Return what a tensor is the transpose of in its last two dims, and whether it is one."""
    if x.maker is not None and x.maker.op == "transpose":
        rank = len(x.shape)
        if x.maker.attrs["perm"] == [*range(rank - 2), rank - 1, rank - 2]:
            return next(x.maker.inputs()), True
    return x, False


def _product(site: Site, x: Value, y: Value, plain: str = "matmul") -> Value:
    """A product of matrices; a transposed one is read as it was before."""
    (left, over), (right, other) = _untransposed(x), _untransposed(y)
    turned: dict[str, Any] = {key: True for key, is_so in (("transpose_x", over), ("transpose_y", other)) if is_so}
    return site.emit("matmul", left, right, **turned) if turned else site.emit(plain, x, y)


def _mm(site: Site, x: Value, y: Value) -> Value:
    return _product(site, x, y)


def _bmm(site: Site, x: Value, y: Value) -> Value:
    return _product(site, x, y, "bmm")


def _matmul(site: Site, x: Value, y: Value) -> Value:
    """Vectors are matrices of one row or column for as long as the product takes."""
    left = site.reshape(x, (1, *x.shape)) if len(x.shape) == 1 else x
    right = site.reshape(y, (*y.shape, 1)) if len(y.shape) == 1 else y
    return site.reshape(_product(site, left, right), site.spec.shape)


def _addmm(site: Site, bias: Value, x: Value, y: Value, *, beta: Number = 1, alpha: Number = 1) -> Value:
    scales = {key: value for key, value in (("alpha", float(alpha)), ("beta", float(beta))) if value != 1}
    return site.emit("addmm", bias, x, y, **scales)


def _baddbmm(site: Site, bias: Value, x: Value, y: Value, *, beta: Number = 1, alpha: Number = 1) -> Value:
    scales = {key: value for key, value in (("alpha", float(alpha)), ("beta", float(beta))) if value != 1}
    return site.emit("baddbmm", site.expand(bias, site.spec.shape), x, y, **scales)


def _linear(site: Site, x: Value, weight: Value, bias: Value | None = None) -> Value:
    """The weight is [out, in]."""
    return site.emit("linear", x, site.transpose(weight, [1, 0]), bias)


def _einsum(site: Site, equation: str, tensors: Sequence[Value], *, path: Any = None) -> Value:
    return site.emit("einsum", list(tensors), equation=equation.replace(" ", ""))


def _mv(site: Site, x: Value, vec: Value) -> Value:
    return site.emit("mv", x, vec)


def _dot(site: Site, x: Value, y: Value) -> Value:
    return site.emit("dot", x, y)


# ----------------------------------------------------------------------------------------------------------- attention

_HEADS = [0, 2, 1, 3]
"""Heads are dim 1 in aten and dim 2 here."""


def _attend(
    site: Site,
    query: Value,
    key: Value,
    value: Value,
    mask: Value | None,
    dropout: float,
    causal: bool,
    scale: float | None,
    grad: Value | None = None,
) -> tuple[Value, ...]:
    """Attention, or its backward where a gradient is given, with the dims as they are here."""
    if len(query.shape) != 4:
        raise site.refuse(f"attention takes [batch, heads, sequence, features], not {query.shape}")
    if dropout:
        raise site.refuse(
            f"attention with dropout {dropout} is random: capture the model with 0, or in evaluation mode"
        )
    queries, keys = query.shape[2], key.shape[2]
    if causal and queries != keys:
        seen = site.constant(np.tri(queries, keys, dtype=bool), "bool")
        mask, causal = seen, False
    attrs: dict[str, Any] = {name: given for name, given in (("is_causal", causal), ("scale", scale)) if given}
    given = [site.transpose(x, _HEADS) for x in (query, key, value)]
    if grad is None:
        made = site.emit_all("scaled_dot_product_attention", *given, mask, **attrs)
    else:
        made = site.emit_all("scaled_dot_product_attention_grad", *given, mask, site.transpose(grad, _HEADS), **attrs)
    return tuple(site.transpose(x, _HEADS) for x in made)


def _flash(
    site: Site,
    query: Value,
    key: Value,
    value: Value,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Value | None = None,
    scale: float | None = None,
) -> list[Value | Saved]:
    (out,) = _attend(site, query, key, value, attn_mask, dropout_p, is_causal, scale)
    return [out, Saved("the logsumexp of attention", out)]


def _flash_backward(
    site: Site,
    grad_out: Value,
    query: Value,
    key: Value,
    value: Value,
    out: Value,
    logsumexp: Saved,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Value | None = None,
    scale: float | None = None,
) -> Sequence[Value]:
    return _attend(site, query, key, value, attn_mask, dropout_p, is_causal, scale, grad_out)


def _attention(
    site: Site,
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:
    return _attend(site, query, key, value, attn_mask, dropout_p, is_causal, scale)[0]


# ----------------------------------------------------------------------------------------------------- grouped products


def _grouped_mm(
    site: Site,
    mat_a: Value,
    mat_b: Value,
    offs: Value | None = None,
    bias: Value | None = None,
    out_dtype: str | None = None,
) -> Value:
    if bias is not None:
        raise site.refuse("grouped_mm with a bias is not supported: add it afterwards")
    return _bmm(site, mat_a, mat_b) if offs is None else site.emit("grouped_mm", mat_a, mat_b, offs)


PRODUCTS: dict[str, Lowering] = {
    "aten.mm.default": _mm,
    "aten.bmm.default": _bmm,
    "aten.matmul.default": _matmul,
    "aten.mv.default": _mv,
    "aten.dot.default": _dot,
    "aten.addmm.default": _addmm,
    "aten.baddbmm.default": _baddbmm,
    "aten.linear.default": _linear,
    "aten.einsum.default": _einsum,
    "aten._scaled_dot_product_flash_attention_for_cpu.default": _flash,
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default": _flash_backward,
    "aten.scaled_dot_product_attention.default": _attention,
    "aten._grouped_mm.default": _grouped_mm,
    "transformers.grouped_mm_fallback.default": _grouped_mm,
    "transformers.grouped_mm_fallback_backward.default": lambda site, *operands: site.emit_all(
        "grouped_mm_grad", *operands
    ),
}
