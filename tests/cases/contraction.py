from __future__ import annotations

from truth import Case

CASES = [
    Case("matmul", {"x": (4, 6), "y": (6, 12)}),
    Case("matmul", {"x": (2, 6, 4), "y": (4, 6)}),
]
