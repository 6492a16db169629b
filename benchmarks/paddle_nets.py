"""Networks in PaddlePaddle's PIR for the comparison with its own completion: a GPT stack, an MLP, a convolution net."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Protocol

import paddle
from paddle.nn import functional


class Writes(Protocol):
    """What a network is written with."""

    def data(self, name: str, shape: tuple[int, ...], dtype: str = "float32") -> Any:
        """Add an input."""

    def parameter(self, name: str, *shape: int) -> Any:
        """Add a parameter."""


def mlp(
    *, batch: int = 16, widths: tuple[int, ...] = (32, 64, 16), activation: str = "gelu"
) -> Callable[[Writes], Any]:
    """Linear layers with an activation between them, and the cross entropy of classes."""

    def write(w: Writes) -> Any:
        x, labels = w.data("x", (batch, widths[0])), w.data("labels", (batch, 1), "int64")
        last = len(widths) - 2
        for layer, (inner, outer) in enumerate(itertools.pairwise(widths)):
            x = functional.linear(x, w.parameter(f"w{layer}", inner, outer), w.parameter(f"b{layer}", outer))
            x = getattr(functional, activation)(x) if layer < last else x
        return functional.cross_entropy(x, labels)

    return write


def convolutions(*, batch: int = 16, channels: tuple[int, ...] = (4, 8, 16), size: int = 16) -> Callable[[Writes], Any]:
    """Convolutions with relu and pooling, then a linear layer, and the cross entropy of classes."""

    def write(w: Writes) -> Any:
        x, labels = w.data("x", (batch, channels[0], size, size)), w.data("labels", (batch, 1), "int64")
        for layer, (inner, outer) in enumerate(itertools.pairwise(channels)):
            x = functional.conv2d(x, w.parameter(f"conv{layer}", outer, inner, 3, 3), padding=1)
            x = functional.max_pool2d(functional.relu(x), 2, 2)
        x = paddle.flatten(functional.adaptive_avg_pool2d(x, 1), 1)
        return functional.cross_entropy(functional.linear(x, w.parameter("head", channels[-1], 8)), labels)

    return write


def gpt(
    layers: int,
    *,
    batch: int = 8,
    sequence: int = 16,
    width: int = 32,
    heads: int = 4,
    words: int = 64,
    activation: str = "gelu",
) -> Callable[[Writes], Any]:
    """A decoder of the GPT kind: embeddings, blocks, a final norm, logits by a head of its own, cross entropy."""

    def linear(w: Writes, x: Any, name: str, inner: int, outer: int) -> Any:
        return functional.linear(x, w.parameter(f"{name}.weight", inner, outer), w.parameter(f"{name}.bias", outer))

    def norm(w: Writes, x: Any, name: str) -> Any:
        scale, bias = w.parameter(f"{name}.scale", width), w.parameter(f"{name}.bias", width)
        return functional.layer_norm(x, [width], scale, bias)

    def attention(w: Writes, x: Any, at: str) -> Any:
        q, k, v = (
            linear(w, x, f"{at}.{name}", width, width)
            .reshape([batch, sequence, heads, width // heads])
            .transpose([0, 2, 1, 3])
            for name in "qkv"
        )
        probs = functional.softmax(paddle.matmul(q, k, transpose_y=True) * (width // heads) ** -0.5)
        merged = paddle.matmul(probs, v).transpose([0, 2, 1, 3]).reshape([batch, sequence, width])
        return linear(w, merged, f"{at}.proj", width, width)

    def write(w: Writes) -> Any:
        ids, labels = w.data("ids", (batch, sequence), "int64"), w.data("labels", (batch, sequence, 1), "int64")
        x = functional.embedding(ids, w.parameter("wte", words, width)) + w.parameter("wpe", sequence, width)
        for layer in range(layers):
            at = f"h{layer}"
            x = x + attention(w, norm(w, x, f"{at}.ln1"), f"{at}.attn")
            hidden = linear(w, norm(w, x, f"{at}.ln2"), f"{at}.up", width, 4 * width)
            hidden = getattr(functional, activation)(hidden)
            x = x + linear(w, hidden, f"{at}.down", 4 * width, width)
        logits = paddle.matmul(norm(w, x, "ln"), w.parameter("head", width, words))
        return functional.cross_entropy(logits, labels)

    return write


def megatron(layers: int, axis: str = "tp") -> dict[str, str]:
    """The placements of the parameters of `gpt` by the Megatron recipe on one mesh axis."""
    found = {}
    for layer in range(layers):
        for name in (*(f"attn.{one}" for one in "qkv"), "up"):
            found |= {f"h{layer}.{name}.weight": f"{axis}=S(1)", f"h{layer}.{name}.bias": f"{axis}=S(0)"}
        found |= {f"h{layer}.{name}.weight": f"{axis}=S(0)" for name in ("attn.proj", "down")}
    return found
