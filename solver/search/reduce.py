"""What each choice costs beyond the bound, and which choices can be in no better plan."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from solver.search.bound import Messages, edge_minimum, variable_sums
from solver.search.flat import SCALE_BITS
from solver.search.network import INF, Domains, Edge, IdArray, IntArray, Network

NEVER = INF
"""The reduced cost of what is forbidden."""

DEAREST = 2**48
"""Prices above this many picoseconds count as this much beyond the bound, so that sums fit an int64."""


@dataclass(frozen=True, eq=False)
class Reduced:
    """A network after its messages: a bound, and non-negative costs beyond it.

    Parameters
    ----------
    network : Network
    messages : Messages
    domains : Domains
        Where the bound holds.
    own : tuple of int64 arrays
        Per variable and value what it costs beyond the cheapest one, in 1/4096 ps; `NEVER` outside the domains.
    edge_least : tuple of int
        Per edge what no pair undercuts.
    units : int
        The bound in 1/4096 ps: no assignment costs less than `units` plus the reduced costs of its values and pairs.
    """

    network: Network
    messages: Messages
    domains: Domains
    own: tuple[IntArray, ...]
    edge_least: tuple[int, ...]
    units: int

    def pairs(self, e: int, tails: NDArray[Any], heads: NDArray[Any]) -> IntArray:
        """Return the reduced costs of an edge between offers of the tail and needs of the head.

        Parameters
        ----------
        e : int
            The edge.
        tails : int array, shape (n, 2)
            Pairs of table rows, as a copy offers them.
        heads : int array, shape (m,)
            Table columns.

        Returns
        -------
        int64 array, shape (n, m)
        """
        edge, (rows, columns) = self.network.edges[e], self.messages[e]
        price = _units(np.minimum(edge.table[np.ix_(tails[:, 0], heads)], edge.table[np.ix_(tails[:, 1], heads)]))
        rest = price - rows[tails].min(axis=1)[:, None] - columns[heads][None, :] - self.edge_least[e]
        found: IntArray = np.where(price < NEVER, rest, NEVER)
        return found

    def within(self, units: int) -> Domains:
        """Return the values that alone do not make every assignment dearer than so many 1/4096 ps."""
        spend = min(units - self.units, NEVER - 1)
        return tuple(own <= spend for own in self.own)

    def prune(self, spend: int) -> Domains:
        """Return the values that an assignment within `units + spend` may have.

        A value stays when what it costs beyond the bound, together with the least that its edges and a share of what
        its neighbours then cost, can be afforded. What leaves makes its neighbours dearer, so this goes on until
        nothing leaves.

        Parameters
        ----------
        spend : int
            In 1/4096 ps.

        Returns
        -------
        tuple of bool arrays
            One of them is empty, and the others unfinished, where there is no such assignment.
        """
        return _Pruning(self, min(spend, NEVER - 1)).run()


def reduced(network: Network, messages: Messages, domains: Domains) -> Reduced:
    """Take messages off the edges of a network and put them on its variables.

    Parameters
    ----------
    network : Network
    messages : Messages
    domains : tuple of bool arrays
        Arc-consistent, none of them empty.

    Returns
    -------
    Reduced
    """
    least = tuple(
        edge_minimum(edge, *message, domains[edge.tail], domains[edge.head])
        for edge, message in zip(network.edges, messages, strict=True)
    )
    own, units = [], sum(least)
    for values, domain in zip(variable_sums(network, messages), domains, strict=True):
        cheapest = values[domain].min()
        own.append(np.where(domain, np.minimum(values - cheapest, NEVER - 1), NEVER).astype(np.int64))
        units += int(cheapest)
    return Reduced(network, messages, domains, tuple(own), least, units)


class _Pruning:
    """The work of `Reduced.prune`, edge by edge over layouts."""

    def __init__(self, reduced: Reduced, spend: int) -> None:
        self.reduced, self.spend = reduced, spend
        self.edges = reduced.network.edges
        self.at: list[list[int]] = [[] for _ in reduced.own]
        for e, edge in enumerate(self.edges):
            self.at[edge.tail].append(e)
            self.at[edge.head].append(e)
        self.tables = {id(edge.table): _units(edge.table) for edge in self.edges}
        self.share = [own // max(1, len(at)) for own, at in zip(reduced.own, self.at, strict=True)]
        self.kept = [domain & (own <= spend) for domain, own in zip(reduced.domains, reduced.own, strict=True)]
        self.to_tail = [self._to_tail(e, edge) for e, edge in enumerate(self.edges)]
        self.to_head = [self._to_head(e, edge) for e, edge in enumerate(self.edges)]

    def run(self) -> Domains:
        queue = deque(range(len(self.kept)))
        waiting = set(queue)
        while queue:
            i = queue.popleft()
            waiting.discard(i)
            left = self.kept[i] & (self._total(i) <= self.spend)
            if np.array_equal(left, self.kept[i]):
                continue
            self.kept[i] = left
            if not left.any():
                break
            for e in self.at[i]:
                edge = self.edges[e]
                if edge.tail == i:
                    self.to_head[e] = self._to_head(e, edge)
                else:
                    self.to_tail[e] = self._to_tail(e, edge)
                other = edge.tail + edge.head - i
                if other not in waiting:
                    waiting.add(other)
                    queue.append(other)
        return tuple(self.kept)

    def _total(self, i: int) -> IntArray:
        """Return the least that an assignment with each value of a variable costs beyond the bound."""
        total = self.reduced.own[i]
        for e in self.at[i]:
            edge = self.edges[e]
            if edge.tail == i:
                felt = _offered(self.to_tail[e], edge.tail_index) - _offered(
                    self.reduced.messages[e][0], edge.tail_index
                )
            else:
                felt = (self.to_head[e] - self.reduced.messages[e][1])[edge.head_index]
            total = np.minimum(total + np.minimum(felt - self.reduced.edge_least[e], NEVER), NEVER)
        return total

    def _to_tail(self, e: int, edge: Edge) -> IntArray:
        """Return per row the least price, less what the columns got and with what the head then costs."""
        need = np.full(edge.table.shape[1], NEVER)
        kept = self.kept[edge.head]
        np.minimum.at(need, edge.head_index[kept], self.share[edge.head][kept])
        need[need < NEVER] -= self.reduced.messages[e][1][need < NEVER]
        return _least(self.tables[id(edge.table)], need)

    def _to_head(self, e: int, edge: Edge) -> IntArray:
        """Return per column the least price, less what the tail values got and with what they then cost."""
        offer = np.full(edge.table.shape[0], NEVER)
        kept = self.kept[edge.tail]
        made, held = edge.tail_index[kept].T
        got = self.reduced.messages[e][0]
        cost = self.share[edge.tail][kept] - np.minimum(got[made], got[held])
        np.minimum.at(offer, made, cost)
        np.minimum.at(offer, held, cost)
        return _least(self.tables[id(edge.table)].T, offer)


def _units(price: IntArray) -> IntArray:
    """Return prices in 1/4096 ps, NEVER where they are forbidden."""
    found: IntArray = np.where(price < INF, np.minimum(price, DEAREST) << SCALE_BITS, NEVER)
    return found


def _offered(vector: IntArray, index: IdArray) -> IntArray:
    found: IntArray = np.minimum(vector[index[:, 0]], vector[index[:, 1]])
    return found


def _least(table: IntArray, start: IntArray) -> IntArray:
    """Return per line of a table the least of price plus entry, over the entries that are not NEVER."""
    used = start < NEVER
    found: IntArray = (table[:, used] + start[used]).min(axis=1, initial=NEVER)
    return found
