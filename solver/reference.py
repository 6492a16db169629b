"""The executable meaning of docs/semantics.md: every plan of a tiny graph, its price, and its run.

Nothing here searches and nothing is clever. It shares the rules and kernels of `ops` and the data of graph, mesh and
hardware with the planner, and no code. Section numbers are those of docs/semantics.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from itertools import pairwise, product
from math import ceil, prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ops import Layout, Partial, Parts, Placement, Replicate, Shard, parse_placement, rule_for
from ops.bind import BoundRule, BoundTensor, Row
from ops.op import promote
from ops.placement import PARTIAL_KINDS
from solver.graph import Graph, Node, Tensor
from solver.mesh import Mesh

Array: TypeAlias = np.ndarray[Any, Any]
Wishes: TypeAlias = Mapping[str, str | Mapping[str, str | Placement]]
R = Replicate()


class Cut(NamedTuple):
    """The device at coordinate c of a mesh axis of size n holds the indices x of dim with x // step % n == c."""

    dim: int
    step: int


Lie: TypeAlias = tuple[Replicate | Partial | Cut, ...]
"""What a layout does on each mesh axis. Two ways to write a layout are equal when they do the same."""


class ReferenceError(ValueError):
    """A question that this page of meaning cannot answer."""


# ------------------------------------------------------------------------------------------------- 1 and 3: one tensor


def lie(layout: Sequence[Placement], parts: Parts, sizes: Sequence[int]) -> Lie | None:
    """Return what a layout does, or None where it is not legal.

    Examples
    --------
    >>> lie((Shard(0), Shard(0, part=1)), ((4, 2),), (2, 2))
    (Cut(dim=0, step=4), Cut(dim=0, step=1))
    """
    done: list[Replicate | Partial | Cut] = [R] * len(sizes)
    groups: dict[tuple[int, int], list[int]] = {}
    for axis, placement in enumerate(layout):
        if isinstance(placement, Shard) and sizes[axis] > 1:
            groups.setdefault((placement.dim, placement.part), []).append(axis)
        elif isinstance(placement, Partial) and sizes[axis] > 1:
            done[axis] = placement
    kinds = {placement.kind for placement in done if isinstance(placement, Partial)}
    if len(kinds) > 1 and kinds != {"sum", "avg"}:
        return None
    for (dim, part), axes in groups.items():
        if dim >= len(parts) or part >= len(parts[dim]):
            return None
        end = min((other for place, other in groups if place == dim and other > part), default=len(parts[dim]))
        if prod(parts[dim][part:end]) % prod(sizes[axis] for axis in axes):
            return None
        step = prod(parts[dim][part:])
        for axis in axes:
            step //= sizes[axis]
            done[axis] = Cut(dim, step)
    return tuple(done)


