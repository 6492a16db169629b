"""Names that could be read as something else: plans and proofs stay what they are with any other name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from solver import Graph, Mesh, plan
from solver.cost.moments import START, step_of
from solver.graph import GraphError, Tensor

MESH = Mesh({"dp": 2, "tp": 2})


def branches(names: Sequence[str]) -> Graph:
    """Seven ops; within a small memory every step becomes a moment."""
    name = iter(names)
    g = Graph("branches")
    w = g.parameter("w", (4, 8))
    h = g.op("matmul", g.input("x", (8, 4)), w, name=next(name))
    both = g.op("add", g.op("relu", h, name=next(name)), g.op("exp", h, name=next(name)), name=next(name))
    first, second = g.op("split", both, num_or_sections=2, axis=0, name=next(name))
    g.output(g.op("matmul", first, second, transpose_y=True, name=next(name)), g.op("add", w, w, name=next(name)))
    return g


def test_ops_may_be_called_as_the_moments_of_a_certificate_are() -> None:
    plain, odd = "habcsyz", ["h", START, "before h/x", "at h", "before c/y", "at before h/x", "reshard held h"]
    memory = plan(branches(plain), MESH).memory.peak * 2 // 3
    usual, found = (plan(branches(names), MESH, memory=memory) for names in (plain, odd))
    assert usual.certificate is not None
    assert START in usual.certificate["moments"]
    assert (found.status, found.cost_ps, found.bound_ps) == (usual.status, usual.cost_ps, usual.bound_ps)
    assert found.check().ok, found.check()
    assert found.check().bound == found.bound_ps


def test_no_two_ops_run_at_moments_of_one_name() -> None:
    names = ["h", "at", "at h", "at at h", "before", START, "before h/x", f"at {START}"]
    moments = {step_of(name) for name in names}
    assert len(moments) == len(names)
    assert not any(moment.startswith("before ") for moment in moments)


MAKERS: list[Callable[[Graph], Tensor]] = [
    lambda g: g.parameter("up/y", (4, 4)),
    lambda g: g.op("relu", g.parameter("w", (4, 4)), name="up/y"),
]


@pytest.mark.parametrize("make", MAKERS)
def test_a_tensor_that_is_called_as_a_use_is_refused(make: Callable[[Graph], Tensor]) -> None:
    """Else a pin on the tensor would bind what the op reads, too, at twice the price."""
    g = Graph("called")
    g.output(g.op("matmul", g.input("x", (4, 4)), make(g), name="up"))
    with pytest.raises(GraphError, match="'up/y' is the name of a tensor and of the use 'y' of op 'up'"):
        plan(g, MESH, pins={"up/y": "dp=S(0)"})
