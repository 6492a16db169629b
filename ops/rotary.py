"""Rotary position embedding: pairs of features turned by an angle that grows with the position."""

from __future__ import annotations

from typing import Any

import numpy as np

from ops.bind import Shape
from ops.dims import Array
from ops.grad import Grad
from ops.notation import RuleError
from ops.op import Attrs, LocalContext
from ops.registry import family
from ops.rule import Rule, rule


def _split(x: Array, adjacent: bool) -> tuple[Array, Array]:
    """Return the first and the second of each pair of features: neighbours, or one from each half."""
    if adjacent:
        return x[..., 0::2], x[..., 1::2]
    half = x.shape[-1] // 2
    return x[..., :half], x[..., half:]


def _join(first: Array, second: Array, adjacent: bool) -> Array:
    if adjacent:
        return np.stack([first, second], -1).reshape(*first.shape[:-1], -1)
    return np.concatenate([first, second], -1)


def _turn(x: Array, sin: Array, cos: Array, adjacent: bool, back: bool) -> Array:
    """Turn each pair, or undo it as the grad does."""
    (a, b), (sin_a, sin_b), (cos_a, cos_b) = (_split(t, adjacent) for t in (x, sin, cos))
    first = a * cos_a + b * sin_b if back else a * cos_a - b * sin_a
    second = b * cos_b - a * sin_a if back else b * cos_b + a * sin_b
    return np.asarray(_join(first, second, adjacent), x.dtype)


def _tables(
    sequence: int,
    sin: Array | None,
    cos: Array | None,
    position_ids: Array | None,
    attrs: Attrs,
) -> tuple[Array, Array]:
    """Return sin and cos as [batch, sequence, 1, features], given or made from the positions."""
    adjacent = attrs["use_neox_rotary_style"]
    if sin is None or cos is None:
        pairs = np.arange(attrs["first_pair"], attrs["first_pair"] + attrs["held_pairs"])
        rates = attrs["rotary_emb_base"] ** (-pairs / attrs["pairs"])
        angles = (attrs["first_position"] + np.arange(sequence))[:, None] * rates
        found = [_join(table, table, adjacent) for table in (np.sin(angles), np.cos(angles))]
    else:
        found = [table.reshape(-1, table.shape[-1]) for table in (sin, cos)]
    laid = [(table[None] if position_ids is None else table[position_ids])[:, :, None] for table in found]
    if attrs["time_major"]:
        laid = [np.swapaxes(table, 0, 1) for table in laid]
    return laid[0], laid[1]


def _rope(
    q: Array,
    k: Array | None,
    v: Array | None,
    sin: Array | None,
    cos: Array | None,
    position_ids: Array | None,
    **attrs: Any,
) -> tuple[Array | None, ...]:
    sines, cosines = _tables(q.shape[0 if attrs["time_major"] else 1], sin, cos, position_ids, attrs)
    adjacent = attrs["use_neox_rotary_style"]
    return tuple(None if x is None else _turn(x, sines, cosines, adjacent, False) for x in (q, k, v))


def _rope_back(sin: Array | None, cos: Array | None, position_ids: Array | None, *grads: Array, **attrs: Any) -> Any:
    sines, cosines = _tables(grads[0].shape[0 if attrs["time_major"] else 1], sin, cos, position_ids, attrs)
    adjacent = attrs["use_neox_rotary_style"]
    return [None if grad is None else _turn(grad, sines, cosines, adjacent, True) for grad in grads]


def _local(attrs: Attrs, ctx: LocalContext) -> Attrs:
    pairs = (ctx.operands["q"] or ())[-1] // 2  # type: ignore[operator]
    made = {"held_pairs": pairs, "pairs": pairs * ctx.count("p")}
    if ctx.operands["sin"] is None:
        made |= {"first_position": ctx.start("s"), "first_pair": ctx.start("p")}
    return {**attrs, **made}


