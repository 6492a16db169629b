"""A model on its way in: values and steps, before they become a `solver.graph.Graph`.

An importer draws a sketch first, because it learns only on the way which values are known, which vanish, and what is
used at all. `Sketch.to_graph` then writes down what the outputs need, in order, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ops.registry import rule_for
from solver.graph import Graph, Tensor
from solver.graph_values import frozen

CONSTANT_LIMIT = 2**16
"""A known value of more elements is no part of a plan: it is a state, stored and not learned."""

Role: TypeAlias = Literal["input", "weight", "state", "known", "result"]


@dataclass(eq=False, slots=True, repr=False)
class Value:
    """One tensor of the sketch.

    Parameters
    ----------
    shape : tuple of int
    dtype : str
    role : {"input", "weight", "state", "known", "result"}
        A weight becomes a parameter; a known value becomes a constant where an op takes it as an operand.
    name : str
        Empty until somebody names it.
    data : array, optional
        The value, where it is known. A weight whose data lies in a file that is not there has none.
    maker : Step, optional
        The step that makes it.
    """

    shape: tuple[int, ...]
    dtype: str
    role: Role
    name: str = ""
    data: NDArray[Any] | None = None
    maker: Step | None = None

    @property
    def floating(self) -> bool:
        """Whether the elements are real numbers."""
        return "float" in self.dtype

    def __repr__(self) -> str:
        return f"{'an' if self.dtype[:1] == 'i' else 'a'} {self.dtype} tensor of shape {self.shape}"


Operand: TypeAlias = "Value | Sequence[Value] | None"


@dataclass(eq=False, slots=True)
class Step:
    """One op of the sketch."""

    op: str
    operands: tuple[Operand, ...]
    results: tuple[Value, ...]
    attrs: dict[str, Any]
    name: str
    module: str
    repeats: Step | None = None
    """The step of an earlier trip of a loop that it is again."""

    def inputs(self) -> Iterator[Value]:
        """Yield the values that the step reads."""
        for operand in self.operands:
            if isinstance(operand, Value):
                yield operand
            elif operand is not None:
                yield from operand


@dataclass
class Sketch:
    """Values and steps in program order.

    Parameters
    ----------
    name : str
        The name of the model.
    """

    name: str
    inputs: list[Value] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    outputs: list[tuple[str, Value]] = field(default_factory=list)
    gradients: dict[int, Value] = field(default_factory=dict)
    """Index of an output -> the weight whose gradient it is. It is delivered as the weight is stored."""
    ties: dict[int, Value] = field(default_factory=dict)
    """Index of an output -> the input, weight or state whose new value it is."""
    followers: list[tuple[Value, Value]] = field(default_factory=list)
    """Inputs, weights and states that are stored as another one is, each with that one."""
    slopes: list[tuple[Value, Value]] = field(default_factory=list)
    """Gradients that do not leave the model, each with its weight."""
    names: dict[int, str] = field(default_factory=dict, repr=False)
    """Identity of a value -> the tensor that `to_graph` has made of it."""
    _inferred: dict[Any, tuple[tuple[str, tuple[int, ...], str], ...]] = field(default_factory=dict, repr=False)

    def emit(self, op: str, *operands: Operand, name: str = "", module: str = "", **attrs: Any) -> tuple[Value, ...]:
        """Add a step and return its results, whose shapes and dtypes follow from the op.

        Parameters
        ----------
        op : str
            The name of one of our ops.
        *operands : Value, sequence of Value or None
            In the order of the op.
        name : str, optional
            What to call the step where its result has no name of its own.
        module : str, optional
            Where in the model the step stands.
        **attrs
            The attributes of the op.

        Returns
        -------
        tuple of Value

        Raises
        ------
        ValueError
            Where the shapes do not fit the op.
        """
        return tuple(self.emit_slots(op, *operands, name=name, module=module, **attrs).values())

    def emit_slots(
        self, op: str, *operands: Operand, name: str = "", module: str = "", **attrs: Any
    ) -> dict[str, Value]:
        """Add a step as `emit` does, and return its results by slot: ``out``, or ``out.0`` in a variadic one."""
        key = (op, tuple(map(_fact, operands)), frozen(attrs))
        if key not in self._inferred:
            self._inferred[key] = _infer(op, operands, attrs)
        results = {slot: Value(shape, dtype, "result") for slot, shape, dtype in self._inferred[key]}
        step = Step(op, operands, tuple(results.values()), attrs, name, module)
        for value in results.values():
            value.maker = step
        self.steps.append(step)
        return results

    def to_graph(self) -> tuple[Graph, dict[str, Value]]:
        """Write down what the outputs need.

        Returns
        -------
        Graph
            Inputs first, in the order of the model; each weight and constant before its first use. A tensor carries the
            name of its value, with a number behind it where that name is taken.
        dict
            The value behind each parameter and state of the graph.

        Raises
        ------
        ValueError
            Where the graph refuses what the sketch says.
        """
        self._name_outputs()
        steps = self.needed()
        names = {value.name for value in self.inputs}
        names |= {step.results[0].name for step in steps if len(step.results) == 1}
        writing = Writing(Graph(self.name), names)
        for value in self.inputs:
            writing.begin(value)
        for step in steps:
            writing.step(step)
        writing.repeat(steps)
        outputs = [writing.tensors[id(value)] for _, value in self.outputs]
        writing.graph.output(*outputs)
        for index, weight in self.gradients.items():
            writing.graph.gradient(outputs[index], of=writing.source(weight))
        for index, source in {**self.gradients, **self.ties}.items():
            writing.graph.tie(outputs[index], writing.source(source))
        for relate, pairs in ((writing.graph.gradient, self.slopes), (writing.graph.tie, self.followers)):
            for one, other in pairs:
                if id(one) in writing.tensors:
                    relate(writing.tensors[id(one)], writing.source(other))
        self.names = {key: tensor.name for key, tensor in writing.tensors.items()}
        return writing.graph, writing.weights

    def _name_outputs(self) -> None:
        """Give each output a tensor of its own that carries its name; an input may be an output as it is.

        An output without a name keeps that of its tensor.
        """
        makers = {id(step.results[0]) for step in self.steps if len(step.results) == 1}
        named: set[int] = set()
        for index, (name, value) in enumerate(self.outputs):
            if name and id(value) in makers and id(value) not in named:
                value.name = name
            elif not name and value.role == "result" and id(value) not in named:
                pass
            elif value.role != "input" or (name and value.name != name) or id(value) in named:
                (copy,) = self.emit("assign", value, name=value.name or "output")
                copy.name = name
                self.outputs[index] = (name, copy)
            named.add(id(self.outputs[index][1]))

    def needed(self) -> list[Step]:
        """Return the steps that an output depends on, in order."""
        wanted = {id(value) for _, value in self.outputs}
        kept = []
        for step in reversed(self.steps):
            if any(id(value) in wanted for value in step.results):
                wanted |= {id(value) for value in step.inputs()}
                kept.append(step)
        return kept[::-1]


@dataclass
class Writing:
    """A graph while a sketch is written into it.

    Parameters
    ----------
    graph : Graph
    reserved : set of str
        Names that belong to tensors still to come.
    tensors : dict
        By the identity of their values.
    weights : dict
        Parameter or state -> its value.
    """

    graph: Graph
    reserved: set[str]
    tensors: dict[int, Tensor] = field(default_factory=dict)
    weights: dict[str, Value] = field(default_factory=dict)

    def begin(self, value: Value) -> None:
        """Add what the graph begins with, under its own name, whether anything reads it or not."""
        if value.role == "input":
            self.tensors[id(value)] = self.graph.input(value.name, value.shape, dtype=value.dtype)
        else:
            self.tensors[id(value)] = self._stored(value.name, value)

    def source(self, value: Value) -> Tensor:
        """Return the tensor of a value; one that nobody makes is added where it is first asked for."""
        if id(value) not in self.tensors:
            self.tensors[id(value)] = self._leaf(value)
        return self.tensors[id(value)]

    def step(self, step: Step) -> None:
        """Add an op, after what it reads and nobody makes."""
        for value in step.inputs():
            self.source(value)
        operands = [self._tensors(operand) for operand in step.operands]
        made = self.graph.op(step.op, *operands, name=self._name(step), module=step.module, **step.attrs)
        for value, tensor in zip(step.results, made if isinstance(made, tuple) else (made,), strict=True):
            self.tensors[id(value)] = tensor

    def repeat(self, steps: Sequence[Step]) -> None:
        """Say which ops repeat which, where both are there and may be cut alike.

        An attribute that differs from trip to trip, as a factor of 0, may give an op other rows.
        """
        written = {id(step): str(self.tensors[id(step.results[0])].producer) for step in steps}
        for step in steps:
            if step.repeats is not None and id(step.repeats) in written:
                node, of = written[id(step)], written[id(step.repeats)]
                if self.graph.bind(node).rows == self.graph.bind(of).rows:
                    self.graph.repeat(node, of)

    def _name(self, step: Step) -> str:
        if len(step.results) > 1:
            return self._free(step.name)
        name = step.results[0].name
        return name if name and name not in self.graph.tensors else self._free(name or f"{step.name}.{step.op}")

    def _tensors(self, operand: Operand) -> Tensor | list[Tensor] | None:
        if operand is None:
            return None
        if isinstance(operand, Value):
            return self.tensors[id(operand)]
        return [self.tensors[id(value)] for value in operand]

    def _leaf(self, value: Value) -> Tensor:
        name = self._free(value.name or "constant")
        if value.role in ("weight", "state"):
            return self._stored(name, value)
        assert value.data is not None
        if value.data.size > CONSTANT_LIMIT:
            self.weights[name] = value
            return self.graph.state(name, value.shape, dtype=value.dtype)
        data = value.data if value.data.dtype.isbuiltin == 1 else value.data.astype(np.float32)
        return self.graph.constant(name, data, dtype=value.dtype)

    def _stored(self, name: str, value: Value) -> Tensor:
        self.weights[name] = value
        add = self.graph.parameter if value.role == "weight" else self.graph.state
        return add(name, value.shape, dtype=value.dtype)

    def _free(self, name: str) -> str:
        """Return the name, with a number behind it where it is taken or reserved."""
        count, tried = 1, name
        while tried in self.graph.tensors or tried in self.graph.nodes or tried in self.reserved:
            count += 1
            tried = f"{name}_{count}"
        return tried


def _fact(operand: Operand) -> Any:
    """Return what of an operand its op's results depend on."""
    if operand is None:
        return None
    if isinstance(operand, Value):
        return operand.shape, operand.dtype
    return tuple((value.shape, value.dtype) for value in operand)


def _infer(
    op: str, operands: Sequence[Operand], attrs: Mapping[str, Any]
) -> tuple[tuple[str, tuple[int, ...], str], ...]:
    """Return the slots of an op's results, their shapes and dtypes."""
    rule = rule_for(op)
    specs = [spec.name for spec in rule.operands]
    shapes = dict(zip(specs, (_each(operand, "shape") for operand in operands), strict=False))
    dtypes = dict(zip(specs, (_each(operand, "dtype") for operand in operands), strict=False))
    made = rule.bind(shapes, attrs, dtypes=dtypes).results
    found = rule.infer_dtypes(dtypes, attrs, len(made))
    return tuple((slot.name, slot.shape, dtype) for slot, dtype in zip(made, found, strict=True))


def _each(operand: Operand, fact: str) -> Any:
    """Return a fact of an operand: one, a list, or None, as the operand is."""
    if operand is None:
        return None
    if isinstance(operand, Value):
        return getattr(operand, fact)
    return [getattr(value, fact) for value in operand]
