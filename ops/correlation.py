"""The products of convolutions on channels-first images, by blocks of columns of bounded size."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from ops.bind import Shape
from ops.dims import Array
from ops.window import Window, at_tap, padded, taps, taps_of, unpadded

_BLOCK = 2**21
"""Elements of the columns that are laid out for one product: enough for it to be efficient, few enough for memory."""


def _row_blocks(channels: int, slid: Sequence[Window]) -> Iterator[slice]:
    """Cut the first space dim of the places so that the columns of a block are small."""
    row = channels * math.prod(w.kernel for w in slid) * math.prod(w.out for w in slid[1:])
    step = max(1, _BLOCK // max(1, row))
    yield from (slice(start, min(start + step, slid[0].out)) for start in range(0, slid[0].out, step))


def _columns(view: Array, sample: int, rows: slice, groups: int, rank: int) -> Array:
    """Lay out a block of places as columns: (groups, channels of a group x taps, places)."""
    block = view[sample][:, rows]
    order = (0, *range(rank + 1, 2 * rank + 1), *range(1, rank + 1))
    places = math.prod(block.shape[1 : rank + 1])
    return np.asarray(block.transpose(order).reshape(groups, -1, places))


def correlate(x: Array, filter: Array, slid: Sequence[Window], groups: int) -> Array:
    """Convolve a channels-first image: the forward of a convolution, and the backward of a transposed one."""
    view = taps(padded(x, slid), slid)
    out = np.empty((x.shape[0], filter.shape[0], *(w.out for w in slid)), np.result_type(x, filter))
    if filter.shape[1] == 1 and filter.shape[0] == x.shape[1]:
        return _depthwise(view, filter, out, slid)
    weight = filter.reshape(groups, filter.shape[0] // groups, -1)
    for sample in range(x.shape[0]):
        for rows in _row_blocks(x.shape[1], slid):
            product = np.matmul(weight, _columns(view, sample, rows, groups, len(slid)))
            out[sample][:, rows] = product.reshape(out[sample][:, rows].shape)
    return out


def _depthwise(view: Array, filter: Array, out: Array, slid: Sequence[Window]) -> Array:
    """One channel a group: a sum over taps, channel by channel."""
    column = (-1, *(1 for _ in slid))
    for sample in range(len(out)):
        total = out[sample]
        total[...] = 0
        for index, tap in enumerate(taps_of(slid)):
            weight = filter[:, 0].reshape(len(filter), -1)[:, index]
            total += weight.reshape(column) * at_tap(view[sample], tap)
    return out


def spread(y: Array, filter: Array, slid: Sequence[Window], groups: int) -> Array:
    """Transpose `correlate` in its image: the backward of a convolution, and the forward of a transposed one."""
    channels = groups * filter.shape[1]
    image = np.zeros((y.shape[0], channels, *(w.reach for w in slid)), np.result_type(y, filter))
    view = taps(image, slid)
    weight = np.swapaxes(filter.reshape(groups, filter.shape[0] // groups, -1), 1, 2)
    for sample in range(y.shape[0]):
        for rows in _row_blocks(channels, slid):
            block = y[sample][:, rows]
            columns = np.matmul(weight, block.reshape(groups, filter.shape[0] // groups, -1))
            columns = columns.reshape(channels, -1, *block.shape[1:])
            for index, tap in enumerate(taps_of(slid)):
                under = at_tap(view[sample][:, rows], tap)
                under += columns[:, index]
    return unpadded(image, slid)


def filter_gradient(x: Array, y: Array, shape: Shape, slid: Sequence[Window], groups: int) -> Array:
    """Transpose `correlate` in its filter."""
    view = taps(padded(x, slid), slid)
    total = np.zeros((groups, shape[0] // groups, math.prod(shape[1:])), np.result_type(x, y))
    for sample in range(x.shape[0]):
        for rows in _row_blocks(x.shape[1], slid):
            columns = _columns(view, sample, rows, groups, len(slid))
            total += np.matmul(y[sample][:, rows].reshape(groups, shape[0] // groups, -1), np.swapaxes(columns, 1, 2))
    return total.reshape(shape)
