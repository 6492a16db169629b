"""The lower bound: sequential dual ascent (TRW-S, Kolmogorov 2006) with integer messages at the level of layouts.

A message to the tail of an edge is a vector over the rows of its table, one to the head a vector over the columns. A
tail value that offers two layouts feels the smaller of its two entries, which is exact because it pays the smaller of
two prices. After a sweep the bound is the sum of what the variables and the edges cannot avoid to pay. Messages whose
inputs did not change since they were last computed are kept, so that a sweep near the end, or after a small change,
costs little.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from solver.search.arrays import State
from solver.search.flat import SCALE_BITS, FlatNetwork
from solver.search.kernels import LIMIT, closing, sweep
from solver.search.network import INF, BoolArray, Domains, Edge, IdArray, IntArray, Network, arc_consistency
from solver.search.shares import PATIENT

MOST = 2**62
"""No number in a certificate exceeds this."""

Messages: TypeAlias = tuple[tuple[IntArray, IntArray], ...]
"""Per edge the message to its tail (per row of the table) and to its head (per column), in 1/4096 ps."""


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
        self.way: int = PATIENT if parent is None else parent.way
        self.values = int(np.diff(flat.start).max(initial=0))
        self.layouts = int(max(flat.rows.max(initial=0), flat.columns.max(initial=0)))
        if parent is None:
            self.state = State(
                cost=network.cost if cost is None else cost,
                to_tail=np.zeros(flat.row_start[-1], np.int64),
                to_head=np.zeros(flat.column_start[-1], np.int64),
                node_bound=np.zeros(count, np.int64),
                edge_bound=np.zeros(edges, np.int64),
                ahead=np.ones(count, np.bool_),
                behind=np.ones(count, np.bool_),
                unsettled=np.ones(count, np.bool_),
                choice=np.zeros(count, np.int32),
            )
        else:
            arrays = parent.state._asdict()
            self.state = State(
                **{name: array.copy() for name, array in arrays.items() if name != "cost"},
                cost=parent.state.cost if cost is None else cost,
            )
            for i in np.unique(
                np.searchsorted(flat.start, np.flatnonzero(self.state.cost != parent.state.cost), "right") - 1
            ):
                self.state.ahead[i] = self.state.behind[i] = True

    def sweep(self, way: int = PATIENT) -> bool:
        """Go forward and back once; return False when nothing changed, which no later sweep of this way will either."""
        if way != self.way:
            self.way = way
            self.revisit()
        return sweep(self.network.flat, self.state, way, self.values, self.layouts) > 0

    def revisit(self) -> None:
        """Let the next sweep visit every variable, whether its inputs changed or not."""
        self.state.ahead[:] = True
        self.state.behind[:] = True

    def leap(self, before: State, now: State, times: int) -> None:
        """Move all messages `times` as far again as they moved between two earlier states."""
        for messages, then, later in (
            (self.state.to_tail, before.to_tail, now.to_tail),
            (self.state.to_head, before.to_head, now.to_head),
        ):
            np.clip(later + times * (later - then), -LIMIT, LIMIT, out=messages)
        self.revisit()

    def snapshot(self) -> State:
        """Return a copy of all that sweeps change."""
        arrays = self.state._asdict()
        return State(**{name: array if name == "cost" else array.copy() for name, array in arrays.items()})

    def restore(self, state: State) -> None:
        """Go back to an earlier state."""
        for name, kept in state._asdict().items():
            if name != "cost":
                getattr(self.state, name)[:] = kept

    @property
    def units(self) -> int:
        """The bound after the last sweep in 1/4096 ps, rounded down."""
        return self.total << SCALE_BITS - self.network.shift

    @property
    def total(self) -> int:
        """The bound after the last sweep in units of the network."""
        return _exact_sum(self.state.node_bound) + _exact_sum(self.state.edge_bound)

    @property
    def bound(self) -> int:
        """The bound after the last sweep in picoseconds, rounded up, as costs are whole picoseconds."""
        return picoseconds(self.units)

    def closed(self) -> State:
        """Return the state with messages that prove the bound by themselves: no edge is below zero."""
        state = self.state._replace(
            to_tail=np.zeros_like(self.state.to_tail), to_head=np.zeros_like(self.state.to_head)
        )
        closing(self.network.flat, self.state, state.to_tail, state.to_head, self.layouts)
        return state

    def messages(self) -> Messages:
        """Return messages that prove the bound by themselves.

        Returns
        -------
        Messages
            Indexed by the ids of the tables, 0 where no value that is left uses a row or column. `certified_bound` of
            them is at least `units`, unless prices reach 2**50 ps, where their numbers are cut off.
        """
        closed = self.closed()
        flat, shift = self.network.flat, SCALE_BITS - self.network.shift
        rows, columns = (
            np.clip(part, -(MOST >> shift), MOST >> shift) << shift for part in (closed.to_tail, closed.to_head)
        )
        found = []
        for e, edge in enumerate(self.network.network.edges):
            pair = np.zeros(edge.table.shape[0], np.int64), np.zeros(edge.table.shape[1], np.int64)
            pair[0][self.network.row_ids[e]] = rows[flat.row_start[e] : flat.row_start[e + 1]]
            pair[1][self.network.column_ids[e]] = columns[flat.column_start[e] : flat.column_start[e + 1]]
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
    total = 0
    for edge, message in zip(network.edges, messages, strict=True):
        total += edge_minimum(edge, *message, domains[edge.tail], domains[edge.head])
    sums = variable_sums(network, messages)
    return total + sum(int(values[domain].min()) for values, domain in zip(sums, domains, strict=True))


def variable_sums(network: Network, messages: Messages) -> list[NDArray[Any]]:
    """Return what each value pays with all messages to it.

    Parameters
    ----------
    network : Network
        The network.
    messages : Messages
        Any messages.

    Returns
    -------
    list of arrays
        In 1/4096 ps, exact: int64, or Python integers where those could overflow. Forbidden values count as free.
    """
    costs = [np.where(variable.cost < INF, variable.cost, 0) for variable in network.variables]
    largest = [int(cost.max(initial=0)) << SCALE_BITS for cost in costs]
    for edge, (rows, columns) in zip(network.edges, messages, strict=True):
        largest[edge.tail] += _magnitude(rows)
        largest[edge.head] += _magnitude(columns)
    sums = [_roomy(cost, size) << SCALE_BITS for cost, size in zip(costs, largest, strict=True)]
    for edge, (rows, columns) in zip(network.edges, messages, strict=True):
        made, held = edge.tail_index.T
        sums[edge.tail] += np.minimum(rows[made], rows[held])
        sums[edge.head] += columns[edge.head_index]
    return sums


def edge_minimum(edge: Edge, rows: IntArray, columns: IntArray, tail: BoolArray, head: BoolArray) -> int:
    """Return the least of an edge's prices less its messages, over the layouts of some values.

    Parameters
    ----------
    edge : Edge
        The edge.
    rows, columns : int64 arrays
        Its messages.
    tail, head : bool arrays
        The values of its tail and head that count.

    Returns
    -------
    int
        In 1/4096 ps.
    """
    used = present(edge.tail_index[tail], len(rows)), present(edge.head_index[head], len(columns))
    table = edge.table[used[0]][:, used[1]]
    allowed = table < INF
    size = (int(table.max(initial=0, where=allowed)) << SCALE_BITS) + _magnitude(rows) + _magnitude(columns)
    rest = _roomy(np.where(allowed, table, 0), size) << SCALE_BITS
    rest = rest - rows[used[0]][:, None] - columns[used[1]][None, :]
    return int(rest[allowed].min())


def present(ids: IdArray, size: int) -> BoolArray:
    """Return a mask of `size` ids, True where an id occurs."""
    mask = np.zeros(size, np.bool_)
    mask[ids] = True
    return mask


def _magnitude(numbers: IntArray) -> int:
    return max(int(numbers.max(initial=0)), -int(numbers.min(initial=0)))


def _roomy(numbers: IntArray, size: int) -> NDArray[Any]:
    """Return Python integers instead of an int64 array where sums may grow to a size that does not fit."""
    return numbers if size < 2**62 else numbers.astype(object)
