"""The whole step that a network in training runs: forward, backward, update of the parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ops.registry import rule_for
from solver.autodiff import add_gradients, free_name
from solver.graph import Graph, GraphError, Tensor
from solver.graph_copy import copy_of

OPTIMIZERS = ("sgd", "momentum", "adam", "adamw", "lamb")
"""The ops that update a parameter."""
FLOATING = ("float32", "float64", "float16", "bfloat16")
"""The dtypes that a state may have."""
LARGEST = float(np.finfo(np.float32).max)
SHARED = ("beta1_pow", "beta2_pow")
"""States that are one number for the whole step; every other one belongs to a parameter and has its shape."""


class TrainingError(GraphError):
    """A training step that cannot be built: the sentence says what is missing."""


def training_step(
    graph: Graph,
    loss: Tensor | str | None = None,
    optimizer: str | None = None,
    *,
    parameters: Iterable[str] | None = None,
    clip_norm: float | None = None,
    **hyper: Any,
) -> Graph:
    """Return the training step of a network.

    Parameters
    ----------
    graph : Graph
        A forward graph, or one that has gradients already (a capture of forward and backward); it stays as it is.
    loss, parameters : optional
        As for `solver.autodiff.add_gradients`; of a forward graph only.
    optimizer : str, optional
        As for `add_optimizer`; without one the gradients are outputs.
    clip_norm, **hyper
        As for `add_optimizer`.

    Returns
    -------
    Graph

    Raises
    ------
    GraphError
        Where the graph cannot be differentiated or updated.

    Examples
    --------
    >>> g = Graph()
    >>> y = g.op("matmul", g.input("x", (8, 4)), g.parameter("w", (4, 2)), name="y")
    >>> g.output(g.op("mean", y, name="loss"))
    >>> step = training_step(g, optimizer="momentum")
    >>> step.outputs, step.ties["w.velocity"]
    (['loss', 'w.momentum.param_out', 'w.momentum.velocity_out'], 'w')
    """
    if not graph.gradients:
        graph = add_gradients(graph, loss, parameters)
    elif loss is not None or parameters is not None:
        raise TrainingError(
            f"graph {graph.name!r} has its gradients already: neither a loss nor parameters can be chosen"
        )
    if optimizer is not None:
        return add_optimizer(graph, optimizer, clip_norm=clip_norm, **hyper)
    if clip_norm is not None or hyper:
        raise TrainingError(f"{', '.join(hyper) or 'clip_norm'} is given, but no optimizer: choose one")
    return graph


def add_optimizer(
    graph: Graph,
    kind: str,
    *,
    clip_norm: float | None = None,
    learning_rate: float | None = None,
    state_dtype: str | None = None,
    **hyper: Any,
) -> Graph:
    """Return the graph with an update of every parameter that has a gradient.

    Parameters
    ----------
    graph : Graph
        With gradients (`Graph.gradient`); it stays as it is.
    kind : str
        One of `OPTIMIZERS`.
    clip_norm : float, optional
        All gradients are scaled by ``clip_norm / max(norm, clip_norm)``, where norm is that of all of them together.
    learning_rate : float, optional
        By default it comes with every step, as an input.
    state_dtype : str, optional
        The dtype of the states; by default each has that of its parameter.
    **hyper
        Attributes of the op, as ``coeff=0.01`` of adamw.

    Returns
    -------
    Graph
        The gradients are no outputs any more; the new parameters and states are, each tied to what it replaces. A
        state ``PARAMETER.moment1`` is tied to its parameter.

    Raises
    ------
    GraphError
        Where the graph has no gradients, or the optimizer and its attributes are no such thing.

    Examples
    --------
    >>> g = Graph()
    >>> w, x = g.parameter("w", (4,)), g.input("x", (4,))
    >>> slope = g.op("multiply", w, x, name="slope")
    >>> g.output(slope)
    >>> g.gradient(slope, of=w)
    >>> add_optimizer(g, "sgd").outputs
    ['w.sgd']
    """
    if kind not in OPTIMIZERS:
        raise TrainingError(f"{kind!r} is no optimizer: choose from {', '.join(OPTIMIZERS)}")
    if not graph.gradients:
        raise TrainingError(f"graph {graph.name!r} has no gradients to update parameters with: add them first")
    _refuse_a_second_update(graph)
    made = copy_of(graph, outputs=[name for name in graph.outputs if name not in graph.gradients])
    grads = {parameter: made.tensors[gradient] for gradient, parameter in made.gradients.items()}
    if clip_norm is not None:
        grads = _clipped(made, grads, _positive("clip_norm", clip_norm))
    if learning_rate is not None:
        _positive("learning_rate", learning_rate)
    update = _Update(made, kind, learning_rate, state_dtype, hyper)
    for parameter in [name for name in made.tensors if name in grads]:
        update.add(made.tensors[parameter], grads[parameter])
    return made


def _refuse_a_second_update(graph: Graph) -> None:
    updated = set(graph.gradients.values())
    for follower, leader in graph.ties.items():
        made = graph.tensors[follower].producer is not None and follower not in graph.gradients
        if made and leader in updated:
            raise TrainingError(
                f"parameter {leader!r} is updated already: {follower!r} replaces it; give a step without its update"
            )


class _Update:
    """The updates of one step, which share the learning rate and the powers of the betas."""

    def __init__(
        self,
        graph: Graph,
        kind: str,
        learning_rate: float | None,
        state_dtype: str | None,
        hyper: Mapping[str, Any],
    ) -> None:
        self.graph, self.kind, self.hyper, self.state_dtype = graph, kind, dict(hyper), state_dtype
        rule = rule_for(kind)
        for name in hyper:
            if name not in rule.attrs:
                takes = ", ".join([*rule.attrs, "learning_rate", "state_dtype"])
                raise TrainingError(f"{kind} has no hyperparameter {name!r}: it takes {takes}")
            _check_hyper(name, hyper[name])
        if state_dtype is not None and state_dtype not in FLOATING:
            raise TrainingError(f"state_dtype is {state_dtype!r}: states are floats, choose from {', '.join(FLOATING)}")
        self.operands = [spec.name for spec in rule.operands]
        self.results = [spec.name for spec in rule.results]
        name = free_name(graph, "learning_rate")
        self.shared: dict[str, Tensor] = {
            "learning_rate": graph.input(name, (1,))
            if learning_rate is None
            else graph.constant(name, np.full(1, learning_rate, np.float32))
        }

    def add(self, parameter: Tensor, grad: Tensor) -> None:
        """Update one parameter and its states; what is new is an output, tied to what it replaces."""
        if grad.dtype != parameter.dtype:
            cast = free_name(self.graph, f"{grad.name}.cast")
            grad = self.graph.op("cast", grad, dtype=parameter.dtype, name=cast, module="optimizer")
        fresh = [name for name in SHARED if name in self.operands and name not in self.shared]
        self.shared.update({name: self.graph.state(free_name(self.graph, name), (1,)) for name in fresh})
        own = {"param": parameter, "grad": grad, **self._states(parameter)}
        made = self.graph.op(
            self.kind,
            *({**own, **self.shared}[name] for name in self.operands),
            name=free_name(self.graph, f"{parameter.name}.{self.kind}"),
            module="optimizer",
            **self.hyper,
        )
        for result, new in zip(self.results, made if isinstance(made, tuple) else (made,), strict=True):
            old = result.removesuffix("_out")
            if old not in SHARED or old in fresh:
                self.graph.output(new)
                self.graph.tie(new, self.shared[old] if old in SHARED else own[old])

    def _states(self, parameter: Tensor) -> dict[str, Tensor]:
        names = [name for name in self.operands if name not in ("param", "grad", "learning_rate", *SHARED)]
        dtype = self.state_dtype or parameter.dtype
        states = {
            name: self.graph.state(free_name(self.graph, f"{parameter.name}.{name}"), parameter.shape, dtype)
            for name in names
        }
        for state in states.values():
            self.graph.tie(state, parameter)
        return states


def _positive(name: str, value: Any) -> float:
    """Return a number as it is; a `TrainingError` where it is none, or not above 0, or beyond what a float32 holds."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0 < value <= LARGEST:
        raise TrainingError(f"{name} is {value!r}: give a number above 0, at most {LARGEST:.1e}")
    return float(value)


