"""The planner against the reference: the same optimum, the same verdict, a certified bound, and a run that is right."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from benchmarks.models import gpt
from solver import Mesh, plan, reference
from solver.cost.collectives import PriceError
from solver.deadline import OutOfTimeError
from solver.graph import Graph
from solver.plan import Plan
from solver.plan_json import parse
from solver.reference_task import Task
from solver.search.limits import Progress
from solver.verify import verify
from tests.graphs import Case, mlp, random_graphs

MESH = Mesh({"dp": 2, "tp": 2})

EVERY = settings(
    max_examples=200,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


def planned(case: Case):
    return plan(
        case.graph,
        case.mesh,
        pins=case.pins,
        communication=case.communication,
        capabilities=case.capabilities,
    )


@EVERY
@given(case=random_graphs())
def test_the_plan_is_the_optimum_of_the_reference(case: Case) -> None:
    task = Task(case.graph, case.mesh, case.pins, case.communication, case.capabilities)
    wanted = reference.best(task)
    found = planned(case)
    if wanted is None:
        assert found.status == "infeasible"
        return
    assert found.status == "optimal"
    assert found.cost_ps == wanted[0]
    assert found.bound_ps == wanted[0]
    checked = verify(parse(found.to_json()))
    assert checked.ok, checked
    assert checked.bound == wanted[0]
    ran = found.simulate(seed=1)
    assert ran.ok, ran


def test_the_same_question_has_the_same_plan() -> None:
    def told() -> dict[str, object]:
        data = json.loads(plan(gpt(1, hidden=64, heads=4, batch=4, sequence=16, vocabulary=128), MESH).to_json())
        return {key: value for key, value in data.items() if key not in ("stages", "sha256")}

    assert told() == told()


def test_ctrl_c_before_there_is_a_plan_goes_through() -> None:
    def interrupt(now: str, state: Progress | None) -> None:
        if now == "feasibility":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        plan(mlp(), MESH, progress=interrupt)


@pytest.mark.parametrize("stage", ["network", "bound"])
def test_ctrl_c_before_the_search_has_one_gives_the_plan_of_the_first_model(stage: str) -> None:
    def interrupt(now: str, state: Progress | None) -> None:
        if now == stage:
            raise KeyboardInterrupt

    first_plan(plan(mlp(), MESH, progress=interrupt))


def first_plan(found: Plan) -> None:
    assert found.status == "feasible"
    assert found.bound_ps == 0
    assert found.certificate == {"bits": 0, "arrays": [], "tree": {"unproved": True}}
    assert found.check().ok, found.check()


@settings(EVERY, max_examples=80)
@given(case=random_graphs())
def test_the_plan_of_the_first_model_is_one(case: Case) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("solver.planner.build", _out_of_room)
        found = planned(case)
    if found.status != "infeasible":
        first_plan(found)


def _out_of_room(_: object) -> None:
    raise OutOfTimeError("no room")


@pytest.mark.parametrize("sizes", [1, 2, 3])
def test_tables_that_are_too_large_leave_the_plan_of_the_first_model(sizes: int, monkeypatch: Any) -> None:
    monkeypatch.setattr("solver.search.builder.MOST_BYTES", 100)
    first_plan(plan(mlp(), Mesh({f"a{i}": 2 for i in range(sizes)})))


def test_many_mesh_axes_keep_the_time() -> None:
    begin = time.monotonic()
    found = plan(mlp(), Mesh({f"a{i}": 2 for i in range(7)}), timeout=1)
    assert time.monotonic() - begin < 6
    first_plan(found)
    assert time.monotonic() - begin < 12


@pytest.mark.parametrize(
    ("op", "shapes", "attributes", "told"),
    [
        ("matmul", [(10**8, 10**8)] * 2, {}, r"op 'huge' \(matmul\) takes over 18 minutes on one device"),
        ("relu", [(2**62, 4)], {}, r"op 'huge' \(relu\) takes over 18 minutes on one device"),
        ("relu", [(10**10, 10**9)], {}, r"op 'huge' \(relu\) takes over 18 minutes on one device"),
        ("transpose", [(2**62, 4)], {"perm": [1, 0]}, r"op 'huge' \(transpose\) reads and writes \d+ bytes"),
        (None, [(2**62, 4)], {}, r"tensor 'x0' has \d+ bytes"),
    ],
)
def test_what_is_too_large_to_be_counted_is_refused_by_name(op: Any, shapes: Any, attributes: Any, told: str) -> None:
    graph = Graph("huge")
    inputs = [graph.input(f"x{i}", shape) for i, shape in enumerate(shapes)]
    graph.output(inputs[0] if op is None else graph.op(op, *inputs, name="huge", **attributes))
    for mesh in ({"dp": 2}, {"dp": 8, "tp": 8}):
        with pytest.raises(PriceError, match=told):
            plan(graph, Mesh(mesh))


def test_who_stops_during_the_network_gets_the_plan_of_the_first_model() -> None:
    asked: list[str] = []

    def stop(stage: str, state: Progress | None) -> bool:
        asked.append(stage)
        return asked.count("network") > 2

    begin = time.monotonic()
    found = plan(mlp(), Mesh({f"a{i}": 2 for i in range(7)}), progress=stop)
    assert time.monotonic() - begin < 5
    assert found.status == "feasible"


@pytest.mark.parametrize("at", ["bound", "decision"])
def test_ctrl_c_later_gives_the_best_plan_so_far(at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(now: str, state: Progress | None) -> None:
        if now == "bound" == at and state is not None and state.cost is not None:
            raise KeyboardInterrupt

    def stopped(*_: object) -> bool:
        raise KeyboardInterrupt

    if at == "decision":
        monkeypatch.setattr("solver.search.smt.confirm", stopped)
    found = plan(mlp(), MESH, progress=interrupt)
    assert found.status in ("feasible", "optimal")
    assert found.status == "feasible" or at == "bound"
    assert found.check().ok


def test_who_stops_the_search_gets_the_best_plan_so_far() -> None:
    found = plan(mlp(), MESH, progress=lambda stage, state: state is not None)
    assert found.status in ("feasible", "optimal")
    assert found.cost_ps is not None
    assert found.bound_ps <= found.cost_ps


@pytest.mark.parametrize("timeout", [0, 0.05, 1])
def test_the_time_is_kept(timeout: float) -> None:
    graph = gpt(4)
    plan(mlp(), MESH)  # what is compiled is compiled
    begin = time.monotonic()
    found = plan(graph, Mesh({"dp": 8, "tp": 8}), timeout=timeout)
    assert time.monotonic() - begin < timeout + 5
    assert found.status in ("unknown", "feasible", "optimal")


def test_a_gap_is_enough_where_it_is_asked_for() -> None:
    found = plan(mlp(), MESH, gap=1.0)
    assert found.status in ("feasible", "optimal")
    assert found.gap is not None
    assert 0 <= found.gap <= 1
