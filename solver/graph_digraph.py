"""A graph as networkx holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import networkx as nx

if TYPE_CHECKING:
    from solver.graph import Graph


def digraph_of(graph: Graph) -> nx.MultiDiGraph:
    """Return the ops and tensors of a graph as nodes, in program order, and what is read and made as edges.

    Parameters
    ----------
    graph : Graph

    Returns
    -------
    networkx.MultiDiGraph
        See `Graph.digraph`.
    """
    found = nx.MultiDiGraph(name=graph.name)
    for tensor in graph.tensors.values():
        if tensor.producer is not None and tensor.slot == 0:
            _add_op(found, graph, tensor.producer)
        found.add_node(("tensor", tensor.name), payload=tensor)
        if tensor.producer is not None:
            found.add_edge(("op", tensor.producer), ("tensor", tensor.name), key=tensor.slot, payload=tensor.slot)
    return found


def _add_op(found: nx.MultiDiGraph, graph: Graph, name: str) -> None:
    found.add_node(("op", name), payload=graph.nodes[name])
    for use in graph.operand_uses(name):
        found.add_edge(("tensor", use.tensor), ("op", name), key=use.slot, payload=use)
