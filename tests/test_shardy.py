"""What Shardy's propagation is known to do, case by case; tests/test_shardy_real.py holds it against Shardy itself."""

from __future__ import annotations

import pytest

from benchmarks.models import gpt_training
from ops import Partial, Replicate, Shard
from solver import Graph, Mesh
from solver.constraints.policy import untie
from solver.greedy.flows import Flows
from solver.greedy.propagation import Units
from solver.greedy.shardy import as_layout, shardy, shardy_axes
from solver.problem import problem

R = Replicate()


def product(rows: int, columns: int) -> Graph:
    g = Graph("product")
    g.output(g.op("matmul", g.input("x", (rows, 16)), g.parameter("w", (16, columns)), name="y"))
    return g


@pytest.mark.parametrize(("rows", "columns", "dim"), [(32, 64, 1), (64, 32, 0), (64, 64, 0)])
def test_an_axis_that_two_factors_want_goes_to_that_of_the_larger_tensor(rows: int, columns: int, dim: int) -> None:
    pins = {"x": "tp=S(0)", "w": "tp=S(1)"}
    assert shardy(problem(product(rows, columns), Mesh({"tp": 4}), pins=pins)).held("y") == {"tp": Shard(dim)}


def test_what_is_pinned_may_be_cut_further_but_not_where_it_is_pinned_whole() -> None:
    mesh, pins = Mesh({"dp": 2, "tp": 2}), {"x": "dp=S(0)", "y": "dp=S(0),tp=S(0)"}
    assert shardy(problem(product(8, 8), mesh, pins=pins)).layout("x") == {"dp": Shard(0), "tp": Shard(0)}
    pins["x"] = "dp=S(0),tp=R"
    assert shardy(problem(product(8, 8), mesh, pins=pins)).layout("x") == {"dp": Shard(0), "tp": R}


def test_pointwise_ops_go_before_products() -> None:
    """The result of the product is cut as the residual beside it, not as its own rows come."""
    g = Graph("residual")
    x, beside = g.input("x", (8, 8)), g.input("beside", (8, 8))
    y = g.op("matmul", x, g.parameter("w", (8, 8)), name="y")
    g.output(g.op("add", g.op("relu", y, name="a"), beside, name="z"))
    found = shardy(problem(g, Mesh({"tp": 2}), pins={"x": "tp=S(0)", "beside": "tp=S(1)"}))
    assert found.held("y") == {"tp": Shard(1)}
    assert found.layout("w") == {"tp": Shard(1)}


def test_a_broadcast_goes_backward_first() -> None:
    """A bias that is cut does not cut what it is added to, where another tensor wants the axis."""
    g = Graph("biased")
    x, bias = g.input("x", (8, 8)), g.parameter("bias", (8,))
    y = g.op("matmul", x, g.parameter("w", (8, 8)), name="y")
    g.output(g.op("add", y, bias, name="z"))
    found = shardy(problem(g, Mesh({"tp": 2}), pins={"x": "tp=S(0)", "bias": "tp=S(0)"}))
    assert found.held("z") == {"tp": Shard(0)}


def heads() -> Graph:
    g = Graph("heads")
    g.output(g.op("reshape", g.input("x", (4, 24)), shape=[4, 12, 2], name="y"))
    return g


def test_a_reshape_splits_an_axis_and_a_layout_leaves_that_out() -> None:
    asked = problem(heads(), Mesh({"tp": 8}), pins={"x": "tp=S(1)"})
    axes = shardy_axes(asked)
    assert axes == {"x": [(), (0, 1, 2)], "y": [(), (0, 1), ()]}
    assert as_layout(asked, "y", axes["y"]) == (R,)
    assert shardy(asked).held("y") == {"tp": R}


def test_what_does_not_divide_is_propagated_and_left_out() -> None:
    g = Graph("uneven")
    x = g.input("x", (8, 6))
    g.output(g.op("matmul", x, g.parameter("w", (6, 4)), name="y"), g.op("slice", x, axes=[0], starts=[0], ends=[6]))
    asked = problem(g, Mesh({"dp": 4}), pins={"x": "dp=S(0)"})
    (sliced,) = (name for name in asked.graph.outputs if name != "y")
    assert shardy_axes(asked)[sliced] == [(0, 1), ()]
    assert shardy(asked).held(sliced) == {"dp": R}


def test_an_axis_is_a_list_of_primes() -> None:
    units = Units([8, 1, 6])
    assert [units.of(axis) for axis in range(3)] == [(0, 1, 2), (), (3, 4)]
    assert units.size((1, 2)) == 4
    assert units.size(units.of(2)) == 6


SMALL = {"hidden": 16, "heads": 2, "batch": 4, "sequence": 8, "vocabulary": 32}


def test_tied_states_lie_as_their_parameter_and_an_update_as_it_is_pinned() -> None:
    asked = problem(gpt_training(1, **SMALL), Mesh({"tp": 2}), pins={"h0.up.weight": "tp=S(1)"})
    axes = shardy_axes(asked)
    alike = [axes[f"h0.up.weight{state}"] for state in ("", ".moment1", ".moment2", ".adamw.param_out")]
    assert alike == [[(), (0,)]] * 4


def test_the_optimizer_states_that_are_untied_go_their_own_way() -> None:
    graph = gpt_training(1, **SMALL)
    pins = {"h0.up.weight": "tp=S(1)", "h0.up.weight.moment1": "tp=S(0)"}
    asked = problem(graph, Mesh({"tp": 2}), pins=pins, policy=(untie("*.moment1"),))
    assert shardy_axes(asked)["h0.up.weight.moment1"] == [(0,), ()]


def test_a_flow_makes_one_result_and_a_broadcast_stands_by_itself() -> None:
    g = Graph("flows")
    x = g.op("add", g.input("x", (4, 8)), g.parameter("b", (8,)), name="s")
    g.output(*g.op("layer_norm", x, None, None, name="n", begin_norm_axis=1))
    found = Flows(problem(g, Mesh({"dp": 2}))).flows
    assert [(flow.op, flow.kind) for flow in found] == [
        ("broadcast", "broadcast"),
        ("add", "pointwise"),
        *[("layer_norm", "other")] * 3,
    ]
    assert set(found[2].types.values()) == {"pass", "replication"}


def test_a_grad_of_a_product_reads_the_other_factor_and_the_grad() -> None:
    asked = problem(gpt_training(1, optimizer=None, **SMALL), Mesh({"dp": 2}))
    flows = Flows(asked)
    grads = [flow for flow in flows.flows if flow.op == "matmul_grad"]
    assert all(len(flow.operands) == 2 for flow in grads)
    assert all("reduction" in flow.types.values() for flow in grads)


def test_a_product_whose_operands_lie_along_the_sum_makes_terms() -> None:
    pins = {"x": "tp=S(1)", "w": "tp=S(0)", "y": "tp=S(1)"}
    found = shardy(problem(product(8, 8), Mesh({"tp": 2}), pins=pins))
    assert found.made("y") == {"tp": Partial("sum")}
    assert [move.kind for reshard in found.reshards for move in reshard.collectives] == ["reduce_scatter"]
