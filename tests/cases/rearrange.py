from __future__ import annotations

from truth import Case

CASES = [
    Case("expand", {"x": (1, 6)}, {"shape": [4, 12, -1]}),
    Case("broadcast_to", {"x": (6, 1)}, {"shape": [6, 4]}),
    Case("expand_as", {"x": (1, 6), "y": (4, 6)}),
    Case("tile", {"x": (4, 6)}, {"repeat_times": [2, 3, 1]}),
    Case("repeat_interleave", {"x": (6, 4)}, {"repeats": 2, "axis": 0}),
    Case("repeat_interleave", {"x": (6, 2)}, {"repeats": 3}),
    Case("flip", {"x": (4, 6)}, {"axis": 1}),
    Case("roll", {"x": (4, 6)}, {"shifts": 1, "axis": 1}),
    Case("roll", {"x": (4, 6)}, {"shifts": 5}),
    Case("roll", {"x": (12, 6)}, {"shifts": [-5, 4], "axis": [0, -1]}),
    Case("roll", {"x": (2, 12, 3)}, {"shifts": [7, 2], "axis": [1, 1]}),
    Case("roll", {"x": (6, 2, 3)}, {"shifts": 18}),
    Case("roll", {"x": (6, 4)}, {"shifts": [-7]}),
    Case("roll", {"x": (6, 12)}, {"shifts": [6, 4], "axis": [1, 1]}),
    Case("roll", {"x": (12,)}, {"shifts": 14}, dtypes={"x": "int64"}),
    Case("diagonal", {"x": (4, 6, 3)}, {"offset": 1, "axis1": 0, "axis2": 2}),
    Case("expand_as", {"x": (6, 1, 2), "y": (4, 6, 12, 2)}),
    Case("expand_as", {"x": (4, 6), "y": (4, 6)}),
    Case("expand_as", {"x": (), "y": (6,)}),
]
