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

A layout has whole axes that divide, so what else is propagated is left out at the end, and reshards bring operands to
an op and its results to their own layouts. Tied sources are a sharding group; a tied output leaves as its leader is
pinned.
"""

from __future__ import annotations

from collections.abc import Sequence

from ops.placement import Layout, Placement, Replicate, Shard
from solver.greedy.flows import Flows
from solver.greedy.propagation import Axes, Propagation, Units
from solver.greedy.read_back import read_back
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
        Where no row of an op lies between the layouts of its operands and results.
    """
    axes = shardy_axes(problem)
    return read_back(problem, {tensor: as_layout(problem, tensor, placed) for tensor, placed in axes.items()})


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
