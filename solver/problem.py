"""One planning question: a graph on a mesh, with the person's wishes read and checked."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ops.bind import BoundRule
from ops.placement import PARTIAL_KINDS, Layout, Partial, Parts, Placement, PlacementError, Shard, parse_placement
from solver.graph import Graph, Tensor, Use
from solver.layout import canonical, legal_layouts, raw_layouts
from solver.mesh import Mesh
from solver.parts import Refinement, bind_refined, refine

COMMUNICATION = ("any", "none", "frozen")
CAPABILITIES = frozenset({"masked_lookup"})
"""What the program can run beyond plain local ops."""
DEFAULT_CAPABILITIES = CAPABILITIES


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
    """

    subject: str
    axis: int
    placement: Placement
    source: str


@dataclass(frozen=True, eq=False)
class Problem:
    """What a plan has to satisfy; made by `problem`.

    Parameters
    ----------
    graph : Graph
    mesh : Mesh
    pins : tuple of Pin
    communication : str
        ``any``, ``none`` or ``frozen``.
    capabilities : frozenset of str
    bound : dict
        Node -> its rule bound to shapes, parts and capabilities; equal ops share one object.
    refinement : Refinement
        The parts of each tensor dim.
    kinds : tuple of str
        The partial kinds of this graph (docs/semantics.md, section 1).
    """

    graph: Graph
    mesh: Mesh
    pins: tuple[Pin, ...]
    communication: str
    capabilities: frozenset[str]
    bound: Mapping[str, BoundRule]
    refinement: Refinement
    kinds: tuple[str, ...]

    def with_pins(self, pins: tuple[Pin, ...]) -> Problem:
        """Return the same question with these pins; the partial kinds of the graph follow from them."""
        natural = {factor.kind for rule in self.bound.values() for factor in rule.factors.values()}
        named = {pin.placement.kind for pin in pins if isinstance(pin.placement, Partial)}
        kinds = tuple(kind for kind in PARTIAL_KINDS if kind == "sum" or kind in natural | named)
        return replace(self, pins=pins, kinds=kinds)

    def parts(self, tensor: str) -> Parts:
        """Return the parts of each dim of a tensor."""
        return self.refinement.parts[tensor]

    def layouts(self, tensor: str) -> tuple[Layout, ...]:
        """Return the layouts of a tensor, each once."""
        return legal_layouts(self.graph.tensors[tensor].shape, self.parts(tensor), self.mesh.sizes, self.kinds)

    def canonical(self, tensor: str, layout: Sequence[Placement]) -> Layout:
        """Return the one name of a layout of a tensor."""
        return canonical(layout, self.parts(tensor), self.mesh.sizes)

    @cached_property
    def uses(self) -> dict[str, list[Use]]:
        """The uses of every tensor, in program order."""
        return {tensor: self.graph.uses(tensor) for tensor in self.graph.tensors}

    @cached_property
    def pins_on(self) -> dict[str, tuple[Pin, ...]]:
        """The pins of each subject."""
        found: dict[str, tuple[Pin, ...]] = {}
        for pin in self.pins:
            found[pin.subject] = (*found.get(pin.subject, ()), pin)
        return found

    def pinned(self, subject: str, tensor: str) -> frozenset[Layout] | None:
        """Return the layouts that meet every pin on a tensor or use, or None where nothing is pinned.

        A layout meets pins when one legal way to write it has every pinned placement (docs/semantics.md, Pins).
        """
        wanted = [pin for pin in self.pins_on.get(subject, ()) if self.mesh.sizes[pin.axis] > 1]
        if not wanted:
            return None
        raw = raw_layouts(self.parts(tensor), self.mesh.sizes, self.kinds)
        return frozenset(
            self.canonical(tensor, layout) for layout in raw if all(layout[pin.axis] == pin.placement for pin in wanted)
        )

    def stored(self, tensor: str) -> tuple[Layout, ...]:
        """Return the layouts in which a source may be stored, pins included."""
        allowed = self.pinned(tensor, tensor)
        everywhere = self.layouts(tensor)
        if self.graph.tensors[tensor].role == "constant":
            everywhere = everywhere[:1]
        return tuple(
            layout for layout in everywhere if not _has_partial(layout) and (allowed is None or layout in allowed)
        )

    def delivered(self, tensor: str) -> tuple[Layout, ...]:
        """Return the layouts in which a graph output may be delivered: without P, but where a pin asks for it."""
        asked = {(pin.axis, pin.placement) for pin in self.pins_on.get(tensor, ())}
        return tuple(
            layout
            for layout in self.layouts(tensor)
            if all(not isinstance(p, Partial) or (axis, p) in asked for axis, p in enumerate(layout))
        )


def _has_partial(layout: Layout) -> bool:
    return any(isinstance(placement, Partial) for placement in layout)