def _check_hyper(name: str, value: Any) -> None:
    """Hold the numbers among the hyperparameters against what they may be."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if name.startswith("beta"):
        if not 0 <= value < 1:
            raise TrainingError(f"{name} is {value!r}: give a number from 0 up to, but not including, 1")
    elif not 0 <= value <= LARGEST:
        raise TrainingError(f"{name} is {value!r}: give a number from 0 up")


def _clipped(graph: Graph, grads: Mapping[str, Tensor], clip_norm: float) -> dict[str, Tensor]:
    """Return the gradients scaled so that their common norm is at most ``clip_norm``."""

    def add(op: str, *operands: Any, name: str, **attrs: Any) -> Tensor:
        made: Tensor = graph.op(op, *operands, name=free_name(graph, name), module="optimizer", **attrs)
        return made

    def as_type(tensor: Tensor, dtype: str) -> Tensor:
        return tensor if tensor.dtype == dtype else add("cast", tensor, dtype=dtype, name=f"{tensor.name}.{dtype}")

    squares = [add("squared_l2_norm", grad, name=f"{parameter}.square") for parameter, grad in grads.items()]
    wide = "float64" if all(square.dtype == "float64" for square in squares) else "float32"
    total = add("add_n", [as_type(square, wide) for square in squares], name="clip.square")
    norm = add("clip", add("sqrt", total, name="clip.norm"), min=clip_norm, name="clip.bounded")
    ratio = add("scale", add("reciprocal", norm, name="clip.inverse"), scale=clip_norm, name="clip.ratio")
    ratios = {dtype: as_type(ratio, dtype) for dtype in dict.fromkeys(grad.dtype for grad in grads.values())}
    clipped = {}
    for parameter, grad in grads.items():
        factor = ratios[grad.dtype]
        if not grad.shape:
            factor = add("reshape", factor, shape=[], name=f"{factor.name}.number")
        clipped[parameter] = add("multiply", grad, factor, name=f"{parameter}.clipped")
    return clipped
