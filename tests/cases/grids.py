from __future__ import annotations

import numpy as np
from truth import Case

_POINTS = np.linspace(-1.3, 1.27, 96)[np.arange(96) * 37 % 96].reshape(2, 4, 6, 2)
_VOLUME = np.linspace(-1.2, 1.1, 144)[np.arange(144) * 61 % 144].reshape(2, 4, 2, 3, 3)

CASES = [
    Case("grid_sample", {"x": (2, 4, 6, 4), "grid": _POINTS}),
    Case(
        "grid_sample",
        {"x": (2, 3, 4, 6), "grid": _POINTS},
        {"mode": "nearest", "align_corners": False},
    ),
    Case("grid_sample", {"x": (2, 6, 6, 4), "grid": _POINTS}, {"padding_mode": "border", "align_corners": False}),
    Case("grid_sample", {"x": (2, 2, 3, 6), "grid": 1.93 * _POINTS}, {"padding_mode": "reflection"}),
    Case(
        "grid_sample",
        {"x": (2, 2, 4, 2, 6), "grid": _VOLUME},
        {"padding_mode": "reflection", "align_corners": False},
    ),
    Case("affine_grid", {"theta": (6, 2, 3)}, {"out_shape": [6, 3, 4, 12]}),
    Case("affine_grid", {"theta": (2, 3, 4)}, {"out_shape": [2, 1, 4, 1, 6], "align_corners": False}),
]
