"""Repeated ops as clauses, each under its own reason."""

from __future__ import annotations

from collections.abc import Iterator

from solver.constraints.layouts import Layouts, Place
from solver.constraints.reason import Reason, policy_reason
from solver.problem import Problem


def add_repeats(layouts: Layouts) -> None:
    """Demand that a repeated op needs and makes the layouts of the op that it repeats.

    Parameters
    ----------
    layouts : Layouts
        The placements of needed and made of both must be written already.
    """
    problem = layouts.problem
    for node, of, reason in repeats_of(problem):
        layouts.clauses.under(reason)
        pairs = zip(repeated_places(problem, of), repeated_places(problem, node), strict=True)
        for (place, _), (other, tensor) in pairs:
            layouts.same(tensor, place, other)


def repeats_of(problem: Problem) -> Iterator[tuple[str, str, Reason]]:
    """Yield each op that lies as another one, that other, and by which fact."""
    for node, of in problem.repeats.items():
        chosen = problem.alike.get(node)
        yield node, of, repeat_reason(node, of) if chosen is None else policy_reason(chosen[1])


def repeat_reason(node: str, of: str) -> Reason:
    """Return the fact that one op lies as another."""
    return Reason("repeat", node, f"{node!r} lies as {of!r}, which it repeats", f"repeat of {of} by {node}")


def repeated_places(problem: Problem, node: str) -> list[tuple[Place, str]]:
    """Return the places of an op that a repeat speaks of, with their tensors: all it needs and makes."""
    needed: list[tuple[Place, str]] = [
        (("needed", node, use.slot), use.tensor) for use in problem.graph.operand_uses(node)
    ]
    return [*needed, *((("made", tensor), tensor) for tensor in problem.graph.nodes[node].results)]
