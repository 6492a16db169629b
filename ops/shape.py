"""Ops that rename the dims of one tensor and move nothing."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ops.bind import Shape
from ops.dims import Array, axes_in, axis_in, local_shape, named_dims, shape_of
from ops.given import whole_numbers
from ops.grad import Grad
from ops.notation import RuleError
from ops.op import Attrs, LocalContext, Shapes
from ops.registry import family
from ops.rule import Rule, rule


def regroup(source: Shape, target: Shape) -> Rule:
    """Return the rule of a reshape: both shapes are cut at their common boundaries.

    Parameters
    ----------
    source, target : tuple of int
        Shapes of equal volume.

    Returns
    -------
    Rule
        Dims of size 1 vanish. Where neither of two sizes divides the other, their greatest common divisor is the
        common major factor and the rest stays whole up to the next common boundary.

    Raises
    ------
    RuleError
        Where the volumes differ.

    Examples
    --------
    >>> regroup((8, 6), (2, 4, 6)).text
    'x[(f0 f1) f2] -> out[f0 f1 f2]'
    >>> regroup((4, 6), (6, 4)).text
    'x[(f0 f1) f3] -> out[(f0 f2) f4]'
    """
    if math.prod(source) != math.prod(target):
        raise RuleError(
            f"cannot reshape {source} to {target}: {math.prod(source)} elements are not {math.prod(target)}"
        )
    if math.prod(source) == 0:
        return rule(f"x[{' '.join('_' * len(source))}] -> out[{' '.join('_' * len(target))}]", linear="x")
    cutter = _Regrouping(source, target)
    cutter.run()
    return rule(
        f"x[{_compounds(cutter.left)}] -> out[{_compounds(cutter.right)}]",
        whole=" ".join(cutter.whole),
        linear="x",
        monotone="x",
        sizes=cutter.sizes,
    )


class _Regrouping:
    """Walks over two shapes of equal volume and deals out their common factors."""

    def __init__(self, source: Shape, target: Shape) -> None:
        self.left: list[list[str]] = [[] for _ in source]
        self.right: list[list[str]] = [[] for _ in target]
        self.sizes: dict[str, int] = {}
        self.whole: list[str] = []
        self._names = (f"f{i}" for i in itertools.count())
        self._source = [(size, self.left[dim]) for dim, size in enumerate(source) if size > 1]
        self._target = [(size, self.right[dim]) for dim, size in enumerate(target) if size > 1]

    def run(self) -> None:
        """Deal out every factor."""
        sources, targets = iter(self._source), iter(self._target)
        (a, mine), (b, other) = next(sources, (1, [])), next(targets, (1, []))
        while a > 1 and b > 1:
            common = math.gcd(a, b)
            if common > 1:
                self._add(common, mine, other)
                a, b = a // common, b // common
            if a > 1 and b > 1:
                self._rest(a, mine, sources, b, other, targets)
                a = b = 1
            if a == 1:
                a, mine = next(sources, (1, []))
            if b == 1:
                b, other = next(targets, (1, []))

    def _rest(self, a: int, mine: list[str], sources: Any, b: int, other: list[str], targets: Any) -> None:
        """Keep whole what lies between here and the next common boundary."""
        self.whole += [self._add(a, mine), self._add(b, other)]
        while a != b:
            size, names = next(sources) if a < b else next(targets)
            self.whole.append(self._add(size, names))
            if a < b:
                a *= size
            else:
                b *= size

    def _add(self, size: int, *dims: list[str]) -> str:
        name = next(self._names)
        self.sizes[name] = size
        for names in dims:
            names.append(name)
        return name


def _compounds(dims: Sequence[Sequence[str]]) -> str:
    return " ".join("1" if not names else names[0] if len(names) == 1 else f"({' '.join(names)})" for names in dims)


def _back_to_x(out_grad: Array, *, shapes: Shapes, **_: Any) -> Array:
    return out_grad.reshape(shape_of(shapes, "x"))


_AS_VIEW = Grad(_back_to_x, reads="", shapes=True)


def reshaped(x: Shape, shape: Sequence[int]) -> Shape:
    """Return the shape a reshape gives: 0 keeps the dim of x, -1 takes what is left.

    Raises
    ------
    RuleError
        Where two sizes are unknown or the sizes do not fit.
    """
    shape = whole_numbers(shape, "shape")
    sizes = [x[dim] if size == 0 and dim < len(x) else size for dim, size in enumerate(shape)]
    if any(size < -1 for size in sizes):
        raise RuleError(f"cannot reshape {x} to {shape}: a size is -1, for what is left, or not negative")
    if sizes.count(-1) > 1:
        raise RuleError(f"cannot reshape {x} to {shape}: at most one size may be -1")
    if -1 in sizes:
        known = math.prod(size for size in sizes if size != -1)
        if known == 0 or math.prod(x) % known:
            raise RuleError(f"cannot reshape {x} to {shape}: {known} does not divide {math.prod(x)} elements")
        sizes[sizes.index(-1)] = math.prod(x) // known
    return tuple(sizes)


@family(
    "reshape",
    "x[] -> out[]",
    kernel=lambda x, shape: x.reshape(reshaped(x.shape, shape)),
    view=True,
    local=local_shape,
    grad=_AS_VIEW,
)
def reshape(x: Shape, shape: Sequence[int]) -> Rule:
    """The same elements in another shape."""
    return regroup(x, reshaped(x, shape))


def _flattened(x: Shape, start_axis: int, stop_axis: int) -> Shape:
    if not x:
        return (1,)
    start, stop = axis_in(start_axis, len(x), "start_axis"), axis_in(stop_axis, len(x), "stop_axis")
    if start > stop:
        raise RuleError(
            f"flatten: start_axis={start_axis} comes after stop_axis={stop_axis} in a tensor of rank {len(x)}"
        )
    return (*x[:start], math.prod(x[start : stop + 1]), *x[stop + 1 :])


@family(
    "flatten",
    "x[] -> out[]",
    kernel=lambda x, start_axis, stop_axis: x.reshape(_flattened(x.shape, start_axis, stop_axis)),
    view=True,
    grad=_AS_VIEW,
)
def flatten(x: Shape, start_axis: int = 0, stop_axis: int = -1) -> Rule:
    """Neighbouring dims become one."""
    return regroup(x, _flattened(x, start_axis, stop_axis))


def _squeezed(x: Shape, axis: int | Sequence[int] | None) -> Shape:
    listed = range(len(x)) if axis is None else axes_in(axis, len(x), "axis")
    return tuple(size for dim, size in enumerate(x) if dim not in listed or size != 1)


def _squeeze_rule(x: Shape, axis: int | Sequence[int] | None) -> Rule:
    names = named_dims(len(x))
    listed = range(len(x)) if axis is None else axes_in(axis, len(x), "axis")
    left = ["1" if size == 1 else name for name, size in zip(names, x, strict=True)]
    right = [text for dim, text in enumerate(left) if dim not in listed or text != "1"]
    return rule(f"x[{' '.join(left)}] -> out[{' '.join(right)}]", linear="x", monotone="x")


def _local_squeeze(attrs: Attrs, ctx: LocalContext) -> Attrs:
    """On one device a dim that is cut may have size 1 and must stay: name the dims that the result lacks."""
    out = ctx.results.get("out")
    if out is None:
        return attrs
    rest = list(out)
    gone = []
    for dim, size in enumerate(shape_of(ctx.operands, "x")):
        if rest and rest[0] == size:
            rest.pop(0)
        else:
            gone.append(dim)
    return {**attrs, "axis": gone}


@family(
    "squeeze",
    "x[] -> out[]",
    kernel=lambda x, axis: x.reshape(_squeezed(x.shape, axis)),
    view=True,
    local=_local_squeeze,
    grad=_AS_VIEW,
)
def squeeze(x: Shape, axis: int | Sequence[int] | None = None) -> Rule:
    """Dims of size 1 go, all of them or those named; a named dim of another size stays."""
    names = named_dims(len(x))
    listed = range(len(x)) if axis is None else axes_in(axis, len(x), "axis")
    left = ["1" if size == 1 else name for name, size in zip(names, x, strict=True)]
    right = [text for dim, text in enumerate(left) if dim not in listed or text != "1"]
    return rule(f"x[{' '.join(left)}] -> out[{' '.join(right)}]", linear="x", monotone="x")


def _unsqueezed(x: Shape, axis: int | Sequence[int]) -> Shape:
    count = 1 if isinstance(axis, int) else len(axis)
    listed = axes_in(axis, len(x) + count, "axis")
    rest = iter(x)
    return tuple(1 if dim in listed else next(rest) for dim in range(len(x) + count))


@family(
    "unsqueeze", "x[] -> out[]", kernel=lambda x, axis: x.reshape(_unsqueezed(x.shape, axis)), view=True, grad=_AS_VIEW
)
def unsqueeze(x: Shape, axis: int | Sequence[int]) -> Rule:
    """New dims of size 1 at the named places of the result."""
    names = named_dims(len(x))
    rest = iter(names)
    marked = _unsqueezed((2,) * len(x), axis)
    right = ["1" if size == 1 else next(rest) for size in marked]
    return rule(f"x[{' '.join(names)}] -> out[{' '.join(right)}]", linear="x", monotone="x")


def _permuted(x: Shape, perm: Sequence[int]) -> list[int]:
    order = [axis_in(axis, len(x), "perm") for axis in whole_numbers(perm, "perm")]
    if sorted(order) != list(range(len(x))):
        raise RuleError(f"perm={list(perm)} is not an order of the {len(x)} dims of {x}")
    return order


def _permutation(order: Sequence[int]) -> Rule:
    names = named_dims(len(order))
    return rule(f"x[{' '.join(names)}] -> out[{' '.join(names[axis] for axis in order)}]", linear="x", monotone="x")


def _permute_back(out_grad: Array, *, perm: Sequence[int]) -> Array:
    return np.transpose(out_grad, np.argsort([axis % out_grad.ndim for axis in perm]))


@family(
    "transpose",
    "x[] -> out[]",
    kernel=lambda x, perm: np.transpose(x, perm),
    view=True,
    grad=Grad(_permute_back, reads=""),
)
def transpose(x: Shape, perm: Sequence[int]) -> Rule:
    """The dims in another order."""
    return _permutation(_permuted(x, perm))


@family(
    "moveaxis",
    "x[] -> out[]",
    kernel=lambda x, source, destination: np.moveaxis(x, source, destination),
    view=True,
    grad=Grad(lambda out_grad, *, source, destination: np.moveaxis(out_grad, destination, source), reads=""),
)
def moveaxis(x: Shape, source: int | Sequence[int], destination: int | Sequence[int]) -> Rule:
    """Some dims go to other places, the others keep their order."""
    sources, destinations = axes_in(source, len(x), "source"), axes_in(destination, len(x), "destination")
    if len(sources) != len(destinations):
        raise RuleError(f"moveaxis: source={source} and destination={destination} do not name as many dims")
    order = [dim for dim in range(len(x)) if dim not in sources]
    for place, dim in sorted(zip(destinations, sources, strict=True)):
        order.insert(place, dim)
    return _permutation(order)
