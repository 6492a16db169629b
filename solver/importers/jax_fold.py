"""JAX values that are known before anything runs: literals, iota, masks, and what is computed from them alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import GeneratorType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from ops.registry import families, rule_for
from ops.run import Device, flat_results, local_attrs
from ops.unary import numpy_dtype
from solver.importers.sketch import CONSTANT_LIMIT, Operand, Value

_FAMILIES = families()
POINTWISE = frozenset(name for home in ("elementwise", "unary", "special") for name in _FAMILIES[f"ops.{home}"])
"""Ops that compute element by element."""
_MOVING = frozenset(
    {*_FAMILIES["ops.shape"], "expand", "flip", "slice", "strided_slice", "tile", "split", "unbind", "stack", "concat"}
)
"""Ops that move elements and compute nothing: of equal ones they make equal ones."""
_RANDOM = frozenset(_FAMILIES["ops.random"])
OPAQUE = "key<"
"""How the dtypes of random keys begin: they are no tensors."""


def known(data: Any, dtype: str = "") -> Value:
    """Return a value that is known before anything runs; its data is what numpy can hold of the dtype.

    Examples
    --------
    >>> known(2.0, "bfloat16").dtype, known(2.0, "bfloat16").data.dtype
    ('bfloat16', dtype('float32'))
    """
    if dtype.startswith(OPAQUE):
        return Value(tuple(np.shape(data)), dtype, "known", "", data)
    array = np.asarray(data)
    dtype = dtype or array.dtype.name
    array = array.astype(numpy_dtype(dtype), copy=False)
    if array.size > 1 and (array == array.flat[0]).all():
        return uniform(array.shape, array.flat[0], dtype)
    return Value(array.shape, dtype, "known", "", array)


def uniform(shape: Sequence[int], number: Any, dtype: str) -> Value:
    """Return a known value of equal elements, which takes no memory."""
    data = np.broadcast_to(np.asarray(number, numpy_dtype(dtype)), tuple(shape))
    return Value(tuple(shape), dtype, "known", "", data)


def number_of(value: Value) -> Any:
    """Return the number that all elements of a known value are; None where they differ or are not known."""
    data = value.data
    if data is None or value.dtype.startswith(OPAQUE) or not data.size:
        return None
    if any(step for step, size in zip(data.strides, data.shape, strict=True) if size > 1):
        return None
    return data[(0,) * data.ndim].item()


def compute(
    op: str, operands: Sequence[Operand], attrs: Mapping[str, Any], results: Sequence[Value]
) -> list[Value] | None:
    """Compute an op whose operands are known.

    Parameters
    ----------
    op : str
    operands : sequence
    attrs : mapping
    results : sequence of Value
        Of the shapes and dtypes that the op makes.

    Returns
    -------
    list of Value, or None
        None where something is not known, where chance decides, or where the result is too large to be kept; many
        equal elements are not.
    """
    values = values_of(operands)
    made = [(value.shape, value.dtype) for value in results]
    numbers = [number_of(value) for value in values]
    if values and None not in numbers and (op in POINTWISE or (op in _MOVING and len(set(numbers)) == 1)):
        number = numbers[0] if op in _MOVING else _run(op, _scalars(operands), attrs)[0]
        return [uniform(shape, _rounded(np.asarray(number), dtype), dtype) for shape, dtype in made]
    sizes = [value.data.size for value, number in zip(values, numbers, strict=True) if number is None]  # type: ignore[union-attr]
    if max([*sizes, *(int(np.prod(shape)) for shape, _ in made)], default=0) > CONSTANT_LIMIT:
        return None
    arrays = _run(op, operands, attrs)
    if arrays is None:
        return None
    return [known(_rounded(array, dtype), dtype) for array, (_, dtype) in zip(arrays, made, strict=True)]


def evaluate(primitive: Any, operands: Sequence[Value], params: Mapping[str, Any], results: Sequence[Any]) -> Any:
    """Let JAX compute an equation whose operands are known.

    Parameters
    ----------
    primitive : jax Primitive
    operands : sequence of Value
    params : mapping
    results : sequence
        The abstract value of each result.

    Returns
    -------
    list of Value, or None
        None where something is not known or too large to be kept.
    """
    if any(value.data is None for value in operands):
        return None
    if any(int(np.prod(aval.shape)) > CONSTANT_LIMIT for aval in results):
        return None
    given = [
        value.data if value.dtype.startswith(OPAQUE) else jnp.asarray(value.data, value.dtype) for value in operands
    ]
    made = primitive.bind(*given, **params)
    listed = made if primitive.multiple_results else [made]
    return [
        known(array if name.startswith(OPAQUE) else np.asarray(array), name)
        for array, name in zip(listed, (aval.dtype.name for aval in results), strict=True)
    ]


def is_key(value: Any) -> bool:
    """Tell whether an argument is a random key of the new kind."""
    dtype = getattr(value, "dtype", None)
    return dtype is not None and bool(jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key))


def can_compute(op: str, operands: Sequence[Operand]) -> bool:
    """Tell whether all that an op reads is known, and no chance is in it."""
    return op not in _RANDOM and all(value.data is not None for value in values_of(operands))


def values_of(operands: Sequence[Operand]) -> list[Value]:
    """Return the values of all operands, one after another."""
    return [value for operand in operands if operand is not None for value in _listed(operand)]


def _listed(operand: Value | Sequence[Value]) -> Sequence[Value]:
    return (operand,) if isinstance(operand, Value) else operand


def _shapes(arrays: Any) -> Any:
    return None if arrays is None else [a.shape for a in arrays] if isinstance(arrays, list) else arrays.shape


def _scalars(operands: Sequence[Operand]) -> list[Operand]:
    return [
        None
        if operand is None
        else uniform((), number_of(operand), operand.dtype)
        if isinstance(operand, Value)
        else [uniform((), number_of(value), value.dtype) for value in operand]
        for operand in operands
    ]


def _run(op: str, operands: Sequence[Operand], attrs: Mapping[str, Any]) -> Any:
    """Run the kernel of an op on one device; None where it reduces inside."""
    rule = rule_for(op)
    arrays: list[Any] = [
        None if operand is None else operand.data if isinstance(operand, Value) else [value.data for value in operand]
        for operand in operands
    ]
    arrays += [None] * (len(rule.operands) - len(arrays))
    names = [spec.name for spec in rule.operands]
    shapes = {name: _shapes(array) for name, array in zip(names, arrays, strict=True)}
    bound = rule.bind(shapes, attrs)
    with np.errstate(all="ignore"):
        made = rule.kernel(*arrays, **local_attrs(rule, attrs, Device(bound)))
    return None if isinstance(made, GeneratorType) else list(flat_results(made))


def _rounded(array: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Round to what a dtype can hold."""
    if numpy_dtype(dtype).name == dtype:
        return array.astype(dtype)
    return array.astype(jnp.dtype(dtype)).astype(np.float32)