def problem(
    graph: Graph,
    mesh: Mesh,
    *,
    pins: Mapping[str, Any] | None = None,
    communication: str = "any",
    capabilities: frozenset[str] = DEFAULT_CAPABILITIES,
) -> Problem:
    """Read a person's wishes against a graph and a mesh.

    Parameters
    ----------
    graph : Graph
    mesh : Mesh
    pins : mapping, optional
        Tensor, glob or ``op/operand`` -> placements, as ``{"dp": Shard(0)}`` or ``"dp=S(0),tp=R"``.
    communication : str, optional
        ``any``, ``none`` (no byte leaves a device) or ``frozen`` (nothing is resharded).
    capabilities : frozenset of str, optional
        What the runtime can do.

    Returns
    -------
    Problem

    Raises
    ------
    ProblemError
        Where a wish names nothing in the graph or mesh, or cannot be read.
    GraphError
        Where nothing leaves the graph.
    """
    graph.validate()
    if communication not in COMMUNICATION:
        raise ProblemError(f"communication={communication!r}: choose from {', '.join(COMMUNICATION)}")
    if unknown := set(capabilities) - CAPABILITIES:
        raise ProblemError(
            f"capability {sorted(unknown)[0]!r} is unknown: choose from {', '.join(sorted(CAPABILITIES))}"
        )
    refinement = refine(graph)
    read = tuple(_read_pins(graph, mesh, refinement, pins or {}))
    offered = frozenset(capabilities)
    bound = bind_refined(graph, refinement.parts, offered)
    return Problem(graph, mesh, (), communication, offered, bound, refinement, ()).with_pins(read)


def _read_pins(graph: Graph, mesh: Mesh, refinement: Refinement, pins: Mapping[str, Any]) -> list[Pin]:
    uses = {use.name: use for node in graph.nodes for use in graph.operand_uses(node)}
    found: list[Pin] = []
    for written, wish in pins.items():
        subjects = _subjects(written, graph, uses)
        for axis_name, placement in _placements(written, wish).items():
            if axis_name not in mesh.axes:
                raise ProblemError(
                    f"pin on {written!r} names mesh axis {axis_name!r}, but the mesh has {', '.join(mesh.axes)}"
                )
            source = f"{written}:{axis_name}={placement}"
            for subject in subjects:
                tensor = graph.tensors[uses[subject].tensor if subject in uses else subject]
                _check_names_a_dim(written, subject, tensor, placement, refinement.parts[tensor.name])
                found.append(Pin(subject, mesh.axes.index(axis_name), placement, source))
    return found


def _subjects(written: str, graph: Graph, uses: Mapping[str, Use]) -> list[str]:
    if written in graph.tensors or written in uses:
        return [written]
    everything = [*uses] if "/" in written and not fnmatch.filter(graph.tensors, written) else [*graph.tensors]
    if matched := fnmatch.filter(everything, written):
        return matched
    import difflib

    near = difflib.get_close_matches(written, [*graph.tensors, *uses], 3)
    raise ProblemError(
        f"pin on {written!r} names no tensor and no use of graph {graph.name!r}"
        + (f"; did you mean {' or '.join(map(repr, near))}?" if near else "")
    )


def _placements(written: str, wish: Any) -> dict[str, Placement]:
    """Read ``{"dp": Shard(0)}`` or ``"dp=S(0),tp=R"``."""
    try:
        if isinstance(wish, Mapping):
            return {axis: parse_placement(p) if isinstance(p, str) else _placement(p) for axis, p in wish.items()}
        if isinstance(wish, str):
            return dict(_assignments(wish))
    except PlacementError as error:
        raise ProblemError(f"pin on {written!r}: {error}") from error
    raise ProblemError(f"pin on {written!r} is {wish!r}: write {{'dp': Shard(0)}} or 'dp=S(0),tp=R'")


def _placement(value: Any) -> Placement:
    if isinstance(value, Placement):
        return value
    raise PlacementError(f"{value!r} is not a placement: use Replicate(), Shard(0) or Partial('sum')")


def _assignments(text: str) -> list[tuple[str, Placement]]:
    """Split ``dp=S(0,part=1),tp=R`` at the commas that stand before ``axis=``, not inside parentheses."""
    pieces: list[str] = []
    depth = 0
    for piece in text.split(","):
        if depth:
            pieces[-1] += "," + piece
        else:
            pieces.append(piece)
        depth += piece.count("(") - piece.count(")")
    found: list[tuple[str, Placement]] = []
    for piece in pieces:
        axis, equals, placement = piece.partition("=")
        if not equals or not axis.strip():
            raise PlacementError(f"cannot read {piece.strip()!r}: write AXIS=PLACEMENT, as dp=S(0)")
        found.append((axis.strip(), parse_placement(placement)))
    return found


def _check_names_a_dim(written: str, subject: str, tensor: Tensor, placement: Placement, parts: Parts) -> None:
    if not isinstance(placement, Shard):
        return
    if placement.dim >= len(tensor.shape):
        raise ProblemError(
            f"pin on {written!r}: {placement} names dim {placement.dim}, but {subject!r} has rank {len(tensor.shape)} "
            f"and shape {tensor.shape}"
        )
    if placement.part >= len(parts[placement.dim]):
        raise ProblemError(
            f"pin on {written!r}: {placement} names part {placement.part}, but dim {placement.dim} of {subject!r} has "
            f"the parts {parts[placement.dim]}"
        )
