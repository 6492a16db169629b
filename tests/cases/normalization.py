from __future__ import annotations

from truth import Case

STORED = "scale and bias are stored, and what is stored is never partial"
AFFINE = {"R P(sum) * -> P(sum)*": STORED}
AFFINE_GRAD = {"R P(*) R -> *": STORED}

CASES = [
    Case("softmax", {"x": (4, 6)}),
    Case("softmax", {"x": (4, 6, 2)}, {"axis": 0}),
    Case("log_softmax", {"x": (4, 6, 2)}, {"axis": 1}),
    Case("layer_norm", {"x": (4, 6, 8), "scale": (8,), "bias": (8,)}, {"begin_norm_axis": 2}, AFFINE, AFFINE_GRAD),
    Case("layer_norm", {"x": (4, 6, 2), "scale": (12,), "bias": None}, {}, AFFINE, AFFINE_GRAD),
    Case("layer_norm", {"x": (4, 6, 2), "scale": (6, 2), "bias": (6, 2)}, {"begin_norm_axis": -2}, AFFINE, AFFINE_GRAD),
    Case("layer_norm", {"x": (4, 6)}),
    Case("rms_norm", {"x": (4, 6, 8), "scale": (8,), "bias": (8,)}, {}, AFFINE, AFFINE_GRAD),
    Case("rms_norm", {"x": (4, 6, 8), "scale": (8,)}, {}, AFFINE, AFFINE_GRAD),
    Case("normalize", {"x": (4, 6)}, {"p": 3}),
    Case("normalize", {"x": (4, 6, 2)}),
    Case("log_softmax", {"x": (6,)}),
    Case("log_softmax", {"x": (2, 3, 2, 2, 4)}, {"axis": -4}),
]
