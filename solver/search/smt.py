"""Z3 decides: the plan is a model of the whole graph, and nothing better is left where the bound stays open."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from solver.choice import Choice, Evaluation
from solver.constraints.check import Checker, Verdict
from solver.constraints.layouts import Layouts
from solver.constraints.variables import Clauses, Literal, negation
from solver.problem import Problem
from solver.search.branch import Result
from solver.search.build import Built
from solver.search.flat import SCALE_BITS
from solver.search.network import INF, Domains, IdArray, arc_consistency
from solver.search.reduce import Reduced, reduced
from solver.search.tree import Leaf, Narrowed, Tree, parts

WEIGHTS = 1000, 1_000_000
"""Reduced costs reach Z3 as whole thousandths of what may be spent, rounded down, so that `unsat` stays true; where
an answer turns out to be no cheaper, as millionths."""
MOST_PAIRS = 50_000
"""With more priced pairs than this Z3 is not asked whether there is anything better."""
LARGEST = 2**59
"""With a message beyond this Z3 is not asked either: sums of a few of them must fit an int64."""
FIRST = 1000
"""Where the network does not know everything, a plan is looked for first within this part of the bound."""
CONFIRMING = 1.0
"""Seconds that Z3 gets to confirm a plan whose bound is reached, however little time is left."""


class ContradictionError(RuntimeError):
    """The two ways in which a problem is written, the network and the Z3 model, contradict each other: a bug."""


@dataclass(frozen=True, eq=False)
class Decision:
    """What Z3 adds to a search.

    Parameters
    ----------
    choice : Choice
    cost : int
        Its price in picoseconds, computed anew from the choice.
    bound : int
        What every plan costs at least by Z3's word; 0 where it was not asked, or did not answer in time.
    confirmed : bool
        Whether the choice is a model of the whole graph; else Z3 had no time to say, or was not asked: without time,
        that is worth it where the bound is reached only.
    """

    choice: Choice
    cost: int
    bound: int
    confirmed: bool


def decide(
    built: Built, found: Result, checker: Checker, seconds: float, gap: float = 0.0, start: Choice | None = None
) -> Decision:
    """Let Z3 look for anything cheaper where the bound is open, and confirm the best assignment.

    Parameters
    ----------
    built : Built
    found : Result
        With an assignment.
    checker : Checker
        Holds the whole-graph model.
    seconds : float
        How long Z3 may think in all.
    gap : float, optional
        The fraction of the cost by which the bound may stay below it.
    start : Choice, optional
        A model of the whole graph to begin with, where the assignment is none: the network does not know everything.

    Returns
    -------
    Decision
        Ctrl-C ends it early, with what is known by then.

    Raises
    ------
    ContradictionError
        Where the assignment is no model of the whole graph.
    """
    deadline = time.monotonic() + seconds
    if start is None:
        assert found.assignment is not None
        best = _Best(built, built.choice(found.assignment))
    else:
        best = _Best(built, start)
    bound, confirmed = 0, False
    with contextlib.suppress(KeyboardInterrupt):
        if best.cost - found.bound > gap * best.cost:
            first = None if start is None else max(1, found.bound // FIRST)
            bound = _look_for_better(built, found.tree, best, checker, deadline, first)
    with contextlib.suppress(KeyboardInterrupt):
        left = deadline - time.monotonic()
        if left > 0 or best.cost <= max(found.bound, bound):
            confirmed = confirm(built.problem, best.choice, checker, max(CONFIRMING, left))
    return Decision(best.choice, best.cost, bound, confirmed)


def confirm(problem: Problem, choice: Choice, checker: Checker, seconds: float) -> bool:
    """Ask whether a choice is a model of the whole graph; False without an answer.

    Raises
    ------
    ContradictionError
        Where it is none: a bug.
    """
    verdict = is_model(problem, choice, checker, seconds)
    if verdict.status == "unsat":
        raise ContradictionError("the best plan found is no model of the whole graph")
    return verdict.status == "sat"


def is_model(problem: Problem, choice: Choice, checker: Checker, seconds: float) -> Verdict:
    """Fix every row and every layout in the whole-graph model, and ask whether it still holds.

    Parameters
    ----------
    problem : Problem
    choice : Choice
    checker : Checker
        Holds the whole-graph model.
    seconds : float

    Returns
    -------
    Verdict
    """
    clauses, plan = checker.clauses, Evaluation(problem, choice)
    layouts = Layouts(clauses, problem)
    with checker.scope() as fixed:
        for node, rows in plan.choice.rows.items():
            for axis, row in enumerate(rows):
                fixed.clause(clauses.known("row", node, axis, row))
        for tensor, fact in problem.graph.tensors.items():
            if fact.producer is None:
                fixed.clause(layouts.at(tensor, ("held", tensor), plan.made(tensor)))
            elif tensor in problem.spoken_of:
                fixed.clause(layouts.at(tensor, ("held", tensor), plan.held(tensor)))
        checker.add(fixed)
        return checker.check(seconds=seconds)


class _Best:
    """The best plan so far, and its price."""

    def __init__(self, built: Built, choice: Choice) -> None:
        self.built, self.choice = built, choice
        self.cost = Evaluation(built.problem, choice).total

    def offer(self, assignment: tuple[int, ...]) -> bool:
        """Take a cheaper assignment."""
        choice = self.built.choice(assignment)
        cost = Evaluation(self.built.problem, choice).total
        if cost >= self.cost:
            return False
        self.choice, self.cost = choice, cost
        return True


def _look_for_better(
    built: Built, tree: Tree, best: _Best, checker: Checker, deadline: float, first: int | None
) -> int:
    """Ask leaf by leaf for a cheaper plan; return the bound that Z3's answers prove."""
    proved = min(((node.within >> SCALE_BITS) + 1 for node in parts(tree) if isinstance(node, Narrowed)), default=INF)
    for leaf, domains in _leaves(built, tree):
        proved = min(proved, _ask(built, leaf, domains, best, checker, deadline, first))
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
        if isinstance(node, Narrowed):
            rest = reduced(built.network, node.messages, arc_consistency(built.network, domains).domains)
            waiting.append((node.rest, rest.within(node.within)))
            continue
        for child, values in ((node.left, node.left_values), (node.right, node.right_values)):
            mask = np.zeros_like(domains[node.variable])
            mask[values] = True
            waiting.append(
                (child, (*domains[: node.variable], mask & domains[node.variable], *domains[node.variable + 1 :]))
            )


