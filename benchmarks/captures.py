"""Real training steps of PyTorch models, planned: what is in them, where the time goes, how far the proof comes.

    python -m benchmarks.captures                      what benchmarks/data/captures.csv lacks; then the tables
    python -m benchmarks.captures gpt2 8x8             some of it
    python -m benchmarks.captures --latency 0          with no latency; 1, 0 and 10 times by default
    python -m benchmarks.captures --open               only what has a gap so far, anew
    python -m benchmarks.captures --again              everything anew
    python -m benchmarks.captures --figures            the tables of benchmarks/captures.md only, from the CSV
    python -m benchmarks.captures --timeout 600        seconds for each plan, 120 by default

Eight captures, three meshes (on 8x8-equal both mesh axes have the bandwidth and latency of the network), three
latencies. The batch is pinned on the first mesh axis, at every input that has one; gradients are tied to
their parameters. Each plan has a process of its own. Where a gap stays, `loss` names the places where it sits.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.results import Row, in_a_process, read_rows, table, write_region, write_rows
from ops import Shard
from solver import Graph, Mesh, plan
from solver.cost.hardware import load
from solver.importers.aten import lower
from solver.importers.capture import read_capture
from solver.report.losses import places
from solver.words import percent

DATA = Path(__file__).parent / "data" / "captures"
CSV = Path(__file__).parent / "data" / "captures.csv"
PAGE = Path(__file__).parent / "captures.md"
EQUAL = "8x8-equal"
MESHES = {"8x8": {"dp": 8, "tp": 8}, EQUAL: {"dp": 8, "tp": 8}, "2x8x8": {"pp": 2, "dp": 8, "tp": 8}}
MODELS = ("hf_resnet50", "convnext", "vit", "bert", "gpt2", "mixtral_grouped", "t5", "llama7b")
"""From the quick to the slow."""
LATENCIES = ("1", "0", "10")
STAGES = ("read", "lower", "constraints", "feasibility", "network", "bound", "decision", "certificate", "check")
COLUMNS = (
    *("model", "mesh", "latency", "nodes", "ops", "rows", "ties", "reshards", "status", "cost_ps", "bound_ps", "proof"),
    *("checked", "memory", *STAGES, "seconds", "cpu", "peak", "timeout", "loss", "failed"),
)
FOUND, SPENT = (f"{what} by python -m benchmarks.captures" for what in ("found", "spent"))
"""The regions of the page."""
PLACES = 3
"""How many places of a loss are told."""
ENOUGH = 0.003
"""A gap below this is counted as closed where the place of the loss is named."""


class Case(NamedTuple):
    """A capture on a mesh, and what its latencies are multiplied with."""

    model: str
    mesh: str
    latency: str


def cases() -> list[Case]:
    """Return every case."""
    return [Case(model, mesh, latency) for latency in LATENCIES for mesh in MESHES for model in MODELS]


def mesh_of(case: Case) -> Mesh:
    """Return the mesh of a case."""
    profile, factor = load("h100"), int(case.latency)
    inside, network = (replace(link, latency=factor * link.latency) for link in (profile.inside, profile.network))
    equal = dict.fromkeys(MESHES[case.mesh], network) if case.mesh == EQUAL else {}
    return Mesh(MESHES[case.mesh], replace(profile, inside=inside, network=network, axes=equal))


def batch_pins(graph: Graph, mesh: Mesh) -> dict[str, dict[str, Shard]]:
    """Pin the first dim of every input that the first mesh axis divides."""
    axis = next(iter(mesh.axes))
    inputs = [tensor for tensor in graph.tensors.values() if tensor.role == "input" and tensor.shape]
    return {one.name: {axis: Shard(0)} for one in inputs if one.shape[0] % mesh.sizes[0] == 0}


def measure(case: Case, timeout: float) -> dict[str, Any]:
    """Plan one capture and check the plan; return figures."""
    stages = {}
    begin = time.monotonic()
    capture = read_capture(DATA / f"{case.model}.json.gz")
    stages["read"] = time.monotonic() - begin
    graph = lower(capture)
    stages["lower"] = time.monotonic() - begin - stages["read"]
    mesh = mesh_of(case)
    found = plan(graph, mesh, pins=batch_pins(graph, mesh), timeout=timeout)
    planned = time.monotonic()
    checked = found.check()
    stages |= found.stages
    stages["check"] = time.monotonic() - planned
    seconds, cpu = time.monotonic() - begin, time.process_time()
    told = places(found.losses)[:PLACES]
    return {
        "nodes": len(capture.nodes),
        "ops": len(graph.nodes),
        "rows": sum(len(graph.bind(node).rows) for node in graph.nodes),
        "ties": len(graph.ties),
        "reshards": len(found.reshards),
        "status": found.status,
        "cost_ps": found.cost_ps,
        "bound_ps": found.bound_ps,
        "proof": found.proof,
        "checked": "yes" if checked.ok and checked.bound == found.bound_ps else "NO",
        "memory": found.memory.peak,
        **{stage: f"{spent:.2f}" for stage, spent in stages.items()},
        "seconds": f"{seconds:.1f}",
        "cpu": f"{cpu:.1f}",
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "timeout": timeout,
        "loss": "; ".join(f"{place.worst} and its like {place.part:.0%}" for place in told),
    }


def gap(row: Row) -> float:
    """Return the fraction of its cost by which a plan's bound stays below; 1 where there is no plan."""
    return 1 - int(row["bound_ps"]) / int(row["cost_ps"]) if row["cost_ps"] else 1.0


