"""The simulated run: right plans pass with the bytes and memory that they say; every error in a program is noticed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from ops.placement import Partial, Replicate, Shard, layout_text
from solver import Graph, Mesh, Plan, plan
from solver.autodiff import add_gradients
from solver.plan_json import PlanFileError
from solver.problem import problem
from solver.program import LocalOp, Program, Transfer
from solver.simulate import Run, relative_error, simulate
from solver.values import ValuesError, given_values, random_values, run_whole
from tests.graphs import HARDWARE, mlp, scalar
from tests.plans import FAST, LINE, biased_product, communicating, every_plan, partial_output, planned

R = Replicate()


# ---------------------------------------------------------------------------------------------------- what is right


def test_predictions_are_what_is_counted() -> None:
    for found in every_plan():
        for seed in range(2):
            ran = found.simulate(seed)
            assert ran.ok, f"{found}\n{ran}"
            assert ran.bytes_sent == ran.predicted_bytes == sum(reshard.bytes for reshard in found.reshards)
            assert ran.peak_memory == ran.predicted_memory == found.memory.peak


def test_there_are_plans_that_communicate() -> None:
    kinds = {move.kind for reshard in communicating().reshards for move in reshard.moves}
    assert {"all_gather", "reduce_scatter", "slice"} <= kinds
    assert any(reshard.shared for reshard in communicating().reshards)
    assert communicating().simulate().bytes_sent > 0


def test_an_output_may_leave_as_terms_of_a_sum() -> None:
    found = partial_output()
    assert found.held("p")["tp"] == Partial("sum")
    frozen = planned(biased_product(), pins={"p": "tp=P(sum)"}, communication="frozen")
    assert layout_text(frozen.evaluation.delivered("p")).endswith("P(sum)]")
    assert frozen.simulate().ok


def outputs_of_all_kinds() -> Graph:
    """An input that leaves as it came, a constant, integers, booleans, a result that nobody uses."""
    g = Graph("outputs")
    x, ids = g.input("x", (4, 8)), g.input("ids", (4,), dtype="int64")
    one = g.constant("one", np.arange(4, dtype=np.float32))
    g.op("exp", x, name="unused")
    best = g.op("argmax", x, axis=1, name="best")
    g.output(
        x, one, best, g.op("greater_than", x, g.op("relu", x, name="a"), name="above"), g.op("assign", ids, name="i")
    )
    return g


@pytest.mark.parametrize("pin", ["dp=S(0)", "tp=S(0)", "dp=R,tp=R"])
def test_outputs_of_every_kind(pin: str) -> None:
    ran = planned(outputs_of_all_kinds(), FAST, pins={"x": pin}).simulate()
    assert ran.ok, ran
    assert set(ran.max_error) == {"x", "one", "best", "above", "i"}


def test_a_plan_without_a_choice_cannot_run() -> None:
    found = plan(mlp(), Mesh({"tp": 3}), pins={"x": "tp=S(0)"})
    assert found.status == "infeasible"
    for ask in (found.simulate, lambda: found.program, lambda: found.layout("x"), lambda: found.memory):
        with pytest.raises(ValueError, match="there is no plan to ask: the status is infeasible"):
            ask()


# ----------------------------------------------------------------------------------------------------- what is wrong

Mutation = Callable[[Program], Program]


def without(program: Program, position: int) -> Program:
    """Drop a transfer: what read its target reads its source."""
    steps = list(program.steps)
    dropped = steps.pop(position)
    assert isinstance(dropped, Transfer)
    rename = {dropped.target: dropped.source}

    def name(found: str) -> str:
        return rename.get(found, found)

    def names(found: object) -> object:
        return tuple(map(name, found)) if isinstance(found, tuple) else found if found is None else name(str(found))

    changed = [
        replace(step, source=name(step.source))
        if isinstance(step, Transfer)
        else replace(step, operands=tuple(map(names, step.operands)))
        for step in steps
    ]
    outputs = {tensor: name(buffer) for tensor, buffer in program.outputs.items()}
    return replace(program, steps=tuple(changed), outputs=outputs)


def transfers(program: Program) -> list[int]:
    return [i for i, step in enumerate(program.steps) if isinstance(step, Transfer)]


def test_a_dropped_transfer_is_noticed() -> None:
    program = communicating().program
    for position in transfers(program):
        assert not simulate(without(program, position)).ok, program.steps[position]


def test_a_lost_step_is_noticed() -> None:
    program = communicating().program
    for position, lost in enumerate(program.steps):
        ran = simulate(replace(program, steps=program.steps[:position] + program.steps[position + 1 :]))
        assert not ran.ok, lost
        assert "is not there" in str(ran) or "nothing has made" in str(ran)


def test_another_kind_of_collective_is_noticed() -> None:
    program = communicating().program
    kinds = ("all_gather", "all_reduce", "reduce_scatter", "slice", "all_to_all", "zero_fill", "relabel", "scale")
    for position in transfers(program):
        step = program.steps[position]
        assert isinstance(step, Transfer)
        for kind in kinds:
            if kind != step.move.kind and len(step.move.axes) == 1:
                wrong = replace(step, move=replace(step.move, kind=kind))
                changed = replace(program, steps=(*program.steps[:position], wrong, *program.steps[position + 1 :]))
                assert not simulate(changed).ok, f"{step.move.kind} -> {kind}"


def test_another_partial_kind_is_noticed() -> None:
    program = planned(biased_product(), pins={"p": "tp=R", "p/x": "tp=S(1)"}).program
    position = next(i for i in transfers(program) if program.steps[i].move.kind == "all_reduce")  # type: ignore[union-attr]
    step = program.steps[position]
    assert isinstance(step, Transfer)
    for kind in ("avg", "max", "min"):
        source = tuple(Partial(kind) if isinstance(p, Partial) else p for p in step.move.source)
        wrong = replace(step, move=replace(step.move, source=source))
        assert not simulate(
            replace(program, steps=(*program.steps[:position], wrong, *program.steps[position + 1 :]))
        ).ok


def test_two_devices_that_hold_each_others_blocks_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from solver.collectives import Devices

    found = planned(mlp(), FAST, pins={"x": "dp=S(0)", "w1": "tp=S(1)"})
    cut = Devices.cut

    def swapped(self: Devices, whole: np.ndarray, layout: tuple) -> list[np.ndarray]:
        blocks = cut(self, whole, layout)
        blocks[0], blocks[-1] = blocks[-1], blocks[0]
        return blocks

    assert found.simulate().ok
    monkeypatch.setattr(Devices, "cut", swapped)
    assert not found.simulate().ok


def test_two_swapped_channel_blocks_of_a_weight_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from solver import simulate as module

    g = Graph("conv")
    x, w = g.input("x", (2, 4, 5, 5)), g.parameter("w", (8, 4, 3, 3))
    g.output(g.op("relu", g.op("conv2d", x, w, name="c"), name="y"))
    found = planned(g, FAST, pins={"w": "tp=S(0)"})
    assert found.simulate().ok
    run = module._Machine.run

    def swapped(self: object, values: dict[str, np.ndarray]) -> object:
        return run(self, {**values, "w": np.roll(values["w"], 4, axis=0)})  # type: ignore[arg-type]

    monkeypatch.setattr(module._Machine, "run", swapped)
    ran = found.simulate()
    assert not ran.ok
    assert "output 'y' differs from the unsharded run" in str(ran)


def test_a_row_that_is_not_the_rules_is_noticed() -> None:
    """The product is said to be whole where each device has a term of it."""
    found = planned(biased_product(), pins={"p": "tp=R", "p/x": "tp=S(1)"})
    program = found.program
    kept = tuple(step for step in program.steps if not (isinstance(step, Transfer) and step.move.kind == "all_reduce"))
    wrong = dict(program.buffers) | {"p": replace(program.buffers["p"], layout=(R, R))}
    ran = simulate(replace(program, steps=kept, buffers=wrong, outputs={"p": "p"}))
    assert not ran.ok


def test_other_attributes_on_one_device_are_noticed() -> None:
    g = Graph("lookup")
    g.output(g.op("embedding", g.input("ids", (16,), dtype="int64"), g.parameter("w", (8, 4)), name="e"))
    found = planned(g, FAST, pins={"e/weight": "tp=S(0)"})
    program = found.program
    position, step = next((i, s) for i, s in enumerate(program.steps) if isinstance(s, LocalOp))
    assert len({id(attrs) for attrs in step.attrs}) == 2, "each half of the words has its own start"
    assert simulate(program).ok
    wrong = replace(step, attrs=(step.attrs[0],) * len(step.attrs))
    assert not simulate(replace(program, steps=(*program.steps[:position], wrong, *program.steps[position + 1 :]))).ok


def test_bytes_and_memory_that_differ_are_findings() -> None:
    ran = Run({"y": 0.0}, 1, 2, 3, 1, 4)
    assert ran.findings == ["1 byte sent per device, the plan says 2", "3 bytes stored at the peak, the plan says 1"]
    assert str(ran).startswith("the simulated run is wrong:\n  1 byte sent")


def test_the_words_of_a_run() -> None:
    assert str(Run({"y": 0.0}, 1, 1, 4, 4, 1)) == (
        "simulated on 1 device: 1 output agrees with the unsharded run (largest relative difference 0.0e+00), "
        "1 byte sent per device as predicted"
    )
    assert str(Run({"y": 0.0, "z": 1e-12}, 1024, 1024, 4, 4, 8)) == (
        "simulated on 8 devices: 2 outputs agree with the unsharded run (largest relative difference 1.0e-12), "
        "1,024 bytes sent per device as predicted"
    )
    assert "differs from the unsharded run by 1.00e-03" in str(Run({"y": 1e-3}, 0, 0, 0, 0, 1))
    assert "has no one value" in str(Run({"y": float("inf")}, 0, 0, 0, 0, 1))
    assert not Run({"y": float("nan")}, 0, 0, 0, 0, 1).ok


ERRORS = [
    ([1.0, 2.0], [1.0, 2.0], 0.0),
    ([1.0, 3.0], [1.0, 2.0], 0.5),
    ([0.0], [0.0], 0.0),
    ([1e-3], [0.0], 1e-3),
    ([np.nan], [np.nan], 0.0),
    ([np.nan], [1.0], np.inf),
    ([np.inf, 1.0], [np.inf, 1.0], 0.0),
    ([-np.inf, 1.0], [np.inf, 1.0], np.inf),
    ([1], [1], 0.0),
    ([1], [2], np.inf),
    ([True], [True], 0.0),
    ([[1.0]], [1.0], np.inf),
    ([], [], 0.0),
]


@pytest.mark.parametrize(("made", "wanted", "error"), ERRORS)
def test_the_relative_error(made: list[float], wanted: list[float], error: float) -> None:
    assert relative_error(np.array(made), np.array(wanted)) == error


def cancelling() -> Graph:
    """A bias of the keys of an attention moves every score of a query alike: its gradient is nothing."""
    g = Graph("cancelling")
    x, bias = g.input("x", (8, 12)), g.parameter("bias", (12,))
    scores = g.op("matmul", x, g.op("add", x, bias, name="keys"), transpose_y=True)
    g.output(g.op("sum", g.op("square", g.op("softmax", scores, axis=-1)), name="loss"))
    return add_gradients(g)


def test_what_cancels_is_compared_with_its_rounding() -> None:
    graph = cancelling()
    found = plan(
        graph, Mesh({"dp": 2, "tp": 2}), pins=dict.fromkeys(("keys/x", "keys_grad/out_grad"), "dp=S(0),tp=S(1)")
    )
    ran = found.simulate(seed=0)
    assert ran.ok, str(ran)
    whole = run_whole(graph, random_values(graph, 0))["keys_grad.y_grad"]
    assert np.abs(whole).max() < 1e-13
    assert relative_error(whole + 1e-12, whole, whole * 1.5) > 1e-9


def test_no_array_is_an_infinite_error() -> None:
    assert relative_error(None, np.zeros(1)) == np.inf


# ----------------------------------------------------------------------------------------------- values of a person


def lookup() -> Graph:
    g = Graph("lookup")
    ids, w = g.input("ids", (4,), dtype="int64"), g.parameter("w", (8, 4))
    y = g.op("embedding", ids, w, name="e")
    g.output(g.op("add", y, g.constant("c", np.ones(4, np.float32)), name="y"))
    return g


GOOD = {"ids": [0, 7, 3, 3], "w": np.arange(32.0).reshape(8, 4)}
BAD = [
    ({"ids": [0, 1, 2, 3]}, "parameter 'w' has no value: give an array of shape (8, 4)"),
    ({**GOOD, "q": 1}, "a value is given for 'q', which is no input, parameter, state or constant"),
    ({**GOOD, "y": 1}, "a value is given for 'y', which is no input, parameter, state or constant"),
    ({**GOOD, "w": np.zeros((4, 8))}, "the value of 'w' has shape (4, 8), but the tensor has (8, 4)"),
    ({**GOOD, "ids": [0.5] * 4}, "the value of 'ids' is float64, but the tensor is int64"),
    ({**GOOD, "w": [[1], [2, 3]]}, "the value of 'w' is no array"),
    ({**GOOD, "w": np.full((8, 4), "a")}, "the value of 'w' is <U1, but the tensor is float32"),
    ({**GOOD, "ids": [0, 1, 2, 99]}, "op 'e' (embedding) cannot run on these values"),
]


@pytest.mark.parametrize(("values", "sentence"), BAD, ids=[sentence[:40] for _, sentence in BAD])
def test_values_that_do_not_fit_are_refused(values: dict, sentence: str) -> None:
    with pytest.raises(ValuesError) as refused:
        planned(lookup(), LINE).simulate(values=values)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_values_that_fit_are_taken() -> None:
    graph = lookup()
    assert planned(graph, LINE).simulate(values=GOOD).ok
    np.testing.assert_array_equal(run_whole(graph, given_values(graph, GOOD))["y"][0], [1, 2, 3, 4])
    other = given_values(graph, {**GOOD, "c": [5, 5, 5, 5]})
    np.testing.assert_array_equal(run_whole(graph, other)["y"][0], [5, 6, 7, 8])


def test_drawn_values_are_the_same_for_the_same_seed() -> None:
    graph = lookup()
    first, again, other = (random_values(graph, seed) for seed in (3, 3, 4))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["w"], other["w"])
    assert first["ids"].max() < 8
    assert first["w"].dtype == np.float64


def test_a_scalar_runs_on_every_mesh() -> None:
    for sizes in ({"tp": 1}, {"tp": 3}, {"dp": 1, "tp": 2}):
        assert planned(scalar(), Mesh(sizes)).simulate().ok


def test_a_plan_that_is_not_of_its_graph_cannot_be_checked() -> None:
    found = planned(mlp(), FAST)
    other = Plan(problem(scalar(), FAST), "optimal", found.choice, found.certificate)
    with pytest.raises(PlanFileError, match="the choice of this plan file cannot be read"):
        other.check()


def test_kernels_that_reduce_inside_reduce_over_the_devices_that_cut_them() -> None:
    """The mean of a loss is that of all labels, wherever they lie; each of its two numbers is reduced on both axes."""
    g = Graph("loss")
    x, label = g.input("x", (8, 4)), g.input("label", (8,), dtype="int64")
    g.output(g.op("nll_loss", g.op("exp", x, name="e"), label, name="l")[0])
    found = plan(g, FAST, capabilities={"synced_kernels"})
    step = next(s for s in found.program.steps if isinstance(s, LocalOp) and s.node == "l")
    assert step.reduces == (0, 1)
    ran = found.simulate()
    assert ran.ok, ran
    assert ran.max_error["l.out"] < 1e-12
    assert ran.bytes_sent - sum(reshard.bytes for reshard in found.reshards) == 2 * 2 * (2 * 1 * 4)


@pytest.mark.parametrize("seed", [-1, "a", None, 1.5, True])
def test_a_seed_that_is_none(seed: object) -> None:
    with pytest.raises(ValuesError) as refused:
        planned(mlp(), LINE).simulate(seed=seed)  # type: ignore[arg-type]
    assert str(refused.value) == f"seed={seed!r}: give a whole number from 0 up"


def test_a_backward_may_be_cut_where_its_forward_reduces() -> None:
    g = Graph("classes")
    logits = g.op("matmul", g.input("x", (8, 4)), g.parameter("w", (4, 6)), name="logits")
    chances = g.op("log_softmax", logits, axis=-1, name="chances")
    loss, _ = g.op("nll_loss", chances, g.input("label", (8,), "int64"), name="loss")
    g.output(loss)
    found = plan(add_gradients(g), Mesh({"dp": 2}, hardware=HARDWARE["compute"]), pins={"x": "dp=S(0)"})
    (backward,) = (node.name for node in found.problem.graph.nodes.values() if node.op == "nll_loss_grad")
    assert found.made(backward) == {"dp": Shard(0)}
    assert found.simulate().ok


def test_values_of_dtypes_that_numpy_knows_by_name_only() -> None:
    g = Graph("narrow")
    x = g.input("x", (4,), dtype="bfloat16")
    g.output(g.op("relu", x, name="y"))
    narrow = np.array([1.5, -2.0, 0.25, 3.0]).astype(pytest.importorskip("ml_dtypes").bfloat16)
    read = given_values(g, {"x": narrow})["x"]
    assert read.dtype == np.float64
    assert read.tolist() == [1.5, -2.0, 0.25, 3.0]
    c = Graph("complex")
    z = c.input("z", (2,), dtype="complex64")
    c.output(c.op("assign", z, name="r"))
    assert given_values(c, {"z": np.array([1 + 2j, 3j], np.complex64)})["z"].dtype == np.complex128
