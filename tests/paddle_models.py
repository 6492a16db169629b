"""Networks in PaddlePaddle, as PIR programs with the values of their parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
from numpy.typing import NDArray
from paddle import nn
from paddle.nn import functional

from tests import tiny_gpt

Array = NDArray[Any]


@dataclass
class Built:
    """A program, what makes its parameters, the loss, its inputs, and each parameter with its gradient."""

    program: Any
    startup: Any
    loss: Any
    inputs: dict[str, Array]
    gradients: list[tuple[Any, Any]]

    def run(self, *fetch: Any) -> tuple[dict[str, Array], list[Array], dict[str, Array]]:
        """Run one step with Paddle's executor: values before it, what is fetched, and values after it."""
        scope = paddle.static.Scope()
        with paddle.static.scope_guard(scope):
            executor = paddle.static.Executor(paddle.CPUPlace())
            executor.run(self.startup)
            names = [name for name in stored(self.program) if scope.find_var(name) is not None]
            before = {name: np.array(scope.find_var(name).get_tensor()) for name in names}
            made = executor.run(self.program, feed=self.inputs, fetch_list=list(fetch))
            after = {name: np.array(scope.find_var(name).get_tensor()) for name in names}
        return before, [np.array(one) for one in made], after


def stored(program: Any) -> list[str]:
    """The names of all that a program keeps from step to step."""
    found = []
    for op in program.global_block().ops:
        attrs = op.attrs()
        if op.name() == "builtin.parameter":
            found.append(attrs["parameter_name"])
        elif op.name() == "pd_op.data" and any(attrs.get("persistable") or [False]):
            found.append(attrs["name"])
    return found


def build(write: Any, inputs: dict[str, Array], optimizer: Any = None) -> Built:
    """Write a program: its loss from its inputs, then the backward pass, or the step of an optimizer."""
    paddle.enable_static()
    program, startup = paddle.static.Program(), paddle.static.Program()
    paddle.seed(7)
    with paddle.static.program_guard(program, startup), paddle.utils.unique_name.guard():
        given = {name: paddle.static.data(name, list(value.shape), str(value.dtype)) for name, value in inputs.items()}
        loss = write(**given)
        made = paddle.static.append_backward(loss) if optimizer is None else optimizer().minimize(loss)[1]
        gradients = [pair for pair in made if pair[1] is not None]
    return Built(program, startup, loss, inputs, gradients)


# ---------------------------------------------------------------------------------------------------------- networks


def mlp(x: Any, y: Any) -> Any:
    net = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 12))
    return functional.cross_entropy(net(x), y)


def images(x: Any, y: Any) -> Any:
    """Convolutions, batch norm, both kinds of pooling."""
    h = functional.relu(nn.BatchNorm2D(8)(nn.Conv2D(4, 8, 3, padding=1, bias_attr=False)(x)))
    h = functional.max_pool2d(h, 2, 2)
    h = functional.relu(nn.BatchNorm2D(16)(nn.Conv2D(8, 16, 3, padding=1, bias_attr=False)(h)))
    h = paddle.flatten(functional.adaptive_avg_pool2d(h, 1), 1)
    return functional.cross_entropy(nn.Linear(16, 12)(h), y)


def block(x: Any, y: Any) -> Any:
    """A layer of Paddle's own transformer, and an error to predict."""
    out = nn.TransformerEncoderLayer(24, 4, 48, dropout=0.0)(x)
    return functional.mse_loss(out, y)


def gpt(ids: Any, labels: Any) -> Any:
    """The tiny GPT of tests/tiny_gpt.py."""
    sizes, w = tiny_gpt.SIZES, _parameters(str(ids.dtype))
    x = functional.embedding(ids, w["wte"]) + w["wpe"]
    for layer in range(sizes.layers):
        at = f"h.{layer}"
        x = x + _attention(w, f"{at}.attn", _norm(w, f"{at}.ln_1", x), sizes)
        m = functional.linear(_norm(w, f"{at}.ln_2", x), w[f"{at}.mlp.up.weight"], w[f"{at}.mlp.up.bias"])
        x = x + functional.linear(
            functional.gelu(m, approximate=True), w[f"{at}.mlp.down.weight"], w[f"{at}.mlp.down.bias"]
        )
    logits = paddle.matmul(_norm(w, "ln_f", x), w["wte"], transpose_y=True)
    return functional.cross_entropy(logits, labels)


def _parameters(_: str) -> dict[str, Any]:
    made = {}
    for name, value in tiny_gpt.weights().items():
        attr = paddle.ParamAttr(name=name, initializer=nn.initializer.Assign(value))
        made[name] = paddle.create_parameter(list(value.shape), "float32", attr=attr)
    return made


def _norm(w: dict[str, Any], at: str, x: Any) -> Any:
    return functional.layer_norm(x, x.shape[-1:], w[f"{at}.weight"], w[f"{at}.bias"], tiny_gpt.EPSILON)


def _attention(w: dict[str, Any], at: str, x: Any, sizes: tiny_gpt.Sizes) -> Any:
    def heads(name: str) -> Any:
        y = functional.linear(x, w[f"{at}.{name}.weight"], w[f"{at}.{name}.bias"])
        return y.reshape([sizes.batch, sizes.sequence, sizes.heads, sizes.head]).transpose([0, 2, 1, 3])

    q, k, v = heads("q"), heads("k"), heads("v")
    scores = paddle.matmul(q, k, transpose_y=True) * sizes.head**-0.5
    seen = paddle.tril(paddle.ones([sizes.sequence, sizes.sequence], "bool"))
    scores = paddle.where(seen, scores, paddle.full([1], tiny_gpt.MASKED))
    merged = paddle.matmul(functional.softmax(scores), v).transpose([0, 2, 1, 3])
    merged = merged.reshape([sizes.batch, sizes.sequence, sizes.width])
    return functional.linear(merged, w[f"{at}.proj.weight"], w[f"{at}.proj.bias"])


def draw(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def classes(*shape: int, below: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).integers(0, below, shape)


def gpt_tokens() -> dict[str, Array]:
    ids, labels = tiny_gpt.tokens()
    return {"ids": ids, "labels": labels}
