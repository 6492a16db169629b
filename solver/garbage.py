"""Python's search for cycles of garbage, put off while much is built that stays."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collecting_later() -> Iterator[None]:
    """Search for no cycles of garbage in the block, nor right after it in what the block has built.

    Each search walks through all objects there are. Where millions are built that are all kept, as a graph and its
    rules are, this takes a third of the time and finds nothing. What has no cycles is freed as always.
    """
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            _count_as_old()
            gc.enable()


def _count_as_old() -> None:
    """Leave what there is to searches among old objects; where someone has frozen objects, it is left as it is."""
    if gc.get_freeze_count() == 0:
        gc.freeze()
        gc.unfreeze()
