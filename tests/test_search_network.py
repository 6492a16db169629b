"""The cost network: prices, what it refuses, and arc consistency against a naive twin."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from networks import assignments, edge, random_network, single, variables

from solver.search.network import INF, Domains, Edge, Network, NetworkError, Variable, arc_consistency

TABLE = np.array([[0, 5, INF], [7, 0, 2]], np.int64)


def test_a_copy_lets_each_use_read_whichever_is_nearer() -> None:
    pairs = np.array([[0, 0], [0, 1], [1, 1]], np.int32)
    network = Network(variables([1, 10, 100], [0, 0, 0]), (edge(0, 1, TABLE, pairs, [0, 1, 2]),))
    prices = [[network.cost((a, b)) for b in range(3)] for a in range(3)]
    assert prices == [[1, 6, INF], [10, 10, 12], [107, 100, 102]]


def test_the_price_is_the_sum_of_all_variables_and_edges_even_parallel_ones() -> None:
    one = edge(0, 1, TABLE, single([0, 1]), [0, 1])
    network = Network(variables([1, 2], [3, 4], [50]), (one, one, edge(1, 2, TABLE, single([1, 0]), [2])))
    assert network.cost((1, 0, 0)) == 2 + 3 + 50 + 7 + 7 + 2
    assert network.cost((0, 1, 0)) == INF
    assert Network((), ()).cost(()) == 0


def test_prices_beyond_int64_add_up_exactly() -> None:
    dear = INF - 1
    assert Network(variables(*[[dear]] * 9), ()).cost((0,) * 9) == 9 * dear


REFUSED = {
    "float cost": (lambda: Variable("x", "op", np.zeros(2)), "variable 'x': cost is float64"),
    "negative cost": (lambda: Variable("x", "op", np.array([0, -3])), "a cost of -3 ps is negative"),
    "float table": (lambda: Edge("e", 0, 1, np.zeros((2, 2)), single([0]), np.zeros(1, np.int32)), "table is float64"),
    "flat tail": (lambda: Edge("e", 0, 1, TABLE, np.zeros(1, np.int32), np.zeros(1, np.int32)), "int32 of shape"),
    "wide head": (lambda: Edge("e", 0, 1, TABLE, single([0]), single([0])), "head_index is int32"),
    "backward": (lambda: edge(1, 0, TABLE, single([0]), [0]), "it must run forward"),
    "loop": (lambda: edge(1, 1, TABLE, single([0]), [0]), "it must run forward"),
    "no variable": (lambda: Network(variables([0]), (edge(0, 1, TABLE, single([0]), [0]),)), "variable 1 is not there"),
    "too few": (
        lambda: Network(variables([0, 0], [0]), (edge(0, 1, TABLE, single([0]), [0]),)),
        "tail_index has 1 entries, variable 'v0' has 2 values",
    ),
    "no row": (
        lambda: Network(variables([0], [0]), (edge(0, 1, TABLE, single([2]), [0]),)),
        "tail_index spans 2 to 2, the table has 2 layouts there",
    ),
    "no column": (lambda: Network(variables([0], [0]), (edge(0, 1, TABLE, single([0]), [-1]),)), "head_index spans -1"),
    "negative price": (
        lambda: Network(variables([0], [0]), (edge(0, 1, TABLE - 1, single([0]), [0]),)),
        "a price of -1 ps is negative",
    ),
    "short assignment": (lambda: Network(variables([0], [0]), ()).cost((0,)), "1 values, the network has 2 variables"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_contradicts_itself_is_refused_in_one_sentence(name: str) -> None:
    make, words = REFUSED[name]
    with pytest.raises(NetworkError) as refusal:
        make()
    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)


def naive_consistency(network: Network, domains: list[set[int]]) -> list[set[int]]:
    """Value by value, pair by pair."""
    changed = True
    while changed:
        changed = False
        for e in network.edges:
            for i, j, flip in ((e.tail, e.head, False), (e.head, e.tail, True)):
                alone = {
                    a for a in domains[i] if not any(e.value(*((b, a) if flip else (a, b))) < INF for b in domains[j])
                }
                domains[i] -= alone
                changed |= bool(alone)
    return domains


def as_sets(domains: Domains) -> list[set[int]]:
    return [set(np.flatnonzero(domain).tolist()) for domain in domains]


@pytest.mark.parametrize("seeds", [range(k, k + 50) for k in range(0, 400, 50)], ids=str)
def test_arc_consistency_is_the_naive_one(seeds: range) -> None:
    for seed in seeds:
        network = random_network(seed)
        found = arc_consistency(network)
        naive = naive_consistency(network, [set(np.flatnonzero(v.cost < INF).tolist()) for v in network.variables])
        assert found.feasible == all(naive)
        if found.feasible:
            assert as_sets(found.domains) == naive
        else:
            assert found.emptied is not None
            assert not found.domains[found.emptied].any()
            assert not assignments(network)


@pytest.mark.parametrize("seed", range(40))
def test_from_where_it_was_consistent_only_the_changed_variable_is_told(seed: int) -> None:
    network = random_network(seed)
    whole = arc_consistency(network)
    if not whole.feasible or not network.variables:
        return
    for i, value in product(range(len(network.variables)), range(5)):
        if value < len(whole.domains[i]) and whole.domains[i][value]:
            mask = np.zeros_like(whole.domains[i])
            mask[value] = True
            narrowed = (*whole.domains[:i], mask, *whole.domains[i + 1 :])
            some, full = arc_consistency(network, narrowed, [i]), arc_consistency(network, narrowed)
            assert some.feasible == full.feasible
            if full.feasible:
                assert as_sets(some.domains) == as_sets(full.domains)


def test_a_variable_without_values_is_infeasible() -> None:
    assert arc_consistency(Network(variables([0], []), ())).emptied == 1
    assert arc_consistency(Network(variables([0], [INF]), ())).emptied == 1
    assert arc_consistency(Network((), ())).feasible
