"""The rules of the ops, as a person reads them."""

from __future__ import annotations

import ast
import io
import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ops.bind import BoundRule, BoundTensor, Row, TensorShapes, composes
from ops.given import of_op
from ops.notation import DimSpec, RuleError, Signature, TensorSpec
from ops.op import REQUIRED, Op
from ops.registry import families, names, rule_for
from solver.report.examples import ATTRIBUTES, OPS, SIZE

AXIS = 2
"""Size of the mesh axis that an example is shown on."""


@dataclass(frozen=True)
class Specimen:
    """An op bound to small shapes, so that its rule and rows can be shown."""

    shapes: Mapping[str, TensorShapes]
    attrs: Mapping[str, Any]
    bound: BoundRule

    def rows(self, size: int = AXIS) -> list[Row]:
        """Return the rows that a mesh axis may take."""
        return [row for row in self.bound.rows if composes(self.bound, [row], [size])]

    def uncut(self) -> Iterator[str]:
        """Yield what no row cuts, and why: factors, then dims that hold none."""
        slots = [slot for slot in (*self.bound.operands, *self.bound.results) if slot is not None]
        cut = {row.cut[0] for row in self.bound.rows if row.cut is not None}
        for factor in self.bound.factors.values():
            if factor.name not in cut:
                places = [
                    f"dim {slot.dim_of(factor.name)} of {slot.name}" for slot in slots if factor.name in _held(slot)
                ]
                why = (
                    "has size 1"
                    if factor.size == 1
                    else "is declared whole"
                    if factor.kind == "whole"
                    else ("is not cut backward" if self.bound.forward else "has two places in one tensor")
                )
                yield f"{factor.name} ({', '.join(places)}) {why}"
        for slot in slots:
            free = [str(dim) for dim, held in enumerate(slot.dims) if not held and slot.shape[dim] > 1]
            if free:
                yield f"dim {', '.join(free)} of {slot.name} is tied to nothing that could be cut alike"


def _held(slot: BoundTensor) -> set[str]:
    return {factor for names in slot.dims for factor in names}


