"""One pass over a PIR program: what stands behind each of its values, what leaves it, and what is stored as what."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import paddle

from ops.placement import Placement
from solver.graph import Graph
from solver.importers.errors import DynamicDimError, ImporterError, UnknownNameError, UnsupportedNodeError
from solver.importers.paddle_ops import OTHERS, translate
from solver.importers.paddle_placements import placement_of
from solver.importers.paddle_site import Found, Site, dtype_of, kind_of, made_at
from solver.importers.sketch import Sketch, Value

Pins = dict[str, dict[str, Placement]]


@dataclass
class Reading:
    """One pass over a program.

    Parameters
    ----------
    name : str
    input_shapes : dict
        Shapes that were given, by the name of an input.
    aliases : mapping
        Parameter or state -> its name in the graph.
    """

    name: str
    input_shapes: dict[str, Sequence[int]]
    aliases: Mapping[str, str]
    sketch: Sketch = field(init=False)
    folded: dict[str, int] = field(default_factory=dict)
    values: dict[str, Found] = field(default_factory=dict)
    kept: dict[int, tuple[Value, Value]] = field(default_factory=dict)
    wishes: list[tuple[Value, dict[str, Placement]]] = field(default_factory=list)
    losses: list[Value] = field(default_factory=list)
    ends: dict[int, tuple[str, Value]] = field(default_factory=dict)
    seeds: dict[int, int] = field(default_factory=dict)
    shared: dict[Any, Value] = field(default_factory=dict)
    resized: bool = False
    """Whether an input was given another size than the program says."""

    def __post_init__(self) -> None:
        self.sketch = Sketch(self.name)

    # ------------------------------------------------------------------------------------------------------ reading

    def block(self, block: Any) -> None:
        """Read the ops of a block, in order."""
        for op in block.ops:
            if op.name() in STRUCTURE:
                STRUCTURE[op.name()](self, op)
                continue
            site = Site(op, self)
            try:
                translate(site)
            except ImporterError:
                raise
            except (ArithmeticError, LookupError, MemoryError, TypeError, ValueError) as error:
                raise site.refuse(f"it cannot be read: {' '.join(str(error).split())}") from error
            self._check(site)
            self._note_end(site)

    def found(self, source: Any) -> Found:
        """Return what stands behind a value of the program."""
        if source.id not in self.values:
            raise UnsupportedNodeError(
                f"op {source.get_defining_op().name()!r}{made_at(source.get_defining_op())}: its result is read, but "
                "what it becomes here has no such result"
            )
        return self.values[source.id]

    def bind(self, source: Any, found: Found) -> None:
        """Say what stands behind a value of the program."""
        self.values[source.id] = found

    def keep(self, old: Value, new: Value, source: Any) -> None:
        """Say that a stored tensor is written over: what leaves is stored as it was, and later ops read the new one."""
        self.kept[id(old)] = (old, new)
        self.values[source.id] = new

    def is_gradient(self, grad: Value, param: Value) -> None:
        """Say what an optimizer takes as the gradient of a parameter.

        It is what the backward pass makes, before it is clipped or scaled: that is what devices reduce.
        """
        while grad.maker is not None and grad.maker.op in SCALING:
            whole = [value for value in grad.maker.inputs() if value.shape == param.shape and value.role == "result"]
            if len(whole) != 1:
                break
            grad = whole[0]
        if grad.role == "result" and param.role == "weight":
            self.sketch.slopes.append((grad, param))

    def seed_of(self, op: Any) -> int:
        """Return the seed of an op that draws: the first one has 1."""
        return self.seeds.setdefault(op.id(), len(self.seeds) + 1)

    def once(self, key: Any, make: Callable[[], Value]) -> Value:
        """Return a value that is written only once."""
        if key not in self.shared:
            self.shared[key] = make()
        return self.shared[key]

    def source(self, op: Any) -> None:
        """Bind an input, parameter or state."""
        attrs, (result,) = op.attrs(), op.results()
        name = str(attrs.get("parameter_name") or attrs["name"])
        shape = self.input_shapes.pop(name, result.shape)
        self.resized |= any(theirs not in (-1, size) for theirs, size in zip(result.shape, shape, strict=False))
        for dim, size in enumerate(shape):
            if size < 0:
                raise DynamicDimError(
                    f"dim {dim} of input {name!r} has no size: give its whole shape, input_shapes={{{name!r}: (...)}}"
                )
        persistent = any(attrs.get("persistable") or [False])
        learned = op.name() == "builtin.parameter" and any(attrs.get("trainable") or [True])
        role: Any = "weight" if learned else "state" if persistent else "input"
        name = self.aliases.get(name, name)
        value = Value(tuple(int(size) for size in shape), str(dtype_of(result.dtype)), role, name)
        if role == "input":
            self.sketch.inputs.append(value)
        self.bind(result, value)
        self.wish(result)

    # ------------------------------------------------------------------------------------------------------ leaving

    def leave(self, fetch: Sequence[Any], gradients: Sequence[tuple[Any, Any]]) -> None:
        """Say what leaves the graph, and what is stored as what."""
        if self.input_shapes:
            known = ", ".join(value.name for value in self.sketch.inputs)
            raise UnknownNameError(f"{next(iter(self.input_shapes))!r} is no input of the program: it has {known}")
        left: dict[int, tuple[str, Value]] = {}
        for source in fetch:
            self._leave(left, self._made(source, "fetch"))
        if not fetch:
            for value in self.losses:
                self._leave(left, value)
            for name, value in self.ends.values():
                self._leave(left, value, name)
        given = [
            (self._one(param, "gradients"), self._made(grad, "gradients"))
            for param, grad in gradients
            if grad is not None
        ]
        for _, slope in given:
            self._leave(left, slope)
        for _, new in self.kept.values():
            self._leave(left, new)
        places = {key: index for index, key in enumerate(left)}
        sketch = self.sketch
        sketch.outputs = list(left.values())
        sketch.gradients = {places[id(slope)]: weight for weight, slope in given}
        sketch.ties = {places[id(new)]: old for old, new in self.kept.values() if new.shape == old.shape}

    def _leave(self, left: dict[int, tuple[str, Value]], value: Value, name: str = "") -> None:
        if value.role == "known":
            return
        left.setdefault(id(value), (name, value))

    def _made(self, source: Any, where: str) -> Value:
        """Return a tensor that leaves the graph; a known one leaves as a copy."""
        value = self._one(source, where)
        return self.sketch.emit("assign", value, name="constant")[0] if value.role == "known" else value

    def _one(self, source: Any, where: str) -> Value:
        found = self.values.get(source.id) if isinstance(source, paddle.pir.Value) else None
        if not isinstance(found, Value):
            raise UnknownNameError(f"{source!r} of {where} is no tensor that an op of the program makes")
        return found

    def _note_end(self, site: Site) -> None:
        """Remember the loss, and what an op makes that nothing reads."""
        if site.kind == "full_like" and self._starts_backward(site):
            loss = site.found("x")
            if isinstance(loss, Value):
                self.losses.append(loss)
        results = list(site.results.values())
        if not results or site.kind in OTHERS or not all(result.use_empty() for result in results):
            return
        found = self.values.get(results[0].id)
        for value in found if isinstance(found, list) else [found]:
            if value is not None and value.role == "result" and not site.kind.endswith("_grad"):
                self.ends[id(value)] = ("", value)

    def _starts_backward(self, site: Site) -> bool:
        users = site.results["out"].all_used_ops()
        return bool(users) and all(
            op.name().removesuffix("_").endswith("_grad") or kind_of(op) in SEEDED for op in users
        )

    # ------------------------------------------------------------------------------------------------------ checking

    def _check(self, site: Site) -> None:
        """Hold what was written against the shapes that Paddle has inferred."""
        for name, result in site.results.items():
            found = self.values.get(result.id)
            if not isinstance(found, Value):
                continue
            theirs = tuple(result.shape)
            same = len(theirs) == len(found.shape) and all(
                size in (-1, own) for size, own in zip(theirs, found.shape, strict=True)
            )
            if not same and not self.resized:
                raise site.refuse(f"its result {name!r} is {theirs} there, but what it becomes makes {found.shape}")

    # --------------------------------------------------------------------------------------------------- what is told

    def notes(self) -> list[str]:
        """Say what was folded."""
        told = []
        if self.folded:
            counts = ", ".join(f"{count} {kind}" for kind, count in sorted(self.folded.items()))
            told.append(f"computed from constants and shapes alone, and folded: {counts}")
        if self.seeds:
            told.append(f"{len(self.seeds)} ops draw random numbers: by a counter here, so not those that Paddle draws")
        return told

    def pins(self, graph: Graph) -> Pins:
        """Return the wishes by the names of the graph's tensors."""
        pins: Pins = {}
        for value, wish in self.wishes:
            name = self.sketch.names.get(id(value), value.name)
            if name in graph.tensors:
                pins[name] = {**pins.get(name, {}), **wish}
        return pins

    def wish(self, result: Any) -> None:
        """Remember the placement that a person set, where it is one."""
        found = self.values.get(result.id)
        if isinstance(found, Value) and result.is_dist():
            self.wishes.append((found, placement_of(result)))


