"""aten: losses and their backward.

The mean of a loss by class divides a sum over the batch by a count over the batch. Both are written as sums of their
own, so that a batch that is cut leaves two numbers to add up, and no kernel has to reduce inside.
"""

from __future__ import annotations

from solver.importers.aten_site import Lowering, Site
from solver.importers.sketch import Value

_REDUCTIONS = ("none", "mean", "sum")


def _nll_loss(
    site: Site, x: Value, target: Value, weight: Value | None, reduction: int, ignore_index: int
) -> list[Value]:
    """Return the loss, and the weights of the labels that count, added up."""
    axis = len(x.shape) - 1 - len(target.shape[1:])
    counts = site.emit("not_equal", target, site.constant(ignore_index, target.dtype))
    label = site.emit("where", counts, target, site.constant(0, target.dtype))
    index = site.emit("unsqueeze", label, axis=[axis])
    picked = site.reshape(site.emit("take_along_axis", x, index, axis=axis), target.shape)
    weights = site.cast(counts, x.dtype)
    if weight is not None:
        weights = site.emit("multiply", site.emit("index_select", weight, label, axis=0), weights)
        each = site.emit("multiply", picked, weights)
    else:
        each = site.emit("where", counts, picked, site.constant(0, x.dtype))
    every = list(range(len(target.shape)))
    total = site.emit("sum", weights, axis=every) if every else weights
    if _REDUCTIONS[reduction] == "none":
        return [site.emit("neg", each), total]
    loss = site.emit("neg", site.emit("sum", each, axis=every) if every else each)
    return [site.emit("divide", loss, total) if _REDUCTIONS[reduction] == "mean" else loss, total]


def _nll_loss_backward(
    site: Site,
    grad: Value,
    x: Value,
    target: Value,
    weight: Value | None,
    reduction: int,
    ignore_index: int,
    total_weight: Value,
) -> Value:
    shapes = {"input": x.shape, "label": target.shape, "weight": None if weight is None else weight.shape}
    attrs = {"reduction": _REDUCTIONS[reduction], "ignore_index": ignore_index, "forward_shapes": shapes}
    return site.emit("nll_loss_grad", target, weight, total_weight, grad, **attrs)


def _cross_entropy(
    site: Site,
    x: Value,
    target: Value,
    weight: Value | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Value:
    if label_smoothing or target.floating:
        raise site.refuse("only labels that are classes, without label smoothing, can be planned")
    logs = site.emit("log_softmax", x, axis=1 if len(x.shape) > 1 else 0)
    return _nll_loss(site, logs, target, weight, reduction, ignore_index)[0]


def _mse_loss(site: Site, x: Value, target: Value, reduction: int = 1) -> Value:
    return site.emit("mse_loss", x, target, reduction=_REDUCTIONS[reduction])


def _mse_loss_backward(site: Site, grad: Value, x: Value, target: Value, reduction: int) -> Value:
    return site.emit_all("mse_loss_grad", x, target, grad, reduction=_REDUCTIONS[reduction])[0]


def _with_logits(
    site: Site,
    x: Value,
    target: Value,
    weight: Value | None = None,
    pos_weight: Value | None = None,
    reduction: int = 1,
) -> Value:
    if weight is not None or pos_weight is not None:
        raise site.refuse("only a binary cross entropy without weights can be planned")
    return site.emit("binary_cross_entropy_with_logits", x, target, reduction=_REDUCTIONS[reduction])


LOSSES: dict[str, Lowering] = {
    "aten.nll_loss_forward.default": _nll_loss,
    "aten.nll_loss2d_forward.default": _nll_loss,
    "aten.nll_loss_backward.default": _nll_loss_backward,
    "aten.nll_loss2d_backward.default": _nll_loss_backward,
    "aten.cross_entropy_loss.default": _cross_entropy,
    "aten.mse_loss.default": _mse_loss,
    "aten.mse_loss_backward.default": _mse_loss_backward,
    "aten.binary_cross_entropy_with_logits.default": _with_logits,
}
