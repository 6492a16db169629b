"""A person's own expressions over layouts, as text that is evaluated without a solver.

The text is SMT-LIB: and, or, not, =>, =, xor, distinct, ite, let, sums and comparisons of whole numbers, and pble,
pbge, pbeq, at-most and at-least. `solver.constraints.expression` writes Z3's expressions so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

from ops.placement import Layout, Partial, Shard
from solver.terms import FormulaError, Term, parse, shortened, sort_of

Value: TypeAlias = "bool | int | None"
"""What a term comes to; None where that hangs on what is not known."""
KINDS = ("sharded", "partial")


@dataclass(frozen=True, slots=True)
class Atom:
    """One fact about the layout of a tensor: the storage of an input, parameter or state, what is held of a result.

    Parameters
    ----------
    kind : str
        ``sharded`` or ``partial``.
    tensor : str
    dim : int or None
        The tensor dim that is cut; None of ``partial``.
    axis : str
        The mesh axis.
    """

    kind: str
    tensor: str
    dim: int | None
    axis: str

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(str(part) for part in (self.tensor, self.dim, self.axis) if part is not None)})"

    def holds(self, layout: Layout, axis: int) -> bool:
        """Tell whether a layout, in canonical form, does on a mesh axis what the atom says."""
        placement = layout[axis]
        if self.kind == "partial":
            return isinstance(placement, Partial)
        return isinstance(placement, Shard) and placement.dim == self.dim


@dataclass(frozen=True, slots=True)
class Expression:
    """What a person demands beside pins and policies.

    Parameters
    ----------
    text : str
        As the person wrote it.
    smtlib : str
        The same in SMT-LIB over ``a0``, ``a1``, ... for the atoms and ``b0``, ``b1``, ... for Booleans of the person's.
    atoms : tuple of Atom
    others : tuple of str
        The person's names of these Booleans.
    """

    text: str
    smtlib: str
    atoms: tuple[Atom, ...]
    others: tuple[str, ...] = ()

    def value(self, truth: Callable[[Atom], bool | None]) -> bool | None:
        """Return whether the expression holds, given what is known of its atoms; None where it hangs on the rest.

        Examples
        --------
        >>> x, y = Atom("sharded", "x", 0, "dp"), Atom("partial", "y", None, "tp")
        >>> either = Expression("x or y", "(or a0 (not a1))", (x, y))
        >>> [either.value({x: one, y: None}.get) for one in (True, False)]
        [True, None]
        """
        known: dict[str, Value] = {f"a{i}": truth(atom) for i, atom in enumerate(self.atoms)}
        known |= {f"b{i}": None for i in range(len(self.others))}
        found = evaluate(parse(self.smtlib), known)
        return found if found is None else bool(found)

    def check(self) -> None:
        """Refuse a text that is no Boolean over these symbols.

        Raises
        ------
        FormulaError
            Where an operator is unknown, or given what it does not take.
        """
        symbols = [*(f"a{i}" for i in range(len(self.atoms))), *(f"b{i}" for i in range(len(self.others)))]
        if sort_of(parse(self.smtlib), dict.fromkeys(symbols, bool)) is not bool:
            raise FormulaError("it is a number, and a demand is a Boolean: compare it with another, as (<= SUM 2)")

    def to_json(self) -> dict[str, Any]:
        """Return the expression as plain JSON values."""
        atoms = [[atom.kind, atom.tensor, atom.dim, atom.axis] for atom in self.atoms]
        return {"text": self.text, "smtlib": self.smtlib, "atoms": atoms, "others": list(self.others)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Expression:
        """Read what `to_json` wrote.

        Raises
        ------
        FormulaError
            Where it is no such thing.
        """
        atoms = tuple(Atom(*atom) for atom in data["atoms"])
        for atom in atoms:
            numbered = isinstance(atom.dim, int) and not isinstance(atom.dim, bool)
            if atom.kind not in KINDS or numbered != (atom.kind == "sharded") or not isinstance(atom.axis, str):
                raise FormulaError(f"{atom} is neither sharded(tensor, dim, axis) nor partial(tensor, axis)")
        found = cls(str(data["text"]), str(data["smtlib"]), atoms, tuple(map(str, data["others"])))
        found.check()
        return found


# ---------------------------------------------------------------------------------------------------------- the text


def evaluate(term: Term, known: Mapping[str, Value]) -> Value:
    """Return what a term comes to (Kleene's logic: unknown only where it hangs on something unknown).

    Parameters
    ----------
    term : Term
        One that `solver.terms.sort_of` lets pass.
    known : mapping
        Symbol -> its value.
    """
    if isinstance(term, str):
        return known[term] if term in known else term == "true" if term in ("true", "false") else int(term)
    head, rest = term[0], term[1:]
    if head == "let":
        inner = dict(known)
        for name, bound in rest[0]:  # type: ignore[str-unpack]
            inner[str(name)] = evaluate(bound, known)
        return evaluate(rest[1], inner)
    values = [evaluate(part, known) for part in rest]
    return _counted(head, values) if isinstance(head, list) else _OPERATORS[head](values)


def _counted(head: Sequence[Term], values: Sequence[Value]) -> Value:
    """Compare a weighted count with a limit: ``(_ pble 2 1 1)``, ``(_ at-most 1)``."""
    name = str(head[1])
    limit, *weights = [int(str(part)) for part in head[2:]]
    weights = weights or [1] * len(values)
    ends = [
        (w, w) if v else (0, 0) if v is not None else (min(0, w), max(0, w))
        for w, v in zip(weights, values, strict=True)
    ]
    least, most = sum(low for low, _ in ends), sum(high for _, high in ends)
    return _COUNTS[name](least, most, limit)


_COUNTS: dict[str, Callable[[int, int, int], bool | None]] = {
    "pble": lambda least, most, limit: True if most <= limit else False if least > limit else None,
    "pbge": lambda least, most, limit: True if least >= limit else False if most < limit else None,
    "pbeq": lambda least, most, limit: least == limit if least == most else None if least <= limit <= most else False,
}
_COUNTS |= {"at-most": _COUNTS["pble"], "at-least": _COUNTS["pbge"]}


def _all(values: Sequence[Value]) -> Value:
    return False if any(value is False for value in values) else None if None in values else True


def _not(values: Sequence[Value]) -> Value:
    (value,) = values
    return None if value is None else not value


def _any(values: Sequence[Value]) -> Value:
    return _not([_all([_not([value]) for value in values])])


def _each(compare: Callable[[Any, Any], bool]) -> Callable[[Sequence[Value]], Value]:
    """Compare neighbours, as SMT-LIB chains comparisons."""

    def found(values: Sequence[Value]) -> Value:
        return _all([None if None in pair else compare(*pair) for pair in pairwise(values)])

    return found


def _distinct(values: Sequence[Value]) -> Value:
    pairs = [(values[i], values[j]) for i in range(len(values)) for j in range(i)]
    return _all([None if None in pair else pair[0] != pair[1] for pair in pairs])


def _ite(values: Sequence[Value]) -> Value:
    condition, then, otherwise = values
    if condition is None:
        return then if then == otherwise else None
    return then if condition else otherwise


def _xor(values: Sequence[Value]) -> Value:
    return None if None in values else sum(map(bool, values)) % 2 == 1


def _implies(values: Sequence[Value]) -> Value:
    return _any([*(_not([value]) for value in values[:-1]), values[-1]])


def _number(fold: Callable[[Sequence[int]], int]) -> Callable[[Sequence[Value]], Value]:
    return lambda values: None if None in values else fold([int(value) for value in values if value is not None])


def _minus(values: Sequence[int]) -> int:
    return -values[0] if len(values) == 1 else values[0] - sum(values[1:])


def _product(values: Sequence[int]) -> int:
    found = 1
    for value in values:
        found *= value
    return found


_OPERATORS: dict[str, Callable[[Sequence[Value]], Value]] = {
    "and": _all,
    "or": _any,
    "not": _not,
    "=>": _implies,
    "=": _each(lambda one, other: one == other),
    "distinct": _distinct,
    "xor": _xor,
    "ite": _ite,
    "+": _number(sum),
    "-": _number(_minus),
    "*": _number(_product),
    "<=": _each(lambda one, other: one <= other),
    "<": _each(lambda one, other: one < other),
    ">=": _each(lambda one, other: one >= other),
    ">": _each(lambda one, other: one > other),
}


# ------------------------------------------------------------------------------------------------- on a command line


def read_formula(text: str) -> Expression:
    """Read a formula whose atoms stand in it: ``(or (sharded x 0 dp) (not (partial y tp)))``.

    Raises
    ------
    FormulaError
        Where it is none.

    Examples
    --------
    >>> read_formula("(=> (sharded x 0 dp) (partial y tp))").smtlib
    '(=> a0 a1)'
    """
    atoms: dict[Atom, str] = {}

    def written(term: Term) -> str:
        if isinstance(term, str):
            return term
        if term and term[0] in KINDS:
            atom = _atom([part.strip("|") if isinstance(part, str) else "" for part in term])
            return atoms.setdefault(atom, f"a{len(atoms)}")
        return f"({' '.join(map(written, term))})"

    try:
        smtlib = written(parse(text))
        found = Expression(text, smtlib, tuple(atoms))
        found.check()
    except FormulaError as error:
        raise FormulaError(f"constraint {shortened(text)!r}: {error}") from error
    return found


def _atom(parts: Sequence[str]) -> Atom:
    match parts:
        case ["sharded", str(tensor), str(dim), str(axis)] if dim.isdecimal() and len(dim) < 10:
            return Atom("sharded", tensor, int(dim), axis)
        case ["partial", str(tensor), str(axis)]:
            return Atom("partial", tensor, None, axis)
    raise FormulaError("write (sharded TENSOR DIM AXIS) and (partial TENSOR AXIS)")


def atoms_of(expressions: Sequence[Expression]) -> Iterator[Atom]:
    """Yield every atom of some expressions, each once."""
    yield from dict.fromkeys(atom for expression in expressions for atom in expression.atoms)
