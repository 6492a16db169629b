"""Every move on simulated devices: numpy arrays in, numpy arrays out, and the bytes that each device sends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ops.halo import Exchange
from ops.placement import Layout, Partial, Parts, Placement, Replicate, Shard
from solver.cost.reshard import Move
from solver.layout import block

Array: TypeAlias = NDArray[Any]
Coordinate: TypeAlias = tuple[int, ...]
_R = Replicate()
ROUNDING = 1e-12
"""How far devices that should agree may differ, relative to the largest value that one of them holds."""

COMBINE: dict[str, Callable[[Array, Array], Array]] = {
    "sum": np.add,
    "avg": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "any": np.logical_or,
    "all": np.logical_and,
}


class Devices:
    """A mesh of simulated devices, and what one tensor is to them.

    Parameters
    ----------
    sizes : tuple of int
        The sizes of the mesh axes.
    shape : tuple of int
        Of the whole tensor.
    parts : Parts
    itemsize : int
        Bytes of one element in the plan; the simulation itself runs in float64.
    """

    def __init__(self, sizes: tuple[int, ...], shape: tuple[int, ...], parts: Parts, itemsize: int) -> None:
        self.sizes, self.shape, self.parts, self.itemsize = sizes, shape, parts, itemsize
        self.coordinates: list[Coordinate] = [tuple(int(i) for i in c) for c in np.ndindex(*sizes)]
        self.rank_of = {coordinate: rank for rank, coordinate in enumerate(self.coordinates)}
        self._indices: dict[tuple[Layout, int, Coordinate], Array] = {}

    def indices(self, layout: Layout, dim: int, coordinate: Coordinate) -> Array:
        """Return which indices of a dim a device holds; it holds them in ascending order."""
        mine = tuple(p if isinstance(p, Shard) and p.dim == dim else None for p in layout)
        along = tuple(c if p is not None else 0 for c, p in zip(coordinate, mine, strict=True))
        key = (layout, dim, along)
        if key not in self._indices:
            alone = tuple(Shard(0, p.part) if isinstance(p, Shard) and p.dim == dim else _R for p in layout)
            self._indices[key] = block(np.arange(self.shape[dim]), alone, (self.parts[dim],), self.sizes, along)
        return self._indices[key]

    def cut(self, whole: Array, layout: Layout) -> list[Array]:
        """Cut a whole tensor into the blocks of all devices; equal blocks are one object."""
        blocks: dict[Coordinate, Array] = {}
        found = []
        for coordinate in self.coordinates:
            along = tuple(c if isinstance(p, Shard) else 0 for c, p in zip(coordinate, layout, strict=True))
            if along not in blocks:
                blocks[along] = block(whole, layout, self.parts, self.sizes, along)
            found.append(blocks[along])
        return found

    def assemble(self, blocks: Sequence[Array], layout: Layout) -> Array | None:
        """Put the blocks of all devices together; None where devices that should agree do not, or hold other shapes."""
        terms: dict[Coordinate, Array] = {}
        for coordinate, mine in zip(self.coordinates, blocks, strict=True):
            key = tuple(0 if p == _R else c for c, p in zip(coordinate, layout, strict=True))
            if not agree(terms.setdefault(key, mine), mine):
                return None
        for axis, placement in enumerate(layout):
            if isinstance(placement, Partial):
                terms = _reduced(terms, axis, placement.kind)
        whole = np.zeros(self.shape, np.result_type(*terms.values()))
        for coordinate, mine in terms.items():
            places = [self.indices(layout, dim, coordinate) for dim in range(len(self.shape))]
            if mine.shape != tuple(map(len, places)):
                return None
            whole[np.ix_(*places)] = mine
        return whole

    def group(self, axis: int, coordinate: Coordinate) -> list[int]:
        """Return the ranks that differ from a device on one mesh axis only, in order."""
        return [self.rank_of[(*coordinate[:axis], i, *coordinate[axis + 1 :])] for i in range(self.sizes[axis])]

    def move(self, blocks: Sequence[Array], move: Move) -> tuple[list[Array], int]:
        """Run one move.

        Parameters
        ----------
        blocks : sequence of ndarray
            Per device what it holds.
        move : Move

        Returns
        -------
        blocks : list of ndarray
            Per device what it holds afterwards.
        bytes : int
            The most that any device has sent.
        """
        if move.kind == "permute":
            senders = [self.rank_of[move.sender(self.sizes, coordinate)] for coordinate in self.coordinates]
            elements = (blocks[sender].size for rank, sender in enumerate(senders) if sender != rank)
            return [blocks[sender] for sender in senders], max(elements, default=0) * self.itemsize
        (axis,) = move.axes
        moved: list[Array] = list(blocks)
        most = 0
        for coordinate in self.coordinates:
            if coordinate[axis] == 0:
                ranks = self.group(axis, coordinate)
                line = _Line(self, move, [self.coordinates[rank] for rank in ranks], [blocks[rank] for rank in ranks])
                made, sent = line.run()
                most = max(most, sent)
                for rank, array in zip(ranks, made, strict=True):
                    moved[rank] = array
        return moved, most * self.itemsize

    def all_reduce(self, held: Sequence[Array], axis: int, kind: str) -> tuple[list[Array], int]:
        """Reduce what the devices along one mesh axis hold; return it and the bytes that each has sent."""
        reduced, sent = list(held), 0
        for coordinate in self.coordinates:
            if coordinate[axis] == 0:
                ranks = self.group(axis, coordinate)
                whole, sent = ring_all_reduce([held[rank] for rank in ranks], kind)
                for rank in ranks:
                    reduced[rank] = whole
        return reduced, sent * self.itemsize

    def exchange(self, held: Sequence[Array], exchange: Exchange, axes: Sequence[int]) -> tuple[list[Array], int]:
        """Exchange the borders of the blocks that some mesh axes cut; return the arrays and the most bytes sent."""
        made, most = list(held), 0
        for line in self.lines(axes):
            mine = [held[rank] for rank in line]
            most = max(most, *exchange.elements(mine))
            for rank, array in zip(line, exchange.run(mine), strict=True):
                made[rank] = array
        return made, most * self.itemsize

    def lines(self, axes: Sequence[int]) -> list[list[int]]:
        """Return the ranks that differ on some mesh axes only, in the order of the blocks that these cut."""
        found: dict[Coordinate, list[int]] = {}
        for rank, coordinate in enumerate(self.coordinates):
            found.setdefault(tuple(c for axis, c in enumerate(coordinate) if axis not in axes), []).append(rank)
        return list(found.values())


class _Line:
    """The devices along one mesh axis that run a move together."""

    def __init__(self, devices: Devices, move: Move, places: list[Coordinate], held: list[Array]) -> None:
        self.devices, self.move, self.places, self.held = devices, move, places, held
        (axis,) = move.axes
        self.source, self.target = move.source[axis], move.target[axis]

    def run(self) -> tuple[list[Array], int]:
        """Return what each device holds afterwards, and the most elements that one of them sends."""
        n, held = len(self.held), self.held
        match self.move.kind:
            case "all_reduce":
                whole, sent = ring_all_reduce(held, _kind(self.source))
                return [whole] * n, sent
            case "reduce_scatter":
                return ring_reduce_scatter(
                    [[self._piece(j, i) for i in range(n)] for j in range(n)], _kind(self.source)
                )
            case "all_gather":
                return [self._joined(held, 0)] * n, (n - 1) * max(mine.size for mine in held)
            case "all_to_all":
                pieces = [[self._piece(j, i) for i in range(n)] for j in range(n)]
                sent = max(sum(piece.size for i, piece in enumerate(row) if i != j) for j, row in enumerate(pieces))
                return [self._joined([row[i] for row in pieces], i) for i in range(n)], sent
            case "slice":
                return [self._piece(i, i) for i in range(n)], 0
            case "zero_fill":
                return [self._term(i) for i in range(n)], 0
            case "scale":
                return [mine * n if self.target == Partial("avg") else mine / n for mine in held], 0
            case "relabel":
                return held, 0
        raise ValueError(f"no such move: {self.move.kind}")

    def _indices(self, layout: Layout, dim: int, i: int) -> Array:
        return self.devices.indices(layout, dim, self.places[i])

    def _piece(self, j: int, i: int) -> Array:
        """Return what of the block of device j device i is to hold: cut along the dim that the move cuts."""
        dim = _dim(self.target)
        wanted = np.isin(self._indices(self.move.source, dim, j), self._indices(self.move.target, dim, i))
        return np.compress(wanted, self.held[j], axis=dim)

    def _joined(self, pieces: list[Array], i: int) -> Array:
        """Put the pieces that device i holds together along the dim that was cut, its indices in order."""
        dim = _dim(self.source)
        target = self._indices(self.move.target, dim, i)
        held = [self._indices(self.move.source, dim, j) for j in range(len(pieces))]
        order = np.argsort(np.concatenate([indices[np.isin(indices, target)] for indices in held]))
        return np.take(np.concatenate(pieces, axis=dim), order, axis=dim)

    def _term(self, i: int) -> Array:
        """Return one term of a sum: the block of a device among zeros; of equal blocks only the first counts."""
        mine = self.held[i]
        if not isinstance(self.source, Shard):
            return mine if i == 0 else np.zeros_like(mine)
        dim = self.source.dim
        kept = np.isin(self._indices(self.move.target, dim, i), self._indices(self.move.source, dim, i))
        padded = np.zeros((*mine.shape[:dim], len(kept), *mine.shape[dim + 1 :]), mine.dtype)
        padded[(slice(None),) * dim + (kept,)] = mine
        return padded


def _kind(placement: Placement) -> str:
    if isinstance(placement, Partial):
        return placement.kind
    raise ValueError(f"{placement} holds no terms that could be reduced")


def _dim(placement: Placement) -> int:
    if isinstance(placement, Shard):
        return placement.dim
    raise ValueError(f"{placement} cuts no dim")


def agree(one: Array, other: Array) -> bool:
    """Tell whether two devices hold the same; a kernel may round in another way where memory is aligned otherwise."""
    if one is other:
        return True
    if one.shape != other.shape or one.dtype.kind not in "fc":
        return np.array_equal(one, other)
    largest = np.max(np.abs(one), initial=0.0, where=np.isfinite(one))
    return np.allclose(one, other, rtol=0.0, atol=ROUNDING * float(largest), equal_nan=True)


def combine(kind: str, terms: Sequence[Array]) -> Array:
    """Reduce terms of one partial kind."""
    whole = reduce(COMBINE[kind], terms)
    return whole / len(terms) if kind == "avg" else whole


def ring_reduce_scatter(pieces: list[list[Array]], kind: str) -> tuple[list[Array], int]:
    """Reduce over a ring so that device i ends with the reduction of everyone's piece i.

    Parameters
    ----------
    pieces : list
        ``pieces[j][i]`` is what device j has of the piece that device i is to hold; all are of one size.
    kind : str
        A partial kind.

    Returns
    -------
    pieces : list of ndarray
    sent : int
        The elements that each device sent: n - 1 pieces.
    """
    n = len(pieces)
    travelling = [pieces[j][(j - 1) % n] for j in range(n)]
    sent = [0] * n
    for step in range(1, n):
        for j in range(n):
            sent[j] += travelling[j].size
        travelling = [COMBINE[kind](travelling[(j - 1) % n], pieces[j][(j - 1 - step) % n]) for j in range(n)]
    return [mine / n if kind == "avg" else mine for mine in travelling], max(sent)


def ring_all_reduce(held: list[Array], kind: str) -> tuple[Array, int]:
    """Reduce over a ring in chunks of whole elements, then pass the reduced chunks around.

    Returns
    -------
    whole : ndarray
    sent : int
        The elements that each device sent: 2 (n - 1) chunks of ceil(elements / n).
    """
    n, size = len(held), held[0].size
    chunk = -(-size // n)
    padded = [np.concatenate([mine.reshape(-1), np.zeros(n * chunk - size, mine.dtype)]) for mine in held]
    reduced, sent = ring_reduce_scatter([np.split(mine, n) for mine in padded], kind)
    whole = np.concatenate(reduced)[:size].reshape(held[0].shape)
    return whole, sent + (n - 1) * chunk


def _reduced(terms: dict[Coordinate, Array], axis: int, kind: str) -> dict[Coordinate, Array]:
    gathered: dict[Coordinate, list[Array]] = {}
    for coordinate, term in terms.items():
        gathered.setdefault((*coordinate[:axis], 0, *coordinate[axis + 1 :]), []).append(term)
    return {coordinate: combine(kind, found) for coordinate, found in gathered.items()}
