"""Z3 decides: the plan is a model of the whole graph, and nothing better is left where the bound stays open."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ops.placement import Layout
from solver.choice import Choice, Evaluation
from solver.constraints.check import Checker
from solver.constraints.layouts import Place, whole_layouts
from solver.constraints.model import read_choice, whole_graph
from solver.constraints.variables import FALSE, Clauses, negation
from solver.search.branch import Leaf, Result, Tree
from solver.search.build import Built
from solver.search.flat import SCALE_BITS
from solver.search.network import INF, BoolArray, Domains, arc_consistency
from solver.search.reduce import Reduced, reduced

WEIGHT = 1000
"""Reduced costs reach Z3 as whole thousandths of what may be spent, rounded down: `unsat` stays true."""
MOST_PAIRS = 50_000
"""With more priced pairs than this Z3 is not asked whether there is anything better."""


@dataclass(frozen=True, eq=False)
class Decision:
    """What Z3 adds to a search.

    Parameters
    ----------
    choice : Choice
        A model of the whole graph.
    cost : int
        Its price in picoseconds, computed anew from the choice.
    bound : int
        What every plan costs at least by Z3's word; 0 where it was not asked, or did not answer in time.
    """

    choice: Choice
    cost: int
    bound: int


def decide(built: Built, found: Result, seconds: float) -> Decision:
    """Let Z3 confirm the best assignment, and where the bound is below it look for anything better.

    Parameters
    ----------
    built : Built
    found : Result
        With an assignment.
    seconds : float
        How long Z3 may think in all.

    Returns
    -------
    Decision

    Raises
    ------
    RuntimeError
        Where the assignment is no model of the whole graph: the two ways to write the problem contradict each other.
    """
    deadline = time.monotonic() + seconds
    assert found.assignment is not None
    best = _Best(built, found.assignment)
    bound = 0
    if found.bound < best.cost:
        bound = _look_for_better(built, found.tree, best, deadline)
    clauses = whole_graph(built.problem)
    fixed = tuple(
        _only(len(variable), value) for variable, value in zip(built.network.variables, best.assignment, strict=True)
    )
    _Values(built, clauses, fixed)
    verdict = Checker(clauses).check()
    if verdict.status != "sat":
        raise RuntimeError(f"the best plan found is no model of the whole graph: Z3 says {verdict.status}")
    choice = built.choice(best.assignment)
    modelled = read_choice(clauses, built.problem, verdict.true)
    if dict(modelled.rows) != dict(choice.rows) or dict(modelled.stored) != dict(choice.stored):
        raise RuntimeError("Z3's model of the best plan differs from it")
    return Decision(choice, best.cost, bound)


class _Best:
    """The best assignment so far, priced as a plan."""

    def __init__(self, built: Built, assignment: tuple[int, ...]) -> None:
        self.built, self.assignment = built, assignment
        self.cost = Evaluation(built.problem, built.choice(assignment)).total

    def offer(self, assignment: tuple[int, ...]) -> bool:
        """Take a cheaper assignment."""
        cost = Evaluation(self.built.problem, self.built.choice(assignment)).total
        if cost >= self.cost:
            return False
        self.assignment, self.cost = assignment, cost
        return True


def _look_for_better(built: Built, tree: Tree, best: _Best, deadline: float) -> int:
    """Ask leaf by leaf for a cheaper plan; return the bound that Z3's answers prove."""
    proved = INF
    for leaf, domains in _leaves(built, tree):
        bound = _ask(built, leaf, domains, best, deadline)
        proved = min(proved, bound)
    return min(proved, best.cost)


def _leaves(built: Built, tree: Tree) -> Iterator[tuple[Leaf, Domains]]:
    """Yield the leaves that something is left on, with what is left there."""
    everything = arc_consistency(built.network).domains
    waiting: list[tuple[Tree, Domains]] = [(tree, everything)]
    while waiting:
        node, domains = waiting.pop()
        if isinstance(node, Leaf):
            if node.messages is not None:
                yield node, arc_consistency(built.network, domains).domains
            continue
        for child, values in ((node.left, node.left_values), (node.right, node.right_values)):
            mask = np.zeros_like(domains[node.variable])
            mask[values] = True
            waiting.append(
                (child, (*domains[: node.variable], mask & domains[node.variable], *domains[node.variable + 1 :]))
            )


