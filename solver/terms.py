"""Terms of SMT-LIB: read from text, and refused where an operator is given what it does not take."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

Term: TypeAlias = "str | list[Term]"
"""A symbol or a number, or a list of terms."""
Sort: TypeAlias = "type[bool] | type[int]"
DEEPEST = 300
"""Parentheses within each other: Python follows no more than some hundreds."""
LARGEST = 2**31 - 1
"""A weight or a limit of a count: Z3 cuts off what is larger without a word."""
COUNTS = ("pble", "pbge", "pbeq", "at-most", "at-least")
_TOKEN = re.compile(r"\(|\)|\|[^|]*\||[^\s()]+")
_NAMES = {bool: "Booleans", int: "whole numbers"}
_SIGNATURES: dict[str, tuple[Sort | None, Sort | None, int]] = {
    **dict.fromkeys(("and", "or"), (bool, bool, 1)),
    **dict.fromkeys(("=>", "xor"), (bool, bool, 2)),
    **dict.fromkeys(("+", "-", "*"), (int, int, 1)),
    **dict.fromkeys(("<=", "<", ">=", ">"), (int, bool, 2)),
    "=": (None, bool, 2),
    "distinct": (None, bool, 1),
}
"""What operators take (None: anything, but all alike), what they make, and of how many terms at least."""


class FormulaError(ValueError):
    """A text that is no formula."""


def parse(text: str) -> Term:
    """Read one term of SMT-LIB.

    Raises
    ------
    FormulaError
        Where it is none, or nests deeper than can be followed.

    Examples
    --------
    >>> parse("(or a0 (not a1))")
    ['or', 'a0', ['not', 'a1']]
    """
    stack: list[list[Term]] = [[]]
    for token in _TOKEN.findall(text):
        if token == "(":
            stack.append([])
            if len(stack) > DEEPEST + 1:
                raise FormulaError(f"it nests more than {DEEPEST} deep: say it flatter, as with one and of many terms")
        elif token != ")":
            stack[-1].append(token)
        elif len(stack) > 1:
            done = stack.pop()
            stack[-1].append(done)
        else:
            raise FormulaError(f"{shortened(text)!r} closes more than it opens")
    if len(stack) != 1 or len(stack[0]) != 1:
        raise FormulaError(f"{shortened(text)!r} is not one term of SMT-LIB")
    return stack[0][0]


def shortened(text: str) -> str:
    """Return a text with its middle left out where it is long."""
    return text if len(text) <= 200 else f"{text[:100]} ... {text[-50:]}"


def sort_of(term: Term, known: Mapping[str, Sort]) -> Sort:
    """Return whether a term is a Boolean or a whole number.

    Parameters
    ----------
    term : Term
    known : mapping
        Symbol -> its sort.

    Raises
    ------
    FormulaError
        For a symbol or an operator that is not known, and for an operator that is given what it does not take.

    Examples
    --------
    >>> sort_of(parse("(ite a0 1 (+ 2 3))"), {"a0": bool}).__name__
    'int'
    """
    if isinstance(term, str):
        return _sort_of_symbol(term, known)
    if not term:
        raise FormulaError("an empty pair of parentheses is no term")
    head, rest = term[0], term[1:]
    if head == "let":
        return _sort_of_let(rest, known)
    sorts = [sort_of(part, known) for part in rest]
    if isinstance(head, list):
        _check_count(head, sorts)
        return bool
    if head == "not":
        _check_arity("not", len(sorts), len(sorts) == 1, "one term")
        _check_sorts("not", sorts, bool)
        return bool
    if head == "ite":
        _check_arity("ite", len(sorts), len(sorts) == 3, "three terms")
        _check_sorts("ite", sorts[:1], bool)
        _check_sorts("ite", sorts[1:], sorts[1])
        return sorts[1]
    if head not in _SIGNATURES:
        raise FormulaError(f"{shortened(head)!r} is no operator that is known here")
    takes, makes, least = _SIGNATURES[head]
    _check_arity(head, len(sorts), len(sorts) >= least, f"{('one', 'two')[least - 1]} or more")
    _check_sorts(head, sorts, takes or sorts[0])
    return bool if makes is None else makes


def _check_arity(head: str, given: int, enough: bool, many: str) -> None:
    if not enough:
        raise FormulaError(f"{head!r} takes {many}, and is given {given or 'none'}")


def _check_sorts(head: str, sorts: Sequence[Sort], wanted: Sort) -> None:
    if all(sort is wanted for sort in sorts):
        return
    if head in ("=", "distinct", "ite") and wanted in sorts:
        raise FormulaError(f"{head!r} takes terms that are alike, not Booleans and whole numbers")
    raise FormulaError(f"{head!r} takes {_NAMES[wanted]}, not {_NAMES[int if wanted is bool else bool]}")


def _sort_of_symbol(symbol: str, known: Mapping[str, Sort]) -> Sort:
    if symbol in known:
        return known[symbol]
    if symbol in ("true", "false"):
        return bool
    if not re.fullmatch(r"-?[0-9]+", symbol):
        raise FormulaError(f"{shortened(symbol)!r} is no symbol of this formula")
    if len(symbol) > 18:
        raise FormulaError(f"{shortened(symbol)} is too large a number")
    return int


def _sort_of_let(rest: Sequence[Term], known: Mapping[str, Sort]) -> Sort:
    if len(rest) != 2 or isinstance(rest[0], str):
        raise FormulaError("let takes a list of bindings and a term")
    inner = dict(known)
    for binding in rest[0]:
        if isinstance(binding, str) or len(binding) != 2 or not isinstance(binding[0], str):
            raise FormulaError("a binding of let is a symbol and a term")
        symbol = binding[0]
        taken = symbol in _SIGNATURES or symbol in ("let", "not", "ite", "true", "false", "_")
        if taken or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_!.]*", symbol):
            raise FormulaError(f"{shortened(symbol)!r} cannot be bound by let: choose another symbol")
        inner[symbol] = sort_of(binding[1], known)
    return sort_of(rest[1], inner)


def _check_count(head: Sequence[Term], sorts: Sequence[Sort]) -> None:
    """Refuse what is no weighted count with a limit: ``(_ pble 2 1 1)``, ``(_ at-most 1)``."""
    words = [part for part in head if isinstance(part, str)]
    written = shortened(f"({' '.join(words)})")
    if len(words) < len(head) or len(words) < 3 or words[0] != "_" or words[1] not in COUNTS:
        raise FormulaError(f"{written} is no operator that is known here")
    if any(not re.fullmatch(r"-?[0-9]{1,10}", word) or abs(int(word)) > LARGEST for word in words[2:]):
        raise FormulaError(f"{written}: limit and weights are whole numbers up to {LARGEST}")
    counted = words[1] in ("at-most", "at-least")
    if counted and (len(words) > 3 or int(words[2]) < 0):
        raise FormulaError(f"{written}: {words[1]} has a limit from 0 up, and no weights")
    if not counted and len(words) - 3 != len(sorts):
        raise FormulaError(f"{written} has {len(words) - 3} weights for {len(sorts)} terms")
    _check_arity(words[1], len(sorts), len(sorts) >= 1, "one or more")
    _check_sorts(words[1], sorts, bool)
