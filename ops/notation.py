"""Rule text -> syntax: ``x[... m k], y[... k n] -> out[... m n]``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

DimKind = Literal["factor", "run", "batch", "compound", "free", "one"]


class RuleError(ValueError):
    """A rule that cannot be read, breaks a law, or does not fit the shapes it is given."""


@dataclass(frozen=True, slots=True)
class DimSpec:
    """One dim as the rule writes it.

    Parameters
    ----------
    kind : str
        ``factor`` (``m``), ``run`` (``a*``), ``batch`` (``...``), ``compound`` (``(f g)``), ``free`` (``_``) or
        ``one`` (``1``).
    names : tuple of str
        The factors named; empty for batch, free and one.
    at : str or None
        The attribute that fixes the position of the dim (``c@axis``).
    """

    kind: DimKind
    names: tuple[str, ...] = ()
    at: str | None = None


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One operand or result as the rule writes it; ``xs.0`` is one slot of a variadic operand, written by itself."""

    name: str
    dims: tuple[DimSpec, ...]
    variadic: bool = False
    optional: bool = False

    @property
    def factors(self) -> tuple[str, ...]:
        """The factors and runs named by the tensor, runs without their star."""
        return tuple(name for dim in self.dims for name in dim.names)


@dataclass(frozen=True, slots=True)
class Signature:
    """The two sides of a rule."""

    text: str
    operands: tuple[TensorSpec, ...]
    results: tuple[TensorSpec, ...]


_TENSOR = re.compile(r"\s*(?P<star>\*?)(?P<name>[A-Za-z]\w*(?:\.\d+)?)(?P<optional>\??)\[(?P<dims>[^\[\]]*)\]\s*")
_DIM = re.compile(r"(?P<batch>\.\.\.)|\((?P<compound>[^()]*)\)|(?P<word>_|1|[a-z]\w*\*?)(?:@(?P<at>\w+))?")


def parse(text: str) -> Signature:
    """Read the text of a rule.

    Parameters
    ----------
    text : str
        ``operands -> results``, each side comma-separated ``name[dims]``.

    Returns
    -------
    Signature

    Raises
    ------
    RuleError
        Naming the first piece that cannot be read.

    Examples
    --------
    >>> [t.name for t in parse("x[m k], y[k n] -> out[m n]").operands]
    ['x', 'y']
    """
    left, arrow, right = text.partition("->")
    if not arrow:
        raise RuleError(f"rule {text!r} has no '->' between operands and results")
    signature = Signature(text, _parse_side(left, text), _parse_side(right, text))
    names = [tensor.name for tensor in signature.operands + signature.results]
    for name in names:
        if names.count(name) > 1:
            raise RuleError(f"rule {text!r} names tensor {name!r} twice")
    return signature


def _parse_side(side: str, text: str) -> tuple[TensorSpec, ...]:
    tensors: list[TensorSpec] = []
    position = 0
    while side[position:].strip():
        if tensors:
            if side[position] != ",":
                raise RuleError(f"expected ',' before {side[position:].strip()!r} in rule {text!r}")
            position += 1
        match = _TENSOR.match(side, position)
        if match is None:
            raise RuleError(f"cannot read {side[position:].strip()!r} in rule {text!r}: expected name[dims]")
        tensors.append(
            TensorSpec(
                match["name"],
                _parse_dims(match["dims"], match["name"], text),
                bool(match["star"]),
                bool(match["optional"]),
            )
        )
        position = match.end()
    return tuple(tensors)


def _parse_dims(dims: str, tensor: str, text: str) -> tuple[DimSpec, ...]:
    found: list[DimSpec] = []
    position = 0
    while position < len(dims):
        if dims[position].isspace():
            position += 1
            continue
        match = _DIM.match(dims, position)
        if match is None:
            raise RuleError(
                f"cannot read {dims[position:]!r} in {tensor}[{dims}] of rule {text!r}: "
                "expected a factor, a*, ..., (f g), _ or 1"
            )
        found.append(_dim_of(match, tensor, text))
        position = match.end()
    if sum(dim.kind == "batch" for dim in found) > 1:
        raise RuleError(f"{tensor}[{dims}] of rule {text!r} has '...' twice")
    return tuple(found)


def _dim_of(match: re.Match[str], tensor: str, text: str) -> DimSpec:
    if match["batch"]:
        return DimSpec("batch")
    if match["compound"] is not None:
        names = tuple(match["compound"].split())
        for name in names:
            if not re.fullmatch(r"[a-z]\w*", name):
                raise RuleError(
                    f"cannot read {name!r} in ({match['compound']}) of {tensor} in rule {text!r}: expected factors"
                )
        if not names:
            raise RuleError(f"{tensor} of rule {text!r} has an empty dim '()'")
        return DimSpec("compound", names) if len(names) > 1 else DimSpec("factor", names)
    word, at = match["word"], match["at"]
    if word == "_":
        return DimSpec("free", at=at)
    if word == "1":
        return DimSpec("one", at=at)
    if word.endswith("*"):
        return DimSpec("run", (word[:-1],), at)
    return DimSpec("factor", (word,), at)