def given(op: Op, shapes: Sequence[str], attributes: Sequence[str]) -> Specimen:
    """Bind an op to the shapes and attributes that a person wrote.

    Parameters
    ----------
    op : Op
    shapes : sequence of str
        ``x=4x6``, ``x=`` for a scalar; once for each tensor of a variadic operand.
    attributes : sequence of str
        ``axis=1``, the value as Python writes it, or a word.

    Raises
    ------
    RuleError
        Where a text cannot be read, or shapes and attributes do not fit the op.
    """
    variadic = {spec.name for spec in op.operands if spec.variadic}
    found: dict[str, Any] = {}
    for text in shapes:
        name, equals, sizes = text.partition("=")
        if not equals or not all(size.isdecimal() for size in sizes.split("x") if sizes):
            raise RuleError(f"{text!r} is no shape: write NAME=4x6")
        if name in found and name not in variadic:
            raise RuleError(f"operand {name!r} of {op.name} is given a shape more than once")
        shape = tuple(int(size) for size in sizes.split("x") if sizes)
        found[name] = [*found.get(name, ()), shape] if name in variadic else shape
    attrs: dict[str, Any] = {}
    for text in attributes:
        name, equals, value = text.partition("=")
        if not equals:
            raise RuleError(f"{text!r} is no attribute: write NAME=VALUE")
        if name in attrs:
            raise RuleError(f"attribute {name!r} of {op.name} is given more than once")
        try:
            attrs[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            attrs[name] = value
    try:
        return Specimen(found, attrs, op.bind(found, attrs))
    except RuleError as error:
        raise of_op(op.name, error) from error.__cause__


def specimen(op: Op) -> Specimen | None:
    """Find shapes that an op takes with its default attributes, and with examples of those that must be given.

    Parameters
    ----------
    op : Op

    Returns
    -------
    Specimen or None
        None where no small shapes fit.
    """
    forward = op.forward or op
    for shapes, attrs in [OPS[forward.name]] if forward.name in OPS else _guesses(forward):
        try:
            bound = forward.bind(shapes, attrs)
            if op.forward is not None:
                known = {**shapes, **_result_shapes(bound)}
                read = {name: known.get(name, known.get(name.removesuffix("_grad"))) for name in _names(op.operands)}
                bound = op.bind(read, {**attrs, "forward_shapes": tuple(shapes.items())})
        except (ValueError, LookupError, TypeError):
            continue
        return Specimen(shapes, attrs, bound)
    return None


def _result_shapes(bound: BoundRule) -> dict[str, TensorShapes]:
    """Return the shapes of the results, those of a variadic one in a list."""
    listed: dict[str, list[tuple[int, ...]]] = {}
    for slot in bound.results:
        listed.setdefault(slot.name.partition(".")[0], []).append(slot.shape)
    single = {slot.name for slot in bound.results}
    return {name: shapes[0] if name in single else shapes for name, shapes in listed.items()}


def _names(specs: Sequence[TensorSpec]) -> list[str]:
    return [spec.name for spec in specs]


def _guesses(op: Op) -> Iterator[tuple[dict[str, TensorShapes], dict[str, Any]]]:
    """Shapes read off the rule that the op has for operands of one rank."""
    needed = [name for name, value in op.attrs.items() if value is REQUIRED]
    for values in itertools.product(*(ATTRIBUTES.get(name, ()) for name in needed)):
        attrs = dict(zip(needed, values, strict=True))
        for rank, absent in itertools.product((2, 3, 4, 5, 1), (False, True)):
            shapes = {
                spec.name: None if absent and spec.optional else _listed(spec, (SIZE,) * rank) for spec in op.operands
            }
            try:
                signature = op.rule_for(shapes, op.full_attrs(attrs), {}).signature
            except (ValueError, LookupError, TypeError):
                continue
            yield from ((found, attrs) for found in _fitting(signature))


def _fitting(signature: Signature) -> Iterator[dict[str, TensorShapes]]:
    """Shapes that a signature may fit: optional operands present, then absent; small windows, then dims of one size."""
    runs = sorted({name for spec in signature.operands for dim in spec.dims for name in dim.names if dim.kind == "run"})
    for absent, window, *lengths in itertools.product((False, True), (2, SIZE), *[(1, 0, 2)] * len(runs)):
        length = dict(zip(runs, lengths, strict=True))
        found: dict[str, TensorShapes] = {}
        for spec in signature.operands:
            free = SIZE if not found else window
            shape = tuple(size for dim in spec.dims for size in _sizes(dim, length, free))
            found[spec.name] = None if absent and spec.optional else _listed(spec, shape)
        yield found


def _listed(spec: TensorSpec, shape: tuple[int, ...]) -> TensorShapes:
    return [shape, shape] if spec.variadic else shape


def _sizes(dim: DimSpec, length: Mapping[str, int], free: int) -> tuple[int, ...]:
    match dim.kind:
        case "run":
            return (SIZE,) * length[dim.names[0]]
        case "compound":
            return (SIZE ** len(dim.names),)
        case "one":
            return (1,)
        case "batch":
            return ()
        case "free":
            return (free,)
    return (SIZE,)


def op_text(name: str, shapes: Sequence[str] = (), attributes: Sequence[str] = (), size: int = AXIS) -> str:
    """Return all that is declared about one op, and its rows on one mesh axis.

    Parameters
    ----------
    name : str
    shapes, attributes : sequence of str
        What to bind it to, as `given` reads it; a small example where both are empty.
    size : int
        The size of the mesh axis.

    Raises
    ------
    RuleError
        For an unknown op, and where shapes or attributes do not fit it.
    """
    op = rule_for(name)
    found = given(op, shapes, attributes) if shapes or attributes else specimen(op)
    lines = [_signature(op), ""]
    if op.forward is not None:
        lines.append(f"  backward of  {op.forward.name}: its rows are derived from the forward rule")
    if found is None:
        lines.append("  rule         depends on shapes and attributes")
    else:
        rule = found.bound.rule
        lines.append(f"  rule         {rule.text}")
        lines += [f"  {'clauses' if first else '':<13}{clause}" for first, clause in _marked(rule.clauses())]
        lines += [f"  {'whole' if first else '':<13}{line}" for first, line in _marked(list(found.uncut()))]
    lines += [f"  {'domain' if first else '':<13}{line}" for first, line in _marked(_domains(op))]
    if op.view:
        lines.append("  cost         none: it renames memory")
    if f"{name}_grad" in names():
        lines.append(f"  grad         {_signature(rule_for(f'{name}_grad'))}")
    if found is not None:
        lines += ["", f"  On a mesh axis of size {size}, with {_example_text(found)}:", _rows_text(found, size)]
    return "\n".join(lines)


def _marked(lines: Sequence[str]) -> Iterator[tuple[bool, str]]:
    return ((index == 0, line) for index, line in enumerate(lines))


def _signature(op: Op) -> str:
    operands = [f"{'*' * spec.variadic}{spec.name}{'?' * spec.optional}" for spec in op.operands]
    attributes = [
        name if value is REQUIRED else f"{name}={value!r}"
        for name, value in op.attrs.items()
        if name != "forward_shapes"
    ]
    return f"{op.name}({', '.join(operands + attributes)}) -> {', '.join(spec.name for spec in op.results)}"


def _domains(op: Op) -> list[str]:
    return [
        f"{operand} holds positive numbers"
        if what == "positive"
        else f"{operand} holds indices below the size of {what}"
        for operand, what in op.domain.items()
    ]


def _example_text(found: Specimen) -> str:
    shapes = [f"{name} {shape}" for name, shape in found.shapes.items() if shape is not None]
    return ", ".join(shapes + [f"{name}={value!r}" for name, value in found.attrs.items()])


def _rows_text(found: Specimen, size: int) -> str:
    operands = [slot.name for slot in found.bound.operands if slot is not None]
    table = _table([*operands, "", *(slot.name for slot in found.bound.results), "because", "needs"])
    for row in found.rows(size):
        given = [str(placement) for placement in row.operands if placement is not None]
        made = [str(placement) for placement in row.results]
        table.add_row(*map(Text, (*given, "->", *made, row.why, ", ".join(sorted(row.needs)))))
    return _drawn(table)


def table_text() -> str:
    """Return a table of all ops with their rules, family by family.

    Notes
    -----
    The rule of an op that depends on shapes or attributes is that of its defaults, or of a small example.
    """
    known = names()
    blocks = []
    for module, members in families().items():
        table = _table(["op", "rule", "clauses", "grad"])
        for name, text, clauses in op_lines(members):
            table.add_row(*map(Text, (name, text, clauses, "yes" if f"{name}_grad" in known else "")))
        blocks.append(f"{family_title(module)}\n\n{_drawn(table)}\n\n")
    forward = [name for name in known if rule_for(name).forward is None]
    return f"{''.join(blocks)}{len(forward)} ops, {len(known) - len(forward)} of them with a derived grad"


def family_title(module: str) -> str:
    """Return what a family file says of itself, in a line."""
    return (sys.modules[module].__doc__ or module).splitlines()[0]


def op_lines(members: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield name, rule and clauses of the forward ops among some names."""
    for name in members:
        if rule_for(name).forward is None:
            found = specimen(rule_for(name))
            text = found.bound.rule.text if found else "depends on shapes and attributes"
            yield name, text, "; ".join(found.bound.rule.clauses()) if found else ""


def _table(headers: Sequence[str]) -> Table:
    table = Table(box=box.SIMPLE, show_edge=False)
    for header in headers:
        table.add_column(Text(header), overflow="fold")
    return table


def _drawn(table: Table) -> str:
    """Draw a table as plain text, as wide as the terminal, or as it needs where there is none."""
    terminal, drawn = Console(), io.StringIO()
    width = terminal.width if terminal.is_terminal else 240
    Console(file=drawn, highlight=False, color_system=None, width=width).print(table)
    return "\n".join(line.rstrip() for line in drawn.getvalue().rstrip().splitlines())
