"""What the rule of each op allows: one row per mesh axis, rows that go together, what they make and need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from math import prod

from ops.bind import BoundRule, Row, composes, one_kind
from ops.placement import Placement, Replicate
from solver.constraints.layouts import Place
from solver.constraints.reason import Reason, policy_reason
from solver.constraints.reshard import communication_reason
from solver.constraints.variables import Clauses, Pattern, marked, negation
from solver.cost.kernel_steps import sends
from solver.layout import placements
from solver.problem import Problem
from solver.problem_policy import forbidden

Picked = tuple[tuple[int, int], ...]
"""One row on each of some mesh axes: (mesh axis, row)."""


@dataclass(frozen=True, slots=True)
class OpFacts:
    """What equal ops share.

    Parameters
    ----------
    rule, source : str
        The rule with its clauses, and without.
    offered : tuple of tuple of int
        Per mesh axis the rows that it may take.
    bound : BoundRule
    indivisible : tuple
        A factor, what cuts it too small, and the rows that would.
    two_kinds : tuple of Picked
        Pairs of rows that give a tensor two partial kinds.
    talking : tuple of Picked
        Rows, each alone, whose kernels communicate where no byte may leave a device; only where explaining.
    silenced : tuple of (Reason, tuple of Picked)
        Per policy the rows, each alone, whose kernels send what it forbids.
    """

    rule: str
    source: str
    offered: tuple[tuple[int, ...], ...]
    bound: BoundRule
    indivisible: tuple[tuple[str, str, tuple[Picked, ...]], ...]
    two_kinds: tuple[Picked, ...]
    talking: tuple[Picked, ...]
    silenced: tuple[tuple[Reason, tuple[Picked, ...]], ...]

    def reason(self, op: str, node: str) -> Reason:
        """Return the fact that the rule of an op is."""
        return Reason("rule", node, f"{op} {node!r} has the rule {self.rule}", self.source)

    def forbidden(self, problem: Problem, node: str) -> Iterator[tuple[Reason, tuple[Picked, ...]]]:
        """Yield the facts that keep rows of an op from going together, each with these rows."""
        op = problem.graph.nodes[node].op
        for factor, why, clashes in self.indivisible:
            text = f"{op} {node!r}: {_dim_of(problem, self.bound, node, factor)} {why}"
            yield Reason("divisibility", node, text, f"{factor}={self.bound.factors[factor].size}"), clashes
        if self.two_kinds:
            yield Reason("kinds", node, f"no tensor of {op} {node!r} may carry two partial kinds"), self.two_kinds
        if self.talking:
            yield communication_reason(problem), self.talking
        yield from self.silenced


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
        self._loud = replace(problem, communication="any")
        self._known: dict[int, OpFacts] = {}
        self._patterns: dict[int, Pattern] = {}

    def add(self, node: str, places: Sequence[tuple[Place, str]]) -> None:
        """Add the rows of one op, and what they say about some of its uses and results.

        Parameters
        ----------
        node : str
        places : sequence of (Place, str)
            ``("needed", node, slot)`` or ``("made", tensor)``, those that something else speaks of, and their tensors.
        """
        clauses, problem = self.clauses, self.problem
        op, facts = problem.graph.nodes[node].op, self.facts(problem.bound[node])
        if clauses.lean and not places and not facts.silenced:
            clauses.copy(self._pattern(node, facts), "row", node)
            return
        said = {place: self._said(node, place, tensor, facts) for place, tensor in places}
        clauses.always()
        one = clauses.exactly_one if self.explaining else clauses.at_most_one  # also where the rule is left out
        for place, tensor in places:
            every = placements(problem.parts(tensor), problem.kinds) if self.explaining else ()
            for axis, by_row in said[place].items():
                options = dict.fromkeys((*by_row.values(), *every))
                one([clauses.symbol(*place, axis, label) for label in options])
        clauses.under(facts.reason(op, node))
        self._offer(clauses, node, facts)
        for place, by_axis in said.items():
            for axis, by_row in by_axis.items():
                for k, label in by_row.items():
                    clauses.clause(negation(clauses.known("row", node, axis, k)), clauses.known(*place, axis, label))
        clauses.suggested += [clauses.known("row", node, axis, rows[0]) for axis, rows in enumerate(facts.offered)]
        self._forbid(clauses, node, facts)

    def _pattern(self, node: str, facts: OpFacts) -> Pattern:
        """Return what equal ops have alike on which nothing else hangs; a search begins at their first rows."""
        if id(facts) not in self._patterns:
            first, known = self.clauses.symbol("first rows"), marked()
            if not self._patterns:
                self.clauses.suggested.append(first)
            self._offer(known, node, facts)
            for axis, rows in enumerate(facts.offered):
                known.clause(negation(first), known.known("row", node, axis, rows[0]))
            self._forbid(known, node, facts)
            self._patterns[id(facts)] = known.pattern("row", node)
        return self._patterns[id(facts)]

    def _offer(self, clauses: Clauses, node: str, facts: OpFacts) -> None:
        """Demand one of the rows on each mesh axis."""
        for axis, rows in enumerate(facts.offered):
            literals = [clauses.symbol("row", node, axis, k) for k in rows]
            clauses.clause(*literals)
            if not clauses.lean:
                clauses.at_most_one(literals)

    def _forbid(self, clauses: Clauses, node: str, facts: OpFacts) -> None:
        """Rule out the rows that do not go together."""
        for reason, clashes in facts.forbidden(self.problem, node):
            clauses.under(reason)
            for picked in clashes:
                clauses.clause(*(negation(clauses.known("row", node, axis, k)) for axis, k in picked))

    def _said(self, node: str, place: Place, tensor: str, facts: OpFacts) -> dict[int, dict[int, Placement]]:
        """Return, per mesh axis of size 2 or more and row, how the row says that a use or a result lies."""
        problem, rows = self.problem, self.problem.bound[node].rows
        if place[0] == "made":
            column = [row.results[problem.graph.tensors[tensor].slot] for row in rows]
        else:
            column = [row.operands[int(str(place[2]))] or Replicate() for row in rows]
        axes = (axis for axis, size in enumerate(problem.mesh.sizes) if size > 1)
        return {axis: {k: column[k] for k in facts.offered[axis]} for axis in axes}

    def facts(self, bound: BoundRule) -> OpFacts:
        """Return what equal ops share."""
        if id(bound) not in self._known:
            problem = self.problem
            rows, clauses = problem.offered(bound), list(bound.rule.clauses())
            quiet = set(rows)
            if self.explaining:
                rows = self._loud.offered(bound)
            axes = [axis for axis, size in enumerate(problem.mesh.sizes) if size > 1]
            self._known[id(bound)] = OpFacts(
                bound.rule.text + (f" ({'; '.join(clauses)})" if clauses else ""),
                bound.rule.text,
                tuple(rows if size > 1 else (0,) for size in problem.mesh.sizes),
                bound,
                tuple(_indivisible(bound, rows, problem)),
                tuple(_two_kinds(bound, rows, problem)),
                tuple(((axis, k),) for axis in axes for k in rows if k not in quiet),
                tuple(_silenced(bound, rows, problem)),
            )
        return self._known[id(bound)]


def _indivisible(
    bound: BoundRule, offered: Sequence[int], problem: Problem
) -> Iterator[tuple[str, str, tuple[Picked, ...]]]:
    """Yield what some mesh axes cannot cut together: the factor, why, and the rows that would."""
    cutting: dict[str, dict[int, list[int]]] = {}
    for k in offered:
        if (cut := bound.rows[k].cut) is not None:
            cutting.setdefault(cut[0], {}).setdefault(cut[1], []).append(k)
    for factor, by_part in cutting.items():
        size, parts = bound.factors[factor].size, bound.factors[factor].parts
        for clash in _clashes(bound, factor, sorted(by_part), problem.mesh.sizes):
            axes = " times ".join(f"{problem.mesh.axes[axis]}={problem.mesh.sizes[axis]}" for axis, _ in clash)
            why = f"cannot be cut by {axes}"
            count = prod(problem.mesh.sizes[axis] for axis, _ in clash)
            if len(parts) > 1:
                on = " and ".join(str(part) for part in dict.fromkeys(part for _, part in clash))
                why += f" on part {on} of its parts {parts}"
            elif size % count:
                why += f" ({count} does not divide {size})"
            rows = product(*([(axis, k) for k in by_part[part]] for axis, part in clash))
            yield factor, why, tuple(rows)


def _silenced(
    bound: BoundRule, offered: Sequence[int], problem: Problem
) -> Iterator[tuple[Reason, tuple[Picked, ...]]]:
    """Yield policies with the rows whose kernels send what they forbid on a mesh axis."""
    sending = {k: kind for k in offered if (kind := sends(bound, k))}
    for one in problem.policy if sending else ():
        silent = forbidden(problem.mesh, [one], None)
        axes = [axis for axis, size in enumerate(problem.mesh.sizes) if size > 1]
        rows = tuple(((axis, k),) for axis in axes for k, kind in sending.items() if (kind, axis) in silent)
        if rows:
            yield policy_reason(one), rows


def _dim_of(problem: Problem, bound: BoundRule, node: str, factor: str) -> str:
    """Return where an op has a factor, in the words of the first tensor that has it, as the subject of a clause."""
    uses = problem.graph.operand_uses(node)
    placed = [(use.tensor, bound.operands[use.slot]) for use in uses]
    placed += list(zip(problem.graph.nodes[node].results, bound.results, strict=True))
    found = [(tensor, slot, dim) for tensor, slot in placed if slot and (dim := slot.dim_of(factor)) is not None]
    tensor, slot, dim = min(found, key=lambda place: len(place[1].dims[place[2]]))
    if len(slot.dims[dim]) == 1:
        return f"dim {dim} of {tensor!r}, of size {slot.shape[dim]},"
    sizes = " x ".join(str(bound.factors[name].size) for name in slot.dims[dim])
    return f"dim {dim} of {tensor!r} is {sizes}, of which {bound.factors[factor].size}"


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
