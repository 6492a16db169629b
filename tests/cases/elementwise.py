from __future__ import annotations

import numpy as np
from truth import Case
from truth_reasons import AFFINE, JOINT

FEW = np.arange(24).reshape(4, 6) * 7 % 5
OTHER = np.arange(24).reshape(4, 6) * 5 % 3
LOGIC = {"x": "bool", "y": "bool"}

SPLIT = np.array([[True], [False], [True], [False]])

CASES = [
    Case("add", {"x": (4, 6), "y": (4, 6)}),
    Case("add", {"x": (4, 6), "y": (6,)}),
    Case("add", {"x": (4, 1), "y": (2, 1, 6)}),
    Case("add", {"x": FEW, "y": OTHER}),
    Case("subtract", {"x": (4, 6), "y": (6,)}),
    Case("multiply", {"x": (4, 6), "y": (4, 6)}),
    Case("multiply", {"x": (4, 6), "y": ()}),
    Case("multiply", {"x": (4, 1), "y": (6,)}),
    Case("divide", {"x": (4, 6), "y": (4, 1)}),
    Case("maximum", {"x": (4, 6), "y": (4, 6)}, missing=JOINT),
    Case("maximum", {"x": (4, 6), "y": (6,)}, missing=JOINT),
    Case("minimum", {"x": (4, 6), "y": (4, 6)}, missing=JOINT),
    *(Case(op, {"x": (4, 6), "y": (6,)}) for op in ("fmax", "fmin", "atan2", "logaddexp")),
    *(Case(op, {"x": (4, 6), "y": (6,)}) for op in ("remainder", "fmod", "floor_divide")),
    Case("pow", {"x": (4, 6), "y": (6,)}),
    Case("pow", {"x": (4, 6), "y": None}, {"factor": 3.0}),
    *(
        Case(op, {"x": FEW, "y": OTHER})
        for op in ("equal", "not_equal", "less_than", "less_equal", "greater_than", "greater_equal")
    ),
    *(Case(op, {"x": (4, 6), "y": (6,)}, dtypes=LOGIC) for op in ("logical_and", "logical_or", "logical_xor")),
    *(Case(op, {"x": FEW, "y": OTHER}) for op in ("bitwise_and", "bitwise_or", "bitwise_xor")),
    Case("where", {"condition": (4, 6), "x": (4, 6), "y": (6,)}, missing=JOINT, dtypes={"condition": "bool"}),
    Case("where", {"condition": SPLIT, "x": (4, 6), "y": ()}, missing=JOINT),
    Case("lerp", {"x": (4, 6), "y": (4, 6), "weight": ()}, missing=AFFINE, grad_missing=AFFINE),
    Case("add_n", {"inputs": [(4, 6), (4, 6), (4, 6)]}),
    Case("prelu", {"x": (4, 6, 2), "weight": (1,)}),
    Case("prelu", {"x": (4, 6, 2), "weight": (6,)}),
    Case("prelu", {"x": (2, 4, 6), "weight": (6,)}, {"data_format": "NHWC"}),
    Case("swiglu", {"x": (4, 6), "y": (4, 6)}),
    Case("swiglu", {"x": (4, 12), "y": None}),
]
