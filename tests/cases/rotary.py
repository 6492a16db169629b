from __future__ import annotations

import numpy as np
from truth import Case

_NAME = "fused_rotary_position_embedding"
_ALONE = {"k": None, "v": None, "position_ids": None}
_MADE = {"sin": None, "cos": None, "position_ids": None}
_TABLES = {"sin": (6, 8), "cos": (6, 8)}
_TOGETHER = {
    "*": "q, k and v, which do not meet here, are cut alike, as the attention after it asks; one by one: three ops"
}

CASES = [
    Case(_NAME, {"q": (2, 6, 4, 8), **_ALONE, **_TABLES}),
    Case(_NAME, {"q": (2, 6, 4, 8), **_ALONE, "sin": (1, 6, 1, 8), "cos": (6, 8)}, {"use_neox_rotary_style": False}),
    Case(_NAME, {"q": (6, 2, 4, 12), "k": None, "v": None, **_MADE}, {"time_major": True}),
    Case(
        _NAME,
        {"q": (2, 6, 4, 12), "k": (2, 6, 2, 12), "v": None, **_MADE},
        {"rotary_emb_base": 100.0},
        _TOGETHER,
    ),
    Case(
        _NAME,
        {
            "q": (2, 6, 4, 8),
            "k": (2, 6, 4, 8),
            "v": (2, 6, 4, 8),
            **_TABLES,
            "position_ids": np.arange(12).reshape(2, 6) % 5,
        },
        missing=_TOGETHER,
    ),
]
