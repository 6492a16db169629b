# ruff: noqa: E402
"""ONNX networks in training: a real ResNet-50 and a transformer, differentiated and held against differences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="the extra onnx is not installed: pip install 'shardproof[onnx]'")
from models import LIGHT
from onnx import TensorProto, helper, numpy_helper
from slopes import Slopes

from solver import Mesh, load, plan
from solver.autodiff import add_gradients
from solver.graph import Graph
from solver.training import training_step

BATCH, SEQUENCE, WIDTH, HEADS, VOCABULARY = 2, 4, 20, 2, 12


def small_resnet(tmp_path: Path) -> Graph:
    """The light ResNet-50 on images of 32 x 32, with a last pool that fits."""
    model = onnx.load(LIGHT["resnet50"].find())
    for node in model.graph.node:
        if node.op_type == "AveragePool":
            next(a for a in node.attribute if a.name == "kernel_shape").ints[:] = [1, 1]
    image = next(given for given in model.graph.input if given.name == "gpu_0/data_0")
    for dim, size in zip(image.type.tensor_type.shape.dim, (1, 3, 32, 32), strict=True):
        dim.dim_value = size
    del model.graph.value_info[:]
    onnx.save(model, tmp_path / "resnet.onnx")
    return load(tmp_path / "resnet.onnx", input_shapes={"gpu_0/data_0": (2, 3, 32, 32)})


class Transformer:
    """One block of a transformer, its layers named as PyTorch's exporter names them."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.random = np.random.default_rng(0)

    def weight(self, name: str, *shape: int) -> str:
        self.constant(name, self.random.standard_normal(shape).astype(np.float32))
        return name

    def constant(self, name: str, value: Any) -> str:
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def op(self, kind: str, *operands: str, name: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(kind, operands, [name], name=f"node_{name}", **attributes))
        return name

    def linear(self, x: str, name: str, inner: int, outer: int) -> str:
        product = self.op("MatMul", x, self.weight(f"{name}.weight", inner, outer), name=f"{name}.product")
        return self.op("Add", product, self.weight(f"{name}.bias", outer), name=name)

    def norm(self, x: str, name: str) -> str:
        scale, bias = self.weight(f"{name}.weight", WIDTH), self.weight(f"{name}.bias", WIDTH)
        return self.op("LayerNormalization", x, scale, bias, name=name, axis=-1)

    def attention(self, x: str) -> str:
        heads = self.constant("heads", np.array([BATCH, SEQUENCE, HEADS, WIDTH // HEADS]))
        split = {}
        for name, perm in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
            y = self.op("Reshape", self.linear(x, f"attn.{name}", WIDTH, WIDTH), heads, name=f"{name}.heads")
            split[name] = self.op("Transpose", y, name=f"{name}.turned", perm=perm)
        scores = self.op("MatMul", split["q"], split["k"], name="scores")
        scaled = self.op("Div", scores, self.constant("root", np.float32((WIDTH // HEADS) ** 0.5)), name="scaled")
        later = self.constant("later", np.triu(np.full((SEQUENCE, SEQUENCE), -1e9, np.float32), 1))
        probs = self.op("Softmax", self.op("Add", scaled, later, name="masked"), name="probs", axis=-1)
        mixed = self.op("Transpose", self.op("MatMul", probs, split["v"], name="mixed"), name="back", perm=[0, 2, 1, 3])
        joined = self.op("Reshape", mixed, self.constant("joined", np.array([BATCH, SEQUENCE, WIDTH])), name="merged")
        return self.linear(joined, "attn.out", WIDTH, WIDTH)

    def gelu(self, x: str) -> str:
        half = self.op("Mul", x, self.constant("half", np.float32(0.5)), name="halved")
        erf = self.op("Erf", self.op("Div", x, self.constant("root2", np.float32(2**0.5)), name="spread"), name="erf")
        return self.op(
            "Mul", half, self.op("Add", erf, self.constant("one", np.float32(1)), name="raised"), name="gelu"
        )

    def model(self) -> Any:
        """Embedding that is the head, too; block; the log-likelihood of labels."""
        table = self.weight("wte", VOCABULARY, WIDTH)
        x = self.op("Gather", table, "ids", name="tokens")
        x = self.op("Add", x, self.weight("wpe", SEQUENCE, WIDTH), name="embedded")
        x = self.op("Add", x, self.attention(self.norm(x, "ln_1")), name="after_attention")
        wide = self.gelu(self.linear(self.norm(x, "ln_2"), "mlp.up", WIDTH, 4 * WIDTH))
        x = self.op("Add", x, self.linear(wide, "mlp.down", 4 * WIDTH, WIDTH), name="after_mlp")
        head = self.op("Transpose", table, name="head", perm=[1, 0])
        logits = self.op("MatMul", self.norm(x, "ln_f"), head, name="logits")
        chosen = self.op(
            "GatherElements", self.op("LogSoftmax", logits, name="likely", axis=-1), "labels", name="chosen", axis=-1
        )
        self.op("Neg", self.op("ReduceMean", chosen, name="mean", keepdims=0), name="loss")
        given = [helper.make_tensor_value_info("ids", TensorProto.INT64, [BATCH, SEQUENCE])]
        given.append(helper.make_tensor_value_info("labels", TensorProto.INT64, [BATCH, SEQUENCE, 1]))
        made = [helper.make_tensor_value_info("loss", TensorProto.FLOAT, [])]
        made.append(helper.make_tensor_value_info("logits", TensorProto.FLOAT, [BATCH, SEQUENCE, VOCABULARY]))
        return helper.make_model(
            helper.make_graph(self.nodes, "transformer", given, made, self.weights),
            opset_imports=[helper.make_opsetid("", 17)],
            ir_version=9,
        )


@pytest.fixture
def transformer(tmp_path: Path) -> Path:
    path = tmp_path / "transformer.onnx"
    onnx.save(Transformer().model(), path)
    return path


def test_resnet50_agrees_with_differences(tmp_path: Path) -> None:
    """Kind by kind of weight, all layers of a kind along one direction; the loss is that of the logits."""
    graph = small_resnet(tmp_path)
    logits = list(graph.nodes)[-2]
    step = add_gradients(graph, logits)
    slopes = Slopes(graph, step, logits, move=1e-7)
    kinds = {suffix: [name for name in slopes.grads if name.endswith(f"_{suffix}_0")] for suffix in "wsb"}
    assert {kind: len(names) for kind, names in kinds.items()} == {"w": 54, "s": 53, "b": 54}
    assert sum(map(len, kinds.values())) == len(slopes.grads)
    assert not list(slopes.wrong(list(kinds.values())))
    assert slopes.kinks == 0
    assert sum("batch_norm, which has no gradient" in note for note in step.notes) == 2, "means and variances"


def test_a_transformer_agrees_with_differences(transformer: Path) -> None:
    graph = load(transformer)
    step = add_gradients(graph, "loss")
    assert len(step.gradients) == 2 + 6 + 2 * 6
    slopes = Slopes(graph, step, "loss")
    assert not list(slopes.wrong())
    assert slopes.kinks == 0


def planned_whole(step: Graph, timeout: float = 300, gap: float = 0.0) -> None:
    """Plan a step on 2 x 2 to the proof, or to a certified gap, check it, and run it on simulated devices."""
    found = plan(step, Mesh({"dp": 2, "tp": 2}), timeout=timeout)
    assert found.gap is not None
    assert found.gap <= gap
    program = found.program
    for follower, leader in step.ties.items():
        buffer = program.sources[follower] if follower in program.sources else program.outputs[follower]
        assert program.buffers[buffer].layout == program.buffers[program.sources[leader]].layout
    checked = found.check()
    assert checked.ok, str(checked)
    assert checked.bound == found.bound_ps
    ran = found.simulate(seed=1)
    assert ran.ok, str(ran)
    assert ran.bytes_sent == ran.predicted_bytes


def test_a_transformer_in_training_is_planned_and_run(transformer: Path) -> None:
    planned_whole(training_step(load(transformer), "loss", "adamw", clip_norm=1.0))


@pytest.mark.slow
def test_resnet50_in_training_is_planned_and_run(tmp_path: Path) -> None:
    """Its bound stays 2% below after a minute."""
    planned_whole(training_step(small_resnet(tmp_path), optimizer="momentum"), timeout=60, gap=0.1)


@pytest.mark.parametrize("name", [name for name in LIGHT if name != "densenet121"])
def test_every_light_network_can_be_trained(name: str) -> None:
    """Every weight has a gradient, but for the statistics of normalizations."""
    graph = load(LIGHT[name].find())
    step = training_step(graph, optimizer="sgd")
    learned = set(step.gradients.values())
    for tensor in graph.tensors.values():
        if tensor.role == "parameter" and tensor.name not in learned:
            assert {(graph.nodes[use.op].op, use.operand) for use in graph.uses(tensor.name)} <= {
                ("batch_norm", "mean"),
                ("batch_norm", "variance"),
            }
