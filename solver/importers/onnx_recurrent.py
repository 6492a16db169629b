"""ONNX recurrent layers, unrolled over time: the steps of a known sequence are ordinary ops, and each can be cut.

The gates are a dim of their own, ``[batch, gate, hidden]``, so that the hidden dim can be cut in spite of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from solver.importers.onnx_site import Site
from solver.importers.sketch import Value

STEP_LIMIT = 512
"""A longer sequence is refused: the graph would be all steps."""

_ACTIVATIONS = {"Sigmoid": "sigmoid", "Tanh": "tanh", "Relu": "relu"}
_DEFAULTS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


@dataclass
class Cell:
    """One direction of a layer.

    Parameters
    ----------
    site : Site
    activations : sequence of str
        Our ops.
    recurrence : Value
        Weights from state to gates, ``[gates * hidden, hidden]``.
    bias : Value or None
        Of the recurrence, ``[gates, hidden]``; None where it is in the inputs already.
    """

    site: Site
    activations: Sequence[str]
    recurrence: Value
    bias: Value | None

    def lstm(self, gates: Value, h: Value, c: Value | None) -> tuple[Value, Value | None]:
        """One step: the gates are input, output, forget, cell."""
        emit = self.site.emit
        assert c is not None
        both = emit("add", gates, self._from_state(h, 4))
        i, o, f, g = self.site.emit_all("unbind", both, axis=1)
        first, second, third = self.activations
        kept = emit("multiply", emit(first, f), c)
        c = emit("add", kept, emit("multiply", emit(first, i), emit(second, g)))
        return emit("multiply", emit(first, o), emit(third, c)), c

    def gru(self, gates: Value, h: Value, c: Value | None) -> tuple[Value, Value | None]:
        """One step: the gates are update, reset, hidden."""
        emit, split = self.site.emit, self.site.emit_all
        first, second = self.activations
        size = h.shape[-1]
        of_update, of_reset, of_hidden = split(
            "unbind", emit("reshape", self.recurrence, shape=[3, size, size]), axis=0
        )
        z_in, r_in, h_in = split("unbind", gates, axis=1)
        biases = split("unbind", self.bias, axis=0) if self.bias is not None else (None, None, None)
        z = emit(first, emit("add", z_in, self._product(h, of_update, biases[0])))
        r = emit(first, emit("add", r_in, self._product(h, of_reset, biases[1])))
        if self.site.attr("linear_before_reset", 0):
            past = emit("multiply", r, self._product(h, of_hidden, biases[2]))
        else:
            past = self._product(emit("multiply", r, h), of_hidden, biases[2])
        new = emit(second, emit("add", h_in, past))
        return emit("add", new, emit("multiply", z, emit("subtract", h, new))), c

    def rnn(self, gates: Value, h: Value, c: Value | None) -> tuple[Value, Value | None]:
        """One step of the plain layer."""
        both = self.site.emit("add", gates, self._from_state(h, 1))
        return self.site.emit(self.activations[0], self.site.emit("squeeze", both, axis=[1])), c

    def _from_state(self, h: Value, gates: int) -> Value:
        flat = self._product(h, self.recurrence, None)
        return self.site.emit("reshape", flat, shape=[h.shape[0], gates, h.shape[1]])

    def _product(self, h: Value, weight: Value, bias: Value | None) -> Value:
        out = self.site.emit("matmul", h, weight, transpose_y=True)
        return out if bias is None else self.site.emit("add", out, bias)


def _recurrent(kind: str) -> Callable[[Site], list[Value]]:
    def translate(site: Site) -> list[Value]:
        _refuse_extras(site, kind)
        direction = site.attr("direction", "forward")
        backward = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]
        x = site.operand(0)
        if site.attr("layout", 0):
            x = site.emit("transpose", x, perm=[1, 0, 2])
        if x.shape[0] > STEP_LIMIT:
            raise site.refuse(
                f"its {x.shape[0]} steps would be unrolled, as there is no recurrent op, and {STEP_LIMIT} is the limit"
            )
        runs = [_direction(site, kind, x, index, reverse) for index, reverse in enumerate(backward)]
        y = site.emit("stack", [run[0] for run in runs], axis=1)
        y_h = site.emit("stack", [run[1] for run in runs], axis=0)
        cells = [run[2] for run in runs if run[2] is not None]
        results = [y, y_h, *([site.emit("stack", cells, axis=0)] if cells else [])]
        if site.attr("layout", 0):
            results = [site.emit("transpose", v, perm=[2, 0, 1, 3] if v is y else [1, 0, 2]) for v in results]
        return results

    return translate


def _refuse_extras(site: Site, kind: str) -> None:
    steps = site.operand(0).shape[1 if site.attr("layout", 0) else 0]
    if site.has(4) and set(site.table(4, "sequence lengths").tolist()) != {steps}:
        raise site.refuse("sequences shorter than the input are not supported")
    if site.attr("clip") is not None or site.attr("input_forget", 0) or site.has(7):
        raise site.refuse("clipping, coupled gates and peepholes are not supported")


def _direction(site: Site, kind: str, x: Value, index: int, reverse: bool) -> tuple[Value, Value, Value | None]:
    """All outputs [steps, batch, hidden], the last one, and the last cell state."""
    emit = site.emit
    gates = _GATES[kind]
    weight, recurrence = _of_direction(site, 1, index), _of_direction(site, 2, index)
    hidden = recurrence.shape[1]
    steps, batch = x.shape[:2]
    inputs = emit("matmul", x, weight, transpose_y=True)
    inputs = emit("reshape", inputs, shape=[steps, batch, gates, hidden])
    bias = None
    if site.has(3):
        pair = emit("reshape", _of_direction(site, 3, index), shape=[2, gates, hidden])
        of_input, bias = site.emit_all("unbind", pair, axis=0)
        inputs = emit("add", inputs, of_input)
        if kind != "GRU":
            inputs, bias = emit("add", inputs, bias), None
    cell = Cell(site, _activations(site, kind, index), recurrence, bias)
    step = {"LSTM": cell.lstm, "GRU": cell.gru, "RNN": cell.rnn}[kind]
    h = _state(site, 5, index, x, hidden)
    c = _state(site, 6, index, x, hidden) if kind == "LSTM" else None
    each = list(site.emit_all("unbind", inputs, axis=0))
    made = []
    for gate_inputs in reversed(each) if reverse else each:
        h, c = step(gate_inputs, h, c)
        made.append(h)
    return emit("stack", made[::-1] if reverse else made, axis=0), h, c


def _of_direction(site: Site, slot: int, index: int) -> Value:
    """The part of an operand that belongs to one direction."""
    value = site.weight(slot)
    assert value is not None
    return _part(site, value, index, 0)


def _part(site: Site, value: Value, index: int, axis: int) -> Value:
    if value.shape[axis] > 1:
        value = site.emit("slice", value, axes=[axis], starts=[index], ends=[index + 1])
    return site.emit("squeeze", value, axis=[axis])


def _state(site: Site, slot: int, index: int, x: Value, hidden: int) -> Value:
    """The first state: given, or zero."""
    if site.has(slot):
        return _part(site, site.operand(slot), index, 1 if site.attr("layout", 0) else 0)
    return site.emit("full", shape=[x.shape[1], hidden], fill_value=0.0, dtype=x.dtype)


def _activations(site: Site, kind: str, index: int) -> list[str]:
    given = [name.decode() if isinstance(name, bytes) else name for name in site.attr("activations") or _DEFAULTS[kind]]
    count = len(_DEFAULTS[kind])
    given = (given * 2)[index * count : (index + 1) * count] if len(given) == count else given[index * count :][:count]
    for name in given:
        if name not in _ACTIVATIONS:
            raise site.refuse(f"its activation {name!r} is not supported: {', '.join(_ACTIVATIONS)} are")
    return [_ACTIVATIONS[name] for name in given]


RECURRENT: dict[str, Callable[[Site], Any]] = {kind: _recurrent(kind) for kind in _GATES}
