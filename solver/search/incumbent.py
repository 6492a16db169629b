"""The best assignment so far: read off from the messages, improved by descent, mixed with others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from solver.search.bound import Dual, State, add_to_head, add_to_tail, cheapest, condition_head
from solver.search.flat import DEAD, FORBIDDEN, Flat, FlatNetwork, compiled
from solver.search.network import INF, BoolArray, Domains, IdArray, IntArray, Network, arc_consistency

ROUNDS = 30
"""The most walks over the network of one descent."""


@compiled
def edge_price(flat: Flat, e: int, tail: int, head: int) -> int:
    """Return the price of an edge for two flat values."""
    column = flat.table_start[e] + flat.pool[flat.into[e] + head]
    made = flat.tables[column + flat.columns[e] * flat.pool[flat.made[e] + tail]]
    if flat.paired[e]:
        return min(made, flat.tables[column + flat.columns[e] * flat.pool[flat.held[e] + tail]])
    return made


@compiled
def price(flat: Flat, cost: IntArray, choice: IdArray, shift: int) -> int:
    """Return what a choice costs in picoseconds, INF where it is not allowed."""
    total = 0
    for k in range(len(choice) + len(flat.tail)):
        if k < len(choice):
            part = cost[flat.start[k] + choice[k]]
        else:
            e = k - len(choice)
            part = edge_price(flat, e, choice[flat.tail[e]], choice[flat.head[e]])
        if part >= DEAD:
            return INF
        total = min(total + (part >> shift if shift >= 0 else part << -shift), INF)
    return total


@compiled
def condition_tail(flat: Flat, e: int, count: int, chosen: int, total: IntArray) -> None:
    """Add to each tail value the price of an edge when its head has chosen."""
    rows = flat.rows[e]
    column = flat.table_start[e] + rows * flat.pool[flat.into[e] + chosen]
    add_to_tail(flat, e, count, flat.transposed[column: column + rows], total)


@compiled
def descend(flat: Flat, cost: IntArray, choice: IdArray, values: int, rounds: int) -> None:
    """Change one variable at a time while that is cheaper, forward and backward in turn."""
    total = np.empty(values, np.int64)
    count = len(choice)
    active = np.ones(count, np.bool_)
    for walk in range(rounds):
        moved = False
        for step in range(count):
            i = step if walk % 2 == 0 else count - 1 - step
            if not active[i]:
                continue
            active[i] = False
            first = flat.start[i]
            size = flat.start[i + 1] - first
            for a in range(size):
                total[a] = cost[first + a]
            for k in range(flat.in_start[i], flat.in_start[i + 1]):
                condition_head(flat, flat.in_edge[k], size, choice[flat.tail[flat.in_edge[k]]], total)
            for k in range(flat.out_start[i], flat.out_start[i + 1]):
                condition_tail(flat, flat.out_edge[k], size, choice[flat.head[flat.out_edge[k]]], total)
            best = cheapest(total, size)
            if total[best] < total[choice[i]]:
                choice[i] = best
                moved = True
                for k in range(flat.in_start[i], flat.in_start[i + 1]):
                    active[flat.tail[flat.in_edge[k]]] = True
                for k in range(flat.out_start[i], flat.out_start[i + 1]):
                    active[flat.head[flat.out_edge[k]]] = True
        if not moved:
            break


@compiled
def prefer(flat: Flat, state: State, i: int, choice: IdArray, done: BoolArray, total: IntArray) -> None:
    """Set `total` to what each value of variable i costs next to the choices that are done, by messages from the others."""
    first = flat.start[i]
    size = flat.start[i + 1] - first
    for a in range(size):
        total[a] = state.cost[first + a]
    for k in range(flat.in_start[i], flat.in_start[i + 1]):
        e = flat.in_edge[k]
        if done[flat.tail[e]]:
            condition_head(flat, e, size, choice[flat.tail[e]], total)
        else:
            add_to_head(flat, e, size, state.to_head[flat.column_start[e]: flat.column_start[e + 1]], total)
    for k in range(flat.out_start[i], flat.out_start[i + 1]):
        e = flat.out_edge[k]
        if done[flat.head[e]]:
            condition_tail(flat, e, size, choice[flat.head[e]], total)
        else:
            add_to_tail(flat, e, size, state.to_tail[flat.row_start[e]: flat.row_start[e + 1]], total)


@compiled
def read_in_order(flat: Flat, state: State, order: IntArray, choice: IdArray, values: int) -> None:
    """Choose the value of each variable in turn, next to the choices before it."""
    total = np.empty(values, np.int64)
    done = np.zeros(len(choice), np.bool_)
    for i in order:
        prefer(flat, state, i, choice, done, total)
        choice[i] = cheapest(total, flat.start[i + 1] - flat.start[i])
        done[i] = True


@compiled
def mix(flat: Flat, cost: IntArray, best: IdArray, other: IdArray) -> IdArray:
    """Return `best` with each connected group of variables where `other` differs, and is cheaper, taken from `other`."""
    count = len(best)
    root = np.arange(count)
    for e in range(len(flat.tail)):
        u, v = flat.tail[e], flat.head[e]
        if best[u] != other[u] and best[v] != other[v]:
            while root[u] != u:
                root[u] = root[root[u]]
                u = root[u]
            while root[v] != v:
                root[v] = root[root[v]]
                v = root[v]
            root[max(u, v)] = min(u, v)
    for i in range(count):
        root[i] = root[root[i]]
    gain = np.zeros(count, np.float64)
    for i in range(count):
        if best[i] != other[i]:
            gain[root[i]] += float(cost[flat.start[i] + best[i]]) - float(cost[flat.start[i] + other[i]])
    for e in range(len(flat.tail)):
        u, v = flat.tail[e], flat.head[e]
        if best[u] != other[u] or best[v] != other[v]:
            owner = root[u] if best[u] != other[u] else root[v]
            gain[owner] += float(edge_price(flat, e, best[u], best[v])) - float(edge_price(flat, e, other[u], other[v]))
    mixed = best.copy()
    for i in range(count):
        if gain[root[i]] > 0:
            mixed[i] = other[i]
    return mixed


class Incumbent:
    """The cheapest allowed assignment seen so far.

    Parameters
    ----------
    network : FlatNetwork
        The network.
    """

    def __init__(self, network: FlatNetwork) -> None:
        self.network = network
        self.cost = INF
        self.choice: IdArray | None = None

    @property
    def assignment(self) -> tuple[int, ...] | None:
        """The values of the network that were chosen, None where nothing allowed was seen."""
        return None if self.choice is None else self.network.assignment(self.choice)

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
        flat, cost = self.network.flat, self.network.cost
        values = int(np.diff(flat.start).max(initial=0))
        tried = choice.copy()
        descend(flat, cost, tried, values, ROUNDS)
        better = self._keep(tried)
        if self.choice is not None and not better:
            mixed = mix(flat, cost, self.choice, tried)
            if (mixed != self.choice).any():
                descend(flat, cost, mixed, values, ROUNDS)
                better = self._keep(mixed)
        return better

    def _keep(self, choice: IdArray) -> bool:
        cost = int(price(self.network.flat, self.network.cost, choice, self.network.shift))
        if cost < self.cost and self.network.shift < 0:
            cost = self.network.network.cost(self.network.assignment(choice))
        if cost >= self.cost:
            return False
        self.cost, self.choice = cost, choice
        return True

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
        read_in_order(self.network.flat, dual.state, order, choice, dual.values)
        return self.offer(choice)


def orders(count: int, seeds: Sequence[int]) -> list[IntArray]:
    """Return orders of variables to read in: reversed program order, then a random one for each seed."""
    return [np.arange(count)[::-1].copy(), *(np.random.default_rng(seed).permutation(count) for seed in seeds)]


def dive(dual: Dual, domains: Domains, failures: int = 200) -> IdArray | None:
    """Choose variable after variable, keeping all others arc consistent, so that even strict networks give an allowed choice.

    Parameters
    ----------
    dual : Dual
        The messages, which say what to try first.
    domains : tuple of bool arrays
        Arc-consistent domains that agree with `dual`.
    failures : int, optional
        How many dead ends to turn back from.

    Returns
    -------
    int32 array or None
        A flat value for each variable, None where every try ended dead.
    """
    network, count = dual.network, len(dual.network.values)
    total: NDArray[np.int64] = np.empty(dual.values, np.int64)
    done, choice = np.zeros(count, np.bool_), np.zeros(count, np.int32)
    trail: list[tuple[int, Domains]] = []
    i = 0
    while i < count:
        prefer(network.flat, dual.state, i, choice, done, total)
        scores = np.where(domains[i][network.values[i]], total[: len(network.values[i])], FORBIDDEN)
        choice[i] = scores.argmin()
        tried = _only(network, domains, i, int(choice[i]))
        if tried is not None:
            trail.append((i, domains))
            domains, done[i] = tried, True
            i += 1
            continue
        while True:
            failures -= 1
            if failures < 0:
                return None
            rest = _without(network, domains, i, int(choice[i]))
            if rest is not None:
                domains = rest
                break
            if not trail:
                return None
            i, domains = trail.pop()
            done[i] = False
    return choice


def _only(network: FlatNetwork, domains: Domains, i: int, chosen: int) -> Domains | None:
    return _narrowed(network.network, domains, i, domains[i] & (network.group[i] == chosen))


def _without(network: FlatNetwork, domains: Domains, i: int, chosen: int) -> Domains | None:
    return _narrowed(network.network, domains, i, domains[i] & (network.group[i] != chosen))


def _narrowed(network: Network, domains: Domains, i: int, domain: BoolArray) -> Domains | None:
    """Return the consistent domains when variable i has only `domain`, None where there are none."""
    if np.array_equal(domain, domains[i]):
        return domains
    found = arc_consistency(network, (*domains[:i], domain, *domains[i + 1:]), [i])
    return found.domains if found.feasible else None
