"""What the tool says, scenario by scenario: the verdict, the core and the exact text.

A scenario is a file in ``scenarios/``: what a person tried, the graph (its notation: `tests.explain.notation`), the
mesh and the wishes, and what the tool must answer. After a deliberate change of wording

    python -m tests.explain.rewrite

shows what differs and writes the new texts, here and in docs/explanations.md. It never touches verdicts and cores:
where these differ, the tool or the scenario is wrong.
"""

from __future__ import annotations

import json
import re
from functools import cache
from itertools import combinations

import pytest

from solver import Plan
from solver.constraints.check import Checker
from solver.constraints.model import whole_graph
from solver.constraints.reason import CHOSEN
from solver.explanation import Explanation
from solver.explanation_json import read as read_json
from tests.explain.scenario import Answer, Scenario, Wishes, scenarios
from tests.padded_json import with_padding

UNWRITTEN = ("divisibility", "storage", "delivery", "kinds")
"""Kinds of facts of the graph that nothing was written for."""
SCENARIOS = scenarios()
INFEASIBLE = [one for one in SCENARIOS if one.verdict == "infeasible"]


def each(chosen: list[Scenario]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("scenario", chosen, ids=lambda one: one.name)


@cache
def answer_to(scenario: Scenario) -> Answer:
    return scenario.answer()


def why_there_is_no_plan(scenario: Scenario) -> Explanation:
    told = answer_to(scenario).told
    assert told is not None
    return told


@each(SCENARIOS)
def test_the_verdict_the_core_and_the_text(scenario: Scenario) -> None:
    answer = answer_to(scenario)
    assert answer.verdict == scenario.verdict
    assert answer.core == scenario.core
    assert answer.text == scenario.text


@each(SCENARIOS)
def test_asked_again_the_answer_is_the_same(scenario: Scenario) -> None:
    assert scenario.answer().text == scenario.text


@each(INFEASIBLE)
def test_the_core_is_a_fact_about_the_wishes(scenario: Scenario) -> None:
    """With a core alone there is no plan; with any one of it less there is one, which holds when checked."""
    told, graph = why_there_is_no_plan(scenario), scenario.graph()
    for core in (told.core, *(other.core for other in told.beside)):
        assert not feasible(scenario.wishes.only(core, graph), scenario)
        for one in core:
            fewer = scenario.wishes.only([fact for fact in core if fact != one], graph)
            assert checked(fewer.on(graph)), one


@each(INFEASIBLE)
def test_every_fact_and_step_says_what_it_is_and_where_it_was_set(scenario: Scenario) -> None:
    """The wishes of scenarios are set in the file that plans them; facts of the graph are set nowhere."""
    told = why_there_is_no_plan(scenario).to_json()
    for one in (told, *told["beside"]):
        known = {(fact["kind"], fact["source"]) for part in ("core", "support") for fact in one[part]}
        for fact in (*one["core"], *one["support"], *one["story"]):
            assert fact["kind"]
            assert fact["source"] or fact["kind"] in ("again", "way", "figure", *UNWRITTEN), fact
            set_here = fact["kind"] in ("pin", "policy", "expression", "communication", "budget")
            assert fact["place"].startswith("scenario.py:") == set_here, fact
        for step in one["story"]:
            if step["kind"] in CHOSEN:
                assert (step["kind"], step["source"]) in known


@each(INFEASIBLE)
def test_other_contradictions_are_told_with_their_stories(scenario: Scenario) -> None:
    told = why_there_is_no_plan(scenario)
    written = json.loads(json.dumps(told.to_json()))
    assert read_json(written).to_json() == written
    every = [told, *told.beside]
    for other, data in zip(told.beside, written["beside"], strict=True):
        assert other.steps
        whole = all(f"    {step.text}" in str(told) for step in other.steps)
        named = [repr(fact.subject) for fact in other.core if fact.subject]
        folded = [line for line in str(told).splitlines() if re.search(r"the same .*in \d+ more: with ", line)]
        layers = any(all(name in line for name in named) for line in folded)
        assert whole or layers or re.search(rf"the same .*on .*\b{other.where.removeprefix('on ')}\b", str(told))
        assert data["support"] or data["by"] == "z3" or len(data["core"]) > 1  # two pins of one tensor need no rule
        assert [fact["source"] for fact in data["core"]] == [fact.source for fact in other.core]
    for one, other in combinations(every, 2):
        assert all(fact.kind in ("communication", "policy") for fact in set(one.core) & set(other.core))


@each(INFEASIBLE)
def test_each_repair_has_a_plan_at_the_price_told(scenario: Scenario) -> None:
    for repair in why_there_is_no_plan(scenario).repairs:
        change = json.loads(json.dumps(repair.to_json()))["change"]
        graph = scenario.graph()
        if pad := change.get("pad"):
            graph = with_padding(graph, pad)
        found = scenario.wishes.repaired(change).on(graph)
        assert checked(found, proved=repair.proved), repair
        assert found.cost is not None
        assert repair.cost is not None
        if repair.proved:
            assert (found.cost, found.memory.peak) == (repair.cost, repair.memory), repair
        else:
            assert found.cost <= repair.cost, repair


def feasible(wishes: Wishes, scenario: Scenario) -> bool:
    """Ask Z3, which knows all but budgets; the search where there is one."""
    if wishes.budgeted:
        return wishes.on(scenario.graph()).status != "infeasible"
    verdict = Checker(whole_graph(wishes.asked(scenario.graph()))).check().status
    assert verdict != "unknown"
    return verdict == "sat"


def checked(found: Plan, proved: bool = True) -> bool:
    return (found.status == "optimal" or not proved) and found.choice is not None and found.check().ok
