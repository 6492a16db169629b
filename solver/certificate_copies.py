"""Which shared copies of a tensor may pay (docs/certificate.md): the others are left out, which changes no optimum."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from solver.certificate_choices import Ints, added
from solver.cost.reshard import INF


def paying_pairs(price: Ints, made: Ints, asked: Sequence[Ints], delivery: Ints | None) -> Ints:
    """Return (made, held) of every copy that can save more than it costs.

    Parameters
    ----------
    price : int array
        Between the layouts of the tensor.
    made : int array
        The layouts in which it may be made.
    asked : sequence of int array
        The layouts that each use may ask for.
    delivery : int array or None
        Per layout the price of delivering the tensor; None where it is delivered to nobody, or counts as a use.

    Returns
    -------
    int array, shape (pairs, 2)
    """
    counted: dict[bytes, tuple[Ints, int]] = {}
    for array in asked:
        counted[array.tobytes()] = array, counted.get(array.tobytes(), (array, 0))[1] + 1
    columns = [(np.ascontiguousarray(price[:, array].T), times) for array, times in counted.values()]
    delivered = None if delivery is None else np.minimum(delivery, INF)
    found = [np.zeros((0, 2), np.int64)]
    for m in made:
        saved = np.zeros(len(price), np.int64)
        for needed, times in columns:
            most = np.maximum(0, (needed[:, m : m + 1] - needed).max(axis=0, initial=0))
            for _ in range(times):
                saved = added(saved, most)
        if delivered is not None:
            saved = added(saved, np.maximum(0, delivered[m] - delivered))
        found.append(_pairs(price, m, np.flatnonzero(saved > price[m])))
    return np.concatenate(found)


def wanted_pairs(price: Ints, made: Ints, wanted: Ints) -> Ints:
    """Return (made, held) of every copy that has one of the wanted layouts, as where a pin speaks of it."""
    return np.concatenate([np.zeros((0, 2), np.int64), *(_pairs(price, m, wanted) for m in made)])


def _pairs(price: Ints, m: int, held: Ints) -> Ints:
    held = held[(held != m) & (price[m, held] < INF)]
    return np.stack([np.full_like(held, m), held], axis=1)
