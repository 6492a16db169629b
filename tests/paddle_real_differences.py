"""Where PaddlePaddle's completion differs from our re-creation of it, given the same operands, and why.

Op -> pattern of what is told of it -> reason. Told is ``in OPERANDS | theirs NEEDED -> MADE | ours NEEDED -> MADE``.
"""

from __future__ import annotations

_WINDOW = "their rule cuts the window of the filter along with image space, which is wrong; ours gathers"
_LOST = "terms of a sum go in and the result is told as whole there, which is wrong; ours are reduced before"
_NO_SUM = "the reduction is told as a sum there, and terms of it do not add up to it; ours gathers"
_INDEXED = "their rule of writes by index drops cuts, or adds x once per device; ours keeps what its row allows"
_STATISTICS = "their rule leaves mean and variance whole, or drops the cut of one operand; our row cuts them all"
_CO_CUT = (
    "operands cut k on two mesh axes: theirs falls back to cut on one of them and still tells the result as partial on "
    "both, which is wrong; ours cuts k on both"
)
_BATCH = "the filter, which has no batch, is told as cut along with it, which is wrong; ours is whole"

_GROUPS = "their rule cuts the filter on its groups and leaves whole the channels that they read, which is wrong"

DIFFERENCES: dict[str, dict[str, str]] = {
    "conv2d": {
        "in *S([23])* | *": _WINDOW,
        "in [[]R[]] [[]S(0)[]] | *-> [[]S(3)[]]": "their rule takes dim 1 for the channels where those are last",
        "in [[]R[]] [[]S(0)[]] | *ours [[]S(1)[]] *": _GROUPS,
    },
    "depthwise_conv2d": {
        "in *S([23])* | *": _WINDOW,
        "in [[]S(1)[]] [[]R[]] | *": "their rule drops a cut of the channels of x alone; ours cuts the filter, too",
        "in [[]R[]] [[]S(0)[]] | *": _GROUPS,
    },
    "conv3d": {"in *S([234])* | *": _WINDOW},
    "conv2d_transpose": {"in *S([23])* | *": _WINDOW},
    "conv2d_grad": {"in [[]S(0)* [[]S(0)* [[]S(0)* | *": _BATCH},
    "unbind": {"in [[]P(sum)[]] | *": _LOST},
    "concat": {
        "in [[]P(sum)[]] [[]P(sum)[]] | *": _LOST,
        "in *S(0)* | theirs [[]S(1)[]] [[]S(1)[]] *": "theirs moves a cut of the dim that grows; ours gathers",
    },
    "logsumexp": {"*": _NO_SUM},
    "p_norm": {"*": _NO_SUM},
    "scatter": {"*": _INDEXED},
    "scatter_nd_add": {"*": _INDEXED},
    "index_put": {"*": _INDEXED},
    "batch_norm": {"*": _STATISTICS},
    "where": {"in [[]R[]] [[]R[]] [[]S(?)[]] | *": "theirs gathers y where it alone is cut; ours cuts all operands"},
    "expand_as": {"in [[]S(1)[]] [[]R[]] | *": "theirs gathers where only the first operand is cut; ours cuts both"},
    "matmul": {"in * | *P(sum),P(sum)* | *": _CO_CUT},
    "matmul_grad": {"in * | *": _CO_CUT},
}

REFUSALS = {
    "conv2d_last": "their rule takes dim 1 for the channels where those are last",
    "conv2d_grouped": "their rule compares the channels of x and of the filter, which are not the same with groups",
}
"""Networks that only one of both refuses for some placements."""
