"""A graph as JSON: nothing is lost, and what is wrong is refused in one sentence."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.registry import rule_for
from solver.graph import Graph, GraphError, Tensor
from solver.graph_json import decode, decode_array, encode, encode_array
from solver.graph_values import ITEMSIZE, frozen, plain


def mlp() -> Graph:
    g = Graph("mlp")
    x = g.input("x", (32, 64))
    w = g.parameter("w", (64, 16))
    y = g.op("matmul", x, w, name="y", module="layers.0")
    g.output(y)
    return g


def rich() -> Graph:
    g = Graph("rich")
    x = g.input("x", (2, 6))
    late = g.op("reshape", x, shape=(12,), name="late")
    g.constant("bf", np.ones(2, np.float32), dtype="bfloat16")
    c = g.constant("c", np.array([[1.5, -np.inf], [np.nan, -0.0]]))
    s = g.state("s", (2, 2), dtype="float64")
    joined = g.op("concat", [c, s], axis=0, module="m")
    halves = g.op("split", joined, num_or_sections=2, axis=0, name="halves")
    g.op("layer_norm", x, None, g.parameter("bias", (6,)), begin_norm_axis=1, epsilon=1e-5)
    step = g.op("add", g.parameter("w", (2, 2)), s, name="step")
    g.output(halves[1], late, x, step)
    g.tie(step, s)
    g.tie(s, g.tensors["w"])
    g.gradient(halves[0], g.tensors["w"])
    return g


def same(one: Graph, other: Graph) -> None:
    assert other.to_json() == one.to_json()
    assert list(other.tensors) == list(one.tensors)
    assert list(other.nodes) == list(one.nodes)
    assert (other.ties, other.gradients) == (one.ties, one.gradients)
    assert list(other.digraph.edges(keys=True)) == list(one.digraph.edges(keys=True))
    for name, tensor in one.tensors.items():
        copy = other.tensors[name]
        assert (copy.shape, copy.dtype, copy.role, copy.producer, copy.slot) == (
            tensor.shape,
            tensor.dtype,
            tensor.role,
            tensor.producer,
            tensor.slot,
        )
        if tensor.value is not None:
            assert copy.value is not None
            assert copy.value.tobytes() == tensor.value.tobytes()


def test_json_loses_nothing() -> None:
    g = rich()
    text = json.dumps(g.to_json(), allow_nan=False)
    same(g, Graph.from_json(text))
    same(g, Graph.from_json(json.loads(text)))


def test_json_in_another_order_is_put_in_order() -> None:
    g = rich()
    data = g.to_json()
    data["items"].reverse()
    back = Graph.from_json(data)
    for name, node in back.nodes.items():
        assert (node.op, node.operands, node.attrs) == (g.nodes[name].op, g.nodes[name].operands, g.nodes[name].attrs)
    same(back, Graph.from_json(back.to_json()))


def edited(change: Any) -> dict[str, Any]:
    data = json.loads(json.dumps(mlp().to_json()))
    change(data)
    return dict(data)


def cyclic() -> dict[str, Any]:
    def op(name: str, reads: str) -> dict[str, Any]:
        return {"role": "op", "name": name, "op": "matmul", "operands": ["x", reads], "results": [name], "attrs": {}}

    return edited(lambda data: data["items"].extend([op("a", "c"), op("b", "a"), op("c", "b")]))


JSON_REFUSALS = [
    ("the graph is no JSON: ", "{"),
    ('the JSON is no graph: it must have "format": "shardproof.graph"', "[]"),
    ('the JSON is no graph: it must have "format": "shardproof.graph"', {}),
    ("the graph has version 2, and this program reads version 1", edited(lambda d: d.update(version=2))),
    ("graph 'mlp' has a cycle, each op reading what the one before makes: a -> b -> c -> a", cyclic()),
    ("graph 'mlp' has two tensors named 'x'", edited(lambda d: d["items"].append(d["items"][0]))),
    (
        "op 'y' reads 'v', which is no tensor of graph 'mlp'",
        edited(lambda d: d["items"][2].update(operands=["x", "v"])),
    ),
    ("op 'y' is written with results ['z'], but makes ['y']", edited(lambda d: d["items"][2].update(results=["z"]))),
    ("output 'z' of graph 'mlp' is no tensor of it", edited(lambda d: d.update(outputs=["z"]))),
    ("op 'y' (matmull) in module 'layers.0': unknown op", edited(lambda d: d["items"][2].update(op="matmull"))),
    ("ties of graph 'mlp' name 'z', which is no tensor of it", edited(lambda d: d.update(ties={"z": "w"}))),
    ("gradients of graph 'mlp' name 3, which is no", edited(lambda d: d.update(gradients={"y": 3}))),
    ("tie of 'x' to 'w': x float32[32, 64] and w float32[64, 16]", edited(lambda d: d.update(ties={"x": "w"}))),
    ("the graph must have 'ties' (dict) and has []", edited(lambda d: d.update(ties=[]))),
    ("the graph must have 'items' (list) and has nothing", edited(lambda d: d.pop("items"))),
    ("op 'y' must have 'attrs' (dict) and has []", edited(lambda d: d["items"][2].update(attrs=[]))),
    ("op 'y' has operand 3: write a tensor's name", edited(lambda d: d["items"][2].update(operands=[3, "w"]))),
    ("input 'x' must have 'shape' (list) and has 'a'", edited(lambda d: d["items"][0].update(shape="a"))),
    ("'x' has role 'wish': choose from op, ", edited(lambda d: d["items"][0].update(role="wish"))),
    ("the graph has an item 3, where an object", edited(lambda d: d["items"].append(3))),
    ("op 'y' cannot have an attribute 'name'", edited(lambda d: d["items"][2].update(attrs={"name": "q"}))),
    ("op 'y' must have 'module' (str) and has 3", edited(lambda d: d["items"][2].update(module=3))),
    (
        "constant 'k' is written with shape [2], but its value has shape [1]",
        edited(
            lambda d: d["items"].append(
                {
                    "role": "constant",
                    "name": "k",
                    "shape": [2],
                    "dtype": "int8",
                    "value": {"dtype": "int8", "shape": [1], "base64": "AQ=="},
                }
            )
        ),
    ),
    (
        "attribute transpose_x of op 'y' is {'tuple': 3}: an object here is ",
        edited(lambda d: d["items"][2].update(attrs={"transpose_x": {"tuple": 3}})),
    ),
]


@pytest.mark.parametrize(("text", "data"), JSON_REFUSALS, ids=[text[:50] for text, _ in JSON_REFUSALS])
def test_wrong_json_is_refused_in_one_sentence(text: str, data: Any) -> None:
    with pytest.raises(GraphError) as caught:
        Graph.from_json(data)
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize("data", [{"shape": [2]}, {"base64": "!!"}, {"dtype": "nonsense"}, {"base64": "AQ"}])
def test_a_value_that_cannot_be_read_is_refused(data: dict[str, Any]) -> None:
    whole = {"dtype": "int8", "shape": [1], "base64": "AQ=="}
    assert decode_array(whole, "c").tolist() == [1]
    with pytest.raises(GraphError, match=r"^the value of constant 'c' cannot be read"):
        decode_array({**whole, **data}, "constant 'c'")


plain_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


def alike(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return (math.isnan(one) and math.isnan(other)) or (
            one == other and math.copysign(1, one) == math.copysign(1, other)
        )
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(alike(one[key], other[key]) for key in one)
    return bool(one == other)


@given(plain_values)
def test_attributes_survive_json(value: Any) -> None:
    text = json.dumps(encode(plain(value, "attribute")), allow_nan=False)
    assert alike(decode(json.loads(text), "attribute"), value)


@given(plain_values, plain_values)
def test_values_that_differ_freeze_apart(one: Any, other: Any) -> None:
    hash(frozen(one))
    assert frozen(one) == frozen(plain(one, "attribute"))
    if not alike(one, other) and not isinstance(one, dict):
        assert frozen(one) != frozen(other)


def test_values_that_python_calls_equal_freeze_apart() -> None:
    values: list[Any] = [
        1,
        1.0,
        True,
        0.0,
        -0.0,
        [1],
        (1,),
        [True],
        [1.0],
        "1",
        None,
        {"a": 1},
        {"a": True},
        {},
        [],
        (),
    ]
    assert len({frozen(value) for value in values}) == len(values)
    assert frozen(math.nan) == frozen(float("nan"))


DTYPES = st.sampled_from(["bool", "int8", "int64", "uint16", "float16", "float32", ">f8", "complex64"])


@given(DTYPES, st.lists(st.integers(1, 3), max_size=3), st.randoms(use_true_random=False))
def test_arrays_survive_json(dtype: str, shape: list[int], random: Any) -> None:
    width = np.dtype(dtype).itemsize
    raw = bytes(random.randrange(2 if dtype == "bool" else 256) for _ in range(math.prod(shape) * width))
    array = np.frombuffer(raw, dtype).reshape(shape)
    back = decode_array(json.loads(json.dumps(encode_array(array))), "c")
    assert back.shape == array.shape
    assert back.dtype.newbyteorder("=") == array.dtype.newbyteorder("=")
    assert back.astype(dtype).tobytes() == raw


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Small graphs of matrices: products, sums, reshapes and splits, tensors used many times."""
    g = Graph(draw(st.text(max_size=5)))
    sides = st.sampled_from([1, 2, 4, 6])
    pool: list[Tensor] = [g.input("in", (4, 6))]
    for _ in range(draw(st.integers(0, 8))):
        step = draw(st.sampled_from(["source", "matmul", "reshape", "transpose", "concat", "split"]))
        x = draw(st.sampled_from(pool))
        if step == "source":
            add = draw(st.sampled_from([g.input, g.parameter, g.state]))
            pool.append(add(f"t{len(g.tensors)}", (draw(sides), draw(sides)), draw(st.sampled_from(list(ITEMSIZE)))))
        elif step == "matmul":
            mates = [y for y in pool if y.shape[0] == x.shape[1]]
            w = draw(st.sampled_from(mates)) if mates else g.parameter(f"w{len(g.tensors)}", (x.shape[1], draw(sides)))
            pool.append(g.op("matmul", x, w, module=draw(st.sampled_from(["", "m.0"]))))
        elif step == "reshape":
            rows = draw(st.sampled_from([n for n in range(1, 25) if math.prod(x.shape) % n == 0]))
            pool.append(g.op("reshape", x, shape=draw(st.sampled_from([(rows, -1), [rows, -1]]))))
        elif step == "transpose":
            pool.append(g.op("transpose", x, perm=[1, 0]))
        elif step == "concat":
            mates = [y for y in pool if y.shape[1] == x.shape[1]]
            pool.append(g.op("concat", draw(st.lists(st.sampled_from(mates), min_size=1, max_size=3)), axis=0))
        else:
            pieces = g.op("split", x, num_or_sections=x.shape[0], axis=0)
            pool += pieces if isinstance(pieces, tuple) else [pieces]
    g.output(*draw(st.lists(st.sampled_from(pool), min_size=1, unique_by=lambda tensor: tensor.name)))
    return g


