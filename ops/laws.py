"""The laws that turn the clauses of a bound rule into rows for one mesh axis."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ops.bind import BoundRule, BoundTensor, Factor, Row
from ops.placement import PARTIAL_KINDS, Partial, Placement, Replicate, Shard
from ops.rule import Terms

REPLICATE = Replicate()


def forward_rows(bound: BoundRule) -> tuple[Row, ...]:
    """Return the rows of a bound forward rule, the replicated one first, each placement once.

    Parameters
    ----------
    bound : BoundRule
        Its ``rows`` are not read.

    Returns
    -------
    tuple of Row
    """
    cut = list(_factor_rows(bound))
    whole = [
        replicate_row(bound),
        *(row for row in cut if row.cut and bound.factors[row.cut[0]].kind in ("pass", "synced")),
    ]
    formed = (row for base in whole for row in form_rows(bound, bound.rule.forms, base))
    return distinct([whole[0], *cut, *linear_rows(bound), *formed, *_monotone_rows(bound)])


def distinct(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Keep the first of rows that place everything alike and need the same."""
    seen: dict[tuple[object, ...], Row] = {}
    for row in rows:
        seen.setdefault((row.operands, row.results, row.needs), row)
    return tuple(seen.values())


def replicate_row(bound: BoundRule) -> Row:
    """Return the row in which every device does everything."""
    return Row(
        tuple(None if slot is None else REPLICATE for slot in bound.operands),
        (REPLICATE,) * len(bound.results),
        "replicate",
    )


def cuts(bound: BoundRule) -> Iterator[tuple[Factor, int]]:
    """Yield each factor that may be cut on one mesh axis, with each part of it."""
    for factor in bound.factors.values():
        if factor.kind != "whole" and bound.most_blocks(factor) > 1:
            yield from ((factor, part) for part in range(len(factor.parts)))


def place(tensor: BoundTensor, factor: Factor, part: int, bound: BoundRule) -> Placement | None:
    """Place a tensor where a part of a factor is cut: S on the dim that holds it, else R.

    Returns
    -------
    Placement or None
        None where two dims hold the factor: no single cut does that.
    """
    holding = [dim for dim, names in enumerate(tensor.dims) if factor.name in names]
    if len(holding) > 1:
        return None
    if not holding:
        return REPLICATE
    names = tensor.dims[holding[0]]
    before = sum(len(bound.factors[name].parts) for name in names[: names.index(factor.name)])
    return Shard(holding[0], before + part)


def cut_label(factor: Factor, part: int) -> str:
    """Name a cut for the ``why`` of a row."""
    return factor.name if len(factor.parts) == 1 else f"{factor.name} part {part}"


def _factor_rows(bound: BoundRule) -> Iterator[Row]:
    for factor, part in cuts(bound):
        operands = [None if slot is None else place(slot, factor, part, bound) for slot in bound.operands]
        results = [place(slot, factor, part, bound) for slot in bound.results]
        absent = [slot is None for slot in bound.operands]
        if any(p is None and not missing for p, missing in zip(operands, absent, strict=True)) or None in results:
            continue
        needs = frozenset({factor.capability} if factor.capability else ())
        label = cut_label(factor, part)
        reduces = factor.kind in PARTIAL_KINDS
        made = tuple(Partial(factor.kind) if reduces and p == REPLICATE else p for p in results if p is not None)
        why = (
            f"{factor.kind} over {label}"
            if reduces
            else f"cut {label}"
            if factor.kind == "pass"
            else f"cut {label} ({factor.kind})"
        )
        if factor.kind == "sum" and bound.terms:
            for partial in _sum_choices(bound, factor):
                mixed = (
                    Partial("sum") if slot is not None and slot.name in partial else p
                    for slot, p in zip(bound.operands, operands, strict=True)
                )
                yield Row(
                    tuple(mixed),
                    made,
                    why + "".join(f", {name} partial" for name in sorted(partial)),
                    needs,
                    (factor.name, part),
                )
        else:
            yield Row(tuple(operands), made, why, needs, (factor.name, part))


def _sum_choices(bound: BoundRule, factor: Factor) -> Iterator[frozenset[str]]:
    """Yield the operands to be P(sum) so that each term carries the partial exactly once (law 4)."""
    holding = {slot.name for slot in bound.operands if slot is not None and slot.dim_of(factor.name) is not None}
    free = [sorted(term) for term in bound.terms if not term & holding]
    for choice in itertools.product(*free):
        partial = frozenset(choice)
        if not partial & holding and all(len(term & partial) == (not term & holding) for term in bound.terms):
            yield partial


def linear_rows(bound: BoundRule) -> Iterator[Row]:
    """Yield the rows in which P(sum) or P(avg) passes through the linear form (law 4)."""
    if not bound.terms:
        return
    for choice in itertools.product(*map(sorted, bound.terms)):
        partial = frozenset(choice)
        if all(len(term & partial) == 1 for term in bound.terms):
            yield through(bound, partial, "sum")
    for averaged in _averaged_sets(bound.terms):
        yield through(bound, averaged, "avg")


