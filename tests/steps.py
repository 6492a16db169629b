"""Tiny training steps, written out by hand: forward, backward, update, ties."""

from __future__ import annotations

import numpy as np

from solver.graph import Graph, Tensor


def update(g: Graph, parameter: Tensor, gradient: Tensor, optimizer: str = "sgd", rate: Tensor | None = None) -> None:
    """Add the update of a parameter, with states and ties as a training step has them."""
    rate = g.input(f"{parameter.name}.rate", (1,)) if rate is None else rate
    g.gradient(gradient, of=parameter)
    if optimizer == "sgd":
        new = (g.op("sgd", parameter, rate, gradient, name=f"{parameter.name}.new"),)
        olds = (parameter,)
    elif optimizer == "momentum":
        velocity = g.state(f"{parameter.name}.v", parameter.shape)
        g.tie(velocity, parameter)
        new = g.op("momentum", parameter, gradient, velocity, rate, name=f"{parameter.name}.new")
        olds = (parameter, velocity)
    else:
        m, v = (g.state(f"{parameter.name}.{state}", parameter.shape) for state in "mv")
        g.tie(m, parameter)
        g.tie(v, parameter)
        powers = [g.constant(f"{parameter.name}.beta{i}", np.full(1, 0.5, np.float32)) for i in (1, 2)]
        made = g.op("adamw", parameter, gradient, rate, m, v, *powers, name=f"{parameter.name}.new")
        new, olds = made[:3], (parameter, m, v)
    for fresh, old in zip(new, olds, strict=True):
        g.output(fresh)
        g.tie(fresh, old)


def linear_step(optimizer: str = "adamw", batch: int = 8) -> Graph:
    """One product, its gradient, and the update of its weight."""
    g = Graph("linear_step")
    x, w = g.input("x", (batch, 4)), g.parameter("w", (4, 8))
    y = g.op("matmul", x, w, name="y")
    _, dw = g.op("matmul_grad", x, w, g.op("relu", y, name="dy"), name="back")
    update(g, w, dw, optimizer)
    return g


def mlp_step(optimizer: str = "sgd", batch: int = 8) -> Graph:
    """Two products with something between them: forward, backward by hand, and the update of both weights."""
    g = Graph("mlp_step")
    x, w1, w2 = g.input("x", (batch, 4)), g.parameter("w1", (4, 8)), g.parameter("w2", (8, 4))
    a = g.op("relu", g.op("matmul", x, w1, name="h"), name="a")
    y = g.op("matmul", a, w2, name="y")
    da, dw2 = g.op("matmul_grad", a, w2, y, name="back2")
    _, dw1 = g.op(
        "matmul_grad", x, w1, g.op("relu_grad", a, da, forward_shapes=(("x", a.shape),), name="dh"), name="back1"
    )
    update(g, w1, dw1, optimizer)
    update(g, w2, dw2, optimizer)
    return g
