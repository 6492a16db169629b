"""The whole-graph model against the reference: the same verdict, above all where there is no plan."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ops.placement import Placement
from solver import Mesh, reference
from solver.constraints.check import Checker, Verdict
from solver.constraints.model import read_choice, whole_graph
from solver.problem import Problem, problem
from solver.reference_task import Task
from tests.graphs import HAND_MADE, MESHES, Case, pins, random_graphs

MANY = settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


@st.composite
def demanding(draw: st.DrawFn) -> Case:
    """Draw a case with many wishes, most often where little or nothing may be resharded."""
    case = draw(random_graphs(max_ops=4))
    wishes: dict[str, dict[str, Placement]] = {}
    for _ in range(draw(st.integers(1, 3))):
        wishes |= draw(pins(case.graph, case.mesh))
    return replace(case, pins=wishes, communication=draw(st.sampled_from(["any", "none", "none", "frozen", "frozen"])))


def asked(case: Case) -> Problem:
    return problem(
        case.graph, case.mesh, pins=case.pins, communication=case.communication, capabilities=case.capabilities
    )


def solvable(case: Case) -> bool:
    task = Task(case.graph, case.mesh, case.pins, case.communication, case.capabilities)
    return reference.best(task) is not None


@MANY
@given(case=demanding())
def test_the_verdict_is_that_of_the_reference(case: Case) -> None:
    wanted = "sat" if solvable(case) else "unsat"
    wishes = asked(case)
    checker = Checker(whole_graph(wishes))
    assert checker.check().status == wanted
    found = checker.search()
    assert found.status == wanted
    assert Checker(whole_graph(wishes, explaining=True)).check().status == wanted
    if found.status == "sat":
        is_a_choice(found, checker, wishes)


def is_a_choice(found: Verdict, checker: Checker, wishes: Problem) -> None:
    """Every op takes one row on each mesh axis, every source one storage that its pins allow."""
    choice = read_choice(checker.clauses, wishes, found.true)
    graph, axes = wishes.graph, len(wishes.mesh.sizes)
    assert choice.rows.keys() == graph.nodes.keys()
    assert all(len(rows) == axes for rows in choice.rows.values())
    assert choice.stored.keys() == {name for name, fact in graph.tensors.items() if fact.producer is None}
    for tensor, layout in {**choice.stored, **choice.held}.items():
        allowed = wishes.pinned(tensor, tensor)
        assert allowed is None or layout in allowed


@MANY
@given(case=demanding())
def test_dropping_a_pin_never_breaks_what_can_be_solved(case: Case) -> None:
    wishes = asked(case)
    if Checker(whole_graph(wishes)).search().status == "unsat":
        return
    for pin in wishes.pins:
        fewer = wishes.with_pins(tuple(other for other in wishes.pins if other != pin))
        assert Checker(whole_graph(fewer)).search().status == "sat"


@pytest.mark.parametrize("communication", ["any", "none", "frozen"])
def test_replicating_everything_is_a_plan_wherever_nothing_is_pinned(communication: str) -> None:
    for build in HAND_MADE:
        for sizes in MESHES[2]:
            wishes = problem(build(), Mesh(dict(zip(("dp", "tp"), sizes, strict=True))), communication=communication)
            checker = Checker(whole_graph(wishes))
            found = checker.search()
            choice = read_choice(checker.clauses, wishes, found.true)
            assert all(set(rows) == {0} for rows in choice.rows.values())
