"""One equation of a jaxpr, and what its translation may ask and write."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from jax.extend.source_info_util import summarize

from solver.importers.errors import UnsupportedNodeError
from solver.importers.jax_fold import can_compute, compute, known, number_of, uniform
from solver.importers.sketch import Operand, Sketch, Value

MOST_OPS = 50_000
"""A model of more ops is refused; loops that are written out come near it."""

Translation: TypeAlias = "Callable[[Site], Value | Sequence[Value]]"
"""What an equation becomes: its results in order (one value where it has one)."""


@dataclass
class Drawing:
    """A sketch while a jaxpr is drawn into it, and what is remembered of its values.

    Parameters
    ----------
    sketch : Sketch
    notes : dict
        What was changed on the way in -> how often.
    thin : dict
        The identity of a value that was broadcast -> the value before, of the same rank. `kept` holds values alive.
    parts : dict
        A value that was stacked of others along dim 0 -> these.
    keys, seeds : dict
        The random keys that an equation makes, and the number that stands for each.
    """

    sketch: Sketch
    notes: dict[str, int] = field(default_factory=dict)
    thin: dict[int, Value] = field(default_factory=dict)
    parts: dict[int, list[Value]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    keys: dict[tuple[Any, ...], list[Value]] = field(default_factory=dict)
    seeds: dict[Any, int] = field(default_factory=dict)
    kept: list[Value] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Say what was changed on the way in."""
        self.notes[text] = self.notes.get(text, 0) + 1

    def emit(self, op: str, operands: Sequence[Operand], module: str, attrs: dict[str, Any]) -> tuple[Value, ...]:
        """Add a step, or compute what is known already, and return its results."""
        if can_compute(op, operands):
            made = self.sketch.emit(op, *operands, **attrs)
            self.sketch.steps.pop()
            found = compute(op, operands, attrs, made)
            if found is not None:
                return tuple(found)
        if len(self.sketch.steps) >= MOST_OPS:
            raise UnsupportedNodeError(
                f"the function has more than {MOST_OPS:,} ops, loops written out: plan fewer layers or trips"
            )
        name = self.fresh(f"{module}.{op}" if module else op)
        made = self.sketch.emit(op, *map(self._written, operands), name=name, module=module, **attrs)
        if len(made) == 1:
            made[0].name = name
        self.kept += made
        return made

    def fresh(self, base: str) -> str:
        """Return a name with a number behind it."""
        self.counts[base] = self.counts.get(base, 0) + 1
        return f"{base}_{self.counts[base]}"

    def _written(self, operand: Operand) -> Operand:
        """Write many equal elements as an op, so that no device stores them."""
        if operand is None:
            return None
        if not isinstance(operand, Value):
            return [self.written(value) for value in operand]
        return self.written(operand)

    def written(self, value: Value) -> Value:
        """Return a value as a tensor; many equal elements are made by an op."""
        number = number_of(value)
        if number is None or not value.shape:
            return value
        attrs = {"shape": list(value.shape), "dtype": value.dtype, "fill_value": number}
        made = self.sketch.emit("full", name="full", **attrs)[0]
        made.name = self.fresh("full")
        return made


