# ruff: noqa: E402
"""ONNX models come in whole, or are refused in one sentence."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
import models
from models import evaluate, relative_error
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from solver import load
from solver.importers import ImporterError
from solver.importers.onnx import OnnxModel, read_onnx

Array = np.ndarray[Any, Any]
Save = Callable[..., Path]


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Write a model given as ONNX text, with initializers by name."""

    def write(text: str, opset: int = 18, functions: str = "", **initializers: Any) -> Path:
        model = onnx.parser.parse_model(
            f'<ir_version: 10, opset_import: ["" : {opset}, "my" : 1]>\n{text}\n{functions}'
        )
        model.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), name) for name, v in initializers.items())
        path = tmp_path / "model.onnx"
        onnx.save(model, path)
        return path

    return write


def run(read: OnnxModel, **feeds: Array) -> list[Array]:
    return list(evaluate(read.graph, {**read.weights, **feeds}).values())


def reference(path: Path, **feeds: Array) -> list[Array]:
    return ReferenceEvaluator(onnx.load(path)).run(None, feeds)


def ops(read: OnnxModel) -> list[str]:
    return [node.op for node in read.graph.nodes.values()]


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def refusal(path: Path, **given: Any) -> str:
    with pytest.raises(ImporterError) as caught:
        read_onnx(path, **given)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# ------------------------------------------------------------------------------------------------------------ folding


def test_shapes_and_constants_fold(save: Save) -> None:
    path = save(
        """flat (float[b, 4, 6] x) => (float[b, m] y) {
            shape = Shape(x)
            zero = Constant<value = int64 {0}>()
            batch = Gather(shape, zero)
            axes = Constant<value = int64[1] {0}>()
            first = Unsqueeze(batch, axes)
            rest = Constant<value = int64[1] {-1}>()
            target = Concat<axis = 0>(first, rest)
            y = Reshape(x, target)
        }"""
    )
    read = read_onnx(path, dims={"b": 3})
    assert ops(read) == ["reshape"]
    assert read.graph.tensors["y"].shape == (3, 24)
    x = numbers(3, 4, 6)
    assert np.array_equal(run(read, x=x)[0], reference(path, x=x)[0])


IF = """choose (float[2, 3] x) => (float[2, 3] y) {
    shape = Shape<start = 1>(x)
    three = Constant<value = int64[1] {3}>()
    wide = Equal(shape, three)
    y = If(wide)<
        then_branch = yes () => (float[2, 3] out) { same = Relu(x) out = Exp(same) },
        else_branch = no () => (float[2, 3] out) { same = Foo(x) out = Log(same) }>
}"""


def test_an_if_with_a_known_condition_is_one_of_its_branches(save: Save) -> None:
    path = save(IF.replace("Foo", "Abs"))
    read = read_onnx(path)
    assert ops(read) == ["relu", "exp"]
    assert read.graph.outputs == ["y"]
    x = numbers(2, 3)
    assert relative_error(run(read, x=x)[0], reference(path, x=x)[0]) < 1e-6


def test_branches_may_use_each_other_s_names(save: Save) -> None:
    twice = """twice (float[2, 3] x) => (float[2, 3] y) {
        yes = Constant<value = int32 {1}>()
        on = Cast<to = 9>(yes)
        a = If(on)<then_branch = t () => (float[2, 3] out) { inner = Relu(x) out = Exp(inner) },
                   else_branch = e () => (float[2, 3] out) { out = Log(x) }>
        y = If(on)<then_branch = t () => (float[2, 3] out) { inner = Neg(a) out = Add(inner, a) },
                   else_branch = e () => (float[2, 3] out) { out = Identity(x) }>
    }"""
    read = read_onnx(save(twice))
    assert ops(read) == ["relu", "exp", "neg", "add"]
    x = numbers(2, 3)
    assert np.array_equal(run(read, x=x)[0], np.zeros((2, 3)))


