"""The time of one op on one device: it computes at the peak, or it waits for its memory, whichever takes longer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from ops.bind import BoundRule, Row
from ops.op import promote
from ops.placement import Shard
from ops.registry import rule_for
from solver.cost.collectives import LONGEST, PriceError
from solver.graph import Node
from solver.graph_values import ITEMSIZE
from solver.mesh import Mesh

PICOSECONDS = 10**12
MOST_COUNTED = 2**62
"""Fewer bytes than these, and fewer elements, are counted in 64 bits."""


def refuse_beyond_counting(node: Node, bound: BoundRule, dtypes: Mapping[str, str], mesh: Mesh) -> None:
    """Refuse an op whose price, uncut on one device, cannot be counted.

    Parameters
    ----------
    node : Node
    bound : BoundRule
    dtypes : mapping
        Operand slot -> dtype.
    mesh : Mesh

    Raises
    ------
    PriceError
        Where it takes more than 18 minutes.
    """
    moved = sum(_slot_bytes(node, bound, dtypes))
    view = rule_for(node.op).view
    time = 0 if view else max(_computing(node, bound, dtypes, mesh)(1), _moving(mesh)(moved))
    if time > LONGEST or moved >= MOST_COUNTED:
        told = "reads and writes" if view else "takes over 18 minutes on one device: it reads and writes"
        raise PriceError(f"op {node.name!r} ({node.op}) {told} {moved} bytes: check the shapes and the hardware")


def compute_time(node: Node, bound: BoundRule, rows: Sequence[Row], dtypes: Mapping[str, str], mesh: Mesh) -> int:
    """Return the time of an op under one row per mesh axis.

    The operations of the whole op are shared by the devices of the mesh axes whose rows cut a factor; every device
    reads its operands and writes its results as the rows place them. A view takes no time.

    Parameters
    ----------
    node : Node
    bound : BoundRule
        The rule of the node on its shapes.
    rows : sequence of Row
        One per mesh axis; they compose.
    dtypes : mapping
        Operand slot (``x``, ``xs.0``) -> dtype.
    mesh : Mesh

    Returns
    -------
    int
        Picoseconds, rounded up.
    """
    if rule_for(node.op).view:
        return 0
    cuts = math.prod(size for row, size in zip(rows, mesh.sizes, strict=True) if row.cut is not None)
    moved = 0
    for slot, whole in enumerate(_slot_bytes(node, bound, dtypes)):
        placed = [(row.operands + row.results)[slot] for row in rows]
        moved += whole // math.prod(size for p, size in zip(placed, mesh.sizes, strict=True) if isinstance(p, Shard))
    return max(_computing(node, bound, dtypes, mesh)(cuts), _moving(mesh)(moved))


def compute_times(
    node: Node, bound: BoundRule, choices: NDArray[np.int64], dtypes: Mapping[str, str], mesh: Mesh
) -> NDArray[np.int64]:
    """Return `compute_time` for many joint rows at once.

    Parameters
    ----------
    node : Node
    bound : BoundRule
    choices : ndarray of shape [joint rows, mesh axes]
        Indices into ``bound.rows``.
    dtypes : mapping
        Operand slot -> dtype.
    mesh : Mesh

    Returns
    -------
    ndarray of shape [joint rows]
    """
    if rule_for(node.op).view:
        return np.zeros(len(choices), np.int64)
    sizes = np.array(mesh.sizes, np.int64)
    cutting = np.array([row.cut is not None for row in bound.rows])
    moved = np.zeros(len(choices), np.int64)
    for slot, whole in enumerate(_slot_bytes(node, bound, dtypes)):
        sharded = np.array([isinstance((row.operands + row.results)[slot], Shard) for row in bound.rows])
        moved += whole // np.where(sharded[choices], sizes, 1).prod(axis=1)
    cuts = np.where(cutting[choices], sizes, 1).prod(axis=1)
    return np.maximum(_each(_computing(node, bound, dtypes, mesh), cuts), _each(_moving(mesh), moved))


def _each(time: Callable[[int], int], values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Apply an exact integer function: the products inside it exceed 64 bits, and few values are distinct."""
    distinct, where = np.unique(values, return_inverse=True)
    return np.array([time(int(value)) for value in distinct], np.int64)[where.reshape(-1)]


def _computing(node: Node, bound: BoundRule, dtypes: Mapping[str, str], mesh: Mesh) -> Callable[[int], int]:
    """Return the time to compute as a function of the number of devices that share the work."""
    work = rule_for(node.op).flops(bound, node.attrs) * PICOSECONDS
    peak = mesh.hardware.flops(computed_in(node, bound, dtypes))
    return lambda cuts: -(-work // (peak * cuts))


def _moving(mesh: Mesh) -> Callable[[int], int]:
    """Return the time to read and write as a function of local bytes."""
    return lambda moved: -(-moved * PICOSECONDS // mesh.hardware.memory_bandwidth)


def computed_in(node: Node, bound: BoundRule, dtypes: Mapping[str, str]) -> str:
    """Return the dtype whose peak counts: what floating operands meet in, else that of the first operand or result."""
    given = [dtypes[slot.name] for slot in bound.operands if slot is not None]
    floating = [dtype for dtype in given if dtype.startswith(("float", "bfloat"))]
    if floating:
        return promote(floating)
    return given[0] if given else result_dtypes(node, bound, dtypes)[0]


def _slot_bytes(node: Node, bound: BoundRule, dtypes: Mapping[str, str]) -> Iterator[int]:
    """Yield the bytes of each whole operand and result, 0 for an absent operand."""
    known = [None if slot is None else dtypes[slot.name] for slot in bound.operands]
    for slot, dtype in zip(
        (*bound.operands, *bound.results), (*known, *result_dtypes(node, bound, dtypes)), strict=True
    ):
        yield 0 if slot is None or dtype is None else math.prod(slot.shape) * ITEMSIZE[dtype]


def result_dtypes(node: Node, bound: BoundRule, dtypes: Mapping[str, str]) -> tuple[str, ...]:
    """Return the dtypes of the results of an op."""
    slots = (None if slot is None else dtypes[slot.name] for slot in bound.operands)
    by_operand = {
        spec.name: list(islice(slots, len(names))) if isinstance(names, tuple) else next(slots)
        for spec, names in zip(rule_for(node.op).operands, node.operands, strict=True)
    }
    return rule_for(node.op).infer_dtypes(by_operand, node.attrs, len(bound.results))
