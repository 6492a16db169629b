"""One op of a PIR program as its translation sees it: operands, attributes, and where to write what it becomes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import paddle
from numpy.typing import NDArray

from ops.registry import rule_for
from ops.run import Device, steps
from solver.importers.errors import UnsupportedNodeError
from solver.importers.sketch import CONSTANT_LIMIT, Operand, Value

if TYPE_CHECKING:
    from solver.importers.paddle_reading import Reading

Found: TypeAlias = "Value | list[Value] | None"
"""What stands behind one value of a program: a tensor, a list of them, or nothing."""

PACKAGE = str(Path(paddle.__file__).parent)
"""Where Paddle's own lines are."""
SILENT = frozenset(
    {
        *("stop_gradient", "op_callstack", "struct_name", "persistable", "is_persistable", "place"),
        *("op_role", "chunk_id", "op_dist_attr"),
        *("numeric_stable_mode", "infer_flags", "min_row_size_to_use_multithread", "fix_seed", "rng_name"),
        "return_softmax",
    }
)
"""Attributes that change neither what an op computes nor how it may be cut."""


class Site:
    """An op in the middle of being translated.

    Parameters
    ----------
    op : paddle.pir.Operation
    reading : Reading
        The program around it.
    """

    def __init__(self, op: Any, reading: Reading) -> None:
        self.op = op
        self.reading = reading
        self.kind = kind_of(op)
        self.read: set[str] = set()
        """Which operands and attributes the translation has looked at."""

    @cached_property
    def inputs(self) -> dict[str, Any]:
        """Their operands by name, those that are absent left out."""
        sources = zip(self.op.get_input_names(), self.op.operands_source(), strict=True)
        return {name: source for name, source in sources if source.initialized()}

    @cached_property
    def results(self) -> dict[str, Any]:
        """Their results by name, those that nobody asked for left out."""
        return {
            name: result
            for name, result in zip(self.op.get_output_names(), self.op.results(), strict=True)
            if result.initialized()
        }

    @cached_property
    def attrs(self) -> dict[str, Any]:
        """Their attributes by name."""
        return dict(self.op.attrs())

    @cached_property
    def forward(self) -> Site | None:
        """For a grad op, the op that it differentiates; None where nothing that it reads tells."""
        if not self.kind.endswith("_grad"):
            return None
        wanted = self.kind.removesuffix("_grad")
        for source in map(_gathered, self.inputs.values()):
            made_by = source.get_defining_op()
            if made_by is not None and made_by.name() == "builtin.combine":
                continue
            near = [made_by, *source.all_used_ops()] if made_by is not None else source.all_used_ops()
            for op in near:
                if kind_of(op) != wanted or not op.name().startswith("pd_op."):
                    continue
                site = Site(op, self.reading)
                if self._differentiates(site):
                    return site
        return None

    def _differentiates(self, site: Site) -> bool:
        """Tell whether this grad op fits an op: what both name is the same, gradients have the shapes of results."""
        theirs = {**site.inputs, **site.results}
        shared = [name for name in self.inputs if name in theirs]
        grads = [name for name in self.inputs if name.removesuffix("_grad") in site.results and name not in theirs]
        return (
            bool(shared)
            and all(_same(theirs[name], self.inputs[name]) for name in shared)
            and all(theirs[name.removesuffix("_grad")].shape == self.inputs[name].shape for name in grads)
            and all(site.attrs[name] == self.attrs[name] for name in self.attrs if name in site.attrs.keys() - SILENT)
        )

    # ------------------------------------------------------------------------------------------------------ naming

    @cached_property
    def module(self) -> str:
        """Where in the model the op stands; a grad op stands where the op does that it differentiates."""
        own = str(self.attrs.get("struct_name", "")).strip("/").replace("/", ".")
        if own or not self.kind.endswith("_grad") or self.forward is None:
            return own
        return self.forward.module

    @property
    def label(self) -> str:
        """What a step of the op is called."""
        return f"{self.module}.{self.kind}" if self.module else self.kind

    @property
    def where(self) -> str:
        """The op as an error names it: what it is, and the line of the program that made it."""
        return f"op {self.op.name()!r}{made_at(self.op)}"

    def refuse(self, reason: str) -> UnsupportedNodeError:
        """Return the error that names the op and says what is missing."""
        return UnsupportedNodeError(f"{self.where}: {reason}")

    # ----------------------------------------------------------------------------------------------------- reading

    def has(self, name: str) -> bool:
        """Tell whether an operand or an attribute is there, for a grad op also of the op that it differentiates."""
        return name in self.inputs or name in self.attrs or (self.forward is not None and self.forward.has(name))

    def found(self, name: str) -> Found:
        """Return an operand: a tensor, a list, or None where it is absent.

        What a grad op does not take itself is looked for among operands and results of the op that it differentiates.
        """
        self.read.add(name)
        if name in self.inputs:
            return self.reading.found(self.inputs[name])
        if self.forward is None:
            return None
        source = self.forward.inputs.get(name, self.forward.results.get(name))
        return None if source is None else self.reading.found(source)

    def value(self, name: str) -> Value:
        """Return an operand that must be there and be one tensor."""
        found = self.found(name)
        if not isinstance(found, Value):
            raise self.refuse(f"its operand {name!r} is no tensor")
        return found

    def listed(self, name: str) -> list[Value]:
        """Return an operand that is a list of tensors."""
        found = self.found(name)
        if not isinstance(found, list):
            raise self.refuse(f"its operand {name!r} is no list of tensors")
        return found

    def attr(self, name: str, default: Any = None) -> Any:
        """Return an attribute, or the default; a known operand of that name is one, too."""
        self.read.add(name)
        if self._is_operand(name):
            data = self.table(name)
            return short(data.item()) if data.size == 1 else data.tolist()
        given = self._given(name, default)
        if isinstance(given, float):
            return short(given)
        return dtype_of(given) if type(given).__name__ == "DataType" else given

    def table(self, name: str) -> NDArray[Any]:
        """Return the values of an operand that must be known before anything runs."""
        found = self.found(name)
        parts = found if isinstance(found, list) else [found]
        known = [part.data for part in parts if part is not None and part.data is not None]
        if len(known) < len(parts):
            raise self.refuse(f"its {name} is computed from data, and only a known {name} can be planned")
        return np.concatenate([part.reshape(-1) for part in known]) if isinstance(found, list) else known[0]

    def ints(self, name: str) -> list[int]:
        """Return whole numbers, from an attribute or a known operand."""
        self.read.add(name)
        given = self.table(name).reshape(-1).tolist() if self._is_operand(name) else self._given(name, [])
        return [int(item) for item in (given if isinstance(given, Iterable) else [given])]

    def _is_operand(self, name: str) -> bool:
        forward = self.forward
        return name in self.inputs or (name not in self.attrs and forward is not None and name in forward.inputs)

    def _given(self, name: str, default: Any) -> Any:
        if name in self.attrs or self.forward is None:
            return self.attrs.get(name, default)
        return self.forward.attrs.get(name, default)

    def need(self, name: str, wanted: Any, reason: str) -> None:
        """Refuse an attribute that is not as it must be."""
        given = self.attr(name, wanted)
        if given != wanted:
            raise self.refuse(f"{name} is {given!r}: {reason}")

    def check_read(self) -> None:
        """Refuse what the translation did not look at: nothing is dropped in silence."""
        unread = [name for name in (*self.inputs, *self.attrs) if name not in self.read | SILENT]
        if unread:
            raise self.refuse(f"no op here takes its {', '.join(unread)}")

    # ----------------------------------------------------------------------------------------------------- writing

    def emit(self, op: str, *operands: Operand, **attrs: Any) -> Value:
        """Write an op of one result and return it; what reads only small known values is computed, not written."""
        return next(iter(self.emit_slots(op, *operands, **attrs).values()))

    def emit_slots(self, op: str, *operands: Operand, name: str = "", **attrs: Any) -> dict[str, Value]:
        """Write an op and return its results by slot."""
        sketch, given = self.reading.sketch, [self._written(operand) for operand in operands]
        try:
            made = sketch.emit_slots(op, *given, name=name or self.label, module=self.module, **attrs)
        except ValueError as error:
            raise self.refuse(str(error)) from error
        if len(made) == 1:
            next(iter(made.values())).name = self.label if op == self.kind else f"{self.label}.{op}"
        step = sketch.steps[-1]
        small = all(prod(value.shape) <= CONSTANT_LIMIT for value in made.values())
        if (
            small
            and "seed" not in rule_for(op).attrs
            and step.operands
            and all(value.data is not None for value in step.inputs())
        ):
            sketch.steps.pop()
            self._compute(op, step.operands, attrs, made)
        return made

    def known(self, data: Any, dtype: str) -> Value:
        """Return a value that is known before anything runs."""
        return known(data, dtype)

    def like(self, number: float, value: Value) -> Value:
        """Return a number as a tensor of one element, of the dtype of another one."""
        return known(np.full((1,), number), value.dtype)

    def bind(self, **made: Found) -> None:
        """Say what stands behind their results."""
        for name, found in made.items():
            if name in self.results:
                self.reading.bind(self.results[name], found)

    def _written(self, operand: Operand) -> Operand:
        """Write a large known tensor of one number as an op, so that no device stores it."""
        if not isinstance(operand, Value) or operand.data is None or prod(operand.shape) <= CONSTANT_LIMIT:
            return operand
        if any(operand.data.strides):
            return operand
        fill = operand.data.reshape(-1)[0].item()
        return self.reading.sketch.emit("full", shape=list(operand.shape), dtype=operand.dtype, fill_value=fill)[0]

    def _compute(
        self, op: str, operands: Sequence[Operand], attrs: Mapping[str, Any], made: Mapping[str, Value]
    ) -> None:
        """Run the kernel of an op on known operands."""
        rule = rule_for(op)
        arrays: list[Any] = []
        shapes: dict[str, Any] = {}
        for spec, operand in zip(rule.operands, operands, strict=False):
            given = operand if operand is None or isinstance(operand, Value) else list(operand)
            shapes[spec.name] = [one.shape for one in given] if isinstance(given, list) else given and given.shape
        bound = rule.bind(shapes, attrs)
        for operand in operands:
            if operand is None:
                arrays.append(None)
            else:
                arrays += [one.data for one in ([operand] if isinstance(operand, Value) else operand)]
        arrays += [None] * (len(bound.operands) - len(arrays))
        running = steps(rule, bound, arrays, attrs, Device(bound, ()))
        try:
            asked = next(running)
            while True:
                asked = running.send(asked[0])
        except StopIteration as stop:
            for value, array in zip(made.values(), stop.value, strict=True):
                value.role, value.data = "known", np.asarray(array)
        self.reading.folded[self.kind] = self.reading.folded.get(self.kind, 0) + 1


