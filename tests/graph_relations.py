"""What a random graph says beyond its ops: ties, gradients, and ops that repeat others (`tests.graphs`)."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from hypothesis import strategies as st

from solver.graph import Graph, GraphError, Tensor
from solver.graph_ties import STORED
from solver.mesh import Mesh
from solver.problem import ProblemError, problem


def draw_repeats(draw: Any, graph: Graph) -> None:
    """Let ops repeat earlier equal ones, as chance wants it."""
    names = list(graph.nodes)
    for index, node in enumerate(names):
        for of in names[:index]:
            if graph.nodes[of].op == graph.nodes[node].op and node not in graph.repeats and draw(st.booleans()):
                with suppress(GraphError):
                    graph.repeat(node, of)
    try:
        problem(graph, Mesh({"one": 1}))
    except ProblemError:
        graph.repeats.clear()


def draw_ties(draw: Any, graph: Graph) -> None:
    """Tie sources and outputs to sources of their shapes, and mark gradients, as chance wants it."""
    tensors = list(graph.tensors.values())
    for follower in tensors:
        leaders = [one for one in tensors if one.role in STORED and one is not follower and one.shape == follower.shape]
        leaders = [one for one in leaders if not follows(graph, one, follower)]
        may = follower.role != "constant" and (follower.role != "result" or follower.name in graph.outputs)
        if may and leaders and draw(st.integers(0, 3)):
            graph.tie(follower, draw(st.sampled_from(leaders)))
    for parameter in tensors:
        made = [one for one in tensors if one.role == "result" and one.shape == parameter.shape]
        made = [one for one in made if one.name not in graph.gradients]
        if parameter.role == "parameter" and made and draw(st.booleans()):
            graph.gradient(draw(st.sampled_from(made)), parameter)


def follows(graph: Graph, one: Tensor, other: Tensor) -> bool:
    """Whether a source follows another one in the end."""
    name = one.name
    while name in graph.ties and name != other.name:
        name = graph.ties[name]
    return name == other.name
