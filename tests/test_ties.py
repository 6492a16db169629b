"""Ties, gradients in buckets and letting ties go: planner, checker and simulator against the reference."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest
from graphs import HARDWARE, ROUND, Case, random_graphs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from steps import linear_step, mlp_step

from ops.placement import Replicate, Shard
from solver import Mesh, plan, reference
from solver.certificate import proved
from solver.certificate_model import Model
from solver.choice_tables import table
from solver.constraints.policy import untie
from solver.graph import Graph
from solver.plan import Plan
from solver.plan_json import PlanFileError, digest, parse
from solver.problem import ProblemError, problem
from solver.reference_run import run
from solver.reference_task import Task
from solver.verify import verify

MANY = settings(max_examples=80, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
FEW = settings(MANY, max_examples=40)
MESH = Mesh({"dp": 2, "tp": 2}, hardware=ROUND)


def planned(case: Case, *untied: str) -> Plan:
    return plan(
        case.graph,
        case.mesh,
        pins=case.pins,
        communication=case.communication,
        capabilities=case.capabilities,
        policy=(untie(*untied),) if untied else (),
    )


def holds(found: Plan, task: Task) -> None:
    """Hold a plan against the reference, its file against the checker, and its program against the unsharded run."""
    wanted = reference.best(task)
    if wanted is None:
        assert found.status == "infeasible"
        assert found.explanation is not None
        assert found.explanation.core or not (task.pins or task.communication != "any" or task.ties)
        return
    assert (found.status, found.cost_ps, found.bound_ps) == ("optimal", wanted[0], wanted[0])
    checked = verify(parse(found.to_json()))
    assert checked.ok, checked
    assert checked.bound == wanted[0]
    assert found.simulate(seed=1).ok
    for follower, leader in task.ties.items():
        source = task.graph.tensors[follower].producer is None
        assert (found.evaluation.made if source else found.evaluation.delivered)(follower) == (
            found.evaluation.made(leader)
        )


@MANY
@given(random_graphs(max_axes=2, tied=True))
def test_the_plan_of_a_graph_with_ties_is_the_optimum_of_the_reference(case: Case) -> None:
    holds(planned(case), Task(case.graph, case.mesh, case.pins, case.communication, case.capabilities))


@FEW
@given(random_graphs(max_ops=4, max_axes=2, tied=True), st.data())
def test_without_some_of_its_ties_a_plan_is_the_optimum_too_and_never_dearer(case: Case, data: Any) -> None:
    if not case.graph.ties:
        return
    untied = data.draw(st.lists(st.sampled_from(sorted(case.graph.ties)), min_size=1, unique=True))
    found = planned(case, *untied)
    holds(found, Task(case.graph, case.mesh, case.pins, case.communication, case.capabilities, untied))
    assert (
        Plan.from_json(found.to_json()).problem.ties
        == found.problem.ties
        == {follower: leader for follower, leader in case.graph.ties.items() if follower not in untied}
    )
    tied = planned(case).cost_ps
    assert tied is None or (found.cost_ps is not None and found.cost_ps <= tied)


@FEW
@given(random_graphs(max_ops=2, max_axes=2, tied=True))
def test_the_cheapest_plan_of_the_reference_runs_right_and_sends_what_it_says(case: Case) -> None:
    found = reference.best(Task(case.graph, case.mesh, case.pins, case.communication, case.capabilities))
    if found is not None:
        priced = reference.price(found[1])
        assert priced.time == found[0]
        ran = run(found[1])
        assert ran.error < 1e-9
        assert ran.bytes == priced.bytes


BATCHED = {"x": "dp=S(0)", "h/x": "dp=S(0)", "y/x": "dp=S(0)", "back1/x": "dp=S(0)", "back2/x": "dp=S(0)"}
LINE = {"x": "dp=S(0)", "y/x": "dp=S(0)", "back/x": "dp=S(0)"}
STEPS = [
    (linear_step, "adamw", "dp=2,tp=2", "bandwidth", LINE),
    (linear_step, "momentum", "dp=2,tp=4", "latency", LINE),
    (mlp_step, "adamw", "tp=2", "latency", {}),
    (mlp_step, "sgd", "tp=4", "compute", {}),
]


@pytest.mark.parametrize(("make", "optimizer", "mesh", "hardware", "pins"), STEPS)
def test_training_steps_by_hand(make: Any, optimizer: str, mesh: str, hardware: str, pins: dict[str, str]) -> None:
    graph, devices = make(optimizer), Mesh.parse(mesh, HARDWARE[hardware])
    holds(plan(graph, devices, pins=pins), Task(graph, devices, pins))


def test_data_parallelism_reduces_each_gradient_once() -> None:
    """On dp the batch is cut, so gradients are made P and are brought to the layout in which the weight is updated."""
    found = plan(mlp_step("adamw", batch=32), Mesh({"dp": 4}, hardware=ROUND), pins=BATCHED)
    assert found.status == "optimal"
    assert found.simulate().ok
    graph = found.problem.graph
    for gradient, weight in graph.gradients.items():
        assert found.made(gradient) == {"dp": found.problem.layouts(gradient)[-1][0]}
        reductions = [move for r in found.reshards if r.tensor == gradient for move in r.moves]
        assert [move.kind for move in reductions] in (["all_reduce"], ["reduce_scatter"])
        for state in ("m", "v"):
            assert found.layout(f"{weight}.{state}") == found.layout(weight)


def test_untied_states_are_cut_where_their_weight_is_not() -> None:
    """ZeRO-1: the weight is pinned whole, its states follow it, or lie as their update is cut."""
    devices, whole = Mesh({"dp": 4}, hardware=HARDWARE["bandwidth"]), {"x": "dp=S(0)", "w": "dp=R", "y/x": "dp=S(0)"}
    graph = linear_step("adamw", batch=64)
    tied = plan(graph, devices, pins=whole)
    freed = plan(graph, devices, pins=whole, policy=(untie("w.m", "w.v"),))
    assert tied.layout("w.m") == tied.layout("w.v") == {"dp": Replicate()}
    assert freed.layout("w.m") == freed.layout("w.v") != {"dp": Replicate()}
    assert freed.cost_ps < tied.cost_ps  # type: ignore[operator]
    assert freed.memory.peak < tied.memory.peak
    for found in (tied, freed):
        assert found.check().ok
        assert found.evaluation.delivered("w.new.moment1_out") == found.evaluation.made("w.m")


# ----------------------------------------------------------------------------------------------------------- buckets


def test_gradients_and_new_tensors_share_their_latency() -> None:
    graph = linear_step("adamw")
    asked = problem(graph, MESH, policy=(untie("*"),))
    assert asked.bucketed == {"back.y_grad", "w.new.param_out", "w.new.moment1_out", "w.new.moment2_out"}
    alone, shared = table(asked, "w").time, table(asked, "back.y_grad").time
    assert (shared <= alone).all()
    assert shared.max() * 1000 < alone.max()  # 128 bytes of a bucket of 25 MiB
    link = MESH.links[1]
    partial = asked.layouts("w").index((Replicate(), asked.layouts("w")[-1][1]))
    # all_reduce of 128 bytes: 2 steps of latency, 2 * 64 bytes on the wire
    wire = 128 * 10**12 // link.bandwidth
    assert alone[partial, 0] == 2 * link.latency + wire
    assert shared[partial, 0] == -(-2 * link.latency * 128 // (25 * 2**20)) + wire


# ------------------------------------------------------------------------------------------------------ infeasibility


def test_pins_that_a_tie_joins_contradict_each_other() -> None:
    found = plan(linear_step("adamw"), MESH, pins={"w": "tp=S(0)", "w.m": "tp=S(1)"})
    assert found.status == "infeasible"
    assert found.explanation is not None
    assert {(fact.kind, fact.subject) for fact in found.explanation.core} == {
        ("pin", "w"),
        ("pin", "w.m"),
        ("tie", "w.m"),
    }
    assert found.explanation.minimal
    assert "'w.m' is stored as 'w' is stored (tie)" in str(found.explanation)
    assert any("let the tie of 'w.m' go" in repair.text for repair in found.explanation.repairs)
    assert plan(linear_step("adamw"), MESH, pins={"w": "tp=S(0)", "w.m": "tp=S(1)"}, policy=untie("w.m")).cost_ps


@pytest.mark.parametrize("communication", ["none", "frozen"])
def test_a_delivery_that_nothing_may_bring_about_is_in_the_core(communication: str) -> None:
    g = Graph()
    w = g.parameter("w", (4, 4))
    new = g.op("relu", g.input("x", (4, 4)), name="new")
    g.output(new)
    g.tie(new, w)
    pins = {"new": "dp=S(0)", "new/x": "dp=S(0)", "w": "dp=R"}
    found = plan(g, MESH, pins=pins, communication=communication)
    assert found.status == "infeasible"
    assert found.explanation is not None
    kinds = sorted(fact.kind for fact in found.explanation.core)
    assert kinds == ["communication", "pin", "pin", "tie"]
    assert "'new' is delivered as 'w' is stored (tie)" in str(found.explanation)
    assert plan(g, MESH, pins=pins).status == "optimal"
    assert plan(g, MESH, pins=pins, communication=communication, policy=untie("new")).status == "optimal"


def test_a_pin_on_a_tied_output_speaks_of_its_copy() -> None:
    graph = linear_step("sgd")
    found = plan(graph, MESH, pins={"w": "dp=R,tp=R", "w.new": "dp=S(0)"})
    assert found.held("w.new")["dp"] == Shard(0)
    assert found.evaluation.delivered("w.new") == (Replicate(), Replicate())
    assert found.check().ok


# ------------------------------------------------------------------------------------------------- files and messages


def step_plan() -> Plan:
    return plan(linear_step("adamw"), MESH, pins={"x": "dp=S(0)", "y/x": "dp=S(0)"})


def test_altered_messages_at_ties_prove_nothing_false() -> None:
    found, rng = step_plan(), random.Random(3)
    model = Model(found.problem)
    assert found.certificate is not None
    ties = [name for name in found.certificate["tree"]["messages"] if name.startswith("tie:")]
    assert len(ties) == 5
    assert proved(model, found.certificate) == found.cost_ps
    weaker = 0
    for _ in range(400):
        altered = copy.deepcopy(found.certificate)
        pair = altered["tree"]["messages"][rng.choice(ties)]
        vector = [value + rng.choice([0, -1, 1]) * 10 ** rng.randint(0, 9) for value in altered["arrays"][pair[0]]]
        altered["arrays"].append(vector)
        pair[rng.randrange(2)] = len(altered["arrays"]) - 1
        bound = proved(model, altered)
        assert bound <= found.cost_ps  # type: ignore[operator]
        weaker += bound < found.cost_ps  # type: ignore[operator]
    assert weaker > 200


def altered(found: Plan, change: Any) -> Any:
    data = json.loads(found.to_json())
    change(data)
    return {**data, "sha256": digest(data)}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda d: d["choice"]["stored"].update({"w.m": "[R, P(sum)]"}), "may not be stored as [R, P(sum)]"),
        (lambda d: d["choice"]["stored"].update({"w.m": "[S(0), S(1)]"}), "'w.m' is stored as [S(0), S(1)], against"),
        (lambda d: d["question"]["graph"]["ties"].pop("w.m"), "the certificate cannot be read"),
        (lambda d: d["question"]["graph"]["gradients"].clear(), "when computed again"),
        (lambda d: d["question"].update(policy=[{"untie": ["w.m"]}]), "the certificate cannot be read"),
        (lambda d: d["question"].update(policy=[{"untie": ["nothing"]}]), "untie('nothing') lets no tie"),
        (lambda d: d["question"].update(policy=[{"allow": ["w"]}]), "the question of this plan file cannot be read"),
        (
            lambda d: d["consequences"]["delivered"].update({"w.new.param_out": "[S(1), S(1)]"}),
            "'delivered' 'w.new.param_out' is '[S(1), S(1)]' in the file",
        ),
    ],
)
def test_an_altered_file_is_refused(change: Any, sentence: str) -> None:
    checked = verify(altered(step_plan(), change))
    assert not checked.ok
    assert sentence in str(checked)


def test_a_plan_file_without_policy_and_ties_still_reads() -> None:
    data = altered(step_plan(), lambda d: d["question"].pop("policy"))
    assert Plan.from_json(json.dumps(data)).problem.policy == ()
    with pytest.raises(PlanFileError, match="the question of this plan file cannot be read"):
        Plan.from_json(json.dumps(altered(step_plan(), lambda d: d["question"].update(policy=3))))


def test_a_policy_that_names_nothing_is_refused() -> None:
    graph = linear_step("adamw")
    with pytest.raises(ProblemError) as refused:
        plan(graph, MESH, policy=(untie("w.new*", "w.q"),))
    assert str(refused.value) == (
        "untie('w.q') lets no tie of graph 'linear_step' go: its followers are w.m, w.v, w.new.param_out, ..."
    )
    for patterns in ((), (3,)):
        with pytest.raises(ValueError, match=r"give the name of a follower, or a glob"):
            untie(*patterns)


def test_a_plan_tells_its_ties() -> None:
    told = str(step_plan())
    assert "  tied    2 stored, 3 delivered as another tensor is stored; " in told
    assert "for reshards of gradients and new tensors, in buckets" in told
    freed = str(plan(linear_step("adamw"), MESH, policy=(untie("w.m"),)))
    assert "  tied    1 stored, 3 delivered as another tensor is stored; 1 let go; " in freed
