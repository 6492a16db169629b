from __future__ import annotations

from truth import Case

CASES = [
    Case("concat", {"x": [(4, 6), (4, 2), (4, 3)]}, {"axis": -1}),
    Case("concat", {"x": [(3, 6), (1, 6)]}),
    Case("stack", {"x": [(4, 6), (4, 6)]}, {"axis": 1}),
    Case("split", {"x": (4, 6)}, {"num_or_sections": 3, "axis": 1}),
    Case("split", {"x": (4, 6)}, {"num_or_sections": [1, -1]}),
    Case("unbind", {"input": (4, 6)}, {"axis": 1}),
    Case("slice", {"input": (4, 6, 2)}, {"axes": [0, 1], "starts": [1, 0], "ends": [3, 6]}),
    Case("slice", {"input": (4, 6, 1)}, {"axes": [0, 2], "starts": [-1, 0], "ends": [4, 1], "decrease_axis": [0, 2]}),
    Case("strided_slice", {"x": (6, 6, 4)}, {"axes": [1, 2], "starts": [5, 0], "ends": [0, 4], "strides": [-2, 3]}),
    Case("slice_scatter", {"x": (6, 6), "value": (6, 2)}, {"axes": [1], "starts": [0], "ends": [4], "strides": [2]}),
    Case("pad", {"x": (4, 6)}, {"pad": [0, 0, 1, 2]}),
    Case("pad", {"x": (4, 6)}, {"pad": [0, 0, 1, 2], "value": 1.5}),
    Case("pad", {"x": (4, 6, 3)}, {"pad": [1, 2], "mode": "reflect"}),
    Case("pad", {"x": (4, 6)}, {"pad": [0, 0, 1, 2], "mode": "replicate"}),
    Case("pad", {"x": (4, 6)}, {"pad": [1, 1, 4, 2]}),
    Case("pad", {"x": (6, 4)}, {"pad": [7, 5, 0, 2], "value": 0.5}),
    Case("pad", {"x": (4, 6)}, {"pad": [2, 0, 9, 3], "mode": "replicate"}),
    Case("pad", {"x": (2, 6, 4)}, {"pad": [1, 3, 5, 1]}, dtypes={"x": "int64"}),
    Case("pad", {"x": (6, 4)}, {"pad": [1, 2, 0, 0], "mode": "circular"}),
]
