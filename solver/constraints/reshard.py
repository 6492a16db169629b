"""How made, held and needed layouts hang together where communication is restricted."""

from __future__ import annotations

from collections.abc import Collection

from ops.placement import Layout
from solver.choice import table
from solver.constraints.layouts import Place, labels, one_part_each, whole_layouts
from solver.constraints.reason import Reason
from solver.constraints.variables import FALSE, Clauses, negation
from solver.cost.reshard import INF
from solver.problem import Problem


def add_communication(clauses: Clauses, problem: Problem) -> None:
    """Add what ``communication="none"`` or ``"frozen"`` demands of every tensor; ``"any"`` demands nothing.

    Parameters
    ----------
    clauses : Clauses
        The placements of made, held and needed must be there already.
    problem : Problem
    """
    if problem.communication == "any":
        return
    text = {
        "none": 'communication="none" lets no byte leave a device',
        "frozen": 'communication="frozen" keeps every tensor in one layout for its producer and all its uses',
    }[problem.communication]
    clauses.under(Reason("communication", "", text, f'communication="{problem.communication}"'))
    for tensor in problem.graph.tensors:
        if problem.communication == "frozen":
            _freeze(clauses, problem, tensor)
        else:
            _local_only(clauses, problem, tensor)


def _source(problem: Problem, tensor: str) -> Place:
    return ("made", tensor) if problem.graph.tensors[tensor].producer is not None else ("held", tensor)


def _targets(problem: Problem, tensor: str) -> list[Place]:
    needed: list[Place] = [("needed", use.op, use.slot) for use in problem.uses[tensor]]
    pinned = tensor in problem.pins_on and problem.graph.tensors[tensor].producer is not None
    return [*needed, ("held", tensor)] if pinned else needed


def _freeze(clauses: Clauses, problem: Problem, tensor: str) -> None:
    source = _source(problem, tensor)
    for target in _targets(problem, tensor):
        if one_part_each(problem, tensor):
            _equal_placements(clauses, problem, tensor, source, target)
        else:
            at_source = whole_layouts(clauses, problem, tensor, source)
            at_target = whole_layouts(clauses, problem, tensor, target)
            for layout in {**at_source, **at_target}:
                demand_equal(clauses, at_source.get(layout, FALSE), at_target.get(layout, FALSE))
    if tensor in problem.graph.outputs:
        _restrict(clauses, problem, tensor, source, problem.delivered(tensor))


def _equal_placements(clauses: Clauses, problem: Problem, tensor: str, source: Place, target: Place) -> None:
    for axis in range(len(problem.mesh.sizes)):
        for label in labels(problem, tensor):
            demand_equal(clauses, clauses.known(*source, axis, label), clauses.known(*target, axis, label))


def demand_equal(clauses: Clauses, first: str, second: str) -> None:
    """Demand that two literals agree."""
    if first != second:
        clauses.clause(negation(first), second)
        clauses.clause(first, negation(second))


def _local_only(clauses: Clauses, problem: Problem, tensor: str) -> None:
    """Demand that what is needed can be reached from what was made by moves that send nothing.

    A copy changes nothing here: what is reachable through it is reachable from what was made.
    """
    prices = table(problem, tensor)
    source = _source(problem, tensor)
    targets = _targets(problem, tensor)
    at_source = whole_layouts(clauses, problem, tensor, source)
    reachable = {
        layout: {prices.layouts[n] for n in (prices.time[prices.index[layout]] < INF).nonzero()[0]}
        for layout in at_source
    }
    for target in targets:
        at_target = whole_layouts(clauses, problem, tensor, target)
        for layout, literal in at_source.items():
            clauses.clause(negation(literal), *(at_target[n] for n in at_target if n in reachable[layout]))
    if tensor in problem.graph.outputs:
        delivered = set(problem.delivered(tensor))
        _restrict(clauses, problem, tensor, source, [layout for layout in at_source if reachable[layout] & delivered])


def _restrict(clauses: Clauses, problem: Problem, tensor: str, place: Place, allowed: Collection[Layout]) -> None:
    for layout, literal in whole_layouts(clauses, problem, tensor, place).items():
        if layout not in allowed:
            clauses.clause(negation(literal))
