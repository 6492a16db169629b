"""The whole search: always the optimum, always proved, whatever stops it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from networks import assert_optimal, best_cost, edge, frustrated, proved, random_network, single, transformer, variables

from solver.search import branch, root
from solver.search.bound import Dual
from solver.search.branch import solve
from solver.search.flat import SCALE_BITS, flatten
from solver.search.incumbent import Incumbent
from solver.search.limits import Progress
from solver.search.network import INF, Edge, Network, Variable, arc_consistency
from solver.search.region import SIZES, improve, part
from solver.search.tree import Leaf, Split, parts


@pytest.mark.parametrize("seeds", [range(k, k + 100) for k in range(0, 800, 100)], ids=str)
def test_tiny_networks_are_solved_exactly(seeds: range) -> None:
    for seed in seeds:
        network = random_network(seed)
        assert_optimal(network, solve(network), best_cost(network))


@pytest.mark.parametrize("unit", [2**34, 2**40, 2**44, 2**50])
def test_dear_networks_get_an_allowed_answer_and_a_true_bound(unit: int) -> None:
    for seed in range(5):
        network = frustrated(seed, 6, unit=unit)
        result, best = solve(network), best_cost(network)
        assert result.cost == best
        assert 0 < result.bound <= best
        assert unit > 2**40 or result.bound == best
        assert min(-(-proved(network, result.tree) >> SCALE_BITS), best) >= result.bound


@pytest.mark.parametrize("seed", range(12))
def test_frustrated_networks_are_branched_until_they_are_solved(seed: int) -> None:
    network = frustrated(seed, 9, values=3)
    assert_optimal(network, solve(network), best_cost(network))


@pytest.mark.parametrize("seed", range(40))
def test_blocks_and_narrowing_prove_what_they_say(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of few variables, values left out wherever one can be: the answer stays the best one, the proof holds."""
    monkeypatch.setattr(root, "BLOCK", 2 + seed % 3)
    monkeypatch.setattr(root, "NARROWER", 0.999 if seed % 2 else 0.5)
    network = random_network(seed) if seed % 4 == 0 else frustrated(seed, 8, values=3)
    assert_optimal(network, solve(network), best_cost(network))


@pytest.mark.parametrize("method", ["sweep", "leap"])
def test_ctrl_c_at_any_moment_leaves_a_bound_that_the_messages_prove(method: str, monkeypatch: Any) -> None:
    """Also between a sweep and what it proves, and right after a leap, when messages prove less than before."""
    monkeypatch.setattr(root, "LEAP_AFTER", 2)
    monkeypatch.setattr(root.Root, "_look", lambda search, long=False: False)  # it has searches of its own
    network, plain, calls = frustrated(1, 30, values=3), getattr(Dual, method), [0, 0]

    def interrupted(dual: Dual, *given: Any) -> Any:
        found = plain(dual, *given)
        calls[0] += 1
        if calls[0] == calls[1]:
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(Dual, method, interrupted)
    for calls[1] in range(1, 10):
        calls[0] = 0
        result = solve(network, nodes=1)
        assert calls[0] >= calls[1]
        assert result.bound == -(-proved(network, result.tree) >> SCALE_BITS)


def test_parts_that_have_nothing_to_do_with_each_other_are_proved_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six copies of a network that needs branching: a tree of them all would need a power of six."""
    monkeypatch.setattr(root, "BLOCK", 6)
    one = next(network for seed in range(20) if solve(network := frustrated(seed, 6)).nodes > 2)
    many = beside(one, 6)
    result = solve(many)
    assert result.cost == result.bound == 6 * solve(one).cost
    blocked = [node for node in parts(result.tree) if not isinstance(node, Split) and node.blocks]
    assert [len(node.blocks) for node in blocked] == [6]
    assert -(-proved(many, result.tree) >> SCALE_BITS) == result.cost


def beside(network: Network, times: int) -> Network:
    """Copies of a network without edges between them."""
    count = len(network.variables)
    edges = tuple(
        Edge(
            f"{edge.name}.{n}",
            edge.tail + n * count,
            edge.head + n * count,
            edge.table,
            edge.tail_index,
            edge.head_index,
        )
        for n in range(times)
        for edge in network.edges
    )
    return Network(
        tuple(Variable(f"{v.name}.{n}", v.kind, v.cost) for n in range(times) for v in network.variables), edges
    )


def test_branching_closes_what_the_bound_leaves_open() -> None:
    results = [solve(frustrated(seed)) for seed in range(8)]
    assert any(isinstance(result.tree, Split) for result in results)
    for seed, result in enumerate(results):
        assert result.cost == result.bound
        assert result.nodes == 1 or -(-proved(frustrated(seed), result.tree) >> SCALE_BITS) >= result.cost


@pytest.mark.parametrize("seed", range(30))
def test_a_region_is_priced_like_the_whole(seed: int) -> None:
    """Prices of the part differ as those of the whole do, and its variables are the region's flat values."""
    network = frustrated(seed, 7) if seed % 2 else random_network(seed)
    start = arc_consistency(network)
    if not start.feasible or not network.variables:
        return
    whole = flatten(network, start.domains)
    draw = np.random.default_rng(seed)
    choices = [np.array([draw.integers(0, len(v)) for v in whole.values], np.int32) for _ in range(6)]
    fixed = choices[0]
    members = np.sort(draw.permutation(len(fixed))[: draw.integers(1, len(fixed) + 1)])
    found = part(whole, fixed, members, [np.arange(len(whole.values[i])) for i in members])
    allowed = []
    for choice in choices:
        full = fixed.copy()
        full[members] = choice[members]
        prices = network.cost(whole.assignment(full)), found.cost(choice[members].tolist())
        if max(prices) < INF:
            allowed.append(prices[0] - prices[1])
        else:
            assert prices[0] == INF
    assert len(set(allowed)) <= 1


