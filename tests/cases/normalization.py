from __future__ import annotations

from truth import Case

CASES = [
    Case("softmax", {"x": (4, 6)}),
    Case("softmax", {"x": (4, 6, 2)}, {"axis": 0}),
    Case("log_softmax", {"x": (4, 6, 2)}, {"axis": 1}),
    Case("layer_norm", {"x": (4, 6, 8), "scale": (8,), "bias": (8,)}, {"begin_norm_axis": 2}),
    Case("layer_norm", {"x": (4, 6, 2), "scale": (12,), "bias": None}, {}),
    Case("layer_norm", {"x": (4, 6, 2), "scale": (6, 2), "bias": (6, 2)}, {"begin_norm_axis": -2}),
    Case("layer_norm", {"x": (4, 6)}),
    Case("rms_norm", {"x": (4, 6, 8), "scale": (8,), "bias": (8,)}, {}),
    Case("rms_norm", {"x": (4, 6, 8), "scale": (8,)}, {}),
    Case("normalize", {"x": (4, 6)}, {"p": 3}),
    Case("normalize", {"x": (4, 6, 2)}),
    Case("log_softmax", {"x": (6,)}),
    Case("log_softmax", {"x": (2, 3, 2, 2, 4)}, {"axis": -4}),
]
