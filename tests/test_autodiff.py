"""Backward passes: held against central differences, op by op, in compositions, and in what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cases import CASES
from graphs import random_graphs
from hypothesis import given, settings
from slopes import Slopes, check
from truth import Case, subject

from ops import rule_for
from solver import Graph
from solver.autodiff import FLAT, AutodiffError, add_gradients, floating
from solver.graph import Tensor
from solver.graph_copy import copy_of
from solver.values import random_values, run_whole

REMEDY = "leave the parameter out of parameters=, or write it with ops that have one"
DIFFERENTIABLE = [case for case in CASES if rule_for(case.op).grad is not None]


# --------------------------------------------------------------------------------------------------------- op by op


def composed(case: Case) -> tuple[Graph, dict[str, Any], list[Tensor]]:
    """Put the op of a case behind parameters; give their values, and the results that have gradients."""
    on = subject(case)
    assert on.op.grad is not None
    graph, values = Graph("case"), {}
    slots: list[Tensor | None] = []
    for slot, array in enumerate(on.arrays):
        if array is None:
            slots.append(None)
            continue
        bound = on.bound.operands[slot]
        assert bound is not None
        learned = array.dtype.kind == "f" and bound.name.split(".")[0] in on.op.grad.differentiable(on.op)
        add = graph.parameter if learned else graph.input
        name = f"{bound.name}_{slot}"
        slots.append(add(name, array.shape, str(array.dtype)))
        values[name] = array
    operands: list[Any] = []
    for spec in on.op.operands:
        given = case.operands.get(spec.name)
        if spec.variadic and given is not None:
            operands.append([slots.pop(0) for _ in given])
        else:
            operands.append(slots.pop(0))
    made = graph.op(case.op, *operands, name="made", **case.attrs)
    results = made if isinstance(made, tuple) else (made,)
    receiving = on.op.grad.receiving(on.op)
    named = zip(graph.bind("made").results, results, strict=True)
    return graph, values, [t for slot, t in named if slot.name.split(".")[0] in receiving and floating(t)]


@pytest.mark.parametrize("index", range(len(DIFFERENTIABLE)), ids=[str(case) for case in DIFFERENTIABLE])
def test_every_op_with_a_gradient_in_a_graph(index: int) -> None:
    """Each result by itself is the loss, so that the others' gradients are zeros, and then all together."""
    graph, values, results = composed(DIFFERENTIABLE[index])
    if not results or not any(tensor.role == "parameter" for tensor in graph.tensors.values()):
        pytest.skip("this case has no floating operand, or no floating result")
    graph.output(results[0])
    check(graph, add_gradients(graph, results[0]), results[0].name, values)
    if len(results) > 1:
        parts = [graph.op("sum", graph.op("exp", graph.op("scale", each, scale=0.1))) for each in results[1:]]
        total = graph.op("add_n", [*parts, graph.op("sum", results[0])], name="loss")
        graph.output(total)
        check(graph, add_gradients(graph, total), "loss", values)


def test_every_op_has_a_gradient_or_is_known_not_to() -> None:
    """A floating result of a floating operand follows it: by a gradient, in steps only, or the graph is refused."""
    refused = {
        "adam",
        "adamw",
        "bincount",
        "cast",
        "cast_grad",
        "check_finite_and_unscale",
        "fused_linear_param_grad_add",
    }
    refused |= {"histogram", "lamb", "momentum", "sgd", "unique", "update_loss_scaling"}
    for case in CASES:
        op, on = rule_for(case.op), subject(case)
        floats = [array is not None and array.dtype.kind == "f" for array in on.arrays]
        if op.grad is None and op.name not in FLAT and any(floats):
            made = any(result.dtype.kind == "f" for result in on.whole)
            assert not made or op.name in refused, f"{op.name}: give it a grad, or say in FLAT that it has none"
    for name, operands in FLAT.items():
        assert set(operands.split()) <= {spec.name for spec in rule_for(name).operands}


