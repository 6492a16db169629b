"""The checker of bounds (docs/certificate.md): plain integer arithmetic, nothing of the search, no solver.

What every op and tensor may choose is enumerated in solver/certificate_model.py; here the values that cannot be part of
a plan are taken out, and what the messages of a certificate leave is added up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from solver.certificate_memory import StoringModel
from solver.certificate_model import Alive, Choices, Ints, Link, Model, Name
from solver.cost.reshard import INF
from solver.problem import Problem

LARGEST = 2**61
"""Sums that may reach this are added as Python integers, smaller ones in 64 bits."""
MOST_BITS = 32
LEAVES = {"messages"}, {"messages", "multipliers"}, {"messages", "weights"}
"""What a leaf with messages may say."""


class CertificateError(ValueError):
    """A certificate that does not have the form of docs/certificate.md."""


def certified_bound(problem: Problem, certificate: Any) -> int:
    """Compute the bound that a certificate proves.

    Parameters
    ----------
    problem : Problem
    certificate : mapping
        As a plan file holds it. Wrong numbers in it prove less, never something false.

    Returns
    -------
    int
        Picoseconds that no plan undercuts; INF where it proves that there is no plan.

    Raises
    ------
    CertificateError
        Where the certificate has another form.
    """
    if isinstance(certificate, Mapping) and set(certificate) == {"atom", "holds", "fails"}:
        return _in_both_cases(problem, certificate)
    written = _Written(certificate)
    if written.tree == {"unproved": True}:  # claims nothing, which needs no enumeration of what there is to choose
        return 0
    if written.moments is None:
        return proved(Model(problem), certificate)
    if problem.memory is None:
        raise CertificateError("it speaks of moments, but there is no memory budget")
    try:
        model = StoringModel(problem, written.moments)
    except KeyError as error:
        raise CertificateError(f"there is no moment {error}") from error
    return proved(model, certificate)


def _in_both_cases(problem: Problem, certificate: Mapping[str, Any]) -> int:
    """Compute the bound of a problem that is split by an atom of a person's own expressions."""
    known = [atom for atoms in problem.atoms_on.values() for atom in atoms]
    named = [atom for atom in known if [atom.kind, atom.tensor, atom.dim, atom.axis] == certificate["atom"]]
    if not named:
        raise CertificateError(f"it splits by {_short(certificate['atom'])}, which no expression speaks of")
    holds = certified_bound(problem.assuming(named[0], True), certificate["holds"])
    return min(holds, certified_bound(problem.assuming(named[0], False), certificate["fails"]))


def proved(model: Model, certificate: Any) -> int:
    """Compute the bound that a certificate proves for what is enumerated already (see `certified_bound`)."""
    written = _Written(certificate)
    bounds = (_leaf_bound(model, alive, written, leaf) for leaf, alive in _leaves(model, written.tree))
    leaves = [bound for bound in bounds if bound is not None]
    if not leaves:
        return INF
    return max(0, -(-min(leaves) >> written.bits))


# ------------------------------------------------------------------------------------------------- what is written


@dataclass(frozen=True, eq=False)
class _Vector:
    """A message vector: in 64 bits where it fits, and its largest absolute value."""

    values: Ints
    largest: int


