"""A second graph that begins as the first."""

from __future__ import annotations

from collections.abc import Iterable

from solver.graph import Graph, Tensor
from solver.graph_values import OperandNames


def copy_of(graph: Graph, outputs: Iterable[str] | None = None) -> Graph:
    """Return a graph with the same tensors, ops, outputs, ties, gradients and notes, to be built on.

    Parameters
    ----------
    graph : Graph
        Stays as it is.
    outputs : iterable of str, optional
        Those that the copy keeps; by default all. The tie of an output that is none any more goes with it.

    Returns
    -------
    Graph

    Examples
    --------
    >>> g = Graph("one")
    >>> g.output(g.op("relu", g.input("x", (4,)), name="y"))
    >>> longer = copy_of(g, outputs=())
    >>> longer.output(longer.op("exp", longer.tensors["y"], name="z"))
    >>> g.outputs, longer.outputs
    (['y'], ['z'])
    """
    made = Graph(graph.name)
    for tensor in graph.tensors.values():
        if tensor.producer is None:
            _add_source(made, tensor)
        elif tensor.slot == 0:
            node = graph.nodes[tensor.producer]
            operands = [_operand(made, names) for names in node.operands]
            made.op(node.op, *operands, name=node.name, module=node.module, **node.attrs)
    kept = graph.outputs if outputs is None else list(outputs)
    made.output(*(made.tensors[name] for name in kept))
    for follower, leader in graph.ties.items():
        if graph.tensors[follower].producer is None or follower in kept:
            made.tie(made.tensors[follower], made.tensors[leader])
    for gradient, parameter in graph.gradients.items():
        made.gradient(made.tensors[gradient], of=made.tensors[parameter])
    made.notes.extend(graph.notes)
    return made


def _add_source(graph: Graph, tensor: Tensor) -> None:
    if tensor.value is not None:
        graph.constant(tensor.name, tensor.value, dtype=tensor.dtype)
    else:
        add = {"input": graph.input, "parameter": graph.parameter, "state": graph.state}[tensor.role]
        add(tensor.name, tensor.shape, tensor.dtype)


def _operand(graph: Graph, names: OperandNames) -> Tensor | list[Tensor] | None:
    """Return the tensors of an operand in the copy: one, a list (variadic), or None (absent)."""
    if names is None:
        return None
    return graph.tensors[names] if isinstance(names, str) else [graph.tensors[name] for name in names]
