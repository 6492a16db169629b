"""What the rule of each op allows: one row per mesh axis, rows that go together, what they make and need."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product

from ops.bind import BoundRule, Row, composes, one_kind
from ops.placement import Partial, Placement
from solver.constraints.layouts import Place
from solver.constraints.reason import Reason
from solver.constraints.variables import Clauses, negation
from solver.problem import Problem


def add_op(clauses: Clauses, problem: Problem, node: str) -> None:
    """Add the rows of one op, and the placements that they imply.

    Parameters
    ----------
    clauses : Clauses
    problem : Problem
    node : str
    """
    bound, sizes = problem.bound[node], problem.mesh.sizes
    rule = bound.rule
    written = "; ".join([rule.text, *rule.clauses()])
    clauses.under(Reason("rule", node, f"{problem.graph.nodes[node].op} {node!r} has the rule {written}", rule.text))
    offered = _offered(bound, problem)
    for axis, size in enumerate(sizes):
        clauses.exactly_one([clauses.symbol("row", node, axis, k) for k in (offered if size > 1 else [0])])
    for axis, size in enumerate(sizes):
        for k in offered if size > 1 else [0]:
            _imply(clauses, problem, node, axis, k, bound.rows[k])
    _one_placement(clauses, problem, node)
    _add_divisibility(clauses, problem, node, offered)
    _add_kinds(clauses, problem, node)


def _offered(bound: BoundRule, problem: Problem) -> list[int]:
    """Return the rows whose partial kinds are those of the graph."""
    return [
        k
        for k, row in enumerate(bound.rows)
        if all(not isinstance(p, Partial) or p.kind in problem.kinds for p in row.operands + row.results)
    ]


def _imply(clauses: Clauses, problem: Problem, node: str, axis: int, k: int, row: Row) -> None:
    chosen = negation(clauses.symbol("row", node, axis, k))
    for slot, placement in enumerate(row.operands):
        if placement is not None:
            clauses.clause(chosen, clauses.symbol("needed", node, slot, axis, placement))
    for tensor, placement in zip(problem.graph.nodes[node].results, row.results, strict=True):
        clauses.clause(chosen, clauses.symbol("made", tensor, axis, placement))
    if row.cut is not None:
        clauses.clause(chosen, clauses.symbol("cut", node, axis, *row.cut))


def _one_placement(clauses: Clauses, problem: Problem, node: str) -> None:
    """Demand one placement per mesh axis of each result and use."""
    bound = problem.bound[node]
    columns: list[tuple[Place, list[Placement | None]]] = [
        (("needed", node, slot), [row.operands[slot] for row in bound.rows]) for slot in range(len(bound.operands))
    ]
    for slot, tensor in enumerate(problem.graph.nodes[node].results):
        columns.append((("made", tensor), [row.results[slot] for row in bound.rows]))
    for place, placements in columns:
        for axis in range(len(problem.mesh.sizes)):
            literals = [clauses.known(*place, axis, p) for p in dict.fromkeys(placements)]
            clauses.at_most_one([literal for literal in literals if literal != "false"])


def _add_divisibility(clauses: Clauses, problem: Problem, node: str, offered: list[int]) -> None:
    bound, sizes = problem.bound[node], problem.mesh.sizes
    cuts: dict[str, dict[int, Row]] = {}
    for k in offered:
        row = bound.rows[k]
        if row.cut is not None:
            cuts.setdefault(row.cut[0], {}).setdefault(row.cut[1], row)
    for factor, by_part in cuts.items():
        for clash in _indivisible(bound, factor, list(by_part), sizes):
            axes = " times ".join(f"{problem.mesh.axes[axis]}={sizes[axis]}" for axis, _ in clash)
            size = bound.factors[factor].size
            text = f"{factor} of {node!r}, of size {size}, cannot be cut by {axes}"
            if any(part for _, part in clash):
                text += f" on its parts {bound.factors[factor].parts}"
            clauses.under(Reason("divisibility", node, text, f"{factor}={size}"))
            clauses.clause(*(negation(clauses.symbol("cut", node, axis, factor, part)) for axis, part in clash))


def _indivisible(
    bound: BoundRule, factor: str, parts: list[int], sizes: tuple[int, ...]
) -> Iterator[list[tuple[int, int]]]:
    """Yield the smallest sets of (mesh axis, part) that cannot cut a factor together."""
    found: list[set[tuple[int, int]]] = []
    axes = [axis for axis, size in enumerate(sizes) if size > 1]
    for count in range(1, len(axes) + 1):
        for chosen in combinations(axes, count):
            for picked in product(parts, repeat=count):
                clash = set(zip(chosen, picked, strict=True))
                if any(known <= clash for known in found):
                    continue
                rows = [Row((), (), "", cut=(factor, part)) for part in picked]
                if not composes(bound, rows, [sizes[axis] for axis in chosen]):
                    found.append(clash)
                    yield sorted(clash)


def _add_kinds(clauses: Clauses, problem: Problem, node: str) -> None:
    """Demand one partial kind per tensor over all mesh axes (law 7)."""
    kinds = [Partial(kind) for kind in problem.kinds]
    clashing = [(a, b) for a in kinds for b in kinds if not one_kind([a, b])]
    if not clashing:
        return
    clauses.under(Reason("kinds", node, f"no tensor of {node!r} carries two partial kinds"))
    places: list[Place] = [("needed", node, slot) for slot in range(len(problem.bound[node].operands))]
    places += [("made", tensor) for tensor in problem.graph.nodes[node].results]
    for place in places:
        for first, second in combinations(range(len(problem.mesh.sizes)), 2):
            for a, b in clashing:
                one, other = clauses.known(*place, first, a), clauses.known(*place, second, b)
                if "false" not in (one, other):
                    clauses.clause(negation(one), negation(other))
