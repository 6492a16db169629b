"""Every single move between the layouts of one class of tensors, with its price.

Moves are made on raw layouts, where a cut may be called by any part that names it: where ``dp`` cuts the first part
completely and ``tp`` the second, ``[S(0), S(0,part=1)]`` and ``[S(0), S(0)]`` are the same data, and ``dp`` comes off
the first spelling alone. Equal layouts are joined under their canonical form. Only the innermost mesh axis of a group
is added or taken off, so that every move is one collective with equal blocks, or one local step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import permutations
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ops.placement import Layout, Partial, Parts, Placement, Shard
from solver.cost.collectives import COLLECTIVES, KINDS, LOCAL, Price, slowest, transfer_time
from solver.cost.hardware import Link
from solver.cost.tariff import PLAIN, Tariff
from solver.deadline import keep_time
from solver.layout import Label, canonical, cut_steps, placements, raw_layouts

Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
KIND = {kind: code for code, kind in enumerate(KINDS)}


@dataclass(frozen=True)
class MoveClass:
    """All that the moves of a tensor depend on: tensors of one class share their moves and prices.

    Parameters
    ----------
    itemsize : int
        The bytes of an element.
    parts : tuple of tuple of int
        The parts of each dim, which say the shape.
    sizes : tuple of int
        The sizes of the mesh axes.
    links : tuple of Link
        The link of every mesh axis.
    memory_bandwidth : int
        Bytes per second of one device's memory.
    kinds : tuple of str
        The partial kinds that may appear.
    local_only : bool
        Whether moves that send anything are left out.
    bucket : int or None
        The bytes of a bucket, where collectives are coalesced.
    tariff : Tariff
        What may run, and how its time counts.
    """

    itemsize: int
    parts: Parts
    sizes: tuple[int, ...]
    links: tuple[Link, ...]
    memory_bandwidth: int
    kinds: tuple[str, ...]
    local_only: bool
    bucket: int | None
    tariff: Tariff = PLAIN


@dataclass(frozen=True)
class Geometry:
    """The raw layouts of a class as arrays: row r, mesh axis a -> index of a placement; `named` rows are canonical."""

    placements: tuple[Placement, ...]
    raw: tuple[Layout, ...]
    layouts: tuple[Layout, ...]
    named: tuple[int, ...]
    class_of: Ints
    codes: Ints
    keys: Ints
    radix: Ints

    def find(self, keys: Ints) -> Ints:
        """Give the rows of keys, -1 where the layout is not legal."""
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[at] == keys, at, -1)


@lru_cache(maxsize=512)
def geometry(parts: Parts, sizes: tuple[int, ...], kinds: tuple[str, ...]) -> Geometry:
    """Enumerate the raw layouts of a class of tensors and join equal ones.

    Examples
    --------
    >>> found = geometry(((2, 2),), (2, 2), ())
    >>> len(found.raw), len(found.layouts)
    (8, 7)
    """
    choices = placements(parts, kinds)
    raw = raw_layouts(parts, sizes, kinds)
    names = [_named(layout, parts, sizes) for layout in raw]
    named = tuple(row for row, name in enumerate(names) if raw[row] == name)
    layouts = tuple(raw[row] for row in named)
    index = {layout: i for i, layout in enumerate(layouts)}
    code = {placement: i for i, placement in enumerate(choices)}
    codes = np.array([[code[p] for p in layout] for layout in raw], dtype=np.int64).reshape(len(raw), len(sizes))
    radix = np.array([len(choices) ** i for i in reversed(range(len(sizes)))], dtype=np.int64)
    class_of = np.array([index[name] for name in names], dtype=np.int64)
    return Geometry(choices, raw, layouts, named, class_of, codes, codes @ radix, radix)


def _named(layout: Layout, parts: Parts, sizes: tuple[int, ...]) -> Layout:
    keep_time()
    return canonical(layout, parts, sizes)


@dataclass(frozen=True)
class Moves:
    """Priced moves as parallel arrays: raw rows, kind, mesh axes as bits, bytes sent, picoseconds."""

    source: Ints
    target: Ints
    kind: Ints
    axes: Ints
    bytes: Ints
    time: Ints

    def take(self, rows: Ints) -> Moves:
        """Keep some of the moves, in this order."""
        fields = (self.source, self.target, self.kind, self.axes, self.bytes, self.time)
        return Moves(*(values[rows] for values in fields))


def axes_of(bits: int) -> tuple[int, ...]:
    """Read mesh axes from bits.

    Examples
    --------
    >>> axes_of(0b101)
    (0, 2)
    """
    return tuple(axis for axis in range(bits.bit_length()) if bits >> axis & 1)


def all_moves(tensor: MoveClass) -> Moves:
    """Make and price every move of a class, the best one between any two different layouts.

    Parameters
    ----------
    tensor : MoveClass
        The class of tensors.

    Returns
    -------
    Moves
        In the order of the classes of source, then of target.
    """
    tariff = tensor.tariff
    plain = _unlevied(replace(tensor, tariff=replace(tariff, levy=())))
    moves = _permitted(_levied(plain, tariff) if tariff.levy else plain, tariff)
    return _best(moves, geometry(tensor.parts, tensor.sizes, tensor.kinds).class_of)


@lru_cache(maxsize=128)
def _unlevied(tensor: MoveClass) -> Moves:
    """Make and price every move: a search within a budget of traffic asks for the same ones with many levies."""
    maker = _Maker(tensor)
    made = [maker.on_axis(axis) for axis, size in enumerate(tensor.sizes) if size > 1]
    if not tensor.local_only:
        made += [maker.swaps(a, b) for b in range(len(tensor.sizes)) for a in range(b) if tensor.sizes[a] > 1]
        made += [maker.reorders(dim) for dim, split in enumerate(tensor.parts) if len(split) > 1]
    return Moves(*np.concatenate([np.zeros((6, 0), dtype=np.int64), *made], axis=1))


def _levied(moves: Moves, tariff: Tariff) -> Moves:
    """Add what bytes cost more on mesh axes, equal ones once, in Python's whole numbers."""
    pairs, where = np.unique(np.stack([moves.bytes, moves.axes]), axis=1, return_inverse=True)
    costs = [tariff.levied(sent, axes_of(bits)) for sent, bits in pairs.T.tolist()]
    return replace(moves, time=moves.time + np.array(costs, dtype=np.int64)[where.reshape(-1)])


