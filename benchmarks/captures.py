"""Real training steps of PyTorch models, planned: what is in them, where the time goes, how far the proof comes.

    python -m benchmarks.captures                  every capture of benchmarks/data/captures on 8x8 and on 2x8x8
    python -m benchmarks.captures gpt2 8x8         some of it
    python -m benchmarks.captures --timeout 600    seconds for each plan, 300 by default

The batch is pinned on the first mesh axis, at every input that has one. Each plan has a process of its own.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from ops import Shard
from solver import Graph, Mesh, plan
from solver.importers.aten import lower
from solver.importers.capture import read_capture

DATA = Path(__file__).parent / "data" / "captures"
MESHES = {"8x8": {"dp": 8, "tp": 8}, "2x8x8": {"pp": 2, "dp": 8, "tp": 8}}
STAGES = ("read", "lower", "constraints", "feasibility", "network", "bound", "decision", "certificate", "check")


def batch_pins(graph: Graph, mesh: Mesh) -> dict[str, dict[str, Shard]]:
    """Pin the first dim of every input that the first mesh axis divides."""
    axis = next(iter(mesh.axes))
    inputs = [tensor for tensor in graph.tensors.values() if tensor.role == "input" and tensor.shape]
    return {one.name: {axis: Shard(0)} for one in inputs if one.shape[0] % mesh.sizes[0] == 0}


def measure(model: str, mesh_name: str, timeout: float) -> dict[str, Any]:
    """Plan one capture and check the plan; return figures."""
    stages = {}
    begin = time.monotonic()
    capture = read_capture(DATA / f"{model}.json.gz")
    stages["read"] = time.monotonic() - begin
    graph = lower(capture)
    stages["lower"] = time.monotonic() - begin - stages["read"]
    mesh = Mesh(MESHES[mesh_name], hardware="h100")
    found = plan(graph, mesh, pins=batch_pins(graph, mesh), timeout=timeout)
    planned = time.monotonic()
    checked = found.check()
    stages |= found.stages
    stages["check"] = time.monotonic() - planned
    return {
        "model": model,
        "mesh": mesh_name,
        "nodes": len(capture.nodes),
        "ops": len(graph.nodes),
        "rows": sum(len(graph.bind(node).rows) for node in graph.nodes),
        "ties": len(graph.ties),
        "reshards": len(found.reshards),
        "status": found.status,
        "cost": found.cost,
        "bound": found.bound,
        "gap": found.gap,
        "proof": found.proof,
        "checked": checked.ok and checked.bound == found.bound_ps,
        "memory": found.memory.peak,
        "stages": stages,
        "seconds": time.monotonic() - begin,
        "cpu": time.process_time(),
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def show(rows: list[dict[str, Any]]) -> None:
    """Print figures as two tables: what was found, and the seconds of each stage."""
    found = Table(
        *("model", "mesh", "nodes", "ops", "rows", "ties", "reshards", "cost", "bound", "gap", "proof", "checked"),
        "memory of a device",
        box=box.SIMPLE_HEAD,
    )
    spent = Table("model", "mesh", *STAGES, "in all", "of the processor", "peak memory", box=box.SIMPLE_HEAD)
    for row in rows:
        name = row["model"], row["mesh"]
        found.add_row(
            *name,
            *(f"{row[key]:,}" for key in ("nodes", "ops", "rows", "ties", "reshards")),
            f"{row['cost'] * 1e3:.4f} ms",
            f"{row['bound'] * 1e3:.4f} ms",
            f"{row['gap']:.2%}",
            str(row["proof"]),
            "yes" if row["checked"] else "NO",
            f"{row['memory'] / 1e9:.2f} GB",
        )
        seconds = (f"{row['stages'].get(stage, 0.0):.2f}" for stage in STAGES)
        spent.add_row(*name, *seconds, f"{row['seconds']:.1f} s", f"{row['cpu']:.1f} s", f"{row['peak'] / 1e9:.2f} GB")
    console = Console(width=170)
    console.print(found)
    console.print(spent)


def main(arguments: list[str]) -> int:
    """Measure what was asked for, or everything; return 1 where a plan is refused or its gap is half a percent."""
    if arguments[:1] == ["--json"]:
        print(json.dumps(measure(arguments[1], arguments[2], float(arguments[3]))))
        return 0
    timeout = arguments[arguments.index("--timeout") + 1] if "--timeout" in arguments else "300"
    models = sorted(path.name.removesuffix(".json.gz") for path in DATA.glob("*.json.gz"))
    rows = []
    for model in [name for name in arguments if name in models] or models:
        for mesh in [name for name in arguments if name in MESHES] or MESHES:
            print(f"{model} on {mesh} ...", file=sys.stderr, flush=True)
            command = [sys.executable, "-m", "benchmarks.captures", "--json", model, mesh, timeout]
            rows.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    show(rows)
    return 0 if all(row["checked"] and row["gap"] < 0.005 for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
