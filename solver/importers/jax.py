"""JAX functions: traced to a jaxpr and written down as a graph of our ops."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import jax
from jax.tree_util import tree_flatten_with_path, tree_leaves_with_path

from solver.graph import Graph
from solver.importers.errors import ImporterError, UnknownNameError, UnsupportedNodeError
from solver.importers.jax_fold import is_key
from solver.importers.jax_random import is_opaque
from solver.importers.jax_roles import Leaf, Outputs, check_options, leaf, path_of, tied_arguments
from solver.importers.jax_trace import tracing
from solver.importers.sketch import Role

Argument: TypeAlias = int | str
"""An argument by its position, or what the names of some of its tensors begin with, as ``"params.decoder"``."""
Output: TypeAlias = int | str | tuple[int | str, ...]
"""An output by its place in what the function returns: ``1``, ``(1, "w")``, ``"1.w"``; ``()`` is all of it."""


def from_jax(
    fn: Callable[..., Any],
    *args: Any,
    parameters: int | Sequence[int] = (),
    states: int | Sequence[int] = (),
    names: Sequence[str] | None = None,
    gradients: Mapping[Output, Argument] | None = None,
    updates: Mapping[Output, Argument] | None = None,
    ties: Mapping[Argument, Argument] | None = None,
    internal: Sequence[Output] = (),
    name: str | None = None,
) -> Graph:
    """Trace a JAX function and return it as a graph.

    Parameters
    ----------
    fn : callable
        Anything that `jax.make_jaxpr` takes: a model, its `value_and_grad`, a whole training step. Jitted or not.
    *args
        Arrays, `jax.ShapeDtypeStruct` or pytrees of them; only shapes and dtypes are read.
    parameters : int or sequence of int, optional
        The arguments whose tensors are learned.
    states : int or sequence of int, optional
        The arguments whose tensors are stored but not learned: the state of an optimizer, running statistics.
    names : sequence of str, optional
        What the names of each argument's tensors begin with; by default the names of the function's parameters. A
        tensor is called by its path in the pytree, ``params.layers.0.wq``; where the first word is empty,
        ``layers.0.wq``.
    gradients : mapping, optional
        Output -> the argument of parameters whose gradients it holds. ``{1: 0}`` for `jax.value_and_grad`. They are
        delivered in the layout in which the parameters are stored.
    updates : mapping, optional
        Output -> the argument whose new value it is. ``{0: 0, 1: 1}`` for a step that returns new parameters and a new
        state first. They are delivered in the layout in which the argument is stored.
    ties : mapping, optional
        Argument -> the argument as which it is stored: ``{"state.mu": "params", "state.nu": "params"}``.
    internal : sequence, optional
        Outputs that the function returns so that they can be named here, and that do not leave the graph: the
        gradients of a step that returns new parameters.
    name : str, optional
        Of the graph; by default that of the function.

    Returns
    -------
    Graph
        Its `notes` say what was changed on the way in, and which outputs look like an argument and are not declared.

    Raises
    ------
    ImporterError
        One sentence: a primitive that no op here computes, a loop or a branch that data decide, an output or an
        argument that is not there, or that does not fit what it is declared to be.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> def loss(params, x):
    ...     return jnp.sum(jnp.tanh(x @ params["w"]) ** 2)
    >>> graph = from_jax(
    ...     jax.value_and_grad(loss), {"w": jnp.ones((8, 4), "float32")}, jnp.ones((16, 8), "float32"),
    ...     parameters=0, gradients={1: 0},
    ... )
    >>> [str(graph.tensors[name]) for name in ("params.w", "x")]
    ['params.w float32[8, 4]', 'x float32[16, 8]']
    >>> graph.gradients
    {'params.w.grad': 'params.w'}
    """
    check_options(names=names, gradients=gradients, updates=updates, ties=ties, internal=internal, name=name)
    called = name or getattr(fn, "__name__", None) or type(fn).__name__
    learned, stored = _positions(parameters, args, "parameters"), _positions(states, args, "states")
    roles: list[Role] = ["weight" if at in learned else "state" if at in stored else "input" for at in range(len(args))]
    leaves = _leaves(args, _words(fn, args, names), roles)
    jaxpr, made = _traced(fn, args, called)
    trace = tracing(called)
    results = trace.run(jaxpr, [one.value for one in leaves])
    sketch = trace.drawing.sketch
    sketch.inputs += [one.value for one in leaves if not is_opaque(one.value)]
    results = [trace.drawing.written(value) for value in results]
    outputs = Outputs([path_of(path) for path, _ in tree_leaves_with_path(made)], results, leaves)
    outputs.declare("gradients", gradients or {})
    outputs.declare("updates", updates or {})
    outputs.hide(internal)
    outputs.write(sketch)
    sketch.followers += tied_arguments(leaves, ties or {})
    trace.check_unknown(sketch.needed())
    try:
        graph, _ = sketch.to_graph()
    except ImporterError:
        raise
    except ValueError as error:
        raise UnsupportedNodeError(f"function {called!r} cannot be written as a graph: {error}") from error
    graph.notes += [text if count == 1 else f"{text} ({count} times)" for text, count in trace.drawing.notes.items()]
    graph.notes += outputs.notes
    return graph


def _positions(given: int | Sequence[int], args: Sequence[Any], what: str) -> set[int]:
    if not isinstance(given, int | Iterable):
        raise ImporterError(f"{what} is {given!r}: give the position of an argument, or a sequence of positions")
    listed = [given] if isinstance(given, int) else list(given)
    for at in listed:
        if not isinstance(at, int) or isinstance(at, bool) or not 0 <= at < len(args):
            raise UnknownNameError(f"{what} names argument {at!r}, and there are {len(args)}, counted from 0")
    return set(listed)


def _words(fn: Callable[..., Any], args: Sequence[Any], names: Sequence[str] | None) -> list[str]:
    """Return what the names of each argument's tensors begin with."""
    if names is not None:
        if len(names) != len(args):
            raise UnknownNameError(f"names has {len(names)} entries for {len(args)} arguments: give one for each")
        return list(names)
    try:
        found = [
            parameter.name
            for parameter in inspect.signature(fn).parameters.values()
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        ]
    except (TypeError, ValueError):
        found = []
    return [found[at] if at < len(found) else f"arg{at}" for at in range(len(args))]


