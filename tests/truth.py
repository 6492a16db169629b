"""Numeric truth: a row holds when the op, run on cut inputs rank by rank, gives the whole run; and no row is missing.

`check(case)` returns what is wrong, one sentence each; a right rule gives none. tests/cases holds the cases.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from truth_mesh import Array, Coordinate, agree, assemble, blocks, split

from ops import Op, Partial, Placement, Replicate, Row, RuleError, Shard, composes, rule_for
from ops.bind import BoundRule, BoundTensor, TensorShapes
from ops.run import Cut, Device, steps

SIZES = (2, 3)
MESHES = ((2, 2), (2, 3))
PAIRS = 400
"""Pairs of rows that are composed, by case and mesh; more are sampled."""
COMBINATIONS = 4096
"""Placements of the operands that are tried for missing rows, by case; more are sampled."""
TRIALS = ((2, 1), (2, 2), (3, 3), (3, 4), (2, 5), (2, 6))
"""Mesh axis sizes and seeds that a missing row must survive; an even seed tries the second set of numbers."""
NUMBERS = {"positive": (0.5, 2.0), "unit": (0.1, 0.9)}
UNRUN = "halo_exchange"
IDEMPOTENT = ("avg", "max", "min", "any", "all")
Joint = tuple[tuple[Placement | None, ...], ...]


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
        results = run(self, self.bound, {(): self.arrays}, {(): ()}, ())[()]
        shapes, expected = [r.shape for r in results], [slot.shape for slot in self.bound.results]
        if shapes != expected:
            raise RuleError(f"{self.op.name} makes shapes {shapes}, its rule says {expected}")
        return results

    @cached_property
    def reading(self) -> list[list[bool]]:
        """Whether each result depends on the values of each operand; integers always count."""
        found = [[True] * len(self.arrays) for _ in self.whole]
        for j, array in enumerate(self.arrays):
            if array is None or not np.issubdtype(array.dtype, np.floating):
                continue
            other = [
                a if i != j else array + self.rng(5).uniform(0.1, 0.5, array.shape) for i, a in enumerate(self.arrays)
            ]
            for i, result in enumerate(run(self, self.bound, {(): other}, {(): ()}, ())[()]):
                found[i][j] = bool(agree(result, self.whole[i]))
        return found

    def rng(self, *key: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, *key])


def two_parts(size: int) -> tuple[int, int] | None:
    """Split a composite size in two, its smallest prime first."""
    first = next((p for p in range(2, int(size**0.5) + 1) if size % p == 0), None)
    return None if first is None else (first, size // first)


def subject(case: Case, seed: int = 0) -> Subject:
    """Fill the operands of a case."""
    op = rule_for(case.op)
    rng = np.random.default_rng([seed, len(str(case))])
    shapes = {name: _shapes(value) for name, value in case.operands.items()}
    bound = op.bind(shapes, case.attrs, dtypes={n: _dtype(case, n, v) for n, v in case.operands.items()})
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


def _dtype(case: Case, name: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_dtype(case, name, item) for item in value]
    if value is None:
        return None
    if isinstance(value, np.ndarray):
        return str(value.dtype)
    domain = rule_for(case.op).domain.get(name, "positive")
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
    op = rule_for(f"{forward.op.name}_grad")
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
    synced_axes: Sequence[int],
) -> dict[Coordinate, tuple[Array, ...]]:
    """Run the kernel on every device in lockstep; where it reduces, reduce over the synced mesh axes."""
    running = {c: steps(on.op, bound, arrays, on.attrs, Device(bound, cuts[c])) for c, arrays in locals_.items()}
    sent: dict[Coordinate, Array | None] = dict.fromkeys(running)
    while True:
        asked: dict[Coordinate, tuple[Array, str]] = {}
        done: dict[Coordinate, tuple[Array, ...]] = {}
        for coordinate, kernel in running.items():
            try:
                asked[coordinate] = kernel.send(sent[coordinate])  # type: ignore[arg-type]
            except StopIteration as stop:
                done[coordinate] = stop.value
        if not asked:
            return done
        if done:
            raise RuleError("some devices wait for an all_reduce that others do not take part in")
        for coordinate, (array, kind) in asked.items():
            group = [a for c, (a, _) in asked.items() if _apart_on(c, coordinate, synced_axes)]
            sent[coordinate] = REDUCE[kind](np.stack(group)) if len(group) > 1 else array


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
    factors = (bound.forward or bound).factors
    synced = [axis for axis, named in enumerate(cut) if any(factors[f].kind == "synced" for f, _ in named)]
    with np.errstate(all="ignore"):
        return run(on, bound, locals_, cuts, synced)


# --------------------------------------------------------------------------------------------------------- soundness


def wrong(on: Subject, bound: BoundRule, rows: Sequence[Row], sizes: tuple[int, ...]) -> str | None:
    """Return what is wrong with one row per mesh axis, or None."""
    try:
        local = execute(on, bound, [row.operands for row in rows], [[r.cut] if r.cut else [] for r in rows], sizes)
        for index, (slot, whole) in enumerate(zip(bound.results, on.whole, strict=True)):
            layout = column([row.results for row in rows], index)
            mine = {c: results[index] for c, results in local.items()}
            if fault := agree(assemble(mine, layout, parts_of(slot, bound), sizes, whole), whole):
                return f"{slot.name} {fault}"
    except (ValueError, IndexError, TypeError, KeyError, ArithmeticError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def sound(on: Subject) -> Iterator[str]:
    """Yield each row that does not hold, on 2 and 3 ranks, on plain dims and on parts."""
    plain = {(row.operands, row.results) for row in on.bound.rows}
    for bound in (on.bound, on.in_parts):
        for row in bound.rows:
            if UNRUN in row.needs or (bound is on.in_parts and (row.operands, row.results) in plain):
                continue
            for size in SIZES:
                if composes(bound, [row], [size]) and (fault := wrong(on, bound, [row], (size,))):
                    yield f"wrong row on {size} ranks: {row_text(row.operands, row.results)} ({row.why}): {fault}"


def composed(on: Subject) -> Iterator[str]:
    """Yield each pair of rows that compose by the laws and do not hold together."""
    bound = on.in_parts
    rows = [row for row in bound.rows[1:] if UNRUN not in row.needs]
    for sizes in MESHES:
        pairs = [pair for pair in itertools.product(rows, rows) if composes(bound, pair, sizes)]
        if len(pairs) > PAIRS:
            pairs = random.Random(on.seed).sample(pairs, PAIRS)
        for pair in pairs:
            if fault := wrong(on, bound, pair, sizes):
                both = " with ".join(f"{row_text(row.operands, row.results)} ({row.why})" for row in pair)
                yield f"rows do not compose on {sizes}: {both}: {fault}"


def row_text(operands: Sequence[Placement | None], results: Sequence[Placement]) -> str:
    left = " ".join("-" if p is None else str(p) for p in operands)
    return f"{left} -> {' '.join(map(str, results))}".strip()


# ------------------------------------------------------------------------------------------------------ completeness


def missing(on: Subject, again: Subject) -> Iterator[str]:
    """Yield each placement of operands and results that holds and neither is a row nor follows from one.

    It must hold on other numbers as well (`again`), since on small tensors a few hold by luck.
    """
    for operands in _combinations(on):
        sets: list[list[Placement]] | None = None
        for size, seed in TRIALS:
            if size != 2 and not all(_divides(p, s, size) for p, s in zip(operands, on.bound.operands, strict=True)):
                continue
            found = _holding(on if seed % 2 else again, operands, size, seed)
            sets = found if sets is None else [_both(a, b, size) for a, b in zip(sets, found, strict=False)]
            if not found or not all(sets):
                sets = []
                break
        for results in itertools.product(*sets) if sets else ():
            if not _implied(on, operands, results):
                yield row_text(operands, results)


def _combinations(on: Subject) -> list[tuple[Placement | None, ...]]:
    """List the placements of the operands to try, a sample where there are too many."""
    choices = [
        _operand_choices(slot, array, on.bound, on.op.domain)
        for slot, array in zip(on.bound.operands, on.arrays, strict=True)
    ]
    if prod(map(len, choices)) <= COMBINATIONS:
        return list(itertools.product(*choices))
    draw = random.Random(on.seed)
    return sorted({tuple(map(draw.choice, choices)) for _ in range(COMBINATIONS)}, key=str)


def _both(a: list[Placement], b: list[Placement], size: int) -> list[Placement]:
    return [p for p in a if p in b]


def _divides(placement: Placement | None, slot: BoundTensor | None, size: int) -> bool:
    return slot is None or not isinstance(placement, Shard) or slot.shape[placement.dim] % size == 0


def kinds_of(bound: BoundRule) -> list[str]:
    """Return the partial kinds that are natural to an op: what its factors make, its form and order pass, and sum."""
    rule = (bound.forward or bound).rule
    if bound.forward is not None:
        return ["avg", "sum"]
    found = {"sum"} | {kind for kind in rule.kinds.values() if kind in IDEMPOTENT}
    if rule.linear:
        found.add("avg")
    present = [slot for slot in bound.operands if slot is not None]
    if rule.monotone or rule.antitone or len(present) == 1:
        found |= {"max", "min"}
    return sorted(found)


def _operand_choices(
    slot: BoundTensor | None, array: Array | None, bound: BoundRule, domain: Mapping[str, str]
) -> list[Placement | None]:
    if slot is None or array is None:
        return [None]
    shards: list[Placement | None] = [Shard(d) for d, n in enumerate(slot.shape) if n > 1 and n % 2 == 0]
    if domain.get(slot.name.partition(".")[0], "positive") not in NUMBERS:
        return [Replicate(), *shards]
    logical = array.dtype == np.bool_
    kinds = [k for k in kinds_of(bound) if (k in ("any", "all")) == logical]
    return [Replicate(), *shards, *map(Partial, kinds)]


def _implied_cuts(bound: BoundRule, operands: Sequence[Placement | None]) -> list[tuple[str, int]]:
    """Return the factors that a placement of the operands cuts: what an op's local attributes go by."""
    found: list[tuple[str, int]] = []
    for slot, placement in zip(bound.operands, operands, strict=True):
        if slot is not None and isinstance(placement, Shard) and slot.dims[placement.dim]:
            cut = (slot.dims[placement.dim][0], 0)
            found += [] if cut in found else [cut]
    return found


