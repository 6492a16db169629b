"""The executable meaning of layouts and reshards: sections 1 and 3 of docs/semantics.md, slowly and plainly."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import combinations, product
from math import ceil, prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ops.placement import PARTIAL_KINDS, Layout, Partial, Parts, Placement, Replicate, Shard
from solver.mesh import Mesh

R = Replicate()
KINDS = (
    "slice",
    "relabel",
    "zero_fill",
    "scale",
    "all_reduce",
    "reduce_scatter",
    "all_gather",
    "all_to_all",
    "permute",
)
"""Every kind of move, in the order that decides between equal paths."""
IMPOSSIBLE = np.int64(2**55)
"""More than any plan costs."""
BUCKET = 25 * 2**20
"""The bytes of a bucket."""


class Cut(NamedTuple):
    """The device at coordinate c of a mesh axis of size n holds the indices x of dim with ``x // step % n == c``."""

    dim: int
    step: int


Lie: TypeAlias = tuple[Replicate | Partial | Cut, ...]
"""How a tensor lies on each mesh axis. Two ways to write a layout are equal when they lie in the same way."""


def lie(layout: Sequence[Placement], parts: Parts, sizes: Sequence[int]) -> Lie | None:
    """Return how a tensor lies in a layout, or None where that is not legal.

    Examples
    --------
    >>> lie((Shard(0), Shard(0, part=1)), ((4, 2),), (2, 2))
    (Cut(dim=0, step=4), Cut(dim=0, step=1))
    """
    lies: list[Replicate | Partial | Cut] = [R] * len(sizes)
    groups: dict[tuple[int, int], list[int]] = {}
    for axis, placement in enumerate(layout):
        if isinstance(placement, Shard) and sizes[axis] > 1:
            groups.setdefault((placement.dim, placement.part), []).append(axis)
        elif isinstance(placement, Partial) and sizes[axis] > 1:
            lies[axis] = placement
    kinds = {placement.kind for placement in lies if isinstance(placement, Partial)}
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
            lies[axis] = Cut(dim, step)
    return tuple(lies)


