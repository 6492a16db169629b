from __future__ import annotations

import numpy as np
from truth import Case

BITS = np.arange(24).reshape(4, 6) % 7
ODD = np.array([[0.5, np.nan, np.inf, -np.inf, 1.0, 0.0]] * 2 + [[np.inf, 1.0, np.nan, 2.0, -np.inf, 3.0]] * 2)
UNIT = np.linspace(-0.9, 0.85, 24).reshape(4, 6)
WHOLE = {"*P(sum) -> P(sum)": "integers wrap and floats round them: a sum is cast after it is reduced"}
SPREAD = {"x": np.linspace(-7.3, 8.1, 24).reshape(4, 6)}

ANYWHERE = """
    neg abs sign floor ceil round trunc sin cos tan atan sinh cosh asinh relu relu6 sigmoid
    log_sigmoid tanh erf gelu silu swish mish softplus softsign tanhshrink hardswish hardtanh elu selu celu leaky_relu
    hardsigmoid assign
"""
POSITIVE = "sqrt rsqrt reciprocal log log1p log2 log10"
HALF_LINE = {"P(min) -> *": "terms of a P(max) may lie outside the domain, and no clause lets P(min) alone pass"}
RANGE = {"P(m??) -> P(m??)": "a float outside the range of the integers wraps"}

CASES = [
    *(Case(op, {"x": (4, 6)}) for op in ANYWHERE.split()),
    *(Case(op, {"x": (4, 6)}, missing=HALF_LINE) for op in POSITIVE.split()),
    *(Case(op, {"x": (4, 6)}) for op in ("square", "exp", "expm1")),
    *(Case(op, {"x": UNIT}) for op in ("asin", "acos", "atanh")),
    Case("acosh", {"x": UNIT + 2}, missing=HALF_LINE),
    *(Case(op, SPREAD) for op in ("relu6", "hardswish", "softplus", "hardsigmoid")),
    Case("relu", {"x": np.array(0.7)}),
    Case("gelu", {"x": (4, 6)}, {"approximate": True}),
    Case("leaky_relu", {"x": (4, 6)}, {"negative_slope": -0.5}),
    Case("elu", {"x": (4, 6)}, {"alpha": -0.5}),
    Case("hardsigmoid", {"x": (4, 6)}, {"slope": -0.2}),
    Case("clip", {"x": (4, 6)}, {"min": -0.5, "max": 0.5}),
    Case("clip", {"x": (4, 6)}, {"min": 0.1}),
    Case("scale", {"x": (4, 6)}, {"scale": 3.0}),
    Case("scale", {"x": (4, 6)}, {"scale": -3.0}),
    Case("scale", {"x": (4, 6)}, {"scale": 3.0, "bias": 0.5}),
    Case("scale", {"x": (4, 6)}, {"scale": 3.0, "bias": 0.5, "bias_after_scale": False}),
    Case("scale", {"x": BITS}, {"scale": 3}),
    Case("scale", {"x": BITS}, {"scale": 0.5}),
    Case("cast", {"x": (4, 6)}, {"dtype": "float64"}),
    Case("cast", {"x": (4, 6)}, {"dtype": "float32"}),
    Case("cast", {"x": (4, 6)}, {"dtype": "int64"}, RANGE),
    Case("cast", {"x": BITS}, {"dtype": "float64"}, WHOLE),
    Case("cast", {"x": BITS}, {"dtype": "bool"}),
    Case("cast", {"x": BITS > 3}, {"dtype": "float64"}),
    Case("cast_grad", {"out_grad": (4, 6)}, {"dtype": "float64", "forward_dtype": "float64"}),
    Case("cast_grad", {"out_grad": (4, 6)}, {"dtype": "float64", "forward_dtype": "float32"}),
    *(Case(op, {"x": ODD}) for op in ("isnan", "isinf", "isfinite")),
    Case("logical_not", {"x": (4, 6)}, dtypes={"x": "bool"}),
    Case("bitwise_not", {"x": BITS}),
]