def _holding(on: Subject, operands: tuple[Placement | None, ...], size: int, seed: int) -> list[list[Placement]]:
    """Return, for each result, the placements that the run on cut operands agrees with; nothing where it fails."""
    bound = on.bound
    try:
        local = execute(on, bound, [operands], [_implied_cuts(bound, operands)], (size,), seed)
    except (ValueError, IndexError, TypeError, KeyError, ArithmeticError):
        return []
    found: list[list[Placement]] = []
    for index, (slot, whole) in enumerate(zip(bound.results, on.whole, strict=True)):
        mine = {c: results[index] for c, results in local.items()}
        shards: list[Placement] = [Shard(d) for d, n in enumerate(slot.shape) if n > 1 and n % size == 0]
        tried = [Replicate(), *shards, *map(Partial, kinds_of(bound))]
        parts = parts_of(slot, bound)
        found.append([p for p in tried if not agree(assemble(mine, (p,), parts, (size,), whole), whole)])
        if not found[-1]:
            return []
    return found


def _implied(on: Subject, operands: Sequence[Placement | None], results: Sequence[Placement]) -> bool:
    """Tell whether a combination follows from the rows.

    Each grad of a grad op is a function of its own. Where every one of them follows from some row by itself, the
    combination mixes rows; one op takes one row, so it is not called missing.
    """
    if any(_follows(operands, results, row) for row in on.bound.rows):
        return True
    if on.op.forward is None or len(results) == 1:
        return False
    return all(
        any(
            _follows(
                [p for p, matters in zip(operands, on.reading[i], strict=True) if matters],
                [result],
                replace(
                    row,
                    operands=tuple(p for p, matters in zip(row.operands, on.reading[i], strict=True) if matters),
                    results=(row.results[i],),
                ),
            )
            for row in on.bound.rows
        )
        for i, result in enumerate(results)
    )


