"""The fewest bytes that a device sends to take a tensor from one layout to another, however long that takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from ops.placement import PARTIAL_KINDS, Layout, Parts
from solver.cost.moves import Ints, MoveClass, all_moves, geometry
from solver.cost.reshard import INF
from solver.mesh import Mesh

KEPT = 256
"""For how many layouts the bytes to all others are kept."""


class Traffic:
    """The moves of one class of tensors, weighed by the bytes that they send.

    Parameters
    ----------
    tensor : MoveClass
    """

    def __init__(self, tensor: MoveClass) -> None:
        shapes, moves = geometry(tensor.parts, tensor.sizes, tensor.kinds), all_moves(tensor)
        self.layouts = shapes.layouts
        self._source, self._target = shapes.class_of[moves.source], shapes.class_of[moves.target]
        self._bytes = moves.bytes
        self._known: dict[tuple[Layout, bool], Mapping[Layout, int]] = {}

    def out_of(self, layout: Layout) -> Mapping[Layout, int]:
        """Return the fewest bytes from a layout, in canonical form, to each of them."""
        return self._fewest(layout, self._target, self._source, False)

    def into(self, layout: Layout) -> Mapping[Layout, int]:
        """Return the fewest bytes from each layout to one of them, in canonical form."""
        return self._fewest(layout, self._source, self._target, True)

    def _fewest(self, layout: Layout, near: Ints, far: Ints, ahead: bool) -> Mapping[Layout, int]:
        """Walk the moves from their far end, towards one layout, to their near end."""
        from solver.cost.shortest import relax  # brings numba in, which takes longer to import than all the rest

        known = self._known.get((layout, ahead))
        if known is None:
            order = np.argsort(near, kind="stable")
            starts = np.searchsorted(near[order], np.arange(len(self.layouts) + 1))
            found = np.full((len(self.layouts), 1), INF, dtype=np.int64)
            found[self.layouts.index(layout)] = 0
            relax(starts, far[order], self._bytes[order], found)
            known = dict(zip(self.layouts, found[:, 0].tolist(), strict=True))
            if len(self._known) >= KEPT:
                self._known.clear()
            self._known[layout, ahead] = known
        return known


def traffic(itemsize: int, parts: Parts, mesh: Mesh, kinds: Sequence[str]) -> Traffic:
    """Return the traffic of a tensor; tensors of one class share it.

    Parameters
    ----------
    itemsize : int
        The bytes of an element.
    parts : tuple of tuple of int
        The parts of each dim, which say the shape.
    mesh : Mesh
    kinds : sequence of str
        The partial kinds that may appear.

    Returns
    -------
    Traffic

    Examples
    --------
    >>> from ops.placement import Partial, Replicate, Shard
    >>> sent = traffic(4, ((8,), (4,)), Mesh({"tp": 4}), ("sum",))
    >>> sent.out_of((Partial("sum"),))[(Shard(0),)], sent.into((Replicate(),))[(Shard(0),)]
    (96, 96)
    """
    known = tuple(kind for kind in PARTIAL_KINDS if kind in kinds)
    return _of(MoveClass(itemsize, parts, mesh.sizes, mesh.links, mesh.hardware.memory_bandwidth, known, False, None))


@lru_cache(maxsize=32)
def _of(tensor: MoveClass) -> Traffic:
    return Traffic(tensor)
