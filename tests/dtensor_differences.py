"""Where DTensor (PyTorch 2.13) and our rows differ, by its strategies: patterns of rows, each with the reason.

A row is written with the op and the dtypes that it reads, ``*`` matches anything.
"""

from __future__ import annotations

_LOGICAL = "a sum of truths is none, and their mean is no truth"
_WHOLE = "integers are rounded and wrap: a sum of them is cast after it is reduced, and its terms may be no integers"
_NARROW = "a sum is reduced before it is rounded to a narrower dtype; the policy reduce_in_low_precision lets it pass"
_RANGE = "an order passes a cast only between numbers, and not into integers, where a float outside their range wraps"
_JOINT = "an order passes one operand at a time, so that it holds for every monotone op"
_MADE = "a tensor of one value is a constant here, which every device holds whole, and a cut of it is free"
_COUNTED = "what it divides by is a sum of weights, which differs from block to block"
_EVEN = "right while no label is ignored: then each block divides by its own size"
_COUNTS = "whether any element is true is P(any): devices that both hold a true one count it twice"
_ROUNDED = "what rounding or truth makes of a term says nothing of the sum, or of its dtype"
_CHANCE = "grads pass sums; a linear form with zeros around it keeps an order by chance"
_AFFINE = "an affine function, whose constant an average keeps; no clause says so"
_MASKED = "a masked lookup puts zeros where a device holds nothing, so it keeps no order"

FAULTS: dict[str, str] = {
    "aten._to_copy.default(bool) P(sum) -> *": _LOGICAL,
    "aten._to_copy.default(bool) P(avg) -> *": _LOGICAL,
    "aten.add.Tensor(bool, *) P(sum) P(sum) -> *": _LOGICAL,
    "aten.add.Tensor(bool, *) P(avg) * -> *": _LOGICAL,
    "aten.mul.Tensor(float64, bool) R P(*) -> *": _LOGICAL,
    "aten.any.*(*) S(?) -> P(sum)": _COUNTS,
    "aten.to.dtype(float64) P(*) -> P(*)": _ROUNDED,
    "aten._to_copy.default(float64) P(sum) -> *": _NARROW,
    "aten._to_copy.default(float64) P(avg) -> *": _NARROW,
    "aten.cumsum.default(bool) S(1) -> S(1)": "dim=-1 is taken for no dim: the scanned one is cut",
    "aten.div.Tensor(int64, int64) P(*) R -> *": "whole numbers become float32, which rounds each term",
    "aten.index_put*(float64, bool, *) S(1) R R -> S(1)": "a mask addresses both dims, the cut one too",
    "aten.nll_loss*_forward.default(float64, int64, float64) S(*) S(*) R -> P(avg) *": _COUNTED,
    "aten.sum.dim_IntList(float64) S(?) -> S(?)": "dim=[] sums over all dims, not over none",
}
"""Rows of DTensor that do not hold: run on simulated devices, at least one call of each gives other numbers."""

LOOSER: dict[str, str] = {
    "aten._to_copy.default(int*) P(*) -> *": _WHOLE,
    "aten._to_copy.default(bool) P(m??) -> *": _RANGE,
    "aten._to_copy.default(float64) P(m??) -> *": _RANGE,
    "aten.add.Tensor(*int*) * -> P(avg)": _WHOLE,
    "aten.add.Tensor(*int*) * -> P(sum)": _WHOLE,
    "aten.add.Tensor(bool, *) P(m??) R -> *": _RANGE,
    "aten.sub.Tensor(*int*) * -> *": _WHOLE,
    "aten.mul.Tensor(*int64*) * -> *": _WHOLE,
    "aten.div.*(int64) P(*) -> *": _WHOLE,
    "aten.histc.default(*) S(?) -> P(sum)": "counts are whole here, and cast after they are reduced",
    "aten.cat.default(*) P(m??) P(m??) -> *": _JOINT,
    "aten.stack.default(*) P(m??) P(m??) -> *": _JOINT,
    "aten.maximum.default(*) P(max) P(max) -> *": _JOINT,
    "aten.minimum.default(*) P(min) P(min) -> *": _JOINT,
    "aten.constant_pad_nd.default(*) P(avg) -> P(avg)": _AFFINE,
    "aten.index_select.default(*) P(m??) R -> *": _MASKED,
    "aten.select_backward.default(*) P(m??) -> *": _CHANCE,
    "aten.slice_backward.default(*) P(m??) -> *": _CHANCE,
    "aten.nll_loss*_backward.default(*) * P(*) -> *": "a sum of weights is read for a mean alone; no clause says so",
    "aten.nll_loss*_forward.default(float64, int64) S(*) S(*) -> P(avg) *": _EVEN,
    "aten.full_like.default(*) S(?) -> S(?)": _MADE,
    "aten.ones_like.default(*) S(?) -> S(?)": _MADE,
    "aten.zeros_like.default(*) S(?) -> S(?)": _MADE,
    "aten.native_dropout.default(*) S(?) -> *": _MADE,
}
"""Rows of DTensor that hold, and that we leave out."""