def _follows(operands: Sequence[Placement | None], results: Sequence[Placement], row: Row) -> bool:
    """Tell whether a combination is a row but for what is free: R read as P(max), and the like."""

    def free(as_asked: Placement | None, stronger: Placement | None) -> bool:
        return as_asked == stronger or (
            isinstance(stronger, Replicate) and isinstance(as_asked, Partial) and as_asked.kind in IDEMPOTENT
        )

    return all(free(row_p, p) for p, row_p in zip(operands, row.operands, strict=True)) and all(
        free(p, row_p) for p, row_p in zip(results, row.results, strict=True)
    )


# ------------------------------------------------------------------------------------------------------- derivatives

STEP = 1e-6
DIRECTIONS = 3


def derivative(forward: Subject, grad: Subject) -> Iterator[str]:
    """Yield each operand whose grad kernel disagrees with central differences of the forward kernel."""
    out_grads = [a for s, a in zip(grad.bound.operands, grad.arrays, strict=True) if s and s.name.endswith("_grad")]
    names = [s.name.removesuffix("_grad") for s in grad.bound.operands if s and s.name.endswith("_grad")]
    grads = {slot.name.removesuffix("_grad"): g for slot, g in zip(grad.bound.results, grad.whole, strict=True)}
    rng = forward.rng(11)

    def loss(arrays: Sequence[Array | None]) -> float:
        results = run(forward, forward.bound, {(): arrays}, {(): ()}, ())[()]
        made = {slot.name: r for slot, r in zip(forward.bound.results, results, strict=True)}
        return sum(float((made[name] * g).sum()) for name, g in zip(names, out_grads, strict=True) if g is not None)

    for index, slot in enumerate(forward.bound.operands):
        if slot is None or slot.name not in grads:
            continue
        for _ in range(DIRECTIONS):
            direction = rng.normal(size=slot.shape)
            moved = [
                loss([a + sign * STEP * direction if i == index and a is not None else a
                      for i, a in enumerate(forward.arrays)])
                for sign in (1, -1)
            ]  # fmt: skip
            expected = (moved[0] - moved[1]) / (2 * STEP)
            got = float((grads[slot.name] * direction).sum())
            if not abs(got - expected) <= 1e-6 * max(1.0, abs(expected)):
                yield f"{grad.op.name}: {slot.name}_grad along a direction is {got:.9g}, differences say {expected:.9g}"
                break


