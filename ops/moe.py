"""Mixtures of experts: tokens sent to experts, products in groups of rows, results put together again.

Which rows an expert gets depends on all tokens, so that they are whole where they are sent. A device may hold some of
the experts, or of their rows, where the runtime can mask: the others give zeros, and the results are P(sum).
"""

from __future__ import annotations

import itertools

import numpy as np

from ops.bind import Shape
from ops.dims import Array, shape_of
from ops.grad import Grad
from ops.indexing import MASKED, Block, own_indices
from ops.notation import RuleError
from ops.op import Attrs, LocalContext, Shapes
from ops.registry import family, op
from ops.rule import Rule, rule

# ----------------------------------------------------------------------------------------------------- grouped products


def _groups(offs: Array, rows: int, first_row: int, first_group: int, count: int) -> list[slice]:
    """Return the local rows of each local group; `offs` holds where each group ends."""
    edges = np.clip(np.concatenate([[0], offs]) - first_row, 0, rows)[first_group : first_group + count + 1]
    return [slice(start, max(start, end)) for start, end in itertools.pairwise(edges)]


def _grouped(
    mat_a: Array, mat_b: Array, offs: Array, *, first_row: int = 0, first_group: int = 0, count: int = 0
) -> Array:
    count = count or len(offs)
    if mat_b.ndim == 2:
        found = _groups(offs, len(mat_b), first_row, first_group, count)
        return np.stack([mat_a[:, rows] @ mat_b[rows] for rows in found])
    out = np.zeros((len(mat_a), mat_b.shape[2]), np.result_type(mat_a, mat_b))
    for group, rows in enumerate(_groups(offs, len(mat_a), first_row, first_group, count)):
        out[rows] = mat_a[rows] @ mat_b[group]
    return out


def _grouped_grad(
    mat_a: Array,
    mat_b: Array,
    offs: Array,
    out_grad: Array,
    *,
    first_row: int = 0,
    first_group: int = 0,
    count: int = 0,
) -> tuple[Array, Array]:
    a_grad, b_grad = np.zeros_like(mat_a), np.zeros_like(mat_b)
    length = len(mat_b) if mat_b.ndim == 2 else len(mat_a)
    for group, rows in enumerate(_groups(offs, length, first_row, first_group, count or len(offs))):
        if mat_b.ndim == 2:
            a_grad[:, rows], b_grad[rows] = out_grad[group] @ mat_b[rows].T, mat_a[:, rows].T @ out_grad[group]
        else:
            a_grad[rows], b_grad[group] = out_grad[rows] @ mat_b[group].T, mat_a[rows].T @ out_grad[rows]
    return a_grad, b_grad


def _local_groups(attrs: Attrs, ctx: LocalContext) -> Attrs:
    stacked = len(shape_of(ctx.operands, "mat_b")) == 3
    groups = shape_of(ctx.operands, "mat_b")[0] if stacked else shape_of(ctx.results, "out")[0]
    return {**attrs, "first_row": ctx.start("m" if stacked else "t"), "first_group": ctx.start("g"), "count": groups}


@family(
    "grouped_mm",
    "mat_a[], mat_b[], offs[] -> out[]",
    kernel=_grouped,
    local=_local_groups,
    flops=lambda shapes, attrs: 2 * shapes["mat_a"][0] * shapes["mat_a"][1] * shapes["mat_b"][-1],
    grad=Grad(
        _grouped_grad,
        of="mat_a mat_b",
        flops=lambda shapes, attrs: 4 * shapes["mat_a"][0] * shapes["mat_a"][1] * shapes["mat_b"][-1],
    ),
)
def grouped_mm(mat_a: Shape, mat_b: Shape, offs: Shape) -> Rule:
    """Rows in groups, each times a matrix of its own; or, of two matrices, a product of each group of the summed dim.

    ``offs`` holds where each group ends; rows after the last give zeros.
    """
    if len(mat_a) != 2 or len(mat_b) not in (2, 3) or len(offs) != 1:
        raise RuleError(
            f"grouped_mm takes a matrix, a matrix or one for each group, and offs of rank 1, "
            f"not mat_a {mat_a}, mat_b {mat_b}, offs {offs}: without offs it is bmm"
        )
    if len(mat_b) == 2:
        return rule(
            "mat_a[m t], mat_b[t n], offs[_] -> out[g m n]",
            sum="t",
            needs={"g": MASKED},
            linear="mat_a*mat_b",
            major="t",
            sizes={"g": offs[0]},
        )
    if mat_b[0] != offs[0]:
        raise RuleError(f"grouped_mm: mat_b {mat_b} holds {mat_b[0]} matrices, but offs {offs} ends {offs[0]} groups")
    return rule(
        "mat_a[m k], mat_b[g k n], offs[_] -> out[m n]",
        sum="k g",
        needs={"g": MASKED},
        linear="mat_a*mat_b",
        major="m",
    )


# ------------------------------------------------------------------------------------------------- dispatch and combine


