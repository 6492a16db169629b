"""Reshards: the cheapest way from every layout of a tensor to every other, and the collectives on that way.

A reshard's price is the shortest path over the legal layouts of the tensor. So prices obey the triangle inequality, and
choices such as "reduce before slicing" or "all_to_all instead of gather and slice" need no rule of their own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ops.placement import PARTIAL_KINDS, Layout, Parts, Shard, layout_text
from solver.cost.collectives import KINDS, LOCAL
from solver.cost.moves import MoveClass, all_moves, axes_of, geometry
from solver.cost.tariff import PLAIN, Tariff
from solver.deadline import keep_time
from solver.layout import canonical, check_parts, groups, placements, why_illegal
from solver.mesh import Mesh

INF = 2**61
"""The price of what is impossible."""
CACHE_BYTES = 2**30
"""How many bytes of tables are kept for the next caller."""
MOST_RANKS = 2**17
"""How many ranks of ways a table keeps for the next path; beyond them it begins anew."""
BLOCK = 64
"""How many columns are computed at a time: few enough for a processor's cache."""
RANK_BYTES, LAYOUT_BYTES = 150, 400
_MOVE_BYTES = {"_moves": 48, "moves": 170, "_edges": 300, "_leaving": 60, "_entering": 60}
"""About how many bytes a table takes for each move, by what it has worked out."""
Rank: TypeAlias = tuple[int, int, int, int]
"""What paths are compared by: picoseconds, collectives, bytes, moves."""


class ReshardError(ValueError):
    """A reshard that nothing can do."""


@dataclass(frozen=True, slots=True)
class Move:
    """One collective, or one local step, of a reshard.

    The layouts are spelled so that the move is one plain step: consecutive moves of a path, and its ends, agree in
    canonical form.

    Parameters
    ----------
    kind : str
        ``all_reduce all_gather reduce_scatter all_to_all permute``, or ``slice zero_fill relabel scale``, which send
        nothing.
    axes : tuple of int
        The mesh axes on which devices talk.
    source, target : Layout
        The layouts before and after.
    bytes : int
        What one device sends.
    time : int
        Picoseconds.
    """

    kind: str
    axes: tuple[int, ...]
    source: Layout
    target: Layout
    bytes: int
    time: int

    def sender(self, sizes: Sequence[int], coordinate: Sequence[int]) -> tuple[int, ...]:
        """Say, for a permute, whose block a device receives.

        Parameters
        ----------
        sizes : sequence of int
            The sizes of the mesh axes.
        coordinate : sequence of int
            Where the receiving device stands on the mesh.

        Returns
        -------
        tuple of int
            Where the sending device stands; every device sends to exactly one.

        Examples
        --------
        >>> from ops.placement import Replicate, Shard
        >>> swap = Move("permute", (0, 1), (Shard(0), Replicate()), (Replicate(), Shard(0)), bytes=8, time=1)
        >>> swap.sender((2, 2), (0, 1))
        (1, 0)
        """
        sender = list(coordinate)
        free = [[axis for axis in self.axes if not isinstance(end[axis], Shard)] for end in (self.source, self.target)]
        for before, after in zip(*free, strict=True):
            sender[before] = coordinate[after]
        source, target = _nested(self.source, sizes), _nested(self.target, sizes)
        for dim, axes in target.items():
            piece = 0
            for axis in axes:
                piece = piece * sizes[axis] + coordinate[axis]
            for axis in reversed(source[dim]):
                piece, sender[axis] = divmod(piece, sizes[axis])
        return tuple(sender)


def _nested(layout: Layout, sizes: Sequence[int]) -> dict[int, list[int]]:
    """List, for each dim, the mesh axes that cut it, the outermost first: their digits number its pieces in order."""
    nested: dict[int, list[int]] = {}
    for (dim, _), axes in groups(layout, sizes).items():
        nested.setdefault(dim, []).extend(axes)
    return nested


