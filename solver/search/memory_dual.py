"""The bound of a network whose prices are those of time and of bytes, for one set of multipliers after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from solver.search.bound import Dual, certified_bound
from solver.search.flat import SCALE_BITS, FlatNetwork, flatten
from solver.search.incumbent import Incumbent, dive, orders
from solver.search.kernels import LIMIT
from solver.search.memory_network import Storing
from solver.search.network import INF, Domains, IntArray, arc_consistency
from solver.search.tree import Leaf

WINDOW, ENOUGH = 8, 0.02
"""No more sweeps when so many of them gained less than this fraction of what is missing."""
ROOM = 41
"""Bits of the dearest price: messages in 1/4096 of its unit have room to grow then (`solver.search.flat`)."""
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
        The messages, and what they prove before the budget is taken off, in units of ``2**-bits`` ps.
    assignments : list of tuple of int
    timed : bool
        Whether time had a price.
    """

    multipliers: IntArray
    bits: int
    leaf: Leaf
    assignments: list[tuple[int, ...]]
    timed: bool

    @property
    def paid(self) -> int:
        """What a byte at all moments together costs."""
        return sum(int(one) for one in self.multipliers)

    @property
    def whole(self) -> IntArray:
        """The multipliers in units of ``2**-SCALE_BITS`` ps a byte."""
        return _shifted(self.multipliers, SCALE_BITS - self.bits)


def within(units: int, raised: Raised, budget: int) -> int:
    """Return the picoseconds that are proved of the plans within a budget, of units before it is taken off."""
    return -(-(units - raised.paid * budget) >> raised.bits)


def _shifted(numbers: IntArray, bits: int) -> IntArray:
    return numbers << bits if bits >= 0 else numbers >> -bits


class Priced:
    """Raises bounds of one network with different multipliers; each begins with the messages of the one before.

    Parameters
    ----------
    storing : Storing
    """

    def __init__(self, storing: Storing) -> None:
        self.storing = storing
        network = storing.built.network
        self.domains = arc_consistency(network).domains
        self._before: dict[bool, tuple[int, Dual]] = {}
        prices = {id(a): a for a in (*(v.cost for v in network.variables), *(e.table for e in network.edges))}
        self._dearest = max((int(a.max(initial=0, where=a < INF)) for a in prices.values()), default=0)
        own = [a.max(axis=1, initial=0) for a in {id(a): a for a in storing.own}.values()]
        used = [one.stored.max(axis=(1, 2), initial=0) for one in storing.operands]
        self._largest = np.array([*own, *used], np.float64).reshape(-1, len(storing.moments.names))
        """Per variable and use the most bytes at each moment."""
        self._most = int(2**60 / max(2.0**SCALE_BITS, self._largest.sum()))

    def whole(self, multipliers: Sequence[Fraction]) -> IntArray:
        """Return multipliers in picoseconds a byte as whole units of ``2**-SCALE_BITS`` ps, none beyond 64 bits."""
        return np.array([min(self._most, int(one * 2**SCALE_BITS)) for one in multipliers], np.int64)

    def _bits(self, k: IntArray, *, time: bool) -> int:
        """Return how fine prices may be: the finest unit is ``2**-SCALE_BITS`` ps, as multipliers are no finer."""
        dearest = int((self._largest @ k).max(initial=0)) >> SCALE_BITS
        return max(-SCALE_BITS, min(SCALE_BITS, ROOM - (dearest + self._dearest * time).bit_length()))

    def raised(
        self,
        k: IntArray,
        *,
        time: bool,
        over: Callable[[], bool],
        domains: Domains | None = None,
        bits: int | None = None,
    ) -> Raised:
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
        bits : int, optional
            Of the messages that are wanted; as many as there is room for by default.

        Returns
        -------
        Raised
        """
        if not time:
            k = k << SCALE_BITS
        fine = self._bits(k, time=time) if bits is None else bits - SCALE_BITS
        k = _shifted(k, fine - SCALE_BITS)
        if bits is not None:  # chosen for other multipliers: with these prices should not become too large for them
            k = np.minimum(k, np.int64(2**45 / max(1.0, self._largest.max(initial=0))))
        network = self.storing.priced(k, fine, time=time)
        within = self.domains if domains is None else domains
        flat = flatten(network, within)
        dual = self._begun(flat, fine + flat.shift, time) if domains is None else Dual(flat)
        dual.state.ahead[:] = dual.state.behind[:] = dual.state.unsettled[:] = True
        incumbent = Incumbent(dual)
        self._sweep(dual, incumbent, within, over)
        messages = dual.messages()
        units = dual.units
        if flat.shift != SCALE_BITS:
            units = min(units, certified_bound(network, messages, within))
        found = [] if incumbent.assignment is None else [self.storing.plainer(network, incumbent.assignment)]
        return Raised(k << SCALE_BITS, SCALE_BITS + fine, Leaf(messages, units), found, time)

    def _begun(self, flat: FlatNetwork, unit: int, time: bool) -> Dual:
        """Return messages to begin with: those of the multipliers before, in units of ``2**-unit`` ps."""
        before = self._before.get(time)
        dual = Dual(flat, flat.cost, None if before is None else before[1])
        if before is not None and before[0] != unit:
            for messages in (dual.state.to_tail, dual.state.to_head):
                np.clip(messages * 2.0 ** (unit - before[0]), -LIMIT, LIMIT, out=messages, casting="unsafe")
        self._before[time] = unit, dual
        return dual

    def proved(self, raised: Raised, domains: Domains | None = None) -> int:
        """Return what messages and multipliers prove before the budget is taken off, by plain arithmetic.

        Parameters
        ----------
        raised : Raised
        domains : tuple of bool arrays, optional
            As they were raised in.
        """
        assert raised.leaf.messages is not None
        fine = raised.bits - SCALE_BITS
        network = self.storing.priced(raised.multipliers >> SCALE_BITS, fine, time=raised.timed)
        return certified_bound(network, raised.leaf.messages, self.domains if domains is None else domains)

    def _sweep(self, dual: Dual, incumbent: Incumbent, domains: Domains, over: Callable[[], bool]) -> None:
        """Sweep while that helps, once in any case (the bound is that of other prices before), and read assignments."""
        history: list[int] = []
        changed = True
        while changed and not (history and over()):
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