def test_an_if_on_data_is_refused_and_a_scalar_can_be_given(save: Save) -> None:
    path = save(
        """rate (float[2] x, int64 sr) => (float[2] y) {
            fast = Constant<value = int64 {16000}>()
            on = Equal(sr, fast)
            y = If(on)<then_branch = t () => (float[2] out) { out = Relu(x) },
                       else_branch = e () => (float[2] out) { out = Neg(x) }>
        }"""
    )
    message = refusal(path)
    assert "(If)" in message
    assert "'on'" in message
    assert "--dim sr=" in message
    assert ops(read_onnx(path, dims={"sr": 16000})) == ["relu"]
    assert ops(read_onnx(path, dims={"sr": 8000})) == ["neg"]


def test_functions_of_the_model_are_inlined(save: Save) -> None:
    path = save(
        "f (float[2, 3] x) => (float[2, 3] y) { t = my.twice<slope = 2.0>(x) y = my.twice<slope = 0.5>(t) }",
        functions="""<domain: "my", opset_import: ["" : 18]> twice <slope> (a) => (b) {
            k = Constant<value_float: float = @slope>()
            s = Mul(a, k)
            b = Add(s, a)
        }""",
    )
    read = read_onnx(path)
    assert ops(read) == ["multiply", "add"] * 2
    x = numbers(2, 3)
    assert relative_error(run(read, x=x)[0], 3 * x * 1.5) < 1e-6


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_neighbours_are_those_of_the_standard(save: Save, size: int) -> None:
    path = save(f"f (float[2, 6, 3, 3] x) => (float[2, 6, 3, 3] y) {{ y = LRN<size = {size}, alpha = 0.5>(x) }}")
    x = numbers(2, 6, 3, 3)
    (theirs,) = models.reference(onnx.load(path)).run(None, {"x": x})
    assert relative_error(run(read_onnx(path), x=x)[0], theirs) < 1e-5


def test_ops_that_the_standard_defines_by_a_function_are_read_through_it(save: Save) -> None:
    path = save("mvn (float[2, 3, 4, 5] x) => (float[2, 3, 4, 5] y) { y = MeanVarianceNormalization(x) }")
    read = read_onnx(path)
    x = numbers(2, 3, 4, 5)
    assert "mean" in ops(read)
    assert relative_error(run(read, x=x)[0], reference(path, x=x)[0]) < 1e-5


def test_what_no_output_needs_is_left_out(save: Save) -> None:
    path = save(
        "f (float[2] x, float[2] idle) => (float[2] y) { z = Nonsense(x) w = Neg(idle) y = Relu(x) }".replace(
            "Nonsense", "Det"
        )
    )
    read = read_onnx(path)
    assert ops(read) == ["relu"]


# ------------------------------------------------------------------------------------------------- names and weights


def test_tensors_keep_their_names(save: Save) -> None:
    path = save(
        "f (float[2, 3] x) => (float[2, 3] y) { h = Gemm<transB = 1>(x, w, b) g = Identity(h) y = Relu(g) }",
        w=numbers(30, 3)[:3],
        b=numbers(3),
    )
    read = read_onnx(path)
    assert ops(read) == ["matmul", "add", "relu"]
    assert list(read.graph.nodes) == ["h.matmul", "h", "y"]
    assert {name for name, tensor in read.graph.tensors.items() if tensor.role == "parameter"} == {"w", "b"}
    assert np.array_equal(read.weights["b"], numbers(3))


def test_every_output_keeps_its_name(save: Save) -> None:
    path = save(
        """f (float[2, 4] x) => (float[2, 4] same, float[2, 2] left, float[2, 2] right, float[2, 4] a, float[2, 4] b) {
            same = Identity(x)
            left, right = Split<axis = 1, num_outputs = 2>(x)
            h = Relu(x)
            a = Identity(h)
            b = Identity(h)
        }"""
    )
    read = read_onnx(path)
    assert read.graph.outputs == ["same", "left", "right", "a", "b"]
    x = numbers(2, 4)
    for ours, theirs in zip(run(read, x=x), reference(path, x=x), strict=True):
        assert np.array_equal(ours, theirs)


