"""One planning question: a graph on a mesh, with the person's wishes read and checked."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ops.bind import BoundRule
from ops.placement import PARTIAL_KINDS, Layout, Partial, Parts, Placement, PlacementError, Shard, parse_placement
from solver.constraints.policy import Untie
from solver.cost.kernel_steps import COMMUNICATING
from solver.graph import Graph, Tensor, Use
from solver.layout import canonical, is_partial, raw_layouts
from solver.mesh import Mesh
from solver.parts import Refinement, bind_refined, refine

COMMUNICATION = ("any", "none", "frozen")
CAPABILITIES = frozenset(
    {"masked_lookup", "halo_exchange", "shift", "synced_kernels", "sync_batch_norm", "parallel_softmax"}
)
"""What the program can run beyond plain local ops."""
DEFAULT_CAPABILITIES = frozenset({"masked_lookup"})
"""What every runtime can do; the others are a person's to grant."""


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
    policy : tuple of Untie
    """

    graph: Graph
    mesh: Mesh
    pins: tuple[Pin, ...]
    communication: str
    capabilities: frozenset[str]
    bound: Mapping[str, BoundRule]
    refinement: Refinement
    kinds: tuple[str, ...]
    policy: tuple[Untie, ...]

    def with_pins(self, pins: tuple[Pin, ...]) -> Problem:
        """Return the same question with these pins; the partial kinds of the graph follow from them."""
        natural = {factor.kind for rule in self.bound.values() for factor in rule.factors.values()}
        named = {pin.placement.kind for pin in pins if isinstance(pin.placement, Partial)}
        kinds = tuple(kind for kind in PARTIAL_KINDS if kind == "sum" or kind in natural | named)
        return replace(self, pins=pins, kinds=kinds)

    @cached_property
    def ties(self) -> dict[str, str]:
        """Follower -> leader, without the ties that the policy lets go."""
        untied = {name for letting_go in self.policy for name in letting_go.followers(self.graph.ties)}
        return {follower: leader for follower, leader in self.graph.ties.items() if follower not in untied}

    @cached_property
    def repeating(self) -> frozenset[str]:
        """The ops that repeat another one or are repeated."""
        return frozenset((*self.graph.repeats, *self.graph.repeats.values()))

    def delivered_as(self, tensor: str) -> str | None:
        """Return the source in whose storage layout a graph output is delivered by a tie; None where it is by none."""
        return None if self.graph.tensors[tensor].producer is None else self.ties.get(tensor)

    def stored_alike(self, source: str) -> tuple[str, ...]:
        """Return the sources, this one among them, that ties store in one layout."""
        return self._alike.get(source, (source,))

    @cached_property
    def _alike(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for follower, leader in self.ties.items():
            if self.graph.tensors[follower].producer is None:
                group = (*found.get(leader, (leader,)), *found.get(follower, (follower,)))
                found |= dict.fromkeys(group, group)
        return found

    @cached_property
    def bucketed(self) -> frozenset[str]:
        """The tensors whose reshards pay their latency per bucket (docs/semantics.md, section 2)."""
        made = (name for name in self.graph.ties if self.graph.tensors[name].producer is not None)
        return frozenset((*self.graph.gradients, *made))

    def parts(self, tensor: str) -> Parts:
        """Return the parts of each dim of a tensor."""
        return self.refinement.parts[tensor]

    def layouts(self, tensor: str) -> tuple[Layout, ...]:
        """Return the layouts of a tensor, each once."""
        return tuple(dict.fromkeys(self.written(tensor).values()))

    def canonical(self, tensor: str, layout: Sequence[Placement]) -> Layout:
        """Return the one name of a layout of a tensor."""
        known = self._written.get(self.parts(tensor), {}).get(tuple(layout))
        return canonical(layout, self.parts(tensor), self.mesh.sizes) if known is None else known

    def written(self, tensor: str) -> dict[Layout, Layout]:
        """Return every legal way to write a layout of a tensor, and its one name; tensors of equal parts share it."""
        parts = self.parts(tensor)
        if parts not in self._written:
            raw = raw_layouts(parts, self.mesh.sizes, self.kinds)
            self._written[parts] = {way: canonical(way, parts, self.mesh.sizes) for way in raw}
        return self._written[parts]

    @cached_property
    def _written(self) -> dict[Parts, dict[Layout, Layout]]:
        return {}

    @cached_property
    def uses(self) -> dict[str, list[Use]]:
        """The uses of every tensor, in program order."""
        return {tensor: self.graph.uses(tensor) for tensor in self.graph.tensors}

    @cached_property
    def use_named(self) -> dict[str, Use]:
        """The uses by their names, ``op/operand``."""
        return {use.name: use for uses in self.uses.values() for use in uses}

    @cached_property
    def pins_on(self) -> dict[str, tuple[Pin, ...]]:
        """The pins of each subject."""
        found: dict[str, tuple[Pin, ...]] = {}
        for pin in self.pins:
            found[pin.subject] = (*found.get(pin.subject, ()), pin)
        return found

    def one_way(self, tensor: str) -> bool:
        """Tell whether every layout of a tensor can be written in one way only."""
        return all(len(split) == 1 for split in self.parts(tensor))

    def offered(self, bound: BoundRule) -> tuple[int, ...]:
        """Return the rows of an op that a mesh axis of size 2 or more may take: those with the kinds of the graph.

        Where no byte may leave a device, a row whose kernel communicates is not among them.
        """
        quiet = self.communication == "none"
        return tuple(
            k
            for k, row in enumerate(bound.rows)
            if all(p.kind in self.kinds for p in row.operands + row.results if isinstance(p, Partial))
            and not (quiet and row.cut and bound.factors[row.cut[0]].kind in COMMUNICATING)
        )

    def pinned(self, subject: str, tensor: str) -> frozenset[Layout] | None:
        """Return the layouts that meet every pin on a tensor or use, or None where nothing is pinned.

        A layout meets pins when one legal way to write it has every pinned placement (docs/semantics.md, Pins).
        """
        wanted = [pin for pin in self.pins_on.get(subject, ()) if self.mesh.sizes[pin.axis] > 1]
        if not wanted:
            return None
        ways = self.written(tensor).items()
        return frozenset(layout for way, layout in ways if all(way[pin.axis] == pin.placement for pin in wanted))

    def stored(self, tensor: str) -> tuple[Layout, ...]:
        """Return the layouts in which a source may be stored, pins included."""
        allowed = self.pinned(tensor, tensor)
        everywhere = self.layouts(tensor)
        if self.graph.tensors[tensor].role == "constant":
            everywhere = everywhere[:1]
        return tuple(
            layout for layout in everywhere if not is_partial(layout) and (allowed is None or layout in allowed)
        )

    def delivered(self, tensor: str) -> tuple[Layout, ...]:
        """Return the layouts in which a graph output may be delivered: without P, but where a pin asks for it.

        What is tied is delivered as its leader is stored.
        """
        if (leader := self.delivered_as(tensor)) is not None:
            return self.stored(leader)
        return tuple(
            layout
            for layout in self.layouts(tensor)
            if all(self.may_deliver(tensor, axis, placement) for axis, placement in enumerate(layout))
        )

    def may_deliver(self, tensor: str, axis: int, placement: Placement) -> bool:
        """Tell whether a graph output may be delivered so on a mesh axis."""
        asked = ((pin.axis, pin.placement) for pin in self.pins_on.get(tensor, ()))
        return not isinstance(placement, Partial) or (axis, placement) in asked


def problem(
    graph: Graph,
    mesh: Mesh,
    *,
    pins: Mapping[str, Any] | None = None,
    communication: str = "any",
    capabilities: frozenset[str] = DEFAULT_CAPABILITIES,
    policy: Sequence[Any] = (),
    place: str = "",
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
    policy : sequence, optional
        Of `solver.constraints.policy.untie`.
    place : str, optional
        Where the pins were set, for explanations.

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
    if not isinstance(graph, Graph):
        raise ProblemError(f"the graph is a {type(graph).__name__}: build a solver.Graph or load(...) one")
    if not isinstance(mesh, Mesh):
        raise ProblemError(f"the mesh is a {type(mesh).__name__}: write Mesh({{'dp': 2, 'tp': 4}})")
    graph.validate()
    if communication not in COMMUNICATION:
        raise ProblemError(f"communication={communication!r}: choose from {', '.join(COMMUNICATION)}")
    offered = _read_capabilities(capabilities)
    refinement = refine(graph)
    read = tuple(_read_pins(graph, mesh, refinement, {} if pins is None else pins, place))
    bound = bind_refined(graph, refinement.parts, offered)
    for node, of in graph.repeats.items():
        if bound[node].rows != bound[of].rows:
            raise ProblemError(f"{node!r} cannot repeat {of!r}: with the parts of their tensors they have other rows")
    asked = Problem(graph, mesh, (), communication, offered, bound, refinement, (), _read_policy(graph, policy))
    return asked.with_pins(read)


def _read_policy(graph: Graph, policy: Any) -> tuple[Untie, ...]:
    letting_go = [] if policy is None else policy if isinstance(policy, list | tuple) else [policy]
    for one in letting_go:
        if not isinstance(one, Untie):
            raise ProblemError(f"policy={one!r} cannot be planned with yet: give untie(...), or leave it out")
        for pattern in one.patterns:
            if not Untie((pattern,)).followers(graph.ties):
                followers = ", ".join(list(graph.ties)[:3]) + (", ..." if len(graph.ties) > 3 else "")
                raise ProblemError(
                    f"untie({pattern!r}) lets no tie of graph {graph.name!r} go: "
                    + (f"its followers are {followers}" if graph.ties else "it has none")
                )
    return tuple(letting_go)


def _read_capabilities(capabilities: Any) -> frozenset[str]:
    choose = f"choose from {', '.join(sorted(CAPABILITIES))}"
    if not isinstance(capabilities, Set | list | tuple) or not all(isinstance(name, str) for name in capabilities):
        raise ProblemError(f"capabilities={capabilities!r} is not a set of names: {choose}")
    if unknown := sorted(set(capabilities) - CAPABILITIES):
        raise ProblemError(f"capability {unknown[0]!r} is unknown: {choose}")
    return frozenset(capabilities)


def _read_pins(graph: Graph, mesh: Mesh, refinement: Refinement, pins: Any, place: str) -> list[Pin]:
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

    hint = ""
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
