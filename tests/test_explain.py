"""Cores: unsatisfiable alone, every member needed, the same again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings

from ops.placement import Partial
from solver import Graph, Mesh, plan
from solver.constraints.check import Checker
from solver.constraints.model import whole_graph
from solver.explain.core import Core, find_core
from solver.problem import problem
from tests.graphs import Case, mlp
from tests.test_constraints import MANY, asked, demanding

SOME = settings(MANY, max_examples=60)


def model(case: Case) -> Checker:
    checker = Checker(whole_graph(asked(case), explaining=True))
    assume(checker.check().status == "unsat")
    return checker


@SOME
@given(case=demanding())
def test_a_core_is_irreducible(case: Case) -> None:
    checker = model(case)
    core = find_core(checker)
    assert core.minimal
    index = {reason: i for i, reason in enumerate(checker.clauses.reasons)}
    rules = [i for i, reason in enumerate(checker.clauses.reasons) if not reason.chosen]
    chosen, support = [index[reason] for reason in core.chosen], [index[reason] for reason in core.support]
    assert checker.check([*chosen, *support]).status == "unsat"
    for one in chosen:
        assert checker.check([*rules, *(i for i in chosen if i != one)]).status == "sat"
    for one in support:
        assert checker.check([*chosen, *(i for i in support if i != one)]).status == "sat"
    assert all(reason.chosen for reason in core.chosen)
    assert not any(reason.chosen for reason in core.support)


@SOME
@given(case=demanding())
def test_a_core_is_a_fact_about_the_problem(case: Case) -> None:
    """With the wishes of the core alone there is no plan, and with any one less there is one."""
    core = find_core(model(case))
    wishes = asked(case)
    sources = {(reason.subject, reason.source) for reason in core.chosen if reason.kind == "pin"}
    pins = tuple(pin for pin in wishes.pins if (pin.subject, pin.source) in sources)
    assert len(pins) == len(sources)
    free = any(reason.kind == "communication" for reason in core.chosen)
    alone = wishes.with_pins(pins)
    assert Checker(whole_graph(alone)).check().status == "unsat"
    if not free:
        assert Checker(whole_graph(replace(alone, communication="any"))).check().status == "unsat"
    for pin in pins:
        fewer = wishes.with_pins(tuple(other for other in pins if other != pin))
        allows = isinstance(pin.placement, Partial) and pin.subject in wishes.graph.outputs  # a pin on P allows it, too
        assert Checker(whole_graph(fewer)).check().status == "sat" or not free or allows


@SOME
@given(case=demanding())
def test_the_story_is_the_same_again(case: Case) -> None:
    model(case)
    asked = {"pins": case.pins, "communication": case.communication}
    stories = {str(plan(case.graph, case.mesh, **asked).explanation) for _ in range(2)}
    assert len(stories) == 1


def test_without_time_nothing_is_called_minimal() -> None:
    wishes = problem(mlp(), Mesh({"dp": 3}), communication="frozen", pins={"w1": "dp=S(0)", "x": "dp=R", "y": "dp=R"})
    checker = Checker(whole_graph(wishes, explaining=True))
    told = find_core(checker, 0.0)
    assert isinstance(told, Core)
    assert not told.minimal
    assert told.chosen


def normalised(width: int) -> Graph:
    g = Graph("normalised")
    y = g.op("matmul", g.input("x", (8, width)), g.parameter("w", (width, 8)), name="y")
    g.output(g.op("softmax", y, axis=1, name="z"))
    return g


@pytest.mark.parametrize("width", [6, 8])
def test_sizes_are_told_only_where_they_are_needed(width: int) -> None:
    """4 does not divide 6, but with 8 there is no plan either."""
    told = plan(normalised(width), Mesh({"dp": 2, "tp": 2}), pins={"x": "dp=S(1)"}, communication="none").explanation
    assert told is not None
    assert told.minimal
    assert {(fact.kind, fact.subject) for fact in told.support} == {("rule", "y"), ("rule", "z")}
    assert "divide" not in told.story


def test_sizes_that_are_needed_are_told_also_where_nothing_may_be_sent() -> None:
    wish = {"x": "dp=S(1)", "y/x": "dp=S(1),tp=S(1)"}
    g = normalised(6)
    told = plan(g, Mesh({"dp": 2, "tp": 2}), pins=wish, communication="none").explanation
    assert told is not None
    assert {(fact.kind, fact.subject) for fact in told.support} == {("divisibility", "y"), ("rule", "y")}
    assert told.story.endswith("or choose mesh axes of sizes that divide.")


def test_partial_kinds_that_do_not_mix_are_told_as_such() -> None:
    g = Graph("mixed")
    y = g.op("matmul", g.input("x", (8, 8)), g.parameter("w", (8, 8)), name="y")
    g.output(g.op("relu", y, name="z"))
    told = plan(g, Mesh({"dp": 2, "tp": 2}), pins={"y": "dp=P(sum),tp=P(max)"}).explanation
    assert told is not None
    assert [fact.kind for fact in told.support] == ["kinds"]
    assert told.story.endswith("or ask for one partial kind on all mesh axes (sum and avg may stand together).")
    assert "divide" not in told.story
