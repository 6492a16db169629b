from __future__ import annotations

from truth import Case


def _shapes(heads: int, own: int, queries: int = 6, keys: int = 6) -> dict[str, tuple[int, ...]]:
    return {"query": (2, queries, heads, 4), "key": (2, keys, own, 4), "value": (2, keys, own, 6)}


CASES = [
    Case("scaled_dot_product_attention", _shapes(6, 6)),
    Case("scaled_dot_product_attention", {**_shapes(6, 6), "attn_mask": (2, 1, 6, 6)}, {"scale": 0.5}),
    Case(
        "scaled_dot_product_attention",
        {**_shapes(24, 6), "attn_mask": (24, 1, 6)},
        dtypes={"attn_mask": "bool"},
    ),
    Case("scaled_dot_product_attention", _shapes(6, 1, 12, 14), {"is_causal": True}),
    Case(
        "scaled_dot_product_attention",
        {**_shapes(4, 2, 4, 6), "attn_mask": (4, 6)},
        {"dropout_p": 0.4, "is_causal": True, "start": 0, "seed": 5},
        dtypes={"attn_mask": "bool"},
    ),
    Case("flash_attention", _shapes(4, 2, 6, 6), {"causal": True}),
    Case("flash_attention", _shapes(6, 1, 4, 6), {"dropout": 0.3, "seed": 3}),
    Case("flash_attention", _shapes(1, 1, 6, 6), {"dropout": 0.3}),
    Case("flash_attention", _shapes(2, 2, 6, 4), {"dropout": 0.3, "training": False}),
    Case("flash_attention", _shapes(2, 2, 6, 4)),
]
