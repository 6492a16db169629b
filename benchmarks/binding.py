"""Time to build a training step of some 7,000 ops, and to bind the rules of all of them.

python -m benchmarks.binding                    the step of a GPT-like model
python -m benchmarks.binding MODEL [...]        that of files that `solver.load` reads
"""

from __future__ import annotations

import sys
import time
from collections import Counter

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.models import gpt
from solver import Graph, load
from solver.autodiff import add_gradients
from solver.parts import bind_refined, refine

LAYERS = 115
"""Blocks of the model whose step has some 7,000 ops."""


def measure(graph: Graph) -> dict[str, object]:
    """Return how many ops there are, how many of them differ, and the seconds that each stage takes."""
    data = graph.to_json()
    begin = time.perf_counter()
    again = Graph.from_json(data)
    built = time.perf_counter()
    parts = refine(again)
    refined = time.perf_counter()
    bound = bind_refined(again, parts.parts, frozenset({"masked_lookup"}))
    done = time.perf_counter()
    return {
        "graph": graph.name,
        "ops": len(graph.nodes),
        "rules": len(set(map(id, bound.values()))),
        "rows": sum(len(rule.rows) for rule in bound.values()),
        "from JSON": built - begin,
        "parts": refined - built,
        "binding": done - refined,
    }


def main(arguments: list[str]) -> int:
    """Measure the files that are named, or the model by builder."""
    graphs = [load(name) for name in arguments]
    if not graphs:
        begin = time.perf_counter()
        forward = gpt(LAYERS)
        built = time.perf_counter()
        graphs.append(add_gradients(forward))
        counted = f"{len(forward.nodes)} ops forward in {built - begin:.2f} s, {len(graphs[0].nodes)} with backward"
        print(f"built: {counted} in {time.perf_counter() - built:.2f} s more")
    rows = [measure(graph) for graph in graphs]
    table = Table(*rows[0], box=box.SIMPLE_HEAD)
    for row in rows:
        table.add_row(*(f"{value:.2f} s" if isinstance(value, float) else str(value) for value in row.values()))
    Console(width=140).print(table)
    kinds = Counter(node.op for graph in graphs for node in graph.nodes.values())
    print("most frequent: " + ", ".join(f"{count} {op}" for op, count in kinds.most_common(8)))
    return 1 if any(float(str(row["binding"])) > 1 for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
