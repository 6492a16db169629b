"""Repairs: each one, applied to what was asked, has a plan at the price told, and gives up no more than it must."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Sequence
from itertools import chain, repeat
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import assume, given, settings

from ops.placement import Replicate, Shard
from solver import Graph, Mesh, Plan, plan
from solver.constraints.policy import batch_stays
from solver.constraints.reason import Reason
from solver.deadline import OutOfTimeError, ending_when, leaving_at
from solver.explain.core import find_core
from solver.explain.correction import Feasible, corrections
from solver.explanation import Repair
from solver.problem import DEFAULT_CAPABILITIES, problem
from tests.graphs import Case, mlp
from tests.padded_json import with_padding
from tests.test_constraints import MANY, demanding

FEW = settings(MANY, max_examples=20)


def repaired(case: Case, repair: Repair, keep: str = "", memory: int | None = None) -> Plan:
    """Plan again with a repair, given as a program would read it; keep one of the pins that it drops."""
    change: dict[str, Any] = json.loads(json.dumps(repair.to_json()))["change"]
    dropped = [pin for pin in change.get("drop", []) if pin != keep]
    pins: dict[str, dict[str, Any]] = {}
    for subject, wish in (case.pins or {}).items():
        left = {axis: placed for axis, placed in wish.items() if f"{subject}:{axis}={placed}" not in dropped}
        if left:
            pins[subject] = left
    for pin in change.get("pin", []):
        subject, _, placed = pin.rpartition(":")
        axis, _, placement = placed.partition("=")
        pins.setdefault(subject, {})[axis] = placement
    axes = change.get("mesh") or dict(zip(case.mesh.axes, case.mesh.sizes, strict=True))
    mesh = Mesh(axes, hardware=case.mesh.hardware)
    granted = DEFAULT_CAPABILITIES | set(change.get("capabilities", []))
    communication = change.get("communication", case.communication)
    pad = change.get("pad")
    graph = case.graph if pad is None else with_padding(case.graph, pad)
    return plan(graph, mesh, pins=pins, communication=communication, capabilities=granted, memory=memory)


@FEW
@given(case=demanding())
def test_a_repair_holds_at_its_price_and_gives_up_no_more_than_it_must(case: Case) -> None:
    found = plan(case.graph, case.mesh, pins=case.pins, communication=case.communication)
    assume(found.status == "infeasible")
    assert found.explanation is not None
    repairs = found.explanation.repairs
    assert repairs or not found.explanation.core
    costs = [repair.cost for repair in repairs]
    assert costs == sorted(costs, key=lambda cost: (cost is None, cost))
    for repair in repairs:
        again = repaired(case, repair)
        assert again.status == "optimal"
        assert repair.proved
        assert (again.cost, again.memory.peak) == (repair.cost, repair.memory)
        if "communication" not in repair.change:
            for pin in repair.change.get("drop", []):
                assert repaired(case, repair, keep=pin).status == "infeasible"


def heads(count: int) -> Graph:
    g = Graph("heads")
    x = g.input("x", (2, count, 6))
    g.output(g.op("softmax", x, axis=-1, name="y"))
    return g


def test_a_mesh_axis_that_divides_is_proposed() -> None:
    found = plan(heads(4), Mesh({"dp": 2, "tp": 8}), pins={"x": "tp=S(1)"})
    assert found.explanation is not None
    told = [repair.text for repair in found.explanation.repairs]
    assert sorted(told) == [
        "drop the pin x:tp=S(1)",
        "mesh dp 2 -> 4, tp 8 -> 4",
        "mesh tp 8 -> 4",
        "pad dim 1 of 'x' from 4 to 8, with it dim 1 of 'y'",
    ]
    meshes = [repair.change["mesh"] for repair in found.explanation.repairs if "mesh" in repair.change]
    assert {"dp": 2, "tp": 4} in meshes
    assert "There is a plan after one of these, cheapest first:" in str(found)


def test_the_nearest_sizes_of_a_mesh_axis_are_proposed_and_not_size_1() -> None:
    found = plan(heads(8), Mesh({"dp": 3, "tp": 2}), policy=batch_stays("dp", "x", dim=1))
    assert found.explanation is not None
    repairs = [repair for repair in found.explanation.repairs if "mesh" in repair.change]
    assert [repair.change["mesh"] for repair in repairs] == [{"dp": 4, "tp": 2}, {"dp": 2, "tp": 2}]
    assert [repair.text for repair in repairs] == ["mesh dp 3 -> 4", "mesh dp 3 -> 2"]
    for repair in repairs:
        again = plan(heads(8), Mesh(repair.change["mesh"]), policy=batch_stays("dp", "x", dim=1))
        assert again.cost == repair.cost


def test_a_mesh_axis_is_given_up_where_no_other_size_has_a_plan() -> None:
    found = plan(heads(7), Mesh({"dp": 2, "tp": 3}), pins={"x": "tp=S(1)"})
    assert found.explanation is not None
    meshes = [repair.change["mesh"] for repair in found.explanation.repairs if "mesh" in repair.change]
    assert sorted(mesh["tp"] for mesh in meshes) == [1, 1]


def test_a_capability_that_helps_is_proposed() -> None:
    g = Graph("lookup")
    ids, table = g.input("ids", (4,), dtype="int64"), g.parameter("table", (8, 6))
    g.output(g.op("embedding", ids, table, name="y"))
    wish = {"table": "tp=S(0)", "y/weight": "tp=S(0)", "y": "tp=P(sum)"}
    found = plan(g, Mesh({"tp": 2}), pins=wish, capabilities=frozenset())
    assert found.status == "infeasible"
    assert found.explanation is not None
    granted = [repair for repair in found.explanation.repairs if "capabilities" in repair.change]
    assert [repair.change["capabilities"] for repair in granted] == [["masked_lookup"]]
    again = plan(g, Mesh({"tp": 2}), pins=wish, capabilities=frozenset({"masked_lookup"}))
    assert again.cost == granted[0].cost


def test_leaving_unreduced_is_proposed() -> None:
    g = Graph("row")
    g.output(g.op("matmul", g.input("x", (8, 8)), g.parameter("w", (8, 8)), name="y"))
    case = Case(g, Mesh({"tp": 2}), {"x": {"tp": Shard(1)}}, communication="none")
    found = plan(g, case.mesh, pins=case.pins, communication="none")
    assert found.explanation is not None
    (repair,) = [one for one in found.explanation.repairs if "pin" in one.change]
    assert repair.text == "let 'y' leave unreduced: pin y:tp=P(sum)"
    assert repaired(case, repair).cost == repair.cost


def test_results_that_have_to_leave_unreduced_together_are_proposed_together() -> None:
    g = Graph("fused")
    made = g.op("matmul", g.input("x", (8, 16)), g.parameter("w", (16, 48)), name="made")
    for part in g.op("split", made, num_or_sections=3, axis=1, name="parts"):
        g.output(part)
    case = Case(g, Mesh({"tp": 4}), {"w": {"tp": Shard(1)}, "x": {"tp": Replicate()}}, communication="none")
    found = plan(g, case.mesh, pins=case.pins, communication="none")
    assert found.explanation is not None
    (repair,) = [one for one in found.explanation.repairs if "pin" in one.change]
    assert repair.change["pin"] == [f"parts.out.{i}:tp=P(sum)" for i in range(3)]
    assert repaired(case, repair).cost == repair.cost


def test_without_time_repairs_are_told_without_a_price(monkeypatch: pytest.MonkeyPatch) -> None:
    assert str(Repair("drop the pin x:dp=R", {})) == "drop the pin x:dp=R: there is a plan, not priced"
    monkeypatch.setattr("solver.planner.EXPLAINING", (0.0, 0.0))
    found = plan(mlp(), Mesh({"dp": 3}), pins={"x": "dp=S(0)"}, timeout=0.5)
    assert found.explanation is not None
    assert all(repair.cost is None for repair in found.explanation.repairs)


@pytest.mark.parametrize("memory", [None, 9_000])
def test_beside_communication_first_a_repair_is_priced_by_the_time_of_its_plan(memory: int | None) -> None:
    g = Graph("m2")
    x = g.input("x", (12, 60))
    up = g.op("matmul", x, g.parameter("w1", (60, 212)), name="up")
    g.output(g.op("matmul", g.op("relu", up, name="act"), g.parameter("w2", (212, 60)), name="down"))
    pins = {"w1": "tp=S(1)", "act/x": "tp=R"} if memory is None else {}
    asked = {"pins": pins, "communication": "frozen", "objective": "communication", "memory": memory}
    refused = plan(g, Mesh({"tp": 4}), **asked)
    assert refused.status == "infeasible"
    assert refused.explanation is not None
    told = refused.explanation.repairs
    assert told
    for repair in told:
        change = dict(repair.change)
        change.pop("bound", None)
        dropped = change.pop("drop", [])
        left = {name: wish for name, wish in pins.items() if f"{name}:{wish}" not in dropped}
        mended = plan(g, Mesh({"tp": 4}), **{**asked, "pins": left, **change})
        assert mended.evaluation.total > 0
        assert repair.cost is not None
        if repair.proved:
            assert repair.cost == pytest.approx(mended.evaluation.total / 10**12), repair
        assert repair.cost > 0


def test_where_no_repair_is_found_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("solver.planner.EXPLAINING", (0.0, 0.0))
    asked = {"pins": {"x": "dp=S(0)", "x*": "dp=R"}, "memory": 100}
    told = plan(mlp(), Mesh({"dp": 2}), **asked, timeout=0.5).explanation
    assert told is not None
    assert not told.repairs
    assert told.unrepaired.startswith("No repair was found")
    assert str(told).endswith(told.unrepaired)
    assert told.to_json()["unrepaired"] == told.unrepaired


class Ending(Feasible):
    """Out of time after some questions, as propagation is that looks at the clock."""

    left = 1000

    def __call__(self, wishes: Collection[Reason] | None = None, seconds: float = 1.0) -> bool | None:
        self.left -= 1
        if self.left < 0:
            raise OutOfTimeError
        return super().__call__(wishes, seconds)


def given_up(core: Sequence[Reason], feasible: Feasible, deadline: float) -> list[tuple[Reason, ...]]:
    """Collect what may be given up, until there is no time left."""
    found = []
    with leaving_at(deadline):
        for one in corrections(core, feasible, deadline):
            found.append(one)
    return found


def test_out_of_time_the_sets_of_wishes_found_so_far_are_known() -> None:
    asked = problem(mlp(), Mesh({"dp": 2}), pins={"x": "dp=S(0)", "x*": "dp=R"})
    core, feasible, late = find_core(asked).chosen, Ending(asked), time.monotonic() + 1000
    every = given_up(core, feasible, late)
    assert len(every) == 2
    told = []
    for asks in range(1000 - feasible.left + 1):
        feasible.left = asks
        told.append(given_up(core, feasible, late))
    assert [len(found) for found in told] == sorted(len(found) for found in told)
    assert every[:1] in told
    assert (told[0], told[-1]) == ([], every)
    assert given_up(core, Feasible(asked), time.monotonic() - 1) == []


def test_what_follows_from_some_wishes_is_not_looked_at_longer_than_there_is_time() -> None:
    asked = problem(mlp(), Mesh({"dp": 2}), pins={"x": "dp=S(0)"})
    feasible = Feasible(asked)
    assert feasible()
    for look in (feasible, lambda: Feasible(asked)):
        with ending_when(lambda: True), pytest.raises(OutOfTimeError):
            look()
    with ending_when(lambda: True), ending_when(lambda: False), pytest.raises(OutOfTimeError):
        feasible()


def test_where_the_time_for_repairs_ends_those_found_are_told_and_that_there_may_be_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = {"pins": {"x": "dp=S(0)", "x*": "dp=R"}}
    whole = plan(mlp(), Mesh({"dp": 2}), **asked).explanation
    assert whole is not None
    assert not whole.unrepaired
    now = time.monotonic()
    clock = chain([now], repeat(now + 1000))
    monkeypatch.setattr("solver.repairs.time", SimpleNamespace(monotonic=lambda: next(clock)))
    told = plan(mlp(), Mesh({"dp": 2}), **asked).explanation
    assert told is not None
    assert {one.text for one in told.repairs} <= {one.text for one in whole.repairs}
    assert [one.cost for one in told.repairs] == [None, None]
    assert told.unrepaired == "There may be other repairs: there was no time to look for all."
    assert str(told).endswith(told.unrepaired)


def test_the_caller_hears_of_the_stages_of_an_explanation_and_may_stop_them() -> None:
    heard: list[str] = []

    def stop(name: str, state: Any) -> bool:
        heard.append(name)
        return name == "repairs"

    told = plan(mlp(), Mesh({"dp": 2}), pins={"x": "dp=S(0)", "x*": "dp=R"}, progress=stop).explanation
    assert told is not None
    assert len(told.core) == 2
    assert heard.count("repairs") > 1
    assert told.unrepaired == "No repair was found in the time there was."


@settings(MANY, max_examples=15)
@given(case=demanding())
def test_beside_a_budget_that_no_plan_keeps_to_every_repair_allows_more(case: Case) -> None:
    """What must be given up is found without the budget; then the least that its plans fill is allowed, too."""
    free = plan(case.graph, case.mesh, pins=case.pins, communication=case.communication)
    assume(free.status == "infeasible")
    assert free.explanation is not None
    tight = plan(case.graph, case.mesh, pins=case.pins, communication=case.communication, memory=1).explanation
    assert tight is not None
    assert len(tight.repairs) == len(free.explanation.repairs)
    for repair in tight.repairs:
        assert repair.memory == repair.change["memory"] >= repair.change["bound"] > 1
        again = repaired(case, repair, memory=repair.change["memory"])
        assert again.choice is not None
        assert again.memory.peak <= repair.memory
        if again.status == "optimal":
            assert repair.cost is not None
            assert again.cost is not None
            assert again.cost <= repair.cost
