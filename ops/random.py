"""Random numbers by a counter: what is drawn for an element depends on the seed and on its index in the whole tensor.

So a tensor that is replicated on a mesh axis holds the same numbers there, one that is cut holds its part of the whole
run's, and what is drawn forward is drawn again backward. Two ops draw alike only where they share a seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from ops.bind import Shape
from ops.creation import given_dtype, given_shape
from ops.dims import Array, axes_in, indices_in, named_dims
from ops.grad import Grad
from ops.notation import RuleError
from ops.op import REQUIRED, Attrs, LocalContext
from ops.registry import family, op
from ops.rule import Rule, rule
from ops.unary import numpy_dtype

Spans: TypeAlias = Sequence[Sequence[tuple[int, int, int]]]
"""For each dim, which elements a device holds (see `ops.run.Device.spans`)."""

# ---------------------------------------------------------------------------------------------------------- the counter

_ODD = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
"""The multipliers of the splitmix64 generator."""


def _scrambled(x: Array) -> Array:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(_ODD[1])
    x = (x ^ (x >> np.uint64(27))) * np.uint64(_ODD[2])
    return np.asarray(x ^ (x >> np.uint64(31)))


def draw(seed: int, spans: Spans, stream: int = 0) -> Array:
    """Return numbers between 0 and 1, one for each element that a device holds.

    Parameters
    ----------
    seed : int
    spans : sequence
        The elements that it holds, by dim.
    stream : int
        Another stream of the same seed, for ops that need several numbers an element.

    Examples
    --------
    >>> whole = draw(7, [((0, 4, 4),), ((0, 6, 6),)])
    >>> bool((whole[2:, ::2] == draw(7, [((2, 2, 4),), ((0, 3, 3), (0, 1, 2))])).all())
    True
    """
    index: Array = np.zeros((), np.uint64)
    for digits in spans:
        size = math.prod(whole for _, _, whole in digits)
        index = index[..., None] * np.uint64(size) + indices_in(digits).astype(np.uint64)
    start = _scrambled(np.array([seed % 2**64, stream], np.uint64) * np.uint64(_ODD[0]) + np.uint64(1)).sum()
    mixed = _scrambled(_scrambled(index + np.uint64(1)) * np.uint64(_ODD[0]) + start)
    return np.asarray((mixed >> np.uint64(11)) * 2.0**-53)


def normal(seed: int, spans: Spans) -> Array:
    """Return numbers of the normal distribution: two streams, by Box and Muller."""
    radius = np.sqrt(-2 * np.log1p(-draw(seed, spans)))
    return np.asarray(radius * np.cos(2 * np.pi * draw(seed, spans, 1)))


def of_shape(shape: Shape) -> Spans:
    """Return the spans of a device that holds all of a shape."""
    return [((0, size, size),) for size in shape]


def _local(tensor: str, run: str) -> Any:
    """Return the ``local=`` that says which elements of an operand or result a device holds."""

    def local(attrs: Attrs, ctx: LocalContext) -> Attrs:
        shape = ctx.operands.get(tensor) or ctx.results.get(tensor) or ()
        held = {**attrs, "spans": [ctx.spans(f"{run}{dim}") for dim in range(len(shape))]}
        return {**held, "shape": list(shape)} if "shape" in attrs else held

    return local


# -------------------------------------------------------------------------------------------------------------- dropout


def _kept(
    shape: Shape, dtype: Any, p: float, axis: Any, training: bool, mode: str, seed: int, spans: Spans | None
) -> Array:
    """Return what each element is multiplied by; dims that ``axis`` does not name share what is drawn."""
    upscaled = mode == "upscale_in_train"
    if not training:
        return np.asarray(1 if upscaled else 1 - p, dtype)
    held = list(spans or of_shape(shape))
    if axis is not None:
        drawn = axes_in(axis, len(shape), "axis")
        held = [digits if dim in drawn else ((0, 1, 1),) for dim, digits in enumerate(held)]
    return np.asarray((draw(seed, held) >= p) * (1 / (1 - p) if upscaled and p < 1 else 1.0), dtype)


def _dropout(x: Array, *, p: float, **given: Any) -> Array:
    return x * _kept(x.shape, x.dtype, p, **given)


def _check_dropout(name: str, p: float, mode: str) -> None:
    if not 0 <= p <= 1:
        raise RuleError(f"{name}: p={p} is not between 0 and 1")
    if mode not in ("upscale_in_train", "downscale_in_infer"):
        raise RuleError(f"{name} has no mode {mode!r}: choose upscale_in_train or downscale_in_infer")


@family(
    "dropout",
    "x[] -> out[]",
    kernel=_dropout,
    attrs={"training": True, "seed": 0, "spans": None},
    local=_local("x", "a"),
    grad=Grad(_dropout, reads=""),
)
def dropout(x: Shape, p: float = 0.5, axis: int | Sequence[int] | None = None, mode: str = "upscale_in_train") -> Rule:
    """Elements put to zero at random; in inference the identity, or a product with 1 - p."""
    _check_dropout("dropout", p, mode)
    if axis is not None:
        axes_in(axis, len(x), "axis")
    return rule("x[a*] -> out[a*]", linear="x", monotone="x")


def _dropout_add(x: Array, y: Array, **given: Any) -> Array:
    return np.asarray(_dropout(x, axis=None, **given) + y, x.dtype)


@family(
    "fused_dropout_add",
    "x[], y[] -> out[]",
    kernel=_dropout_add,
    attrs={"training": True, "seed": 0, "spans": None},
    local=_local("x", "a"),
    grad=Grad(lambda out_grad, **given: (_dropout(out_grad, axis=None, **given), out_grad), reads=""),
)
def fused_dropout_add(p: float = 0.5, mode: str = "upscale_in_train") -> Rule:
    """Dropout of x, then the sum with y."""
    _check_dropout("fused_dropout_add", p, mode)
    return rule("x[a*], y[a*] -> out[a*]", linear="x + y", monotone="x y")


# ----------------------------------------------------------------------------------------------- draws from a parameter

_DRAWN: dict[str, Any] = {"attrs": {"seed": 0, "spans": None}, "local": _local("x", "a")}


def _bernoulli(x: Array, seed: int, spans: Spans | None) -> Array:
    return np.asarray(draw(seed, spans or of_shape(x.shape)) < x, x.dtype)


_MANY = 500.0
"""Above this mean a Poisson distribution is drawn as the normal one that it comes to."""


def _poisson(x: Array, seed: int, spans: Spans | None) -> Array:
    """Count how many terms of the distribution function lie below what is drawn."""
    held = spans or of_shape(x.shape)
    drawn, mean = draw(seed, held), np.clip(x, 0, _MANY)
    count = np.zeros_like(drawn)
    term = np.exp(-mean)
    below = term.copy()
    for k in range(1, 10 * int(mean.max(initial=0)) + 50):
        count += drawn > below
        term = term * mean / k
        below += term
    far = np.maximum(np.round(x + np.sqrt(np.maximum(x, 0)) * normal(seed, held)), 0)
    return np.asarray(np.where(x > _MANY, far, count), x.dtype)


op("bernoulli", "x[a*] -> out[a*]", monotone="x", kernel=_bernoulli, domain={"x": "unit"}, **_DRAWN)
op("poisson", "x[a*] -> out[a*]", monotone="x", kernel=_poisson, domain={"x": "positive"}, **_DRAWN)

# ----------------------------------------------------------------------------------------------------- draws of a shape


def _of(name: str, kernel: Any, attrs: Attrs, dtype: str) -> None:
    """Register an op that draws a tensor of a shape."""

    def drawn(shape: Sequence[int], seed: int, spans: Spans | None, dtype: str, **given: Any) -> Array:
        held = spans or of_shape(tuple(shape))
        return np.asarray(kernel(seed, held, **given)).astype(numpy_dtype(dtype))

    @family(
        name,
        "-> out[]",
        kernel=drawn,
        attrs={**attrs, "seed": 0, "spans": None},
        shape=given_shape,
        dtype=given_dtype,
        local=_local("out", "d"),
    )
    def register(shape: Sequence[int] = REQUIRED, dtype: str = dtype) -> Rule:
        return rule(f"-> out[{' '.join(named_dims(len(shape)))}]")


def _between(seed: int, spans: Spans, min: float, max: float) -> Array:
    return min + (max - min) * draw(seed, spans)


def _integers(seed: int, spans: Spans, low: int, high: int | None) -> Array:
    start, end = (0, low) if high is None else (low, high)
    return np.asarray(start + np.floor((end - start) * draw(seed, spans)))


def _around(seed: int, spans: Spans, mean: float, std: float) -> Array:
    return mean + std * normal(seed, spans)


_of("uniform", _between, {"min": -1.0, "max": 1.0}, "float32")
_of("gaussian", _around, {"mean": 0.0, "std": 1.0}, "float32")
_of("randint", _integers, {"low": 0, "high": None}, "int64")
