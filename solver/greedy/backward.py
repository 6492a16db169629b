"""Which tensor each gradient in a graph is the gradient of, and which op each grad op differentiates."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from solver.graph import Graph, Node

ADDING = frozenset({"add", "add_n"})
"""Ops that add up the gradients of a tensor of several uses."""
LINEAR = frozenset({"scale", "cast", "transpose", "reshape", "assign"})
"""Ops whose gradient may be written as the op itself."""


@dataclass(frozen=True)
class Backward:
    """The backward pass of a graph, as far as its ops tell.

    Parameters
    ----------
    slopes : dict
        Gradient -> the tensor whose gradient it is. A gradient whose op cannot be told is not there.
    forward : dict
        Grad op -> the op that it differentiates.
    nodes : frozenset of str
        The ops of the backward pass and of what follows it: grad ops, and all that reads what those make.
    """

    slopes: dict[str, str]
    forward: dict[str, str]
    nodes: frozenset[str]


def backward(graph: Graph) -> Backward:
    """Find the backward pass of a graph.

    It names no forward op. One is found by what it shares with a grad op: the operands and results that the grad op
    reads, or the result whose gradient it takes.

    Parameters
    ----------
    graph : Graph

    Returns
    -------
    Backward
    """
    found, forwards = dict(graph.gradients), {}
    readers: defaultdict[tuple[str, str], list[Node]] = defaultdict(list)
    for node in graph.nodes.values():
        if not node.op.endswith("_grad"):
            for use in graph.operand_uses(node.name):
                readers[node.op, use.tensor].append(node)
    late: set[str] = set()
    for node in graph.nodes.values():
        uses = {use.operand: use.tensor for use in graph.operand_uses(node.name)}
        if node.op.endswith("_grad") or any(graph.tensors[tensor].producer in late for tensor in uses.values()):
            late.add(node.name)
        of = {found.get(tensor) for tensor in uses.values()}
        if node.op in ADDING and len(of) == 1 and (tensor := of.pop()):
            found.setdefault(node.results[0], tensor)
        elif node.op.endswith("_grad"):
            forward = _forward(graph, node, uses, found, readers)
            if forward is not None:
                forwards[node.name] = forward.name
                found |= _of_results(graph, node, forward) | found
        elif node.op in LINEAR and len(of) == 1 and (tensor := of.pop()):
            maker = graph.nodes.get(graph.tensors[tensor].producer or "")
            if maker is not None and maker.op == node.op:
                found.setdefault(node.results[0], graph.operand_uses(maker.name)[0].tensor)
    return Backward(found, forwards, frozenset(late))


def _forward(
    graph: Graph,
    node: Node,
    uses: dict[str, str],
    found: dict[str, str],
    readers: dict[tuple[str, str], list[Node]],
) -> Node | None:
    """Return the op that a grad op differentiates."""
    base = node.op.removesuffix("_grad")
    for operand, tensor in uses.items():
        whole = found.get(tensor) if operand.endswith("_grad") else tensor
        maker = graph.nodes.get(graph.tensors[whole].producer or "") if whole else None
        if maker is not None and maker.op == base and _fits(graph, maker, uses):
            return maker
    for operand, tensor in uses.items():
        for reader in () if operand.endswith("_grad") else readers[base, tensor]:
            if _fits(graph, reader, uses):
                return reader
    return None


def _fits(graph: Graph, forward: Node, uses: dict[str, str]) -> bool:
    """Tell whether what both ops name is the same."""
    named = {use.operand: use.tensor for use in graph.operand_uses(forward.name)}
    named |= dict(zip((slot.name for slot in graph.bind(forward.name).results), forward.results, strict=True))
    return all(uses[name] == tensor for name, tensor in named.items() if name in uses)


def _of_results(graph: Graph, node: Node, forward: Node) -> dict[str, str]:
    named = {f"{use.operand}_grad": use.tensor for use in graph.operand_uses(forward.name)}
    slots = [slot.name for slot in graph.bind(node.name).results]
    return {made: named[slot] for slot, made in zip(slots, node.results, strict=True) if slot in named}