def _same(one: Any, other: Any) -> bool:
    """Tell whether two values of a program are one, or lists of the same."""
    one, other = _gathered(one), _gathered(other)
    if one.is_same(other):
        return True
    makers = one.get_defining_op(), other.get_defining_op()
    if not all(maker is not None and maker.name() == "builtin.combine" for maker in makers):
        return False
    parts = [maker.operands_source() for maker in makers]
    return len(parts[0]) == len(parts[1]) and all(a.is_same(b) for a, b in zip(*parts, strict=True))


def _gathered(source: Any) -> Any:
    """Return the list that was taken apart and put together again; any other value as it is."""
    maker = source.get_defining_op()
    if maker is None or maker.name() != "builtin.combine":
        return source
    splits = [part.get_defining_op() for part in maker.operands_source()]
    if not splits or any(split is None or split.name() != "builtin.split" for split in splits):
        return source
    whole = splits[0].operand_source(0)
    same = all(split.operand_source(0).is_same(whole) for split in splits)
    return whole if same and len(splits) == splits[0].num_results() else source


def known(data: Any, dtype: str) -> Value:
    """Return a value that is known before anything runs, an array that numpy has no dtype for in a wider one."""
    array = np.asarray(data)
    stored = "float32" if dtype.startswith(("bfloat", "float8")) else dtype
    return Value(array.shape, dtype, "known", "", array if array.dtype == stored else array.astype(stored))


