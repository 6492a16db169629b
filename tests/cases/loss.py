from __future__ import annotations

import numpy as np
from truth import Case
from truth_reasons import AFFINE

REDUCTIONS = ("mean", "sum", "none")
IGNORED = np.array([[0], [5], [-100], [2]])
LABEL = np.array([5, 0, -100, 3])
SOFT = np.arange(1.0, 25.0).reshape(4, 6) ** 2 % 7 + 0.5
DISTRIBUTION = SOFT / SOFT.sum(-1, keepdims=True)
PAIR = {"input": (4, 6), "label": (4, 6)}

CASES = [
    *(Case("l1_loss", PAIR, {"reduction": reduction}) for reduction in REDUCTIONS),
    *(Case("smooth_l1_loss", PAIR, {"reduction": reduction}) for reduction in REDUCTIONS),
    *(Case("mse_loss", PAIR, {"reduction": reduction}) for reduction in REDUCTIONS),
    *(
        Case(op, PAIR, {"reduction": reduction}, AFFINE)
        for op in ("kl_div", "binary_cross_entropy", "binary_cross_entropy_with_logits")
        for reduction in REDUCTIONS
    ),
    Case("square_error_cost", PAIR),
    Case("log_loss", PAIR),
    Case("smooth_l1_loss", PAIR, {"delta": 0.5, "is_huber": False}),
    Case("kl_div", PAIR, {"log_target": True}, AFFINE),
    Case("cross_entropy_with_softmax", {"logits": (4, 12), "label": (4, 1)}),
    Case("cross_entropy_with_softmax", {"logits": (4, 6), "label": IGNORED}),
    Case("cross_entropy_with_softmax", {"logits": (2, 6, 4), "label": (2, 1, 4)}, {"axis": 1}),
    Case(
        "cross_entropy_with_softmax",
        {"logits": (4, 6), "label": DISTRIBUTION},
        {"soft_label": True},
    ),
    *(
        Case(
            "nll_loss",
            {"input": (4, 6), "label": LABEL, "weight": weight},
            {"reduction": reduction},
        )
        for weight in (None, (6,))
        for reduction in REDUCTIONS
    ),
    Case("nll_loss", {"input": (2, 6, 4), "label": (2, 4), "weight": (6,)}),
    Case("label_smooth", {"label": (4, 6)}),
    Case("label_smooth", {"label": (2, 4, 6), "prior_dist": (1, 6)}, {"epsilon": 0.3}),
    Case("label_smooth", {"label": (12,), "prior_dist": (12,)}, {"epsilon": 0.5}),
]
