"""A person's pins, read against a graph and a mesh."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ops.placement import Parts, Placement, PlacementError, Shard, parse_placement
from solver.graph import Graph, Tensor, Use
from solver.mesh import Mesh
from solver.parts import Refinement


class ProblemError(ValueError):
    """A wish that names something the graph or the mesh does not have, or that cannot be read."""


@dataclass(frozen=True, slots=True)
class Pin:
    """A person's wish for one tensor or use on one mesh axis.

    Parameters
    ----------
    subject : str
        A tensor, or a use written ``op/operand``.
    axis : int
        The mesh axis.
    placement : Placement
    source : str
        The pin as it was written.
    place : str
        Where it was set: a file and a line, or an option of the command; empty where that is not known.
    """

    subject: str
    axis: int
    placement: Placement
    source: str
    place: str = field(default="", compare=False)


def read_pins(graph: Graph, mesh: Mesh, refinement: Refinement, pins: Any, place: str) -> list[Pin]:
    """Read pins against a graph and a mesh.

    Parameters
    ----------
    graph : Graph
    mesh : Mesh
    refinement : Refinement
        The parts of each tensor dim.
    pins : mapping
        Tensor, glob or ``op/operand`` -> placements.
    place : str
        Where they were set.

    Returns
    -------
    list of Pin
        One for each tensor or use and mesh axis.

    Raises
    ------
    ProblemError
        Where a pin names nothing, or cannot be read.
    """
    if not isinstance(pins, Mapping):
        raise ProblemError(f"pins={pins!r} is no mapping: write {{'x': 'dp=S(0)'}}")
    uses = {use.name: use for node in graph.nodes for use in graph.operand_uses(node)}
    found: dict[Pin, None] = {}
    for written, wish in pins.items():
        if not isinstance(written, str):
            raise ProblemError(f"pin on {written!r}: write the name of a tensor, a glob, or op/operand")
        subjects = _subjects(written, graph, uses)
        for axis_name, placement in _placements(written, wish):
            if axis_name not in mesh.axes:
                raise ProblemError(
                    f"pin on {written!r} names mesh axis {axis_name!r}, but the mesh has {', '.join(mesh.axes)}"
                )
            source = f"{written}:{axis_name}={placement}"
            for subject in subjects:
                tensor = graph.tensors[uses[subject].tensor if subject in uses else subject]
                _check_names_a_dim(written, subject, tensor, placement, refinement.parts[tensor.name])
                found[Pin(subject, mesh.axes.index(axis_name), placement, source, place)] = None
    return list(found)


def _subjects(written: str, graph: Graph, uses: Mapping[str, Use]) -> list[str]:
    if written in graph.tensors or written in uses:
        return [written]
    for names in (graph.tensors, uses):
        if matched := [name for name in names if fnmatch.fnmatchcase(name, written)]:
            return matched
    import difflib

    hint = f"; it has {', '.join(list(graph.tensors)[:6])}{', ...' if len(graph.tensors) > 6 else ''}"
    if near := difflib.get_close_matches(written, [*graph.tensors, *uses], 3):
        hint = f"; did you mean {' or '.join(map(repr, near))}?"
    elif "/" in written and uses:
        operand = written.rpartition("/")[2]
        alike = [name for name in uses if name.endswith(f"/{operand}")] or list(uses)
        hint = f"; a use is op/operand, where an op is called as its result is: {', '.join(alike[:3])}"
        hint += ", ..." if len(alike) > 3 else ""
    raise ProblemError(f"pin on {written!r} names no tensor and no use of graph {graph.name!r}{hint}")


def _placements(written: str, wish: Any) -> list[tuple[str, Placement]]:
    """Read ``{"dp": Shard(0)}`` or ``"dp=S(0),tp=R"``; an axis that is named twice is wished for twice."""
    form = "write {'dp': Shard(0)} or 'dp=S(0),tp=R'"
    if not isinstance(wish, Mapping | str):
        raise ProblemError(f"pin on {written!r} is {wish!r}: {form}")
    if not wish:
        raise ProblemError(f"pin on {written!r} names no mesh axis: {form}, or leave it out")
    try:
        return list(_assignments(wish)) if isinstance(wish, str) else [(a, _placement(p)) for a, p in wish.items()]
    except PlacementError as error:
        raise ProblemError(f"pin on {written!r}: {error}") from error


def _placement(value: Any) -> Placement:
    if isinstance(value, str):
        return parse_placement(value)
    if isinstance(value, Placement):
        return value
    raise PlacementError(f"{value!r} is not a placement: use Replicate(), Shard(0) or Partial('sum')")


def _assignments(text: str) -> Iterator[tuple[str, Placement]]:
    """Split ``dp=S(0,part=1),tp=R`` at the commas that stand outside parentheses."""
    for piece in re.split(r",(?![^(]*\))", text):
        axis, equals, placement = piece.partition("=")
        if not equals or not axis.strip():
            raise PlacementError(f"cannot read {piece.strip()!r}: write AXIS=PLACEMENT, as dp=S(0)")
        yield axis.strip(), parse_placement(placement)


def _check_names_a_dim(written: str, subject: str, tensor: Tensor, placement: Placement, parts: Parts) -> None:
    if not isinstance(placement, Shard):
        return
    dim, part = placement.dim, placement.part
    of = f"{subject!r}" if subject == tensor.name else f"{tensor.name!r}, which {subject!r} reads,"
    if dim >= len(tensor.shape):
        raise ProblemError(
            f"pin on {written!r}: {placement} names dim {dim}, but {of} has rank {len(tensor.shape)} "
            f"and shape {tensor.shape}: dims count from 0"
        )
    if part >= len(parts[dim]):
        split = " x ".join(map(str, parts[dim]))
        raise ProblemError(
            f"pin on {written!r}: {placement} names part {part}, but dim {dim} of {of} "
            + (f"has {len(parts[dim])} parts, {split}" if len(parts[dim]) > 1 else f"is one part of size {split}")
            + ": parts count from 0"
        )