def short(number: Any) -> Any:
    """Return a number that was a float32 as it was written.

    Examples
    --------
    >>> short(0.8999999761581421), short(0.1), short(3)
    (0.9, 0.1, 3)
    """
    if not isinstance(number, float) or float(np.float32(number)) != number:
        return number
    return float(str(np.float32(number)))


def kind_of(op: Any) -> str:
    """Return the name of an op without its dialect and without the mark of an op in place.

    Examples
    --------
    >>> class Add:
    ...     name = staticmethod(lambda: "pd_op.add_")
    >>> kind_of(Add())
    'add'
    """
    return str(op.name()).partition(".")[2].removesuffix("_")


def made_at(op: Any) -> str:
    """Return the line of the program that made an op, where it is kept: the innermost one outside of Paddle."""
    stack = [line.strip() for line in op.attrs().get("op_callstack") or []]
    own = [pair for pair in itertools.pairwise(stack) if pair[0].startswith("File ") and PACKAGE not in pair[0]]
    if not own:
        return ""
    place = own[-1][0].removeprefix("File ").split(", in ")[0].replace('"', "").replace(", line ", ":")
    return f" (from {place}: {own[-1][1]})"


def dtype_of(dtype: Any) -> str | None:
    """Return the name of a dtype of Paddle as ours; None where it is left open.

    Examples
    --------
    >>> dtype_of("paddle.float32"), dtype_of("DataType.BFLOAT16"), dtype_of("Undefined")
    ('float32', 'bfloat16', None)
    """
    name = str(dtype).rpartition(".")[2].lower()
    return None if name == "undefined" else name