_AVERAGED_TERMS = 6
"""Above this many terms P(avg) passes through all operands of a sum or through one of them, not every subset."""


def _averaged_sets(terms: Sequence[frozenset[str]]) -> Iterator[frozenset[str]]:
    """Yield the sets of operands that may be P(avg) together: at most once a term, at least once in all."""
    if len(terms) <= _AVERAGED_TERMS:
        choices: Iterable[tuple[str | None, ...]] = itertools.product(*([None, *sorted(term)] for term in terms))
    else:
        every = [sorted(term)[0] for term in terms if term]
        choices = [tuple(every), *((name,) for name in every)]
    for choice in choices:
        averaged = frozenset(name for name in choice if name is not None)
        if averaged and all(len(term & averaged) <= 1 for term in terms):
            yield averaged


def through(bound: BoundRule, names: frozenset[str], kind: str, made: str | None = None) -> Row:
    """Return the row in which the named operands and all results are partial and the other operands replicated."""
    operands = tuple(
        None if slot is None else Partial(kind) if slot.name in names else REPLICATE for slot in bound.operands
    )
    return Row(
        operands, (Partial(made or kind),) * len(bound.results), f"P({kind}) passes through {', '.join(sorted(names))}"
    )


_MIXED_OPERANDS = 4
"""Above this many operands in forms of the results one of them is partial at a time."""


def form_rows(bound: BoundRule, forms: Mapping[str, Terms], base: Row) -> Iterator[Row]:
    """Yield the rows in which partials pass through the forms of results, each by itself (law 6).

    Parameters
    ----------
    bound : BoundRule
    forms : mapping
        Result -> its linear form. A result does not depend on the operands that others name and it does not, and what a
        kernel reduces inside depends on none of them.
    base : Row
        What the mesh axis does beside: only what it leaves replicated may be partial.
    """
    placed = {
        slot.name: p
        for slot, p in zip(bound.operands, base.operands, strict=True)
        if slot is not None and p is not None
    }
    present = {result: [term for term in form if placed.keys() >= set(term)] for result, form in forms.items()}
    named = {name for form in present.values() for term in form for name in term}
    free = [name for name, placement in placed.items() if name in named and placement == REPLICATE]
    for partial in partial_choices(free, _MIXED_OPERANDS):
        found = [
            carried([[partial[name] for name in term if name in partial] for term in present.get(slot.name, [])])
            for slot in bound.results
        ]
        if any(p is None or REPLICATE not in (p, before) for p, before in zip(found, base.results, strict=True)):
            continue
        passed = ", ".join(f"P({kind}) of {name}" for name, kind in partial.items())
        yield Row(
            tuple(
                Partial(partial[slot.name]) if slot is not None and slot.name in partial else p
                for slot, p in zip(bound.operands, base.operands, strict=True)
            ),
            tuple(before if p in (None, REPLICATE) else p for p, before in zip(found, base.results, strict=True)),
            f"{passed} passes through" if base.cut is None else f"{base.why}, {passed} passes through",
            base.needs,
            base.cut,
        )


def partial_choices(names: Sequence[str], most: int) -> list[dict[str, str]]:
    """List which of some operands are partial and of what kind, one at a time where they are more than `most`."""
    if len(names) > most:
        return [{name: kind} for name in names for kind in ("sum", "avg")]
    choices = itertools.product(("", "sum", "avg"), repeat=len(names))
    made = [{name: kind for name, kind in zip(names, kinds, strict=True) if kind} for kinds in choices]
    return [choice for choice in made if choice]


def carried(found: Sequence[Sequence[str]]) -> Placement | None:
    """Place a sum of products, by the kinds of the partial factors of each product; None where no kind is right."""
    kinds = {kind for one in found for kind in one}
    if not kinds:
        return REPLICATE
    if max(map(len, found)) > 1:
        return None
    if kinds == {"avg"}:
        return Partial("avg")
    return Partial("sum") if kinds == {"sum"} and all(found) else None


def _monotone_rows(bound: BoundRule) -> Iterator[Row]:
    """Yield the rows in which an order passes through one operand (law 5)."""
    swap = {"max": "min", "min": "max", "any": "all", "all": "any"}
    own = {factor.kind for factor in bound.factors.values() if factor.kind in swap}
    if len(own) > 1:
        return
    for names, antitone in ((bound.rule.monotone, False), (bound.rule.antitone, True)):
        for slot in bound.operands:
            if slot is not None and not {slot.name, slot.name.partition(".")[0]}.isdisjoint(names):
                for kind in sorted(own) or ("max", "min"):
                    yield through(bound, frozenset({slot.name}), kind, swap[kind] if antitone else kind)
