"""Where the gap of a plan sits: what it pays above the bound, op by op, tensor by tensor and edge by edge."""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

import numpy as np

from solver.plan import Plan
from solver.search.bound import edge_minimum, variable_sums
from solver.search.branch import solve
from solver.search.build import Built, build
from solver.search.flat import SCALE_BITS
from solver.search.network import arc_consistency
from solver.search.tree import Leaf

SECONDS = 60.0
"""What the bound without branching gets."""


class Place(NamedTuple):
    """Where a loss sits: the part of it in equal layers together, and the name of the worst of them."""

    part: float
    worst: str


def places(found: Plan) -> list[Place]:
    """Return where the loss sits, most first.

    The loss is what the plan pays above the bound of messages alone, before any branching: each variable and each edge
    pays at least its least, and the rest adds up to the loss.

    Parameters
    ----------
    found : Plan
        Not proved, and without expressions of a person's own.

    Returns
    -------
    list of Place
        Of ops, tensors and edges (``op/operand``); names that differ in numbers only are one place.
    """
    built = build(found.problem)
    lost = _lost(built, assignment(built, found))
    alike: dict[str, list[str]] = {}
    for name, paid in lost.items():
        if paid:
            alike.setdefault(re.sub(r"\d+", "*", name), []).append(name)
    whole = sum(lost.values())
    summed = [
        Place(sum(lost[name] for name in names) / whole, max(names, key=lost.__getitem__)) for names in alike.values()
    ]
    return sorted(summed, reverse=True)


def _lost(built: Built, values: list[int]) -> dict[str, int]:
    """Return what an assignment pays above the least, at each variable and each edge."""
    leaf = solve(built.network, SECONDS, nodes=1).tree
    assert isinstance(leaf, Leaf)
    assert leaf.messages is not None
    domains = arc_consistency(built.network).domains
    lost: Counter[str] = Counter()
    sums = variable_sums(built.network, leaf.messages)
    for variable, value, paid, domain in zip(built.network.variables, values, sums, domains, strict=True):
        lost[variable.name] += int(paid[value]) - int(paid[domain].min())
    for edge, (rows, columns) in zip(built.network.edges, leaf.messages, strict=True):
        tail, head = values[edge.tail], values[edge.head]
        felt = min(int(rows[k]) for k in edge.tail_index[tail]) + int(columns[edge.head_index[head]])
        least = edge_minimum(edge, rows, columns, domains[edge.tail], domains[edge.head])
        lost[edge.name] += (edge.value(tail, head) << SCALE_BITS) - felt - least
    return lost


def assignment(built: Built, found: Plan) -> list[int]:
    """Return the values of the network that a plan stands for."""
    assert found.choice is not None
    values: list[int] = []
    for variable in built.network.variables:
        name = variable.name
        if variable.kind == "op":
            rows = built.joint[name].rows[built.kept[name]]
            values.append(int(np.flatnonzero((rows == found.choice.rows[name]).all(axis=1))[0]))
            continue
        number = {layout: k for k, layout in enumerate(found.problem.layouts(name))}
        made, held = number[found.evaluation.made(name)], number[found.evaluation.held(name)]
        pairs = built.pairs[name]
        fits = (pairs.held == held) & (pairs.relay | (pairs.made == made))
        options = np.flatnonzero(fits)
        if pairs.left is not None and len(options) > 1:  # delivered from the nearer one
            leader = found.problem.delivered_as(name)
            assert leader is not None
            source = number[found.evaluation.source_of(name, found.evaluation.made(leader))]
            options = options[pairs.left[options] == source]
        values.append(int(options[0]))
    if built.network.cost(values) != found.cost_ps:
        raise ValueError("the plan is no assignment of the network at the same price")
    return values
