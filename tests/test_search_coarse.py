"""Plans that take minutes: searched in coarser units, with a bound that holds and closes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from solver import Mesh, plan
from solver.cost.hardware import load
from solver.graph import Graph
from solver.search.coarse import EXACT_BITS, coarser
from solver.search.limits import Progress
from solver.search.network import Edge, Network, Variable
from tests.graphs import mlp
from tests.plans import looked_up, tower

PINS = {"h0": "dp=S(0),tp=S(1)", "s0/x": "dp=S(1)", "x2": "dp=S(0)"}
ROUNDING = 1e-11


def slow(bandwidth: int, latency: int) -> dict[str, Any]:
    """A machine that computes and sends next to nothing."""
    hardware = load("cpu").to_json()
    link = {"bandwidth": bandwidth, "latency": latency, "ring": False}
    return {
        **hardware,
        "peak": {"float32": 1},
        "memory_bandwidth": 10,
        "inside": link,
        "network": link,
        "axes": {},
    }


@pytest.mark.parametrize(("bandwidth", "latency"), [(1, 10**12), (10, 10**13), (10**9, 10**14), (1, 2 * 10**14)])
@pytest.mark.parametrize(("graph", "pins"), [(tower, PINS), (mlp, {}), (lambda: looked_up(True), {})])
@pytest.mark.parametrize("sizes", [{"dp": 2, "tp": 2}, {"dp": 2, "tp": 2, "pp": 2}])
def test_a_plan_of_minutes_has_its_bound(bandwidth: int, latency: int, graph: Any, pins: Any, sizes: Any) -> None:
    found = plan(graph(), Mesh(sizes, hardware=slow(bandwidth, latency)), pins=pins)
    assert found.status in ("optimal", "feasible")
    assert found.gap is not None
    assert 0 <= found.gap < ROUNDING
    checked = found.check()
    assert checked.ok, checked
    assert checked.bound is not None
    assert checked.bound >= found.bound_ps


def test_large_operands_have_their_bound() -> None:
    g = Graph("large")
    x, w = g.input("x", (10**6, 10**6)), g.parameter("w", (10**6, 64))
    g.output(g.op("exp", g.op("matmul", x, w)), g.op("softmax", x, axis=0, name="s"))
    found = plan(g, Mesh({"dp": 8, "tp": 8}, hardware="cpu"), pins={"x": "dp=S(0)", "w": "tp=S(0)", "s": "dp=S(0)"})
    assert found.gap is not None
    assert 0 <= found.gap < ROUNDING
    assert found.check().ok


def test_a_link_that_waits_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="over 18 minutes"):
        plan(mlp(), Mesh({"dp": 2}, hardware=slow(1, 10**15 * 2)))


def test_progress_is_told_in_picoseconds() -> None:
    told: list[Progress] = []
    mesh = Mesh({"dp": 2, "tp": 2}, hardware=slow(10, 10**13))
    found = plan(tower(), mesh, pins=PINS, progress=lambda stage, state: told.append(state) if state else None)
    assert found.cost_ps is not None
    assert abs(told[-1].bound - found.bound_ps) < ROUNDING * found.cost_ps
    assert told[-1].cost is not None
    assert abs(told[-1].cost - found.cost_ps) < ROUNDING * found.cost_ps


def network(dearest: int) -> Network:
    table = np.array([[0, dearest], [dearest, 0]])
    pair = np.array([[0, 0], [1, 1]], np.int32)
    u, v = (Variable(name, "tensor", np.array([0, 3])) for name in "uv")
    return Network((u, v), (Edge("uv", 0, 1, table, pair, pair[:, 0].copy()),))


def test_usual_prices_are_searched_as_they_are() -> None:
    usual, long = network(2**EXACT_BITS - 1), network(2**EXACT_BITS)
    assert coarser(usual).network is usual
    assert coarser(long).shift == 1
    assert coarser(long).network.variables[0].cost.tolist() == [0, 1]
