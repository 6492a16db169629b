"""One tiny GPT, written down once: each framework's version of it is held against the others.

`loss` is the meaning, in numpy. A version in a framework computes the same, from the same weights:

- Weights are stored (in, out): a linear layer is ``x @ weight + bias``.
- ``x = wte[ids] + wpe``: token embedding (vocab, width) plus learned positions (sequence, width).
- Each of the layers is pre-norm: ``x = x + attention(layer_norm(x))``, then ``x = x + mlp(layer_norm(x))``.
- Layer norm is over the last dim, with the biased variance, epsilon 1e-5, weight and bias.
- Attention: q, k, v by three linear layers, split to (batch, heads, sequence, head); ``scores = q @ k^T * head**-0.5``;
  scores of later positions become -1e9 by a where; softmax over the last dim; ``probs @ v``; heads merged; a linear
  layer. Written out, no fused attention.
- The mlp is a linear layer to ``hidden``, gelu in its tanh form, a linear layer back.
- A last layer norm, then ``logits = x @ wte^T``: the head is tied to the token embedding.
- The loss is the mean over all batch * sequence tokens of the cross-entropy of logits and labels.

No two of the sizes are equal, so that a dim that stands where another belongs shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Weights = dict[str, Array]

EPSILON = 1e-5
MASKED = -1e9


@dataclass(frozen=True)
class Sizes:
    vocab: int = 96
    width: int = 48
    heads: int = 4
    layers: int = 2
    batch: int = 8
    sequence: int = 16
    hidden: int = 192

    @property
    def head(self) -> int:
        return self.width // self.heads


SIZES = Sizes()


def weight_shapes(sizes: Sizes = SIZES) -> dict[str, tuple[int, ...]]:
    """Name -> shape, in the order of the forward pass: ``wte``, ``wpe``, ``h.0.ln_1.weight``, ..., ``ln_f.bias``."""
    shapes: dict[str, tuple[int, ...]] = {"wte": (sizes.vocab, sizes.width), "wpe": (sizes.sequence, sizes.width)}
    for layer in range(sizes.layers):
        at = f"h.{layer}"
        shapes |= _norm(f"{at}.ln_1", sizes.width)
        for name in ("q", "k", "v", "proj"):
            shapes |= _linear(f"{at}.attn.{name}", sizes.width, sizes.width)
        shapes |= _norm(f"{at}.ln_2", sizes.width)
        shapes |= _linear(f"{at}.mlp.up", sizes.width, sizes.hidden)
        shapes |= _linear(f"{at}.mlp.down", sizes.hidden, sizes.width)
    return shapes | _norm("ln_f", sizes.width)


def _norm(name: str, width: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def _linear(name: str, inner: int, outer: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (inner, outer), f"{name}.bias": (outer,)}


def weights(sizes: Sizes = SIZES, dtype: str = "float32", seed: int = 0) -> Weights:
    """Name -> array: norms scale near 1, all else is near 0."""
    random = np.random.default_rng(seed)
    made = {}
    for name, shape in weight_shapes(sizes).items():
        scaling = name.endswith("weight") and len(shape) == 1
        made[name] = (random.standard_normal(shape) * 0.1 + (1.0 if scaling else 0.0)).astype(dtype)
    return made


def tokens(sizes: Sizes = SIZES, dtype: str = "int64", seed: int = 1) -> tuple[Array, Array]:
    """Ids and labels, (batch, sequence) each."""
    random = np.random.default_rng(seed)
    ids, labels = random.integers(0, sizes.vocab, (2, sizes.batch, sizes.sequence))
    return ids.astype(dtype), labels.astype(dtype)


def loss(given: Weights, ids: Array, labels: Array, sizes: Sizes = SIZES) -> Any:
    """The loss in numpy, in the dtype of the weights."""
    w = given
    x = w["wte"][ids] + w["wpe"]
    for layer in range(sizes.layers):
        at = f"h.{layer}"
        x = x + _attention(w, f"{at}.attn", layer_norm(w, f"{at}.ln_1", x), sizes)
        m = linear(w, f"{at}.mlp.up", layer_norm(w, f"{at}.ln_2", x))
        x = x + linear(w, f"{at}.mlp.down", gelu(m))
    logits = layer_norm(w, "ln_f", x) @ w["wte"].T
    top = logits.max(-1, keepdims=True)
    spread = np.log(np.exp(logits - top).sum(-1)) + top[..., 0]
    return (spread - np.take_along_axis(logits, labels[..., None], -1)[..., 0]).mean()


def _attention(w: Weights, at: str, x: Array, sizes: Sizes) -> Array:
    q, k, v = (
        linear(w, f"{at}.{name}", x).reshape(*x.shape[:2], sizes.heads, sizes.head).transpose(0, 2, 1, 3)
        for name in "qkv"
    )
    scores = np.where(np.tri(sizes.sequence, dtype=bool), q @ k.swapaxes(-1, -2) * sizes.head**-0.5, MASKED)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    probs = powers / powers.sum(-1, keepdims=True)
    return linear(w, f"{at}.proj", (probs @ v).transpose(0, 2, 1, 3).reshape(x.shape))


def linear(w: Weights, at: str, x: Array) -> Array:
    return x @ w[f"{at}.weight"] + w[f"{at}.bias"]


def layer_norm(w: Weights, at: str, x: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred * centred).mean(-1, keepdims=True)
    return centred / np.sqrt(variance + EPSILON) * w[f"{at}.weight"] + w[f"{at}.bias"]


def gelu(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
