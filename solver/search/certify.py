"""From the tree of a search to a certificate that names ops, tensors and layouts only (docs/certificate.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from solver.search.bound import Messages
from solver.search.build import Built
from solver.search.flat import SCALE_BITS
from solver.search.network import Edge
from solver.search.tree import Block, Narrowed, Split, Tree, parts


def certificate(built: Built, tree: Tree, bits: int = SCALE_BITS) -> dict[str, Any]:
    """Write a branch tree as plain JSON values.

    Parameters
    ----------
    built : Built
    tree : Tree
    bits : int, optional
        The messages of the tree are integers in units of ``2**-bits`` ps.

    Returns
    -------
    dict
        ``bits``: messages are integers in units of ``2**-bits`` ps; ``arrays``: each message vector once, over the
        layouts of its tensor in order; ``tree``.
    """
    writer = _Writer(built)
    written = writer.tree(tree, built.network.edges)
    return {"bits": bits, "arrays": writer.arrays, "tree": written}


class _Writer:
    def __init__(self, built: Built) -> None:
        self.built = built
        self.arrays: list[list[int]] = []
        self._known: dict[bytes, int] = {}

    def tree(self, tree: Tree, edges: Sequence[Edge]) -> dict[str, Any]:
        """Write a tree whose messages are those of some edges; children before parents, without recursion."""
        done: dict[int, dict[str, Any]] = {}
        for node in reversed(list(parts(tree))):
            if isinstance(node, Split):
                done[id(node)] = self._split(node, done[id(node.left)], done[id(node.right)])
            elif isinstance(node, Narrowed):
                proof = self._proof(node.messages, node.blocks, edges)
                done[id(node)] = {**proof, "within": node.within, "rest": done[id(node.rest)]}
            elif node.messages is None:
                done[id(node)] = {"infeasible": True}
            else:
                done[id(node)] = self._proof(node.messages, node.blocks, edges)
        return done[id(tree)]

    def _proof(self, messages: Messages, blocks: Sequence[Block], edges: Sequence[Edge]) -> dict[str, Any]:
        """Write the vectors of edges, and blocks where there are some."""
        vectors = {
            edge.name: [self._array(vector) for vector in (pair[::-1] if self._turned(edge) else pair)]
            for edge, pair in zip(edges, messages, strict=True)
        }
        return (
            {"messages": vectors, "blocks": [self._block(block) for block in blocks]}
            if blocks
            else {"messages": vectors}
        )

    def _block(self, block: Block) -> dict[str, Any]:
        network = self.built.network
        variables = [network.variables[i] for i in block.variables]
        tree = self.tree(block.tree, [network.edges[e] for e in block.edges])
        return {"variables": [[variable.kind, variable.name] for variable in variables], "tree": tree}

    def _turned(self, edge: Edge) -> bool:
        """Tell whether an edge is a tie whose follower comes first: a certificate names the leader first."""
        kind, _, follower = edge.name.partition(":")
        tail = self.built.network.variables[edge.tail]
        return kind == "tie" and (tail.kind, tail.name) == ("tensor", follower)

    def _split(self, split: Split, left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
        variable = self.built.network.variables[split.variable]
        if variable.kind == "op":
            rows = self.built.joint[variable.name].rows[self.built.kept[variable.name][split.left_values]]
            values = [[int(row) for row in joint] for joint in rows]
        else:
            pairs = self.built.pairs[variable.name]
            spells = self.built.spells.get(variable.name, ())
            parts = [part for part in (pairs.made, pairs.held, pairs.left, *spells) if part is not None]
            values = [[int(part[value]) for part in parts] for value in split.left_values]
        return {variable.kind: variable.name, "left_values": values, "left": left, "right": right}

    def _array(self, array: np.ndarray) -> int:
        key = array.tobytes()
        if key not in self._known:
            self._known[key] = len(self.arrays)
            self.arrays.append(array.tolist())
        return self._known[key]
