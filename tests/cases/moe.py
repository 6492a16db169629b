from __future__ import annotations

import numpy as np
from truth import Case

_ENDS = np.array([2, 7, 7, 10, 11, 12])
_EARLY = np.array([3, 4, 9])
_GATE = np.random.default_rng(3).uniform(0.1, 0.9, (6, 4))
_ONLY_X = {"P(sum) R ? -> *": "a linear form speaks of all results alike"}
_GRADS = {
    "S(1) S(0) S(1) R S(1) -> *": "of two out_grads of which one holds a factor the other is counted on every device",
    "* S(2) * -> *": "cut features leave one grad cut and the other whole, which no factor says of grads",
}

CASES = [
    Case("grouped_mm", {"mat_a": (12, 4), "mat_b": (6, 4, 2), "offs": _ENDS}),
    Case("grouped_mm", {"mat_a": (12, 4), "mat_b": (3, 4, 6), "offs": _EARLY}),
    Case("grouped_mm", {"mat_a": (4, 12), "mat_b": (12, 6), "offs": _ENDS}),
    Case("moe_gate_dispatch", {"x": (6, 4), "gate_logits": _GATE}, {"k": 2, "capacity": 3}, _ONLY_X, _GRADS),
    Case(
        "moe_gate_dispatch",
        {"x": (6, 4), "gate_logits": _GATE, "corr_bias": (4,)},
        {"k": 1, "capacity": 2},
        _ONLY_X,
        _GRADS,
    ),
    Case("moe_combine", {"x": (12, 4), "combine_weights": (6, 2), "scatter_index": (6, 2)}),
]
