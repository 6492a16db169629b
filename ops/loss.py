"""Losses. A mean over a cut dim is an average of averages; what divides by a count that data decide reduces inside."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from typing import Any

import numpy as np

from ops.bind import Shape
from ops.dims import Array, shape_of
from ops.grad import Grad, Linear
from ops.notation import RuleError
from ops.op import Attrs, LocalContext
from ops.registry import family, op
from ops.rule import Rule, rule
from ops.unary import sigmoid

REDUCTIONS = ("mean", "sum", "none")
Reduced = Generator[tuple[Array, str], Array, tuple[Array, Array]]


def _check_reduction(name: str, reduction: str) -> None:
    if reduction not in REDUCTIONS:
        raise RuleError(f"{name} has no reduction {reduction!r}: choose from {', '.join(REDUCTIONS)}")


# Losses of pairs of elements, then reduced.
def _reduce(each: Array, reduction: str) -> Array:
    if reduction == "none":
        return each
    return np.asarray(each.mean() if reduction == "mean" else each.sum())


def _blocks(attrs: Attrs, ctx: LocalContext) -> Attrs:
    """Tell the backward of a mean in how many blocks it is cut."""
    rank = len(ctx.operands["input"] or ())
    return {**attrs, "blocks": math.prod(ctx.count(f"a{d}") for d in range(rank))}


def pairwise(
    name: str,
    loss: Callable[..., Any],
    slopes: Callable[..., Any],
    *,
    target: str = "label",
    of: str = "input label",
    reads: str | None = None,
    linear: Linear = None,
    attrs: Attrs | None = None,
    **facts: Any,
) -> None:
    """Register a loss of two tensors, element by element, with the attribute ``reduction``.

    Parameters
    ----------
    name : str
    loss : callable
        ``(input, target, **attrs)``.
    slopes : callable
        Its derivatives by the operands in ``of``, in order.
    target : str
        The name of the second operand.
    of : str
        The differentiable operands.
    reads : str, optional
        What the derivatives read, where it is not both operands.
    linear : mapping or callable, optional
        The forms of the derivatives in what they read, as for `ops.grad.Grad`.
    attrs : mapping, optional
        Attributes of the loss, with defaults.
    **facts
        Op facts, as for `ops.registry.op`.
    """

    def kernel(x: Array, y: Array, reduction: str, blocks: int = 1, **given: Any) -> Array:
        return _reduce(np.asarray(loss(x, y, **given)), reduction)

    def backward(*tensors: Array, reduction: str, blocks: int = 1, **given: Any) -> list[Array]:
        *read, out_grad = tensors
        share = read[0].size * blocks if reduction == "mean" else 1
        return [np.asarray(out_grad * slope / share, out_grad.dtype) for slope in slopes(*read, **given)]

    @family(
        name,
        f"input[], {target}[] -> out[]",
        kernel=kernel,
        attrs=attrs,
        local=_blocks,
        grad=Grad(backward, reads=reads, of=of, cuts="a*", linear=linear),
        **facts,
    )
    def register(reduction: str = "mean") -> Rule:
        _check_reduction(name, reduction)
        if reduction == "none":
            return rule(f"input[a*], {target}[a*] -> out[a*]")
        kind = {"mean": "avg", "sum": "sum"}[reduction]
        return rule(f"input[a*], {target}[a*] -> out[]", **{kind: "a*"})  # type: ignore[arg-type]


def _square_slopes(x: Array, y: Array) -> tuple[Array, Array]:
    return 2 * (x - y), 2 * (y - x)


def _absolute_slopes(x: Array, y: Array) -> tuple[Array, Array]:
    return np.sign(x - y), np.sign(y - x)


def _smooth(x: Array, y: Array, delta: float, is_huber: bool) -> Array:
    gap = np.abs(x - y)
    loss = np.where(gap < delta, 0.5 * gap * gap, delta * gap - 0.5 * delta * delta)
    return np.asarray(loss if is_huber else loss / delta)


def _smooth_slopes(x: Array, y: Array, delta: float, is_huber: bool) -> tuple[Array, Array]:
    slope = np.clip(x - y, -delta, delta) / (1 if is_huber else delta)
    return slope, -slope


def _cross_entropy(x: Array, y: Array) -> Array:
    return np.asarray(-y * np.log(x) - (1 - y) * np.log(1 - x))


def _cross_entropy_with_logits(x: Array, y: Array) -> Array:
    return np.asarray(np.maximum(x, 0) - x * y + np.log1p(np.exp(-np.abs(x))))


def _divergence(x: Array, y: Array, log_target: bool) -> Array:
    """Return y (log y - x), where x, and y with log_target, are logarithms already."""
    return np.asarray(np.exp(y) * (y - x) if log_target else y * (np.log(y) - x))


_DIFFERENCE = dict.fromkeys(("input", "label"), "input + label")
pairwise("mse_loss", lambda x, y: (x - y) ** 2, _square_slopes, linear=_DIFFERENCE)
pairwise("l1_loss", lambda x, y: np.abs(x - y), _absolute_slopes)
pairwise("smooth_l1_loss", _smooth, _smooth_slopes, attrs={"delta": 1.0, "is_huber": True})
pairwise(
    "binary_cross_entropy",
    _cross_entropy,
    lambda x, y: ((x - y) / (x * (1 - x)),),
    of="input",
    linear={"input": "label + 1"},
    domain={"input": "unit", "label": "unit"},
)
pairwise(
    "binary_cross_entropy_with_logits",
    _cross_entropy_with_logits,
    lambda x, y: (sigmoid(x) - y,),
    of="input",
    linear={"input": "label + 1"},
    domain={"label": "unit"},
)
pairwise(
    "kl_div",
    _divergence,
    lambda y, log_target: (-(np.exp(y) if log_target else y),),
    of="input",
    reads="label",
    linear=lambda attrs: {} if attrs["log_target"] else {"input": "label"},
    attrs={"log_target": False},
    domain={"label": "positive"},
)


op(
    "square_error_cost",
    "input[a*], label[a*] -> out[a*]",
    kernel=lambda x, y: (x - y) ** 2,
    grad=Grad(lambda x, y, out_grad: [slope * out_grad for slope in _square_slopes(x, y)], linear=_DIFFERENCE),
)


def _log_loss(input: Array, label: Array, epsilon: float) -> Array:
    return np.asarray(-label * np.log(input + epsilon) - (1 - label) * np.log(1 - input + epsilon))


def _log_loss_grad(input: Array, label: Array, out_grad: Array, epsilon: float) -> Array:
    return np.asarray(out_grad * ((1 - label) / (1 - input + epsilon) - label / (input + epsilon)))


op(
    "log_loss",
    "input[a*], label[a*] -> out[a*]",
    kernel=_log_loss,
    attrs={"epsilon": 1e-4},
    domain={"input": "unit", "label": "unit"},
    grad=Grad(_log_loss_grad, of="input", linear={"input": "label + 1"}),
)


# Labels made smoother before a loss.
def _label_smooth(label: Array, prior_dist: Array | None, epsilon: float, classes: int = 0) -> Array:
    floor = 1 / (classes or label.shape[-1]) if prior_dist is None else prior_dist
    return np.asarray((1 - epsilon) * label + epsilon * floor, label.dtype)


@family(
    "label_smooth",
    "label[], prior_dist?[] -> out[]",
    kernel=_label_smooth,
    dtype=lambda dtypes, attrs: (dtypes["label"],),
    local=lambda attrs, ctx: {**attrs, "classes": shape_of(ctx.operands, "label")[-1] * ctx.count("c")},
    flops=lambda shapes, attrs: 2 * math.prod(shapes["label"]),
    grad=Grad(lambda out_grad, epsilon, classes=0: (1 - epsilon) * out_grad, reads="", of="label"),
)
def label_smooth(label: Shape, label_dtype: str | None, prior_dist: Shape | None, epsilon: float = 0.1) -> Rule:
    """A label drawn towards a distribution over the classes of its last dim, the even one where none is given."""
    if label_dtype is not None and "float" not in label_dtype:
        raise RuleError(f"label_smooth: label is {label_dtype}: make it one_hot first, a number for each class")
    if not 0 <= epsilon <= 1:
        raise RuleError(f"label_smooth: epsilon={epsilon} is not between 0 and 1")
    if not label:
        raise RuleError("label_smooth: label has rank 0, so it has no classes")
    if prior_dist is None:
        return rule("label[a* c], prior_dist?[_] -> out[a* c]", monotone="label")
    if not prior_dist or math.prod(prior_dist) != prior_dist[-1] or prior_dist[-1] != label[-1]:
        raise RuleError(f"label_smooth: prior_dist {prior_dist} is not one number for each of {label[-1]} classes")
    prior = " ".join(["1"] * (len(prior_dist) - 1) + ["c"])
    return rule(
        f"label[a* c], prior_dist?[{prior}] -> out[a* c]", linear="label + prior_dist", monotone="label prior_dist"
    )


# Losses by class index.
def _start_of_classes(attrs: Attrs, ctx: LocalContext) -> Attrs:
    return {**attrs, "first_class": ctx.start("c")}


def _held(label: Array, classes: int, first_class: int, ignore_index: int) -> tuple[Array, Array]:
    """Return the label as an index into the classes held here, 0 where it is none of them, and whether it is."""
    local = label - first_class
    held = (local >= 0) & (local < classes) & (label != ignore_index)
    return np.where(held, local, 0), held


def _softmax_loss(
    logits: Array, label: Array, soft_label: bool, ignore_index: int, axis: int, first_class: int = 0
) -> Reduced:
    top = yield logits.max(axis, keepdims=True), "max"
    powers = np.exp(logits - top)
    total = yield powers.sum(axis, keepdims=True), "sum"
    logs = logits - top - np.log(total)
    if soft_label:
        loss = yield -(label * logs).sum(axis, keepdims=True), "sum"
    else:
        index, held = _held(label, logits.shape[axis], first_class, ignore_index)
        loss = yield -np.take_along_axis(logs, index, axis) * held, "sum"
    return powers / total, loss


def _softmax_loss_grad(
    label: Array,
    softmax: Array,
    loss_grad: Array,
    soft_label: bool,
    ignore_index: int,
    axis: int,
    first_class: int = 0,
) -> Array:
    if soft_label:
        return _soft_label_grad(label, softmax, loss_grad)
    index, held = _held(label, softmax.shape[axis], first_class, ignore_index)
    grad = softmax * (loss_grad * (label != ignore_index))
    hit = np.take_along_axis(grad, index, axis) - loss_grad * held
    np.put_along_axis(grad, index, hit, axis)
    return np.asarray(grad)


def _soft_label_grad(label: Array, softmax: Array, loss_grad: Array) -> Array:
    """The labels of an element add up to one, as those of a distribution do."""
    return np.asarray((softmax - label) * loss_grad)


@family(
    "cross_entropy_with_softmax",
    "logits[], label[] -> softmax[], loss[]",
    kernel=_softmax_loss,
    local=_start_of_classes,
    reduces=lambda shapes, attrs: [shape_of(shapes, "loss")] * 3,
    domain={"label": "c"},
    grad=Grad(
        _softmax_loss_grad,
        reads="label softmax",
        of="logits",
        outs="loss",
        cuts="c",
        linear={"logits": "softmax + 1"},
        needs={"c": "masked_lookup"},
    ),
)
def cross_entropy_with_softmax(soft_label: bool = False, ignore_index: int = -100, axis: int = -1) -> Rule:
    """Softmax and the cross entropy of its result, in one: the classes may be cut where the kernel may reduce."""
    label = "c" if soft_label else "1"
    return rule(
        f"logits[a* c@axis b*], label[a* {label} b*] -> softmax[a* c b*], loss[a* 1 b*]",
        synced="c",
        needs={"c": "parallel_softmax"},
        major="" if soft_label else "c",
    )


def _nll_loss(
    input: Array, label: Array, weight: Array | None, ignore_index: int, reduction: str, first_class: int = 0
) -> Any:
    picked, weights = _picked(input, label, weight, ignore_index, first_class)
    if reduction != "mean":
        out = -picked * weights
        return (out if reduction == "none" else np.asarray(out.sum())), np.asarray(weights.sum())
    return _mean_of_picked(picked, weights)


def _mean_of_picked(picked: Array, weights: Array) -> Reduced:
    """Divide by the weights of all labels, wherever they lie."""
    loss = yield np.asarray(-(picked * weights).sum()), "sum"
    count = yield np.asarray(weights.sum()), "sum"
    return np.asarray(loss / count), count


def _picked(
    input: Array, label: Array, weight: Array | None, ignore_index: int, first_class: int
) -> tuple[Array, Array]:
    """Return the element of the class of each label, and its weight: 0 where another device holds the class."""
    index, held = _held(label, input.shape[1], first_class, ignore_index)
    picked = np.take_along_axis(input, np.expand_dims(index, 1), 1).squeeze(1)
    return picked, np.asarray(held if weight is None else weight[index] * held, input.dtype)


def _nll_loss_grad(
    label: Array,
    weight: Array | None,
    total_weight: Array,
    out_grad: Array,
    ignore_index: int,
    reduction: str,
    shapes: Any,
    first_class: int = 0,
) -> Array:
    shape = shapes["input"]
    _, weights = _picked(np.zeros(shape, out_grad.dtype), label, weight, ignore_index, first_class)
    share = -weights * out_grad / (total_weight if reduction == "mean" else 1)
    index, _ = _held(label, shape[1], first_class, ignore_index)
    grad = np.zeros(shape, out_grad.dtype)
    np.put_along_axis(grad, np.expand_dims(index, 1), np.expand_dims(share, 1), 1)
    return grad


@family(
    "nll_loss",
    "input[], label[], weight?[] -> out[], total_weight[]",
    kernel=_nll_loss,
    local=_start_of_classes,
    reduces=lambda shapes, attrs: [(), ()] if attrs["reduction"] == "mean" else [],
    domain={"label": "c", "weight": "positive"},
    grad=Grad(
        _nll_loss_grad,
        reads="label weight total_weight",
        of="input",
        outs="out",
        cuts="n c d*",
        linear={"input": "weight"},
        needs={"c": "masked_lookup"},
        shapes=True,
    ),
)
def nll_loss(input: Shape, weight: Shape | None, ignore_index: int = -100, reduction: str = "mean") -> Rule:
    """Negative log likelihood: classes in dim 1; the mean is weighted, so its devices add up counts first."""
    _check_reduction("nll_loss", reduction)
    out = "n d*" if reduction == "none" else ""
    text = f"input[n c d*], label[n d*], weight?[c] -> out[{out}], total_weight[]"
    if reduction == "mean":
        return rule(text, synced="n c d*", major="c", linear={"out": "input"})
    forms = {"out": "input"} if weight is None else {"out": "input*weight", "total_weight": "weight"}
    return rule(text, sum="n c d*", needs={"c": "masked_lookup"}, major="c", linear=forms)
