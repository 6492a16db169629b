"""Training steps: what each optimizer makes of the gradients, what is tied to what, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from solver import Graph
from solver.autodiff import add_gradients
from solver.graph_values import GraphError
from solver.training import OPTIMIZERS, TrainingError, add_optimizer, training_step
from solver.values import random_values, run_whole

Array = np.ndarray[Any, Any]
RATE = 0.125


def network(dtype: str = "float64") -> Graph:
    """Two layers with a bias and a weight that is used twice."""
    g = Graph("network")
    x, w = g.input("x", (8, 4), dtype), g.parameter("w", (4, 4), dtype)
    hidden = g.op("tanh", g.op("add", g.op("matmul", x, w), g.parameter("b", (4,), dtype)), name="hidden")
    g.output(g.op("mean", g.op("square", g.op("matmul", hidden, w, transpose_y=True)), name="loss"))
    return g


def expected(kind: str, values: dict[str, Array], name: str, grad: Array, **hyper: Any) -> dict[str, Array]:
    """The update of one parameter, as the papers write it."""
    w = values[name]
    if kind == "sgd":
        return {"param": w - RATE * grad}
    if kind == "momentum":
        speed = 0.9 * values[f"{name}.velocity"] + grad
        return {"param": w - RATE * speed, "velocity": speed}
    first = 0.9 * values[f"{name}.moment1"] + 0.1 * grad
    second = 0.999 * values[f"{name}.moment2"] + 0.001 * grad**2
    steps = (first / (1 - values["beta1_pow"])), (second / (1 - values["beta2_pow"]))
    epsilon = 1e-6 if kind == "lamb" else 1e-8
    step, kept = steps[0] / (np.sqrt(steps[1]) + epsilon), w
    if kind == "adamw":
        kept = w * (1 - RATE * hyper["coeff"])
    if kind == "lamb":
        step = step + 0.01 * w
        step = step * np.linalg.norm(w) / np.linalg.norm(step)
    return {"param": kept - RATE * step, "moment1": first, "moment2": second}


@pytest.mark.parametrize("clip_norm", [None, 1e-3, 1e3])
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_step_is_what_the_papers_say(kind: str, clip_norm: float | None) -> None:
    hyper = {"coeff": 0.25} if kind == "adamw" else {}
    step = training_step(network(), optimizer=kind, clip_norm=clip_norm, **hyper)
    values = random_values(step, seed=3) | {"learning_rate": np.full(1, RATE)}
    made = run_whole(step, values)
    plain = add_gradients(network())
    slopes = run_whole(plain, {name: values[name] for name in ("x", "w", "b", "loss.grad")})
    grads = {of: slopes[name] for name, of in plain.gradients.items()}
    norm = np.sqrt(sum((grad**2).sum() for grad in grads.values()))
    factor = 1.0 if clip_norm is None else clip_norm / max(norm, clip_norm)
    for name, grad in grads.items():
        for state, value in expected(kind, values, name, factor * grad, **hyper).items():
            got = made[f"{name}.{kind}" if kind == "sgd" else f"{name}.{kind}.{state}_out"]
            np.testing.assert_allclose(got, value, rtol=1e-9, err_msg=f"{name} {state}")
    if "beta1_pow" in values:
        np.testing.assert_allclose(made[f"w.{kind}.beta2_pow_out"], 0.999 * values["beta2_pow"])


def test_what_is_tied_to_what() -> None:
    step = training_step(network(), optimizer="adam")
    assert step.ties == {
        "w.moment1": "w",
        "w.moment2": "w",
        "w.adam.param_out": "w",
        "w.adam.moment1_out": "w.moment1",
        "w.adam.moment2_out": "w.moment2",
        "w.adam.beta1_pow_out": "beta1_pow",
        "w.adam.beta2_pow_out": "beta2_pow",
        "b.moment1": "b",
        "b.moment2": "b",
        "b.adam.param_out": "b",
        "b.adam.moment1_out": "b.moment1",
        "b.adam.moment2_out": "b.moment2",
    }
    assert step.outputs == ["loss", *(name for name in step.ties if "adam" in name)]
    assert sorted(step.gradients.values()) == ["b", "w"]
    assert {step.tensors[f"w.moment{i}"].role for i in (1, 2)} == {"state"}
    assert Graph.from_json(step.to_json()).to_json() == step.to_json()


def test_gradients_that_are_there_already_are_updated_with() -> None:
    """A capture that carries its own backward pass: the gradients were outputs, tied, and are so no more."""
    captured = add_gradients(network())
    before = captured.to_json()
    step = training_step(captured, optimizer="sgd")
    assert step.outputs == ["loss", "w.sgd", "b.sgd"]
    assert step.ties == {"w.sgd": "w", "b.sgd": "b"}
    assert training_step(captured).outputs == captured.outputs
    assert captured.to_json() == before


def test_dtypes() -> None:
    step = training_step(network("bfloat16"), optimizer="adamw", state_dtype="float32", clip_norm=1.0)
    assert {step.tensors[name].dtype for name in ("w.moment1", "b.moment2", "beta1_pow", "clip.ratio")} == {"float32"}
    assert {step.tensors[name].dtype for name in ("w.clipped", "w.adamw.param_out")} == {"bfloat16"}
    assert step.tensors["w.adamw.moment1_out"].dtype == "float32"
    assert training_step(network("bfloat16"), optimizer="adamw").tensors["w.moment1"].dtype == "bfloat16"


def test_a_gradient_of_another_dtype_is_cast() -> None:
    g = Graph()
    w = g.parameter("w", (4,), "bfloat16")
    slope = g.op("multiply", w, g.input("x", (4,), "float32"), name="slope")
    g.output(slope)
    g.gradient(slope, of=w)
    step = add_optimizer(g, "sgd")
    assert step.nodes["slope.cast"].op == "cast"
    assert step.tensors["w.sgd"].dtype == "bfloat16"


def test_a_learning_rate_may_be_fixed() -> None:
    step = training_step(network(), optimizer="sgd", learning_rate=0.5)
    assert step.tensors["learning_rate"].value == np.float32(0.5)


def test_a_number_is_clipped_as_a_number() -> None:
    g = Graph()
    g.output(g.op("exp", g.parameter("w", (), "float64"), name="y"))
    step = training_step(g, optimizer="sgd", clip_norm=0.5)
    values = random_values(step) | {"w": np.array(2.0), "learning_rate": np.ones(1)}
    assert run_whole(step, values)["w.sgd"] == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"optimizer": "adagrad"}, "'adagrad' is no optimizer: choose from sgd, momentum, adam, adamw, lamb"),
        (
            {"optimizer": "sgd", "mu": 0.9},
            "sgd has no hyperparameter 'mu': it takes learning_rate, state_dtype",
        ),
        ({"optimizer": "sgd", "clip_norm": 0.0}, "clip_norm is 0.0: give a number above 0, at most 3.4e+38"),
        ({"optimizer": "sgd", "clip_norm": "1"}, "clip_norm is '1': give a number above 0, at most 3.4e+38"),
        ({"optimizer": "sgd", "learning_rate": -0.1}, "learning_rate is -0.1: give a number above 0, at most 3.4e+38"),
        (
            {"optimizer": "sgd", "learning_rate": 1e300},
            "learning_rate is 1e+300: give a number above 0, at most 3.4e+38",
        ),
        ({"optimizer": "adam", "beta1": 2.0}, "beta1 is 2.0: give a number from 0 up to, but not including, 1"),
        ({"optimizer": "adam", "beta2": math.nan}, "beta2 is nan: give a number from 0 up to, but not including, 1"),
        ({"optimizer": "adamw", "epsilon": -1.0}, "epsilon is -1.0: give a number from 0 up"),
        ({"optimizer": "adamw", "coeff": math.inf}, "coeff is inf: give a number from 0 up"),
        (
            {"optimizer": "adam", "state_dtype": "int32"},
            "state_dtype is 'int32': states are floats, choose from float32, float64, float16, bfloat16",
        ),
        ({"clip_norm": 1.0}, "clip_norm is given, but no optimizer: choose one"),
        ({"coeff": 1.0}, "coeff is given, but no optimizer: choose one"),
    ],
)
def test_what_is_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(TrainingError) as caught:
        training_step(network(), **options)
    assert str(caught.value) == told


def test_what_is_refused_of_graphs() -> None:
    with pytest.raises(TrainingError, match="graph 'network' has no gradients to update parameters with"):
        add_optimizer(network(), "sgd")
    with pytest.raises(TrainingError, match="has its gradients already: neither a loss nor parameters can be chosen"):
        training_step(add_gradients(network()), "loss")
    for first, second in (("sgd", "sgd"), ("adamw", "momentum")):
        with pytest.raises(TrainingError, match=f"parameter 'w' is updated already: 'w.{first}.* replaces it"):
            add_optimizer(training_step(network(), optimizer=first), second)
    with pytest.raises(GraphError, match="momentum has no regularization_method 'l1'"):
        training_step(network(), optimizer="momentum", regularization_method="l1")
