"""A plan within a memory budget between a cheap one that is too large and a small one that is too dear."""

from __future__ import annotations

from collections.abc import Callable, Iterable

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
    groups = [_Group(storing, group, cheap, small) for group in _groups(storing, cheap, small)]
    worth = sorted((group for group in groups if group.saves > 0), key=lambda group: -group.saves / max(1, group.adds))
    room = budget - storing.bytes(small)
    taken: list[_Group] = []
    for group in worth:
        if (group.bytes <= room).all():
            room = room - group.bytes
            taken.append(group)
    low, high = 0, len(taken) + 1  # what is stored at other steps than the moments may allow fewer of them
    while high - low > 1 and not over():
        middle = (low + high) // 2
        fits = peaks.of(_with(small, cheap, taken[:middle])).peak <= budget
        low, high = (middle, high) if fits else (low, middle)
    return _with(small, cheap, taken[:low])


class _Group:
    """Variables that differ and hang together: what taking them from the cheap plan saves and adds."""

    def __init__(self, storing: Storing, variables: list[int], cheap: Assignment, small: Assignment) -> None:
        self.variables = variables
        tried = _with(small, cheap, [self])
        self.saves = _cost_of(storing, variables, small) - _cost_of(storing, variables, tried)
        self.bytes = storing.bytes_of(variables, tried) - storing.bytes_of(variables, small)
        self.adds = int(self.bytes.max(initial=0))


def _with(small: Assignment, cheap: Assignment, groups: Iterable[_Group]) -> Assignment:
    found = list(small)
    for group in groups:
        for i in group.variables:
            found[i] = cheap[i]
    return tuple(found)


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
