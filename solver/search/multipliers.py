"""Where the multipliers of a memory budget promise the highest bound, by the assignments seen so far."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import z3


@dataclass(frozen=True, slots=True)
class Plane:
    """What one assignment says of every bound: with multipliers m none is above ``time + sum(m * (bytes - budget))``.

    Parameters
    ----------
    time : int
        Picoseconds.
    bytes : tuple of int
        Per moment.
    """

    time: int
    bytes: tuple[int, ...]


class Multipliers:
    """Finds the multipliers where the planes leave the highest bound (Kelley's cutting planes, 1960)."""

    def __init__(self) -> None:
        self._context = z3.Context()

    def highest(
        self, planes: Iterable[Plane], budget: int, most: Fraction, *, convex: bool = False, timed: bool = True
    ) -> tuple[Fraction, tuple[Fraction, ...]]:
        """Return the highest bound that the planes leave, and multipliers there.

        Parameters
        ----------
        planes : iterable of Plane
            At least one.
        budget : int
            Bytes.
        most : Fraction
            No multiplier exceeds this.
        convex : bool, optional
            Whether the multipliers are weights, which sum to 1.
        timed : bool, optional
            Whether time counts.

        Returns
        -------
        Fraction, tuple of Fraction
            The bound, and a multiplier per moment.
        """
        solver, bound = z3.Optimize(ctx=self._context), z3.Real("bound", self._context)
        distinct = list(dict.fromkeys(planes))
        multipliers = [z3.Real(f"m{k}", self._context) for k in range(len(distinct[0].bytes))]
        solver.add(*(one >= 0 for one in multipliers), *(one <= self._number(most) for one in multipliers))
        if convex:
            solver.add(z3.Sum(multipliers) == 1)
        for plane in distinct:
            over = [one * self._number(size - budget) for one, size in zip(multipliers, plane.bytes, strict=True)]
            solver.add(bound <= z3.Sum([self._number(plane.time if timed else 0), *over]))
        solver.maximize(bound)
        solver.check()
        model = solver.model()
        height, *found = (Fraction(model.eval(one, True).as_fraction()) for one in (bound, *multipliers))
        return height, tuple(found)

    def _number(self, value: int | Fraction) -> Any:
        return z3.RealVal(value, self._context)
