"""Borders that devices exchange: what a block of a cut dim reads beyond itself, who holds it, and what is sent.

An op says in `Op.reach` which indices of an operand make a block of its results. Going forward, each device gets those
indices (a gather); the grad of the operand is made at those indices, and what lies beyond the block is added up where
it belongs (a scatter, the transpose of the gather). The kernel knows nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ops.bind import BoundRule, BoundTensor
from ops.op import Op, Range

Array: TypeAlias = np.ndarray[Any, Any]


class Piece(NamedTuple):
    """Indices that one block of a dim holds: the block, and from where to where within it."""

    block: int
    first: int
    end: int

    @property
    def length(self) -> int:
        """The number of indices."""
        return self.end - self.first


class Exchange(NamedTuple):
    """What the blocks of one dim of one tensor pass to each other.

    Parameters
    ----------
    slot : int
        Of the operand that is read, or of the result that is made.
    dim : int
    factor : str
        The factor that cuts the dim.
    size : int
        Of the whole dim; the blocks are equal.
    ranges : tuple
        Per block the indices that its device works on, counted round the ring where they go beyond the ends.
    adds : bool
        The device has made them, and they are added up where they belong; else it reads them.

    Examples
    --------
    >>> borders = Exchange(0, 0, "s0", 6, ((0, 4), (2, 6)), False)
    >>> [array.tolist() for array in borders.run([np.array([0, 1, 2]), np.array([3, 4, 5])])]
    [[0, 1, 2, 3], [2, 3, 4, 5]]
    >>> borders.sent(), borders.distances()
    ([1, 1], {1})
    """

    slot: int
    dim: int
    factor: str
    size: int
    ranges: tuple[Range, ...]
    adds: bool

    def pieces(self, block: int) -> Iterator[Piece]:
        """Yield the indices that the device of a block works on, in order, by the block that holds them."""
        length = self.size // len(self.ranges)
        at, end = self.ranges[block]
        while at < end:
            holder, first = divmod(at % self.size, length)
            count = min(end - at, length - first)
            yield Piece(holder, first, first + count)
            at += count

    def sent(self) -> list[int]:
        """Return the indices that the device of each block sends."""
        found = [0] * len(self.ranges)
        for block in range(len(self.ranges)):
            for piece in self.pieces(block):
                if piece.block != block:
                    found[block if self.adds else piece.block] += piece.length
        return found

    def distances(self) -> set[int]:
        """Return how far something goes, in blocks round the ring: a step each."""
        count = len(self.ranges)
        return {
            (block - piece.block) % count
            for block in range(count)
            for piece in self.pieces(block)
            if piece.block != block
        }

    def elements(self, held: Sequence[Array]) -> list[int]:
        """Return the elements that the device of each block sends, as the arrays are."""
        found = [0] * len(held)
        for block, own in enumerate(held):
            for piece in self.pieces(block):
                array = own if self.adds else held[piece.block]
                if piece.block != block:
                    found[block if self.adds else piece.block] += _along(array, self.dim, 0, piece.length).size
        return found

    def run(self, held: Sequence[Array]) -> list[Array]:
        """Return what the device of each block has afterwards."""
        if self.adds:
            return self._scatter(held)
        made = []
        for block, own in enumerate(held):
            parts = [_along(held[piece.block], self.dim, piece.first, piece.end) for piece in self.pieces(block)]
            made.append(np.concatenate(parts, self.dim) if parts else _along(own, self.dim, 0, 0))
        return made

    def _scatter(self, held: Sequence[Array]) -> list[Array]:
        length = self.size // len(self.ranges)
        made = [np.zeros((*own.shape[: self.dim], length, *own.shape[self.dim + 1 :]), own.dtype) for own in held]
        for block, own in enumerate(held):
            at = 0
            for piece in self.pieces(block):
                under = _along(made[piece.block], self.dim, piece.first, piece.end)
                under += _along(own, self.dim, at, at + piece.length)
                at += piece.length
        return made


def _along(array: Array, dim: int, first: int, end: int) -> Array:
    return array[(slice(None),) * dim + (slice(first, end),)]


def exchanges(op: Op, bound: BoundRule, attrs: Mapping[str, Any], counts: Mapping[str, int]) -> tuple[Exchange, ...]:
    """Return what the devices exchange for an op, in order: before its kernel what is read, after it what is made.

    Parameters
    ----------
    op : Op
    bound : BoundRule
        The whole op.
    attrs : mapping
        The attributes of the whole op.
    counts : mapping
        Factor -> in how many blocks it is cut.

    Returns
    -------
    tuple of Exchange
        An array that is exchanged along several dims goes through them in the order of the factors, so that corners
        come along; what is made goes back in the opposite order.
    """
    read: list[Exchange] = []
    made: list[Exchange] = []
    for factor, count in counts.items():
        if count == 1 or bound.factors[factor].kind != "halo":
            continue
        reached = [reach(op, bound, attrs, factor, block, count) for block in range(count)]
        for name in reached[0]:
            ranges = tuple(found[name] for found in reached)
            read += [
                Exchange(slot, dim, factor, size, ranges, False)
                for slot, dim, size in _holding(bound.operands, name, factor)
            ]
            if op.forward is not None:
                made += [
                    Exchange(slot, dim, factor, size, ranges, True)
                    for slot, dim, size in _holding(bound.results, f"{name}_grad", factor)
                ]
    made.reverse()
    return (*sorted(read, key=lambda one: one.slot), *sorted(made, key=lambda one: one.slot))


def _holding(slots: Sequence[BoundTensor | None], name: str, factor: str) -> Iterator[tuple[int, int, int]]:
    """Yield where the tensor of a name holds a factor: its slot, the dim and its size."""
    for number, slot in enumerate(slots):
        if slot is not None and slot.name == name and (dim := slot.dim_of(factor)) is not None:
            yield number, dim, slot.shape[dim]


def reach(
    op: Op, bound: BoundRule, attrs: Mapping[str, Any], factor: str, block: int, count: int
) -> Mapping[str, Range]:
    """Return which indices of the forward operands one block of a halo factor works on; what is not told is a block.

    Parameters
    ----------
    op : Op
        For a grad op its forward op is asked.
    bound : BoundRule
    attrs : mapping
    factor : str
    block, count : int
    """
    forward, whole = op.forward or op, bound.forward or bound
    if forward.reach is None:
        return {}
    shapes = {slot.name: slot.shape for slot in (*whole.operands, *whole.results) if slot is not None}
    full = {name: value for name, value in op.full_attrs(attrs).items() if name != "forward_shapes"}
    return forward.reach(shapes, full, factor, block, count)