def indices(lay: Lie, shape: Sequence[int], sizes: Sequence[int], device: Sequence[int]) -> list[list[int]]:
    """Return, per dim, the indices that a device holds."""

    def holds(dim: int, x: int) -> bool:
        cuts = ((axis, done) for axis, done in enumerate(lay) if isinstance(done, Cut) and done.dim == dim)
        return all(x // cut.step % sizes[axis] == device[axis] for axis, cut in cuts)

    return [[x for x in range(size) if holds(dim, x)] for dim, size in enumerate(shape)]


class Move(NamedTuple):
    """One collective or local step: see the table of section 3."""

    kind: str
    axes: tuple[int, ...]
    source: Lie
    target: Lie
    bytes: int
    time: int


class Path(NamedTuple):
    """The moves of a reshard; paths compare as section 3 says."""

    time: int
    count: int
    bytes: int
    order: tuple[tuple[tuple[int, ...], int], ...]
    moves: tuple[Move, ...]

    def then(self, move: Move, rank: int) -> Path:
        """Go one move further."""
        order = (*self.order, (move.axes, rank))
        return Path(self.time + move.time, self.count + 1, self.bytes + move.bytes, order, (*self.moves, move))


class Space:
    """All layouts of a tensor on a mesh, and the reshards between them.

    Parameters
    ----------
    shape : sequence of int
    itemsize : int
    parts : tuple of tuple of int
    mesh : Mesh
    kinds : sequence of str
        The partial kinds of the graph.
    silent : bool, optional
        Only moves that send nothing.
    """

    def __init__(self, shape: Sequence[int], itemsize: int, parts: Parts, mesh: Mesh, kinds: Iterable[str], silent: bool = False) -> None:
        self.shape, self.itemsize, self.parts, self.mesh, self.silent = tuple(shape), itemsize, parts, mesh, silent
        shards = [Shard(dim, part) for dim, split in enumerate(parts) for part in range(len(split))]
        placements: list[Placement] = [R, *shards, *(Partial(kind) for kind in PARTIAL_KINDS if kind in kinds)]
        self.written: dict[Lie, list[Layout]] = {}
        for layout in product(*(placements if size > 1 else [R] for size in mesh.sizes)):
            if (lay := lie(layout, parts, mesh.sizes)) is not None:
                self.written.setdefault(lay, []).append(layout)
        self.layouts = list(self.written)  # the first way to write each has the smallest parts: product order is their order
        self._paths: dict[Lie, dict[Lie, Path]] = {}

    def canonical(self, lay: Lie) -> Layout:
        """Return the way to write a layout that has the smallest part numbers."""
        return self.written[lay][0]

    def elements(self, lay: Lie) -> int:
        """Return how many elements one device holds."""
        return prod(self.shape) // prod(size for size, done in zip(self.mesh.sizes, lay, strict=True) if isinstance(done, Cut))

    def bytes(self, lay: Lie) -> int:
        """Return the local bytes of one device."""
        return self.elements(lay) * self.itemsize

    @cache  # noqa: B019  (a Space lives as long as its task)
    def dealt(self, lay: Lie) -> list[list[list[int]]]:
        """Return the blocks that the devices hold, sorted."""
        return sorted(indices(lay, self.shape, self.mesh.sizes, device) for device in self.mesh.coordinates())

    def move(self, source: Lie, target: Lie) -> Move | None:
        """Return the one move from a layout to another, or None."""
        axes = tuple(axis for axis, (old, new) in enumerate(zip(source, target, strict=True)) if old != new)
        links = [self.mesh.links[axis] for axis in axes]
        before, after = self.bytes(source), self.bytes(target)
        if len(axes) != 1:
            cuts_only = axes and not any(isinstance(lay[axis], Partial) for lay in (source, target) for axis in axes)
            if not cuts_only or self.dealt(source) != self.dealt(target):
                return None
            wire = _picoseconds(before, min(link.bandwidth for link in links))
            return Move("permute", axes, source, target, before, max(link.latency for link in links) + wire)
        axis, n, link = axes[0], self.mesh.sizes[axes[0]], links[0]
        k = n - 1 if link.ring else (n - 1).bit_length()
        chunk = ceil(Fraction(self.elements(source), n)) * self.itemsize
        placed = self.canonical(source)[axis], self.canonical(target)[axis]
        leading = all(placement == Shard(0) for placement in placed if isinstance(placement, Shard))
        copied = 0 if leading else max(before, after)
        match source[axis], target[axis]:
            case Partial(), Replicate():
                kind, sent, steps, local = "all_reduce", 2 * (n - 1) * chunk, 2 * k, 0
            case Partial(), Cut():
                kind, sent, steps, local = "reduce_scatter", (n - 1) * chunk, k, copied
            case Cut(), Replicate():
                kind, sent, steps, local = "all_gather", (n - 1) * before, k, copied
            case (Cut() as old, Cut() as new) if self._exchanges(source, axis, old, new):
                kind, sent, steps, local = "all_to_all", (n - 1) * chunk, n - 1, copied
            case Replicate(), Cut():
                kind, sent, steps, local = "slice", 0, 0, 0
            case Replicate() | Cut(), Partial("sum"):
                kind, sent, steps, local = "zero_fill", 0, 0, after
            case Replicate(), Partial():
                kind, sent, steps, local = "relabel", 0, 0, 0
            case (Partial("sum"), Partial("avg")) | (Partial("avg"), Partial("sum")):
                kind, sent, steps, local = "scale", 0, 0, before
            case _:
                return None
        time = steps * link.latency + _picoseconds(sent, link.bandwidth) + _picoseconds(local, self.mesh.hardware.memory_bandwidth)
        return Move(kind, axes, source, target, sent, time)

    def _exchanges(self, source: Lie, axis: int, old: Cut, new: Cut) -> bool:
        """Tell whether a cut can be taken off and another put on so that all devices send equal chunks."""
        n = self.mesh.sizes[axis]
        independent = old.dim != new.dim or new.step % (old.step * n) == 0 or old.step % (new.step * n) == 0
        return independent and (*source[:axis], R, *source[axis + 1 :]) in self.written

    @cached_property
    def moves(self) -> dict[Lie, list[Move]]:
        """Every move from every layout."""
        pairs = {source: [self.move(source, target) for target in self.layouts] for source in self.layouts}
        allowed = {source: [move for move in found if move and not (self.silent and move.bytes)] for source, found in pairs.items()}
        return allowed

    def paths(self, source: Lie) -> dict[Lie, Path]:
        """Return the path to every layout that can be reached (Bellman-Ford)."""
        if source not in self._paths:
            rank = {lay: index for index, lay in enumerate(self.layouts)}
            best = {source: Path(0, 0, 0, (), ())}
            changed = {source}
            while changed:
                near = [(move.target, best[here].then(move, rank[move.target])) for here in changed for move in self.moves[here]]
                changed = set()
                for there, path in near:
                    if there not in best or path[:4] < best[there][:4]:
                        best[there] = path
                        changed.add(there)
            self._paths[source] = best
        return self._paths[source]

    def price(self, source: Lie, target: Lie) -> int | None:
        """Return the least time from a layout to another, None where there is no way."""
        path = self.paths(source).get(target)
        return None if path is None else path.time


def _picoseconds(size: int, bandwidth: int) -> int:
    return ceil(Fraction(size * 10**12, bandwidth))
