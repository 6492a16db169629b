"""Training steps within memory budgets: certified gaps at 1.1, 1.3 and 2 times the least memory that works.

    python -m benchmarks.memory             what benchmarks/data/memory.csv does not have yet, and the table
    python -m benchmarks.memory 4 16        some numbers of layers
    python -m benchmarks.memory --again     everything anew
    python -m benchmarks.memory --timeout 600

Llama-like steps (forward, backward, AdamW) on 8x8. Each plan has a process of its own, and its row is written when it
is there, so that a run that was stopped goes on where it was. The table also goes to benchmarks/memory.md.
"""

from __future__ import annotations

import csv
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.models import llama_training
from solver import Mesh, plan
from solver.search.limits import Progress
from solver.words import percent, size

LAYERS = 4, 16, 32
LEAST = "least"
SHARES = {LEAST: 0.01, "1.1": 0.03, "1.3": 0.01, "2": 0.01}
"""Budgets as multiples of the least memory that works, and the gap that each may leave; that of the least memory is
between what works and what every plan fills."""
MESH = {"dp": 8, "tp": 8}
MOST_PROCESS = 4 * 2**30
"""Bytes that planning may take."""
SILENCE = 5
"""Seconds of the processor after which progress is shown again."""
FILE = Path(__file__).parent / "data" / "memory.csv"
TABLE = Path(__file__).parent / "memory.md"
FIELDS = (
    "layers",
    "ops",
    "share",
    "budget",
    "status",
    "peak",
    "cost_ps",
    "bound_ps",
    "gap",
    "checked",
    "cpu",
    "process",
)
HEAD = """# Plans within memory budgets

What `python -m benchmarks.memory` found: Llama-like training steps with AdamW on 8x8.

- *least* is the least memory that works: its budget is what the smallest plan fills, its gap is to what every plan is
  proved to fill. The others are the cheapest plans within that many times as much, and their gap is to what every plan
  within the budget is proved to take.
- *processor* is what the whole took of one core, the check of the certificate included; *process* is the most memory
  that planning and checking took.

| layers | ops | budget | GB a device | plan fills | time | gap | checked | processor | process |
|--:|--:|--:|--:|--:|--:|--:|---|--:|--:|
"""


def measure(layers: int, share: str, least: int, timeout: float) -> dict[str, Any]:
    """Plan within a multiple of the least memory, or find that; return figures."""
    begin, begun = time.process_time(), llama_training(layers)
    budget = 1 if share == LEAST else int(float(share) * least)
    told = "", 0.0

    def show(stage: str, state: Progress | None) -> None:
        nonlocal told
        now = time.process_time() - begin
        if stage != told[0] or now - told[1] > SILENCE:
            told = stage, now
            far = "" if state is None else f": bound {state.bound:,} ps, plan {state.cost or 0:,} ps"
            print(f"  {layers} layers, {share}: {now:.0f} s, {stage}{far}", file=sys.stderr)

    found = plan(begun, Mesh(MESH), memory=budget, timeout=timeout, progress=show)
    if share == LEAST:
        repairs = () if found.explanation is None else found.explanation.repairs
        works = next((one.change for one in repairs if "memory" in one.change), {"memory": 0, "bound": 0})
        budget, peak, gap = works["memory"], works["memory"], works["memory"] / max(1, works["bound"]) - 1
    else:
        peak, gap = None if found.choice is None else found.memory.peak, found.gap
    return {
        "layers": layers,
        "ops": len(begun.nodes),
        "share": share,
        "budget": budget,
        "status": found.status,
        "peak": peak,
        "cost_ps": found.cost_ps,
        "bound_ps": found.bound_ps,
        "gap": gap,
        "checked": "yes" if found.check().ok else "NO",
        "cpu": round(time.process_time() - begin, 1),
        "process": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def written_rows() -> list[dict[str, str]]:
    """Return the rows of the file; none where there is no file."""
    if not FILE.exists():
        return []
    with FILE.open(newline="") as file:
        return list(csv.DictReader(file))


def keep(rows: list[dict[str, str]]) -> None:
    """Write rows and their table."""
    order = list(SHARES)
    rows.sort(key=lambda row: (int(row["layers"]), order.index(row["share"])))
    with FILE.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    TABLE.write_text(HEAD + "".join(map(line, rows)))


def line(row: dict[str, str]) -> str:
    """Return a row of the table."""
    cells = (
        row["layers"],
        f"{int(row['ops']):,}",
        row["share"],
        f"{int(row['budget']) / 1e9:.3f}",
        size(int(row["peak"])) if row["peak"] else row["status"],
        f"{int(row['cost_ps']) / 1e9:.4g} ms" if row["cost_ps"] else "",
        percent(float(row["gap"]), 4) if row["gap"] else "none",
        row["checked"],
        f"{float(row['cpu']):.0f} s",
        size(int(row["process"])),
    )
    return f"| {' | '.join(cells)} |\n"


def good(row: dict[str, str]) -> bool:
    """Tell whether a figure is as it should be."""
    small = int(row["process"]) <= MOST_PROCESS
    return small and row["checked"] == "yes" and bool(row["gap"]) and float(row["gap"]) <= SHARES[row["share"]]


def main(arguments: list[str]) -> int:
    """Measure what was asked for; return 1 where a gap is too large, a plan is refused, or planning takes too much."""
    if arguments[:1] == ["--json"]:
        print(json.dumps(measure(int(arguments[1]), arguments[2], int(arguments[3]), float(arguments[4]))))
        return 0
    timeout = arguments.pop(arguments.index("--timeout") + 1) if "--timeout" in arguments else "1800"
    rows = [] if "--again" in arguments else written_rows()
    wanted = [int(one) for one in arguments if one.isdigit()] or list(LAYERS)
    for layers in wanted:
        for share in SHARES:
            known = {row["share"]: row for row in rows if row["layers"] == str(layers)}
            if share in known:
                continue
            least = "0" if share == LEAST else known[LEAST]["budget"]
            command = [sys.executable, "-m", "benchmarks.memory", "--json", str(layers), share, least, timeout]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            found = json.loads(done.stdout)
            rows.append({name: "" if found[name] is None else str(found[name]) for name in FIELDS})
            keep(rows)
    print(HEAD.splitlines()[-2], HEAD.splitlines()[-1], *(line(row).rstrip() for row in rows), sep="\n")
    return 0 if all(map(good, rows)) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