class ReshardTable:
    """All layouts of one class of tensors, and the price of every reshard between them.

    Parameters
    ----------
    tensor : MoveClass
        What the prices depend on.

    Attributes
    ----------
    layouts : tuple of Layout
        The legal layouts in canonical form.
    index : dict
        Layout -> its place in `layouts`.
    """

    def __init__(self, tensor: MoveClass) -> None:
        self.tensor = tensor
        self._geometry = geometry(tensor.parts, tensor.sizes, tensor.kinds)
        self.layouts: tuple[Layout, ...] = self._geometry.layouts
        self.index: dict[Layout, int] = {layout: i for i, layout in enumerate(self.layouts)}
        self._moves = all_moves(tensor)
        self._sources = self._geometry.class_of[self._moves.source]
        self._targets = self._geometry.class_of[self._moves.target]
        self._ranks: dict[int, list[Rank | None]] = {}
        self._columns: dict[int, NDArray[np.int64]] = {}

    @cached_property
    def time(self) -> NDArray[np.int64]:
        """Picoseconds from every layout (row) to every other (column), INF where there is no way."""
        times = self.times_to(range(len(self.layouts)))
        times.setflags(write=False)
        return times

    def times_to(self, targets: Sequence[int]) -> NDArray[np.int64]:
        """Price the reshards to some of the layouts only: on many mesh axes the whole table is large.

        Parameters
        ----------
        targets : sequence of int
            Places in `layouts`.

        Returns
        -------
        ndarray
            Picoseconds, one row for every layout, one column for every target; INF where there is no way.
        """
        from solver.cost.shortest import relax  # brings numba in, which takes longer to import than all the rest

        starts = np.searchsorted(self._sources, np.arange(len(self.layouts) + 1))
        blocks = [np.asarray(targets[at : at + BLOCK], dtype=np.int64) for at in range(0, len(targets), BLOCK)]
        found = [np.zeros((len(self.layouts), 0), dtype=np.int64)]
        for block in blocks:
            keep_time()
            times = np.full((len(self.layouts), len(block)), INF, dtype=np.int64)
            times[block, np.arange(len(block))] = 0
            relax(starts, self._targets, self._moves.time, times)
            found.append(times)
        return np.concatenate(found, axis=1)

    @property
    def bytes(self) -> int:
        """About how many bytes the table takes by now."""
        layouts, moves, known = len(self.layouts), len(self._sources), self.__dict__
        found = 8 * layouts * (len(self._columns) + (layouts if "time" in known else 0))
        found += moves * sum(size for name, size in _MOVE_BYTES.items() if name in known)
        return found + RANK_BYTES * layouts * len(self._ranks) + LAYOUT_BYTES * layouts

    def between(self, source: Layout, target: Layout) -> int:
        """Give the picoseconds from one layout to another, both in canonical form, without the whole table."""
        to = self.index[target]
        if "time" in self.__dict__:
            return int(self.time[self.index[source], to])
        if to not in self._columns:
            self._columns[to] = self.times_to([to])[:, 0]
        return int(self._columns[to][self.index[source]])

    @cached_property
    def moves(self) -> tuple[Move, ...]:
        """Every single move, between different layouts, in the order of source and target."""
        return tuple(map(self._move, range(len(self._sources))))

    def place(self, layout: Layout) -> int:
        """Find a layout, however it is spelled, in `layouts`.

        Raises
        ------
        ReshardError
            Where this class of tensors cannot lie so, saying why.
        """
        tensor = self.tensor
        shape = tuple(map(prod, tensor.parts))
        if reason := why_illegal(layout, shape, tensor.parts, tensor.sizes):
            raise ReshardError(f"a tensor of shape {shape} cannot have the layout {layout_text(layout)}: {reason}")
        name = canonical(layout, tensor.parts, tensor.sizes)
        if name not in self.index:
            kinds = ", ".join(tensor.kinds) or "none"
            raise ReshardError(f"{layout_text(layout)} has a partial kind that this table leaves out (kinds: {kinds})")
        return self.index[name]

    def path(self, source: Layout, target: Layout) -> tuple[Move, ...]:
        """List the moves of the cheapest reshard.

        Of equally fast paths the one with the fewest collectives is taken, then with the fewest bytes, then with the
        fewest moves, then the one that is first in the order of the mesh axes.

        Parameters
        ----------
        source, target : Layout
            Legal layouts.

        Returns
        -------
        tuple of Move
            Empty where both put the same data on every device.

        Raises
        ------
        ReshardError
            For an illegal layout, and where no allowed moves lead from the one to the other.
        """
        node, goal = self.place(source), self.place(target)
        if goal not in self._ranks:
            if (len(self._ranks) + 1) * len(self.layouts) > MOST_RANKS:
                self._ranks.clear()
            self._ranks[goal] = self._rank_to(goal)
        ranks = self._ranks[goal]
        if ranks[node] is None:
            told = f"from {layout_text(source)} to {layout_text(target)}"
            moving = "send nothing" if self.tensor.local_only else "may run"
            raise ReshardError(f"no moves that {moving} lead {told}: allow communication, or keep the layout")
        path: list[Move] = []
        while node != goal:
            edges = (edge for edge in self._leaving[node] if _onward(edge[2], ranks[edge[1]]) == ranks[node])
            number, node, _ = min(edges, key=lambda edge: self._order(edge[0]))
            path.append(self._move(number))
        return tuple(path)

    @cached_property
    def _edges(self) -> list[tuple[int, int, int, Rank]]:
        moves = self._moves
        sends = (moves.kind >= len(LOCAL)).astype(np.int64)
        ranks = zip(moves.time.tolist(), sends.tolist(), moves.bytes.tolist(), [1] * len(sends), strict=True)
        numbered = zip(range(len(sends)), self._sources.tolist(), self._targets.tolist(), ranks, strict=True)
        return list(numbered)

    @cached_property
    def _leaving(self) -> list[list[tuple[int, int, Rank]]]:
        leaving: list[list[tuple[int, int, Rank]]] = [[] for _ in self.layouts]
        for number, source, target, rank in self._edges:
            leaving[source].append((number, target, rank))
        return leaving

    @cached_property
    def _entering(self) -> list[list[tuple[int, Rank]]]:
        entering: list[list[tuple[int, Rank]]] = [[] for _ in self.layouts]
        for _, source, target, rank in self._edges:
            entering[target].append((source, rank))
        return entering

    def _rank_to(self, goal: int) -> list[Rank | None]:
        """Give the best rank of the ways from every layout to one of them (Dijkstra, backward)."""
        ranks: list[Rank | None] = [None] * len(self.layouts)
        heap: list[tuple[Rank, int]] = [((0, 0, 0, 0), goal)]
        while heap:
            rank, node = heappop(heap)
            if ranks[node] is None:
                ranks[node] = rank
                for before, step in self._entering[node]:
                    if ranks[before] is None:
                        heappush(heap, (_sum(step, rank), before))
        return ranks

    def _order(self, number: int) -> tuple[tuple[int, ...], int, int]:
        return axes_of(int(self._moves.axes[number])), int(self._moves.kind[number]), int(self._targets[number])

    def _move(self, number: int) -> Move:
        moves, raw = self._moves, self._geometry.raw
        return Move(
            kind=KINDS[moves.kind[number]],
            axes=axes_of(int(moves.axes[number])),
            source=raw[moves.source[number]],
            target=raw[moves.target[number]],
            bytes=int(moves.bytes[number]),
            time=int(moves.time[number]),
        )


