"""The joint rows of an op: one row per mesh axis, together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ops.bind import BoundRule, Row, composes, one_kind
from ops.placement import Layout, Partial, Placement
from solver.cost.compute import compute_times
from solver.cost.kernel_steps import kernel_times
from solver.deadline import OutOfTimeError, keep_time
from solver.graph import Node
from solver.problem import Problem

MOST_CHOICES = 2**21
"""With more joint rows of one op there is no room for a search."""


@dataclass(frozen=True, eq=False)
class JointRows:
    """Every choice of one op.

    Parameters
    ----------
    rows : int array, shape (choices, mesh axes)
        Indices into the rows of the bound rule.
    operands : tuple of int32 arrays
        Per present operand slot and choice, the needed layout as an index into the layouts of its tensor.
    results : tuple of int32 arrays
        The same for made layouts.
    time : int64 array
        Of each choice in picoseconds: to compute, and to send what the kernel sends itself.
    """

    rows: NDArray[np.int64]
    operands: Mapping[int, NDArray[np.int32]]
    results: tuple[NDArray[np.int32], ...]
    time: NDArray[np.int64]


class JointTable:
    """The joint rows of the ops of a problem; equal ops share one object."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._index: dict[tuple[Any, ...], dict[Layout, int]] = {}
        self._made: dict[tuple[Any, ...], JointRows] = {}

    def of(self, name: str) -> JointRows:
        """Return the joint rows of an op."""
        problem = self.problem
        node, bound = problem.graph.nodes[name], problem.bound[name]
        uses = problem.graph.operand_uses(name)
        tensors = [*(use.tensor for use in uses), *node.results]
        facts = [problem.graph.tensors[tensor] for tensor in tensors]
        key = (id(bound), node.op, tuple((fact.dtype, problem.parts(fact.name)) for fact in facts))
        if key not in self._made:
            self._made[key] = self._make(
                node, bound, {use.slot: use.tensor for use in uses}, {use.operand: use.tensor for use in uses}
            )
        return self._made[key]

    def layout_index(self, tensor: str) -> dict[Layout, int]:
        """Return the position of each layout of a tensor; tensors of equal shape and parts share it."""
        key = (self.problem.graph.tensors[tensor].shape, self.problem.parts(tensor))
        if key not in self._index:
            self._index[key] = {layout: i for i, layout in enumerate(self.problem.layouts(tensor))}
        return self._index[key]

    def _make(self, node: Node, bound: BoundRule, slots: Mapping[int, str], named: Mapping[str, str]) -> JointRows:
        problem = self.problem
        choices = np.array(joint_choices(bound, problem), np.int64).reshape(-1, len(problem.mesh.sizes))
        dtypes = {operand: problem.graph.tensors[tensor].dtype for operand, tensor in named.items()}
        operands = {
            slot: self._column(tensor, [row.operands[slot] for row in bound.rows], choices)
            for slot, tensor in slots.items()
        }
        results = tuple(
            self._column(tensor, [row.results[slot] for row in bound.rows], choices)
            for slot, tensor in enumerate(node.results)
        )
        asked = node, bound, choices, dtypes, problem.mesh
        time = compute_times(*asked) * problem.counted[1] + kernel_times(*asked, problem.tariff())
        return JointRows(choices, operands, results, time)

    def _column(self, tensor: str, placed: list[Placement | None], choices: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the layout of one tensor in each choice; equal combinations of placements are looked up once."""
        index = self.layout_index(tensor)
        labels = {p: i for i, p in enumerate(dict.fromkeys(p for p in placed if p is not None))}
        of_row = np.array([labels[p] for p in placed if p is not None], np.int64)
        written = list(labels)
        combinations, back = _distinct(of_row[choices], len(written))
        found = []
        for combination in combinations.tolist():
            keep_time()
            found.append(index[self.problem.canonical(tensor, [written[i] for i in combination])])
        return np.array(found, np.int32)[back.reshape(-1)]


def _distinct(rows: NDArray[np.int64], base: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct rows of numbers below a base, and where each row is among them."""
    if max(1, base) ** rows.shape[1] >= 2**62:
        combinations, back = np.unique(rows, axis=0, return_inverse=True)
        return combinations, back
    weights = np.array([base**axis for axis in range(rows.shape[1])], np.int64)
    numbers, back = np.unique(rows @ weights, return_inverse=True)
    return numbers[:, None] // np.maximum(1, weights) % max(1, base), back


def joint_choices(bound: BoundRule, problem: Problem) -> list[tuple[int, ...]]:
    """Enumerate the rows that compose (laws 7 and 8), mesh axis by mesh axis; mesh axes of size 1 take row 0."""
    sizes, offered = problem.mesh.sizes, problem.offered(bound)
    agree = _agreeing(bound, offered)
    divides: dict[tuple[int, ...], bool] = {}

    def goes(prefix: tuple[int, ...], row: int) -> bool:
        if not agree[row].issuperset(prefix):
            return False
        cut = bound.rows[row].cut
        if cut is None:
            return True
        same = [k if (other := bound.rows[k].cut) and other[0] == cut[0] else -1 for k in (*prefix, row)]
        key = tuple(same)
        if key not in divides:
            rows = [Row((), (), "", cut=bound.rows[k].cut if k >= 0 else None) for k in same]
            divides[key] = composes(bound, rows, sizes[: len(same)])
        return divides[key]

    prefixes: list[tuple[int, ...]] = [()]
    for axis in range(len(sizes)):
        rows = problem.offered_on(bound, axis)
        longer = []
        for prefix in prefixes:
            keep_time()
            longer += [(*prefix, row) for row in rows if goes(prefix, row)]
            if len(longer) > MOST_CHOICES:
                raise OutOfTimeError("too many joint rows to choose from")
        prefixes = longer
    return prefixes


def _agreeing(bound: BoundRule, offered: Sequence[int]) -> dict[int, set[int]]:
    """Return for each row those that give no tensor another partial kind than it does."""
    placed = {k: bound.rows[k].operands + bound.rows[k].results for k in offered}
    kinds = {k: {p.kind for p in column if isinstance(p, Partial)} for k, column in placed.items()}
    return {
        a: {
            b
            for b in offered
            if not kinds[a] or not kinds[b] or all(one_kind(pair) for pair in zip(placed[a], placed[b], strict=True))
        }
        for a in offered
    }
