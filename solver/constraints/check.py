"""Ask Z3 whether the clauses of a model hold together."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

import z3

from solver.constraints.variables import Clauses

SEED = 7


@dataclass(frozen=True, slots=True)
class Verdict:
    """What Z3 says.

    Parameters
    ----------
    status : str
        ``sat``, ``unsat`` or ``unknown`` (out of time); unknown is never unsat.
    true : frozenset of str
        The symbols that the model makes true.
    core : tuple of int
        Indices of reasons that cannot hold together; not always irreducible.
    """

    status: Literal["sat", "unsat", "unknown"]
    true: frozenset[str] = frozenset()
    core: tuple[int, ...] = ()


class Checker:
    """A plain Z3 solver that holds a model, asked under assumptions.

    Parameters
    ----------
    clauses : Clauses
    """

    def __init__(self, clauses: Clauses) -> None:
        self._context = z3.Context()
        self._solver: Any = z3.Solver(ctx=self._context)
        self._solver.set("random_seed", SEED)
        self._solver.from_string(clauses.text())
        self._guards = clauses.guards()

    def check(self, reasons: Collection[int] | None = None, seconds: float | None = None) -> Verdict:
        """Ask whether some reasons can hold together.

        Parameters
        ----------
        reasons : collection of int, optional
            Indices of reasons; all of them by default.
        seconds : float, optional
            How long Z3 may think.

        Returns
        -------
        Verdict
        """
        chosen = range(len(self._guards)) if reasons is None else sorted(reasons)
        self._solver.set("timeout", 2**32 - 1 if seconds is None else max(1, int(seconds * 1000)))
        answer = str(self._solver.check(*(z3.Bool(self._guards[i], self._context) for i in chosen)))
        if answer == "sat":
            model = self._solver.model()
            return Verdict("sat", true=frozenset(d.name() for d in model.decls() if z3.is_true(model[d])))
        if answer == "unsat":
            position = {guard: i for i, guard in enumerate(self._guards)}
            return Verdict("unsat", core=tuple(sorted(position[str(literal)] for literal in self._solver.unsat_core())))
        return Verdict("unknown")
