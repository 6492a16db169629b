"""A person's pins as clauses, each under its own reason."""

from __future__ import annotations

from solver.constraints.layouts import Place, free_layout, one_part_each, whole_layouts
from solver.constraints.reason import Reason
from solver.constraints.reshard import demand_equal
from solver.constraints.variables import FALSE, Clauses
from solver.problem import Pin, Problem


def add_pins(clauses: Clauses, problem: Problem) -> None:
    """Demand every pin; a pin on a mesh axis of size 1 is met already.

    Parameters
    ----------
    clauses : Clauses
        The placements of held and needed must be there already.
    problem : Problem
    """
    uses = {use.name: use for node in problem.graph.nodes for use in problem.graph.operand_uses(node)}
    for subject, pins in problem.pins_on.items():
        if subject in problem.graph.tensors:
            place: Place = ("held", subject)
        else:
            use = uses[subject]
            place = ("needed", use.op, use.slot)
            if not one_part_each(problem, use.tensor):
                place = _asked(clauses, problem, use.tensor, place)
        for pin in pins:
            if problem.mesh.sizes[pin.axis] > 1:
                _demand(clauses, problem, pin, place)


def _demand(clauses: Clauses, problem: Problem, pin: Pin, place: Place) -> None:
    axis = problem.mesh.axes[pin.axis]
    text = f"{pin.subject!r} is pinned to {pin.placement} on {axis}"
    clauses.under(Reason("pin", pin.subject, text, pin.source))
    clauses.clause(clauses.known(*place, pin.axis, pin.placement))


def _asked(clauses: Clauses, problem: Problem, tensor: str, needed: Place) -> Place:
    """Let a use be written in any legal way; equal layouts of one dim on parts have several."""
    asked: Place = ("asked", *needed[1:])
    clauses.always()
    free_layout(clauses, problem, tensor, asked)
    at_needed = whole_layouts(clauses, problem, tensor, needed)
    at_asked = whole_layouts(clauses, problem, tensor, asked)
    for layout in {**at_needed, **at_asked}:
        demand_equal(clauses, at_needed.get(layout, FALSE), at_asked.get(layout, FALSE))
    return asked