def _heads(shapes: tuple[Shape, ...]) -> list[str]:
    """Write the head dims: heads of the smallest operand, and those of the others that share one."""
    counts = [shape[2] for shape in shapes]
    least = min(counts)
    if any(count % least for count in counts):
        raise RuleError(f"rotary position embedding: heads {counts} of q, k, v are no multiples of {least}")
    return ["g" if count == least else f"(g r{count})" if least > 1 else f"r{count}" for count in counts]


def _table_text(name: str, table: Shape | None, q: Shape, time_major: bool, picked: bool) -> str:
    if table is None:
        return f"{name}?[_]"
    sequence = q[0 if time_major else 1]
    rows = table[0] if len(table) == 2 else table[1] if len(table) == 4 and table[0] == table[2] == 1 else None
    if rows is None or table[-1] != q[-1] or (not picked and rows != sequence):
        raise RuleError(
            f"rotary position embedding: {name} {table} is neither [{sequence}, {q[-1]}] "
            f"nor [1, {sequence}, 1, {q[-1]}]"
        )
    dims = "_ {d}" if picked else "s {d}"
    return f"{name}?[{dims}]" if len(table) == 2 else f"{name}?[1 {dims.replace(' ', ' 1 ')}]"


@family(
    "fused_rotary_position_embedding",
    "q[], k?[], v?[], sin?[], cos?[], position_ids?[] -> out_q[], out_k?[], out_v?[]",
    kernel=_rope,
    shape=lambda shapes, attrs: (shapes["q"], shapes.get("k"), shapes.get("v")),
    dtype=lambda dtypes, attrs: tuple(str(dtypes[x]) for x in "qkv" if dtypes.get(x) is not None),
    attrs={"rotary_emb_base": 10000.0},
    local=_local,
    flops=lambda shapes, attrs: 6 * int(sum(np.prod(shapes[x]) for x in "qkv" if shapes.get(x) is not None)),
    grad=Grad(_rope_back, reads="sin cos position_ids", of="q k v"),
)
def fused_rotary_position_embedding(
    q: Shape,
    k: Shape | None,
    v: Shape | None,
    sin: Shape | None,
    cos: Shape | None,
    position_ids: Shape | None,
    use_neox_rotary_style: bool = True,
    time_major: bool = False,
) -> Rule:
    """Features turned by position: neighbours in the neox style, else the halves; q, k and v are cut alike."""
    present = {name: shape for name, shape in (("q", q), ("k", k), ("v", v)) if shape is not None}
    if any(len(shape) != 4 or shape[3] % 2 for shape in present.values()):
        raise RuleError(
            f"rotary position embedding takes [batch, sequence, heads, an even number of features], not {present}"
        )
    if (sin is None) != (cos is None) or (sin is None and position_ids is not None):
        raise RuleError("rotary position embedding takes sin and cos together, and position_ids only with both")
    features = "(p t)" if use_neox_rotary_style else "(t p)"
    place = "s b" if time_major else "b s"
    heads = dict(zip(present, _heads(tuple(present.values())), strict=True))
    dims = {x: f"{place} {heads[x]} {features}" if x in heads else "_" for x in "qkv"}
    tables = ", ".join(
        _table_text(name, table, q, time_major, position_ids is not None).replace("{d}", features)
        for name, table in (("sin", sin), ("cos", cos))
    )
    ids = "position_ids?[b s]" if position_ids is not None else "position_ids?[_]"
    made = ", ".join(f"out_{x}{'?' * (x != 'q')}[{dims[x]}]" for x in "qkv")
    terms = [f"{x}*{table}" for x in present for table in ("sin", "cos")] if sin is not None else list(present)
    return rule(
        f"q[{dims['q']}], k?[{dims['k']}], v?[{dims['v']}], {tables}, {ids} -> {made}",
        whole="t",
        sizes={"t": 2},
        linear=" + ".join(terms),
        major="" if sin is not None else "s p",
    )
