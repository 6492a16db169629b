"""One op: what is legal, what it computes, what it costs."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from ops.attributes import check_attribute, stated_types, type_of
from ops.bind import Binding, BoundRule, BoundTensor, Shape, TensorShapes
from ops.given import checked_shapes
from ops.grad import Grad, grad_rows
from ops.laws import forward_rows
from ops.notation import RuleError, TensorSpec
from ops.rule import Rule

REQUIRED: Any = type("Required", (), {"__repr__": lambda self: "REQUIRED"})()
"""The default of an attribute that must be given."""

Attrs = Mapping[str, Any]
Shapes = Mapping[str, TensorShapes]
Dtypes = Mapping[str, Any]
"""Operand -> dtype, a list of dtypes for a variadic one, None for an absent one; empty where unknown."""
_NO_DTYPES: Dtypes = MappingProxyType({})
_NO_PARTS: Mapping[str, tuple[int, ...]] = MappingProxyType({})
Kernel = Callable[..., Any]
Range = tuple[int, int]
"""Indices of a dim, from the first one to the end."""
_SLIPS = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError)
"""What Python raises where a function of an op meets a value that it did not reckon with."""


class LocalContext(Protocol):
    """What an op may ask about the device it runs on (see `Op.local`)."""

    @property
    def operands(self) -> Shapes:
        """Local shapes of the operands."""

    @property
    def results(self) -> Shapes:
        """Local shapes of the results."""

    @property
    def whole(self) -> Shapes:
        """Shapes of the whole operands and results."""

    def block(self, factor: str) -> int:
        """Return which of the blocks the factor is cut in this device holds."""

    def start(self, factor: str) -> int:
        """Return the index, in the whole factor, of the first element this device holds."""

    def count(self, factor: str) -> int:
        """Return the number of blocks the factor is cut in."""

    def spans(self, factor: str) -> tuple[tuple[int, int, int], ...]:
        """Return which elements of the factor this device holds, as digits (first, count, whole) of their index."""


@dataclass(frozen=True)
class Op:
    """One op: what is legal, what it computes, what it costs.

    Parameters
    ----------
    name : str
        As in PaddlePaddle's public functions; a grad op is ``NAME_grad``.
    rule_for : callable
        ``(shapes, attrs, dtypes) -> Rule``.
    operands, results : tuple of TensorSpec
        Names and order; the dims are those of the rule on given shapes.
    kernel : callable
        numpy: ``kernel(*operands, **attrs)`` on the local arrays of one device.
    attrs : mapping
        Attribute -> default; `REQUIRED` for one that must be given.
    view : bool
        Renames memory and costs nothing.
    domain : mapping
        Operand -> the factor whose indices it holds, or the numbers it takes: ``positive``, or ``unit`` for those
        between 0 and 1.
    local : callable or None
        ``(attrs, LocalContext) -> attrs`` of the op on one device.
    reach : callable or None
        ``(whole shapes, attrs, factor, block, count) -> {operand: (first, end)}``: the indices of operands that one of
        the blocks of a halo factor works on (see `ops.halo`).
    reduces : callable or None
        ``(local shapes, attrs) -> shapes`` of the arrays that the kernel hands over to be reduced, in order; shapes by
        forward operand and result.
    forward : Op or None
        For a grad op, the op it differentiates.
    made_by : callable or None
        The function of a family, whose parameters state the types of attributes.
    """

    name: str
    rule_for: Callable[[Shapes, Attrs, Dtypes], Rule]
    operands: tuple[TensorSpec, ...]
    results: tuple[TensorSpec, ...]
    kernel: Kernel
    attrs: Attrs
    shape: Callable[[Shapes, Attrs], Sequence[Any]] | None = None
    dtype: Any = "first"
    view: bool = False
    flops_of: Callable[[Shapes, Attrs], int] | None = None
    local: Callable[[Attrs, LocalContext], Attrs] | None = None
    reach: Callable[[Shapes, Attrs, str, int, int], Mapping[str, Range]] | None = None
    reduces: Callable[[Shapes, Attrs], Sequence[Shape]] | None = None
    domain: Mapping[str, str] = field(default_factory=dict)
    grad: Grad | None = None
    forward: Op | None = None
    made_by: Callable[..., Rule] | None = None

    @cached_property
    def attribute_types(self) -> Mapping[str, Any]:
        """What each attribute may be, as the family states it, the kernel, or the default."""
        if self.forward is not None:
            return self.forward.attribute_types
        stated = {} if self.made_by is None else stated_types(self.made_by)
        kernel = stated_types(self.kernel)
        return {name: stated.get(name, kernel.get(name, type_of(default))) for name, default in self.attrs.items()}

    def full_attrs(self, attrs: Attrs) -> dict[str, Any]:
        """Add defaults and refuse attributes that the op does not take.

        Raises
        ------
        RuleError
            For an unknown attribute, for one that is not of its type, and for a required one that is missing.
        """
        if not isinstance(attrs, Mapping):
            raise RuleError(f"the attributes of {self.name} are {attrs!r}: give a mapping of names to values")
        for name in attrs:
            if name not in self.attrs:
                near = difflib.get_close_matches(str(name), self.attrs, 1)
                raise RuleError(
                    f"{self.name} has no attribute {name!r}"
                    + (f"; did you mean {near[0]!r}?" if near else f": it takes {', '.join(self.attrs) or 'none'}")
                )
            check_attribute(name, attrs[name], self.attribute_types.get(name, Any))
        full = {**self.attrs, **attrs}
        for name, value in full.items():
            if value is REQUIRED:
                raise RuleError(f"{self.name} needs the attribute {name!r}")
        return full

    def bind(
        self,
        shapes: Shapes,
        attrs: Attrs,
        factor_parts: Mapping[str, tuple[int, ...]] = _NO_PARTS,
        dtypes: Dtypes = _NO_DTYPES,
    ) -> BoundRule:
        """Bind the rule to the shapes of the operands.

        Parameters
        ----------
        shapes : mapping
            Operand name -> shape, list of shapes (variadic), or None (absent).
        attrs : mapping
        factor_parts : mapping, optional
            Factor -> the parts it may be cut on; a factor not named has one part.
        dtypes : mapping, optional
            Operand name -> dtype, for the few rules that depend on it.

        Returns
        -------
        BoundRule

        Raises
        ------
        RuleError
            Where shapes or attributes do not fit.
        """
        full = self.full_attrs(attrs)
        given = checked_shapes(self.name, self.operands, shapes)
        try:
            if self.forward is not None and self.forward.grad is not None:
                return self._bind_grad(self.forward, self.forward.grad, given, full, factor_parts, dtypes)
            bound = self._bind_forward(given, full, factor_parts, dtypes)
            return replace(bound, rows=forward_rows(bound))
        except RuleError:
            raise
        except _SLIPS as error:
            told = ", ".join(f"{name} {shape}" for name, shape in given.items()) or "no operands"
            raise RuleError(f"{self.name} with {_written(attrs)} does not fit {told}: {error}") from error

    def _bind_forward(
        self, shapes: Shapes, full: Attrs, factor_parts: Mapping[str, tuple[int, ...]], dtypes: Dtypes
    ) -> BoundRule:
        made = self.rule_for(shapes, full, dtypes)
        binding = Binding(made, full)
        operands = binding.operands(shapes)
        given = self.shape(shapes, full) if self.shape else binding.result_shapes()
        results = binding.results(dict(zip((spec.name for spec in self.results), given, strict=True)))
        for slot in results:
            if min(slot.shape, default=0) < 0:
                raise RuleError(f"{self.name} with {_written(full)} makes {slot.name} of shape {slot.shape}")
        return BoundRule(made, operands, results, binding.factors(factor_parts))

    def _bind_grad(
        self,
        forward: Op,
        grad: Grad,
        shapes: Shapes,
        full: Attrs,
        factor_parts: Mapping[str, tuple[int, ...]],
        dtypes: Dtypes,
    ) -> BoundRule:
        whole = (
            dict(full["forward_shapes"])
            if full["forward_shapes"]
            else {spec.name: shapes.get(spec.name) for spec in forward.operands}
        )
        own = {name: value for name, value in full.items() if name != "forward_shapes"}
        bound = forward._bind_forward(whole, own, factor_parts, dtypes)
        slots = {slot.name: slot for slot in (*bound.operands, *bound.results) if slot is not None}
        operands = tuple(
            None if slot is None else replace(slots[_forward_name(slot_name)], name=slot_name)
            for slot_name, slot in _present(self.operands, shapes, slots)
        )
        results = tuple(
            replace(slot, name=f"{slot.name}_grad")
            for slot in bound.operands
            if slot is not None and slot.name.split(".")[0] in grad.differentiable(forward)
        )
        for slot, (name, shape) in zip(operands, _flat_shapes(self.operands, shapes), strict=True):
            if slot is not None and shape is not None and slot.shape != shape:
                raise RuleError(f"{name} of {self.name} has shape {shape}, but the forward op makes it {slot.shape}")
        made = replace(bound, operands=operands, results=results, forward=bound)
        return replace(made, rows=grad_rows(bound, made, grad, own))

    def infer_shapes(self, shapes: Shapes, attrs: Attrs) -> tuple[Shape, ...]:
        """Return the shapes of the results, variadic ones flattened."""
        return tuple(slot.shape for slot in self.bind(shapes, attrs).results)

    def infer_dtypes(self, dtypes: Mapping[str, Any], attrs: Attrs, count: int) -> tuple[str, ...]:
        """Return the dtypes of the results.

        Parameters
        ----------
        dtypes : mapping
            Operand name -> dtype, list of dtypes, or None.
        attrs : mapping
        count : int
            The number of result slots.

        Raises
        ------
        RuleError
            Where dtypes or attributes do not fit.
        """
        full = self.full_attrs(attrs)
        try:
            given = self.dtype(dtypes, full) if callable(self.dtype) else self.dtype
            listed = (given,) * count if isinstance(given, str) else tuple(given)
            return tuple(_first_dtype(dtypes) if name == "first" else name for name in listed)
        except RuleError:
            raise
        except _SLIPS as error:
            told = ", ".join(f"{name} {dtype}" for name, dtype in dtypes.items()) or "no operands"
            raise RuleError(f"{self.name} with {_written(attrs)} does not fit {told}: {error}") from error

    def flops(self, bound: BoundRule, attrs: Attrs) -> int:
        """Return the floating-point operations of the whole op.

        Where the op does not say it: the volume of its factors, twice that for products that are summed, and backward
        as much for the gradient of each operand of the product.
        """
        if self.flops_of is not None:
            return self.flops_of(
                {slot.name: slot.shape for slot in (*bound.operands, *bound.results) if slot is not None},
                self.full_attrs(attrs),
            )
        volume = math.prod(factor.size for factor in bound.factors.values())
        multiplies = any(len(term) > 1 for term in bound.terms) and any(
            factor.kind == "sum" for factor in bound.factors.values()
        )
        if not multiplies:
            return volume
        if self.forward is None:
            return 2 * volume
        multiplied = {name for term in bound.terms if len(term) > 1 for name in term}
        return 2 * volume * sum(slot.name.removesuffix("_grad") in multiplied for slot in bound.results)


def _written(attrs: Attrs) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in attrs.items()) or "its default attributes"


def _forward_name(name: str) -> str:
    return name.removesuffix("_grad")


def _flat_shapes(specs: Sequence[TensorSpec], shapes: Shapes) -> Iterator[tuple[str, Shape | None]]:
    for spec in specs:
        given = shapes.get(spec.name)
        if given is not None and spec.variadic:
            base = _forward_name(spec.name)
            suffix = spec.name[len(base) :]
            yield from ((f"{base}.{i}{suffix}", shape) for i, shape in enumerate(given) if isinstance(shape, tuple))
        else:
            yield spec.name, None if given is None else tuple(size for size in given if isinstance(size, int))


def _present(
    specs: Sequence[TensorSpec], shapes: Shapes, slots: Mapping[str, BoundTensor]
) -> Iterator[tuple[str, BoundTensor | None]]:
    for name, shape in _flat_shapes(specs, shapes):
        yield name, None if shape is None else slots.get(_forward_name(name))


def _first_dtype(dtypes: Mapping[str, Any]) -> str:
    flat = [d for given in dtypes.values() if given is not None for d in ([given] if isinstance(given, str) else given)]
    if not flat:
        return "float32"
    floating = [d for d in flat if d.startswith(("float", "bfloat"))]
    return promote(floating) if floating else str(flat[0])


def promote(dtypes: Sequence[str]) -> str:
    """Return the dtype that floating operands meet in; bfloat16 and float16 meet in float32.

    Examples
    --------
    >>> promote(["float16", "float64"]), promote(["bfloat16", "bfloat16"])
    ('float64', 'bfloat16')
    """
    kinds = set(dtypes)
    if len(kinds) == 1:
        return str(dtypes[0])
    known = [np.dtype("float32" if dtype.startswith(("bfloat16", "float8")) else dtype) for dtype in kinds]
    widest = str(np.result_type(*known))
    return "float32" if widest == "float16" else widest
