"""The same network with one size rounded up, so that a mesh axis divides it."""

from __future__ import annotations

from math import prod
from typing import Any

from ops.bind import BoundTensor
from solver.graph import Graph, GraphError
from solver.graph_values import OperandNames, flat

Cell = tuple[str, int]
"""One dim of one tensor."""


def padded(graph: Graph, tensor: str, dim: int, size: int) -> Graph | None:
    """Return a graph in which a dim, and every dim that must be as large, has another size.

    Parameters
    ----------
    graph : Graph
    tensor : str
    dim : int
    size : int

    Returns
    -------
    Graph or None
        None where the size is fixed by something else: known values, or an attribute that is no shape.

    Examples
    --------
    >>> g = Graph("mlp")
    >>> x = g.input("x", (8, 5))
    >>> g.output(g.op("matmul", x, g.parameter("w", (5, 4)), name="y"))
    >>> [str(t) for t in padded(g, "x", 1, 8).tensors.values()]
    ['x float32[8, 8]', 'w float32[8, 4]', 'y float32[8, 4]']
    """
    sizes = _sizes(graph, (tensor, dim), size)
    if sizes is None:
        return None
    shapes = {
        name: tuple(sizes.get((name, d), old) for d, old in enumerate(fact.shape))
        for name, fact in graph.tensors.items()
    }
    if any(fact.role == "constant" and shapes[name] != fact.shape for name, fact in graph.tensors.items()):
        return None
    try:
        made = _rebuilt(graph, shapes)
    except GraphError:
        return None
    return made if all(made.tensors[name].shape == shape for name, shape in shapes.items()) else None


def needs_a_mask(graph: Graph, tensor: str, dim: int) -> list[str]:
    """Return the ops along a dim of which zeros are not nothing: what is padded has to be masked there."""
    alike = _sizes(graph, (tensor, dim), graph.tensors[tensor].shape[dim] + 1) or {}
    return [
        node
        for node in graph.nodes
        if any(
            graph.bind(node).factors[name].kind not in ("pass", "sum") and not alike.keys().isdisjoint(cells)
            for name, cells in _cells(graph, node).items()
        )
    ]


def first_dim(graph: Graph, node: str, factor: str) -> Cell | None:
    """Return the first dim, as (tensor, dim), that holds a factor of an op alone; None where there is none."""
    cells = _cells(graph, node).get(factor)
    return cells[0] if cells else None


def _sizes(graph: Graph, first: Cell, size: int) -> dict[Cell, int] | None:
    """Return the new sizes of the dims that change with one: by the factors of ops, by ties; None where they disagree.

    A dim made of several factors has the size of their product.
    """
    found = {first: size}
    before = 0
    while len(found) > before:
        before = len(found)
        for node in graph.nodes:
            factors = {
                name: found[cell] for name, cells in _cells(graph, node).items() for cell in cells if cell in found
            }
            for tensor, slot in _slots(graph, node) if factors else ():
                for d, names in enumerate(slot.dims):
                    if not factors.keys().isdisjoint(names):
                        every = graph.bind(node).factors
                        product = prod(factors.get(name, every[name].size) for name in names)
                        if found.setdefault((tensor, d), product) != product:
                            return None
        for follower, leader in graph.ties.items():
            for d in range(len(graph.tensors[leader].shape)):
                for one, other in (((follower, d), (leader, d)), ((leader, d), (follower, d))):
                    if one in found and found.setdefault(other, found[one]) != found[one]:
                        return None
    return found


def _slots(graph: Graph, node: str) -> list[tuple[str, BoundTensor]]:
    bound = graph.bind(node)
    placed = [(use.tensor, bound.operands[use.slot]) for use in graph.operand_uses(node)]
    placed += list(zip(graph.nodes[node].results, bound.results, strict=True))
    return [(tensor, slot) for tensor, slot in placed if slot is not None]


def _cells(graph: Graph, node: str) -> dict[str, list[Cell]]:
    """Return per factor of an op the dims that hold it alone."""
    found: dict[str, list[Cell]] = {}
    for tensor, slot in _slots(graph, node):
        for d, names in enumerate(slot.dims):
            if len(names) == 1:
                found.setdefault(names[0], []).append((tensor, d))
    return found


def _rebuilt(graph: Graph, shapes: dict[str, tuple[int, ...]]) -> Graph:
    made = Graph(graph.name)
    for name, fact in graph.tensors.items():
        if fact.role == "constant":
            made.constant(name, fact.value, fact.dtype)
        elif fact.producer is None:
            getattr(made, fact.role)(name, shapes[name], fact.dtype)
        elif fact.producer not in made.nodes:
            node = graph.nodes[fact.producer]
            attrs = dict(node.attrs)
            if "shape" in attrs and len(node.results) == 1:
                attrs["shape"] = list(shapes[name])
            if "forward_shapes" in attrs:
                attrs["forward_shapes"] = _forward_shapes(graph, node.operands, attrs["forward_shapes"], shapes)
            operands = [_named(made, operand) for operand in node.operands]
            made.op(node.op, *operands, name=node.name, module=node.module, **attrs)
    made.output(*(made.tensors[name] for name in graph.outputs))
    for follower, leader in graph.ties.items():
        made.tie(made.tensors[follower], made.tensors[leader])
    for gradient, parameter in graph.gradients.items():
        made.gradient(made.tensors[gradient], made.tensors[parameter])
    for one, of in graph.repeats.items():
        made.repeat(one, of)
    made.notes.extend(graph.notes)
    return made


def _named(graph: Graph, operand: OperandNames) -> Any:
    if isinstance(operand, tuple):
        return [graph.tensors[name] for name in operand]
    return None if operand is None else graph.tensors[operand]


def _forward_shapes(
    graph: Graph, operands: tuple[OperandNames, ...], stated: Any, shapes: dict[str, tuple[int, ...]]
) -> Any:
    """Return the shapes of a forward op's operands, where these can be told from those that its grad op reads."""
    new = {graph.tensors[name].shape: shapes[name] for name in flat(operands) if name is not None}
    return tuple((name, new.get(tuple(shape), shape)) for name, shape in stated)
