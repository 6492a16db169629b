"""A graph that came from JAX, run in numpy and held against what JAX itself computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from solver.graph import Graph
from solver.values import given_values, run_whole

Arrays = dict[str, np.ndarray[Any, Any]]


def sources(graph: Graph, args: Sequence[Any]) -> Arrays:
    """The arrays of the arguments, by the names of their tensors."""
    named = [t.name for t in graph.tensors.values() if t.producer is None and t.role != "constant"]
    leaves = [leaf for leaf in jax.tree_util.tree_leaves(tuple(args)) if not _is_key(leaf)]
    return {name: np.asarray(leaf) for name, leaf in zip(named, leaves, strict=True)}


def _is_key(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def run(graph: Graph, args: Sequence[Any]) -> Arrays:
    """The outputs of the graph, unsharded and in float64."""
    return run_whole(graph, given_values(graph, sources(graph, args)))


def compare(graph: Graph, fn: Callable[..., Any], args: Sequence[Any], tolerance: float) -> None:
    """Fail where an output differs from JAX's by more than a part of its largest element."""
    wanted = [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(jax.jit(fn)(*args))]
    found = run(graph, args)
    assert len(found) == len(wanted)
    for (name, mine), theirs in zip(found.items(), wanted, strict=True):
        assert graph.tensors[name].dtype == theirs.dtype.name, name
        assert mine.shape == theirs.shape, name
        if theirs.dtype.kind in "biu":
            np.testing.assert_array_equal(mine, theirs, name)
        else:
            scale = max(1.0, float(np.abs(theirs).max(initial=0)))
            np.testing.assert_allclose(mine, theirs.astype(np.float64), rtol=0, atol=tolerance * scale, err_msg=name)
