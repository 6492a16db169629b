"""Every move on simulated devices: numpy arrays in, numpy arrays out, and the bytes that each device sends."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ops.placement import Layout, Partial, Parts, Replicate, Shard
from solver.cost.reshard import Move
from solver.layout import block

Array: TypeAlias = NDArray[Any]
Coordinate: TypeAlias = tuple[int, ...]
_R = Replicate()

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
        """Return which indices of a dim a device holds, in the order in which it holds them."""
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
        """Put the blocks of all devices together; None where devices that should agree do not."""
        kinds = {axis: p.kind for axis, p in enumerate(layout) if isinstance(p, Partial)}
        terms: dict[Coordinate, Array] = {}
        for coordinate, mine in zip(self.coordinates, blocks, strict=True):
            key = tuple(c if p != _R else 0 for c, p in zip(coordinate, layout, strict=True))
            if (
                key in terms
                and terms[key] is not mine
                and not np.array_equal(terms[key], mine, equal_nan=_floats(mine))
            ):
                return None
            terms[key] = mine
        for axis, kind in kinds.items():
            terms = _reduced(terms, axis, kind, self.sizes[axis])
        whole = np.zeros(self.shape, blocks[0].dtype)
        for coordinate, mine in terms.items():
            whole[np.ix_(*(self.indices(layout, dim, coordinate) for dim in range(len(self.shape))))] = mine
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
            senders = [self.rank_of[move.sender(self.sizes, c)] for c in self.coordinates]
            sent = max(
                0 if sender == rank else blocks[sender].size * self.itemsize for rank, sender in enumerate(senders)
            )
            return [
                self._ordered(blocks[s], move, self.coordinates[s], c)
                for s, c in zip(senders, self.coordinates, strict=True)
            ], sent
        (axis,) = move.axes
        moved: list[Array] = [blocks[0]] * len(blocks)
        most = 0
        for coordinate in self.coordinates:
            if coordinate[axis] == 0:
                ranks = self.group(axis, coordinate)
                made, sent = self._along(axis, [blocks[r] for r in ranks], [self.coordinates[r] for r in ranks], move)
                most = max(most, sent)
                for rank, array in zip(ranks, made, strict=True):
                    moved[rank] = array
        return moved, most

    # ------------------------------------------------------------------------------------------------ one mesh axis

    def _along(self, axis: int, held: list[Array], places: list[Coordinate], move: Move) -> tuple[list[Array], int]:
        n = len(held)
        source, target = move.source[axis], move.target[axis]
        match move.kind:
            case "all_reduce":
                whole, sent = ring_all_reduce(held, source.kind)  # type: ignore[union-attr]
                return [whole] * n, sent * self.itemsize
            case "reduce_scatter":
                pieces = [[self._part(held[j], move, places[j], place) for place in places] for j in range(n)]
                made, sent = ring_reduce_scatter(pieces, source.kind)  # type: ignore[union-attr]
                return [
                    self._ordered(mine, move, place, place) for mine, place in zip(made, places, strict=True)
                ], sent * self.itemsize
            case "all_gather":
                return [self._joined(held, move, axis, places, places[0])] * n, (n - 1) * held[0].size * self.itemsize
            case "all_to_all":
                pieces = [[self._part(held[j], move, places[j], place) for place in places] for j in range(n)]
                sent = max(sum(piece.size for i, piece in enumerate(row) if i != j) for j, row in enumerate(pieces))
                columns = ([row[i] for row in pieces] for i in range(n))
                made = [
                    self._joined(column, move, axis, places, place)
                    for column, place in zip(columns, places, strict=True)
                ]
                return made, sent * self.itemsize
            case "slice":
                return [self._ordered(held[i], move, place, place) for i, place in enumerate(places)], 0
            case "zero_fill":
                return [self._padded(held[i], move, place, i) for i, place in enumerate(places)], 0
            case "scale":
                return [mine * n if target == Partial("avg") else mine / n for mine in held], 0
            case "relabel":
                return list(held), 0
        raise ValueError(f"no such move: {move.kind}")

    def _changed(self, move: Move) -> list[int]:
        pairs = [pair for pair in zip(move.source, move.target, strict=True) if pair[0] != pair[1]]
        return sorted({p.dim for pair in pairs for p in pair if isinstance(p, Shard)})

    def _part(self, array: Array, move: Move, mine: Coordinate, theirs: Coordinate) -> Array:
        """Return what of a device's block another one is to hold, in the order in which it lies here."""
        for dim in self._changed(move):
            wanted = np.isin(self.indices(move.source, dim, mine), self.indices(move.target, dim, theirs))
            array = np.compress(wanted, array, axis=dim)
        return array

    def _ordered(self, array: Array, move: Move, theirs: Coordinate, mine: Coordinate) -> Array:
        """Return what a device is to hold of another one's block (or of its own), in its own order."""
        for dim in self._changed(move):
            have, want = self.indices(move.source, dim, theirs), self.indices(move.target, dim, mine)
            if array.shape[dim] != len(have):  # a part that `_part` took: only the wanted indices, in their old order
                have = have[np.isin(have, want)]
            array = np.take(array, positions(have, want), axis=dim)
        return array

    def _joined(self, pieces: list[Array], move: Move, axis: int, places: list[Coordinate], mine: Coordinate) -> Array:
        """Put the pieces of a group together along the dim that was cut, in the order in which a device is to hold them."""
        source = move.source[axis]
        assert isinstance(source, Shard)
        dim = source.dim
        want = self.indices(move.target, dim, mine)
        have = [self.indices(move.source, dim, place) for place in places]
        joined = np.take(
            np.concatenate(pieces, axis=dim),
            positions(np.concatenate([index[np.isin(index, want)] for index in have]), want),
            axis=dim,
        )
        for other in self._changed(move):
            if other != dim:
                here = self.indices(move.source, other, mine)
                target = self.indices(move.target, other, mine)
                joined = np.take(joined, positions(here[np.isin(here, target)], target), axis=other)
        return joined

    def _padded(self, array: Array, move: Move, mine: Coordinate, i: int) -> Array:
        """Return one term of a sum: the block of a device among zeros; of equal blocks only the first counts."""
        dims = self._changed(move)
        if not dims:
            return array if i == 0 else np.zeros_like(array)
        (dim,) = dims
        have, want = self.indices(move.source, dim, mine), self.indices(move.target, dim, mine)
        padded = np.zeros((*array.shape[:dim], len(want), *array.shape[dim + 1 :]), array.dtype)
        padded[(slice(None),) * dim + (positions(want, have),)] = array
        return padded


def positions(have: Array, want: Array) -> Array:
    """Return where in one list of distinct indices those of another one stand."""
    order = np.argsort(have, kind="stable")
    return order[np.searchsorted(have, want, sorter=order)]


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
    n = len(held)
    chunk = math.ceil(held[0].size / n)
    padded = [
        np.resize(np.append(mine.reshape(-1), np.zeros(n * chunk - mine.size, mine.dtype)), n * chunk) for mine in held
    ]
    reduced, sent = ring_reduce_scatter([np.split(mine, n) for mine in padded], kind)
    whole = np.concatenate(reduced)[: held[0].size].reshape(held[0].shape)
    return whole, sent + (n - 1) * chunk


def _reduced(terms: dict[Coordinate, Array], axis: int, kind: str, size: int) -> dict[Coordinate, Array]:
    gathered: dict[Coordinate, list[Array]] = {}
    for coordinate, term in terms.items():
        gathered.setdefault((*coordinate[:axis], 0, *coordinate[axis + 1 :]), []).append(term)
    return {coordinate: combine(kind, found) for coordinate, found in gathered.items()}


def _floats(array: Array) -> bool:
    return array.dtype.kind == "f"
