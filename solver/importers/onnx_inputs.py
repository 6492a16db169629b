"""The inputs of an ONNX model and the sizes a person gives them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from onnx import GraphProto, TensorProto, ValueInfoProto

from solver.importers.errors import DynamicDimError, ShapeMismatchError, UnknownNameError, UnsupportedNodeError
from solver.importers.onnx_fold import dtype_name, known
from solver.importers.sketch import Value

Dim: TypeAlias = int | str | None
"""A size, the name of a dynamic one, or None for a dynamic one without a name."""


@dataclass(frozen=True)
class Input:
    """An input as the file declares it."""

    name: str
    dtype: str
    dims: tuple[Dim, ...]
    empty: Mapping[int, int] = field(default_factory=dict)
    """Dim -> the number below 1 that the file writes for its size; such a dim has none."""

    def __str__(self) -> str:
        written = [str(self.empty.get(i, "?")) if dim is None else str(dim) for i, dim in enumerate(self.dims)]
        return f"input {self.name!r} [{', '.join(written)}]"


@dataclass
class Sizes:
    """The sizes of dynamic dims as they become known, and where each comes from."""

    given: dict[str, int]
    source: dict[str, str] = field(default_factory=dict)

    def learn(self, dim: str, size: int, source: str) -> None:
        """Take the size of a named dim from a shape."""
        if self.given.setdefault(dim, size) != size:
            known_from = self.source.get(dim, f"dims (--dim {dim}={self.given[dim]})")
            raise ShapeMismatchError(
                f"dim {dim!r} is {self.given[dim]} by {known_from} and {size} by {source}: give it one size"
            )
        self.source.setdefault(dim, source)


@dataclass(frozen=True)
class SizedInputs:
    """The inputs with their sizes.

    Parameters
    ----------
    values : dict
        Name -> value, in the order of the model; a scalar whose value was given is known.
    declared : dict or None
        Name -> the shape that the file declares, dynamic dims at their new sizes; None where no declared size was
        changed.
    """

    values: dict[str, Value]
    declared: dict[str, tuple[int, ...]] | None


def sized_inputs(graph: GraphProto, dims: Mapping[str, int], shapes: Mapping[str, Sequence[int]]) -> SizedInputs:
    """Give every input of a model its shape.

    Parameters
    ----------
    graph : onnx.GraphProto
    dims : mapping
        Name of a dynamic dim, or of a scalar integer input -> its size, or value.
    shapes : mapping
        Input -> shape.

    Returns
    -------
    SizedInputs

    Raises
    ------
    UnknownNameError, ShapeMismatchError, DynamicDimError
        Where a name is not in the model, a shape does not fit, or a dim is left without a size.
    """
    stored = {tensor.name for tensor in graph.initializer} | {tensor.values.name for tensor in graph.sparse_initializer}
    inputs = [_declared(info) for info in graph.input if info.name not in stored]
    scalars = {entry.name for entry in inputs if entry.dims == () and "float" not in entry.dtype}
    _check_names(inputs, scalars, dims, shapes)
    sizes = Sizes({name: _size(size, f"dim {name!r}") for name, size in dims.items() if name not in scalars})
    for entry in inputs:
        for dim, size in zip(entry.dims, _given_shape(entry, shapes), strict=False):
            if isinstance(dim, str):
                sizes.learn(dim, size, f"the shape given for {entry.name!r}")
    values, declared = {}, {}
    for entry in inputs:
        if entry.name in dims and entry.name in scalars:
            values[entry.name] = known(np.array(dims[entry.name], dtype=entry.dtype), entry.name)
            continue
        shape = _given_shape(entry, shapes) or _sized(entry, sizes)
        values[entry.name] = Value(shape, entry.dtype, "input", entry.name)
        declared[entry.name] = tuple(
            dim if isinstance(dim, int) else size for dim, size in zip(entry.dims, shape, strict=True)
        )
    changed = any(declared[name] != values[name].shape for name in declared)
    return SizedInputs(values, declared if changed else None)


def check_ranks(graph: GraphProto) -> None:
    """Refuse an input whose number of dims the file does not say.

    Raises
    ------
    DynamicDimError
    """
    for info in graph.input:
        if info.type.HasField("tensor_type") and not info.type.tensor_type.HasField("shape"):
            raise DynamicDimError(
                f"input {info.name!r} has no rank in the file: export the model with its input shapes"
            )


def _declared(info: ValueInfoProto) -> Input:
    if not info.type.HasField("tensor_type"):
        raise UnsupportedNodeError(
            f"input {info.name!r} is no dense tensor ({info.type.WhichOneof('value')}), and only those can be planned"
        )
    tensor = info.type.tensor_type
    if tensor.elem_type == TensorProto.STRING:
        raise UnsupportedNodeError(f"input {info.name!r} holds text, and only numbers can be planned")
    dims: list[Dim] = []
    for dim in tensor.shape.dim:
        if dim.HasField("dim_value"):
            dims.append(int(dim.dim_value) if dim.dim_value > 0 else None)
        else:
            dims.append(dim.dim_param if dim.dim_param.strip("?") else None)
    sizes = [int(dim.dim_value) if dim.HasField("dim_value") else 1 for dim in tensor.shape.dim]
    empty = {index: size for index, size in enumerate(sizes) if size < 1}
    return Input(info.name, dtype_name(tensor.elem_type), tuple(dims), empty)


def _check_names(
    inputs: Sequence[Input], scalars: Iterable[str], dims: Mapping[str, int], shapes: Mapping[str, Sequence[int]]
) -> None:
    named = {dim for entry in inputs for dim in entry.dims if isinstance(dim, str)} | set(scalars)
    for name in dims:
        if name not in named:
            raise UnknownNameError(
                f"no input has a dynamic dim {name!r}: {_listed(name, named, 'the dynamic dims with a name are')}"
            )
    for name in shapes:
        if name not in {entry.name for entry in inputs}:
            raise UnknownNameError(
                f"the model has no input {name!r}: {_listed(name, (e.name for e in inputs), 'its inputs are')}"
            )


def _listed(name: str, known_names: Iterable[str], opening: str) -> str:
    names = sorted(known_names)
    near = difflib.get_close_matches(name, names, 1)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"{opening} {', '.join(map(repr, names))}" if names else "there are none"


def _given_shape(entry: Input, shapes: Mapping[str, Sequence[int]]) -> tuple[int, ...]:
    if entry.name not in shapes:
        return ()
    shape = tuple(_size(size, f"a size of input {entry.name!r}") for size in shapes[entry.name])
    if len(shape) != len(entry.dims):
        raise ShapeMismatchError(f"the shape {list(shape)} was given for {entry}, which has {len(entry.dims)} dims")
    return shape


def _size(size: object, what: str) -> int:
    if isinstance(size, (bool, np.bool_)) or not isinstance(size, (int, np.integer)) or size < 1:
        raise ShapeMismatchError(f"{what} is {size!r}: give a whole number of at least 1")
    return int(size)


def _unsized(entry: Input, index: int) -> str:
    """Say what the file writes where the size of a dim should be."""
    if index in entry.empty:
        return f"{entry.empty[index]} in the file, and only sizes from 1 up can be planned"
    return repr(entry.dims[index]) if entry.dims[index] else "without a name"


def _sized(entry: Input, sizes: Sizes) -> tuple[int, ...]:
    shape = [sizes.given.get(dim) if isinstance(dim, str) else dim for dim in entry.dims]
    missing = [(index, dim) for index, dim in enumerate(entry.dims) if shape[index] is None]
    if missing:
        named = list(dict.fromkeys(dim for _, dim in missing if isinstance(dim, str)))
        which = ", ".join(f"{index} ({_unsized(entry, index)})" for index, _ in missing)
        example = "x".join(str(dim) if isinstance(dim, int) else "SIZE" for dim in entry.dims)
        write = f"--input-shape {entry.name}={example} (input_shapes={{{entry.name!r}: (...)}})"
        if all(dim for _, dim in missing):
            pairs = ", ".join(f"{dim!r}: SIZE" for dim in named)
            write = " ".join(f"--dim {dim}=SIZE" for dim in named) + f" (dims={{{pairs}}}), or {write}"
        raise DynamicDimError(f"{entry} leaves dim{'s' * (len(missing) > 1)} {which} without a size: write {write}")
    return tuple(size for size in shape if size is not None)
