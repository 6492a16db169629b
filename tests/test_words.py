"""Sizes as text: near enough to read, never too little to allow, never alike where they differ."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from solver.words import read_size, size_up, sizes_apart


@given(st.integers(1, 10**18))
def test_a_size_rounded_up_is_enough_and_hardly_more(count: int) -> None:
    assert count <= read_size(size_up(count)) <= count * 1.0011


@given(st.lists(st.integers(1, 10**5), min_size=2, max_size=3))
def test_different_sizes_read_differently(counts: list[int]) -> None:
    assert len(set(sizes_apart(*counts))) == len(set(counts))
