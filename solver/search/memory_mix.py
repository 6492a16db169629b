"""A plan within a memory budget between a cheap one that is too large and a small one that is too dear."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from solver.search.memory_network import Storing
from solver.search.memory_peak import Peaks
from solver.search.network import INF

Assignment = tuple[int, ...]


def mixed(
    storing: Storing, peaks: Peaks, cheap: Assignment, small: Assignment, budget: int, over: Callable[[], bool]
) -> Assignment:
    """Return a mixture within the budget, group by group of the variables that differ and hang together.

    Parameters
    ----------
    storing : Storing
    peaks : Peaks
    cheap : tuple of int
        Beyond the budget.
    small : tuple of int
        Within it.
    budget : int
        Bytes.
    over : callable
        Whether there is no more time.

    Returns
    -------
    tuple of int
        No dearer than `small`.
    """
    network = storing.built.network
    groups = _groups(storing, cheap, small)
    now = list(small)
    paid, saved = [], []
    for group in groups:
        tried = list(small)
        for i in group:
            tried[i] = cheap[i]
        paid.append(_cost_of(storing, group, small) - _cost_of(storing, group, tuple(tried)))
        saved.append(int((storing.bytes_of(group, tuple(tried)) - storing.bytes_of(group, small)).max(initial=0)))
    order = sorted(range(len(groups)), key=lambda g: -paid[g] / max(1, saved[g]))
    for g in order:
        if paid[g] <= 0 or over():
            continue
        tried = list(now)
        for i in groups[g]:
            tried[i] = cheap[i]
        if peaks.of(tuple(tried)).peak <= budget:
            now = tried
    found = tuple(now)
    return found if network.cost(found) < network.cost(small) else small


def _groups(storing: Storing, one: Assignment, other: Assignment) -> list[list[int]]:
    """Return the variables that differ, those together that hang together by an edge."""
    root = list(range(len(one)))

    def find(i: int) -> int:
        while root[i] != i:
            root[i] = i = root[root[i]]
        return i

    for edge in storing.built.network.edges:
        if one[edge.tail] != other[edge.tail] and one[edge.head] != other[edge.head]:
            root[find(edge.head)] = find(edge.tail)
    found: dict[int, list[int]] = {}
    for i in np.flatnonzero(np.array(one) != np.array(other)).tolist():
        found.setdefault(find(i), []).append(i)
    return list(found.values())


def _cost_of(storing: Storing, group: list[int], assignment: Assignment) -> int:
    """Return what the variables of a group and all edges at them cost."""
    network = storing.built.network
    total = sum(int(network.variables[i].cost[assignment[i]]) for i in group)
    edges = {e for i in group for e in storing.edges_at[i]}
    total += sum(
        network.edges[e].value(assignment[network.edges[e].tail], assignment[network.edges[e].head]) for e in edges
    )
    return min(INF, total)
