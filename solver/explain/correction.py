"""What may be given up so that the rest holds together."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence

from solver.constraints.check import Checker
from solver.constraints.model import whole_graph
from solver.constraints.reason import Reason
from solver.deadline import OutOfTimeError, keep_time
from solver.explain.core import MOST_OPS, SETTINGS
from solver.explain.propagate import Trail
from solver.explain.views import whole_view
from solver.problem import Problem


class Feasible:
    """Tells whether a problem has a plan that meets some of its wishes: by propagation and an example, or by Z3.

    Budgets are left out: only a plan tells what it sends and holds.

    Parameters
    ----------
    problem : Problem
    checker : Checker, optional
        Holds its model; where there is none, one is written only for a small graph.
    """

    def __init__(self, problem: Problem, checker: Checker | None = None) -> None:
        self._problem, self._checker = problem, checker
        self._view = whole_view(problem)
        self._index: dict[Reason, int] = {}

    @property
    def wishes(self) -> tuple[Reason, ...]:
        """All that the person chose; nothing where it would take too long to find out."""
        if self._view is not None and self._checker is None and not self._problem.expressions:
            return tuple(reason for reason in self._view.reasons if reason.chosen)
        checker = self._written()
        return () if checker is None else tuple(reason for reason in checker.clauses.reasons if reason.chosen)

    def __call__(self, wishes: Collection[Reason] | None = None, seconds: float = 1.0) -> bool | None:
        """Tell it; None where that was not found out.

        Parameters
        ----------
        wishes : collection of Reason, optional
            What is kept of what the person chose; all of it by default.
        seconds : float, optional
            For Z3.
        """
        wishes = self.wishes if wishes is None else wishes
        if self._view is not None:
            kept = set(wishes)
            active = [reason for reason in self._view.reasons if not reason.chosen or reason in kept]
            found = self._view.follow(active)
            if isinstance(found, Trail):
                return False
            if not self._problem.expressions and self._view.holds(active, found):
                return True
        return self._by_z3(wishes, seconds)

    def _by_z3(self, wishes: Collection[Reason], seconds: float) -> bool | None:
        checker = self._written()
        if checker is None:
            return None
        if not self._index:
            self._index = {reason: i for i, reason in enumerate(checker.clauses.reasons)}
        kept = [i for reason, i in self._index.items() if not reason.chosen or reason in wishes]
        status = checker.search(kept, max(0.001, seconds)).status
        return None if status == "unknown" else status == "sat"

    def _written(self) -> Checker | None:
        if self._checker is None and len(self._problem.graph.nodes) <= MOST_OPS:
            self._checker = Checker(whole_graph(self._problem))
        return self._checker


def corrections(
    core: Sequence[Reason],
    feasible: Feasible,
    deadline: float,
    most: int = 5,
) -> Iterator[tuple[Reason, ...]]:
    """Yield irreducible sets of a person's wishes without which a problem has a plan.

    Parameters
    ----------
    core : sequence of Reason
        Wishes that cannot hold together: each set gives up at least one of them.
    feasible : Feasible
    deadline : float
        A time of `time.monotonic`, until which Z3 may be asked.
    most : int, optional
        How many to find.

    Yields
    ------
    tuple of Reason
        Each member is needed: with any one of them back there is no plan.

    Raises
    ------
    OutOfTimeError
        Where there is no time for more, in a block of `solver.deadline.ending_when` or at the deadline.

    Notes
    -----
    A minimal correction set is the complement of a maximal satisfiable one, which grows wish by wish (Liffiton and
    Sakallah, Journal of Automated Reasoning 40, 2008). Each member of the core is given up first once; of the others
    what speaks of the whole graph is kept first, since giving it up hides all that pins might give up instead, and then
    what is outside the core.
    """
    wishes = feasible.wishes
    order = [wish for wish in wishes if wish not in core] + list(core)
    order.sort(key=lambda wish: wish.kind not in SETTINGS)
    found: set[tuple[Reason, ...]] = set()
    for first in core[:most]:
        kept = _grown([wish for wish in order if wish != first] + [first], feasible, deadline)
        given_up = tuple(wish for wish in wishes if wish not in kept)
        if given_up and given_up not in found:
            found.add(given_up)
            yield given_up


def _grown(waiting: list[Reason], feasible: Feasible, deadline: float) -> list[Reason]:
    """Keep of some wishes, the first ones first, all that can be kept together.

    Raises
    ------
    OutOfTimeError
        Where it was not found out of one of them, too.
    """
    kept: list[Reason] = []
    for candidate in _blocks(waiting):
        if _holds(feasible, [*kept, *candidate], deadline):
            kept += candidate
        elif len(candidate) > 1:
            for one in candidate:
                kept += [one] if _holds(feasible, [*kept, one], deadline) else []
    return kept


def _holds(feasible: Feasible, wishes: list[Reason], deadline: float) -> bool:
    keep_time()
    if (answer := feasible(wishes, deadline - time.monotonic())) is None:
        raise OutOfTimeError("it was not found out whether some wishes hold together")
    return answer


def _blocks(wishes: list[Reason]) -> list[list[Reason]]:
    """Return all but the last wish as one block: giving up the last alone does most often."""
    return [wishes[:-1], wishes[-1:]] if len(wishes) > 1 else [wishes]
