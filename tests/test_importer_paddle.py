"""PaddlePaddle programs come in as they are: forward, backward and update, held against Paddle's own executor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle", reason="PaddlePaddle is not installed: pip install 'shardproof[paddle]'")
import paddle_models as models  # noqa: E402
from paddle import nn  # noqa: E402
from paddle.nn import functional  # noqa: E402

from ops import Replicate, Shard  # noqa: E402
from solver import Graph, Mesh, from_paddle, from_paddle_layer, paddle_pins, plan  # noqa: E402
from solver.importers import ImporterError  # noqa: E402
from solver.values import given_values, run_whole  # noqa: E402

NETWORKS: dict[str, tuple[Any, dict[str, Any]]] = {
    "mlp": (models.mlp, {"x": models.draw(8, 16), "y": models.classes(8, 1, below=12)}),
    "images": (models.images, {"x": models.draw(8, 4, 8, 8), "y": models.classes(8, 1, below=12)}),
    "block": (models.block, {"x": models.draw(8, 6, 24), "y": models.draw(8, 6, 24, seed=3)}),
    "gpt": (models.gpt, models.gpt_tokens()),
}
ADAMW = {"learning_rate": 1e-2, "weight_decay": 0.1, "epsilon": 1e-3}
"""With a small epsilon a gradient that is zero but for rounding would become a step of full length."""
MESHES = ({"dp": 2, "tp": 2}, {"node": 2, "dp": 2, "tp": 2})


def values_of(graph: Graph, *given: dict[str, Any]) -> dict[str, Any]:
    """The value of every source that is no constant."""
    known = {name: value for one in given for name, value in one.items()}
    return {t.name: known[t.name] for t in graph.tensors.values() if t.producer is None and t.value is None}


def close(ours: Any, theirs: Any, scale: float = 1e-3) -> bool:
    """Equal to 1e-4 of the largest element."""
    theirs = np.asarray(theirs, "float64").reshape(np.shape(ours))
    return bool(np.abs(ours - theirs).max() <= 1e-4 * max(np.abs(theirs).max(), scale))


@pytest.mark.parametrize("network", NETWORKS)
def test_the_loss_and_every_gradient_are_those_of_paddle(network: str) -> None:
    write, inputs = NETWORKS[network]
    built = models.build(write, inputs)
    graph = from_paddle(built.program, gradients=built.gradients)
    before, (loss, *gradients), _ = built.run(built.loss, *(grad for _, grad in built.gradients))
    ours = run_whole(graph, given_values(graph, values_of(graph, before, inputs)))
    assert close(ours[graph.outputs[0]], loss)
    by_parameter = {parameter: gradient for gradient, parameter in graph.gradients.items()}
    assert len(by_parameter) == len(built.gradients)
    for (parameter, _), theirs in zip(built.gradients, gradients, strict=True):
        assert close(ours[by_parameter[parameter.name]], theirs), parameter.name
    assert set(graph.gradients.items()) <= set(graph.ties.items())


@pytest.mark.parametrize("mesh", MESHES, ids=lambda mesh: "x".join(map(str, mesh.values())))
@pytest.mark.parametrize("network", NETWORKS)
def test_a_whole_step_is_planned_checked_and_simulated(network: str, mesh: dict[str, int]) -> None:
    write, inputs = NETWORKS[network]
    built = models.build(write, inputs, lambda: paddle.optimizer.AdamW(**ADAMW))
    graph = from_paddle(built.program)
    before, (loss,), after = built.run(built.loss)
    values = values_of(graph, before, inputs)
    ours = run_whole(graph, given_values(graph, values))
    assert close(ours[graph.outputs[0]], loss)
    new = {name: leader for name, leader in graph.ties.items() if name in graph.outputs}
    assert set(graph.gradients.values()) == {parameter.name for parameter, _ in built.gradients} <= set(new.values())
    for name, leader in new.items():
        assert close(ours[name], after[leader].reshape(ours[name].shape)), name
    data = next(iter(inputs))
    planned = plan(graph, Mesh(mesh), pins={data: {next(iter(mesh)): Shard(0)}}, timeout=60)
    assert planned.status in ("optimal", "feasible")
    assert planned.gap < 0.005
    assert planned.check().ok
    run = planned.simulate(values=values)
    assert run.ok, str(run)


def test_what_the_graph_says_of_a_step() -> None:
    built = models.build(*NETWORKS["mlp"], lambda: paddle.optimizer.AdamW(**ADAMW))
    graph = from_paddle(built.program, name="mlp")
    roles = {name: tensor.role for name, tensor in graph.tensors.items()}
    assert roles["linear_0.w_0"] == "parameter"
    assert roles["linear_0.w_0_moment1_0"] == roles["learning_rate_0"] == "state"
    assert graph.ties["linear_0.w_0_moment1_0"] == "linear_0.w_0"
    assert graph.ties["linear_0.w_0.adamw.param_out"] == "linear_0.w_0"
    assert graph.ties["linear_0.w_0.adamw.moment1_out"] == "linear_0.w_0_moment1_0"
    assert graph.outputs[0] == "mean"
    (first, second) = (node.module for node in graph.nodes.values() if node.op == "matmul")
    assert first.endswith(".Linear")
    assert second.endswith(".Linear_1")
    assert graph.gradients[f"{first}.matmul_grad.y_grad"] == "linear_0.w_0"
    assert graph.nodes[f"{second}.matmul_grad"].module == second
    step = graph.nodes["linear_0.w_0.adamw"]
    assert step.attrs == {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-3, "lr_ratio": 1.0, "coeff": 0.1,
                          "with_decay": True}  # fmt: skip
    assert graph.notes == ["computed from constants and shapes alone, and folded: 1 mean_grad"]


OPTIMIZERS = {
    "sgd": lambda: paddle.optimizer.SGD(1e-2),
    "momentum": lambda: paddle.optimizer.Momentum(1e-2, weight_decay=0.1, use_nesterov=True),
    "adam": lambda: paddle.optimizer.Adam(1e-2),
    "lamb": lambda: paddle.optimizer.Lamb(1e-2),
    "clip": lambda: paddle.optimizer.Momentum(1e-2, grad_clip=nn.ClipGradByGlobalNorm(0.01)),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer_steps_as_paddle_does(optimizer: str) -> None:
    write, inputs = NETWORKS["mlp"]
    built = models.build(write, inputs, OPTIMIZERS[optimizer])
    graph = from_paddle(built.program)
    before, _, after = built.run(built.loss)
    ours = run_whole(graph, given_values(graph, values_of(graph, before, inputs)))
    new = {name: leader for name, leader in graph.ties.items() if name in graph.outputs}
    assert new
    makers = {graph.nodes[str(graph.tensors[name].producer)].op for name in graph.gradients}
    assert makers == {"matmul_grad", "add_grad"}, "what devices reduce, before it is clipped"
    for name, leader in new.items():
        assert close(ours[name] - before[leader], after[leader].reshape(ours[name].shape) - before[leader], 1e-2), name


def test_placements_of_a_program_are_pins() -> None:
    import paddle.distributed as dist

    mesh = dist.ProcessMesh([[0, 1], [2, 3]], dim_names=["dp", "mp"])

    def write(x: Any) -> Any:
        layer = nn.Linear(16, 8, bias_attr=False)
        x = dist.shard_tensor(x, mesh, [dist.Shard(0), dist.Replicate()])
        weight = dist.shard_tensor(layer.weight, mesh, [dist.Replicate(), dist.Shard(1)])
        hidden = dist.reshard(paddle.matmul(x, weight), mesh, [dist.Replicate(), dist.Replicate()])
        return functional.relu(hidden).sum()

    paddle.enable_static()
    program = paddle.static.Program()
    with paddle.static.program_guard(program, paddle.static.Program()), paddle.utils.unique_name.guard():
        write(paddle.static.data("x", [8, 16]))
    pins = paddle_pins(program)
    assert pins == {
        "x": {"dp": Shard(0), "mp": Replicate()},
        "linear_0.w_0": {"dp": Replicate(), "mp": Shard(1)},
        "matmul": {"dp": Replicate(), "mp": Replicate()},
    }
    planned = plan(from_paddle(program), Mesh({"dp": 2, "mp": 2}), pins=pins)
    assert planned.status == "optimal"
    assert planned.dims_mapping("linear_0.w_0") == [-1, 1]


def test_a_layer_keeps_the_names_of_its_parameters() -> None:
    paddle.disable_static()
    layer = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    graph = from_paddle_layer(layer, paddle.static.InputSpec([8, 16], "float32", "x"))
    assert [t.name for t in graph.tensors.values() if t.role == "parameter"] == [
        "0.weight", "0.bias", "2.weight", "2.bias",
    ]  # fmt: skip
    paddle.disable_static()
    given = {name: value.numpy() for name, value in layer.named_parameters()}
    x = models.draw(8, 16)
    ours = run_whole(graph, given_values(graph, {**given, "x": x}))
    assert close(ours[graph.outputs[0]], layer(paddle.to_tensor(x)).numpy())


def test_open_dims_are_given_by_the_shape_of_the_input() -> None:
    paddle.enable_static()
    program = paddle.static.Program()
    with paddle.static.program_guard(program, paddle.static.Program()), paddle.utils.unique_name.guard():
        x = paddle.static.data("x", [-1, 6, 4])
        h = nn.Linear(4, 4)(x)
        h.reshape([paddle.shape(h)[0] * 6, 4])
    with pytest.raises(ImporterError, match=r"dim 0 of input 'x' has no size: give its whole shape"):
        from_paddle(program)
    graph = from_paddle(program, input_shapes={"x": (8, 6, 4)})
    assert graph.tensors["reshape"].shape == (48, 4)
    with pytest.raises(ImporterError, match="'z' is no input of the program: it has x"):
        from_paddle(program, input_shapes={"x": (8, 6, 4), "z": (1,)})


def test_unknown_ops_are_named_all_at_once() -> None:
    paddle.enable_static()
    program = paddle.static.Program()
    with paddle.static.program_guard(program):
        x = paddle.static.data("x", [4, 4])
        paddle.linalg.inv(x)
        paddle.polygamma(x, 1)
    with pytest.raises(ImporterError) as refused:
        from_paddle(program)
    said = str(refused.value)
    assert said.startswith("2 kinds of ops become nothing here: op 'pd_op.inverse' (its result is 'inverse' (from ")
    assert "test_importer_paddle.py" in said
    assert 'paddle.linalg.inv(x))): declare it with replicate_only("inverse", "' in said


def test_a_branch_that_data_decide_is_refused() -> None:
    paddle.enable_static()
    program = paddle.static.Program()
    with paddle.static.program_guard(program, paddle.static.Program()):
        x = paddle.static.data("x", [4, 4])
        paddle.static.nn.cond(x.sum() > 0, lambda: x + 1, lambda: x - 1)
    with pytest.raises(ImporterError, match=r"op 'pd_op.if'.*: a branch or a loop that data decide cannot be planned"):
        from_paddle(program)


@pytest.mark.parametrize("wrong", [3, nn])
def test_what_is_no_program_is_refused(wrong: Any) -> None:
    with pytest.raises(ImporterError, match=r"is no program of PaddlePaddle: give a paddle\.static\.Program"):
        from_paddle(wrong)


def test_a_dropped_element_has_no_gradient() -> None:
    paddle.enable_static()
    program = paddle.static.Program()
    with paddle.static.program_guard(program, paddle.static.Program()), paddle.utils.unique_name.guard():
        x = paddle.static.data("x", [8, 16])
        x.stop_gradient = False
        kept = functional.dropout(x, 0.5)
        other = functional.dropout(x, 0.5)
        (grad,) = paddle.static.gradients([kept.sum()], [x])
    graph = from_paddle(program, fetch=[kept, other, grad])
    kept_ours, other_ours, grad_ours = (
        run_whole(graph, given_values(graph, {"x": np.ones((8, 16))}))[name] for name in graph.outputs
    )
    assert np.array_equal(kept_ours, grad_ours)
    assert set(np.unique(kept_ours)) == {0.0, 2.0}
    assert not np.array_equal(kept_ours, other_ours), "each op draws numbers of its own"
    assert graph.notes[-1].startswith("2 ops draw random numbers")


def test_gradients_that_were_scaled_are_checked_and_the_scale_follows() -> None:
    paddle.enable_static()
    program = paddle.static.Program()
    with paddle.static.program_guard(program, paddle.static.Program()), paddle.utils.unique_name.guard():
        grads = [paddle.static.data(name, [4, 6]) for name in ("g", "h")]
        scale = paddle.static.data("scale", [1])
        steps = [paddle.static.data(name, [1], "int32") for name in ("good", "bad")]
        checked, found = paddle._C_ops.check_finite_and_unscale_(grads, scale)
        made = paddle._C_ops.update_loss_scaling_(checked, found, scale, *steps, 2, 1, 2.0, 0.5, False)
        outs = [*made[0], found, *made[1:]]
    feed = {"g": models.draw(4, 6), "h": models.draw(4, 6, seed=5), "scale": np.full((1,), 8.0, "float32")}
    feed |= {"good": np.array([1], "int32"), "bad": np.array([0], "int32")}
    graph = from_paddle(program, fetch=outs)
    executor = paddle.static.Executor(paddle.CPUPlace())
    for broken in (False, True):
        given = {**feed, "g": np.where(np.eye(4, 6) > 0, np.inf, feed["g"]).astype("float32") if broken else feed["g"]}
        theirs = executor.run(program, feed={name: value.copy() for name, value in given.items()}, fetch_list=outs)
        with np.errstate(all="ignore"):
            ours = run_whole(graph, given_values(graph, given))
        for name, expected in zip(graph.outputs[: len(outs)], theirs, strict=True):
            assert close(ours[name].astype("float64"), expected), name


def test_a_parameter_is_stepped_through_its_wider_master_copy() -> None:
    paddle.enable_static()
    program = paddle.static.Program()
    with paddle.static.program_guard(program, paddle.static.Program()), paddle.utils.unique_name.guard():
        names = ("param", "grad", "moment1", "moment2", "master")
        dtypes = ("float32", "float32", "float64", "float64", "float64")
        given = {name: paddle.static.data(name, [4, 6], dtype) for name, dtype in zip(names, dtypes, strict=True)}
        for name in ("param", "moment1", "moment2", "master"):
            given[name].persistable = True
        rate, one, two = (paddle.static.data(name, [1]) for name in ("rate", "pow1", "pow2"))
        made = paddle._C_ops.adamw_(
            given["param"], given["grad"], rate, given["moment1"], given["moment2"], None, one, two, given["master"],
            None, 0.9, 0.999, 1e-8, 1.0, 0.01, True, False, 1000, True, False, False,
        )  # fmt: skip
    graph = from_paddle(program)
    assert made
    assert {graph.nodes[name].op for name in graph.nodes} >= {"adamw", "cast"}
    assert graph.ties["master"] == "param"
    new = {leader: name for name, leader in graph.ties.items() if name in graph.outputs}
    assert graph.tensors[new["param"]].dtype == "float32"
    assert graph.tensors[new["master"]].dtype == "float64"
