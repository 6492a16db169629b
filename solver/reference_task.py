"""The executable meaning of what a plan may choose: section 2 of docs/semantics.md."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from fractions import Fraction
from functools import cached_property
from itertools import product
from math import prod
from typing import Any, NamedTuple, TypeAlias

from ops.bind import BoundRule, Row
from ops.placement import PARTIAL_KINDS, Partial, Placement, Replicate, Shard, parse_placement
from ops.run import Cut as FactorCut
from solver.constraints.policy_kinds import Policy
from solver.graph import Graph
from solver.mesh import Mesh
from solver.parts import bind_refined, refine
from solver.reference_layout import Cut, Lie, Space, lie
from solver.reference_policy import wishes

Fact: TypeAlias = "tuple[str, str, int | None, str]"
"""``("sharded", tensor, dim, mesh axis)`` or ``("partial", tensor, None, mesh axis)``."""
Pins: TypeAlias = Mapping[str, str | Mapping[str, str | Placement]]


class Choice(NamedTuple):
    """One row per mesh axis for one op, and so the needed layout of each use and the made layout of each result."""

    node: str
    rows: tuple[Row, ...]
    needed: dict[str, Lie]
    made: dict[str, Lie]


class Task:
    """A graph on a mesh with a person's wishes: what plans there are.

    Parameters
    ----------
    graph : Graph
    mesh : Mesh
    pins : mapping, optional
        A tensor, or a use ``op/operand`` -> ``"dp=S(0),tp=R"`` or ``{"dp": Shard(0)}``.
    communication : str, optional
        ``any``, ``none`` or ``frozen``.
    capabilities : frozenset of str, optional
    untied : collection of str, optional
        Followers whose ties are let go.
    policy : iterable of Policy, optional
        See `solver.reference_policy`.
    overlap : mapping, optional
        Kind of collective -> the fraction of its time that does not count.
    counted : tuple of int, optional
        What a picosecond of communication counts, and what one of compute. Where the first is more than all compute
        together, the cheapest plan is the one that communicates least, and of these computes least.
    levy : tuple of int, optional
        Mesh axis, and the picoseconds by which every KiB over it counts more where ways are chosen: the levy of a plan
        within a budget of traffic.

    Raises
    ------
    KeyError, ValueError
        For a pin on what is not there. Wishes are read carefully elsewhere (`solver.problem`).
    """

    def __init__(
        self,
        graph: Graph,
        mesh: Mesh,
        pins: Pins | None = None,
        communication: str = "any",
        capabilities: frozenset[str] = frozenset({"masked_lookup"}),
        untied: Collection[str] = (),
        policy: Iterable[Policy] = (),
        overlap: Mapping[str, float] | None = None,
        counted: tuple[int, int] = (1, 1),
        levy: tuple[int, int] = (0, 0),
    ) -> None:
        self.levy = levy
        self.graph, self.mesh, self.communication, self.counted = graph, mesh, communication, counted
        self.hidden = {kind: Fraction(str(part)) for kind, part in (overlap or {}).items()}
        self.uses = {use.name: use for node in graph.nodes for use in graph.operand_uses(node)}
        self.pins = {name: _read_pin(wish, mesh) for name, wish in (pins or {}).items()}
        if unknown := self.pins.keys() - graph.tensors.keys() - self.uses.keys():
            raise KeyError(f"pins on {sorted(unknown)}, which are no tensors and no uses of {graph.name!r}")
        self.bucketed = {*graph.gradients, *(name for name in graph.ties if graph.tensors[name].producer is not None)}
        self.parts = refine(graph).parts
        self.bound: Mapping[str, BoundRule] = bind_refined(graph, self.parts, frozenset(capabilities))
        self.wishes = wishes(graph, mesh, self.parts, self.bound, policy)
        self.repeats = graph.repeats | self.wishes.alike
        let_go = {*untied, *self.wishes.untied}
        self.ties = {follower: leader for follower, leader in graph.ties.items() if follower not in let_go}
        produced = {factor.kind for bound in self.bound.values() for factor in bound.factors.values()}
        pinned = {p.kind for pin in self.pins.values() for p in pin.values() if isinstance(p, Partial)}
        self.kinds = [kind for kind in PARTIAL_KINDS if kind in {"sum"} | produced | pinned]
        self.facts: Mapping[Fact, bool] = {}
        self._spaces: dict[Any, Space] = {}
        self.known: dict[Any, Any] = {}  # what has been worked out before

    def where(self, facts: Mapping[Fact, bool]) -> Task:
        """Return the same task, of plans in which facts about storage and held layouts hold, or do not."""
        found = copy(self)
        found.facts, found.known = facts, {}
        return found

    def _fits(self, name: str, lies: Lie) -> bool:
        for (kind, tensor, dim, axis), holds in self.facts.items():
            here = lies[self.mesh.axis(axis)]
            does = isinstance(here, Partial) if kind == "partial" else isinstance(here, Cut) and here.dim == dim
            if tensor == name and self.mesh.sizes[self.mesh.axis(axis)] > 1 and does != holds:
                return False
        return True

    def space(self, tensor: str) -> Space:
        """Return the layouts of a tensor and the reshards between them."""
        fact = self.graph.tensors[tensor]
        forbidden = frozenset(self.wishes.forbidden.get(tensor, ()))
        key = fact.shape, fact.itemsize, self.parts[tensor], tensor in self.bucketed, forbidden
        if key not in self._spaces:
            counting = self.hidden, self.counted[0], self.levy
            self._spaces[key] = Space(*key[:3], self.mesh, self.kinds, self.communication, key[3], forbidden, *counting)
        return self._spaces[key]

    def meeting(self, name: str, tensor: str) -> list[Lie]:
        """Return the layouts of a tensor that meet the pin and the policies on a tensor or use."""
        wanted: list[tuple[int, tuple[Placement, ...]]]
        wanted = [(axis, (placement,)) for axis, placement in self.pins.get(name, {}).items()]
        wanted += [(axis, placements) for subject, axis, placements in self.wishes.wanted if subject == name]
        wanted = [(axis, placements) for axis, placements in wanted if self.mesh.sizes[axis] > 1]
        ways = self.space(tensor).written.items()
        return [
            lies
            for lies, written in ways
            if self._fits(name, lies) and any(all(way[axis] in some for axis, some in wanted) for way in written)
        ]

    def storages(self, source: str) -> list[Lie]:
        """Return the layouts in which a source may be stored."""
        everywhere = [lies for lies in self.meeting(source, source) if not any(isinstance(p, Partial) for p in lies)]
        constant = self.graph.tensors[source].role == "constant"
        return [
            lies
            for lies in everywhere
            if not constant or self.space(source).elements(lies) == prod(self.space(source).shape)
        ]

    @cached_property
    def groups(self) -> dict[str, str]:
        """The source as which a tensor is stored or delivered in the end, for all that are tied to one, and for it."""
        found: dict[str, str] = {}
        for follower, leader in self.ties.items():
            while leader in self.ties:
                leader = self.ties[leader]
            found |= {follower: leader, leader: leader}
        return found

    @cached_property
    def repeated(self) -> dict[str, str]:
        """Each op that others repeat, and the last of these."""
        return {self.repeats[node]: node for node in self.graph.nodes if node in self.repeats}

    def holdings(self, tensor: str) -> list[Lie]:
        """Return the held layouts that a tensor may have."""
        source = self.graph.tensors[tensor].producer is None
        return list(self.space(tensor).written) if source else self.meeting(tensor, tensor)

    def deliveries(self, tensor: str) -> list[Lie]:
        """Return the layouts in which a graph output may leave."""
        pin = self.pins.get(tensor, {})
        return [
            lies
            for lies in self.space(tensor).written
            if all(not isinstance(p, Partial) or pin.get(axis) == p for axis, p in enumerate(lies))
        ]

    def choices(self, node: str) -> Iterator[Choice]:
        """Yield the rows of an op that go together."""
        bound = self.bound[node]
        offered = [
            [row for row in bound.rows if self._offered(bound, row, axis)] if n > 1 else bound.rows[:1]
            for axis, n in enumerate(self.mesh.sizes)
        ]
        for rows in product(*offered):
            if any(factor_lies(bound, rows, factor, self.mesh.sizes) is None for factor in bound.factors):
                continue
            needed = {
                use.name: self._lies(use.tensor, [row.operands[use.slot] for row in rows])
                for use in self.graph.operand_uses(node)
            }
            made = {
                tensor: self._lies(tensor, [row.results[slot] for row in rows])
                for slot, tensor in enumerate(self.graph.nodes[node].results)
            }
            legal = {name: lies for name, lies in (needed | made).items() if lies is not None}
            if len(legal) == len(needed) + len(made) and all(
                legal[name] in self.meeting(name, self.uses[name].tensor) for name in needed if name in self.spoken_of
            ):
                yield Choice(node, rows, {name: legal[name] for name in needed}, {name: legal[name] for name in made})

    @cached_property
    def spoken_of(self) -> set[str]:
        """What pins and policies speak of."""
        return {*self.pins, *(subject for subject, *_ in self.wishes.wanted)}

    def _offered(self, bound: BoundRule, row: Row, axis: int) -> bool:
        factor = bound.factors[row.cut[0]] if row.cut else None
        if factor is None or factor.kind not in ("synced", "halo"):
            return True
        sent = "all_reduce" if factor.kind == "synced" else factor.capability
        return self.communication != "none" and (sent, axis) not in self.wishes.forbidden.get(None, ())

    def _lies(self, tensor: str, placed: Sequence[Placement | None]) -> Lie | None:
        lies = lie([placement for placement in placed if placement is not None], self.parts[tensor], self.mesh.sizes)
        return lies if lies in self.space(tensor).written else None


def factor_lies(bound: BoundRule, rows: Sequence[Row], factor: str, sizes: Sequence[int]) -> Lie | None:
    """Return how the mesh axes that cut a factor cut it, None where they do not divide it."""
    cuts = [row.cut[1] if row.cut and row.cut[0] == factor else None for row in rows]
    parts = bound.factors[factor].parts
    return lie([Replicate() if part is None else Shard(0, part) for part in cuts], (parts,), sizes)


def factor_cuts(task: Task, choice: Choice, device: Sequence[int]) -> list[FactorCut]:
    """Return what the mesh axes cut of an op, seen from one device."""
    axes = enumerate(zip(choice.rows, task.mesh.sizes, strict=True))
    return [FactorCut(*row.cut, n, device[axis]) for axis, (row, n) in axes if row.cut and n > 1]


def _read_pin(wish: str | Mapping[str, str | Placement], mesh: Mesh) -> dict[int, Placement]:
    if isinstance(wish, str):
        pieces = [piece.split("=", 1) for piece in wish.replace(",part=", ";part=").split(",")]
        wish = {axis.strip(): placement.replace(";", ",") for axis, placement in pieces}
    return {mesh.axis(axis): parse_placement(p) if isinstance(p, str) else p for axis, p in wish.items()}
