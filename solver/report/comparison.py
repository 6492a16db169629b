"""Planners side by side, as a table and in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich import box
from rich.table import Table

from solver.compare import Compared, went_wrong
from solver.plan import Plan
from solver.report.text import rendered
from solver.words import duration, percent, size


def comparison_text(found: Sequence[Compared]) -> str:
    """Return planners as a table, and the places where the greedy ones take longer.

    Parameters
    ----------
    found : sequence of Compared
        The proved plan first.

    Returns
    -------
    str
    """
    best = found[0].plan
    if best is None:
        return "there is no plan to compare with"
    facts = [figures(one, best) for one in found]
    shown = _table("planner", "time", "ratio", "above bound", "compute", "sent", "memory", "reshards", "found in")
    kinds = sorted({kind for one in facts for kind, sent in one.get("bytes_by_collective", {}).items() if sent})
    sent = _table("sent by", *kinds)
    lines: list[str] = []
    longer: dict[tuple[str, ...], list[str]] = {}
    for one, fact in zip(found, facts, strict=True):
        if one.plan is None:
            shown.add_row(one.name, "stuck", *[""] * 7)
            lines.append(f"  {one.name} is stuck: {one.stuck}")
            continue
        shown.add_row(
            one.name,
            duration(fact["time_ps"]),
            f"{fact['ratio']:.2f}",
            percent(fact["above_bound"]),
            duration(fact["compute_ps"]),
            size(fact["bytes"]),
            size(fact["memory"]),
            str(fact["reshards"]),
            f"{one.seconds:.2f} s",
        )
        sent.add_row(one.name, *(size(fact["bytes_by_collective"].get(kind, 0)) for kind in kinds))
        if one.plan is not best and (wrong := went_wrong(one.plan, best)):
            longer.setdefault(tuple(map(str, wrong)), []).append(one.name)
    for wrong_at, names in longer.items():
        lines.append(f"  {_together(names)} longer by")
        lines += [f"    {line}" for line in wrong_at]
    if not best.problem.pins and (pin := _pin_of_an_input(best)):
        lines.append(f"  greedy planners cut only what a pin cuts, and there is none: pin an input, as --pin {pin!r}")
    bound = f"every plan takes at least {duration(_bound(best))} (proof: {best.proof})"
    return "\n".join([rendered(shown), f"  {bound}", *([rendered(sent)] if kinds else []), *lines])


def _together(names: list[str]) -> str:
    """Return names as the subject of a sentence, and its verb."""
    *others, last = names
    return f"{', '.join(others)} and {last} take" if others else f"{last} takes"


def _pin_of_an_input(best: Plan) -> str:
    """Return a pin that cuts an input on the first mesh axis; nothing where that divides none."""
    graph, mesh = best.problem.graph, best.problem.mesh
    deep = [tensor for tensor in graph.tensors.values() if tensor.role == "input" and tensor.shape]
    fit = (tensor.name for tensor in deep if tensor.shape[0] % mesh.sizes[0] == 0)
    return next((f"{name}:{mesh.axes[0]}=S(0)" for name in fit), "")


def _table(*columns: str) -> Table:
    made = Table(*columns, box=box.SIMPLE_HEAD)
    for column in made.columns[1:]:
        column.justify = "right"
    return made


def figures(one: Compared, best: Plan) -> dict[str, Any]:
    """Return what a plan takes, for tables and programs: picoseconds and bytes per device.

    Parameters
    ----------
    one : Compared
    best : Plan
        What it is held against.

    Returns
    -------
    dict
        ``above_bound`` is the fraction by which it lies above what every plan takes.
    """
    if one.plan is None:
        return {"planner": one.name, "stuck": one.stuck, "seconds": one.seconds}
    evaluation, bound = one.plan.evaluation, _bound(best)
    return {
        "planner": one.name,
        "status": one.plan.status,
        "time_ps": evaluation.total,
        "ratio": evaluation.total / best.evaluation.total if best.evaluation.total else 1.0,
        "bound_ps": bound,
        "above_bound": evaluation.total / bound - 1 if bound else float(evaluation.total > 0),
        "compute_ps": evaluation.computing,
        "bytes": evaluation.sent,
        "bytes_by_collective": dict(evaluation.sent_by_kind),
        "ps_by_collective": time_by_kind(one.plan),
        "memory": one.plan.memory.peak,
        "reshards": len(one.plan.reshards),
        "seconds": one.seconds,
        "went_wrong": [asdict(wrong) for wrong in went_wrong(one.plan, best)],
    }


def time_by_kind(plan: Plan) -> dict[str, int]:
    """Return the picoseconds of each kind of collective, and of the local moves of reshards.

    Parameters
    ----------
    plan : Plan

    Returns
    -------
    dict
    """
    found: Counter[str] = Counter()
    for reshard in plan.reshards:
        for told, move in zip(reshard.collectives, reshard.moves, strict=True):
            found[told.kind] += move.time
    for steps in plan.evaluation.kernels.values():
        for step in steps:
            found[step.kind] += step.time
    return dict(found)


def _bound(best: Plan) -> int:
    return max(best.bound_ps, best.solver_bound_ps)
