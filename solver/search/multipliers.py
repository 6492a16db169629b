"""Where the multipliers of a memory budget promise the highest bound, by the assignments seen so far."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import z3

from solver.search.network import IntArray


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
        distinct = list(dict.fromkeys(planes))
        sizes = np.array([plane.bytes for plane in distinct])
        used = _undominated(sizes, -1 if convex else budget)
        times = [plane.time if timed else 0 for plane in distinct]
        found = self._solved(_program(times, sizes[:, used] - budget, most, convex=convex))
        multipliers = [Fraction(0)] * sizes.shape[1]
        for k in used:
            multipliers[k] = found.get(f"m{used.index(k)}", Fraction(0))
        return found["bound"], tuple(multipliers)

    def _solved(self, program: str) -> dict[str, Fraction]:
        solver = z3.Optimize(ctx=self._context)
        solver.from_string(program)
        solver.check()
        model = solver.model()
        return {one.name(): Fraction(model[one].as_fraction()) for one in model}


def _undominated(sizes: IntArray, budget: int) -> list[int]:
    """Return the moments that may have a multiplier: some plane fills more there, and no other moment more in all."""
    found: list[int] = []
    for k in np.argsort(-sizes.sum(axis=0), kind="stable").tolist():
        if (sizes[:, k] > budget).any() and not any((sizes[:, other] >= sizes[:, k]).all() for other in found):
            found.append(k)
    return sorted(found)


def _program(times: Sequence[int], over: IntArray, most: Fraction, *, convex: bool) -> str:
    """Return the linear program as text, which is read much sooner than terms are built."""
    names = [f"m{k}" for k in range(over.shape[1])]
    lines = ["(declare-const bound Real)", *(f"(declare-const {name} Real)" for name in names)]
    lines += [f"(assert (and (>= {name} 0) (<= {name} (/ {most.numerator} {most.denominator}))))" for name in names]
    if convex:
        lines.append(f"(assert (= 1 (+ 0 {' '.join(names)})))")
    for time, row in zip(times, over.tolist(), strict=True):
        terms = " ".join(f"(* {_number(size)} {name})" for size, name in zip(row, names, strict=True))
        lines.append(f"(assert (<= bound (+ {time} 0 {terms})))")
    return "\n".join([*lines, "(maximize bound)"])


def _number(value: int) -> str:
    return str(value) if value >= 0 else f"(- {-value})"
