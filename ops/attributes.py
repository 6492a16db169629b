"""What an attribute may be: the type that the op's function, its kernel or its default states for it."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from ops.notation import RuleError

DTYPES = (
    *("bool", "int8", "uint8", "float8_e4m3fn", "float8_e5m2", "int16", "uint16", "float16", "bfloat16"),
    *("int32", "uint32", "float32", "int64", "uint64", "float64", "complex64", "complex128"),
)
"""The dtypes that a tensor may have."""


@cache
def stated_types(function: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the types that a function states for its parameters; nothing where they cannot be read."""
    try:
        return get_type_hints(function)
    except (TypeError, NameError):
        return {}


def type_of(default: Any) -> Any:
    """Return the type that a default stands for; ``Any`` where it tells nothing."""
    return type(default) if isinstance(default, bool | int | float | str) else Any


def check_attribute(name: str, value: Any, wanted: Any) -> None:
    """Hold the value of an attribute against its type.

    Parameters
    ----------
    name : str
    value : object
    wanted : type hint
        ``int``, ``float``, ``bool``, ``str``, None, sequences of them, and unions; anything else takes every value.

    Raises
    ------
    RuleError
        Where it does not fit.

    Examples
    --------
    >>> check_attribute("axis", -1, int)
    >>> check_attribute("axis", 0.5, int)
    Traceback (most recent call last):
    ops.notation.RuleError: axis=0.5: give a whole number
    """
    if not _fits(value, wanted):
        raise RuleError(f"{name}={value!r}: give {_told(wanted)}")
    if name.endswith("dtype") and isinstance(value, str) and value not in DTYPES:
        raise RuleError(f"{name}={value!r} is no dtype: choose from {', '.join(DTYPES)}")


def _fits(value: Any, wanted: Any) -> bool:
    origin = get_origin(wanted)
    if origin in (Union, types.UnionType):
        return any(_fits(value, one) for one in get_args(wanted))
    if origin is not None and issubclass(origin, Sequence):
        own = get_args(wanted)
        each = own[0] if own else Any
        return isinstance(value, list | tuple) and all(_fits(item, each) for item in value)
    if wanted in _SCALARS:
        return isinstance(value, _SCALARS[wanted][0]) and (wanted is bool or not isinstance(value, bool | np.bool_))
    return True


_SCALARS: Mapping[Any, tuple[Any, str, str]] = {
    bool: ((bool, np.bool_), "True or False", "lists of True and False"),
    int: ((int, np.integer), "a whole number", "a list of whole numbers"),
    float: ((int, float, np.integer, np.floating), "a number", "a list of numbers"),
    str: (str, "a text", "a list of texts"),
    types.NoneType: (types.NoneType, "None", ""),
}
"""Type -> what is of it, and its name, for one and for several."""


def _told(wanted: Any) -> str:
    """Say a type in words.

    Examples
    --------
    >>> _told(int | Sequence[int] | None)
    'a whole number, a list of whole numbers or None'
    """
    if get_origin(wanted) in (Union, types.UnionType):
        *most, last = dict.fromkeys(_told(one) for one in get_args(wanted))
        return f"{', '.join(most)} or {last}" if most else last
    if wanted in _SCALARS:
        return _SCALARS[wanted][1]
    own = get_args(wanted)
    return _SCALARS[own[0]][2] if own and own[0] in _SCALARS else "a list"
