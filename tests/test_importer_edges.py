"""The edges of an ONNX file: its name, what it declares of its inputs, and what passes through it untouched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper  # noqa: E402

from solver import Mesh, load, plan  # noqa: E402
from solver.importers import ImporterError  # noqa: E402

Save = Callable[..., Path]


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Write a model with one input x and the outputs named."""

    def write(nodes: list[Any], shape: list[int], *outputs: str, name: str = "model.onnx") -> Path:
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
        results = [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape) for output in outputs]
        path = tmp_path / name
        onnx.save(helper.make_model(helper.make_graph(nodes, "g", [x], results), ir_version=8), path)
        return path

    return write


def test_an_input_that_is_an_output_costs_nothing(save: Save) -> None:
    graph = load(save([], [4, 8], "x"))
    assert (list(graph.nodes), graph.outputs, graph.notes) == ([], ["x"], [])
    found = plan(graph, Mesh({"dp": 2}))
    assert found.cost_ps == 0
    assert found.check().ok
    assert found.simulate().ok


def test_an_output_with_a_name_of_its_own_is_a_copy(save: Save) -> None:
    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    graph = load(save(nodes, [4, 8], "y", "x"))
    assert ([node.op for node in graph.nodes.values()], graph.outputs) == (["assign"], ["y", "x"])


@pytest.mark.parametrize("size", [0, -1])
def test_a_size_below_one_is_named(save: Save, size: int) -> None:
    path = save([helper.make_node("Relu", ["x"], ["y"])], [size, 9], "y")
    with pytest.raises(ImporterError) as caught:
        load(path)
    assert str(caught.value) == (
        f"input 'x' [{size}, 9] leaves dim 0 ({size} in the file, and only sizes from 1 up can be planned) without a "
        "size: write --input-shape x=SIZEx9 (input_shapes={'x': (...)})"
    )
    assert load(path, input_shapes={"x": (4, 9)}).tensors["y"].shape == (4, 9)


def test_the_name_of_a_graph_stands_in_one_line(save: Save) -> None:
    graph = load(save([helper.make_node("Relu", ["x"], ["y\n1"])], [2], "y\n1", name="new\nline.onnx"))
    told = str(plan(graph, Mesh({"dp": 2})))
    assert told.startswith("new\\nline: 1 op on dp=2")
    assert "  y\\n1   relu " in told
