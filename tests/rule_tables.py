"""Rules and their rows as text: one block per op or rule, as the tests and docs/notation.md write them.

A block is a line `matmul(x=(4, 6), y=(6, 8))`, or a rule with its clauses and a line of shapes, then one line per row.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ops import BoundRule, Op, RuleError, rows, rule_for
from ops.notation import parse
from ops.rule import rule


def rows_text(block: str) -> str:
    """Write a block anew: its head as given, the rows as the code gives them."""
    lines = block.strip().splitlines()
    head = 1 if re.match(r"\s*\w+\(", lines[0]) else 2
    bound = _of_rule(lines[0], lines[1]) if head == 2 else _of_op(lines[0])
    listed = [
        (f"{' '.join('-' if p is None else str(p) for p in row.operands)} -> {' '.join(map(str, row.results))}", row)
        for row in bound.rows
    ]
    width = max(len(placed) for placed, _ in listed)
    rows = [
        f"{placed.strip():{width}}  {row.why}" + "".join(f", needs {need}" for need in sorted(row.needs))
        for placed, row in listed
    ]
    return "\n".join([*(line.strip() for line in lines[:head]), *rows])


def _read(arguments: str) -> dict[str, Any]:
    return dict(eval(f"dict({arguments})", {}))


def _of_rule(first: str, second: str) -> BoundRule:
    text, _, clauses = first.partition(";")
    known = _read(clauses.replace(";", ","))
    given = _read(second)
    attrs = {name: given.pop(name) for name in re.findall(r"@(\w+)", text)}
    shapes = {spec.name: given.pop(spec.name, None) for spec in parse(text).operands}
    parts = given.pop("parts", {})
    made = rule(text.strip(), **known)
    op = Op("example", lambda *_: made, made.signature.operands, made.signature.results, print, attrs)
    return op.bind(shapes, {}, factor_parts=parts)


def _of_op(line: str) -> BoundRule:
    match = re.fullmatch(r"\s*(\w+)\((.*)\)\s*", line)
    assert match, line
    op = rule_for(match[1])
    given = _read(match[2])
    parts: Mapping[str, tuple[int, ...]] = given.pop("parts", {})
    dtypes = given.pop("dtypes", {})
    shapes = {spec.name: given.pop(spec.name, None) for spec in (op.forward or op).operands}
    if op.forward is None:
        return op.bind(shapes, given, factor_parts=parts, dtypes=dtypes)
    bound = op.forward.bind(shapes, given, dtypes=dtypes)
    known = {slot.name: slot.shape for slot in bound.results} | shapes
    own = {spec.name: known.get(spec.name.removesuffix("_grad")) for spec in op.operands}
    return op.bind(own, {**given, "forward_shapes": tuple(shapes.items())}, factor_parts=parts)


def error_text(block: str) -> str:
    """Write a block of an error anew: the call as given, the message as the code gives it."""
    call = block.strip().splitlines()[0]
    try:
        eval(call, {"rule": rule, "rows": rows})
    except RuleError as error:
        return f"{call}\n{error}"
    return f"{call}\nno error"
