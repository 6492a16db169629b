from __future__ import annotations

from truth import Case

_LABELS = {"logits": (4, 6), "label": (4, 2), "smooth_weight": (4, 2)}

_SUMMED = {
    "R S(1) S(1) -> R P(sum)": "what lacks a summed factor is partial, which the softmax is not",
    "R R P(sum) -> R P(sum)": "a linear form speaks of all results alike",
}
_WEIGHTS = {
    "S(1) S(1) R R -> P(sum)": "the forward op keeps the labels together",
}

CASES = [
    Case("c_embedding", {"weight": (12, 4), "x": (6,)}),
    Case("c_embedding", {"weight": (6, 4), "x": (2, 6)}, {"start_index": 2}),
    Case("c_softmax_with_cross_entropy", {"logits": (2, 4, 6), "label": (2, 4, 1)}, {}),
    Case("c_softmax_with_cross_entropy", {"logits": (4, 6), "label": (4, 1)}, {"ignore_index": 2}),
    Case("c_softmax_with_multi_label_cross_entropy", _LABELS, {}, _SUMMED, _WEIGHTS),
    Case(
        "c_softmax_with_multi_label_cross_entropy",
        _LABELS,
        {"sum_multi_label_loss": False, "ignore_index": 2},
        _SUMMED,
        _WEIGHTS,
    ),
]