def _ask(built: Built, leaf: Leaf, domains: Domains, best: _Best, deadline: float) -> int:
    """Ask for anything cheaper than the best on one leaf, again after each answer; return what is proved there."""
    assert leaf.messages is not None
    while True:
        rest = reduced(built.network, leaf.messages, domains)
        spend = ((best.cost - 1) << SCALE_BITS) - rest.units
        if spend < 0:
            return best.cost
        kept = rest.prune(spend)
        if any(not mask.any() for mask in kept):
            return best.cost
        clauses = whole_graph(built.problem)
        values = _Values(built, clauses, kept)
        weights = values.weights(rest, spend)
        if weights is None:
            return -(-rest.units >> SCALE_BITS)
        clauses.always()
        clauses.weighted_at_most(weights, WEIGHT)
        verdict = Checker(clauses).check(seconds=max(0.001, deadline - time.monotonic()))
        if verdict.status == "unsat":
            return best.cost
        if verdict.status == "unknown" or not best.offer(values.read(verdict.true)):
            return -(-rest.units >> SCALE_BITS)


def _only(count: int, value: int) -> BoolArray:
    mask = np.zeros(count, np.bool_)
    mask[value] = True
    return mask


class _Values:
    """The values of the cost network as Booleans of the whole-graph model, those that are left."""

    def __init__(self, built: Built, clauses: Clauses, kept: Domains) -> None:
        self.built, self.clauses, self.kept = built, clauses, kept
        self._layouts: dict[Place, dict[Layout, str]] = {}
        clauses.always()
        self.literals: list[dict[int, str]] = [self._variable(i) for i in range(len(kept))]

    def _variable(self, i: int) -> dict[int, str]:
        """Demand that a variable takes one of its values, and that the value is what the model says."""
        clauses, variable = self.clauses, self.built.network.variables[i]
        left = [int(value) for value in np.flatnonzero(self.kept[i])]
        literals = {value: clauses.symbol("value", i, value) for value in left}
        clauses.exactly_one(list(literals.values()))
        for value, literal in literals.items():
            facts = self._rows(variable.name, value) if variable.kind == "op" else self._pair(variable.name, value)
            for fact in facts:
                clauses.clause(negation(literal), fact)
        return literals

    def _rows(self, node: str, value: int) -> Iterator[str]:
        built = self.built
        for axis, row in enumerate(built.joint[node].rows[built.kept[node][value]]):
            yield self.clauses.known("row", node, axis, int(row))

    def _pair(self, tensor: str, value: int) -> Iterator[str]:
        problem, pairs = self.built.problem, self.built.pairs[tensor]
        layouts = problem.layouts(tensor)
        made, held = layouts[pairs.made[value]], layouts[pairs.held[value]]
        if problem.graph.tensors[tensor].producer is None:
            yield self._layout(tensor, ("held", tensor), made)
        else:
            yield self._layout(tensor, ("made", tensor), made)
            if tensor in problem.pins_on:
                yield self._layout(tensor, ("held", tensor), held)

    def _layout(self, tensor: str, place: Place, layout: Layout) -> str:
        if place not in self._layouts:
            self._layouts[place] = whole_layouts(self.clauses, self.built.problem, tensor, place)
        return self._layouts[place].get(layout, FALSE)

    def weights(self, rest: Reduced, spend: int) -> list[tuple[int, str]] | None:
        """Return what each choice costs beyond the bound, in thousandths of what may be spent; None where it is too much."""
        terms = [
            (int(min(cost, spend + 1)) * WEIGHT // max(1, spend), literal)
            for i, literals in enumerate(self.literals)
            for value, literal in literals.items()
            if (cost := rest.own[i][value]) > 0
        ]
        for e, edge in enumerate(self.built.network.edges):
            tails, heads = self._sides(edge.tail, edge.tail_index), self._sides(edge.head, edge.head_index)
            table = rest.pairs(e, np.array(list(tails)), np.array([column for (column,) in heads]))
            priced = np.argwhere(table > 0)
            if len(terms) + len(priced) > MOST_PAIRS:
                return None
            for row, column in priced:
                one, other = list(tails.values())[row], list(heads.values())[column]
                both = self.clauses.symbol("both", e, int(row), int(column))
                self.clauses.clause(negation(one), negation(other), both)
                terms.append((int(min(table[row, column], spend + 1)) * WEIGHT // max(1, spend), both))
        return terms

    def _sides(self, i: int, index: np.ndarray) -> dict[tuple[int, ...], str]:
        """Return one literal per layout (or pair of layouts) that the values left offer on an edge."""
        groups: dict[tuple[int, ...], list[str]] = {}
        for value, literal in self.literals[i].items():
            groups.setdefault(tuple(int(n) for n in np.atleast_1d(index[value])), []).append(literal)
        found: dict[tuple[int, ...], str] = {}
        for key, literals in groups.items():
            if len(literals) == 1:
                found[key] = literals[0]
            else:
                found[key] = self.clauses.symbol("side", i, id(index), key)
                for literal in literals:
                    self.clauses.clause(negation(literal), found[key])
        return found

    def read(self, true: frozenset[str]) -> tuple[int, ...]:
        """Return the assignment that a model says."""
        return tuple(
            next(value for value, literal in literals.items() if literal in true) for literals in self.literals
        )
