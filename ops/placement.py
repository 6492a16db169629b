"""How one tensor lies on a mesh of devices: placements, layouts and Paddle's dims_mapping."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

PARTIAL_KINDS = ("sum", "avg", "max", "min", "any", "all")


class PlacementError(ValueError):
    """A placement, layout or dims_mapping that cannot be read or written."""


def _whole(value: Any, shard: Shard) -> int:
    """Return a whole number of Python or numpy as Python's."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise PlacementError(
            f"Shard(dim={shard.dim!r}, part={shard.part!r}): dim and part are whole numbers, "
            f"and {value!r} is a {type(value).__name__}"
        )
    return int(value)


@dataclass(frozen=True, slots=True, order=True)
class Replicate:
    """Every device of the mesh axis holds the whole tensor."""

    def __str__(self) -> str:
        return "R"


@dataclass(frozen=True, slots=True, order=True)
class Shard:
    """Each device of the mesh axis holds one block of a tensor dim.

    Parameters
    ----------
    dim : int
        The tensor dim that is cut.
    part : int, optional
        The part of that dim, counted from the major-most. ``Shard(d)`` is the plain contiguous cut.

    Raises
    ------
    PlacementError
        Where dim or part is no whole number (True, 1.0 and "1" are none), or is negative.
    """

    dim: int
    part: int = 0

    def __post_init__(self) -> None:
        if type(self.dim) is not int or type(self.part) is not int:
            for name in ("dim", "part"):
                object.__setattr__(self, name, _whole(getattr(self, name), self))
        if self.dim < 0 or self.part < 0:
            raise PlacementError(
                f"Shard(dim={self.dim}, part={self.part}): dim and part count from 0 and are never negative"
            )

    def __str__(self) -> str:
        return f"S({self.dim},part={self.part})" if self.part else f"S({self.dim})"


@dataclass(frozen=True, slots=True, order=True)
class Partial:
    """Each device of the mesh axis holds one term; the tensor is their reduction.

    Parameters
    ----------
    kind : str, optional
        How the terms combine: one of ``sum avg max min any all``.
    """

    kind: str = "sum"

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str) or self.kind not in PARTIAL_KINDS:
            raise PlacementError(f"Partial({self.kind!r}): the kind is one of {', '.join(PARTIAL_KINDS)}")

    def __str__(self) -> str:
        return f"P({self.kind})"


Placement: TypeAlias = Replicate | Shard | Partial
Layout: TypeAlias = tuple[Placement, ...]
"""One placement per mesh axis, in mesh order."""
DimsMapping: TypeAlias = list[int | list[int]]
Parts: TypeAlias = tuple[tuple[int, ...], ...]
"""The parts of each dim of a tensor, major first; their product is the size of the dim."""

_SHARD = re.compile(r"S(?:(\d+)|\(\s*(\d+)\s*(?:,\s*part\s*=\s*(\d+)\s*)?\))")
_PARTIAL = re.compile(r"P(?:\(\s*(\w+)\s*\))?")


def parse_placement(text: str) -> Placement:
    """Read a placement from text.

    Parameters
    ----------
    text : str
        ``R``, ``S(1)`` or ``S1``, ``S(1,part=2)``, ``P(max)``, or ``P`` for ``P(sum)``.

    Returns
    -------
    Placement

    Raises
    ------
    PlacementError
        Where the text is none of these.

    Examples
    --------
    >>> parse_placement("S1"), str(parse_placement("P"))
    (Shard(dim=1, part=0), 'P(sum)')
    """
    word = text.strip()
    if word == "R":
        return Replicate()
    if match := _SHARD.fullmatch(word):
        short, dim, part = match.groups()
        return Shard(int(short or dim), int(part or 0))
    if match := _PARTIAL.fullmatch(word):
        return Partial(match.group(1) or "sum")
    raise PlacementError(f"{text!r} is not a placement: write R, S(0), S(0,part=1) or P(sum)")


def layout_text(layout: Sequence[Placement]) -> str:
    """Write a layout as text, mesh axis by mesh axis.

    Examples
    --------
    >>> layout_text((Shard(0), Replicate()))
    '[S(0), R]'
    """
    return "[" + ", ".join(map(str, layout)) + "]"


def to_dims_mapping(layout: Sequence[Placement], rank: int) -> tuple[DimsMapping, dict[int, str]]:
    """Write a plain layout as Paddle's dims_mapping and partial state.

    Parameters
    ----------
    layout : sequence of Placement
        One placement per mesh axis.
    rank : int
        The number of dims of the tensor.

    Returns
    -------
    dims_mapping : list
        Per tensor dim the index of the mesh axis that cuts it, -1 for none, a list where several do.
    partial : dict
        Mesh axis index -> kind.

    Raises
    ------
    PlacementError
        For a layout on parts, which has no dims_mapping, and for a dim the tensor does not have.

    Examples
    --------
    >>> to_dims_mapping((Shard(0), Partial("sum")), rank=2)
    ([0, -1], {1: 'sum'})
    """
    cutting: list[list[int]] = [[] for _ in range(rank)]
    partial: dict[int, str] = {}
    for axis, placement in enumerate(layout):
        if isinstance(placement, Partial):
            partial[axis] = placement.kind
        elif isinstance(placement, Shard):
            if placement.part:
                raise PlacementError(
                    f"{layout_text(layout)} has no dims_mapping: mesh axis {axis} cuts part {placement.part} of dim "
                    f"{placement.dim}, and dims_mapping knows whole dims only"
                )
            if placement.dim >= rank:
                raise PlacementError(f"{placement} names dim {placement.dim} of a tensor of rank {rank}")
            cutting[placement.dim].append(axis)
    return [axes[0] if len(axes) == 1 else axes or -1 for axes in cutting], partial


def from_dims_mapping(dims_mapping: Sequence[int | Sequence[int]], partial: Mapping[int, str], axes: int) -> Layout:
    """Read a layout from Paddle's dims_mapping and partial state.

    Parameters
    ----------
    dims_mapping : sequence
        Per tensor dim a mesh axis index, -1, or several indices.
    partial : mapping
        Mesh axis index -> kind.
    axes : int
        The number of mesh axes.

    Returns
    -------
    Layout

    Raises
    ------
    PlacementError
        Where a mesh axis does not exist or is used twice.

    Examples
    --------
    >>> layout_text(from_dims_mapping([0, -1], {1: "sum"}, axes=2))
    '[S(0), P(sum)]'
    """
    layout: list[Placement] = [Replicate()] * axes

    def place(axis: int, placement: Placement) -> None:
        if not 0 <= axis < axes:
            raise PlacementError(f"mesh axis {axis} does not exist: the mesh has {axes} axes")
        if layout[axis] != Replicate():
            raise PlacementError(f"mesh axis {axis} is used twice, as {layout[axis]} and as {placement}")
        layout[axis] = placement

    for dim, entry in enumerate(dims_mapping):
        for axis in [entry] if isinstance(entry, int | np.integer) else entry:
            if axis != -1:
                place(axis, Shard(dim))
    for axis, kind in partial.items():
        place(axis, Partial(kind))
    return tuple(layout)
