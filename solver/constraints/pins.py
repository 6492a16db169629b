"""A person's pins, and what policies want of layouts, as clauses, each under its own reason."""

from __future__ import annotations

from solver.constraints.layouts import Layouts, Place
from solver.constraints.reason import Reason, policy_reason
from solver.problem import Pin, Problem


def add_pins(layouts: Layouts) -> None:
    """Demand every pin and policy; a pin on a mesh axis of size 1 is met already.

    Parameters
    ----------
    layouts : Layouts
        The placements of held, and of needed where a use is pinned, must be written already.
    """
    clauses, problem = layouts.clauses, layouts.problem
    for subject in dict.fromkeys((*problem.pins_on, *problem.demands_on)):
        wishes = [pin for pin in problem.pins_on.get(subject, ()) if problem.mesh.sizes[pin.axis] > 1]
        demanded = problem.demands_on.get(subject, ())
        place = _place(layouts, subject) if wishes or demanded else ()
        for pin in wishes:
            clauses.under(pin_reason(problem, pin))
            clauses.clause(clauses.known(*place, pin.axis, pin.placement))
        for demand in demanded:
            clauses.under(policy_reason(demand.policy))
            clauses.clause(*(clauses.known(*place, demand.axis, placement) for placement in demand.placements))


def pin_reason(problem: Problem, pin: Pin) -> Reason:
    """Return the fact that a pin is."""
    text = f"you pinned {pin.subject!r} to {pin.placement} on {problem.mesh.axes[pin.axis]}"
    return Reason("pin", pin.subject, text, pin.source)


def _place(layouts: Layouts, subject: str) -> Place:
    """Return the place that a pin speaks of; a use on parts may be written in any legal way."""
    problem = layouts.problem
    if subject in problem.graph.tensors:
        return "held", subject
    use = problem.use_named[subject]
    needed: Place = ("needed", use.op, use.slot)
    if problem.one_way(use.tensor):
        return needed
    asked: Place = ("asked", use.op, use.slot)
    layouts.free(use.tensor, asked)
    layouts.clauses.always()
    layouts.same(use.tensor, asked, needed)
    return asked