class _Written:
    """The numbers of a certificate, read."""

    def __init__(self, certificate: Any) -> None:
        if not isinstance(certificate, Mapping) or set(certificate) - {"moments"} != {"bits", "arrays", "tree"}:
            raise CertificateError("it should be an object with bits, arrays and tree")
        bits, arrays = certificate["bits"], certificate["arrays"]
        if type(bits) is not int or not 0 <= bits <= MOST_BITS:
            raise CertificateError(f"bits is {_short(bits)}, not a whole number from 0 to {MOST_BITS}")
        if not isinstance(arrays, list):
            raise CertificateError("arrays should be a list of message vectors")
        moments = certificate.get("moments")
        if moments is not None and (
            not isinstance(moments, list)
            or not all(isinstance(moment, str) for moment in moments)
            or len(set(moments)) < len(moments)
        ):
            raise CertificateError(f"moments should be a list of names, each once: {_short(moments)}")
        self.bits: int = bits
        self.moments: list[Any] | None = moments
        self.tree: Any = certificate["tree"]
        self.vectors = [_vector(number, array) for number, array in enumerate(arrays)]

    def multipliers(self, leaf: Mapping[str, Any]) -> tuple[Ints, bool]:
        """Return what multiplies the bytes of each moment on a leaf, and whether time counts beside them."""
        given = leaf.get("weights", leaf.get("multipliers", [0] * len(self.moments or ())))
        if not isinstance(given, list) or not all(type(one) is int and one >= 0 for one in given):
            raise CertificateError(f"multipliers should be whole numbers from 0 up, not {_short(given)}")
        if len(given) != len(self.moments or ()):
            raise CertificateError(f"there are {len(given)} multipliers, but {len(self.moments or ())} moments")
        return np.array(given, object), "weights" not in leaf

    def pair(self, link: Link, pair: Any) -> tuple[_Vector, _Vector]:
        """Return the two vectors of an edge; zeros, which prove something too, where a leaf names none."""
        if pair is None:
            zeros = (_Vector(np.zeros(count, np.int64), 0) for count in link.price.shape)
            return next(zeros), next(zeros)
        if not isinstance(pair, list) or len(pair) != 2 or not all(type(number) is int for number in pair):
            raise CertificateError(f"edge {link.name!r} should name two message vectors, not {_short(pair)}")
        if not all(0 <= number < len(self.vectors) for number in pair):
            raise CertificateError(f"edge {link.name!r} names the vectors {pair}, but there are {len(self.vectors)}")
        tail, head = (self.vectors[number] for number in pair)
        if (len(tail.values), len(head.values)) != link.price.shape:
            raise CertificateError(
                f"edge {link.name!r} has vectors of {len(tail.values)} and {len(head.values)} entries, "
                f"but its tensor has {len(link.price)} layouts"
            )
        return tail, head


def _vector(number: int, array: Any) -> _Vector:
    if not isinstance(array, list) or not all(type(value) is int for value in array):
        raise CertificateError(f"message vector {number} should be a list of whole numbers")
    largest = max(map(abs, array), default=0)
    return _Vector(np.array(array, np.int64 if largest < LARGEST else object), largest)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 60 else f"{text[:57]}..."


# ------------------------------------------------------------------------------------------------------- the tree


def _leaves(model: Model, tree: Any) -> Iterator[tuple[Mapping[str, Any], Alive]]:
    """Yield each leaf that leaves every variable a value, with the values of its side of every split above it."""
    waiting: list[tuple[Any, Alive | None]] = [(tree, model.consistent_values)]
    while waiting:
        node, alive = waiting.pop()
        if not isinstance(node, Mapping):
            raise CertificateError(f"a node of the tree is {_short(node)}, not an object")
        kind = next((kind for kind in ("op", "tensor") if kind in node), None)
        if kind is None:
            if set(node) not in LEAVES and node != {"infeasible": True}:
                raise CertificateError(f"a leaf of the tree is {_short(node)}: it should have messages")
            if alive is not None:
                yield node, alive
            continue
        name, left = _split(model, kind, node)
        for side, mask in (("left", left), ("right", ~left)):
            kept = None if alive is None else model.consistent({**alive, name: alive[name] & mask}, name)
            waiting.append((node[side], kept))


def _split(model: Model, kind: str, node: Mapping[str, Any]) -> tuple[Name, Ints]:
    """Return the variable that a node splits, and which of its values go to the left."""
    if set(node) != {kind, "left_values", "left", "right"} or not isinstance(node[kind], str):
        raise CertificateError(f"a split of the tree is {_short(node)}: it should have left_values, left and right")
    name: Name = (kind, node[kind])
    if name not in model.choices:
        raise CertificateError(f"the tree splits {kind} {node[kind]!r}, which has nothing to choose")
    listed, keys = node["left_values"], [tuple(key) for key in model.choices[name].keys.tolist()]
    if not isinstance(listed, list) or not all(
        isinstance(value, list) and all(type(number) is int for number in value) for value in listed
    ):
        raise CertificateError(f"the split on {kind} {node[kind]!r} should list its left values as lists of numbers")
    wanted = {tuple(value) for value in listed}
    if not wanted.issubset(keys):
        raise CertificateError(f"the split on {kind} {node[kind]!r} lists values that it does not have")
    return name, np.array([key in wanted for key in keys], np.bool_)


