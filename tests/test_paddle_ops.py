"""Each op of PaddlePaddle is run by its executor and through its translation, forward and backward: equal results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle", reason="PaddlePaddle is not installed: pip install 'shardproof[paddle]'")
from paddle.nn import functional as fn  # noqa: E402
from paddle_networks import IMAGE, NETWORKS, A, B, Network, net  # noqa: E402

from solver import from_paddle  # noqa: E402
from solver.values import given_values, run_whole  # noqa: E402

MORE: dict[str, Network] = {
    "argsort": net(lambda x: paddle.argsort(x, 1), backward=False, x=A),
    "sort": net(lambda x: paddle.sort(x, 1), x=A),
    "einsum": net(lambda x, y: paddle.einsum("bij,jk->bik", x, y), x=B, y=(6, 8)),
    "pad": net(lambda x: fn.pad(x, [0, 0, 1, 1]), x=A),
    "pad_image": net(lambda x: fn.pad(x, [1, 2, 0, 1], "reflect"), x=IMAGE),
    "instance_norm": net(lambda x, w, b: fn.instance_norm(x, weight=w, bias=b), x=IMAGE, w=(4,), b=(4,)),
    "bilinear": net(lambda x: fn.interpolate(x, [16, 16], mode="bilinear"), x=IMAGE),
    "nearest": net(lambda x: fn.interpolate(x, scale_factor=2, mode="nearest"), x=IMAGE),
    "max_pool_padded": net(lambda x: fn.max_pool2d(x, 3, 2, padding=1), x=IMAGE),
    "avg_pool_padded": net(lambda x: fn.avg_pool2d(x, 3, 2, padding=1, exclusive=False), x=IMAGE),
    "set_value": net(lambda x, y: paddle.static.setitem(x, (slice(1, 3),), y), backward=False, x=A, y=(2, 6)),
    "numbers": net(lambda x: 1.0 - x / 3.0 + x**3, x=A),
    "expand_shape": net(lambda x: paddle.expand(x, [2, -1, 6]), x=A),
    "chunk": net(lambda x: paddle.split(x, [2, 4], 1), x=A),
    "masked": net(lambda x, m: paddle.where(m, x, paddle.zeros_like(x)), x=A, m=np.arange(24).reshape(A) % 3 == 0),
    "bce": net(lambda x, y: fn.binary_cross_entropy(x, y), x=A, y=A),
    "bce_logits": net(lambda x, y: fn.binary_cross_entropy_with_logits(x, y), x=A, y=A),
    "smooth_l1": net(lambda x, y: fn.smooth_l1_loss(x, y), x=A, y=A),
    "prelu": net(lambda x, w: fn.prelu(x, w), x=IMAGE, w=(4,)),
    "pixel_shuffle": net(lambda x: fn.pixel_shuffle(x, 2), x=IMAGE),
    "pixel_unshuffle": net(lambda x: fn.pixel_unshuffle(x, 2), x=IMAGE),
    "channel_shuffle": net(lambda x: fn.channel_shuffle(x, 2), x=IMAGE),
    "pixel_shuffle_last": net(lambda x: fn.pixel_shuffle(x, 2, "NHWC"), x=(2, 4, 4, 8)),
    "index_add": net(lambda x, i, v: paddle.index_add(x, i, 0, v), x=A, i=[1, 3], v=(2, 6)),
    "cumprod": net(lambda x: paddle.cumprod(x, 1), x=A),
    "logcumsumexp": net(lambda x: paddle.logcumsumexp(x, 1), x=A),
    "any_all": net(lambda x: paddle.any(x > 0.5, axis=1), backward=False, x=A),
    "addmm": net(lambda c, x, y: paddle.addmm(c, x, y, 0.5, 2.0), c=(4, 8), x=A, y=(6, 8)),
    "dot": net(paddle.dot, x=A, y=A),
    "mv": net(paddle.mv, x=A, vec=(6,)),
    "lerp": net(lambda x, y: paddle.lerp(x, y, 0.3), x=A, y=A),
    "atan2": net(paddle.atan2, x=A, y=A),
    "flip": net(lambda x: paddle.flip(x, [1]), x=A),
    "roll_flat": net(lambda x: paddle.roll(x, 2), x=A),
    "repeat": net(lambda x: paddle.repeat_interleave(x, 2, 1), x=A),
    "heaviside": net(paddle.heaviside, backward=False, x=A, y=A),
    "swiglu": net(lambda x, y: paddle.incubate.nn.functional.swiglu(x, y), x=A, y=A),
    "dropout_test": net(lambda x: fn.dropout(x, 0.5, training=False), x=A),
    "var": net(lambda x: paddle.var(x, 1), x=A),
    "std": net(lambda x: paddle.std(x, 1), x=A),
    "nll": net(lambda x, y: fn.nll_loss(x, y), x=A, y=[0, 1, 2, 3]),
    "l1": net(lambda x, y: fn.l1_loss(x + 1, y), x=A, y=A),
    "normalize": net(lambda x: fn.normalize(x, axis=1), x=A),
    "diag": net(lambda x: paddle.diagonal(x), x=(6, 6)),
    "conv1d": net(lambda x, w: fn.conv1d(x, w, padding=1), x=(2, 4, 8), w=(6, 4, 3)),
    "local_norm": net(lambda x: fn.local_response_norm(x, 3), x=IMAGE),
    "max_pool_index": net(lambda x: fn.adaptive_max_pool2d(x, 2), x=IMAGE),
    "rms": net(lambda x: x * paddle.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6), x=B),
    "attention": net(lambda q: fn.scaled_dot_product_attention(q, q, q, is_causal=True), q=(2, 4, 2, 8)),
}
"""Functions beside those whose rules are asked for."""
ALL = {**NETWORKS, **MORE}


def numbers(name: str, given: Any, seed: int) -> Any:
    """Values in which every function is smooth."""
    if given.dtype.kind != "f":
        return given
    drawn = np.random.default_rng(seed).uniform(0.2, 0.8, given.shape).astype("float32")
    return drawn + 1 if name == "acosh" else drawn


@pytest.mark.parametrize("name", ALL)
def test_an_op_is_what_paddle_computes(name: str) -> None:
    network = ALL[name]
    inputs = {key: numbers(name, given, seed) for seed, (key, given) in enumerate(network.inputs.items())}
    paddle.enable_static()
    program = paddle.static.Program()
    with paddle.static.program_guard(program, paddle.static.Program()), paddle.utils.unique_name.guard():
        tensors = {key: paddle.static.data(key, list(value.shape), str(value.dtype)) for key, value in inputs.items()}
        for key, tensor in tensors.items():
            tensor.stop_gradient = inputs[key].dtype.kind != "f"
        out = network.write(**tensors)
        outs = list(out) if isinstance(out, list | tuple) else [out]
        if network.backward:
            learned = [tensor for tensor in tensors.values() if not tensor.stop_gradient]
            grads = paddle.static.gradients([(one * one).mean() for one in outs], learned)
            outs += [grad for grad in grads if grad is not None]
    executor = paddle.static.Executor(paddle.CPUPlace())
    theirs = executor.run(program, feed=inputs, fetch_list=outs)
    graph = from_paddle(program, fetch=outs)
    assert len(graph.outputs) == len(theirs)
    read = {key: value for key, value in inputs.items() if key in graph.tensors}
    ours = run_whole(graph, given_values(graph, read))
    for output, expected in zip(graph.outputs, theirs, strict=True):
        scale = max(np.abs(np.asarray(expected, "float64")).max(), 1e-2)
        assert ours[output].shape == expected.shape
        assert np.abs(ours[output].astype("float64") - expected).max() <= 1e-4 * scale, output
