"""Forward rule -> rows of its grad: the linear form is differentiated, the other factors declare their backward."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from ops.bind import BoundRule, BoundTensor, Factor, Row, Shape
from ops.laws import (
    REPLICATE,
    carried,
    cut_label,
    distinct,
    form_rows,
    partial_choices,
    place,
    replicate_row,
)
from ops.placement import Partial, Placement
from ops.rule import read_terms

if TYPE_CHECKING:
    from ops.op import Op


Linear: TypeAlias = Mapping[str, str] | Callable[[Mapping[str, Any]], Mapping[str, str]] | None
"""Operand -> the linear form of its grad in the reads, or a function of the attributes that returns it."""


@dataclass(frozen=True, slots=True)
class Grad:
    """How an op is differentiated.

    Parameters
    ----------
    kernel : callable
        ``kernel(*reads, *out_grads, **attrs)`` -> the grads, in operand order; with ``shapes=True`` it also gets
        ``shapes``, the local shapes of all forward operands by name.
    reads : str or None
        Forward operands and results that it reads, space separated; by default every operand.
    of : str or None
        The differentiable operands; by default all of them.
    outs : str or None
        The differentiable results; by default all of them.
    cuts : str
        Factors that may be cut backward although their forward kind (max, min, whole, avg, synced, halo) says nothing
        about it.
    whole : str
        Factors that may not be cut backward although they may be forward.
    linear : mapping, callable or None
        Operand -> the form in the reads that its grad is linear in, as ``{"x": "scale"}``, where that does not follow
        from the form of the forward op; or a function of the attributes that returns it. The grads of the other
        operands do not depend on the reads that are named.
    needs : mapping or None
        Factor -> the capability that cutting it backward needs, where that is not what it needs forward: a kernel that
        reduces inside may have a backward that does not. A factor that is not named needs nothing.
    shapes : bool
        Whether the kernel takes ``shapes``.
    flops : callable or None
        ``(shapes, attrs) -> int`` where the volume of the factors does not say it; shapes by operand and result.
    reduces : callable or None
        The arrays that the kernel hands over to be reduced, as for `ops.op.Op`.
    """

    kernel: Callable[..., Any]
    reads: str | None = None
    of: str | None = None
    outs: str | None = None
    cuts: str = ""
    whole: str = ""
    linear: Linear = None
    needs: Mapping[str, str] | None = None
    shapes: bool = False
    flops: Callable[..., int] | None = None
    reduces: Callable[..., Sequence[Shape]] | None = None

    def differentiable(self, forward: Op) -> list[str]:
        """Return the operands that get a grad."""
        names = [spec.name for spec in forward.operands]
        return names if self.of is None else [name for name in names if name in self.of.split()]

    def receiving(self, forward: Op) -> list[str]:
        """Return the results whose grads come in."""
        names = [spec.name for spec in forward.results]
        return names if self.outs is None else [name for name in names if name in self.outs.split()]

    def reading(self, forward: Op) -> list[str]:
        """Return the forward operands and results that the grad op reads."""
        names = [spec.name for spec in forward.operands + forward.results]
        wanted = [spec.name for spec in forward.operands] if self.reads is None else self.reads.split()
        return [name for name in names if name in wanted]


def grad_rows(forward: BoundRule, grad_bound: BoundRule, grad: Grad, attrs: Mapping[str, Any]) -> tuple[Row, ...]:
    """Derive the rows of a grad op.

    Parameters
    ----------
    forward : BoundRule
        The forward op on the same shapes.
    grad_bound : BoundRule
        The slots of the grad op: reads and out_grads as operands, operand grads as results.
    grad : Grad
    attrs : mapping
        The attributes of the forward op.

    Returns
    -------
    tuple of Row

    Notes
    -----
    A factor that may be cut forward may be cut backward: tensors that hold it are S, and a grad that lacks it is
    P(sum), because a broadcast transposes to a sum. A contracted factor follows the derivative of the linear form. The
    grads are jointly linear in the out_grads, so P(sum) and P(avg) pass through all of them at once.
    """
    whole = replicate_row(grad_bound)
    linear = (grad.linear(attrs) if callable(grad.linear) else grad.linear) or {}
    forms = {f"{operand}_grad": read_terms(form) for operand, form in linear.items()}
    return distinct(
        [
            whole,
            *_factor_rows(forward, grad_bound, grad),
            *_linear_rows(forward, grad_bound),
            *form_rows(grad_bound, forms, whole),
        ]
    )


def _listed(names: str) -> set[str]:
    return {name.rstrip("*") for name in names.split()}


def _is_listed(factor: str, names: str) -> bool:
    return factor in _listed(names) or (factor.rstrip("0123456789") in _listed(names))


def _factor_rows(forward: BoundRule, bound: BoundRule, grad: Grad) -> Iterator[Row]:
    for factor, part in _backward_cuts(forward, grad):
        operands = [None if slot is None else place(slot, factor, part, bound) for slot in bound.operands]
        holding = [
            slot.dim_of(factor.name) is not None
            for slot in bound.operands
            if slot is not None and slot.name.endswith("_grad")
        ]
        results = [
            _grad_placement(slot, factor.name, place(slot, factor, part, bound), forward, holding)
            for slot in bound.results
        ]
        if None in results or any(
            p is None and slot is not None for p, slot in zip(operands, bound.operands, strict=True)
        ):
            continue
        made = tuple(p for p in results if p is not None)
        yield Row(
            tuple(operands),
            made,
            f"backward of {factor.kind} {cut_label(factor, part)}",
            _needs(factor, grad),
            (factor.name, part),
        )


def _needs(factor: Factor, grad: Grad) -> frozenset[str]:
    """Return the capabilities that cutting a factor backward needs."""
    if grad.needs is None:
        return frozenset({factor.capability} if factor.capability else ())
    return frozenset(needed for name, needed in grad.needs.items() if _is_listed(factor.name, name))


def _backward_cuts(forward: BoundRule, grad: Grad) -> Iterator[tuple[Any, int]]:
    for factor in forward.factors.values():
        declared = _is_listed(factor.name, grad.cuts)
        if forward.most_blocks(factor) == 1 or _is_listed(factor.name, grad.whole):
            continue
        if declared or factor.kind in ("pass", "sum"):
            yield from ((factor, part) for part in range(len(factor.parts)))


def _grad_placement(
    slot: BoundTensor, factor: str, placed: Placement | None, forward: BoundRule, in_out_grads: Sequence[bool]
) -> Placement | None:
    """Place the grad of one operand where a factor is cut; None where no single placement is right.

    Of two out_grads of which one holds the factor, the other would be counted on every device.
    """
    if placed is None or placed != REPLICATE:
        return placed
    if any(in_out_grads) and not all(in_out_grads):
        return None
    if any(in_out_grads) or not forward.terms or forward.factors[factor].kind != "sum":
        return Partial("sum")
    holders = {s.name for s in forward.operands if s is not None and s.dim_of(factor) is not None}
    cut = {bool(others & holders) for others in _multiplied_by(slot.name.removesuffix("_grad"), forward)}
    if len(cut) > 1:
        return None
    return Partial("sum") if cut == {True} else REPLICATE


def _multiplied_by(operand: str, forward: BoundRule) -> list[frozenset[str]]:
    """Return what the grad of an operand is made of beside the out_grads: for each term with it the rest of the term.

    An operand in no term may stand in the coefficient of each.
    """
    return [term - {operand} for term in forward.terms if operand in term] or list(forward.terms)


def _linear_rows(forward: BoundRule, bound: BoundRule) -> Iterator[Row]:
    for kind in ("sum", "avg"):
        operands = tuple(
            None if slot is None else Partial(kind) if slot.name.endswith("_grad") else REPLICATE
            for slot in bound.operands
        )
        yield Row(operands, (Partial(kind),) * len(bound.results), f"P({kind}) passes through the out_grads")
    yield from _read_rows(forward, bound)


_MIXED_READS = 3
"""Above this many reads of a linear form one of them is partial at a time."""


def _read_rows(forward: BoundRule, bound: BoundRule) -> Iterator[Row]:
    """Yield the rows in which reads of the linear form are partial and the out_grads replicated."""
    reads = [
        slot.name
        for slot in bound.operands
        if slot is not None and not slot.name.endswith("_grad") and any(slot.name in term for term in forward.terms)
    ]
    made = {slot.name for slot in forward.results}
    through_others = not any(slot is not None and slot.name in made for slot in bound.operands)
    for partial in partial_choices(reads, _MIXED_READS):
        results = [
            _through(partial, result.name.removesuffix("_grad"), forward, through_others) for result in bound.results
        ]
        if None not in results:
            operands = tuple(
                None if slot is None else Partial(partial[slot.name]) if slot.name in partial else REPLICATE
                for slot in bound.operands
            )
            passed = ", ".join(f"P({kind}) of {name}" for name, kind in partial.items())
            yield Row(operands, tuple(p for p in results if p is not None), f"{passed} passes through")


def _through(partial: Mapping[str, str], operand: str, forward: BoundRule, through_others: bool) -> Placement | None:
    """Place the grad of an operand, the sum of what the terms with it multiply it by; None where no kind is right.

    That the grad of an operand in no term is linear in the form holds for the expression, not for one that reads a
    result of the forward op, which is partial then as well.
    """
    if not through_others and not any(operand in term for term in forward.terms):
        return None
    found = [[partial[name] for name in term if name in partial] for term in _multiplied_by(operand, forward)]
    return carried(found)
