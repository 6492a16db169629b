from __future__ import annotations

import numpy as np
from truth import Case

HALF_LINE = {"P(min) -> *": "terms of a P(max) may lie beside the poles, and no clause lets P(min) alone pass"}
UNIT = np.linspace(-0.9, 0.85, 24).reshape(4, 6)
WIDE = np.linspace(-3.3, 4.1, 24).reshape(4, 6)
SIGNS = np.arange(24.0).reshape(4, 6) % 3 - 1

CASES = [
    Case("lgamma", {"x": (4, 6)}),
    Case("digamma", {"x": (4, 6)}, missing=HALF_LINE),
    Case("digamma", {"x": WIDE}),
    Case("erfinv", {"x": (4, 6)}),
    Case("erfinv", {"x": UNIT}),
    Case("logit", {"x": (4, 6)}),
    Case("logit", {"x": UNIT}, {"eps": 0.2}),
    *(Case(op, {"x": WIDE}) for op in ("hardshrink", "softshrink", "stanh", "thresholded_relu")),
    Case("stanh", {"x": (4, 6)}, {"scale_a": -0.5}),
    Case("thresholded_relu", {"x": WIDE}, {"threshold": 0.5, "value": 1.0}),
    Case("heaviside", {"x": SIGNS, "y": (4, 6)}),
    Case("heaviside", {"x": SIGNS[0, :4, None], "y": (6,)}),
    Case("trunc_divide", {"x": (4, 6), "y": (6,)}),
    Case("trunc_divide", {"x": np.arange(-12, 12).reshape(4, 6), "y": np.array([1, 2, 3, 4, 5, 2])}),
]
