"""The joint rows of an op, enumerated by the checker itself: one row per mesh axis, together (laws 7 and 8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ops.bind import BoundRule
from ops.placement import Partial, Placement
from solver.cost.kernel_steps import COMMUNICATING
from solver.cost.moves import Geometry
from solver.problem import Problem

Ints: TypeAlias = NDArray[Any]
Bools: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Joint:
    """The joint rows of one class of ops.

    Parameters
    ----------
    rows : int array, shape (choices, mesh axes)
        Numbers of rows of the bound rule.
    operands : mapping
        Present operand slot -> the number of its layout in each choice.
    results : tuple of int array
        The same of each result.
    """

    rows: Ints
    operands: Mapping[int, Ints]
    results: tuple[Ints, ...]


def joint(bound: BoundRule, problem: Problem, operands: Mapping[int, Geometry], results: Sequence[Geometry]) -> Joint:
    """Enumerate the rows that go together and give every operand and result a legal layout.

    Parameters
    ----------
    bound : BoundRule
    problem : Problem
    operands : mapping
        Present operand slot -> the layouts of its tensor.
    results : sequence of Geometry
        The same of each result.

    Returns
    -------
    Joint
    """
    rows = joint_rows(bound, problem.mesh.sizes, offered(bound, problem))
    needed = {
        slot: _placed(space, [row.operands[slot] for row in bound.rows], rows) for slot, space in operands.items()
    }
    made = [_placed(space, [row.results[slot] for row in bound.rows], rows) for slot, space in enumerate(results)]
    legal = np.ones(len(rows), np.bool_)
    for column in (*needed.values(), *made):
        legal &= column >= 0
    return Joint(
        rows[legal], {slot: column[legal] for slot, column in needed.items()}, tuple(column[legal] for column in made)
    )


def offered(bound: BoundRule, problem: Problem) -> list[list[int]]:
    """Return the rows that each mesh axis may take: of the kinds of the graph, and silent where nothing may be sent."""
    known = [
        k
        for k, row in enumerate(bound.rows)
        if all(p.kind in problem.kinds for p in row.operands + row.results if isinstance(p, Partial))
    ]
    return [
        [k for k in known if not _silenced(bound, k, axis, problem)] if size > 1 else [0]
        for axis, size in enumerate(problem.mesh.sizes)
    ]


def _silenced(bound: BoundRule, row: int, axis: int, problem: Problem) -> bool:
    """Tell whether the kernel of a row would send what may not be sent on a mesh axis."""
    cut = bound.rows[row].cut
    if cut is None or bound.factors[cut[0]].kind not in COMMUNICATING:
        return False
    factor = bound.factors[cut[0]]
    kind = "all_reduce" if factor.kind == "synced" else str(factor.capability)
    return problem.communication == "none" or (kind, axis) in problem.tariff().forbidden


def joint_rows(bound: BoundRule, sizes: Sequence[int], allowed: Sequence[Sequence[int]]) -> Ints:
    """Enumerate which rows go together, one per mesh axis (laws 7 and 8).

    Parameters
    ----------
    bound : BoundRule
    sizes : sequence of int
        Of the mesh axes.
    allowed : sequence of sequence of int
        The rows that each may take.

    Returns
    -------
    int array, shape (choices, mesh axes)
        Indices into ``bound.rows``.
    """
    carried = np.array([_carried(row.operands + row.results) for row in bound.rows], np.int64)
    pieces = sorted({row.cut for row in bound.rows if row.cut is not None})
    piece = {cut: i for i, cut in enumerate(pieces)}
    cuts = np.array([len(pieces) if row.cut is None else piece[row.cut] for row in bound.rows])
    found = np.zeros((1, 0), np.int64)
    counts = np.ones((1, len(pieces) + 1), np.int64)
    held = np.zeros((1, carried.shape[1]), np.int64)
    for size, own in zip(sizes, allowed, strict=True):
        rows = np.array(own, np.int64)
        head, last = np.repeat(np.arange(len(found)), len(rows)), np.tile(rows, len(found))
        fits = ((held[head] == 0) | (carried[last] == 0) | (held[head] == carried[last])).all(axis=1)
        head, last = head[fits], last[fits]
        cut = counts[head]
        cut[np.arange(len(last)), cuts[last]] *= size
        fits = _divide(cut, pieces, bound)
        head, last, counts = head[fits], last[fits], cut[fits]
        found = np.concatenate([found[head], last[:, None]], axis=1)
        held = np.maximum(held[head], carried[last])
    return found


def _divide(counts: Ints, pieces: Sequence[tuple[str, int]], bound: BoundRule) -> Bools:
    """Tell where each group of mesh axes divides its span: from its part to the next part that is cut.

    Along a halo factor all its mesh axes must divide each tensor.
    """
    good = np.ones(len(counts), np.bool_)
    for factor in {factor for factor, _ in pieces}:
        parts = bound.factors[factor].parts
        span, blocks = np.ones(len(counts), np.int64), np.ones(len(counts), np.int64)
        for part in reversed(range(len(parts))):
            span *= parts[part]
            if (factor, part) in pieces:
                count = counts[:, pieces.index((factor, part))]
                good &= span % count == 0
                span[count > 1] = 1
                blocks *= count
        good &= bound.most_blocks(bound.factors[factor]) % blocks == 0
    return good


def _carried(placements: Sequence[Placement | None]) -> list[int]:
    """Return a number for the partial kind of each slot, 0 for none; sum and avg may stand together."""
    order = ("sum", "max", "min", "any", "all")
    return [order.index("sum" if p.kind == "avg" else p.kind) + 1 if isinstance(p, Partial) else 0 for p in placements]


def _placed(space: Geometry, placements: Sequence[Placement | None], rows: Ints) -> Ints:
    """Return the number of the layout that each joint row gives one tensor, -1 where it is no legal one."""
    code = {placement: i for i, placement in enumerate(space.placements)}
    codes = np.array([code.get(p, -1) if p is not None else -1 for p in placements], np.int64)[rows]
    at = np.where((codes < 0).any(axis=1), -1, space.find((codes * space.radix).sum(axis=1)))
    return np.where(at < 0, -1, space.class_of[at])