@pytest.mark.parametrize("name", sorted(FLAT))
def test_nothing_follows_what_is_flat(name: str) -> None:
    """A small move of a flat operand changes no result of any case."""
    for case in [case for case in CASES if case.op == name]:
        on, moved = subject(case), subject(case)
        moved.arrays = [
            array * (1 + 1e-9) if array is not None and slot is not None and array.dtype.kind == "f"
            and slot.name in FLAT[name].split() else array
            for slot, array in zip(on.bound.operands, on.arrays, strict=True)
        ]  # fmt: skip
        for before, after in zip(on.whole, moved.whole, strict=True):
            assert (before == after).all(), case


# ------------------------------------------------------------------------------------------------------- compositions


@settings(max_examples=150)
@given(random_graphs(max_ops=8, max_axes=1))
def test_random_graphs_agree_with_differences(case: Any) -> None:
    graph = copy_of(case.graph)
    graph.gradients.clear()
    for name in graph.outputs:
        if graph.tensors[name].producer is None:
            continue
        try:
            step = add_gradients(graph, name)
        except AutodiffError as error:
            if any(told in str(error) for told in ("no learned parameter", "no gradient through its result softmax")):
                continue
            raise
        assert all(floating(graph.tensors[parameter]) for parameter in step.gradients.values())
        for gradient, parameter in step.gradients.items():
            made, of = step.tensors[gradient], step.tensors[parameter]
            assert (made.shape, made.dtype) == (of.shape, of.dtype)
            assert step.ties[gradient] == parameter
            assert gradient in step.outputs
        check(graph, step, name)
        assert add_gradients(graph, name).to_json() == step.to_json()


def test_terms_from_several_uses_are_summed_once() -> None:
    g = Graph()
    w, x = g.parameter("w", (4, 4), "float64"), g.input("x", (4, 4), "float64")
    first = g.op("matmul", x, w, name="first")
    second = g.op("matmul", first, w, transpose_y=True, name="second")
    third = g.op("multiply", second, w, name="third")
    g.output(g.op("mean", g.op("multiply", third, third, name="square"), name="loss"))
    step = add_gradients(g)
    assert step.gradients == {"w.grad": "w"}
    assert [node.op for node in step.nodes.values() if node.op in ("add", "add_n")] == ["add", "add_n"]
    check(g, step, "loss")


def test_a_broadcast_bias_sums() -> None:
    g = Graph()
    x = g.op("matmul", g.input("x", (2, 3, 4), "float64"), g.parameter("w", (4, 6), "float64"))
    y = g.op("multiply", g.op("add", x, g.parameter("b", (6,), "float64")), g.parameter("c", (3, 1), "float64"))
    g.output(g.op("add", g.parameter("d", (), "float64"), y, name="y"))
    step = add_gradients(g)
    assert {parameter: step.tensors[gradient].shape for gradient, parameter in step.gradients.items()} == {
        "w": (4, 6), "b": (6,), "c": (3, 1), "d": ()
    }  # fmt: skip
    check(g, step, "y")


def test_views_of_views() -> None:
    g = Graph()
    x = g.parameter("x", (4, 6), "float64")
    y = g.op("transpose", g.op("reshape", x, shape=[2, 2, 6]), perm=[2, 0, 1])
    z = g.op("unsqueeze", g.op("flatten", y, start_axis=1, stop_axis=2), axis=0)
    g.output(g.op("exp", g.op("squeeze", z, axis=0), name="y"))
    check(g, add_gradients(g), "y")


def test_what_only_integers_reach_is_left_alone() -> None:
    """argmax, comparisons and rounding stop the gradient; what goes beside them passes it."""
    g = Graph()
    x, w = g.input("x", (4, 6), "float64"), g.parameter("w", (6, 5), "float64")
    scores = g.op("matmul", x, w, name="scores")
    best = g.op("argmax", scores, axis=-1, name="best")
    taken = g.op("embedding", best, g.parameter("table", (5, 6), "float64"), name="taken")
    mask = g.op("cast", g.op("greater_than", scores, g.op("floor", scores)), dtype="float64")
    kept = g.op("multiply", scores, mask, name="kept")
    g.output(g.op("add", g.op("sum", taken), g.op("sum", kept), name="loss"))
    step = add_gradients(g)
    assert not {"argmax_grad", "floor_grad", "greater_than_grad"} & {node.op for node in step.nodes.values()}
    check(g, step, "loss")


