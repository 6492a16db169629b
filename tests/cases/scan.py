from __future__ import annotations

from truth import Case

CASES = [
    Case("cumsum", {"x": (4, 6)}, {"axis": 1}),
    Case("cumsum", {"x": (4, 6)}),
    Case("cumsum", {"x": (4, 6, 2)}, {"axis": -3, "exclusive": True, "reverse": True}),
    Case("cumprod", {"x": (4, 6)}, {"dim": 0}),
    Case("cumprod", {"x": (4, 3)}, {}),
    Case("cummax", {"x": (4, 6)}, {"axis": 1}),
    Case("cummin", {"x": (4, 6)}, {"axis": 0}),
    Case("cummin", {"x": (4, 2)}),
    Case("cummax", {"x": (4, 6, 2)}, {"axis": -2, "dtype": "int32"}),
    Case("cummax", {"x": (12,)}, {"axis": -1}, dtypes={"x": "int64"}),
    Case("logcumsumexp", {"x": (4, 6)}, {"axis": 1}),
]
