"""The checker of bounds (docs/certificate.md): plain integer arithmetic, nothing of the search, no solver.

What every op and tensor may choose is enumerated in solver/certificate_model.py; here the values that cannot be part of
a plan are taken out, and what the messages of a certificate leave is added up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from solver.certificate_choices import Alive, Ints, Name
from solver.certificate_memory import StoringModel
from solver.certificate_messages import CertificateError, Messages, of_leaf, short
from solver.certificate_model import Model
from solver.certificate_sums import Counting, total
from solver.cost.reshard import INF
from solver.problem import Problem

__all__ = ["CertificateError", "certified_bound", "proved"]

MOST_BITS = 32
LEAVES = {"messages"}, {"messages", "multipliers"}, {"messages", "weights"}
"""What a leaf with messages may say."""


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
        return _proved(Model(problem), written)
    if problem.memory is None:
        raise CertificateError("it speaks of moments, but there is no memory budget")
    try:
        model = StoringModel(problem, written.moments)
    except KeyError as error:
        raise CertificateError(f"there is no moment {error}") from error
    return _proved(model, written)


def _in_both_cases(problem: Problem, certificate: Mapping[str, Any]) -> int:
    """Compute the bound of a problem that is split by an atom of a person's own expressions."""
    known = [atom for atoms in problem.atoms_on.values() for atom in atoms]
    named = [atom for atom in known if [atom.kind, atom.tensor, atom.dim, atom.axis] == certificate["atom"]]
    if not named:
        raise CertificateError(f"it splits by {short(certificate['atom'])}, which no expression speaks of")
    holds = certified_bound(problem.assuming(named[0], True), certificate["holds"])
    return min(holds, certified_bound(problem.assuming(named[0], False), certificate["fails"]))


def proved(model: Model, certificate: Any) -> int:
    """Compute the bound that a certificate proves for what is enumerated already (see `certified_bound`)."""
    return _proved(model, _Written(certificate))


def _proved(model: Model, written: _Written) -> int:
    bounds = (_leaf_bound(model, alive, written, leaf) for leaf, alive in _leaves(model, written.tree))
    leaves = [bound for bound in bounds if bound is not None]
    if not leaves:
        return INF
    return max(0, -(-min(leaves) >> written.bits))


# ------------------------------------------------------------------------------------------------- what is written


class _Written:
    """The numbers of a certificate, read."""

    def __init__(self, certificate: Any) -> None:
        if not isinstance(certificate, Mapping) or set(certificate) - {"moments"} != {"bits", "arrays", "tree"}:
            raise CertificateError("it should be an object with bits, arrays and tree")
        bits, arrays = certificate["bits"], certificate["arrays"]
        if type(bits) is not int or not 0 <= bits <= MOST_BITS:
            raise CertificateError(f"bits is {short(bits)}, not a whole number from 0 to {MOST_BITS}")
        moments = certificate.get("moments")
        if moments is not None and (
            not isinstance(moments, list)
            or not all(isinstance(moment, str) for moment in moments)
            or len(set(moments)) < len(moments)
        ):
            raise CertificateError(f"moments should be a list of names, each once: {short(moments)}")
        self.bits: int = bits
        self.moments: list[Any] | None = moments
        self.tree: Any = certificate["tree"]
        self.messages = Messages(arrays)

    def multipliers(self, leaf: Mapping[str, Any]) -> tuple[Ints, bool]:
        """Return what multiplies the bytes of each moment on a leaf, and whether time counts beside them."""
        given = leaf.get("weights", leaf.get("multipliers", [0] * len(self.moments or ())))
        if not isinstance(given, list) or not all(type(one) is int and one >= 0 for one in given):
            raise CertificateError(f"multipliers should be whole numbers from 0 up, not {short(given)}")
        if len(given) != len(self.moments or ()):
            raise CertificateError(f"there are {len(given)} multipliers, but {len(self.moments or ())} moments")
        return np.array(given, object), "weights" not in leaf


# ------------------------------------------------------------------------------------------------------- the tree


def _leaves(model: Model, tree: Any) -> Iterator[tuple[Mapping[str, Any], Alive]]:
    """Yield each leaf that leaves every variable a value, with the values of its side of every split above it."""
    waiting: list[tuple[Any, Alive | None]] = [(tree, model.consistent_values)]
    while waiting:
        node, alive = waiting.pop()
        if not isinstance(node, Mapping):
            raise CertificateError(f"a node of the tree is {short(node)}, not an object")
        kind = next((kind for kind in ("op", "tensor") if kind in node), None)
        if kind is None:
            if set(node) not in LEAVES and node != {"infeasible": True}:
                raise CertificateError(f"a leaf of the tree is {short(node)}: it should have messages")
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
        raise CertificateError(f"a split of the tree is {short(node)}: it should have left_values, left and right")
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
    given = of_leaf(model.links, leaf.get("messages", {}))
    multipliers, timed = written.multipliers(leaf)
    counting = Counting(written.bits if timed else None, multipliers)
    found = total(model.choices, model.links, alive, written.messages, given, counting)
    over = int(found - sum(multipliers) * (model.problem.memory or 0))
    if timed:
        return over
    return None if over > 0 else 0
