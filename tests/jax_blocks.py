"""Blocks of models as people write them in JAX: rotary positions, experts, recurrences, activations, statistics."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.jax_cases import Case, X, floats


def _rotary(x: Any) -> Any:
    _, length, _, size = x.shape
    angle = jnp.arange(length)[:, None] / 10000 ** (jnp.arange(0, size, 2) / size)
    cos, sin = jnp.cos(angle)[None, :, None], jnp.sin(angle)[None, :, None]
    left, right = x[..., ::2], x[..., 1::2]
    return jnp.stack([left * cos - right * sin, left * sin + right * cos], -1).reshape(x.shape)


def _experts(x: Any, gate: Any, up: Any, down: Any) -> Any:
    """Every token by its two best experts, all of which compute every token."""
    weights, chosen = lax.top_k(jax.nn.softmax(x @ gate), 2)
    share = (jax.nn.one_hot(chosen, 4) * (weights / weights.sum(-1, keepdims=True))[..., None]).sum(1)
    hidden = jax.nn.silu(jnp.einsum("td,edf->tef", x, up))
    return jnp.mean(jnp.einsum("tef,efd,te->td", hidden, down, share))


def _capacity(x: Any, gate: Any, up: Any) -> Any:
    """Tokens dispatched to places of their expert by one-hot products."""
    expert = jnp.argmax(x @ gate, -1)
    hot = jax.nn.one_hot(expert, 4, dtype=jnp.int32)
    place = (jnp.cumsum(hot, 0) * hot).sum(-1) - 1
    dispatch = jax.nn.one_hot(expert, 4)[:, :, None] * jax.nn.one_hot(place, 8)[:, None, :]
    made = jnp.einsum("ecd,edf->ecf", jnp.einsum("td,tec->ecd", x, dispatch), up)
    return jnp.einsum("ecf,tec->tf", made, dispatch).sum()


def _sorted_experts(x: Any, gate: Any, up: Any) -> Any:
    """Tokens sorted by expert, a ragged product, and put back in order."""
    expert = jnp.argmax(x @ gate, -1)
    order = jnp.argsort(expert)
    made = lax.ragged_dot(x[order], up, jnp.bincount(expert, length=4))
    return jnp.sum(jnp.zeros_like(made).at[order].set(made) ** 2)


def _recurrent(w: Any, x: Any) -> Any:
    return jnp.sum(lax.scan(lambda h, a: (jnp.tanh(h @ w + a), h), jnp.zeros(4), x)[1] ** 2)


def _activations(x: Any) -> Any:
    made = jax.nn.elu(x) + jax.nn.selu(x) + jax.nn.leaky_relu(x) + jax.nn.hard_swish(x) + jax.nn.celu(x)
    return jnp.sum(made + jax.nn.mish(x) + jax.nn.soft_sign(x)) + jnp.sum(jax.nn.glu(x))


_TOKENS, _GATE, _UP = floats(12, 8), floats(8, 4, seed=1), floats(4, 8, 16, seed=2)

BLOCKS = [
    Case("rotary", jax.grad(lambda x: jnp.sum(_rotary(x) ** 2)), (floats(2, 6, 2, 8),)),
    Case("experts", jax.value_and_grad(_experts, (0, 1, 2, 3)), (_TOKENS, _GATE, _UP, floats(4, 16, 8))),
    Case("capacity", jax.value_and_grad(_capacity, (0, 2)), (_TOKENS, _GATE, _UP)),
    Case("sorted_experts", jax.value_and_grad(_sorted_experts, (0, 2)), (_TOKENS, _GATE, _UP), "grouped_mm"),
    Case("recurrent", jax.value_and_grad(_recurrent), (floats(4, 4), floats(5, 4))),
    Case("activations", jax.grad(_activations), (X,)),
    Case("statistics", lambda x: (x.std(0), jnp.median(x, 0), jnp.quantile(x, 0.3, axis=1)), (X,)),
    Case("clipped_norm", lambda x: x * jnp.minimum(1.0, 1 / jnp.sqrt(jnp.sum(x**2))), (X,)),
    Case("schedule", lambda n: 0.5 * (1 + jnp.cos(jnp.pi * jnp.minimum(n, 100) / 100)), (np.int64(7),)),
    Case("weighted_logsumexp", jax.grad(lambda x: jnp.sum(jax.nn.logsumexp(x, -1, b=jnp.abs(x)))), (X,)),
    Case("bilinear", lambda x: jax.image.resize(x, (1, 8, 8, 2), "bilinear"), (floats(1, 4, 4, 2),)),
    Case("triangles", lambda x: (jnp.triu(x, 1), jnp.tril(x, -1), jnp.diag(x[0]), jnp.trace(x)), (floats(5, 5),)),
    Case("associative", lambda x: lax.associative_scan(jnp.multiply, x), (floats(6, 3),)),
    Case("floor_division", lambda x: (x // 0.3, x % 0.3, jnp.round(x, 1)), (X,), tolerance=1e-9),
    Case("sequence", lambda x: (jnp.roll(x, 2, 1), jnp.flip(x), jnp.repeat(x, 2, 1)), (X,)),
]
