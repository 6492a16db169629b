"""Where DTensor's propagator and our re-creation of it differ, given the same operands, and why.

Op of ours -> pattern of what is told -> reason. Told is ``CALL: in OPERANDS | theirs READ -> MADE | ours -> MADE``.
"""

from __future__ import annotations

_TIE = "two strategies cost the same in DTensor's model, and each takes the first of its own list"

DIFFERENCES: dict[str, dict[str, str]] = {
    "addmm": {"aten.addmm.default: *": _TIE},
    "divide": {
        "aten.nll_loss_forward.default: *": "the mean is told as an average of means there; ours divides a sum by the "
        "summed weight, which is an op of its own and looks at the labels alone"
    },
    "nll_loss_grad": {
        "aten.nll_loss_backward.default: *": "theirs follows the logits, of which our op reads no number, and so "
        "does not know where they lie"
    },
}
