"""Greedy propagation and recipes beside the proved optimum: real models, meshes and pins, one cost model for all.

    python -m benchmarks.greedy              what benchmarks/data/greedy.csv lacks; then plots and the README's table
    python -m benchmarks.greedy --quick      a small part of it
    python -m benchmarks.greedy --again      everything anew
    python -m benchmarks.greedy --figures    plots and table only, from the CSV
    python -m benchmarks.greedy gpt2 8x8     some of it
    python -m benchmarks.greedy --workers 1  one case at a time, not as many as there are processors

Every case is told and kept when it is done, so that a run that was interrupted goes on where it ended: also one of
`--again`, without that option. Each case is a model, a mesh and pins, and has a process and a time limit of its own.
The optimum under the pins of a recipe is the best that the recipe can do. Pins: `batch` cuts the inputs on the first
mesh axis; `first` adds one weight, the first that Megatron would cut, on the last; the others are recipes
(`solver.recipes`).
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import captures, onnx_models
from benchmarks.greedy_figures import draw, write_table
from benchmarks.models import convolutions, experts, gpt_training
from ops.placement import Replicate, Shard
from solver import Graph, Mesh, load, plan
from solver.compare import GREEDY, compare
from solver.importers.aten import lower
from solver.importers.capture import read_capture
from solver.pairs import find_pairs
from solver.problem import ProblemError, problem
from solver.recipes import RECIPES, Pins, recipe
from solver.report.comparison import figures
from solver.training import training_step
from solver.words import percent

CSV = Path(__file__).parent / "data" / "greedy.csv"
MESHES = {
    "8": {"dp": 8},
    "2x4": {"dp": 2, "tp": 4},
    "8x8": {"dp": 8, "tp": 8},
    "2x8x8": {"pod": 2, "dp": 8, "tp": 8},
}
KINDS = ("all_gather", "all_reduce", "reduce_scatter", "all_to_all", "permute")
COLUMNS = (
    *("model", "ops", "mesh", "pins", "planner", "status", "time_ps", "bound_ps", "compute_ps"),
    *(f"{kind}_ps" for kind in KINDS),
    *("local_ps", "bytes", "memory", "reshards", "seconds", "note"),
)
SEARCH, LIMIT = 60.0, 240.0
"""Seconds that a search gets, and that a case gets in all."""


class Case(NamedTuple):
    """A model on a mesh with pins."""

    model: str
    mesh: str
    pins: str


BUILT: dict[str, Callable[[], Graph]] = {
    **{
        f"gpt-{layers}": lambda layers=layers: gpt_training(layers, hidden=1024, heads=16, batch=32, sequence=1024)  # type: ignore[misc]
        for layers in (1, 2, 4, 8, 16, 32)
    },
    "experts": lambda: training_step(experts(4), "loss", "adamw"),
    "convolutions": lambda: training_step(convolutions(2), "loss", "momentum"),
}
CAPTURED = ("gpt2", "bert", "vit", "t5", "llama7b", "mixtral_grouped", "convnext", "hf_resnet50")
NETWORKS = ("resnet50", "densenet121", "shufflenet", "vgg19", "ocr_rec")
EVERY = ("none", "batch", "first", *RECIPES)


def cases() -> list[Case]:
    """Return every case of the full benchmark."""
    found = []
    for model in CAPTURED:
        found += [
            Case(model, "8x8", pins) for pins in EVERY if model != "llama7b" or pins not in ("first", "data_parallel")
        ]
        found += [Case(model, "2x4", pins) for pins in ("none", "batch")]
        found += [Case(model, mesh, "batch") for mesh in ("8", "2x8x8")]
    for model in ("gpt-4", "experts", "convolutions"):
        found += [Case(model, "8x8", pins) for pins in EVERY]
        found += [Case(model, mesh, "batch") for mesh in ("8", "2x4", "2x8x8")]
    found += [Case(model, "2x4", pins) for model in NETWORKS for pins in ("none", "batch")]
    found += [Case(f"gpt-{layers}", "8x8", "batch") for layers in (1, 2, 8, 16, 32)]
    return found


def quick_cases() -> list[Case]:
    """Return a small part of it, with every kind of model and of pins."""
    quick = {("gpt2", "8x8", pins) for pins in ("none", "batch", "fsdp", "megatron")}
    quick |= {("experts", "8x8", pins) for pins in ("none", "batch", "expert_parallel")}
    quick |= {("gpt-1", "8x8", "batch"), ("hf_resnet50", "8x8", "batch"), ("resnet50", "2x4", "batch")}
    return [case for case in cases() if case in quick]


def graph_of(model: str) -> Graph:
    """Build or read a model."""
    if model in BUILT:
        return BUILT[model]()
    if model in CAPTURED:
        return lower(read_capture(captures.DATA / f"{model}.json.gz"))
    known = onnx_models.MODELS[model]
    file = known.find()
    if file is None:
        raise ProblemError(f"the package {known.package} is not installed")
    return load(file, known.dims, known.input_shapes)


def pins_of(name: str, graph: Graph, mesh: Mesh) -> Pins:
    """Return the pins of a case."""
    if name in RECIPES:
        return recipe(name, graph, mesh)
    if name == "none":
        return {}
    axes = list(mesh.axes)
    pins: Pins = {name: {**placed} for name, placed in captures.batch_pins(graph, mesh).items()}
    if name == "first":
        weights = find_pairs(problem(graph, mesh), mesh.sizes[-1]).weights
        cut = [weight for weight, placement in weights.items() if isinstance(placement, Shard)]
        if not cut:
            raise ProblemError("Megatron would cut no weight")
        pins[cut[0]] = {axis: Replicate() for axis in axes} | {axes[-1]: weights[cut[0]]}
    return pins


def measure(case: Case, search: float = SEARCH) -> list[dict[str, Any]]:
    """Plan a case, greedily too; return a row for each planner."""
    begin = {"model": case.model, "mesh": case.mesh, "pins": case.pins}
    try:
        graph, mesh = graph_of(case.model), Mesh(MESHES[case.mesh], hardware="h100")
        begin["ops"] = str(len(graph.nodes))
        pins = pins_of(case.pins, graph, mesh)
    except ProblemError as error:
        return [{**begin, "planner": "shardproof", "status": "does not fit", "note": str(error)}]
    best = plan(graph, mesh, pins=pins, timeout=search)
    if best.choice is None:
        return [{**begin, "planner": "shardproof", "status": best.status, "note": "no plan"}]
    return [{**begin, **_row(figures(one, best))} for one in compare(best)]


def _row(found: dict[str, Any]) -> dict[str, Any]:
    row = {"planner": found["planner"], "seconds": f"{found['seconds']:.2f}"}
    if "stuck" in found:
        return {**row, "status": "stuck", "note": found["stuck"]}
    spent = found["ps_by_collective"]
    row |= {key: found[key] for key in ("status", "time_ps", "bound_ps", "compute_ps", "bytes", "memory", "reshards")}
    row |= {f"{kind}_ps": spent.get(kind, 0) for kind in KINDS}
    row["local_ps"] = sum(time for kind, time in spent.items() if kind not in KINDS)
    row["note"] = "; ".join(f"{one['text']}: {one['more']} ps" for one in found["went_wrong"][:1])
    return row


def in_a_process(case: Case) -> list[dict[str, Any]]:
    """Measure a case in a process of its own; what ends badly or too late is a row that says so."""
    failed = {**case._asdict(), "planner": "shardproof"}
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "benchmarks.greedy", "--case", *case], capture_output=True, text=True, timeout=LIMIT
        )
    except subprocess.TimeoutExpired:
        return [{**failed, "status": "out of time", "note": f"no answer after {LIMIT:g} s"}]
    if ran.returncode:
        last = (ran.stderr.strip().splitlines() or [""])[-1]
        return [{**failed, "status": "failed", "note": f"exit code {ran.returncode}: {last}"}]
    rows: list[dict[str, Any]] = json.loads(ran.stdout)
    return rows


def read_rows() -> list[dict[str, str]]:
    """Return the rows of the CSV; none where there is no file."""
    if not CSV.exists():
        return []
    with CSV.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write_rows(rows: Iterable[dict[str, Any]]) -> None:
    """Write the CSV, in the order of the cases and of the planners."""
    order = {case: index for index, case in enumerate(cases())}
    planners = {name: index for index, name in enumerate(["shardproof", *GREEDY])}

    def place(row: dict[str, Any]) -> tuple[int, int]:
        return order[Case(row["model"], row["mesh"], row["pins"])], planners[row["planner"]]

    with CSV.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(rows, key=place))


def run(todo: list[Case], rows: list[dict[str, Any]], workers: int) -> Iterator[list[dict[str, Any]]]:
    """Measure cases, some at a time, and tell of each; yield all rows after each, those of earlier runs among them."""
    begin = time.monotonic()
    pool = ThreadPoolExecutor(workers)
    try:
        for count, done in enumerate(as_completed([pool.submit(in_a_process, case) for case in todo]), 1):
            new = done.result()
            print(f"{count}/{len(todo)}, {time.monotonic() - begin:.0f} s: {told(new)}", file=sys.stderr, flush=True)
            rows = [row for row in rows if case_of(row) != case_of(new[0])] + new
            yield rows
    finally:
        pool.shutdown(cancel_futures=True)


def case_of(row: dict[str, Any]) -> Case:
    """Return the case of a row."""
    return Case(row["model"], row["mesh"], row["pins"])


def told(rows: list[dict[str, Any]]) -> str:
    """Return a line on a case: its optimum, and what each greedy planner makes of it."""
    best, *others = rows
    name = " ".join(case_of(best))
    if not best.get("time_ps"):
        return f"{name}: {best['status']}, {best['note']}"
    gap = 1 - int(best["bound_ps"]) / int(best["time_ps"])
    ratios = [
        f"{row['planner']} {int(row['time_ps']) / int(best['time_ps']):.2f}"
        if row.get("time_ps")
        else f"{row['planner']} stuck"
        for row in others
    ]
    found = f"{int(best['time_ps']) / 1e9:.3f} ms, gap {percent(gap)}, in {best['seconds']} s"
    return f"{name}: {found}; {', '.join(ratios)}"


def main(arguments: list[str]) -> int:
    """Measure what was asked for, draw, and write the README's table; return 1 where anything is wrong."""
    asked = _options(arguments)
    if asked.case:
        print(json.dumps(measure(Case(*asked.case))))
        return 0
    kept = read_rows()
    known = {case_of(row) for row in kept if row["status"] not in ("failed", "out of time")}
    todo = [case for case in (quick_cases() if asked.quick else cases()) if all(name in case for name in asked.names)]
    todo = [] if asked.figures else [case for case in todo if asked.again or case not in known]
    kept = [row for row in kept if case_of(row) not in todo]
    for rows in run(todo, kept, asked.workers):
        write_rows(rows)
    rows = read_rows()
    draw(rows)
    write_table(rows)
    wrong = list(broken(rows))
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.greedy", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="models, meshes and pins: only cases with all of them")
    parser.add_argument("--quick", action="store_true", help="a small part")
    parser.add_argument("--again", action="store_true", help="what was measured before, too")
    parser.add_argument("--figures", action="store_true", help="plots and table only")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="cases at a time")
    parser.add_argument("--case", nargs=3, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.workers < 1:
        parser.error(f"--workers {asked.workers}: at least one case at a time")
    if not any(all(name in case for name in asked.names) for case in cases()):
        parser.error(f"no case has {' and '.join(asked.names)}")
    return asked


def broken(rows: list[dict[str, str]]) -> Iterator[str]:
    """Tell every row that is below a bound, or better than an optimum that it may not beat."""
    best = {(r["model"], r["mesh"], r["pins"]): r for r in rows if r["planner"] == "shardproof"}
    for row in rows:
        name = f"{row['model']} on {row['mesh']} with pins {row['pins']}, {row['planner']}"
        if row["status"] in ("failed", "out of time"):
            yield f"{name}: {row['note']}"
        for pins in {row["pins"], "none"} if row["time_ps"] else ():
            held = best.get((row["model"], row["mesh"], pins))
            if held and held["time_ps"]:
                if int(row["time_ps"]) < int(held["bound_ps"]):
                    yield f"{name}: {row['time_ps']} ps is below the bound with pins {pins}"
                elif int(row["time_ps"]) < int(held["time_ps"]):
                    yield f"{name}: {row['time_ps']} ps is better than the plan found with pins {pins}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
