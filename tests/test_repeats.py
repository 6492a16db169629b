"""Ops that repeat others: the same layouts, mesh axis by mesh axis, and nothing cheaper than that allows."""

from __future__ import annotations

import pytest

from ops.placement import Shard
from solver import Graph, Mesh, Plan, plan, reference
from solver.graph import GraphError
from solver.reference_task import Task
from tests.graphs import HARDWARE


def stack(trips: int, repeating: bool) -> Graph:
    """A loop by hand: each trip multiplies by a weight of its own, of which only the second may not be cut."""
    g = Graph("stack")
    x = g.input("x", (4, 4))
    for trip in range(trips):
        x = g.op("matmul", x, g.parameter(f"w{trip}", (4, 4)), name=f"up{trip}")
        x = g.op("relu", x, name=f"act{trip}")
        if repeating and trip:
            g.repeat(f"up{trip}", "up0")
            g.repeat(f"act{trip}", "act0")
    g.output(x)
    return g


PINS = {"x": "tp=R", "w0": "tp=S(1)", "w1": "tp=R"}
MESH = Mesh({"tp": 2}, hardware=HARDWARE["compute"])


def layouts(found: Plan, trip: int) -> list[object]:
    places = [found.needed(f"up{trip}/x"), found.needed(f"up{trip}/y"), found.made(f"up{trip}")]
    return [*places, found.needed(f"act{trip}/x"), found.made(f"act{trip}")]


def test_trips_lie_alike() -> None:
    free, bound = plan(stack(3, False), MESH, pins=PINS), plan(stack(3, True), MESH, pins=PINS)
    assert layouts(bound, 0) == layouts(bound, 1) == layouts(bound, 2)
    assert free.cost_ps is not None
    assert bound.cost_ps is not None
    assert free.cost_ps < bound.cost_ps
    assert layouts(free, 0) != layouts(free, 1)
    for found, graph in ((free, stack(3, False)), (bound, stack(3, True))):
        best = reference.best(Task(graph, MESH, pins=PINS))
        assert best is not None
        assert best[0] == found.cost_ps == found.bound_ps
        assert found.check().ok
        assert found.simulate().ok


def test_the_reference_enumerates_what_it_finds_best() -> None:
    graph = Graph("two")
    x = graph.input("x", (2,))
    graph.output(graph.op("relu", x, name="first"))
    graph.output(graph.op("relu", graph.input("y", (2,)), name="second"))
    graph.repeat("second", "first")
    pins = {"x": "tp=S(0)", "y": "tp=R", "second": "tp=R"}
    every = [reference.price(one).time for one in reference.plans(Task(graph, MESH, pins=pins))]
    best = reference.best(Task(graph, MESH, pins=pins))
    assert best is not None
    assert min(every) == best[0]


def test_what_the_repeats_rule_out_is_told() -> None:
    pins = {"up0/x": "tp=S(0)", "up1/x": "tp=S(1)"}
    found = plan(stack(2, True), MESH, pins=pins)
    assert found.status == "infeasible"
    assert found.explanation is not None
    assert {fact.subject for fact in found.explanation.core} == {"up0/x", "up1/x"}
    assert "'up1' lies as 'up0', which it repeats" in found.explanation.story


def test_a_plan_that_breaks_a_repeat_is_refused() -> None:
    free = plan(stack(2, False), MESH, pins=PINS)
    asked = plan(stack(2, True), MESH, pins=PINS)
    broken = Plan(asked.problem, "feasible", free.choice, {"bits": 0, "arrays": [], "tree": {"unproved": True}})
    assert "'up1' does not lie as 'up0', which it repeats" in broken.check().findings


def test_parts_are_shared_by_what_repeats() -> None:
    g = Graph("parts")
    x, y = g.input("x", (2, 2, 4)), g.input("y", (4, 4))
    first = g.op("relu", y, name="plain")
    second = g.op("relu", g.op("reshape", x, shape=[4, 4]), name="split")
    g.output(first, second)
    g.repeat("split", "plain")
    found = plan(g, Mesh({"dp": 2, "tp": 2}), pins={"x": "dp=S(0),tp=S(1)", "split/x": {"tp": Shard(0, part=1)}})
    assert found.status == "optimal"
    assert found.needed("plain/x") == found.needed("split/x")
    assert found.problem.parts("y") == ((2, 2), (4,))
    assert found.check().ok


@pytest.mark.parametrize(
    ("node", "of", "message"),
    [
        ("act0", "act0", "would go round in a circle, 'act0' -> 'act0'"),
        ("act1", "nobody", "has no op 'nobody'"),
        ("act1", "up0", "one is relu and the other matmul"),
        ("wide", "up0", "they differ in operands, shapes, dtypes or in the ways they may be cut"),
    ],
)
def test_what_cannot_repeat_is_refused(node: str, of: str, message: str) -> None:
    g = stack(2, False)
    g.op("matmul", g.tensors["act1"], g.parameter("w", (4, 8)), name="wide")
    with pytest.raises(GraphError, match=message):
        g.repeat(node, of)


def test_an_op_repeats_one_only_and_no_later_one() -> None:
    g = stack(3, False)
    g.repeat("act1", "act0")
    with pytest.raises(GraphError, match="'act1' repeats 'act0' already"):
        g.repeat("act1", "act2")
    g.repeat("up0", "up1")
    with pytest.raises(GraphError, match="op 'up0' repeats 'up1', which comes later"):
        plan(g, MESH)


def test_repeats_are_kept_in_json() -> None:
    g = stack(2, True)
    again = Graph.from_json(g.to_json())
    assert again.repeats == {"up1": "up0", "act1": "act0"}
    assert again.to_json() == g.to_json()