def test_only_what_lies_between_parameter_and_loss_is_differentiated() -> None:
    g = Graph()
    x = g.op("exp", g.input("x", (4, 4)), name="before")
    y = g.op("matmul", x, g.parameter("w", (4, 4)), name="y")
    g.op("tanh", y, name="beside")
    g.output(g.op("mean", y, name="loss"))
    g.parameter("unread", (3,))
    g.op("relu", g.parameter("elsewhere", (2,)), name="dead")
    step = add_gradients(g)
    assert [name for name in step.nodes if name not in g.nodes] == ["loss_grad", "y_grad"]
    assert step.notes == ["'unread', 'elsewhere' are not learned: the loss 'loss' does not depend on what they hold"]
    assert len(g.nodes) == 5, "the forward graph stays as it is"


def test_results_that_nothing_reads_have_zeros_for_a_gradient() -> None:
    g = Graph()
    parts = g.op("split", g.parameter("w", (6, 4), "float64"), num_or_sections=3, axis=0, name="parts")
    g.output(g.op("exp", parts[1], name="y"))
    step = add_gradients(g)
    assert [node.op for node in step.nodes.values()].count("zeros") == 2
    check(g, step, "y")


def test_gradients_have_the_dtypes_of_their_tensors() -> None:
    g = Graph()
    x, w = g.input("x", (4, 6), "bfloat16"), g.parameter("w", (6, 6), "bfloat16")
    y = g.op("cast", g.op("matmul", x, w, name="y"), dtype="float32", name="wide")
    scale = g.parameter("scale", (6,), "float32")
    normed = g.op("layer_norm", g.op("matmul", x, w), scale, begin_norm_axis=1, name="n")[0]
    g.output(g.op("mean", g.op("add", y, normed), name="loss"))
    step = add_gradients(g)
    for gradient, parameter in step.gradients.items():
        assert step.tensors[gradient].dtype == step.tensors[parameter].dtype
    adds = [node for node in step.nodes.values() if node.name not in g.nodes and node.op == "add"]
    assert all(step.tensors[use.tensor].dtype == "bfloat16" for node in adds for use in step.operand_uses(node.name))
    check(g, step, "loss")


def test_a_cast_to_integers_stops_and_one_between_floats_passes() -> None:
    g = Graph()
    w = g.parameter("w", (4,), "float64")
    whole = g.op("cast", g.op("cast", w, dtype="int64"), dtype="float64")
    g.output(g.op("multiply", g.op("cast", g.op("cast", w, dtype="float32"), dtype="float64"), whole, name="y"))
    step = add_gradients(g)
    values = random_values(step)
    made = run_whole(step, values)[next(iter(step.gradients))]
    np.testing.assert_allclose(made, np.trunc(values["w"]) * values["y.grad"])


def test_dropout_drops_the_same_elements_backward() -> None:
    g = Graph()
    x = g.op("multiply", g.parameter("w", (8, 8), "float64"), g.input("x", (8, 8), "float64"))
    g.output(g.op("dropout", x, p=0.5, seed=7, name="y"))
    step = add_gradients(g)
    assert step.nodes["y_grad"].attrs["seed"] == 7
    check(g, step, "y")


def test_a_seed_that_reaches_a_parameter_unchanged_is_copied() -> None:
    """Where an op passes its gradient on unchanged, each parameter still has one of its own."""
    g = Graph()
    w = g.parameter("w", ())
    g.output(g.op("cast", w, dtype="float32", name="y"))
    step = add_gradients(g)
    assert step.nodes["w.grad"].op == "assign"
    assert run_whole(step, random_values(step))["w.grad"] == 1


def test_names_that_are_taken() -> None:
    g = Graph()
    w = g.parameter("y_grad", (4,), "float64")
    g.output(g.op("exp", g.op("relu", w, name="y.grad"), name="y"))
    step = add_gradients(g)
    assert list(step.nodes) == ["y.grad", "y", "y_grad_2", "y.grad_grad"]
    assert step.tensors["y.grad_2"].role == "input"


def test_chosen_parameters() -> None:
    g = Graph()
    y = g.op("matmul", g.input("x", (4, 4)), g.parameter("a", (4, 4)), name="y")
    g.output(g.op("matmul", y, g.parameter("b", (4, 4)), name="z"))
    step = add_gradients(g, parameters=["b"])
    assert list(step.gradients.values()) == ["b"]
    assert [name for name in step.nodes if name not in g.nodes] == ["z_grad"]


