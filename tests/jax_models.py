"""Training steps of small models in JAX: loss and gradients, and whole steps with their optimizer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests import tiny_gpt
from tests.tiny_gpt import SIZES, Sizes


@dataclass(frozen=True)
class Model:
    """A function with its arguments, what is declared of it, and the inputs whose dim 0 is the batch."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    batch: tuple[str, ...]
    declared: Mapping[str, Any] = field(default_factory=dict)


def _drawn(*shape: int, seed: int = 0, scale: float = 0.3) -> Any:
    return np.random.default_rng([seed, *shape]).standard_normal(shape) * scale


# --------------------------------------------------------------------------------------------------------- the tiny GPT


def gpt_loss(w: Mapping[str, Any], ids: Any, labels: Any, sizes: Sizes = SIZES) -> Any:
    """The loss of `tests.tiny_gpt`, as one writes it in JAX."""
    x = w["wte"][ids] + w["wpe"]
    for layer in range(sizes.layers):
        at = f"h.{layer}"
        with jax.named_scope(at):
            x = x + _attention(w, f"{at}.attn", _norm(w, f"{at}.ln_1", x), sizes)
            hidden = jax.nn.gelu(_linear(w, f"{at}.mlp.up", _norm(w, f"{at}.ln_2", x)), approximate=True)
            x = x + _linear(w, f"{at}.mlp.down", hidden)
    logits = _norm(w, "ln_f", x) @ w["wte"].T
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1)
    return -jnp.mean(picked)


def _attention(w: Mapping[str, Any], at: str, x: Any, sizes: Sizes) -> Any:
    batch, length, width = x.shape
    q, k, v = (
        _linear(w, f"{at}.{name}", x).reshape(batch, length, sizes.heads, sizes.head).transpose(0, 2, 1, 3)
        for name in "qkv"
    )
    scores = q @ k.swapaxes(-1, -2) * sizes.head**-0.5
    probs = jax.nn.softmax(jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, tiny_gpt.MASKED))
    return _linear(w, f"{at}.proj", (probs @ v).transpose(0, 2, 1, 3).reshape(batch, length, width))


def _linear(w: Mapping[str, Any], at: str, x: Any) -> Any:
    return x @ w[f"{at}.weight"] + w[f"{at}.bias"]


def _norm(w: Mapping[str, Any], at: str, x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred * centred).mean(-1, keepdims=True)
    return centred * lax.rsqrt(variance + tiny_gpt.EPSILON) * w[f"{at}.weight"] + w[f"{at}.bias"]


def gpt_sgd(params: Any, ids: Any, labels: Any) -> Any:
    loss, grads = jax.value_and_grad(gpt_loss)(params, ids, labels)
    return jax.tree.map(lambda p, g: p - 0.125 * g, params, grads), loss, grads


def adam_step(loss: Callable[..., Any]) -> Callable[..., Any]:
    """A step of Adam on a loss: parameters and state in, parameters, state, loss and gradients out."""

    def step(params: Any, state: Any, *batch: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params, *batch)
        count = state["count"] + 1
        mean = jax.tree.map(lambda m, g: 0.875 * m + 0.125 * g, state["mean"], grads)
        square = jax.tree.map(lambda v, g: 0.96875 * v + 0.03125 * g * g, state["square"], grads)
        rate = 0.0625 * jnp.sqrt(1 - 0.96875**count) / (1 - 0.875**count)
        params = jax.tree.map(lambda p, m, v: p - rate * m / (jnp.sqrt(v) + 1e-6), params, mean, square)
        return params, {"count": count, "mean": mean, "square": square}, value, grads

    return step


def _adam_state(params: Any) -> Any:
    zeros = jax.tree.map(lambda p: np.zeros_like(p), params)
    return {"count": np.float64(1), "mean": zeros, "square": jax.tree.map(lambda z: z + 0.25, zeros)}


ADAM = {
    "parameters": 0,
    "states": 1,
    "updates": {0: 0, 1: 1},
    "gradients": {3: 0},
    "internal": (3,),
    "ties": {"state.mean": "params", "state.square": "params"},
}

# ------------------------------------------------------------------------------------------------------- other networks


def _mlp(params: Any, x: Any, y: Any) -> Any:
    for at, layer in enumerate(params):
        x = x @ layer["w"] + layer["b"]
        x = jax.nn.relu(x) if at < len(params) - 1 else x
    return jnp.mean((x - y) ** 2)


_MLP = [{"w": _drawn(inner, outer), "b": _drawn(outer)} for inner, outer in ((16, 32), (32, 32), (32, 4))]


