"""rows() of every grad op: all forward operands are given, then the out_grads; a graph gives what the op reads."""

from __future__ import annotations

from typing import Any

import pytest
from cases import CASES
from truth import Case, Subject, subject

import ops
from ops import Replicate, RuleError, composes, rows, rule_for
from ops.bind import BoundRule

SIZE = 2
DIFFERENTIABLE = [case for case in CASES if rule_for(case.op).grad is not None]


def asked(forward: Subject) -> list[Any]:
    """The shapes that rows() takes: of the operands, then of the results that get an out_grad."""
    grad = forward.op.grad
    assert grad is not None
    given = [forward.shapes.get(spec.name) for spec in forward.op.operands]
    for spec in forward.op.results:
        made = [slot.shape for slot in forward.bound.results if slot.name.partition(".")[0] == spec.name]
        if spec.name in grad.receiving(forward.op):
            given.append(made if spec.variadic else made[0] if made else None)
    return given


def dtypes(forward: Subject) -> list[Any]:
    found: dict[str, Any] = {spec.name: None for spec in forward.op.operands}
    for slot, array in zip(forward.bound.operands, forward.arrays, strict=True):
        if slot is not None and array is not None:
            name = slot.name.partition(".")[0]
            found[name] = str(array.dtype) if name == slot.name else [*(found[name] or []), str(array.dtype)]
    return list(found.values())


def in_a_graph(forward: Subject) -> BoundRule:
    """The grad op bound to what it reads."""
    op = rule_for(f"{forward.op.name}_grad")
    known: dict[str, Any] = dict(forward.shapes)
    for spec in forward.op.results:
        made = [slot.shape for slot in forward.bound.results if slot.name.partition(".")[0] == spec.name]
        known[spec.name] = known[f"{spec.name}_grad"] = made if spec.variadic else made[0] if made else None
    read = {spec.name: known.get(spec.name) for spec in op.operands}
    return op.bind(read, {**forward.attrs, "forward_shapes": tuple(forward.shapes.items())})


def flat(placements: Any) -> list[Any]:
    listed = [p if isinstance(p, list) else [p] for p in placements]
    return [p for group in listed for p in group]


@pytest.mark.parametrize("case", DIFFERENTIABLE, ids=str)
def test_rows_of_a_grad_op_are_those_of_a_graph(case: Case) -> None:
    forward = subject(case)
    bound = in_a_graph(forward)
    expected = [row for row in bound.rows if composes(bound, [row], [SIZE])]
    found = rows(f"{case.op}_grad", asked(forward), case.attrs, SIZE, dtypes(forward))
    assert [row.why for row in found] == [row.why for row in expected]
    slots = [slot for slot in forward.bound.operands if slot is not None]
    count = len(forward.bound.operands)
    for mine, theirs in zip(found, expected, strict=True):
        placed = [p for p in flat(mine.operands[: len(forward.op.operands)]) if p is not None]
        read = {s.name: p for s, p in zip(bound.operands, theirs.operands, strict=True) if s is not None}
        assert len(placed) == len(slots) <= count
        for slot, placement in zip(slots, placed, strict=True):
            assert placement == read.get(slot.name, placement)
            if slot.name not in read and theirs.cut is None:
                assert placement == Replicate()
        out_grads = [p for name, p in read.items() if name.endswith("_grad")]
        assert [p for p in flat(mine.operands[len(forward.op.operands) :]) if p is not None] == out_grads
        assert tuple(p for p in flat(mine.results) if p is not None) == theirs.results


def test_every_grad_op_has_a_case() -> None:
    grads = {name for name in ops.names() if rule_for(name).forward is not None}
    assert grads == {f"{case.op}_grad" for case in DIFFERENTIABLE}


def test_what_is_missing_is_named() -> None:
    with pytest.raises(RuleError, match=r"^add_grad needs the operand 'out_grad'$"):
        rows("add_grad", [(4, 6), (4, 6)])
    with pytest.raises(RuleError, match=r"^add_grad takes the operands x, y, out_grad, and 4 shapes are given"):
        rows("add_grad", [(4, 6)] * 4)
    with pytest.raises(RuleError, match=r"^out_grad of add_grad has shape \(6,\), but"):
        rows("add_grad", [(4, 6), (6,), (6,)])