def _leaves(args: Sequence[Any], words: Sequence[str], roles: Sequence[Role]) -> list[Leaf]:
    """Return the tensors of all arguments, in the order in which the jaxpr takes them."""
    found: list[Leaf] = []
    taken: set[str] = set()
    for at, (arg, word, role) in enumerate(zip(args, words, roles, strict=True)):
        for path, given in tree_flatten_with_path(arg)[0]:
            made = leaf(at, word, path_of(path), given, role)
            if made.value.name in taken:
                raise UnknownNameError(
                    f"two tensors of the arguments are called {made.value.name!r}: give names= that keep them apart"
                )
            taken.add(made.value.name)
            found.append(made)
    return found


def _traced(fn: Callable[..., Any], args: Sequence[Any], called: str) -> tuple[Any, Any]:
    """Return the jaxpr of a function, and the tree of what it returns."""
    specs = jax.tree_util.tree_map(_spec, tuple(args))
    try:
        return jax.make_jaxpr(fn, return_shape=True)(*specs)  # type: ignore[no-any-return]
    except Exception as error:
        told = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise UnsupportedNodeError(
            f"function {called!r} cannot be traced at these arguments: {type(error).__name__}: {told}"
        ) from error


def _spec(given: Any) -> Any:
    """Return the shape and dtype of an argument; a number stays, whose dtype gives way to others."""
    if is_key(given) or not hasattr(given, "shape") or not hasattr(given, "dtype"):
        return given
    return jax.ShapeDtypeStruct(given.shape, jax.dtypes.canonicalize_dtype(given.dtype))
