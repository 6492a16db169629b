"""Ask one op for its rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ops.bind import BoundRule, BoundTensor, Row, TensorShapes, composes
from ops.given import checked_shapes, of_op, whole_number
from ops.laws import REPLICATE, place
from ops.notation import RuleError, TensorSpec
from ops.op import Op
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
        A shape per operand, a list of shapes for a variadic one, None for an absent one. For a grad op: all operands of
        the forward op, then the out_grads.
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

    A grad op reads what it needs. A forward operand that it does not read, such as those of an add, lies as the cut of
    the row would have it; no plan moves it:

    >>> for row in rows("add_grad", [(8, 6), (6,), (8, 6)])[:3]:
    ...     print(*row.operands, "->", *row.results)
    R R R -> R R
    S(0) R S(0) -> S(0) P(sum)
    S(1) S(0) S(1) -> S(1) S(0)
    """
    op = rule_for(name)
    try:
        asked = _asked(op, shapes, {} if attrs is None else attrs, () if dtypes is None else dtypes)
    except RuleError as error:
        raise of_op(name, error) from error.__cause__
    if whole_number(size, "size") < 1:
        raise RuleError(f"size={size}: a mesh axis has at least one device")
    return [
        OpRow(
            tuple(_grouped(asked.specs, asked.slots, placed)),
            tuple(_grouped(op.results, asked.bound.results, row.results)),
            row.why,
            row.needs,
        )
        for row, placed in zip(asked.bound.rows, asked.placed, strict=True)
        if composes(asked.bound, [row], [size])
    ]


class _Asked(NamedTuple):
    """A bound op, with the operands as they were given and, row by row, their placements."""

    bound: BoundRule
    specs: Sequence[TensorSpec]
    slots: Sequence[BoundTensor | None]
    placed: Sequence[Sequence[Placement | None]]


def _asked(op: Op, shapes: Any, attrs: Any, dtypes: Any) -> _Asked:
    if op.forward is not None:
        return _of_grad(op, op.forward, shapes, attrs, dtypes)
    names = _names(op.operands)
    bound = op.bind(
        _by_operand(op.name, names, shapes, "shapes"), attrs, dtypes=_by_operand(op.name, names, dtypes, "dtypes")
    )
    return _Asked(bound, op.operands, bound.operands, [row.operands for row in bound.rows])


def _of_grad(op: Op, forward: Op, shapes: Any, attrs: Any, dtypes: Any) -> _Asked:
    """Bind a grad op to the shapes of all forward operands and of the out_grads."""
    out_grads = [spec for spec in op.operands if spec.name not in _names(forward.operands + forward.results)]
    specs = (*forward.operands, *out_grads)
    given = checked_shapes(op.name, specs, _by_operand(op.name, _names(specs), shapes, "shapes"))
    known = _by_operand(op.name, _names(specs), dtypes, "dtypes")
    own = {spec.name: given.get(spec.name) for spec in forward.operands}
    if not isinstance(attrs, Mapping):
        op.full_attrs(attrs)
    made = forward.bind(own, {key: attrs[key] for key in attrs if key != "forward_shapes"}, dtypes=known)
    read = {**_made(forward, made), **given}
    bound = op.bind(
        {name: read.get(name) for name in _names(op.operands)},
        {**attrs, "forward_shapes": tuple(own.items())},
        dtypes={name: known[name] for name in _names(op.operands) if name in known},
    )
    out_grad_names = set(_names(out_grads))
    graded = [slot is not None and _operand_of(slot.name) in out_grad_names for slot in bound.operands]
    slots = [*made.operands, *itertools.compress(bound.operands, graded)]
    return _Asked(bound, specs, slots, [_all_placed(row, bound, made.operands, graded) for row in bound.rows])


def _all_placed(
    row: Row, bound: BoundRule, operands: Sequence[BoundTensor | None], graded: Sequence[bool]
) -> list[Placement | None]:
    """Place all forward operands, then the out_grads; what is not read lies as the cut of the row would have it."""
    read = {slot.name: p for slot, p in zip(bound.operands, row.operands, strict=True) if slot is not None}
    cut = None if row.cut is None else bound.factors[row.cut[0]]
    placed: list[Placement | None] = []
    for slot in operands:
        if slot is None or slot.name in read:
            placed.append(None if slot is None else read[slot.name])
        else:
            lies = None if cut is None or row.cut is None else place(slot, cut, row.cut[1], bound)
            placed.append(lies or REPLICATE)
    return [*placed, *itertools.compress(row.operands, graded)]


def _names(specs: Sequence[TensorSpec]) -> list[str]:
    return [spec.name for spec in specs]


def _operand_of(slot: str) -> str:
    """Return the operand of a slot: xs for xs.0, xs_grad for xs.0_grad."""
    base, dot, rest = slot.partition(".")
    return base + rest.lstrip("0123456789") if dot else slot


def _made(op: Op, bound: BoundRule) -> dict[str, TensorShapes]:
    """Return the shapes of the results by name, a list for a variadic one."""
    made: dict[str, TensorShapes] = {}
    for spec in op.results:
        listed = [slot.shape for slot in bound.results if _operand_of(slot.name) == spec.name]
        made[spec.name] = listed if spec.variadic else next(iter(listed), None)
    return made


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
        if remaining and remaining[0][0] is None:
            yield remaining.pop(0)[1]
            continue
        group: list[Placement] = []
        while remaining and remaining[0][0] is not None and _operand_of(remaining[0][0].name) == spec.name:
            placement = remaining.pop(0)[1]
            if placement is not None:
                group.append(placement)
        yield group