def test_regions_are_solved_anew_where_the_incumbent_pays_above_the_bound() -> None:
    network = transformer(3)
    best = solve(network)
    dual = Dual(flatten(network, arc_consistency(network).domains))
    for _ in range(60):
        dual.sweep()
    incumbent = Incumbent(dual)
    incumbent.offer(np.zeros(len(network.variables), np.int32))
    assert incumbent.cost > best.cost
    regions = []

    def solver(region: Network) -> tuple[int, ...] | None:
        regions.append(len(region.variables))
        return solve(region).assignment

    assert improve(incumbent, dual, solver, lambda: False)
    assert incumbent.cost - best.cost < 0.02 * best.cost
    assert max(regions) <= max(SIZES) + 20
    before = incumbent.cost
    assert not improve(incumbent, dual, lambda region: None, lambda: False)
    assert not improve(incumbent, dual, solver, lambda: True)
    assert incumbent.cost == before


def test_an_odd_ring_is_infeasible_though_arc_consistent() -> None:
    differ = np.array([[INF, 0], [0, INF]], np.int64)
    ring = tuple(edge(a, b, differ, single([0, 1]), [0, 1]) for a, b in ((0, 1), (1, 2), (0, 2)))
    result = solve(Network(variables([0, 0], [0, 0], [0, 0]), ring))
    assert result.infeasible
    assert (result.assignment, result.cost, result.bound) == (None, INF, INF)
    assert isinstance(result.tree, Split)
    assert isinstance(result.tree.left, Leaf)
    assert result.tree.left.infeasible


def test_nothing_to_choose() -> None:
    empty = solve(Network((), ()))
    assert (empty.assignment, empty.cost, empty.bound, empty.infeasible) == ((), 0, 0, False)
    one = solve(Network(variables([7]), ()))
    assert (one.assignment, one.cost, one.bound) == ((0,), 7, 7)
    none = solve(Network(variables([7], []), ()))
    assert none.infeasible


def test_a_gap_ends_the_search_early() -> None:
    network = frustrated(0, 20)
    exact, close = solve(network), solve(network, gap=0.1)
    assert close.nodes < exact.nodes
    assert close.cost - close.bound <= 0.1 * close.cost
    assert close.bound <= exact.cost <= close.cost


def test_a_limit_on_nodes_gives_the_best_so_far_and_a_true_bound() -> None:
    network = frustrated(0, 20)
    optimum = solve(network).cost
    for nodes in (1, 2, 5, 9):
        result = solve(network, nodes=nodes)
        assert result.nodes <= nodes + 1
        assert result.bound <= optimum <= result.cost < INF
        assert min(-(-proved(network, result.tree) >> SCALE_BITS), result.cost) >= result.bound


def test_no_time_gives_a_true_bound_too() -> None:
    network = frustrated(0, 20)
    result = solve(network, timeout=0)
    assert result.bound <= solve(network).cost
    assert proved(network, result.tree) >= 0


def test_progress_is_told_and_can_stop() -> None:
    network, told = frustrated(0, 20), []
    result = solve(network, progress=told.append)
    assert [p.sweeps for p in told] == sorted(p.sweeps for p in told)
    assert told[-1].cost == result.cost
    assert all(p.cost is None or p.bound <= result.cost <= p.cost for p in told)
    stopped = solve(network, progress=lambda p: p.nodes >= 3)
    assert stopped.nodes < result.nodes
    assert stopped.bound <= result.cost <= stopped.cost


