"""The plots of benchmarks/greedy.py and the README's table, from the rows of its CSV."""

from __future__ import annotations

import re
from collections.abc import Iterable

from benchmarks.results import IMAGES, ROOT, Row, begin_plots
from solver.words import percent

README = ROOT / "README.md"
REGION = re.compile(r"(<!-- made by python -m benchmarks\.greedy -->\n).*?(<!-- end -->)", re.DOTALL)
MESH = "8x8"
PLANNERS = ("paddle", "paddle-fixpoint", "shardy", "dtensor")
RECIPES = ("data_parallel", "fsdp", "megatron", "megatron_sp", "expert_parallel")
KINDS = ("compute", "all_gather", "all_reduce", "reduce_scatter", "all_to_all", "permute", "local")
COLORS = ("#cfd8dc", "#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b")


def find(rows: Iterable[Row], model: str, pins: str, planner: str = "shardproof", mesh: str = MESH) -> Row | None:
    """Return one row; None where it was not measured or there is no plan."""
    wanted = {"model": model, "mesh": mesh, "pins": pins, "planner": planner}
    found = (row for row in rows if all(row[key] == value for key, value in wanted.items()))
    return next((row for row in found if row["time_ps"]), None)


def models(rows: Iterable[Row], mesh: str = MESH, pins: str = "batch") -> list[str]:
    """Return the models that were measured on a mesh with some pins, in order, no model by size but one."""
    measured = dict.fromkeys(row["model"] for row in rows if row["mesh"] == mesh and row["pins"] == pins)
    by_size = [model for model in measured if re.fullmatch(r"gpt-\d+", model)]
    shown = "gpt-4" if "gpt-4" in by_size else by_size[0] if by_size else ""
    return [model for model in measured if model not in by_size or model == shown]


def ratio(row: Row | None, best: Row | None) -> str:
    """Return how many times as long a plan takes as the optimum, or a dash.

    Where the optimum is known by a plan and a bound only, between what and what: a bound from below over the plan, and
    the plan over the bound. The plan of a recipe has a bound of its own, a greedy plan takes what it takes.
    """
    if row is None or best is None:
        return "–"
    least = int(row["bound_ps" if row["planner"] == "shardproof" else "time_ps"])
    low, high = max(1.0, least / int(best["time_ps"])), int(row["time_ps"]) / max(1, int(best["bound_ps"]))
    return f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f}–{high:.2f}"


def best_greedy(rows: Iterable[Row], model: str) -> str:
    """Return the best that any greedy planner makes of any pins, over the optimum without pins."""
    rows = list(rows)
    made = [row for row in rows if (row["model"], row["mesh"]) == (model, MESH) and row["time_ps"]]
    made = [row for row in made if row["planner"] in PLANNERS]
    free = find(rows, model, "none")
    if not made or free is None:
        return "–"
    least = min(made, key=lambda row: int(row["time_ps"]))
    return f"{ratio(least, free)} ({least['planner']}, {least['pins'].replace('_', ' ')})"


def table(rows: list[Row]) -> str:
    """Return the README's table."""
    recipes = [name.replace("_", " ") for name in RECIPES]
    names = ("model", "ops", "proved optimum", "gap", *PLANNERS, *recipes, "greedy at best")
    lines = [f"| {' | '.join(names)} |", f"|---|{'---:|' * (len(names) - 1)}"]
    for model in models(rows):
        best, free = find(rows, model, "batch"), find(rows, model, "none")
        if best is None:
            continue
        gap = 1 - int(best["bound_ps"]) / int(best["time_ps"])
        cells = [model, best["ops"], f"{int(best['time_ps']) / 1e9:.3f} ms", percent(gap)]
        cells += [ratio(find(rows, model, "batch", planner), best) for planner in PLANNERS]
        cells += [ratio(find(rows, model, name), free) for name in RECIPES]
        cells.append(best_greedy(rows, model))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def write_table(rows: list[Row]) -> None:
    """Write the table into its region of the README."""
    text = README.read_text(encoding="utf-8")
    README.write_text(REGION.sub(lambda found: f"{found[1]}{table(rows)}\n{found[2]}", text), encoding="utf-8")


