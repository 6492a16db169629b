"""The real ONNX files that installed packages carry, and how to run a model here and by onnx's own reference."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ops import rule_for
from ops.run import Device, steps
from solver.graph import Graph

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class ModelFile:
    """One ONNX file of an installed package, with sizes that make it small enough for tests."""

    package: str
    path: str
    dims: Mapping[str, int] = field(default_factory=dict)
    input_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def find(self) -> Path:
        """Return the file; skip the test, with the reason, where it is not there."""
        spec = importlib.util.find_spec(self.package)
        for folder in (spec.submodule_search_locations or []) if spec else []:
            if (Path(folder) / self.path).is_file():
                return Path(folder) / self.path
        pytest.skip(f"{self.path} of the package {self.package} is not installed: pip install '{self.package}'")


def _light(name: str) -> ModelFile:
    return ModelFile("onnx", f"backend/test/data/light/light_{name}.onnx")


def _ocr(name: str, *shape: int) -> ModelFile:
    return ModelFile("rapidocr_onnxruntime", f"models/{name}", input_shapes={"x": shape})


def _silero(name: str, **dims: int) -> ModelFile:
    return ModelFile("silero_vad", f"data/{name}", dims=dims)


LIGHT = {
    name: _light(name)
    for name in (
        "bvlc_alexnet",
        "densenet121",
        "inception_v1",
        "inception_v2",
        "resnet50",
        "shufflenet",
        "squeezenet",
        "vgg19",
        "zfnet512",
    )
}
REAL = {
    "ocr_det": _ocr("ch_PP-OCRv4_det_infer.onnx", 2, 3, 64, 96),
    "ocr_rec": _ocr("ch_PP-OCRv4_rec_infer.onnx", 2, 3, 48, 64),
    "ocr_cls": _ocr("ch_ppocr_mobile_v2.0_cls_infer.onnx", 2, 3, 48, 96),
    "magika": ModelFile("magika", "models/standard_v3_3/model.onnx", dims={"unk__214": 2}),
    "silero": ModelFile(
        "silero_vad", "data/silero_vad.onnx", dims={"sr": 16000}, input_shapes={"input": (2, 576), "state": (2, 2, 128)}
    ),
    "silero_half": _silero("silero_vad_half.onnx", batch=2, sequence=576),
    "silero_op15": _silero("silero_vad_16k_op15.onnx", batch=2, sequence=576, sr=16000),
    "silero_op18": _silero("silero_vad_op18_ifless.onnx", batch=2, sequence=576, sr=16000),
    "silero_openvino": _silero("silero_vad_openvino_16k.onnx"),
    "silero_sequence": _silero("silero_vad_16k_sequence.onnx", sequence_length=3),
}


def evaluate(graph: Graph, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Run a graph op by op on one device and return its outputs."""
    values: dict[str, Array] = {
        name: tensor.value if tensor.value is not None else feeds[name]
        for name, tensor in graph.tensors.items()
        if tensor.producer is None
    }
    uses_left = {name: len(graph.uses(name)) + (name in graph.outputs) for name in graph.tensors}
    for node in graph.nodes.values():
        bound = graph.bind(node.name)
        slots: list[Array | None] = [None] * len(bound.operands)
        for use in graph.operand_uses(node.name):
            slots[use.slot] = values[use.tensor]
        running = steps(rule_for(node.op), bound, slots, node.attrs, Device(bound))
        try:
            array, _ = next(running)
            while True:
                array, _ = running.send(array)
        except StopIteration as done:
            values |= dict(zip(node.results, done.value, strict=True))
        for use in graph.operand_uses(node.name):
            uses_left[use.tensor] -= 1
            if not uses_left[use.tensor]:
                values.pop(use.tensor, None)
    return {name: values[name] for name in graph.outputs}


def relative_error(ours: Array, theirs: Array) -> float:
    """Return the largest difference over the largest magnitude."""
    assert ours.shape == theirs.shape, f"{ours.shape} is not {theirs.shape}"
    if theirs.dtype == bool or not theirs.size:
        return float((ours != theirs).any())
    scale = max(float(np.abs(theirs).max()), 1e-30)
    return float(np.abs(ours.astype(np.float64) - theirs.astype(np.float64)).max()) / scale


