"""One ONNX node as its translation sees it: operands, attributes, tables, and where to write what it becomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, helper

from solver.importers.errors import BakedBatchError, UnsupportedNodeError
from solver.importers.onnx_fold import known
from solver.importers.sketch import Operand, Sketch, Value


@dataclass
class Shapes:
    """The shapes of one reading of a model, and what its reshapes were asked for.

    A model is read twice where a size that the file declares was changed: once as declared, to know what each node did
    there, and once at the new sizes.

    Parameters
    ----------
    of : dict
        ONNX tensor -> shape.
    tables : dict
        First result of a reshape -> the table of sizes it was given.
    """

    of: dict[str, tuple[int, ...]] = field(default_factory=dict)
    tables: dict[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass
class Site:
    """A node in the middle of being translated.

    Parameters
    ----------
    node : onnx.NodeProto
    operands : sequence of Value or None
    sketch : Sketch
    opset : int
        The version of the node's domain.
    shapes : Shapes
        Of this reading.
    declared : Shapes or None
        Of the reading at the shapes that the file declares; None where no declared size was changed.
    notes : list of str
        What is rewritten, in sentences.
    """

    node: NodeProto
    operands: Sequence[Value | None]
    sketch: Sketch
    opset: int
    shapes: Shapes
    declared: Shapes | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def where(self) -> str:
        """The node, as an error names it."""
        return describe(self.node)

    @property
    def _label(self) -> str:
        """What steps of the node are called: as its only result is, or as itself."""
        results = [name for name in self.node.output if name]
        return str(results[0] if len(results) == 1 or not self.node.name else self.node.name)

    def attr(self, name: str, default: Any = None) -> Any:
        """Return an attribute, text decoded, or the default, which is a float32 as in a file."""
        for attribute in self.node.attribute:
            if attribute.name == name:
                value = helper.get_attribute_value(attribute)
                return value.decode() if isinstance(value, bytes) else value
        return float(np.float32(default)) if isinstance(default, float) else default

    def has(self, slot: int) -> bool:
        """Tell whether an optional operand is given."""
        return slot < len(self.operands) and self.operands[slot] is not None

    def operand(self, slot: int) -> Value:
        """Return an operand that must be there."""
        value = self.operands[slot] if slot < len(self.operands) else None
        if value is None:
            raise self.refuse(f"operand {slot} is missing")
        return value

    def weight(self, slot: int) -> Value | None:
        """Return an operand that is trained wherever the model stores it, however small; None where it is absent."""
        if not self.has(slot):
            return None
        value = self.operand(slot)
        if value.role == "known" and value.floating and value.name:
            value.role = "weight"
        return value

    def table(self, slot: int, what: str) -> NDArray[Any]:
        """Return the value of an operand that must be known before anything runs.

        Parameters
        ----------
        slot : int
        what : str
            What the operand says, for the error.
        """
        value = self.operand(slot)
        if value.data is None:
            raise self.refuse(
                f"its {what} {value.name!r} is computed from data, and only a known {what} can be planned"
            )
        return value.data

    def ints(self, slot: int, name: str, default: Sequence[int] | None = None) -> list[int] | None:
        """Return a list of integers that newer versions take as an operand and older ones as an attribute."""
        if self.has(slot):
            return [int(item) for item in np.atleast_1d(self.table(slot, name))]
        given = self.attr(name, default)
        return None if given is None else [int(item) for item in given]

    def emit(self, op: str, *operands: Operand, **attrs: Any) -> Value:
        """Add a step of one result and return it."""
        return self.emit_all(op, *operands, **attrs)[0]

    def emit_all(self, op: str, *operands: Operand, **attrs: Any) -> tuple[Value, ...]:
        """Add a step and return its results."""
        try:
            return self.sketch.emit(op, *operands, name=self._label, module=module_of(self.node.name), **attrs)
        except ValueError as error:
            raise self.refuse(str(error)) from error

    def number(self, value: float, like: Value) -> Value:
        """Return a constant of the dtype of another value."""
        return known(np.array(value, dtype=like.dtype))

    def axis(self, axis: int, rank: int) -> int:
        """Return an axis counted from the front."""
        if not -rank <= axis < max(rank, 1):
            raise self.refuse(f"axis {axis} names no dim of a tensor of rank {rank}")
        return axis % max(rank, 1)

    def refuse(self, reason: str) -> UnsupportedNodeError:
        """Return the error that names the node and says what is missing."""
        return UnsupportedNodeError(f"{self.where}: {reason}")

    def baked(self, reason: str) -> BakedBatchError:
        """Return the error that names the node and says what is written into it."""
        return BakedBatchError(
            f"{self.where}: {reason}; plan the model at the shapes it declares, or export it with a dynamic batch"
        )


def describe(node: NodeProto) -> str:
    """Return how errors name a node: by its own name or by what it produces, and by its op."""
    domain = f"{node.domain}." if node.domain not in ("", "ai.onnx") else ""
    name = f"node {node.name!r}" if node.name else f"the node that makes {next(iter(node.output), '?')!r}"
    return f"{name} ({domain}{node.op_type})"


def module_of(name: str) -> str:
    """Return the module path in a node name as exporters write it.

    Examples
    --------
    >>> module_of("/encoder/layer.0/Conv"), module_of("n12")
    ('encoder.layer.0', '')
    """
    return ".".join(part for part in name.split("/")[:-1] if part)
