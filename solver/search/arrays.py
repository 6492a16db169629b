"""What the compiled loops read and change: flat arrays of a network, and the messages between its variables."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from solver.search.network import BoolArray, IdArray, IntArray


class Flat(NamedTuple):
    """The arrays of a network; none of them changes. Starts have one entry more, the end."""

    start: IntArray
    """First value of each variable."""
    tail_share: NDArray[np.float64]
    head_share: NDArray[np.float64]
    """For each way of a sweep the share that an edge gets of what its tail holds, and its head."""
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
    thin_rows: IntArray
    thin_columns: IntArray
    """Where in `thin_start` the rows and the columns of an edge with a thin table start, -1 for another edge."""
    pool: NDArray[np.uint32]
    tables: IntArray
    transposed: IntArray
    thin_start: IntArray
    """Where in `thin_at` and `thin_price` the allowed pairs of a row or column start."""
    thin_at: NDArray[np.uint32]
    thin_price: IntArray
    steps_on: IntArray
    steps_back: IntArray
    """Where in `step_start` the rows and the columns of an edge with a skeleton start, -1 for another edge."""
    step_start: IntArray
    """Where in `step_at` and `step_price` the steps from a row or column start."""
    step_at: NDArray[np.uint32]
    step_price: IntArray


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
