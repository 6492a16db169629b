"""Z3 on one op: the rows, one per mesh axis, that are nearest to given layouts."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from ops.bind import composes
from ops.placement import Layout, Placement
from solver.constraints.check import Checker
from solver.constraints.op_rules import OpRules
from solver.constraints.variables import FALSE, Clauses, Literal, negation
from solver.layout import legal
from solver.problem import Problem

Rows: TypeAlias = tuple[int, ...]
"""One row of the op per mesh axis."""
Weights: TypeAlias = Mapping[int, Mapping[Layout, int]]
"""What each layout of some slots weighs."""
WHOLE = 2**20
"""Sums beyond this reach Z3 as parts of it, rounded down, so that `unsat` stays true; an answer is weighed anew."""


class OneOp:
    """The constraints of the only op of a problem, held by Z3.

    Parameters
    ----------
    problem : Problem
        A graph of one op.

    Attributes
    ----------
    tensors : dict
        Slot -> tensor: the present operands by their slot, then the results, counted on from all operand slots.
    """

    def __init__(self, problem: Problem) -> None:
        ((self._node, node),) = problem.graph.nodes.items()
        self.problem, self.bound = problem, problem.bound[self._node]
        self.tensors = {use.slot: use.tensor for use in problem.graph.operand_uses(self._node)}
        self.tensors |= dict(enumerate(node.results, len(self.bound.operands)))
        self._placed = [row.operands + row.results for row in self.bound.rows]
        self._clauses = Clauses()
        OpRules(self._clauses, problem, False).add(self._node, [])
        self._clauses.always()
        self._lies = {slot: self._layouts(slot, tensor) for slot, tensor in self.tensors.items()}
        rows = range(len(self.bound.rows))
        self._offered = [[k for k in rows if self._row(axis, k) != FALSE] for axis in range(len(problem.mesh.sizes))]
        self._checker = Checker(self._clauses)
        self._known: dict[Rows, bool] = {}
        self._lock = threading.Lock()

    def layout(self, slot: int, rows: Rows) -> Layout:
        """Return the layout, in canonical form, that rows give to a slot."""
        placed = (self._placed[k][slot] for k in rows)
        return self.problem.canonical(self.tensors[slot], [p for p in placed if p is not None])

    def nearest(self, criteria: Sequence[Weights]) -> Rows:
        """Find the rows that weigh least: by the first criterion, then by the next, then the first in row order.

        Parameters
        ----------
        criteria : sequence of mapping
            Each gives, for some slots, what a layout weighs: a whole number of at least 0.

        Returns
        -------
        tuple of int
            One row per mesh axis. That nothing weighs less is Z3's ``unsat``.
        """
        with self._lock:
            best = self._descend(criteria)
            while (better := self._ask(criteria, best)) is not None:
                best = better
            return best

    def _descend(self, criteria: Sequence[Weights]) -> Rows:
        """Change the row of one mesh axis at a time while that helps: so Z3 mostly has to say no, once."""
        sizes = self.problem.mesh.sizes
        best: Rows = (0,) * len(sizes)
        again = True
        while again:
            again = False
            for axis in range(len(sizes)):
                for k in self._offered[axis]:
                    rows = (*best[:axis], k, *best[axis + 1 :])
                    if self._go_together(rows) and self._key(criteria, rows) < self._key(criteria, best):
                        best, again = rows, True
        return best

    def _go_together(self, rows: Rows) -> bool:
        if rows not in self._known:
            self._known[rows] = composes(self.bound, [self.bound.rows[k] for k in rows], self.problem.mesh.sizes)
        return self._known[rows]

    def _key(self, criteria: Sequence[Weights], rows: Rows) -> tuple[tuple[int, ...], Rows]:
        """Return what rows that go together are compared by."""
        return tuple(self._weigh(weights, rows) for weights in criteria), rows

    def _ask(self, criteria: Sequence[Weights], best: Rows) -> Rows | None:
        """Ask Z3 for rows that come before the best ones; None where there are none."""
        weighed = self._key(criteria, best)
        with self._checker.scope() as clauses:
            clauses.clause(*self._earlier(criteria, best))
            while True:
                self._checker.add(clauses)
                verdict = self._checker.check()
                if verdict.status == "unknown":
                    raise RuntimeError(f"Z3 gave up on a single {self._node}")
                if verdict.status == "unsat":
                    return None
                picked = {fact[2]: fact[3] for fact in self._clauses.facts(verdict.true) if fact[0] == "row"}
                rows = tuple(picked[axis] for axis in sorted(picked))
                if self._key(criteria, rows) < weighed:
                    return rows
                clauses.clause(*(negation(self._row(axis, k)) for axis, k in enumerate(rows)))

    def _earlier(self, criteria: Sequence[Weights], best: Rows) -> Iterator[Literal]:
        """Yield the ways in which rows can come before the best ones."""
        alike: list[Literal] = []
        for weights in criteria:
            weight = self._weigh(weights, best)
            if weight:
                yield _both([*alike, self._at_most(weights, weight - 1)])
            alike.append(self._at_most(weights, weight))
        for axis, k in enumerate(best):
            if k:
                yield _both([*alike, f"(or {FALSE} {' '.join(self._row(axis, j) for j in range(k))})"])
            alike.append(self._row(axis, k))

    def _at_most(self, weights: Weights, limit: int) -> Literal:
        """Return the formula that holds where the layouts weigh no more than a limit, or by rounding seem to."""
        scaled = min(limit, WHOLE)
        demands: list[Literal] = []
        terms: list[tuple[int, Literal]] = []
        for slot, of_layout in weights.items():
            for layout, literal in self._lies[slot].items():
                weight = of_layout[layout]
                if weight > limit:
                    demands.append(negation(literal))
                elif weight * scaled >= max(limit, 1):
                    terms.append((weight * scaled // limit, literal))
        if sum(weight for weight, _ in terms) > scaled:
            numbers = " ".join(str(weight) for weight, _ in terms)
            demands.append(f"((_ pble {scaled} {numbers}) {' '.join(literal for _, literal in terms)})")
        return _both(demands)

    def _weigh(self, weights: Weights, rows: Rows) -> int:
        return sum(of_layout[self.layout(slot, rows)] for slot, of_layout in weights.items())

    def _row(self, axis: int, k: int) -> Literal:
        return self._clauses.known("row", self._node, axis, k)

    def _layouts(self, slot: int, tensor: str) -> dict[Layout, Literal]:
        """Let a literal hold for the layout that the placements of a slot on the mesh axes make up."""
        problem, clauses = self.problem, self._clauses
        shape, parts, sizes = problem.graph.tensors[tensor].shape, problem.parts(tensor), problem.mesh.sizes
        found: dict[Layout, Literal] = {}
        for way in itertools.product(*(self._placements(slot, axis) for axis in range(len(sizes)))):
            layout = tuple(placement for placement, _ in way)
            if legal(layout, shape, parts, sizes):
                name = problem.canonical(tensor, layout)
                found[name] = clauses.symbol("lies", slot, name)
                clauses.clause(*(negation(literal) for _, literal in way), found[name])
        return found

    def _placements(self, slot: int, axis: int) -> list[tuple[Placement, Literal]]:
        """Return the placements that the rows of one mesh axis give to a slot; each gets a literal."""
        found: dict[Placement, Literal] = {}
        for k, placed in enumerate(self._placed):
            placement, row = placed[slot], self._row(axis, k)
            if placement is not None and row != FALSE:
                found[placement] = self._clauses.symbol("on", slot, axis, placement)
                self._clauses.clause(negation(row), found[placement])
        return list(found.items())


def _both(formulas: Sequence[Literal]) -> Literal:
    return f"(and true {' '.join(formulas)})"
