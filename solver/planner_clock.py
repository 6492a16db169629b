"""The time that planning one question has, and whom to tell how far it is."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from solver.problem import Problem
from solver.search.limits import Progress, Report

MOMENT = 1.0
"""Seconds beyond the time that the network may take: without it there is no search at all."""
OnProgress = Callable[[str, Progress | None], bool | None]
"""Called with the stage, now and then, and during the search with how far it is; all stops when it returns True."""


class Clock:
    """The time of each stage, and what is left."""

    def __init__(self, timeout: float, progress: OnProgress | None) -> None:
        self._end = time.monotonic() + timeout
        self._progress = progress
        self._stages: dict[str, float] = {}
        self._now: tuple[str, float] | None = None
        self._stopped = False

    def stage(self, name: str) -> None:
        """End the stage that runs and begin another."""
        self._close()
        self._now = name, time.monotonic()
        if self._progress is not None:
            self._stopped |= bool(self._progress(name, None))

    def stages(self) -> dict[str, float]:
        """Return the seconds of each stage."""
        self._close()
        return self._stages

    def left(self) -> float:
        """Return the seconds left, never less than a moment; that moment where the caller wants to stop."""
        return 0.001 if self._stopped else max(0.001, self._end - time.monotonic())

    def moment(self, least: float, most: float) -> float:
        """Return the seconds that a stage gets, however little time is left, and however much."""
        return min(max(least, self.left()), most)

    def part(self, seconds: float) -> Clock:
        """Return a clock for a piece of the work, which stops where this one does."""
        stopped = None if self._progress is None else lambda name, state: self.over() and self._stopped
        return Clock(seconds, stopped)

    def over(self) -> bool:
        """Whether the stage that runs should give up: a moment after the time is used up, as it is worth waiting for.

        Asks the caller too.
        """
        return self.stopped() or time.monotonic() > self._end + MOMENT

    def stopped(self) -> bool:
        """Tell the caller what goes on, and whether the caller wants to stop."""
        if self._progress is not None and self._now is not None:
            self._stopped |= bool(self._progress(self._now[0], None))
        return self._stopped

    def report_on(self, asked: Problem, *, relaxed: bool = False) -> Report | None:
        """Return the progress callback of a search that may know nothing of budgets: then its plans are told of no one.

        Nothing of a search is told that counts other things than the picoseconds of what was asked.
        """
        report = self.report
        if report is None:
            return None
        if asked.levy or asked.counted != (1, 1):
            return lambda state: self.stopped()
        if asked.budget is None and (asked.memory is None or not relaxed):
            return report
        return lambda state: report(replace(state, cost=None))

    @property
    def report(self) -> Report | None:
        """The progress callback of a search whose bounds and costs are those of what was asked."""
        progress = self._progress
        if progress is None:
            return None

        def report(state: Progress) -> bool:
            self._stopped |= bool(progress("bound", state))
            return self._stopped

        return report

    def _close(self) -> None:
        if self._now is not None:
            name, begin = self._now
            self._stages[name] = self._stages.get(name, 0.0) + time.monotonic() - begin
            self._now = None
