"""Blocks, and values taken out: what the search proves with them is checked, and nothing false is ever proved."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from networks import best_cost, edge, frustrated, random_network, single, variables

from solver import plan
from solver.certificate import CertificateError, proved
from solver.certificate_memory import StoringModel
from solver.certificate_model import Model
from solver.cost.reshard import INF
from solver.graph import Graph
from solver.problem import problem
from solver.search import branch, root
from solver.search.branch import Result, solve
from solver.search.coarse import coarser
from solver.search.flat import SCALE_BITS
from solver.search.network import Edge, Network
from tests.drawn_certificates import Drawer, NetworkModel, nodes, written
from tests.graphs import mlp
from tests.plans import FAST, MESH, blocked_plan, communicating, split_plans


def network_of(seed: int, rng: random.Random) -> Network:
    """A small network whose edges each have a name."""
    unit = rng.choice([1, 1, 1, 1000, 2**34, 2**40])
    count, values = rng.randint(5, 7), 3
    found = random_network(seed) if rng.random() < 0.2 else frustrated(seed, count, values, unit)
    edges = [
        Edge(f"{n}:{e.name}", e.tail, e.head, e.table, e.tail_index, e.head_index) for n, e in enumerate(found.edges)
    ]
    return Network(found.variables, tuple(edges))


def searched(network: Network, rng: random.Random) -> tuple[Result, int]:
    """Search with small blocks and few sweeps, so that much is left to blocks, branching and taking values out."""
    coarse, hasty = coarser(network), (0, 10.0**9)
    with ExitStack() as stack:
        for name, value in (
            ("BLOCK", rng.randint(1, 4)),
            ("NARROWER", rng.choice([0.999, 0.999, 0.5, 0.0])),
            ("BLOCK_NODES", rng.choice([1, 3, 100])),
        ):
            stack.enter_context(patch.object(root, name, value))
        if rng.random() < 0.9:
            for module, name in ((root, "HASTY"), (root, "AT_ROOT"), (branch, "BELOW")):
                stack.enter_context(patch.object(module, name, hasty))
        found = coarse.exact(solve(coarse.network, nodes=rng.choice([1, 1, 4, 10**5])))
    return found, SCALE_BITS - coarse.shift


def test_what_is_proved_of_small_networks_is_checked_and_nothing_near_it_is_false() -> None:
    shown: Counter[str] = Counter()
    for seed in range(60):
        rng = random.Random(seed)
        network = network_of(seed, rng)
        best, (found, bits) = best_cost(network), searched(network, rng)
        if best == INF or not network.variables:
            continue
        assert found.bound <= best <= found.cost
        model, proof = NetworkModel(network), written(network, found.tree, bits)
        assert found.bound == min(found.cost, proved(model, proof)) or bits < SCALE_BITS  # type: ignore[arg-type]
        assert found.bound <= proved(model, proof) <= best or found.cost == best  # type: ignore[arg-type]
        shown.update({key for node in nodes(proof["tree"]) for key in ("within", "blocks", "left") if key in node})
        for _ in range(6):
            bound = proved(model, Drawer(model, proof, best, rng).certificate(rng.randint(1, 4)))  # type: ignore[arg-type]
            assert bound <= best
            shown.update({"drawn": 1, "tight": bound == best})
    assert min(shown[key] for key in ("within", "blocks", "left")) > 0
    assert shown["tight"] > shown["drawn"] // 10


def test_nothing_near_the_proof_of_a_plan_is_false() -> None:
    rng, tight = random.Random(5), 0
    for found in (blocked_plan(), communicating(), *split_plans()):
        model = Model(found.problem)
        assert found.cost_ps is not None
        for _ in range(15):
            bound = proved(model, Drawer(model, found.certificate, found.cost_ps, rng).certificate(rng.randint(1, 4)))
            assert bound <= found.cost_ps
            tight += bound == found.cost_ps
    assert tight > 2


def one_block(model: Model, arrays: Any, messages: Any, block: Any, **more: Any) -> Any:
    """A certificate of one leaf with one block."""
    return {"bits": 0, "arrays": arrays, "tree": {"messages": messages, "blocks": [block]}, **more}


@pytest.mark.parametrize("counts", ["weights", "multipliers"])
@pytest.mark.parametrize("sign", [-1, 1])
def test_a_budget_is_no_matter_of_a_block(counts: str, sign: int) -> None:
    """The messages around a block are of time: beside bytes alone they would make it cost too much, or too little."""
    model = StoringModel(problem(mlp(), FAST, memory=10**9), ["h"])
    link = model.links[0]
    arrays = [[sign * 10**18] * link.price.shape[0], [0] * link.price.shape[1]]
    block = {"variables": [list(link.tail)], "tree": {"messages": {}, counts: [0]}}
    with pytest.raises(CertificateError, match="a budget is no matter of a block"):
        proved(model, one_block(model, arrays, {link.name: [0, 1]}, block, moments=["h"]))


def test_numbers_at_the_other_end_of_an_edge_that_leaves_a_block_may_be_large() -> None:
    found = communicating()
    model = Model(found.problem)
    for large in (2**62, 2**80):
        for link in model.links:
            arrays = [[0] * link.price.shape[0], [large] * link.price.shape[1]]
            block = {"variables": [list(link.tail)], "tree": {"messages": {}}}
            bound = proved(model, one_block(model, arrays, {link.name: [0, 1]}, block))
            assert bound == proved(model, {"bits": 0, "arrays": [], "tree": {"messages": {}}})


def test_a_block_in_which_nothing_fits_together_shows_that_there_is_no_plan() -> None:
    """Three that all differ from each other, of two values: consistency sees it once one of them is split."""
    differ, values = np.where(np.eye(2, dtype=np.bool_), INF, 0), single([0, 1])
    ends = [(0, 1), (1, 2), (0, 2), (2, 3)]
    tables = [differ, differ, differ, np.full((2, 2), 5)]
    edges = tuple(edge(i, k, table, values, [0, 1]) for (i, k), table in zip(ends, tables, strict=True))
    model: Any = NetworkModel(Network(variables([3, 4], [0, 0], [0, 0], [0, 7]), edges))
    side = {"messages": {}}
    tree = {"op": "v0", "left_values": [[0]], "left": side, "right": side}
    block = {"variables": [["op", "v0"], ["op", "v1"], ["op", "v2"]], "tree": tree}
    for large in (0, -(10**30)):
        certificate = one_block(model, [[large] * 2], {"2->3": [0, 0]}, block)
        assert proved(model, certificate) == INF
        narrowed = {**certificate["tree"], "within": 10**30, "rest": side}
        assert proved(model, {**certificate, "tree": narrowed}) == 10**30 + 1
    assert proved(model, {"bits": 0, "arrays": [], "tree": side}) == 8


def named_alike() -> Graph:
    """An op whose use is named as the edge between another op and its result."""
    g = Graph("named_alike")
    x = g.op("softmax", g.input("x", (4, 4)), axis=0, name="y/x")
    g.output(g.op("softmax", x, axis=1, name="made:y"), g.op("exp", x, name="c"), g.op("tanh", x, name="d"))
    return g


def test_edges_of_one_name_count_each() -> None:
    found = plan(named_alike(), MESH)
    model = Model(found.problem)
    shared = [link for link in model.links if link.name == "made:y/x"]
    assert len(shared) == 2
    assert shared[0].price.shape == shared[1].price.shape
    block = {"variables": [["op", "y/x"], ["tensor", "y/x"]], "tree": {"messages": {"made:y/x": [0, 0]}}}
    for large in (-(10**12), 10**12):
        arrays = [[large] * len(shared[0].price)]
        alone = {"bits": 0, "arrays": arrays, "tree": {"messages": {"made:y/x": [0, 0]}}}
        assert proved(model, alone) <= found.bound_ps
        assert proved(model, one_block(model, arrays, {}, block)) <= found.bound_ps
        within = {"messages": {"made:y/x": [0, 0]}, "within": found.bound_ps, "rest": {"messages": {}}}
        assert proved(model, {"bits": 0, "arrays": arrays, "tree": within}) <= found.bound_ps
