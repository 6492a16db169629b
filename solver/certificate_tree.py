"""The tree of a certificate: what its leaves, splits, narrowings and blocks prove (docs/certificate.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from solver.certificate_choices import Alive, Bools, Ints, Link, Name
from solver.certificate_consistency import consistent
from solver.certificate_messages import CertificateError, Messages, of_leaf, short
from solver.certificate_model import Model
from solver.certificate_sums import Counting, Sums, sums

MOST_BITS = 32
LEAVES = {"messages"}, {"messages", "multipliers"}, {"messages", "weights"}, {"messages", "blocks"}
"""What a leaf with messages may say."""
BUDGETED = {"multipliers", "weights"}
NARROWED = {"messages", "within", "rest"}, {"messages", "blocks", "within", "rest"}


class Written:
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


class Scope:
    """What a tree speaks of: all variables and edges of a model, or those of a block.

    Parameters
    ----------
    model : Model
    written : Written
    names : list of (str, str), optional
        The variables of a block; every one of the model when absent.
    given : mapping, optional
        Name of an edge -> the numbers of its two message vectors, for the edges that leave the block.
    """

    def __init__(
        self,
        model: Model,
        written: Written,
        names: Sequence[Name] | None = None,
        given: Mapping[str, Any] | None = None,
    ) -> None:
        self.model, self.written, self.given = model, written, given or {}
        self.whole: bool = names is None
        self.choices = model.choices if names is None else {name: model.choices[name] for name in names}
        self.links: list[Link] = model.links
        self.outer: list[Link] = []
        if names is not None:
            inside = [sum(end in self.choices for end in link.ends) for link in model.links]
            self.links = [link for link, ends in zip(model.links, inside, strict=True) if ends == 2]
            self.outer = [link for link, ends in zip(model.links, inside, strict=True) if ends == 1]

    @cached_property
    def _at(self) -> dict[Name, list[int]]:
        found: dict[Name, list[int]] = {name: [] for name in self.choices}
        for number, link in enumerate(self.links):
            for end in link.ends:
                found[end].append(number)
        return found

    def consistent(self, alive: Alive, changed: Name | None = None) -> Alive | None:
        """Take out values that have no partner on an edge of this scope; None where a variable has none left."""
        if self.whole:
            return self.model.consistent(alive, changed)
        inside = consistent(self.links, self._at, {name: alive[name] for name in self.choices}, changed)
        return None if inside is None else {**alive, **inside}

    def sums(self, leaf: Mapping[str, Any], alive: Alive) -> tuple[Sums, int]:
        """Add the messages of a leaf; return with them what its multipliers take off for the budget."""
        multipliers, timed = self.written.multipliers(leaf)
        counting = Counting(self.written.bits if timed else None, multipliers)
        given = of_leaf(self.links, leaf.get("messages", {}))
        found = sums(self.choices, self.links, alive, self.written.messages, given, counting, self.outer, self.given)
        return found, int(sum(multipliers) * (self.model.problem.memory or 0))


def bounds(scope: Scope, tree: Any, alive: Alive | None) -> Iterator[int]:
    """Yield bounds in units of 2^-bits ps, of which every plan costs at least one; none where there is no plan.

    Parameters
    ----------
    scope : Scope
    tree : mapping
        As a plan file holds it.
    alive : dict or None
        Which values are left; None where a variable has none.

    Raises
    ------
    CertificateError
        Where the tree has another form.
    """
    waiting: list[tuple[Any, Alive | None]] = [(tree, alive)]
    while waiting:
        node, alive = waiting.pop()
        if not isinstance(node, Mapping):
            raise CertificateError(f"a node of the tree is {short(node)}, not an object")
        kind = next((kind for kind in ("op", "tensor") if kind in node), None)
        if kind is not None:
            name, left = _split(scope, kind, node)
            for side, mask in (("left", left), ("right", ~left)):
                kept = None if alive is None else scope.consistent({**alive, name: alive[name] & mask}, name)
                waiting.append((node[side], kept))
        elif set(node) in NARROWED:
            within = _whole_number(node["within"])
            if alive is not None:
                yield within + 1
                alive = _narrowed(scope, node, alive, within)
            waiting.append((node["rest"], alive))
        elif set(node) not in LEAVES and node != {"infeasible": True}:
            raise CertificateError(f"a leaf of the tree is {short(node)}: it should have messages")
        elif not scope.whole and not BUDGETED.isdisjoint(node):  # the messages around a block count time, not bytes
            raise CertificateError(f"a leaf of a block is {short(node)}: a budget is no matter of a block")
        elif alive is not None:
            bound = _leaf_bound(scope, node, alive)
            if bound is not None:
                yield bound


def _leaf_bound(scope: Scope, leaf: Mapping[str, Any], alive: Alive) -> int | None:
    """Add the least of every variable and of every edge, in units of 2^-bits ps; None where nothing is left of it."""
    found, budget = scope.sums(leaf, alive)
    gains = _gains(scope, leaf, alive, found)
    if gains is None:
        return None
    over = found.total - budget + sum(gain for _, gain in gains)
    if "weights" not in leaf:
        return over
    return None if over > 0 else 0


def _narrowed(scope: Scope, node: Mapping[str, Any], alive: Alive, within: int) -> Alive | None:
    """Leave out the values with which every plan costs more: what one costs above the least comes to the bound."""
    found, _ = scope.sums(node, alive)
    gains = _gains(scope, node, alive, found)
    if gains is None:
        return None
    own = {name: gain for names, gain in gains for name in names}
    bound = found.total + sum(gain for _, gain in gains)
    kept = dict(alive)
    for name, values in found.values.items():
        fits = values - values.min() <= within - bound + own.get(name, 0)
        if not fits.all():
            mask: Bools = alive[name].copy()
            mask[mask] = fits
            kept[name] = mask
    return scope.consistent(kept)


def _gains(scope: Scope, node: Mapping[str, Any], alive: Alive, found: Sums) -> list[tuple[list[Name], int]] | None:
    """Return the variables of each block, and how much more its tree proves than the messages.

    None where nothing in one of them fits together: then nothing of what is left is a plan.
    """
    blocks, seen = node.get("blocks", []), set[Name]()
    if not isinstance(blocks, list):
        raise CertificateError(f"blocks should be a list, not {short(blocks)}")
    if blocks and not scope.whole:
        raise CertificateError("a block has no blocks of its own")
    gains, plans = [], True
    for block in blocks:
        names = _variables(scope, block)
        if not seen.isdisjoint(names) or len(set(names)) < len(names):
            raise CertificateError(f"the blocks of a leaf share variables: {short(names)}")
        seen.update(names)
        part = Scope(scope.model, scope.written, names, node["messages"])
        proved = min(bounds(part, block["tree"], alive), default=None)
        plans &= proved is not None
        gains.append((names, (proved or 0) - found.least(names, part.links)))
    return gains if plans else None


def _variables(scope: Scope, block: Any) -> list[Name]:
    """Return the variables of a block."""
    if not isinstance(block, Mapping) or set(block) != {"variables", "tree"}:
        raise CertificateError(f"a block is {short(block)}: it should have variables and a tree")
    listed = block["variables"]
    if not isinstance(listed, list) or not all(isinstance(name, list) and len(name) == 2 for name in listed):
        raise CertificateError(f"a block should list its variables as pairs of a kind and a name, not {short(listed)}")
    unknown = [name for name in listed if not all(isinstance(part, str) for part in name)]
    unknown = unknown or [name for name in listed if tuple(name) not in scope.choices]
    if unknown:
        raise CertificateError(f"a block has {short(unknown[0])}, which has nothing to choose")
    return [(kind, name) for kind, name in listed]


def _whole_number(given: Any) -> int:
    if type(given) is not int:
        raise CertificateError(f"within should be a whole number, not {short(given)}")
    return given


def _split(scope: Scope, kind: str, node: Mapping[str, Any]) -> tuple[Name, Ints]:
    """Return the variable that a node splits, and which of its values go to the left."""
    if set(node) != {kind, "left_values", "left", "right"} or not isinstance(node[kind], str):
        raise CertificateError(f"a split of the tree is {short(node)}: it should have left_values, left and right")
    name: Name = (kind, node[kind])
    if name not in scope.choices:
        raise CertificateError(f"the tree splits {kind} {node[kind]!r}, which has nothing to choose")
    listed, keys = node["left_values"], [tuple(key) for key in scope.choices[name].keys.tolist()]
    if not isinstance(listed, list) or not all(
        isinstance(value, list) and all(type(number) is int for number in value) for value in listed
    ):
        raise CertificateError(f"the split on {kind} {node[kind]!r} should list its left values as lists of numbers")
    wanted = {tuple(value) for value in listed}
    if not wanted.issubset(keys):
        raise CertificateError(f"the split on {kind} {node[kind]!r} lists values that it does not have")
    return name, np.array([key in wanted for key in keys], np.bool_)
