"""Policies and overlap: the meaning of the reference, the optimum of exhaustive enumeration, and what is said."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from benchmarks.models import gpt
from solver import Graph, Mesh, plan, reference
from solver.constraints.policy import (
    KINDS,
    Policy,
    batch_stays,
    equal_layers,
    expert_parallel,
    forbid,
    no_communication,
    policy_from_json,
    policy_from_text,
    sequence_parallel,
    traffic,
    untie,
    zero,
)
from solver.plan import Plan
from solver.plan_json import digest, parse
from solver.problem import ProblemError
from solver.reference_task import Task
from solver.training import training_step
from solver.verify import verify
from tests.graphs import COMMUNICATING, Case, mlp, random_graphs
from tests.test_planner import EVERY

MESH = Mesh({"dp": 2, "tp": 2})


@st.composite
def policies(draw: Any, case: Case) -> list[Policy]:
    """Draw policies that speak of something in a graph."""
    graph, axes = case.graph, st.sampled_from(case.mesh.axes)
    patterns = st.sampled_from([*graph.tensors, "w*", "*"]).filter(
        lambda pattern: pattern in graph.tensors or pattern == "*" or any(name[0] == "w" for name in graph.tensors)
    )
    deep = [name for name, tensor in graph.tensors.items() if tensor.shape]
    makers: list[Any] = [
        lambda: no_communication(draw(axes)),
        lambda: no_communication(draw(axes), draw(patterns)),
        lambda: forbid(draw(st.sampled_from(KINDS)), axis=draw(st.none() | axes)),
        lambda: forbid(draw(st.sampled_from(KINDS[:5])), draw(patterns), axis=draw(st.none() | axes)),
    ]
    if deep:
        makers.append(lambda: batch_stays(draw(axes), draw(st.sampled_from(deep))))
        makers.append(lambda: expert_parallel(draw(axes), draw(st.sampled_from(deep))))
    if any(tensor.role == "input" and tensor.shape for tensor in graph.tensors.values()):
        makers += [lambda: batch_stays(draw(axes)), lambda: sequence_parallel(draw(axes), dim=0)]
    states = [name for name, leader in graph.ties.items() if is_state(graph, name, leader)]
    if states:
        makers.append(lambda: zero(draw(st.sampled_from([1, 2, 3] if graph.gradients else [1])), draw(axes)))
    if graph.ties:
        makers.append(lambda: untie(draw(st.sampled_from(sorted(graph.ties)))))
    return [draw(st.sampled_from(makers))() for _ in range(draw(st.integers(1, 3)))]


def is_state(graph: Graph, name: str, leader: str) -> bool:
    return graph.tensors[name].role == "state" and graph.tensors[leader].role == "parameter"


def overlaps() -> st.SearchStrategy[dict[str, float]]:
    return st.dictionaries(st.sampled_from(KINDS), st.sampled_from([0.1, 0.3, 0.5, 0.77, 1.0]), max_size=3)


def hold_against_reference(case: Case, asked: list[Policy], overlap: dict[str, float]) -> None:
    task = Task(case.graph, case.mesh, case.pins, case.communication, case.capabilities, policy=asked, overlap=overlap)
    wanted = reference.best(task)
    found = plan(
        case.graph,
        case.mesh,
        pins=case.pins,
        communication=case.communication,
        capabilities=case.capabilities,
        policy=asked,
        overlap=overlap,
    )
    if wanted is None:
        assert found.status == "infeasible"
        return
    assert found.status == "optimal"
    assert found.cost_ps == wanted[0]
    assert found.bound_ps == wanted[0]
    checked = verify(parse(found.to_json()))
    assert checked.ok, checked
    assert Plan.from_json(found.to_json()).to_json() == found.to_json()
    assert found.simulate(seed=1).ok


@settings(EVERY, max_examples=60, phases=[Phase.generate])
@given(data=st.data())
def test_the_plan_under_policies_is_the_optimum_of_the_reference(data: Any) -> None:
    case = data.draw(random_graphs(max_ops=5, tied=data.draw(st.booleans())))
    hold_against_reference(case, data.draw(policies(case)), data.draw(overlaps()))


@settings(EVERY, max_examples=20, phases=[Phase.generate])
@given(data=st.data())
def test_what_kernels_send_is_under_policies_too(data: Any) -> None:
    case = data.draw(random_graphs(max_ops=3, max_axes=2, kinds=COMMUNICATING))
    hold_against_reference(case, data.draw(policies(case)), data.draw(overlaps()))


# ---------------------------------------------------------------------------------------- the objective communication


@settings(EVERY, max_examples=12, phases=[Phase.generate])
@given(case=random_graphs(max_ops=5))
def test_communication_comes_first_where_it_is_the_objective(case: Case) -> None:
    def task(communication: int, compute: int) -> Task:
        asked = case.graph, case.mesh, case.pins, case.communication, case.capabilities
        return Task(*asked, counted=(communication, compute))

    weight = 10**7  # more than all compute of such a graph together
    wanted = reference.best(task(weight, 1))
    found = plan(
        case.graph,
        case.mesh,
        pins=case.pins,
        communication=case.communication,
        objective="communication",
        capabilities=case.capabilities,
    )
    if wanted is None:
        assert found.status == "infeasible"
        return
    communication, compute = divmod(wanted[0], weight)
    assert found.status == "optimal"
    assert (found.cost_ps, found.bound_ps) == (communication, communication)
    assert (found.evaluation.computing, found.compute_bound_ps) == (compute, compute)
    checked = verify(parse(found.to_json()))
    assert checked.ok, checked
    assert Plan.from_json(found.to_json()).to_json() == found.to_json()


# ---------------------------------------------------------------------------------------------------- what they mean


def step(layers: int = 1) -> Graph:
    """A small transformer's training step."""
    return training_step(gpt(layers, hidden=16, heads=4, batch=4, sequence=8, vocabulary=16), optimizer="adamw")