def _permitted(moves: Moves, tariff: Tariff) -> Moves:
    """Leave out what may not run, before the best of several moves is chosen."""
    if not tariff.forbidden:
        return moves
    pairs, where = np.unique(np.stack([moves.kind, moves.axes]), axis=1, return_inverse=True)
    allowed = [tariff.allows(KINDS[kind], axes_of(bits)) for kind, bits in pairs.T.tolist()]
    return moves.take(np.flatnonzero(np.array(allowed, dtype=bool)[where.reshape(-1)]))


def _best(moves: Moves, class_of: Ints) -> Moves:
    source, target = class_of[moves.source], class_of[moves.target]
    bits, where = np.unique(moves.axes, return_inverse=True)
    order = np.argsort(np.array(sorted(range(len(bits)), key=lambda i: axes_of(int(bits[i]))), dtype=np.int64))
    sends = moves.kind >= len(LOCAL)
    wish = (moves.target, moves.source, moves.kind, order[where], moves.bytes, sends, moves.time, target, source)
    rows = np.lexsort(wish)
    source, target = source[rows], target[rows]
    first = np.ones(len(rows), dtype=bool)
    first[1:] = (source[1:] != source[:-1]) | (target[1:] != target[:-1])
    return moves.take(rows[first & (source != target)])