def _ask(
    built: Built, leaf: Leaf, domains: Domains, best: _Best, checker: Checker, deadline: float, first: int | None
) -> int:
    """Ask for anything cheaper than the best on one leaf, again after each answer; return what is proved there.

    With `first` picoseconds beyond the bound to begin with, and four times as many after each no: far from the bound
    there is too much to say.
    """
    assert leaf.messages is not None
    if any(np.abs(vector).max(initial=0) > LARGEST for pair in leaf.messages for vector in pair):
        return -(-leaf.units >> SCALE_BITS)
    rest = reduced(built.network, leaf.messages, domains)
    proved = -(-rest.units >> SCALE_BITS)
    precision, step = 0, INF if first is None else first << SCALE_BITS
    while time.monotonic() < deadline:
        most = ((best.cost - 1) << SCALE_BITS) - rest.units
        if most < 0:
            return best.cost
        spend = min(most, step)
        kept = rest.prune(spend)
        if not all(mask.any() for mask in kept):
            proved, step = _beyond(rest, spend), 4 * step
            if spend == most:
                return best.cost
            continue
        with checker.scope() as clauses:
            values = _Values(built, checker.clauses, clauses, kept)
            if not values.limit(rest, spend, WEIGHTS[precision]):
                return proved
            checker.add(clauses)
            verdict = checker.check(seconds=max(0.001, deadline - time.monotonic()))
        if verdict.status == "unsat":
            proved, step = _beyond(rest, spend), 4 * step
            if spend == most:
                return best.cost
            continue
        if verdict.status == "unknown":
            return proved
        if not best.offer(values.read(verdict.true)):
            precision += 1
            if precision == len(WEIGHTS):
                return proved
    return proved


def _beyond(rest: Reduced, spend: int) -> int:
    """Return the picoseconds that a plan costs at least which needs to spend more than that beyond the bound."""
    return ((rest.units + spend) >> SCALE_BITS) + 1