def test_a_split_of_which_one_part_is_used_is_still_a_split(save: Save) -> None:
    path = save("f (float[2, 6] x) => (float[2, 2] y) { y, b, c = Split<axis = 1>(x) }", opset=13)
    read = read_onnx(path)
    x = numbers(2, 6)
    assert np.array_equal(run(read, x=x)[0], x[:, :2])


def test_weights_and_tables_are_told_apart(save: Save) -> None:
    path = save(
        """f (float[2, 3, 8, 8] x) => (float[2, 5, 6, 6] y) {
            h = Conv(x, filter, bias)
            s = Mul(h, six)
            y = Add(s, many)
        }""",
        filter=numbers(5, 3, 3, 3),
        bias=numbers(5),
        six=np.float32(6),
        many=numbers(1, 1, 6, 6),
    )
    read = read_onnx(path)
    roles = {name: tensor.role for name, tensor in read.graph.tensors.items() if tensor.producer is None}
    assert roles == {"x": "input", "filter": "parameter", "bias": "parameter", "six": "constant", "many": "parameter"}
    assert set(read.weights) == {"filter", "bias", "many"}


def test_an_initializer_that_is_listed_as_an_input_is_a_weight(save: Save) -> None:
    path = save("f (float[2, 3] x, float[3, 30] w) => (float[2, 30] y) { y = MatMul(x, w) }", w=numbers(3, 30))
    roles = {name: tensor.role for name, tensor in read_onnx(path).graph.tensors.items()}
    assert roles == {"x": "input", "w": "parameter", "y": "result"}


def _external(path: Path, **wanted: Any) -> Path:
    model = onnx.load(path)
    onnx.save_model(
        model, path, save_as_external_data=True, location="weights.bin", size_threshold=0, convert_attribute=False
    )
    return path


def test_external_weights_are_read_where_they_are_and_not_needed_for_a_plan(save: Save) -> None:
    path = _external(save("f (float[2, 3] x) => (float[2, 30] y) { y = MatMul(x, w) }", w=numbers(3, 30)))
    assert np.array_equal(read_onnx(path).weights["w"], numbers(3, 30))
    path.with_name("weights.bin").unlink()
    read = read_onnx(path)
    assert read.weights == {}
    assert read.graph.tensors["w"].shape == (3, 30)


def test_external_data_of_every_kind(save: Save) -> None:
    text = "f (float[2, 3] x) => (float[n] y) { h = Mul(x, six) g = Add(h, row) y = Reshape(g, shape) }"
    path = _external(save(text, shape=np.array([6]), six=np.float32(6), row=numbers(3)))
    x = numbers(2, 3)
    assert relative_error(run(read_onnx(path), x=x)[0], (6 * x + numbers(3)).reshape(6)) < 1e-6


def test_external_data_stays_beside_the_model(save: Save) -> None:
    path = _external(save("f (float[2, 3] x) => (float[2, 30] y) { y = MatMul(x, w) }", w=numbers(3, 30)))
    model = onnx.load(path, load_external_data=False)
    model.graph.initializer[0].external_data[0].value = "../weights.bin"
    onnx.save(model, path)
    assert "'w'" in refusal(path)


def test_a_large_known_value_is_stored_and_not_learned(save: Save) -> None:
    path = save("f (float[300, 300] x) => (float[300, 300] y) { y = Where(mask, x, x) }", mask=np.eye(300, dtype=bool))
    read = read_onnx(path)
    assert read.graph.tensors["mask"].role == "state"
    assert np.array_equal(read.weights["mask"], np.eye(300, dtype=bool))


def test_an_external_table_that_is_missing_is_asked_for(save: Save) -> None:
    path = _external(save("f (float[2, 3] x) => (float[n] y) { y = Reshape(x, shape) }", shape=np.array([6])))
    path.with_name("weights.bin").unlink()
    message = refusal(path)
    assert "'shape'" in message
    assert "weights.bin" in message


