"""The compiled loops of the search, over flat arrays.

All of them stand in this one file: numba's cache notices a change of the file that a function is in, not of the
functions that it calls. With NUMBA_DISABLE_JIT set the same text runs as plain Python, which the tests hold against the
compiled run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba
import numpy as np

from solver.search.arrays import Flat, State
from solver.search.network import BoolArray, IdArray, IntArray

FORBIDDEN = 2**61
"""Forbidden, inside the loops; two of them and a message still fit an int64."""

DEAD = 2**60
"""A sum this large stands for forbidden."""

LIMIT = 2**57
"""No message exceeds this; one cut off here only weakens the bound."""

F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> F:
    """Compile an entry point."""
    return cast(F, numba.njit(cache=True, nogil=True)(function))


def loop(function: F) -> F:
    """Compile a loop that allocates nothing: without counted references to arrays the sweep is three times faster."""
    return cast(F, numba.njit(cache=True, nogil=True, _nrt=False)(function))


@loop
def across(flat: Flat, e: int, forward: bool, start: IntArray, out: IntArray) -> None:
    """Carry a vector over the rows of edge `e` to its columns, or back: the least of price plus entry."""
    count, width = (flat.columns[e], flat.rows[e]) if forward else (flat.rows[e], flat.columns[e])
    lines = flat.thin_columns[e] if forward else flat.thin_rows[e]
    steps = flat.steps_on[e] if forward else flat.steps_back[e]
    if steps >= 0:
        along(flat, steps, count, start, out)
    elif lines >= 0:
        for i in range(count):
            least = FORBIDDEN
            for k in range(flat.thin_start[lines + i], flat.thin_start[lines + i + 1]):
                least = min(least, flat.thin_price[k] + start[flat.thin_at[k]])
            out[i] = least
    elif forward:
        min_plus(flat.transposed[flat.table_start[e] :], start, count, width, out)
    else:
        min_plus(flat.tables[flat.table_start[e] :], start, count, width, out)


@loop
def along(flat: Flat, steps: int, count: int, start: IntArray, out: IntArray) -> None:
    """Carry a vector along the steps of a skeleton, there and back through the layouts until nothing gets cheaper."""
    for i in range(count):
        out[i] = start[i]
    changed, walk = True, 0
    while changed:
        changed = False
        for n in range(count):
            i = n if walk % 2 == 0 else count - 1 - n
            if out[i] < DEAD:
                for k in range(flat.step_start[steps + i], flat.step_start[steps + i + 1]):
                    price = out[i] + flat.step_price[k]
                    if price < out[flat.step_at[k]]:
                        out[flat.step_at[k]] = price
                        changed = True
        walk += 1


@loop
def min_plus(table: IntArray, start: IntArray, count: int, width: int, out: IntArray) -> None:
    """Set ``out[i]`` to the minimum over j of ``table[i, j] + start[j]``."""
    for i in range(count):
        row = table[i * width : (i + 1) * width]
        least = FORBIDDEN
        for j in range(width):
            least = min(least, row[j] + start[j])
        out[i] = least


@loop
def add_to_tail(flat: Flat, e: int, count: int, message: IntArray, total: IntArray) -> None:
    """Add what each tail value feels of a vector over rows."""
    made = flat.pool[flat.made[e] : flat.made[e] + count]
    if flat.paired[e]:
        held = flat.pool[flat.held[e] : flat.held[e] + count]
        for a in range(count):
            total[a] = min(total[a] + min(message[made[a]], message[held[a]]), FORBIDDEN)
    else:
        for a in range(count):
            total[a] = min(total[a] + message[made[a]], FORBIDDEN)


@loop
def add_to_head(flat: Flat, e: int, count: int, message: IntArray, total: IntArray) -> None:
    """Add what each head value feels of a vector over columns."""
    into = flat.pool[flat.into[e] : flat.into[e] + count]
    for a in range(count):
        total[a] = min(total[a] + message[into[a]], FORBIDDEN)


@loop
def condition_head(flat: Flat, e: int, count: int, chosen: int, total: IntArray) -> None:
    """Add to each head value the price of an edge when its tail has chosen."""
    columns = flat.columns[e]
    row = flat.table_start[e] + columns * flat.pool[flat.made[e] + chosen]
    if flat.paired[e]:
        other = flat.table_start[e] + columns * flat.pool[flat.held[e] + chosen]
        into = flat.pool[flat.into[e] : flat.into[e] + count]
        for a in range(count):
            total[a] = min(total[a] + min(flat.tables[row + into[a]], flat.tables[other + into[a]]), FORBIDDEN)
    else:
        add_to_head(flat, e, count, flat.tables[row : row + columns], total)


@loop
def condition_tail(flat: Flat, e: int, count: int, chosen: int, total: IntArray) -> None:
    """Add to each tail value the price of an edge when its head has chosen."""
    rows = flat.rows[e]
    column = flat.table_start[e] + rows * flat.pool[flat.into[e] + chosen]
    add_to_tail(flat, e, count, flat.transposed[column : column + rows], total)


@loop
def gather(flat: Flat, state: State, i: int, total: IntArray) -> int:
    """Set `total` to the prices of variable i plus all messages to it; return the least. No price becomes forbidden."""
    first = flat.start[i]
    count = flat.start[i + 1] - first
    for a in range(count):
        total[a] = state.cost[first + a]
    for k in range(flat.in_start[i], flat.in_start[i + 1]):
        e = flat.in_edge[k]
        add_to_head(flat, e, count, state.to_head[flat.column_start[e] :], total)
    for k in range(flat.out_start[i], flat.out_start[i + 1]):
        e = flat.out_edge[k]
        add_to_tail(flat, e, count, state.to_tail[flat.row_start[e] :], total)
    least = FORBIDDEN
    for a in range(count):
        if state.cost[first + a] < DEAD:
            total[a] = min(total[a], DEAD - 1)
        least = min(least, total[a])
    return least


@loop
def offer_tail(flat: Flat, e: int, share: float, total: IntArray, message: IntArray, out: IntArray) -> None:
    """Set `out`, over rows, to the best share of a tail value without what the edge itself told it."""
    count = flat.start[flat.tail[e] + 1] - flat.start[flat.tail[e]]
    rows = flat.rows[e]
    made = flat.pool[flat.made[e] : flat.made[e] + count]
    for r in range(rows):
        out[r] = FORBIDDEN
    if flat.paired[e]:
        held = flat.pool[flat.held[e] : flat.held[e] + count]
        for a in range(count):
            if total[a] < DEAD:
                left = np.int64(total[a] * share) - min(message[made[a]], message[held[a]])
                out[made[a]] = min(out[made[a]], left)
                out[held[a]] = min(out[held[a]], left)
    else:
        for a in range(count):
            out[made[a]] = min(out[made[a]], total[a])
        for r in range(rows):
            if out[r] < DEAD:
                out[r] = np.int64(out[r] * share) - message[r]


@loop
def offer_head(flat: Flat, e: int, share: float, total: IntArray, message: IntArray, out: IntArray) -> None:
    """Set `out`, over columns, to the best share of a head value without what the edge itself told it."""
    count = flat.start[flat.head[e] + 1] - flat.start[flat.head[e]]
    columns = flat.columns[e]
    into = flat.pool[flat.into[e] : flat.into[e] + count]
    for c in range(columns):
        out[c] = FORBIDDEN
    for a in range(count):
        out[into[a]] = min(out[into[a]], total[a])
    for c in range(columns):
        if out[c] < DEAD:
            out[c] = np.int64(out[c] * share) - message[c]


@loop
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


@loop
def cheapest(total: IntArray, count: int) -> int:
    """Return the first of the least entries."""
    best, least = 0, total[0]
    for a in range(1, count):
        if total[a] < least:
            best, least = a, total[a]
    return best


@loop
def read_off(flat: Flat, state: State, i: int, total: IntArray) -> None:
    """Choose the value of variable i that suits the earlier choices best; `total` is scratch."""
    first = flat.start[i]
    count = flat.start[i + 1] - first
    for a in range(count):
        total[a] = state.cost[first + a]
    for k in range(flat.in_start[i], flat.in_start[i + 1]):
        condition_head(flat, flat.in_edge[k], count, state.choice[flat.tail[flat.in_edge[k]]], total)
    for k in range(flat.out_start[i], flat.out_start[i + 1]):
        e = flat.out_edge[k]
        add_to_tail(flat, e, count, state.to_tail[flat.row_start[e] :], total)
    best = cheapest(total, count)
    if state.choice[i] != best:
        state.choice[i] = best
        for k in range(flat.out_start[i], flat.out_start[i + 1]):
            state.unsettled[flat.head[flat.out_edge[k]]] = True


@loop
def forward(flat: Flat, state: State, way: int, i: int, total: IntArray, offer: IntArray, new: IntArray) -> int:
    """Send the messages of variable i to the heads of its edges; return how many changed."""
    gather(flat, state, i, total)
    changes = 0
    for k in range(flat.out_start[i], flat.out_start[i + 1]):
        e = flat.out_edge[k]
        offer_tail(flat, e, flat.tail_share[way, e], total, state.to_tail[flat.row_start[e] :], offer)
        across(flat, e, True, offer, new)
        _, changed = settle(new, flat.columns[e], state.to_head[flat.column_start[e] :])
        if changed:
            changes += 1
            state.ahead[flat.head[e]] = True
            state.behind[flat.head[e]] = True
    return changes


@loop
def backward(flat: Flat, state: State, way: int, i: int, total: IntArray, offer: IntArray, new: IntArray) -> int:
    """Take the least of variable i into the bound and send its messages to the tails of its edges."""
    least = gather(flat, state, i, total)
    state.node_bound[i] = least
    for a in range(flat.start[i + 1] - flat.start[i]):
        if total[a] < DEAD:
            total[a] -= least
    changes = 0
    for k in range(flat.in_start[i], flat.in_start[i + 1]):
        e = flat.in_edge[k]
        offer_head(flat, e, flat.head_share[way, e], total, state.to_head[flat.column_start[e] :], offer)
        across(flat, e, False, offer, new)
        state.edge_bound[e], changed = settle(new, flat.rows[e], state.to_tail[flat.row_start[e] :])
        if changed:
            changes += 1
            state.ahead[flat.tail[e]] = True
            state.behind[flat.tail[e]] = True
    return changes


@compiled
def sweep(flat: Flat, state: State, way: int, values: int, layouts: int) -> int:
    """Go forward and back once, past all variables whose inputs changed.

    Parameters
    ----------
    flat, state
        The network and what changes.
    way : int
        How variables share out what they hold (`solver.search.shares`).
    values, layouts : int
        The most values of a variable and the most rows or columns of a table.

    Returns
    -------
    int
        How many messages changed; at 0 the messages are at a fixed point.
    """
    total, offer, new = np.empty(values, np.int64), np.empty(layouts, np.int64), np.empty(layouts, np.int64)
    count = len(flat.start) - 1
    changes = 0
    for i in range(count):
        if state.ahead[i]:
            state.ahead[i] = False
            state.unsettled[i] = True
            changes += forward(flat, state, way, i, total, offer, new)
        if state.unsettled[i]:
            state.unsettled[i] = False
            read_off(flat, state, i, total)
    for i in range(count - 1, -1, -1):
        if state.behind[i]:
            state.behind[i] = False
            changes += backward(flat, state, way, i, total, offer, new)
    return changes


@compiled
def closing(flat: Flat, state: State, to_tail: IntArray, to_head: IntArray, layouts: int) -> None:
    """Write the messages to tails, and the largest messages to heads that leave no edge below zero given those.

    These are at least the messages of the last sweep less the shares that the heads had lent to their edges, so that
    the bound is whole in the variables. Entries that no value uses stay as they are.
    """
    offer, new = np.empty(layouts, np.int64), np.empty(layouts, np.int64)
    for e in range(len(flat.tail)):
        offer[: flat.rows[e]] = FORBIDDEN
        first, last = flat.start[flat.tail[e]], flat.start[flat.tail[e] + 1]
        for a in range(last - first):
            if state.cost[first + a] < DEAD:
                for row in (flat.pool[flat.made[e] + a], flat.pool[flat.held[e] + a]):
                    at = flat.row_start[e] + row
                    to_tail[at] = state.to_tail[at]
                    offer[row] = -to_tail[at]
        across(flat, e, True, offer, new)
        first, last = flat.start[flat.head[e]], flat.start[flat.head[e] + 1]
        for a in range(last - first):
            if state.cost[first + a] < DEAD:
                column = flat.pool[flat.into[e] + a]
                to_head[flat.column_start[e] + column] = min(new[column], LIMIT)


@compiled
def least_sums(flat: Flat, state: State, values: int, out: IntArray) -> None:
    """Set `out` to the least that each variable pays with all messages to it."""
    total = np.empty(values, np.int64)
    for i in range(len(out)):
        out[i] = gather(flat, state, i, total)


@compiled
def beyond(flat: Flat, state: State, i: int, values: int) -> IntArray:
    """Return what each value of variable i pays above its least, with all messages to it; DEAD where forbidden."""
    total = np.empty(values, np.int64)
    least = gather(flat, state, i, total)
    found = np.empty(flat.start[i + 1] - flat.start[i], np.int64)
    for a in range(len(found)):
        found[a] = total[a] - least if total[a] < DEAD else DEAD
    return found


@loop
def prefer(flat: Flat, state: State, i: int, choice: IdArray, done: BoolArray, total: IntArray) -> int:
    """Return the value of variable i that is best next to the choices that are done, by messages from the others."""
    first = flat.start[i]
    count = flat.start[i + 1] - first
    for a in range(count):
        total[a] = state.cost[first + a]
    for k in range(flat.in_start[i], flat.in_start[i + 1]):
        e = flat.in_edge[k]
        if done[flat.tail[e]]:
            condition_head(flat, e, count, choice[flat.tail[e]], total)
        else:
            add_to_head(flat, e, count, state.to_head[flat.column_start[e] :], total)
    for k in range(flat.out_start[i], flat.out_start[i + 1]):
        e = flat.out_edge[k]
        if done[flat.head[e]]:
            condition_tail(flat, e, count, choice[flat.head[e]], total)
        else:
            add_to_tail(flat, e, count, state.to_tail[flat.row_start[e] :], total)
    return cheapest(total, count)


@compiled
def read_in_order(flat: Flat, state: State, order: IntArray, choice: IdArray, values: int) -> None:
    """Choose the value of each variable in turn, next to the choices before it."""
    total, done = np.empty(values, np.int64), np.zeros(len(choice), np.bool_)
    for i in order:
        choice[i] = prefer(flat, state, i, choice, done, total)
        done[i] = True


@compiled
def descend(flat: Flat, state: State, choice: IdArray, values: int, walks: int) -> None:
    """Change one variable at a time while that is cheaper, forward and backward in turn."""
    total, done = np.empty(values, np.int64), np.ones(len(choice), np.bool_)
    active = np.ones(len(choice), np.bool_)
    for walk in range(walks):
        moved = False
        for step in range(len(choice)):
            i = step if walk % 2 == 0 else len(choice) - 1 - step
            if active[i]:
                active[i] = False
                best = prefer(flat, state, i, choice, done, total)
                if total[best] < total[choice[i]]:
                    choice[i] = best
                    moved = True
                    for k in range(flat.in_start[i], flat.in_start[i + 1]):
                        active[flat.tail[flat.in_edge[k]]] = True
                    for k in range(flat.out_start[i], flat.out_start[i + 1]):
                        active[flat.head[flat.out_edge[k]]] = True
        if not moved:
            break
