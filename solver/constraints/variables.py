"""The text of a Z3 model: symbols for facts, clauses under reasons."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from itertools import combinations
from typing import Any

from solver.constraints.reason import Reason

Literal = str
"""A symbol, or ``(not symbol)``."""
FALSE: Literal = "false"
_FEW = 6


class Clauses:
    """SMT-LIB text that grows; symbols are generated, a person's names never reach Z3.

    Printing text and handing it over in one go is ten times faster than building expressions one by one.
    """

    def __init__(self) -> None:
        self.reasons: list[Reason] = []
        self._symbols: dict[Hashable, str] = {}
        self._lines: list[str] = []
        self._guard: str | None = None

    def symbol(self, *fact: Hashable) -> Literal:
        """Return the Boolean that stands for a fact; it is declared at first use."""
        if fact not in self._symbols:
            name = f"v{len(self._symbols)}"
            self._symbols[fact] = name
            self._lines.append(f"(declare-const {name} Bool)")
        return self._symbols[fact]

    def known(self, *fact: Hashable) -> Literal:
        """Return the Boolean of a fact, or false where nothing can make it true."""
        return self._symbols.get(fact, FALSE)

    def under(self, reason: Reason) -> None:
        """Put the clauses that follow under a reason."""
        self._guard = f"r{len(self.reasons)}"
        self.reasons.append(reason)
        self._lines.append(f"(declare-const {self._guard} Bool)")

    def always(self) -> None:
        """Put the clauses that follow under no reason: they define, they do not demand."""
        self._guard = None

    def clause(self, *literals: Literal) -> None:
        """Demand that one of some literals holds."""
        self.demand(literals[0] if len(literals) == 1 else f"(or {' '.join(literals)})" if literals else FALSE)

    def demand(self, formula: str) -> None:
        """Demand a formula, under the current reason."""
        self._lines.append(f"(assert (=> {self._guard} {formula}))" if self._guard else f"(assert {formula})")

    def at_most_one(self, literals: Sequence[Literal]) -> None:
        """Demand that no two of some literals hold."""
        if len(literals) <= _FEW:
            for first, second in combinations(literals, 2):
                self.clause(negation(first), negation(second))
        else:
            self.demand(f"((_ at-most 1) {' '.join(literals)})")

    def exactly_one(self, literals: Sequence[Literal]) -> None:
        """Demand that one of some literals holds and no two do."""
        self.clause(*literals)
        self.at_most_one(literals)

    def weighted_at_most(self, terms: Sequence[tuple[int, Literal]], limit: int) -> None:
        """Demand that the weights of the true literals sum to at most a limit; all stay far below 2^31 (see `BIG`)."""
        heavy = [literal for weight, literal in terms if weight > limit]
        light = [(weight, literal) for weight, literal in terms if 0 < weight <= limit]
        for literal in heavy:
            self.clause(negation(literal))
        if sum(weight for weight, _ in light) > limit:
            if limit >= BIG:
                raise ValueError(f"Z3 cuts weights of {BIG} and more without a word: {limit} is too large")
            weights = " ".join(str(weight) for weight, _ in light)
            self.demand(f"((_ pble {limit} {weights}) {' '.join(literal for _, literal in light)})")

    def text(self) -> str:
        """Return the model as SMT-LIB."""
        return "\n".join(self._lines)

    def guards(self) -> list[str]:
        """Return the assumption literal of each reason, in order."""
        return [f"r{index}" for index in range(len(self.reasons))]

    def facts(self, true: Iterable[str]) -> set[Any]:
        """Return the facts whose symbols are among the given ones."""
        names = set(true)
        return {fact for fact, name in self._symbols.items() if name in names}


BIG = 2**31
"""Z3 5.4.1 truncates pble weights from here on silently (a test pins this)."""


def negation(literal: Literal) -> Literal:
    """Return the literal that holds when the given one does not."""
    return f"(not {literal})"
