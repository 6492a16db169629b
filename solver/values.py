"""Seeded values for the sources of a graph, and the unsharded run."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ops.op import Kernel
from ops.registry import rule_for
from ops.run import Device, flat_results, local_attrs
from solver.graph import Graph, Node, Tensor, flat

Array: TypeAlias = NDArray[Any]
_ANY_INDEX = 2
"""Integers that no op reads as an index are below this."""
KERNEL_ERRORS = (ValueError, LookupError, TypeError, ArithmeticError, AttributeError)
"""What a kernel raises on arrays that do not fit it."""


class ValuesError(ValueError):
    """Values that do not fit the graph."""


def random_values(graph: Graph, seed: int = 0) -> dict[str, Array]:
    """Draw values for every input, parameter and state; constants keep theirs.

    Parameters
    ----------
    graph : Graph
    seed : int, optional

    Returns
    -------
    dict
        Name -> array. Floating tensors are normal, in float64, those of two dims and more divided by the root of their
        fan-in, so that no activation runs away; what an op needs positive, or between 0 and 1, is so; an integer tensor
        that is read as an index stays below what it indexes.
    """
    values: dict[str, Array] = {}
    for index, tensor in enumerate(t for t in graph.tensors.values() if t.producer is None):
        rng = np.random.default_rng([seed, index])
        values[tensor.name] = (
            _fixed(tensor) if tensor.value is not None else _drawn(tensor, _domains(graph, tensor.name), rng)
        )
    return values


def given_values(graph: Graph, values: Mapping[str, Any]) -> dict[str, Array]:
    """Read the values that a person gives for the sources of a graph; constants that are left out keep theirs.

    Parameters
    ----------
    graph : Graph
    values : mapping
        Source -> array, or what numpy makes one of.

    Returns
    -------
    dict
        Name -> array, floating ones in float64.

    Raises
    ------
    ValuesError
        Where a source has no value, a name is no source, or a shape or a dtype does not fit.
    """
    sources = {name: tensor for name, tensor in graph.tensors.items() if tensor.producer is None}
    for name in values:
        if name not in sources:
            raise ValuesError(f"a value is given for {name!r}, which is no input, parameter, state or constant")
    found: dict[str, Array] = {}
    for name, tensor in sources.items():
        if name in values:
            found[name] = _read(tensor, values[name])
        elif tensor.value is not None:
            found[name] = _fixed(tensor)
        else:
            raise ValuesError(f"{tensor.role} {name!r} has no value: give an array of shape {tensor.shape}")
    return found


def _read(tensor: Tensor, value: Any) -> Array:
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValuesError(f"the value of {tensor.name!r} is no array: {error}") from error
    if array.shape != tensor.shape:
        raise ValuesError(f"the value of {tensor.name!r} has shape {array.shape}, but the tensor has {tensor.shape}")
    if _floating(str(array.dtype)):  # numpy knows bfloat16 and float8 by their names only
        array = array.astype(np.float64)
    complex_one = tensor.dtype.startswith("complex")
    fits = "b" if tensor.dtype == "bool" else "fiuc" if complex_one else "fiu" if _floating(tensor.dtype) else "iu"
    if array.dtype.kind not in fits:
        raise ValuesError(f"the value of {tensor.name!r} is {array.dtype}, but the tensor is {tensor.dtype}")
    return array.astype(np.complex128 if complex_one else np.float64 if _floating(tensor.dtype) else tensor.dtype)


def _fixed(tensor: Tensor) -> Array:
    value = np.asarray(tensor.value)
    return value.astype(np.float64) if _floating(tensor.dtype) else value


def _floating(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat"))


def _drawn(tensor: Tensor, domains: list[int | str], rng: np.random.Generator) -> Array:
    if tensor.dtype == "bool":
        return rng.random(tensor.shape) < 0.5
    if not _floating(tensor.dtype):
        below = min((size for size in domains if isinstance(size, int)), default=_ANY_INDEX)
        return rng.integers(0, below, tensor.shape).astype(tensor.dtype)
    if "unit" in domains:
        return rng.uniform(0.1, 0.9, tensor.shape)
    drawn = rng.standard_normal(tensor.shape)
    if "positive" in domains:
        return np.abs(drawn) + 0.5
    if len(tensor.shape) > 1 and tensor.role == "parameter":
        drawn /= math.sqrt(max(1, math.prod(tensor.shape) // max(tensor.shape[0], tensor.shape[-1])))
    return drawn


def _domains(graph: Graph, tensor: str) -> list[int | str]:
    """Return what the ops that read a tensor, directly or through ops that keep integers, demand of its values."""
    found: list[int | str] = []
    waiting, seen = [tensor], {tensor}
    while waiting:
        name = waiting.pop()
        for use in graph.uses(name):
            node = graph.nodes[use.op]
            wanted = rule_for(node.op).domain.get(use.operand.split(".")[0])
            if wanted in ("positive", "unit"):
                found += [wanted] if name == tensor else []
            elif wanted is not None:
                found.append(_size(graph, node, wanted))
            elif not _floating(graph.tensors[name].dtype):
                fresh = [r for r in node.results if r not in seen and not _floating(graph.tensors[r].dtype)]
                seen.update(fresh)
                waiting += fresh
    return found


def _size(graph: Graph, node: Node, factor: str) -> int:
    return graph.bind(node.name).factors[factor].size


def run_whole(graph: Graph, values: Mapping[str, Array], done: Callable[[], None] = lambda: None) -> dict[str, Array]:
    """Run a graph on one device.

    Parameters
    ----------
    graph : Graph
    values : mapping
        Source -> array.
    done : callable, optional
        Called after each op.

    Returns
    -------
    dict
        Graph output -> array. Everything else is dropped after its last use.

    Raises
    ------
    ValuesError
        Where a kernel cannot run on them.
    """
    alive = {name: values[name] for name in graph.tensors if graph.tensors[name].producer is None}
    dying = last_reads(graph)
    for node in graph.nodes.values():
        op = rule_for(node.op)
        operands = [read(alive, names) for names in node.operands]
        try:
            results = call(op.kernel, operands, local_attrs(op, node.attrs, Device(graph.bind(node.name))))
        except KERNEL_ERRORS as error:
            raise ValuesError(f"op {node.name!r} ({node.op}) cannot run on these values: {error}") from error
        alive.update(zip(node.results, results, strict=True))
        for name in dying.get(node.name, ()):
            del alive[name]
        done()
    return {name: alive[name] for name in graph.outputs}


def last_reads(graph: Graph) -> dict[str, list[str]]:
    """Return per op the tensors that nothing reads after it."""
    last: dict[str, str] = {}
    for node in graph.nodes.values():
        for name in [*node.results, *(name for name in flat(node.operands) if name is not None)]:
            last[name] = node.name
    found: dict[str, list[str]] = {}
    for name, node_name in last.items():
        if not graph.is_output(name):
            found.setdefault(node_name, []).append(name)
    return found


def read(alive: Mapping[str, Array], names: str | tuple[str, ...] | None) -> Any:
    """Return the arrays of one operand: one, a list (variadic), or None (absent)."""
    if names is None:
        return None
    return alive[names] if isinstance(names, str) else [alive[name] for name in names]


def call(kernel: Kernel, operands: list[Any], attrs: Mapping[str, Any]) -> list[Array]:
    """Run a kernel on one device; return its results a slot each. One that reduces inside reduces over itself alone."""
    made = started(kernel, operands, attrs)
    return list(flat_results(_alone(made) if isinstance(made, Generator) else made))


def started(kernel: Kernel, operands: list[Any], attrs: Mapping[str, Any]) -> Any:
    """Run a kernel; return its results, or, where it reduces inside, the generator that asks for the reductions."""
    return kernel(*operands, **_in_double(attrs))


def _in_double(attrs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Let an op that makes floats of a stated dtype make float64: rounding is no error of a plan."""
    stated = attrs.get("dtype")
    return {**attrs, "dtype": "float64"} if isinstance(stated, str) and _floating(stated) else attrs


def _alone(steps: Generator[tuple[Array, str], Array, Any]) -> Any:
    """Drive a kernel that asks for reductions: on one device each gives back what was handed over."""
    reduced: Array | None = None
    while True:
        try:
            reduced = steps.send(reduced)[0]  # type: ignore[arg-type]
        except StopIteration as end:
            return end.value
