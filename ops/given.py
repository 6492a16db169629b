"""Checks of what is given to an op: shapes, and whole numbers among its attributes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ops.bind import Shape, TensorShapes
from ops.notation import RuleError, TensorSpec


def checked_shapes(op: str, specs: Sequence[TensorSpec], shapes: Any) -> dict[str, TensorShapes]:
    """Return the shapes of the operands as tuples of sizes of at least 1.

    Parameters
    ----------
    op : str
    specs : sequence of TensorSpec
        The operands of the op.
    shapes : mapping
        Operand name -> shape, list of shapes (variadic), or None (absent).

    Raises
    ------
    RuleError
        For an operand that the op does not have or that is missing, and for what is no shape.

    Examples
    --------
    >>> from ops import rule_for
    >>> checked_shapes("relu", rule_for("relu").operands, {"x": [4, 6]})
    {'x': (4, 6)}
    """
    if not isinstance(shapes, Mapping):
        raise RuleError(f"the shapes of {op} are {shapes!r}: give a mapping of operand names to shapes")
    by_name = {spec.name: spec for spec in specs}
    for name in shapes:
        if name not in by_name:
            raise RuleError(f"{op} has no operand {name!r}: it takes {', '.join(by_name)}")
    for name, spec in by_name.items():
        if shapes.get(name) is None and not spec.optional:
            raise RuleError(f"{op} needs the operand {name!r}")
    return {name: _checked(op, by_name[name], given) for name, given in shapes.items()}


def _checked(op: str, spec: TensorSpec, given: Any) -> TensorShapes:
    where = f"operand {spec.name} of {op}"
    if given is None:
        return None
    if not spec.variadic:
        return _shape(where, given)
    if not isinstance(given, list | tuple) or not given or not all(isinstance(one, list | tuple) for one in given):
        raise RuleError(f"{where} is {given!r}: it takes a list of one or more shapes, as [(4, 6), (4, 6)]")
    return [_shape(where, one) for one in given]


def _shape(where: str, given: Any) -> Shape:
    if not isinstance(given, list | tuple) or not all(_is_whole(size) for size in given):
        raise RuleError(f"{where} has shape {given!r}: give a tuple of whole numbers, as (4, 6)")
    shape = tuple(int(size) for size in given)
    for dim, size in enumerate(shape):
        if size < 1:
            raise RuleError(f"{where} has shape {shape}: dim {dim} has size {size}, and a dim is at least 1")
    return shape


def of_op(op: str, error: RuleError) -> RuleError:
    """Return an error that names the op that it is about.

    Examples
    --------
    >>> str(of_op("sum", RuleError("axis=2 names no dim")))
    'sum: axis=2 names no dim'
    """
    return error if re.search(rf"\b{re.escape(op)}\b(?!=)", str(error)) else RuleError(f"{op}: {error}")


def whole_number(value: Any, what: str) -> int:
    """Return a whole number of Python or numpy as Python's; a `RuleError` for anything else.

    Examples
    --------
    >>> whole_number(np.int64(2), "axis")
    2
    """
    if not _is_whole(value):
        raise RuleError(f"{what}={value!r}: give a whole number")
    return int(value)


def whole_numbers(values: Any, what: str) -> list[int]:
    """Return a list or tuple of whole numbers as a list; a `RuleError` for anything else.

    Examples
    --------
    >>> whole_numbers((2, -1), "shape")
    [2, -1]
    """
    if not isinstance(values, list | tuple) or not all(map(_is_whole, values)):
        raise RuleError(f"{what}={values!r}: give a list of whole numbers")
    return [int(value) for value in values]


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
