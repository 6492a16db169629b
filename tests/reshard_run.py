"""What a layout and a move mean for real arrays: the moves of the reshard tables, done on every device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np

from ops.placement import Layout, Partial, Parts, Placement, Replicate, Shard
from solver.cost.reshard import Move
from solver.layout import block, canonical, groups
from solver.mesh import Mesh

R = Replicate()
Coordinate = tuple[int, ...]
State = dict[Coordinate, np.ndarray]


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

    def name(self, layout: Layout) -> Layout:
        return canonical(layout, self.parts, self.sizes)


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
        if not np.allclose(stacked, block(array, layout, case.parts, case.sizes, at), rtol=0, atol=1e-9):
            return False
    return True


def run(case: Case, move: Move, state: State) -> tuple[State, int]:
    """Do one move on every device, by its two layouts; also the most elements that a device sends (rings in chunks)."""
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


def around(layout: Layout, parts: Parts, sizes: Coordinate, label: tuple[int, int]) -> tuple[int, int, int]:
    """Split a local dim at one of its cuts: the extents before it, of it, and after it."""
    dim, part = label
    cuts = {other: prod(sizes[a] for a in axes) for (d, other), axes in groups(layout, sizes).items() if d == dim}
    end = min((other for other in cuts if other > part), default=len(parts[dim]))
    before = prod(parts[dim][:part]) // prod(cut for other, cut in cuts.items() if other < part)
    middle = prod(parts[dim][part:end]) // cuts.get(part, 1)
    after = prod(parts[dim][end:]) // prod(cut for other, cut in cuts.items() if other > part)
    return before, middle, after


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
