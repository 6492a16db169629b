from __future__ import annotations

from truth import Case

CASES = [
    Case("full", {}, {"shape": [4, 6], "fill_value": 2.5}),
    Case("zeros", {}, {"shape": [4, 6]}),
    Case("ones", {}, {"shape": [4, 6], "dtype": "int64"}),
    Case("full_like", {"x": (4, 6)}, {"fill_value": 2.5}),
    Case("zeros_like", {"x": (4, 6)}),
    Case("ones_like", {"x": (4, 6)}, {"dtype": "bool"}),
    Case("arange", {}, {"end": 12}),
    Case("arange", {}, {"start": 3.0, "end": 9.0, "step": 0.5, "dtype": "float64"}),
    Case("linspace", {}, {"start": -1.0, "stop": 2.0, "num": 12, "dtype": "float64"}),
    Case("eye", {}, {"num_rows": 6}),
    Case("eye", {}, {"num_rows": 4, "num_columns": 6, "dtype": "int64"}),
    Case("tril", {"x": (2, 6, 4)}),
    Case("tril", {"x": (4, 6)}, {"diagonal": 1}),
    Case("triu", {"x": (6, 6)}, {"diagonal": -1}),
]