def _scanned(params: Any, x: Any) -> Any:
    """A transformer whose layers are stacked and scanned, each computed again backward."""

    @jax.checkpoint
    def block(x: Any, w: Any) -> tuple[Any, None]:
        q, k, v = jnp.einsum("bsd,dnhe->nbhse", x, w["qkv"])
        probs = jax.nn.softmax(jnp.einsum("bhse,bhte->bhst", q, k) / 2)
        x = x + jnp.einsum("bhst,bhte,hed->bsd", probs, v, w["out"])
        return x + jax.nn.silu(x @ w["gate"]) * (x @ w["up"]) @ w["down"], None

    return jnp.mean(lax.scan(block, x, params)[0] ** 2)


_SCANNED = {
    "qkv": _drawn(2, 16, 3, 4, 4), "out": _drawn(2, 4, 4, 16), "gate": _drawn(2, 16, 16), "up": _drawn(2, 16, 16),
    "down": _drawn(2, 16, 16),
}  # fmt: skip


def _convolved(params: Any, x: Any, labels: Any) -> Any:
    numbers = ("NHWC", "HWIO", "NHWC")
    for at, stride in enumerate((1, 2)):
        x = lax.conv_general_dilated(x, params[f"conv{at}"], (stride, stride), "SAME", dimension_numbers=numbers)
        mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
        x = jax.nn.relu((x - mean) * lax.rsqrt(variance + 1e-5) * params[f"scale{at}"])
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    logits = x.reshape(x.shape[0], -1) @ params["head"]
    return -jnp.mean(jnp.sum(jax.nn.log_softmax(logits) * jax.nn.one_hot(labels, 8), -1))


_CONVOLVED = {
    "conv0": _drawn(3, 3, 4, 8), "scale0": 1 + _drawn(8), "conv1": _drawn(3, 3, 8, 8), "scale1": 1 + _drawn(8, seed=1),
    "head": _drawn(32, 8),
}  # fmt: skip


def _vmapped(params: Any, x: Any) -> Any:
    """Attention of one head over one sequence, mapped over heads and batch."""

    def head(w: Any, x: Any) -> Any:
        q, k, v = x @ w["q"], x @ w["k"], x @ w["v"]
        return jax.nn.softmax(q @ k.T) @ v

    heads = jax.vmap(jax.vmap(head, (0, None)), (None, 0))(params["heads"], x)
    return jnp.mean(jnp.tanh(jnp.einsum("bhsd,hde->bse", heads, params["out"])))


_VMAPPED = {"heads": {name: _drawn(4, 16, 8, seed=at) for at, name in enumerate("qkv")}, "out": _drawn(4, 8, 16)}


def mixed(dtype: str) -> Callable[..., Any]:
    """A loss whose products are computed in a dtype, and whose parameters, sums and loss are float32."""

    def loss(params: Any, x: Any, y: Any) -> Any:
        for w in params:
            x = jnp.tanh((x.astype(dtype) @ w.astype(dtype)).astype("float32"))
        return jnp.mean((x - y) ** 2)

    return loss


_MIXED = [np.asarray(_drawn(16, 16, seed=at), np.float32) for at in range(2)]
ONE = Sizes(layers=1)
_IDS = tiny_gpt.tokens()
_GRADS = {"parameters": 0, "gradients": {1: 0}}

MODELS = {
    "mlp": Model(jax.value_and_grad(_mlp), (_MLP, _drawn(8, 16), _drawn(8, 4)), ("x", "y"), _GRADS),
    "mlp_adam": Model(adam_step(_mlp), (_MLP, _adam_state(_MLP), _drawn(8, 16), _drawn(8, 4)), ("x", "y"),
                      {**ADAM, "names": ("params", "state", "x", "y")}),
    "gpt": Model(jax.value_and_grad(gpt_loss), (tiny_gpt.weights(dtype="float64"), *_IDS), ("ids", "labels"),
                 {**_GRADS, "names": ("", "ids", "labels")}),
    "gpt_one_layer": Model(jax.value_and_grad(partial(gpt_loss, sizes=ONE)),
                           (tiny_gpt.weights(ONE, "float64"), *_IDS), ("ids", "labels"), _GRADS),
    "gpt_sgd": Model(gpt_sgd, (tiny_gpt.weights(dtype="float64"), *_IDS), ("ids", "labels"),
                     {"parameters": 0, "updates": {0: 0}, "gradients": {2: 0}, "internal": (2,)}),
    "scanned": Model(jax.value_and_grad(_scanned), (_SCANNED, _drawn(4, 8, 16)), ("x",), _GRADS),
    "convolved": Model(jax.value_and_grad(_convolved), (_CONVOLVED, _drawn(4, 8, 8, 4), np.arange(4)), ("x", "labels"),
                       _GRADS),
    "vmapped": Model(jax.value_and_grad(_vmapped), (_VMAPPED, _drawn(4, 8, 16)), ("x",), _GRADS),
}  # fmt: skip
MIXED = (_MIXED, np.asarray(_drawn(8, 16), np.float32), np.asarray(_drawn(8, 16, seed=3), np.float32))
