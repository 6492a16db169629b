"""Which asks for boundaries go together, and which are refused."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver import chains
from solver.chains import Ask, cheapest_hitting_set, settle


@settings(max_examples=300)
@given(
    st.lists(st.frozensets(st.integers(0, 6), min_size=1, max_size=3), max_size=8),
    st.lists(st.integers(1, 9), min_size=7, max_size=7),
)
def test_hitting_sets_are_the_cheapest(sets: list[frozenset[int]], weights: list[int]) -> None:
    costs = dict(enumerate(weights))
    chosen = cheapest_hitting_set(sets, costs)
    assert all(chosen & one for one in sets)
    best = min(
        sum(costs[name] for name in choice)
        for count in range(8)
        for choice in itertools.combinations(range(7), count)
        if all(one.intersection(choice) for one in sets)
    )
    assert sum(costs[name] for name in chosen) == best


def test_at_equal_weight_the_earlier_ask_wins() -> None:
    one, other = Ask(((0, ((1, 4), (2, 6))),), 5), Ask(((0, ((3, 6), (4, 4))),), 5)
    assert settle([one, other]) == ({0: frozenset({6})}, {1: 0})
    assert settle([other, one]) == ({0: frozenset({4})}, {1: 0})


def test_an_ask_that_contradicts_itself_is_refused_alone() -> None:
    assert settle([Ask(((0, ((1, 4), (2, 6))), (0, ((1, 6), (2, 4)))), 5)]) == ({}, {0: 0})


@pytest.mark.parametrize("piece", [0, 1])
def test_a_factor_that_stays_in_one_piece_refuses_boundaries_inside(piece: int) -> None:
    members = [(1, 6), (2, 4)]
    members[piece] = (None, members[piece][1])
    solid = Ask(((0, tuple(members)),), 9)
    inside = Ask(((0, ((3, 12), (4, 2))),), 1) if piece else Ask(((0, ((3, 2), (4, 12))),), 1)
    boundaries, lost = settle([inside, solid])
    assert (boundaries[0], lost) == (frozenset({4}), {0: 1})


def test_many_contradictions_end_in_time() -> None:
    asks = [
        Ask(((0, ((2 * i + 1, 2**5 * 3**5 // d), (2 * i + 2, d))),), i % 7 + 1)
        for i, d in enumerate(divisors(2**5 * 3**5))
    ]
    start = time.perf_counter()
    boundaries, lost = settle(asks)
    assert time.perf_counter() - start < 5
    chain = sorted(boundaries[0])
    assert all(b % a == 0 for a, b in itertools.pairwise(chain))
    assert len(chain) + len(lost) == len(asks)


THREE = [(a, b, 144 // a // b) for a in (2, 3, 4, 6) for b in (2, 3, 4, 6, 12) if 144 % (a * b) == 0]


@settings(max_examples=100)
@given(st.lists(st.tuples(st.sampled_from(THREE), st.integers(1, 9)), min_size=1, max_size=7))
def test_a_search_cut_short_still_grants_only_what_goes_together(drawn: list[tuple[tuple[int, ...], int]]) -> None:
    asks = [
        Ask(((0, tuple((3 * i + place + 1, size) for place, size in enumerate(sizes))),), weight)
        for i, (sizes, weight) in enumerate(drawn)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chains, "ROUNDS", 1)
        boundaries, lost = settle(asks)
    kept = [ask for index, ask in enumerate(asks) if index not in lost]
    assert settle(kept) == (boundaries, {})
    assert all(winner not in lost or winner == loser for loser, winner in lost.items())


def divisors(n: int) -> list[int]:
    return [d for d in range(2, n) if n % d == 0]
