"""Shardy: factors propagate through the graph in both directions, by priority, to a fixed point; then reshards.

Source: OpenXLA Shardy's documentation of its propagation and of `OpShardingRule`: element-wise ops first, then ops that
keep their dims, then all others; a conflict goes to the larger tensor; what is pinned is closed. Where layouts still
differ, explicit reshards bring operands to an op and its results to their own layouts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ops.bind import BoundRule, Row
from ops.placement import Layout, Partial, Placement, Replicate, Shard
from solver.graph import Node, flat
from solver.greedy.read_back import read_back
from solver.greedy.walk import StuckError
from solver.plan import Plan
from solver.problem import Problem


def shardy(problem: Problem) -> Plan:
    """Plan as Shardy propagates.

    Parameters
    ----------
    problem : Problem

    Returns
    -------
    Plan
        Status ``feasible``, without a bound.

    Raises
    ------
    StuckError
        Where no row of an op lies between the layouts of its operands and results.
    """
    return read_back(problem, _Propagation(problem).run())


class _Propagation:
    """Placements per tensor and mesh axis; None where nothing is said yet."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        axes = len(problem.mesh.sizes)
        self.placed: dict[str, list[Placement | None]] = {tensor: [None] * axes for tensor in problem.graph.tensors}
        for tensor, placed in self.placed.items():
            if problem.graph.tensors[tensor].role == "constant":
                placed[:] = [Replicate()] * axes
            for pin in problem.pins_on.get(tensor, ()):
                placed[pin.axis] = pin.placement

    def run(self) -> dict[str, Layout]:
        """Propagate to a fixed point; return a layout for every tensor, whole where nothing came."""
        nodes = list(self.problem.graph.nodes.values())
        ranks = {node.name: self._rank(node) for node in nodes}
        for priority in range(3):
            now = [node for node in nodes if ranks[node.name] <= priority]
            while any([self._through(node) for node in now] + [self._through(node) for node in reversed(now)]):
                pass
        return {tensor: self._layout(tensor, placed) for tensor, placed in self.placed.items()}

    def _layout(self, tensor: str, placed: Sequence[Placement | None]) -> Layout:
        whole = tuple(Replicate() if one is None or isinstance(one, Partial) else one for one in placed)
        if whole not in self.problem.written(tensor):
            raise StuckError(f"{tensor!r} cannot lie as it is pinned")
        return self.problem.canonical(tensor, whole)

    def _rank(self, node: Node) -> int:
        """Return 0 for an element-wise op, 1 for one that keeps the dims of its operands, 2 for any other."""
        bound = self.problem.bound[node.name]
        slots = [slot for slot in (*bound.operands, *bound.results) if slot is not None]
        if all(factor.kind == "pass" for factor in bound.factors.values()) and len({slot.dims for slot in slots}) == 1:
            return 0
        return 1 if len({slot.dims for slot in (slots[0], *bound.results)}) == 1 else 2

    def _through(self, node: Node) -> bool:
        """Carry what the tensors of an op have to its other tensors; tell whether anything came of it."""
        bound, names = self.problem.bound[node.name], [*flat(node.operands), *node.results]
        changed = False
        for axis, size in enumerate(self.problem.mesh.sizes):
            row = self._row(bound, names, axis) if size > 1 else None
            for name, wanted in zip(names, (*row.operands, *row.results) if row else (), strict=bool(row)):
                if name is not None and isinstance(wanted, Shard) and self._goes(name, axis, wanted):
                    self.placed[name][axis] = wanted
                    changed = True
        return changed

    def _row(self, bound: BoundRule, names: Sequence[str | None], axis: int) -> Row | None:
        """Return the row that the largest of the tensors that are cut on a mesh axis asks for."""
        asked = [
            (self.problem.graph.tensors[name].bytes, -index, row)
            for index, name in enumerate(names)
            if name is not None and isinstance(self.placed[name][axis], Shard)
            for row in _rows_with(bound, index, self.placed[name][axis])
        ]
        return max(asked, key=lambda one: one[:2])[2] if asked else None

    def _goes(self, tensor: str, axis: int, wanted: Shard) -> bool:
        placed = self.placed[tensor]
        if placed[axis] is not None:
            return False
        tried = [Replicate() if one is None else one for one in placed]
        tried[axis] = wanted
        return tuple(tried) in self.problem.written(tensor)


def _rows_with(bound: BoundRule, slot: int, placement: Placement | None) -> Iterator[Row]:
    """Yield the rows that cut a slot so and need no partial operand; the first alone, as a factor has one."""
    for row in bound.rows:
        placed = (*row.operands, *row.results)
        if placed[slot] == placement and not any(isinstance(one, Partial) for one in row.operands):
            yield row
            return
