"""Laws of explanations, on random problems; the reference, which enumerates every plan, says what is feasible."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ops.placement import Partial
from solver import reference
from solver.constraints.check import Checker
from solver.constraints.model import whole_graph
from solver.mesh import Mesh
from solver.planner import plan_problem
from solver.reference_task import Task
from tests.explain.scenario import Wishes
from tests.graphs import Case
from tests.test_constraints import MANY, asked, demanding

FEW = settings(MANY, max_examples=25)


@FEW
@given(case=demanding(), data=st.data())
def test_removing_a_pin_never_makes_a_feasible_case_infeasible(case: Case, data: st.DataObject) -> None:
    """But for a pin on P of an output, which not only asks for it but allows it (docs/semantics.md, section 2)."""
    wishes = asked(case)
    assume(Checker(whole_graph(wishes)).check().status == "sat")
    outputs = set(case.graph.outputs)
    removable = [pin for pin in wishes.pins if not (isinstance(pin.placement, Partial) and pin.subject in outputs)]
    assume(removable)
    removed = data.draw(st.sampled_from(removable))
    fewer = wishes.with_pins(tuple(pin for pin in wishes.pins if pin != removed))
    assert Checker(whole_graph(fewer)).check().status == "sat"


@FEW
@given(case=demanding())
def test_the_core_alone_stays_infeasible_when_everything_else_is_dropped(case: Case) -> None:
    found = plan_problem(asked(case), 60.0)
    assume(found.status == "infeasible")
    assert found.explanation is not None
    core = wishes_of(case).only(found.explanation.core, case.graph)
    assert not solvable(core, case)


def wishes_of(case: Case) -> Wishes:
    return Wishes(
        mesh=dict(zip(case.mesh.axes, case.mesh.sizes, strict=True)),
        communication=case.communication,
        capabilities=case.capabilities,
    )


def solvable(wishes: Wishes, case: Case) -> bool:
    """Enumerate all plans."""
    asked = wishes.options()
    mesh = Mesh(wishes.mesh, hardware=case.mesh.hardware)
    task = Task(case.graph, mesh, asked["pins"], wishes.communication, wishes.capabilities, policy=wishes.policy)
    return reference.best(task) is not None
