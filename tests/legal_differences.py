"""Where a table and our rows differ, and why: table -> pattern of a line of `legal_tables.differences` -> reason."""

from __future__ import annotations

_HALO = "needs halo_exchange: a kernel that must talk to its neighbours shows as illegal in a table"
_LOOKUP = "needs masked_lookup: the table's kernel knows no block of its own, ours is told where it starts"
_GROUPS = "the groups are cut, and each device has its share of them; the table's kernel is told the whole number"
_LOCAL = "a device is told where its block starts; the table's kernel takes the attribute as it is"
_CAUSAL = "queries are cut, and a device is told where its own begin; the table's kernel takes them for the last ones"
_RECOMPUTED = "the grad reads the result; the table makes it anew on each device, out of a block or a term alone"
_SHAPE = "the operand is read for its shape alone, and no clause says so"
_UNDERFLOW = "1024 factors: the product is 0 in single precision, and so is its grad, wherever x is cut"
_NO_PRODUCT = "there is no partial product: no collective makes one of it"
_PLACES = "the places of the result are cut, the indices with them; the table makes these anew"

DIFFERENCES: dict[str, dict[str, str]] = {
    "all": {
        "forward ours: S? -> Pall": "the table tries max, min, sum and avg, not the kind of truth values",
        "forward theirs: S? -> R": "the table's truth values are so many that all of them are never true, on no device",
    },
    "conv2d": {"forward ours: S? R - -> S?": _HALO, "grad ours: S? R S? -> S? Psum": _HALO},
    "conv2d_transpose": {"forward ours: S? R - -> S?": _HALO, "grad ours: S? R S? -> S? Psum": _HALO},
    "cummin": {"grad ours: S? S? -> Psum": _PLACES},
    "einsum": {"grad theirs: Psum Psum -> Psum": _SHAPE},
    "expand_as": {"forward theirs: * Psum -> *": _SHAPE},
    "flash_attention": {
        "forward ours: S1 R R -> S1": _CAUSAL,
        "grad ours: S1 R R S1 -> S1 Psum Psum": _CAUSAL,
    },
    "frobenius_norm": {"grad ours: S1 R R -> S1": _RECOMPUTED, "grad ours: Psum R R -> Psum": _RECOMPUTED},
    "gather": {"forward ours: S? R -> Psum": _LOOKUP, "grad ours: R R -> S?": _LOOKUP},
    "group_norm": {
        "forward ours: S? S0 S0 -> S?": _GROUPS,
        "grad ours: S? S0 S? -> S? S0 S0": _GROUPS,
    },
    "index_put": {"forward ours: S? R * -> S?": _LOOKUP, "grad ours: R *S? -> S? Psum": _LOOKUP},
    "mean_all": {
        "grad ours: R -> S?": "each device divides by the size of the whole x, of which it is told the blocks"
    },
    "min": {"grad ours: S? R R -> S?": _RECOMPUTED},
    "one_hot": {"forward ours: R -> S2": _LOOKUP},
    "pad": {"* ours: S1 -> S1": _HALO},
    "prod": {
        "forward theirs: S? -> R": _UNDERFLOW,
        "forward theirs: Psum -> R": _UNDERFLOW,
        "forward theirs: * -> Pprod": _NO_PRODUCT,
        "grad theirs: * -> ?*": _UNDERFLOW,
        "grad ours: R R Psum -> Psum": _UNDERFLOW,
        "grad ours: R Psum R -> Psum": _RECOMPUTED,
        "grad ours: S? R R -> S?": _RECOMPUTED,
    },
    "reduce_base": {"forward theirs: S1 -> Pprod": _NO_PRODUCT},
    "topk": {"grad ours: S? S? -> Psum": _PLACES},
    "triu": {"* ours: S? -> S?": _LOCAL},
}