class _Values:
    """The values of the cost network that are left, as Booleans beside those of the whole-graph model."""

    def __init__(self, built: Built, model: Clauses, clauses: Clauses, kept: Domains) -> None:
        self.built, self.model, self.clauses = built, model, clauses
        self._layouts = Layouts(model, built.problem)
        self._known_sides: dict[tuple[int, int], dict[tuple[int, ...], Literal]] = {}
        self.literals: list[dict[int, Literal]] = []
        for i, mask in enumerate(kept):
            literals = {int(value): clauses.symbol("value", i, int(value)) for value in np.flatnonzero(mask)}
            clauses.exactly_one(list(literals.values()))
            for value, literal in literals.items():
                for fact in self._facts(i, value):
                    clauses.clause(negation(literal), fact)
            self.literals.append(literals)

    def _facts(self, i: int, value: int) -> Iterator[Literal]:
        """Yield what a value says in the whole-graph model."""
        built, variable = self.built, self.built.network.variables[i]
        name, problem = variable.name, built.problem
        if variable.kind == "op":
            for axis, row in enumerate(built.joint[name].rows[built.kept[name][value]]):
                yield self.model.known("row", name, axis, int(row))
        elif problem.graph.tensors[name].producer is None or name in problem.spoken_of:
            pairs = built.pairs[name]
            chosen = pairs.made if problem.graph.tensors[name].producer is None else pairs.held
            yield self._layouts.at(name, ("held", name), problem.layouts(name)[chosen[value]])

    def limit(self, rest: Reduced, spend: int, whole: int) -> bool:
        """Demand that what is chosen costs no more beyond the bound than may be spent.

        Pairs that are forbidden or cost too much by themselves are ruled out. False where there is too much to say.
        """
        terms = [
            (int(cost) * whole // max(1, spend), literal)
            for i, literals in enumerate(self.literals)
            for value, literal in literals.items()
            if (cost := rest.own[i][value]) > 0
        ]
        for e, edge in enumerate(self.built.network.edges):
            tails, heads = self._sides(edge.tail, edge.tail_index), self._sides(edge.head, edge.head_index)
            table = rest.pairs(e, np.array(list(tails)), np.array([column for (column,) in heads]))
            affordable = table <= spend
            if len(terms) + np.count_nonzero(affordable & (table > 0)) > MOST_PAIRS:
                return False
            for n, needing in enumerate(heads.values()):
                if not affordable[:, n].all():
                    offers = [offering for t, offering in enumerate(tails.values()) if affordable[t, n]]
                    self.clauses.clause(negation(needing), *offers)
                for t, offering in enumerate(tails.values()):
                    if affordable[t, n] and table[t, n] > 0:
                        both = self.clauses.symbol("both", e, t, n)
                        self.clauses.clause(negation(offering), negation(needing), both)
                        terms.append((int(table[t, n]) * whole // max(1, spend), both))
        self.clauses.weighted_at_most(terms, whole)
        return True

    def _sides(self, i: int, index: IdArray) -> dict[tuple[int, ...], Literal]:
        """Return one literal per layout (or pair of layouts) that the values left of a variable have on an edge."""
        if (i, id(index)) not in self._known_sides:
            groups: dict[tuple[int, ...], list[Literal]] = {}
            for value, literal in self.literals[i].items():
                groups.setdefault(tuple(np.atleast_1d(index[value]).tolist()), []).append(literal)
            self._known_sides[i, id(index)] = {
                key: literals[0] if len(literals) == 1 else self._either(literals) for key, literals in groups.items()
            }
        return self._known_sides[i, id(index)]

    def _either(self, literals: list[Literal]) -> Literal:
        """Return a Boolean that is true where one of some literals is."""
        side = self.clauses.symbol("side", *literals)
        self.clauses.clause(negation(side), *literals)
        for literal in literals:
            self.clauses.clause(negation(literal), side)
        return side

    def read(self, true: frozenset[str]) -> tuple[int, ...]:
        """Return the assignment that a model says."""
        return tuple(
            next(value for value, literal in literals.items() if literal in true) for literals in self.literals
        )
