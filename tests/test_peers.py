"""The peers of the benchmark get the same problem as the planner's search: where they prove, they agree.

The pages of the benchmarks say what their CSVs do, and where a plan loses is found where it was made to lose.
"""

from __future__ import annotations

import importlib.util

import pytest

from benchmarks import captures, peers, scale, scale_figures
from benchmarks.peer_solvers import PEERS, instance
from benchmarks.results import IMAGES, Row, in_a_process, read_rows, written
from solver import Mesh
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


def test_no_solver_contradicts_another() -> None:
    rows = read_rows(peers.CSV)
    assert rows
    assert peers.contradictions(rows) == []
    plan_, bound = rows[0], {**rows[0], "solver": "CP-SAT", "bound_ps": str(2 * int(rows[0]["cost_ps"]))}
    assert peers.contradictions([plan_, bound]) != []


def test_every_proved_optimum_was_given_to_a_peer() -> None:
    plans, rows = read_rows(scale.CSV), read_rows(peers.CSV)
    assert all(scale_figures.confirmations(plans, rows).values())
    one: Row = {"model": "vit", "mesh": "8", "status": "optimal", "cost_ps": "100", "failed": ""}
    other: Row = {"model": "vit", "mesh": "8", "solver": "HiGHS", "proved": "yes", "cost_ps": "101"}
    for changed, found in (
        ({}, {"HiGHS": True}),
        ({"cost_ps": "200"}, {"HiGHS": False}),
        ({"proved": "no"}, {"HiGHS": False}),
        ({"proved": "", "cost_ps": ""}, {"HiGHS": False}),
        ({"solver": "shardproof"}, {}),
        ({"mesh": "8x8"}, {}),
    ):
        assert scale_figures.confirmations([one], [{**other, **changed}]) == {("vit", "8"): found}


def test_every_plan_was_checked() -> None:
    rows = read_rows(scale.CSV)
    assert rows
    assert scale.wrong(rows) == []
    assert scale.wrong([{**rows[0], "checked": "NO"}]) != []


@pytest.mark.parametrize("name", scale_figures.regions())
def test_the_page_says_what_was_measured(name: str) -> None:
    assert written(scale_figures.PAGE, name) == scale_figures.regions()[name]()
    assert {path.name for path in IMAGES.glob("scale_*.svg")} == {"scale_peers.svg", "scale_layers.svg"}


def test_the_page_of_the_captures_says_what_was_measured() -> None:
    rows = read_rows(captures.CSV)
    assert {captures.case_of(row) for row in rows} <= set(captures.cases())
    assert written(captures.PAGE, captures.FOUND) == captures.found_table(rows)
    assert written(captures.PAGE, captures.SPENT) == captures.spent_table(rows)
    assert all(row["failed"] or row["checked"] == "yes" for row in rows)
    assert all(row["loss"] for row in rows if not row["failed"] and captures.gap(row))


def test_the_meshes_of_the_captures() -> None:
    normal, none, equal = (
        captures.mesh_of(captures.Case("vit", mesh, latency))
        for mesh, latency in (("8x8", "10"), ("2x8x8", "0"), (captures.EQUAL, "1"))
    )
    assert [link.latency for link in normal.links] == [10 * link.latency for link in Mesh({"dp": 8, "tp": 8}).links]
    assert [link.latency for link in none.links] == [0, 0, 0]
    assert equal.links[0] == equal.links[1] == equal.hardware.network


def test_a_solver_that_gave_up_is_not_asked_again() -> None:
    asked = peers.INSTANCES[0]
    row: Row = {**asked._asdict(), "solver": "CP-SAT", "run": "1", "proved": "no", "bound_ps": "5", "failed": ""}
    assert not peers.wanted("CP-SAT", asked, 2, [row], again=False)
    assert peers.wanted("CP-SAT", asked, 2, [{**row, "proved": "yes"}], again=False)
    assert peers.wanted("HiGHS relaxed", asked, 2, [{**row, "solver": "HiGHS relaxed"}], again=False)
    assert peers.wanted("CP-SAT", asked, 1, [], again=False)


def test_a_run_that_fails_says_so() -> None:
    told = in_a_process("benchmarks.scale", ["--one", "nonsense-1", "8"], 60.0)
    assert told["failed"].startswith("exit code 1, ")
    assert "no model is called 'nonsense-1'" in told["failed"]
