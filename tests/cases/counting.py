from __future__ import annotations

from truth import Case

_RANGE = {"bins": 6, "min": -3.0, "max": 3.0}

CASES = [
    Case("histogram", {"input": (4, 6)}, _RANGE),
    Case("histogram", {"input": (4, 6), "weight": (4, 6)}, _RANGE),
    Case("histogram", {"input": (4, 6)}, {"bins": 6}),
    Case("histogram", {"input": (4, 6)}, {**_RANGE, "density": True}),
    Case("histogram", {"input": (4, 6)}, {"bins": 7, "min": -3, "max": 4}, dtypes={"input": "int64"}),
    Case("bincount", {"x": (12,)}, {"minlength": 6}),
    Case("bincount", {"x": (12,), "weights": (12,)}, {"minlength": 6}),
]
