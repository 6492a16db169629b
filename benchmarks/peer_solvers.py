"""Other solvers on a cost network, each with its own best encoding: HiGHS, CP-SAT, toulbar2 and Z3's optimizer.

What they get is what the planner's own search gets: consistent values only, those that no edge can tell apart merged.
Prices are picoseconds. Building a model is not timed, and no solver is given a start.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from solver.search.flat import flatten
from solver.search.network import INF, Network, arc_consistency

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Pairs:
    """One edge: the label of every value of its two variables, and the prices between labels.

    Parameters
    ----------
    tail, head : int
    tail_label, head_label : int array
    price : int array, shape (tail labels, head labels)
        INF where forbidden.
    """

    tail: int
    head: int
    tail_label: Ints
    head_label: Ints
    price: Ints


@dataclass(frozen=True, eq=False)
class Instance:
    """A cost network with its values as the search sees them.

    Parameters
    ----------
    costs : list of int array
        Per variable the prices of its values.
    edges : list of Pairs
    """

    costs: list[Ints]
    edges: list[Pairs]

    @cached_property
    def forbidden(self) -> int:
        """A price above that of every assignment."""
        tops = [*(int(cost.max()) for cost in self.costs)]
        tops += [int(edge.price.max(where=edge.price < INF, initial=0)) for edge in self.edges]
        return sum(tops) + 1


@dataclass(frozen=True)
class Answer:
    """What a solver found.

    Parameters
    ----------
    proved : bool
        Whether it says that nothing is cheaper.
    cost, bound : float or None
        Picoseconds; None where it has none.
    seconds, cpu : float
        Of solving alone, by a clock on the wall and of the processor, all threads together.
    """

    proved: bool
    cost: float | None
    bound: float | None
    seconds: float
    cpu: float


class Watch:
    """The time since it was made."""

    def __init__(self) -> None:
        self.begin, self.busy = time.monotonic(), time.process_time()

    def answer(self, proved: bool, cost: float | None, bound: float | None) -> Answer:
        """Return what was found, and the time that it took."""
        return Answer(proved, cost, bound, time.monotonic() - self.begin, time.process_time() - self.busy)


Peer = Callable[[Instance, float], Answer]


def instance(network: Network) -> Instance:
    """Return what every peer is given of a network."""
    flat = flatten(network, arc_consistency(network).domains)
    kept = flat.values
    costs = [variable.cost[values] for variable, values in zip(network.variables, kept, strict=True)]
    edges = []
    for edge in network.edges:
        offered, tail_label = np.unique(edge.tail_index[kept[edge.tail]], axis=0, return_inverse=True)
        asked, head_label = np.unique(edge.head_index[kept[edge.head]], return_inverse=True)
        columns = edge.table[:, asked]
        price = np.minimum(columns[offered[:, 0]], columns[offered[:, 1]])
        edges.append(Pairs(edge.tail, edge.head, tail_label.ravel(), head_label, price))
    return Instance(costs, edges)


def toulbar2(given: Instance, limit: float) -> Answer:
    """Solve as a cost function network, options as delivered."""
    import pytoulbar2

    top = given.forbidden
    model = pytoulbar2.CFN(top)
    for index, cost in enumerate(given.costs):
        model.AddVariable(f"v{index}", [f"k{k}" for k in range(len(cost))])
        model.AddFunction([index], cost.tolist())
    for edge in given.edges:
        dense = np.minimum(edge.price[edge.tail_label][:, edge.head_label], top)
        model.AddFunction([edge.tail, edge.head], dense.ravel().tolist())
    watch = Watch()
    found = model.Solve(timeLimit=math.ceil(limit))
    cost = None if not found else float(found[1])
    bound = float(model.GetDDualBound())
    return watch.answer(cost is not None and bound >= cost, cost, bound)


@dataclass(frozen=True, eq=False)
class _Linear:
    """The integer program of Alpa and AutoParallel, with one flow a pair of labels instead of a pair of values.

    A value is chosen by a 0/1 column; per edge the flow between two labels is a column, and what flows from (to) a
    label is what the values with that label are.
    """

    costs: NDArray[np.float64]
    integral: int
    starts: Ints
    columns: Ints
    values: NDArray[np.float64]
    right: NDArray[np.float64]


def _linear(given: Instance) -> _Linear:
    first = np.concatenate([[0], np.cumsum([len(cost) for cost in given.costs])])
    costs: list[NDArray[Any]] = list(given.costs)
    rows: list[tuple[NDArray[Any], NDArray[Any]]] = []
    right: list[float] = []
    for start, cost in zip(first, given.costs, strict=False):
        rows.append((start + np.arange(len(cost)), np.ones(len(cost))))
        right.append(1.0)
    columns = int(first[-1])
    for edge in given.edges:
        allowed = edge.price < INF
        number = np.where(allowed, columns - 1 + np.cumsum(allowed).reshape(allowed.shape), -1)
        costs.append(edge.price[allowed])
        columns += int(allowed.sum())
        for variable, labels, flows in (
            (edge.tail, edge.tail_label, number),
            (edge.head, edge.head_label, number.T),
        ):
            for label, line in enumerate(flows):
                through, own = line[line >= 0], first[variable] + np.flatnonzero(labels == label)
                rows.append(
                    (np.concatenate([through, own]), np.concatenate([np.ones(len(through)), -np.ones(len(own))]))
                )
                right.append(0.0)
    return _Linear(
        np.concatenate(costs).astype(np.float64),
        int(first[-1]),
        np.concatenate([[0], np.cumsum([len(row[0]) for row in rows])]),
        np.concatenate([row[0] for row in rows]),
        np.concatenate([row[1] for row in rows]),
        np.array(right),
    )


def _highs(given: Instance, limit: float, *, whole: bool) -> Answer:
    import highspy

    linear = _linear(given)
    count = len(linear.costs)
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = count, len(linear.right)
    model.col_cost_ = linear.costs * 1e-6  # microseconds: in picoseconds the numbers are too large for its tolerances
    model.col_lower_, model.col_upper_ = np.zeros(count), np.ones(count)
    model.row_lower_ = model.row_upper_ = linear.right
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_, model.a_matrix_.index_ = linear.starts, linear.columns
    model.a_matrix_.value_ = linear.values
    if whole:
        kinds = [highspy.HighsVarType.kInteger] * linear.integral
        model.integrality_ = kinds + [highspy.HighsVarType.kContinuous] * (count - linear.integral)
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("time_limit", limit)
    solver.setOptionValue("mip_rel_gap", 0.0)
    solver.passModel(model)
    watch = Watch()
    solver.run()
    status = solver.getModelStatus()
    proved = status == highspy.HighsModelStatus.kOptimal
    spent = highspy.HighsModelStatus.kTimeLimit, highspy.HighsModelStatus.kMemoryLimit
    if not proved and status not in spent:
        raise RuntimeError(f"HiGHS ended early: {solver.modelStatusToString(status)}")
    info = solver.getInfo()
    cost = info.objective_function_value * 1e6
    if not whole:
        return watch.answer(False, None, cost if proved else None)
    if status == highspy.HighsModelStatus.kMemoryLimit:
        return watch.answer(False, None, None)
    some = np.isfinite(cost) and info.primal_solution_status == 2
    bound = info.mip_dual_bound * 1e6
    return watch.answer(proved, cost if some else None, bound if np.isfinite(bound) else None)


def highs(given: Instance, limit: float) -> Answer:
    """Solve as an integer program."""
    return _highs(given, limit, whole=True)


def highs_relaxation(given: Instance, limit: float) -> Answer:
    """Solve the linear relaxation: a bound, and no plan."""
    return _highs(given, limit, whole=False)


def cp_sat(given: Instance, limit: float) -> Answer:
    """Solve as the same program with Booleans throughout, on two workers."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    chosen = [[model.new_bool_var("") for _ in cost] for cost in given.costs]
    paid = [literal for literals in chosen for literal in literals]
    prices = [int(price) for cost in given.costs for price in cost]
    for literals in chosen:
        model.add_exactly_one(literals)
    for edge in given.edges:
        flows = np.full(edge.price.shape, None, object)
        for pair in zip(*np.nonzero(edge.price < INF), strict=True):
            flows[pair] = model.new_bool_var("")
            if edge.price[pair]:
                paid.append(flows[pair])
                prices.append(int(edge.price[pair]))
        for lines, variable, labels in (
            (flows, edge.tail, edge.tail_label),
            (flows.T, edge.head, edge.head_label),
        ):
            for label, line in enumerate(lines):
                own = [chosen[variable][value] for value in np.flatnonzero(labels == label)]
                through = [flow for flow in line if flow is not None]
                model.add(cp_model.LinearExpr.sum(through) == cp_model.LinearExpr.sum(own))
    model.minimize(cp_model.LinearExpr.weighted_sum(paid, prices))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = limit
    solver.parameters.num_workers = 2
    watch = Watch()
    status = solver.solve(model)
    cost = solver.objective_value if status in (cp_model.OPTIMAL, cp_model.FEASIBLE) else None
    return watch.answer(status == cp_model.OPTIMAL, cost, solver.best_objective_bound)


