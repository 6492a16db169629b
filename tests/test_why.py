"""Why a tensor lies as it does, and why not otherwise: against the reference, and in words."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ops.placement import Replicate, Shard
from solver import Graph, Mesh, Plan, plan, reference, why
from solver.explanation import Explanation
from solver.plan import SECONDS
from solver.problem import ProblemError
from solver.reference_task import Task
from solver.report.text import headline
from solver.words import duration
from tests.graphs import Case, mlp, random_graphs
from tests.test_constraints import MANY

FEW = settings(MANY, max_examples=40)


def cheapest(case: Case, tensor: str, axis: str, placement: str) -> int | None:
    """Return the least price with one more pin, by the reference."""
    pins = {subject: dict(wish) for subject, wish in (case.pins or {}).items()}
    known = pins.setdefault(tensor, {})
    if str(known.get(axis, placement)) != placement:
        return None
    pins[tensor] = {**known, axis: placement}
    task = Task(case.graph, case.mesh, pins=pins, communication=case.communication, capabilities=case.capabilities)
    found = reference.best(task)
    return None if found is None else found[0]


@FEW
@given(case=random_graphs(max_ops=4, max_axes=2), data=st.data())
def test_why_not_is_priced_as_the_reference_prices_it(case: Case, data: st.DataObject) -> None:
    asked = {"pins": case.pins, "communication": case.communication, "capabilities": case.capabilities}
    found = plan(case.graph, case.mesh, **asked)
    assume(found.status == "optimal")
    tensor = data.draw(st.sampled_from(sorted(case.graph.tensors)))
    axis = data.draw(st.sampled_from(case.mesh.axes))
    placement = data.draw(st.sampled_from(["R", *(f"S({d})" for d in range(len(case.graph.tensors[tensor].shape)))]))
    told = found.why_not(tensor, f"{axis}={placement}")
    least = cheapest(case, tensor, axis, placement)
    if least is None:
        assert told.cost_delta is None
        assert told.text.startswith("No plan has")
        assert all("you pinned" in fact.text or fact.kind != "pin" for fact in told.core)
    else:
        assert found.cost_ps is not None
        assert told.cost_delta == pytest.approx((least - found.cost_ps) / SECONDS)
        assert told.core == ()


def attention() -> Graph:
    g = Graph("attention")
    x = g.input("x", (4096, 4096), dtype="bfloat16")
    up = g.op("matmul", x, g.parameter("w1", (4096, 16384), "bfloat16"), name="up")
    down = g.op("matmul", g.op("relu", up, name="act"), g.parameter("w2", (16384, 4096), "bfloat16"), name="down")
    g.output(g.op("softmax", down, name="prob"))
    return g


@pytest.fixture(scope="module")
def found() -> Plan:
    return plan(attention(), Mesh({"dp": 2, "tp": 4}), pins={"x": "tp=R"})


def test_a_pin_is_named(found: Plan) -> None:
    told = found.why_not("x", {"tp": Shard(1)})
    assert str(told) == (
        "No plan has 'x' at S(1) on tp, since\n  you pinned 'x' to R on tp\n"
        "because, on tp:\n  'x' cannot be R and S(1) at once"
    )
    assert told.minimal


def test_a_rule_is_named(found: Plan) -> None:
    told = found.why_not("prob/x", "tp=S(1)")
    assert str(told) == (
        "No plan has 'prob/x' at S(1) on tp\nbecause, on tp:\n  softmax 'prob' cannot read 'down' as S(1): "
        "it keeps dim 1 of 'down' whole (x[a* c@axis b*] -> out[a* c b*]; whole c)"
    )
    assert [fact.kind for fact in told.support] == ["rule"]
    assert told.core == ()


def test_a_price_is_told_with_what_changes(found: Plan) -> None:
    told = found.why_not("w1", "dp=S(1)")
    assert told.text.splitlines()[0] == (
        "With 'w1' at S(1) on dp the best plan takes 173.6 us, 22.15 us more (+14.6%)."
    )
    assert told.text.splitlines()[1] == "  then all_reduce[dp] of down: 19.64 us"
    assert told.cost_delta == pytest.approx(22.15e-6, rel=1e-3)


def test_the_next_best_is_told(found: Plan) -> None:
    told = found.why("w1")
    assert told.text.startswith("'w1' lies [R, R]. The next best is S(1) on dp: with 'w1' at S(1) on dp the best plan")
    assert found.why("w1").text == told.text


def test_what_leaves_no_other_layout_is_told() -> None:
    bound = plan(mlp(), Mesh({"dp": 2}), pins={"x": "dp=S(0)"})
    told = bound.why("x")
    assert told.text.startswith(
        "'x' lies [S(0)], pinned to S(0) on dp, and no plan has it otherwise, since\n  you pinned"
    )
    assert told.cost_delta is None
    g = Graph("odd")
    g.output(g.op("relu", g.input("x", (3,)), name="y"))
    alone = plan(g, Mesh({"dp": 2}))
    assert alone.why("x").text == "'x' lies [R]: it can lie no other way on this mesh."


def hold_parts(told: Explanation) -> None:
    """What is told in parts adds up to the difference, in JSON and in words."""
    assert told.cost_delta is not None
    written = json.loads(json.dumps(told.to_json()))
    assert sum(part["seconds"] for part in written["parts"]) == pytest.approx(told.cost_delta, abs=1e-14)
    for other in written["alternatives"]:
        if other["cost"] is not None:
            assert sum(part["seconds"] for part in other["parts"]) == pytest.approx(other["cost_delta"], abs=1e-14)


@FEW
@given(case=random_graphs(max_ops=4, max_axes=2), data=st.data())
def test_the_parts_of_a_difference_add_up(case: Case, data: st.DataObject) -> None:
    found = plan(case.graph, case.mesh, pins=case.pins, communication=case.communication)
    assume(found.status == "optimal")
    tensor = data.draw(st.sampled_from(sorted(case.graph.tensors)))
    told = found.why(tensor)
    assert told.lies is not None
    assert dict(told.lies.layout) == {axis: str(placed) for axis, placed in found.layout(tensor).items()}
    if told.cost_delta is not None:
        hold_parts(told)
        best = min(one.cost for one in told.alternatives if one.cost is not None)
        assert found.cost is not None
        assert told.cost_delta == pytest.approx(best - found.cost, abs=1e-14)
    for one in told.alternatives:
        assert (one.status == "infeasible") == one.because.startswith("No plan has ")


def test_why_is_a_choice_with_alternatives(found: Plan) -> None:
    told = found.why("w1")
    hold_parts(told)
    written = told.to_json()
    assert written["choice"] == {
        "subject": "w1",
        "layout": {"dp": "R", "tp": "R"},
        "pinned": {},
        "comes_from": None,
    }
    placements = [one["placement"] for one in written["alternatives"]]
    assert placements == [{"dp": "S(0)"}, {"dp": "S(1)"}, {"tp": "S(0)"}, {"tp": "S(1)"}]
    assert {part["kind"] for part in written["parts"]} <= {"collective", "compute"}
    pinned = found.why("x").to_json()
    assert pinned["choice"]["pinned"] == {"tp": "R"}
    impossible = [one for one in pinned["alternatives"] if one["status"] == "infeasible"]
    assert impossible
    assert all("you pinned 'x' to R on tp" in one["because"] for one in impossible)


def test_compute_that_changes_is_told_beside_collectives(found: Plan) -> None:
    told = found.why_not("prob/x", "dp=R,tp=R")
    hold_parts(told)
    (compute,) = [part for part in told.parts if part.kind == "compute"]
    assert f"  more compute: {duration(round(compute.seconds * SECONDS))}" in told.text.splitlines()
    assert told.lies is not None
    (only,) = told.alternatives
    assert only.placement == {"dp": "R", "tp": "R"}
    assert only.cost_delta == told.cost_delta


def test_the_pin_that_a_cut_comes_from_is_in_the_json() -> None:
    g = Graph("through")
    g.output(g.op("exp", g.op("relu", g.input("x", (4096, 4096)), name="y"), name="z"))
    assert plan(g, Mesh({"tp": 4}), pins={"x": "tp=S(1)"}).why("z").to_json()["choice"]["comes_from"] == "x:tp=S(1)"


def test_where_it_lies_already_is_said_so(found: Plan) -> None:
    for tensor in ("x", "w1"):
        told = found.why_not(tensor, "tp=R")
        assert told.text.startswith(f"With {tensor!r} at R on tp, where it lies already, the best plan takes ")
        assert told.cost_delta == 0


def test_there_must_be_a_plan(found: Plan) -> None:
    nothing = replace(found, status="unknown", choice=None)
    for ask in (lambda: nothing.why("x"), lambda: nothing.why_not("x", {"tp": Replicate()})):
        with pytest.raises(ProblemError, match="there is no plan to ask: the status is unknown"):
            ask()
    with pytest.raises(ProblemError, match="there is no tensor 'z'"):
        found.why("z")
    with pytest.raises(ProblemError, match="pin on 'z' names no tensor"):
        found.why_not("z", "tp=R")


def test_a_use_is_asked_as_a_tensor_is(found: Plan) -> None:
    assert found.why("prob/x").text.startswith("'prob/x' needs [S(0), S(0)]. The next best is ")


def test_an_output_that_may_leave_partial_is_told(found: Plan) -> None:
    told = found.why_not("prob", "tp=P(sum)")
    assert told.text.endswith("'prob' may then leave unreduced, which it may not otherwise")


def test_a_pin_on_another_axis_is_told(found: Plan) -> None:
    told = found.why("x").text
    assert told.startswith("'x' lies [S(0), R], pinned to R on tp. The next best is R on dp")
    assert told.splitlines()[-2:] == [
        "2 other placements are impossible.",
        "It comes from no pin on another tensor: it is what costs least.",
    ]


def test_the_pin_that_a_cut_comes_from_is_told() -> None:
    g = Graph("through")
    x = g.input("x", (4096, 4096))
    g.output(g.op("exp", g.op("relu", x, name="y"), name="z"))
    found = plan(g, Mesh({"tp": 4}), pins={"x": "tp=S(1)"})
    assert found.why("z").text.splitlines()[-1] == ("It comes from the pin x:tp=S(1): without it 'z' would lie [S(0)].")


def test_a_capability_that_would_allow_it_is_told() -> None:
    g = Graph("lookup")
    ids, table = g.input("ids", (64,), dtype="int64"), g.parameter("table", (512, 64))
    g.output(g.op("embedding", ids, table, name="y"))
    found = plan(g, Mesh({"tp": 2}), capabilities=frozenset())
    told = found.why_not("y/weight", "tp=S(0)")
    assert told.text.splitlines()[2].startswith(
        "  embedding 'y' cannot read 'table' as S(0): cutting dim 0 of 'table' needs the capability masked_lookup, "
        "which is not granted ("
    )
    (repair,) = told.repairs
    assert repair.change == {"capabilities": ["masked_lookup"]}
    better = plan(g, Mesh({"tp": 2}), pins={"y/weight": "tp=S(0)"})
    assert repair.cost == better.cost
    assert told.text.splitlines()[3].startswith("With the capability masked_lookup it is possible: ")


def test_what_was_not_settled_is_not_called_impossible_nor_out_of_time(
    found: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search may end with neither a plan nor a proof, whatever the time."""
    monkeypatch.setattr(why, "plan_problem", lambda asked, seconds: Plan(asked, "unknown"))
    assert headline(Plan(found.problem, "unknown")).endswith(
        "unknown: neither a plan nor a proof that there is none was found"
    )
    told = found.why("x")
    assert not told.minimal
    assert "no plan has it otherwise" not in told.text
    assert "Whether it could lie otherwise is not settled." in told.text
    assert "Neither a plan nor a proof that there is none was found with R on dp" in told.text


@pytest.mark.parametrize("timeout", ["x", None, -1])
def test_a_time_that_is_none_is_refused(found: Plan, timeout: Any) -> None:
    for ask in (lambda: found.why("x", timeout), lambda: found.why_not("x", "tp=S(0)", timeout)):
        with pytest.raises(ProblemError, match=f"timeout={timeout!r}: give seconds, a number from 0 up"):
            ask()
