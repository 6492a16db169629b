"""Small networks to train, each with what makes gradients go wrong: one tensor in two places, broadcasts, lookups."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tiny_gpt import EPSILON, MASKED, SIZES, Sizes, weight_shapes

from solver import Graph
from solver.graph import Tensor

BATCH = 10
"""The first dim of what comes with every step, and of nothing that is learned."""


def tiny_gpt(sizes: Sizes = SIZES, dtype: str = "float32") -> Graph:
    """The network of tests/tiny_gpt.py in our ops; the output is its loss."""
    g = Graph("tiny_gpt")
    ids, labels = (g.input(name, (sizes.batch, sizes.sequence), dtype="int64") for name in ("ids", "labels"))
    w = {name: g.parameter(name, shape, dtype) for name, shape in weight_shapes(sizes).items()}
    mask = g.constant("mask", np.tri(sizes.sequence, dtype=bool))

    def linear(at: str, x: Tensor) -> Tensor:
        return g.op("add", g.op("matmul", x, w[f"{at}.weight"]), w[f"{at}.bias"])

    def norm(at: str, x: Tensor) -> Tensor:
        return g.op("layer_norm", x, w[f"{at}.weight"], w[f"{at}.bias"], epsilon=EPSILON, begin_norm_axis=2)[0]

    def attention(at: str, x: Tensor) -> Tensor:
        heads = [sizes.batch, sizes.sequence, sizes.heads, sizes.head]
        q, k, v = (
            g.op("transpose", g.op("reshape", linear(f"{at}.{name}", x), shape=heads), perm=[0, 2, 1, 3])
            for name in "qkv"
        )
        scores = g.op("scale", g.op("matmul", q, k, transpose_y=True), scale=sizes.head**-0.5)
        hidden = g.op("full", shape=[1], fill_value=MASKED, dtype=dtype)
        probs = g.op("softmax", g.op("where", mask, scores, hidden), axis=-1)
        mixed = g.op("transpose", g.op("matmul", probs, v), perm=[0, 2, 1, 3])
        return linear(f"{at}.proj", g.op("reshape", mixed, shape=list(x.shape)))

    x = g.op("add", g.op("embedding", ids, w["wte"]), w["wpe"])
    for layer in range(sizes.layers):
        x = g.op("add", x, attention(f"h.{layer}.attn", norm(f"h.{layer}.ln_1", x)))
        wide = linear(f"h.{layer}.mlp.up", norm(f"h.{layer}.ln_2", x))
        x = g.op("add", x, linear(f"h.{layer}.mlp.down", g.op("gelu", wide, approximate=True)))
    logits = g.op("matmul", norm("ln_f", x), w["wte"], transpose_y=True, name="logits")
    _cross_entropy(g, logits, labels)
    return g


def _cross_entropy(g: Graph, logits: Tensor, labels: Tensor) -> None:
    losses = g.op("cross_entropy_with_softmax", logits, g.op("unsqueeze", labels, axis=-1))[1]
    g.output(g.op("mean", losses, name="loss"))


def tied_weight() -> Graph:
    """A token embedding that is the last layer, too."""
    g = Graph("tied_weight")
    ids, table = g.input("ids", (BATCH, 16), dtype="int64"), g.parameter("table", (32, 64))
    x = g.op("tanh", g.op("embedding", ids, table), name="x")
    _cross_entropy(g, g.op("matmul", x, table, transpose_y=True), g.input("labels", (BATCH, 16), dtype="int64"))
    return g


def broadcast_bias() -> Graph:
    """A bias, a position embedding and a single number, each added to more than its own shape."""
    g = Graph("broadcast_bias")
    x = g.op("matmul", g.input("x", (BATCH, 16, 32)), g.parameter("w", (32, 64)))
    x = g.op("tanh", g.op("add", g.op("add", x, g.parameter("b", (64,))), g.parameter("positions", (16, 64))))
    x = g.op("multiply", x, g.parameter("gain", ()))
    g.output(g.op("mean", g.op("square", x), name="loss"))
    return g


def normalized_convolution() -> Graph:
    """A convolution with a bias, a normalization by stored statistics, a pool and a classifier."""
    g = Graph("normalized_convolution")
    x = g.input("x", (BATCH, 4, 8, 8))
    x = g.op("conv2d", x, g.parameter("conv", (16, 4, 3, 3)), g.parameter("conv.bias", (16,)), padding=1, name="c")
    statistics = (g.state(f"bn.{name}", (16,)) for name in ("mean", "variance"))
    affine = (g.parameter(f"bn.{name}", (16,)) for name in ("scale", "bias"))
    x = g.op("batch_norm", x, *statistics, *affine, is_test=True, name="bn")[0]
    x = g.op("flatten", g.op("max_pool2d", g.op("relu", x), kernel_size=2), start_axis=1)
    logits = g.op("matmul", x, g.parameter("fc", (256, 16)))
    _cross_entropy(g, logits, g.input("labels", (BATCH,), dtype="int64"))
    return g


def normalized_together() -> Graph:
    """A normalization by the statistics of a batch that lies on several devices; the running ones are states."""
    g = Graph("normalized_together")
    x = g.op("matmul", g.input("x", (BATCH, 16)), g.parameter("w", (16, 32)))
    running = [g.state(f"bn.{name}", (32,)) for name in ("mean", "variance")]
    affine = (g.parameter(f"bn.{name}", (32,)) for name in ("scale", "bias"))
    x, *new = g.op("sync_batch_norm", x, *running, *affine, name="bn")
    g.output(g.op("mean", g.op("square", g.op("tanh", x)), name="loss"), *new)
    for made, state in zip(new, running, strict=True):
        g.tie(made, state)
    return g


def group_normalized() -> Graph:
    """Norms whose scale and bias are broadcast over batch and image, and a depthwise convolution."""
    g = Graph("group_normalized")
    x = g.op("depthwise_conv2d", g.input("x", (BATCH, 8, 6, 6)), g.parameter("depth", (8, 1, 3, 3)), groups=8, name="d")
    x = g.op("group_norm", x, g.parameter("gn.scale", (8,)), g.parameter("gn.bias", (8,)), groups=2, name="gn")
    x = g.op("rms_norm", g.op("flatten", x, start_axis=1), g.parameter("rms", (128,)), begin_norm_axis=1)
    g.output(g.op("mean", g.op("square", g.op("matmul", x, g.parameter("fc", (128, 16)))), name="loss"))
    return g


SMALL: tuple[Callable[[], Graph], ...] = (
    tied_weight,
    broadcast_bias,
    normalized_convolution,
    normalized_together,
    group_normalized,
)
