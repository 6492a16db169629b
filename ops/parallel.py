"""Ops of parallel vocabularies, which mask or reduce inside their kernels: Paddle's c_ ops, told as whole ops.

``c_embedding`` is a lookup that gives zeros for what its table does not hold, so that the table may be cut without any
other capability. The losses reduce a maximum and sums over the devices that cut the classes.
"""

from __future__ import annotations

import math
from collections.abc import Generator

import numpy as np

from ops.bind import Shape
from ops.dims import Array, elements_of, shape_of
from ops.grad import Grad
from ops.notation import RuleError
from ops.op import Attrs, LocalContext, Shapes
from ops.registry import family, op
from ops.rule import Rule, rule

_PARALLEL = "parallel_softmax"
Reduced = Generator[tuple[Array, str], Array, tuple[Array, Array]]

# ------------------------------------------------------------------------------------------------------------ embedding


def _held(x: Array, rows: int, start_index: int) -> tuple[Array, Array]:
    """Return the ids as rows of a table that starts at an id, 0 where it has no such row, and whether it has."""
    inside = (x >= start_index) & (x < start_index + rows)
    return np.where(inside, x - start_index, 0), inside


def _c_embedding(weight: Array, x: Array, start_index: int) -> Array:
    index, inside = _held(x, len(weight), start_index)
    return np.where(inside[..., None], weight[index], np.zeros((), weight.dtype))


def _c_embedding_grad(x: Array, out_grad: Array, *, start_index: int, shapes: Shapes) -> Array:
    grad = np.zeros(shape_of(shapes, "weight"), out_grad.dtype)
    index, inside = _held(x, len(grad), start_index)
    np.add.at(grad, index, np.where(inside[..., None], out_grad, 0))
    return grad


op(
    "c_embedding",
    "weight[v d], x[i*] -> out[i* d]",
    sum="v",
    linear="weight",
    major="v",
    attrs={"start_index": 0},
    kernel=_c_embedding,
    dtype=lambda dtypes, attrs: (str(dtypes["weight"]),),
    domain={"x": "v"},
    local=lambda attrs, ctx: {**attrs, "start_index": attrs["start_index"] + ctx.start("v")},
    flops=elements_of("out"),
    grad=Grad(_c_embedding_grad, reads="x", of="weight", shapes=True, flops=elements_of("out_grad")),
)

# --------------------------------------------------------------------------------------------------------------- losses


def _softmax(logits: Array) -> Generator[tuple[Array, str], Array, tuple[Array, Array]]:
    """Return the logarithms of a softmax over the last dim, and the softmax."""
    top = yield logits.max(-1, keepdims=True), "max"
    powers = np.exp(logits - top)
    total = yield powers.sum(-1, keepdims=True), "sum"
    return logits - top - np.log(total), powers / total


def _first_class(attrs: Attrs, ctx: LocalContext) -> Attrs:
    return {**attrs, "first_class": ctx.start("c")}


def _c_loss(logits: Array, label: Array, ignore_index: int, first_class: int = 0) -> Reduced:
    logs, softmax = yield from _softmax(logits)
    index, held = _held(label, logits.shape[-1], first_class)
    picked = -np.take_along_axis(logs, index, -1) * (held & (label != ignore_index))
    loss = yield np.asarray(picked, logits.dtype), "sum"
    return softmax, loss


def _c_loss_grad(label: Array, softmax: Array, loss_grad: Array, ignore_index: int, first_class: int = 0) -> Array:
    share = loss_grad * (label != ignore_index)
    return np.asarray(softmax * share.sum(-1, keepdims=True) - _spread(label, share, softmax.shape, first_class))


def _spread(label: Array, share: Array, shape: Shape, first_class: int) -> Array:
    """Put the share of each label at its class; labels of a class that another device holds put nothing."""
    index, held = _held(label, shape[-1], first_class)
    made = np.zeros(shape, share.dtype)
    places = tuple(np.ogrid[tuple(slice(size) for size in label.shape[:-1])])
    np.add.at(made, (*(place[..., None] for place in places), index), share * held)
    return made


def _reduced(shapes: Shapes, attrs: Attrs) -> list[Shape]:
    """The maximum and the sum of each row, then the losses."""
    row = (*shape_of(shapes, "logits")[:-1], 1)
    return [row, row, shape_of(shapes, "loss")]


op(
    "c_softmax_with_cross_entropy",
    "logits[a* c], label[a* 1] -> softmax[a* c], loss[a* 1]",
    synced="c",
    needs={"c": _PARALLEL},
    major="c",
    attrs={"ignore_index": -100},
    kernel=_c_loss,
    local=_first_class,
    reduces=_reduced,
    domain={"label": "c"},
    flops=lambda shapes, attrs: 5 * math.prod(shapes["logits"]),
    grad=Grad(
        _c_loss_grad, reads="label softmax", of="logits", outs="loss", cuts="c", linear={"logits": "softmax + 1"}
    ),
)


def _shares(smooth_weight: Array, label: Array, ignore_index: int) -> Array:
    return np.asarray(smooth_weight * (label != ignore_index))


def _c_labels(
    logits: Array,
    label: Array,
    smooth_weight: Array,
    ignore_index: int,
    sum_multi_label_loss: bool,
    first_class: int = 0,
) -> Reduced:
    logs, softmax = yield from _softmax(logits)
    index, held = _held(label, logits.shape[-1], first_class)
    each = -np.take_along_axis(logs, index, -1) * held * _shares(smooth_weight, label, ignore_index)
    loss = yield np.asarray(each.sum(-1, keepdims=True) if sum_multi_label_loss else each, logits.dtype), "sum"
    return softmax, loss


def _c_labels_grad(
    label: Array,
    smooth_weight: Array,
    softmax: Array,
    loss_grad: Array,
    ignore_index: int,
    sum_multi_label_loss: bool,
    first_class: int = 0,
) -> Array:
    share = loss_grad * _shares(smooth_weight, label, ignore_index)
    return np.asarray(softmax * share.sum(-1, keepdims=True) - _spread(label, share, softmax.shape, first_class))


@family(
    "c_softmax_with_multi_label_cross_entropy",
    "logits[], label[], smooth_weight[] -> softmax[], loss[]",
    kernel=_c_labels,
    attrs={"ignore_index": -100},
    local=_first_class,
    reduces=_reduced,
    domain={"label": "c", "smooth_weight": "positive"},
    flops=lambda shapes, attrs: 5 * math.prod(shapes["logits"]),
    grad=Grad(
        _c_labels_grad,
        reads="label smooth_weight softmax",
        of="logits",
        outs="loss",
        cuts="c",
        linear={"logits": "smooth_weight*softmax + smooth_weight"},
    ),
)
def c_softmax_with_multi_label_cross_entropy(label: Shape, sum_multi_label_loss: bool = True) -> Rule:
    """The loss of several labels an element, each with its weight, summed or each by itself."""
    if not label:
        raise RuleError("c_softmax_with_multi_label_cross_entropy: label has rank 0, so it holds no labels")
    loss = "1" if sum_multi_label_loss else "k"
    return rule(
        f"logits[a* c], label[a* k], smooth_weight[a* k] -> softmax[a* c], loss[a* {loss}]",
        synced="c",
        whole="k" * sum_multi_label_loss,
        needs={"c": _PARALLEL},
        major="c",
    )
