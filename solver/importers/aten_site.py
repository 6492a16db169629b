"""One captured node as its lowering sees it: how it writes our ops, folds what is known, and refuses."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ops.registry import families, rule_for
from ops.run import Device, flat_results, local_attrs
from ops.unary import numpy_dtype
from solver.graph_values import ITEMSIZE, frozen
from solver.importers.capture import CapturedNode, Spec
from solver.importers.errors import UnsupportedNodeError
from solver.importers.sketch import CONSTANT_LIMIT, Operand, Sketch, Value

RANDOM = frozenset(families()["ops.random"])
"""Ops whose results are drawn: they are never folded."""
_LISTED = 8
"""A list of more entries than this is told by how many they are."""


@dataclass(eq=False, slots=True, repr=False)
class Saved:
    """What an op keeps for its backward alone, where that reads something else here.

    Parameters
    ----------
    what : str
        What it is, for the error where another op reads it.
    of : Value
        What the backward reads in its place.
    make : callable, optional
        Computes it where another op does read it.
    epsilon : float, optional
        What is added to the variance, in a deviation: the backward is not told.
    """

    what: str
    of: Value
    make: Callable[[], Value] | None = None
    epsilon: float | None = None

    def __repr__(self) -> str:
        return self.what


Result: TypeAlias = "Value | Saved | Sequence[Value | Saved | None] | None"
Lowering: TypeAlias = Callable[..., Result]
"""What a node becomes: ``lowering(site, *args, **kwargs)``, with the parameters of the aten op; tensors as `Value`."""
Number: TypeAlias = "int | float | bool"


@dataclass(eq=False, slots=True)
class Site:
    """A node in the middle of being lowered.

    Parameters
    ----------
    node : CapturedNode
    sketch : Sketch
    folded : list of str
        Nodes whose value was computed on the way in.
    views : dict
        The views that were written so far: the same view of the same tensor is written once.
    """

    node: CapturedNode
    sketch: Sketch
    folded: list[str]
    views: dict[Any, tuple[Value, ...]]

    @property
    def spec(self) -> Spec:
        """What the capture says of the one result."""
        if not isinstance(self.node.val, Spec):
            raise self.refuse("the capture does not say what its result is")
        return self.node.val

    @property
    def dtype(self) -> str:
        """The dtype of the one result."""
        return self.spec.dtype

    def emit(self, op: str, *operands: Any, **attrs: Any) -> Value:
        """Add a step of one result and return it."""
        return self.emit_all(op, *operands, **attrs)[0]

    def emit_all(self, op: str, *operands: Any, **attrs: Any) -> tuple[Value, ...]:
        """Add a step, or compute it where all that it reads is known; return its results."""
        given = tuple(self._operand(operand) for operand in operands)
        try:
            known = self._fold(op, given, attrs) if op not in RANDOM and all(map(_known, given)) else None
            if known is not None:
                return known
            key = (op, tuple(map(id, given)), frozen(attrs)) if rule_for(op).view else None
            if key is not None and key in self.views:
                return self.views[key]
            made = self.sketch.emit(op, *given, name=self.node.name, module=self.node.module, **attrs)
            if key is not None:
                self.views[key] = made
            return made
        except ValueError as error:
            raise self.refuse(" ".join(str(error).split())) from error

    def constant(self, value: Any, dtype: str) -> Value:
        """Return a known tensor."""
        array = np.asarray(value, numpy_dtype(dtype))
        return Value(array.shape, dtype, "known", "", array)

    def tensor(self, x: Value | Number, dtype: str) -> Value:
        """Return an operand as it is, and a number as a known tensor of rank 0."""
        return x if isinstance(x, Value) else self.constant(x, dtype)

    def cast(self, x: Value, dtype: str) -> Value:
        """Return a tensor in a dtype."""
        if x.dtype == dtype:
            return x
        if x.data is not None:
            with np.errstate(invalid="ignore"):  # an infinity has no integer
                return Value(x.shape, dtype, "known", "", x.data.astype(numpy_dtype(dtype)))
        return self.emit("cast", x, dtype=dtype)

    def floating(self, x: Value) -> Value:
        """Return a tensor of real numbers; one of integers in the dtype of the result."""
        if not x.floating and not holds(self.dtype, "float16"):
            raise self.refuse(f"it gives real numbers, which a result of dtype {self.dtype} does not hold")
        return x if x.floating else self.cast(x, self.dtype)

    def promoted(self, x: Value, asked: str | None = None) -> Value:
        """Return an operand in the dtype that the op asks for; without one, integers in the dtype of the result."""
        if asked is not None:
            return self.cast(x, dtype_name(asked))
        return x if x.floating else self.cast(self.held(x), self.dtype)

    def held(self, x: Value, dtype: str | None = None) -> Value:
        """Return an operand as it is, where a dtype, that of the result, holds what it may be."""
        dtype = self.dtype if dtype is None else dtype
        if not holds(dtype, x.dtype):
            raise self.refuse(f"it reads {x!r}, which a result of dtype {dtype} does not hold")
        return x

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        """Return a tensor in another shape, seen through reshapes before it; itself where the shape is its own."""
        shape = tuple(shape)
        while x.shape != shape and x.maker is not None and x.maker.op in ("reshape", "squeeze", "unsqueeze"):
            (x,) = x.maker.inputs()
        if x.shape == shape:
            return x
        if x.data is not None:
            return Value(shape, x.dtype, "known", "", x.data.reshape(shape))
        return self.emit("reshape", x, shape=list(shape))

    def transpose(self, x: Value, perm: Sequence[int]) -> Value:
        """Return a tensor with its dims in another order, seen through a transpose before it."""
        order = [axis % max(len(x.shape), 1) for axis in perm]
        if x.maker is not None and x.maker.op == "transpose":
            before = x.maker.attrs["perm"]
            order = [before[axis] for axis in order]
            (x,) = x.maker.inputs()
        return x if order == sorted(order) else self.emit("transpose", x, perm=order)

    def expand(self, x: Value, shape: Sequence[int]) -> Value:
        """Return a tensor whose dims of size 1 are repeated to a shape; itself where there is nothing to repeat."""
        return x if x.shape == tuple(shape) else self.emit("expand", x, shape=list(shape))

    def axes(self, dims: int | Sequence[int] | None, rank: int) -> list[int]:
        """Return dims counted from the front, in order; all of them where none is named."""
        if dims is None or (not isinstance(dims, int) and not dims):
            return list(range(rank))
        return sorted(self.axis(dim, rank) for dim in ([dims] if isinstance(dims, int) else dims))

    def axis(self, dim: int, rank: int) -> int:
        """Return a dim counted from the front."""
        if not -max(rank, 1) <= dim < max(rank, 1):
            raise self.refuse(f"dim {dim} names no dim of a tensor of rank {rank}")
        return dim % max(rank, 1)

    def refuse(self, reason: str) -> UnsupportedNodeError:
        """Return the error that names the node and says what is missing."""
        return UnsupportedNodeError(f"{self.node}: {reason}")

    def _operand(self, operand: Any) -> Operand:
        if isinstance(operand, Saved):
            if operand.make is None:
                raise self.refuse(f"it reads {operand.what}, which only the backward of the op that makes it may read")
            return operand.make()
        if operand is None or isinstance(operand, Value):
            return operand
        if not isinstance(operand, list | tuple) or any(isinstance(one, list | tuple) for one in operand):
            raise TypeError(f"{told(operand)} is no tensor and no list of tensors")
        return [one for one in map(self._operand, operand) if isinstance(one, Value)]

    def _fold(self, op: str, operands: Sequence[Operand], attrs: dict[str, Any]) -> tuple[Value, ...] | None:
        """Compute the results of a step whose operands are known; None where they are too large to be constants."""
        rule = rule_for(op)
        specs = [spec.name for spec in rule.operands]
        shapes = dict(zip(specs, (_shapes(operand) for operand in operands), strict=False))
        dtypes = dict(zip(specs, (_dtypes(operand) for operand in operands), strict=False))
        bound = rule.bind(shapes, attrs, dtypes=dtypes)
        if max((math.prod(slot.shape) for slot in bound.results), default=0) > CONSTANT_LIMIT:
            return None
        arrays = [_data(operand) for operand in operands]
        arrays += [None] * (len(rule.operands) - len(arrays))
        with np.errstate(all="ignore"):  # what is infinite here is masked by what follows, as in the model
            made = flat_results(rule.kernel(*arrays, **local_attrs(rule, attrs, Device(bound))))
        found = rule.infer_dtypes(dtypes, attrs, len(bound.results))
        if not self.folded or self.folded[-1] != self.node.name:
            self.folded.append(self.node.name)
        return tuple(
            Value(slot.shape, dtype, "known", "", np.asarray(array, numpy_dtype(dtype)))
            for slot, dtype, array in zip(bound.results, found, made, strict=True)
        )


def _known(operand: Operand) -> bool:
    if operand is None:
        return True
    return operand.data is not None if isinstance(operand, Value) else all(map(_known, operand))


def _shapes(operand: Operand) -> Any:
    if operand is None or isinstance(operand, Value):
        return None if operand is None else operand.shape
    return [value.shape for value in operand]


def _dtypes(operand: Operand) -> Any:
    if operand is None or isinstance(operand, Value):
        return None if operand is None else operand.dtype
    return [value.dtype for value in operand]


def _data(operand: Operand) -> NDArray[Any] | list[Any] | None:
    if operand is None or isinstance(operand, Value):
        return None if operand is None else operand.data
    return [value.data for value in operand]


def told(arg: Any) -> str:
    """Return an argument as a sentence tells it: a long list by how many it holds.

    Examples
    --------
    >>> told([Value((2, 3), "float32", "input"), 1]), told("mean"), told([0] * 99)
    ('[a float32 tensor of shape (2, 3), 1]', "'mean'", 'a list of 99')
    """
    if not isinstance(arg, list | tuple):
        return " ".join(repr(arg).split())
    return f"[{', '.join(map(told, arg))}]" if len(arg) <= _LISTED else f"a list of {len(arg)}"


def signature_of(lowering: Lowering) -> str:
    """Return what a lowering takes behind its site, as a sentence tells it.

    Examples
    --------
    >>> signature_of(lambda site, x, dim=0, *, keep=False, **more: x)
    '(x, dim=0, keep=False, ...)'
    """
    given = list(inspect.signature(lowering).parameters.values())[1:]
    words = [one.name if one.default is one.empty else f"{one.name}={told(one.default)}" for one in given]
    named = [
        word for word, one in zip(words, given, strict=True) if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    return f"({', '.join(named if len(named) == len(given) else [*named, '...'])})"


def alike(dtype: str, other: str) -> bool:
    """Say whether two dtypes hold numbers of one kind; the width counts for floats, and a byte may stand for a truth.

    Examples
    --------
    >>> alike("int32", "int64"), alike("bool", "uint8"), alike("float32", "float16"), alike("float32", "int64")
    (True, True, False, False)
    """
    if dtype == other or {dtype, other} == {"bool", "uint8"}:
        return True
    return "int" in dtype and "int" in other


def holds(dtype: str, other: str) -> bool:
    """Say whether one dtype holds the numbers of another: truths, integers, real and complex numbers, in this order.

    Examples
    --------
    >>> holds("float32", "int64"), holds("int32", "int64"), holds("int64", "float16"), holds("float16", "float32")
    (True, True, False, False)
    """
    kinds = ("bool", "int", "float", "complex")
    mine, others = (next((at for at, kind in enumerate(kinds) if kind in name), 0) for name in (dtype, other))
    return mine > others or (
        mine == others and (kinds[mine] != "float" or ITEMSIZE.get(dtype, 0) >= ITEMSIZE.get(other, 0))
    )


def dtype_name(dtype: str) -> str:
    """Return a dtype as tensors here name it.

    Examples
    --------
    >>> dtype_name("torch.float32"), dtype_name("int64")
    ('float32', 'int64')
    """
    return dtype.removeprefix("torch.")
