"""Tables of what is legal for an op on one mesh axis of two devices, as a framework's own kernels show it.

tests/data/legal holds a table per kernel, tests/legal_names.py says which op of ours it is, tests/legal_differences.py
why the two differ where they do. The tables were found by trying every placement R, S and P(sum) of the inputs; inputs
are called x0, x1, ..., cotangents g0, ..., results o0, ..., and the grad of x0 is called x0 again.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from legal_names import NAMES, Names

from ops import BoundRule, Op, Partial, Placement, Shard, composes, rule_for

TABLES = Path(__file__).parent / "data" / "legal"
SIZE = 2
Placed = tuple[tuple[str, ...], tuple[str, ...]]
"""The placements of operands and results; ``-`` for an absent operand."""


def tables() -> list[str]:
    """Return the names of all tables."""
    return sorted(path.stem for path in TABLES.glob("*.json"))


@cache
def cases(table: str) -> list[dict[str, Any]]:
    return list(json.loads((TABLES / f"{table}.json").read_text()))


def differences(table: str) -> Iterator[str]:
    """Yield what differs between a table and our rows, a line each: direction, whose row, the row."""
    for case in cases(table):
        beside = Beside(case, NAMES[table])
        ours = beside.ours()
        met: set[Placed] = set()
        for (operands, results), meanings in beside.theirs():
            met |= meanings
            if not meanings & ours:
                yield f"{case['direction']} theirs: {' '.join(operands)} -> {' '.join(results)}"
        for operands, results in sorted(ours - met):
            yield f"{case['direction']} ours: {' '.join(operands)} -> {' '.join(results)}"


def _text(placement: Placement | None) -> str:
    if placement is None:
        return "-"
    return f"P{placement.kind}" if isinstance(placement, Partial) else str(placement).replace("(", "").replace(")", "")


class Beside:
    """One case of a table, and the op of ours that it speaks of, bound to the same shapes.

    Parameters
    ----------
    case : mapping
    names : Names
    """

    def __init__(self, case: Mapping[str, Any], names: Names) -> None:
        self.case = case
        self.grad = case["direction"] == "grad"
        self.op = rule_for(names.op_for(case["attrs"]))
        self.slots = self._slots(names)
        attrs, shapes = names.attrs_for(case["attrs"]), self._shapes()
        self.forward = self.op.bind(shapes, attrs, dtypes=dict.fromkeys(names.logical, "bool"))
        self.bound = self._backward(shapes, attrs) if self.grad else self.forward

    def _roles(self, letter: str) -> list[int]:
        return [i for i, role in enumerate(self.case["input_roles"]) if role[0] == letter]

    def _slots(self, names: Names) -> list[str | None]:
        """Return the operand slot of ours that each forward input fills; None for one that our op does not take."""
        listed = names.operands.split() or [spec.name for spec in self.op.operands]
        variadic = {spec.name for spec in self.op.operands if spec.variadic}
        count = len(self._roles("x"))
        found: list[str | None] = []
        for name in listed:
            if name in variadic:
                found += [f"{name}.{i}" for i in range(count - len(listed) + 1)]
            else:
                found.append(None if name == "_" else name)
        return found[:count]

    def _shapes(self) -> dict[str, Any]:
        """Return the shapes of our operands; an input is absent where no row places it."""
        shapes: dict[str, Any] = dict.fromkeys(spec.name for spec in self.op.operands)
        for i, slot in zip(self._roles("x"), self.slots, strict=True):
            if slot is None or all(operands[i] == "-" for operands, _ in self.case["legal"]):
                continue
            name, dot, _ = slot.partition(".")
            shape = tuple(self.case["inputs"][i])
            shapes[name] = [*(shapes[name] or []), shape] if dot else shape
        return shapes

    def _backward(self, shapes: Mapping[str, Any], attrs: Mapping[str, Any]) -> BoundRule:
        backward: Op = rule_for(f"{self.op.name}_grad")
        results: dict[str, Any] = {}
        for slot in self.forward.results:
            name, dot, _ = slot.name.partition(".")
            results[name] = [*results.get(name, []), slot.shape] if dot else slot.shape
        known = {**results, **shapes}
        read = {spec.name: known[spec.name.removesuffix("_grad")] for spec in backward.operands}
        return backward.bind(read, {**attrs, "forward_shapes": tuple(shapes.items())})

    def _keys(self, results: Mapping[str, Any]) -> list[str]:
        """Return the columns of the table that are our results, in our order."""
        if not self.grad:
            return [f"o{i}" for i in range(len(self.bound.results)) if f"o{i}" in results]
        grads = [slot.name.removesuffix("_grad") for slot in self.bound.results]
        return [key for name in grads if (key := f"x{self.slots.index(name)}") in results]

    def theirs(self) -> Iterator[tuple[Placed, set[Placed]]]:
        """Yield each row of the table, and what it may mean for our op, which may read other tensors."""
        for operands, results in self.case["legal"]:
            for chosen in itertools.product(*(_made(results[key]) for key in self._keys(results))):
                yield (tuple(operands), chosen), {(read, chosen) for read in self._reads(operands)}

    def _reads(self, operands: Sequence[str]) -> Iterator[tuple[str, ...]]:
        """Yield the placements that our op is given: inputs, cotangents, what its forward op makes of the inputs."""
        given = {slot: operands[i] for i, slot in zip(self._roles("x"), self.slots, strict=True) if slot is not None}
        cotangents = [operands[i] for i in self._roles("g")]
        choices: list[list[str]] = []
        for slot in self.bound.operands:
            if slot is None:
                choices.append(["-"])
            elif slot.name in given:
                choices.append([given[slot.name]])
            elif slot.name.endswith("_grad"):  # One cotangent stands for all where results are alike.
                choices.append([cotangents.pop(0) if len(cotangents) > 1 else cotangents[0]])
            else:
                choices.append(self._made_forward(slot.name, given))
        yield from itertools.product(*choices)

    def _made_forward(self, result: str, given: Mapping[str, str]) -> list[str]:
        index = [slot.name for slot in self.forward.results].index(result)
        wanted = ["-" if slot is None else given[slot.name] for slot in self.forward.operands]
        return [_text(row.results[index]) for row in self.forward.rows if [*map(_text, row.operands)] == wanted]

    def ours(self) -> set[Placed]:
        """Return our rows on two devices, as far as the tables try them: P(sum) only, no parts."""
        shown = len(self._keys(self.case["legal"][0][1]))
        return {
            (tuple(map(_text, row.operands)), tuple(map(_text, row.results[:shown])))
            for row in self.bound.rows
            if composes(self.bound, [row], [SIZE])
            and not any(isinstance(p, Partial) and p.kind != "sum" for p in row.operands)
            and not any(isinstance(p, Shard) and p.part for p in (*row.operands, *row.results))
        }


def _made(placements: Sequence[str]) -> list[str]:
    """Leave out the partial kinds that hold beside R by idempotence only."""
    return [p for p in placements if p[0] != "P"] if "R" in placements else list(placements)
