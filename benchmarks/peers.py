"""The planner's search against other solvers on the same cost network, in one run.

python -m benchmarks.peers                      every instance
python -m benchmarks.peers --layers 96 --mesh 8x8 --step training --limit 60 --csv peers.csv

An instance is the forward pass of a GPT-like model, or its training step: backward and update by adamw, ties kept.

Each solver runs in a process of its own with the same time limit; the figures are seconds of solving alone, the
building of models left out everywhere. A peer that is not installed is named and left out: pip install '.[bench]'.
"""

from __future__ import annotations

import argparse
import csv
import importlib.metadata
import json
import platform
import subprocess
import sys
import time
from typing import TypeAlias

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.peer_solvers import PACKAGES, PEERS, Answer, instance
from benchmarks.scale import BUILDERS
from solver import Mesh
from solver.problem import problem
from solver.search.branch import solve
from solver.search.build import build
from solver.search.network import Network

OURS = "shardproof"
Instance: TypeAlias = tuple[int, str, str]
"""Layers, mesh, and what is planned: ``forward`` or ``training``."""

INSTANCES: tuple[Instance, ...] = (
    (1, "8x8", "forward"),
    (8, "8x8", "forward"),
    (1, "2x8x8", "forward"),
    (1, "8x8", "training"),
    (8, "8x8", "training"),
    (32, "8x8", "training"),
    (96, "8x8", "training"),
    (8, "2x8x8", "training"),
)


def network_of(layers: int, mesh: str, step: str) -> Network:
    """Return the cost network of a GPT-like model."""
    sizes = {f"m{i}": int(size) for i, size in enumerate(mesh.split("x"))}
    return build(problem(BUILDERS[step](layers), Mesh(sizes))).network


def ours(network: Network, limit: float) -> Answer:
    """Run the planner's own bound and search."""
    begin = time.monotonic()
    found = solve(network, limit)
    seconds = time.monotonic() - begin
    return Answer(found.bound == found.cost, float(found.cost), float(found.bound), seconds)


def measure(solver: str, instance_: Instance, limit: float) -> Answer:
    """Run one solver on one instance."""
    network = network_of(*instance_)
    if solver == OURS:
        ours(network_of(1, "2x2", "forward"), limit)  # compiles the loops
        return ours(network, limit)
    return PEERS[solver](instance(network), limit)


def row(solver: str, asked: Instance, limit: float) -> dict[str, object]:
    """Measure in a process of its own; a solver that dies or is killed is told so."""
    layers, mesh, step = asked
    command = [sys.executable, "-m", "benchmarks.peers", "--one", solver]
    command += ["--layers", str(layers), "--mesh", mesh, "--step", step]
    try:
        ran = subprocess.run(
            [*command, "--limit", str(limit)], capture_output=True, text=True, timeout=4 * limit + 120, check=False
        )
        lines = ran.stdout.splitlines()
        found = json.loads(lines[-1]) if ran.returncode == 0 and lines else {"failed": ran.stderr.strip()[-200:]}
    except subprocess.TimeoutExpired:
        found = {"failed": "did not keep its time limit"}
    return {"layers": layers, "mesh": mesh, "step": step, "solver": solver, "version": version(solver), **found}


def version(solver: str) -> str:
    """Return the version of a solver's package; empty where it is not installed."""
    try:
        return importlib.metadata.version(PACKAGES.get(solver, "shardproof"))
    except importlib.metadata.PackageNotFoundError:
        return ""


def show(rows: list[dict[str, object]]) -> None:
    """Print figures as a table; times against ours on the same instance."""
    named = "layers", "mesh", "step"
    table = Table(
        *(*named, "solver", "version", "proof", "cost", "bound", "seconds", "times ours"), box=box.SIMPLE_HEAD
    )
    reference = {tuple(one[key] for key in named): float(str(one["seconds"])) for one in rows if one["solver"] == OURS}
    for one in rows:
        start = [str(one[key]) for key in (*named, "solver", "version")]
        if "failed" in one:
            table.add_row(*start, "no", str(one["failed"]))
            continue
        costs = ("-" if one[key] is None else f"{float(str(one[key])) / 1e9:.6f} ms" for key in ("cost", "bound"))
        seconds = float(str(one["seconds"]))
        against = reference.get(tuple(one[key] for key in named))
        ratio = "" if against is None else f"{seconds / against:.1f}"
        table.add_row(*start, "yes" if one["proved"] else "no", *costs, f"{seconds:.3f}", ratio)
    Console(width=140).print(table)


def read(arguments: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--layers", type=int, help="of one instance")
    parser.add_argument("--mesh", default="8x8", help="of one instance, as 2x8x8")
    parser.add_argument("--step", choices=[*BUILDERS], default="forward", help="of one instance")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for each solver")
    parser.add_argument("--csv", help="a file for the figures")
    parser.add_argument("--one", choices=[OURS, *PEERS], help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Measure what was asked for, or everything."""
    asked = read(arguments)
    if asked.one:
        print(json.dumps(vars(measure(asked.one, (asked.layers, asked.mesh, asked.step), asked.limit))))
        return 0
    missing = [solver for solver in PEERS if not version(solver)]
    for solver in missing:
        print(f"{solver} is left out: {PACKAGES[solver]} is not installed (pip install '.[bench]')", file=sys.stderr)
    rows = []
    for chosen in [(asked.layers, asked.mesh, asked.step)] if asked.layers else INSTANCES:
        for solver in [OURS, *(peer for peer in PEERS if peer not in missing)]:
            print(f"{chosen[0]} layers on {chosen[1]}, {chosen[2]}: {solver} ...", file=sys.stderr, flush=True)
            rows.append(row(solver, chosen, asked.limit))
    print(f"{platform.machine()}, {platform.processor() or 'unknown processor'}, Python {platform.python_version()}")
    show(rows)
    if asked.csv:
        with open(asked.csv, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, sorted({key for one in rows for key in one}))
            writer.writeheader()
            writer.writerows(rows)
    return 0 if all(one.get("proved") for one in rows if one["solver"] == OURS) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
