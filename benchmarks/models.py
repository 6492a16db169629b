"""Models by builder, for benchmarks and tests."""

from __future__ import annotations

from typing import Any

from solver import Graph
from solver.graph import Tensor
from solver.training import training_step


def gpt(
    layers: int,
    *,
    hidden: int = 4096,
    heads: int = 32,
    batch: int = 16,
    sequence: int = 2048,
    vocabulary: int = 50304,
    dtype: str = "bfloat16",
    loss: bool = False,
) -> Graph:
    """Build the forward pass of a GPT-like decoder: embedding, blocks (attention, MLP), final norm, logits.

    With ``loss`` the output is their mean cross entropy with given labels.
    """
    graph = Graph(f"gpt-{layers}x{hidden}")
    ids = graph.input("ids", (batch, sequence), dtype="int64")
    x = graph.op("embedding", ids, graph.parameter("wte", (vocabulary, hidden), dtype), name="embed")
    for layer in range(layers):
        x = _block(graph, x, f"h{layer}", hidden, heads, dtype)
    x = _norm(graph, x, "ln_f", hidden, dtype)
    logits = graph.op("matmul", x, graph.parameter("head", (hidden, vocabulary), dtype), name="logits")
    if not loss:
        graph.output(logits)
        return graph
    labels = graph.input("labels", (batch, sequence, 1), dtype="int64")
    graph.output(
        graph.op("mean", graph.op("cross_entropy_with_softmax", logits, labels, name="entropy")[1], name="loss")
    )
    return graph


def gpt_training(layers: int, optimizer: str | None = "adamw", clip_norm: float | None = None, **sizes: Any) -> Graph:
    """Build the training step of a `gpt`: forward, backward, update."""
    return training_step(gpt(layers, loss=True, **sizes), "loss", optimizer, clip_norm=clip_norm)


def _norm(graph: Graph, x: Tensor, name: str, hidden: int, dtype: str) -> Tensor:
    scale, bias = (graph.parameter(f"{name}.{part}", (hidden,), dtype) for part in ("scale", "bias"))
    return graph.op("layer_norm", x, scale, bias, name=name, begin_norm_axis=len(x.shape) - 1)[0]


def _linear(graph: Graph, x: Tensor, name: str, width: int, dtype: str) -> Tensor:
    weight = graph.parameter(f"{name}.weight", (x.shape[-1], width), dtype)
    product = graph.op("matmul", x, weight, name=f"{name}.product")
    return graph.op("add", product, graph.parameter(f"{name}.bias", (width,), dtype), name=name)


