"""The checker of bounds within a budget of traffic (docs/certificate.md): prices with a levy, one for each leaf."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from solver.certificate import certified_bound
from solver.certificate_choices import Alive, Ints, Name
from solver.certificate_messages import CertificateError, Messages, of_leaf, short
from solver.certificate_model import Model
from solver.certificate_sums import Counting, sums
from solver.constraints.policy_kinds import Traffic
from solver.cost.reshard import INF
from solver.cost.tariff import LEVIED
from solver.problem import Problem

MOST_MULTIPLIER = 2**24
"""No multiplier is larger: bytes times it stay within 64 bits."""
MOST_BITS = 32


def levied_bound(problem: Problem, policy: Traffic, certificate: Any) -> int:
    """Compute the bound that a certificate proves for the plans within a budget of traffic.

    Parameters
    ----------
    problem : Problem
    policy : Traffic
        The budget.
    certificate : mapping
        With one multiplier, or with a tree whose leaves have their own.

    Returns
    -------
    int
        Picoseconds that no plan within the budget undercuts; INF where it proves that there is none.

    Raises
    ------
    CertificateError
        Where the certificate has another form.
    """
    if isinstance(certificate, Mapping) and set(certificate) == {"multiplier", "certificate"}:
        multiplier = _multiplier(certificate)
        return max(
            0,
            certified_bound(_levied(problem, policy, multiplier), certificate["certificate"])
            - _spared(policy, multiplier),
        )
    if not isinstance(certificate, Mapping) or set(certificate) != {"bits", "arrays", "tree"}:
        raise CertificateError("it should have a multiplier, or be an object with bits, arrays and tree")
    bits = certificate["bits"]
    if type(bits) is not int or not 0 <= bits <= MOST_BITS:
        raise CertificateError(f"bits is {short(bits)}, not a whole number from 0 to {MOST_BITS}")
    messages, tree = Messages(certificate["arrays"]), _Tree(certificate["tree"])
    bounds = [INF]
    for multiplier in tree.multipliers:
        model = Model(_levied(problem, policy, multiplier))
        for leaf, alive in tree.leaves(model, multiplier):
            given = of_leaf(model.links, leaf["messages"])
            found = sums(model.choices, model.links, alive, messages, given, Counting(bits, np.zeros(0, object))).total
            bounds.append(-(-found >> bits) - _spared(policy, multiplier))
    return max(0, min(bounds))


def _levied(problem: Problem, policy: Traffic, multiplier: int) -> Problem:
    return replace(problem, levy=((problem.mesh.axis(policy.axis), multiplier),))


def _spared(policy: Traffic, multiplier: int) -> int:
    """Return what a plan within the budget may pay by a levy at most."""
    return multiplier * policy.most // LEVIED


def _multiplier(node: Mapping[str, Any]) -> int:
    found = node["multiplier"]
    if type(found) is not int or not 0 <= found <= MOST_MULTIPLIER:
        raise CertificateError(f"the multiplier is {short(found)}, not a whole number from 0 up")
    return found


class _Tree:
    """The tree of a certificate: by which multipliers its leaves are priced."""

    def __init__(self, tree: Any) -> None:
        self.tree = tree
        self.below: dict[int, set[int]] = {}
        """The multipliers of the leaves below each node, by its identity."""
        order, waiting = [], [tree]
        while waiting:
            node = waiting.pop()
            order.append(node)
            if not isinstance(node, Mapping):
                raise CertificateError(f"a node of the tree is {short(node)}, not an object")
            if _kind(node) is not None:
                waiting += [node["left"], node["right"]]
        for node in reversed(order):
            if _kind(node) is not None:
                self.below[id(node)] = self.below[id(node["left"])] | self.below[id(node["right"])]
            elif set(node) == {"messages", "multiplier"}:
                self.below[id(node)] = {_multiplier(node)}
            elif node == {"infeasible": True}:
                self.below[id(node)] = {0}
            else:
                raise CertificateError(f"a leaf of the tree is {short(node)}: it should have messages and a multiplier")

    @property
    def multipliers(self) -> list[int]:
        """Every multiplier, each once."""
        return sorted(self.below[id(self.tree)])

    def leaves(self, model: Model, multiplier: int) -> Iterator[tuple[Mapping[str, Any], Alive]]:
        """Yield the leaves with a multiplier that leave every variable a value, with the values that are left."""
        waiting: list[tuple[Any, Alive | None]] = [(self.tree, model.consistent_values)]
        while waiting:
            node, alive = waiting.pop()
            if alive is None or multiplier not in self.below[id(node)]:
                continue
            kind = _kind(node)
            if kind is None:
                if "messages" not in node:
                    raise CertificateError("a leaf of the tree is called infeasible, but it is not")
                yield node, alive
                continue
            name, left = _split(model, kind, node)
            for side, mask in (("left", left), ("right", ~left)):
                waiting.append((node[side], model.consistent({**alive, name: alive[name] & mask}, name)))


def _kind(node: Mapping[str, Any]) -> str | None:
    """Return what a node splits: an op, a tensor, or nothing."""
    kind = next((kind for kind in ("op", "tensor") if kind in node), None)
    if kind is not None and (set(node) != {kind, "left_values", "left", "right"} or not isinstance(node[kind], str)):
        raise CertificateError(f"a split of the tree is {short(node)}: it should have left_values, left and right")
    return kind


def _split(model: Model, kind: str, node: Mapping[str, Any]) -> tuple[Name, Ints]:
    """Return the variable that a node splits, and which of its values go to the left.

    Of a tensor that is a source, by the layout in which it is stored alone: which copies pay differs between leaves.
    """
    name: Name = (kind, node[kind])
    if name not in model.choices or (kind == "tensor" and model.graph.tensors[name[1]].producer is not None):
        raise CertificateError(f"the tree splits {kind} {node[kind]!r}, which is no op and no source")
    listed, keys = node["left_values"], model.choices[name].keys if kind == "op" else model.choices[name].keys[:, :1]
    if not isinstance(listed, list) or not all(
        isinstance(value, list) and all(type(number) is int for number in value) for value in listed
    ):
        raise CertificateError(f"the split on {kind} {node[kind]!r} should list its left values as lists of numbers")
    wanted = {tuple(value) for value in listed}
    return name, np.array([tuple(key) in wanted for key in keys.tolist()], np.bool_)
