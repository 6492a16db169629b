"""The layout of a tensor at one place (made, held, needed) as Booleans: one placement per mesh axis."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import combinations, product

from ops.placement import Layout, Partial, Parts, Placement, Replicate, Shard
from solver.constraints.reason import Reason
from solver.constraints.variables import FALSE, Clauses, Literal, negation
from solver.layout import placements, why_illegal
from solver.problem import Problem

Place = tuple[Hashable, ...]
"""What is laid out: ``("made", tensor)``, ``("held", tensor)``, ``("needed", op, slot)``, ``("asked", op, slot)``."""
Clash = tuple[tuple[tuple[int, Placement], ...], str]
"""Placements on mesh axes that no legal layout has together, and why."""
Way = tuple[Literal, ...]
"""One legal way to write a layout: a literal per mesh axis of size 2 or more."""
Ways = dict[Layout, list[Way]]
"""Canonical layout -> all the ways to write it that a place has."""
Reach = Mapping[Layout, frozenset[Layout]]
"""Per layout those that it leads to."""
Stays = Callable[[int, Placement], bool]
"""Whether what a tensor does on a mesh axis cannot be changed."""


def always(axis: int, label: Placement) -> bool:
    """Where nothing is sent every S and P stays."""
    return True


class Layouts:
    """Writes layouts into clauses; tensors of equal shape and parts share what is found out about them.

    Parameters
    ----------
    clauses : Clauses
    problem : Problem
    explaining : bool, optional
        See `solver.constraints.model.whole_graph`.
    """

    def __init__(self, clauses: Clauses, problem: Problem, explaining: bool = False) -> None:
        self.clauses, self.problem, self.explaining = clauses, problem, explaining
        self._clashes: dict[tuple[Parts, bool], list[Clash]] = {}
        self._labels: dict[Parts, tuple[Placement, ...]] = {}
        self._spelled: dict[Parts, list[tuple[Layout, tuple[int, ...]]]] = {}

    def free(self, tensor: str, place: Place, *, partial: bool = True, legal: bool = True) -> None:
        """Let a place take any legal layout of a tensor, however it is written.

        Parameters
        ----------
        tensor : str
        place : tuple
        partial : bool, optional
            Whether there is a Boolean for P at all.
        legal : bool, optional
            Whether to leave out illegal layouts here; False where something else sees to it.
        """
        clauses = self.clauses
        options = [p for p in self.labels(tensor) if partial or not isinstance(p, Partial)]
        clauses.always()
        for axis, size in enumerate(self.problem.mesh.sizes):
            offered = options if size > 1 else [Replicate()]
            literals = [clauses.symbol(*place, axis, label) for label in offered]
            clauses.exactly_one(literals)
            clauses.suggested.append(literals[0])
        for clash, why in self.clashes(tensor, partial) if legal else ():
            clauses.under(clash_reason(tensor, clash, why))
            clauses.clause(*(negation(clauses.known(*place, axis, label)) for axis, label in clash))

    def clashes(self, tensor: str, partial: bool = True) -> list[Clash]:
        """Return the smallest sets of placements that no legal layout of a tensor has together, and why."""
        parts = self.problem.parts(tensor)
        if (parts, partial) not in self._clashes:
            options = [p for p in self.labels(tensor) if partial or not isinstance(p, Partial)]
            self._clashes[parts, partial] = list(_clashes(self.problem, tensor, options))
        return self._clashes[parts, partial]

    def illegal(self, tensor: str, place: Place) -> Iterator[Way]:
        """Yield, where explaining, what would make the layout of a place illegal: the literals of each clash.

        Without the fact that forbids a clash a place may have it; what is demanded of layouts must speak of it too, or
        the fact looks needed where it only keeps the model out of what nothing is demanded of.
        """
        for clash, _ in self.clashes(tensor) if self.explaining else ():
            literals = tuple(self.clauses.known(*place, axis, label) for axis, label in clash)
            if FALSE not in literals:
                yield literals

    def only(self, tensor: str, place: Place, allowed: Callable[[int, Placement], bool]) -> None:
        """Demand of a place that it takes allowed placements, given the mesh axis.

        Parameters
        ----------
        tensor : str
        place : tuple
            Its Booleans per mesh axis must be there already.
        allowed : callable
        """
        for axis in range(len(self.problem.mesh.sizes)):
            for label in self.labels(tensor):
                literal = self.clauses.known(*place, axis, label)
                if literal != FALSE and not allowed(axis, label):
                    self.clauses.clause(negation(literal))

    def ways(self, tensor: str, place: Place) -> Ways:
        """Return the layouts that a place can have and all the ways to write each.

        Parameters
        ----------
        tensor : str
        place : tuple
            Its Booleans per mesh axis must be there already.

        Returns
        -------
        dict
            In the order of the layouts of the tensor as they are written.
        """
        every = self._every(tensor, place)
        found: Ways = {}
        for layout, way in self.spelled(tensor):
            if FALSE not in (literals := tuple(every[position] for position in way)):
                found.setdefault(layout, []).append(literals)
        return found

    def at(self, tensor: str, place: Place, layout: Layout) -> Literal:
        """Return the formula that holds where a place has a layout, however it is written."""
        every = self._every(tensor, place)
        meant = [tuple(every[position] for position in way) for one, way in self.spelled(tensor) if one == layout]
        ways = [_both(literals) for literals in meant if FALSE not in literals]
        return ways[0] if len(ways) == 1 else f"(or {' '.join(ways)})" if ways else FALSE

    def labels(self, tensor: str) -> tuple[Placement, ...]:
        """Return the placements that a tensor may have on a mesh axis of size 2 or more."""
        parts = self.problem.parts(tensor)
        if parts not in self._labels:
            self._labels[parts] = placements(parts, self.problem.kinds)
        return self._labels[parts]

    def spelled(self, tensor: str) -> list[tuple[Layout, tuple[int, ...]]]:
        """Return every way to write a layout of a tensor: the layout, and where in `_every` stands what it says."""
        parts = self.problem.parts(tensor)
        if parts not in self._spelled:
            number = {label: i for i, label in enumerate(self.labels(tensor))}
            axes = [axis for axis, size in enumerate(self.problem.mesh.sizes) if size > 1]
            self._spelled[parts] = [
                (layout, tuple(i * len(number) + number[way[axis]] for i, axis in enumerate(axes)))
                for way, layout in self.problem.written(tensor).items()
            ]
        return self._spelled[parts]

    def _every(self, tensor: str, place: Place) -> list[Literal]:
        """Return what says each placement on each mesh axis of size 2 or more, false where there is no Boolean."""
        axes = [axis for axis, size in enumerate(self.problem.mesh.sizes) if size > 1]
        return [self.clauses.known(*place, axis, label) for axis in axes for label in self.labels(tensor)]

    def lead(self, tensor: str, source: Place, target: Place, reach: Reach, stays: Stays = always) -> None:
        """Demand of a target that it lies in a layout that its source leads to.

        Parameters
        ----------
        tensor : str
        source, target : tuple
            Their Booleans per mesh axis must be there already.
        reach : mapping
            Per layout those it leads to; source layouts that lead to the same share a clause. To and from an illegal
            layout leads what keeps every S and P where it is that stays.
        stays : callable, optional
            Whether nothing that may run takes an S or P off a mesh axis.
        """
        clauses = self.clauses
        self._keep(tensor, source, target, stays)
        off = [_both(clash) for clash in self.illegal(tensor, target)]
        targets = self.ways(tensor, target)
        order = {layout: i for i, layout in enumerate(targets)}
        groups: dict[tuple[Layout, ...], list[Way]] = {}
        for layout, ways in self.ways(tensor, source).items():
            reached = tuple(sorted((n for n in reach[layout] if n in order), key=order.__getitem__))
            if len(reached) < len(targets):
                groups.setdefault(reached, []).extend(ways)
        for number, (reached, ways) in enumerate(groups.items()):
            there = [_both(way) for layout in reached for way in targets[layout]]
            if len(ways) == 1:
                clauses.clause(*map(negation, ways[0]), *there, *off)
                continue
            here = clauses.symbol("from", *target, number)
            clauses.clause(negation(here), *there, *off)
            for way in ways:
                clauses.clause(*map(negation, way), here)

    def same(self, tensor: str, source: Place, target: Place) -> None:
        """Demand of a target that it lies as its source does, however both are written.

        Parameters
        ----------
        tensor : str
        source, target : tuple
            Their Booleans per mesh axis must be there already.
        """
        if not self.problem.one_way(tensor):
            self.lead(tensor, source, target, {layout: frozenset({layout}) for layout in self.problem.layouts(tensor)})
            return
        known, problem = self.clauses.known, self.problem
        for axis, size in enumerate(problem.mesh.sizes):
            for label in self.labels(tensor) if size > 1 else ():
                here, there = known(*source, axis, label), known(*target, axis, label)
                if here != FALSE:
                    self.clauses.clause(negation(here), there)

    def _keep(self, tensor: str, source: Place, target: Place, stays: Stays) -> None:
        known, problem = self.clauses.known, self.problem
        moving = [p for p in self.labels(tensor) if not isinstance(p, Replicate)]
        for clash in (*self.illegal(tensor, source), *self.illegal(tensor, target)):
            for axis, label in product(range(len(problem.mesh.sizes)), moving):
                here, there = known(*source, axis, label), known(*target, axis, label)
                if here != FALSE and stays(axis, label):
                    self.clauses.clause(*map(negation, clash), negation(here), there)


def clash_reason(tensor: str, clash: Sequence[tuple[int, Placement]], why: str) -> Reason:
    """Return the fact that keeps placements of a tensor from standing together."""
    kind = "kinds" if all(isinstance(label, Partial) for _, label in clash) else "divisibility"
    return Reason(kind, tensor, f"{tensor!r}: {why}")


def _clashes(problem: Problem, tensor: str, options: Sequence[Placement]) -> Iterator[Clash]:
    """Yield the smallest sets of (mesh axis, placement) that no legal layout has together, and why."""
    sizes = problem.mesh.sizes
    shape, parts = problem.graph.tensors[tensor].shape, problem.parts(tensor)
    axes = [axis for axis, size in enumerate(sizes) if size > 1]
    moving = [label for label in options if not isinstance(label, Replicate)]
    found: list[frozenset[tuple[int, Placement]]] = []
    for count in range(1, len(axes) + 1):
        for chosen in combinations(axes, count):
            for picked in product(moving, repeat=count):
                clash = tuple(zip(chosen, picked, strict=True))
                if not _may_clash(picked) or any(known <= set(clash) for known in found):
                    continue
                placed = dict(clash)
                layout = [placed.get(axis, Replicate()) for axis in range(len(sizes))]
                if why := why_illegal(layout, shape, parts, sizes, problem.mesh.axes):
                    found.append(frozenset(clash))
                    yield clash, why


def _may_clash(picked: Sequence[Placement]) -> bool:
    """Tell whether placements can be illegal only together: all cut one dim, or all are partial."""
    if all(isinstance(label, Partial) for label in picked):
        return True
    return (
        all(isinstance(label, Shard) for label in picked) and len({p.dim for p in picked if isinstance(p, Shard)}) == 1
    )


def _both(way: Way) -> Literal:
    """Return the formula that holds where a tensor lies in this way."""
    return way[0] if len(way) == 1 else f"(and {' '.join(way)})" if way else "true"