def placed(found: Plan, tensor: str, axis: str = "dp") -> str:
    return str(found.layout(tensor)[axis])


def test_zero_cuts_states_then_gradients_then_parameters() -> None:
    graph = step()
    states = [name for name, leader in graph.ties.items() if is_state(graph, name, leader)]
    wanted = {1: states, 2: [*states, *graph.gradients], 3: [*states, *graph.gradients, *graph.gradients.values()]}
    for stage, names in wanted.items():
        found = plan(graph, MESH, policy=(zero(stage, "dp"),))
        assert found.status == "optimal"
        assert all(placed(found, name).startswith("S") for name in names), stage
        assert found.check().ok


def test_zero_leaves_free_what_the_axis_does_not_divide() -> None:
    graph = step()
    found = plan(graph, Mesh({"dp": 3}), policy=(zero(3, "dp"),))
    assert found.status == "optimal"
    assert placed(found, "h0.up.weight") == "R"


def test_zero_lets_the_ties_of_states_go_and_keeps_those_of_new_states() -> None:
    graph = step()
    asked = plan(graph, MESH, policy=(zero(1, "dp"),)).problem
    assert "h0.up.weight.moment1" not in asked.ties
    assert [new for new, old in asked.ties.items() if old == "h0.up.weight.moment1"]
    assert "h0.up.weight.moment1" in plan(graph, MESH, policy=(zero(3, "dp"),)).problem.ties


def test_the_batch_stays_cut_through_the_whole_step() -> None:
    found = plan(step(), MESH, policy=(batch_stays("dp"),))
    graph = found.problem.graph
    batched = [t.name for t in graph.tensors.values() if t.role == "result" and t.shape[:2] == (4, 8)]
    assert len(batched) > 30
    assert {placed(found, name) for name in batched} == {"S(0)"}
    assert {str(found.needed(use.name)["dp"]) for name in batched for use in graph.uses(name)} == {"S(0)"}


def test_the_batch_is_followed_through_a_flat_dim() -> None:
    g = Graph("flat")
    x = g.op("reshape", g.input("x", (2, 4, 6)), shape=[8, 6], name="flat")
    g.output(g.op("reshape", g.op("matmul", x, g.parameter("w", (6, 4)), name="y"), shape=[2, 4, 4], name="z"))
    found = plan(g, Mesh({"dp": 2, "tp": 2}), policy=(batch_stays("dp"), batch_stays("tp", "x", "z", dim=1)))
    assert found.dims_mapping("z") == [0, 1, -1]
    assert str(found.layout("y")["dp"]) == "S(0)"
    assert not found.reshards


