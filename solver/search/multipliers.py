"""Where the multipliers of a memory budget promise the highest bound, by the assignments seen so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

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


def highest(
    planes: Sequence[Plane], budget: int, most: Fraction, *, convex: bool = False, timed: bool = True
) -> tuple[Fraction, tuple[Fraction, ...]]:
    """Return the highest bound that the planes leave, and multipliers there (Kelley's cutting planes, 1960).

    Parameters
    ----------
    planes : sequence of Plane
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
    context = z3.Context()
    solver = z3.Optimize(ctx=context)
    bound = z3.Real("bound", context)
    multipliers = [z3.Real(f"m{k}", context) for k in range(len(planes[0].bytes))]
    for one in multipliers:
        solver.add(one >= 0, one <= z3.RealVal(most, context))
    if convex:
        solver.add(z3.Sum(multipliers) == 1)
    for plane in planes:
        over = [one * z3.RealVal(size - budget, context) for one, size in zip(multipliers, plane.bytes, strict=True)]
        solver.add(bound <= z3.Sum([z3.RealVal(plane.time if timed else 0, context), *over]))
    solver.maximize(bound)
    solver.check()
    model = solver.model()
    height, *found = (Fraction(model.eval(one, True).as_fraction()) for one in (bound, *multipliers))
    return height, tuple(found)