# -------------------------------------------------------------------------------------------------------------- sizes

DYNAMIC = """f (float[batch, 3, h, h] x, float[batch] z) => (float[batch, 3, h, h] y, float[batch] w) {
    y = Relu(x)
    w = Neg(z)
}"""


def test_a_dim_left_dynamic_is_asked_for(save: Save) -> None:
    path = save(DYNAMIC)
    message = refusal(path)
    assert "'x'" in message
    assert "'batch'" in message
    assert "--dim batch=SIZE --dim h=SIZE" in message
    assert "'h'" in refusal(path, dims={"batch": 8})


def test_a_shape_says_what_its_dims_are_elsewhere(save: Save) -> None:
    read = read_onnx(save(DYNAMIC), input_shapes={"x": (8, 3, 5, 5)})
    assert read.graph.tensors["z"].shape == (8,)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"dims": {"batch": 0, "h": 5}}, ["'batch'", "0"]),
        ({"dims": {"batch": 2.5, "h": 5}}, ["'batch'", "2.5"]),
        ({"dims": {"batch": True, "h": 5}}, ["'batch'", "True"]),
        ({"dims": {"bacth": 8, "h": 5}}, ["'bacth'", "did you mean 'batch'"]),
        ({"dims": {"batch": 8}, "input_shapes": {"x": (4, 3, 5, 5)}}, ["'batch'", "8", "4"]),
        ({"input_shapes": {"x": (4, 3, 5, 6)}}, ["'h'", "5", "6"]),
        ({"input_shapes": {"x": (4, 3, 5)}}, ["[4, 3, 5]", "'x'", "4 dims"]),
        ({"input_shapes": {"q": (4, 3, 5, 5)}}, ["'q'", "'x'", "'z'"]),
        ({"input_shapes": {"x": (4, 3, 5, -1)}}, ["'x'", "-1"]),
    ],
)
def test_sizes_that_do_not_fit_are_refused(save: Save, given: Mapping[str, Any], words: list[str]) -> None:
    message = refusal(save(DYNAMIC), **given)
    assert all(word in message for word in words), message


HEAD = "f (float[1, 4, 2, 2] x) => (float[a, b] y) { r = Relu(x) y = Reshape(r, shape) }"


@pytest.mark.parametrize("table", [[1, 16], [1, -1], [-1, 16], [0, 16], [0, -1]])
def test_a_batch_written_into_a_reshape_is_replaced(save: Save, table: list[int]) -> None:
    path = save(HEAD, shape=np.array(table))
    read = read_onnx(path, input_shapes={"x": (8, 4, 2, 2)})
    assert read.graph.tensors["y"].shape == (8, 16)
    assert len(read.graph.notes) == (table[0] == 1)
    x = numbers(8, 4, 2, 2)
    (ours,) = run(read, x=x)
    assert np.array_equal(ours, np.concatenate([reference(path, x=item[None])[0] for item in x]))


@pytest.mark.parametrize(
    ("table", "shape"),
    [([16, -1], (8, 4, 2, 2)), ([4, 4], (8, 4, 2, 2)), ([1, 16], (8, 4, 4, 4)), ([2, 8], (8, 4, 2, 2))],
)
def test_what_may_not_be_the_batch_is_refused(save: Save, table: list[int], shape: tuple[int, ...]) -> None:
    message = refusal(save(HEAD, shape=np.array(table)), input_shapes={"x": shape})
    assert "(Reshape)" in message
    assert "batch" in message


def test_a_batch_of_several_is_replaced_too(save: Save) -> None:
    path = save("f (float[4, 6] x) => (float[a, b, c] y) { y = Reshape(x, shape) }", shape=np.array([4, 2, 3]))
    assert read_onnx(path, input_shapes={"x": (6, 6)}).graph.tensors["y"].shape == (6, 2, 3)


