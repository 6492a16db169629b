"""What a process keeps from problem to problem is bounded: planning many models makes it no larger."""

from __future__ import annotations

import ast
import gc
import sys
import tracemalloc
from pathlib import Path

import pytest

from ops import Replicate, Shard
from solver import Graph, Mesh, infer, plan
from solver.cost import reshard
from solver.cost.reshard import ReshardTable, reshard_table
from solver.layout import one_part

ROOT = Path(__file__).resolve().parent.parent
UNBOUNDED = {
    "ops.attributes.stated_types": "a function of an op family",
    "solver.cost.hardware.presets": "no argument",
    "solver.report.coverage.framework": "the name of a framework",
    "solver.search.ready.make_ready": "no argument",
}
"""Caches without a bound, and of what they keep one value each."""
LARGEST_COUNT = 512
FEW = 2**20


def caches() -> dict[str, int | None]:
    """Every function in ops and solver whose results are kept, with how many of them; None where all are."""
    found: dict[str, int | None] = {}
    for path in sorted(path for top in ("ops", "solver") for path in (ROOT / top).rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for mark in getattr(node, "decorator_list", []):
                text = ast.unparse(mark)
                if text.removeprefix("functools.").startswith(("cache(", "lru_cache")) or text.endswith(("cache",)):
                    sizes = [word.value for word in getattr(mark, "keywords", []) if word.arg == "maxsize"]
                    found[f"{module}.{node.name}"] = ast.literal_eval(sizes[0]) if sizes else None
    return found


def test_every_cache_has_a_bound() -> None:
    known = caches()
    assert {name for name, most in known.items() if most is None} == set(UNBOUNDED)
    assert all(most <= LARGEST_COUNT for most in known.values() if most is not None)
    assert "solver.cost.moves.geometry" in known


def test_a_table_knows_what_it_takes() -> None:
    """Not less than two thirds of it, and not more than three times as much, whatever it has been asked."""
    mesh, shape = Mesh({"a": 2, "b": 4, "c": 4}), (64, 64, 64)
    tensor = reshard_table(shape, 4, one_part(shape), mesh, ("sum",)).tensor
    _ = ReshardTable(tensor).time  # compiles what it runs
    tracemalloc.start()
    try:
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        table = ReshardTable(tensor)
        asked = [lambda: table.time, lambda: table.moves]
        asked += [lambda goal=goal: table.path(table.layouts[0], goal) for goal in table.layouts]
        for number, ask in enumerate(asked):
            ask()
            if number in (0, 1, 10, len(asked) - 1):
                taken = tracemalloc.get_traced_memory()[0] - before
                assert taken / 3 * 2 <= table.bytes <= 3 * taken
    finally:
        tracemalloc.stop()


def test_a_table_forgets_ways_beyond_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    table = ReshardTable(reshard_table((8, 8), 4, one_part((8, 8)), Mesh({"a": 2, "b": 2}), ("sum",)).tensor)
    paths = {goal: table.path(table.layouts[0], goal) for goal in table.layouts}
    monkeypatch.setattr(reshard, "MOST_RANKS", 3 * len(table.layouts))
    again = ReshardTable(table.tensor)
    for goal, path in paths.items():
        assert again.path(again.layouts[0], goal) == path
        assert again.bytes <= table.bytes
    assert again.bytes < table.bytes


def test_planning_many_models_makes_a_process_no_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of another shape, on three mesh axes, checked, and one op of each asked alone."""
    monkeypatch.setattr(reshard, "_CACHE", reshard._Cache())
    monkeypatch.setattr(reshard, "CACHE_BYTES", FEW // 2)
    mesh, kept = Mesh({"a": 2, "b": 2, "c": 2}, hardware="h100"), []
    tracemalloc.start()
    try:
        for number in range(14):
            assert plan(network(8 * (number + 1)), mesh).check().ok
            layouts = [{"a": Shard(0)}, {"a": Replicate()}]
            infer("matmul", mesh, operands=layouts, shapes=[(8 * (number + 1), 8), (8, 8)])
            if number in (6, 13):
                gc.collect()
                kept.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert kept[1] - kept[0] < FEW
    assert len(reshard._CACHE.tables) < 10
    question = sys.modules["solver.infer"]._question
    assert question.cache_info().currsize == question.cache_info().maxsize < 14


def network(rows: int) -> Graph:
    graph = Graph(f"rows{rows}")
    x = graph.input("x", (rows, 16))
    for layer in range(2):
        product = graph.op("matmul", x, graph.parameter(f"w{layer}", (16, 16)), name=f"h{layer}")
        x = graph.op("relu", product, name=f"x{layer}")
    graph.output(x)
    return graph
