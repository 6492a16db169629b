"""Blocks: disjoint parts of a network, joined step by step, each with a proof that the whole may add up."""

from __future__ import annotations

import time

import networkx as nx
import numpy as np
import pytest
from networks import frustrated, gains, transformer

from solver.search import branch
from solver.search.block import Blocks
from solver.search.bound import Dual
from solver.search.flat import flatten
from solver.search.limits import Limits
from solver.search.network import Network, arc_consistency
from solver.search.tree import Tree


def begun(network: Network, sweeps: int = 6) -> Blocks:
    start = arc_consistency(network)
    dual = Dual(flatten(network, start.domains))
    for _ in range(sweeps):
        dual.sweep()
    return Blocks(dual, start.domains)


def searched(network: Network) -> tuple[Tree, tuple[int, ...] | None]:
    """What a search says whose prices are not made finer."""
    domains = arc_consistency(network).domains
    limits = Limits(time.monotonic(), 60.0, 0.0, None, 1000, 2**62)
    search = branch._Search(network, flatten(network, domains, finest=0), domains, limits, 1)
    search.run()
    return search.tree(), search.incumbent.assignment


@pytest.mark.parametrize("size", [1, 5, 20, 1000])
def test_regions_are_disjoint_hang_together_and_grow_until_nothing_joins_them(size: int) -> None:
    network = transformer(4)
    blocks = begun(network)
    paid = np.random.default_rng(size).random(len(network.variables))
    regions = list(blocks.around(paid, size))
    graph = nx.Graph([(edge.tail, edge.head) for edge in network.edges])
    for _ in range(60):
        members = np.concatenate(regions)
        assert len(members) == len(set(members.tolist()))
        assert all(nx.is_connected(graph.subgraph(region.tolist())) for region in regions)
        larger = blocks.joined(regions)
        assert all(sum(set(region.tolist()) <= set(one.tolist()) for one in larger) == 1 for region in regions)
        regions = larger
    assert sorted(region.tolist() for region in regions) == sorted(
        sorted(part) for part in nx.connected_components(graph)
    )


def test_what_pays_nothing_begins_no_region() -> None:
    blocks = begun(transformer(1))
    paid = np.zeros(len(blocks.domains))
    assert not list(blocks.around(paid, 5))
    paid[3] = 1
    (region,) = blocks.around(paid, 5)
    assert 3 in region


@pytest.mark.parametrize("seed", range(10))
def test_the_gain_of_a_block_is_what_its_proof_adds(seed: int) -> None:
    """Computed once more on a network of its own (tests/networks.py)."""
    network = frustrated(seed, 12, values=3)
    blocks = begun(network)
    found = [blocks.solve(region, searched) for region in blocks.around(np.ones(12), 5)]
    proofs = [solved.block for solved in found if solved is not None]
    told = gains(network, blocks.messages, proofs, blocks.domains)
    assert list(told.values()) == [block.gain for block in proofs]
    assert all(block.gain > 0 for block in proofs)
