"""Time per stage and peak memory of whole plans, from the graph to the checked certificate: built models and captures.

    python -m benchmarks.scale                     what benchmarks/data/scale.csv lacks; then docs/scale.md
    python -m benchmarks.scale llama-96 8x8        some of it, or another instance: llama-, gpt-, experts- and layers
    python -m benchmarks.scale --runs 1            one run of each, 5 by default
    python -m benchmarks.scale --again             everything anew
    python -m benchmarks.scale --figures           tables and plots of docs/scale.md only, from the CSVs

Built models are training steps: forward, backward, update by adamw, ties kept. Each run has a process of its own. The
runs go in rounds over all instances, so that what disturbs the machine disturbs all alike.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from benchmarks import captures, onnx_models
from benchmarks.models import experts, gpt_training, llama_training
from benchmarks.results import DATA, Row, in_a_process, machine, read_rows, write_rows
from benchmarks.scale_figures import write_page
from ops import Shard
from solver import Graph, Mesh, load, plan
from solver.importers.aten import lower
from solver.importers.capture import read_capture
from solver.search.ready import make_ready
from solver.training import training_step

CSV = DATA / "scale.csv"
LIMIT = 300.0
"""Seconds for each plan."""
STAGES = ("constraints", "feasibility", "network", "bound", "decision", "certificate", "check")
COLUMNS = (
    *("model", "mesh", "run", "ops", "status", "cost_ps", "bound_ps", "proof", "checked", *STAGES),
    *("seconds", "cpu", "peak", "limit", "machine", "failed"),
)
BUILT: dict[str, Callable[[int], Graph]] = {
    "llama": llama_training,
    "gpt": gpt_training,
    "experts": lambda layers: training_step(experts(layers), "loss", "adamw"),
}


class Instance(NamedTuple):
    """A model on a mesh."""

    model: str
    mesh: str


LAYERS = (8, 12, 24, 32, 48, 96, 192)
INSTANCES = (
    *(Instance(f"llama-{layers}", "8x8") for layers in LAYERS),
    *(Instance(f"gpt-{layers}", "8x8") for layers in LAYERS),
    *(Instance(f"llama-{layers}", mesh) for mesh in ("8", "2x8x8") for layers in (8, 32, 96)),
    Instance("llama-8", "2x4x4x4"),
    *(Instance(f"experts-{layers}", "8x8") for layers in (4, 16)),
    *(Instance("resnet50", mesh) for mesh in ("8", "8x8", "2x8x8")),
    *(Instance(model, mesh) for model in captures.MODELS for mesh in ("8", "8x8", "2x8x8")),
)


def asked(instance: Instance) -> tuple[Graph, Mesh, Mapping[str, Mapping[str, Shard]]]:
    """Return graph, mesh and pins of an instance; captures have their batch pinned on the first mesh axis."""
    mesh = Mesh({f"m{i}": int(size) for i, size in enumerate(instance.mesh.split("x"))}, hardware="h100")
    if instance.model in captures.MODELS:
        graph = lower(read_capture(captures.DATA / f"{instance.model}.json.gz"))
        return graph, mesh, captures.batch_pins(graph, mesh)
    if instance.model in onnx_models.MODELS:
        model = onnx_models.MODELS[instance.model]
        file = model.find()
        if file is None:
            raise SystemExit(f"{instance.model} comes with the package {model.package}: pip install {model.package}")
        return load(file, model.dims, model.input_shapes), mesh, {}
    name, _, layers = instance.model.rpartition("-")
    if name not in BUILT or not layers.isdigit():
        raise SystemExit(
            f"no model is called {instance.model!r}: {', '.join(BUILT)} with layers, as llama-8, a capture"
        )
    return BUILT[name](int(layers)), mesh, {}


def measure(instance: Instance, limit: float) -> dict[str, Any]:
    """Plan one instance and check its certificate; return figures, the graph being there and the loops compiled."""
    graph, mesh, pins = asked(instance)
    make_ready()
    begin, busy = time.monotonic(), time.process_time()
    found = plan(graph, mesh, pins=pins, timeout=limit)
    planned = time.monotonic()
    checked = found.check()
    ended = time.monotonic()
    return {
        "ops": len(graph.nodes),
        "status": found.status,
        "cost_ps": found.cost_ps,
        "bound_ps": found.bound_ps,
        "proof": found.proof,
        "checked": "yes" if checked.ok and checked.bound == found.bound_ps else "NO",
        **{stage: f"{spent:.3f}" for stage, spent in found.stages.items()},
        "check": f"{ended - planned:.3f}",
        "seconds": f"{ended - begin:.3f}",
        "cpu": f"{time.process_time() - busy:.3f}",
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "limit": limit,
    }


def key(row: Mapping[str, Any]) -> tuple[str, str, int]:
    """Return model, mesh and number of a run."""
    return row["model"], row["mesh"], int(row["run"])


def run(instance: Instance, number: int, limit: float) -> None:
    """Measure an instance once, in a process of its own, and put the row into the CSV."""
    print(f"{instance.model} on {instance.mesh}, run {number} ...", file=sys.stderr, flush=True)
    found = in_a_process("benchmarks.scale", ["--one", *instance, "--limit", str(limit)], 2 * limit + 300)
    new = {**instance._asdict(), "run": number, **found, "machine": machine()}
    order = {one: place for place, one in enumerate(INSTANCES)}
    rows: list[dict[str, Any]] = [row for row in read_rows(CSV) if key(row) != key(new)]
    rows.append(new)
    rows.sort(key=lambda row: (order.get(Instance(row["model"], row["mesh"]), len(order)), key(row)))
    write_rows(CSV, COLUMNS, rows)


def read(arguments: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scale", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="models and meshes")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--limit", type=float, default=LIMIT)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--figures", action="store_true")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def chosen(names: list[str], known: tuple[Instance, ...]) -> list[Instance]:
    """Return the instances with these models and meshes, or the one that they name anew."""
    meshes = [name for name in names if name.replace("x", "").isdigit()]
    models = [name for name in names if name not in meshes]
    found = [one for one in known if one.model in (models or [one.model]) and one.mesh in (meshes or [one.mesh])]
    return found or [Instance(model, mesh) for model in models for mesh in meshes]


def wrong(rows: list[Row]) -> list[str]:
    """Return what is not as it should be: a run that failed, or a certificate that does not hold."""
    told = [(row, row["failed"] or "the check refuses the plan") for row in rows]
    return [
        f"{row['model']} on {row['mesh']}, run {row['run']}: {why}"
        for row, why in told
        if row["failed"] or row["checked"] != "yes"
    ]


def main(arguments: list[str]) -> int:
    """Measure what was asked for and write tables and plots; return 1 where a run failed or a check refuses."""
    wish = read(arguments)
    if wish.one:
        print(json.dumps(measure(Instance(*wish.one), wish.limit)))
        return 0
    known = {key(row) for row in read_rows(CSV) if not row["failed"]}
    for number in [] if wish.figures else range(1, wish.runs + 1):
        for instance in chosen(wish.names, INSTANCES):
            if wish.again or (*instance, number) not in known:
                run(instance, number, wish.limit)
    write_page()
    told = wrong(read_rows(CSV))
    print(*told, sep="\n", end="\n" if told else "", file=sys.stderr)
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
