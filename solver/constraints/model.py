"""A problem as one Z3 model, and its models as choices."""

from __future__ import annotations

from collections.abc import Iterable

from ops.placement import Placement, Replicate
from solver.choice import Choice
from solver.constraints.layouts import fixed, free_layout
from solver.constraints.op_rules import add_op
from solver.constraints.pins import add_pins
from solver.constraints.reason import Reason
from solver.constraints.reshard import add_communication
from solver.constraints.variables import Clauses
from solver.problem import Problem


def whole_graph(problem: Problem) -> Clauses:
    """Write the whole-graph model without costs.

    Parameters
    ----------
    problem : Problem

    Returns
    -------
    Clauses
        Booleans ``row(op, axis, k)``, ``made(tensor, axis, placement)``, ``needed(op, slot, axis, placement)`` and, for
        sources and pinned tensors, ``held(tensor, axis, placement)``; every hard group under its reason.
    """
    clauses = Clauses()
    for tensor in problem.graph.tensors.values():
        if tensor.producer is None:
            place = ("held", tensor.name)
            clauses.under(
                Reason("storage", tensor.name, f"{tensor.role} {tensor.name!r} is stored without partial sums")
            )
            if tensor.role == "constant":
                fixed(clauses, place, (Replicate(),) * len(problem.mesh.sizes))
            else:
                free_layout(clauses, problem, tensor.name, place, partial=False)
        elif tensor.name in problem.pins_on:
            clauses.under(Reason("storage", tensor.name, f"{tensor.name!r} has shape {tensor.shape}"))
            free_layout(clauses, problem, tensor.name, ("held", tensor.name))
    for node in problem.graph.nodes:
        add_op(clauses, problem, node)
    add_communication(clauses, problem)
    add_pins(clauses, problem)
    return clauses


def read_choice(clauses: Clauses, problem: Problem, true: Iterable[str]) -> Choice:
    """Read a model as a choice.

    Parameters
    ----------
    clauses : Clauses
    problem : Problem
    true : iterable of str
        The symbols that the model makes true.

    Returns
    -------
    Choice
        With a held layout where the model says one that differs from what was made.
    """
    rows: dict[str, dict[int, int]] = {}
    held: dict[str, dict[int, Placement]] = {}
    for fact in clauses.facts(true):
        if fact[0] == "row":
            rows.setdefault(fact[1], {})[fact[2]] = fact[3]
        elif fact[0] == "held" and fact[2] != "whole":
            held.setdefault(fact[1], {})[fact[2]] = fact[3]
    layouts = {
        tensor: problem.canonical(tensor, [placed[axis] for axis in sorted(placed)]) for tensor, placed in held.items()
    }
    stored = {tensor: layout for tensor, layout in layouts.items() if problem.graph.tensors[tensor].producer is None}
    chosen = {node: tuple(by_axis[axis] for axis in sorted(by_axis)) for node, by_axis in rows.items()}
    copies = {tensor: layout for tensor, layout in layouts.items() if tensor not in stored}
    return Choice(chosen, stored, copies)
