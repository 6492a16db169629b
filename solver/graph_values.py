"""What a graph is made of: tensors, ops, uses, and the values that they may hold."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ops.registry import rule_for

Shape: TypeAlias = tuple[int, ...]
Role: TypeAlias = Literal["input", "parameter", "state", "constant", "result"]
OperandNames: TypeAlias = str | tuple[str, ...] | None
"""The tensors of one operand of an op: a name, names (variadic), or None (absent)."""
Signature: TypeAlias = tuple[Any, ...]
"""An op, the shapes and dtypes of its operands, and its attributes: equal ops share a rule."""

ITEMSIZE: Mapping[str, int] = {
    **dict.fromkeys(("bool", "int8", "uint8", "float8_e4m3fn", "float8_e5m2"), 1),
    **dict.fromkeys(("int16", "uint16", "float16", "bfloat16"), 2),
    **dict.fromkeys(("int32", "uint32", "float32"), 4),
    **dict.fromkeys(("int64", "uint64", "float64", "complex64"), 8),
    "complex128": 16,
}
"""Bytes per element of each dtype that a tensor may have."""


class GraphError(ValueError):
    """A graph that cannot be: the sentence names the op or tensor, the values, and what to do."""


@dataclass(frozen=True, eq=False, slots=True)
class Tensor:
    """One tensor of a graph.

    Parameters
    ----------
    name : str
    shape : tuple of int
    dtype : str
    role : str
        ``input``, ``parameter``, ``state``, ``constant`` or ``result``.
    producer : str or None
        The op that makes it; None unless it is a result.
    slot : int
        Which result of the producer.
    value : ndarray or None
        Of a constant.
    """

    name: str
    shape: Shape
    dtype: str
    role: Role
    producer: str | None = None
    slot: int = 0
    value: NDArray[Any] | None = field(default=None, repr=False)

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return ITEMSIZE[self.dtype]

    @property
    def bytes(self) -> int:
        """Bytes of the whole tensor."""
        return math.prod(self.shape) * self.itemsize

    def __str__(self) -> str:
        return f"{self.name} {self.dtype}{list(self.shape)}"


@dataclass(frozen=True, eq=False, slots=True)
class Node:
    """One op of a graph.

    Parameters
    ----------
    name : str
    op : str
        The name in the registry of ops.
    operands : tuple
        Per operand of the op: a tensor's name, a tuple of names (variadic), or None (absent).
    results : tuple of str
    attrs : mapping
        The attributes that were given; the op knows the defaults.
    module : str
        Where in the model it stands, as ``layers.0.mlp``.
    """

    name: str
    op: str
    operands: tuple[OperandNames, ...]
    results: tuple[str, ...]
    attrs: Mapping[str, Any]
    module: str = ""

    def __str__(self) -> str:
        return f"op {self.name!r} ({self.op})" + (f" in module {self.module!r}" if self.module else "")


class Place(NamedTuple):
    """Where in a node something is wrong; made into text only where it is told."""

    what: str
    name: str
    node: Node

    def __str__(self) -> str:
        return f"{self.what} {self.name} of {self.node}"


@dataclass(frozen=True, slots=True)
class Use:
    """One operand slot of one op.

    Parameters
    ----------
    op : str
        The name of the node.
    operand : str
        The operand's name in the rule, ``x``, or ``xs.0`` in a variadic one.
    slot : int
        The index among the op's flat operand slots (absent ones count).
    tensor : str
        What is read.

    Attributes
    ----------
    name : str
        ``op/operand``.
    """

    op: str
    operand: str
    slot: int
    tensor: str
    name: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", f"{self.op}/{self.operand}")


def flat(operands: Sequence[OperandNames]) -> list[str | None]:
    """Return the tensors of an op's operand slots, variadic operands flattened.

    Examples
    --------
    >>> flat((("a", "b"), None, "c"))
    ['a', 'b', None, 'c']
    """
    return [name for names in operands for name in (names if isinstance(names, tuple) else (names,))]


def per_operand(node: Node, tensors: Mapping[str, Tensor], read: Callable[[Tensor], Any]) -> dict[str, Any]:
    """Return a fact of each operand of an op by its name: one, a list, or None, as the operand is."""
    facts: dict[str, Any] = {}
    for spec, names in zip(rule_for(node.op).operands, node.operands, strict=True):
        if isinstance(names, tuple):
            facts[spec.name] = [read(tensors[name]) for name in names]
        else:
            facts[spec.name] = None if names is None else read(tensors[names])
    return facts


def signature_of(node: Node, tensors: Mapping[str, Tensor]) -> Signature:
    """Return all that an op's rule and results depend on."""

    def fact(name: str) -> tuple[Shape, str]:
        return tensors[name].shape, tensors[name].dtype

    facts = tuple(
        tuple(map(fact, names)) if isinstance(names, tuple) else names and fact(names) for names in node.operands
    )
    return node.op, facts, frozen(node.attrs)


