"""The text of a Z3 model: symbols for facts, clauses under reasons."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from solver.constraints.reason import Reason

Literal = str
"""A symbol, or ``(not symbol)``."""
FALSE: Literal = "false"
BIG = 2**31
"""Z3 5.4.1 truncates pble weights from here on silently (a test pins this)."""
_FEW = 6
_NUMBER = "@"
"""What stands in a pattern for the number of its copy."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """Clauses that many things have alike, each with symbols of its own.

    Parameters
    ----------
    text : str
        SMT-LIB with a mark for the number of the copy in every symbol.
    symbols : mapping
        What is said of the thing -> its symbol, with the mark.
    """

    text: str
    symbols: Mapping[tuple[Hashable, ...], Literal]


class Clauses:
    """SMT-LIB text that grows; symbols are generated, a person's names never reach Z3.

    Printing text and handing it over in one go is ten times faster than building expressions one by one. A name may be
    declared once, so text is handed over in pieces, each piece once.

    Parameters
    ----------
    prefix : str, optional
        What symbols begin with: two texts for one solver need two prefixes.
    lean : bool, optional
        Whether only what a person chose stands under reasons: all the rest is never left out.

    Attributes
    ----------
    reasons : list of Reason
    suggested : list of Literal
        Symbols that may well be true together: where a search may begin.
    """

    def __init__(self, prefix: str = "v", *, lean: bool = False) -> None:
        self.reasons: list[Reason] = []
        self._numbers: dict[Reason, int] = {}
        self.suggested: list[Literal] = []
        self._prefix, self.lean = prefix, lean
        self._symbols: dict[tuple[Hashable, ...], Literal] = {}
        self._copies: dict[tuple[Hashable, ...], tuple[str, Pattern]] = {}
        self._lines: list[str] = []
        self._guards: tuple[Literal, ...] = ()

    def symbol(self, *fact: Hashable) -> Literal:
        """Return the Boolean that stands for a fact; it is declared at first use."""
        known = self._symbols.get(fact)
        if known is None:
            known = f"{self._prefix}{len(self._symbols)}"
            self._symbols[fact] = known
            self._lines.append(f"(declare-const {known} Bool)")
        return known

    def known(self, *fact: Hashable) -> Literal:
        """Return the Boolean of a fact, or false where nothing can make it true."""
        if (symbol := self._symbols.get(fact)) is not None:
            return symbol
        if (copy := self._copies.get(fact[:2])) is None:
            return FALSE
        number, pattern = copy
        return pattern.symbols.get(fact[2:], FALSE).replace(_NUMBER, number)

    def pattern(self, *subject: Hashable) -> Pattern:
        """Take all that has been written, about one thing, as a pattern; the symbols of these clauses must be marked.

        Parameters
        ----------
        *subject
            The two words with which the facts begin.
        """
        return Pattern(self.take(), {fact[2:]: symbol for fact, symbol in self._symbols.items() if fact[:2] == subject})

    def copy(self, pattern: Pattern, *subject: Hashable) -> None:
        """Write a pattern once more, about another thing.

        Parameters
        ----------
        pattern : Pattern
        *subject
            The two words with which the facts begin.
        """
        number = str(len(self._copies))
        self._copies[subject] = number, pattern
        self._lines.append(pattern.text.replace(_NUMBER, number))

    def under(self, *reasons: Reason) -> None:
        """Put the clauses that follow under reasons, all together; what is said twice is one reason."""
        if self.lean:
            reasons = tuple(reason for reason in reasons if reason.chosen)
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
        names = frozenset(true)
        found: set[Any] = {fact for fact, symbol in self._symbols.items() if symbol in names}
        for subject, (number, pattern) in self._copies.items():
            for said, symbol in pattern.symbols.items():
                if symbol.replace(_NUMBER, number) in names:
                    found.add((*subject, *said))
        return found


def marked() -> Clauses:
    """Return clauses for a pattern: they stand under no reasons."""
    return Clauses(f"c{_NUMBER}_", lean=True)


def negation(literal: Literal) -> Literal:
    """Return the literal that holds when the given symbol does not."""
    return f"(not {literal})"
