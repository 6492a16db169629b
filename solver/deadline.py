"""When long work must end: whoever starts it says so once, and its loops ask now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

PERIOD = 0.02
"""Seconds between two looks at what says whether to stop."""


class OutOfTimeError(RuntimeError):
    """Work that ran out of time, or of room for its tables."""


class _Watch:
    """Asks whether to stop, not too often."""

    def __init__(self, over: Callable[[], bool]) -> None:
        self.over, self.next = over, 0.0

    def look(self) -> None:
        now = time.monotonic()
        if now >= self.next:
            self.next = now + PERIOD
            if self.over():
                raise OutOfTimeError("out of time")


_WATCH: ContextVar[_Watch | None] = ContextVar("watch", default=None)


@contextmanager
def ending_when(over: Callable[[], bool]) -> Iterator[None]:
    """Let `keep_time` raise in the block once a function says so, or that of a block around it.

    Parameters
    ----------
    over : callable
        Whether to stop.
    """
    around = _WATCH.get()
    token = _WATCH.set(_Watch(over if around is None else lambda: over() or around.over()))
    try:
        yield
    finally:
        _WATCH.reset(token)


@contextmanager
def leaving_at(deadline: float) -> Iterator[None]:
    """Leave the block where it runs out of time, and go on behind it with what it has done so far.

    Parameters
    ----------
    deadline : float
        A time of `time.monotonic`.

    Examples
    --------
    >>> with leaving_at(time.monotonic() - 1):
    ...     keep_time()
    ...     print("never printed")
    """
    with suppress(OutOfTimeError), ending_when(lambda: time.monotonic() > deadline):
        yield


def keep_time() -> None:
    """Go on, where there is time.

    Raises
    ------
    OutOfTimeError
        Where the block of `ending_when` that this runs in must end.

    Examples
    --------
    >>> keep_time()
    >>> with ending_when(lambda: True):
    ...     keep_time()
    Traceback (most recent call last):
    solver.deadline.OutOfTimeError: out of time
    """
    watch = _WATCH.get()
    if watch is not None:
        watch.look()