# ------------------------------------------------------------------------------------------------------ the bound


def _leaf_bound(model: Model, alive: Alive, written: _Written, leaf: Mapping[str, Any]) -> int | None:
    """Add the least of every variable and of every edge, in units of 2^-bits ps; None where nothing fits the budget."""
    given = leaf.get("messages", {})
    known = {link.name for link in model.links}
    if not isinstance(given, Mapping) or not known.issuperset(given):
        raise CertificateError(f"the messages of a leaf name something that is no edge: {_short(given)}")
    pairs = [written.pair(link, given.get(link.name)) for link in model.links]
    multipliers, timed = written.multipliers(leaf)
    shift = written.bits if timed else 0
    reach = {
        name: (choices.most << shift) + _most_stored(choices, multipliers) for name, choices in model.choices.items()
    }
    for link, (tail, head) in zip(model.links, pairs, strict=True):
        reach[link.tail] += tail.largest
        reach[link.head] += head.largest
    sums = {}
    for name, choices in model.choices.items():
        sums[name] = _scaled(choices.price[alive[name]] * timed, shift, reach[name])
        if choices.stored is not None:
            stored = choices.stored[:, alive[name]].astype(object)
            sums[name] = sums[name] + (multipliers @ stored).astype(sums[name].dtype)
    total = 0
    for link, (tail, head) in zip(model.links, pairs, strict=True):
        offers, asks = link.offers[alive[link.tail]], link.asks[alive[link.head]]
        sums[link.tail] = sums[link.tail] + np.minimum(tail.values[offers[:, 0]], tail.values[offers[:, 1]])
        sums[link.head] = sums[link.head] + head.values[asks]
        total += _least_of_edge(link, alive, tail, head, shift if timed else None, multipliers)
    total += sum(int(values.min()) for values in sums.values())
    over = int(total - sum(multipliers) * (model.problem.memory or 0))
    if timed:
        return over
    return None if over > 0 else 0


def _most_stored(choices: Choices, multipliers: Ints) -> int:
    if choices.stored is None:
        return 0
    return int(sum(k * int(row.max(initial=0)) for k, row in zip(multipliers, choices.stored, strict=True)))


def _scaled(price: Ints, bits: int, reach: int) -> Ints:
    """Return prices in units of 2^-bits ps, as Python integers where the sums that they start may leave 64 bits."""
    exact: Ints = price.astype(np.int64 if reach < LARGEST else object, copy=False) * 2**bits
    return exact


def _least_of_edge(link: Link, alive: Alive, tail: _Vector, head: _Vector, bits: int | None, multipliers: Ints) -> int:
    """Return the least of price - A - B over what the values that are left offer and ask for, where it is allowed."""
    offered, asked = link.sides(alive)
    price, allowed = link.price[offered][:, asked], True if link.allowed is None else link.allowed[offered][:, asked]
    timed = np.where(allowed, price, 0) if bits is not None else np.zeros_like(price)
    reach = (int(timed.max(initial=0)) << (bits or 0)) + tail.largest + head.largest
    stored = None
    if link.stored is not None:
        stored = np.tensordot(multipliers, link.stored[:, offered][:, :, asked].astype(object), 1)
        reach += int(stored.max(initial=0))
    rest = _scaled(timed, bits or 0, reach) - tail.values[offered][:, None] - head.values[asked]
    if stored is not None:
        rest = rest + stored.astype(rest.dtype)
    return int(rest.min(where=allowed, initial=rest.dtype.type(2 * LARGEST) if rest.dtype != object else reach + 1))
