"""Numeric truth: a row holds when the op, run on cut inputs rank by rank, gives the whole run; and no row is missing.

`check(case)` returns what is wrong, one sentence each; a right rule gives none.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from math import prod

import numpy as np
from truth import NUMBERS, Case, Subject, backward, column, execute, parts_of, run, subject
from truth_mesh import Array, agree, assemble

from ops import Partial, Placement, Replicate, Row, Shard, composes
from ops.bind import BoundRule, BoundTensor

SIZES = (2, 3)
MESHES = ((2, 2), (2, 3))
PAIRS = 120
"""Pairs of rows that are composed, by case and mesh; more are sampled."""
COMBINATIONS = 4096
"""Placements of the operands that are tried for missing rows, by case; more are sampled."""
TRIALS = ((2, 1), (2, 2), (3, 3), (3, 4), (2, 5), (2, 6))
"""Mesh axis sizes and seeds that a missing row must survive; an even seed tries the second set of numbers."""
IDEMPOTENT = ("avg", "max", "min", "any", "all")

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
    """Yield each row that does not hold, on 2 and 3 ranks, on plain dims and on parts, and each that never ran."""
    plain = {(row.operands, row.results) for row in on.bound.rows}
    for bound in (on.bound, on.in_parts):
        for row in bound.rows:
            if bound is on.in_parts and (row.operands, row.results) in plain:
                continue
            told = f"{row_text(row.operands, row.results)} ({row.why})"
            sizes = [size for size in SIZES if composes(bound, [row], [size])]
            for size in sizes:
                if fault := wrong(on, bound, [row], (size,)):
                    yield f"wrong row on {size} ranks: {told}: {fault}"
            if not sizes and bound is on.bound:
                yield f"row never run: {told}: choose dims that 2 or 3 divide"


def composed(on: Subject) -> Iterator[str]:
    """Yield each pair of rows that compose by the laws and do not hold together."""
    bound = on.in_parts
    rows = bound.rows[1:]
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
    """Yield each placement of operands and results that holds and neither is a row nor follows from one."""
    for operands, results in holding(on, again):
        if not _implied(on, operands, results):
            yield row_text(operands, results)


def holding(on: Subject, again: Subject) -> Iterator[tuple[tuple[Placement | None, ...], tuple[Placement, ...]]]:
    """Yield each placement of operands and results that holds, whatever the rows say.

    It must hold on other numbers as well (`again`), since on small tensors a few hold by luck. Where the values of an
    operand are not read, what is left of a combination without it is told once. What is replicated is also P(max) and
    the like of itself, which is not told.
    """
    told = set()
    for operands in _combinations(on):
        sets: list[list[Placement]] | None = None
        for size, seed in TRIALS:
            if size != 2 and not all(_divides(p, s, size) for p, s in zip(operands, on.bound.operands, strict=True)):
                continue
            found = _holding(on if seed % 2 else again, operands, size, seed)
            sets = found if sets is None else [[p for p in a if p in b] for a, b in zip(sets, found, strict=False)]
            if not found or not all(sets):
                sets = []
                break
        for results in itertools.product(*map(_strongest, sets or [[]])):
            if (apart := (_kept(operands, on.read), results)) not in told:
                told.add(apart)
                yield operands, results


def _strongest(placements: Sequence[Placement]) -> list[Placement]:
    """Leave out what follows for nothing: what is replicated is P(max) of itself, and the like."""
    replicated = Replicate() in placements
    return [p for p in placements if not (replicated and isinstance(p, Partial) and p.kind in IDEMPOTENT)]


def _combinations(on: Subject) -> list[tuple[Placement | None, ...]]:
    """List the placements of the operands to try, a sample where there are too many."""
    choices = [
        _operand_choices(slot, array, on, read)
        for slot, array, read in zip(on.bound.operands, on.arrays, on.read, strict=True)
    ]
    if prod(map(len, choices)) <= COMBINATIONS:
        return list(itertools.product(*choices))
    draw = random.Random(on.seed)
    return sorted({tuple(map(draw.choice, choices)) for _ in range(COMBINATIONS)}, key=str)


def _divides(placement: Placement | None, slot: BoundTensor | None, size: int) -> bool:
    return slot is None or not isinstance(placement, Shard) or slot.shape[placement.dim] % size == 0


def kinds_of(bound: BoundRule) -> list[str]:
    """Return the partial kinds that are natural to an op: what its factors make, its form and order pass, and sum."""
    rule = (bound.forward or bound).rule
    if bound.forward is not None:
        return ["avg", "sum"]
    found = {"sum"} | {kind for kind in rule.kinds.values() if kind in IDEMPOTENT}
    if rule.linear or rule.forms:
        found.add("avg")
    present = [slot for slot in bound.operands if slot is not None]
    if rule.monotone or rule.antitone or len(present) == 1:
        found |= {"max", "min"}
    return sorted(found)


def _operand_choices(slot: BoundTensor | None, array: Array | None, on: Subject, read: bool) -> list[Placement | None]:
    if slot is None or array is None:
        return [None]
    shards: list[Placement | None] = [Shard(d) for d, n in enumerate(slot.shape) if n > 1 and n % 2 == 0]
    if not read or on.op.domain.get(slot.name.partition(".")[0], "positive") not in NUMBERS:
        return [Replicate(), *shards]
    logical = array.dtype == np.bool_
    kinds = [k for k in kinds_of(on.bound) if (k in ("any", "all")) == logical]
    return [Replicate(), *shards, *map(Partial, kinds)]


def implied_cuts(bound: BoundRule, operands: Sequence[Placement | None]) -> list[tuple[str, int]]:
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
        local = execute(on, bound, [operands], [implied_cuts(bound, operands)], (size,), seed)
    except (ValueError, IndexError, TypeError, KeyError, ArithmeticError):
        return []
    found: list[list[Placement]] = []
    for index, (slot, whole) in enumerate(zip(bound.results, on.whole, strict=True)):
        mine = {c: results[index] for c, results in local.items()}
        shards: list[Placement] = [Shard(d) for d, n in enumerate(slot.shape) if n > 1 and n % size == 0]
        kinds = kinds_of(bound) if whole.any() else []  # Zeros are a sum, and a mean, of zeros.
        tried = [Replicate(), *shards, *map(Partial, kinds)]
        parts = parts_of(slot, bound)
        found.append([p for p in tried if not agree(assemble(mine, (p,), parts, (size,), whole), whole)])
        if not found[-1]:
            return []
    return found


def _implied(on: Subject, operands: Sequence[Placement | None], results: Sequence[Placement]) -> bool:
    """Tell whether a combination follows from the rows, where an operand whose values are not read may lie anyhow.

    Each grad of a grad op is a function of its own. Where every one of them follows from some row by itself, the
    combination mixes rows; one op takes one row, so it is not called missing.
    """
    if any(_follows(operands, results, row, on.read) for row in on.bound.rows):
        return True
    if on.op.forward is None:
        return False
    return all(
        any(_follows(operands, [result], replace(row, results=(row.results[i],)), read) for row in on.bound.rows)
        for i, (result, read) in enumerate(zip(results, on.reading, strict=True))
    )


def _kept(placements: Sequence[Placement | None], read: Sequence[bool]) -> tuple[Placement | None, ...]:
    return tuple(itertools.compress(placements, read))


def _follows(
    operands: Sequence[Placement | None], results: Sequence[Placement], row: Row, read: Sequence[bool]
) -> bool:
    """Tell whether a combination is a row but for what is free: R read as P(max), and the like."""

    def free(as_asked: Placement | None, stronger: Placement | None) -> bool:
        return as_asked == stronger or (
            isinstance(stronger, Replicate) and isinstance(as_asked, Partial) and as_asked.kind in IDEMPOTENT
        )

    given, taken = _kept(operands, read), _kept(row.operands, read)
    return all(free(row_p, p) for p, row_p in zip(given, taken, strict=True)) and all(
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
        results = run(forward, forward.bound, {(): arrays}, {(): ()}, {})[()]
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
    tried: int = field(default=0, compare=False)
    """Placements of the operands that were run, those of the grad op too."""
    held: int = field(default=0, compare=False)
    """Placements of operands and results that hold."""
    left_out: Counter[str] = field(default_factory=Counter, compare=False)
    """Reason -> the rows that hold and are left out for it."""


def check(case: Case) -> Verdict:
    """Hold every row of a case, and of its grad op, against numeric truth."""
    verdict = Verdict()
    forward, again = subject(case), subject(case, seed=1)
    examine(verdict, forward, again, case.missing)
    if _differentiable(forward):
        grad = backward(forward)
        examine(verdict, grad, backward(again), case.grad_missing)
        verdict.faults += derivative(forward, grad)
    return verdict


def _differentiable(forward: Subject) -> bool:
    """Tell whether the op has a grad, and makes and takes real numbers."""
    grad = forward.op.grad
    if grad is None:
        return False
    of, outs = grad.differentiable(forward.op), grad.receiving(forward.op)
    slots = [*zip(forward.bound.operands, forward.arrays, strict=True)]
    slots += [*zip(forward.bound.results, forward.whole, strict=True)]
    return all(
        array is None or np.issubdtype(array.dtype, np.floating)
        for slot, array in slots
        if slot is not None and slot.name.partition(".")[0] in (*of, *outs)
    )


def examine(verdict: Verdict, on: Subject, again: Subject, argued: Mapping[str, str]) -> None:
    """Soundness, composition, completeness and dtypes of one op, on two sets of numbers."""
    unsound = list(sound(on))
    verdict.faults += unsound or composed(on)
    verdict.faults += dtypes(on)
    if on.op.forward is not None and not any(result.any() for result in on.whole):
        return  # A grad that is zero everywhere is right however its operands lie.
    verdict.tried += len(_combinations(on))
    for operands, results in holding(on, again):
        verdict.held += 1
        if _implied(on, operands, results):
            continue
        row = row_text(operands, results)
        patterns = [pattern for pattern in argued if fnmatchcase(row, pattern)]
        verdict.argued |= {(on.op.name, pattern) for pattern in patterns}
        verdict.left_out.update(argued[pattern] for pattern in patterns[:1])
        if not patterns:
            verdict.faults.append(
                f"missing row of {on.op.name}: {row} holds: give the rule a clause, or argue it in the case"
            )


def dtypes(on: Subject) -> Iterator[str]:
    """Yield each dtype, of double and of single precision, that the kernel makes and the op does not announce."""
    single = [a.astype(np.float32) if a is not None and a.dtype == np.float64 else a for a in on.arrays]
    for arrays in (on.arrays, single):
        given = {spec.name: None for spec in on.op.operands}
        for slot, array in zip(on.bound.operands, arrays, strict=True):
            if slot is not None and array is not None:
                name = _operand_of(slot.name, given)
                given[name] = [*(given[name] or []), str(array.dtype)] if name != slot.name else str(array.dtype)
        made = run(on, on.bound, {(): arrays}, {(): ()}, {})[()]
        announced = on.op.infer_dtypes(given, on.attrs, len(made))
        if tuple(str(result.dtype) for result in made) != announced:
            yield f"{on.op.name} announces {announced} for {given}, its kernel makes {[str(r.dtype) for r in made]}"


def _operand_of(slot: str, operands: Mapping[str, object]) -> str:
    """Return the operand of a slot: xs for xs.0, xs_grad for xs.0_grad."""
    return slot if slot in operands else next(n for n in operands if n.partition("_grad")[0] == slot.partition(".")[0])
