"""What may be tied to what, what may be the gradient of what, and which op may repeat which."""

from __future__ import annotations

from typing import TYPE_CHECKING

from solver.graph_values import GraphError

if TYPE_CHECKING:
    from solver.graph import Graph

STORED = ("input", "parameter", "state")
"""The roles of tensors whose storage a plan chooses."""


def check_tie(graph: Graph, follower: str, leader: str) -> None:
    """Hold a new tie against the graph.

    Raises
    ------
    GraphError
        For a tie that cannot be.
    """
    where, tensors = f"tie of {follower!r} to {leader!r}", graph.tensors
    if tensors[leader].role not in STORED:
        raise GraphError(
            f"{where}: {leader!r} is a {tensors[leader].role}, and a leader is an input, parameter or state, "
            "whose storage the follower takes"
        )
    if tensors[follower].shape != tensors[leader].shape:
        raise GraphError(f"{where}: {tensors[follower]} and {tensors[leader]} differ in shape, and tied tensors agree")
    if tensors[follower].role == "constant":
        raise GraphError(f"{where}: {follower!r} is a constant, which every device stores whole; leave the tie out")
    if tensors[follower].role == "result" and not graph.is_output(follower):
        raise GraphError(
            f"{where}: {follower!r} is neither an input, parameter or state nor an output of graph {graph.name!r}; "
            f"call output({follower}) first, or tie what leaves the graph"
        )
    if follower in graph.ties:
        raise GraphError(f"{where}: {follower!r} is tied to {graph.ties[follower]!r} already, and follows only one")
    chain = [leader]
    while chain[-1] in graph.ties:
        chain.append(graph.ties[chain[-1]])
    if follower in chain:
        told = " -> ".join(map(repr, [follower, *chain[: chain.index(follower) + 1]]))
        raise GraphError(f"{where}: the ties would go round in a circle, {told}; leave one of them out")


def check_gradient(graph: Graph, tensor: str, parameter: str) -> None:
    """Hold a new gradient against the graph.

    Raises
    ------
    GraphError
        For a gradient that cannot be.
    """
    where, tensors = f"gradient {tensor!r} of {parameter!r}", graph.tensors
    if tensors[tensor].role != "result":
        raise GraphError(f"{where}: {tensor!r} is no result: a gradient is what an op makes")
    if tensors[parameter].role != "parameter":
        raise GraphError(
            f"{where}: {parameter!r} is a {tensors[parameter].role}; mark gradients of parameters only, "
            "since these are what a step reduces in buckets"
        )
    if tensors[tensor].shape != tensors[parameter].shape:
        raise GraphError(f"{where}: {tensors[tensor]} and {tensors[parameter]} differ in shape")
    if tensor in graph.gradients:
        raise GraphError(f"{where}: {tensor!r} is the gradient of {graph.gradients[tensor]!r} already")
    if parameter in graph.gradients.values():
        taken = next(other for other, of in graph.gradients.items() if of == parameter)
        raise GraphError(
            f"{where}: {parameter!r} has the gradient {taken!r} already; "
            "where it is used in several places, add their gradients first"
        )


def check_repeat(graph: Graph, node: str, of: str) -> None:
    """Hold a new repeat against the graph.

    Raises
    ------
    GraphError
        For a repeat that cannot be.
    """
    where = f"repeat of {of!r} by {node!r}"
    for name in (node, of):
        if name not in graph.nodes:
            raise GraphError(f"{where}: graph {graph.name!r} has no op {name!r}")
    if node in graph.repeats:
        raise GraphError(f"{where}: {node!r} repeats {graph.repeats[node]!r} already, and repeats only one")
    chain = [of]
    while chain[-1] in graph.repeats:
        chain.append(graph.repeats[chain[-1]])
    if node in chain:
        told = " -> ".join(map(repr, [node, *chain[: chain.index(node) + 1]]))
        raise GraphError(f"{where}: the repeats would go round in a circle, {told}; leave one of them out")
    one, other = graph.nodes[node], graph.nodes[of]
    if one.op != other.op:
        raise GraphError(f"{where}: one is {one.op} and the other {other.op}; repeated ops are of one kind")
    if _facts(graph, node) != _facts(graph, of) or graph.bind(node).rows != graph.bind(of).rows:
        raise GraphError(f"{where}: they differ in operands, shapes, dtypes or in the ways they may be cut")


def _facts(graph: Graph, node: str) -> list[tuple[object, ...]]:
    """Return what each operand and result of an op is."""
    uses = [(use.slot, use.tensor) for use in graph.operand_uses(node)]
    tensors = [*uses, *enumerate(graph.nodes[node].results)]
    return [(slot, graph.tensors[name].shape, graph.tensors[name].dtype) for slot, name in tensors]


def check_order(graph: Graph) -> None:
    """Hold the repeats of a whole graph against its order.

    Raises
    ------
    GraphError
        Where an op repeats a later one.
    """
    order = {name: index for index, name in enumerate(graph.nodes)} if graph.repeats else {}
    for node, of in graph.repeats.items():
        if order[of] > order[node]:
            raise GraphError(f"op {node!r} repeats {of!r}, which comes later: let the later one repeat the other")
