"""An irreducible set of a person's own wishes that cannot hold together, and the rules that make it so."""

from __future__ import annotations

import time
from dataclasses import dataclass

from solver.constraints.check import Checker
from solver.constraints.reason import Reason


@dataclass(frozen=True, slots=True)
class Core:
    """Why a model is infeasible.

    Parameters
    ----------
    chosen : tuple of Reason
        Wishes that cannot hold together; none where the graph has no plan on the mesh at all.
    support : tuple of Reason
        Rules and sizes that, with them, have no solution.
    minimal : bool
        Whether each reason, chosen or not, is proved to be needed.
    """

    chosen: tuple[Reason, ...]
    support: tuple[Reason, ...]
    minimal: bool


def find_core(checker: Checker, seconds: float = 10.0) -> Core:
    """Shrink what cannot hold together by deletion: first what the person chose, with all rules hard, then the rules.

    Of the rules the sizes that do not divide go first: an explanation speaks of them only where it cannot do without.

    Parameters
    ----------
    checker : Checker
        Holds an infeasible whole-graph model, written for explaining.
    seconds : float, optional
        After this time what is left is returned, and not called minimal.

    Returns
    -------
    Core

    Raises
    ------
    RuntimeError
        Where the model holds after all.

    Notes
    -----
    A member is left out where the rest alone is unsatisfiable; each answer's own core cuts the rest down further
    (clause-set refinement, Marques-Silva and Lynce, SAT 2011).
    """
    deadline = time.monotonic() + seconds
    reasons = checker.clauses.reasons
    rules = {i for i, reason in enumerate(reasons) if not reason.chosen}
    first = checker.search(seconds=seconds)
    if first.status == "sat":
        raise RuntimeError("a problem without a plan has one once it is written for explaining")
    if first.status == "unknown":
        return Core(tuple(reason for reason in reasons if reason.chosen), (), minimal=False)
    chosen, minimal = _shrink(checker, [i for i in first.core if i not in rules], rules, deadline)
    support = [i for i in first.core if i in rules]
    for offered in (rules - {i for i in rules if reasons[i].kind == "divisibility"}, rules):
        answer = checker.search([*chosen, *offered], max(0.001, deadline - time.monotonic()))
        if answer.status == "unsat":
            support = [i for i in answer.core if i in rules]
            break
    support.sort(key=lambda i: reasons[i].kind != "divisibility")
    support, needed = _shrink(checker, support, set(chosen), deadline)
    return Core(tuple(reasons[i] for i in chosen), tuple(reasons[i] for i in support), minimal and needed)


def _shrink(checker: Checker, members: list[int], hard: set[int], deadline: float) -> tuple[list[int], bool]:
    """Return an unsatisfiable part of the members, with the hard ones, and whether all of it is proved to be needed."""
    kept: list[int] = []
    waiting = list(members)
    proved = True
    while waiting:
        candidate = waiting.pop(0)
        left = deadline - time.monotonic()
        if left <= 0:
            return [*kept, candidate, *waiting], False
        answer = checker.search([*kept, *waiting, *hard], left)
        if answer.status == "unsat":
            waiting = [member for member in waiting if member in answer.core]
        else:
            proved = proved and answer.status == "sat"
            kept.append(candidate)
    return kept, proved
