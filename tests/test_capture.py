"""The capture format: what is read and written, what is refused, and what a graph keeps of it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from solver import load
from solver.importers.aten import TABLE, lower
from solver.importers.capture import Ref, Spec, capture_from, read_capture, write_capture
from solver.importers.errors import ImporterError, UnreadableModelError, UnsupportedNodeError

CAPTURES = Path(__file__).resolve().parent.parent / "benchmarks" / "data" / "captures"
SIZES = {
    "bert": (955, 202),
    "convnext": (726, 182),
    "gpt2": (948, 148),
    "hf_resnet50": (371, 161),
    "llama7b": (4957, 291),
    "mixtral_grouped": (953, 39),
    "t5": (2425, 131),
    "vit": (941, 200),
}
"""Capture -> ops of its graph, and gradients."""


def ref(name: str) -> dict[str, str]:
    return {"n": name}


def step(**changes: Any) -> dict[str, Any]:
    """A linear layer in one training step: a sum as its loss, a running count that changes."""
    f32 = "float32"
    nodes = {
        "w": {"op": "placeholder", "val": [[3, 4], f32], "role": "ParamAOTInput", "target": "fc.weight"},
        "c": {"op": "placeholder", "val": [[], "int64"], "role": "BufferAOTInput", "target": "count"},
        "x": {"op": "placeholder", "val": [[2, 4], f32], "role": "PlainAOTInput", "target": None},
        "one": {"op": "placeholder", "val": [[], f32], "role": "TangentAOTInput"},
        "t": {"op": "aten.t.default", "args": [ref("w")], "val": [[4, 3], f32], "mod": "fc"},
        "mm": {"op": "aten.mm.default", "args": [ref("x"), ref("t")], "val": [[2, 3], f32], "mod": "fc"},
        "loss": {"op": "aten.sum.default", "args": [ref("mm")], "val": [[], f32]},
        "more": {"op": "aten.add.Tensor", "args": [ref("c"), 1], "val": [[], "int64"]},
        "g": {"op": "aten.expand.default", "args": [ref("one"), [2, 3]], "val": [[2, 3], f32], "bw": 1},
        "gt": {"op": "aten.t.default", "args": [ref("g")], "val": [[3, 2], f32], "bw": 1},
        "gw": {"op": "aten.mm.default", "args": [ref("gt"), ref("x")], "val": [[3, 4], f32], "bw": 1},
        "output": {"op": "output", "args": [[ref("loss"), ref("gw"), None, None]]},
        **changes,
    }
    return {"model": "step", "nodes": [{"name": name, **node} for name, node in nodes.items() if node]}


def with_mutation() -> dict[str, Any]:
    outs = [["InputMutationAOTOutput", "c"], ["PlainAOTOutput", ""], ["GradAOTOutput", "w"]]
    return step(output={"op": "output", "args": [[ref("more"), ref("loss"), ref("gw")]], "outs": outs})


def test_a_step_keeps_names_roles_ties_and_modules() -> None:
    graph = lower(capture_from(with_mutation()))
    roles = {tensor.name: tensor.role for tensor in graph.tensors.values() if tensor.role != "result"}
    assert roles == {"x": "input", "fc.weight": "parameter", "count": "state", "gt": "constant"}
    assert [(node.name, node.op, node.attrs) for node in graph.nodes.values()] == [
        ("mm", "matmul", {"transpose_y": True}),
        ("loss", "sum", {"axis": [0, 1], "keepdim": False}),
        ("more", "scale", {"bias": 1}),
        ("gw", "matmul", {}),
    ]
    assert graph.outputs == ["more", "loss", "gw"]
    assert (graph.ties, graph.gradients) == ({"more": "count", "gw": "fc.weight"}, {"gw": "fc.weight"})
    assert graph.nodes["mm"].module == "fc"
    assert graph.notes == ["folded into constants: g, gt"]


def test_without_a_word_on_outputs_the_last_ones_are_gradients_and_a_wrapper_is_no_part_of_names() -> None:
    wrapped = step()
    for node in wrapped["nodes"][:2]:
        node["target"] = f"m.{node['target']}"
    graph = lower(capture_from(wrapped))
    assert (graph.outputs, graph.gradients) == (["loss", "gw"], {"gw": "fc.weight"})
    assert graph.notes[1] == "left out, as nothing reads them: count"


def test_a_name_without_the_wrapper_keeps_every_word() -> None:
    bare = {"op": "placeholder", "val": [[3, 4], "float32"], "role": "ParamAOTInput", "target": "model.weight"}
    assert "model.weight" in lower(capture_from(step(w=bare))).tensors


@pytest.mark.parametrize("model", SIZES)
def test_the_captures_lower_whole(model: str, tmp_path: Path) -> None:
    capture = read_capture(CAPTURES / f"{model}.json.gz")
    write_capture(capture, tmp_path / "again.json.gz")
    write_capture(capture, tmp_path / "again.json")
    assert read_capture(tmp_path / "again.json.gz") == read_capture(tmp_path / "again.json") == capture
    graph = load(CAPTURES / f"{model}.json.gz")
    assert (len(graph.nodes), len(graph.gradients)) == SIZES[model]
    assert graph.gradients.items() <= graph.ties.items()
    assert set(graph.gradients.values()) == {t.name for t in graph.tensors.values() if t.role == "parameter"}
    graph.validate()


def test_arguments_of_every_kind_are_read() -> None:
    args = [[1, ref("x")], 2.5, True, None, {"s": "torch.float32"}, {"f": "-inf"}]
    capture = capture_from(step(mm={"op": "aten.mm.default", "args": args, "val": {"t": [[[1], "bool"], None]}}))
    node = next(node for node in capture.nodes if node.name == "mm")
    assert node.args == ([1, Ref("x")], 2.5, True, None, "torch.float32", float("-inf"))
    assert node.val == (Spec((1,), "bool"), None)


UNKNOWN = {"op": "aten.fft_r2c.default", "args": [ref("mm")], "val": [[2, 3], "float32"], "mod": "fc"}


def test_unknown_ops_are_all_told_with_the_line_that_adds_each() -> None:
    data = step(loss={"op": "mylib.blur.out", "args": [ref("mm")], "val": [[], "float32"]}, more=UNKNOWN)
    with pytest.raises(UnsupportedNodeError) as raised:
        lower(capture_from(data))
    add = 'aten.TABLE["{}"] = lambda site, x: site.emit("{}", x)'
    assert str(raised.value) == (
        "step has 2 ops without a lowering; add a row to the table of solver.importers.aten for each, by an op of ours "
        'or by one declared with ops.replicate_only("name", "x[a*] -> out[a*]", kernel=...): '
        f"mylib.blur.out at 'loss': {add.format('mylib.blur.out', 'blur')}; "
        f"aten.fft_r2c.default at 'more' in module 'fc': {add.format('aten.fft_r2c.default', 'fft_r2c')}"
    )


def node(**facts: Any) -> Callable[[], dict[str, Any]]:
    """A step whose product is another node."""
    given = {"op": "aten.mm.default", "args": [ref("x"), ref("t")], "val": [[2, 3], "float32"], "mod": "fc"}
    return lambda: step(mm={**given, **facts})


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (list, "it is no capture: a capture is"),
        (lambda: {"nodes": []}, "a capture ends with its one output node, and this one does not: it is cut off"),
        (lambda: step(output=None), "a capture ends with its one output node"),
        (lambda: {"nodes": [{"op": "placeholder"}]}, "node 0 has no name or no op"),
        (lambda: {"nodes": step()["nodes"][:1] * 2}, "two nodes are called 'w'"),
        (node(args=[ref("later"), ref("t")]), "node 'mm' .* reads 'later', which no node before it makes"),
        (node(args=[{"q": 1}]), "node 'mm' .* has the argument {'q': 1}"),
        (node(args=7), "node 'mm' .* has args that are no list"),
        (node(val=[[2, -3], "float32"]), "node 'mm' .* has val"),
        (lambda: step(x={"op": "placeholder", "val": [[2, 4], "float32"], "role": "Guess"}), "has role 'Guess'"),
        (lambda: step(x={"op": "placeholder", "role": "PlainAOTInput"}), "node 'x' .* has no shape and dtype"),
        (
            lambda: step(output={"op": "output", "args": [[ref("loss")]], "outs": [["Odd", "w"]]}),
            "has outs that are no",
        ),
    ],
)
def test_what_is_no_capture_is_refused_in_one_sentence(data: Callable[[], Any], complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "step.json.gz"
    path.write_bytes(gzip.compress(json.dumps(data()).encode()))
    with pytest.raises(UnreadableModelError, match=complaint):
        read_capture(path)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (
            node(val=[[2, 5], "float32"]),
            r"'mm' .* module 'fc': it is lowered to shape \(2, 3\), and the capture says \(2, 5\)",
        ),
        (node(args=[ref("x"), ref("x")]), "node 'mm' .* in module 'fc': factor 'k' .* has two sizes"),
        (
            node(args=[ref("x")]),
            r"'mm' .* do not fit aten.mm.default: it takes \(x, y\), and is given \(a float32 .* \(2, 4\)\)$",
        ),
        (
            node(args=[[ref("x")], ref("t")]),
            r"it takes \(x, y\), and is given \(\[a float32 tensor of shape \(2, 4\)\], a float32 .* \(4, 3\)\)$",
        ),
        (
            node(op="aten.sum.dim_IntList", args=[ref("x"), [{"n": "t"}]]),
            r"'mm' .*: its arguments do not fit aten.sum.dim_IntList: it takes \(.*dim.*\), and is given \(a float32",
        ),
        (
            node(op="getitem", args=[]),
            r"node 'mm' \(getitem\) .*: getitem takes \(a node, an index\), and is given \[\]$",
        ),
        (
            node(op="getitem", args=[[[], "float32"], 0]),
            r"getitem takes \(a node, an index\), and is given \[\[\[\], 'float32'\], 0\]$",
        ),
        (node(op="constant", args=[[1, 2]]), r"it holds 2 values, and the capture says shape \(2, 3\)"),
        (node(val=[[2, 3], "int64"]), "'mm' .*: it is lowered to dtype float32, and the capture says int64"),
        (node(val=[[2, 3], "float16"]), "'mm' .*: it is lowered to dtype float32, and the capture says float16"),
        (
            lambda: step(more={"op": "aten.add.Tensor", "args": [ref("c"), 1], "val": [[], "bool"]}),
            "'more' .*: it reads an int64 tensor of shape \\(\\), which a result of dtype bool does not hold",
        ),
        *(
            (
                node(op=op, args=args, val=[shape, dtype]),
                f"'mm' .*: (it .*, which a result of dtype {dtype} does not hold|it is lowered to dtype float32)",
            )
            for op, args, shape, dtype in (
                ("aten.add.Tensor", [ref("x"), 1], [2, 4], "int64"),
                ("aten.mul.Tensor", [ref("x"), 1], [2, 4], "float64"),
                ("aten.mul.Tensor", [ref("c"), 1.5], [], "int64"),
                ("aten.sub.Tensor", [ref("x"), ref("c")], [2, 4], "float16"),
                ("aten.sum.default", [ref("x")], [], "int64"),
                ("aten.mean.dim", [ref("x"), [0]], [4], "float64"),
                ("aten.cat.default", [[ref("x"), ref("x")]], [4, 4], "int64"),
                ("aten._softmax.default", [ref("x"), 1, False], [2, 4], "float64"),
                ("aten.exp.default", [ref("c")], [], "int64"),
            )
        ),
        (
            lambda: step(c={"op": "placeholder", "val": [[], "int64"], "role": "ParamAOTInput", "target": "fc.weight"}),
            "node 'c' .*: its target 'fc.weight' is that of 'w' too: a tensor that is used in two places has one",
        ),
        (
            lambda: step(output={"op": "output", "args": [[ref("gw")]], "outs": [["GradAOTOutput", "nope"]]}),
            "node 'output' .*: an output is the GradAOTOutput of 'nope', which is no placeholder",
        ),
        (
            lambda: step(output={"op": "output", "args": [[ref("loss"), ref("gw"), ref("gw"), None, None]]}),
            "it has more gradients than the 3 placeholders .*: 'gw' stands among the results of the forward pass",
        ),
        (
            lambda: step(output={"op": "output", "args": [[[ref("loss")], ref("gw"), None, None]]}),
            r"its output \[node 'loss'\] is no tensor here",
        ),
        (
            lambda: step(output={"op": "output", "args": [[ref("loss")]]}),
            "has 1 outputs, fewer than the 3 placeholders",
        ),
        (lambda: step(output={"op": "output", "args": [[3, None, None, None]]}), "its output 3 is no tensor here"),
        (
            lambda: step(loss={"op": "getitem", "args": [ref("mm"), 0], "val": [[], "float32"]}),
            "asks for result 0 of node 'mm', which has no several results",
        ),
        *(
            (
                lambda at=at: step(  # type: ignore[misc]
                    mm={"op": "aten.var_mean.correction", "args": [ref("x")], "val": {"t": [[[], "float32"]] * 2}},
                    loss={"op": "getitem", "args": [ref("mm"), at], "val": [[], "float32"]},
                    output={"op": "output", "args": [[ref("loss"), None, None, None]]},
                ),
                f"node 'loss' .*: it asks for result {at!r} of node 'mm', which has 2 results, counted from 0",
            )
            for at in (-9, -1, 2, True, "first")
        ),
    ],
)
def test_what_cannot_be_lowered_is_told_with_its_node(data: Callable[[], Any], complaint: str) -> None:
    with pytest.raises(UnsupportedNodeError, match=complaint) as raised:
        lower(capture_from(data()))
    assert "\n" not in str(raised.value)


def test_values_are_told_shortly() -> None:
    known = {"op": "constant", "args": [[float(index) for index in range(6)]], "val": [[2, 3], "float32"]}
    many = {"op": "aten.arange.default", "args": [ref("mm")], "val": [[6], "float32"], "mod": "fc"}
    with pytest.raises(UnsupportedNodeError, match=r"a float32 tensor of shape \(2, 3\)") as raised:
        lower(capture_from(step(mm=known, loss=many)))
    assert "\n" not in str(raised.value)
    assert "array" not in str(raised.value)


HOSTILE: list[list[Any]] = [
    [],
    [None],
    [ref("c")],
    [[ref("x"), ref("t")], 7],
    ["text", 1.5],
    [ref("x"), "text"],
    [ref("x"), 99, -99],
    [ref("x"), [0, "a"], None],
    [ref("x"), ref("x"), [[], "float32"]],
    [ref("x"), {"f": "nan"}, {"f": "inf"}],
    [[[], "float32"], 0],
]


@pytest.mark.parametrize("args", HOSTILE, ids=map(str, range(len(HOSTILE))))
def test_whatever_an_op_is_given_is_read_or_refused_in_one_sentence(args: list[Any]) -> None:
    outs = [["PlainAOTOutput", ""]]
    for op in [*TABLE, "getitem", "aten.add_.Tensor", "aten.copy_.default"]:
        for val in ([[2, 3], "float32"], {"t": [[[2, 3], "float32"], None]}, None):
            hostile = {"op": op, "args": args, "val": val}
            output = {"op": "output", "args": [[ref("mm")]], "outs": outs}
            data = step(mm=hostile, loss=None, gw=None, more=None, output=output)
            told = ""
            try:
                lower(capture_from(data))
            except UnsupportedNodeError as error:
                told = str(error)
            assert "\n" not in told
            assert len(told) < 1000


def test_integers_of_another_width_and_a_byte_for_a_truth_are_what_the_capture_says() -> None:
    more = {"op": "aten.add.Tensor", "args": [ref("c"), 1], "val": [[], "int32"]}
    outs = [["PlainAOTOutput", ""]]
    graph = lower(capture_from(step(more=more, output={"op": "output", "args": [[ref("more")]], "outs": outs})))
    assert [graph.tensors[name].dtype for name in graph.outputs] == ["int32"]


def test_the_door_knows_a_capture_by_what_it_holds(tmp_path: Path) -> None:
    for name, text in (("a.json", False), ("b.json.gz", True), ("c", True)):
        raw = json.dumps(step()).encode()
        (tmp_path / name).write_bytes(gzip.compress(raw) if text else raw)
        assert load(tmp_path / name).outputs == ["loss", "gw"]
    (tmp_path / "cut.json.gz").write_bytes(gzip.compress(raw)[:40])
    with pytest.raises(ImporterError, match="is cut off or damaged"):
        load(tmp_path / "cut.json.gz")
    with pytest.raises(ImporterError, match="can be given for ONNX files"):
        load(tmp_path / "b.json.gz", dims={"batch": 2})