def indices(lies: Lie, shape: Sequence[int], sizes: Sequence[int], device: Sequence[int]) -> list[list[int]]:
    """Return, per dim, the indices that a device holds.

    Examples
    --------
    >>> indices((Cut(0, 4), Cut(0, 1)), (8,), (2, 2), (1, 0))
    [[4, 6]]
    """

    def holds(dim: int, x: int) -> bool:
        cuts = [(axis, cut.step) for axis, cut in enumerate(lies) if isinstance(cut, Cut) and cut.dim == dim]
        return all(x // step % sizes[axis] == device[axis] for axis, step in cuts)

    return [[x for x in range(size) if holds(dim, x)] for dim, size in enumerate(shape)]


def picoseconds(size: int, bandwidth: int) -> int:
    """Return the time that some bytes take, rounded up."""
    return ceil(Fraction(size * 10**12, bandwidth))


def all_reduce(mesh: Mesh, axis: int, elements: int, itemsize: int) -> tuple[int, int]:
    """Return the bytes that a device sends in an all_reduce, and the time."""
    link, n = mesh.links[axis], mesh.sizes[axis]
    sent = 2 * (n - 1) * ceil(Fraction(elements, n)) * itemsize
    return sent, 2 * steps(mesh, axis) * link.latency + picoseconds(sent, link.bandwidth)


def steps(mesh: Mesh, axis: int) -> int:
    """Return k of section 3: ceil(log2 n), on a ring n - 1."""
    n = mesh.sizes[axis]
    return n - 1 if mesh.links[axis].ring else (n - 1).bit_length()


class Move(NamedTuple):
    """One collective or one local step of a reshard."""

    kind: str
    axes: tuple[int, ...]
    source: Lie
    target: Lie
    bytes: int
    time: int


def levied(move: Move, levy: tuple[int, int]) -> int:
    """Return what a move counts more by a levy, a mesh axis and the picoseconds for each KiB."""
    axis, rate = levy
    return min(2**50, rate * move.bytes // 1024) if axis in move.axes else 0


class Path(NamedTuple):
    """The moves of a reshard. All fields but the moves say which of two paths comes first."""

    time: int
    sends: int
    bytes: int
    moved: int
    order: tuple[tuple[tuple[int, ...], int, int], ...]
    moves: tuple[Move, ...]

    def then(self, move: Move, rank: int) -> Path:
        """Go one move further, to the layout of that rank."""
        return Path(
            self.time + move.time,
            self.sends + (move.bytes > 0),
            self.bytes + move.bytes,
            self.moved + 1,
            (*self.order, (move.axes, KINDS.index(move.kind), rank)),
            (*self.moves, move),
        )


class Space:
    """All layouts of a tensor on a mesh, and the reshards between them.

    Parameters
    ----------
    shape : sequence of int
    itemsize : int
    parts : tuple of tuple of int
    mesh : Mesh
    kinds : iterable of str
        The partial kinds of the graph.
    communication : str, optional
        ``any``: every move; ``none``: those that send nothing; ``frozen``: there are no moves.
    bucketed : bool, optional
        Whether its moves pay their latency by bytes.
    forbidden : collection of (str, int), optional
        Kinds of move, each with a mesh axis that none of them may involve.
    hidden : mapping, optional
        Kind of move -> the fraction of its time that does not count.
    weight : int, optional
        What a picosecond counts.
    levy : tuple of int, optional
        Mesh axis, and the picoseconds that every KiB over it counts more where paths are compared.

    Attributes
    ----------
    written : dict
        Each layout, as it lies -> every legal way to write it, the canonical one first; in the order of layouts.
    """

    def __init__(
        self,
        shape: Sequence[int],
        itemsize: int,
        parts: Parts,
        mesh: Mesh,
        kinds: Iterable[str],
        communication: str = "any",
        bucketed: bool = False,
        forbidden: Collection[tuple[str, int]] = (),
        hidden: Mapping[str, Fraction] | None = None,
        weight: int = 1,
        levy: tuple[int, int] = (0, 0),
    ) -> None:
        self.levy = levy
        self.shape, self.itemsize, self.mesh, self.communication = tuple(shape), itemsize, mesh, communication
        self.bucketed, self.forbidden, self.hidden, self.weight = bucketed, forbidden, hidden or {}, weight
        shards = [Shard(dim, part) for dim, split in enumerate(parts) for part in range(len(split))]
        placements: list[Placement] = [R, *shards, *(Partial(kind) for kind in PARTIAL_KINDS if kind in kinds)]
        self.written: dict[Lie, list[Layout]] = {}
        # In product order the first way to write a layout has the smallest part numbers, which is the canonical one.
        for layout in product(*(placements if size > 1 else [R] for size in mesh.sizes)):
            if (lies := lie(layout, parts, mesh.sizes)) is not None:
                self.written.setdefault(lies, []).append(layout)
        self._paths: dict[Lie, dict[Lie, Path]] = {}

    @cached_property
    def blocks(self) -> dict[Lie, list[list[list[int]]]]:
        """What the devices hold in each layout, sorted, so that it does not matter which device holds it."""
        devices = self.mesh.coordinates()
        return {
            lies: sorted(indices(lies, self.shape, self.mesh.sizes, device) for device in devices)
            for lies in self.written
        }

    @cached_property
    def rank(self) -> dict[Lie, int]:
        """The place of each layout in the order of layouts."""
        return {lies: index for index, lies in enumerate(self.written)}

    def elements(self, lies: Lie) -> int:
        """Return how many elements one device holds."""
        return prod(map(len, self.blocks[lies][0]))

    def bytes(self, lies: Lie) -> int:
        """Return the local bytes of one device."""
        return self.elements(lies) * self.itemsize

    def move(self, source: Lie, target: Lie) -> Move | None:
        """Return the one move that leads from a layout to another: a line of the table of section 3, or None."""
        axes = tuple(axis for axis, (old, new) in enumerate(zip(source, target, strict=True)) if old != new)
        if len(axes) != 1:
            return self._permute(source, target, axes)
        axis = axes[0]
        n, k, link, memory = (
            self.mesh.sizes[axis],
            steps(self.mesh, axis),
            self.mesh.links[axis],
            self.mesh.hardware.memory_bandwidth,
        )
        before, after = self.bytes(source), self.bytes(target)
        chunk = ceil(Fraction(self.elements(source), n)) * self.itemsize
        runs = self._runs(source, axis, target[axis]) and self._runs(target, axis, source[axis])
        copied = 0 if runs else max(before, after)
        sent = waits = local = 0
        match source[axis], target[axis]:
            case Partial(), Replicate():
                kind, sent, waits = "all_reduce", 2 * (n - 1) * chunk, 2 * k
            case Partial(), Cut():
                kind, sent, waits, local = "reduce_scatter", (n - 1) * chunk, k, copied
            case Cut(), Replicate():
                kind, sent, waits, local = "all_gather", (n - 1) * before, k, copied
            case (Cut() as old, Cut() as new) if self._exchanges(source, axis, old, new):
                kind, sent, waits, local = "all_to_all", (n - 1) * chunk, n - 1, copied
            case Replicate(), Cut():
                kind = "slice"
            case ((Replicate() | Cut()), Partial("sum")):
                kind, local = "zero_fill", after
            case Replicate(), Partial():
                kind = "relabel"
            case (Partial("sum"), Partial("avg")) | (Partial("avg"), Partial("sum")):
                kind, local = "scale", before
            case _:
                return None
        wait = self._latency(waits * link.latency, max(before, after))
        time = wait + picoseconds(sent, link.bandwidth) + picoseconds(local, memory)
        return Move(kind, axes, source, target, sent, time)

    def _exchanges(self, source: Lie, axis: int, old: Cut, new: Cut) -> bool:
        """Tell whether a cut can be taken off and another be put on so that all devices send equal chunks."""
        n = self.mesh.sizes[axis]
        independent = old.dim != new.dim or new.step % (old.step * n) == 0 or old.step % (new.step * n) == 0
        return independent and (*source[:axis], R, *source[axis + 1 :]) in self.written

    def _runs(self, lies: Lie, axis: int, cut: Replicate | Partial | Cut) -> bool:
        """Tell whether a cut along a mesh axis divides a device's block into pieces that are each one run of memory."""
        if not isinstance(cut, Cut):
            return True
        block = indices(lies, self.shape, self.mesh.sizes, [0] * len(lies))
        pieces = [place[cut.dim] // cut.step % self.mesh.sizes[axis] for place in product(*block)]
        return pieces == sorted(pieces)

    def _permute(self, source: Lie, target: Lie, axes: Sequence[int]) -> Move | None:
        if source == target or not (self._reorders(source, target, axes) or self._swaps(source, target)):
            return None
        links, sent = [self.mesh.links[axis] for axis in axes], self.bytes(source)
        wire = picoseconds(sent, min(link.bandwidth for link in links))
        wait = self._latency(max(link.latency for link in links), sent)
        return Move("permute", tuple(axes), source, target, sent, wait + wire)

    def _latency(self, wait: int, size: int) -> int:
        return ceil(Fraction(wait * size, BUCKET)) if self.bucketed else wait

    def _reorders(self, source: Lie, target: Lie, axes: Sequence[int]) -> bool:
        """Tell whether mesh axes that cut one dim only change their order in it: the blocks are the same."""
        changed = [lies[axis] for axis in axes for lies in (source, target)]
        dims = {cut.dim if isinstance(cut, Cut) else None for cut in changed}
        return len(dims) == 1 and None not in dims and self.blocks[source] == self.blocks[target]

    def _swaps(self, source: Lie, target: Lie) -> bool:
        """Tell whether two mesh axes of equal size exchange their placements, at least one of them a cut."""
        for written in self.written[source]:
            for a, b in combinations(range(len(written)), 2):
                pair = [written[a], written[b]]
                if self.mesh.sizes[a] == self.mesh.sizes[b] and any(isinstance(placement, Shard) for placement in pair):
                    swapped = list(written)
                    swapped[a], swapped[b] = written[b], written[a]
                    if tuple(swapped) in self.written[target]:
                        return True
        return False

    @cached_property
    def moves(self) -> dict[Lie, list[Move]]:
        """Every move from every layout, as far as communication is allowed, with the time that counts."""
        return {
            source: [
                move._replace(
                    time=self.weight * ceil(move.time * (1 - self.hidden.get(move.kind, Fraction(0))))
                    + levied(move, self.levy)
                )
                for target in self.written
                if (move := self.move(source, target)) and self._allowed(move)
            ]
            for source in self.written
        }

    def _allowed(self, move: Move) -> bool:
        if any((move.kind, axis) in self.forbidden for axis in move.axes):
            return False
        return self.communication == "any" or (self.communication == "none" and not move.bytes)

    @cached_property
    def times(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The least time from every layout to every other, `IMPOSSIBLE` where there is no way (Floyd-Warshall)."""
        times = np.full((len(self.written),) * 2, IMPOSSIBLE)
        np.fill_diagonal(times, 0)
        for source, moves in self.moves.items():
            for move in moves:
                times[self.rank[source], self.rank[move.target]] = move.time
        for between in range(len(times)):
            times = np.minimum(times, times[:, [between]] + times[[between], :])
        return np.minimum(times, IMPOSSIBLE)

    def paths(self, source: Lie) -> dict[Lie, Path]:
        """Return the first path to every layout that can be reached (Bellman-Ford)."""
        if source not in self._paths:
            best, changed = {source: Path(0, 0, 0, 0, (), ())}, {source}
            while changed:
                steps_on = [(best[here], move) for here in changed for move in self.moves[here]]
                changed = set()
                for path, move in steps_on:
                    known = best.get(move.target)
                    if known is None or path.time + move.time <= known.time:
                        longer = path.then(move, self.rank[move.target])
                        if known is None or longer[:-1] < known[:-1]:
                            best[move.target] = longer
                            changed.add(move.target)
            self._paths[source] = best
        return self._paths[source]
