"""PaddlePaddle: PIR programs, forward or whole training steps, written down as a graph of our ops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import paddle

from solver.graph import Graph
from solver.importers.errors import ImporterError, UnsupportedNodeError
from solver.importers.paddle_ops import is_known
from solver.importers.paddle_reading import STRUCTURE, Pins, Reading
from solver.importers.paddle_site import dtype_of, kind_of, made_at


@dataclass(frozen=True)
class PaddleModel:
    """What was read from a program.

    Parameters
    ----------
    graph : Graph
        Its `notes` say what was folded on the way.
    pins : dict
        What `paddle.distributed.shard_tensor` and `reshard` asked for: tensor -> mesh axis -> placement, as `plan`
        takes it.
    """

    graph: Graph
    pins: Pins


def read_paddle(
    program: Any,
    fetch: Sequence[Any] = (),
    gradients: Sequence[tuple[Any, Any]] = (),
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    name: str = "program",
    names: Mapping[str, str] | None = None,
) -> PaddleModel:
    """Read a PIR program.

    Parameters
    ----------
    program : paddle.static.Program
        Forward, with the backward pass that `append_backward` adds, or with an optimizer's step.
    fetch : sequence of Value, optional
        What leaves the graph beside new parameters and states. By default the loss that the backward pass starts at,
        and what ops make that nothing reads.
    gradients : sequence of pairs, optional
        Parameter and gradient, as `append_backward` returns them; they leave the graph, each stored as its parameter.
        Those that an optimizer reads are found.
    input_shapes : mapping, optional
        Whole shapes by the name of an input, where the program leaves dims open.
    name : str, optional
        Of the graph.
    names : mapping, optional
        Parameter or state of the program -> what it is called in the graph, where that differs.

    Returns
    -------
    PaddleModel

    Raises
    ------
    ImporterError
        One sentence on what is no program, which dim has no size, or which ops become nothing here.
    """
    if not isinstance(program, paddle.static.Program):
        raise UnsupportedNodeError(
            f"{type(program).__name__!r} is no program of PaddlePaddle: give a paddle.static.Program, which "
            "paddle.static.program_guard fills (from_paddle_layer brings a paddle.nn.Layer in)"
        )
    _refuse_unknown(program)
    reading = Reading(name, dict(input_shapes or {}), names or {})
    reading.block(program.global_block())
    reading.leave(fetch, gradients)
    try:
        graph, _ = reading.sketch.to_graph()
    except ImporterError:
        raise
    except ValueError as error:
        raise UnsupportedNodeError(f"the program cannot be written as a graph: {error}") from error
    graph.notes += reading.notes()
    return PaddleModel(graph, reading.pins(graph))


def read_layer(layer: Any, *inputs: Any) -> PaddleModel:
    """Read the forward pass of a layer.

    Parameters
    ----------
    layer : paddle.nn.Layer
    *inputs : paddle.static.InputSpec, or array
        What it is called with; of an array shape and dtype count.

    Returns
    -------
    PaddleModel
        Parameters and buffers carry the names that the layer gives them.

    Raises
    ------
    ImporterError
        Where it is no layer, cannot be traced, or as `read_paddle` does.
    """
    if not isinstance(layer, paddle.nn.Layer):
        raise UnsupportedNodeError(f"{type(layer).__name__!r} is no layer: give a paddle.nn.Layer")
    specs = [_spec(given, index) for index, given in enumerate(inputs)]
    static = not paddle.in_dynamic_mode()
    try:
        paddle.disable_static()
        traced = paddle.jit.to_static(layer, input_spec=specs, full_graph=True).forward.concrete_program
    except Exception as error:
        raise UnsupportedNodeError(
            f"{type(layer).__name__} cannot be traced: {' '.join(str(error).split())}"
        ) from error
    finally:
        if static:
            paddle.enable_static()
    names = {param.name: name for name, param in [*layer.named_parameters(), *layer.named_buffers()]}
    outputs = paddle.utils.flatten(traced.outputs)
    return read_paddle(traced.main_program, outputs, name=type(layer).__name__, names=names)


def _spec(given: Any, index: int) -> Any:
    if isinstance(given, paddle.static.InputSpec):
        return given
    return paddle.static.InputSpec(list(given.shape), str(dtype_of(given.dtype)), f"input_{index}")


def _refuse_unknown(program: Any) -> None:
    """Name every op that becomes nothing here, at once."""
    unknown: dict[str, Any] = {}
    for op in program.global_block().ops:
        if op.num_regions():
            raise UnsupportedNodeError(
                f"op {op.name()!r}{made_at(op)}: a branch or a loop that data decide cannot be planned; write out the "
                "steps that run"
            )
        if op.name() not in STRUCTURE and not is_known(kind_of(op)):
            unknown.setdefault(op.name(), op)
    if not unknown:
        return
    told = "; ".join(
        f"op {name!r} (its result is {_label(op)!r}{made_at(op)}): declare it with {_declaration(op)}"
        for name, op in unknown.items()
    )
    raise UnsupportedNodeError(f"{len(unknown)} kinds of ops become nothing here: {told}")


def _label(op: Any) -> str:
    module = str(op.attrs().get("struct_name", "")).strip("/").replace("/", ".")
    return f"{module}.{kind_of(op)}" if module else kind_of(op)


def _declaration(op: Any) -> str:
    """Return the line that would declare an op, done whole by every device."""
    try:
        inputs, outputs = op.get_input_names(), op.get_output_names()
    except ValueError:
        inputs, outputs = ["x"], ["out"]
    taken = ", ".join(f"{name}[a{index}*]" for index, name in enumerate(inputs))
    made = ", ".join(f"{name}[_]" for name in outputs)
    return f'replicate_only("{kind_of(op)}", "{taken} -> {made}", kernel=...)'