def written_table() -> str:
    """Return what stands in the region of the README."""
    found = REGION.search(README.read_text(encoding="utf-8"))
    return "" if found is None else found[0].removeprefix(found[1]).removesuffix(f"\n{found[2]}")


def draw(rows: list[Row]) -> None:
    """Draw all plots into docs/images."""
    begin_plots()
    _ratios(rows)
    _stacks(rows)
    _seconds(rows)


def _save(figure: object, name: str) -> None:
    figure.savefig(IMAGES / name, bbox_inches="tight", metadata={"Date": None})  # type: ignore[attr-defined]


def _ratios(rows: list[Row]) -> None:
    from matplotlib.figure import Figure

    shown = models(rows)
    figure = Figure((1.3 + 1.0 * len(shown), 3.2))
    axes = figure.subplots()
    groups = [(planner, "batch", planner) for planner in PLANNERS]
    groups += [(f"{name.replace('_', ' ')} (recipe)", name, "shardproof") for name in RECIPES]
    width = 0.85 / len(groups)
    for index, (label, pins, planner) in enumerate(groups):
        heights = []
        for model in shown:
            row, best = find(rows, model, pins, planner), find(rows, model, "batch" if pins == "batch" else "none")
            heights.append(int(row["time_ps"]) / int(best["time_ps"]) if row and best else 0.0)
        places = [at + (index - len(groups) / 2 + 0.5) * width for at in range(len(shown))]
        axes.bar(places, heights, width, label=label, hatch="" if pins == "batch" else "///", edgecolor="white")
    axes.axhline(1, color="black", linewidth=1)
    axes.set_yscale("log", base=2)
    axes.set_yticks([1, 2, 4, 8, 16], ["1", "2", "4", "8", "16"])
    axes.set_ylim(bottom=0.9)
    axes.set_xticks(range(len(shown)), shown)
    axes.set_ylabel("time / proved optimum")
    axes.set_title(f"Greedy propagation and recipes against the proved optimum, mesh {MESH}, h100")
    axes.legend(ncols=3, fontsize=7, loc="upper left", bbox_to_anchor=(0, -0.1), frameon=False)
    _save(figure, "greedy_ratio.svg")


def _stacks(rows: list[Row]) -> None:
    from matplotlib.figure import Figure

    shown, planners = models(rows), ("shardproof", *PLANNERS)
    across = min(4, max(1, len(shown)))
    down = -(-len(shown) // across) if shown else 1
    figure = Figure((3.0 * across, 2.4 * down))
    grid = figure.subplots(down, across, squeeze=False)
    for cell in grid.flat[len(shown) :]:
        cell.set_axis_off()
    for model, cell in zip(shown, grid.flat, strict=False):
        found = [find(rows, model, "batch", planner) for planner in planners]
        low = [0.0] * len(planners)
        for kind, color in zip(KINDS, COLORS, strict=True):
            spent = [int(row[f"{kind}_ps"]) / 1e9 if row else 0.0 for row in found]
            cell.bar(range(len(planners)), spent, 0.7, bottom=low, label=kind, color=color)
            low = [a + b for a, b in zip(low, spent, strict=True)]
        cell.set_title(model)
        cell.set_xticks(range(len(planners)), planners, rotation=30, ha="right", fontsize=7)
        cell.set_ylabel("ms")
    handles, labels = grid.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, ncols=len(KINDS), fontsize=8, loc="upper center", frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.25 / (2.4 * down)))
    _save(figure, "greedy_collectives.svg")


def _seconds(rows: list[Row]) -> None:
    from matplotlib.figure import Figure

    figure = Figure((5.5, 3.2))
    axes = figure.subplots()
    for planner, mark in zip(("shardproof", *PLANNERS), "os^vD", strict=True):
        found = [row for row in rows if row["planner"] == planner and row["time_ps"] and row["mesh"] == MESH]
        found = [row for row in found if row["pins"] == "batch"]
        axes.scatter(
            [int(r["ops"]) for r in found], [float(r["seconds"]) for r in found], 18, marker=mark, label=planner
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("ops")
    axes.set_ylabel("seconds of planning")
    axes.set_title(f"Planning with proof and without, mesh {MESH}, batch pinned")
    axes.legend(fontsize=8, frameon=False)
    _save(figure, "greedy_seconds.svg")
