"""Branching within a budget of traffic: against enumeration, and what its certificate proves when it is altered."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from copy import deepcopy
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from solver import Graph, Mesh, Plan, plan
from solver.certificate_messages import CertificateError
from solver.certificate_traffic import levied_bound
from solver.choice import Evaluation
from solver.constraints.policy import traffic
from solver.cost.tariff import LEVIED
from solver.problem import Problem, problem
from solver.search.incumbent import Incumbent, orders
from solver.search.levies import Levies
from solver.search.limits import Progress
from solver.search.network import INF
from solver.search.traffic import Branching
from solver.search.traffic_mix import Mixing, depths
from solver.training import training_step
from solver.words import size
from tests.graphs import Case, random_graphs
from tests.test_planner import EVERY
from tests.test_policy import MOST, within


def two_layers() -> Graph:
    """Return a step that trains two layers; its logits are summed over one mesh axis in one collective."""
    g = Graph("two")
    x, labels = g.input("x", (512, 1024)), g.input("labels", (512, 1), dtype="int64")
    wide = g.op("relu", g.op("matmul", x, g.parameter("up", (1024, 4096))))
    logits = g.op("matmul", wide, g.parameter("down", (4096, 1024)))
    g.output(g.op("mean", g.op("cross_entropy_with_softmax", logits, labels)[1], name="loss"))
    return training_step(g, "loss", "adamw")


@cache
def planned() -> Plan:
    """Return its plan with a little less than the traffic of the fastest one."""
    graph, mesh = two_layers(), Mesh({"dp": 2, "tp": 4})
    sent = plan(graph, mesh).evaluation.sent_over(0)
    return plan(graph, mesh, policy=(traffic("dp", sent * 19 // 20),))


def nodes(tree: dict[str, Any]) -> list[dict[str, Any]]:
    """Return all nodes of a tree."""
    return [tree, *(node for side in ("left", "right") if side in tree for node in nodes(tree[side]))]


def test_what_one_multiplier_leaves_open_is_closed_by_parts_with_their_own() -> None:
    found = planned()
    assert found.status == "optimal"
    assert found.certificate is not None
    multipliers = {node["multiplier"] for node in nodes(found.certificate["tree"]) if "multiplier" in node}
    assert len(multipliers) > 1
    assert found.check().ok
    assert found.check().bound == found.bound_ps == found.cost_ps


def test_what_is_sent_is_told_by_mesh_axis_with_the_budget_beside_it() -> None:
    found = planned()
    sent, budget = found.evaluation.sent_by_axis, found.problem.budget
    assert budget is not None
    assert sent == {"dp": found.evaluation.sent_over(0), "tp": found.evaluation.sent_over(1)}
    assert f"  axes    {size(sent['dp'])} of {size(budget.most)} over dp, {size(sent['tp'])} over tp\n" in found.text()
    assert json.loads(found.to_json())["consequences"]["bytes_by_axis"] == sent


def chain(layers: int) -> Graph:
    """Return a step that trains equal layers one after the other."""
    g = Graph("chain")
    x, labels = g.input("x", (2048, 2048)), g.input("labels", (2048, 1), dtype="int64")
    for layer in range(layers):
        product = g.op("matmul", x, g.parameter(f"w{layer}", (2048, 2048)), name=f"matmul{layer}")
        x = g.op("relu", product, name=f"relu{layer}")
    g.output(g.op("mean", g.op("cross_entropy_with_softmax", x, labels)[1], name="loss"))
    return training_step(g, "loss", "adamw")


def levies_of(asked: Problem) -> tuple[Levies, list[Evaluation]]:
    """Return the levies of a problem with a budget, and the plans that they will have seen."""
    assert asked.budget is not None
    plans, most = list[Evaluation](), asked.budget.most

    def keep(one: Evaluation) -> int:
        plans.append(one)
        return min((one.total for one in plans if one.sent_over(0) <= most), default=INF)

    return Levies(asked, keep), plans


def test_some_layers_lie_as_in_the_fast_plan_and_others_as_in_the_slow_one() -> None:
    graph, mesh = chain(20), Mesh({"dp": 8})
    most = plan(graph, mesh).evaluation.sent_over(0) * 7 // 10
    asked = problem(graph, mesh, policy=(traffic("dp", most),))
    levies, plans = levies_of(asked)
    for multiplier in (0, 2**20):
        levied = levies.levied(multiplier)
        assert levied is not None
        incumbent = Incumbent(levied.root)
        incumbent.read(levied.root, orders(len(levied.whole), ())[0])
        assert incumbent.assignment is not None
        levies.see(levied, incumbent.assignment)
    fast, slow = levies.seen
    assert slow.sent <= most < fast.sent
    even = levies.levied((slow.time - fast.time) * LEVIED // (fast.sent - slow.sent))
    assert even is not None
    Mixing(levies, even, lambda: False).run(fast, slow)
    assert levies.cost < slow.time - (slow.time - fast.time) // 3
    between = [one for one in levies.seen if slow.sent < one.sent < fast.sent]
    assert min(one.sent for one in between) <= most < max(one.sent for one in between)
    assert [(one.time, one.sent) for one in levies.seen] == [(one.total, one.sent_over(0)) for one in plans]


def test_neighbours_lie_near_each_other() -> None:
    asked = problem(chain(20), Mesh({"dp": 2}), policy=(traffic("dp", 0),))
    levied = levies_of(asked)[0].levied(0)
    assert levied is not None
    flat, depth = levied.flat.flat, depths(levied)
    behind = depth == depth.max()
    apart = np.abs(depth[flat.tail] - depth[flat.head])[~behind[flat.tail] & ~behind[flat.head]]
    assert apart.max() < len(depth) // 5
    hubs = {levied.built.network.variables[i].name for i in np.flatnonzero(behind)}
    assert {"learning_rate", "beta1_pow", "beta2_pow"} <= hubs
    assert len(hubs) <= 4


@settings(EVERY, max_examples=30, phases=[Phase.generate])
@given(case=random_graphs(max_ops=3, max_axes=2), data=st.data())
def test_every_part_is_bounded_truly(case: Case, data: Any) -> None:
    """Without the plans that a search knows before: all that branching finds is its own."""
    free = within(case, 0)
    assume(free and len(free) < MOST)
    budget = data.draw(st.sampled_from(sorted({sent for _, sent in free})))
    policy = (traffic(case.mesh.axes[0], budget),)
    asked = problem(case.graph, case.mesh, pins=case.pins, capabilities=case.capabilities, policy=policy)
    levies, _ = levies_of(asked)
    branching = Branching(levies, 0.0, lambda: False)
    branching.run(data.draw(st.sampled_from([0, 1, 1000, 2**20])))
    proved = branching.proved()
    assert proved is not None
    bound, written = proved
    every = [one for levy in {0, 2**30, *levies.known} for one in within(case, levy)]
    wanted = min(time for time, sent in every if sent <= budget)
    assert bound <= wanted <= levies.cost
    assert levied_bound(asked, policy[0], json.loads(json.dumps(written))) == bound


def test_an_altered_certificate_proves_nothing_false() -> None:
    found, chance = planned(), random.Random(0)
    assert found.certificate is not None
    policy = found.problem.budget
    assert policy is not None
    for _ in range(12):
        altered = deepcopy(dict(found.certificate))
        for node in nodes(altered["tree"]):
            if chance.random() < 0.2 and "multiplier" in node:
                node["multiplier"] = chance.choice([0, 2 * node["multiplier"], 777])
            if chance.random() < 0.2 and "left_values" in node:
                node["left_values"] = node["left_values"][:: chance.choice([2, -1])]
        for _ in range(20):
            array = chance.choice(altered["arrays"])
            if array:
                array[chance.randrange(len(array))] += chance.choice([-1, 1]) << chance.randrange(50)
        with suppress(CertificateError):  # where a part that was empty is no longer
            assert levied_bound(found.problem, policy, altered) <= (found.cost_ps or 0)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"tree": {"messages": {}}}, "it should have messages and a multiplier"),
        ({"tree": {"messages": {}, "multiplier": -1}}, "not a whole number from 0 up"),
        ({"tree": {"infeasible": True}}, "called infeasible, but it is not"),
        ({"tree": []}, "not an object"),
        ({"tree": {"op": "nothing", "left_values": [], "left": 0, "right": 0}}, "not an object"),
        ({"bits": 99}, "bits is 99"),
        ({"more": 1}, "it should have a multiplier"),
    ],
)
def test_another_form_is_refused_in_words(change: dict[str, Any], sentence: str) -> None:
    found = planned()
    assert found.problem.budget is not None
    assert found.certificate is not None
    with pytest.raises(CertificateError, match=sentence):
        levied_bound(found.problem, found.problem.budget, {**found.certificate, **change})


def test_only_ops_and_sources_are_split() -> None:
    found = planned()
    assert found.problem.budget is not None
    leaf = {"messages": {}, "multiplier": 5}
    produced = next(name for name, fact in found.problem.graph.tensors.items() if fact.producer is not None)
    for kind, name in (("tensor", produced), ("op", "nothing")):
        tree = {kind: name, "left_values": [[0]], "left": leaf, "right": leaf}
        with pytest.raises(CertificateError, match="which is no op and no source"):
            levied_bound(found.problem, found.problem.budget, {"bits": 12, "arrays": [], "tree": tree})


@cache
def beside_memory(tenths: int) -> tuple[Plan, list[Progress]]:
    """Return that plan within some of the memory that it fills, and what was told on the way."""
    alone, told = planned(), list[Progress]()
    assert alone.problem.budget is not None

    def progress(stage: str, state: Progress | None) -> None:
        told.extend([] if state is None else [state])

    memory = alone.memory.peak * tenths // 10
    wishes = {"policy": (alone.problem.budget,), "memory": memory, "progress": progress}
    return plan(two_layers(), Mesh({"dp": 2, "tp": 4}), timeout=30.0, **wishes), told


def test_memory_that_the_plan_within_the_traffic_fits_changes_nothing() -> None:
    found, told = beside_memory(10)
    assert found.status == "optimal"
    assert found.cost_ps == planned().cost_ps
    assert found.check().ok
    assert found.check().bound == found.bound_ps
    assert "traffic" in found.stages
    assert told


@pytest.mark.parametrize("tenths", [9, 10, 20])
def test_what_is_told_on_the_way_is_true(tenths: int) -> None:
    found, told = beside_memory(tenths)
    if found.choice is None:
        assert found.status == "unknown"
        assert all(state.cost is None for state in told)
        return
    assert found.check().ok
    assert found.memory.peak <= (found.problem.memory or 0)
    for state in told:
        assert state.bound <= (found.cost_ps or 0)
        assert state.cost is None or state.cost >= found.bound_ps
