"""The price of one collective, against the formulas and against a ring that counts what it sends."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.cost.collectives import (
    COLLECTIVES,
    KINDS,
    LOCAL,
    Price,
    PriceError,
    all_gather,
    all_reduce,
    all_to_all,
    permute,
    reduce_scatter,
    slowest,
    steps,
    transfer_time,
)
from solver.cost.hardware import Link

LINK = Link(bandwidth=10**12, latency=1000)  # one picosecond a byte
RING = Link(bandwidth=10**12, latency=1000, ring=True)

TABLE = [  # collective, link, n, elements, itemsize, bytes, time
    (all_reduce, LINK, 8, 64, 4, 2 * 7 * 8 * 4, 2 * 3 * 1000 + 448),
    (all_reduce, RING, 8, 64, 4, 2 * 7 * 8 * 4, 2 * 7 * 1000 + 448),
    (all_reduce, LINK, 8, 1, 4, 2 * 7 * 1 * 4, 6056),  # one element is still one element a chunk
    (all_reduce, LINK, 4, 10, 2, 2 * 3 * 3 * 2, 4036),
    (all_reduce, LINK, 8, 0, 4, 0, 6000),
    (reduce_scatter, LINK, 8, 64, 4, 7 * 8 * 4, 3000 + 224),
    (reduce_scatter, RING, 8, 64, 4, 7 * 8 * 4, 7000 + 224),
    (all_gather, LINK, 8, 8, 4, 7 * 8 * 4, 3000 + 224),
    (all_gather, LINK, 6, 8, 4, 5 * 8 * 4, 3000 + 160),
    (all_gather, RING, 6, 8, 4, 5 * 8 * 4, 5000 + 160),
    (all_to_all, LINK, 8, 64, 4, 7 * 8 * 4, 7000 + 224),
    (all_to_all, RING, 8, 64, 4, 7 * 8 * 4, 7000 + 224),
    (permute, LINK, 8, 64, 4, 64 * 4, 1000 + 256),
    (permute, RING, 8, 64, 4, 64 * 4, 1000 + 256),
]


@pytest.mark.parametrize(("collective", "link", "n", "elements", "itemsize", "sent", "time"), TABLE)
def test_table(collective, link, n, elements, itemsize, sent, time) -> None:  # type: ignore[no-untyped-def]
    assert collective(link, n, elements, itemsize) == Price(sent, time)


def test_every_kind_has_its_place() -> None:
    assert set(KINDS) == set(LOCAL) | set(COLLECTIVES)
    assert len(KINDS) == 9


@pytest.mark.parametrize(("n", "doublings"), [(2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (9, 4), (256, 8)])
def test_steps(n: int, doublings: int) -> None:
    assert steps(LINK, n) == doublings == math.ceil(math.log2(n))
    assert steps(RING, n) == n - 1


LINKS = st.builds(Link, bandwidth=st.integers(10**8, 10**12), latency=st.integers(0, 10**7), ring=st.booleans())


@given(LINKS, st.integers(2, 64), st.integers(1, 10**5), st.integers(1, 16))
def test_the_formulas_of_the_table(link: Link, n: int, chunk: int, itemsize: int) -> None:
    elements = chunk * n  # whole chunks: the formulas without rounding
    size = Fraction(elements * itemsize)
    k = n - 1 if link.ring else math.ceil(math.log2(n))
    share = Fraction(n - 1, n)
    formulas = {
        "all_reduce": (2 * k, 2 * share * size),
        "reduce_scatter": (k, share * size),
        "all_gather": (k, (n - 1) * size),
        "all_to_all": (n - 1, share * size),
        "permute": (1, size),
    }
    for kind, (count, sent) in formulas.items():
        time = math.ceil(count * link.latency + sent * 10**12 / link.bandwidth)
        assert COLLECTIVES[kind](link, n, elements, itemsize, None) == (sent, time)


@given(LINKS, st.sampled_from(sorted(COLLECTIVES)), st.integers(2, 64), st.integers(0, 1000), st.integers(1, 8))
def test_more_never_costs_less(link: Link, kind: str, n: int, elements: int, itemsize: int) -> None:
    price = COLLECTIVES[kind](link, n, elements, itemsize, None)
    for larger in (
        COLLECTIVES[kind](link, n, elements + 1, itemsize, None),
        COLLECTIVES[kind](link, n, elements, itemsize + 1, None),
    ):
        assert larger.bytes >= price.bytes
        assert larger.time >= price.time


@given(LINKS, st.sampled_from(sorted(COLLECTIVES)), st.integers(2, 64), st.integers(1, 10**5), st.integers(1, 10**9))
def test_a_bucket_shares_the_latency_by_bytes(link: Link, kind: str, n: int, elements: int, bucket: int) -> None:
    alone = COLLECTIVES[kind](link, n, elements, 2, None)
    shared = COLLECTIVES[kind](link, n, elements, 2, bucket)
    transfer = transfer_time(alone.bytes, link.bandwidth)
    assert shared.bytes == alone.bytes
    larger = elements * 2 * (n if kind == "all_gather" else 1)
    assert shared.time - transfer == math.ceil(Fraction((alone.time - transfer) * larger, bucket))


def test_the_slowest_link_decides() -> None:
    links = [Link(bandwidth=5, latency=1), Link(bandwidth=9, latency=3, ring=True)]
    assert slowest(links) == Link(bandwidth=5, latency=3)


def test_a_time_that_cannot_be_counted() -> None:
    with pytest.raises(PriceError, match="1000000000000 bytes at 1000 bytes/s take over 18 minutes"):
        transfer_time(10**12, 1000)
    with pytest.raises(
        PriceError, match="waiting 14 times 10000000 ps for each 1 of 8000000000 bytes takes over 18 minutes"
    ):
        all_reduce(Link(10**12, 10**7, ring=True), 8, 10**9, 8, bucket=1)


# --- a ring that counts


def chunks(array: np.ndarray, n: int) -> list[np.ndarray]:
    size = -(-array.size // n)
    padded = np.concatenate([array, np.zeros(size * n - array.size, dtype=array.dtype)])
    return [padded[i * size : (i + 1) * size].copy() for i in range(n)]


def ring_all_reduce(terms: list[np.ndarray]) -> tuple[list[np.ndarray], list[int]]:
    """The textbook ring: n - 1 steps that add, n - 1 steps that copy, one chunk a step."""
    n = len(terms)
    held = [chunks(term, n) for term in terms]
    sent = [0] * n
    for phase in ("add", "copy"):
        for step in range(n - 1):
            lead = 0 if phase == "add" else 1
            messages = [(d, (d + lead - step) % n, held[d][(d + lead - step) % n].copy()) for d in range(n)]
            for device, place, chunk in messages:
                sent[device] += chunk.size
                after = (device + 1) % n
                held[after][place] = held[after][place] + chunk if phase == "add" else chunk
    return [np.concatenate(pieces)[: terms[0].size] for pieces in held], sent


@pytest.mark.parametrize("n", [2, 3, 4, 5, 8])
@pytest.mark.parametrize("elements", [1, 2, 7, 8, 24])
def test_the_bytes_are_those_that_a_ring_sends(n: int, elements: int) -> None:
    rng = np.random.default_rng(n * 100 + elements)
    terms = [rng.integers(-9, 9, elements) for _ in range(n)]
    reduced, sent = ring_all_reduce(terms)
    for result in reduced:
        np.testing.assert_array_equal(result, np.sum(terms, axis=0))
    assert max(sent) * 4 == all_reduce(LINK, n, elements, 4).bytes
    assert max(sent) * 2 == reduce_scatter(LINK, n, elements, 4).bytes  # its first phase alone