def z3_optimize(given: Instance, limit: float) -> Answer:
    """Solve with Z3's own optimizer: a soft clause a price."""
    import z3

    solver = z3.Optimize()
    solver.set("timeout", int(limit * 1000))
    chosen = [[z3.Bool(f"v{i}_{k}") for k in range(len(cost))] for i, cost in enumerate(given.costs)]
    for cost, literals in zip(given.costs, chosen, strict=True):
        solver.add(z3.PbEq([(literal, 1) for literal in literals], 1))
        for price, literal in zip(cost, literals, strict=True):
            if price:
                solver.add_soft(z3.Not(literal), int(price))
    for number, edge in enumerate(given.edges):
        ends = []
        for side, variable, labels in (("t", edge.tail, edge.tail_label), ("h", edge.head, edge.head_label)):
            named = [z3.Bool(f"e{number}{side}{label}") for label in range(int(labels.max()) + 1)]
            for value, label in enumerate(labels):
                solver.add(z3.Implies(chosen[variable][value], named[label]))
            ends.append(named)
        for i, j in zip(*np.nonzero(edge.price), strict=True):
            clause = z3.Or(z3.Not(ends[0][i]), z3.Not(ends[1][j]))
            if edge.price[i, j] >= INF:
                solver.add(clause)
            else:
                solver.add_soft(clause, int(edge.price[i, j]))
    watch = Watch()
    if solver.check() != z3.sat:
        return watch.answer(False, None, None)
    answer = watch.answer(True, None, None)
    model = solver.model()
    values = [next(k for k, one in enumerate(row) if z3.is_true(model.eval(one))) for row in chosen]
    cost = float(_priced(given, values))
    return replace(answer, cost=cost, bound=cost)


def _priced(given: Instance, values: list[int]) -> int:
    """Return the price of an assignment."""
    own = sum(int(cost[value]) for cost, value in zip(given.costs, values, strict=True))
    return own + sum(
        int(edge.price[edge.tail_label[values[edge.tail]], edge.head_label[values[edge.head]]]) for edge in given.edges
    )


PEERS: dict[str, Peer] = {
    "toulbar2": toulbar2,
    "HiGHS": highs,
    "HiGHS relaxed": highs_relaxation,
    "CP-SAT": cp_sat,
    "Z3 Optimize": z3_optimize,
}
PACKAGES = {
    "toulbar2": "pytoulbar2",
    "HiGHS": "highspy",
    "HiGHS relaxed": "highspy",
    "CP-SAT": "ortools",
    "Z3 Optimize": "z3-solver",
}
