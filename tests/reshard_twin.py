"""The naive twins of the reshard tables: moves from the sentences of the design, and what each does to real arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from math import ceil, log2, prod
from typing import Any

import numpy as np

from ops.placement import Layout, Partial, Parts, Placement, Replicate, Shard
from solver.cost.hardware import Link
from solver.cost.reshard import Move
from solver.layout import around, block, canonical, legal, local_shape, placements
from solver.mesh import Mesh

R = Replicate()
Coordinate = tuple[int, ...]
State = dict[Coordinate, np.ndarray]
LOCAL = {"slice", "relabel", "zero_fill", "scale"}


@dataclass(frozen=True)
class Case:
    """One class of tensors."""

    parts: Parts
    mesh: Mesh
    kinds: tuple[str, ...]
    itemsize: int = 4
    local_only: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(map(prod, self.parts))

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.mesh.sizes

    @property
    def coordinates(self) -> list[Coordinate]:
        return self.mesh.coordinates()

    def legal(self, layout: Layout) -> bool:
        return legal(layout, self.shape, self.parts, self.sizes)

    def raw(self) -> list[Layout]:
        choices = [placements(self.parts, self.kinds) if size > 1 else (R,) for size in self.sizes]
        return [layout for layout in product(*choices) if self.legal(layout)]

    def elements(self, layout: Layout) -> int:
        return prod(local_shape(layout, self.shape, self.parts, self.sizes))


# --- the moves, one layout and one placement at a time


def kind_of(old: Placement, new: Placement) -> str | None:
    match old, new:
        case Partial("sum" | "avg"), Partial("sum" | "avg"):
            return "scale"
        case Partial(), Partial():
            return None
        case Partial(), Replicate():
            return "all_reduce"
        case Partial(), Shard():
            return "reduce_scatter"
        case Shard(), Replicate():
            return "all_gather"
        case Shard(), Shard():
            return "all_to_all"
        case Replicate(), Shard():
            return "slice"
        case ((Replicate() | Shard()), Partial("sum")):
            return "zero_fill"
        case Replicate(), Partial():
            return "relabel"
    return None


def changed(layout: Layout, axis: int, placement: Placement) -> Layout:
    return (*layout[:axis], placement, *layout[axis + 1 :])


def innermost(layout: Layout, axis: int) -> bool:
    return not isinstance(layout[axis], Shard) or layout[axis] not in layout[axis + 1 :]


def cuts_evenly(case: Case, layout: Layout, axis: int, new: Placement) -> bool:
    """Whether every device's block falls into equal pieces for the devices of the new cut."""
    n = case.sizes[axis]
    target = changed(layout, axis, new)
    array = np.arange(prod(case.shape)).reshape(case.shape)
    first = [(*at[:axis], 0, *at[axis + 1 :]) for at in case.coordinates]
    for at in {*first}:
        line = [(*at[:axis], i, *at[axis + 1 :]) for i in range(n)]
        held = [set(block(array, layout, case.parts, case.sizes, where).ravel().tolist()) for where in line]
        goal = [set(block(array, target, case.parts, case.sizes, where).ravel().tolist()) for where in line]
        if {len(a & b) for a in held for b in goal} != {len(held[0]) // n}:
            return False
    return True


def leading(case: Case, layout: Layout, label: Placement) -> bool:
    """Whether everything before a cut has local extent 1."""
    assert isinstance(label, Shard)
    local = local_shape(layout, case.shape, case.parts, case.sizes)
    before, _, _ = around(layout, case.parts, case.sizes, (label.dim, label.part))
    return prod(local[: label.dim]) * before <= 1


def priced(case: Case, kind: str, axes: tuple[int, ...], source: Layout, target: Layout) -> tuple[int, int]:
    """Bytes and picoseconds, straight from the table."""
    links = [case.mesh.links[axis] for axis in axes]
    link = Link(min(a.bandwidth for a in links), max(a.latency for a in links), links[0].ring)
    n = case.sizes[axes[0]]
    held, larger = case.elements(source), max(case.elements(source), case.elements(target))
    k = n - 1 if link.ring else ceil(log2(n))
    memory = -(-larger * case.itemsize * 10**12 // case.mesh.hardware.memory_bandwidth)
    if kind in LOCAL:
        return 0, memory if kind in ("zero_fill", "scale") else 0
    chunk = -(-held // n)
    waits, sent = {
        "all_reduce": (2 * k, 2 * (n - 1) * chunk),
        "reduce_scatter": (k, (n - 1) * chunk),
        "all_gather": (k, (n - 1) * held),
        "all_to_all": (n - 1, (n - 1) * chunk),
        "permute": (1, held),
    }[kind]
    sent *= case.itemsize
    copied = False
    if kind in ("reduce_scatter", "all_to_all"):
        copied |= not leading(case, source, target[axes[0]])
    if kind in ("all_gather", "all_to_all"):
        copied |= not leading(case, target, source[axes[0]])
    return sent, waits * link.latency + -(-sent * 10**12 // link.bandwidth) + copied * memory


def single_moves(case: Case, source: Layout) -> Iterator[tuple[str, tuple[int, ...], Layout]]:
    for axis, size in enumerate(case.sizes):
        for new in placements(case.parts, case.kinds) if size > 1 else ():
            target = changed(source, axis, new)
            kind = kind_of(source[axis], new)
            fits = kind and case.legal(target) and innermost(source, axis) and innermost(target, axis)
            if fits and (kind != "all_to_all" or cuts_evenly(case, source, axis, new)):
                yield kind, (axis,), target
    for a in range(len(source)):
        for b in range(a + 1, len(source)):
            pair = source[a], source[b]
            if case.sizes[a] == case.sizes[b] > 1 and pair[0] != pair[1] and any(isinstance(p, Shard) for p in pair):
                target = changed(changed(source, a, pair[1]), b, pair[0])
                between = [c for c in range(a + 1, b) if isinstance(source[c], Shard) and source[c] in pair]
                yield "permute", (a, *between, b), target


def naive_moves(case: Case) -> list[Move]:
    """Every move between raw layouts that put different data on the devices."""
    found = []
    for source in case.raw():
        for kind, axes, target in single_moves(case, source):
            same = canonical(source, case.parts, case.sizes) == canonical(target, case.parts, case.sizes)
            if not same and not (case.local_only and kind not in LOCAL):
                found.append(Move(kind, axes, source, target, *priced(case, kind, axes, source, target)))
    return found


# --- what a layout and a move mean for real arrays


def reduction(kind: str) -> Callable[[np.ndarray], np.ndarray]:
    return {"sum": np.sum, "avg": np.mean, "max": np.max, "min": np.min, "any": np.any, "all": np.all}[kind]


def whole_tensor(case: Case, rng: np.random.Generator) -> np.ndarray:
    if {"any", "all"} & {*case.kinds}:
        return rng.integers(0, 2, case.shape).astype(bool)
    return rng.integers(-50, 50, case.shape).astype(np.float64)


def spread(case: Case, layout: Layout, array: np.ndarray, rng: np.random.Generator) -> State:
    """Put a tensor on the devices; the terms of a partial are as different as they can be."""
    axes = [axis for axis, p in enumerate(layout) if isinstance(p, Partial) and case.sizes[axis] > 1]
    grid = [range(case.sizes[axis]) if axis in axes else range(1) for axis in range(len(layout))]
    places = list(product(*grid))
    terms = split_in_terms(case, layout, array, len(places), rng)
    term = dict(zip(places, terms, strict=True))
    return {
        at: block(
            term[tuple(i if axis in axes else 0 for axis, i in enumerate(at))], layout, case.parts, case.sizes, at
        ).copy()
        for at in case.coordinates
    }


def split_in_terms(
    case: Case, layout: Layout, array: np.ndarray, count: int, rng: np.random.Generator
) -> list[np.ndarray]:
    kinds = {p.kind for axis, p in enumerate(layout) if isinstance(p, Partial) and case.sizes[axis] > 1}
    if not kinds:
        return [array]
    if kinds <= {"sum", "avg"}:
        averaged = prod(n for n, p in zip(case.sizes, layout, strict=True) if p == Partial("avg"))
        terms = [rng.integers(-50, 50, array.shape).astype(array.dtype) for _ in range(count - 1)]
        return [*terms, array * averaged - sum(terms, np.zeros_like(array))]
    (kind,) = kinds
    winner = rng.integers(0, count, array.shape)
    lose: dict[str, Callable[[], Any]] = {
        "max": lambda: array - rng.integers(0, 9, array.shape),
        "min": lambda: array + rng.integers(0, 9, array.shape),
        "any": lambda: array & rng.integers(0, 2, array.shape).astype(bool),
        "all": lambda: array | rng.integers(0, 2, array.shape).astype(bool),
    }
    return [np.where(winner == i, array, lose[kind]()) for i in range(count)]


def holds(case: Case, layout: Layout, state: State, array: np.ndarray) -> bool:
    """Whether the devices hold this tensor in this layout."""
    for at in case.coordinates:
        copy = tuple(0 if p == R else i for i, p in zip(at, layout, strict=True))
        if not np.array_equal(state[at], state[copy]):
            return False
        lines = [range(n) if isinstance(p, Partial) else [i] for n, p, i in zip(case.sizes, layout, at, strict=True)]
        stacked = np.array([state[where] for where in product(*lines)]).reshape(*map(len, lines), *state[at].shape)
        for p in layout:  # reduce axis after axis, the first of those left each time
            stacked = reduction(p.kind)(stacked, axis=0) if isinstance(p, Partial) else stacked[0]
        if not np.array_equal(stacked, block(array, layout, case.parts, case.sizes, at)):
            return False
    return True


def run(case: Case, move: Move, state: State) -> tuple[State, int]:
    """Do one move on every device; also the most elements that a device sends (rings in whole chunks)."""
    if move.kind == "permute":
        sender = {at: move.sender(case.sizes, at) for at in case.coordinates}
        assert sorted(sender.values()) == case.coordinates, "every device sends to exactly one"
        fixed = [axis for axis in range(len(case.sizes)) if axis not in move.axes]
        assert all(at[axis] == where[axis] for at, where in sender.items() for axis in fixed)
        sent = max(state[where].size for at, where in sender.items() if at != where)
        return {at: state[where] for at, where in sender.items()}, sent
    (axis,) = move.axes
    result: State = {}
    sent = 0
    for at in case.coordinates:
        if at[axis] == 0:
            line = [(*at[:axis], i, *at[axis + 1 :]) for i in range(case.sizes[axis])]
            arrays, most = along(case, move, axis, [state[where] for where in line])
            result |= dict(zip(line, arrays, strict=True))
            sent = max(sent, most)
    return result, sent


def along(case: Case, move: Move, axis: int, held: list[np.ndarray]) -> tuple[list[np.ndarray], int]:
    old, new, n = move.source[axis], move.target[axis], len(held)

    def cut(array: np.ndarray) -> list[np.ndarray]:
        split = opened(case, array, move.source, new)
        return [closed(piece, new) for piece in np.split(split, n, axis=new.dim + 1)]

    def joined(pieces: list[np.ndarray]) -> np.ndarray:
        before, middle, after = around(move.target, case.parts, case.sizes, (old.dim, old.part))
        shapes = [(*p.shape[: old.dim], before, middle // n, after, *p.shape[old.dim + 1 :]) for p in pieces]
        split = [p.reshape(shape) for p, shape in zip(pieces, shapes, strict=True)]
        return closed(np.concatenate(split, axis=old.dim + 1), old)

    if move.kind in ("all_reduce", "reduce_scatter"):
        reduced = reduction(old.kind)(np.array(held), axis=0)
        chunk = -(-reduced.size // n)
        if move.kind == "all_reduce":
            return [reduced] * n, 2 * (n - 1) * chunk
        return cut(reduced), (n - 1) * chunk
    if move.kind == "all_gather":
        return [joined(held)] * n, (n - 1) * max(array.size for array in held)
    if move.kind == "all_to_all":
        pieces = [cut(array) for array in held]
        sent = max(sum(p.size for j, p in enumerate(row) if j != i) for i, row in enumerate(pieces))
        return [joined([pieces[i][j] for i in range(n)]) for j in range(n)], sent
    if move.kind == "slice":
        return [cut(array)[i] for i, array in enumerate(held)], 0
    if move.kind == "zero_fill" and isinstance(old, Shard):
        zeros = [np.zeros_like(array) for array in held]
        return [joined([*zeros[:i], array, *zeros[i + 1 :]]) for i, array in enumerate(held)], 0
    if move.kind == "zero_fill":
        return [array if i == 0 else np.zeros_like(array) for i, array in enumerate(held)], 0
    if move.kind == "scale":
        return [array * n if new == Partial("avg") else array / n for array in held], 0
    assert move.kind == "relabel"
    return held, 0


def opened(case: Case, array: np.ndarray, layout: Layout, label: Placement) -> np.ndarray:
    assert isinstance(label, Shard)
    extents = around(layout, case.parts, case.sizes, (label.dim, label.part))
    return array.reshape(*array.shape[: label.dim], *extents, *array.shape[label.dim + 1 :])


def closed(array: np.ndarray, label: Placement) -> np.ndarray:
    assert isinstance(label, Shard)
    dim = label.dim
    return array.reshape(*array.shape[:dim], prod(array.shape[dim : dim + 3]), *array.shape[dim + 3 :])
