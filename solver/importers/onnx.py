"""ONNX files: read, sized, folded, and written down as a graph of our ops."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.inliner
from google.protobuf.message import DecodeError
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, OperatorSetIdProto, helper
from onnx.external_data_helper import uses_external_data

from solver.graph import Graph
from solver.importers.errors import ImporterError, UnreadableModelError, UnsupportedNodeError
from solver.importers.onnx_fold import fold, stored
from solver.importers.onnx_inline import defining_body, subgraphs_of, taken_branch
from solver.importers.onnx_inputs import check_ranks, sized_inputs
from solver.importers.onnx_ops import TABLE
from solver.importers.onnx_site import Shapes, Site, describe
from solver.importers.sketch import Sketch, Value


@dataclass(frozen=True)
class OnnxModel:
    """What was read from an ONNX file.

    Parameters
    ----------
    graph : Graph
        Its `notes` say what was rewritten on the way.
    weights : mapping
        Parameter or state -> its value in the file; a weight whose external file is missing is left out.
    """

    graph: Graph
    weights: Mapping[str, NDArray[Any]]


def read_onnx(
    path: str | Path,
    dims: Mapping[str, int] | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
) -> OnnxModel:
    """Read an ONNX file.

    Parameters
    ----------
    path : str or Path
    dims : mapping, optional
        Sizes of dynamic dims by name, ``{"batch": 8}``; the value of a scalar integer input by its name.
    input_shapes : mapping, optional
        Whole shapes of inputs by name, also of inputs whose shapes the file fixes: all shapes are inferred anew, and a
        batch written into a reshape is replaced where that is certain.

    Returns
    -------
    OnnxModel

    Raises
    ------
    ImporterError
        One sentence on what is wrong with the file, which dim has no size, or which node asks for what is not there.
    """
    path = Path(path)
    model = _checked(_parsed(path), path)
    sized = sized_inputs(model.graph, dims or {}, input_shapes or {})
    declared = None
    if sized.declared is not None:
        first = OnnxReading(
            model, path, {name: replace_shape(value, sized.declared[name]) for name, value in sized.values.items()}
        )
        first.run()
        declared = first.shapes
    reading = OnnxReading(model, path, sized.values, declared)
    try:
        graph, weights = reading.run().to_graph()
    except ImporterError:
        raise
    except ValueError as error:
        raise UnsupportedNodeError(f"{path} cannot be written as a graph: {error}") from error
    values = {name: value.data for name, value in weights.items() if value.data is not None}
    graph.notes += reading.notes
    return OnnxModel(graph, values)


def _parsed(path: Path) -> ModelProto:
    if path.is_dir():
        raise UnreadableModelError(f"{path} is a directory, not an ONNX file")
    try:
        return onnx.load(path, load_external_data=False)
    except OSError as error:
        raise UnreadableModelError(f"{path} cannot be read: {error.strerror or error}") from None
    except DecodeError:
        raise UnreadableModelError(f"{path} is no ONNX model, or a damaged one: it cannot be decoded") from None


def _checked(model: ModelProto, path: Path) -> ModelProto:
    """Hold the model against the ONNX standard, and inline the functions it defines."""
    if not model.HasField("graph") or not model.graph.output:
        raise UnreadableModelError(f"{path} is no ONNX model, or a damaged one: it holds no graph")
    check_ranks(model.graph)
    try:
        onnx.checker.check_model(_without_external_data(model))
        return onnx.inliner.inline_local_functions(model) if model.functions else model
    except (onnx.checker.ValidationError, RuntimeError, ValueError) as error:
        raise UnreadableModelError(f"{path} is no valid ONNX model: {' '.join(str(error).split())}") from None


def _without_external_data(model: ModelProto) -> ModelProto:
    """Return the model with external tensors as inputs: a plan needs the shapes of weights, seldom their values."""
    external = [tensor for tensor in model.graph.initializer if uses_external_data(tensor)]
    if not external:
        return model
    names = {tensor.name for tensor in external}
    bare = ModelProto()
    bare.CopyFrom(model)
    kept = [tensor for tensor in bare.graph.initializer if tensor.name not in names]
    inputs = [info for info in bare.graph.input if info.name not in names]
    bare.graph.ClearField("initializer")
    bare.graph.ClearField("input")
    bare.graph.initializer.extend(kept)
    bare.graph.input.extend(inputs)
    bare.graph.input.extend(helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in external)
    return bare


class OnnxReading:
    """One pass over a model at given input shapes.

    Parameters
    ----------
    model : onnx.ModelProto
    path : pathlib.Path
        Where it came from; external data lies beside it.
    inputs : mapping
    declared : Shapes, optional
        The shapes of the pass at declared sizes, where this is the second one.
    """

    def __init__(
        self, model: ModelProto, path: Path, inputs: Mapping[str, Value], declared: Shapes | None = None
    ) -> None:
        self.model = model
        self.path = path
        self.sketch = Sketch(path.stem)
        self.scope: dict[str, Value] = {}
        self.shapes = Shapes()
        self.declared = declared
        self.notes: list[str] = []
        for name, value in inputs.items():
            self._bind(name, value)
            if value.role == "input":
                self.sketch.inputs.append(value)

    def run(self) -> Sketch:
        """Read the whole model and return its sketch."""
        self._graph(self.model.graph, _opsets(self.model.opset_import))
        for info in self.model.graph.output:
            self.sketch.outputs.append((info.name, self.scope[info.name]))
        return self.sketch

    def _graph(self, graph: GraphProto, opsets: Mapping[str, int]) -> None:
        if graph.sparse_initializer:
            raise UnsupportedNodeError(
                f"tensor {graph.sparse_initializer[0].values.name!r} is sparse, and only dense ones can be planned"
            )
        for tensor in graph.initializer:
            self._bind(tensor.name, stored(tensor, self.path.parent))
        self._nodes(graph.node, {info.name for info in graph.output}, opsets)

    def _nodes(self, nodes: Sequence[NodeProto], wanted: set[str], opsets: Mapping[str, int]) -> None:
        """Read the nodes that the wanted tensors need, in order."""
        live = []
        for node in reversed(nodes):
            if wanted & set(node.output):
                wanted |= set(_names_read(node))
                live.append(node)
        for node in reversed(live):
            self._node(_without_idle_results(node, wanted), opsets)

    def _node(self, node: NodeProto, opsets: Mapping[str, int]) -> None:
        operands = [self.scope[name] if name else None for name in node.input]
        if node.op_type == "If":
            self._if(node, operands[0], opsets)
            return
        try:
            results = fold(node, operands, opsets, describe(node)) or self._translated(node, operands, opsets)
        except ImporterError:
            raise
        except (ArithmeticError, LookupError, MemoryError, TypeError, ValueError) as error:
            raise UnsupportedNodeError(
                f"{describe(node)}: it cannot be read: {' '.join(str(error).split())}"
            ) from error
        for name, value in zip(node.output, results or (), strict=False):
            if name:
                self._bind(name, value)

    def _translated(
        self, node: NodeProto, operands: Sequence[Value | None], opsets: Mapping[str, int]
    ) -> Sequence[Value] | None:
        """Translate a node by the table, or read the function that defines it; None in the second case."""
        opset = opsets.get(_domain(node.domain), 1)
        site = Site(node, operands, self.sketch, opset, self.shapes, self.declared, self.notes)
        if not _domain(node.domain) and node.op_type in TABLE:
            made = TABLE[node.op_type](site)
            return [made] if isinstance(made, Value) else made
        body = defining_body(node, operands, opset, self.scope)
        if body is None:
            raise site.refuse("there is no op here that does this")
        self._nodes(body.node, {name for name in node.output if name}, {**opsets, **_opsets(body.opset_import)})
        return None

    def _if(self, node: NodeProto, condition: Value | None, opsets: Mapping[str, int]) -> None:
        if condition is None or condition.data is None:
            raise UnsupportedNodeError(
                f"{describe(node)}: its condition {node.input[0]!r} is computed from data, and only a known one can be "
                f"planned{self._scalars()}"
            )
        chosen = "then_branch" if bool(np.all(condition.data)) else "else_branch"
        branch = next(attribute.g for attribute in node.attribute if attribute.name == chosen)
        branch = taken_branch(node, branch, self.scope)
        self._graph(branch, opsets)
        for name, info in zip(node.output, branch.output, strict=True):
            if name:
                self._bind(name, self.scope[info.name])

    def _scalars(self) -> str:
        """What a person can do about a condition: give the value of a scalar input."""
        names = [value.name for value in self.sketch.inputs if value.shape == () and not value.floating]
        return f": give the value of input {names[0]!r} with --dim {names[0]}=VALUE" if names else ""

    def _bind(self, name: str, value: Value) -> None:
        value.name = value.name or name
        self.scope[name] = value
        self.shapes.of[name] = value.shape


def replace_shape(value: Value, shape: tuple[int, ...]) -> Value:
    """Return an input at another shape."""
    return Value(shape, value.dtype, value.role, value.name, value.data)


def _without_idle_results(node: NodeProto, wanted: set[str]) -> NodeProto:
    """Return a node of several results without the names of those that nobody reads."""
    if len(node.output) < 2 or wanted.issuperset(node.output):
        return node
    made = NodeProto()
    made.CopyFrom(node)
    made.output[:] = [name if name in wanted else "" for name in node.output]
    return made


def _names_read(node: NodeProto) -> Iterator[str]:
    """Yield the tensors that a node reads, by its subgraphs too."""
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        for inner in subgraphs_of(attribute):
            yield from (info.name for info in inner.output)
            for step in inner.node:
                yield from _names_read(step)


def _domain(domain: str) -> str:
    """The standard's own domain has two names."""
    return "" if domain == "ai.onnx" else domain


def _opsets(entries: Iterable[OperatorSetIdProto]) -> dict[str, int]:
    return {_domain(entry.domain): entry.version for entry in entries}