def frozen(value: Any) -> Any:
    """Return a hashable stand-in for a value that `plain` gave; ``1``, ``1.0`` and ``True`` stay apart.

    Examples
    --------
    >>> frozen({"axis": [0, 1]})
    (('axis', (<class 'list'>, 0, 1)),)
    """
    if isinstance(value, dict):
        return tuple((key, frozen(value[key])) for key in sorted(value))
    if isinstance(value, list | tuple):
        return (type(value), *map(frozen, value))
    if isinstance(value, float):
        return float, repr(value)
    return (bool, value) if isinstance(value, bool) else value


def plain(value: Any, where: str | Place) -> Any:
    """Copy an attribute, numpy scalars as Python's.

    Raises
    ------
    GraphError
        Where a value is none of None, bool, int, float, str, or a list, tuple or dict of them.

    Examples
    --------
    >>> plain([np.int64(3), (0.5, None)], "attribute axes")
    [3, (0.5, None)]
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [plain(item, where) for item in value]
    if isinstance(value, tuple):
        return tuple(plain(item, where) for item in value)
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: plain(item, where) for key, item in value.items()}
    raise GraphError(f"{where} is {value!r}: give None, a bool, number or text, or a list, tuple or dict of them")


def checked_name(name: Any) -> str:
    """Return a name as it is; a `GraphError` where it is none."""
    if not isinstance(name, str) or not name:
        raise GraphError(f"{name!r} is no name: give a text that is not empty")
    return name


def checked_shape(shape: Any, where: str | Place) -> Shape:
    """Return a shape as a tuple of sizes of at least 1; a `GraphError` where it is none."""
    entries = list(shape) if isinstance(shape, Iterable) and not isinstance(shape, str) else None
    if entries is None or not all(isinstance(n, int | np.integer) and not isinstance(n, bool) for n in entries):
        raise GraphError(f"{where} has shape {shape!r}: give a sequence of whole numbers")
    for dim, size in enumerate(entries):
        if size < 1:
            raise GraphError(f"{where} has shape {tuple(entries)}: dim {dim} has size {size}, and a dim is at least 1")
    return tuple(int(size) for size in entries)


def checked_array(value: Any, dtype: str | None, where: str) -> NDArray[Any]:
    """Return values as an array; a `GraphError` where they form none, or where a dtype of whole numbers loses some."""
    try:
        array = np.array(value)
    except ValueError as error:
        raise GraphError(f"{where} has values that form no array: give rows of equal length") from error
    if dtype is not None and checked_dtype(dtype, where).startswith(("int", "uint", "bool")) and array.size:
        with np.errstate(invalid="ignore"):
            lost = array != array.astype(dtype) if array.dtype.kind in "biuf" else np.ones(array.shape, bool)
        if lost.any():
            raise GraphError(f"{where} has dtype {dtype}, which cannot hold its value {array[lost][0]!s}")
    return array


def checked_dtype(dtype: Any, where: str | Place) -> str:
    """Return a dtype that `ITEMSIZE` knows; a `GraphError` for another."""
    if not isinstance(dtype, str) or dtype not in ITEMSIZE:
        raise GraphError(f"{where} has dtype {dtype!r}: choose from {', '.join(ITEMSIZE)}")
    return dtype
