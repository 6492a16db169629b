"""Functions of elements, reductions, losses."""

from __future__ import annotations

from collections.abc import Iterator

from aten_cases.case import (
    CUBE,
    FALSE,
    INF,
    INTS,
    MORE,
    NARROW,
    NUMBER,
    POSITIVE,
    ROW,
    SMALL,
    TRUTHS,
    UNIT,
    Case,
    Item,
    T,
    X,
    Y,
    each,
)


def pointwise() -> Iterator[Case]:
    yield from each("exp expm1 sin cos tan atan sinh cosh asinh erf sigmoid tanh", (X,), (INTS,))
    yield from each("log log1p log2 log10 sqrt rsqrt reciprocal", (POSITIVE,), (MORE,))
    yield from each("asin acos atanh", (UNIT,))
    yield from each("acosh", (T((4, 6), kind="large"),))
    yield from each("neg abs square sign", (X,), (INTS,))
    yield from each("floor ceil round trunc silu log_sigmoid mish hardswish relu6 isnan isinf isfinite", (X,))
    yield from each("relu relu_", (X,), (INTS,))
    yield from each("silu_", (X,))
    sums = (
        (X, Y),
        (X, ROW),
        (X, 2.5),
        (X, NARROW),
        (INTS, 2),
        (INTS, 2.5),
        (INTS, SMALL),
        (TRUTHS, 1),
        (TRUTHS, INTS),
        (X, INTS),
    )
    yield from each("aten.add.Tensor", *sums)
    yield from each("aten.sub.Tensor", *(call for call in sums if call[0] is not TRUTHS))
    yield from each("aten.add.Scalar aten.sub.Scalar aten.rsub.Scalar", (X, 2), (X, 2.5), (INTS, 3))
    yield from each("aten.rsub.Tensor", (X, Y))
    yield from each("aten.add.Tensor aten.sub.Tensor", (X, Y), (INTS, MORE), (X, 2), alpha=3)
    yield from each("aten.add_.Tensor aten.sub_.Tensor aten.mul_.Tensor aten.div_.Tensor", (X, POSITIVE), (X, 2))
    yield from each(
        "aten.mul.Tensor",
        (X, Y),
        (X, ROW),
        (X, 2.5),
        (X, 1),
        (INTS, 2),
        (INTS, 2.5),
        (X, TRUTHS),
        (NUMBER, X),
        (X, INTS),
    )
    yield from each("aten.mul.Scalar", (X, 2), (X, 2.5), (INTS, 3), (NARROW, 0.5))
    yield from each(
        "aten.div.Tensor", (X, POSITIVE), (X, 2), (X, 2.5), (INTS, MORE), (INTS, 2), (X, T((6,), kind="positive"))
    )
    yield from each("aten.div.Scalar", (X, 49), (X, 0.5), (INTS, 2))
    for mode in ("floor", "trunc"):
        yield from each("aten.div.Tensor_mode", (X, POSITIVE), (INTS, MORE), rounding_mode=mode)
    yield from each("aten.div.Tensor_mode", (X, POSITIVE), rounding_mode=None)
    yield from each("aten.div.Scalar_mode", (INTS, 2), rounding_mode="floor")
    yield from each("floor_divide", (INTS, MORE), (X, POSITIVE), (INTS, 2))
    yield from each("aten.floor_divide.Scalar", (INTS, 2))
    yield from each("aten.fmod.Scalar aten.remainder.Scalar", (X, 2), (INTS, 2), (X, 0.7))
    yield from each("aten.fmod.Tensor aten.remainder.Tensor", (X, POSITIVE), (INTS, MORE))
    yield from each("minimum maximum aten.min.other aten.max.other", (X, Y), (X, ROW), (INTS, MORE))
    yield from each("atan2", (X, Y))
    yield from each(
        "aten.pow.Tensor_Scalar", (X, 2), (X, 3.0), (POSITIVE, 0.5), (POSITIVE, -1), (X, 1), (INTS, 2), (X, 0)
    )
    yield from each("aten.pow.Tensor_Tensor", (POSITIVE, Y))
    yield from each("aten.pow.Scalar", (2.0, X))
    yield from each("clamp", (X, -0.5, 0.5), (X, None, 0.5), (X, -0.5), (INTS, -1, 1))
    yield from each("clamp_min clamp_max", (X, 0.25), (INTS, 1))
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        yield from each(
            f"aten.{name}.Tensor", (INTS, MORE), (X, Y), (X, INTS), (TRUTHS, FALSE), (INTS, SMALL), (X, ROW)
        )
        yield from each(f"aten.{name}.Scalar", (INTS, 0), (X, 0.5), (INTS, 0.5), (TRUTHS, 1), (X, -INF))
    yield from each("logical_and logical_or logical_xor", (TRUTHS, FALSE), (INTS, X))
    yield from each("logical_not", (TRUTHS,), (INTS,))
    for name in ("and", "or", "xor"):
        yield from each(f"aten.bitwise_{name}.Tensor", (TRUTHS, FALSE), (INTS, MORE))
        yield from each(f"aten.bitwise_{name}.Scalar", (INTS, 3))
    yield from each("aten.__and__.Tensor aten.__or__.Tensor", (TRUTHS, FALSE), (INTS, MORE))
    yield from each("bitwise_not", (TRUTHS,), (INTS,))
    yield from each(
        "aten.where.self",
        (TRUTHS, X, Y),
        (TRUTHS, X, NUMBER),
        (TRUTHS, NUMBER, ROW),
        (TRUTHS, INTS, MORE),
        (TRUTHS, X, NARROW),
    )
    yield from each("aten.where.ScalarOther", (TRUTHS, X, 0.5), (TRUTHS, X, -INF), (TRUTHS, INTS, 1))
    yield from each("aten.where.ScalarSelf", (TRUTHS, 0.5, X))
    yield from each("aten.where.Scalar", (TRUTHS, 0.5, 2.0))
    yield from each("aten.masked_fill.Scalar", (X, TRUTHS, 0), (X, TRUTHS, -INF), (X, T((6,), "bool"), 2.5))
    yield from each("aten.masked_fill.Tensor", (X, TRUTHS, NUMBER))
    yield from each("gelu", (X,))
    yield from each("gelu", (X,), approximate="tanh")
    yield from each("gelu_backward", (X, Y))
    yield from each("gelu_backward", (X, Y), approximate="tanh")
    yield from each("silu_backward mish_backward hardswish_backward", (X, Y))
    yield from each("sigmoid_backward tanh_backward", (X, UNIT))
    yield from each("softplus", (X,), (X, 2, 1))
    yield from each("softplus_backward", (X, Y, 1, 20), (X, Y, 2, 1))
    yield from each("threshold_backward", (X, Y, 0), (X, Y, 0.5))
    yield from each("leaky_relu", (X,), (X, 0.2))
    yield from each("leaky_relu_backward", (X, Y, 0.2, False))
    yield from each("hardtanh", (X,), (X, -0.5, 0.25))
    yield from each("hardtanh_backward", (X, Y, -0.5, 0.25))


