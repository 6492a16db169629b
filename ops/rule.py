"""A rule: the signature of an op over factors, and what cutting each factor means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from ops.notation import RuleError, Signature, parse
from ops.placement import PARTIAL_KINDS

COMMUNICATING = {"halo": "halo_exchange", "synced": "synced_kernels"}
"""Kinds of factor that a kernel cannot cut without talking to other devices, and the capability each needs."""
FACTOR_KINDS = (*PARTIAL_KINDS, "whole", "halo", "synced")
_NOTHING: Mapping[str, str] = MappingProxyType({})

Terms = tuple[tuple[str, ...], ...]
"""A linear form: a sum of products of operand names."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What is legal for an op (source: DESIGN of the notation in ``docs/notation.md``).

    Parameters
    ----------
    signature : Signature
        The operands and results over factors.
    kinds : mapping
        Factor -> what cutting it means; a factor that is not there passes through.
    needs : mapping
        Factor -> the capability without which it stays whole.
    linear : tuple
        The linear form of every result, a sum of products of operands; empty for none.
    forms : mapping
        Result -> a linear form of its own. A result does not depend on the operands that the other forms name and its
        own does not, and what a kernel reduces inside depends on no operand that is named.
    monotone, antitone : tuple of str
        Operands through which P(max) and P(min) pass, or swap.
    major : frozenset of str
        Factors whose positions matter: they are cut on their major part only.
    sizes : mapping
        Sizes of factors that no dim states by itself.
    """

    signature: Signature
    kinds: Mapping[str, str] = field(default_factory=dict)
    needs: Mapping[str, str] = field(default_factory=dict)
    linear: Terms = ()
    forms: Mapping[str, Terms] = field(default_factory=dict)
    monotone: tuple[str, ...] = ()
    antitone: tuple[str, ...] = ()
    major: frozenset[str] = frozenset()
    sizes: Mapping[str, int] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The rule as it was written."""
        return self.signature.text

    def clauses(self) -> list[str]:
        """Return the declarations of the rule as a person would read them."""
        by_kind: dict[str, list[str]] = {}
        for factor, kind in self.kinds.items():
            by_kind.setdefault(kind, []).append(factor)
        lines = [f"{kind} {' '.join(factors)}" for kind, factors in by_kind.items()]
        if self.linear:
            lines.append(f"linear {_written(self.linear)}")
        lines += [f"linear {result}: {_written(form)}" for result, form in self.forms.items()]
        lines += [
            f"{name} {', '.join(value)}"
            for name, value in (("monotone", self.monotone), ("antitone", self.antitone))
            if value
        ]
        return lines + [f"{factor} needs {capability}" for factor, capability in self.needs.items()]


def rule(
    text: str,
    *,
    needs: Mapping[str, str] = _NOTHING,
    linear: str | Mapping[str, str] = "",
    monotone: str = "",
    antitone: str = "",
    major: str = "",
    sizes: Mapping[str, int] | None = None,
    **kinds: str,
) -> Rule:
    """Read a rule and hold it against the static laws.

    Parameters
    ----------
    text : str
        The signature, as ``x[m k], y[k n] -> out[m n]``.
    needs, linear, monotone, antitone, major, sizes
        See `Rule`; ``linear`` is written ``"x*y + bias"``, with ``1`` for a constant term, or result by result
        ``{"out": "x*y + bias"}``; lists are space separated.
    **kinds : str
        ``sum= avg= max= min= any= all= whole= halo= synced=``: factors, space separated, runs with or without star.

    Returns
    -------
    Rule

    Raises
    ------
    RuleError
        Where the text cannot be read or a law is broken.

    Examples
    --------
    >>> rule("x[m k], y[k n] -> out[m n]", sum="k", linear="x*y").clauses()
    ['sum k', 'linear x*y']
    """
    signature = parse(text)
    kind_of = _kinds(text, kinds)
    needs_of = {factor.rstrip("*"): capability for factor, capability in needs.items()}
    needs_of = {factor: COMMUNICATING[kind] for factor, kind in kind_of.items() if kind in COMMUNICATING} | needs_of
    made = Rule(
        signature,
        kind_of,
        needs_of,
        read_terms(linear) if isinstance(linear, str) else (),
        {} if isinstance(linear, str) else {result: read_terms(form) for result, form in linear.items() if form},
        tuple(monotone.replace(",", " ").split()),
        tuple(antitone.replace(",", " ").split()),
        frozenset(factor.rstrip("*") for factor in major.split()),
        dict(sizes or {}),
    )
    _check_declarations(made)
    return made


def read_terms(form: str) -> Terms:
    """Read a linear form; a constant term, written 1, names nothing.

    Examples
    --------
    >>> read_terms("x*y + bias + 1")
    (('x', 'y'), ('bias',), ())
    """
    terms = [term.strip() for term in form.split("+")] if form else []
    return tuple(() if term == "1" else tuple(name.strip() for name in term.split("*")) for term in terms)


def _written(form: Terms) -> str:
    return " + ".join("*".join(term) or "1" for term in form)


def _kinds(text: str, kinds: Mapping[str, str]) -> dict[str, str]:
    kind_of: dict[str, str] = {}
    for kind, factors in kinds.items():
        if kind not in FACTOR_KINDS:
            raise RuleError(f"{kind!r} is not a factor kind (rule {text!r}): choose from {', '.join(FACTOR_KINDS)}")
        for name in factors.split():
            factor = name.rstrip("*")
            if factor in kind_of:
                raise RuleError(f"factor {factor!r} of rule {text!r} is declared both {kind_of[factor]} and {kind}")
            kind_of[factor] = kind
    return kind_of


def _check_declarations(made: Rule) -> None:
    """Laws 1 and 2, as far as the text alone decides them."""
    text = made.text
    left = [name for tensor in made.signature.operands for name in tensor.factors]
    right = [name for tensor in made.signature.results for name in tensor.factors]
    for factor in left:
        if factor not in right and factor not in made.kinds:
            raise RuleError(
                f"factor {factor!r} is on the left of rule {text!r} but not on the right: "
                "say what cutting it means with one of " + ", ".join(f'{kind}="{factor}"' for kind in FACTOR_KINDS)
            )
    for clause, factors in (("kind", made.kinds), ("needs", made.needs), ("major", made.major), ("sizes", made.sizes)):
        for factor in factors:
            if factor not in left and factor not in right:
                raise RuleError(f"factor {factor!r} is declared ({clause}) but stands nowhere in rule {text!r}")
    operands = {tensor.name for tensor in made.signature.operands}
    for clause, names in (
        ("linear", [n for form in (made.linear, *made.forms.values()) for term in form for n in term]),
        ("monotone", made.monotone),
        ("antitone", made.antitone),
    ):
        for name in names:
            if name not in operands:
                raise RuleError(
                    f"{clause} names {name!r}, which is no operand of rule {text!r}: "
                    f"the operands are {', '.join(sorted(operands))}"
                )
    results = [tensor.name for tensor in made.signature.results]
    for name in made.forms:
        if name not in results:
            raise RuleError(
                f"linear names {name!r}, which is no result of rule {text!r}: the results are {', '.join(results)}"
            )
    if any(dim.kind == "batch" for tensor in made.signature.operands for dim in tensor.dims) and not all(
        any(dim.kind == "batch" for dim in tensor.dims) for tensor in made.signature.results
    ):
        raise RuleError(
            f"rule {text!r} has '...' on the left but not in every result: name the dims with a run such as a*"
        )