def _dispatch(
    x: Array, gate_logits: Array, corr_bias: Array | None, k: int, capacity: int, use_pad: bool
) -> tuple[Array, ...]:
    """Send each token to its k best experts, which take so many: first choices before second ones, then in order.

    The bias moves the choice, not the weight. A token that finds its expert full gets weight 0, index 0 and no grad.
    """
    tokens, experts = gate_logits.shape
    scores = gate_logits if corr_bias is None else gate_logits + corr_bias
    expert_id = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    chosen = expert_id.T.reshape(-1)
    order = np.argsort(chosen, kind="stable")
    offset = np.cumsum(np.bincount(chosen, minlength=experts))
    place = np.empty_like(order)
    place[order] = np.arange(len(order)) - np.concatenate([[0], offset[:-1]])[chosen[order]]
    kept = place < capacity
    target = chosen * capacity + place
    y = np.zeros((experts * capacity, x.shape[1]), x.dtype)
    y[target[kept]] = x[np.tile(np.arange(tokens), k)[kept]]
    weights = np.take_along_axis(gate_logits, expert_id, 1) * kept.reshape(k, tokens).T
    index = np.where(kept, target, 0).reshape(k, tokens)
    return (
        y.reshape(experts, capacity, -1),
        weights,
        index.astype(np.int32),
        offset.astype(np.int64),
        expert_id.astype(np.int32),
    )


def _dispatch_grad(
    combine_weights: Array,
    scatter_index: Array,
    expert_id: Array,
    y_grad: Array,
    combine_weights_grad: Array,
    *,
    k: int,
    capacity: int,
    use_pad: bool,
    shapes: Shapes,
) -> tuple[Array, Array]:
    kept = combine_weights.T != 0
    flat = y_grad.reshape(-1, y_grad.shape[-1])
    x_grad = (flat[scatter_index] * kept[..., None]).sum(0)
    gate_grad = np.zeros(shape_of(shapes, "gate_logits"), combine_weights_grad.dtype)
    np.put_along_axis(gate_grad, expert_id.astype(np.int64), combine_weights_grad * kept.T, 1)
    return np.asarray(x_grad, y_grad.dtype), gate_grad


@family(
    "moe_gate_dispatch",
    "x[], gate_logits[], corr_bias?[] -> y[], combine_weights[], scatter_index[], expert_offset[], expert_id[]",
    kernel=_dispatch,
    dtype=lambda dtypes, attrs: (str(dtypes["x"]), str(dtypes["gate_logits"]), "int32", "int64", "int32"),
    domain={"gate_logits": "unit"},
    flops=lambda shapes, attrs: shapes["gate_logits"][0] * shapes["gate_logits"][1] + attrs["k"] * shapes["x"][0],
    grad=Grad(
        _dispatch_grad,
        reads="combine_weights scatter_index expert_id",
        of="x gate_logits",
        outs="y combine_weights",
        cuts="s k",
        shapes=True,
    ),
)
def moe_gate_dispatch(gate_logits: Shape, k: int, capacity: int, use_pad: bool = True) -> Rule:
    """Tokens, each copied to its k experts; tokens and experts are whole, as an expert takes what comes first."""
    if not use_pad:
        raise RuleError(
            "moe_gate_dispatch without use_pad makes rows whose number only the data say: give use_pad=True"
        )
    if len(gate_logits) != 2 or not 1 <= k <= gate_logits[1]:
        raise RuleError(f"moe_gate_dispatch: k={k} is not between 1 and the experts of gate_logits {gate_logits}")
    return rule(
        "x[s h], gate_logits[s e], corr_bias?[e] -> "
        "y[e c h], combine_weights[s k], scatter_index[k s], expert_offset[e], expert_id[s k]",
        whole="s e c k",
        sizes={"c": capacity, "k": k},
    )


def _combine(x: Array, combine_weights: Array, scatter_index: Array, block: Block) -> Array:
    own, inside = own_indices(scatter_index, len(x), block)
    weights = combine_weights if inside is None else combine_weights * inside
    return np.asarray((x[own] * weights[..., None]).sum(1), x.dtype)


def _combine_grad(
    x: Array, combine_weights: Array, scatter_index: Array, y_grad: Array, block: Block
) -> tuple[Array, Array]:
    own, inside = own_indices(scatter_index, len(x), block)
    mine = np.ones(own.shape, bool) if inside is None else inside
    x_grad = np.zeros_like(x)
    np.add.at(x_grad, own, y_grad[:, None] * (combine_weights * mine)[..., None])
    return x_grad, np.asarray((y_grad[:, None] * x[own]).sum(-1) * mine, combine_weights.dtype)


def _own_rows(attrs: Attrs, ctx: LocalContext) -> Attrs:
    count = ctx.count("r")
    return attrs if count == 1 else {**attrs, "block": (ctx.start("r"), count * shape_of(ctx.operands, "x")[0])}


op(
    "moe_combine",
    "x[r h], combine_weights[s k], scatter_index[s k] -> y[s h]",
    sum="k r",
    needs={"r": MASKED},
    linear="x*combine_weights",
    attrs={"block": None},
    kernel=_combine,
    local=_own_rows,
    dtype=lambda dtypes, attrs: (str(dtypes["x"]),),
    domain={"scatter_index": "r"},
    flops=lambda shapes, attrs: 2 * shapes["scatter_index"][0] * shapes["scatter_index"][1] * shapes["x"][1],
    grad=Grad(_combine_grad, of="x combine_weights"),
)
