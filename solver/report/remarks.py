"""What is worth a look in a plan: what was refused, what a wish costs, what nothing cuts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ops.placement import Replicate
from solver.report.losses import places
from solver.words import duration

if TYPE_CHECKING:
    from solver.plan import Plan

PLACES = 4
"""Places of a loss that are told."""
MOST = 5
"""Remarks of one kind, unless more are asked for; what is left out is counted."""


def remarks(plan: Plan, most: int = MOST) -> list[str]:
    """Return the remarks on a plan, a line each.

    Parameters
    ----------
    plan : Plan
        With a choice.
    most : int, optional
        Remarks of one kind.

    Returns
    -------
    list of str
    """
    unused = [f"nothing reads {name!r}" for name in plan.problem.graph.unused]
    kinds = (
        list(_losses(plan)),
        [str(refusal) for refusal in plan.problem.refinement.refused],
        plan.problem.graph.notes,
        unused,
        list(_idle_axes(plan)),
        list(_uncut_compute(plan)),
        list(_unread_copies(plan)),
        list(_ungranted(plan)),
    )
    return [line for kind in kinds for line in _told(kind, most)]


def _losses(plan: Plan) -> Iterator[str]:
    """Say where a plan with a gap pays above its bound."""
    told = [
        f"{place.part:.0%} at {place.worst!r}" + (f" and {place.many - 1} like it" if place.many > 1 else "")
        for place in places(plan.losses)[:PLACES]
    ]
    if told:
        yield (
            f"the plan pays {duration(sum(plan.losses.values()))} above the bound that was reached without branching: "
            f"{', '.join(told)}; more time may close the gap, or pins there"
        )


def _told(kind: list[str], most: int) -> Iterator[str]:
    yield from (f"  note: {line}" for line in kind[:most])
    if len(kind) > most:
        yield f"  note: and {len(kind) - most} more like it"


def _idle_axes(plan: Plan) -> Iterator[str]:
    """Name the mesh axes on which everything is replicated."""
    found, graph, mesh = plan.evaluation, plan.problem.graph, plan.problem.mesh
    layouts = [found.made(tensor) for tensor in graph.tensors]
    layouts += [found.needed(use) for uses in plan.problem.uses.values() for use in uses]
    for index, (axis, size) in enumerate(zip(mesh.axes, mesh.sizes, strict=True)):
        if size > 1 and all(layout[index] == Replicate() for layout in layouts):
            divides = any(n % size == 0 for tensor in graph.tensors.values() for n in tensor.shape)
            why = "its devices all do the same" if divides else f"{size} divides no dim of any tensor"
            yield f"{axis}={size} cuts nothing: {why}"


def _uncut_compute(plan: Plan) -> Iterator[str]:
    """Say per mesh axis how much of the compute it does not cut, where it cuts anything."""
    found, mesh = plan.evaluation, plan.problem.mesh
    times = {node: found.compute(node) for node in plan.problem.graph.nodes}
    total = sum(times.values())
    for index, (axis, size) in enumerate(zip(mesh.axes, mesh.sizes, strict=True)):
        whole = {node: time for node, time in times.items() if time and not found.rows(node)[index].cut}
        if size == 1 or not whole or all(not found.rows(node)[index].cut for node in times):
            continue
        dearest = max(whole, key=lambda node: whole[node])
        left = "1 op uncut, which takes" if len(whole) == 1 else f"{len(whole)} ops uncut, which take"
        yield (
            f"{axis}={size} leaves {left} "
            f"{duration(sum(whole.values()))} of the {duration(total)} of compute on every device"
            + (f"; the longest is {dearest!r}, {duration(whole[dearest])}" if len(whole) > 1 else f": {dearest!r}")
        )


def _ungranted(plan: Plan) -> Iterator[str]:
    """Name the capabilities that would give ops more rows, where they are not granted."""
    asked = plan.problem
    missing: dict[str, int] = {}
    for node in asked.graph.nodes:
        needs = {name for row in asked.graph.bind(node).rows for name in row.needs}
        for name in needs - asked.capabilities:
            missing[name] = missing.get(name, 0) + 1
    for name, count in sorted(missing.items()):
        yield (
            f"{count} op{'s' * (count > 1)} may be cut in more ways where the runtime has the capability {name}, "
            "which is not granted"
        )


def _unread_copies(plan: Plan) -> Iterator[str]:
    """Name the pinned results whose copy is made for the pin alone: a use may read what was made."""
    for reshard in plan.reshards:
        if reshard.shared and not reshard.uses:
            target = ", ".join(map(str, reshard.target))
            yield (
                f"{reshard.tensor!r} is copied to [{target}] for its pin alone and no op reads the copy; "
                "to bind what an op reads, pin the use: OP/OPERAND"
            )
