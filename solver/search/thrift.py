"""Among plans of one price, one that stores less."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from solver.choice_tables import block_bytes
from solver.search.build import Built
from solver.search.network import INF, Edge, IntArray


def thriftier(built: Built, assignment: tuple[int, ...]) -> tuple[int, ...]:
    """Let each variable, the last first, take the least bytes among the values that cost the plan as little.

    Without this a search that finds a free slice leaves everything before it replicated.

    Parameters
    ----------
    built : Built
    assignment : tuple of int
        An allowed one.

    Returns
    -------
    tuple of int
        Of the same price. Nothing of the proof hangs on it.
    """
    return _Thrift(built, assignment).result()


class _Thrift:
    def __init__(self, built: Built, assignment: tuple[int, ...]) -> None:
        self.built, self.chosen = built, list(assignment)
        self.out: dict[int, list[Edge]] = defaultdict(list)
        self.into: dict[int, list[Edge]] = defaultdict(list)
        for edge in built.network.edges:
            self.out[edge.tail].append(edge)
            self.into[edge.head].append(edge)
        self._known: dict[tuple[object, ...], IntArray] = {}

    def result(self) -> tuple[int, ...]:
        """Go once from the last variable to the first: what a use reads decides what its producer may make."""
        for i in reversed(range(len(self.chosen))):
            ties = self._ties(i)
            if len(ties) > 1:
                stored = self._stored(i, ties)
                if stored.min() < stored[ties == self.chosen[i]][0]:
                    self.chosen[i] = int(ties[stored.argmin()])
        return tuple(self.chosen)

    def _ties(self, i: int) -> IntArray:
        """Return the values that cost what the chosen one does; variables with equal edges share them."""
        chosen = self.chosen
        out = [(id(e.table), id(e.tail_index), int(e.head_index[chosen[e.head]])) for e in self.out[i]]
        into = [(id(e.table), id(e.head_index), *e.tail_index[chosen[e.tail]].tolist()) for e in self.into[i]]
        key = id(self.built.network.variables[i].cost), chosen[i], tuple(out), tuple(into)
        if key not in self._known:
            prices = self._prices(i)
            self._known[key] = np.flatnonzero(prices == prices[chosen[i]])
        return self._known[key]

    def _prices(self, i: int) -> IntArray:
        """Return what each value of a variable costs beside what the others have chosen."""
        total = self.built.network.variables[i].cost.copy()
        for edge in self.out[i]:
            column = edge.table[:, edge.head_index[self.chosen[edge.head]]]
            total = np.minimum(INF, total + column[edge.tail_index].min(axis=1))
        for edge in self.into[i]:
            row = edge.table[edge.tail_index[self.chosen[edge.tail]]].min(axis=0)
            total = np.minimum(INF, total + row[edge.head_index])
        return total

    def _stored(self, i: int, values: IntArray) -> IntArray:
        """Return the local bytes of what values make, need or hold."""
        built, name = self.built, self.built.network.variables[i].name
        if built.network.variables[i].kind == "tensor":
            pairs, bytes_of = built.pairs[name], block_bytes(built.problem, name)
            made, held = pairs.made[values], pairs.held[values]
            return bytes_of[made] + np.where(made == held, 0, bytes_of[held])
        joint, rows = built.joint[name], built.kept[name][values]
        total = np.zeros(len(values), np.int64)
        for use in built.problem.graph.operand_uses(name):
            total += block_bytes(built.problem, use.tensor)[joint.operands[use.slot][rows]]
        for slot, tensor in enumerate(built.problem.graph.nodes[name].results):
            total += block_bytes(built.problem, tensor)[joint.results[slot][rows]]
        return total
