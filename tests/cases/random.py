from __future__ import annotations

import numpy as np
from truth import Case

_MEANS = np.linspace(0.5, 9.0, 24).reshape(4, 6)

CASES = [
    Case("dropout", {"x": (4, 6)}, {"training": False, "p": 0.3}),
    Case("dropout", {"x": (4, 6)}, {"training": False, "p": 0.3, "mode": "downscale_in_infer"}),
    Case("dropout", {"x": (4, 12)}, {"seed": 3}),
    Case("dropout", {"x": (4, 6, 4)}, {"p": 0.4, "seed": 11, "mode": "downscale_in_infer"}),
    Case("dropout", {"x": (4, 6, 4)}, {"p": 0.4, "seed": 5, "axis": [0, -1]}),
    Case("fused_dropout_add", {"x": (4, 6), "y": (4, 6)}, {"seed": 3}),
    Case("fused_dropout_add", {"x": (4, 6), "y": (4, 6)}, {"training": False}),
    Case("bernoulli", {"x": (4, 12)}, {"seed": 2}),
    Case("poisson", {"x": _MEANS}, {"seed": 2}),
    Case("uniform", {}, {"shape": [4, 6], "dtype": "float64", "seed": 1}),
    Case("gaussian", {}, {"shape": [4, 6, 2], "mean": 1.0, "std": 0.5}),
    Case("randint", {}, {"shape": [12], "low": 100}),
]
