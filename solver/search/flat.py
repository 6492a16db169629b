"""A cost network as flat arrays for compiled loops: only the values and layouts that are still possible.

Prices become integers in units of ``2**-shift`` picoseconds, normally 1/4096. Values that no edge and no cost can tell apart
are one value here, the cheapest of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

from solver.search.network import INF, BoolArray, Domains, Edge, IdArray, IntArray, Network

SCALE_BITS = 12
"""Messages of a certificate are integers in units of ``2**-SCALE_BITS`` picoseconds."""

FORBIDDEN = 2**61
"""Forbidden, inside the loops; two of them and a message still fit an int64."""

DEAD = 2**60
"""A sum this large stands for forbidden."""

LIMIT = 2**57
"""No message exceeds this; one cut off here only weakens the bound."""

HEADROOM = 16
"""How many times the dearest single price a message may grow to before it is cut off."""

F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> F:
    """Compile a loop over flat arrays; with NUMBA_DISABLE_JIT set the same text runs as plain Python."""
    return cast(F, numba.njit(cache=True, nogil=True)(function))


class Flat(NamedTuple):
    """The arrays that the compiled loops read; none of them changes."""

    start: IntArray
    """First value of each variable, and the end."""
    divisor: IntArray
    """Into how many shares each variable splits what it holds."""
    out_start: IntArray
    out_edge: IntArray
    in_start: IntArray
    in_edge: IntArray
    tail: IntArray
    head: IntArray
    paired: BoolArray
    """Whether a tail value offers two layouts."""
    made: IntArray
    held: IntArray
    into: IntArray
    """Where in `pool` the row ids (made, held) and the column ids (into) of an edge start."""
    rows: IntArray
    columns: IntArray
    table_start: IntArray
    """Where in `tables` the table of an edge starts, row by row, and in `transposed` column by column."""
    row_start: IntArray
    column_start: IntArray
    """Where the messages to the tail (per row) and to the head (per column) of an edge start."""
    pool: NDArray[np.uint32]
    tables: IntArray
    transposed: IntArray


@dataclass(frozen=True, eq=False)
class FlatNetwork:
    """A network, its flat arrays, and the way back.

    Parameters
    ----------
    network : Network
        Where it comes from.
    flat : Flat
        The arrays.
    cost : int64 array
        Unary prices of all flat values.
    shift : int
        A unit is ``2**-shift`` picoseconds.
    values : tuple of int64 arrays
        The value of the network that each flat value of a variable stands for.
    group : tuple of int32 arrays
        The flat value that stands for each value of a variable, -1 where it was impossible.
    row_ids, column_ids : tuple of int64 arrays
        Per edge the table ids of its rows and columns.
    """

    network: Network
    flat: Flat
    cost: IntArray
    shift: int
    values: tuple[IntArray, ...]
    group: tuple[IdArray, ...]
    row_ids: tuple[IntArray, ...]
    column_ids: tuple[IntArray, ...]

    def assignment(self, choice: IdArray) -> tuple[int, ...]:
        """Return the values of the network that a choice of flat values stands for."""
        return tuple(int(values[k]) for values, k in zip(self.values, choice, strict=True))

    def choice(self, assignment: tuple[int, ...]) -> IdArray:
        """Return the flat values that stand for an assignment, -1 where there is none."""
        return np.array([group[value] for group, value in zip(self.group, assignment, strict=True)], np.int32)

    def restrict(self, domains: Domains) -> IntArray:
        """Return the unary prices where values outside `domains` are forbidden."""
        cost = self.cost.copy()
        for i, (group, domain) in enumerate(zip(self.group, domains, strict=True)):
            alive = np.zeros(len(self.values[i]), np.bool_)
            alive[group[domain]] = True
            cost[self.flat.start[i]: self.flat.start[i + 1]][~alive] = FORBIDDEN
        return cost


def scaled(price: IntArray, shift: int) -> IntArray:
    """Return prices in units of ``2**-shift`` picoseconds, rounded down, with forbidden ones as FORBIDDEN."""
    allowed = price < INF
    small = np.where(allowed, price, 0)
    return np.where(allowed, small << shift if shift >= 0 else small >> -shift, FORBIDDEN)


def flatten(network: Network, domains: Domains) -> FlatNetwork:
    """Write a network as flat arrays.

    Parameters
    ----------
    network : Network
        The network.
    domains : tuple of bool arrays
        Arc-consistent domains, none of them empty.

    Returns
    -------
    FlatNetwork
        What the compiled loops need.
    """
    return _Flattening(network, domains).result()


def _shift(network: Network) -> int:
    """Return the finest unit in which messages have room to grow."""
    dearest = 1
    seen: set[int] = set()
    for prices in [v.cost for v in network.variables] + [e.table for e in network.edges]:
        if id(prices) not in seen:
            seen.add(id(prices))
            dearest = max(dearest, int(prices.max(initial=0, where=prices < INF)))
    return min(SCALE_BITS, (LIMIT // HEADROOM).bit_length() - 1 - dearest.bit_length())


class _Flattening:
    """The work of `flatten`; equal arrays are found by identity first, then by content."""

    def __init__(self, network: Network, domains: Domains) -> None:
        self.network, self.domains, self.shift = network, domains, _shift(network)
        self.at: list[list[Edge]] = [[] for _ in network.variables]
        for edge in network.edges:
            self.at[edge.tail].append(edge)
            self.at[edge.head].append(edge)
        self.grouped: dict[object, tuple[IdArray, IntArray]] = {}
        self.pool: dict[bytes, int] = {}
        self.pool_arrays: list[NDArray[np.uint32]] = []
        self.pool_size = 0
        self.tables: dict[tuple[int, bytes, bytes], int] = {}
        self.table_arrays: list[IntArray] = []
        self.table_size = 0
        self.coded: dict[tuple[int, bytes], tuple[IntArray, list[int]]] = {}

    def result(self) -> FlatNetwork:
        network = self.network
        pairs = [self._group(i) for i in range(len(network.variables))]
        values = tuple(pair[1] for pair in pairs)
        start = np.concatenate([[0], np.cumsum([len(v) for v in values])]).astype(np.int64)
        costs = [scaled(variable.cost[kept], self.shift) for variable, kept in zip(network.variables, values, strict=True)]
        sides = [(self._code(edge.tail_index, values[edge.tail]), self._code(edge.head_index, values[edge.head])) for edge in network.edges]
        row_ids, column_ids = tuple(side[0][0] for side in sides), tuple(side[1][0] for side in sides)
        table_start = [self._table(edge, *ids) for edge, *ids in zip(network.edges, row_ids, column_ids, strict=True)]
        tail, head = _ints([edge.tail for edge in network.edges]), _ints([edge.head for edge in network.edges])
        out_start, out_edge = _adjacency(tail, len(values))
        in_start, in_edge = _adjacency(head, len(values))
        made, held = _ints([side[0][1][0] for side in sides]), _ints([side[0][1][1] for side in sides])
        flat = Flat(
            start=start, divisor=np.maximum(1, np.maximum(np.diff(out_start), np.diff(in_start))),
            out_start=out_start, out_edge=out_edge, in_start=in_start, in_edge=in_edge, tail=tail, head=head,
            paired=made != held, made=made, held=held, into=_ints([side[1][1][0] for side in sides]),
            rows=_ints([len(ids) for ids in row_ids]), columns=_ints([len(ids) for ids in column_ids]),
            table_start=_ints(table_start), row_start=_offsets(row_ids), column_start=_offsets(column_ids),
            pool=np.concatenate([np.zeros(0, np.uint32), *self.pool_arrays]),
            tables=np.concatenate([np.zeros(0, np.int64), *(t.ravel() for t in self.table_arrays)]),
            transposed=np.concatenate([np.zeros(0, np.int64), *(t.T.ravel() for t in self.table_arrays)]))
        return FlatNetwork(network, flat, np.concatenate([np.zeros(0, np.int64), *costs]), self.shift,
                           values, tuple(pair[0] for pair in pairs), row_ids, column_ids)

    def _group(self, i: int) -> tuple[IdArray, IntArray]:
        """Return for one variable which flat value stands for each value, and the value each flat value is."""
        cost, domain = self.network.variables[i].cost, self.domains[i]
        columns = {id(part): part for edge in self.at[i] for part in ([edge.tail_index] if edge.tail == i else [edge.head_index])}
        key = (id(cost), domain.tobytes(), *columns)
        if key not in self.grouped:
            alive = np.flatnonzero(domain)
            label = np.zeros(len(alive), np.int64)
            for part in columns.values():
                for column in np.atleast_2d(part.T):
                    ids = column[alive]
                    label = label * (int(ids.max(initial=0)) + 1) + ids
                    label = np.unique(label, return_inverse=True)[1]
            order = np.lexsort((alive, cost[alive], label))
            first = order[np.flatnonzero(np.diff(label[order], prepend=-1))]
            first = first[np.argsort(alive[first])]
            rank = np.empty(len(first), np.int32)
            rank[label[first]] = np.arange(len(first), dtype=np.int32)
            group = np.full(len(cost), -1, np.int32)
            group[alive] = rank[label]
            self.grouped[key] = group, alive[first]
        return self.grouped[key]

    def _code(self, index: IdArray, kept: IntArray) -> tuple[IntArray, list[int]]:
        """Return the ids that occur among the kept values, and where in the pool each column of `index` starts, in new ids."""
        key = (id(index), kept.tobytes())
        if key not in self.coded:
            ids, codes = np.unique(index[kept], return_inverse=True)
            codes = codes.reshape(index[kept].shape).astype(np.uint32)
            self.coded[key] = ids.astype(np.int64), [self._pooled(column) for column in np.atleast_2d(codes.T)]
        return self.coded[key]

    def _pooled(self, codes: NDArray[np.uint32]) -> int:
        key = codes.tobytes()
        if key not in self.pool:
            self.pool[key] = self.pool_size
            self.pool_arrays.append(np.ascontiguousarray(codes))
            self.pool_size += len(codes)
        return self.pool[key]

    def _table(self, edge: Edge, rows: IntArray, columns: IntArray) -> int:
        key = (id(edge.table), rows.tobytes(), columns.tobytes())
        if key not in self.tables:
            self.tables[key] = self.table_size
            self.table_arrays.append(scaled(edge.table[np.ix_(rows, columns)], self.shift))
            self.table_size += len(rows) * len(columns)
        return self.tables[key]


def _ints(numbers: list[int]) -> IntArray:
    return np.array(numbers, np.int64)


def _offsets(ids: tuple[IntArray, ...]) -> IntArray:
    return np.concatenate([[0], np.cumsum([len(part) for part in ids])]).astype(np.int64)


def _adjacency(ends: IntArray, count: int) -> tuple[IntArray, IntArray]:
    """Return where the edges of each variable start, and the edges in that order."""
    starts = np.searchsorted(np.sort(ends), np.arange(count + 1)).astype(np.int64)
    return starts, np.argsort(ends, kind="stable").astype(np.int64)
