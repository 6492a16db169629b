"""Ask Z3 whether the clauses of a model hold together."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from typing import Literal as OneOf

import z3

from solver.constraints.variables import Clauses, Literal

SEED = 7
ROUNDS = 40
"""How often some suggestions are given up before all are."""
_LONGEST = 2**32 - 1
"""Z3's word for no timeout, in milliseconds."""
_TRUE = re.compile(r"\(define-fun (\S+) \(\) Bool\s+true\)")


@dataclass(frozen=True)
class Verdict:
    """What Z3 says.

    Parameters
    ----------
    status : str
        ``sat``, ``unsat`` or ``unknown`` (out of time); unknown is never unsat.
    core : tuple of int
        Indices of reasons that cannot hold together; not always irreducible.
    model : z3.ModelRef, optional
        What holds them together.
    """

    status: OneOf["sat", "unsat", "unknown"]
    core: tuple[int, ...] = ()
    model: z3.ModelRef | None = None

    @cached_property
    def true(self) -> frozenset[str]:
        """The symbols that the model makes true; of a large one this is read only when asked for."""
        return frozenset() if self.model is None else frozenset(_TRUE.findall(self.model.sexpr()))


class Checker:
    """A Z3 solver that holds a model, asked under assumptions.

    It is Z3's solver for finite domains: everything here is Boolean, and on whole graphs it is ten to thirty times
    faster than the general one.

    Parameters
    ----------
    clauses : Clauses
        The model; what is added to it later is read with `add`.
    """

    def __init__(self, clauses: Clauses) -> None:
        self.clauses = clauses
        self._context = z3.Context()
        self._solver: Any = z3.SolverFor("QF_FD", ctx=self._context)
        self._solver.set("random_seed", SEED)
        self._solver.from_string(clauses.take())
        self._guards = [z3.Bool(guard, self._context) for guard in clauses.guards()]
        self._position = {guard: i for i, guard in enumerate(clauses.guards())}
        self._suggested = {literal: z3.Bool(literal, self._context) for literal in clauses.suggested}
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
        return self._ask(reasons, [], math.inf if seconds is None else time.monotonic() + seconds)[0]

    def search(self, reasons: Collection[int] | None = None, seconds: float | None = None) -> Verdict:
        """Ask the same as `check`, beginning at what the model suggests, and giving up what is to blame for a conflict.

        Where almost everything may stay as suggested this takes a few propagations, and `check` a long search.
        """
        deadline = math.inf if seconds is None else time.monotonic() + seconds
        left = dict(self._suggested)
        for _ in range(ROUNDS):
            verdict, blamed = self._ask(reasons, list(left.values()), deadline)
            if not blamed:
                return verdict
            for literal in blamed:
                del left[literal]
        return self._ask(reasons, [], deadline)[0]

    def _checked(self, assumptions: list[Any]) -> str:
        """Ask Z3 by its C interface: `Solver.check` looks at each of thousands of literals for a second."""
        array = (z3.Ast * len(assumptions))(*(literal.as_ast() for literal in assumptions))
        code = z3.Z3_solver_check_assumptions(self._context.ref(), self._solver.solver, len(assumptions), array)
        return str(z3.CheckSatResult(code))

    def _ask(
        self, reasons: Collection[int] | None, suggestions: list[Any], deadline: float
    ) -> tuple[Verdict, list[Literal]]:
        """Ask under suggestions; return the verdict, and the suggestions that an `unsat` needs."""
        assumed = self._guards if reasons is None else [self._guards[i] for i in sorted(reasons)]
        left = deadline - time.monotonic()
        self._solver.set("timeout", min(_LONGEST, max(1, int(left * 1000))) if left < _LONGEST else _LONGEST)
        answer = self._checked([*assumed, *suggestions])
        if answer == "sat":
            return Verdict("sat", model=self._solver.model()), []
        if answer == "unsat":
            names = [str(literal) for literal in self._solver.unsat_core()]
            core = tuple(sorted(self._position[name] for name in names if name in self._position))
            return Verdict("unsat", core=core), [name for name in names if name not in self._position]
        if "interrupted" in self._solver.reason_unknown():
            raise KeyboardInterrupt
        return Verdict("unknown"), []