def test_running_statistics_are_not_learned() -> None:
    g = Graph()
    mean, variance = g.parameter("bn.mean", (3,), "float64"), g.parameter("bn.variance", (3,), "float64")
    affine = g.parameter("bn.scale", (3,), "float64"), g.parameter("bn.bias", (3,), "float64")
    x = g.input("x", (2, 3, 4, 4), "float64")
    g.output(g.op("batch_norm", x, mean, variance, *affine, is_test=True, name="bn")[0])
    step = add_gradients(g)
    assert sorted(step.gradients.values()) == ["bn.bias", "bn.scale"]
    assert "'bn.mean' is not learned: read as mean of batch_norm, which has no gradient" in step.notes
    assert step.notes[-1] == "'bn' normalizes by stored statistics, which the step does not bring up to date"
    check(g, step, "bn.out")
    with pytest.raises(AutodiffError, match=r"op 'bn' \(batch_norm\) defines no gradient of its operand mean, but par"):
        add_gradients(g, parameters=["bn.mean", "bn.scale"])


# ------------------------------------------------------------------------------------------------------ what is refused


def refusing() -> Graph:
    g = Graph("refusing")
    x = g.input("x", (4, 4))
    y = g.op("matmul", x, g.parameter("w", (4, 4)), name="y")
    h = g.op("histogram", g.op("cast", x, dtype="int32"), y, name="h", module="h.0", bins=4)
    g.output(y, g.op("cast", h, dtype="float32", name="counts"))
    return g


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "graph 'refusing' has several floating outputs ('y', 'counts'): name the loss"),
        ({"loss": "z"}, "the loss 'z' is no tensor of graph 'refusing'; its outputs are 'y', 'counts'"),
        ({"loss": "x"}, "the loss 'x' is of role input, made by no op: name a floating result"),
        ({"loss": "y", "parameters": ["x"]}, "'x' (input, float32) is no floating parameter: it is not learned"),
        ({"loss": "y", "parameters": ["v"]}, "the parameter 'v' is no tensor of graph 'refusing'"),
        ({"loss": "y", "parameters": []}, "the loss 'y' depends on no learned parameter of graph 'refusing'"),
        (
            {"loss": "counts"},
            f"op 'h' (histogram) in module 'h.0' has no gradient, but parameter 'w' needs one through it; {REMEDY}",
        ),
    ],
)
def test_what_cannot_be_differentiated(options: dict[str, Any], told: str) -> None:
    with pytest.raises(AutodiffError) as caught:
        add_gradients(refusing(), **options)
    assert str(caught.value) == told


def test_nothing_that_floats_leaves() -> None:
    g = Graph("whole")
    g.output(g.op("argmax", g.parameter("w", (4,)), name="best"))
    with pytest.raises(AutodiffError, match="graph 'whole' has no floating output to differentiate: name the loss"):
        add_gradients(g)
    with pytest.raises(AutodiffError, match="the loss 'best' is int64: name a floating result"):
        add_gradients(g, "best")


def test_a_result_without_a_gradient_is_named() -> None:
    g = Graph()
    x = g.op("matmul", g.input("x", (4, 4)), g.parameter("w", (4, 4)), name="x2")
    g.output(g.op("exp", g.op("layer_norm", x, begin_norm_axis=1, name="n")[1], name="y"))
    with pytest.raises(AutodiffError, match=r"defines no gradient through its result mean, but parameter 'w' needs it"):
        add_gradients(g)


def test_no_second_backward_pass() -> None:
    g = Graph()
    g.output(g.op("exp", g.parameter("w", (4,)), name="y"))
    step = add_gradients(g)
    with pytest.raises(AutodiffError, match="has gradients already, 'y_grad' is one"):
        add_gradients(step)


def test_differences_notice_a_wrong_gradient() -> None:
    g = Graph()
    g.output(g.op("exp", g.parameter("w", (4,), "float64"), name="y"))
    slopes = Slopes(g, add_gradients(g), "y")
    slopes.grads["w"] = slopes.grads["w"] * 1.0001
    assert list(slopes.wrong())
