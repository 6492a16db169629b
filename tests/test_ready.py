"""What is compiled before the time of a plan counts is all that a plan compiles."""

from __future__ import annotations

import subprocess
import sys

WATCHED = """
from solver import Graph, Mesh, plan
from solver.search import copies, kernels
from solver.search.ready import make_ready

def compiled():
    found = {**vars(kernels), **vars(copies)}
    return {name: len(loop.signatures) for name, loop in found.items() if hasattr(loop, "signatures")}

make_ready()
before = compiled()
graph = Graph("mlp")
x, w = graph.input("x", (32, 64)), graph.parameter("w", (64, 16))
y = graph.op("matmul", x, w, name="y")
graph.output(graph.op("add", graph.op("add", y, y, name="z"), y, name="s"))
assert plan(graph, Mesh({"dp": 2, "tp": 4})).status == "optimal"
assert before and compiled() == before, (before, compiled())
"""


def test_a_plan_compiles_nothing_more() -> None:
    ran = subprocess.run([sys.executable, "-c", WATCHED], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
