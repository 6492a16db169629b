"""A person's own Z3 expressions: the optimum of exhaustive enumeration, the checker's verdict, and what is said."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import z3
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from solver import Mesh, partial, plan, reference, sharded
from solver.plan import Plan
from solver.plan_json import parse as parsed
from solver.reference_task import Fact, Task
from solver.verify import verify
from tests.graphs import Case, random_graphs
from tests.test_planner import EVERY

MESH = Mesh({"dp": 2, "tp": 2})
Truth: TypeAlias = Mapping[Fact, bool]
Drawn: TypeAlias = "tuple[Any, Callable[[Truth], Any]]"
"""A Z3 expression, and the same as a function of what is true."""


def of_fact(fact: Fact) -> Drawn:
    _, tensor, dim, axis = fact
    made = partial(tensor, axis) if dim is None else sharded(tensor, dim, axis)
    return made, lambda truth: truth[fact]


@st.composite
def facts(draw: Any, case: Case) -> list[Fact]:
    """Draw what an expression may speak of."""
    found: list[Fact] = []
    cutting = [axis for axis, size in zip(case.mesh.axes, case.mesh.sizes, strict=True) if size > 1]
    assume(cutting)
    for _ in range(draw(st.integers(2, 4))):
        tensor = draw(st.sampled_from(sorted(case.graph.tensors)))
        rank, axis = len(case.graph.tensors[tensor].shape), draw(st.sampled_from(cutting))
        if rank and draw(st.integers(0, 3)):
            found.append(("sharded", tensor, draw(st.integers(0, rank - 1)), axis))
        else:
            found.append(("partial", tensor, None, axis))
    return list(dict.fromkeys(found))


@st.composite
def expressions(draw: Any, spoken_of: list[Fact], depth: int = 2) -> Drawn:
    """Draw an expression over facts, with every operator."""
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        return of_fact(draw(st.sampled_from(spoken_of)))
    parts = [draw(expressions(spoken_of, depth - 1)) for _ in range(3)]
    (a, one), (b, two), (c, three) = parts
    weights = [draw(st.integers(1, 3)) for _ in parts]
    limit = draw(st.integers(1, 4))

    def count(truth: Truth) -> int:
        return sum(weight * bool(value(truth)) for weight, (_, value) in zip(weights, parts, strict=True))

    pairs = [(term, weight) for weight, (term, _) in zip(weights, parts, strict=True)]
    number = z3.Sum([z3.If(term, weight, 0) for term, weight in pairs])
    return draw(
        st.sampled_from(
            [
                (z3.And(a, b), lambda truth: one(truth) and two(truth)),
                (z3.Or(a, b, c), lambda truth: one(truth) or two(truth) or three(truth)),
                (z3.Not(a), lambda truth: not one(truth)),
                (z3.Implies(a, b), lambda truth: not one(truth) or two(truth)),
                (a == b, lambda truth: bool(one(truth)) == bool(two(truth))),
                (z3.Xor(a, c), lambda truth: bool(one(truth)) != bool(three(truth))),
                (z3.If(a, b, c), lambda truth: two(truth) if one(truth) else three(truth)),
                (z3.PbLe(pairs, limit), lambda truth: count(truth) <= limit),
                (z3.PbGe(pairs, limit), lambda truth: count(truth) >= limit),
                (z3.PbEq(pairs, limit), lambda truth: count(truth) == limit),
                (number <= limit, lambda truth: count(truth) <= limit),
                (z3.AtMost(a, b, c, 1), lambda truth: sum(bool(f(truth)) for f in (one, two, three)) <= 1),
            ]
        )
    )


@settings(EVERY, max_examples=150, phases=[Phase.generate])
@given(data=st.data())
def test_the_plan_under_expressions_is_the_optimum_of_the_reference(data: Any) -> None:
    case = data.draw(random_graphs(max_ops=4, tied=data.draw(st.booleans())))
    spoken_of = data.draw(facts(case))
    drawn = [data.draw(expressions(spoken_of)) for _ in range(data.draw(st.integers(1, 2)))]
    task = Task(case.graph, case.mesh, case.pins, case.communication, case.capabilities)
    wanted = reference.best_where(task, spoken_of, lambda truth: all(value(truth) for _, value in drawn))
    found = plan(
        case.graph,
        case.mesh,
        pins=case.pins,
        communication=case.communication,
        capabilities=case.capabilities,
        constraints=[term for term, _ in drawn],
    )
    if wanted is None:
        assert found.status == "infeasible"
        return
    assert found.status == "optimal"
    assert found.cost_ps == wanted[0]
    assert found.bound_ps == wanted[0]
    checked = verify(parsed(found.to_json()))
    assert checked.ok, checked
    assert not checked.unchecked
    assert Plan.from_json(found.to_json()).to_json() == found.to_json()
