"""The cost network: variables with costs, edges with shared tables, and arc consistency."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

INF = 2**61
"""A cost in picoseconds that means forbidden; every smaller number is a price."""

IntArray: TypeAlias = NDArray[np.int64]
IdArray: TypeAlias = NDArray[np.int32]
BoolArray: TypeAlias = NDArray[np.bool_]
Domains: TypeAlias = tuple[BoolArray, ...]
"""For each variable a mask over its values: True where the value is still possible."""


class NetworkError(ValueError):
    """A cost network that contradicts itself."""


@dataclass(frozen=True, eq=False, slots=True)
class Variable:
    """One choice: the joint row of an op, the layout of a tensor, or the (made, held) pair of a shared copy.

    Parameters
    ----------
    name : str
        The name of the op or tensor.
    kind : {"op", "tensor"}
        What is chosen.
    cost : int64 array
        The price of each value in picoseconds; ``INF`` where the value is forbidden.
    """

    name: str
    kind: Literal["op", "tensor"]
    cost: IntArray

    def __post_init__(self) -> None:
        if self.cost.dtype != np.int64 or self.cost.ndim != 1:
            raise NetworkError(f"variable {self.name!r}: cost is {_told(self.cost)}, it must be a 1-d int64 array")
        if self.cost.size and self.cost.min() < 0:
            raise NetworkError(f"variable {self.name!r}: a cost of {self.cost.min()} ps is negative, prices start at 0")

    def __len__(self) -> int:
        return len(self.cost)


@dataclass(frozen=True, eq=False, slots=True)
class Edge:
    """The price of bringing what one variable holds to what another one needs.

    The price of tail value ``a`` with head value ``b`` is the smaller of ``table[tail_index[a, 0], head_index[b]]``
    and ``table[tail_index[a, 1], head_index[b]]``: a shared copy offers both the made and the held layout.

    Parameters
    ----------
    name : str
        What flows along the edge, for messages and progress.
    tail, head : int
        Indices of the variables, ``tail < head``.
    table : int64 array, shape (A, B)
        Prices between layouts in picoseconds; equal tables are one object.
    tail_index : int32 array, shape (values of tail, 2)
        The row ids of each tail value; both columns are equal where there is no copy.
    head_index : int32 array, shape (values of head,)
        The column id of each head value.
    """

    name: str
    tail: int
    head: int
    table: IntArray
    tail_index: IdArray
    head_index: IdArray

    def __post_init__(self) -> None:
        if self.table.dtype != np.int64 or self.table.ndim != 2:
            raise NetworkError(f"edge {self.name!r}: table is {_told(self.table)}, it must be a 2-d int64 array")
        if self.tail_index.dtype != np.int32 or self.tail_index.ndim != 2 or self.tail_index.shape[1] != 2:
            raise NetworkError(
                f"edge {self.name!r}: tail_index is {_told(self.tail_index)}, it must be int32 of shape (values, 2)"
            )
        if self.head_index.dtype != np.int32 or self.head_index.ndim != 1:
            raise NetworkError(
                f"edge {self.name!r}: head_index is {_told(self.head_index)}, it must be a 1-d int32 array"
            )
        if not 0 <= self.tail < self.head:
            raise NetworkError(
                f"edge {self.name!r}: it runs from variable {self.tail} to {self.head}, it must run forward"
            )

    def value(self, tail_value: int, head_value: int) -> int:
        """Return the price of a pair of values.

        Parameters
        ----------
        tail_value, head_value : int
            Indices of values.

        Returns
        -------
        int
            Picoseconds, at least ``INF`` where the pair is forbidden.
        """
        made, held = self.tail_index[tail_value]
        column = self.head_index[head_value]
        return int(min(self.table[made, column], self.table[held, column]))


@dataclass(frozen=True, eq=False)
class Network:
    """A cost network; it checks itself when it is made.

    Parameters
    ----------
    variables : tuple of Variable
        In the order in which the sweeps walk them, best the order of the program.
    edges : tuple of Edge
        Several edges may join the same two variables.

    Raises
    ------
    NetworkError
        Where an edge names a variable, row or column that is not there, or a table holds a negative price.

    Examples
    --------
    >>> table = np.array([[0, 5], [5, 0]])
    >>> pair = np.array([[0, 0], [1, 1]], np.int32)
    >>> u, v = (Variable(name, "tensor", np.array([0, 3])) for name in "uv")
    >>> Network((u, v), (Edge("uv", 0, 1, table, pair, pair[:, 0].copy()),)).cost([0, 1])
    8
    """

    variables: tuple[Variable, ...]
    edges: tuple[Edge, ...]

    def __post_init__(self) -> None:
        ranges: dict[int, tuple[int, int]] = {}

        def span(array: NDArray[Any]) -> tuple[int, int]:
            if id(array) not in ranges:
                ranges[id(array)] = (int(array.min()), int(array.max())) if array.size else (0, -1)
            return ranges[id(array)]

        for edge in self.edges:
            if edge.head >= len(self.variables):
                raise NetworkError(
                    f"edge {edge.name!r}: variable {edge.head} is not there, the network has {len(self.variables)}"
                )
            for what, at, index, size in (
                ("tail", edge.tail, edge.tail_index, edge.table.shape[0]),
                ("head", edge.head, edge.head_index, edge.table.shape[1]),
            ):
                variable = self.variables[at]
                if len(index) != len(variable):
                    raise NetworkError(
                        f"edge {edge.name!r}: {what}_index has {len(index)} entries, "
                        f"variable {variable.name!r} has {len(variable)} values"
                    )
                low, high = span(index)
                if low < 0 or high >= size:
                    raise NetworkError(
                        f"edge {edge.name!r}: {what}_index spans {low} to {high}, the table has {size} layouts there"
                    )
            if span(edge.table)[0] < 0:
                raise NetworkError(
                    f"edge {edge.name!r}: a price of {span(edge.table)[0]} ps is negative, prices start at 0"
                )

    def cost(self, assignment: Sequence[int]) -> int:
        """Return the price of an assignment.

        Parameters
        ----------
        assignment : sequence of int
            One value index per variable.

        Returns
        -------
        int
            Picoseconds, exact; ``INF`` where any part is forbidden.
        """
        if len(assignment) != len(self.variables):
            raise NetworkError(
                f"the assignment has {len(assignment)} values, the network has {len(self.variables)} variables"
            )
        parts = [int(variable.cost[value]) for variable, value in zip(self.variables, assignment, strict=True)]
        parts += [edge.value(assignment[edge.tail], assignment[edge.head]) for edge in self.edges]
        return INF if any(part >= INF for part in parts) else sum(parts)

    @cached_property
    def hard_edges(self) -> tuple[tuple[int, ...], ...]:
        """For each variable the edges at it that can forbid a pair."""
        found: list[list[int]] = [[] for _ in self.variables]
        for k, edge in enumerate(self.edges):
            if self.allowed[id(edge.table)] is not None:
                found[edge.tail].append(k)
                found[edge.head].append(k)
        return tuple(map(tuple, found))

    @cached_property
    def allowed(self) -> dict[int, BoolArray | None]:
        """For each table, by identity, where it is allowed; None where it is so everywhere."""
        masks: dict[int, BoolArray | None] = {}
        for edge in self.edges:
            if id(edge.table) not in masks:
                mask = edge.table < INF
                masks[id(edge.table)] = None if mask.all() else mask
        return masks


@dataclass(frozen=True, slots=True)
class Consistency:
    """What arc consistency leaves.

    Parameters
    ----------
    domains : tuple of bool arrays
        The values that are left.
    emptied : int or None
        The variable that lost its last value; the network is then infeasible and the other domains are unfinished.
    """

    domains: Domains
    emptied: int | None

    @property
    def feasible(self) -> bool:
        """False where a variable has no value left, which proves that no assignment is allowed."""
        return self.emptied is None


def arc_consistency(
    network: Network, domains: Domains | None = None, changed: Iterable[int] | None = None
) -> Consistency:
    """Remove every value that has no allowed partner across some edge, until nothing changes.

    Parameters
    ----------
    network : Network
        The network.
    domains : tuple of bool arrays, optional
        The values to start from; all values of finite cost when absent. The arrays are not written to.
    changed : iterable of int, optional
        The variables whose domains shrank since `domains` was last consistent; all of them when absent.

    Returns
    -------
    Consistency
        The largest consistent domains (they do not depend on the order of removal).
    """
    left = [variable.cost < INF for variable in network.variables] if domains is None else list(domains)
    start = range(len(left)) if changed is None else list(changed)
    for i in start:
        if not left[i].any():
            return Consistency(tuple(left), i)
    queue = deque(dict.fromkeys(k for i in start for k in network.hard_edges[i]))
    waiting = set(queue)
    while queue:
        k = queue.popleft()
        waiting.discard(k)
        edge = network.edges[k]
        for i, supported in zip(
            (edge.tail, edge.head), _supported(network, edge, left[edge.tail], left[edge.head]), strict=True
        ):
            remaining = left[i] & supported
            if np.array_equal(remaining, left[i]):
                continue
            left[i] = remaining
            if not remaining.any():
                return Consistency(tuple(left), i)
            for other in network.hard_edges[i]:
                if other not in waiting:
                    waiting.add(other)
                    queue.append(other)
    return Consistency(tuple(left), None)


def _supported(network: Network, edge: Edge, tail: BoolArray, head: BoolArray) -> tuple[BoolArray, BoolArray]:
    """Return which tail values and which head values have an allowed partner."""
    allowed = network.allowed[id(edge.table)]
    assert allowed is not None
    rows = np.zeros(allowed.shape[0], np.bool_)
    rows[edge.tail_index[tail]] = True
    columns = np.zeros(allowed.shape[1], np.bool_)
    columns[edge.head_index[head]] = True
    good_columns: BoolArray = np.logical_or.reduce(allowed[rows], axis=0)
    good_rows: BoolArray = np.logical_or.reduce(allowed[:, columns], axis=1)
    good = good_rows[edge.tail_index]
    return good[:, 0] | good[:, 1], good_columns[edge.head_index]


def _told(array: object) -> str:
    return f"{array.dtype} of shape {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
