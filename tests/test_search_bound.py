"""The dual bound, its messages, its twin in plain Python, reduced costs, and what is read off."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from networks import assignments, best_cost, edge, frustrated, random_network, single, transformer, variables

from solver.search.bound import Dual, Messages, certified_bound, picoseconds, variable_sums
from solver.search.flat import SCALE_BITS, FlatNetwork, flatten
from solver.search.incumbent import Incumbent, dive, edge_prices, orders
from solver.search.network import INF, Network, arc_consistency
from solver.search.reduce import NEVER, reduced
from solver.search.shares import BY_SPAN, EVENLY, PATIENT
from solver.search.split import tension


def flat(network: Network) -> FlatNetwork | None:
    start = arc_consistency(network)
    return flatten(network, start.domains) if start.feasible else None


def swept(network: Network, sweeps: int = 20) -> Dual | None:
    found = flat(network)
    if found is None:
        return None
    dual = Dual(found)
    for _ in range(sweeps):
        if not dual.sweep():
            break
    return dual


def nothing(network: Network) -> Messages:
    return tuple((np.zeros(len(e.table), np.int64), np.zeros(e.table.shape[1], np.int64)) for e in network.edges)


@pytest.mark.parametrize("unit", [1, 10**4, 2**16])
@pytest.mark.parametrize("seed", range(60))
def test_the_messages_prove_the_bound_and_no_more_than_the_optimum(seed: int, unit: int) -> None:
    network = random_network(seed, unit)
    dual = swept(network)
    if dual is None:
        assert best_cost(network) == INF
        return
    proved = certified_bound(network, dual.messages())
    assert dual.units <= proved <= best_cost(network) << SCALE_BITS


@pytest.mark.parametrize("seed", range(40))
def test_any_messages_prove_something_true(seed: int) -> None:
    network = random_network(seed)
    if flat(network) is None:
        return
    draw = np.random.default_rng(seed)
    for scale in (1, 2**20, 2**60):
        messages = tuple(
            (draw.integers(-scale, scale, len(a)), draw.integers(-scale, scale, len(b))) for a, b in nothing(network)
        )
        assert certified_bound(network, messages) <= best_cost(network) << SCALE_BITS


@pytest.mark.parametrize("seed", range(20))
def test_the_bound_never_falls_by_more_than_rounding(seed: int) -> None:
    found = flat(frustrated(seed))
    assert found is not None
    dual, before = Dual(found), 0
    for _ in range(30):
        dual.sweep()
        assert dual.units >= before - len(found.values) * len(found.flat.tail)
        before = dual.units


@pytest.mark.parametrize("seed", range(30))
def test_every_way_of_sharing_out_gives_a_true_bound(seed: int) -> None:
    network = random_network(seed)
    found = flat(network)
    if found is None:
        return
    for ways in ((BY_SPAN,), (EVENLY,), (BY_SPAN, EVENLY), (BY_SPAN, EVENLY, PATIENT)):
        dual = Dual(found)
        for sweeps in range(12):
            dual.sweep(ways[sweeps % len(ways)])
        assert dual.units <= certified_bound(network, dual.messages()) <= best_cost(network) << SCALE_BITS


@pytest.mark.parametrize("times", [1, 16, 2**20])
def test_a_leap_gives_a_true_bound_and_can_be_undone(times: int) -> None:
    network = frustrated(7, 6)
    found = flat(network)
    assert found is not None
    dual = Dual(found)
    dual.sweep()
    before = dual.snapshot()
    dual.sweep()
    now, units = dual.snapshot(), dual.units
    dual.leap(before, now, times)
    dual.sweep()
    assert dual.units <= certified_bound(network, dual.messages()) <= best_cost(network) << SCALE_BITS
    dual.restore(now)
    assert dual.units == units
    assert all((one == other).all() for one, other in zip(dual.state, now, strict=True))


def test_nobody_shares_out_more_than_there_is() -> None:
    network = transformer(1, copies=True)
    found = flat(network)
    assert found is not None
    given = found.flat
    for share, ends in ((given.tail_share, given.tail), (given.head_share, given.head)):
        for way in (BY_SPAN, EVENLY, PATIENT):
            assert np.bincount(ends, share[way]).max() <= 1 + 1e-9
            assert share[way].min() > 0


def test_a_tree_is_bounded_exactly() -> None:
    draw = np.random.default_rng(3)
    for _ in range(20):
        table = draw.integers(0, 100, (4, 4))
        codes = list(range(4))
        network = Network(
            variables(*draw.integers(0, 100, (5, 4)).tolist()),
            tuple(edge(int(draw.integers(0, i)), i, table, single(codes), codes) for i in range(1, 5)),
        )
        dual = swept(network)
        assert dual is not None
        assert dual.bound == best_cost(network)


def test_prices_too_dear_for_the_fine_unit_still_give_a_true_bound() -> None:
    for unit, shift in ((2**34, 12), (2**40, 6), (2**44, 2), (2**50, -4)):
        network = frustrated(1, 6, unit=unit)
        dual = swept(network)
        assert dual is not None
        assert dual.network.shift == shift
        proved = certified_bound(network, dual.messages())
        assert (proved if shift < 6 else dual.units) <= proved <= best_cost(network) << SCALE_BITS
        assert proved > 0


def test_a_sweep_without_changes_is_the_last() -> None:
    settled = 0
    for seed in range(30):
        dual = swept(random_network(seed), sweeps=0)
        if dual is not None and not all(dual.sweep() for _ in range(50)):
            settled += 1
            before = dual.units, dual.state.to_tail.copy(), dual.state.choice.copy()
            assert not dual.sweep()
            assert dual.units == before[0]
            assert (dual.state.to_tail == before[1]).all()
            assert (dual.state.choice == before[2]).all()
    assert settled > 10


def test_what_is_kept_is_what_would_be_computed_anew() -> None:
    """A sweep that visits everything again changes nothing that a sweep over changes had left alone."""
    found = flat(transformer(1, copies=True))
    assert found is not None
    lazy, eager = Dual(found), Dual(found)
    for _ in range(60):
        lazy.sweep()
        for flags in (eager.state.ahead, eager.state.behind, eager.state.unsettled):
            flags[:] = True
        eager.sweep()
        for one, other in zip(lazy.state, eager.state, strict=True):
            assert one.dtype == np.bool_ or (one == other).all()


@pytest.mark.parametrize("seed", range(40))
def test_values_that_no_edge_tells_apart_are_one(seed: int) -> None:
    network = random_network(seed)
    found = flat(network)
    if found is None:
        return
    domains = arc_consistency(network).domains
    for i, (group, values) in enumerate(zip(found.group, found.values, strict=True)):
        cost = network.variables[i].cost
        assert (group[values] == np.arange(len(values))).all()
        assert ((group >= 0) == domains[i]).all()
        for value in np.flatnonzero(domains[i]):
            assert cost[values[group[value]]] <= cost[value]
            for e in network.edges:
                index = e.tail_index if e.tail == i else e.head_index
                assert i not in (e.tail, e.head) or (index[value] == index[values[group[value]]]).all()
    lone = Network(variables([3, 1, 2]), ())
    assert [v.tolist() for v in flatten(lone, arc_consistency(lone).domains).values] == [[1]]


TWIN = """
import sys
sys.path[:0] = {path!r}
import numpy as np
from test_search_bound import fingerprint
print(fingerprint())
"""


def fingerprint() -> str:
    """All that compiled loops compute, on a few networks."""
    told: list[object] = []
    for network in [*map(random_network, range(25)), frustrated(1, 7)]:
        found = flat(network)
        if found is None:
            continue
        dual = Dual(found)
        for _ in range(3):
            dual.sweep()
        incumbent = Incumbent(dual)
        incumbent.offer(dual.state.choice)
        for order in orders(len(network.variables), range(2)):
            incumbent.read(dual, order)
        told += [array.tolist() for array in dual.state] + [
            incumbent.cost,
            incumbent.assignment,
            tension(dual, dual.state.choice, dual.closed()),
        ]
        told += [part.tolist() for pair in dual.messages() for part in pair]
    return repr(told)


def test_the_compiled_loops_are_their_uncompiled_twins() -> None:
    here = Path(__file__).resolve().parent
    run = subprocess.run(
        [sys.executable, "-c", TWIN.format(path=[str(here), str(here.parent)])],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == fingerprint()


@pytest.mark.parametrize("seed", range(80))
def test_pruning_keeps_every_assignment_that_can_be_afforded(seed: int) -> None:
    network = random_network(seed) if seed % 4 else frustrated(seed, 6)
    for sweeps in (0, 1, 20):
        dual = swept(network, sweeps)
        if dual is None:
            return
        rest = reduced(network, dual.messages(), arc_consistency(network).domains)
        assert rest.units == certified_bound(network, rest.messages)
        priced = assignments(network)
        for extra in (0, 1, 7, 10**6):
            spend = (min(cost for _, cost in priced) + extra << SCALE_BITS) - rest.units
            kept = rest.prune(spend)
            for values, cost in priced:
                if cost << SCALE_BITS <= rest.units + spend:
                    assert all(mask[value] for mask, value in zip(kept, values, strict=True))
        assert not network.variables or not all(mask.any() for mask in rest.prune(-1))


@pytest.mark.parametrize("seed", range(40))
def test_the_reduced_costs_of_an_assignment_add_up_to_its_price(seed: int) -> None:
    network = random_network(seed)
    dual = swept(network, 3)
    if dual is None:
        return
    rest = reduced(network, dual.messages(), arc_consistency(network).domains)
    for values, cost in assignments(network)[:50]:
        total = rest.units + sum(int(own[value]) for own, value in zip(rest.own, values, strict=True))
        for e, this in enumerate(network.edges):
            total += int(
                rest.pairs(e, this.tail_index[[values[this.tail]]], this.head_index[[values[this.head]]])[0, 0]
            )
        assert total == cost << SCALE_BITS
    for e, this in enumerate(network.edges):
        pairs = rest.pairs(e, this.tail_index, this.head_index)
        allowed = np.array([[this.value(a, b) < INF for b in range(pairs.shape[1])] for a in range(len(pairs))])
        assert ((pairs < NEVER) == allowed).all()


def test_pruning_leaves_little_of_a_chain_whose_bound_is_tight() -> None:
    network = transformer(1)
    dual = swept(network, 300)
    assert dual is not None
    incumbent = Incumbent(dual)
    incumbent.offer(dual.state.choice)
    rest = reduced(network, dual.messages(), arc_consistency(network).domains)
    kept = rest.prune((incumbent.cost << SCALE_BITS) - rest.units)
    assert incumbent.assignment is not None
    assert all(mask[value] for mask, value in zip(kept, incumbent.assignment, strict=True))
    assert sum(int(mask.sum()) for mask in kept) < 0.3 * sum(map(len, network.variables))


@pytest.mark.parametrize("seed", range(60))
def test_an_incumbent_is_allowed_and_priced_exactly(seed: int) -> None:
    network = random_network(seed)
    dual = swept(network)
    if dual is None:
        return
    incumbent = Incumbent(dual)
    draw = np.random.default_rng(seed)
    for _ in range(5):
        incumbent.offer(np.array([draw.integers(0, len(v)) for v in dual.network.values], np.int32))
        if incumbent.assignment is None:
            assert incumbent.cost == INF
        else:
            assert incumbent.cost == network.cost(incumbent.assignment) < INF
            assert incumbent.choice is not None
            assert (dual.network.choice(incumbent.assignment) == incumbent.choice).all()
    choice = np.zeros(len(network.variables), np.int32)
    values = dual.network.assignment(choice)
    prices = edge_prices(dual.network.flat, choice) >> dual.network.shift
    assert [min(int(p), INF) for p in prices if p < INF >> dual.network.shift] == [
        e.value(values[e.tail], values[e.head]) for e in network.edges if e.value(values[e.tail], values[e.head]) < INF
    ]


def test_mixing_takes_the_better_of_each_part_that_differs() -> None:
    table = np.array([[0, 9], [9, 0]], np.int64)
    pairs = tuple(edge(i, i + 1, table, single([0, 1]), [0, 1]) for i in (0, 2))
    network = Network(variables([0, 3], [0, 3], [3, 0], [3, 0]), pairs)
    dual = swept(network, 0)
    assert dual is not None
    incumbent = Incumbent(dual)
    mixed = incumbent._mixed(np.array([1, 1, 1, 1], np.int32), np.zeros(4, np.int32))
    assert mixed is not None
    assert mixed.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("seed", range(120))
def test_a_dive_finds_something_allowed_wherever_there_is_something(seed: int) -> None:
    network = random_network(seed)
    dual = swept(network, 1)
    if dual is None:
        return
    choice = dive(dual, arc_consistency(network).domains, lambda: False)
    if choice is None:
        assert best_cost(network) == INF
    else:
        assert network.cost(dual.network.assignment(choice)) < INF


def test_what_the_choice_pays_above_the_bound_is_told_part_by_part() -> None:
    for seed in range(20):
        network = frustrated(seed)
        dual = swept(network, 5)
        assert dual is not None
        node, paid = tension(dual, dual.state.choice, dual.closed())
        assert (node >= 0).all()
        assert (paid >= 0).all()
        least = sum(int(v.min()) for v in variable_sums(network, dual.messages()))
        cost = network.cost(dual.network.assignment(dual.state.choice))
        if cost < INF:
            assert least + int(node.sum()) + int(paid.sum()) == cost << SCALE_BITS


def test_units_become_whole_picoseconds_upwards() -> None:
    assert [picoseconds(n) for n in (0, 1, 4096, 4097, -1, -4096)] == [0, 1, 1, 2, 0, -1]


def test_a_sweep_over_two_thousand_ops_takes_milliseconds() -> None:
    dual = swept(transformer(42), 2)
    assert dual is not None
    begin = time.thread_time()
    for _ in range(10):
        dual.sweep()
    assert time.thread_time() - begin < 1.0
