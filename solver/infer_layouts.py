"""The layouts of one op's tensors as a caller writes them, and as they are told."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from ops.bind import BoundTensor
from ops.notation import TensorSpec
from ops.placement import (
    Layout,
    Parts,
    Placement,
    PlacementError,
    Replicate,
    from_dims_mapping,
    layout_text,
    parse_placement,
)
from solver.layout import canonical, why_illegal
from solver.mesh import Mesh

Written: TypeAlias = Mapping[str, Any] | str | Sequence[Any]
"""A layout: ``{"dp": Shard(0)}``, ``"dp=S(0),tp=R"``, a placement per mesh axis, or ``([0, -1], {1: "sum"})``."""
T = TypeVar("T")
FORM = "write {'dp': Shard(0)}, 'dp=S(0),tp=R', one placement per mesh axis, or (dims_mapping, partial)"


class InferError(ValueError):
    """A question that names something that the op, the mesh or a tensor does not have."""


@dataclass(frozen=True, slots=True)
class Site:
    """The tensor that a layout is written for.

    Parameters
    ----------
    op, name : str
        The op, and its operand or result: ``x``, ``xs.0``.
    shape : tuple of int
    """

    op: str
    name: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name} of {self.op}"


def read_layout(site: Site, written: Written, mesh: Mesh) -> Layout:
    """Read a layout; a mesh axis that it does not name is R.

    Parameters
    ----------
    site : Site
    written : mapping, str or sequence
    mesh : Mesh

    Returns
    -------
    Layout
        As it was written, whether the tensor can lie so or not.

    Raises
    ------
    InferError
        Where it cannot be read, or names a mesh axis that does not exist.

    Examples
    --------
    >>> site, mesh = Site("relu", "x", (8, 4)), Mesh({"dp": 2, "tp": 4})
    >>> layout_text(read_layout(site, "tp=S(0)", mesh)), layout_text(read_layout(site, ([-1, 0], {1: "sum"}), mesh))
    ('[R, S(0)]', '[S(1), P(sum)]')
    """
    try:
        if isinstance(written, Mapping | str):
            return _by_axis(site, written, mesh)
        if isinstance(written, tuple | list):
            if len(written) == 2 and isinstance(written[0], tuple | list) and isinstance(written[1], Mapping):
                return _paddle(site, written[0], written[1], mesh)
            if len(written) != len(mesh.axes):
                raise InferError(f"{site} has {len(written)} placements for the mesh {mesh}: write one per mesh axis")
            return tuple(map(_placement, written))
    except PlacementError as error:
        raise InferError(f"{site}: {error}") from error
    raise InferError(f"{site} has the layout {written!r}: {FORM}")


def named(site: Site, layout: Layout, parts: Parts, mesh: Mesh) -> Layout:
    """Return the canonical form of a layout that a tensor can have.

    Parameters
    ----------
    site : Site
    layout : Layout
    parts : tuple of tuple of int
        The parts of each dim.
    mesh : Mesh

    Returns
    -------
    Layout

    Raises
    ------
    InferError
        For a layout that the tensor cannot have, saying why.

    Examples
    --------
    >>> named(Site("relu", "x", (6,)), read_layout(Site("relu", "x", (6,)), "tp=S(0)", Mesh({"tp": 4})), ((6,),),
    ...       Mesh({"tp": 4}))
    Traceback (most recent call last):
    solver.infer_layouts.InferError: x of relu, of shape (6,), cannot be [S(0)]: dim 0 of size 6 cannot be cut by ...
    """
    if reason := why_illegal(layout, site.shape, parts, mesh.sizes, mesh.axes):
        raise InferError(f"{site}, of shape {site.shape}, cannot be {layout_text(layout)}: {reason}")
    return canonical(layout, parts, mesh.sizes)


def _paddle(site: Site, dims_mapping: Sequence[Any], partial: Mapping[Any, Any], mesh: Mesh) -> Layout:
    if len(dims_mapping) != len(site.shape):
        raise InferError(
            f"dims_mapping {dims_mapping} of {site} has {len(dims_mapping)} entries, but the shape {site.shape} has "
            f"rank {len(site.shape)}"
        )
    entries = [list(entry) if isinstance(entry, tuple | list) else [entry] for entry in dims_mapping]
    for axis in [*partial, *(axis for entry in entries for axis in entry)]:
        if not isinstance(axis, int) or isinstance(axis, bool):
            raise InferError(f"{site}: {axis!r} is no mesh axis: dims_mapping and partial count them from 0")
    if unsorted := [entry for entry in entries if entry != sorted(entry)]:
        raise InferError(f"{site}: the mesh axes {unsorted[0]} cut one dim: list them in mesh order")
    return from_dims_mapping(entries, partial, len(mesh.axes))


def _by_axis(site: Site, written: Mapping[str, Any] | str, mesh: Mesh) -> Layout:
    placed: dict[str, Placement] = {}
    for axis, placement in _assignments(written) if isinstance(written, str) else written.items():
        if axis not in mesh.axes:
            raise InferError(f"{site} names mesh axis {axis!r}, but the mesh has {', '.join(mesh.axes)}")
        if axis in placed:
            raise InferError(f"{site} names mesh axis {axis!r} twice in {written!r}")
        placed[axis] = _placement(placement)
    return tuple(placed.get(axis, Replicate()) for axis in mesh.axes)


def _assignments(text: str) -> Iterator[tuple[str, str]]:
    """Split ``dp=S(0,part=1),tp=R`` at the commas that stand outside parentheses."""
    for piece in re.split(r",(?![^(]*\))", text):
        axis, equals, placement = piece.partition("=")
        if not equals:
            raise PlacementError(f"cannot read {piece.strip()!r}: {FORM}")
        yield axis.strip(), placement


def _placement(value: Any) -> Placement:
    if isinstance(value, str):
        return parse_placement(value)
    if isinstance(value, Placement):
        return value
    raise PlacementError(f"{value!r} is not a placement: use Replicate(), Shard(0) or Partial('sum')")


class Side:
    """The operands or the results of an op: its slots, as a caller lists them.

    Parameters
    ----------
    op : str
    word : str
        ``operands`` or ``results``.
    specs : sequence of TensorSpec
        As the op declares them.
    slots : sequence of BoundTensor or None
        As they are bound to shapes; None for an absent one.
    first : int, optional
        The number of the first slot.
    """

    def __init__(
        self, op: str, word: str, specs: Sequence[TensorSpec], slots: Sequence[BoundTensor | None], first: int = 0
    ) -> None:
        self.op, self.word, self.specs = op, word, specs
        self.sites = {i: Site(op, slot.name, slot.shape) for i, slot in enumerate(slots, first) if slot is not None}
        self._groups = [
            [i for i, site in self.sites.items() if re.sub(r"\.\d+", "", site.name) == spec.name] for spec in specs
        ]

    def read(self, given: Any, mesh: Mesh) -> dict[int, Layout]:
        """Read the layouts of a side, as `read_layout` does; slots that may lie in any way are left out.

        Raises
        ------
        InferError
            Where there are too few or too many, and as `read_layout` does.
        """
        if given is None:
            return {}
        names = ", ".join(spec.name for spec in self.specs)
        if not isinstance(given, tuple | list):
            raise InferError(
                f"the {self.word} of {self.op} are {given!r}: write a list of layouts, one each of {names}"
            )
        missing = [spec.name for spec, group in list(zip(self.specs, self._groups, strict=True))[len(given) :] if group]
        if missing or len(given) > len(self.specs):
            raise InferError(
                f"{self.op} has the {self.word} {names or 'none'}, but {len(given)} layouts are given: write one each, "
                "None for one that is absent or may lie in any way"
            )
        found: dict[int, Layout] = {}
        for spec, group, written in zip(self.specs, self._groups, given, strict=False):
            found |= self._read_one(spec, group, written, mesh)
        return found

    def _read_one(self, spec: TensorSpec, group: Sequence[int], written: Any, mesh: Mesh) -> dict[int, Layout]:
        if written is None:
            return {}
        if not group:
            raise InferError(f"{spec.name} of {self.op} is absent, but has the layout {written!r}: write None")
        each = written if spec.variadic else [written]
        if not isinstance(each, tuple | list) or len(each) != len(group):
            raise InferError(f"{spec.name} of {self.op} is {len(group)} tensors: write a list of {len(group)} layouts")
        pairs = zip(group, each, strict=True)
        return {slot: read_layout(self.sites[slot], layout, mesh) for slot, layout in pairs if layout is not None}

    def grouped(self, values: Mapping[int, T]) -> tuple[T | list[T] | None, ...]:
        """Arrange values by slot as the op lists its tensors: a list for a variadic one, None for an absent one."""
        listed = [[values[slot] for slot in group] for group in self._groups]
        return tuple(
            found if spec.variadic else next(iter(found), None) for spec, found in zip(self.specs, listed, strict=True)
        )