@given(graphs(), st.randoms(use_true_random=False))
def test_graphs_survive_json(g: Graph, random: Any) -> None:
    same(g, Graph.from_json(json.dumps(g.to_json())))
    shuffled = g.to_json()
    random.shuffle(shuffled["items"])
    back = Graph.from_json(shuffled)
    assert back.nodes.keys() == g.nodes.keys()
    for name, node in back.nodes.items():
        names = list(back.nodes)
        for use in back.operand_uses(name):
            producer = back.tensors[use.tensor].producer
            assert producer is None or names.index(producer) < names.index(name)
        assert node.results == g.nodes[name].results


@given(graphs())
def test_uses_and_operands_tell_the_same(g: Graph) -> None:
    by_op = [use for name in g.nodes for use in g.operand_uses(name)]
    by_tensor = [use for name in g.tensors for use in g.uses(name)]
    assert sorted(by_op, key=repr) == sorted(by_tensor, key=repr)
    assert len({use.name for use in by_op}) == len(by_op)
    for use in by_op:
        slot = g.bind(use.op).operands[use.slot]
        assert slot is not None
        assert (slot.name, slot.shape) == (use.operand, g.tensors[use.tensor].shape)
    for node in g.nodes.values():
        assert rule_for(node.op).name == node.op


def test_a_text_nested_too_deep_is_refused() -> None:
    with pytest.raises(GraphError, match=r"its lists and objects are nested too deep$"):
        Graph.from_json("[" * 10**5)


@pytest.mark.parametrize("notes", [[True], ["a text", 3], [["a text"]], [None]])
def test_notes_are_texts(notes: list[Any]) -> None:
    g = Graph("noted")
    g.output(g.input("x", (2,)))
    with pytest.raises(GraphError, match=r"the graph has the note .*: a note is a text"):
        Graph.from_json({**g.to_json(), "notes": notes})
