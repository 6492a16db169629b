"""Simulated devices of the truth harness: cutting a tensor into local arrays and putting local results together."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from math import prod
from typing import Any

import numpy as np

from ops import Partial, Parts, Placement, Replicate, Shard

Array = np.ndarray[Any, Any]
Coordinate = tuple[int, ...]


def split(
    array: Array, layout: Sequence[Placement], sizes: Sequence[int], rng: np.random.Generator
) -> dict[Coordinate, Array]:
    """Return the term of each device, whole, coordinates of axes that are not partial being 0."""
    terms: dict[Coordinate, Array] = {(): array}
    for placement, size in zip(layout, sizes, strict=True):
        if isinstance(placement, Partial):
            terms = {
                (*c, i): term
                for c, whole in terms.items()
                for i, term in enumerate(term_list(whole, placement.kind, size, rng))
            }
        else:
            terms = {(*c, 0): term for c, term in terms.items()}
    return terms


def term_list(whole: Array, kind: str, size: int, rng: np.random.Generator) -> list[Array]:
    """Split a tensor in terms of a kind so that nothing is right by luck: no two terms are alike."""
    if whole.dtype == np.bool_:
        return _logical_terms(whole, kind, size, rng)
    integer = np.issubdtype(whole.dtype, np.integer)
    if kind in ("sum", "avg"):
        shape = (size - 1, *whole.shape)
        drawn = rng.integers(-3, 4, shape) if integer else rng.normal(size=shape)
        drawn = drawn.astype(whole.dtype)
        last = (size * whole if kind == "avg" else whole) - drawn.sum(0, dtype=whole.dtype)
        return [*drawn, last]
    if kind not in ("max", "min"):
        raise ValueError(f"P({kind}) of a tensor of dtype {whole.dtype}")
    away = rng.integers(1, 4, (size, *whole.shape)) if integer else rng.uniform(0.1, 2.0, (size, *whole.shape))
    held = _holders(whole.shape, size, rng)
    moved = whole + away.astype(whole.dtype) * (-1 if kind == "max" else 1)
    if not integer:  # A maximum that is inf or NaN may come from one term alone.
        bound = -np.inf if kind == "max" else np.inf
        moved = np.where(np.isfinite(whole) | (whole == bound), moved, away)
    return list(np.where(held, whole, moved).astype(whole.dtype))


def _logical_terms(whole: Array, kind: str, size: int, rng: np.random.Generator) -> list[Array]:
    held = _holders(whole.shape, size, rng)
    if kind in ("any", "max"):
        return list(held & whole)
    if kind in ("all", "min"):
        return list(~held | whole)
    raise ValueError(f"P({kind}) of a logical tensor")


def _holders(shape: tuple[int, ...], size: int, rng: np.random.Generator) -> Array:
    """Choose for each element the ranks that hold its value: one at least, others by a coin."""
    one = rng.integers(0, size, shape)
    held = rng.random((size, *shape)) < 0.2
    return np.asarray(held | (np.arange(size).reshape(-1, *[1] * len(shape)) == one))


@cache
def indices(
    dim: int, layout: tuple[Placement, ...], parts: tuple[int, ...], sizes: tuple[int, ...], at: Coordinate
) -> Array:
    """Return the indices of one tensor dim that a device holds."""
    groups: dict[int, list[int]] = {}
    for axis, placement in enumerate(layout):
        if isinstance(placement, Shard) and placement.dim == dim:
            groups.setdefault(placement.part, []).append(axis)
    held = np.arange(prod(parts))
    keep = np.ones(len(held), bool)
    for part, axes in groups.items():
        step = prod(parts[part:])
        for axis in axes:
            step, left = divmod(step, sizes[axis])
            if left:
                raise ValueError(f"{layout} does not divide parts {parts} on {sizes}")
            keep &= held // step % sizes[axis] == at[axis]
    return held[keep]


def _coordinates(sizes: Sequence[int]) -> Iterator[Coordinate]:
    return itertools.product(*map(range, sizes))


def _term_of(at: Coordinate, layout: Sequence[Placement]) -> Coordinate:
    return tuple(c if isinstance(p, Partial) else 0 for c, p in zip(at, layout, strict=True))


def blocks(
    terms: Mapping[Coordinate, Array], layout: tuple[Placement, ...], parts: Parts, sizes: tuple[int, ...]
) -> dict[Coordinate, Array]:
    """Return what each device holds: its term, cut by the S axes."""
    held: dict[Coordinate, Array] = {}
    cut = sorted({p.dim for p in layout if isinstance(p, Shard)})
    for at in _coordinates(sizes):
        term = terms[_term_of(at, layout)]
        for dim in cut:
            term = term.take(indices(dim, layout, parts[dim], sizes, at), axis=dim)
        held[at] = term
    return held


def assemble(
    local: Mapping[Coordinate, Array], layout: tuple[Placement, ...], parts: Parts, sizes: tuple[int, ...], whole: Array
) -> Array | str:
    """Put local results together as their layout says; a sentence where they do not fit it."""
    sharded = [isinstance(p, Shard) for p in layout]
    full: dict[Coordinate, Array] = {}
    for at in _coordinates(sizes):
        index = [indices(d, layout, parts[d], sizes, at) for d in range(whole.ndim)]
        if local[at].shape != tuple(map(len, index)):
            return f"has local shape {local[at].shape}, not {tuple(map(len, index))}, at {at}"
        key = tuple(0 if s else c for s, c in zip(sharded, at, strict=True))
        full.setdefault(key, np.zeros(whole.shape, local[at].dtype))[np.ix_(*index)] = local[at]
    for axis in reversed(range(len(sizes))):
        gathered: dict[Coordinate, list[Array]] = {}
        for key, array in full.items():
            gathered.setdefault(key[:axis], []).append(array)
        full = {}
        for key, arrays in gathered.items():
            if isinstance(layout[axis], Replicate) and any(agree(a, arrays[0]) for a in arrays[1:]):
                return f"differs between the devices of mesh axis {axis}"
            joined = _reduce(arrays, layout[axis])
            if joined is None:
                return f"is no {layout[axis]}: its dtype is {arrays[0].dtype}"
            full[key] = joined
    return full[()]


def _reduce(arrays: Sequence[Array], placement: Placement) -> Array | None:
    if not isinstance(placement, Partial):
        return arrays[0]
    stack = np.stack(arrays)
    logical = stack.dtype == np.bool_
    match placement.kind:
        case "sum" if not logical:
            return np.asarray(stack.sum(0, dtype=stack.dtype))
        case "avg" if not logical:
            return _mean(stack)
        case "max" | "any" if logical == (placement.kind == "any"):
            return np.asarray(stack.max(0))
        case "min" | "all" if logical == (placement.kind == "all"):
            return np.asarray(stack.min(0))
    return None


def _mean(stack: Array) -> Array | None:
    """The mean of the terms; integers must come out whole."""
    if np.issubdtype(stack.dtype, np.floating):
        return np.asarray(stack.mean(0))
    mean, left = np.divmod(stack.sum(0, dtype=stack.dtype), stack.dtype.type(len(stack)))
    return None if left.any() else np.asarray(mean)


def agree(got: Array | str, whole: Array) -> str | None:
    """Return how a result differs from the whole run, or None: integers exactly, floats to 1e-9 of the largest."""
    if isinstance(got, str):
        return got
    if got.shape != whole.shape or got.dtype != whole.dtype:
        return f"is {got.dtype}{got.shape}, the whole run gives {whole.dtype}{whole.shape}"
    if not np.issubdtype(whole.dtype, np.floating):
        same = got == whole
    else:
        finite = np.abs(whole[np.isfinite(whole)])
        scale = max(1.0, float(finite.max(initial=0.0)))
        with np.errstate(invalid="ignore"):
            same = np.abs(got - whole) <= 1e-9 * scale
        if not same.all():
            same |= (got == whole) | (np.isnan(got) & np.isnan(whole))
    return None if same.all() else f"differs from the whole run in {same.size - np.count_nonzero(same)} elements"
