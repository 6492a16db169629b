"""Shardy: shardings propagate through the graph in both directions, by priority, to a fixed point; then reshards.

Source: OpenXLA Shardy's op-priority propagation with its aggressive strategy (`op_priority_propagation`,
`aggressive_factor_propagation`, `sharding_projection`, `basic_propagation`), which tests/test_shardy_real.py runs
beside this one. What each of them does:

- ops that pass shardings through (pointwise, reshape, transpose) go first, where every operand has one use, then where
  it has more; then factors that no op reduces, permutes or needs whole; then all; a broadcast goes backward until last;
- a factor takes the axes that its tensors agree on, major first; where two factors of a tensor want one axis, that of
  the larger source has it, in pointwise flows then the one that is cut more;
- what is pinned is a start, not closed; an axis pinned to R is closed to the tensor;
- a mesh axis may be cut in two (a sub-axis) and need not divide what it cuts.

A layout has whole axes that divide, so what else is propagated is left out at the end. Then explicit reshards
(`explicit_reshards_util`): an op runs cut along the factors that the most elements of its tensors lie along, operands
are brought there, and results to their own layouts. Tied sources are a sharding group; a tied output leaves as its
leader is pinned.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set

from ops.bind import Row, composes
from ops.placement import Layout, Partial, Placement, Replicate, Shard
from solver.graph import Node, flat
from solver.greedy.flows import Flows
from solver.greedy.follow import follow
from solver.greedy.propagation import Axes, Propagation, Units
from solver.plan import Plan
from solver.problem import Problem


def shardy(problem: Problem) -> Plan:
    """Plan as Shardy propagates.

    Parameters
    ----------
    problem : Problem

    Returns
    -------
    Plan
        Status ``feasible``, without a bound.

    Raises
    ------
    StuckError
        Where an op has no row that its operands can be brought to.
    """
    return plan_of(problem, shardy_axes(problem))


def plan_of(problem: Problem, axes: Mapping[str, Sequence[Axes]]) -> Plan:
    """Return the plan that follows from what cuts each tensor, with Shardy's explicit reshards.

    Parameters
    ----------
    problem : Problem
    axes : mapping
        Tensor -> per dim the units that cut it.

    Returns
    -------
    Plan
        Status ``feasible``, without a bound.

    Raises
    ------
    StuckError
        Where an op has no row that its operands can be brought to.
    """
    held = {tensor: as_layout(problem, tensor, placed) for tensor, placed in axes.items()}
    made = {tensor: layout for tensor, layout in held.items() if problem.graph.tensors[tensor].producer is None}
    needed: dict[str, Layout] = {}
    for node in problem.graph.nodes.values():
        rows = _voted(problem, node, held)
        for use in problem.graph.operand_uses(node.name):
            placed = [row.operands[use.slot] for row in rows]
            needed[use.name] = problem.canonical(use.tensor, [one for one in placed if one is not None])
        for slot, tensor in enumerate(node.results):
            made[tensor] = problem.canonical(tensor, [row.results[slot] for row in rows])
    return follow(problem, made, needed, held).plan


def _voted(problem: Problem, node: Node, layouts: Mapping[str, Layout]) -> list[Row]:
    """Return the row of an op for each mesh axis, by what the tensors of the op lie along.

    The candidates are a factor and axes that cut it in some tensor. One after the other the best is taken: that of the
    most elements; then one that passes before one that is reduced; that which cuts most; that of the largest tensor.
    A factor that the op needs whole is no candidate. An op of one operand and one result runs as the larger of them
    lies, or else as the one that is cut more; the other is resharded.
    """
    bound, sizes = problem.bound[node.name], problem.mesh.sizes
    lying = _lying(problem, node, layouts)
    elements = {
        slot: math.prod(problem.graph.tensors[name].shape)
        for slot, name in enumerate((*flat(node.operands), *node.results))
        if name is not None
    }
    if len(elements) == 2 and not any(factor.kind in ("whole", "synced") for factor in bound.factors.values()):
        cut = {slot: {axis for axes in lying.get(slot, {}).values() for axis in axes} for slot in elements}
        first = max(elements, key=lambda slot: (elements[slot], math.prod(sizes[axis] for axis in cut[slot]), -slot))
        lying = {first: lying.get(first, {})}
    left = {(k, axes[:end]) for along in lying.values() for k, axes in along.items() for end in range(1, len(axes) + 1)}
    found, taken = [bound.rows[0]] * len(sizes), dict[int, tuple[int, ...]]()

    def worth(candidate: tuple[int, tuple[int, ...]]) -> tuple[int, ...]:
        k, axes = candidate
        votes = [elements[slot] for slot, along in lying.items() if along.get(k, ())[: len(axes)] == axes]
        cut = math.prod(sizes[axis] for axis in axes[len(taken.get(k, ())) :])
        return sum(votes), not _is_partial(bound.rows[k].results), cut, max(votes), k

    while left:
        k, axes = max(left, key=worth)
        left.discard((k, axes))
        tried = [bound.rows[k] if axis in axes else row for axis, row in enumerate(found)]
        if composes(bound, tried, sizes):
            found, taken[k] = tried, axes
            used = {axis for one in taken.values() for axis in one}
            left = {one for one in left if _goes_on(*one, taken, used)}
    return found


def _goes_on(k: int, axes: tuple[int, ...], taken: Mapping[int, tuple[int, ...]], used: Set[int]) -> bool:
    """Tell whether axes lengthen what cuts a factor already, and the others are not used elsewhere."""
    own = taken.get(k, ())
    return axes[: len(own)] == own and len(axes) > len(own) and not used & set(axes[len(own) :])


def _lying(problem: Problem, node: Node, layouts: Mapping[str, Layout]) -> dict[int, dict[int, tuple[int, ...]]]:
    """Return for each slot of an op that is cut the mesh axes along each row; a row stands for the factor it cuts.

    A row that cuts nothing and hands a sum on stands for none; one that cuts a product inside, and takes a bias as one
    term of the sum, does.
    """
    bound, found = problem.bound[node.name], dict[int, dict[int, tuple[int, ...]]]()
    rows = [k for k in problem.offered(bound) if bound.rows[k].cut or not _is_partial(bound.rows[k].operands)]
    for slot, name in enumerate((*flat(node.operands), *node.results)):
        for axis, lies in enumerate(layouts.get(name, ()) if name is not None else ()):
            if isinstance(lies, Shard):
                ways = (lies, Shard(lies.dim))
                along = [k for way in ways for k in rows if _placed(bound.rows[k])[slot] == way]
                for k in along[:1]:
                    of = found.setdefault(slot, {})
                    of[k] = (*of.get(k, ()), axis)
    return found


def _placed(row: Row) -> tuple[Placement | None, ...]:
    return (*row.operands, *row.results)


def _is_partial(placed: Sequence[Placement | None]) -> bool:
    return any(isinstance(one, Partial) for one in placed)


def shardy_axes(problem: Problem) -> dict[str, list[Axes]]:
    """Propagate, and return the units of mesh axes that cut each dim of every tensor.

    Parameters
    ----------
    problem : Problem

    Returns
    -------
    dict
        Tensor -> per dim its units (`Units`), major first. Constants are not in it.
    """
    flows, units = Flows(problem), Units(problem.mesh.sizes)
    groups = {problem.stored_alike(tensor) for tensor in flows.of if problem.graph.tensors[tensor].producer is None}
    alike = [[flows.of[tensor] for tensor in group] for group in groups if len(group) > 1]
    found = Propagation(flows, units, alike)
    for subject, value in [*flows.of.items(), *((use, value) for value, use in flows.constraints.items())]:
        found.placed[value], found.whole[value] = pinned_axes(problem, units, subject, len(flows.values[value].shape))
    for tensor in problem.graph.outputs:
        leader = problem.delivered_as(tensor)
        if leader in problem.pins_on:
            asked = pinned_axes(problem, units, leader, len(problem.graph.tensors[tensor].shape))[0]
            found.outputs.append((flows.of[tensor], asked))
    found.run()
    return {tensor: found.placed[value] for tensor, value in flows.of.items()}


def pinned_axes(problem: Problem, units: Units, subject: str, rank: int) -> tuple[list[Axes], set[int]]:
    """Return the units that pins put on each dim of a tensor or use, and those that they forbid it.

    A sharding names whole dims and no partial sums, so a pin on a later part of a dim and one to P say nothing.

    Parameters
    ----------
    problem : Problem
    units : Units
    subject : str
    rank : int
        Of the tensor.

    Returns
    -------
    tuple
        Per dim its units, and a set of units.
    """
    placed: list[Axes] = [()] * rank
    whole: set[int] = set()
    for pin in sorted(problem.pins_on.get(subject, ()), key=lambda pin: pin.axis):
        if pin.placement == Replicate():
            whole |= set(units.of(pin.axis))
        elif isinstance(pin.placement, Shard) and pin.placement.part == 0:
            placed[pin.placement.dim] += units.of(pin.axis)
    return placed, whole


def as_layout(problem: Problem, tensor: str, placed: Sequence[Axes]) -> Layout:
    """Return the layout that says most of what cuts a tensor: whole mesh axes, as far as they divide.

    Parameters
    ----------
    problem : Problem
    tensor : str
    placed : sequence of Axes
        Per dim the units that cut it.

    Returns
    -------
    Layout
    """
    units = Units(problem.mesh.sizes)
    cut = {
        axis: dim
        for dim, axes in enumerate(placed)
        for axis in range(len(problem.mesh.sizes))
        if units.of(axis) and set(units.of(axis)) <= set(axes)
    }
    pinned = {pin.axis for pin in problem.pins_on.get(tensor, ())}
    layout: list[Placement] = [
        Shard(cut[axis]) if axis in cut else Replicate() for axis in range(len(problem.mesh.sizes))
    ]
    for axis in sorted(cut, key=lambda axis: (axis in pinned, -axis)):
        if tuple(layout) in problem.written(tensor):
            break
        layout[axis] = Replicate()
    return problem.canonical(tensor, layout)
