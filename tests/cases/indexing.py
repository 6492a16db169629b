from __future__ import annotations

import numpy as np
from truth import Case

_POINTS = np.array([[0, 1], [3, 5], [0, 1], [2, 0], [1, 4], [3, 3]])

CASES = [
    Case("gather", {"x": (12, 6), "index": (6,)}),
    Case("gather", {"x": (4, 6, 2), "index": (2, 6)}, {"axis": -2}),
    Case("gather", {"x": (4, 6), "index": ()}, {"axis": 1}),
    Case("index_select", {"x": (4, 6), "index": (12,)}, {"axis": 1}),
    Case("embedding", {"x": (2, 6), "weight": (12, 4)}),
    Case("embedding", {"x": (6, 2), "weight": (6, 4)}, {"padding_idx": -1}),
    Case("one_hot", {"x": (4, 6)}, {"num_classes": 12}),
    Case("gather_nd", {"x": (4, 6, 12), "index": _POINTS}),
    Case("gather_nd", {"x": (4, 6), "index": _POINTS}),
    Case("take_along_axis", {"arr": (4, 6), "indices": (4, 12)}, {"axis": 1}),
    Case("take_along_axis", {"arr": (6, 4, 1), "indices": (2, 1, 6)}, {"axis": 0}),
    Case("take_along_axis", {"arr": (6, 4), "indices": (6, 2)}, {"axis": 0}),
    Case("masked_fill", {"x": (4, 6), "mask": (6,)}, {"value": 0.0}, dtypes={"mask": "bool"}),
    Case("masked_fill", {"x": (4, 1), "mask": (4, 6)}, {"value": 1.5}, dtypes={"mask": "bool"}),
    Case("index_select", {"x": (2, 4, 6), "index": (12,)}, {"axis": -2}),
    Case("index_select", {"x": (6,), "index": (4,)}, dtypes={"x": "int64"}),
    Case("nonzero", {"x": np.arange(24).reshape(4, 6) % 5 - 2}, {"size": 21}),
    Case("nonzero", {"x": np.arange(6) > 2}, {"size": 3}),
]
