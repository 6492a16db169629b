"""A cost network as flat arrays for compiled loops.

Prices become integers in units of ``2**-shift`` picoseconds, normally 1/4096. Values that no edge can tell apart are
one value here, the cheapest of them. Layouts that no value uses leave their tables where that makes them much smaller.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from solver.search.arrays import Flat
from solver.search.kernels import DEAD, FORBIDDEN, LIMIT
from solver.search.network import INF, BoolArray, Domains, Edge, IdArray, IntArray, Network
from solver.search.shares import shares
from solver.search.skeleton import LARGE, Skeleton, skeleton

SCALE_BITS = 12
"""Messages of a certificate are integers in units of ``2**-SCALE_BITS`` picoseconds."""

HEADROOM = 16
"""How many times the dearest single price a message may grow to before it is cut off."""

CROWDED = 0.7
"""A side of a table with more than this fraction of its layouts in use stays whole, so that tables are shared."""

THIN = 0.25
"""A table with at most this fraction of its pairs allowed is kept as a list of them too."""


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
    skeletons : dict
        Those of the large tables, by the identity of the table; None where it has none.
    """

    network: Network
    flat: Flat
    cost: IntArray
    shift: int
    values: tuple[IntArray, ...]
    group: tuple[IdArray, ...]
    row_ids: tuple[IntArray, ...]
    column_ids: tuple[IntArray, ...]
    skeletons: dict[int, Skeleton | None]

    def assignment(self, choice: IdArray) -> tuple[int, ...]:
        """Return the values of the network that a choice of flat values stands for."""
        return tuple(int(values[k]) for values, k in zip(self.values, choice, strict=True))

    def choice(self, assignment: Sequence[int]) -> IdArray:
        """Return the flat values that stand for an assignment, -1 where there is none."""
        return np.array([group[value] for group, value in zip(self.group, assignment, strict=True)], np.int32)

    def restrict(self, cost: IntArray, before: Domains, after: Domains) -> IntArray:
        """Return unary prices where the values that `after` lost against `before` are forbidden too."""
        cost = cost.copy()
        for i, (old, new) in enumerate(zip(before, after, strict=True)):
            if old is not new:
                alive = np.zeros(len(self.values[i]), np.bool_)
                alive[self.group[i][new]] = True
                cost[self.flat.start[i] : self.flat.start[i + 1]][~alive] = FORBIDDEN
        return cost


def scaled(price: IntArray, shift: int) -> IntArray:
    """Return prices in units of ``2**-shift`` picoseconds, rounded down, with forbidden ones as FORBIDDEN."""
    allowed = price < INF
    small = np.where(allowed, price, 0)
    return np.where(allowed, small << shift if shift >= 0 else small >> -shift, FORBIDDEN)


def flatten(
    network: Network, domains: Domains, skeletons: dict[int, Skeleton | None] | None = None, finest: int = SCALE_BITS
) -> FlatNetwork:
    """Write a network as flat arrays.

    Parameters
    ----------
    network : Network
        The network.
    domains : tuple of bool arrays
        Arc-consistent domains, none of them empty.
    skeletons : dict, optional
        Those of a network with the same tables, to be added to.
    finest : int, optional
        Units are no finer than ``2**-finest`` of a price.

    Returns
    -------
    FlatNetwork
        What the compiled loops need.
    """
    at: list[list[IdArray]] = [[] for _ in network.variables]
    for edge in network.edges:
        at[edge.tail].append(edge.tail_index)
        at[edge.head].append(edge.head_index)
    groups = _Groups()
    pairs = [
        groups.of(v.cost, domain, indices) for v, domain, indices in zip(network.variables, domains, at, strict=True)
    ]
    values = tuple(pair[1] for pair in pairs)
    shift = min(finest, _shift(network))
    codes, tables = _Codes(), _Tables(shift)
    tails = [codes.add(edge.tail_index, edge.table.shape[0], values[edge.tail]) for edge in network.edges]
    heads = [codes.add(edge.head_index, edge.table.shape[1], values[edge.head]) for edge in network.edges]
    bones = _Skeletons(shift, {} if skeletons is None else skeletons)
    for e, edge in enumerate(network.edges):
        if len(tails[e][0]) * len(heads[e][0]) >= LARGE and bones.has(edge.table):
            tails[e] = codes.add(edge.tail_index, edge.table.shape[0], values[edge.tail], whole=True)
            heads[e] = codes.add(edge.head_index, edge.table.shape[1], values[edge.head], whole=True)
    row_ids, column_ids = tuple(side[0] for side in tails), tuple(side[0] for side in heads)
    placed = _ints([tables.add(edge, *ids) for edge, *ids in zip(network.edges, row_ids, column_ids, strict=True)])
    tail, head = _ints([edge.tail for edge in network.edges]), _ints([edge.head for edge in network.edges])
    out_start, out_edge = _adjacency(tail, len(values))
    in_start, in_edge = _adjacency(head, len(values))
    made, held = _ints([side[1][0] for side in tails]), _ints([side[1][-1] for side in tails])
    tail_share, head_share = shares(tail, head, tables.spans()[placed], len(values))
    flat = Flat(
        start=_offsets(values),
        tail_share=tail_share,
        head_share=head_share,
        out_start=out_start,
        out_edge=out_edge,
        in_start=in_start,
        in_edge=in_edge,
        tail=tail,
        head=head,
        paired=made != held,
        made=made,
        held=held,
        into=_ints([side[1][0] for side in heads]),
        rows=_ints([len(ids) for ids in row_ids]),
        columns=_ints([len(ids) for ids in column_ids]),
        row_start=_offsets(row_ids),
        column_start=_offsets(column_ids),
        pool=_joined(codes.pool, np.uint32),
        **tables.arrays(placed),
        **bones.arrays(network.edges, row_ids, column_ids),
    )
    costs = [scaled(variable.cost[kept], shift) for variable, kept in zip(network.variables, values, strict=True)]
    return FlatNetwork(
        network,
        flat,
        _joined(costs, np.int64),
        shift,
        values,
        tuple(pair[0] for pair in pairs),
        row_ids,
        column_ids,
        bones.known,
    )


