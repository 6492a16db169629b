"""The planner's search against other solvers on the same cost network, in one run.

    python -m benchmarks.peers                      what benchmarks/data/peers.csv lacks; then docs/scale.md
    python -m benchmarks.peers llama-96 8x8         some of it, or another instance of benchmarks.scale
    python -m benchmarks.peers --solver toulbar2    one solver, or several; else all where they are compared, and
                                                    toulbar2 wherever there is a proved optimum to confirm
    python -m benchmarks.peers --limit 60           seconds for each solver, 120 by default
    python -m benchmarks.peers --runs 1             one run of each, 5 by default
    python -m benchmarks.peers --again              everything anew
    python -m benchmarks.peers --figures            tables and plots of docs/scale.md only, from the CSVs

Each run has a process of its own and the same time limit. The figures are those of solving alone, the building of
models left out for all; `whole plan` is ours from the graph to the checked certificate. The solvers of an instance take
turns, so that what disturbs the machine disturbs all. A run that ends without a proof is not repeated. A peer that is
not installed is named and left out: pip install '.[bench]'.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
from collections.abc import Mapping
from typing import Any

from benchmarks import scale
from benchmarks.peer_solvers import PACKAGES, PEERS, Answer, Watch, instance
from benchmarks.results import DATA, Row, in_a_process, machine, read_rows, version, write_rows
from benchmarks.scale import Instance
from benchmarks.scale_figures import OURS, WHOLE, write_page
from solver import plan
from solver.problem import problem
from solver.search.branch import solve
from solver.search.build import build
from solver.search.network import Network
from solver.search.ready import make_ready

CSV = DATA / "peers.csv"
BUILDING = 300.0
"""Seconds that a model may take to build, beside its solver's limit."""
COLUMNS = (
    *("model", "mesh", "solver", "run", "version", "proved", "cost_ps", "bound_ps", "seconds", "cpu", "peak", "limit"),
    *("machine", "failed"),
)
SOLVERS = (OURS, WHOLE, *PEERS)
COMPARED = (
    *(Instance(f"llama-{layers}", "8x8") for layers in (1, 8, 96)),
    Instance("experts-4", "8x8"),
    Instance("resnet50", "8x8"),
)
"""Where every solver runs; on the others of the suite the one that is best here has to confirm what is proved."""
INSTANCES = tuple(dict.fromkeys((*COMPARED, *scale.INSTANCES)))
CONFIRMING = (OURS, "toulbar2")


def network_of(asked: Instance) -> Network:
    """Return the cost network of an instance."""
    graph, mesh, pins = scale.asked(asked)
    return build(problem(graph, mesh, pins=pins)).network


def ours(network: Network, limit: float) -> Answer:
    """Run the planner's own bound and search, the loops compiled."""
    make_ready()
    watch = Watch()
    found = solve(network, limit)
    return watch.answer(found.bound == found.cost, float(found.cost), float(found.bound))


def whole(asked: Instance, limit: float) -> Answer:
    """Plan from the graph and check the certificate."""
    graph, mesh, pins = scale.asked(asked)
    make_ready()
    watch = Watch()
    found = plan(graph, mesh, pins=pins, timeout=limit)
    checked = found.check()
    right = checked.ok and checked.bound == found.bound_ps == found.cost_ps
    return watch.answer(right, found.cost_ps, checked.bound)


