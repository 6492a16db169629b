"""Cores: unsatisfiable alone, every member needed, the same again."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume, given, settings

from solver import Mesh, plan
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
        assert Checker(whole_graph(fewer)).check().status == "sat" or not free


@SOME
@given(case=demanding())
def test_the_story_is_the_same_again(case: Case) -> None:
    model(case)
    stories = {
        plan(case.graph, case.mesh, pins=case.pins, communication=case.communication).explanation for _ in range(2)
    }
    assert len({str(story) for story in stories}) == 1


def test_without_time_nothing_is_called_minimal() -> None:
    wishes = problem(mlp(), Mesh({"dp": 3}), communication="frozen", pins={"w1": "dp=S(0)", "x": "dp=R", "y": "dp=R"})
    checker = Checker(whole_graph(wishes, explaining=True))
    told = find_core(checker, 0.0)
    assert isinstance(told, Core)
    assert not told.minimal
    assert told.chosen