def _block(graph: Graph, x: Tensor, name: str, hidden: int, heads: int, dtype: str) -> Tensor:
    batch, sequence, _ = x.shape
    normed = _norm(graph, x, f"{name}.ln1", hidden, dtype)
    split = []
    for part in "qkv":
        y = _linear(graph, normed, f"{name}.{part}", hidden, dtype)
        y = graph.op("reshape", y, shape=[batch, sequence, heads, hidden // heads], name=f"{name}.{part}.heads")
        split.append(graph.op("transpose", y, perm=[0, 2, 1, 3], name=f"{name}.{part}.t"))
    scores = graph.op("matmul", split[0], split[1], transpose_y=True, name=f"{name}.scores")
    scaled = graph.op("scale", scores, scale=(hidden // heads) ** -0.5, name=f"{name}.scaled")
    weights = graph.op("softmax", scaled, axis=-1, name=f"{name}.softmax")
    mixed = graph.op("matmul", weights, split[2], name=f"{name}.mixed")
    joined = graph.op("transpose", mixed, perm=[0, 2, 1, 3], name=f"{name}.joined.t")
    joined = graph.op("reshape", joined, shape=[batch, sequence, hidden], name=f"{name}.joined")
    x = graph.op("add", x, _linear(graph, joined, f"{name}.out", hidden, dtype), name=f"{name}.res1")
    wide = _linear(graph, _norm(graph, x, f"{name}.ln2", hidden, dtype), f"{name}.up", 4 * hidden, dtype)
    active = graph.op("gelu", wide, name=f"{name}.gelu")
    return graph.op("add", x, _linear(graph, active, f"{name}.down", hidden, dtype), name=f"{name}.res2")


def llama(
    layers: int,
    *,
    hidden: int = 4096,
    heads: int = 32,
    wide: int = 11008,
    batch: int = 16,
    sequence: int = 2048,
    vocabulary: int = 32000,
    dtype: str = "bfloat16",
) -> Graph:
    """Build a Llama-like decoder with its loss: norms by root mean square, rotary positions, no biases, gated MLP."""
    graph = Graph(f"llama-{layers}x{hidden}")
    ids = graph.input("ids", (batch, sequence), dtype="int64")
    labels = graph.input("labels", (batch, sequence, 1), dtype="int64")
    table = (1, sequence, 1, hidden // heads)
    waves = graph.input("sin", table, dtype), graph.input("cos", table, dtype)
    x = graph.op("embedding", ids, graph.parameter("embed.weight", (vocabulary, hidden), dtype), name="embed")

    def normed(x: Tensor, name: str) -> Tensor:
        return graph.op("rms_norm", x, graph.parameter(f"{name}.weight", (hidden,), dtype), name=name)

    def linear(x: Tensor, name: str, width: int) -> Tensor:
        return graph.op("matmul", x, graph.parameter(f"{name}.weight", (x.shape[-1], width), dtype), name=name)

    for layer in range(layers):
        n = f"h{layer}"
        y = normed(x, f"{n}.norm1")
        split = [
            graph.op("reshape", linear(y, f"{n}.{part}", hidden), shape=[batch, sequence, heads, hidden // heads])
            for part in "qkv"
        ]
        q, k = graph.op("fused_rotary_position_embedding", split[0], split[1], None, *waves, name=f"{n}.rotary")
        q, k, v = (graph.op("transpose", part, perm=[0, 2, 1, 3]) for part in (q, k, split[2]))
        scores = graph.op("matmul", q, k, transpose_y=True, name=f"{n}.scores")
        scaled = graph.op("scale", scores, scale=(hidden // heads) ** -0.5, name=f"{n}.scaled")
        mixed = graph.op("matmul", graph.op("softmax", scaled, axis=-1, name=f"{n}.softmax"), v, name=f"{n}.mixed")
        joined = graph.op("transpose", mixed, perm=[0, 2, 1, 3], name=f"{n}.joined.t")
        joined = graph.op("reshape", joined, shape=[batch, sequence, hidden], name=f"{n}.joined")
        x = graph.op("add", x, linear(joined, f"{n}.o", hidden), name=f"{n}.res1")
        y = normed(x, f"{n}.norm2")
        gated = graph.op("swiglu", linear(y, f"{n}.gate", wide), linear(y, f"{n}.up", wide), name=f"{n}.swiglu")
        x = graph.op("add", x, linear(gated, f"{n}.down", hidden), name=f"{n}.res2")
    logits = linear(normed(x, "norm"), "head", vocabulary)
    entropy = graph.op("cross_entropy_with_softmax", logits, labels, name="entropy")[1]
    graph.output(graph.op("mean", entropy, name="loss"))
    return graph


def llama_training(layers: int, optimizer: str | None = "adamw", **sizes: Any) -> Graph:
    """Build the training step of a `llama`: forward, backward, update."""
    return training_step(llama(layers, **sizes), "loss", optimizer)


def experts(
    layers: int,
    *,
    hidden: int = 1024,
    count: int = 16,
    batch: int = 64,
    sequence: int = 512,
    vocabulary: int = 32000,
    dtype: str = "bfloat16",
) -> Graph:
    """Build a network of layers of experts: each token goes through two of them; the output is the loss.

    An expert takes twice the tokens that it would get if all got as many.
    """
    graph = Graph(f"experts-{layers}x{hidden}")
    tokens = batch * sequence
    ids = graph.input("ids", (batch, sequence), dtype="int64")
    x = graph.op("embedding", ids, graph.parameter("wte", (vocabulary, hidden), dtype), name="embed")
    x = graph.op("reshape", x, shape=[tokens, hidden], name="tokens")
    for layer in range(layers):
        x = _routed(graph, x, f"h{layer}", count, 4 * tokens // count, dtype)
    logits = graph.op("matmul", x, graph.parameter("head", (hidden, vocabulary), dtype), name="logits")
    labels = graph.input("labels", (batch, sequence), dtype="int64")
    flat = graph.op("reshape", labels, shape=[tokens, 1], name="flat")
    graph.output(graph.op("mean", graph.op("cross_entropy_with_softmax", logits, flat, name="entropy")[1], name="loss"))
    return graph


def _routed(graph: Graph, x: Tensor, name: str, count: int, capacity: int, dtype: str) -> Tensor:
    hidden = x.shape[1]
    normed = _norm(graph, x, f"{name}.ln", hidden, dtype)
    gate = graph.op("matmul", normed, graph.parameter(f"{name}.gate", (hidden, count), dtype), name=f"{name}.scores")
    gate = graph.op("softmax", gate, axis=-1, name=f"{name}.softmax")
    sent, weights, places, *_ = graph.op(
        "moe_gate_dispatch", normed, gate, None, k=2, capacity=capacity, name=f"{name}.dispatch"
    )
    up, down = (
        graph.parameter(f"{name}.{part}", shape, dtype)
        for part, shape in (("up", (count, hidden, 4 * hidden)), ("down", (count, 4 * hidden, hidden)))
    )
    wide = graph.op("gelu", graph.op("bmm", sent, up, name=f"{name}.wide"), name=f"{name}.gelu")
    made = graph.op("bmm", wide, down, name=f"{name}.narrow")
    made = graph.op("reshape", made, shape=[count * capacity, hidden], name=f"{name}.rows")
    places = graph.op("transpose", places, perm=[1, 0], name=f"{name}.places")
    return graph.op(
        "add", x, graph.op("moe_combine", made, weights, places, name=f"{name}.combine"), name=f"{name}.res"
    )


def convolutions(blocks: int, *, batch: int = 256, width: int = 64, size: int = 56, classes: int = 1000) -> Graph:
    """Build a residual network of convolutions in four stages of equal blocks; the output is its loss."""
    graph = Graph(f"convolutions-{blocks}x{width}")
    x = _convolved(graph, graph.input("image", (batch, 3, size, size)), "stem", width)
    for stage in range(4):
        if stage:
            x = _convolved(graph, x, f"s{stage}.down", 2 * x.shape[1], stride=2)
        for block in range(blocks):
            inner = _convolved(graph, x, f"s{stage}.b{block}.c1", x.shape[1])
            inner = _convolved(graph, inner, f"s{stage}.b{block}.c2", x.shape[1])
            x = graph.op("add", x, inner, name=f"s{stage}.b{block}.res")
    x = graph.op("mean", x, axis=[2, 3], name="pool")
    logits = graph.op("matmul", x, graph.parameter("head", (x.shape[1], classes)), name="logits")
    labels = graph.input("label", (batch, 1), dtype="int64")
    graph.output(
        graph.op("mean", graph.op("cross_entropy_with_softmax", logits, labels, name="entropy")[1], name="loss")
    )
    return graph


def _convolved(graph: Graph, x: Tensor, name: str, width: int, stride: int = 1) -> Tensor:
    weight = graph.parameter(f"{name}.weight", (width, x.shape[1], 3, 3))
    made = graph.op("conv2d", x, weight, padding=1, stride=stride, name=f"{name}.conv")
    scale, bias = (graph.parameter(f"{name}.{part}", (width,)) for part in ("scale", "bias"))
    made = graph.op("group_norm", made, scale, bias, groups=8, name=f"{name}.norm")
    return graph.op("relu", made, name=name)
