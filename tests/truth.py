"""Cases of the truth harness: one op on given shapes, its numbers, and its run on simulated devices.

tests/cases holds the cases, tests/truth_check.py says what must hold of each.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from truth_mesh import Array, Coordinate, agree, blocks, split

from ops import Op, Placement, RuleError, rule_for
from ops.bind import BoundRule, BoundTensor, TensorShapes
from ops.halo import Exchange
from ops.registry import grad_op
from ops.run import Cut, Device, steps

NUMBERS = {"positive": (0.5, 2.0), "unit": (0.1, 0.9)}
"""Domains of operands that hold numbers, not indices: where they are drawn from."""


@dataclass(frozen=True)
class Case:
    """One op on given shapes.

    Parameters
    ----------
    op : str
    operands : mapping
        Operand -> shape (filled at random, see `Op.domain`), array, list of these for a variadic one, or None.
    attrs : mapping, optional
    missing, grad_missing : mapping, optional
        Rows that hold and that the rule leaves out, as ``"S(0) R -> P(sum)"`` (``-`` for an absent operand, ``*``
        matches anything), each with the reason.
    dtypes : mapping, optional
        Operand -> ``"int64"`` or ``"bool"``, where the shape alone would make floats.
    """

    op: str
    operands: Mapping[str, Any]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    grad_missing: Mapping[str, str] = field(default_factory=dict)
    dtypes: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        shapes = ", ".join(f"{name}={_shape_text(value)}" for name, value in self.operands.items())
        attrs = "".join(f", {name}={value}" for name, value in self.attrs.items())
        return f"{self.op}({shapes}{attrs})"


def _shape_text(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(_shape_text, value)) + "]"
    return str(value.shape if isinstance(value, np.ndarray) else value).replace(" ", "")


@dataclass
class Subject:
    """An op with whole inputs, slot by slot, and what the whole run gives."""

    op: Op
    shapes: Mapping[str, TensorShapes]
    attrs: Mapping[str, Any]
    arrays: Sequence[Array | None]
    seed: int = 0

    def bind(self, **options: Any) -> BoundRule:
        dtypes: dict[str, Any] = {}
        position = 0
        for spec in self.op.operands:
            given = self.shapes.get(spec.name)
            count = len(given) if spec.variadic and given is not None else 1
            found = [None if a is None else str(a.dtype) for a in self.arrays[position : position + count]]
            dtypes[spec.name] = found if spec.variadic and given is not None else found[0]
            position += count
        return self.op.bind(self.shapes, self.attrs, dtypes=dtypes, **options)

    @cached_property
    def bound(self) -> BoundRule:
        return self.bind()

    @cached_property
    def in_parts(self) -> BoundRule:
        """The same with every factor split in two parts where its size is composite."""
        factors = (self.bound.forward or self.bound).factors.values()
        return self.bind(factor_parts={f.name: parts for f in factors if (parts := two_parts(f.size))})

    @cached_property
    def whole(self) -> tuple[Array, ...]:
        """The results of the whole run, each held against the shape that the rule gives."""
        results = run(self, self.bound, {(): self.arrays}, {(): ()}, {})[()]
        shapes, expected = [r.shape for r in results], [slot.shape for slot in self.bound.results]
        if shapes != expected:
            raise RuleError(f"{self.op.name} makes shapes {shapes}, its rule says {expected}")
        return results

    @cached_property
    def reading(self) -> list[list[bool]]:
        """Whether each result depends on the values of each operand; indices and truth values always count."""
        found = [[True] * len(self.arrays) for _ in self.whole]
        for j, (slot, array) in enumerate(zip(self.bound.operands, self.arrays, strict=True)):
            moved = None if slot is None or array is None else self._moved(slot, array)
            if moved is None:
                continue
            other = [a if i != j else moved for i, a in enumerate(self.arrays)]
            try:
                with np.errstate(all="ignore"):
                    made = run(self, self.bound, {(): other}, {(): ()}, {})[()]
            except (ValueError, IndexError):
                continue
            for i, result in enumerate(made):
                found[i][j] = bool(agree(result, self.whole[i]))
        return found

    def _moved(self, slot: BoundTensor, array: Array) -> Array | None:
        """Return other values for an operand, None where any other value may be out of place."""
        if np.issubdtype(array.dtype, np.floating):
            return np.asarray(array + self.rng(5).uniform(0.1, 0.5, array.shape))
        counts = np.issubdtype(array.dtype, np.integer) and self.op.domain.get(slot.name, "positive") in NUMBERS
        return np.asarray(array + 1) if counts else None

    @cached_property
    def read(self) -> list[bool]:
        """Whether any result depends on the values of each operand, not on its shape alone."""
        return [any(of_operand) for of_operand in zip(*self.reading, strict=True)]

    def rng(self, *key: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, *key])


def two_parts(size: int) -> tuple[int, int] | None:
    """Split a composite size in two, its smallest prime first."""
    first = next((p for p in range(2, int(size**0.5) + 1) if size % p == 0), None)
    return None if first is None else (first, size // first)


def subject(case: Case, seed: int = 0, op: Op | None = None) -> Subject:
    """Fill the operands of a case, of a registered op or of the one given."""
    op = op or rule_for(case.op)
    rng = np.random.default_rng([seed, len(str(case))])
    shapes = {name: _shapes(value) for name, value in case.operands.items()}
    bound = op.bind(shapes, case.attrs, dtypes={n: _dtype(case, op, n, v) for n, v in case.operands.items()})
    arrays: list[Array | None] = []
    for spec in op.operands:
        given = case.operands.get(spec.name)
        for value in given if spec.variadic and given is not None else [given]:
            arrays.append(_fill(value, op.domain.get(spec.name), case.dtypes.get(spec.name), bound, rng))
    return Subject(op, shapes, case.attrs, arrays, seed)


def _shapes(value: Any) -> TensorShapes:
    if isinstance(value, list):
        return [shape for item in value if isinstance(shape := _shapes(item), tuple)]
    return tuple(value.shape) if isinstance(value, np.ndarray) else value


def _dtype(case: Case, op: Op, name: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_dtype(case, op, name, item) for item in value]
    if value is None:
        return None
    if isinstance(value, np.ndarray):
        return str(value.dtype)
    domain = op.domain.get(name, "positive")
    return case.dtypes.get(name, "float64" if domain in NUMBERS else "int64")


def _fill(
    value: Any, domain: str | None, dtype: str | None, bound: BoundRule, rng: np.random.Generator
) -> Array | None:
    if value is None or isinstance(value, np.ndarray):
        return value
    if domain in NUMBERS:
        return np.asarray(rng.uniform(*NUMBERS[domain], value))
    if domain is not None:
        return np.asarray(rng.integers(0, bound.factors[domain].size, value))
    if dtype == "bool":
        return np.asarray(rng.random(value) < 0.5)
    if dtype is not None:
        return np.asarray(rng.integers(-3, 4, value), dtype=dtype)
    return np.asarray(rng.normal(size=value))


def backward(forward: Subject) -> Subject:
    """Return the grad op of a subject, reading what the forward run made, with random out_grads."""
    assert forward.op.grad is not None
    op = grad_op(forward.op, forward.op.grad)
    slots = [*forward.bound.operands, *forward.bound.results]
    present = {s.name: a for s, a in zip(slots, [*forward.arrays, *forward.whole], strict=True) if s is not None}
    rng = forward.rng(7)
    arrays: list[Array | None] = []
    shapes: dict[str, Any] = {}
    for spec in op.operands:
        names = slot_names(spec.name, spec.variadic, present)
        values = [present.get(name.removesuffix("_grad")) for name in names]
        filled = [rng.normal(size=v.shape) if n.endswith("_grad") and v is not None else v
                  for n, v in zip(names, values, strict=True)]  # fmt: skip
        arrays += filled
        listed = [None if v is None else v.shape for v in filled]
        shapes[spec.name] = listed if spec.variadic and listed[0] is not None else listed[0]
    attrs = {**forward.attrs, "forward_shapes": tuple(forward.shapes.items())}
    return Subject(op, shapes, attrs, arrays, forward.seed)


def slot_names(name: str, variadic: bool, present: Mapping[str, Any]) -> list[str]:
    """Return the slots of an operand: ``xs_grad`` -> ``xs.0_grad``, ``xs.1_grad``."""
    base = name.removesuffix("_grad")
    found = [slot for slot in present if slot.rpartition(".")[0] == base]
    return [slot + name[len(base) :] for slot in found] if variadic and found else [name]


# --------------------------------------------------------------------------------------------------------- running


def run(
    on: Subject,
    bound: BoundRule,
    locals_: Mapping[Coordinate, Sequence[Array | None]],
    cuts: Mapping[Coordinate, Sequence[Cut]],
    axes: Mapping[str, Sequence[int]],
) -> dict[Coordinate, tuple[Array, ...]]:
    """Run the kernel on every device in lockstep: it reduces over the axes of synced factors, and exchanges borders."""
    factors = (bound.forward or bound).factors
    synced = [axis for factor, named in axes.items() if factors[factor].kind == "synced" for axis in named]
    running = {c: steps(on.op, bound, arrays, on.attrs, Device(bound, cuts[c])) for c, arrays in locals_.items()}
    told = {c: list(announced(on, bound, cuts[c])) for c in running}
    sent: dict[Coordinate, Array | None] = dict.fromkeys(running)
    while True:
        asked: dict[Coordinate, tuple[Array, str | Exchange]] = {}
        done: dict[Coordinate, tuple[Array, ...]] = {}
        for coordinate, kernel in running.items():
            try:
                asked[coordinate] = kernel.send(sent[coordinate])  # type: ignore[arg-type]
            except StopIteration as stop:
                done[coordinate] = stop.value
        if done and asked:
            raise RuleError("some devices wait for an all_reduce that others do not take part in")
        if not asked:
            if synced and any(told.values()):
                raise RuleError(f"{on.op.name} announces that it reduces {told[min(told)]}, and does not")
            return done
        for coordinate, (array, kind) in asked.items():
            if isinstance(kind, Exchange):
                line = sorted(c for c in asked if _apart_on(c, coordinate, axes[kind.factor]))
                sent[coordinate] = kind.run([asked[c][0] for c in line])[line.index(coordinate)]
                continue
            if not told[coordinate] or told[coordinate].pop(0) != array.shape:
                raise RuleError(f"{on.op.name} reduces an array of shape {array.shape} that it does not announce")
            group = [a for c, (a, _) in asked.items() if _apart_on(c, coordinate, synced)]
            sent[coordinate] = REDUCE[str(kind)](np.stack(group)) if len(group) > 1 else array


def announced(on: Subject, bound: BoundRule, cuts: Sequence[Cut]) -> Sequence[tuple[int, ...]]:
    """Return the shapes of the arrays that the kernel of a device is to hand over."""
    device = Device(bound, cuts)
    shapes = {**device.operands, **device.results}
    return [] if on.op.reduces is None else on.op.reduces(shapes, on.op.full_attrs(on.attrs))


REDUCE = {
    "sum": lambda stack: stack.sum(0),
    "avg": lambda stack: stack.mean(0),
    "max": lambda stack: stack.max(0),
    "min": lambda stack: stack.min(0),
}


def _apart_on(a: Coordinate, b: Coordinate, axes: Sequence[int]) -> bool:
    return all(x == y or axis in axes for axis, (x, y) in enumerate(zip(a, b, strict=True)))


def parts_of(slot: BoundTensor, bound: BoundRule) -> tuple[tuple[int, ...], ...]:
    """Return the parts of each dim of a tensor; a halo dim has one, as its size is not that of its factor."""
    return tuple(
        parts if prod(parts := tuple(p for f in names for p in bound.factors[f].parts)) == size else (size,)
        for names, size in zip(slot.dims, slot.shape, strict=True)
    )


def column(joint: Sequence[Sequence[Placement | None]], slot: int) -> tuple[Placement, ...]:
    return tuple(placement for row in joint if (placement := row[slot]) is not None)


def execute(
    on: Subject,
    bound: BoundRule,
    operands: Sequence[Sequence[Placement | None]],
    cut: Sequence[Sequence[tuple[str, int]]],
    sizes: tuple[int, ...],
    seed: int = 0,
) -> dict[Coordinate, tuple[Array, ...]]:
    """Cut the operands (one placement per slot and mesh axis), run every device, return the local results."""
    rng = on.rng(seed)
    coordinates = list(itertools.product(*map(range, sizes)))
    held: list[Mapping[Coordinate, Array] | None] = []
    for slot, array in enumerate(on.arrays):
        tensor = bound.operands[slot]
        if array is None or tensor is None:
            held.append(None)
        else:
            layout = column(operands, slot)
            held.append(blocks(split(array, layout, sizes, rng), layout, parts_of(tensor, bound), sizes))
    locals_ = {c: [None if h is None else h[c] for h in held] for c in coordinates}
    cuts = {
        c: [Cut(f, part, sizes[axis], c[axis]) for axis, named in enumerate(cut) for f, part in named]
        for c in coordinates
    }
    axes: dict[str, list[int]] = {}
    for axis, named in enumerate(cut):
        for factor, _ in named:
            axes.setdefault(factor, []).append(axis)
    with np.errstate(all="ignore"):
        return run(on, bound, locals_, cuts, axes)
