"""Small functions in PaddlePaddle, one for each op whose rules are asked for in a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
from paddle.nn import functional as fn


@dataclass(frozen=True)
class Network:
    """A function of named inputs.

    Parameters
    ----------
    write : callable
    inputs : mapping
        Arrays: of floats shape and dtype count, integers and truth values are what they are.
    backward : bool
    """

    write: Callable[..., Any]
    inputs: Mapping[str, Any]
    backward: bool = True


def net(write: Callable[..., Any], backward: bool = True, **inputs: Any) -> Network:
    made = {
        name: np.zeros(given, np.float32) if isinstance(given, tuple) else np.array(given)
        for name, given in inputs.items()
    }
    return Network(write, made, backward)


A, B, C = (4, 6), (2, 4, 6), (2, 4, 6, 8)
IMAGE, LAST = (2, 4, 8, 8), (2, 8, 8, 4)
IDS = [[0, 1, 2, 3], [3, 2, 1, 0]]
UNARY = "abs acos acosh asin asinh atan atanh cos cosh erf exp expm1 log log10 log1p log2 reciprocal rsqrt sigmoid sign sin sinh sqrt square tan tanh lgamma digamma"  # noqa: E501
ACTIVATIONS = "relu relu6 gelu silu swish mish softplus softsign tanhshrink log_sigmoid hardswish hardsigmoid hardtanh leaky_relu elu celu selu softshrink hardshrink"  # noqa: E501
BINARY = "add subtract multiply divide maximum minimum fmax fmin pow"
LOGICAL = "equal not_equal less_than less_equal greater_than greater_equal"
REDUCTIONS = "sum mean max min amax amin prod logsumexp"


def _conv(x: Any, w: Any, **attrs: Any) -> Any:
    return fn.conv2d(x, w, padding=1, **attrs)


def _partial(write: Callable[[Any], Any]) -> Network:
    """A function of a product, which is partial where the contracted dim is cut."""
    return net(lambda x, y: write(paddle.matmul(x, y)), x=A, y=(6, 8))


PARTIAL: dict[str, Callable[[Any], Any]] = {
    "unbind": lambda z: paddle.unbind(z, 0),
    "expand": lambda z: paddle.expand(z, [2, 4, 8]),
    "tile": lambda z: paddle.tile(z, [1, 2]),
    "concat": lambda z: paddle.concat([z, z], 0),
    "stack": lambda z: paddle.stack([z, z], 1),
    "split": lambda z: paddle.split(z, 2, 1),
    "slice": lambda z: z[:, 0:4],
    "transpose": lambda z: paddle.transpose(z, [1, 0]),
    "reshape": lambda z: paddle.reshape(z, [2, 2, 8]),
    "scale": lambda z: paddle.scale(z, 2.0),
    "shift": lambda z: paddle.scale(z, 1.0, 1.0),
    "add": lambda z: z + z,
    "multiply": lambda z: z * z,
    "relu": fn.relu,
    "abs": paddle.abs,
    "sum": lambda z: paddle.sum(z, 1),
    "mean": lambda z: paddle.mean(z, 0),
    "max": lambda z: paddle.max(z, 1),
    "softmax": fn.softmax,
    "cast": lambda z: paddle.cast(z, "float64"),
    "triu": paddle.triu,
    "unsqueeze": lambda z: paddle.unsqueeze(z, 0),
    "cumsum": lambda z: paddle.cumsum(z, 1),
    "assign": paddle.assign,
}
"""Functions that a partial tensor meets."""

NETWORKS: dict[str, Network] = {
    **{f"partial_{name}": _partial(write) for name, write in PARTIAL.items()},
    **{name: net(getattr(paddle, name), x=A) for name in UNARY.split()},
    **{name: net(getattr(fn, name), x=A) for name in ACTIVATIONS.split()},
    **{name: net(getattr(paddle, name), x=B, y=(4, 6)) for name in BINARY.split()},
    **{name: net(getattr(paddle, name), backward=False, x=A, y=A) for name in LOGICAL.split()},
    **{f"{name}_{axis}": net(lambda x, name=name, axis=axis: getattr(paddle, name)(x, axis=axis), x=A)
       for name in REDUCTIONS.split() for axis in (0, 1)},
    "scale": net(lambda x: paddle.scale(x, 2.0, 1.0), x=A),
    "clip": net(lambda x: paddle.clip(x, -0.5, 0.5), x=A),
    "cast": net(lambda x: paddle.cast(x, "float64"), x=A),
    "where": net(paddle.where, condition=np.arange(24).reshape(A) % 2 == 0, x=A, y=A),
    "add_n": net(lambda x, y: paddle.add_n([x, y]), x=A, y=A),
    "matmul": net(paddle.matmul, x=A, y=(6, 8)),
    "matmul_batched": net(paddle.matmul, x=B, y=(2, 6, 8)),
    "matmul_broadcast": net(paddle.matmul, x=B, y=(6, 8)),
    "matmul_transposed": net(lambda x, y: paddle.matmul(x, y, True, True), x=(6, 4), y=(8, 6)),
    "bmm": net(paddle.bmm, x=B, y=(2, 6, 8)),
    "linear": net(fn.linear, x=B, weight=(6, 8), bias=(8,)),
    "reshape": net(lambda x: paddle.reshape(x, [8, 6]), x=B),
    "reshape_split": net(lambda x: paddle.reshape(x, [2, 4, 6]), x=(8, 6)),
    "flatten": net(lambda x: paddle.flatten(x, 1, 2), x=B),
    "transpose": net(lambda x: paddle.transpose(x, [2, 0, 1]), x=B),
    "squeeze": net(lambda x: paddle.squeeze(x, 1), x=(4, 1, 6)),
    "unsqueeze": net(lambda x: paddle.unsqueeze(x, 1), x=A),
    "expand": net(lambda x: paddle.expand(x, [4, 6]), x=(1, 6)),
    "expand_new": net(lambda x: paddle.expand(x, [2, 4, 6]), x=A),
    "expand_grown": net(lambda x: paddle.expand(x, [2, 4, 6]), x=(2, 1, 6)),
    "expand_as": net(paddle.expand_as, x=(1, 6), y=A),
    "tile": net(lambda x: paddle.tile(x, [1, 2]), x=A),
    "concat": net(lambda x, y: paddle.concat([x, y], 0), x=A, y=A),
    "stack": net(lambda x, y: paddle.stack([x, y], 1), x=A, y=A),
    "split": net(lambda x: paddle.split(x, 2, 1), x=A),
    "unbind_1": net(lambda x: paddle.unbind(x, 1), x=A),
    "unbind": net(lambda x: paddle.unbind(x, 0), x=A),
    "slice": net(lambda x: x[:, 0:4], x=A),
    "slice_one": net(lambda x: x[:, 1], x=B),
    "strided_slice": net(lambda x: x[:, 0:6:2], x=A),
    "roll": net(lambda x: paddle.roll(x, 1, 0), x=A),
    "triu": net(paddle.triu, x=A),
    "tril": net(paddle.tril, x=A),
    "cumsum": net(lambda x: paddle.cumsum(x, 1), x=A),
    "cummax": net(lambda x: paddle.cummax(x, 1)[0], x=A),
    "softmax": net(lambda x: fn.softmax(x, 1), x=A),
    "log_softmax": net(lambda x: fn.log_softmax(x, 1), x=A),
    "argmax": net(lambda x: paddle.argmax(x, 1), backward=False, x=A),
    "topk": net(lambda x: paddle.topk(x, 2, 1)[0], x=A),
    "gather": net(lambda x, index: paddle.gather(x, index, 0), x=A, index=[0, 2]),
    "gather_nd": net(paddle.gather_nd, x=B, index=[[0, 1], [1, 2], [0, 3], [1, 0]]),
    "index_select": net(lambda x, index: paddle.index_select(x, index, 0), x=A, index=[0, 2]),
    "take_along_axis": net(lambda x, index: paddle.take_along_axis(x, index, 0), x=A, index=[[0, 1, 2, 3, 0, 1]] * 2),
    "take_along_axis_1": net(lambda x, index: paddle.take_along_axis(x, index, 1), x=A, index=[[0, 1]] * 4),
    "put_along_axis": net(lambda x, index, v: paddle.put_along_axis(x, index, v, 0, "add"), x=A,
                          index=[[0, 1, 2, 3, 0, 1]] * 2, v=(2, 6)),
    "scatter": net(lambda x, index, v: paddle.scatter(x, index, v, overwrite=False), x=A, index=[1, 3], v=(2, 6)),
    "scatter_nd_add": net(paddle.scatter_nd_add, x=A, index=[[1], [3]], updates=(2, 6)),
    "index_put": net(lambda x, index, v: paddle.index_put(x, [index], v, True), x=A, index=[0, 2, 1, 3], v=A),
    "embedding": net(fn.embedding, x=IDS, weight=(8, 6)),
    "one_hot": net(lambda x: fn.one_hot(x, 8), backward=False, x=IDS),
    "layer_norm": net(lambda x, w, b: fn.layer_norm(x, [6], w, b), x=B, w=(6,), b=(6,)),
    "group_norm": net(lambda x, w, b: fn.group_norm(x, 2, weight=w, bias=b), x=IMAGE, w=(4,), b=(4,)),
    "batch_norm": net(lambda x, m, v, w, b: fn.batch_norm(x, m, v, w, b, training=True), x=IMAGE, m=(4,), v=(4,),
                      w=(4,), b=(4,)),
    "cross_entropy": net(lambda x, y: fn.cross_entropy(x, y, reduction="none"), x=A, y=[[0], [1], [2], [3]]),
    "conv2d": net(_conv, x=IMAGE, w=(6, 4, 3, 3)),
    "conv2d_last": net(lambda x, w: _conv(x, w, data_format="NHWC"), x=LAST, w=(6, 4, 3, 3)),
    "conv2d_grouped": net(lambda x, w: _conv(x, w, groups=2), x=IMAGE, w=(6, 2, 3, 3)),
    "depthwise": net(lambda x, w: _conv(x, w, groups=4), x=IMAGE, w=(4, 1, 3, 3)),
    "conv2d_transpose": net(lambda x, w: fn.conv2d_transpose(x, w, padding=1), x=IMAGE, w=(4, 6, 3, 3)),
    "conv3d": net(lambda x, w: fn.conv3d(x, w, padding=1), x=(2, 4, 4, 4, 4), w=(6, 4, 3, 3, 3)),
    "max_pool": net(lambda x: fn.max_pool2d(x, 2, 2), x=IMAGE),
    "avg_pool": net(lambda x: fn.avg_pool2d(x, 2, 2), x=IMAGE),
    "adaptive_pool": net(lambda x: fn.adaptive_avg_pool2d(x, 2), x=IMAGE),
    "mse_loss": net(fn.mse_loss, input=A, label=A),
    "kl_div": net(lambda x, y: fn.kl_div(x, y, reduction="none"), x=A, y=A),
    "label_smooth": net(fn.label_smooth, label=A),
    "p_norm": net(lambda x: paddle.linalg.norm(x, 3, 1), x=A),
    "frobenius_norm": net(lambda x: paddle.linalg.norm(x, "fro", [0, 1]), x=A),
}  # fmt: skip
"""What is written, by name."""
UNWRITABLE = {
    "einsum": "the rule ends the process in a program",
    "pad": "its function hands the rule a tensor without a placement",
    "instance_norm": "no program with placed inputs can be written: the rule gives a wrong rank to saved_mean",
}
"""Functions that cannot be asked of a program, and why."""