SCALING = frozenset({"multiply", "divide", "scale", "cast", "clip", "check_finite_and_unscale", "update_loss_scaling"})
"""Ops between the backward pass and an update that reduce nothing."""
SEEDED = frozenset({"scale", "cast", "add_n", "multiply", "reshard"})


def _combine(reading: Reading, op: Any) -> None:
    parts = [reading.values.get(source.id) for source in op.operands_source()]
    known = [part for part in parts if isinstance(part, Value)]
    if len(known) == len(parts):
        reading.bind(op.result(0), known)


def _split(reading: Reading, op: Any) -> None:
    for result, part in zip(op.results(), _parts(reading, op), strict=False):
        reading.bind(result, part)


def _pick(reading: Reading, op: Any) -> None:
    parts = _parts(reading, op)
    if parts:
        reading.bind(op.result(0), parts[op.attrs()["index"]])


def _parts(reading: Reading, op: Any) -> list[Value]:
    """Return the tensors of a list; of one that is nothing here, none: who reads a part of it is told."""
    found = reading.values.get(op.operand_source(0).id)
    return found if isinstance(found, list) else []


def _placed(reading: Reading, op: Any) -> None:
    """shard_tensor and reshard: the same tensor, and a wish."""
    reading.bind(op.result(0), reading.found(op.operand_source(0)))
    reading.wish(op.result(0))


def _named_end(reading: Reading, op: Any) -> None:
    found = reading.found(op.operand_source(0))
    attrs = op.attrs()
    if isinstance(found, Value):
        reading.ends[id(found)] = (str(attrs.get("output_name") or attrs.get("name") or ""), found)


STRUCTURE: dict[str, Callable[[Reading, Any], None]] = {
    "builtin.parameter": Reading.source,
    "pd_op.data": Reading.source,
    "pd_op.feed": Reading.source,
    "builtin.combine": _combine,
    "builtin.split": _split,
    "builtin.slice": _pick,
    "dist_op.shard_tensor": _placed,
    "dist_op.reshard": _placed,
    "builtin.shadow_output": _named_end,
    "pd_op.fetch": _named_end,
}
"""Ops that say where values come from and go to."""
