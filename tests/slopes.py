"""What gradients are held against: central differences of the loss, in double precision."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from solver.graph import Graph
from solver.graph_copy import copy_of
from solver.values import random_values, run_whole

Array = np.ndarray[Any, Any]


class Slopes:
    """A forward graph with its gradients, on seeded values.

    Parameters
    ----------
    forward, step : Graph
        The second with the gradients of the first as outputs.
    loss : str
        Its gradient is one, or the source ``loss.grad`` of the step.
    values : mapping, optional
        Values of sources beside the seeded ones.
    move : float
        How far the parameters are moved along a direction.
    """

    def __init__(
        self,
        forward: Graph,
        step: Graph,
        loss: str,
        values: Mapping[str, Array] | None = None,
        seed: int = 0,
        move: float = 1e-6,
    ) -> None:
        self.forward = copy_of(forward, outputs=[loss])
        self.loss, self.kinks, self.move = loss, 0, move
        self.values = random_values(step, seed) | dict(values or {})
        self.seed = self.values[f"{loss}.grad"]
        made = run_whole(step, self.values)
        self.grads = {parameter: made[gradient] for gradient, parameter in step.gradients.items()}

    def number(self, direction: Mapping[str, Array], far: float) -> float:
        """Return the loss after a move along a direction."""
        moved = {name: self.values[name] + far * along for name, along in direction.items()}
        sources = {name for name, tensor in self.forward.tensors.items() if tensor.producer is None}
        values = {name: value for name, value in self.values.items() if name in sources} | moved
        return float((run_whole(self.forward, values)[self.loss] * self.seed).sum())

    def wrong(self, groups: Sequence[Sequence[str]] | None = None, rtol: float = 1e-6) -> Iterator[str]:
        """Yield each group of parameters along which the loss moves otherwise than the gradients say.

        Where the two sides of the point differ, or the loss is no number, it stands on a kink, which `kinks` counts,
        and nothing is said.
        """
        rng = np.random.default_rng(17)
        here = self.number({}, 0.0)
        for names in groups or [[name] for name in self.grads]:
            direction = {name: rng.standard_normal(np.shape(self.values[name])) for name in names}
            above, below = self.number(direction, self.move), self.number(direction, -self.move)
            right, left = (above - here) / self.move, (here - below) / self.move
            scale = max(1.0, abs(right), abs(left), *(float(np.abs(self.grads[name]).max()) for name in names))
            if math.isnan(right + left) or abs(right - left) > 1e-3 * scale:
                self.kinks += 1
                continue
            expected = (above - below) / self.move / 2
            said = sum(float((self.grads[name] * along).sum()) for name, along in direction.items())
            if not abs(said - expected) <= max(rtol * scale, 1e-13 * abs(here) / self.move):
                yield f"{', '.join(names)}: the gradient says {said:.9g}, differences say {expected:.9g}"


def check(forward: Graph, step: Graph, loss: str, values: Mapping[str, Array] | None = None, seed: int = 0) -> None:
    """Fail where a gradient of the step disagrees with differences of the loss."""
    faults = list(Slopes(forward, step, loss, values, seed).wrong())
    assert not faults, "\n".join(faults)
