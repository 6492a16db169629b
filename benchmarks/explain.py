"""How soon a "no" is explained on whole models: conflicting pins at both ends, and nothing may be sent.

    python -m benchmarks.explain             every model
    python -m benchmarks.explain gpt-32      one of them, and its story

First the model is built once: the constraints on a mesh axis, with what may become what. The seconds are those from
there to the explanation in words; repairs are not in them. It runs in one thread, so those of the processor are what it
takes on a machine that does nothing else.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.captures import DATA
from benchmarks.models import gpt
from solver import Graph, Mesh
from solver.explain.core import find_core
from solver.explain.tell import tell
from solver.explain.views import views
from solver.explanation import Explanation
from solver.importers.aten import lower
from solver.importers.capture import read_capture
from solver.problem import Problem, problem

LIMIT = 1.0
"""Seconds that an explanation may take."""
MOST = 8
"""Wishes of a core, and groups of a support, that a person still reads."""
MESH = {"dp": 8, "tp": 8}


def llama() -> Graph:
    """Read the training step of Llama-7B."""
    return lower(read_capture(DATA / "llama7b.json.gz"))


def last_of_width(graph: Graph, width: int) -> str:
    """Return the first result whose last dim has a width: the logits, where it is the vocabulary."""
    return next(t.name for t in graph.tensors.values() if t.producer and t.shape[-1:] == (width,))


def short_pins(graph: Graph) -> dict[str, str]:
    """Pin the batch at the entry, and another dim at the exit."""
    ids = next(tensor for tensor in graph.tensors.values() if tensor.role == "input")
    exit_ = "logits" if "logits" in graph.tensors else last_of_width(graph, 32000)
    return {ids.name: "dp=S(0),tp=R", exit_: "dp=S(1)"}


MODELS: dict[str, Callable[[], Graph]] = {"gpt-32": lambda: gpt(32), "llama7b": llama}


def measure(name: str) -> tuple[Problem, Explanation, float, float]:
    """Ask about one model; return the question, the answer, the seconds that it took, and those of the processor."""
    graph = MODELS[name]()
    wishes = short_pins(graph)
    small = Graph("warm")
    small.output(small.op("relu", small.input("x", (8, 8)), name="y"))
    find_core(problem(small, Mesh({"dp": 3}), pins={"x": "dp=S(0)"}, communication="none"))  # loads what is compiled
    asked = problem(graph, Mesh(MESH), pins=wishes, communication="none")
    next(views(asked))
    begin, busy = time.monotonic(), time.process_time()
    told = tell(asked, find_core(asked))
    str(told)
    return asked, told, time.monotonic() - begin, time.process_time() - busy


def main(arguments: list[str]) -> int:
    """Explain what was asked for, or everything; return 1 where one takes too long or is too large to read."""
    columns = ("model", "ops", "seconds", "of the processor", "core", "support", "sentences", "minimal", "by")
    table = Table(*columns, box=box.SIMPLE_HEAD)
    good = True
    stories = []
    for name in arguments or MODELS:
        asked, told, seconds, busy = measure(name)
        figures = len(told.core), len(told.support), len(told.steps)
        spent = f"{seconds:.2f}", f"{busy:.2f}"
        table.add_row(name, str(len(asked.graph.nodes)), *spent, *map(str, figures), str(told.minimal), told.by)
        good = good and busy < LIMIT and max(figures[:2]) <= MOST and told.minimal
        stories.append(str(told))
    Console(width=140).print(table)
    if arguments:
        print(*stories, sep="\n\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
