"""Training steps within memory budgets: certified gaps at 1.1, 1.3 and 2 times the least memory that works.

python -m benchmarks.memory                 4, 16 and 32 layers, each in a process of its own
python -m benchmarks.memory 4               one step; further words are shares of the least memory
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.models import llama_training
from solver import Mesh, plan
from solver.words import size

LAYERS = 4, 16, 32
SHARES = {1.1: 0.03, 1.3: 0.01, 2.0: 0.01}
"""The gap that each share of the least memory may leave."""
MESH = {"dp": 8, "tp": 8}


def measure(layers: int, shares: list[float], timeout: float = 600.0) -> list[dict[str, Any]]:
    """Find the least budget that works, then plan within multiples of it; return figures."""
    graph, mesh = llama_training(layers), Mesh(MESH)
    begin = time.monotonic()
    refused = plan(graph, mesh, memory=1, timeout=timeout)
    seconds = time.monotonic() - begin
    assert refused.explanation is not None
    least = next(one.change for one in refused.explanation.repairs if "memory" in one.change)
    rows = [
        {
            "layers": layers,
            "ops": len(graph.nodes),
            "budget": least["memory"],
            "share": 1.0,
            "gap": least["memory"] / least["bound"] - 1,
            "checked": refused.check().ok,
            "seconds": seconds,
        }
    ]
    for share in shares:
        begin = time.monotonic()
        found = plan(graph, mesh, memory=int(least["memory"] * share), timeout=timeout)
        seconds = time.monotonic() - begin
        checked = found.check()
        rows.append(
            {
                "layers": layers,
                "ops": len(graph.nodes),
                "budget": found.problem.memory,
                "share": share,
                "status": found.status,
                "cost": found.cost,
                "peak": None if found.choice is None else found.memory.peak,
                "gap": found.gap,
                "checked": checked.ok,
                "seconds": seconds,
            }
        )
    for row in rows:
        row["process"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    """Print figures as a table."""
    columns = ("layers", "ops", "of the least", "budget", "peak", "time", "gap", "checked", "seconds", "process")
    table = Table(*columns, box=box.SIMPLE_HEAD)
    for row in rows:
        least = "status" not in row
        table.add_row(
            str(row["layers"]),
            str(row["ops"]),
            "least" if least else f"{row['share']:g}",
            size(row["budget"]),
            "" if row.get("peak") is None else size(row["peak"]),
            "" if row.get("cost") is None else f"{row['cost'] * 1e3:.4g} ms",
            "none" if row["gap"] is None else f"{row['gap']:.3%}",
            "yes" if row["checked"] else "NO",
            f"{row['seconds']:.1f}",
            size(row["process"]),
        )
    Console(width=160).print(table)


def good(row: dict[str, Any]) -> bool:
    """Tell whether a figure is as it should be."""
    most = 0.01 if "status" not in row else SHARES.get(row["share"], 0.01)
    return bool(row["checked"]) and row["gap"] is not None and row["gap"] <= most


def main(arguments: list[str]) -> int:
    """Measure what was asked for, or everything."""
    if arguments[:1] == ["--json"]:
        print(json.dumps(measure(int(arguments[1]), list(map(float, arguments[2:])))))
        return 0
    shares = arguments[1:] or list(map(str, SHARES))
    rows: list[dict[str, Any]] = []
    for layers in map(int, arguments[:1] or LAYERS):
        print(f"{layers} layers ...", file=sys.stderr, flush=True)
        command = [sys.executable, "-m", "benchmarks.memory", "--json", str(layers), *shares]
        rows += json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        show(rows)
    return 0 if all(map(good, rows)) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
