"""One op on one device: which blocks it holds, and its kernel as steps between which devices reduce."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ops.bind import BoundRule, BoundTensor, Shape, TensorShapes
from ops.halo import Exchange, exchanges, reach
from ops.notation import RuleError, TensorSpec
from ops.op import Op

Array: TypeAlias = np.ndarray[Any, Any]
Steps: TypeAlias = Generator[tuple[Array, "str | Exchange"], Array, tuple[Array, ...]]


class Cut(NamedTuple):
    """One mesh axis cuts one part of a factor, seen from one device: the size of the axis and the coordinate on it."""

    factor: str
    part: int
    size: int
    coordinate: int


class Device:
    """What an op may ask about the device it runs on (the `ops.op.LocalContext` of one coordinate).

    Parameters
    ----------
    bound : BoundRule
        The whole op. For a grad op the answers speak of its forward op.
    cuts : sequence of Cut
        In mesh order.

    Examples
    --------
    >>> from ops.registry import rule_for
    >>> bound = rule_for("matmul").bind({"x": (8, 4), "y": (4, 6)}, {})
    >>> device = Device(bound, [Cut("m", 0, 2, 1)])
    >>> device.operands["x"], device.start("m"), device.count("m")
    ((4, 4), 4, 2)
    """

    def __init__(self, bound: BoundRule, cuts: Sequence[Cut] = ()) -> None:
        self.bound = bound.forward or bound
        self._cuts = tuple(cuts)

    @cached_property
    def operands(self) -> Mapping[str, TensorShapes]:
        """Local shapes of the operands."""
        return self._shapes(self.bound.rule.signature.operands, self.bound.operands)

    @cached_property
    def results(self) -> Mapping[str, TensorShapes]:
        """Local shapes of the results."""
        return self._shapes(self.bound.rule.signature.results, self.bound.results)

    @cached_property
    def whole(self) -> Mapping[str, TensorShapes]:
        """Shapes of the whole operands and results."""
        whole = Device(self.bound)
        return {**whole.operands, **whole.results}

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """In how many blocks each factor is cut, in the order of the factors."""
        return {factor: self.count(factor) for factor in self.bound.factors}

    def block(self, factor: str) -> int:
        """Return which of the blocks of a factor this device holds."""
        index = 0
        for cut in self._of(factor):
            index = index * cut.size + cut.coordinate
        return index

    def start(self, factor: str) -> int:
        """Return the index, in the whole factor, of the first element this device holds."""
        start, block = 0, self.bound.factors[factor].size
        for cut in self._of(factor):
            if cut.part:
                raise RuleError(
                    f"factor {factor!r} is cut on part {cut.part}, so a device holds more than one block of it"
                )
            block //= cut.size
            start += cut.coordinate * block
        return start

    def count(self, factor: str) -> int:
        """Return the number of blocks the factor is cut in."""
        return math.prod(cut.size for cut in self._of(factor))

    def spans(self, factor: str) -> tuple[tuple[int, int, int], ...]:
        """Return which elements of a factor this device holds, as digits of their index.

        Returns
        -------
        tuple of (first, count, whole)
            Major first: the digit runs from first through count values, out of whole. An uncut factor, and one that is
            cut in blocks, has one digit; each part that is cut begins a new one.
        """
        parts, own = self.bound.factors[factor].parts, self._of(factor)
        starts = sorted({0, *(cut.part for cut in own)})
        found = []
        for start, end in zip(starts, [*starts[1:], len(parts)], strict=True):
            whole = count = math.prod(parts[start:end])
            first = 0
            for cut in own:
                if cut.part == start:
                    count //= cut.size
                    first += cut.coordinate * count
            found.append((first, count, whole))
        return tuple(found)

    def shape(self, slot: BoundTensor) -> Shape:
        """Return the local shape of an operand or result."""
        return tuple(
            size // math.prod(self.count(factor) for factor in names)
            for names, size in zip(slot.dims, slot.shape, strict=True)
        )

    def _of(self, factor: str) -> list[Cut]:
        return [cut for cut in self._cuts if cut.factor == factor]

    def _shapes(self, specs: Sequence[TensorSpec], slots: Sequence[BoundTensor | None]) -> dict[str, TensorShapes]:
        shapes: dict[str, TensorShapes] = dict.fromkeys(spec.name.partition(".")[0] for spec in specs)
        listed: dict[str, list[Shape]] = {}
        for slot in slots:
            if slot is not None:
                base, dot, _ = slot.name.partition(".")
                if dot:
                    listed.setdefault(base, []).append(self.shape(slot))
                else:
                    shapes[base] = self.shape(slot)
        return {**shapes, **listed}


def steps(op: Op, bound: BoundRule, arrays: Sequence[Array | None], attrs: Mapping[str, Any], device: Device) -> Steps:
    """Run the kernel of an op on the local arrays of one device.

    Parameters
    ----------
    op : Op
    bound : BoundRule
        The whole op.
    arrays : sequence of array or None
        The local arrays, a slot each.
    attrs : mapping
        The attributes of the whole op.
    device : Device

    Yields
    ------
    tuple
        ``(array, kind)`` where the devices that cut a synced factor must reduce; send the reduced array back. Where
        none does, send the array itself. ``(array, Exchange)`` where the devices that hold the blocks of a halo factor
        exchange borders; send what `ops.halo.Exchange.run` gives for the device.

    Returns
    -------
    tuple of array
        The local results, a slot each.
    """
    planned = exchanges(op, bound, attrs, device.counts)
    given = list(arrays)
    for exchange in planned:
        if not exchange.adds:
            given[exchange.slot] = yield _present(given[exchange.slot]), exchange
    returned = op.kernel(*_grouped(op.operands, bound.operands, given), **local_attrs(op, attrs, device))
    if isinstance(returned, Generator):
        returned = yield from returned
    made = list(flat_results(returned))
    for exchange in planned:
        if exchange.adds:
            made[exchange.slot] = yield made[exchange.slot], exchange
    return tuple(made)


def _present(array: Array | None) -> Array:
    if array is None:
        raise RuleError("an absent operand has no borders")
    return array


def local_attrs(op: Op, attrs: Mapping[str, Any], device: Device) -> dict[str, Any]:
    """Return what the kernel of an op is called with on one device, beside its arrays.

    Parameters
    ----------
    op : Op
    attrs : mapping
        The attributes of the whole op.
    device : Device
    """
    full = op.full_attrs(attrs)
    full.pop("forward_shapes", None)
    if op.local is not None:
        full = dict(op.local(full, device))
    if op.forward is not None and op.forward.grad is not None and op.forward.grad.shapes:
        full["shapes"] = {**device.operands, **_bordered(op, attrs, device)}
    return full


def _bordered(op: Op, attrs: Mapping[str, Any], device: Device) -> dict[str, Shape]:
    """Return the local shapes of the operands that come with borders."""
    bound, found = device.bound, dict[str, Shape]()
    for factor, count in device.counts.items():
        if count == 1 or bound.factors[factor].kind != "halo":
            continue
        ranges = reach(op, bound, attrs, factor, device.block(factor), count)
        for slot in bound.operands:
            if slot is not None and slot.name in ranges and (dim := slot.dim_of(factor)) is not None:
                first, end = ranges[slot.name]
                shape = found.get(slot.name, device.shape(slot))
                found[slot.name] = (*shape[:dim], end - first, *shape[dim + 1 :])
    return found


def _grouped(
    specs: Sequence[TensorSpec], slots: Sequence[BoundTensor | None], arrays: Sequence[Array | None]
) -> Iterator[Array | list[Array] | None]:
    """Yield the arguments of a kernel: variadic operands as lists, absent ones as None."""
    names = [None if slot is None else slot.name for slot in slots]
    position = 0
    for spec in specs:
        if not spec.variadic or names[position] is None:
            yield arrays[position]
            position += 1
            continue
        count = sum(name is not None and _is_slot_of(name, spec.name) for name in names)
        yield [array for array in arrays[position : position + count] if array is not None]
        position += count


def _is_slot_of(name: str, variadic: str) -> bool:
    """Tell whether ``xs.0`` (or ``xs.0_grad``) is a slot of ``xs`` (or ``xs_grad``)."""
    head, dot, tail = name.partition(".")
    return bool(dot) and head + tail.lstrip("0123456789") == variadic


def flat_results(returned: Any) -> Iterator[Array]:
    """Yield the arrays that a kernel returned, lists flattened, without the None of an absent operand's grad."""
    if isinstance(returned, tuple | list):
        for item in returned:
            yield from flat_results(item)
    elif returned is not None:
        yield np.asarray(returned)
