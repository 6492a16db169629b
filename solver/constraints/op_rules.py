"""What the rule of each op allows: one row per mesh axis, rows that go together, what they make and need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product

from ops.bind import BoundRule, Row, composes, one_kind
from ops.placement import Placement, Replicate
from solver.constraints.layouts import Place
from solver.constraints.reason import Reason
from solver.constraints.variables import Clauses, negation
from solver.layout import placements
from solver.problem import Problem

Picked = tuple[tuple[int, int], ...]
"""One row on each of some mesh axes: (mesh axis, row)."""


@dataclass(frozen=True, slots=True)
class _Facts:
    """What equal ops share.

    Parameters
    ----------
    rule, source : str
        The rule with its clauses, and without.
    offered : tuple of tuple of int
        Per mesh axis the rows that it may take.
    indivisible : tuple
        What some mesh axes cannot cut together (a sentence, and the factor), and the rows that would.
    two_kinds : tuple of Picked
        Pairs of rows that give a tensor two partial kinds.
    """

    rule: str
    source: str
    offered: tuple[tuple[int, ...], ...]
    indivisible: tuple[tuple[str, str, tuple[Picked, ...]], ...]
    two_kinds: tuple[Picked, ...]


class OpRules:
    """Writes the rows of ops into clauses.

    Parameters
    ----------
    clauses : Clauses
    problem : Problem
    explaining : bool
        See `solver.constraints.model.whole_graph`.
    """

    def __init__(self, clauses: Clauses, problem: Problem, explaining: bool) -> None:
        self.clauses, self.problem, self.explaining = clauses, problem, explaining
        self._known: dict[int, _Facts] = {}

    def add(self, node: str, places: Sequence[tuple[Place, str]]) -> None:
        """Add the rows of one op, and what they say about some of its uses and results.

        Parameters
        ----------
        node : str
        places : sequence of (Place, str)
            ``("needed", node, slot)`` or ``("made", tensor)``, those that something else speaks of, and their tensors.
        """
        clauses, problem = self.clauses, self.problem
        op, facts = problem.graph.nodes[node].op, self._facts(problem.bound[node])
        said = {place: self._said(node, place, tensor, facts) for place, tensor in places}
        clauses.always()
        for place, tensor in places:
            every = placements(problem.parts(tensor), problem.kinds) if self.explaining else ()
            for axis, by_row in said[place].items():
                options = dict.fromkeys((*by_row.values(), *every))
                clauses.at_most_one([clauses.symbol(*place, axis, label) for label in options])
        clauses.under(Reason("rule", node, f"{op} {node!r} has the rule {facts.rule}", facts.source))
        for axis, rows in enumerate(facts.offered):
            literals = [clauses.symbol("row", node, axis, k) for k in rows]
            clauses.exactly_one(literals)
            clauses.suggested.append(literals[0])
        for place, by_axis in said.items():
            for axis, by_row in by_axis.items():
                for k, label in by_row.items():
                    clauses.clause(negation(clauses.known("row", node, axis, k)), clauses.known(*place, axis, label))
        for why, source, clashes in facts.indivisible:
            clauses.under(Reason("divisibility", node, f"{op} {node!r} has {why}", source))
            self._forbid(node, clashes)
        if facts.two_kinds:
            clauses.under(Reason("kinds", node, f"no tensor of {op} {node!r} may carry two partial kinds"))
            self._forbid(node, facts.two_kinds)

    def _said(self, node: str, place: Place, tensor: str, facts: _Facts) -> dict[int, dict[int, Placement]]:
        """Return, per mesh axis of size 2 or more and row, how the row says that a use or a result lies."""
        problem, rows = self.problem, self.problem.bound[node].rows
        if place[0] == "made":
            column = [row.results[problem.graph.tensors[tensor].slot] for row in rows]
        else:
            column = [row.operands[int(str(place[2]))] or Replicate() for row in rows]
        axes = (axis for axis, size in enumerate(problem.mesh.sizes) if size > 1)
        return {axis: {k: column[k] for k in facts.offered[axis]} for axis in axes}

    def _forbid(self, node: str, clashes: Sequence[Picked]) -> None:
        for picked in clashes:
            self.clauses.clause(*(negation(self.clauses.known("row", node, axis, k)) for axis, k in picked))

    def _facts(self, bound: BoundRule) -> _Facts:
        if id(bound) not in self._known:
            problem = self.problem
            rows, clauses = problem.offered(bound), list(bound.rule.clauses())
            self._known[id(bound)] = _Facts(
                bound.rule.text + (f" ({'; '.join(clauses)})" if clauses else ""),
                bound.rule.text,
                tuple(rows if size > 1 else (0,) for size in problem.mesh.sizes),
                tuple(_indivisible(bound, rows, problem)),
                tuple(_two_kinds(bound, rows, problem)),
            )
        return self._known[id(bound)]


def _indivisible(
    bound: BoundRule, offered: Sequence[int], problem: Problem
) -> Iterator[tuple[str, str, tuple[Picked, ...]]]:
    """Yield what some mesh axes cannot cut together: why, the factor, and the rows that would."""
    cutting: dict[str, dict[int, list[int]]] = {}
    for k in offered:
        if (cut := bound.rows[k].cut) is not None:
            cutting.setdefault(cut[0], {}).setdefault(cut[1], []).append(k)
    for factor, by_part in cutting.items():
        size, parts = bound.factors[factor].size, bound.factors[factor].parts
        for clash in _clashes(bound, factor, sorted(by_part), problem.mesh.sizes):
            axes = " times ".join(f"{problem.mesh.axes[axis]}={problem.mesh.sizes[axis]}" for axis, _ in clash)
            why = f"a factor {factor} of size {size} that cannot be cut by {axes}"
            if len(parts) > 1:
                on = " and ".join(str(part) for part in dict.fromkeys(part for _, part in clash))
                why += f" on part {on} of its parts {parts}"
            rows = product(*([(axis, k) for k in by_part[part]] for axis, part in clash))
            yield why, f"{factor}={size}", tuple(rows)


def _clashes(
    bound: BoundRule, factor: str, parts: Sequence[int], sizes: Sequence[int]
) -> Iterator[tuple[tuple[int, int], ...]]:
    """Yield the smallest sets of (mesh axis, part) that cannot cut a factor together."""
    found: list[frozenset[tuple[int, int]]] = []
    axes = [axis for axis, size in enumerate(sizes) if size > 1]
    for count in range(1, len(axes) + 1):
        for chosen in combinations(axes, count):
            for picked in product(parts, repeat=count):
                clash = tuple(zip(chosen, picked, strict=True))
                if any(known <= set(clash) for known in found):
                    continue
                rows = [Row((), (), "", cut=(factor, part)) for part in picked]
                if not composes(bound, rows, [sizes[axis] for axis in chosen]):
                    found.append(frozenset(clash))
                    yield clash


def _two_kinds(bound: BoundRule, offered: Sequence[int], problem: Problem) -> Iterator[Picked]:
    """Yield the pairs of rows that give a tensor two partial kinds (law 7)."""
    axes = [axis for axis, size in enumerate(problem.mesh.sizes) if size > 1]
    placed = {k: bound.rows[k].operands + bound.rows[k].results for k in offered}
    pairs = [
        (a, b)
        for a, b in product(offered, repeat=2)
        if not all(one_kind(column) for column in zip(placed[a], placed[b], strict=True))
    ]
    for first, second in combinations(axes, 2):
        yield from (((first, a), (second, b)) for a, b in pairs)