def test_norms_work_on_their_part_of_the_sequence() -> None:
    found = plan(step(), MESH, policy=(batch_stays("dp"), sequence_parallel("tp")))
    assert {str(found.needed(f"h0.ln{i}/x")["tp"]) for i in (1, 2)} == {"S(1)"}
    assert found.status == "optimal"


def test_experts_lie_on_their_own_devices() -> None:
    g = Graph("experts")
    tokens, ends = g.input("x", (16, 8)), g.input("ends", (4,), dtype="int64")
    g.output(g.op("grouped_mm", tokens, g.parameter("w", (4, 8, 8)), ends, name="y"))
    mesh = Mesh({"ep": 4})
    assert placed(plan(g, mesh, policy=(expert_parallel("ep"),)), "w", "ep") == "S(0)"
    assert placed(plan(g, mesh, policy=(expert_parallel("ep", "w"),)), "w", "ep") == "S(0)"
    with pytest.raises(ProblemError, match="has no grouped_mm of stacked matrices"):
        plan(mlp(), MESH, policy=(expert_parallel("dp"),))


def test_equal_layers_lie_as_the_first_one() -> None:
    graph = gpt(3, hidden=16, heads=4, batch=4, sequence=8, vocabulary=16)
    found = plan(graph, MESH, pins={"h1.up": "tp=S(2)"}, policy=(equal_layers("h*"),))
    assert found.status == "optimal"
    for layer in (1, 2):
        for name in ("q.product", "up.product", "down"):
            assert found.made(f"h{layer}.{name}") == found.made(f"h0.{name}")
    assert found.check().ok


def test_layers_that_differ_cannot_lie_alike() -> None:
    g = Graph("two")
    x = g.op("relu", g.input("x", (4,)), name="h0.act")
    g.output(g.op("exp", x, name="h1.act"))
    with pytest.raises(ProblemError, match=r"equal_layers\('h\*'\): 'h\*' finds no op of a later layer that is as one"):
        plan(g, MESH, policy=(equal_layers("h*"),))


def test_what_is_forbidden_is_gone_round() -> None:
    """An all_reduce is as well a reduce_scatter and an all_gather."""
    g = Graph("sum")
    g.output(g.op("matmul", g.input("x", (8, 8)), g.parameter("w", (8, 8)), name="y"))
    pins = {"x": "tp=S(1)", "w": "tp=S(0)", "y/x": "tp=S(1)", "y": "tp=R"}
    mesh = Mesh({"tp": 2})
    plain = plan(g, mesh, pins=pins)
    round_it = plan(g, mesh, pins=pins, policy=(forbid("all_reduce"),))
    assert list(plain.evaluation.sent_by_kind) == ["all_reduce"]
    assert set(round_it.evaluation.sent_by_kind) == {"reduce_scatter", "all_gather"}
    assert (plain.cost_ps or 0) <= (round_it.cost_ps or 0)
    assert round_it.simulate(seed=0).ok
    refused = plan(g, mesh, pins=pins, policy=(forbid("all_reduce"), forbid("reduce_scatter", "y")))
    assert refused.status == "infeasible"
    assert refused.explanation is not None
    chosen = {fact.source for fact in refused.explanation.core if fact.kind == "policy"}
    assert chosen == {"forbid('all_reduce')", "forbid('reduce_scatter', 'y')"}
    assert any("drop the policy" in repair.text for repair in refused.explanation.repairs)