class _Maker:
    """Makes the moves of one class; every method gives rows source, target, kind, axes, bytes, time."""

    def __init__(self, tensor: MoveClass) -> None:
        self.tensor = tensor
        self.geometry = geometry(tensor.parts, tensor.sizes, tensor.kinds)
        choices = self.geometry.placements
        self.is_shard = np.array([isinstance(p, Shard) for p in choices])
        self.dim = np.array([p.dim if isinstance(p, Shard) else -1 for p in choices], dtype=np.int64)
        # Cuts that lie inside one another; those of an empty dim are all the same.
        self.nests = np.array([isinstance(p, Shard) and 0 not in tensor.parts[p.dim] for p in choices])
        # Elements of a part, and of all dims and parts before it, by the placement that cuts it.
        flat = [(size, p) for size, p in zip([0, *(s for dim in tensor.parts for s in dim)], choices, strict=False)]
        self.ahead = np.array([prod(size for size, _ in flat[1:code]) for code in range(len(choices))], dtype=np.int64)
        self.kinds = np.array([[self._kind(p, q) for q in choices] for p in choices], dtype=np.int64)
        sizes = np.array(tensor.sizes, dtype=np.int64)
        cuts = np.where(self.is_shard[self.geometry.codes], sizes, 1).prod(axis=1)
        self.elements: Ints = prod(map(prod, tensor.parts)) // cuts
        self.sizes = sizes

    def _kind(self, source: Placement, target: Placement) -> int:
        sums = Partial("sum"), Partial("avg")
        if source == target:
            return -1
        if isinstance(source, Partial) and isinstance(target, Partial):
            kind = "scale" if source in sums and target in sums else ""
        elif isinstance(target, Partial):
            kind = "zero_fill" if target == sums[0] else "" if isinstance(source, Shard) else "relabel"
        elif isinstance(source, Partial):
            kind = "reduce_scatter" if isinstance(target, Shard) else "all_reduce"
        elif isinstance(source, Shard):
            kind = "all_to_all" if isinstance(target, Shard) else "all_gather"
        else:
            kind = "slice"
        return KIND[kind] if kind in LOCAL or (kind and not self.tensor.local_only) else -1

    def on_axis(self, axis: int) -> Ints:
        """Give one mesh axis another placement."""
        keep_time()
        codes = self.geometry.codes
        source = np.repeat(np.arange(len(codes)), len(self.kinds))
        new = np.tile(np.arange(len(self.kinds)), len(codes))
        old = codes[source, axis]
        kind = self.kinds[old, new]
        later = codes[source, axis + 1 :]
        inner = ~((later == old[:, None]) & self.nests[old][:, None]).any(axis=1)
        inner &= ~((later == new[:, None]) & self.nests[new][:, None]).any(axis=1)
        target = self.geometry.find(self.geometry.keys[source] + (new - old) * self.geometry.radix[axis])
        fits = (kind >= 0) & inner & (target >= 0)
        source, target, old, new, kind = (values[fits] for values in (source, target, old, new, kind))
        even = (kind != KIND["all_to_all"]) | self._even(axis, codes[source], old, new)
        source, target, old, new, kind = (values[even] for values in (source, target, old, new, kind))
        copies = self.is_shard[new] & (self._ahead(codes[source], new) > 1)
        copies |= self.is_shard[old] & (self._ahead(codes[target], old) > 1)
        link, n = self.tensor.links[axis], self.tensor.sizes[axis]
        larger = np.maximum(self.elements[source], self.elements[target])
        prices = np.zeros((2, len(kind)), dtype=np.int64)
        for code in np.unique(kind):
            keep_time()
            rows = np.flatnonzero(kind == code)
            held = self.elements[source[rows]]
            prices[:, rows] = self._prices(KINDS[code], link, n, held, larger[rows], copies[rows])
        return np.stack([source, target, kind, np.full_like(kind, 1 << axis), *prices])

    def _ahead(self, codes: Ints, label: Ints) -> Ints:
        """Count the local elements of the dims and parts before a label."""
        before = self.is_shard[codes] & (codes < label[:, None])
        cut: Ints = np.where(before, self.sizes, 1).prod(axis=1)
        return self.ahead[label] // cut

    def _even(self, axis: int, codes: Ints, old: Ints, new: Ints) -> Bools:
        """Say where both ends of an all_to_all can be cut at once, so that all its pieces are equal."""
        outer, inner = np.minimum(old, new), np.maximum(old, new)
        others = np.delete(np.arange(codes.shape[1]), axis)
        cut = np.where(codes[:, others] == outer[:, None], self.sizes[others], 1).prod(axis=1) * self.sizes[axis]
        between = self.ahead[inner] // np.maximum(self.ahead[outer], 1)
        even: Bools = (self.dim[old] != self.dim[new]) | (between % cut == 0)
        return even

    def _prices(self, kind: str, link: Link, n: int, elements: Ints, larger: Ints, copies: Bools) -> Ints:
        """Price equal moves once, in Python's whole numbers: 64 bits do not hold the products."""
        wanted, where = np.unique(np.stack([elements, larger, copies]), axis=1, return_inverse=True)
        found = [self._price(kind, link, n, *map(int, column)) for column in wanted.T]
        return np.array(found, dtype=np.int64).reshape(-1, 2).T[:, where]

    def _price(self, kind: str, link: Link, n: int, elements: int, larger: int, copies: int) -> Price:
        itemsize, bandwidth = self.tensor.itemsize, self.tensor.memory_bandwidth
        counted = self.tensor.tariff.counted
        if kind in LOCAL:
            written = kind in ("zero_fill", "scale")
            return Price(0, counted(kind, transfer_time(larger * itemsize, bandwidth) if written else 0))
        sent, time = COLLECTIVES[kind](link, n, elements, itemsize, self.tensor.bucket)
        copied = copies and kind not in ("all_reduce", "permute")
        return Price(sent, counted(kind, time + (transfer_time(larger * itemsize, bandwidth) if copied else 0)))

    def swaps(self, a: int, b: int) -> Ints:
        """Exchange the placements of two mesh axes of equal size: each device sends its block to another device."""
        codes, keys, radix = self.geometry.codes, self.geometry.keys, self.geometry.radix
        first, second = codes[:, a], codes[:, b]
        fits = (first != second) & (self.is_shard[first] | self.is_shard[second])
        source = np.flatnonzero(fits & (self.tensor.sizes[a] == self.tensor.sizes[b]))
        first, second = first[source], second[source]
        target = self.geometry.find(keys[source] + (second - first) * (radix[a] - radix[b]))
        bits = np.full(len(source), 1 << a | 1 << b, dtype=np.int64)
        for c in range(a + 1, b):  # in a group with one of the two, c changes its place in the order of the cut
            with_one = (codes[source, c] == first) | (codes[source, c] == second)
            bits |= (with_one & self.is_shard[codes[source, c]]).astype(np.int64) << c
        return self._permutes(source, target, bits)

    def reorders(self, dim: int) -> Ints:
        """Change the order of the mesh axes that cut a dim, where the devices hold the same blocks as before."""
        shapes = self.geometry
        alike: dict[Hashable, list[int]] = defaultdict(list)
        steps = {row: cut_steps(shapes.raw[row], self.tensor.parts, self.tensor.sizes) for row in shapes.named}
        for row in shapes.named:
            keep_time()
            cut = [step is not None and step[0] == dim for step in steps[row]]
            if sum(cut) > 1:
                rest = tuple(None if cuts else placement for cuts, placement in zip(cut, shapes.raw[row], strict=True))
                alike[rest, _pieces(steps[row], self.tensor.sizes, dim)].append(row)
        pairs = [pair for rows in alike.values() for pair in permutations(rows, 2)]
        source, target = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        changed = [[a for a, b in enumerate(steps[one]) if b != steps[other][a]] for one, other in pairs]
        bits = np.array([sum(1 << axis for axis in axes) for axes in changed], dtype=np.int64)
        return self._permutes(source, target, bits)

    def _permutes(self, source: Ints, target: Ints, bits: Ints) -> Ints:
        prices = np.zeros((2, len(source)), dtype=np.int64)
        for mask in np.unique(bits):
            rows = np.flatnonzero(bits == mask)
            link = slowest([self.tensor.links[axis] for axis in axes_of(int(mask))])
            held = self.elements[source[rows]]
            prices[:, rows] = self._prices("permute", link, 1, held, held, held < 0)
        return np.stack([source, target, np.full_like(source, KIND["permute"]), bits, *prices])


def _pieces(steps: tuple[Label | None, ...], sizes: tuple[int, ...], dim: int) -> tuple[tuple[int, int], ...]:
    """Say into what a dim is cut, whichever mesh axis does it: (step, count) of every run of cuts without a gap."""
    digits = sorted((step[1], sizes[axis]) for axis, step in enumerate(steps) if step is not None and step[0] == dim)
    runs = [digits[0]]
    for step, size in digits[1:]:
        first, count = runs[-1]
        if step == first * count:
            runs[-1] = first, count * size
        else:
            runs.append((step, size))
    return tuple(runs)
