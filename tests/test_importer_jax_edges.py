# ruff: noqa: E402
"""What a person declares of a JAX function, what is refused and how, and what is told in notes."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed: pip install 'shardproof[jax]'")
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
from jax import lax

from solver import from_jax
from solver.importers.errors import ImporterError
from solver.importers.jax_loops import LOOPS
from solver.importers.jax_trace import CALLS, TABLE
from solver.report.coverage import framework
from tests.jax_runs import compare, run

X = np.ones((4, 6))
PARAMS = {"layers": [{"w": np.ones((6, 6)), "b": np.ones(6)}, {"w": np.ones((6, 3))}]}


def _loss(params: Any, x: Any) -> Any:
    h = jnp.tanh(x @ params["layers"][0]["w"] + params["layers"][0]["b"])
    return jnp.mean((h @ params["layers"][1]["w"]) ** 2)


def _step(params: Any, state: Any, x: Any) -> Any:
    loss, grads = jax.value_and_grad(_loss)(params, x)
    state = jax.tree.map(lambda m, g: 0.9 * m + g, state, grads)
    return jax.tree.map(lambda p, m: p - 0.1 * m, params, state), state, loss, grads


# ------------------------------------------------------------------------------------------------------------ the roles


def test_the_table_of_coverage_is_what_the_importer_does() -> None:
    claimed = {entry.name for entry in framework("jax").entries if not entry.missing}
    assert claimed == {*TABLE, *CALLS, *LOOPS}


def test_tensors_are_called_by_their_paths_and_have_the_roles_of_their_arguments() -> None:
    graph = from_jax(_step, PARAMS, PARAMS, X, parameters=0, states=1)
    named = {tensor.name: tensor.role for tensor in graph.tensors.values() if tensor.producer is None}
    assert list(named)[:3] == ["params.layers.0.b", "params.layers.0.w", "params.layers.1.w"]
    assert {named["params.layers.0.b"], named["state.layers.0.b"], named["x"]} == {"parameter", "state", "input"}
    assert graph.name == "_step"


def test_gradients_are_tied_and_final() -> None:
    graph = from_jax(jax.value_and_grad(_loss), PARAMS, X, parameters=0, gradients={1: 0}, names=("", "x"))
    assert graph.gradients == {f"{name}.grad": name for name in ("layers.0.b", "layers.0.w", "layers.1.w")}
    assert graph.ties == graph.gradients
    assert graph.outputs[0] == "output.0"
    assert set(graph.outputs[1:]) == set(graph.gradients)


def test_a_whole_step_is_tied_and_its_gradients_stay_inside() -> None:
    graph = from_jax(
        _step, PARAMS, PARAMS, X, parameters=0, states=1,
        updates={0: 0, 1: 1}, gradients={3: "params"}, internal=(3,), ties={"state": "params"},
    )  # fmt: skip
    assert graph.ties["params.layers.0.w.new"] == "params.layers.0.w"
    assert graph.ties["state.layers.0.w.new"] == graph.ties["state.layers.0.w.new"] == "state.layers.0.w"
    assert graph.ties["state.layers.0.w"] == "params.layers.0.w"
    assert sorted(graph.gradients.values()) == [f"params.layers.{name}" for name in ("0.b", "0.w", "1.w")]
    assert not set(graph.gradients) & set(graph.outputs)
    assert len(graph.outputs) == 7
    assert not graph.notes


def test_what_looks_like_an_argument_is_told_and_not_guessed() -> None:
    graph = from_jax(jax.value_and_grad(_loss), PARAMS, X, parameters=0)
    assert not graph.ties
    assert graph.notes == [
        (
            "output 1 has the structure of argument 0, and no tie: "
            "declare gradients={1: 0} or updates={1: 0} where it is one"
        )
    ]


def test_a_part_of_an_argument_is_named_by_its_path() -> None:
    graph = from_jax(jax.grad(_loss), PARAMS, X, parameters=0, gradients={("layers", 1): "params.layers.1"})
    assert graph.ties == {"params.layers.1.w.grad": "params.layers.1.w"}


def test_shapes_without_values_are_enough() -> None:
    shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, "float32"), PARAMS)
    graph = from_jax(_loss, shapes, jax.ShapeDtypeStruct((8, 6), "bfloat16"))
    assert str(graph.tensors["x"]) == "x bfloat16[8, 6]"


def test_a_jitted_function_and_named_scopes() -> None:
    def model(x: Any) -> Any:
        with jax.named_scope("block"), jax.named_scope("inner"):
            return jnp.sin(x)

    graph = from_jax(jax.jit(jax.value_and_grad(lambda x: model(x).sum())), X)
    assert {node.module for node in graph.nodes.values() if node.op in ("sin", "cos")} == {"block.inner"}
    assert "block.inner.sin_1" in graph.tensors


# ------------------------------------------------------------------------------------------------------------ the notes


def test_random_numbers_are_drawn_by_a_counter() -> None:
    def dropped(key: Any, x: Any) -> Any:
        one, other = jax.random.split(key)
        return jnp.where(jax.random.bernoulli(one, 0.5, x.shape), x, 0), jax.random.normal(other, x.shape), other

    graph = from_jax(dropped, jax.random.key(0), np.ones((64, 64)))
    seeds = [node.attrs["seed"] for node in graph.nodes.values() if node.op == "uniform"]
    assert len(set(seeds)) == 2
    assert graph.outputs == ["output.0", "output.1"]
    assert graph.notes == [
        "random numbers are drawn by a counter: a run agrees with JAX in distribution, not in values (2 times)",
        "output 2 is a random key, which has no layout: left out",
    ]
    kept, normal = run(graph, (jax.random.key(0), np.ones((64, 64)))).values()
    assert abs(kept.mean() - 0.5) < 0.03
    assert abs(normal.std() - 1) < 0.03


def test_what_is_drawn_forward_is_drawn_again_backward() -> None:
    @jax.checkpoint
    def dropped(key: Any, x: Any) -> Any:
        return jnp.sin(jnp.where(jax.random.bernoulli(key, 0.5, x.shape), x, 0)).sum()

    graph = from_jax(jax.value_and_grad(dropped, 1), jax.random.PRNGKey(0), X)
    assert len({node.attrs["seed"] for node in graph.nodes.values() if node.op == "uniform"}) == 1


def test_whole_numbers_at_random() -> None:
    graph = from_jax(lambda key: jax.random.randint(key, (99,), 3, 7), jax.random.key(0))
    (drawn,) = run(graph, (jax.random.key(0),)).values()
    assert set(drawn) == {3, 4, 5, 6}


def test_loops_and_indices_are_told() -> None:
    graph = from_jax(lambda x, i: lax.scan(lambda c, a: (c + a[i], None), x[0, :3], x)[0], X, np.zeros(3, np.int64))
    assert any("its 4 trips are written out" in note for note in graph.notes)
    graph = from_jax(lambda x, i: jnp.take(x, i, axis=0), X, np.zeros(3, np.int64))
    assert graph.notes == ["indices are taken to be in bounds"]


def test_equal_numbers_are_made_by_an_op_and_not_stored() -> None:
    graph = from_jax(lambda x: (jnp.concatenate([x, jnp.zeros((300, 300))]), jnp.ones((300, 300))), np.ones((3, 300)))
    assert [node.op for node in graph.nodes.values()].count("full") == 2
    assert {tensor.role for tensor in graph.tensors.values()} == {"input", "result"}


# --------------------------------------------------------------------------------------------------------- the refusals


def _two_unknown(x: Any) -> Any:
    return jnp.linalg.qr(x)[0].sum() + jnp.linalg.cholesky(x.T @ x).sum()


REFUSED: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], str]] = {
    "unknown": (
        _two_unknown,
        (X,),
        {},
        r"there is no op here for these primitives .*cholesky at .*test_importer_jax_edges.py:\d+.*TABLE\[",
    ),
    "cond": (
        lambda x: lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x),
        (X,),
        {},
        r"cond at .*: which branch it takes is computed from data, .*jnp.where",
    ),
    "while": (
        lambda x: lax.while_loop(lambda c: c.sum() < 9, lambda c: c * 2, x),
        (X,),
        {},
        "while at .*: how often it runs is computed from data",
    ),
    "long": (lambda x: lax.fori_loop(0, 60000, lambda i, c: jnp.sin(c), x), (X,), {}, "its 60,000 trips of"),
    "argument": (lambda x: x, ("text",), {}, "x is str: give an array or jax.ShapeDtypeStruct"),
    "trace": (lambda x: x @ x, (X,), {}, "cannot be traced at these arguments: TypeError: dot_general requires"),
    "pad": (
        lambda x: lax.pad(x, x[0, 0], ((1, 1, 0), (0, 0, 0))),
        (X,),
        {},
        "pad at .*: it pads with a number that is computed from data",
    ),
    "parameters": (jnp.sin, (X,), {"parameters": 1}, "parameters names argument 1, and there are 1, counted from 0"),
    "names": (jnp.sin, (X,), {"names": ("a", "b")}, "names has 2 entries for 1 arguments"),
    "twice": (jnp.add, (X, X), {"names": ("a", "a")}, "two tensors of the arguments are called 'a'"),
    "parameters of another type": (
        jnp.sin,
        (X,),
        {"parameters": 1.5},
        "parameters is 1.5: give the position of an argument, or a sequence of positions",
    ),
    "names of another type": (jnp.sin, (X,), {"names": 3}, "names is 3: give a sequence of texts"),
    "names that are no texts": (jnp.sin, (X,), {"names": (3,)}, r"names is \(3,\): give a sequence of texts"),
    "the name of another type": (jnp.sin, (X,), {"name": 3}, "name is 3: give the name of the graph as a text"),
    "internal of another type": (jnp.sin, (X,), {"internal": 3}, "internal is 3: give a sequence of outputs"),
    "internal as a text": (jnp.sin, (X,), {"internal": "12"}, "internal is '12': give a sequence of outputs"),
    "an unknown option": (
        jnp.sin,
        (X,),
        {"foo": 1},
        "from_jax has no option 'foo': choose from parameters, states, names, gradients, updates, ties, internal, name",
    ),
    **{
        f"{what} as {given!r}": (
            jnp.sin,
            (X,),
            {what: given},
            f"^{what} is {re.escape(repr(given))}: give a mapping from (output|argument) to argument, as ",
        )
        for what in ("gradients", "updates", "ties")
        for given in ("x", 3, [0], 0)
    },
    "an argument of another type": (
        jnp.sin,
        (X,),
        {"updates": {(): 1.5}},
        "updates names the argument 1.5: give its position, or what the names of its tensors begin with",
    ),
    "no such output": (
        jax.grad(_loss),
        (PARAMS, X),
        {"updates": {"biases": 0}},
        r"the function returns no output 'biases'; it returns layers; \(\) names all that it returns$",
    ),
    "output": (
        _loss,
        (PARAMS, X),
        {"parameters": 0, "gradients": {1: 0}},
        r"gradients=\{1: 0\}: the function returns no output 1; it returns one tensor",
    ),
    "no argument": (
        jax.grad(_loss),
        (PARAMS, X),
        {"updates": {(): "weights"}},
        "there is no argument 'weights'; the arguments hold params.layers.0.b",
    ),
    "structure": (
        jax.grad(_loss),
        (PARAMS, X),
        {"updates": {"layers": "params"}},
        r"the output has 3 tensors and the argument 3; 0.b is in the output only",
    ),
    "shape": (lambda x: x[:2], (X,), {"updates": {(): 0}}, r"output \(\) has shape \(2, 6\), and x has \(4, 6\)"),
    "no parameter": (
        jax.grad(_loss),
        (PARAMS, X),
        {"gradients": {(): 0}},
        "params.layers.0.b is no parameter: name its argument in parameters=",
    ),
    "declared twice": (
        jax.grad(_loss),
        (PARAMS, X),
        {"parameters": 0, "gradients": {(): 0}, "updates": {(): 0}},
        "is declared twice",
    ),
    "ties": (
        jnp.add,
        (X, X[0]),
        {"names": ("a", "b"), "ties": {"a": "b"}},
        r"ties=\{'a': 'b'\}: a has shape \(4, 6\), and b has \(6,\)",
    ),
    "nothing": (lambda x: (), (X,), {}, "the function returns nothing that can leave a graph"),
    "window": (
        lambda x: lax.reduce_window(x, 0.0, lax.add, (2, 2), (1, 1), "VALID", window_dilation=(2, 2)),
        (X,),
        {},
        "its window dilation",
    ),
    "empty": (lambda x: x, (np.ones((0, 3)),), {}, r"x has shape \(0, 3\): a dim is at least 1"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_brought_in_is_one_sentence(name: str) -> None:
    fn, args, options, told = REFUSED[name]
    with pytest.raises(ImporterError, match=told) as caught:
        from_jax(fn, *args, **options)
    assert "\n" not in str(caught.value)


def test_unknown_primitives_of_dead_code_do_not_matter() -> None:
    def model(x: Any) -> Any:
        jnp.linalg.qr(x)
        return x + 1

    compare(from_jax(model, X), model, (X,), 1e-12)


def test_a_person_declares_a_primitive() -> None:
    TABLE["cholesky"] = lambda site: site.emit("tril", site.operands[0])
    try:
        graph = from_jax(jnp.linalg.cholesky, np.eye(4))
    finally:
        del TABLE["cholesky"]
    assert "tril" in {node.op for node in graph.nodes.values()}


def test_per_device_programs_are_refused() -> None:
    with pytest.raises(ImporterError, match="it says what each device does"):
        _sharded()


def _sharded() -> None:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("i",))
    spec = jax.sharding.PartitionSpec()
    from_jax(jax.shard_map(lambda x: lax.psum(x, "i"), mesh=mesh, in_specs=spec, out_specs=spec), X)


def test_without_jax_the_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['jax'] = None\n"
        "from solver import from_jax\n"
        "try:\n    from_jax(abs, 1)\nexcept ValueError as error:\n    print(error)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "functions of JAX need the extra jax" in said
    assert "pip install 'shardproof[jax]'" in said
