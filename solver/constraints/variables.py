"""The text of a Z3 model: symbols for facts, clauses under reasons."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from itertools import combinations
from typing import Any

from solver.constraints.reason import Reason

Literal = str
"""A symbol, or ``(not symbol)``."""
FALSE: Literal = "false"
BIG = 2**31
"""Z3 5.4.1 truncates pble weights from here on silently (a test pins this)."""
_FEW = 6


class Clauses:
    """SMT-LIB text that grows; symbols are generated, a person's names never reach Z3.

    Printing text and handing it over in one go is ten times faster than building expressions one by one. A name may be
    declared once, so text is handed over in pieces, each piece once.

    Parameters
    ----------
    prefix : str, optional
        What symbols begin with: two texts for one solver need two prefixes.

    Attributes
    ----------
    reasons : list of Reason
    suggested : list of Literal
        Symbols that may well be true together: where a search may begin.
    """

    def __init__(self, prefix: str = "v") -> None:
        self.reasons: list[Reason] = []
        self._numbers: dict[Reason, int] = {}
        self.suggested: list[Literal] = []
        self._prefix = prefix
        self._symbols: dict[Hashable, Literal] = {}
        self._facts: dict[Literal, Any] = {}
        self._lines: list[str] = []
        self._guards: tuple[Literal, ...] = ()

    def symbol(self, *fact: Hashable) -> Literal:
        """Return the Boolean that stands for a fact; it is declared at first use."""
        known = self._symbols.get(fact)
        if known is None:
            known = f"{self._prefix}{len(self._symbols)}"
            self._symbols[fact] = known
            self._facts[known] = fact
            self._lines.append(f"(declare-const {known} Bool)")
        return known

    def known(self, *fact: Hashable) -> Literal:
        """Return the Boolean of a fact, or false where nothing can make it true."""
        return self._symbols.get(fact, FALSE)

    def under(self, *reasons: Reason) -> None:
        """Put the clauses that follow under reasons, all together; what is said twice is one reason."""
        for reason in reasons:
            if reason not in self._numbers:
                self._numbers[reason] = len(self.reasons)
                self.reasons.append(reason)
                self._lines.append(f"(declare-const r{self._numbers[reason]} Bool)")
        self._guards = tuple(negation(f"r{self._numbers[reason]}") for reason in reasons)

    def always(self) -> None:
        """Put the clauses that follow under no reason: they define, they do not demand."""
        self._guards = ()

    def clause(self, *literals: Literal) -> None:
        """Demand that one of some literals holds."""
        options = (*self._guards, *literals)
        self._lines.append(
            f"(assert (or {' '.join(options)}))" if len(options) > 1 else f"(assert {options[0] if options else FALSE})"
        )

    def at_most_one(self, literals: Sequence[Literal]) -> None:
        """Demand that no two of some literals hold."""
        if len(literals) <= _FEW:
            for first, second in combinations(literals, 2):
                self.clause(negation(first), negation(second))
        else:
            self.clause(f"((_ at-most 1) {' '.join(literals)})")

    def exactly_one(self, literals: Sequence[Literal]) -> None:
        """Demand that one of some literals holds and no two do."""
        self.clause(*literals)
        self.at_most_one(literals)

    def weighted_at_most(self, terms: Iterable[tuple[int, Literal]], limit: int) -> None:
        """Demand that the weights of the true literals sum to at most a limit.

        Raises
        ------
        ValueError
            Where Z3 would cut the limit short; weights beyond the limit never reach it.
        """
        if limit >= BIG:
            raise ValueError(f"Z3 cuts weights of {BIG} and more without a word: {limit} is too large")
        light: list[tuple[int, Literal]] = []
        for weight, literal in terms:
            if weight > limit:
                self.clause(negation(literal))
            elif weight > 0:
                light.append((weight, literal))
        if sum(weight for weight, _ in light) > limit:
            weights = " ".join(str(weight) for weight, _ in light)
            self.clause(f"((_ pble {limit} {weights}) {' '.join(literal for _, literal in light)})")

    def take(self) -> str:
        """Return the SMT-LIB text since the last call."""
        text = "\n".join(self._lines)
        self._lines.clear()
        return text

    def guards(self) -> list[str]:
        """Return the assumption literal of each reason, in order."""
        return [f"r{index}" for index in range(len(self.reasons))]

    def facts(self, true: Iterable[str]) -> set[Any]:
        """Return the facts whose symbols are among the given ones."""
        return {self._facts[name] for name in true if name in self._facts}


def negation(literal: Literal) -> Literal:
    """Return the literal that holds when the given symbol does not."""
    return f"(not {literal})"
