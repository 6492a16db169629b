"""The best assignment so far: read off from the messages, improved by descent, mixed with others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from solver.search.arrays import Flat, State
from solver.search.bound import Dual
from solver.search.flat import FlatNetwork
from solver.search.kernels import DEAD, FORBIDDEN, descend, prefer, read_in_order
from solver.search.network import INF, BoolArray, Domains, IdArray, IntArray, arc_consistency

WALKS = 30
"""The most walks over the network of one descent."""


def edge_prices(flat: Flat, choice: IdArray) -> IntArray:
    """Return what each edge costs for a choice of flat values, in units."""
    column = flat.pool[flat.into + choice[flat.head]]
    made, held = (flat.pool[at + choice[flat.tail]] for at in (flat.made, flat.held))
    first = flat.table_start + column
    prices: IntArray = np.minimum(flat.tables[first + flat.columns * made], flat.tables[first + flat.columns * held])
    return prices


class Incumbent:
    """The cheapest allowed assignment seen so far.

    Parameters
    ----------
    dual : Dual
        Messages of the whole network.

    Attributes
    ----------
    cost : int
        In picoseconds; INF where nothing allowed was seen.
    choice : int32 array or None
        The flat values that were chosen.
    assignment : tuple of int or None
        The values of the network that they stand for.
    """

    def __init__(self, dual: Dual) -> None:
        self.network: FlatNetwork = dual.network
        self.state: State = dual.state
        self.values = dual.values
        self.cost = INF
        self.choice: IdArray | None = None
        self.assignment: tuple[int, ...] | None = None

    def offer(self, choice: IdArray) -> bool:
        """Improve a choice by descent, mix it with the best one, and keep what is cheaper.

        Parameters
        ----------
        choice : int32 array
            A flat value for each variable, allowed together or not.

        Returns
        -------
        bool
            Whether there is a better incumbent now.
        """
        tried = self._descended(choice)
        better = self._keep(tried)
        if self.choice is not None and not better:
            mixed = self._mixed(self.choice, tried)
            better = mixed is not None and self._keep(self._descended(mixed))
        return better

    def read(self, dual: Dual, order: IntArray) -> bool:
        """Read a choice off messages in some order of the variables and offer it.

        Parameters
        ----------
        dual : Dual
            The messages.
        order : int64 array
            All variables.

        Returns
        -------
        bool
            Whether there is a better incumbent now.
        """
        choice = np.zeros(len(order), np.int32)
        read_in_order(self.network.flat, dual.state, order, choice, self.values)
        return self.offer(choice)

    def _descended(self, choice: IdArray) -> IdArray:
        found = choice.copy()
        descend(self.network.flat, self.state, found, self.values, WALKS)
        return found

    def _keep(self, choice: IdArray) -> bool:
        cost = self._price(choice)
        if cost >= self.cost:
            return False
        self.cost, self.choice, self.assignment = cost, choice, self.network.assignment(choice)
        return True

    def _price(self, choice: IdArray) -> int:
        """Return what a choice costs in picoseconds, exactly; INF where it is not allowed."""
        flat, shift = self.network.flat, self.network.shift
        parts = np.concatenate([self.state.cost[flat.start[:-1] + choice], edge_prices(flat, choice)])
        if (parts >= DEAD).any():
            return INF
        if shift < 0:
            return self.network.network.cost(self.network.assignment(choice))
        return int((parts >> shift).sum())

    def _mixed(self, best: IdArray, other: IdArray) -> IdArray | None:
        """Return `best` with each connected group of variables where `other` differs, and is cheaper, from `other`."""
        flat, cost = self.network.flat, self.state.cost
        differs = best != other
        group = _groups(flat, differs)
        gain = np.zeros(len(best))
        node = cost[flat.start[:-1] + best].astype(float) - cost[flat.start[:-1] + other]
        np.add.at(gain, group[differs], node[differs])
        touched = np.flatnonzero(differs[flat.tail] | differs[flat.head])
        owner = np.where(differs[flat.tail], flat.tail, flat.head)[touched]
        edge = edge_prices(flat, best).astype(float) - edge_prices(flat, other)
        np.add.at(gain, group[owner], edge[touched])
        better = differs & (gain[group] > 0)
        return np.where(better, other, best) if better.any() else None


def _groups(flat: Flat, differs: BoolArray) -> IntArray:
    """Return for each variable the first one of its group: those that differ and hang together."""
    root = list(range(len(differs)))

    def find(i: int) -> int:
        while root[i] != i:
            root[i] = i = root[root[i]]
        return i

    for e in np.flatnonzero(differs[flat.tail] & differs[flat.head]):
        u, v = find(int(flat.tail[e])), find(int(flat.head[e]))
        root[max(u, v)] = min(u, v)
    return np.array([find(i) for i in range(len(root))], np.int64)


def orders(count: int, seeds: Sequence[int]) -> list[IntArray]:
    """Return orders of variables to read in: the program's reversed, then a random one for each seed."""
    return [np.arange(count)[::-1].copy(), *(np.random.default_rng(seed).permutation(count) for seed in seeds)]


def dive(dual: Dual, domains: Domains, over: Callable[[], bool], failures: int = 200) -> IdArray | None:
    """Choose variable after variable, keeping all others arc consistent, so that strict networks too give a choice.

    Parameters
    ----------
    dual : Dual
        The messages, which say what to try first.
    domains : tuple of bool arrays
        Arc-consistent domains that agree with `dual`.
    over : callable
        Whether there is no more time.
    failures : int, optional
        How many dead ends to turn back from.

    Returns
    -------
    int32 array or None
        A flat value for each variable, None where every try ended dead.
    """
    network, count = dual.network, len(domains)
    total = np.empty(dual.values, np.int64)
    done, choice = np.zeros(count, np.bool_), np.zeros(count, np.int32)
    trail: list[tuple[int, Domains]] = []
    i = 0
    while i < count and not over():
        prefer(network.flat, dual.state, i, choice, done, total)
        possible = domains[i][network.values[i]]
        choice[i] = np.where(possible, total[: len(possible)], FORBIDDEN).argmin()
        tried = _narrowed(network, domains, i, network.group[i] == choice[i])
        if tried is not None:
            trail.append((i, domains))
            domains, done[i] = tried, True
            i += 1
            continue
        rest = None
        while rest is None:
            failures -= 1
            rest = _narrowed(network, domains, i, network.group[i] != choice[i])
            if rest is None:
                if failures <= 0 or not trail:
                    return None
                i, domains = trail.pop()
                done[i] = False
        domains = rest
    return choice if i == count else None


def _narrowed(network: FlatNetwork, domains: Domains, i: int, allowed: BoolArray) -> Domains | None:
    """Return the consistent domains when variable i keeps only what is allowed, None where there are none."""
    domain = domains[i] & allowed
    if np.array_equal(domain, domains[i]):
        return domains
    found = arc_consistency(network.network, (*domains[:i], domain, *domains[i + 1 :]), [i])
    return found.domains if found.feasible else None