@dataclass
class Site:
    """One equation.

    Parameters
    ----------
    drawing : Drawing
    equation : jax JaxprEqn
    operands : list of Value
    module : str
        Where in the model it stands, as ``layer0.attn``.
    caller : str
        The line of the person's code that calls what it stands in; empty outside of calls.
    """

    drawing: Drawing
    equation: Any
    operands: list[Value]
    module: str = ""
    caller: str = ""

    @property
    def name(self) -> str:
        """The name of the primitive."""
        return str(self.equation.primitive.name)

    @property
    def params(self) -> dict[str, Any]:
        """The parameters of the equation."""
        return dict(self.equation.params)

    @property
    def results(self) -> list[Any]:
        """The abstract values that it makes."""
        return [variable.aval for variable in self.equation.outvars]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of its first result."""
        return tuple(int(size) for size in self.results[0].shape)

    @property
    def dtype(self) -> str:
        """The dtype of its first result."""
        return str(self.results[0].dtype.name)

    @property
    def line(self) -> str:
        """The line of the person's code that it comes from."""
        return str(summarize(self.equation.source_info)) or self.caller or "an unknown line"

    @property
    def where(self) -> str:
        """How to name the equation in an error: primitive and line."""
        return f"{self.name} at {self.line}"

    def emit(self, op: str, *operands: Operand, **attrs: Any) -> Value:
        """Add a step of one result and return it; what is known already is computed at once."""
        return self.emit_all(op, *operands, **attrs)[0]

    def emit_all(self, op: str, *operands: Operand, **attrs: Any) -> tuple[Value, ...]:
        """Add a step and return its results."""
        try:
            return self.drawing.emit(op, operands, self.module, attrs)
        except UnsupportedNodeError:
            raise
        except ValueError as error:
            raise self.refuse(str(error)) from error

    def pointwise(self, op: str, *operands: Value, **attrs: Any) -> Value:
        """Add a step that computes element by element, and reads what is broadcast before it was."""
        shape = np.broadcast_shapes(*(value.shape for value in operands))
        made = self.emit(op, *map(self.thin, operands), **attrs)
        return self.expand(made, shape)

    def thin(self, value: Value) -> Value:
        """Return what a value is broadcast from: a number, or a tensor with dims of size 1."""
        number = number_of(value)
        if number is not None and value.shape:
            return uniform((), number, value.dtype)
        return self.drawing.thin.get(id(value), value)

    def expand(self, value: Value, shape: Sequence[int]) -> Value:
        """Return a value broadcast to a shape, by dims of size 1 and by new ones in front."""
        if value.shape == tuple(shape):
            return value
        rank = len(shape) - len(value.shape)
        source = self.reshape(value, (*[1] * rank, *value.shape)) if rank else value
        made = self.emit("expand", source, shape=list(shape))
        if made.data is None:
            self.drawing.thin[id(made)] = self.drawing.thin.get(id(source), source)
        return made

    def reshape(self, value: Value, shape: Sequence[int]) -> Value:
        """Return the same elements in another shape."""
        wanted = [int(size) for size in shape]
        while value.maker is not None and value.maker.op == "reshape":
            (value,) = value.maker.inputs()
        return value if value.shape == tuple(wanted) else self.emit("reshape", value, shape=wanted)

    def transpose(self, value: Value, perm: Sequence[int]) -> Value:
        """Return the dims in another order."""
        order = [int(dim) for dim in perm]
        before = value.maker
        if before is not None and before.op == "transpose":
            (value,) = before.inputs()
            order = [before.attrs["perm"][dim] for dim in order]
        return value if order == sorted(order) else self.emit("transpose", value, perm=order)

    def cast(self, value: Value, dtype: str) -> Value:
        """Return the same numbers in another dtype."""
        return value if value.dtype == dtype else self.emit("cast", value, dtype=dtype)

    def zeros(self, shape: Sequence[int], dtype: str) -> Value:
        """Return zeros."""
        return uniform(shape, 0, dtype)

    def number(self, value: Any, like: Value) -> Value:
        """Return a number of the dtype of another value."""
        return known(value, like.dtype)

    def note(self, text: str) -> None:
        """Say what was changed on the way in."""
        self.drawing.note(text)

    def refuse(self, reason: str) -> UnsupportedNodeError:
        """Return the error that names the equation and says what is missing."""
        return UnsupportedNodeError(f"{self.where}: {reason}")


def module_of(stack: Any) -> str:
    """Return the module path in a stack of JAX's named scopes; the transformations are left out.

    Examples
    --------
    >>> module_of("transpose(jvp(layer0))/attn"), module_of("jvp()")
    ('layer0.attn', '')
    """
    text, before = str(stack), ""
    while text != before:
        text, before = re.sub(r"\w+\(([^()]*)\)", r"\1", text), text
    return ".".join(part for part in text.split("/") if part)
