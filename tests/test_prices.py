"""What each wish costs: the same as planning again without it, in time and in bytes."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import z3

from solver import Graph, Mesh, Plan, plan, sharded
from solver.advice import explain_plan
from solver.cli import main
from solver.constraints.expression import read_expressions
from solver.constraints.policy import batch_stays, forbid, no_communication, traffic, zero
from solver.explanation import Explanation, Finding
from tests.steps import linear_step

MESH = Mesh({"dp": 2, "tp": 4, "pp": 1})


def mlp() -> Graph:
    g = Graph("mlp")
    x = g.input("x", (512, 1024), dtype="bfloat16")
    up = g.op("matmul", x, g.parameter("w1", (1024, 4096), "bfloat16"), name="up")
    g.output(g.op("matmul", g.op("relu", up, name="act"), g.parameter("w2", (4096, 1024), "bfloat16"), name="down"))
    return g


DEAR = z3.Not(sharded("x", 0, "dp"))
IDLE = sharded("w1", 0, "pp")
DEAR_TEXT, IDLE_TEXT = (one.text for one in read_expressions([DEAR, IDLE]))
ASKED: dict[str, Any] = {
    "pins": {"w*": "tp=S(1)", "x": "tp=R,pp=R"},
    "policy": (forbid("all_to_all"), batch_stays("pp"), no_communication("dp", "up")),
    "constraints": (DEAR, IDLE),
}
DROPPED: dict[str, dict[str, Any]] = {
    "w*:tp=S(1)": {"pins": {"x": "tp=R,pp=R"}},
    "x:tp=R": {"pins": {"w*": "tp=S(1)", "x": "pp=R"}},
    "x:pp=R": {"pins": {"w*": "tp=S(1)", "x": "tp=R"}},
    "forbid('all_to_all')": {"policy": ASKED["policy"][1:]},
    "batch_stays('pp')": {"policy": (ASKED["policy"][0], ASKED["policy"][2])},
    "no_communication('dp', 'up')": {"policy": ASKED["policy"][:2]},
    DEAR_TEXT: {"constraints": (IDLE,)},
    IDLE_TEXT: {"constraints": (DEAR,)},
}
"""What a wish is called, and the same question without it."""


@cache
def priced() -> tuple[Plan, Explanation]:
    found = plan(mlp(), MESH, **ASKED)
    assert found.status == "optimal"
    return found, explain_plan(found, 60.0)


def wishes(told: Explanation) -> dict[str, Finding]:
    return {one.subject: one for one in told.findings if one.kind == "wish"}


def test_every_wish_is_priced_and_no_other() -> None:
    assert wishes(priced()[1]).keys() == DROPPED.keys()


@pytest.mark.parametrize("source", DROPPED)
def test_a_wish_costs_what_planning_without_it_saves(source: str) -> None:
    found, told = priced()
    finding = wishes(told)[source]
    less = plan(mlp(), MESH, **{**ASKED, **DROPPED[source]})
    assert less.status == "optimal"
    assert found.cost is not None
    assert less.cost is not None
    assert finding.seconds == pytest.approx(found.cost - less.cost, abs=1e-12)
    assert finding.within == (finding.seconds, finding.seconds)
    if found.cost != less.cost:
        assert finding.bytes == found.memory.peak - less.memory.peak
    assert ("has no effect" in finding.text or "costs nothing" in finding.text) == (found.cost == less.cost)


def test_what_speaks_of_a_mesh_axis_of_size_1_has_no_effect_and_is_told_so() -> None:
    of = wishes(priced()[1])
    for source in ("x:pp=R", "batch_stays('pp')"):
        assert of[source].text.endswith(f"{source} has no effect: pp is a mesh axis of size 1")
    assert of[IDLE_TEXT].text == f"the constraint {IDLE_TEXT} has no effect: pp is a mesh axis of size 1"
    assert of["batch_stays('pp')"].text in priced()[1].text


def test_a_memory_budget_is_priced_with_the_bytes_that_it_saves() -> None:
    free = plan(mlp(), MESH)
    tight = plan(mlp(), MESH, memory=free.memory.peak * 7 // 10)
    assert tight.choice is not None
    assert tight.cost is not None
    assert free.cost is not None
    (finding,) = wishes(explain_plan(tight, 60.0)).values()
    assert finding.text.startswith("the memory budget of ")
    assert finding.change == {"memory": None}
    assert finding.bytes == tight.memory.peak - free.memory.peak < 0
    assert finding.within is not None
    low, high = finding.within
    assert low <= tight.cost - free.cost <= high
    assert "higher" in finding.text
    roomy = plan(mlp(), MESH, memory=2 * free.memory.peak)
    (finding,) = wishes(explain_plan(roomy, 60.0)).values()
    assert finding.text.endswith("has no effect: this plan is the best without it, too")


def test_a_budget_of_traffic_is_priced_as_far_as_it_is_proved() -> None:
    free = plan(mlp(), MESH, pins={"w*": "tp=S(1)"})
    within = plan(mlp(), MESH, pins={"w*": "tp=S(1)"}, policy=(traffic("tp", free.evaluation.sent_over(1) * 3 // 4),))
    assert within.choice is not None
    assert within.cost is not None
    assert free.cost is not None
    finding = wishes(explain_plan(within, 60.0))[str(within.problem.budget)]
    assert finding.within is not None
    low, high = finding.within
    assert low <= within.cost - free.cost + 1e-12
    assert high == pytest.approx(within.cost - free.cost)
    if low < high:
        assert finding.seconds is None
        assert " at most " in finding.text or " from " in finding.text


def test_a_policy_that_lets_ties_go_saves_time() -> None:
    step = linear_step("adamw", batch=64)
    found = plan(step, Mesh({"dp": 4}), policy=(zero(1, "dp"),))
    tied = plan(step, Mesh({"dp": 4}))
    (finding,) = wishes(explain_plan(found, 60.0)).values()
    assert found.cost is not None
    assert tied.cost is not None
    assert found.cost < tied.cost
    assert finding.seconds == pytest.approx(found.cost - tied.cost, abs=1e-15)
    assert "zero(1, 'dp') saves 164 ps" in finding.text


def test_a_pin_without_which_there_is_no_plan_is_needed() -> None:
    """A pin on P lets an output leave so; without it nothing may leave a device."""
    g = Graph("row")
    g.output(g.op("matmul", g.input("x", (8, 8)), g.parameter("w", (8, 8)), name="y"))
    found = plan(g, Mesh({"tp": 2}), pins={"x": "tp=S(1)", "y": "tp=P(sum)"}, communication="none")
    assert wishes(explain_plan(found, 60.0))["y:tp=P(sum)"].text == (
        "the pin y:tp=P(sum) is needed: without it there is no plan"
    )


def test_beside_communication_first_it_is_communication_that_a_wish_costs() -> None:
    found = plan(mlp(), Mesh({"tp": 4}), pins={"w*": "tp=S(1)", "down": "tp=R"}, objective="communication")
    free = plan(mlp(), Mesh({"tp": 4}), pins={"w*": "tp=S(1)"}, objective="communication")
    told = explain_plan(found, 60.0)
    assert "of which it communicates for" in told.text.splitlines()[0]
    finding = wishes(told)["down:tp=R"]
    assert found.cost is not None
    assert free.cost is not None
    assert finding.seconds == pytest.approx(found.cost - free.cost)
    assert " of communication" in finding.text


def test_a_plan_with_a_gap_gives_prices_with_bounds() -> None:
    found, _ = priced()
    loose = replace(found, status="feasible", bound_ps=0, solver_bound_ps=0)
    for finding in wishes(explain_plan(loose, 60.0)).values():
        if finding.within != (0, 0):
            assert finding.seconds is None
            assert "costs at most" in finding.text


def test_the_command_tells_them_as_json(tmp_path: Path) -> None:
    model, out = tmp_path / "mlp.json", tmp_path / "told.json"
    model.write_text(json.dumps(mlp().to_json()), encoding="utf-8")
    asked = ["--mesh", "dp=2,tp=4", "--pin", "w*:tp=S(1)", "--policy", "forbid(all_to_all)", "--memory", "1GB"]
    assert main(["explain", str(model), *asked, "--constraint", "(sharded x 0 dp)", "--json", str(out)]) == 0
    told = {one["subject"]: one for one in json.loads(out.read_text(encoding="utf-8"))["findings"]}
    changes = {
        "w*:tp=S(1)": {"drop": ["w*:tp=S(1)"]},
        "forbid('all_to_all')": {"drop_policy": ["forbid('all_to_all')"]},
        "memory=1000000000": {"memory": None},
        "(sharded x 0 dp)": {"drop_constraint": ["(sharded x 0 dp)"]},
    }
    for source, change in changes.items():
        assert told[source]["change"] == change
        assert told[source]["within"] is not None
