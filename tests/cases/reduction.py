from __future__ import annotations

import numpy as np
from truth import Case

FEW = np.arange(24).reshape(4, 6) * 7 % 4
NEARLY_FALSE = np.arange(24).reshape(4, 6) == 8
NEARLY_TRUE = ~NEARLY_FALSE
UNEVEN = (np.sin(np.arange(24.0) ** 2 * 7) * (13 - np.abs(np.arange(-12, 12))) / 13).reshape(4, 6)
ONE = {"P(m??) -> P(m??)": "a sum of one element"}

_EXTREMA = ("max", "min", "amax", "amin")
_READING = ("prod", "frobenius_norm", "var", "std")

CASES = [
    Case("sum", {"x": (4, 6)}),
    Case("sum", {"x": (4, 6, 4)}, {"axis": 1}),
    Case("sum", {"x": (4, 6, 4)}, {"axis": [0, -1], "keepdim": True}),
    Case("sum", {"x": ()}, missing=ONE),
    Case("sum", {"x": FEW}, {"axis": 0}),
    Case("sum", {"x": FEW > 1}, {"axis": 0}),
    Case("sum", {"x": FEW}, {"axis": 0, "dtype": "float64"}),
    Case("sum", {"x": np.linspace(-9, 9, 24).reshape(4, 6)}, {"axis": 0, "dtype": "int64"}),
    Case("mean", {"x": (4, 6)}),
    Case("mean", {"x": (4, 6, 4)}, {"axis": 1}),
    Case("mean", {"x": (4, 6, 4)}, {"axis": [0, -1], "keepdim": True}),
    Case("mean_all", {"x": (4, 6)}),
    Case("count_nonzero", {"x": FEW}, {"axis": 1}),
    *(Case(op, {"x": (4, 6)}) for op in _EXTREMA),
    *(Case(op, {"x": (4, 6, 4)}, {"axis": 1}) for op in _EXTREMA),
    Case("max", {"x": (4, 6, 4)}, {"axis": [0, 1], "keepdim": True}),
    *(Case("any", {"x": NEARLY_FALSE}, {"axis": axis}) for axis in (None, 0, 1)),
    *(Case("all", {"x": NEARLY_TRUE}, {"axis": axis}) for axis in (None, 0, 1)),
    *(Case(op, {"x": (4, 6)}) for op in _READING),
    *(Case(op, {"x": (4, 6, 4)}, {"axis": 1, "keepdim": True}) for op in _READING),
    Case("logsumexp", {"x": (4, 6)}),
    Case("logsumexp", {"x": (4, 6, 4)}, {"axis": 1, "keepdim": True}),
    Case("p_norm", {"x": (4, 6)}, {"porder": 2.0, "axis": 1}),
    *(Case("p_norm", {"x": (4, 6)}, {"porder": p, "axis": 1}) for p in (3.0, np.inf, -np.inf)),
    Case("p_norm", {"x": (4, 6)}, {"porder": 1.0, "axis": 1}),
    Case("p_norm", {"x": FEW.astype(float)}, {"porder": 0, "axis": 1}),
    Case("squared_l2_norm", {"x": (4, 6)}),
    *(Case(op, {"x": (12, 18)}) for op in ("argmax", "argmin")),
    *(Case(op, {"x": UNEVEN}, {"axis": -1}) for op in ("argmax", "argmin")),
    Case("argmax", {"x": UNEVEN}, {"axis": 0, "keepdim": True}),
    Case("mean_all", {"x": (12,)}),
    Case("mean_all", {"x": (2, 3, 4)}),
]
