"""The peers of the benchmark get the same problem as the planner's search: where they prove, they agree."""

from __future__ import annotations

import importlib.util

import pytest

from benchmarks.peer_solvers import PEERS, instance
from solver.search.branch import solve
from tests.networks import random_network

MODULES = {
    "toulbar2": "pytoulbar2",
    "HiGHS": "highspy",
    "HiGHS relaxed": "highspy",
    "CP-SAT": "ortools",
    "Z3 Optimize": "z3",
}


@pytest.mark.parametrize("peer", PEERS)
def test_a_peer_agrees_on_small_networks(peer: str) -> None:
    if importlib.util.find_spec(MODULES[peer]) is None:
        pytest.skip(f"{MODULES[peer]} is not installed: pip install '.[bench]'")
    proved = 0
    for seed in range(40):
        network = random_network(seed)
        ours = solve(network)
        if ours.assignment is None or not network.variables:
            continue
        answer = PEERS[peer](instance(network), 20.0)
        if answer.bound is not None:
            assert answer.bound <= ours.cost + 1
        if answer.cost is not None:
            assert answer.cost >= ours.cost - 1
        if answer.proved:
            assert answer.cost == pytest.approx(ours.cost, abs=1)
            proved += 1
    assert proved >= 8 or peer == "HiGHS relaxed"
