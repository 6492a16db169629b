"""The tables and plots of docs/scale.md, from the rows of scale.csv and peers.csv."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import median
from typing import Any

from benchmarks.results import DATA, IMAGES, ROOT, Row, begin_plots, read_rows, table, write_region

PAGE = ROOT / "docs" / "scale.md"
PLANS, PEERS = DATA / "scale.csv", DATA / "peers.csv"
OURS, WHOLE = "shardproof", "shardproof, whole plan"
INTEGER, RELAXED = "HiGHS", "HiGHS relaxed"
SOLVERS = (OURS, WHOLE, "toulbar2", INTEGER, RELAXED, "CP-SAT", "Z3 Optimize")
STAGES = ("constraints", "feasibility", "network", "bound", "decision", "certificate", "check")
MARKS = "osD^v<P"
GIB = 2**30


def seconds(row: Row) -> float:
    """Return what a run takes on a core of its own: the smaller of what the wall's and the processor's clock say.

    A solver with one thread is so not charged for others on the machine, one with several not for its threads.
    """
    return min(float(row["seconds"]), float(row["cpu"]))


def find(rows: Iterable[Row], **wanted: str) -> list[Row]:
    """Return the rows of runs that did not fail with these values."""
    return [row for row in rows if not row["failed"] and all(row[key] == value for key, value in wanted.items())]


def instances(rows: Iterable[Row]) -> list[tuple[str, str]]:
    """Return each model and mesh once, in order."""
    return list(dict.fromkeys((row["model"], row["mesh"]) for row in rows))


def time_of(rows: Iterable[Row], **wanted: str) -> float | None:
    """Return the median of runs; None where there is none."""
    found = find(rows, **wanted)
    return median(map(seconds, found)) if found else None


def told(time: float) -> str:
    """Return seconds in three digits or so."""
    return f"{time:.3f}" if time < 1 else f"{time:.2f}" if time < 10 else f"{time:.0f}"


def plans(rows: list[Row]) -> str:
    """Return the table of whole plans."""
    lines = []
    for model, mesh in instances(rows):
        found = find(rows, model=model, mesh=mesh)
        if not found:
            failed = next(row["failed"] for row in rows if (row["model"], row["mesh"]) == (model, mesh))
            lines.append([model, mesh, "–", failed, *["–"] * (len(STAGES) + 3)])
            continue
        gap = max(1 - int(row["bound_ps"]) / int(row["cost_ps"]) if row["cost_ps"] else 1.0 for row in found)
        proof = f"gap {gap:.3%}" if gap else "proved"
        proof += "" if all(row["checked"] == "yes" for row in found) else ", NOT CHECKED"
        spent = [f"{median(float(row[stage] or 0) for row in found):.2f}" for stage in STAGES]
        whole, peak = told(median(map(seconds, found))), max(int(row["peak"]) for row in found) / GIB
        start = model, mesh, f"{int(found[0]['ops']):,}", proof
        lines.append([*start, *spent, whole, f"{peak:.2f}", str(len(found))])
    return table(("model", "mesh", "ops", "proof", *STAGES, "in all", "peak GiB", "runs"), lines, 2)


def peers(rows: list[Row]) -> str:
    """Return the table of solvers: seconds to the proof, or how far it came."""
    lines = [
        [model, mesh, *(_cell(rows, model, mesh, solver) for solver in SOLVERS)] for model, mesh in instances(rows)
    ]
    return table(("model", "mesh", *SOLVERS), lines, 2)


def _cell(rows: list[Row], model: str, mesh: str, solver: str) -> str:
    where = {"model": model, "mesh": mesh}
    mine = [row for row in rows if (row["model"], row["mesh"], row["solver"]) == (model, mesh, solver)]
    found = find(mine)
    if not found:
        return f"failed: {mine[0]['failed']}" if mine else ""
    best = min((int(row["cost_ps"]) for row in find(rows, **where) if row["proved"] == "yes"), default=None)
    spent, searched = median(map(seconds, found)), time_of(rows, **where, solver=OURS)
    time = told(spent) + ("" if len(found) > 1 else "¹")
    if all(row["proved"] == "yes" for row in found):
        return time if solver == OURS or searched is None else f"{time} (×{spent / searched:.3g})"
    bound, cost = found[0]["bound_ps"], found[0]["cost_ps"]
    if best is None:
        return f"no proof in {time}"
    below = f"bound −{max(0.0, 1 - int(bound) / best):.2%}" if bound and int(bound) > 0 else "no bound"
    if solver == RELAXED:
        return f"{time}, {below}" if bound else f"none in {time}"
    above = f"plan +{max(0.0, int(cost) / best - 1):.2%}" if cost else "no plan"
    return f"no proof in {time}: {above}, {below}"


def claims(plan_rows: list[Row], peer_rows: list[Row]) -> str:
    """Return the figures that the search is held to, each with what is asked of it."""
    found = [line for line in _claims(plan_rows, peer_rows) if line is not None]
    return table(("what", "asked", "found", "met"), found, 3)


def _claims(plan_rows: list[Row], peer_rows: list[Row]) -> Iterable[list[str] | None]:
    eight, deep = {"model": "llama-8", "mesh": "8x8"}, {"model": "llama-96", "mesh": "8x8"}

    def ratio(where: dict[str, str], over: str, under: str) -> tuple[float, str] | None:
        top, low = find(peer_rows, **where, solver=over), time_of(peer_rows, **where, solver=under)
        if not top or low is None:
            return None
        least = ">" if any(row["proved"] == "no" for row in top) else ""
        return median(map(seconds, top)) / low, least

    yield _line("HiGHS's integer program / our search, llama-8 on 8x8", 30, ratio(eight, INTEGER, OURS), at_least=True)
    yield _line("toulbar2 / our search, llama-96 on 8x8", 1, ratio(deep, "toulbar2", OURS), at_least=True)
    yield _line("toulbar2 / our whole plan, llama-96 on 8x8", 0.25, ratio(deep, "toulbar2", WHOLE), at_least=True)
    quick = time_of(peer_rows, **eight, solver=WHOLE)
    yield _line("seconds of the whole plan, llama-8 on 8x8", 1.5, None if quick is None else (quick, ""))
    for kind in ("llama", "gpt"):
        few, many = (time_of(plan_rows, model=f"{kind}-{layers}", mesh="8x8") for layers in (24, 96))
        yield _line(f"{kind}-96 / {kind}-24, whole plan on 8x8", 4.4, (many / few, "") if few and many else None)
    peak = max((int(row["peak"]) / GIB for row in find(plan_rows)), default=None)
    yield _line("GiB of peak memory, any plan below", 4, None if peak is None else (peak, ""))
    for model, mesh, most in (("llama-32", "2x8x8", 0.0), ("llama-8", "2x4x4x4", 0.5)):
        gaps = [100 * (1 - int(r["bound_ps"]) / int(r["cost_ps"])) for r in find(plan_rows, model=model, mesh=mesh)]
        yield _line(f"percent of gap, {model} on {mesh}", most, (max(gaps), "") if gaps else None)

    of_all = confirmations(plan_rows, peer_rows)
    if of_all:
        share = sum(bool(solvers) for solvers in of_all.values()) / len(of_all)
        yield _line("proved optima below that a peer proves too or was tried on, of all", 1, (share, ""), at_least=True)


def confirmations(plan_rows: list[Row], peer_rows: list[Row]) -> dict[tuple[str, str], dict[str, bool]]:
    """Return which peers ran on each instance with a proved plan, and whether each proves the same cost."""
    found: dict[tuple[str, str], dict[str, bool]] = {}
    for row in find(plan_rows, status="optimal"):
        at = row["model"], row["mesh"]
        theirs = [one for one in peer_rows if (one["model"], one["mesh"]) == at and one["solver"] not in (OURS, WHOLE)]
        found[at] = {one["solver"]: _proves(one, int(row["cost_ps"])) for one in theirs}
    return found


def _proves(row: Row, cost: int) -> bool:
    """Tell whether a run proves this cost; HiGHS counts in floating point."""
    return row["proved"] == "yes" and abs(int(row["cost_ps"]) - cost) <= 2 + cost * 1e-6


def confirmed(plan_rows: list[Row], peer_rows: list[Row]) -> str:
    """Return which proved optima another solver proves too, and on which each that was tried gave up."""
    of_all = confirmations(plan_rows, peer_rows)
    names: dict[str, list[str]] = {}
    for (model, mesh), solvers in of_all.items():
        proving = [solver for solver, proves in solvers.items() if proves]
        gave_up = f"gave up: {', '.join(solvers)}" if solvers else "no other solver was run"
        names.setdefault(f"proved by {', '.join(proving)} too" if proving else gave_up, []).append(f"{model} {mesh}")
    return "\n".join(
        [
            f"Of {len(of_all)} proved optima:",
            "",
            *(f"- {len(group)} {what}: {', '.join(group)}" for what, group in sorted(names.items(), reverse=True)),
        ]
    )


def _line(what: str, asked: float, found: tuple[float, str] | None, *, at_least: bool = False) -> list[str] | None:
    if found is None:
        return None
    value, sign = found
    met = value >= asked if at_least else value <= asked
    return [what, f"{'≥' if at_least else '≤'} {asked:g}", f"{sign}{value:.3g}", "yes" if met else "NO"]


def machines(plan_rows: list[Row], peer_rows: list[Row]) -> str:
    """Return where it was measured, and with what."""
    used = dict.fromkeys(row["machine"] for row in (*plan_rows, *peer_rows))
    names = dict.fromkeys(f"{row['solver']} {row['version']}" for row in peer_rows if row["version"])
    limits = dict.fromkeys(f"{row['limit']} s" for row in peer_rows)
    return (
        f"Machine: {'; '.join(used)}. Solvers: {', '.join(names)}. Limit of each solver: {' or '.join(limits)}. "
        f"`¹`: one run, else the median of {max((int(row['run']) for row in peer_rows), default=1)} at most."
    )


def regions() -> dict[str, Callable[[], str]]:
    """Return what stands in each region of the page."""
    plan_rows, peer_rows = read_rows(PLANS), read_rows(PEERS)
    return {
        "claims by python -m benchmarks.scale --figures": lambda: claims(plan_rows, peer_rows),
        "machine by python -m benchmarks.scale --figures": lambda: machines(plan_rows, peer_rows),
        "peers by python -m benchmarks.peers": lambda: peers(peer_rows),
        "confirmed by python -m benchmarks.peers": lambda: confirmed(plan_rows, peer_rows),
        "plans by python -m benchmarks.scale": lambda: plans(plan_rows),
    }


def write_page() -> None:
    """Write all tables and draw all plots."""
    for name, made in regions().items():
        write_region(PAGE, name, made())
    draw(read_rows(PLANS), read_rows(PEERS))


def draw(plan_rows: list[Row], peer_rows: list[Row]) -> None:
    """Draw both plots into docs/images."""
    begin_plots()
    _peers_plot(peer_rows)
    _layers_plot(plan_rows)


def _layers(rows: Iterable[Row], kind: str, **wanted: str) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = {}
    for row in find(rows, **wanted):
        name, _, layers = row["model"].rpartition("-")
        if name == kind:
            found.setdefault(int(layers), []).append(row)
    return dict(sorted(found.items()))


def _peers_plot(rows: list[Row]) -> None:
    from matplotlib.figure import Figure

    figure = Figure((5.8, 3.6))
    axes = figure.subplots()
    for solver, mark in zip(SOLVERS, MARKS, strict=True):
        runs = _layers(rows, "llama", mesh="8x8", solver=solver)
        times = [median(map(seconds, group)) for group in runs.values()]
        (line,) = axes.plot([*runs], times, linewidth=1, label=solver)
        for layers, time, group in zip(runs, times, runs.values(), strict=True):
            done = all(row["proved"] == "yes" or (solver == RELAXED and row["bound_ps"]) for row in group)
            axes.plot(layers, time, mark, color=line.get_color(), fillstyle="full" if done else "none")
    _finish(axes, "Llama-like training step on 8x8: full marks are proofs, hollow ones gave up")
    _save(figure, "scale_peers.svg")


def _layers_plot(rows: list[Row]) -> None:
    from matplotlib.figure import Figure

    figure = Figure((5.8, 3.6))
    axes = figure.subplots()
    lines = [(kind, mesh) for kind in ("llama", "gpt") for mesh in ("8", "8x8", "2x8x8", "2x4x4x4")]
    for kind, mesh in lines:
        runs = _layers(rows, kind, mesh=mesh)
        if runs:
            times = [median(map(seconds, group)) for group in runs.values()]
            axes.plot([*runs], times, "o-" if kind == "llama" else "s-", label=f"{kind}, {mesh}")
    _finish(axes, "Whole plans of training steps, from the graph to the checked certificate")
    _save(figure, "scale_layers.svg")


def _finish(axes: Any, title: str) -> None:
    if any(len(line.get_xdata()) for line in axes.lines):
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.legend(fontsize=7, frameon=False)
    axes.set_xlabel("layers")
    axes.set_ylabel("seconds")
    axes.set_title(title, fontsize=9)


def _save(figure: object, name: str) -> None:
    figure.savefig(IMAGES / name, bbox_inches="tight", metadata={"Date": None})  # type: ignore[attr-defined]
