"""What each choice costs beyond the bound, and which choices can be in no better plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from solver.search.bound import Messages
from solver.search.flat import SCALE_BITS
from solver.search.network import INF, BoolArray, Domains, IntArray, Network

NEVER = INF
"""The reduced cost of what is forbidden."""


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
        The bound in 1/4096 ps: the price of an assignment is `units` plus the reduced costs of its values and pairs.
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
        price = np.minimum(edge.table[np.ix_(tails[:, 0], heads)], edge.table[np.ix_(tails[:, 1], heads)])
        rest = (
            (np.where(price < INF, price, 0) << SCALE_BITS) - rows[tails].min(axis=1)[:, None] - columns[heads][None, :]
        )
        found: IntArray = np.where(price < INF, rest - self.edge_least[e], NEVER)
        return found

    def prune(self, spend: int) -> Domains:
        """Return the values that an assignment within `units + spend` may have.

        A value stays when its own reduced cost, and the least that each of its edges then adds, can be afforded; what
        leaves makes its neighbours dearer, so this is done again until nothing leaves.
        """
        kept = [domain & (own <= spend) for domain, own in zip(self.domains, self.own, strict=True)]
        changed = True
        while changed:
            changed = False
            total = [own.astype(np.int64).copy() for own in self.own]
            for e, edge in enumerate(self.network.edges):
                tail, head = self._least(e, kept[edge.tail], kept[edge.head])
                total[edge.tail] = np.minimum(NEVER, total[edge.tail] + tail)
                total[edge.head] = np.minimum(NEVER, total[edge.head] + head)
            for i, (mask, cost) in enumerate(zip(kept, total, strict=True)):
                left = mask & (cost <= spend)
                if left.sum() < mask.sum():
                    kept[i], changed = left, True
        return tuple(kept)

    def _least(self, e: int, tail: BoolArray, head: BoolArray) -> tuple[IntArray, IntArray]:
        """Return per value of both ends the least that an edge adds."""
        edge = self.network.edges[e]
        offers, of_tail = np.unique(edge.tail_index, axis=0, return_inverse=True)
        needs, of_head = np.unique(edge.head_index, return_inverse=True)
        offered, needed = np.zeros(len(offers), np.bool_), np.zeros(len(needs), np.bool_)
        offered[of_tail.reshape(-1)[tail]] = True
        needed[of_head[head]] = True
        table = self.pairs(e, offers, needs)
        at_offer = table[:, needed].min(axis=1, initial=NEVER)
        at_need = table[offered].min(axis=0, initial=NEVER)
        return at_offer[of_tail.reshape(-1)], at_need[of_head]


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
    sums = [np.where(v.cost < INF, v.cost, 0) << SCALE_BITS for v in network.variables]
    least: list[int] = []
    for edge, (rows, columns) in zip(network.edges, messages, strict=True):
        sums[edge.tail] = sums[edge.tail] + rows[edge.tail_index].min(axis=1)
        sums[edge.head] = sums[edge.head] + columns[edge.head_index]
        used = np.unique(edge.tail_index[domains[edge.tail]]), np.unique(edge.head_index[domains[edge.head]])
        price = edge.table[np.ix_(*used)]
        rest = (np.where(price < INF, price, 0) << SCALE_BITS) - rows[used[0]][:, None] - columns[used[1]][None, :]
        least.append(int(rest.min(where=price < INF, initial=NEVER)))
    own, units = [], sum(least)
    for values, domain in zip(sums, domains, strict=True):
        cheapest = int(values[domain].min())
        own.append(np.where(domain, values - cheapest, NEVER))
        units += cheapest
    return Reduced(network, messages, domains, tuple(own), tuple(least), units)
