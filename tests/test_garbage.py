"""Python's search for cycles of garbage, put off."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from solver.garbage import collecting_later


@pytest.fixture
def searched() -> Iterator[list[int]]:
    """Tell the generation of each search from here on, and leave the collector as it was."""
    generations: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "stop":
            generations.append(info["generation"])

    before = gc.isenabled()
    gc.collect()
    gc.enable()
    gc.callbacks.append(note)
    yield generations
    gc.callbacks.remove(note)
    (gc.enable if before else gc.disable)()


def test_no_search_in_the_block_nor_of_what_it_built(searched: list[int]) -> None:
    with collecting_later():
        kept = [[number] for number in range(200_000)]
        assert searched == []
    more = [[number] for number in range(100)]
    assert searched == []
    assert gc.isenabled()
    assert len(kept) + len(more) == 200_100


def test_garbage_of_the_block_is_found_later(searched: list[int]) -> None:
    with collecting_later():
        cycle: list[object] = []
        cycle.append(cycle)
        del cycle
    assert gc.collect() >= 1


def test_what_was_off_stays_off(searched: list[int]) -> None:
    gc.disable()
    with collecting_later():
        pass
    assert not gc.isenabled()


def test_frozen_objects_stay_frozen(searched: list[int]) -> None:
    gc.freeze()
    try:
        with collecting_later():
            pass
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


def test_an_error_leaves_the_collector_on(searched: list[int]) -> None:
    with pytest.raises(KeyError), collecting_later():
        raise KeyError
    assert gc.isenabled()
