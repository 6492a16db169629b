"""Rule + shapes + attributes -> the dims, factors and rows of one op."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ops.notation import DimSpec, RuleError, TensorSpec
from ops.placement import Partial, Placement
from ops.rule import Rule

Shape: TypeAlias = tuple[int, ...]
TensorShapes: TypeAlias = Shape | Sequence[Shape] | None
"""The shape of an operand or result, a list of shapes for a variadic one, None for an absent one."""


@dataclass(frozen=True, slots=True)
class Factor:
    """One index of the loop nest of a bound op.

    Parameters
    ----------
    name : str
        The name in the rule; a run ``a*`` becomes ``a0``, ``a1``; broadcast dims become ``batch0``, ``batch1``.
    size : int
    kind : str
        ``pass``, a partial kind, ``whole``, ``halo`` or ``synced``.
    parts : tuple of int
        The parts it may be cut on, major first; their product is the size.
    capability : str or None
        What the runtime must be able to do for it to be cut.
    """

    name: str
    size: int
    kind: str
    parts: tuple[int, ...]
    capability: str | None = None


@dataclass(frozen=True, slots=True)
class BoundTensor:
    """One operand or result of a bound op: per dim its factors, major first; ``()`` for a dim that is never cut."""

    name: str
    shape: Shape
    dims: tuple[tuple[str, ...], ...]

    def dim_of(self, factor: str) -> int | None:
        """Return the dim that holds a factor, or None."""
        return next((dim for dim, names in enumerate(self.dims) if factor in names), None)


@dataclass(frozen=True, slots=True)
class Row:
    """What a rule says for one mesh axis.

    Parameters
    ----------
    operands : tuple
        A placement per operand slot, variadic operands flattened, None for an absent one.
    results : tuple
        A placement per result slot.
    why : str
        The clause that gives the row.
    needs : frozenset of str
        Capabilities without which the row is not offered.
    cut : tuple or None
        The factor and the part of it that the mesh axis cuts.
    """

    operands: tuple[Placement | None, ...]
    results: tuple[Placement, ...]
    why: str
    needs: frozenset[str] = frozenset()
    cut: tuple[str, int] | None = None


@dataclass(frozen=True)
class BoundRule:
    """A rule on given shapes: slots, factors and rows; row 0 replicates everything. A grad op keeps its forward op."""

    rule: Rule
    operands: tuple[BoundTensor | None, ...]
    results: tuple[BoundTensor, ...]
    factors: Mapping[str, Factor]
    rows: tuple[Row, ...] = field(repr=False, default=())
    forward: BoundRule | None = field(repr=False, default=None)

    @property
    def terms(self) -> tuple[frozenset[str], ...]:
        """The linear form over present slots: a product is a set of names, a variadic operand one term a slot."""
        present = [slot.name for slot in self.operands if slot is not None]
        variadic = {spec.name for spec in self.rule.signature.operands if spec.variadic}
        terms: list[frozenset[str]] = []
        for term in self.rule.linear:
            if len(term) == 1 and term[0] in variadic:
                terms += [frozenset({name}) for name in present if name.rpartition(".")[0] == term[0]]
            elif all(name in present for name in term):
                terms.append(frozenset(term))
        return tuple(terms)

    def most_blocks(self, factor: Factor) -> int:
        """Return the largest number of equal blocks that a factor can be cut in; halo dims differ between tensors."""
        if factor.kind != "halo":
            return factor.size
        slots = [slot for slot in (*self.operands, *self.results) if slot is not None]
        return math.gcd(*(slot.shape[dim] for slot in slots if (dim := slot.dim_of(factor.name)) is not None))


class Binding:
    """The dims of a rule's tensors, resolved against shapes; operands first, then results.

    Parameters
    ----------
    rule : Rule
    attrs : mapping
        The op's attributes, for dims whose position one fixes.
    """

    def __init__(self, rule: Rule, attrs: Mapping[str, Any]) -> None:
        self.rule = rule
        self.attrs = attrs
        self.sizes: dict[str, int] = dict(rule.sizes)
        self.runs: dict[str, int] = {}
        self.batch: Shape = ()
        self._free = 0

    def operands(self, shapes: Mapping[str, TensorShapes]) -> tuple[BoundTensor | None, ...]:
        """Bind every operand, in rule order, variadic ones flattened."""
        slots = list(_slots(self.rule.signature.operands, shapes, self.rule.text))
        present = [(name, spec, shape) for name, spec, shape in slots if shape is not None]
        self._find_batch(present)
        self._find_runs(present)
        bound = [None if shape is None else self._tensor(name, spec, shape) for name, spec, shape in slots]
        self._check_compounds([tensor for tensor in bound if tensor is not None])
        return tuple(bound)

    def result_shapes(self) -> tuple[Shape, ...]:
        """Read the shapes of the results off the factors of the operands."""
        return tuple(tuple(self._result_dims(spec)) for spec in self.rule.signature.results)

    def results(self, shapes: Mapping[str, TensorShapes]) -> tuple[BoundTensor, ...]:
        """Bind every result."""
        slots = [
            (name, spec, shape)
            for name, spec, shape in _slots(self.rule.signature.results, shapes, self.rule.text)
            if shape is not None
        ]
        self._find_runs(slots)
        bound = tuple(self._tensor(name, spec, shape) for name, spec, shape in slots)
        self._check_compounds(list(bound))
        return bound

    def _find_batch(self, present: Sequence[tuple[str, TensorSpec, Shape]]) -> None:
        dims: list[int] = []
        for name, spec, shape in present:
            index = next((i for i, dim in enumerate(spec.dims) if dim.kind == "batch"), None)
            if index is None:
                continue
            mine = shape[index : len(shape) - (len(spec.dims) - index - 1)]
            dims = [1] * (len(mine) - len(dims)) + dims
            for offset, size in enumerate(reversed(mine), 1):
                if size != 1 and dims[-offset] not in (1, size):
                    raise RuleError(
                        f"batch dims do not broadcast: {name} has {size} where another operand has {dims[-offset]} "
                        f"(rule {self.rule.text!r})"
                    )
                dims[-offset] = max(dims[-offset], size)
        self.batch = tuple(dims)

    def _find_runs(self, present: Sequence[tuple[str, TensorSpec, Shape]]) -> None:
        """Find how many dims each run has: from a position an attribute fixes, or as the only unknown of a tensor."""
        for _ in range(2):
            for name, spec, shape in present:
                self._runs_by_position(name, spec, shape)
                unknown = {dim.names[0] for dim in spec.dims if dim.kind == "run"} - self.runs.keys()
                if len(unknown) == 1 and not any(dim.kind == "batch" for dim in spec.dims):
                    (run,) = unknown
                    others = sum(
                        self.runs[dim.names[0]] if dim.kind == "run" else 1 for dim in spec.dims if dim.names != (run,)
                    )
                    times = sum(dim.names == (run,) for dim in spec.dims)
                    count, left = divmod(len(shape) - others, times)
                    if count < 0 or left:
                        raise self._rank_error(name, spec, shape)
                    self.runs[run] = count
        for name, spec, _ in present:
            for dim in spec.dims:
                if dim.kind == "run" and dim.names[0] not in self.runs:
                    raise RuleError(
                        f"rule {self.rule.text!r} does not say how many dims {dim.names[0]}* has in {name}: "
                        "fix a position with @attribute"
                    )

    def _runs_by_position(self, name: str, spec: TensorSpec, shape: Shape) -> None:
        fixed = next((i for i, dim in enumerate(spec.dims) if dim.at is not None), None)
        if fixed is None:
            return
        attribute = str(spec.dims[fixed].at)
        axis = self.attrs.get(attribute)
        if not isinstance(axis, int) or isinstance(axis, bool) or not -len(shape) <= axis < max(len(shape), 1):
            raise RuleError(
                f"{attribute}={axis!r} names no dim of {name}, which has rank {len(shape)} and shape {shape}"
            )
        axis %= max(len(shape), 1)
        before, after = spec.dims[:fixed], spec.dims[fixed + 1 :]
        self._one_run(before, axis)
        if spec.dims[fixed].kind == "run":
            self.runs.setdefault(spec.dims[fixed].names[0], len(shape) - axis - len(after))
        else:
            self._one_run(after, len(shape) - axis - 1)

    def _one_run(self, dims: Sequence[DimSpec], count: int) -> None:
        runs = [dim for dim in dims if dim.kind == "run"]
        if len(runs) == 1:
            self.runs.setdefault(runs[0].names[0], count - (len(dims) - 1))

    def _expand(self, spec: TensorSpec, rank: int | None) -> Iterator[DimSpec]:
        """Yield one spec per dim: runs as factors a0, a1; batch dims right-aligned as batch0, batch1."""
        for dim in spec.dims:
            if dim.kind == "run":
                yield from (DimSpec("factor", (f"{dim.names[0]}{i}",)) for i in range(self.runs[dim.names[0]]))
            elif dim.kind == "batch":
                others = sum(self.runs[d.names[0]] if d.kind == "run" else 1 for d in spec.dims if d.kind != "batch")
                count = len(self.batch) if rank is None else rank - others
                yield from (DimSpec("batch", (f"batch{i}",)) for i in range(len(self.batch) - count, len(self.batch)))
            else:
                yield dim

    def _tensor(self, name: str, spec: TensorSpec, shape: Shape) -> BoundTensor:
        expanded = list(self._expand(spec, len(shape)))
        if len(expanded) != len(shape) or any(dim.names and dim.names[0].startswith("batch-") for dim in expanded):
            raise self._rank_error(name, spec, shape)
        return BoundTensor(
            name, shape, tuple(self._dim(name, dim, size) for dim, size in zip(expanded, shape, strict=True))
        )

    def _dim(self, name: str, dim: DimSpec, size: int) -> tuple[str, ...]:
        if dim.kind == "batch":
            full = self.batch[int(dim.names[0][5:])]
            if size != full and size == 1:
                return ()
            return self._sized(name, dim.names[0], size)
        if dim.kind == "one":
            if size != 1:
                raise RuleError(f"{name} must have size 1 where rule {self.rule.text!r} writes 1, not {size}")
            return ()
        if dim.kind == "free":
            return ()
        if dim.kind == "factor":
            return self._sized(name, dim.names[0], size)
        return dim.names

    def _sized(self, name: str, factor: str, size: int) -> tuple[str, ...]:
        known = self.sizes.setdefault(factor, size)
        if known != size and self.kind_of(factor) != "halo":
            raise RuleError(
                f"factor {factor!r} of rule {self.rule.text!r} has two sizes, {known} and {size} (at {name})"
            )
        return (factor,)

    def _check_compounds(self, tensors: Sequence[BoundTensor]) -> None:
        for tensor in tensors:
            for names, size in zip(tensor.dims, tensor.shape, strict=True):
                if len(names) < 2:
                    continue
                unknown = [factor for factor in names if factor not in self.sizes]
                known = math.prod(self.sizes[factor] for factor in names if factor in self.sizes)
                if len(unknown) == 1 and size % known == 0:
                    self.sizes[unknown[0]] = size // known
                elif unknown or known != size:
                    raise RuleError(
                        f"({' '.join(names)}) of {tensor.name} in rule {self.rule.text!r} does not make {size} "
                        f"out of {self.sizes}"
                    )

    def _result_dims(self, spec: TensorSpec) -> Iterator[int]:
        if spec.variadic:
            raise RuleError(f"rule {self.rule.text!r} does not give the shapes of *{spec.name}: the op needs shape=")
        for dim in self._expand(spec, None):
            if dim.kind == "one":
                yield 1
            elif dim.kind == "batch":
                yield self.batch[int(dim.names[0][5:])]
            elif dim.kind == "free" or any(
                factor not in self.sizes or self.kind_of(factor) == "halo" for factor in dim.names
            ):
                raise RuleError(f"rule {self.rule.text!r} does not give the shape of {spec.name}: the op needs shape=")
            else:
                yield math.prod(self.sizes[factor] for factor in dim.names)

    def kind_of(self, factor: str) -> str:
        """Return the kind of a bound factor; the dims of a run share the kind of the run."""
        return self._declared(factor, self.rule.kinds, "pass")

    def _declared(self, factor: str, table: Mapping[str, str], default: str) -> str:
        if factor in table:
            return table[factor]
        run = factor.rstrip("0123456789")
        return table[run] if run != factor and run in self.runs and run in table else default

    def factors(self, factor_parts: Mapping[str, tuple[int, ...]]) -> dict[str, Factor]:
        """Return the factors of all tensors bound so far, in order of appearance."""
        made: dict[str, Factor] = {}
        for name, size in self.sizes.items():
            kind = self.kind_of(name)
            capability = self._declared(name, self.rule.needs, "") or None
            run = name.rstrip("0123456789")
            positional = (
                kind == "halo"
                or capability is not None
                or name in self.rule.major
                or (run in self.runs and run in self.rule.major)
            )
            given = factor_parts.get(name, (size,))
            parts = (size,) if positional and given else given
            made[name] = Factor(name, size, kind, parts, capability)
        return made

    def _rank_error(self, name: str, spec: TensorSpec, shape: Shape) -> RuleError:
        written = " ".join(_dim_text(dim) for dim in spec.dims)
        return RuleError(
            f"{name} has rank {len(shape)} and shape {shape}, "
            f"which does not fit {spec.name}[{written}] of rule {self.rule.text!r}"
        )


def _dim_text(dim: DimSpec) -> str:
    body = {
        "batch": "...",
        "free": "_",
        "one": "1",
        "run": f"{dim.names[0]}*" if dim.names else "",
        "compound": f"({' '.join(dim.names)})",
    }
    return body.get(dim.kind, " ".join(dim.names)) + (f"@{dim.at}" if dim.at else "")


def _slots(
    specs: Sequence[TensorSpec], shapes: Mapping[str, TensorShapes], text: str
) -> Iterator[tuple[str, TensorSpec, Shape | None]]:
    for spec in specs:
        given = shapes.get(spec.name) if "." not in spec.name else _one_slot(spec.name, shapes)
        if given is None:
            if not spec.optional:
                raise RuleError(f"{spec.name} is missing: rule {text!r} needs it")
            yield spec.name, spec, None
        elif spec.variadic:
            if not given or not all(isinstance(shape, tuple) for shape in given):
                raise RuleError(f"{spec.name} takes a non-empty list of tensors (rule {text!r}), not {given!r}")
            yield from ((f"{spec.name}.{i}", spec, shape) for i, shape in enumerate(given) if isinstance(shape, tuple))
        else:
            yield spec.name, spec, tuple(size for size in given if isinstance(size, int))


def _one_slot(name: str, shapes: Mapping[str, TensorShapes]) -> Shape | None:
    """Return the shape of ``xs.1``, a slot of a variadic operand that the rule writes by itself."""
    base, _, index = name.rpartition(".")
    listed = shapes.get(base) or ()
    shape = listed[int(index)] if int(index) < len(listed) else None
    return shape if isinstance(shape, tuple) else None


def composes(bound: BoundRule, rows: Sequence[Row], sizes: Sequence[int]) -> bool:
    """Tell whether one row per mesh axis may be taken together (laws 7 and 8).

    Parameters
    ----------
    bound : BoundRule
    rows : sequence of Row
        One per mesh axis.
    sizes : sequence of int
        The sizes of the mesh axes.

    Returns
    -------
    bool
        Each factor part is divisible by the mesh axes that cut it (along a halo factor each tensor is), and no tensor
        carries two partial kinds (sum and avg may mix).
    """
    cuts: dict[str, dict[int, int]] = {}
    for row, size in zip(rows, sizes, strict=True):
        if row.cut is not None:
            factor, part = row.cut
            group = cuts.setdefault(factor, {})
            group[part] = group.get(part, 1) * size
    for factor, group in cuts.items():
        parts = bound.factors[factor].parts
        starts = sorted(group)
        for start, end in zip(starts, [*starts[1:], len(parts)], strict=True):
            if math.prod(parts[start:end]) % group[start]:
                return False
        if bound.most_blocks(bound.factors[factor]) % math.prod(group.values()):
            return False
    placed = [row.operands + row.results for row in rows]
    return all(one_kind(column) for column in zip(*placed, strict=True))


def one_kind(placements: Sequence[Placement | None]) -> bool:
    """Tell whether the placements of one tensor carry one partial kind (sum and avg count as one)."""
    kinds = {
        "sum" if placement.kind == "avg" else placement.kind
        for placement in placements
        if isinstance(placement, Partial)
    }
    return len(kinds) <= 1
