"""Time per stage and peak memory of whole plans: GPT-like models on meshes of two, three and four axes.

python -m benchmarks.scale                     every instance, each in a process of its own
python -m benchmarks.scale 24 8x8              one forward pass
python -m benchmarks.scale 24 8x8 training     one training step: forward, backward, update by adamw, ties kept
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.models import gpt, gpt_training
from solver import Mesh, plan

INSTANCES = (
    (1, "8x8", "forward"),
    (4, "8x8", "forward"),
    (24, "8x8", "forward"),
    (4, "2x8x8", "forward"),
    (1, "2x4x4x4", "forward"),
    (1, "8x8", "training"),
    (8, "8x8", "training"),
    (24, "8x8", "training"),
)
"""Layers, mesh, and what is planned."""
BUILDERS = {"forward": gpt, "training": gpt_training}
STAGES = ("built", "constraints", "feasibility", "network", "bound", "decision", "certificate", "check")


def measure(layers: int, mesh: str, step: str, timeout: float = 300.0) -> dict[str, object]:
    """Plan one instance and check its certificate; return figures."""
    sizes = {f"m{i}": int(size) for i, size in enumerate(mesh.split("x"))}
    begin = time.monotonic()
    graph = BUILDERS[step](layers)
    built = time.monotonic() - begin
    begin = time.monotonic()
    found = plan(graph, Mesh(sizes), timeout=timeout)
    planned = time.monotonic()
    checked = found.check()
    stages = {"built": built, **found.stages, "check": time.monotonic() - planned}
    return {
        "layers": layers,
        "mesh": mesh,
        "step": step,
        "ops": len(graph.nodes),
        "status": found.status,
        "gap": found.gap,
        "proof": found.proof,
        "checked": checked.ok and checked.bound == found.bound_ps,
        "plan": planned - begin,
        "stages": stages,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def show(rows: list[dict[str, object]]) -> None:
    """Print figures as a table."""
    columns = ("layers", "mesh", "step", "ops", "status", "gap", "proof", "checked", *STAGES, "plan", "peak")
    table = Table(*columns, box=box.SIMPLE_HEAD)
    for row in rows:
        stages = row["stages"]
        assert isinstance(stages, dict)
        table.add_row(
            *(str(row[key]) for key in ("layers", "mesh", "step", "ops", "status")),
            f"{row['gap']:.2%}",
            str(row["proof"]),
            "yes" if row["checked"] else "NO",
            *(f"{stages.get(stage, 0.0):.2f}" for stage in STAGES),
            f"{row['plan']:.2f} s",
            f"{int(str(row['peak'])) / 1e9:.2f} GB",
        )
    Console(width=200).print(table)


def main(arguments: list[str]) -> int:
    """Measure what was asked for, or everything."""
    if arguments[:1] == ["--json"]:
        print(json.dumps(measure(int(arguments[1]), *arguments[2:])))
        return 0
    layers, mesh, step = (*arguments, *("1", "8x8", "forward")[len(arguments) :])
    wanted = [(int(layers), mesh, step)] if arguments else list(INSTANCES)
    rows = []
    for instance in wanted:
        print("{} layers on {}, {} ...".format(*instance), file=sys.stderr, flush=True)
        command = [sys.executable, "-m", "benchmarks.scale", "--json", *map(str, instance)]
        rows.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    show(rows)
    return 0 if all(row["status"] == "optimal" and row["checked"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
