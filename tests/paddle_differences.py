"""Where PaddlePaddle's answers are no rows of ours, and why: rule -> pattern of an answer -> reason.

Every answer in `FAULTS` fails when the op is run so; every one in `RIGHT` holds, and ours leaves it out.
"""

from __future__ import annotations

_SUM = "the reduction is told as a sum: terms of it do not add up to it"
_TRUTH = "the reduction is told as a sum, and truth values do not add up"
_WINDOW = "the window of the filter is taken for image space and cut along with it"
_LAST = "channels are last, and the rule takes dim 1 for them"
_GROUPS = "the filter is cut on its groups, and the channels of x, of which a group reads its own, are not"
_STATISTICS = "the channels are cut, the scale and bias that multiply them are not"
_TWICE = "one mesh axis cuts x and the index, which are two dims of the result"
_APART = "the operands are cut apart, though the op takes them element by element"
_OWN_DIM = "the dim that the op makes is cut, and no cut of its operands gives that"
_KEPT_X = "every device adds its updates to the whole of x, which is counted on each"

_REDUCTIONS = ("amax", "amin", "max", "min", "prod", "reduce_max", "frobenius_norm", "logsumexp", "p_norm")

FAULTS: dict[str, dict[str, str]] = {
    **{name: {"forward S(?) -> P(sum)": _SUM} for name in _REDUCTIONS},
    **{name: {"forward S(?) -> P(sum)": _TRUTH} for name in ("all", "any")},
    "batch_norm": {"forward S(1) S(0) S(0) R R -> *": _STATISTICS},
    "c_softmax_with_multi_label_cross_entropy": {
        "forward R S(1) S(1) -> R R": "the labels are cut, and each device would lose those of the others"
    },
    "concat": {"reverse R R -> S(?)": _OWN_DIM},
    "conv2d": {
        "* S(2) S(2) - -> S(2)": _WINDOW,
        "* S(3) S(3) - -> S(3)": _WINDOW,
        "* R S(0) - -> S(1)": f"{_LAST}; with groups: {_GROUPS}",
        "forward S(1) S(1) - -> P(sum)": f"{_LAST}; with groups the channels of x and of the filter are not the same",
    },
    "conv3d": {
        "forward S(?) S([234]) - -> S(?)": _WINDOW,
        "forward R S(0) - -> S(1)": f"{_LAST}; with groups: {_GROUPS}",
        "forward S([14]) S(1) - -> P(sum)": "with groups the channels of x and of the filter are not the same",
    },
    "conv2d_transpose": {
        "forward S(?) S([23]) - -> S(?)": _WINDOW,
        "forward R S(1) - -> S(1)": _LAST,
        "forward S([13]) S(0) - -> P(sum)": "with groups each block of the channels makes other channels of the result",
    },
    "depthwise_conv2d": {
        "forward S(?) S([23]) - -> S(?)": _WINDOW,
        "forward R S(0) - -> S(1)": _GROUPS,
    },
    "fused_dropout_add": {"forward R S(?) -> S(?)": _APART, "forward S(?) R -> S(?)": _APART,
                          "forward S(?) S(?) -> S(?)": _APART},
    "gather": {"forward S(?) S(0) -> S(?)": _TWICE},
    "gather_nd": {"forward S(?) S(?) -> S(?)": _TWICE},
    "instance_norm": {"forward S(1) R R -> S(1)": _STATISTICS},
    "moe_combine": {"forward S(0) S(0) S(0) -> S(0)": "rows of x are cut with the tokens, which may be in any row"},
    "scatter": {"forward R S(0) S(0) -> P(sum)": _KEPT_X},
    "scatter_nd_add": {
        "forward R S(0) S(0) -> P(sum)": _KEPT_X,
        "* S(1) S(1) S(1) -> S(1)": "the dim of the index that holds coordinates is cut",
        "reverse S(2) R R -> S(2)": "x is cut on a dim of the updates, which are not",
    },
    "slice": {"forward S(2) -> S(2)": "a dim that decrease_axis takes away is still counted in the result"},
    "stack": {"reverse R R -> S(?)": _OWN_DIM},
    "tile": {"reverse R -> S(0)": _OWN_DIM},
}  # fmt: skip

RIGHT: dict[str, dict[str, str]] = {
    "reduce_base": {"forward S(?) -> P(product)": "there is no partial product: no collective makes one of it"},
}

_WEIGHT = "the grad of the filter adds up over the batch, and is told as whole"
_BATCH_CUT = "the filter and its grad have no dim of the batch, and are cut along with it"

_LOST = "terms of a sum go in, and the result is told as whole"

PROGRAM_FAULTS: dict[str, dict[str, str]] = {
    "unbind": {"forward P(sum) -> R *": _LOST},
    "concat": {"forward P(sum) P(sum) -> R": _LOST},
    "logsumexp": FAULTS["logsumexp"],
    "p_norm": FAULTS["p_norm"],
    "scatter": FAULTS["scatter"],
    "scatter_nd_add": {
        "forward R S(0) S(0) -> P(sum)": _KEPT_X,
        "forward S(1) S(1) S(1) -> S(1)": "the dim of the index that holds coordinates is cut",
    },
    "batch_norm": FAULTS["batch_norm"],
    "batch_norm_grad": {"grad S(1) * S(1) -> S(1) P(sum) P(sum)": _STATISTICS},
    "conv2d": {key.replace("*", "forward", 1): why for key, why in FAULTS["conv2d"].items()},
    "conv2d_grad": {
        "grad S([23]) S([23]) S([23]) -> S([23]) S([23])": _WINDOW,
        "grad S(0) S(0) S(0) -> P(sum) P(sum)": _BATCH_CUT,
        "grad R S(0) S(1) -> P(sum) S(0)": f"{_LAST}; with groups: {_GROUPS}",
        "grad S(1) S(1) R -> S(1) S(1)": f"{_LAST}; with groups the channels of x and of the filter are not the same",
    },
    "depthwise_conv2d": FAULTS["depthwise_conv2d"],
    "depthwise_conv2d_grad": {
        "grad S(0) R S(0) -> S(0) R": _WEIGHT,
        "grad S([23]) S([23]) S([23]) -> S([23]) S([23])": _WINDOW,
        "grad R S(0) S(1) -> R S(0)": _GROUPS,
        "grad S(0) S(0) S(0) -> R R": _BATCH_CUT,
    },
    "conv2d_transpose": {"forward S(?) S([23]) - -> S(?)": _WINDOW},
    "conv2d_transpose_grad": {"grad S([23]) S([23]) S([23]) -> S([23]) S([23])": _WINDOW},
    "conv3d": {"forward S(?) S([234]) - -> S(?)": _WINDOW},
    "conv3d_grad": {
        "grad S([234]) S([234]) S([234]) -> S([234]) S([234])": _WINDOW,
        "grad S(0) S(0) S(0) -> P(sum) P(sum)": _BATCH_CUT,
    },
}
"""What ops of programs say, by our op: the same rules as they are called there, and those of grads."""
