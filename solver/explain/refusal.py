"""Why an op has no row that reads, or makes, a tensor as it should lie: in the words of its rule."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ops.bind import BoundRule, BoundTensor
from ops.placement import Partial, Placement, Shard
from solver.constraints.layouts import Place
from solver.problem import Problem


def refusal(problem: Problem, node: str, place: Place, placements: Sequence[Placement]) -> tuple[str, str]:
    """Say why an op cannot take a tensor in some placements.

    Parameters
    ----------
    problem : Problem
    node : str
    place : tuple
        ``("needed", node, slot)`` or ``("made", tensor)``.
    placements : sequence of Placement

    Returns
    -------
    str, str
        A sentence about "it", with the rule; and the capability that would allow it, empty where none would.
    """
    bound = problem.bound[node]
    if place[0] == "made":
        slot, tensor = bound.results[problem.graph.tensors[str(place[1])].slot], str(place[1])
    else:
        use = next(use for use in problem.graph.operand_uses(node) if use.slot == place[2])
        operand, tensor = bound.operands[use.slot], use.tensor
        assert operand is not None
        slot = operand
    told: dict[str, None] = {}
    missing = ""
    for placement in placements:
        if isinstance(placement, Shard):
            why, capability = _cut(bound, slot, placement, tensor, problem.capabilities)
            told[why] = None
            missing = missing or capability
        elif isinstance(placement, Partial) and (placement.kind != "avg" or Partial("sum") not in placements):
            told[_partial(bound, slot, placement, tensor)] = None
    return f"{' and '.join(told) or 'it has no such row'} ({written(bound)})", missing


def written(bound: BoundRule) -> str:
    """Return a rule with its clauses."""
    return "; ".join([bound.rule.text, *bound.rule.clauses()])


def added(bound: BoundRule, one: object, other: object) -> bool:
    """Return whether an op adds what two operands give, by their slots: an unreduced sum has to be one in both."""
    names = [
        slot.name.partition(".")[0] for k in (one, other) for n, slot in enumerate(bound.operands) if n == k and slot
    ]
    forms = ([{name.partition(".")[0] for name in term} for term in form] for form in linear_forms(bound))
    return len(set(names)) == 2 and any(
        all(any(name in term and not set(names) <= term for term in form) for name in names) for form in forms
    )


def linear_forms(bound: BoundRule) -> tuple[Any, ...]:
    """Return the linear forms of a rule: of all results, and of single ones."""
    return bound.rule.linear, *bound.rule.forms.values()


def _partial(bound: BoundRule, slot: BoundTensor, placement: Partial, tensor: str) -> str:
    names = {name.partition(".")[0] for form in linear_forms(bound) for term in form for name in term}
    if not names:
        return f"it is not linear, so that no {placement} passes through it"
    if slot in bound.operands and slot.name.partition(".")[0] not in names:
        return f"it is not linear in {tensor!r}, so that no {placement} passes through it"
    return f"it has no row with {placement} there"


def _cut(
    bound: BoundRule, slot: BoundTensor, placement: Shard, tensor: str, granted: frozenset[str]
) -> tuple[str, str]:
    """Say why a dim stays whole: by its factor; and which capability is missing."""
    dim, names = placement.dim, slot.dims[placement.dim]
    if not names:
        return f"it needs dim {dim} of {tensor!r} whole on every device", ""
    factor = bound.factors[_factor_at(bound, names, slot.shape[dim], placement.part)]
    if factor.kind == "whole":
        return f"it keeps dim {dim} of {tensor!r} whole", ""
    if factor.capability is not None and factor.capability not in granted:
        why = f"cutting dim {dim} of {tensor!r} needs the capability {factor.capability}, which is not granted"
        return why, factor.capability
    if len(names) > 1:
        sizes = " x ".join(str(bound.factors[name].size) for name in names)
        return f"it takes dim {dim} of {tensor!r} as {sizes}, and cannot carry a cut of a later one of them", ""
    if slot.shape[dim] == 1:
        return f"dim {dim} of {tensor!r} has size 1 and cannot be cut", ""
    return "it has no row with that cut", ""


def _factor_at(bound: BoundRule, names: Sequence[str], size: int, part: int) -> str:
    """Return the factor of a dim that holds one of its parts."""
    split = [piece for name in names for piece in [name] * max(1, len(bound.factors[name].parts))]
    return split[min(part, len(split) - 1)] if prod(bound.factors[name].size for name in names) == size else names[0]
