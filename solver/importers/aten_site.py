"""One captured node as its lowering sees it: how it writes our ops, folds what is known, and refuses."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ops.registry import families, rule_for
from ops.run import Device, flat_results, local_attrs
from ops.unary import numpy_dtype
from solver.graph_values import frozen
from solver.importers.capture import CapturedNode, Spec
from solver.importers.errors import UnsupportedNodeError
from solver.importers.sketch import CONSTANT_LIMIT, Operand, Sketch, Value

RANDOM = frozenset(families()["ops.random"])
"""Ops whose results are drawn: they are never folded."""


@dataclass(eq=False, slots=True)
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
            raise self.refuse(str(error)) from error

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
        return x if x.floating else self.cast(x, self.dtype)

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


def dtype_name(dtype: str) -> str:
    """Return a dtype as tensors here name it.

    Examples
    --------
    >>> dtype_name("torch.float32"), dtype_name("int64")
    ('float32', 'int64')
    """
    return dtype.removeprefix("torch.")
