"""How far a search is, and when it stops."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a search is.

    Parameters
    ----------
    sweeps, nodes : int
        Sweeps done, and parts of the tree looked at.
    bound : int
        Picoseconds that every assignment costs at least.
    cost : int or None
        Picoseconds of the best assignment so far.
    seconds : float
        Time since the start.
    """

    sweeps: int
    nodes: int
    bound: int
    cost: int | None
    seconds: float


Report: TypeAlias = Callable[[Progress], bool | None]
"""Called after every sweep; the search stops when it returns True."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When to stop.

    Parameters
    ----------
    begin : float
        When the search started, by the monotonic clock.
    timeout : float
        Seconds.
    gap : float
        The fraction of the cost by which the bound may stay below it.
    progress : callable or None
    nodes, sweeps : int
        The most parts of the tree, and the most sweeps.
    """

    begin: float
    timeout: float
    gap: float
    progress: Report | None
    nodes: int
    sweeps: int

    @property
    def seconds(self) -> float:
        """The time since the start."""
        return time.monotonic() - self.begin

    @property
    def over(self) -> bool:
        """Whether there is no time left."""
        return self.seconds > self.timeout
