from __future__ import annotations

import numpy as np
from truth import Case

_FEW = np.arange(24).reshape(4, 6) * 7 % 5
_ALIKE = np.array([[1.0, 2.0, 0.5], [1.0, 2.0, 0.5], [0.0, 9.0, 1.0], [1.0, 2.0, 0.25]])
_ALL = dict.fromkeys(("return_index", "return_inverse", "return_counts"), True)

CASES = [
    Case("topk", {"x": (4, 6)}, {"k": 2}),
    Case("topk", {"x": (4, 6, 2)}, {"k": 3, "axis": 1, "largest": False}),
    Case("sort", {"x": (4, 6)}, {"axis": 0, "descending": True}),
    Case("argsort", {"x": (4, 6)}),
    Case("argsort", {"x": (4, 6)}, {"descending": True}, dtypes={"x": "int64"}),
    Case("topk", {"x": (12,)}, {"k": 4, "axis": 0, "sorted": False}),
    Case("topk", {"x": (2, 4, 2, 6, 2)}, {"k": 6, "axis": -2}),
    Case("topk", {"x": (6, 4)}, {"k": 3}, dtypes={"x": "int64"}),
    Case("unique", {"x": _FEW}, {"size": 6, **_ALL, "dtype": "int32"}),
    Case("unique", {"x": (4, 6)}, {"size": 24, "return_inverse": True}),
    Case("unique", {"x": _ALIKE}, {"size": 3, "axis": 0, "return_counts": True}),
]
