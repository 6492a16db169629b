"""A frontier of time against memory as a table, as values, as CSV and as a plot."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from solver.frontier import Frontier, Point
from solver.problem import ProblemError
from solver.report.text import rendered
from solver.words import duration, percent, size

FIELDS = ("budget", "status", "peak", "time_ps", "bound_ps", "gap")


def frontier_text(found: Frontier) -> str:
    """Return a frontier as a table."""
    shown = Table("budget", "peak", "time", "bound", "gap", "slower", box=box.SIMPLE_HEAD)
    for column in shown.columns:
        column.justify = "right"
    first = figures(found.points[0])
    for point in found.points:
        facts = figures(point)
        budget = "none" if point.budget is None else size(point.budget)
        if facts["time_ps"] is None:
            shown.add_row(budget, facts["status"], "", "", "", "")
            continue
        slower = facts["time_ps"] / max(1, first["time_ps"]) - 1
        shown.add_row(
            budget,
            size(facts["peak"]),
            duration(facts["time_ps"]),
            duration(facts["bound_ps"]),
            percent(facts["gap"]),
            f"{slower:.1%}" if point.budget is not None else "",
        )
    told = [rendered(shown)]
    if found.least is not None:
        told.append(f"  every plan fills at least {size(found.least)} of each device")
    elif len(found.points) == 1:
        told.append("  nothing smaller was found: the quickest plan is the smallest, or there was no time")
    return "\n".join(told)


def figures(point: Point) -> dict[str, Any]:
    """Return a point as plain values: bytes per device and picoseconds."""
    plan = point.plan
    return {
        "budget": point.budget,
        "status": plan.status,
        "peak": None if plan.choice is None else plan.memory.peak,
        "time_ps": plan.cost_ps,
        "bound_ps": plan.bound_ps,
        "gap": plan.gap,
    }


def frontier_json(found: Frontier) -> dict[str, Any]:
    """Return a frontier as plain JSON values."""
    return {"least": found.least, "points": [figures(point) for point in found.points]}


def frontier_csv(found: Frontier) -> str:
    """Return a frontier as CSV, a line a point."""
    text = io.StringIO()
    writer = csv.DictWriter(text, FIELDS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(figures(point) for point in found.points)
    return text.getvalue()


def plot(found: Frontier, path: Path) -> None:
    """Draw a frontier: each plan, and below it what every plan within its budget takes at least.

    Raises
    ------
    ProblemError
        Where matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ProblemError("a plot needs matplotlib: pip install 'shardproof[report]'") from error

    known = [facts for point in found.points if (facts := figures(point))["time_ps"] is not None]
    peaks = [facts["peak"] / 1e9 for facts in known]
    drawn = Figure(figsize=(7, 4.5), layout="constrained")
    axes = drawn.add_subplot()
    axes.plot(peaks, [facts["time_ps"] / 1e9 for facts in known], "o-", label="plan")
    axes.plot(
        [(facts["budget"] or facts["peak"]) / 1e9 for facts in known],
        [facts["bound_ps"] / 1e9 for facts in known],
        "_",
        markersize=12,
        label="bound",
    )
    if found.least is not None:
        axes.axvline(found.least / 1e9, linestyle=":", color="gray", label="least memory, proved")
    axes.set_xlabel("peak memory per device, GB")
    axes.set_ylabel("time of a step, ms")
    axes.set_title(found.points[0].plan.problem.graph.name)
    axes.legend()
    drawn.savefig(path)
