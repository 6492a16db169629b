"""What may be tied to what, and what may be the gradient of what."""

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
    if tensors[follower].role == "result" and follower not in graph.outputs:
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
