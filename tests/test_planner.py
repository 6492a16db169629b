"""The planner against the reference: the same optimum, the same verdict, a certified bound, and a run that is right."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings

from solver import plan, reference
from solver.plan_json import parse
from solver.reference_task import Task
from solver.verify import verify
from tests.graphs import Case, random_graphs

EVERY = settings(
    max_examples=300,
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