def _shift(network: Network) -> int:
    """Return the finest unit in which messages have room to grow."""
    dearest = 1
    arrays = {
        id(prices): prices for prices in (*(v.cost for v in network.variables), *(e.table for e in network.edges))
    }
    for prices in arrays.values():
        dearest = max(dearest, int(prices.max(initial=0, where=prices < INF)))
    return min(SCALE_BITS, (LIMIT // HEADROOM).bit_length() - 1 - dearest.bit_length())


class _Groups:
    """Which values of a variable no edge tells apart; computed once for equal variables."""

    def __init__(self) -> None:
        self.known: dict[tuple[bytes, ...], tuple[IdArray, IntArray]] = {}
        self.contents: dict[int, bytes] = {}

    def of(self, cost: IntArray, domain: BoolArray, indices: Sequence[IdArray]) -> tuple[IdArray, IntArray]:
        """Return which flat value stands for each value, -1 outside the domain, and the value each flat value is."""
        parts = {self._content(index): index for index in indices}
        key = (cost.tobytes(), domain.tobytes(), *parts)
        if key not in self.known:
            alive = np.flatnonzero(domain)
            columns = {column.tobytes(): column for part in parts.values() for column in np.atleast_2d(part.T)}
            label = _labels([column[alive] for column in columns.values()], len(alive))
            first = np.arange(len(alive))
            if label.max() + 1 < len(alive):
                order = np.lexsort((cost[alive], label))
                first = np.sort(order[np.flatnonzero(np.diff(label[order], prepend=-1))])
            rank = np.empty(len(first), np.int32)
            rank[label[first]] = np.arange(len(first), dtype=np.int32)
            group = np.full(len(cost), -1, np.int32)
            group[alive] = rank[label]
            self.known[key] = group, alive[first]
        return self.known[key]

    def _content(self, index: IdArray) -> bytes:
        if id(index) not in self.contents:
            self.contents[id(index)] = index.tobytes()
        return self.contents[id(index)]


def _labels(columns: list[IdArray], count: int) -> IntArray:
    """Return numbers that are equal where all columns are, the smallest ones possible."""
    label = np.zeros(count, np.int64)
    for ids in columns:
        label = label * (int(ids.max()) + 1) + ids
        if label.max() < 8 * count:
            used = np.zeros(int(label.max()) + 1, np.bool_)
            used[label] = True
            label = (np.cumsum(used) - 1)[label]
        else:
            label = np.unique(label, return_inverse=True)[1]
    return label


class _Codes:
    """The pool of row and column ids of values; equal columns of ids are stored once."""

    def __init__(self) -> None:
        self.pool: list[NDArray[np.uint32]] = []
        self.size = 0
        self.at: dict[bytes, int] = {}
        self.known: dict[tuple[int, int, bytes, bool], tuple[IntArray, list[int]]] = {}

    def add(self, index: IdArray, size: int, kept: IntArray, *, whole: bool = False) -> tuple[IntArray, list[int]]:
        """Return the table ids to keep, and where in the pool the kept values of each column of `index` start."""
        key = (id(index), size, kept.tobytes(), whole)
        if key not in self.known:
            codes = index[kept]
            used = np.zeros(size, np.bool_)
            used[codes] = True
            if whole or used.sum() > CROWDED * size:
                used[:] = True
            new = (np.cumsum(used) - 1).astype(np.uint32)
            self.known[key] = np.flatnonzero(used), [self._place(new[column]) for column in np.atleast_2d(codes.T)]
        return self.known[key]

    def _place(self, codes: NDArray[np.uint32]) -> int:
        key = codes.tobytes()
        if key not in self.at:
            self.at[key] = self.size
            self.pool.append(codes)
            self.size += len(codes)
        return self.at[key]


class _Tables:
    """The tables in the chosen unit; equal ones are stored once."""

    def __init__(self, shift: int) -> None:
        self.shift = shift
        self.number: dict[tuple[int, bytes, bytes], int] = {}
        self.known: list[IntArray] = []

    def add(self, edge: Edge, rows: IntArray, columns: IntArray) -> int:
        """Return the number of the table of an edge, cut down to some rows and columns."""
        key = (id(edge.table), rows.tobytes(), columns.tobytes())
        if key not in self.number:
            self.number[key] = len(self.known)
            whole = (len(rows), len(columns)) == edge.table.shape
            self.known.append(scaled(edge.table if whole else edge.table[np.ix_(rows, columns)], self.shift))
        return self.number[key]

    def spans(self) -> IntArray:
        """Return for each table the difference between its dearest and its cheapest allowed price."""
        return _ints(
            [int(t.max(initial=0, where=t < DEAD)) - int(t.min(initial=DEAD, where=t < DEAD)) for t in self.known]
        )

    def arrays(self, placed: IntArray) -> dict[str, NDArray[Any]]:
        """Return the fields of `Flat` that hold tables, for edges with these numbers of tables."""
        starts: list[IntArray] = []
        at: list[IntArray] = []
        price: list[IntArray] = []
        lines, pairs = 0, 0
        thin = np.full((len(self.known), 2), -1, np.int64)
        for k, table in enumerate(self.known):
            if np.count_nonzero(table < DEAD) > THIN * table.size:
                continue
            for side, turned in enumerate((table, table.T)):
                line, other = np.nonzero(turned < DEAD)
                thin[k, side] = lines
                starts.append(pairs + np.searchsorted(line, np.arange(len(turned) + 1)))
                at.append(other)
                price.append(turned[line, other])
                lines, pairs = lines + len(turned) + 1, pairs + len(line)
        return {
            "table_start": _offsets([table.ravel() for table in self.known])[:-1][placed],
            "tables": _filled(self.known),
            "transposed": _filled([table.T for table in self.known]),
            "thin_rows": thin[placed, 0],
            "thin_columns": thin[placed, 1],
            "thin_start": _joined(starts, np.int64),
            "thin_at": _joined(at, np.uint32),
            "thin_price": _joined(price, np.int64),
        }


class _Skeletons:
    """The skeletons of the large tables, in the chosen unit."""

    def __init__(self, shift: int, known: dict[int, Skeleton | None]) -> None:
        self.shift, self.known = shift, known

    def has(self, table: IntArray) -> bool:
        """Return whether a table is the cheapest sums of a few steps; prices that were rounded are not."""
        if id(table) not in self.known:
            self.known[id(table)] = skeleton(table)
        return self.shift >= 0 and self.known[id(table)] is not None

    def arrays(
        self, edges: Sequence[Edge], rows: Sequence[IntArray], columns: Sequence[IntArray]
    ) -> dict[str, NDArray[Any]]:
        """Return the fields of `Flat` that hold skeletons, for edges with these rows and columns of their tables."""
        places: dict[int, tuple[int, int]] = {}
        starts: list[IntArray] = []
        found: list[Skeleton] = []
        lines = steps = 0
        for number in dict.fromkeys(id(edge.table) for edge in edges):
            whole = self.known.get(number)
            if whole is not None and self.shift >= 0:
                count = len(whole.start)
                places[number] = lines, lines + count
                for side in (whole, whole.turned()):
                    starts.append(steps + side.start)
                    found.append(side)
                    steps, lines = steps + len(side.at), lines + count
        placed = [
            places.get(id(edge.table), (-1, -1)) if (len(one), len(other)) == edge.table.shape else (-1, -1)
            for edge, one, other in zip(edges, rows, columns, strict=True)
        ]
        return {
            "steps_on": _ints([place[0] for place in placed]),
            "steps_back": _ints([place[1] for place in placed]),
            "step_start": _joined(starts, np.int64),
            "step_at": _joined([side.at for side in found], np.uint32),
            "step_price": _joined([side.price << max(0, self.shift) for side in found], np.int64),
        }


def _filled(tables: Sequence[IntArray]) -> IntArray:
    """Return tables row by row, one after the other; without a copy of each, as they are large."""
    found, at = np.empty(sum(table.size for table in tables), np.int64), 0
    for table in tables:
        found[at : at + table.size].reshape(table.shape)[:] = table
        at += table.size
    return found


def _joined(arrays: Sequence[NDArray[Any]], dtype: type[np.generic]) -> NDArray[Any]:
    """Return arrays one after the other."""
    return np.concatenate([np.zeros(0, dtype), *arrays]).astype(dtype, copy=False)


def _ints(numbers: Sequence[int]) -> IntArray:
    return np.array(numbers, np.int64)


def _offsets(arrays: Sequence[NDArray[Any]]) -> IntArray:
    """Return where each array starts when they stand one after the other, and the end."""
    return np.concatenate([[0], np.cumsum([len(array) for array in arrays])]).astype(np.int64)


def _adjacency(ends: IntArray, count: int) -> tuple[IntArray, IntArray]:
    """Return where the edges of each variable start, and the edges in that order."""
    starts = np.searchsorted(np.sort(ends), np.arange(count + 1)).astype(np.int64)
    return starts, np.argsort(ends, kind="stable").astype(np.int64)