def measure(solver: str, asked: Instance, limit: float) -> dict[str, Any]:
    """Run one solver on one instance."""
    if solver == WHOLE:
        found = whole(asked, limit)
    elif solver == OURS:
        found = ours(network_of(asked), limit)
    else:
        found = PEERS[solver](instance(network_of(asked)), limit)
    return {
        "proved": "yes" if found.proved else "no",
        "cost_ps": "" if found.cost is None else round(found.cost),
        "bound_ps": "" if found.bound is None else round(found.bound),
        "seconds": f"{found.seconds:.4f}",
        "cpu": f"{found.cpu:.4f}",
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def key(row: Mapping[str, Any]) -> tuple[str, str, str, int]:
    """Return model, mesh, solver and number of a run."""
    return row["model"], row["mesh"], row["solver"], int(row["run"])


def run(solver: str, asked: Instance, number: int, limit: float) -> None:
    """Measure once, in a process of its own, and put the row into the CSV; what dies or is killed is told so."""
    print(f"{asked.model} on {asked.mesh}: {solver}, run {number} ...", file=sys.stderr, flush=True)
    arguments = ["--one", solver, *asked, "--limit", str(limit)]
    found = in_a_process("benchmarks.peers", arguments, limit + BUILDING)
    new = {**asked._asdict(), "solver": solver, "run": number, "version": version(PACKAGES.get(solver, "shardproof"))}
    new |= {"limit": f"{limit:g}", "machine": machine(), **found}
    rows: list[dict[str, Any]] = [row for row in read_rows(CSV) if key(row) != key(new)]
    order = {one: place for place, one in enumerate(INSTANCES)}

    def place(row: dict[str, Any]) -> tuple[int, str, str, int, int]:
        at = Instance(row["model"], row["mesh"])
        return order.get(at, len(order)), *at, SOLVERS.index(row["solver"]), int(row["run"])

    write_rows(CSV, COLUMNS, sorted([*rows, new], key=place))


def wanted(solver: str, asked: Instance, number: int, rows: list[Row], *, again: bool) -> bool:
    """Tell whether a run is still to be done: none that was done, none after one without a proof."""
    done = [row for row in rows if key(row)[:3] == (*asked, solver)]
    if number == 1:
        return again or not done
    # The relaxation proves a bound only, and has done its work where it has one.
    idle = any(row["failed"] or (row["proved"] == "no" and not finished(row)) for row in done)
    return not idle and (again or all(int(row["run"]) != number for row in done))


def finished(row: Row) -> bool:
    """Tell whether the relaxation was solved, which proves no plan."""
    return row["solver"] == "HiGHS relaxed" and bool(row["bound_ps"])


def read(arguments: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="models and meshes")
    parser.add_argument("--solver", nargs="+", choices=SOLVERS, default=())
    parser.add_argument("--limit", type=float, default=120.0)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--figures", action="store_true")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def contradictions(rows: list[Row]) -> list[str]:
    """Return where two solvers contradict each other: a bound above another's plan of the same instance."""
    told = []
    for one in rows:
        for other in rows:
            if key(one)[:2] == key(other)[:2] and one["bound_ps"] and other["cost_ps"]:
                rounding = 2 + int(other["cost_ps"]) * 1e-6  # HiGHS counts in floating point
                if int(one["bound_ps"]) > int(other["cost_ps"]) + rounding:
                    told.append(f"{key(one)} bounds {one['bound_ps']} ps, {key(other)} finds {other['cost_ps']} ps")
    return told


def main(arguments: list[str]) -> int:
    """Measure what was asked for and write tables and plots; return 1 where solvers contradict each other."""
    wish = read(arguments)
    if wish.one:
        print(json.dumps(measure(wish.one[0], Instance(*wish.one[1:]), wish.limit)))
        return 0
    missing = [solver for solver in PEERS if solver in (wish.solver or PEERS) and not version(PACKAGES[solver])]
    for solver in missing:
        print(f"{solver} is left out: {PACKAGES[solver]} is not installed (pip install '.[bench]')", file=sys.stderr)
    for asked in [] if wish.figures else scale.chosen(wish.names, INSTANCES):
        solvers = wish.solver or (SOLVERS if asked in COMPARED else CONFIRMING)
        for number in range(1, wish.runs + 1):
            for solver in (one for one in solvers if one not in missing):
                if wanted(solver, asked, number, read_rows(CSV), again=wish.again):
                    run(solver, asked, number, wish.limit)
    write_page()
    told = contradictions(read_rows(CSV))
    print(*told, sep="\n", end="\n" if told else "", file=sys.stderr)
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
