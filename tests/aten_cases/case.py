"""One call of an aten overload, and the tensors it is tried on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False)
class T:
    """A random tensor; the same object twice is the same tensor twice.

    Real numbers are normal, ``kind`` ``positive`` makes them at least one half, ``unit`` between -0.9 and 0.9; integers
    are at least ``low`` and below ``high``, and all different where ``kind`` is ``order``.
    """

    shape: tuple[int, ...]
    dtype: str = "float64"
    kind: str = "normal"
    low: int = 0
    high: int = 4


@dataclass(frozen=True)
class Item:
    """One result of a node that ran before."""

    node: str
    index: int


@dataclass(frozen=True)
class Node:
    """A node that is only there for what follows: its name without the overload."""

    node: str


@dataclass(frozen=True)
class Case:
    """One call of an overload.

    Parameters
    ----------
    op : str
    args : tuple
        `T` for a tensor, `Item` and `Node` for what an op of ``before`` gave.
    kwargs : mapping
    before : tuple of tuple
        Nodes that run first: name, op, args, and kwargs where there are any.
    results : tuple of int or None
        Which of several results can be compared: an empty tuple says that none can, None that all can.
    """

    op: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    before: tuple[tuple[Any, ...], ...] = ()
    results: tuple[int, ...] | None = None


X, Y, SQUARE, ROW, CUBE, FOUR = T((4, 6)), T((4, 6)), T((4, 4)), T((6,)), T((2, 3, 4)), T((2, 4, 6, 6))
POSITIVE, UNIT, NARROW = T((4, 6), kind="positive"), T((4, 6), kind="unit"), T((4, 6), "float32")
INTS, MORE, TRUTHS, FALSE = T((4, 6), "int64", low=-3), T((4, 6), "int64", low=1), T((4, 6), "bool"), T((4, 6), "bool")
SMALL = T((4, 6), "int32", low=-3)
NUMBER, COLUMN = T(()), T((4, 1))
INF = math.inf


def each(names: str, *calls: tuple[Any, ...], **kwargs: Any) -> Iterator[Case]:
    for name in names.split():
        for args in calls:
            yield Case(name if name.count(".") else f"aten.{name}.default", args, kwargs)
