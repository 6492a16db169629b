"""Every way to write a layout of a tensor as one bit of a number, and which ways lead to which."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from itertools import product

from ops.placement import Layout, Partial, Placement, Replicate, Shard
from solver.constraints.layouts import always
from solver.layout import placements
from solver.problem import Problem

Ways = int
"""A set of ways: bit i stands for the i-th way of a `Universe`."""


class Universe:
    """The ways to write a layout of tensors with equal parts, illegal ones among them.

    Parameters
    ----------
    problem : Problem
    tensor : str

    Attributes
    ----------
    ways : tuple of Layout
    names : tuple
        The canonical form of each way; None for an illegal one.
    all, legal : int
        Sets of ways.
    """

    def __init__(self, problem: Problem, tensor: str) -> None:
        options = placements(problem.parts(tensor), problem.kinds)
        offered = [options if size > 1 else [Replicate()] for size in problem.mesh.sizes]
        written = problem.written(tensor)
        self.one_way = problem.one_way(tensor)
        self.ways: tuple[Layout, ...] = tuple(product(*offered))
        self.index = {way: i for i, way in enumerate(self.ways)}
        self.names = tuple(written.get(way) for way in self.ways)
        self.all: Ways = (1 << len(self.ways)) - 1
        self.legal = self._where(name is not None for name in self.names)
        self._having: dict[tuple[int, Placement], Ways] = {}

    def having(self, axis: int, placement: Placement) -> Ways:
        """Return the ways with a placement on a mesh axis."""
        key = axis, placement
        if key not in self._having:
            self._having[key] = self._where(way[axis] == placement for way in self.ways)
        return self._having[key]

    def within(self, allowed: Callable[[int, Placement], bool]) -> Ways:
        """Return the ways whose placements are all allowed, given the mesh axis."""
        kept = self.all
        for axis, label in dict.fromkeys((axis, label) for way in self.ways for axis, label in enumerate(way)):
            if not allowed(axis, label):
                kept &= ~self.having(axis, label)
        return kept

    def keeping(self, way: Layout, stays: Callable[[int, Placement], bool]) -> Ways:
        """Return the ways that have every S and P of a way, that stays, where it is."""
        kept = self.all
        for axis, label in enumerate(way):
            if not isinstance(label, Replicate) and stays(axis, label):
                kept &= self.having(axis, label)
        return kept

    def filled(self, ways: Ways) -> Ways:
        """Return the ways with no more P than one of some ways has: what padding with zeros does not add to."""
        partial = [self._partial(i) for i in range(len(self.ways))]
        least = [partial[i] for i in bits(ways)]
        return self._where(any(mine <= one for one in least) for mine in partial)

    def _partial(self, number: int) -> frozenset[int]:
        return frozenset(axis for axis, label in enumerate(self.ways[number]) if isinstance(label, Partial))

    @staticmethod
    def _where(holds: Iterable[bool]) -> Ways:
        return sum(1 << i for i, yes in enumerate(holds) if yes)


def bits(ways: Ways) -> Iterator[int]:
    """Yield the numbers of the ways in a set.

    Examples
    --------
    >>> list(bits(0b1011))
    [0, 1, 3]
    """
    while ways:
        lowest = ways & -ways
        yield lowest.bit_length() - 1
        ways ^= lowest


class Relation:
    """Which ways of a source lead to which ways of a target, one universe at both ends.

    Parameters
    ----------
    forward : sequence of int
        Per way of the source the ways of the target.

    Attributes
    ----------
    total : bool
        Whether every way leads somewhere, and is led to.
    """

    def __init__(self, forward: list[Ways]) -> None:
        self._forward = forward
        self._backward = [0] * len(forward)
        for i, targets in enumerate(forward):
            for j in bits(targets):
                self._backward[j] |= 1 << i
        self._known: dict[tuple[bool, Ways], Ways] = {}
        self.total = all(forward) and all(self._backward)

    def image(self, ways: Ways, back: bool = False) -> Ways:
        """Return where some ways lead to, or, `back`, what leads to them."""
        key = back, ways
        if key not in self._known:
            table = self._backward if back else self._forward
            found = 0
            for i in bits(ways):
                found |= table[i]
            self._known[key] = found
        return self._known[key]


def equal(universe: Universe, loose: bool) -> Relation:
    """Return the relation of ways that write one layout.

    Parameters
    ----------
    universe : Universe
    loose : bool
        Whether the parts of a dim count as one: on some mesh axes alone it is not known where the others cut.
    """
    if universe.one_way:
        return Relation([1 << i for i in range(len(universe.ways))])
    return leading(universe, {name: frozenset({name}) for name in universe.names if name is not None}, loose)


def leading(
    universe: Universe,
    reach: Mapping[Layout, Set[Layout]],
    loose: bool,
    stays: Callable[[int, Placement], bool] = always,
) -> Relation:
    """Return the relation of ways whose layouts lead to each other.

    To and from an illegal layout leads what keeps every S and P where it is.

    Parameters
    ----------
    universe : Universe
    reach : mapping
        Per layout those that it leads to.
    loose : bool
        See `equal`.
    stays : callable, optional
        Whether nothing that may run takes an S or P off a mesh axis.
    """
    alike = _alike if loose else tuple
    groups: dict[Layout, Ways] = {}
    leads: dict[Layout, set[Layout]] = {}
    for i, name in enumerate(universe.names):
        if name is not None:
            groups[alike(name)] = groups.get(alike(name), 0) | 1 << i
            leads.setdefault(alike(name), set()).update(alike(to) for to in reach[name])
    targets = {name: sum(groups[to] for to in found) for name, found in leads.items()}
    illegal = universe.all & ~universe.legal
    forward = []
    for way, name in zip(universe.ways, universe.names, strict=True):
        kept = universe.keeping(way, stays)
        forward.append(kept if name is None else targets[alike(name)] | (kept & illegal))
    return Relation(forward)


def _alike(layout: Layout) -> Layout:
    return tuple(Shard(label.dim) if isinstance(label, Shard) else label for label in layout)
