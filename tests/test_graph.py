"""The graph: building it, reading it, what is refused and in which words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from solver.graph import Graph, GraphError, Node, Tensor, Use
from solver.graph_values import ITEMSIZE


def mlp() -> Graph:
    g = Graph("mlp")
    x = g.input("x", (32, 64))
    w = g.parameter("w", (64, 16))
    y = g.op("matmul", x, w, name="y", module="layers.0")
    g.output(y)
    return g


# ---------------------------------------------------------------------------------------------------------- building


def test_a_tensor_knows_where_it_comes_from() -> None:
    g = mlp()
    y = g.tensors["y"]
    assert (y.shape, y.dtype, y.role, y.producer, y.slot) == ((32, 16), "float32", "result", "y", 0)
    assert (y.itemsize, y.bytes) == (4, 32 * 16 * 4)
    assert str(y) == "y float32[32, 16]"
    assert g.nodes["y"].operands == ("x", "w")
    assert g.nodes["y"].results == ("y",)
    assert str(g.nodes["y"]) == "op 'y' (matmul) in module 'layers.0'"
    assert g.outputs == ["y"]


def test_uses_are_named_by_op_and_operand() -> None:
    g = mlp()
    assert g.uses("w") == [Use("y", "y", 1, "w")]
    assert [use.name for use in g.operand_uses("y")] == ["y/x", "y/y"]
    assert g.uses("y") == []


def test_a_tensor_used_twice_by_one_op_has_two_uses() -> None:
    g = Graph()
    x = g.input("x", (4, 4))
    g.output(g.op("matmul", x, x, name="square"))
    assert [use.name for use in g.uses("x")] == ["square/x", "square/y"]
    assert g.digraph.number_of_edges(("tensor", "x"), ("op", "square")) == 2


def test_names_are_made_where_none_is_given_and_step_over_taken_ones() -> None:
    g = Graph()
    x = g.input("x", (4, 4))
    g.input("matmul_2", (1,))
    assert [g.op("matmul", x, x).name for _ in range(3)] == ["matmul_1", "matmul_3", "matmul_4"]


def test_an_op_of_several_results_gives_a_tuple_named_by_result() -> None:
    g = Graph()
    pieces = g.op("split", g.input("x", (4, 6)), num_or_sections=2, axis=0, name="s")
    assert [piece.name for piece in pieces] == ["s.out.0", "s.out.1"]
    assert [piece.slot for piece in pieces] == [0, 1]
    assert pieces[1].shape == (2, 6)


def test_a_variadic_operand_takes_a_list() -> None:
    g = Graph()
    a, b = g.input("a", (2, 6)), g.input("b", (3, 6))
    out = g.op("concat", [a, b], axis=0, name="c")
    assert out.shape == (5, 6)
    assert g.nodes["c"].operands == (("a", "b"),)
    assert [use.name for use in g.operand_uses("c")] == ["c/x.0", "c/x.1"]
    assert [use.slot for use in g.uses("b")] == [1]


def test_an_absent_operand_keeps_its_slot() -> None:
    g = Graph()
    x, bias = g.input("x", (4, 6)), g.parameter("bias", (6,))
    g.op("layer_norm", x, None, bias, name="n", begin_norm_axis=1)
    assert g.nodes["n"].operands == ("x", None, "bias")
    assert [(use.operand, use.slot) for use in g.operand_uses("n")] == [("x", 0), ("bias", 2)]


def test_absent_operands_at_the_end_may_be_left_out() -> None:
    g = Graph()
    g.op("layer_norm", g.input("x", (4, 6)), name="n", begin_norm_axis=1)
    assert g.nodes["n"].operands == ("x", None, None)


def test_a_constant_keeps_a_copy_that_cannot_change() -> None:
    g = Graph()
    values = np.arange(6, dtype=np.int64).reshape(2, 3)
    kept = g.constant("c", values)
    values[:] = 0
    assert kept.dtype == "int64"
    assert kept.value is not None
    assert kept.value.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert not kept.value.flags.writeable


def test_a_constant_may_have_a_dtype_that_numpy_lacks() -> None:
    kept = Graph().constant("c", np.ones(3, np.float32), dtype="bfloat16")
    assert (kept.dtype, kept.bytes) == ("bfloat16", 6)


def test_scalars_are_tensors_too() -> None:
    g = Graph()
    x = g.input("x", ())
    y = g.op("reshape", x, shape=(1, 1))
    assert (x.bytes, y.shape) == (4, (1, 1))
    assert g.constant("c", 2.5).shape == ()


def test_attributes_are_copied_and_made_plain() -> None:
    g = Graph()
    shape = [np.int64(6), 4]
    g.op("reshape", g.input("x", (4, 6)), shape=shape, name="r")
    shape.append(1)
    assert g.nodes["r"].attrs == {"shape": [6, 4]}
    assert type(g.nodes["r"].attrs["shape"][0]) is int


def test_the_digraph_holds_typed_payloads() -> None:
    g = mlp()
    payloads = {type(payload) for _, payload in g.digraph.nodes(data="payload")}
    assert payloads == {Tensor, Node}
    assert list(g.digraph.out_edges(("op", "y"), data="payload")) == [(("op", "y"), ("tensor", "y"), 0)]


def test_equal_ops_share_one_bound_rule() -> None:
    g = Graph()
    x, w = g.input("x", (4, 4)), g.parameter("w", (4, 4))
    for name in ("a", "b"):
        g.op("matmul", x, w, name=name)
    g.op("matmul", x, w, name="c", transpose_y=True)
    assert g.bind("a") is g.bind("b")
    assert g.bind("a") is not g.bind("c")
    assert g.bind("a", {"m": (2, 2)}) is g.bind("b", {"m": (2, 2)})
    assert g.bind("a", {"m": (2, 2)}).factors["m"].parts == (2, 2)


def test_capabilities_filter_rows() -> None:
    g = Graph()
    x, w = g.input("x", (2, 3, 8, 8)), g.parameter("w", (4, 3, 3, 3))
    g.op("conv2d", x, w, padding=1, name="c")
    (capability,) = {need for row in g.bind("c").rows for need in row.needs}
    assert all(not row.needs for row in g.bind("c", capabilities=frozenset()).rows)
    assert g.bind("c", capabilities=frozenset({capability})).rows == g.bind("c").rows


def test_unused_sources_are_told_and_outputs_are_used() -> None:
    g = mlp()
    g.parameter("forgotten", (3,))
    g.output(g.input("through", (2,)))
    assert g.unused == ["forgotten"]
    g.validate()


def test_a_graph_without_ops_is_fine_when_something_leaves_it() -> None:
    g = Graph("empty")
    with pytest.raises(GraphError, match=r"^graph 'empty' has no output: call output\(tensor\)"):
        g.validate()
    g.output(g.input("x", (2,)))
    g.validate()


# ---------------------------------------------------------------------------------------------------------- refusals


def bad(text: str, build: Any) -> Any:
    return pytest.param(build, text, id=text[:60])


OTHER = mlp().tensors["x"]

REFUSALS = [
    bad("input 'x': graph 'mlp' has a tensor 'x' already; choose another name", lambda g: g.input("x", (2,))),
    bad("parameter 'y': graph 'mlp' has a tensor 'y' already; choose another name", lambda g: g.parameter("y", (2,))),
    bad(
        "op 'y' (matmul): graph 'mlp' has an op 'y' already; choose another name",
        lambda g: g.op("matmul", g.tensors["x"], g.tensors["w"], name="y"),
    ),
    bad(
        "result out of op 'x' (matmul): graph 'mlp' has a tensor 'x' already; choose another name",
        lambda g: g.op("matmul", g.tensors["x"], g.tensors["w"], name="x"),
    ),
    bad("'' is no name: give a text that is not empty", lambda g: g.input("", (2,))),
    bad(
        "op 'z' (matmull) in module 'head': unknown op 'matmull'; did you mean 'matmul'",
        lambda g: g.op("matmull", g.tensors["x"], name="z", module="head"),
    ),
    bad(
        "op 'z' (matmul) got 3 operands, but takes 2: (x, y)",
        lambda g: g.op("matmul", g.tensors["x"], g.tensors["w"], g.tensors["w"], name="z"),
    ),
    bad(
        "operand y of op 'z' (matmul) is missing: matmul takes (x, y)",
        lambda g: g.op("matmul", g.tensors["x"], name="z"),
    ),
    bad(
        "operand x of op 'z' (concat) is x float32[32, 64]: it takes a list of one or more tensors",
        lambda g: g.op("concat", g.tensors["x"], name="z"),
    ),
    bad(
        "operand x of op 'z' (concat) is []: it takes a list of one or more tensors",
        lambda g: g.op("concat", [], name="z"),
    ),
    bad(
        "operand y of op 'z' (matmul) is 3.0: make a tensor with input, parameter, state, constant or op",
        lambda g: g.op("matmul", g.tensors["x"], 3.0, name="z"),
    ),
    bad(
        "operand y of op 'z' (matmul) is 'x' of another graph: use a tensor of graph 'mlp'",
        lambda g: g.op("matmul", g.tensors["x"], OTHER, name="z"),
    ),
    bad("output of graph 'mlp' is 'x' of another graph: use a tensor of graph 'mlp'", lambda g: g.output(OTHER)),
    bad("'y' is an output of graph 'mlp' already", lambda g: g.output(g.tensors["y"])),
    bad(
        "op 'z' (matmul) in module 'head' does not fit x float32[32, 64], x float32[32, 64]: factor 'k' of rule ",
        lambda g: g.op("matmul", g.tensors["x"], g.tensors["x"], name="z", module="head"),
    ),
    bad(
        "op 'z' (matmul) does not fit x float32[32, 64], w float32[64, 16]: matmul has no attribute 'transpose_z'; did",
        lambda g: g.op("matmul", g.tensors["x"], g.tensors["w"], name="z", transpose_z=True),
    ),
    bad(
        "op 'z' (reshape) does not fit x float32[32, 64]: ",
        lambda g: g.op("reshape", g.tensors["x"], name="z", shape=(5, 5)),
    ),
    bad(
        "op 'z' (transpose) does not fit x float32[32, 64]: ",
        lambda g: g.op("transpose", g.tensors["x"], name="z", perm=(0, 7)),
    ),
    bad(
        "attribute perm of op 'z' (transpose) is array([1, 0]): give None, a bool, number or text, or a list, tuple",
        lambda g: g.op("transpose", g.tensors["x"], name="z", perm=np.array([1, 0])),
    ),
    bad("input 'i' has dtype 'float31': choose from bool, int8, ", lambda g: g.input("i", (2,), dtype="float31")),
    bad("constant 'c' has dtype '<U1': choose from bool, int8, ", lambda g: g.constant("c", ["a"])),
    bad("state 's' has shape (2, 0): dim 1 has size 0, and a dim is at least 1", lambda g: g.state("s", (2, 0))),
    bad("input 'i' has shape (-1, 4): dim 0 has size -1, and a dim is at least 1", lambda g: g.input("i", (-1, 4))),
    bad("input 'i' has shape ('batch', 4): give a sequence of whole numbers", lambda g: g.input("i", ("batch", 4))),
    bad("input 'i' has shape 5: give a sequence of whole numbers", lambda g: g.input("i", 5)),
    bad("input 'i' has shape (True,): give a sequence of whole numbers", lambda g: g.input("i", (True,))),
    bad("constant 'c' has shape (0,): dim 0 has size 0, and a dim is at least 1", lambda g: g.constant("c", [])),
    bad("graph 'mlp' has no tensor 'v'", lambda g: g.uses("v")),
    bad("graph 'mlp' has no tensor []", lambda g: g.uses([])),
    bad("graph 'mlp' has no op 'zz'", lambda g: g.operand_uses("zz")),
    bad("graph 'mlp' has no op 'zz'", lambda g: g.bind("zz")),
    bad("graph 'mlp' has no op [1]", lambda g: g.bind([1])),
    bad("3 is no name of an op: give a text, as 'matmul'", lambda g: g.op(3, g.tensors["x"])),
    bad("['relu'] is no name of an op: give a text, as 'matmul'", lambda g: g.op(["relu"], g.tensors["x"])),
    bad(
        "constant 'k' has values that form no array: give rows of equal length",
        lambda g: g.constant("k", [[1], [1, 2]]),
    ),
    bad(
        "constant 'c' has dtype int32, which cannot hold its value 1.5",
        lambda g: g.constant("c", [1.0, 1.5, 2.7], dtype="int32"),
    ),
    bad("constant 'c' has dtype uint8, which cannot hold its value -1", lambda g: g.constant("c", [-1], dtype="uint8")),
    bad("constant 'c' has dtype int64, which cannot hold its value nan", lambda g: g.constant("c", np.nan, "int64")),
    bad("constant 'c' has dtype bool, which cannot hold its value 2", lambda g: g.constant("c", [0, 1, 2], "bool")),
    bad(
        "op 'z' (reshape) does not fit x float32[32, 64]: shape=None: give a list of whole numbers",
        lambda g: g.op("reshape", g.tensors["x"], name="z", shape=None),
    ),
]


@pytest.mark.parametrize(("build", "text"), REFUSALS)
def test_a_mistake_is_refused_in_one_sentence_and_changes_nothing(build: Any, text: str) -> None:
    g = mlp()
    before = g.to_json()
    with pytest.raises(GraphError) as caught:
        build(g)
    assert str(caught.value).startswith(text)
    assert "\n" not in str(caught.value)
    assert g.to_json() == before


def step() -> Graph:
    """A parameter, its state, and an update that makes both anew."""
    g = Graph("step")
    w, m, x = g.parameter("w", (4, 6)), g.state("m", (4, 6)), g.input("x", (6, 4))
    grad = g.op("transpose", x, perm=(1, 0), name="grad")
    new_m = g.op("add", m, grad, name="new_m")
    g.output(new_m, g.op("subtract", w, new_m, name="new_w"))
    g.constant("k", np.ones((4, 6), np.float32))
    g.state("other", (6,))
    return g


def test_ties_and_gradients_are_kept_by_name() -> None:
    g = step()
    t = g.tensors
    g.tie(t["new_m"], t["m"])
    g.tie(t["m"], t["w"])
    g.tie(t["new_w"], t["w"])
    g.gradient(t["grad"], of=t["w"])
    assert g.ties == {"new_m": "m", "m": "w", "new_w": "w"}
    assert g.gradients == {"grad": "w"}


TIE_REFUSALS = [
    ("tie", "new_w", "new_m", "'new_m' is a result, and a leader is an input, parameter or state, whose storage"),
    ("tie", "m", "k", "'k' is a constant, and a leader is an input, parameter or state, whose storage"),
    ("tie", "m", "x", "m float32[4, 6] and x float32[6, 4] differ in shape, and tied tensors agree"),
    ("tie", "k", "w", "'k' is a constant, which every device stores whole; leave the tie out"),
    (
        "tie",
        "grad",
        "w",
        (
            "'grad' is neither an input, parameter or state nor an output of graph 'step'; "
            "call output(grad) first, or tie what leaves the graph"
        ),
    ),
    ("tie", "m", "m", "the ties would go round in a circle, 'm' -> 'm'; leave one of them out"),
    ("gradient", "x", "w", "'x' is no result: a gradient is what an op makes"),
    ("gradient", "grad", "m", "'m' is a state; mark gradients of parameters only, since these are what a step reduces"),
    ("gradient", "new_w", "w2", "new_w float32[4, 6] and w2 float32[4, 4] differ in shape"),
]


@pytest.mark.parametrize(("kind", "one", "other", "text"), TIE_REFUSALS)
def test_what_cannot_be_tied_is_refused(kind: str, one: str, other: str, text: str) -> None:
    g = step()
    g.parameter("w2", (4, 4))
    word = "tie of" if kind == "tie" else "gradient"
    with pytest.raises(GraphError) as caught:
        getattr(g, kind)(g.tensors[one], g.tensors[other])
    assert str(caught.value).startswith(f"{word} {one!r} {'to' if kind == 'tie' else 'of'} {other!r}: {text}")
    assert (g.ties, g.gradients) == ({}, {})


def test_a_second_tie_or_gradient_is_refused() -> None:
    g = step()
    t = g.tensors
    v = g.parameter("v", (4, 6))
    g.tie(t["m"], t["w"])
    g.tie(t["w"], v)
    g.gradient(t["grad"], of=v)
    for add, text in [
        (lambda: g.tie(t["m"], v), "tie of 'm' to 'v': 'm' is tied to 'w' already, and follows only one"),
        (lambda: g.tie(v, t["m"]), "tie of 'v' to 'm': the ties would go round in a circle, 'v' -> 'm' -> 'w' -> 'v'"),
        (lambda: g.gradient(t["grad"], of=t["w"]), "gradient 'grad' of 'w': 'grad' is the gradient of 'v' already"),
        (
            lambda: g.gradient(t["new_m"], of=v),
            (
                "gradient 'new_m' of 'v': 'v' has the gradient 'grad' already; "
                "where it is used in several places, add their gradients first"
            ),
        ),
        (lambda: g.tie(OTHER, v), "follower of a tie is 'x' of another graph"),
        (lambda: g.tie(t["new_w"], "w"), "leader of a tie is 'w': make a tensor with input"),
    ]:
        with pytest.raises(GraphError) as caught:
            add()
        assert str(caught.value).startswith(text)


def test_every_dtype_has_a_size() -> None:
    for dtype, size in ITEMSIZE.items():
        if not dtype.startswith(("bfloat", "float8")):
            assert np.dtype(dtype).itemsize == size


def test_whole_values_may_come_as_floats() -> None:
    assert mlp().constant("c", [1.0, 2.0], dtype="int32").dtype == "int32"
