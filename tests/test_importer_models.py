# ruff: noqa: E402
"""The real ONNX files of installed packages: each comes in whole, and computes what onnx's own reference computes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from models import LIGHT, REAL, Array, ModelFile, evaluate, in_double, reference, relative_error, seeded

from solver import load
from solver.importers.onnx import OnnxModel, read_onnx

OPS = {
    "bvlc_alexnet": {"conv2d": 5, "relu": 7, "local_response_norm": 2, "max_pool2d": 3, "reshape": 1, "matmul": 3},
    "densenet121": {"conv2d": 121, "batch_norm": 121, "unsqueeze": 242, "multiply": 121, "add": 121, "concat": 58},
    "inception_v1": {"conv2d": 57, "max_pool2d": 13, "concat": 9, "avg_pool2d": 1, "softmax": 1},
    "inception_v2": {"conv2d": 69, "batch_norm": 69, "max_pool2d": 5, "avg_pool2d": 8, "concat": 10},
    "resnet50": {"conv2d": 53, "batch_norm": 53, "relu": 49, "add_n": 16, "avg_pool2d": 1, "matmul": 1, "softmax": 1},
    "shufflenet": {"conv2d": 49, "reshape": 33, "transpose": 16, "concat": 3, "add_n": 13, "avg_pool2d": 4},
    "squeezenet": {"conv2d": 26, "relu": 26, "concat": 8, "mean": 1, "softmax": 1},
    "vgg19": {"conv2d": 16, "relu": 18, "max_pool2d": 5, "matmul": 3, "softmax": 1},
    "zfnet512": {"conv2d": 5, "local_response_norm": 2, "max_pool2d": 3, "matmul": 3},
    "ocr_det": {"conv2d": 62, "batch_norm": 3, "mean": 10, "hardsigmoid": 10, "conv2d_transpose": 2, "sigmoid": 1},
    "ocr_rec": {"conv2d": 38, "batch_norm": 6, "hardsigmoid": 2, "softmax": 3, "avg_pool2d": 1},
    "ocr_cls": {"conv2d": 53, "batch_norm": 35, "hardsigmoid": 9, "max_pool2d": 1, "softmax": 1, "matmul": 1},
    "magika": {"conv2d": 1, "max": 2, "matmul": 2, "sum": 5, "tanh": 2},
    "silero": {"conv1d": 6},
    "silero_half": {"conv1d": 6},
    "silero_op15": {"conv1d": 6},
    "silero_op18": {"conv1d": 6},
    "silero_openvino": {"conv1d": 6},
    "silero_sequence": {"conv1d": 6},
}
"""How often some ops stand in each graph: as often as in the file."""


def _inputs(read: OnnxModel, seed: int = 0) -> dict[str, Array]:
    """Random inputs; integers are bytes, and a few are beyond them as magika's padding is."""
    random = np.random.default_rng(seed)
    made: dict[str, Any] = {}
    for name, tensor in read.graph.tensors.items():
        if tensor.role == "input":
            floating = "float" in tensor.dtype
            drawn = random.standard_normal(tensor.shape) if floating else random.integers(0, 257, tensor.shape)
            made[name] = drawn.astype(tensor.dtype)
    return made


def _stacked(model: Any, feeds: dict[str, Array]) -> list[Array]:
    """Run each item of a batch on its own, at the batch of one that the file declares."""
    evaluator = reference(model)
    (name,) = feeds
    each = [evaluator.run(None, {name: item[None]}) for item in feeds[name]]
    return [np.concatenate(items) for items in zip(*each, strict=True)]


@pytest.mark.parametrize("name", [*LIGHT, *REAL])
def test_every_file_comes_in_whole(name: str) -> None:
    file = {**LIGHT, **REAL}[name]
    graph = load(file.find(), file.dims, file.input_shapes)
    graph.validate()
    assert graph.unused == []
    counts = Counter(node.op for node in graph.nodes.values())
    assert {op: counts[op] for op in OPS[name]} == OPS[name]
    assert type(graph).from_json(graph.to_json()).to_json() == graph.to_json()


@pytest.mark.parametrize("name", LIGHT)
def test_a_batch_of_eight_is_everywhere(name: str) -> None:
    read = read_onnx(LIGHT[name].find(), input_shapes={_only_input(name): (8, 3, 224, 224)})
    assert all(read.graph.tensors[output].shape[0] == 8 for output in read.graph.outputs)
    held = {tensor.shape[0] for tensor in read.graph.tensors.values() if tensor.producer and len(tensor.shape) > 3}
    assert held <= {8} | {weight.shape[0] for weight in read.weights.values()}


def _only_input(name: str) -> str:
    return next(t.name for t in load(LIGHT[name].find()).tensors.values() if t.role == "input")


SLOW = {"bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "vgg19", "zfnet512"}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in LIGHT])
def test_light_models_compute_what_the_reference_computes(name: str, tmp_path: Path) -> None:
    model = in_double(seeded(onnx.load(LIGHT[name].find())))
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    read = read_onnx(path, input_shapes={_only_input(name): (2, 3, 224, 224)})
    feeds = _inputs(read)
    ours = evaluate(read.graph, {**read.weights, **feeds})
    for mine, theirs in zip(ours.values(), _stacked(model, feeds), strict=True):
        assert relative_error(mine, theirs) < 1e-9


@pytest.mark.parametrize("name", REAL)
def test_real_models_compute_what_the_reference_computes(name: str, tmp_path: Path) -> None:
    file: ModelFile = REAL[name]
    model = in_double(onnx.load(file.find()))
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    read = read_onnx(path, file.dims, file.input_shapes)
    feeds = _inputs(read)
    ours = evaluate(read.graph, {**read.weights, **feeds})
    scalars = {name: np.array(value, np.int64) for name, value in file.dims.items() if name == "sr"}
    theirs = reference(model).run(None, {**feeds, **scalars})
    for mine, other in zip(ours.values(), theirs, strict=True):
        assert relative_error(mine, other) < 1e-9


def test_swapped_channels_do_not_pass_unseen(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(seeded(onnx.load(LIGHT["squeezenet"].find())), path)
    read = read_onnx(path)
    feeds = {**read.weights, **_inputs(read)}
    (right,) = evaluate(read.graph, feeds).values()
    name = next(name for name, weight in read.weights.items() if weight.ndim == 4 and weight.shape[1] >= 64)
    half = feeds[name].shape[1] // 2
    (swapped,) = evaluate(read.graph, {**feeds, name: np.roll(feeds[name], half, axis=1)}).values()
    assert relative_error(swapped, right) > 1e-4, "the runs above agree to 1e-9"
