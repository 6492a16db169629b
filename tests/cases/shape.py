from __future__ import annotations

from truth import Case

CASES = [
    Case("reshape", {"x": (12, 6)}, {"shape": [2, 6, 6]}),
    Case("reshape", {"x": (4, 6)}, {"shape": [6, 4]}),
    Case("reshape", {"x": (2, 6, 4)}, {"shape": [0, -1]}),
    Case("reshape", {"x": (6, 1, 4)}, {"shape": [24, 1]}),
    Case("reshape", {"x": ()}, {"shape": [1, 1]}),
    Case("flatten", {"x": (2, 6, 4)}, {"start_axis": 1}),
    Case("squeeze", {"x": (1, 6, 1, 2)}, {"axis": 0}),
    Case("squeeze", {"x": (1, 2, 1, 6)}),
    Case("squeeze", {"x": (2, 6)}, {"axis": [0]}),
    Case("unsqueeze", {"x": (4, 6)}, {"axis": [0, 2]}),
    Case("transpose", {"x": (2, 4, 6)}, {"perm": [2, 0, 1]}),
    Case("moveaxis", {"x": (2, 4, 6)}, {"source": 0, "destination": 2}),
]