# -------------------------------------------------------------------------------------------------------- the whole


@dataclass
class Verdict:
    """What is wrong with a case, and which of its argued missing rows were met."""

    faults: list[str] = field(default_factory=list)
    argued: set[tuple[str, str]] = field(default_factory=set)


def check(case: Case) -> Verdict:
    """Hold every row of a case, and of its grad op, against numeric truth."""
    verdict = Verdict()
    forward, again = subject(case), subject(case, seed=1)
    examine(verdict, forward, again, case.missing)
    if forward.op.grad is not None:
        grad = backward(forward)
        examine(verdict, grad, backward(again), case.grad_missing)
        verdict.faults += derivative(forward, grad)
    return verdict


def examine(verdict: Verdict, on: Subject, again: Subject, argued: Mapping[str, str]) -> None:
    """Soundness, composition and completeness of one op, on two sets of numbers."""
    unsound = list(sound(on))
    verdict.faults += unsound or composed(on)
    for row in missing(on, again):
        patterns = [pattern for pattern in argued if fnmatchcase(row, pattern)]
        verdict.argued |= {(on.op.name, pattern) for pattern in patterns}
        if not patterns:
            verdict.faults.append(
                f"missing row of {on.op.name}: {row} holds: give the rule a clause, or argue it in the case"
            )
