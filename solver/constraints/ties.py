"""Ties as clauses, each under its own reason."""

from __future__ import annotations

from collections.abc import Collection

from solver.constraints.layouts import Layouts, Place
from solver.constraints.reason import Reason
from solver.problem import Problem


def add_ties(layouts: Layouts, near: Collection[str]) -> None:
    """Demand that a tied source is stored as its leader is, and that a tied output is delivered so.

    Where everything leads to a delivery it has no Booleans.

    Parameters
    ----------
    layouts : Layouts
        The placements of held, and of delivered where a tensor is confined, must be written already.
    near : collection of str
        The tensors that are confined (`solver.constraints.reshard.confined`).
    """
    clauses, problem = layouts.clauses, layouts.problem
    for follower, leader in problem.ties.items():
        source = problem.graph.tensors[follower].producer is None
        if not source and follower not in near:
            continue
        place: Place = ("held", follower) if source else ("delivered", follower)
        clauses.under(tie_reason(problem, follower))
        layouts.same(leader, ("held", leader), place)


def tie_reason(problem: Problem, follower: str) -> Reason:
    """Return the fact that a tie is."""
    leader, source = problem.ties[follower], problem.graph.tensors[follower].producer is None
    text = f"{follower!r} is {'stored' if source else 'delivered'} as {leader!r} is stored (tie)"
    return Reason("tie", follower, text, f"tie {follower} to {leader}")
