"""The layout of a tensor at one place (made, held, needed) as Booleans: one placement per mesh axis."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import combinations, product
from math import prod

from ops.placement import Layout, Partial, Placement, Replicate, Shard
from solver.constraints.reason import Reason
from solver.constraints.variables import Clauses, negation
from solver.layout import placements, raw_layouts, why_illegal
from solver.problem import Problem

Place = tuple[Hashable, ...]
"""What is laid out: ``("made", tensor)``, ``("held", tensor)``, ``("needed", op, slot)``, ``("asked", op, slot)``."""


def labels(problem: Problem, tensor: str) -> tuple[Placement, ...]:
    """Return the placements that one mesh axis may have on a tensor."""
    return placements(problem.parts(tensor), problem.kinds)


def free_layout(clauses: Clauses, problem: Problem, tensor: str, place: Place, *, partial: bool = True) -> None:
    """Let a place take any legal layout of a tensor, however it is written.

    Parameters
    ----------
    clauses : Clauses
    problem : Problem
    tensor : str
    place : tuple
    partial : bool, optional
        Whether P is allowed.
    """
    options = [label for label in labels(problem, tensor) if partial or not isinstance(label, Partial)]
    for axis, size in enumerate(problem.mesh.sizes):
        offered = options if size > 1 else [Replicate()]
        clauses.exactly_one([clauses.symbol(*place, axis, label) for label in offered])
    for clash, why in _illegal(problem, tensor, options):
        clauses.under(Reason("divisibility", tensor, f"{tensor!r}: {why}"))
        clauses.clause(*(negation(clauses.symbol(*place, axis, label)) for axis, label in clash))


def _illegal(
    problem: Problem, tensor: str, options: Sequence[Placement]
) -> Iterator[tuple[list[tuple[int, Placement]], str]]:
    """Yield the smallest sets of (mesh axis, placement) that no legal layout has together, and why."""
    sizes = problem.mesh.sizes
    shape, parts = problem.graph.tensors[tensor].shape, problem.parts(tensor)
    axes = [axis for axis, size in enumerate(sizes) if size > 1]
    found: list[frozenset[tuple[int, Placement]]] = []
    for count in range(1, len(axes) + 1):
        for chosen in combinations(axes, count):
            for picked in product([label for label in options if label != Replicate()], repeat=count):
                clash = frozenset(zip(chosen, picked, strict=True))
                if not _may_clash(picked) or any(known <= clash for known in found):
                    continue
                layout = [
                    Replicate() if axis not in chosen else picked[chosen.index(axis)] for axis in range(len(sizes))
                ]
                if why := why_illegal(layout, shape, parts, sizes, problem.mesh.axes):
                    found.append(clash)
                    yield sorted(clash, key=lambda item: item[0]), why


def _may_clash(picked: Sequence[Placement]) -> bool:
    """Tell whether placements can be illegal only together: all cut one dim, or all are partial."""
    dims = {label.dim for label in picked if isinstance(label, Shard)}
    return (len(dims) == 1 and all(isinstance(label, Shard) for label in picked)) or (
        not dims and all(isinstance(label, Partial) for label in picked)
    )


def fixed(clauses: Clauses, place: Place, layout: Layout) -> None:
    """Demand one layout of a place."""
    for axis, label in enumerate(layout):
        clauses.clause(clauses.symbol(*place, axis, label))


def whole_layouts(clauses: Clauses, problem: Problem, tensor: str, place: Place) -> dict[Layout, str]:
    """Give each layout that a place can have one Boolean, whatever way it is written.

    Parameters
    ----------
    clauses : Clauses
        The Booleans per mesh axis must be there already.
    problem : Problem
    tensor : str
    place : tuple

    Returns
    -------
    dict
        Canonical layout -> literal.
    """
    made: dict[Layout, str] = {}
    for raw in raw_layouts(problem.parts(tensor), problem.mesh.sizes, problem.kinds):
        literals = [clauses.known(*place, axis, label) for axis, label in enumerate(raw)]
        if "false" in literals:
            continue
        layout = problem.canonical(tensor, raw)
        made.setdefault(layout, clauses.symbol(*place, "whole", layout))
        clauses.clause(*map(negation, literals), made[layout])
    clauses.at_most_one(list(made.values()))
    return made


def one_part_each(problem: Problem, tensor: str) -> bool:
    """Tell whether every layout of a tensor can be written in one way only."""
    return all(len(split) == 1 or prod(split) == 1 for split in problem.parts(tensor))