def test_overlap_counts_what_is_left_of_the_time() -> None:
    g = Graph("gather")
    g.output(g.op("relu", g.input("x", (64, 64)), name="y"))
    pins = {"x": "tp=S(0)", "y/x": "tp=R"}
    whole, half = (plan(g, Mesh({"tp": 2}), pins=pins, overlap=part) for part in (None, {"all_gather": 0.5}))
    (one,), (other,) = (found.reshards for found in (whole, half))
    assert other.time == -(-one.time // 2)
    assert "50% of all_gather" in str(half)


def test_a_mesh_axis_of_size_1_meets_every_policy() -> None:
    asked = (batch_stays("dp"), no_communication("dp"), sequence_parallel("dp"))
    found = plan(step(), Mesh({"dp": 1, "tp": 2}), policy=asked)
    assert found.cost_ps == plan(step(), Mesh({"dp": 1, "tp": 2})).cost_ps


# ------------------------------------------------------------------------------------------------------- what is said


REFUSED: list[tuple[Any, str]] = [
    (lambda: no_communication("ep"), "no_communication('ep') names mesh axis 'ep', but the mesh has dp, tp"),
    (lambda: forbid("all_gather", "v*"), "forbid('all_gather', 'v*'): 'v*' names no tensor of graph 'mlp'"),
    (lambda: forbid("gather"), "forbid('gather'): choose a kind of collective from all_reduce"),
    (lambda: batch_stays("dp", dim=4), "no input of graph 'mlp' has a dim 4"),
    (lambda: batch_stays("dp", "w1", dim=2), "has no dim 2; dims count from 0"),
    (lambda: batch_stays("dp", dim=-1), "batch_stays: dim=-1 is no tensor dim: give its number, 0 for the first"),
    (lambda: zero(1, "dp"), "graph 'mlp' has no optimizer states"),
    (lambda: zero(4, "dp"), "choose 1 (states), 2 (and gradients) or 3 (and parameters)"),
    (lambda: zero(1, 0), "zero: 0 is no mesh axis: give its name, as 'dp'"),
    (lambda: equal_layers("h.*"), "equal_layers('h.*'): 'h.*' finds no op of a later layer"),
    (lambda: traffic("dp", "much"), "traffic: 'much' is no amount of bytes: give whole bytes, 0 or more"),
    (lambda: equal_layers("h"), "give names of ops with * for the layer, as equal_layers('h.*')"),
]


@pytest.mark.parametrize(("make", "told"), REFUSED)
def test_a_policy_that_names_nothing_is_refused_in_one_sentence(make: Any, told: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        plan(mlp(), MESH, policy=(make(),))
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "policy",
    [
        untie("*.m", "b"),
        forbid("all_gather", "*.w", axis="tp"),
        no_communication("dp"),
        batch_stays("dp", dim=1),
        zero(2, "dp"),
        sequence_parallel("tp", "x"),
        expert_parallel("ep"),
        equal_layers("h.*", "g.*"),
        traffic("dp", "1.5MiB"),
    ],
    ids=str,
)
def test_a_policy_is_written_and_read_as_it_is_called(policy: Policy) -> None:
    assert policy_from_json(policy.to_json()) == policy
    assert policy_from_text(str(policy)) == policy


@pytest.mark.parametrize(
    "text", ["zero", "zero(1", "zero(1,dp,2,3)", "zero(stage=1)", "ones(1,dp)", "forbid(a,b=c)", ""]
)
def test_a_text_that_is_no_policy_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no policy|cannot be read|choose"):
        policy_from_text(text)


def test_a_plan_that_breaks_a_policy_is_refused_by_the_check() -> None:
    free = plan(step(), MESH)
    data = json.loads(free.to_json())
    data["question"]["policy"] = [zero(3, "dp").to_json()]
    data["sha256"] = digest(data)
    checked = verify(parse(json.dumps(data)))
    assert not checked.ok
    assert any("against" in finding or "may not be stored" in finding for finding in checked.findings)


def test_altered_claims_of_compute_are_refused() -> None:
    found = plan(mlp(), MESH, pins={"w1": "tp=S(1)", "h/y": "tp=R"}, objective="communication")
    assert found.check().ok
    for key, value in (("compute_bound", found.compute_bound_ps + 1), ("bound", found.bound_ps + 1)):
        data = json.loads(found.to_json())
        data[key] = value
        data["sha256"] = digest(data)
        assert not verify(parse(json.dumps(data))).ok, key


# ---------------------------------------------------------------------------------------------------- what may be sent


MOST = 500
"""Plans that are enumerated."""


def sent_over(found: reference.Plan, axis: int) -> int:
    """Count what a plan of the reference sends over a mesh axis; its kernels send nothing."""
    assert found.reshards is not None
    return sum(move.bytes for one in found.reshards for move in one.path.moves if axis in move.axes)


@settings(EVERY, max_examples=40, phases=[Phase.generate])
@given(case=random_graphs(max_ops=2, max_axes=2), data=st.data())
def test_a_budget_of_traffic_is_held_and_its_bound_is_true(case: Case, data: Any) -> None:
    free = within(case, 0)
    assume(free and len(free) < MOST)
    budget = data.draw(st.sampled_from(sorted({sent for _, sent in free})[:3])) - data.draw(st.integers(0, 1))
    assume(budget >= 0)
    found = plan(
        case.graph,
        case.mesh,
        pins=case.pins,
        capabilities=case.capabilities,
        policy=(traffic(case.mesh.axes[0], budget),),
    )
    levies = {0, 2**12, 2**30} | ({found.choice.levy} if found.choice is not None else set())
    every = [one for levy in levies for one in within(case, levy)]
    wanted = min((time for time, sent in every if sent <= budget), default=None)
    if wanted is None:
        assert found.choice is None
        return
    assert found.choice is not None
    assert found.bound_ps <= wanted <= (found.cost_ps or 0)
    assert found.evaluation.sent_over(0) <= budget
    if found.status == "optimal":
        assert found.cost_ps == wanted
    checked = verify(parse(found.to_json()))
    assert checked.ok, checked
    assert Plan.from_json(found.to_json()).to_json() == found.to_json()
    assert found.simulate(seed=1).ok


def within(case: Case, levy: int) -> list[tuple[int, int]]:
    """Enumerate the plans that take their ways by a levy on the first mesh axis: time, and what is sent over it."""
    task = Task(case.graph, case.mesh, case.pins, "any", case.capabilities, levy=(0, levy))
    return [(reference.price(one).time, sent_over(one, 0)) for one in islice(reference.plans(task), MOST)]


@pytest.mark.parametrize(("most", "proved"), [(3072, True), (4000, False)])
def test_a_plan_within_traffic_takes_the_path_that_the_search_found(most: int, proved: bool) -> None:
    """Gathering is faster, as blocks are small and a link waits; cutting otherwise sends a quarter of it."""
    g = Graph("turn")
    g.output(g.op("relu", g.input("x", (64, 64)), name="y"))
    mesh, pins = Mesh({"dp": 2, "tp": 4}), {"x": "dp=R,tp=S(0)", "y/x": "dp=R,tp=S(1)"}
    free = plan(g, mesh, pins=pins)
    assert [move.kind for move in free.reshards[0].moves] == ["all_gather", "slice"]
    assert free.evaluation.sent_over(1) == 12288
    found = plan(g, mesh, pins=pins, policy=(traffic("tp", most),))
    assert found.status == ("optimal" if proved else "feasible")
    assert [move.kind for move in found.reshards[0].moves] == ["all_to_all"]
    assert found.evaluation.sent_over(1) == 3072
    assert found.cost_ps == found.evaluation.computing + found.reshards[0].time
    read = Plan.from_json(found.to_json())
    assert read.choice == found.choice
    assert read.check().ok
    assert found.simulate(seed=0).ok


def test_a_levy_needs_a_budget_of_traffic() -> None:
    data = json.loads(plan(mlp(), MESH, pins={"w1": "tp=S(1)"}).to_json())
    data["choice"]["levy"] = 5
    data["sha256"] = digest(data)
    assert "there is no budget of traffic" in str(verify(parse(json.dumps(data))).findings)


@pytest.mark.parametrize("most", [-1, "-1", "-1kB", 1.5, True, None, ""])
def test_what_is_no_amount_of_traffic_is_refused_alike(most: Any) -> None:
    with pytest.raises(ValueError, match="give whole bytes, 0 or more, or a number with a unit"):
        traffic("tp", most)


@pytest.mark.parametrize("text", ["0", "0B", "0 kB", "1000", "1kB"])
def test_traffic_as_text_is_traffic_as_a_number(text: str) -> None:
    assert traffic("tp", text) == traffic("tp", 0 if text.startswith("0") else 1000)


def test_less_traffic_than_any_plan_has_is_infeasible() -> None:
    pins = {"x": "tp=S(0)", "h/x": "tp=R"}
    free = plan(mlp(), MESH, pins=pins)
    least = free.evaluation.sent_over(1)
    assert least > 0
    assert plan(mlp(), MESH, pins=pins, policy=(traffic("tp", least),)).cost_ps == free.cost_ps
    refused = plan(mlp(), MESH, pins=pins, policy=(traffic("tp", least - 1),))
    assert refused.status == "infeasible"
    assert f"sends at least {least} B over" in str(refused.explanation)
