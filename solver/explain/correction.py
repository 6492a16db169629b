"""What may be given up so that the rest holds together."""

from __future__ import annotations

import time
from collections.abc import Sequence

from solver.constraints.check import Checker


def corrections(checker: Checker, core: Sequence[int], seconds: float, most: int = 5) -> list[tuple[int, ...]]:
    """Find irreducible sets of a person's wishes without which a model has a solution.

    Parameters
    ----------
    checker : Checker
        Holds an infeasible whole-graph model.
    core : sequence of int
        Indices of wishes that cannot hold together: each set gives up at least one of them.
    seconds : float
        After this time those found so far are returned.
    most : int, optional
        How many to find.

    Returns
    -------
    list of tuple of int
        Indices of reasons; each member is needed: with any one of them back there is no solution.

    Notes
    -----
    A minimal correction set is the complement of a maximal satisfiable one, which grows wish by wish (Liffiton and
    Sakallah, Journal of Automated Reasoning 40, 2008). Each member of the core is given up first once; of the others
    those outside the core are kept first.
    """
    deadline = time.monotonic() + seconds
    reasons = checker.clauses.reasons
    rules = [i for i, reason in enumerate(reasons) if not reason.chosen]
    wishes = [i for i, reason in enumerate(reasons) if reason.chosen]
    order = [i for i in wishes if i not in core] + list(core)
    found: list[tuple[int, ...]] = []

    def holds(kept: Sequence[int]) -> bool | None:
        left = deadline - time.monotonic()
        verdict = checker.search([*rules, *kept], max(0.001, left)).status
        return None if verdict == "unknown" else verdict == "sat"

    for first in core[:most]:
        kept: list[int] = []
        waiting = [i for i in order if i != first] + [first]
        for candidate in _blocks(waiting):
            grown = holds([*kept, *candidate])
            if grown is None:
                return found
            if grown:
                kept += candidate
                continue
            for one in candidate if len(candidate) > 1 else ():
                if (alone := holds([*kept, one])) is None:
                    return found
                kept += [one] if alone else []
        given_up = tuple(i for i in wishes if i not in kept)
        if given_up and given_up not in found:
            found.append(given_up)
    return found


def _blocks(wishes: list[int]) -> list[list[int]]:
    """Return all but the last wish as one block: giving up the last alone does most often."""
    return [wishes[:-1], wishes[-1:]] if len(wishes) > 1 else [wishes]
