from __future__ import annotations

from truth import Case

_GRADS = {"x": (2, 6, 4), "dout": (2, 6, 12)}
_APART = {"*P(*": "the form of one grad alone: a linear form speaks of all results alike"}

CASES = [
    Case("fused_gemm_epilogue", {"x": (2, 4, 6), "y": (6, 12), "bias": (12,)}),
    Case("fused_gemm_epilogue", {"x": (6, 4), "y": (12, 6), "bias": (12,)}, {"trans_x": True, "trans_y": True}),
    Case("fused_gemm_epilogue", {"x": (4, 6), "y": (6, 12), "bias": (12,)}, {"activation": "relu"}),
    Case("fused_gemm_epilogue", {"x": (4, 6), "y": (6, 12), "bias": (12,)}, {"activation": "gelu"}),
    Case("fused_linear_param_grad_add", {**_GRADS, "dweight": (4, 12), "dbias": (12,)}, {}, _APART),
    Case("fused_linear_param_grad_add", _GRADS, {}, _APART),
    Case("fused_linear_param_grad_add", {**_GRADS, "dweight": (4, 12)}, {"has_bias": False}),
    Case("fused_rms_norm", {"x": (2, 4, 6), "scale": (6,)}),
]
