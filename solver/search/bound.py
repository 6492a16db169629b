"""The lower bound: sequential dual ascent (TRW-S, Kolmogorov 2006) with integer messages at the level of layouts.

A message to the tail of an edge is a vector over the rows of its table, one to the head a vector over the columns. A tail value
that offers two layouts feels the smaller of its two entries, which is exact because it pays the smaller of two prices. After a
sweep the bound is the sum of what the variables and the edges cannot avoid to pay. Messages whose inputs did not change since
they were last computed are kept, so that a sweep near the end, or after a small change, costs little.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from solver.search.flat import DEAD, FORBIDDEN, LIMIT, SCALE_BITS, Flat, FlatNetwork, compiled
from solver.search.network import INF, BoolArray, Domains, Edge, IdArray, IntArray, Network, arc_consistency

Messages: TypeAlias = tuple[tuple[IntArray, IntArray], ...]
"""Per edge the message to its tail (per row of the table) and to its head (per column), in 1/4096 ps."""


class State(NamedTuple):
    """What a sweep changes, apart from `cost`."""

    cost: IntArray
    """Unary prices of the flat values, FORBIDDEN where a value was taken out."""
    to_tail: IntArray
    to_head: IntArray
    node_bound: IntArray
    edge_bound: IntArray
    ahead: BoolArray
    behind: BoolArray
    """Variables whose inputs changed since they were last visited on the way forward, and backward."""
    unsettled: BoolArray
    """Variables whose read-off value may have to change."""
    choice: IdArray
    """The flat values read off on the way forward."""


@compiled
def min_plus(table: IntArray, rows: int, columns: int, start: IntArray, out: IntArray) -> None:
    """Set ``out[j]`` to the minimum over i of ``start[i] + table[i, j]``."""
    for j in range(columns):
        out[j] = FORBIDDEN
    for i in range(rows):
        base = start[i]
        if base < DEAD:
            row = table[i * columns: (i + 1) * columns]
            for j in range(columns):
                out[j] = min(out[j], base + row[j])


@compiled
def add_to_tail(flat: Flat, edge: int, count: int, message: IntArray, total: IntArray) -> None:
    """Add what each tail value feels of a vector over rows."""
    made = flat.pool[flat.made[edge]: flat.made[edge] + count]
    if flat.paired[edge]:
        held = flat.pool[flat.held[edge]: flat.held[edge] + count]
        for a in range(count):
            total[a] = min(total[a] + min(message[made[a]], message[held[a]]), FORBIDDEN)
    else:
        for a in range(count):
            total[a] = min(total[a] + message[made[a]], FORBIDDEN)


@compiled
def add_to_head(flat: Flat, edge: int, count: int, message: IntArray, total: IntArray) -> None:
    """Add what each head value feels of a vector over columns."""
    into = flat.pool[flat.into[edge]: flat.into[edge] + count]
    for a in range(count):
        total[a] = min(total[a] + message[into[a]], FORBIDDEN)


@compiled
def gather(flat: Flat, state: State, i: int, total: IntArray) -> None:
    """Set `total` to the unary prices of variable i plus all messages to it; prices never count as forbidden."""
    first = flat.start[i]
    count = flat.start[i + 1] - first
    for a in range(count):
        total[a] = state.cost[first + a]
    for k in range(flat.in_start[i], flat.in_start[i + 1]):
        e = flat.in_edge[k]
        add_to_head(flat, e, count, state.to_head[flat.column_start[e]: flat.column_start[e + 1]], total)
    for k in range(flat.out_start[i], flat.out_start[i + 1]):
        e = flat.out_edge[k]
        add_to_tail(flat, e, count, state.to_tail[flat.row_start[e]: flat.row_start[e + 1]], total)
    for a in range(count):
        if state.cost[first + a] < DEAD:
            total[a] = min(total[a], DEAD - 1)


@compiled
def offer_tail(flat: Flat, edge: int, count: int, divisor: int, total: IntArray, message: IntArray, out: IntArray) -> None:
    """Set `out`, over rows, to the best share of a tail value without what this edge itself told it."""
    rows = flat.rows[edge]
    made = flat.pool[flat.made[edge]: flat.made[edge] + count]
    for r in range(rows):
        out[r] = FORBIDDEN
    if flat.paired[edge]:
        held = flat.pool[flat.held[edge]: flat.held[edge] + count]
        for a in range(count):
            if total[a] < DEAD:
                share = total[a] // divisor - min(message[made[a]], message[held[a]])
                out[made[a]] = min(out[made[a]], share)
                out[held[a]] = min(out[held[a]], share)
    else:
        for a in range(count):
            out[made[a]] = min(out[made[a]], total[a])
        for r in range(rows):
            if out[r] < DEAD:
                out[r] = out[r] // divisor - message[r]


@compiled
def offer_head(flat: Flat, edge: int, count: int, divisor: int, total: IntArray, message: IntArray, out: IntArray) -> None:
    """Set `out`, over columns, to the best share of a head value without what this edge itself told it."""
    columns = flat.columns[edge]
    into = flat.pool[flat.into[edge]: flat.into[edge] + count]
    for c in range(columns):
        out[c] = FORBIDDEN
    for a in range(count):
        out[into[a]] = min(out[into[a]], total[a])
    for c in range(columns):
        if out[c] < DEAD:
            out[c] = out[c] // divisor - message[c]


@compiled
def settle(new: IntArray, count: int, message: IntArray) -> tuple[int, bool]:
    """Store a message with its minimum taken off; return the minimum and whether the message changed."""
    least = FORBIDDEN
    for r in range(count):
        least = min(least, new[r])
    if least >= DEAD:
        least = 0
    changed = False
    for r in range(count):
        value = min(new[r] - least, LIMIT)
        if message[r] != value:
            message[r] = value
            changed = True
    return least, changed


@compiled
def condition_head(flat: Flat, e: int, count: int, chosen: int, total: IntArray) -> None:
    """Add to each head value the price of an edge when its tail has chosen."""
    columns = flat.columns[e]
    row = flat.table_start[e] + columns * flat.pool[flat.made[e] + chosen]
    if flat.paired[e]:
        other = flat.table_start[e] + columns * flat.pool[flat.held[e] + chosen]
        into = flat.pool[flat.into[e]: flat.into[e] + count]
        for a in range(count):
            total[a] = min(total[a] + min(flat.tables[row + into[a]], flat.tables[other + into[a]]), FORBIDDEN)
    else:
        add_to_head(flat, e, count, flat.tables[row: row + columns], total)


@compiled
def cheapest(total: IntArray, count: int) -> int:
    """Return the first of the least entries."""
    best = 0
    for a in range(1, count):
        if total[a] < total[best]:
            best = a
    return best


@compiled
def read_off(flat: Flat, state: State, i: int, total: IntArray) -> None:
    """Choose the value of variable i that suits the earlier choices best; `total` is scratch."""
    first = flat.start[i]
    count = flat.start[i + 1] - first
    for a in range(count):
        total[a] = state.cost[first + a]
    for k in range(flat.out_start[i], flat.out_start[i + 1]):
        e = flat.out_edge[k]
        add_to_tail(flat, e, count, state.to_tail[flat.row_start[e]: flat.row_start[e + 1]], total)
    for k in range(flat.in_start[i], flat.in_start[i + 1]):
        e = flat.in_edge[k]
        condition_head(flat, e, count, state.choice[flat.tail[e]], total)
    best = cheapest(total, count)
    if state.choice[i] != best:
        state.choice[i] = best
        for k in range(flat.out_start[i], flat.out_start[i + 1]):
            state.unsettled[flat.head[flat.out_edge[k]]] = True


@compiled
def sweep(flat: Flat, state: State, values: int, layouts: int) -> int:
    """Go forward and back once.

    Parameters
    ----------
    flat, state
        The network and what changes.
    values, layouts : int
        The most values of a variable and the most rows or columns of a table.

    Returns
    -------
    int
        How many messages changed; at 0 the messages are at a fixed point.
    """
    total = np.empty(values, np.int64)
    offer = np.empty(layouts, np.int64)
    new = np.empty(layouts, np.int64)
    count = len(flat.start) - 1
    changes = 0
    for i in range(count):
        if state.ahead[i]:
            state.ahead[i] = False
            changes += _forward(flat, state, i, total, offer, new)
            state.unsettled[i] = True
        if state.unsettled[i]:
            state.unsettled[i] = False
            read_off(flat, state, i, total)
    for i in range(count - 1, -1, -1):
        if state.behind[i]:
            state.behind[i] = False
            changes += _backward(flat, state, i, total, offer, new)
    return changes


@compiled
def _forward(flat: Flat, state: State, i: int, total: IntArray, offer: IntArray, new: IntArray) -> int:
    """Send the messages of variable i to the heads of its edges."""
    size = flat.start[i + 1] - flat.start[i]
    gather(flat, state, i, total)
    changes = 0
    for k in range(flat.out_start[i], flat.out_start[i + 1]):
        e = flat.out_edge[k]
        rows, columns = flat.rows[e], flat.columns[e]
        offer_tail(flat, e, size, flat.divisor[i], total, state.to_tail[flat.row_start[e]: flat.row_start[e + 1]], offer)
        min_plus(flat.tables[flat.table_start[e]: flat.table_start[e] + rows * columns], rows, columns, offer, new)
        _, changed = settle(new, columns, state.to_head[flat.column_start[e]: flat.column_start[e + 1]])
        if changed:
            changes += 1
            state.ahead[flat.head[e]] = True
            state.behind[flat.head[e]] = True
    return changes


@compiled
def _backward(flat: Flat, state: State, i: int, total: IntArray, offer: IntArray, new: IntArray) -> int:
    """Take the least of variable i into the bound and send its messages to the tails of its edges."""
    size = flat.start[i + 1] - flat.start[i]
    gather(flat, state, i, total)
    least = FORBIDDEN
    for a in range(size):
        least = min(least, total[a])
    state.node_bound[i] = least
    for a in range(size):
        if total[a] < DEAD:
            total[a] -= least
    changes = 0
    for k in range(flat.in_start[i], flat.in_start[i + 1]):
        e = flat.in_edge[k]
        rows, columns = flat.rows[e], flat.columns[e]
        offer_head(flat, e, size, flat.divisor[i], total, state.to_head[flat.column_start[e]: flat.column_start[e + 1]], offer)
        min_plus(flat.transposed[flat.table_start[e]: flat.table_start[e] + rows * columns], columns, rows, offer, new)
        state.edge_bound[e], changed = settle(new, rows, state.to_tail[flat.row_start[e]: flat.row_start[e + 1]])
        if changed:
            changes += 1
            state.ahead[flat.tail[e]] = True
            state.behind[flat.tail[e]] = True
    return changes


@compiled
def closing(flat: Flat, state: State, to_tail: IntArray, to_head: IntArray, layouts: int) -> None:
    """Write the messages to tails, and the largest messages to heads that leave no edge below zero given those.

    These are at least the messages of the last sweep less the shares that the heads had lent to their edges, so that the bound
    is whole in the variables. What no value that is left uses stays as it is.
    """
    offer = np.empty(layouts, np.int64)
    new = np.empty(layouts, np.int64)
    for e in range(len(flat.tail)):
        rows, columns = flat.rows[e], flat.columns[e]
        offer[:rows] = FORBIDDEN
        first, last = flat.start[flat.tail[e]], flat.start[flat.tail[e] + 1]
        for a in range(last - first):
            if state.cost[first + a] < DEAD:
                for row in (flat.pool[flat.made[e] + a], flat.pool[flat.held[e] + a]):
                    at = flat.row_start[e] + row
                    to_tail[at] = state.to_tail[at]
                    offer[row] = -to_tail[at]
        min_plus(flat.tables[flat.table_start[e]: flat.table_start[e] + rows * columns], rows, columns, offer, new)
        first, last = flat.start[flat.head[e]], flat.start[flat.head[e] + 1]
        for a in range(last - first):
            if state.cost[first + a] < DEAD:
                column = flat.pool[flat.into[e] + a]
                to_head[flat.column_start[e] + column] = min(new[column], LIMIT)


class Dual:
    """The messages of a network and the bound that they prove.

    Parameters
    ----------
    network : FlatNetwork
        The network.
    cost : int64 array, optional
        Unary prices of the flat values, where some were taken out; those of the network when absent.
    parent : Dual, optional
        Where to start from: messages of the same network with at least these values.
    """

    def __init__(self, network: FlatNetwork, cost: IntArray | None = None, parent: Dual | None = None) -> None:
        flat = network.flat
        count, edges = len(flat.start) - 1, len(flat.tail)
        self.network = network
        self.values = int(np.diff(flat.start).max(initial=0))
        self.layouts = int(max(flat.rows.max(initial=0), flat.columns.max(initial=0)))
        if parent is None:
            self.state = State(
                cost=network.cost if cost is None else cost, to_tail=np.zeros(flat.row_start[-1], np.int64),
                to_head=np.zeros(flat.column_start[-1], np.int64), node_bound=np.zeros(count, np.int64),
                edge_bound=np.zeros(edges, np.int64), ahead=np.ones(count, np.bool_), behind=np.ones(count, np.bool_),
                unsettled=np.ones(count, np.bool_), choice=np.zeros(count, np.int32))
        else:
            arrays = parent.state._asdict()
            self.state = State(**{name: array.copy() for name, array in arrays.items() if name != "cost"},
                               cost=parent.state.cost if cost is None else cost)
            for i in np.unique(np.searchsorted(flat.start, np.flatnonzero(self.state.cost != parent.state.cost), "right") - 1):
                self.state.ahead[i] = self.state.behind[i] = True

    def sweep(self) -> bool:
        """Go forward and back once; return False when nothing changed, which no later sweep will either."""
        return sweep(self.network.flat, self.state, self.values, self.layouts) > 0

    @property
    def units(self) -> int:
        """The bound after the last sweep in 1/4096 ps, rounded down."""
        total = _exact_sum(self.state.node_bound) + _exact_sum(self.state.edge_bound)
        return total << SCALE_BITS - self.network.shift

    @property
    def bound(self) -> int:
        """The bound after the last sweep in picoseconds, rounded up, as costs are whole picoseconds."""
        return picoseconds(self.units)

    def messages(self) -> Messages:
        """Return messages that prove the bound by themselves.

        Returns
        -------
        Messages
            Indexed by the ids of the tables, 0 where no value that is left uses a row or column. `certified_bound` of them is
            at least `units`.
        """
        to_tail, to_head = np.zeros_like(self.state.to_tail), np.zeros_like(self.state.to_head)
        closing(self.network.flat, self.state, to_tail, to_head, self.layouts)
        flat, shift = self.network.flat, SCALE_BITS - self.network.shift
        rows, columns = (np.clip(part, -(DEAD >> shift), DEAD >> shift) << shift for part in (to_tail, to_head))
        found = []
        for e, edge in enumerate(self.network.network.edges):
            pair = np.zeros(edge.table.shape[0], np.int64), np.zeros(edge.table.shape[1], np.int64)
            pair[0][self.network.row_ids[e]] = rows[flat.row_start[e]: flat.row_start[e + 1]]
            pair[1][self.network.column_ids[e]] = columns[flat.column_start[e]: flat.column_start[e + 1]]
            found.append(pair)
        return tuple(found)


def picoseconds(units: int) -> int:
    """Return 1/4096 ps as whole picoseconds, rounded up."""
    return -(-units >> SCALE_BITS)


def _exact_sum(numbers: IntArray) -> int:
    """Return a sum that may not fit an int64."""
    return (int((numbers >> 31).sum()) << 31) + int((numbers & (2**31 - 1)).sum())


def certified_bound(network: Network, messages: Messages, domains: Domains | None = None) -> int:
    """Return what messages prove, by plain arithmetic.

    Parameters
    ----------
    network : Network
        The network.
    messages : Messages
        Any messages at all; poor ones prove little.
    domains : tuple of bool arrays, optional
        Where the bound shall hold; what arc consistency leaves of all values when absent.

    Returns
    -------
    int
        A number of 1/4096 ps that no assignment within the domains undercuts.
    """
    if domains is None:
        domains = arc_consistency(network).domains
    sums = [np.where(v.cost < INF, v.cost, 0).astype(object) << SCALE_BITS for v in network.variables]
    total = 0
    for edge, (rows, columns) in zip(network.edges, messages, strict=True):
        sums[edge.tail] += rows[edge.tail_index].min(axis=1).astype(object)
        sums[edge.head] += columns[edge.head_index].astype(object)
        total += _edge_minimum(edge, rows, columns, domains[edge.tail], domains[edge.head])
    return total + sum(min(values[domain]) for values, domain in zip(sums, domains, strict=True))


def _edge_minimum(edge: Edge, rows: IntArray, columns: IntArray, tail: BoolArray, head: BoolArray) -> int:
    """Return the least of an edge's table less its messages over the layouts in the domains."""
    used = np.unique(edge.tail_index[tail]), np.unique(edge.head_index[head])
    table: NDArray[np.object_] = edge.table[np.ix_(*used)].astype(object)
    rest = (table << SCALE_BITS) - rows[used[0]][:, None].astype(object) - columns[used[1]][None, :].astype(object)
    return int(min(rest[table < INF]))
