from __future__ import annotations

from truth import Case

CASES = [
    Case("topk", {"x": (4, 6)}, {"k": 2}),
    Case("topk", {"x": (4, 6, 2)}, {"k": 3, "axis": 1, "largest": False}),
    Case("sort", {"x": (4, 6)}, {"axis": 0, "descending": True}),
    Case("argsort", {"x": (4, 6)}),
    Case("argsort", {"x": (4, 6)}, {"descending": True}, dtypes={"x": "int64"}),
]
