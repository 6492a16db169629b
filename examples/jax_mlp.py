"""Plan a training step written in JAX: loss, gradients and a step of momentum, the new parameters tied to the old ones.

Needs the extra jax: pip install 'shardproof[jax]'. Without it the example says so and ends.
"""

from __future__ import annotations

import sys
from typing import Any

try:
    import jax
    import jax.numpy as jnp
except ImportError:
    print("skipped: JAX is not installed (pip install 'shardproof[jax]')")
    sys.exit(0)

from ops import Shard
from solver import Mesh, from_jax, plan

WIDTH, BATCH = 4096, 8192


def loss(params: Any, x: Any, y: Any) -> Any:
    with jax.named_scope("hidden"):
        x = jax.nn.gelu(x @ params["up"]["weight"] + params["up"]["bias"])
    return jnp.mean((x @ params["down"]["weight"] - y) ** 2)


def step(params: Any, momentum: Any, x: Any, y: Any) -> Any:
    value, grads = jax.value_and_grad(loss)(params, x, y)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
    params = jax.tree.map(lambda p, m: p - 0.01 * m, params, momentum)
    return params, momentum, value, grads


def tensor(*shape: int) -> jax.ShapeDtypeStruct:
    """Only shapes and dtypes are read: no array is made."""
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def main() -> None:
    params = {
        "up": {"weight": tensor(WIDTH, 4 * WIDTH), "bias": tensor(4 * WIDTH)},
        "down": {"weight": tensor(4 * WIDTH, WIDTH)},
    }
    graph = from_jax(
        step,
        params,
        params,
        tensor(BATCH, WIDTH),
        tensor(BATCH, WIDTH),
        parameters=0,
        states=1,
        updates={0: 0, 1: 1},  # output 0 is the new value of argument 0, output 1 that of argument 1
        gradients={3: 0},  # output 3 holds the gradients of argument 0,
        internal=(3,),  # and does not leave the step
        ties={"momentum": "params"},  # a momentum is stored as its parameter is
    )
    mesh = Mesh({"dp": 2, "tp": 4}, hardware="h100")
    found = plan(graph, mesh, pins={"x": {"dp": Shard(0)}, "y": {"dp": Shard(0)}})
    print(found)
    print(found.check())


if __name__ == "__main__":
    main()
