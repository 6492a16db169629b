"""One planning question: a graph on a mesh, with the person's wishes read and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

from ops.bind import BoundRule
from ops.placement import PARTIAL_KINDS, Layout, Partial, Parts, Placement
from solver.constraints.policy_kinds import Policy, Traffic
from solver.cost.kernel_steps import sends
from solver.cost.tariff import Tariff
from solver.formula import Atom, Expression, atoms_of
from solver.graph import Graph, Use
from solver.layout import canonical, is_partial, raw_layouts
from solver.mesh import Mesh
from solver.parts import Refinement, bind_refined, refine
from solver.problem_pins import Pin, ProblemError, read_pins
from solver.problem_policy import Demand, Setting, alike, demands, forbidden, let_go, read_policy
from solver.problem_wishes import (
    CAPABILITIES,
    DEFAULT_CAPABILITIES,
    place_of,
    read_capabilities,
    read_expressions,
    read_memory,
    read_overlap,
)

__all__ = ["CAPABILITIES", "COMMUNICATION", "DEFAULT_CAPABILITIES", "Pin", "Problem", "ProblemError", "problem"]

COMMUNICATION = ("any", "none", "frozen")
OBJECTIVES = ("time", "communication")


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
    policy : tuple of Policy
    overlap : tuple of (str, Fraction)
        Kind of collective, and the fraction of its time that is hidden.
    expressions : tuple of Expression
        A person's own.
    assumed : tuple of (Atom, bool)
        What is taken for granted of atoms: one of the cases into which a search splits.
    objective : str
        ``time``, or ``communication``: least communication, then least compute.
    counted : tuple of int
        What a picosecond of communication counts in a search, and what one of compute.
    levy : tuple of (int, int)
        Mesh axis, and the picoseconds that a search adds for every KiB over it.
    memory : int or None
        The most bytes that a plan may fill on a device at its peak.
    place : str
        Where the wishes were set, as `solver.problem_wishes.place_of` reads it.
    """

    graph: Graph
    mesh: Mesh
    pins: tuple[Pin, ...]
    communication: str
    capabilities: frozenset[str]
    bound: Mapping[str, BoundRule]
    refinement: Refinement
    kinds: tuple[str, ...]
    policy: tuple[Policy, ...]
    overlap: tuple[tuple[str, Fraction], ...] = ()
    expressions: tuple[Expression, ...] = ()
    assumed: tuple[tuple[Atom, bool], ...] = ()
    objective: str = "time"
    counted: tuple[int, int] = (1, 1)
    levy: tuple[tuple[int, int], ...] = ()
    memory: int | None = None
    place: str = ""

    def with_pins(self, pins: tuple[Pin, ...]) -> Problem:
        """Return the same question with these pins; the partial kinds of the graph follow from them."""
        natural = {factor.kind for rule in self.bound.values() for factor in rule.factors.values()}
        named = {pin.placement.kind for pin in pins if isinstance(pin.placement, Partial)}
        kinds = tuple(kind for kind in PARTIAL_KINDS if kind == "sum" or kind in natural | named)
        return replace(self, pins=pins, kinds=kinds)

    @cached_property
    def ties(self) -> dict[str, str]:
        """Follower -> leader, without the ties that the policy lets go."""
        untied = let_go(self.graph, self.policy)
        return {follower: leader for follower, leader in self.graph.ties.items() if follower not in untied}

    @cached_property
    def repeats(self) -> dict[str, str]:
        """Op -> the op that it repeats: by the graph, or by a policy that wants layers alike."""
        return {**self.graph.repeats, **{node: of for node, (of, _) in self.alike.items()}}

    @cached_property
    def alike(self) -> dict[str, tuple[str, str]]:
        """Op -> its fellow in the first layer, where a policy wants layers alike, and the policy."""
        return alike(self.setting, self.policy)

    @cached_property
    def repeating(self) -> frozenset[str]:
        """The ops that repeat another one or are repeated."""
        return frozenset((*self.repeats, *self.repeats.values()))

    @cached_property
    def demands_on(self) -> dict[str, tuple[Demand, ...]]:
        """What policies want of each tensor or use."""
        found: dict[str, tuple[Demand, ...]] = {}
        for demand in demands(self.setting, self.policy):
            found[demand.subject] = (*found.get(demand.subject, ()), demand)
        return found

    @property
    def budget(self) -> Traffic | None:
        """The budget of traffic."""
        return next((one for one in self.policy if isinstance(one, Traffic)), None)

    @cached_property
    def spoken_of(self) -> frozenset[str]:
        """The tensors and uses of which a wish speaks, so that their layouts have a place of their own."""
        return frozenset((*self.pins_on, *self.demands_on, *self.atoms_on))

    @cached_property
    def atoms_on(self) -> dict[str, tuple[Atom, ...]]:
        """The atoms of expressions that speak of each tensor, on mesh axes of size 2 or more."""
        found: dict[str, tuple[Atom, ...]] = {}
        for atom in atoms_of(self.expressions):
            if self.mesh.sizes[self.mesh.axis(atom.axis)] > 1:
                found[atom.tensor] = (*found.get(atom.tensor, ()), atom)
        return found

    def assuming(self, atom: Atom, value: bool) -> Problem:
        """Return the same question in one of two cases: where an atom holds, or does not."""
        return replace(self, assumed=(*self.assumed, (atom, value)))

    def holds(self, atom: Atom, layout: Layout) -> bool | None:
        """Tell whether a layout does what an atom says; None on a mesh axis of size 1, where it may be either way."""
        axis = self.mesh.axis(atom.axis)
        return atom.holds(layout, axis) if self.mesh.sizes[axis] > 1 else None

    @cached_property
    def setting(self) -> Setting:
        """What policies are read against."""
        return Setting(self.graph, self.mesh, self.bound, self.refinement.parts)

    def tariff(self, tensor: str | None = None) -> Tariff:
        """Return what may run, and how its time counts, for the reshards of a tensor, or (None) inside kernels."""
        subject = tensor if self.policy else None
        if subject not in self._tariffs:
            self._tariffs[subject] = Tariff(
                forbidden(self.mesh, self.policy, subject), self.overlap, self.counted[0], self.levy
            )
        return self._tariffs[subject]

    @cached_property
    def _tariffs(self) -> dict[str | None, Tariff]:
        return {}

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
        parts = self.parts(tensor)
        if parts not in self._layouts:
            self._layouts[parts] = tuple(dict.fromkeys(self.written(tensor).values()))
        return self._layouts[parts]

    @cached_property
    def _layouts(self) -> dict[Parts, tuple[Layout, ...]]:
        return {}

    def canonical(self, tensor: str, layout: Sequence[Placement]) -> Layout:
        """Return the one name of a layout of a tensor."""
        key = self.parts(tensor), tuple(layout)
        if key not in self._named:
            self._named[key] = canonical(layout, self.parts(tensor), self.mesh.sizes)
        return self._named[key]

    @cached_property
    def _named(self) -> dict[tuple[Parts, Layout], Layout]:
        return {}

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
    def block_bytes(self) -> dict[Any, Any]:
        """What `solver.choice_tables.block_bytes` has worked out before."""
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
            and not (quiet and sends(bound, k))
        )

    def offered_on(self, bound: BoundRule, axis: int) -> tuple[int, ...]:
        """Return the rows of an op that a mesh axis may take: one of size 1 the first, another one what is offered.

        A row whose kernel sends what a policy forbids on that axis is not among them.
        """
        if self.mesh.sizes[axis] == 1:
            return (0,)
        tariff = self.tariff()
        return tuple(
            k
            for k in self.offered(bound)
            if not tariff.forbidden or (kind := sends(bound, k)) is None or tariff.allows(kind, (axis,))
        )

    def pinned(self, subject: str, tensor: str) -> frozenset[Layout] | None:
        """Return the layouts that meet every pin and policy on a tensor or use, or None where there is none on it.

        A layout meets them when one legal way to write it has every wanted placement (docs/semantics.md, Pins).
        """
        if subject not in self.spoken_of:
            return None
        wanted: list[tuple[int, tuple[Placement, ...]]] = [
            (pin.axis, (pin.placement,)) for pin in self.pins_on.get(subject, ()) if self.mesh.sizes[pin.axis] > 1
        ]
        wanted += [(demand.axis, demand.placements) for demand in self.demands_on.get(subject, ())]
        spoken_of = subject in self.atoms_on
        if not wanted and not spoken_of:
            return None
        ways = self.written(tensor).items()
        meeting = {layout for way, layout in ways if all(way[axis] in options for axis, options in wanted)}
        return frozenset(layout for layout in meeting if not spoken_of or self._may_be(tensor, layout))

    def _may_be(self, tensor: str, layout: Layout) -> bool:
        """Tell whether no expression is false in the case at hand, whatever the other tensors do, with a layout."""
        assumed = dict(self.assumed)

        def truth(atom: Atom) -> bool | None:
            return self.holds(atom, layout) if atom.tensor == tensor else assumed.get(atom)

        if any(truth(atom) == (not value) for atom, value in self.assumed if atom.tensor == tensor):
            return False
        return all(one.value(truth) is not False for one in self.expressions if self._speaks(one, tensor))

    def _speaks(self, expression: Expression, tensor: str) -> bool:
        return any(atom.tensor == tensor for atom in expression.atoms)

    def stored(self, tensor: str) -> tuple[Layout, ...]:
        """Return the layouts in which a source may be stored, pins included."""
        allowed, constant = self.pinned(tensor, tensor), self.graph.tensors[tensor].role == "constant"
        key = self.parts(tensor), constant
        if key not in self._stored:
            everywhere = self.layouts(tensor)[:1] if constant else self.layouts(tensor)
            self._stored[key] = tuple(layout for layout in everywhere if not is_partial(layout))
        found = self._stored[key]
        return found if allowed is None else tuple(layout for layout in found if layout in allowed)

    @cached_property
    def _stored(self) -> dict[tuple[Parts, bool], tuple[Layout, ...]]:
        return {}

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
    objective: str = "time",
    capabilities: frozenset[str] = DEFAULT_CAPABILITIES,
    policy: Sequence[Any] = (),
    overlap: Mapping[str, Any] | None = None,
    expressions: Sequence[Expression] = (),
    memory: int | str | None = None,
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
    objective : str, optional
        ``time`` or ``communication``.
    capabilities : frozenset of str, optional
        What the runtime can do.
    policy : sequence, optional
        What `solver.constraints.policy` makes.
    overlap : mapping, optional
        Kind of collective -> the fraction of its time that runs beside compute.
    expressions : sequence of Expression, optional
        What `solver.constraints.expression.read_expressions` reads.
    memory : int or str, optional
        What a plan may fill of one device at its peak: bytes, or a size as ``"80GB"`` or ``"74.5GiB"``.
    place : str, optional
        Where the wishes were set, for explanations.

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
    if objective not in OBJECTIVES:
        raise ProblemError(f"objective={objective!r}: choose from {', '.join(OBJECTIVES)}")
    offered = read_capabilities(capabilities)
    refinement = refine(graph)
    read = tuple(read_pins(graph, mesh, refinement, {} if pins is None else pins, place_of(place, "pin")))
    bound = bind_refined(graph, refinement.parts, offered)
    for node, of in graph.repeats.items():
        if bound[node].rows != bound[of].rows:
            raise ProblemError(f"{node!r} cannot repeat {of!r}: with the parts of their tensors they have other rows")
    wishes = read_policy(graph, mesh, policy)
    given = wishes, read_overlap(overlap), read_expressions(graph, mesh, expressions)
    asked = Problem(graph, mesh, (), communication, offered, bound, refinement, (), *given).with_pins(read)
    _ = asked.alike  # refuses layers that differ
    if objective == "communication" and asked.budget is not None:
        raise ProblemError(f'{asked.budget} cannot be planned with beside objective="communication": leave one out')
    return replace(asked, objective=objective, memory=read_memory(memory), place=place)
