"""Attention: keys are whole, as the softmax is over them; queries, heads and value features pass.

Weights that are dropped are drawn by their indices in the whole op (see `ops.random`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ops.bind import Shape
from ops.dims import Array, shape_of
from ops.grad import Grad
from ops.normalization import softmax_back
from ops.notation import RuleError
from ops.op import Attrs, LocalContext, Shapes
from ops.random import Spans, draw, of_shape
from ops.registry import family
from ops.rule import Rule, rule


def _by_head(x: Array, heads: int) -> Array:
    """Return [batch, key heads, heads of a group, sequence, features] of [batch, sequence, heads, features]."""
    batch, sequence, own, features = x.shape
    return x.reshape(batch, sequence, heads, own // heads, features).transpose(0, 2, 3, 1, 4)


def _as_given(x: Array) -> Array:
    """Undo `_by_head`."""
    batch, heads, group, sequence, features = x.shape
    return x.transpose(0, 3, 1, 2, 4).reshape(batch, sequence, heads * group, features)


def _scores(
    query: Array, key: Array, mask: Array | None, causal: bool, scale: float | None, start: int | None
) -> Array:
    """Return the weights of the keys: [batch, key heads, heads of a group, queries, keys]."""
    heads = key.shape[2]
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = (_by_head(query, heads) * factor) @ np.swapaxes(_by_head(key, heads), -1, -2)
    if mask is not None:
        full = mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
        own = full.shape[1]
        wide = full.reshape(full.shape[0], *((1, 1) if own == 1 else (heads, own // heads)), *full.shape[2:])
        scores = np.where(wide, scores, -np.inf) if mask.dtype == np.bool_ else scores + wide
    if causal:
        first = key.shape[1] - query.shape[1] if start is None else start
        seen = np.arange(key.shape[1]) <= first + np.arange(query.shape[1])[:, None]
        scores = np.where(seen, scores, -np.inf)
    return _softmax(scores)


def _softmax(scores: Array) -> Array:
    """Return the softmax over the last dim: zeros for a query that sees no key."""
    top = scores.max(-1, keepdims=True)
    powers = np.exp(scores - np.where(np.isneginf(top), 0, top))
    total = powers.sum(-1, keepdims=True)
    return np.asarray(powers / np.where(total == 0, 1, total))


def _kept(shape: Shape, p: float, seed: int, spans: Spans | None) -> Array:
    """Return what the weights of the keys are multiplied by: zero where one is dropped."""
    return np.asarray((draw(seed, spans or of_shape(shape)) >= p) * (1 / (1 - p) if p < 1 else 1.0))


def _attend(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None,
    *,
    p: float,
    causal: bool,
    scale: float | None,
    seed: int,
    start: int | None,
    spans: Spans | None,
) -> Array:
    weights = _scores(query, key, mask, causal, scale, start)
    if p:
        weights = weights * _kept(weights.shape, p, seed, spans)
    return _as_given(weights @ _by_head(value, key.shape[2])).astype(query.dtype)


def _attend_back(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None,
    out_grad: Array,
    *,
    p: float,
    causal: bool,
    scale: float | None,
    seed: int,
    start: int | None,
    spans: Spans | None,
) -> tuple[Array, Array, Array]:
    heads = key.shape[2]
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    weights, grad = _scores(query, key, mask, causal, scale, start), _by_head(out_grad, heads)
    kept = _kept(weights.shape, p, seed, spans) if p else np.ones(())
    slopes = softmax_back(weights, grad @ np.swapaxes(_by_head(value, heads), -1, -2) * kept, -1) * factor
    key_grad = (np.swapaxes(slopes, -1, -2) @ _by_head(query, heads)).sum(2, keepdims=True)
    value_grad = (np.swapaxes(weights * kept, -1, -2) @ grad).sum(2, keepdims=True)
    made = (_as_given(slopes @ _by_head(key, heads)), _as_given(key_grad), _as_given(value_grad))
    return made[0].astype(query.dtype), made[1].astype(key.dtype), made[2].astype(value.dtype)


def _heads(query: Shape, key: Shape) -> str:
    """Write the head dim of the query: key heads, and the query heads that share one."""
    if not len(query) == len(key) == 4:
        raise RuleError(f"attention takes [batch, sequence, heads, features], not query {query} and key {key}")
    group, left = divmod(query[2], max(key[2], 1))
    if left or not group:
        raise RuleError(f"{query[2]} query heads are no multiple of {key[2]} key heads")
    return "h" if group == 1 else "g" if key[2] == 1 else "(h g)"


def _attention_rule(query: Shape, key: Shape, causal: bool, mask: str = "") -> Rule:
    heads = _heads(query, key)
    own = "1" if heads == "g" else "h"
    return rule(
        f"query[b s {heads} d], key[b t {own} d], value[b t {own} e]{mask} -> out[b s {heads} e]",
        whole="t d",
        linear="value",
        major="s" if causal else "",
    )


def _mask_text(mask: Shape | None, query: Shape, key: Shape) -> str:
    """Write the operand attn_mask; its dims of size 1 are repeated, and so are those in front that it lacks."""
    heads = _heads(query, key)
    if mask is None:
        return ", attn_mask?[_]"
    full, names = (query[0], query[2], query[1], key[1]), ("b", heads, "s", "t")
    front = 4 - len(mask)
    if front < 0 or any(size not in (1, whole) for size, whole in zip(mask, full[front:], strict=True)):
        raise RuleError(f"attn_mask {mask} does not broadcast to [batch, heads, queries, keys] {full}")
    own = zip(mask, full[front:], names[front:], strict=True)
    return f", attn_mask?[{' '.join('1' if size == 1 != whole else name for size, whole, name in own)}]"


def _local(p: str, causal: str) -> Callable[[Attrs, LocalContext], Attrs]:
    """Return the ``local=`` that says how many keys the first query of a device sees, and which weights it draws."""

    def local(attrs: Attrs, ctx: LocalContext) -> Attrs:
        held = dict(attrs)
        query, key = shape_of(ctx.operands, "query"), shape_of(ctx.operands, "key")
        count = ctx.count("s")
        if attrs[causal] and count > 1:
            seen = key[1] - query[1] * count if attrs["start"] is None else attrs["start"]
            held["start"] = seen + ctx.start("s")
        if attrs[p] and attrs["training"]:
            heads = key[2] * ctx.count("h")
            group = query[2] * ctx.count("h") * ctx.count("g") // heads
            own = [ctx.spans(name) if size > 1 else ((0, 1, 1),) for name, size in (("h", heads), ("g", group))]
            held["spans"] = [ctx.spans("b"), *own, ctx.spans("s"), ctx.spans("t")]
        return held

    return local


def _flops(products: int) -> Callable[[Shapes, Attrs], int]:
    """Return the flops of so many products with the scores and as many with the weights, halved."""

    def flops(shapes: Shapes, attrs: Attrs) -> int:
        batch, queries, heads, features = shape_of(shapes, "query")
        return (
            products * batch * queries * heads * shape_of(shapes, "key")[1] * (features + shape_of(shapes, "value")[-1])
        )

    return flops


def _check_dropout(name: str, p: float) -> None:
    if not 0 <= p <= 1:
        raise RuleError(f"{name}: dropout {p} is not between 0 and 1")


def _sdpa(
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Array | None,
    *rest: Array,
    dropout_p: float,
    is_causal: bool,
    training: bool,
    **given: Any,
) -> Any:
    """Run attention forward, or backward where the rest is the out_grad."""
    given |= {"p": dropout_p if training else 0.0, "causal": is_causal}
    return (_attend_back if rest else _attend)(query, key, value, attn_mask, *rest, **given)


def _flash(query: Array, key: Array, value: Array, *rest: Array, dropout: float, training: bool, **given: Any) -> Any:
    """Do the same without a mask."""
    given |= {"p": dropout if training else 0.0, "scale": None}
    return (_attend_back if rest else _attend)(query, key, value, None, *rest, **given)


_DRAWN = {"training": True, "seed": 0, "spans": None}


@family(
    "scaled_dot_product_attention",
    "query[], key[], value[], attn_mask?[] -> out[]",
    kernel=_sdpa,
    attrs=_DRAWN,
    dtype=lambda dtypes, attrs: (dtypes["query"],),
    local=_local("dropout_p", "is_causal"),
    flops=_flops(2),
    grad=Grad(_sdpa, reads="query key value attn_mask", of="query key value", flops=_flops(5)),
)
def scaled_dot_product_attention(
    query: Shape,
    key: Shape,
    value: Shape,
    attn_mask: Shape | None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    start: int | None = None,
) -> Rule:
    """Softmax of query times key, times value; several query heads may share a key head.

    A mask is added to the scores, or, where it is logical, says which keys are seen; it gets no grad. Causal: the last
    query sees all keys, or, where ``start`` is given, the first one sees so many keys before its own.
    """
    _check_dropout("scaled_dot_product_attention", dropout_p)
    return _attention_rule(query, key, is_causal, _mask_text(attn_mask, query, key))


@family(
    "flash_attention",
    "query[], key[], value[] -> out[]",
    kernel=_flash,
    attrs=_DRAWN,
    dtype=lambda dtypes, attrs: (dtypes["query"],),
    local=_local("dropout", "causal"),
    flops=_flops(2),
    grad=Grad(_flash, flops=_flops(5)),
)
def flash_attention(
    query: Shape, key: Shape, value: Shape, dropout: float = 0.0, causal: bool = False, start: int | None = None
) -> Rule:
    """Attention without a mask."""
    _check_dropout("flash_attention", dropout)
    return _attention_rule(query, key, causal)