def found_table(rows: list[Row]) -> str:
    """Return what was found, as Markdown."""
    names = ("model", "mesh", "latency", "nodes", "ops", "rows", "ties", "reshards", "cost ms", "bound ms", "gap")
    lines = []
    for row in rows:
        start = [row["model"], row["mesh"], f"x{row['latency']}"]
        if row["failed"]:
            lines.append([*start, *["–"] * 7, row["failed"], "–", "–", "–"])
            continue
        numbers = [f"{int(row[key]):,}" for key in ("nodes", "ops", "rows", "ties", "reshards")]
        times = [f"{int(row[key]) / 1e9:.4f}" for key in ("cost_ps", "bound_ps")]
        told = percent(gap(row), 3) if gap(row) else "0"
        ends = [told, row["checked"], f"{int(row['memory']) / 1e9:.2f}", row["loss"]]
        lines.append([*start, *numbers, *times, *ends])
    return table((*names, "checked", "GB a device", "where the gap sits"), lines, 3)


def spent_table(rows: list[Row]) -> str:
    """Return where the time went, as Markdown."""
    lines = [
        [row["model"], row["mesh"], f"x{row['latency']}"]
        + [f"{float(row[stage] or 0):.1f}" for stage in STAGES]
        + [row["seconds"], row["cpu"], f"{float(row['timeout']):g}", f"{int(row['peak']) / 1e9:.2f}"]
        for row in rows
        if not row["failed"]
    ]
    return table(("model", "mesh", "latency", *STAGES, "in all", "processor", "limit", "peak GB"), lines, 3)


def write_tables(rows: list[Row]) -> None:
    """Write both tables into their regions of benchmarks/captures.md."""
    write_region(PAGE, FOUND, found_table(rows))
    write_region(PAGE, SPENT, spent_table(rows))


def case_of(row: Row) -> Case:
    """Return the case that a row is of."""
    return Case(row["model"], row["mesh"], row["latency"])


def run(case: Case, timeout: float) -> None:
    """Measure a case in a process of its own and put its row into the CSV."""
    print(f"{case.model} on {case.mesh}, latency x{case.latency} ...", file=sys.stderr, flush=True)
    found = in_a_process("benchmarks.captures", ["--case", *case, "--timeout", str(timeout)], 2 * timeout + 300)
    rows: list[dict[str, Any]] = [row for row in read_rows(CSV) if case_of(row) != case]
    order = {one: number for number, one in enumerate(cases())}
    rows = sorted([*rows, {**case._asdict(), **found}], key=lambda row: order[case_of(row)])
    write_rows(CSV, COLUMNS, rows)


def read(arguments: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.captures", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="models and meshes, all by default")
    parser.add_argument("--latency", nargs="+", choices=LATENCIES, default=LATENCIES)
    parser.add_argument("--timeout", type=float, default=120.0)
    parser.add_argument("--open", action="store_true")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--figures", action="store_true")
    parser.add_argument("--case", nargs=3, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def chosen(asked: argparse.Namespace) -> list[Case]:
    """Return the cases to measure."""
    models = [name for name in MODELS if name in asked.names] or MODELS
    meshes = [name for name in MESHES if name in asked.names] or MESHES
    wanted = [one for one in cases() if one.model in models and one.mesh in meshes and one.latency in asked.latency]
    known = {case_of(row): row for row in read_rows(CSV)}
    if asked.open:
        return [case for case in wanted if case in known and (known[case]["failed"] or gap(known[case]))]
    return [case for case in wanted if asked.again or case not in known or known[case]["failed"]]


def main(arguments: list[str]) -> int:
    """Measure what was asked for and write the tables; return 1 where a check fails or a gap is not small."""
    asked = read(arguments)
    if asked.case:
        print(json.dumps(measure(Case(*asked.case), asked.timeout)))
        return 0
    for case in [] if asked.figures else chosen(asked):
        run(case, asked.timeout)
    rows = read_rows(CSV)
    write_tables(rows)
    wrong = [row for row in rows if row["failed"] or row["checked"] != "yes" or gap(row) >= ENOUGH]
    for row in wrong:
        told = row["failed"] or f"gap {percent(gap(row), 3)}, {row['loss']}"
        print(f"{' '.join(case_of(row))}: {told}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