def seeded(model: Any, seed: int = 0) -> Any:
    """Return a copy of an ONNX model whose constant weights are random: scaled by fan-in, so that nothing fades.

    The light models carry one constant for all weights, with which swapped channels would pass unseen.
    """
    from onnx import ModelProto, numpy_helper

    made = ModelProto()
    made.CopyFrom(model)
    shapes = {tensor.name: numpy_helper.to_array(tensor) for tensor in made.graph.initializer}
    filled = [node for node in made.graph.node if node.op_type == "ConstantOfShape" and node.input[0] in shapes]
    random = np.random.default_rng(seed)
    for node in filled:
        made.graph.node.remove(node)
        array = _random_weight(made.graph, node.output[0], tuple(shapes[node.input[0]]), random)
        made.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), node.output[0]))
    made.ir_version = max(made.ir_version, 4)  # before, every initializer had to be an input too
    return made


def _random_weight(graph: Any, name: str, shape: tuple[int, ...], random: np.random.Generator) -> Array:
    readers = [
        (node.op_type, list(node.input).index(name), node.output[0]) for node in graph.node if name in node.input
    ]
    op, slot, result = readers[0]
    if len(shape) > 1:
        return random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
    if op == "Unsqueeze":
        return _random_weight(graph, result, shape, random)
    near_one = (op == "BatchNormalization" and slot in (1, 4)) or op == "Mul"
    return random.uniform(0.5, 1.5, shape) if near_one else 0.1 * random.standard_normal(shape)


def reference(model: Any) -> Any:
    """Return onnx's reference evaluator of a model, without four mistakes that it makes on these files.

    Before version 13 a softmax without an axis goes over dim 1 and all after it, the reference takes the last dim;
    before version 14 a batch normalization of one result is one in inference, the reference trains; its GlobalMaxPool
    loses dims of rank 3; and its LRN normalizes as many channels as the batch has items.
    """
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.op_run import OpRun

    class Softmax(OpRun):  # type: ignore[misc]
        op_domain = ""

        def _run(self, x: Array, axis: int | None = None) -> tuple[Array]:
            over = axis if self.onnx_node.attribute else 1
            raised = np.exp(x - x.max(axis=over, keepdims=True))
            return (raised / raised.sum(axis=over, keepdims=True),)

    class BatchNormalization(OpRun):  # type: ignore[misc]
        op_domain = ""

        def _run(self, x: Array, *affine: Array, epsilon: float = 1e-5, **_: Any) -> tuple[Array]:
            scale, bias, mean, variance = (each.reshape(-1, *[1] * (x.ndim - 2)) for each in affine)
            return ((x - mean) / np.sqrt(variance + epsilon) * scale + bias,)

    class GlobalMaxPool(OpRun):  # type: ignore[misc]
        op_domain = ""

        def _run(self, x: Array) -> tuple[Array]:
            return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)

    class LRN(OpRun):  # type: ignore[misc]
        op_domain = ""

        def _run(self, x: Array, alpha: float, beta: float, bias: float, size: int) -> tuple[Array]:
            before, after = (size - 1) // 2, size // 2
            channels = range(x.shape[1])
            near = [(x[:, max(0, c - before) : c + after + 1] ** 2).sum(axis=1) for c in channels]
            return (x / (bias + alpha / size * np.stack(near, axis=1)) ** beta,)

    return ReferenceEvaluator(model, new_ops=[Softmax, BatchNormalization, GlobalMaxPool, LRN])


def in_double(model: Any) -> Any:
    """Return a copy of an ONNX model that computes in float64, so that a small difference is a mistake."""
    from onnx import ModelProto

    made = ModelProto()
    made.CopyFrom(model)
    _double_graph(made.graph)
    return made


def _double_graph(graph: Any) -> None:
    from onnx import AttributeProto, TensorProto

    for tensor in graph.initializer:
        _double_tensor(tensor)
    for info in (*graph.input, *graph.output, *graph.value_info):
        if info.type.tensor_type.elem_type == TensorProto.FLOAT:
            info.type.tensor_type.elem_type = TensorProto.DOUBLE
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                _double_tensor(attribute.t)
            elif attribute.type == AttributeProto.GRAPH:
                _double_graph(attribute.g)
            elif node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.DOUBLE


def _double_tensor(tensor: Any) -> None:
    from onnx import TensorProto, numpy_helper

    if tensor.data_type == TensorProto.FLOAT:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))
