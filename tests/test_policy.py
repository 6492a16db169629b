"""Policies and overlap: the meaning of the reference, the optimum of exhaustive enumeration, and what is said."""

from __future__ import annotations

from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from solver import Graph, Mesh, plan, reference
from solver.constraints.policy import (
    KINDS,
    Policy,
    batch_stays,
    expert_parallel,
    forbid,
    no_communication,
    sequence_parallel,
    untie,
    zero,
)
from solver.plan import Plan
from solver.plan_json import parse
from solver.reference_task import Task
from solver.verify import verify
from tests.graphs import COMMUNICATING, Case, random_graphs
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
