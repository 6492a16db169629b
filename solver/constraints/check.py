"""Ask Z3 whether the clauses of a model hold together."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import z3

from solver.constraints.variables import Clauses

SEED = 7
_LONGEST = 2**32 - 1
"""Z3's word for no timeout, in milliseconds."""
_TRUE = re.compile(r"\(define-fun (\S+) \(\) Bool\s+true\)")


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
        The model; what is added to it later is read with `add`.
    """

    def __init__(self, clauses: Clauses) -> None:
        self.clauses = clauses
        self._context = z3.Context()
        self._solver: Any = z3.Solver(ctx=self._context)
        self._solver.set("random_seed", SEED)
        self._solver.from_string(clauses.take())
        self._guards = [z3.Bool(guard, self._context) for guard in clauses.guards()]
        self._position = {guard: i for i, guard in enumerate(clauses.guards())}
        self._scopes = 0

    @contextmanager
    def scope(self) -> Iterator[Clauses]:
        """Give clauses to write to; those handed over with `add` hold until the end of the block."""
        self._scopes += 1
        self._solver.push()
        try:
            yield Clauses(f"s{self._scopes}_")
        finally:
            self._solver.pop()

    def add(self, clauses: Clauses) -> None:
        """Hand over what has been written since the last time."""
        self._solver.from_string(clauses.take())

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

        Raises
        ------
        KeyboardInterrupt
            Where Z3 was stopped by Ctrl-C, which it catches itself.
        """
        assumed = self._guards if reasons is None else [self._guards[i] for i in sorted(reasons)]
        milliseconds = _LONGEST if seconds is None else min(_LONGEST, max(1, int(seconds * 1000)))
        self._solver.set("timeout", milliseconds)
        answer = str(self._solver.check(*assumed))
        if answer == "sat":
            return Verdict("sat", true=frozenset(_TRUE.findall(self._solver.model().sexpr())))
        if answer == "unsat":
            return Verdict("unsat", core=tuple(sorted(self._position[str(g)] for g in self._solver.unsat_core())))
        if "interrupted" in self._solver.reason_unknown():
            raise KeyboardInterrupt
        return Verdict("unknown")
