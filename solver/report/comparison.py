"""Planners side by side, as a table and in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.table import Table

from solver.compare import Compared, went_wrong
from solver.plan import Plan
from solver.report.text import rendered
from solver.words import duration, size


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
    shown = Table("planner", "time", "ratio", "compute", "sent", "memory", "reshards", "found in", box=box.SIMPLE_HEAD)
    for column in shown.columns[1:]:
        column.justify = "right"
    lines = []
    for one in found:
        if one.plan is None:
            shown.add_row(one.name, "stuck", *[""] * 6)
            lines.append(f"  {one.name} is stuck: {one.stuck}")
            continue
        facts = figures(one, best)
        shown.add_row(
            one.name,
            duration(facts["time_ps"]),
            f"{facts['ratio']:.2f}",
            duration(facts["compute_ps"]),
            size(facts["bytes"]),
            size(facts["memory"]),
            str(facts["reshards"]),
            f"{one.seconds:.2f} s",
        )
        if one.plan is not best and (wrong := went_wrong(one.plan, best)):
            lines.append(f"  {one.name} takes longer by")
            lines += [f"    {line}" for line in wrong]
    bound = f"every plan takes at least {duration(max(best.bound_ps, best.solver_bound_ps))} (proof: {best.proof})"
    return "\n".join([rendered(shown), f"  {bound}", *lines])


def figures(one: Compared, best: Plan) -> dict[str, Any]:
    """Return what a plan takes, for tables and programs: picoseconds and bytes per device."""
    if one.plan is None:
        return {"planner": one.name, "stuck": one.stuck}
    evaluation = one.plan.evaluation
    return {
        "planner": one.name,
        "time_ps": evaluation.total,
        "ratio": evaluation.total / best.evaluation.total if best.evaluation.total else 1.0,
        "compute_ps": sum(evaluation.compute(node) for node in one.plan.problem.graph.nodes),
        "bytes": evaluation.sent,
        "bytes_by_collective": dict(evaluation.sent_by_kind),
        "memory": one.plan.memory.peak,
        "reshards": len(one.plan.reshards),
        "seconds": one.seconds,
    }
