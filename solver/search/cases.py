"""A search in cases: where the best plan breaks a person's own expression, an atom of it holds, or it does not."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from solver.choice import Choice, Evaluation
from solver.formula import Atom, Expression
from solver.problem import Problem
from solver.search.branch import Result
from solver.search.build import Built
from solver.search.certify import certificate
from solver.search.coarse import Coarse
from solver.search.flat import SCALE_BITS
from solver.search.network import INF


@dataclass(frozen=True, eq=False)
class Searched:
    """What was found of one problem.

    Parameters
    ----------
    built : Built
    coarse : Coarse
    found : Result
    """

    built: Built
    coarse: Coarse
    found: Result

    @property
    def bound(self) -> int:
        """Picoseconds that every plan of the problem costs at least; INF where there is none."""
        return INF if self.found.infeasible else self.found.bound

    @property
    def losses(self) -> dict[str, int]:
        """Where the best assignment pays above the bound, in picoseconds: by op, by tensor and by use."""
        found: Counter[str] = Counter()
        for name, paid in self.found.losses.items():
            found[name.rpartition(":")[2]] += paid << self.coarse.shift
        return dict(found)

    def broken(self) -> Expression | None:
        """Return the first expression that the best assignment breaks."""
        assert self.found.assignment is not None
        if not self.built.problem.expressions:
            return None
        return broken(self.built.problem, self.built.choice(self.found.assignment))


@dataclass(eq=False)
class Cases:
    """A problem, or two cases of it.

    Parameters
    ----------
    searched : Searched
        What was found before it was split.
    atom : Atom or None
        What it is split by; None where it is not.
    holds, fails : Cases or None
        Its two cases.
    """

    searched: Searched
    atom: Atom | None = None
    holds: Cases | None = None
    fails: Cases | None = None

    def ends(self) -> Iterator[Cases]:
        """Yield the cases that are not split."""
        waiting = [self]
        while waiting:
            case = waiting.pop()
            if case.holds is None or case.fails is None:
                yield case
            else:
                waiting += [case.fails, case.holds]

    @property
    def bound(self) -> int:
        """Picoseconds that every plan costs at least in all cases."""
        return min(case.searched.bound for case in self.ends())

    def certificate(self) -> dict[str, Any]:
        """Return the proof of the bound, case by case (docs/certificate.md)."""
        if self.atom is None or self.holds is None or self.fails is None:
            one = self.searched
            return certificate(one.built, one.found.tree, SCALE_BITS - one.coarse.shift)
        atom = [self.atom.kind, self.atom.tensor, self.atom.dim, self.atom.axis]
        return {"atom": atom, "holds": self.holds.certificate(), "fails": self.fails.certificate()}


def broken(asked: Problem, choice: Choice) -> Expression | None:
    """Return the first expression that a plan breaks."""
    found = Evaluation(asked, choice)
    return next((one for one in asked.expressions if found.holds(one) is False), None)


def in_cases(asked: Problem, search: Callable[[Problem], Searched | None]) -> tuple[Cases, Searched] | None:
    """Search a problem, in cases where its expressions want it: the case with the least bound is looked at first.

    Parameters
    ----------
    asked : Problem
    search : callable
        Finds and proves the best plan of a problem, whatever its expressions say of several tensors together; None
        where there was no time.

    Returns
    -------
    tuple of Cases and Searched, or None
        All cases, and the one whose assignment breaks no expression and is the cheapest, or the whole problem where
        there is none. None where there was no time for anything.
    """
    first = search(asked)
    if first is None:
        return None
    root, best = Cases(first), None
    waiting = [(first.bound, 0, root)]
    count = 1
    while waiting:
        bound, _, case = heapq.heappop(waiting)
        found = case.searched.found
        if best is not None and bound >= best.found.cost:
            break
        if found.assignment is None:
            continue
        if (expression := case.searched.broken()) is None:
            best = case.searched if best is None or found.cost < best.found.cost else best
            continue
        asked = case.searched.built.problem
        atom = _open_atom(asked, expression)
        parts = [search(asked.assuming(atom, value)) for value in (True, False)]
        if parts[0] is None or parts[1] is None:
            break
        case.atom, case.holds, case.fails = atom, Cases(parts[0]), Cases(parts[1])
        for half in (case.holds, case.fails):
            heapq.heappush(waiting, (half.searched.bound, count, half))
            count += 1
    return root, best or first


def _open_atom(asked: Problem, expression: Expression) -> Atom:
    """Return an atom of a broken expression of which nothing is assumed; where all are, no plan breaks it."""
    assumed = dict(asked.assumed)
    return next(
        atom for atom in expression.atoms if atom not in assumed and asked.mesh.sizes[asked.mesh.axis(atom.axis)] > 1
    )