def test_a_batch_that_a_slice_or_an_index_takes_whole_is_refused(save: Save) -> None:
    whole = save(
        "f (float[1, 6] x) => (float[a, b] y) { y = Slice(x, start, end, axis) }",
        start=np.array([0]),
        end=np.array([1]),
        axis=np.array([0]),
    )
    assert "(Slice)" in refusal(whole, input_shapes={"x": (8, 6)})
    first = save("f (float[1, 6] x) => (float[b] y) { y = Gather<axis = 0>(x, index) }", index=np.array(0))
    assert "(Gather)" in refusal(first, input_shapes={"x": (8, 6)})
    gone = save("f (float[1, 6] x) => (float[b] y) { y = Squeeze(x, axis) }", axis=np.array([0]))
    assert "(Squeeze)" in refusal(gone, input_shapes={"x": (8, 6)})


# ---------------------------------------------------------------------------------------------------------- bad files


def _cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


@pytest.mark.parametrize("size", [0, 1, 10, 60])
def test_a_damaged_file_is_refused(save: Save, size: int) -> None:
    path = save(DYNAMIC)
    _cut(path, size)
    assert "model.onnx" in refusal(path)


def test_other_things_are_no_models(tmp_path: Path) -> None:
    text = tmp_path / "text.onnx"
    text.write_text("This is no model.\n")
    assert "text.onnx" in refusal(text)
    assert "directory" in refusal(tmp_path)
    assert "missing.onnx" in refusal(tmp_path / "missing.onnx")
    for name, content in {"a.bin": b"\x00\x01", "b.json": b"[1, 2]", "c.json": b"{", "d": b""}.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ImporterError, match=name):
            load(tmp_path / name)
    with pytest.raises(ImporterError, match="directory"):
        load(tmp_path)
    (tmp_path / "plan.json").write_text(json.dumps({"graph": {}}))
    with pytest.raises(ImporterError, match="plan"):
        load(tmp_path / "plan.json")


def test_a_file_is_known_by_what_it_holds(save: Save, tmp_path: Path) -> None:
    path = save("f (float[2] x) => (float[2] y) { y = Relu(x) }")
    graph = load(path)
    bare = path.rename(tmp_path / "bare")
    assert load(bare).outputs == graph.outputs == ["y"]
    (tmp_path / "written").write_text(json.dumps(graph.to_json()))
    assert load(tmp_path / "written").to_json() == graph.to_json()
    with pytest.raises(ImporterError, match="'batch'"):
        load(tmp_path / "written", dims={"batch": 2})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("f (float[2] x) => (float[2] y) { y = Relu(z) }", ["'z'"]),
        ("f (float[2] x) => (float[2] y) { y = Nonsense(x) }", ["Nonsense"]),
        ("f (float[2] x) => (float[2] y) { y = my.Secret(x) }", ["'y'", "my.Secret"]),
        ("f (float[2] x) => (int64[n] y) { y = NonZero(x) }", ["'y'", "NonZero"]),
        (
            "f (float[2] x, int64[1] s) => (float[n] y) { y = Reshape(x, s) }",
            ["'y'", "Reshape", "'s'", "computed from data"],
        ),
        ("f (string[2] x) => (string[2] y) { y = Identity(x) }", ["'x'", "text"]),
        ("f (float[2, 3] x, float[4, 5] w) => (float[2, 5] y) { y = MatMul(x, w) }", ["'y'", "MatMul", "3", "4"]),
        ("f (float[2, 3] x) => (float[2, 3] y) { y = Transpose<perm = [0, 5]>(x) }", ["'y'", "Transpose"]),
        ("f (float[2, 3] x) => (float[2, 3] y) { y = Softmax<axis = 7>(x) }", ["'y'", "Softmax", "7"]),
    ],
)
def test_what_cannot_be_read_is_named(save: Save, text: str, words: list[str]) -> None:
    message = refusal(save(text))
    assert all(word in message for word in words), message


def test_an_input_without_a_rank_is_refused(tmp_path: Path) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, None)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    onnx.save(helper.make_model(graph), tmp_path / "m.onnx")
    assert "'x'" in refusal(tmp_path / "m.onnx")