def _sum(step: Rank, rest: Rank) -> Rank:
    return step[0] + rest[0], step[1] + rest[1], step[2] + rest[2], step[3] + rest[3]


def _onward(step: Rank, rest: Rank | None) -> Rank | None:
    return None if rest is None else _sum(step, rest)


def reshard_table(
    shape: Sequence[int],
    itemsize: int,
    parts: Parts,
    mesh: Mesh,
    kinds: Sequence[str],
    local_only: bool = False,
    bucket: int | None = None,
    tariff: Tariff = PLAIN,
) -> ReshardTable:
    """Give the table of reshards of a tensor; tensors of one class share it.

    Parameters
    ----------
    shape : sequence of int
        The shape of the tensor.
    itemsize : int
        The bytes of an element.
    parts : tuple of tuple of int
        The parts of each dim.
    mesh : Mesh
        The mesh, with its links and its memory bandwidth.
    kinds : sequence of str
        The partial kinds that may appear.
    local_only : bool, optional
        Whether only moves that send nothing are allowed.
    bucket : int, optional
        Bytes of a bucket: collectives of many tensors are coalesced and share their latency by bytes.
    tariff : Tariff, optional
        Which collectives may run, and how their time counts.

    Returns
    -------
    ReshardTable

    Raises
    ------
    LayoutError
        Where the parts do not multiply to the shape, or a kind is no partial kind.
    ReshardError
        For an item size or a bucket below 1.

    Examples
    --------
    >>> from ops.placement import Partial, Shard
    >>> table = reshard_table((8, 4), 4, ((8,), (4,)), Mesh({"tp": 4}), ("sum",))
    >>> [move.kind for move in table.path((Partial("sum"),), (Shard(0),))]
    ['reduce_scatter']
    """
    if itemsize < 1 or (bucket is not None and bucket < 1):
        raise ReshardError(f"an item has at least one byte, and so has a bucket: itemsize={itemsize}, bucket={bucket}")
    check_parts(shape, parts)
    placements(parts, kinds)
    tensor = MoveClass(
        itemsize=int(itemsize),
        parts=tuple(tuple(int(size) for size in split) for split in parts),
        sizes=mesh.sizes,
        links=mesh.links,
        memory_bandwidth=mesh.hardware.memory_bandwidth,
        kinds=tuple(kind for kind in PARTIAL_KINDS if kind in kinds),
        local_only=bool(local_only),
        bucket=bucket,
        tariff=tariff,
    )
    return _CACHE.table(tensor)


class _Cache:
    """The last tables, as many as fit into `CACHE_BYTES`, one at least."""

    def __init__(self) -> None:
        self.tables: OrderedDict[MoveClass, ReshardTable] = OrderedDict()

    def table(self, tensor: MoveClass) -> ReshardTable:
        if tensor in self.tables:
            self.tables.move_to_end(tensor)
            return self.tables[tensor]
        table = self.tables[tensor] = ReshardTable(tensor)
        held = sum(kept.bytes for kept in self.tables.values())
        while held > CACHE_BYTES and len(self.tables) > 1:
            _, dropped = self.tables.popitem(last=False)
            held -= dropped.bytes
        return table


_CACHE = _Cache()
