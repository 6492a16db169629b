"""Updates of parameters: element by element, but for the norms of lamb, over which its kernel reduces.

Results are the parameter and the state after the step, in Paddle's order. The state of a parameter lies as it does;
learning rate and the powers of the betas are one number each. A gradient is final when an update reads it, never
partial, also where the update is linear in it and a partial parameter could be reduced after the step instead.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Any

import numpy as np

from ops.dims import Array
from ops.notation import RuleError
from ops.op import Attrs, Shapes
from ops.registry import family, op
from ops.rule import Rule, rule

Updated = tuple[Array, ...]


def _like(*names: str) -> Any:
    """Return the ``dtype=`` of results that have the dtypes of operands."""
    return lambda dtypes, attrs: tuple(str(dtypes[name]) for name in names)


def _flops(each: int) -> Any:
    """Return the ``flops=`` of so many operations an element."""

    def flops(shapes: Shapes, attrs: Attrs) -> int:
        return each * int(np.prod(shapes["param"] or ()))

    return flops


def _stepped(param: Array, step: Array) -> Array:
    """Return a parameter after a step; one without dims stays so, though the learning rate has one."""
    return np.asarray(param - step.reshape(param.shape), param.dtype)


def _sgd(param: Array, learning_rate: Array, grad: Array) -> Array:
    return _stepped(param, learning_rate * grad)


op(
    "sgd",
    "param[a*], learning_rate[1], grad[a*] -> param_out[a*]",
    kernel=_sgd,
    dtype=_like("param"),
    flops=_flops(2),
)


def _momentum(
    param: Array,
    grad: Array,
    velocity: Array,
    learning_rate: Array,
    mu: float,
    use_nesterov: bool,
    regularization_method: str,
    regularization_coeff: float,
    rescale_grad: float,
) -> Updated:
    slope = grad * rescale_grad
    if regularization_method == "l2_decay":
        slope = slope + regularization_coeff * param
    speed = velocity * mu + slope
    step = slope + mu * speed if use_nesterov else speed
    return _stepped(param, learning_rate * step), np.asarray(speed, velocity.dtype)


@family(
    "momentum",
    "param[], grad[], velocity[], learning_rate[] -> param_out[], velocity_out[]",
    kernel=_momentum,
    dtype=_like("param", "velocity"),
    flops=_flops(4),
    attrs={"mu": 0.9, "use_nesterov": False, "regularization_coeff": 0.0, "rescale_grad": 1.0},
)
def momentum(regularization_method: str = "") -> Rule:
    """A step along a running sum of gradients."""
    if regularization_method not in ("", "l2_decay"):
        raise RuleError(f"momentum has no regularization_method {regularization_method!r}: choose '' or l2_decay")
    return rule("param[a*], grad[a*], velocity[a*], learning_rate[1] -> param_out[a*], velocity_out[a*]")


# ---------------------------------------------------------------------------------------------------- adam, adamw, lamb

_ADAM = (
    "param[a*], grad[a*], learning_rate[1], moment1[a*], moment2[a*], beta1_pow[1], beta2_pow[1] -> "
    "param_out[a*], moment1_out[a*], moment2_out[a*], beta1_pow_out[1], beta2_pow_out[1]"
)
_BETAS = {"beta1": 0.9, "beta2": 0.999}
_ADAM_FACTS: dict[str, Any] = {
    "dtype": _like("param", "moment1", "moment2", "beta1_pow", "beta2_pow"),
    "domain": {"moment2": "positive", "beta1_pow": "unit", "beta2_pow": "unit"},
}


def _moments(grad: Array, moment1: Array, moment2: Array, beta1: float, beta2: float) -> tuple[Array, Array]:
    return (
        np.asarray(beta1 * moment1 + (1 - beta1) * grad, moment1.dtype),
        np.asarray(beta2 * moment2 + (1 - beta2) * grad * grad, moment2.dtype),
    )


def _adam_step(first: Array, second: Array, beta1_pow: Array, beta2_pow: Array, epsilon: float) -> Array:
    """Return the step before the learning rate, as Paddle writes it: epsilon is scaled along with the second moment."""
    scale = np.sqrt(1 - beta2_pow)
    return np.asarray(scale / (1 - beta1_pow) * first / (np.sqrt(second) + epsilon * scale))


def _adamw(
    param: Array,
    grad: Array,
    learning_rate: Array,
    moment1: Array,
    moment2: Array,
    beta1_pow: Array,
    beta2_pow: Array,
    beta1: float,
    beta2: float,
    epsilon: float,
    lr_ratio: float = 1.0,
    coeff: float = 0.0,
    with_decay: bool = False,
) -> Updated:
    rate = learning_rate * lr_ratio
    first, second = _moments(grad, moment1, moment2, beta1, beta2)
    step = rate * _adam_step(first, second, beta1_pow, beta2_pow, epsilon)
    if with_decay:
        step = step + rate * coeff * param
    return _stepped(param, step), first, second, beta1_pow * beta1, beta2_pow * beta2


op("adam", _ADAM, kernel=_adamw, flops=_flops(10), attrs={**_BETAS, "epsilon": 1e-8}, **_ADAM_FACTS)
op(
    "adamw",
    _ADAM,
    kernel=_adamw,
    flops=_flops(12),
    attrs={**_BETAS, "epsilon": 1e-8, "lr_ratio": 1.0, "coeff": 0.01, "with_decay": True},
    **_ADAM_FACTS,
)


def _lamb(
    param: Array,
    grad: Array,
    learning_rate: Array,
    moment1: Array,
    moment2: Array,
    beta1_pow: Array,
    beta2_pow: Array,
    beta1: float,
    beta2: float,
    epsilon: float,
    weight_decay: float,
    always_adapt: bool,
) -> Generator[tuple[Array, str], Array, Updated]:
    """The step is as long as the parameter: both norms are of the whole tensors."""
    first, second = _moments(grad, moment1, moment2, beta1, beta2)
    step = first / (1 - beta1_pow) / (np.sqrt(second / (1 - beta2_pow)) + epsilon) + weight_decay * param
    ratio: Any = 1.0
    if weight_decay or always_adapt:
        own = yield np.asarray((param * param).sum()), "sum"
        length = yield np.asarray((step * step).sum()), "sum"
        ratio = np.sqrt(own / length) if own > 0 and length > 0 else 1.0
    return _stepped(param, learning_rate * ratio * step), first, second, beta1_pow * beta1, beta2_pow * beta2


@family(
    "lamb",
    re.sub(r"\[.*?\]", "[]", _ADAM),
    kernel=_lamb,
    reduces=lambda shapes, attrs: [(), ()] if attrs["weight_decay"] or attrs["always_adapt"] else [],
    flops=_flops(16),
    attrs={**_BETAS, "epsilon": 1e-6},
    **_ADAM_FACTS,
)
def lamb(weight_decay: float = 0.01, always_adapt: bool = False) -> Rule:
    """adam, with a step as long as the parameter; without decay and always_adapt each element goes by itself."""
    return rule(_ADAM, synced="a*") if weight_decay or always_adapt else rule(_ADAM)
