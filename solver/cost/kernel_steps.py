"""What a kernel sends itself (docs/semantics.md, section 4): arrays that it reduces, borders that it exchanges."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ops.bind import BoundRule
from ops.halo import Exchange, exchanges
from ops.op import Op
from ops.registry import rule_for
from ops.run import Cut, Device
from solver.cost.collectives import all_reduce, latency_time, slowest, transfer_time
from solver.cost.compute import computed_in, result_dtypes
from solver.cost.tariff import PLAIN, Tariff
from solver.graph import Node
from solver.graph_values import ITEMSIZE
from solver.mesh import Mesh

Cuts: TypeAlias = tuple["tuple[str, int] | None", ...]
"""Per mesh axis the factor, and the part of it, that its row cuts."""
COMMUNICATING = ("halo", "synced")
"""The kinds of factor that a kernel cannot cut by itself."""


@dataclass(frozen=True, slots=True)
class KernelStep:
    """One collective of a kernel.

    Parameters
    ----------
    kind : str
        ``all_reduce``; ``halo_exchange`` or ``shift``, the capability by which the borders are exchanged.
    axes : tuple of int
        The mesh axes.
    tensor : str
        The operand or result that is exchanged; empty for an array that is reduced.
    bytes : int
        Sent per device.
    time : int
        Picoseconds.
    """

    kind: str
    axes: tuple[int, ...]
    tensor: str
    bytes: int
    time: int


def sends(bound: BoundRule, row: int) -> str | None:
    """Return the kind of collective by which a kernel works on a row; None where it sends nothing."""
    cut = bound.rows[row].cut
    factor = None if cut is None else bound.factors[cut[0]]
    if factor is None or factor.kind not in COMMUNICATING:
        return None
    return "all_reduce" if factor.kind == "synced" else str(factor.capability)


def kernel_steps(
    node: Node, bound: BoundRule, cuts: Cuts, dtypes: Mapping[str, str], mesh: Mesh, tariff: Tariff = PLAIN
) -> tuple[KernelStep, ...]:
    """Return what the kernel of an op sends under one row per mesh axis, in order.

    Parameters
    ----------
    node : Node
    bound : BoundRule
        The rule of the node on its shapes.
    cuts : tuple
        What the row of each mesh axis cuts; the rows compose.
    dtypes : mapping
        Operand slot (``x``, ``xs.0``) -> dtype.
    mesh : Mesh
    tariff : Tariff, optional
        How the time counts.
    """
    named: dict[str, list[int]] = {}
    for axis, cut in enumerate(cuts):
        if cut is not None and mesh.sizes[axis] > 1 and bound.factors[cut[0]].kind in COMMUNICATING:
            named.setdefault(cut[0], []).append(axis)
    if not named:
        return ()
    op = rule_for(node.op)
    device = Device(bound, [Cut(*cut, n, 0) for cut, n in zip(cuts, mesh.sizes, strict=True) if cut is not None])
    planned = exchanges(op, bound, node.attrs, device.counts)
    before = _exchanged([one for one in planned if not one.adds], node, bound, device, dtypes, mesh, named)
    after = _exchanged([one for one in planned if one.adds], node, bound, device, dtypes, mesh, named)
    synced = sorted(axis for factor, axes in named.items() if bound.factors[factor].kind == "synced" for axis in axes)
    reduced = _reduced(op, node, device, synced, ITEMSIZE[computed_in(node, bound, dtypes)], mesh)
    return tuple(
        replace(one, time=tariff.counted(one.kind, one.time) + tariff.levied(one.bytes, one.axes))
        for one in (*before, *reduced, *after)
    )


def kernel_times(
    node: Node,
    bound: BoundRule,
    choices: NDArray[np.int64],
    dtypes: Mapping[str, str],
    mesh: Mesh,
    tariff: Tariff = PLAIN,
) -> NDArray[np.int64]:
    """Return the time of what a kernel sends for many joint rows at once.

    Parameters
    ----------
    node : Node
    bound : BoundRule
    choices : ndarray of shape [joint rows, mesh axes]
        Indices into ``bound.rows``.
    dtypes : mapping
    mesh : Mesh
    tariff : Tariff, optional
        How the time counts.

    Returns
    -------
    ndarray of shape [joint rows]
    """
    cuts = list(dict.fromkeys(row.cut for row in bound.rows))
    if not any(cut is not None and bound.factors[cut[0]].kind in COMMUNICATING for cut in cuts):
        return np.zeros(len(choices), np.int64)
    of_row = np.array([cuts.index(row.cut) for row in bound.rows], np.int64)
    distinct, where = np.unique(of_row[choices], axis=0, return_inverse=True)
    times = [
        sum(step.time for step in kernel_steps(node, bound, tuple(cuts[i] for i in each), dtypes, mesh, tariff))
        for each in distinct.tolist()
    ]
    return np.array(times, np.int64)[where.reshape(-1)]


def _reduced(
    op: Op, node: Node, device: Device, axes: Sequence[int], itemsize: int, mesh: Mesh
) -> Iterator[KernelStep]:
    """Yield an all_reduce for each array that the kernel hands over and each mesh axis that cuts a synced factor."""
    if op.reduces is None or not axes:
        return
    for shape in op.reduces({**device.operands, **device.results}, op.full_attrs(node.attrs)):
        for axis in axes:
            price = all_reduce(mesh.links[axis], mesh.sizes[axis], math.prod(shape), itemsize)
            yield KernelStep("all_reduce", (axis,), "", price.bytes, price.time)


def _exchanged(
    planned: Sequence[Exchange],
    node: Node,
    bound: BoundRule,
    device: Device,
    dtypes: Mapping[str, str],
    mesh: Mesh,
    named: Mapping[str, Sequence[int]],
) -> Iterator[KernelStep]:
    """Yield each exchange; the device that sends most is where every dim is longest."""
    made = result_dtypes(node, bound, dtypes) if any(one.adds for one in planned) else ()
    shapes: dict[int, list[int]] = {}
    for one in planned:
        slot = (bound.results if one.adds else bound.operands)[one.slot]
        assert slot is not None  # only what is there is exchanged
        shape = shapes.setdefault(one.slot, list(device.shape(slot)))
        if one.adds:
            shape[one.dim] = _longest(one)
    for one in planned:
        slot = (bound.results if one.adds else bound.operands)[one.slot]
        assert slot is not None
        shape = shapes[one.slot]
        others = math.prod(size for dim, size in enumerate(shape) if dim != one.dim)
        shape[one.dim] = one.size // len(one.ranges) if one.adds else _longest(one)
        itemsize = ITEMSIZE[made[one.slot] if one.adds else dtypes[slot.name]]
        axes = tuple(named[one.factor])
        sent = max(one.sent()) * others * itemsize
        link = slowest([mesh.links[axis] for axis in axes])
        time = latency_time(link, len(one.distances()), sent, None) + transfer_time(sent, link.bandwidth)
        yield KernelStep(str(bound.factors[one.factor].capability), axes, slot.name, sent, time)


def _longest(exchange: Exchange) -> int:
    return max(end - first for first, end in exchange.ranges)
