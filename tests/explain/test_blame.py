"""What is to blame beside a budget: no member of a core that is called minimal can be spared."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest

from solver import Graph, Mesh, plan, planner
from solver.constraints.policy import traffic
from solver.explain.blame import binding, blamed
from solver.explanation import Explanation, Fact
from solver.problem import Problem, problem

MESH = Mesh({"tp": 4})
PLACEMENTS = ("S(0)", "S(1)", "R")
SEEDS = [seed for seed in range(24) if seed not in (5, 11, 23)]
"""Of random cases without a plan; the others have one."""


def deep(blocks: int, rows: int = 30) -> Graph:
    """Residual blocks of two products."""
    g = Graph("deep")
    x = g.input("x", (rows, 64))
    for i in range(blocks):
        up = g.op("matmul", x, g.parameter(f"l{i}.up", (64, 256)), name=f"u{i}")
        down = g.op("matmul", g.op("gelu", up, name=f"g{i}"), g.parameter(f"l{i}.down", (256, 64)), name=f"d{i}")
        x = g.op("add", x, down, name=f"h{i}")
    g.output(x)
    return g


def status_with(graph: Graph, facts: Sequence[Fact], memory: int, most: int) -> str:
    """Plan with nothing but some facts of a core."""
    pins = {fact.subject: fact.source.rsplit(":", 1)[1] for fact in facts if fact.kind == "pin"}
    kinds = {fact.kind for fact in facts}
    wished: dict[str, Any] = {"memory": memory} if "budget" in kinds else {}
    policy = (traffic("tp", most),) if "policy" in kinds else ()
    return plan(graph, MESH, pins=pins, policy=policy, **wished).status


def test_a_pin_on_many_tensors_is_to_blame_for_no_more_than_it_needs() -> None:
    graph = deep(4)
    refused = plan(graph, MESH, pins={"*.up": "tp=S(1)", "*.down": "tp=S(0)"}, policy=(traffic("tp", 1000),))
    assert refused.explanation is not None
    told = refused.explanation
    assert told.minimal
    assert [fact.kind for fact in told.core] == ["pin", "policy"]
    assert status_with(graph, told.core, 0, 1000) == "infeasible"
    assert all(status_with(graph, [fact], 0, 1000) == "optimal" for fact in told.core)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_member_of_a_minimal_core_dropped_alone_gives_a_plan(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At both budgets, at one of traffic, at one of memory; with time enough, however slow the machine is."""
    monkeypatch.setattr(planner, "EXPLAINING", (20.0, 20.0))
    draw = random.Random(seed)
    graph = deep(1 + seed % 2 if seed % 3 == 1 else 1, draw.choice((30, 32)))
    pins = {name: f"tp={draw.choice(PLACEMENTS)}" for name in ("*.up", "*.down", "h*")}
    memory, most = draw.choice((60_000, 90_000, 120_000)), draw.choice((0, 1000, 6000))
    budgets: list[dict[str, Any]] = [{"policy": (traffic("tp", most),)}, {"memory": memory}]
    refused = plan(graph, MESH, pins=pins, **({**budgets[0], **budgets[1]}, *budgets)[seed % 3])
    assert refused.status == "infeasible"
    assert refused.explanation is not None
    told = refused.explanation
    assert told.minimal
    assert status_with(graph, told.core, memory, most) == "infeasible"
    for fact in told.core:
        rest = [other for other in told.core if other != fact]
        assert status_with(graph, rest, memory, most) in ("optimal", "feasible"), fact


def named(asked: Problem) -> set[str]:
    return {pin.subject for pin in asked.pins}


@pytest.mark.parametrize("seed", range(20))
def test_what_is_left_is_one_irreducible_set_of_several(seed: int) -> None:
    """Which sets of pins exceed the budget is drawn: those that hold one of some sets."""
    draw = random.Random(seed)
    asked = problem(deep(4), MESH, pins={"*.up": "tp=S(1)", "*.down": "tp=S(0)", "h0": "tp=R"})
    subjects = sorted(named(asked))
    cores = [set(draw.sample(subjects, draw.randint(1, 4))) for _ in range(3)]
    to_blame = blamed(asked, lambda fewer: any(core <= named(fewer) for core in cores), 60.0)
    left = {fact.subject for fact in to_blame.facts}
    assert left in cores
    assert not any(core < left for core in cores)
    assert to_blame.proved
    assert {fact.source for fact in to_blame.facts} == {wish.written for wish in to_blame.wishes}


@pytest.mark.parametrize(("seconds", "answer"), list(product((0.0, 60.0), (None, False))))
def test_what_was_not_planned_without_is_not_called_minimal(seconds: float, answer: bool | None) -> None:
    """There was no time, or the plans found leave it open."""
    asked = problem(deep(2), MESH, pins={"*.up": "tp=S(1)", "h0": "tp=R"})
    to_blame = blamed(asked, lambda fewer: answer, seconds)
    assert to_blame.facts == tuple(fact for wish in binding(asked) for fact in wish.facts)
    assert to_blame.proved == (seconds > 0 and answer is False)
    told = str(Explanation(to_blame.facts, (), to_blame.proved))
    assert ("drop any one of them" in told) == to_blame.proved
    assert ("hint: drop some of them" in told) == (not to_blame.proved)
