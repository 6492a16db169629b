"""Ask one op for its rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ops.bind import BoundTensor, TensorShapes, composes
from ops.given import whole_number
from ops.notation import RuleError, TensorSpec
from ops.placement import Placement
from ops.registry import rule_for


@dataclass(frozen=True, slots=True)
class OpRow:
    """One row of an op, operand by operand as they were given.

    Parameters
    ----------
    operands : tuple
        A placement per operand; a list for a variadic one, None for an absent one.
    results : tuple
        A placement per result; a list for a variadic one.
    why : str
        The clause that gives the row.
    needs : frozenset of str
        Capabilities without which it is not offered.
    """

    operands: tuple[Placement | list[Placement] | None, ...]
    results: tuple[Placement | list[Placement] | None, ...]
    why: str
    needs: frozenset[str]


def rows(
    name: str,
    shapes: Sequence[TensorShapes],
    attrs: Mapping[str, Any] | None = None,
    size: int = 2,
    dtypes: Sequence[Any] | None = None,
) -> list[OpRow]:
    """Return the rows of an op for one mesh axis.

    Parameters
    ----------
    name : str
        The op.
    shapes : sequence
        A shape per operand, a list of shapes for a variadic one, None for an absent one.
    attrs : mapping, optional
    size : int, optional
        The size of the mesh axis; rows that it does not divide are left out.
    dtypes : sequence, optional
        A dtype per operand, where the rule depends on it.

    Returns
    -------
    list of OpRow
        The replicated row first.

    Raises
    ------
    RuleError
        Where shapes or attributes do not fit the op.

    Examples
    --------
    >>> for row in rows("matmul", [(8, 4), (4, 6)], {}, size=2)[:2]:
    ...     print(*row.operands, "->", *row.results)
    R R -> R
    S(0) R -> S(0)
    """
    op = rule_for(name)
    slots = [spec.name for spec in op.operands]
    bound = op.bind(
        _by_operand(name, slots, shapes, "shapes"),
        {} if attrs is None else attrs,
        dtypes=_by_operand(name, slots, () if dtypes is None else dtypes, "dtypes"),
    )
    if whole_number(size, "size") < 1:
        raise RuleError(f"size={size}: a mesh axis has at least one device")
    return [
        OpRow(
            tuple(_grouped(op.operands, bound.operands, row.operands)),
            tuple(_grouped(op.results, bound.results, row.results)),
            row.why,
            row.needs,
        )
        for row in bound.rows
        if composes(bound, [row], [size])
    ]


def _by_operand(op: str, slots: Sequence[str], given: Any, what: str) -> dict[str, Any]:
    if not isinstance(given, list | tuple):
        raise RuleError(f"the {what} of {op} are {given!r}: give a list, one for each of {', '.join(slots)}")
    if len(given) > len(slots):
        raise RuleError(f"{op} takes the operands {', '.join(slots)}, and {len(given)} {what} are given: {given!r}")
    return dict(zip(slots, given, strict=False))


def _grouped(
    specs: Sequence[TensorSpec], slots: Sequence[BoundTensor | None], placements: Sequence[Placement | None]
) -> Iterator[Placement | list[Placement] | None]:
    remaining = list(zip(slots, placements, strict=True))
    for spec in specs:
        if not spec.variadic:
            absent = not remaining or (remaining[0][0] is not None and remaining[0][0].name != spec.name)
            yield None if absent else remaining.pop(0)[1]
            continue
        group: list[Placement] = []
        while (
            remaining
            and remaining[0][0] is not None
            and remaining[0][0].name.split(".")[0] == spec.name.split(".")[0]
            and "." in remaining[0][0].name
        ):
            placement = remaining.pop(0)[1]
            if placement is not None:
                group.append(placement)
        yield group
