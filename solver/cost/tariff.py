"""What a person says of collectives: which may not run, how much of their time is hidden, what a picosecond weighs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from solver.cost.collectives import COLLECTIVES

EXCHANGES = ("halo_exchange", "shift")
"""The exchanges of borders that kernels make."""
LEVIED = 1024
"""A levy is in whole picoseconds for so many bytes."""
MOST_LEVY = 2**40
"""No levy on a mesh axis is larger."""
MOST_LEVIED = 2**50
"""Picoseconds; no collective costs more by a levy, so that paths stay within 64 bits."""
MOST_WEIGHTED = 2**58
"""Picoseconds; no move counts more by a weight, for the same reason: where a price is cut off a bound is smaller."""
SENDING = (*COLLECTIVES, *EXCHANGES)
"""Every kind of collective: those of reshards, and those of kernels."""


@dataclass(frozen=True, slots=True)
class Tariff:
    """Which collectives may run, and how their time counts (docs/semantics.md, sections 2 to 4).

    Parameters
    ----------
    forbidden : frozenset of (str, int)
        Kind and mesh axis: no collective of that kind may involve that mesh axis.
    hidden : tuple of (str, Fraction)
        Kind and the fraction of its time that runs beside compute.
    weight : int
        What one picosecond counts: 1, but where communication comes before compute.
    levy : tuple of (int, int)
        Mesh axis, and the picoseconds that every KiB sent over it costs more: a multiplier of a budget of traffic.
    """

    forbidden: frozenset[tuple[str, int]] = frozenset()
    hidden: tuple[tuple[str, Fraction], ...] = ()
    weight: int = 1
    levy: tuple[tuple[int, int], ...] = ()

    def allows(self, kind: str, axes: Iterable[int]) -> bool:
        """Tell whether a collective may run.

        Examples
        --------
        >>> Tariff(frozenset({("all_gather", 0)})).allows("all_gather", (1,))
        True
        """
        return not any((kind, axis) in self.forbidden for axis in axes)

    def counted(self, kind: str, time: int) -> int:
        """Return what the time of a collective or of a local step counts, in picoseconds, rounded up.

        Examples
        --------
        >>> Tariff(hidden=(("all_gather", Fraction(1, 3)),)).counted("all_gather", 100)
        67
        """
        left = 1 - dict(self.hidden).get(kind, Fraction(0))
        return min(MOST_WEIGHTED, self.weight * -(-time * left.numerator // left.denominator))

    def levied(self, sent: int, axes: Iterable[int]) -> int:
        """Return what bytes over mesh axes cost more, in picoseconds, rounded down.

        Examples
        --------
        >>> Tariff(levy=((0, 1024),)).levied(100, (0, 1))
        100
        """
        taken = tuple(axes)
        return sum(min(MOST_LEVIED, rate * sent // LEVIED) for axis, rate in self.levy if axis in taken)


PLAIN = Tariff()
"""Everything may run, and all of it counts."""
