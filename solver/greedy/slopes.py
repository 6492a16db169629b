"""Which tensor each gradient in a graph is the gradient of, as far as the ops tell."""

from __future__ import annotations

from collections import defaultdict

from solver.graph import Graph, Node

ADDING = frozenset({"add", "add_n"})
"""Ops that add up the gradients of a tensor of several uses."""
LINEAR = frozenset({"scale", "cast", "transpose", "reshape", "assign"})
"""Ops whose gradient may be written as the op itself."""


def slopes(graph: Graph) -> dict[str, str]:
    """Return the tensor whose gradient each gradient of a graph is.

    The backward pass names no forward op. One is found by what it shares with a grad op: the operands and results that
    the grad op reads, or the result whose gradient it takes.

    Parameters
    ----------
    graph : Graph

    Returns
    -------
    dict
        Gradient -> tensor. A gradient whose op cannot be told is not there.
    """
    found = dict(graph.gradients)
    readers: defaultdict[tuple[str, str], list[Node]] = defaultdict(list)
    for node in graph.nodes.values():
        if not node.op.endswith("_grad"):
            for use in graph.operand_uses(node.name):
                readers[node.op, use.tensor].append(node)
    for node in graph.nodes.values():
        uses = {use.operand: use.tensor for use in graph.operand_uses(node.name)}
        of = {found.get(tensor) for tensor in uses.values()}
        if node.op in ADDING and len(of) == 1 and (tensor := of.pop()):
            found.setdefault(node.results[0], tensor)
        elif node.op.endswith("_grad"):
            forward = _forward(graph, node, uses, found, readers)
            if forward is not None:
                found |= _of_results(graph, node, forward) | found
        elif node.op in LINEAR and len(of) == 1 and (tensor := of.pop()):
            maker = graph.nodes.get(graph.tensors[tensor].producer or "")
            if maker is not None and maker.op == node.op:
                found.setdefault(node.results[0], graph.operand_uses(maker.name)[0].tensor)
    return found


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
