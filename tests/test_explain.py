"""Cores: unsatisfiable alone, every member needed, the same again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations

import pytest
import z3
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ops.placement import Partial
from solver import Graph, Mesh, plan, sharded
from solver.constraints.check import Checker
from solver.constraints.expression import read_expressions
from solver.constraints.model import whole_graph
from solver.constraints.policy import no_communication
from solver.constraints.policy_kinds import Policy
from solver.constraints.reason import Reason
from solver.explain.core import MOST_CORES, Core, find_core, other_cores
from solver.explain.propagate import Step
from solver.explain.walk import in_chains
from solver.problem import Problem, problem
from tests.graphs import Case, mlp
from tests.test_constraints import MANY, asked, demanding
from tests.test_policy import policies

SOME = settings(MANY, max_examples=30)


def infeasible(case: Case, policy: Sequence[Policy] = ()) -> tuple[Problem, Checker]:
    """An infeasible question, and its model in Z3, in which every fact may be left out."""
    wishes = asked(case)
    if policy:
        granted = {"communication": "any", "capabilities": case.capabilities}
        wishes = problem(case.graph, case.mesh, pins=case.pins, policy=policy, **granted)
    checker = Checker(whole_graph(wishes, explaining=True))
    assume(checker.check().status == "unsat")
    return wishes, checker


def status(checker: Checker, reasons: list[Reason]) -> str:
    index = {reason: i for i, reason in enumerate(checker.clauses.reasons)}
    return checker.check([index[reason] for reason in reasons]).status


@SOME
@given(case=demanding())
def test_a_core_is_irreducible(case: Case) -> None:
    """Z3 says so of whatever found it: alone unsatisfiable; without any wish, or any group of rules, satisfiable."""
    hold_irreducible(*infeasible(case))


@settings(MANY, max_examples=25)
@given(data=st.data())
def test_a_core_under_policies_is_irreducible(data: st.DataObject) -> None:
    case = data.draw(demanding())
    hold_irreducible(*infeasible(case, data.draw(policies(case))))


def hold_irreducible(wishes: Problem, checker: Checker) -> None:
    core = find_core(wishes)
    assert core.minimal
    rules = [reason for reason in checker.clauses.reasons if not reason.chosen]
    assert status(checker, list(core.reasons)) == "unsat"
    for one in core.chosen:
        assert status(checker, [*rules, *(reason for reason in core.chosen if reason != one)]) == "sat"
    for group in core.support:
        assert status(checker, [reason for reason in core.reasons if reason not in group]) == "sat"
    assert all(reason.chosen for reason in core.chosen)
    assert not any(reason.chosen for group in core.support for reason in group)


@SOME
@given(case=demanding())
def test_every_step_of_a_trail_follows_from_those_before_it(case: Case) -> None:
    """Z3 confirms each: the facts of a step, with what the steps before it left, leave no more than it says."""
    wishes, checker = infeasible(case)
    core = find_core(wishes)
    assume(core.trail is not None)
    assert core.trail is not None
    assert core.trail.steps[-1].left == 0
    assert set(core.trail.reasons) <= set(core.reasons)
    for number, step in enumerate(core.trail.steps):
        assert all(before < number for before in step.because)
        assert step.gone
        assert not step.gone & step.left
    assert status(checker, list(core.trail.reasons)) == "unsat"
    hold_in_chains(core.trail.steps)


def hold_in_chains(steps: Sequence[Step]) -> None:
    """In a story each step stands behind what it follows from, and the last is the contradiction."""
    ordered = in_chains(steps)
    assert ordered[-1].constraint is steps[-1].constraint
    before = {(id(step.constraint), step.place, step.left): step for step in steps}
    for number, step in enumerate(ordered):
        was = before[id(step.constraint), step.place, step.left]
        assert all(one < number for one in step.because)
        assert {ordered[one].place for one in step.because} == {steps[one].place for one in was.because}


@SOME
@given(case=demanding())
def test_a_core_is_a_fact_about_the_problem(case: Case) -> None:
    """With the wishes of the core alone there is no plan, and with any one less there is one."""
    wishes, _ = infeasible(case)
    core = find_core(wishes)
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


def quickxplain(checker: Checker, hard: list[Reason], members: list[Reason]) -> list[Reason]:
    """Find an irreducible unsatisfiable part of the members: the recursion of Junker (AAAI 2004), as it is written."""

    def part(background: list[Reason], added: bool, some: list[Reason]) -> list[Reason]:
        if added and status(checker, background) == "unsat":
            return []
        if len(some) == 1:
            return some
        left, right = some[: len(some) // 2], some[len(some) // 2 :]
        second = part([*background, *left], True, right)
        first = part([*background, *second], bool(second), left)
        return [*first, *second]

    return part(hard, False, members) if status(checker, hard) == "sat" else []


def all_cores(checker: Checker) -> Iterator[frozenset[Reason]]:
    """Every irreducible set of wishes that cannot hold together, smallest first, by trying them all."""
    rules = [reason for reason in checker.clauses.reasons if not reason.chosen]
    chosen = [reason for reason in checker.clauses.reasons if reason.chosen]
    found: list[frozenset[Reason]] = []
    for count in range(len(chosen) + 1):
        for some in map(frozenset, combinations(chosen, count)):
            if not any(one <= some for one in found) and status(checker, [*rules, *some]) == "unsat":
                found.append(some)
                yield some


@SOME
@given(case=demanding())
def test_quickxplain_and_enumeration_agree(case: Case) -> None:
    wishes, checker = infeasible(case)
    core = find_core(wishes)
    rules = [reason for reason in checker.clauses.reasons if not reason.chosen]
    naive = quickxplain(checker, rules, [reason for reason in checker.clauses.reasons if reason.chosen])
    assume(len(wishes.pins) <= 8)
    every = list(all_cores(checker))
    assert frozenset(naive) in every
    assert frozenset(core.chosen) in every


@SOME
@given(case=demanding())
def test_other_cores_share_nothing(case: Case) -> None:
    wishes, checker = infeasible(case)
    core = find_core(wishes)
    assume(len(wishes.pins) <= 8)
    every = list(all_cores(checker))
    cores = [frozenset(one.chosen) for one in (core, *other_cores(wishes, core, float("inf"))[0])]
    assert all(one in every for one in cores)
    for one, other in combinations(cores, 2):
        assert all(reason.kind == "communication" for reason in one & other)


def test_without_its_rule_an_op_still_makes_one_layout() -> None:
    """Left out, a rule does not let its result lie nowhere: what is said of the result by others holds."""
    g = Graph("two")
    g.output(g.op("relu", g.op("relu", g.input("x", (2,)), name="first"), name="second"))
    pins = {"first": "dp=R", "first/x": "dp=R", "second": "dp=S(0)"}
    wishes = problem(g, Mesh({"dp": 2, "tp": 2}), pins=pins, communication="frozen")
    core = find_core(wishes)
    assert "first" not in {reason.subject for group in core.support for reason in group}
    assert status(Checker(whole_graph(wishes, explaining=True)), list(core.reasons)) == "unsat"


def wrong(count: int) -> tuple[Graph, dict[str, str]]:
    """As many mistakes as are wanted, each of its own."""
    g = Graph("wrong")
    for i in range(count):
        g.output(g.op("relu", g.input(f"x{i}", (5,)), name=f"y{i}"))
    return g, {f"x{i}": "tp=S(0)" for i in range(count)}


def test_every_contradiction_is_told_up_to_a_handful_and_that_there_are_more_is_said() -> None:
    graph, pins = wrong(MOST_CORES + 1)
    told = plan(graph, Mesh({"tp": 4}), pins=pins).explanation
    assert told is not None
    assert len(told.beside) == MOST_CORES
    assert not told.more
    assert f"There are {MOST_CORES} more contradictions:" in str(told)
    assert str(told).count("No plan satisfies this:") == 1
    assert "the same as above in 5 more: with 'x1'; with 'x2'; with 'x3'; with 'x4'; with 'x5'" in str(told)
    graph, pins = wrong(MOST_CORES + 2)
    told = plan(graph, Mesh({"tp": 4}), pins=pins).explanation
    assert told is not None
    assert told.more
    assert "There may be others: no further contradictions were looked for." in str(told)
    assert any(len(repair.change.get("drop", ())) == len(pins) for repair in told.repairs)


def test_contradictions_of_equal_layers_are_told_once_and_what_is_printed_is_in_json() -> None:
    g = Graph("deep")
    x = g.input("x", (32, 64))
    for i in range(4):
        act = g.op("relu", g.op("matmul", x, g.parameter(f"l{i}.up", (64, 256)), name=f"up{i}"), name=f"act{i}")
        x = g.op("matmul", act, g.parameter(f"l{i}.down", (256, 64)), name=f"down{i}")
    g.output(x)
    pins = {"*.up": "tp=S(1)", "*.down": "tp=S(0)"}
    told = plan(g, Mesh({"tp": 4}), pins=pins, policy=(no_communication("tp"),)).explanation
    assert told is not None
    lines = [line.strip() for line in str(told).splitlines()]
    assert "the same as above in 2 more: with 'l1.up'; with 'l2.up'" in lines
    assert "and the same in 2 more: with 'l1.down'; with 'l2.down'" in lines
    assert all(fact.subject in fact.text for fact in (*told.support, *(f for one in told.beside for f in one.support)))
    second = next(one for one in told.beside if any(fact.subject == "l0.down" for fact in one.core))
    assert all(line in str(told) for line in second.story.splitlines())


def test_contradictions_of_own_expressions_are_all_told() -> None:
    g = Graph("pairs")
    g.output(*(g.op("relu", g.input(name, (8, 8)), name=f"{name}_out") for name in "abc"))
    pins = {"a": "tp=S(0)", "b": "tp=S(1)", "c": "tp=S(0)"}
    own = (z3.Not(sharded("a", 0, "tp")), sharded("b", 0, "tp"), sharded("c", 0, "tp"))
    told = plan(g, Mesh({"tp": 2}), pins=pins, constraints=own).explanation
    assert told is not None
    cores = {frozenset(fact.source for fact in one.core) for one in (told, *told.beside)}
    texts = [one.text for one in read_expressions(own)]
    assert cores == {frozenset({"a:tp=S(0)", texts[0]}), frozenset({"b:tp=S(1)", texts[1]})}


@SOME
@given(case=demanding())
def test_the_story_is_the_same_again(case: Case) -> None:
    infeasible(case)
    asked = {"pins": case.pins, "communication": case.communication}
    stories = {str(plan(case.graph, case.mesh, **asked).explanation) for _ in range(2)}
    assert len(stories) == 1, "\n\n".join(stories)


def test_without_time_nothing_is_called_minimal() -> None:
    wishes = problem(mlp(), Mesh({"dp": 3}), communication="frozen", pins={"w1": "dp=S(0)", "x": "dp=R", "y": "dp=R"})
    told = find_core(wishes, 0.0)
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
    assert "divide" not in told.text


def test_sizes_that_are_needed_are_told() -> None:
    wish = {"y/x": "dp=S(1),tp=S(1)"}
    told = plan(normalised(6), Mesh({"dp": 2, "tp": 2}), pins=wish).explanation
    assert told is not None
    assert {(fact.kind, fact.subject) for fact in told.support} == {("divisibility", "y"), ("rule", "y")}
    assert told.text.endswith("or choose mesh axes of sizes that divide.")


def test_partial_kinds_that_do_not_mix_are_told_as_such() -> None:
    g = Graph("mixed")
    y = g.op("matmul", g.input("x", (8, 8)), g.parameter("w", (8, 8)), name="y")
    g.output(g.op("relu", y, name="z"))
    told = plan(g, Mesh({"dp": 2, "tp": 2}), pins={"y": "dp=P(sum),tp=P(max)"}).explanation
    assert told is not None
    assert [fact.kind for fact in told.support] == ["kinds"]
    assert told.text.endswith("or ask for one partial kind on all mesh axes (sum and avg may stand together).")
    assert "divide" not in told.text