@pytest.mark.parametrize("after", [1, 2, 10, 60])
def test_an_interrupt_gives_the_best_so_far(after: int) -> None:
    network, calls = frustrated(0, 20), 0

    def interrupt(progress: Progress) -> None:
        nonlocal calls
        calls += 1
        if calls == after:
            raise KeyboardInterrupt

    result = solve(network, progress=interrupt)
    assert result.bound <= solve(network).cost <= result.cost < INF
    assert min(-(-proved(network, result.tree) >> SCALE_BITS), result.cost) >= result.bound


def test_an_interrupt_before_anything_is_known_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(network: Network) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(branch, "arc_consistency", interrupt)
    network = frustrated(0)
    result = solve(network)
    assert (result.assignment, result.cost, result.bound, result.infeasible) == (None, INF, 0, False)
    assert proved(network, result.tree) >= 0


@pytest.mark.parametrize("broken", ["flatten", "continued", "arc_consistency", "narrowed", "Blocks"])
@pytest.mark.parametrize("after", range(1, 5))
def test_an_interrupt_while_values_leave_keeps_what_is_known(
    broken: str, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(root, "BLOCK", 4)
    monkeypatch.setattr(root, "NARROWER", 0.999)
    network, calls, whole = frustrated(3, 9, values=3), 0, getattr(root, broken)

    def interrupt(*given: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == after:
            raise KeyboardInterrupt
        return whole(*given, **more)

    best = best_cost(network)
    monkeypatch.setattr(root, broken, interrupt)
    result = solve(network)
    assert result.bound <= best <= result.cost
    assert min(-(-proved(network, result.tree) >> SCALE_BITS), result.cost) >= result.bound
    if result.assignment is not None:
        assert network.cost(result.assignment) == result.cost


@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("layers", [1, 4])
def test_a_transformer_step_is_solved_and_proved(layers: int, copies: bool) -> None:
    network = transformer(layers, copies=copies)
    result = solve(network, timeout=60)
    assert result.assignment is not None
    assert network.cost(result.assignment) == result.cost == result.bound
    assert isinstance(result.tree, Leaf)
    assert -(-proved(network, result.tree) >> SCALE_BITS) >= result.cost


def test_equal_layers_cost_the_bound_no_more_sweeps() -> None:
    one, many = solve(transformer(2)), solve(transformer(16))
    assert many.sweeps <= 2 * one.sweeps
    assert many.bound == many.cost


def test_the_same_question_gets_the_same_answer() -> None:
    for network in (frustrated(3, 16), transformer(1, copies=True)):
        one, other = (solve(network, nodes=40) for _ in range(2))
        assert (one.assignment, one.cost, one.bound, one.sweeps, one.nodes) == (
            other.assignment,
            other.cost,
            other.bound,
            other.sweeps,
            other.nodes,
        )


def test_where_nothing_is_read_off_something_allowed_is_dived_for() -> None:
    """A long chain of ties between values that look dear from where they begin."""
    count, draw = 40, np.random.default_rng(0)
    table = np.where(draw.random((12, 12)) < 0.8, INF, draw.integers(0, 9, (12, 12))).astype(np.int64)
    codes = list(range(12))
    ends = [(i, i + step) for step in (1, 3) for i in range(count - step)]
    network = Network(
        variables(*draw.integers(0, 100, (count, 12)).tolist()),
        tuple(edge(a, b, table, single(codes), codes) for a, b in ends),
    )
    dual = Dual(flatten(network, arc_consistency(network).domains))
    dual.sweep()
    assert network.cost(dual.network.assignment(dual.state.choice)) == INF
    result = solve(network, nodes=2)
    assert result.assignment is not None
    assert network.cost(result.assignment) == result.cost < INF


@pytest.mark.parametrize("block", [4, 80])
def test_losses_say_where_the_best_pays_above_the_bound_before_branching(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(root, "BLOCK", block)
    for seed in range(8):
        network = frustrated(seed, 14)
        found = solve(network, nodes=1)
        lost = sum(found.losses.values())
        assert set(found.losses) <= {part.name for part in (*network.variables, *network.edges)}
        assert (lost > 0) == (found.bound < found.cost)
        assert abs(lost - (found.cost - found.bound)) <= len(network.variables) + len(network.edges)
        assert not solve(network).losses