def reductions() -> Iterator[Case]:
    yield from each("sum", (X,), (INTS,), (TRUTHS,), (NUMBER,))
    yield from each("mean", (X,), (NUMBER,))
    yield from each(
        "aten.sum.dim_IntList", (X, [0]), (CUBE, [0, -1], True), (TRUTHS, [1]), (X, None), (X, []), (SMALL, [0])
    )
    yield from each("aten.sum.dim_IntList", (NARROW, [0]), (INTS, [1], True), dtype="torch.float64")
    yield from each("aten.mean.dim", (X, [0]), (CUBE, [-2, -1], True), (X, None))
    yield from each("aten.mean.dim", (INTS, [0]), dtype="torch.float64")
    yield from each("amax amin logsumexp", (X, [0]), (CUBE, [0, 2], True))
    yield from each("max min", (X,), (INTS,))
    yield from each("aten.max.dim aten.min.dim", (X, 0), (X, -1, True))
    yield from each("any all", (TRUTHS,), (INTS,))
    yield from each("aten.any.dim aten.all.dim", (TRUTHS, 1), (INTS, 0, True))
    yield from each("aten.any.dims aten.all.dims", (TRUTHS, [0, 1]), (TRUTHS, [1], True))
    yield from each("argmax argmin", (X,), (X, 1), (X, 0, True))
    for correction in (None, 0, 1, 2):
        yield from each(
            "aten.var.correction aten.var_mean.correction", (X, [0]), (CUBE, [1, 2]), (X, None), correction=correction
        )
    yield from each("aten.var_mean.correction", (X, [1]), correction=0, keepdim=True)
    yield from each("cumsum", (X, 1), (X, 0), (TRUTHS, -1), (INTS, 0))
    yield from each("cumsum", (INTS, 0), dtype="torch.int32")
    yield from each("topk", (X, 2), (X, 3, 0), (X, 2, 1, False))
    yield from each("sort", (X,), (X, 0), (X, 1, True))
    yield Case("aten.sort.default", (T((24,), "int64", high=3),), results=(0,))
    yield from each("aten.sort.stable", (X,), (INTS,), stable=True)
    yield from each("argsort", (X,), (X, 0, True))
    yield from each("histc", (X, 4, -1, 1), (POSITIVE, 5), (T((24,), high=8, kind="whole"), 8, 0, 7))


def losses() -> Iterator[Case]:
    label, image = T((4,), "int64", high=6), T((2, 6, 3))
    labels, weight = T((2, 3), "int64", high=6), T((6,), kind="positive")
    for reduction in (0, 1, 2):
        for given in (None, weight):
            for x, target, name in (
                (X, label, "nll_loss"),
                (T((2, 6, 3, 2)), T((2, 3, 2), "int64", high=6), "nll_loss2d"),
            ):
                args = (x, target, given, reduction, 2)
                yield Case(f"aten.{name}_forward.default", args, results=(0,) if reduction == 0 else None)
                before = (("loss", f"aten.{name}_forward.default", args),)
                grad = T(()) if reduction else T(target.shape)
                args = (grad, x, target, given, reduction, 2, Item("loss", 1))
                yield Case(f"aten.{name}_backward.default", args, before=before)
            yield from each(
                "cross_entropy_loss", (X, label, given, reduction, -100), (image, labels, given, reduction, 3)
            )
        yield from each(["mse_loss", "binary_cross_entropy_with_logits"][0], (X, Y, reduction))
        yield from each("binary_cross_entropy_with_logits", (X, T((4, 6), kind="unit"), None, None, reduction))
        yield from each("mse_loss_backward", (T(()) if reduction else T((4, 6)), X, Y, reduction))
