"""Questions to PaddlePaddle's SPMD rules: how one is written, and the kinds that many rules share.

A rule takes tensors and then attributes, by position; ours are named. Attributes that its rule does not take are left
out of `args`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from truth import Case

from solver.report.coverage import framework


@dataclass(frozen=True)
class Ask:
    """One question to a rule.

    Parameters
    ----------
    case : Case
        The op of ours, with shapes and attributes.
    args : tuple
        Their attributes, in order.
    tensors : str
        Our operand for each tensor of theirs, in order, ``_`` for one that ours does not take; by default those of the
        op that are present.
    results : str
        Our result for each of theirs, in order, ``_`` for one that ours does not make; by default those of the op.
    extra : tuple
        The shapes of the tensors that ours does not take; they are never cut.
    in_lists : bool
        Whether the rule takes a list of operands and one of results.
    whole : tuple of str
        Operands that are cut on dim 0 alone: on another dim the rule ends the process.
    """

    case: Case
    args: tuple[Any, ...] = ()
    tensors: str = ""
    results: str = ""
    extra: tuple[tuple[int, ...], ...] = ()
    in_lists: bool = False
    whole: tuple[str, ...] = ()


def ask(
    op: str, shapes: dict[str, Any], args: Sequence[Any] = (), attrs: dict[str, Any] | None = None, **more: Any
) -> Ask:
    return Ask(Case(op, shapes, attrs or {}), tuple(args), **more)


A, B, C = (4, 6), (2, 4, 6), (2, 4, 6, 8)
_UNARY = (
    "abs acos acosh asin asinh assign atan atanh bernoulli bitwise_not ceil celu conj cos cosh digamma dropout elu erf "
    "erfinv exp expm1 fill floor hardshrink hardsigmoid hardswish hardtanh leaky_relu lgamma log log10 log1p log2 "
    "logical_not logit logsigmoid mish poisson pow reciprocal relu relu6 round rsqrt scale selu sigmoid sign silu sin "
    "sinh softplus softshrink softsign sqrt square stanh swish tan tanh tanh_shrink thresholded_relu trunc"
)
UNARY = _UNARY.split()
"""Functions of one tensor, which their rules take without attributes."""
UNARY_ATTRS = {"clip": {"min": -0.5, "max": 0.5}, "fill": {"fill_value": 2.0}, "pow": {"factor": 2.0},
               "scale": {"scale": 2.0}, "logit": {"eps": 1e-6}, "dropout": {"p": 0.5, "seed": 3}}  # fmt: skip
_BINARY = (
    "add bitwise_and bitwise_or bitwise_xor divide elementwise_add elementwise_div elementwise_mul elementwise_pow "
    "floor_divide fmax fmin greater_than heaviside less_than logical_and logical_or logical_xor maximum minimum "
    "multiply not_equal remainder subtract trunc_divide"
)
BINARY = _BINARY.split()
"""Functions of two tensors, with broadcasting."""
BROADCASTS = ((A, A), (A, (6,)), (A, (1, 6)), ((4, 1), A), (B, (4, 6)), (B, (4, 1)))
DTYPES = {"bitwise_and": "int64", "bitwise_or": "int64", "bitwise_xor": "int64", "bitwise_not": "int64",
          "logical_and": "bool", "logical_or": "bool", "logical_xor": "bool", "logical_not": "bool"}  # fmt: skip
REDUCTIONS = ("all", "amax", "amin", "any", "frobenius_norm", "max", "min", "prod", "reduce_max", "reduce_sum", "sum")


def ours(name: str) -> str:
    """The op of ours that a name of theirs is, by the table of coverage."""
    return next(entry.ops[0] for entry in framework("paddle").entries if entry.name == name)


def _typed(name: str, *operands: str) -> dict[str, str]:
    return dict.fromkeys(operands, DTYPES[name]) if name in DTYPES else {}


def unary(name: str, like: str = "") -> list[Ask]:
    op = like or ours(name)
    return [Ask(Case(op, {"x": shape}, UNARY_ATTRS.get(name, {}), dtypes=_typed(name, "x"))) for shape in (A, B, (6,))]


def binary(name: str, like: str = "") -> list[Ask]:
    op = like or ours(name)
    return [Ask(Case(op, {"x": x, "y": y}, dtypes=_typed(name, "x", "y"))) for x, y in BROADCASTS]


def reduction(name: str, like: str = "", *more: Any) -> list[Ask]:
    op = like or ours(name)
    dtypes = {"x": "bool"} if op in ("all", "any") else {}
    return [
        Ask(Case(op, {"x": shape}, {"axis": axis, "keepdim": keep}, dtypes=dtypes), (axis, keep, *more))
        for shape, axis in ((A, [1]), (A, [0]), (B, [0, 2]), (B, [-1]), (A, [0, 1]))
        for keep in (False, True)
    ]


def conv(name: str) -> list[Ask]:
    rank = 3 if name == "conv3d" else 2
    space, one, zero = (8, 8, 8)[:rank], [1] * rank, [1] * rank
    first, last = ("NCHW", "NHWC") if rank == 2 else ("NCDHW", "NDHWC")
    found = []
    for groups in (1, 2) if name != "depthwise_conv2d" else (4,):
        if name == "conv2d_transpose":
            filters = (4, 6 // groups, 3, 3)
        elif name == "depthwise_conv2d":
            filters = (4, 1, 3, 3)
        else:
            filters = (6, 4 // groups, *(3,) * rank)
        for layout in (first, last):
            x = (2, 4, *space) if layout == first else (2, *space, 4)
            attrs = {"stride": one, "padding": zero, "dilation": one, "groups": groups, "data_format": layout}
            if name == "conv2d":
                args = (one, zero, "EXPLICIT", one, groups, layout)
            elif name == "conv2d_transpose":
                args = (one, zero, [0] * 0 or [0, 0], [8, 8], "EXPLICIT", groups, one, layout)
            else:
                args = (one, zero, "EXPLICIT", groups, one, layout)
            found.append(ask(name, {"x": x, "filter": filters}, args, attrs))
    return found


def places(*shape: int) -> Any:
    """Indices into a tensor of at least (2, 4)."""
    return np.random.default_rng(5).integers(0, 2, shape)


def matmul(name: str) -> list[Ask]:
    shapes = ((A, (6, 8)), (B, (6, 8)), (B, (2, 6, 8)), (C, (2, 4, 8, 6)))
    found = [ask("matmul", {"x": x, "y": y}, (False, False)) for x, y in shapes]
    found.append(ask("matmul", {"x": (6, 4), "y": (6, 8)}, (True, False), {"transpose_x": True}))
    found.append(ask("matmul", {"x": A, "y": (8, 6)}, (False, True), {"transpose_y": True}))
    return found


def cross_entropy(name: str) -> list[Ask]:
    tail = (True, True, -100)
    return [
        ask("cross_entropy_with_softmax", {"logits": A, "label": (4, 1)}, (False, *tail, -1)),
        ask("cross_entropy_with_softmax", {"logits": B, "label": (2, 4, 1)}, (False, *tail, -1)),
        ask("cross_entropy_with_softmax", {"logits": A, "label": A}, (True, *tail, -1), {"soft_label": True}),
        ask("cross_entropy_with_softmax", {"logits": B, "label": (2, 1, 6)}, (False, *tail, 1), {"axis": 1}),
    ]


def template() -> list[Ask]:
    """A rule for ops in general takes a list of operands and a list of results."""
    return [replace(one, in_lists=True) for one in unary("", "exp")]


def norm(op: str, channels: int = 4, **attrs: Any) -> dict[str, Any]:
    return {"scale": (channels,), "bias": (channels,)}


IMAGE = (2, 4, 6, 6)
BATCH = ("mean", "variance", "scale", "bias")
