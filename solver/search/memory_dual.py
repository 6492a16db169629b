"""The bound of a network whose prices are those of time and of bytes, for one set of multipliers after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from solver.search.bound import Dual, certified_bound
from solver.search.coarse import coarser
from solver.search.flat import SCALE_BITS, flatten
from solver.search.incumbent import Incumbent, dive, orders
from solver.search.memory_network import Storing
from solver.search.network import Domains, IntArray, arc_consistency
from solver.search.tree import Leaf

WINDOW, ENOUGH = 8, 0.02
"""No more sweeps when so many of them gained less than this fraction of what is missing."""
SEEDS = range(2)
"""Seeds of the random orders in which assignments are read off."""


@dataclass(frozen=True, eq=False)
class Raised:
    """A bound and what was read off on the way.

    Parameters
    ----------
    multipliers : int64 array
        Per moment, in units of ``2**-bits`` ps a byte; where time is free they are weights.
    bits : int
        Of the messages.
    leaf : Leaf
        The messages, and what they prove before the budget is taken off.
    assignments : list of tuple of int
    """

    multipliers: IntArray
    bits: int
    leaf: Leaf
    assignments: list[tuple[int, ...]]


class Priced:
    """Raises bounds of one network with different multipliers; each begins with the messages of the one before.

    Parameters
    ----------
    storing : Storing
    """

    def __init__(self, storing: Storing) -> None:
        self.storing = storing
        self.domains = arc_consistency(storing.built.network).domains
        self._before: dict[tuple[bool, int, int], Dual] = {}
        self._most = max(1, sum(int(own.max(initial=0)) for own in storing.own))

    def whole(self, multipliers: Sequence[Fraction]) -> IntArray:
        """Return multipliers in picoseconds a byte as whole units of ``2**-SCALE_BITS`` ps, none beyond 64 bits."""
        room = 2**61 // self._most
        return np.array([min(room, int(one * 2**SCALE_BITS)) for one in multipliers], np.int64)

    def raised(self, k: IntArray, *, time: bool, over: Callable[[], bool], domains: Domains | None = None) -> Raised:
        """Raise the bound with multipliers, in units of ``2**-SCALE_BITS`` ps a byte, or with weights.

        Parameters
        ----------
        k : int64 array
        time : bool
            Whether time has a price; else `k` are weights.
        over : callable
            Whether there is no more time.
        domains : tuple of bool arrays, optional
            Consistent ones within which the bound shall hold; all values by default.

        Returns
        -------
        Raised
        """
        if not time:
            k = k << SCALE_BITS
        coarse = coarser(self.storing.priced(k, time=time))
        if coarse.shift:
            k = k >> coarse.shift << coarse.shift
            coarse = coarser(self.storing.priced(k, time=time))
        within = self.domains if domains is None else domains
        flat = flatten(coarse.network, within)
        before = self._before.get((time, coarse.shift, flat.shift)) if domains is None else None
        dual = Dual(flat, flat.cost, before)
        dual.state.ahead[:] = dual.state.behind[:] = dual.state.unsettled[:] = True
        if domains is None:
            self._before[time, coarse.shift, flat.shift] = dual
        incumbent = Incumbent(dual)
        self._sweep(dual, incumbent, within, over)
        messages = dual.messages()
        units = dual.units
        if flat.shift != SCALE_BITS:
            units = min(units, certified_bound(coarse.network, messages, within))
        found = [] if incumbent.assignment is None else [self.storing.plainer(coarse.network, incumbent.assignment)]
        return Raised(k >> coarse.shift, SCALE_BITS - coarse.shift, Leaf(messages, units), found)

    def _sweep(self, dual: Dual, incumbent: Incumbent, domains: Domains, over: Callable[[], bool]) -> None:
        """Sweep while that helps, and read assignments off."""
        history: list[int] = []
        changed = True
        while changed and not over():
            changed = dual.sweep()
            history.append(dual.units)
            if len(history) > WINDOW:
                missing = (incumbent.cost << SCALE_BITS) - history[-1]
                if history[-1] - history[-1 - WINDOW] <= ENOUGH * missing:
                    break
            if len(history) % 4 == 1:
                incumbent.offer(dual.state.choice)
        incumbent.offer(dual.state.choice)
        for order in orders(len(dual.network.network.variables), SEEDS):
            if over():
                break
            incumbent.read(dual, order)
        if incumbent.choice is None and (choice := dive(dual, domains, over)) is not None:
            incumbent.offer(choice)
