"""Recipes that people write by hand: what they pin, what they refuse, and that none of them beats the optimum."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.captures import DATA
from benchmarks.models import gpt, gpt_training
from ops.placement import Replicate, Shard
from solver import Graph, Mesh, plan
from solver.importers.aten import lower
from solver.importers.capture import read_capture
from solver.problem import ProblemError
from solver.recipes import RECIPES, recipe
from solver.training import training_step
from tests.training_models import normalized_convolution, tiny_gpt

R = Replicate()
SMALL = {"hidden": 32, "heads": 4, "batch": 8, "sequence": 16, "vocabulary": 64, "dtype": "float32"}


def experts() -> Graph:
    """Tokens that each go through one of four experts, of two layers each."""
    g = Graph("experts")
    tokens, ends = g.input("tokens", (16, 8)), g.input("ends", (4,), "int64")
    x = g.op("relu", g.op("grouped_mm", tokens, g.parameter("up", (4, 8, 16)), ends, name="wide"))
    x = g.op("grouped_mm", x, g.op("transpose", g.parameter("down", (4, 8, 16)), perm=[0, 2, 1]), ends, name="narrow")
    g.output(g.op("matmul", x, g.parameter("head", (8, 8)), name="y"))
    return g


def on(axis: str, name: str, graph: Graph, mesh: Mesh) -> dict[str, str]:
    return {subject: str(pin[axis]) for subject, pin in recipe(name, graph, mesh).items()}


def test_data_parallel_cuts_the_batch_and_keeps_parameters_whole() -> None:
    pins = recipe("data_parallel", gpt(1, **SMALL), Mesh({"dp": 2, "tp": 4}))
    assert pins["ids"] == {"dp": Shard(0), "tp": Shard(0)}
    assert {str(placement) for name, pin in pins.items() if name != "ids" for placement in pin.values()} == {"R"}
    assert pins["h0.q.product/y"] == {"dp": R, "tp": R}


def test_a_mesh_axis_that_does_not_divide_the_batch_is_left_out() -> None:
    pins = recipe("data_parallel", gpt(1, **SMALL), Mesh({"dp": 4, "tp": 4}))
    assert pins["ids"] == {"dp": Shard(0), "tp": R}


def test_fsdp_stores_pieces_and_reads_them_whole_but_in_the_update() -> None:
    step = training_step(tiny_gpt(), optimizer="adamw")
    pins = recipe("fsdp", step, Mesh({"dp": 4}))
    assert pins["wte"] == {"dp": Shard(0)}
    assert pins["h.0.attn.q.bias"] == {"dp": Shard(0)}
    read = {use.name for use in step.uses("h.0.mlp.up.weight")}
    update = {use.name for use in step.uses("h.0.mlp.up.weight") if step.nodes[use.op].op == "adamw"}
    assert read & pins.keys() == read - update
    assert all(pins[name] == {"dp": R} for name in read - update)


def test_megatron_cuts_columns_then_rows() -> None:
    cut = on("tp", "megatron", gpt(2, **SMALL), Mesh({"dp": 2, "tp": 4}))
    assert cut["wte"] == "S(0)"
    for layer in ("h0", "h1"):
        for part in ("q", "k", "v", "up"):
            assert (cut[f"{layer}.{part}.weight"], cut[f"{layer}.{part}.bias"]) == ("S(1)", "S(0)")
        for part in ("out", "down"):
            assert (cut[f"{layer}.{part}.weight"], cut[f"{layer}.{part}.bias"]) == ("S(0)", "R")
            assert cut[f"{layer}.{part}.product"] == "R"
        assert cut[f"{layer}.ln1.scale"] == cut[f"{layer}.ln2.bias"] == "R"
    assert cut["head"] == "S(1)"


def test_with_sequence_parallelism_the_sums_are_scattered() -> None:
    cut = on("tp", "megatron_sp", gpt(1, **SMALL), Mesh({"dp": 2, "tp": 4}))
    assert cut["h0.out.product"] == cut["h0.down.product"] == cut["embed"] == "S(1)"
    assert cut["h0.q.weight"] == "S(1)"


def test_a_recipe_may_name_its_mesh_axis() -> None:
    pins = recipe("megatron(mp)", gpt(1, **SMALL), Mesh({"mp": 4, "dp": 2}))
    assert pins["h0.up.weight"] == {"mp": Shard(1), "dp": R}
    assert pins["ids"] == {"mp": R, "dp": Shard(0)}


def test_heads_that_nothing_divides_leave_attention_whole() -> None:
    cut = on("tp", "megatron", gpt(1, **{**SMALL, "hidden": 48, "heads": 3}), Mesh({"tp": 4}))
    assert {cut[f"h0.{part}.weight"] for part in ("q", "k", "v", "out")} == {"R"}
    assert (cut["h0.up.weight"], cut["h0.down.weight"]) == ("S(1)", "S(0)")


def test_megatron_of_a_captured_llama_is_megatron() -> None:
    graph = lower(read_capture(DATA / "llama7b.json.gz"))
    cut = on("tp", "megatron", graph, Mesh({"dp": 8, "tp": 8}))
    wanted = {"q_proj": "S(0)", "k_proj": "S(0)", "v_proj": "S(0)", "o_proj": "S(1)"}
    wanted |= {"gate_proj": "S(0)", "up_proj": "S(0)", "down_proj": "S(1)", "input_layernorm": "R"}
    for layer in range(32):
        for name, placement in wanted.items():
            (weight,) = (
                one for one in cut if one.startswith(f"model.layers.{layer}.") and one.endswith(f"{name}.weight")
            )
            assert cut[weight] == placement


def test_experts_are_cut_and_the_rest_is_data_parallel() -> None:
    cut = on("ep", "expert_parallel", experts(), Mesh({"dp": 2, "ep": 4}))
    assert cut["up"] == cut["down"] == cut["tokens"] == "S(0)"
    assert cut["head"] == "R"
    cut = on("tp", "megatron", experts(), Mesh({"tp": 4}))
    assert (cut["up"], cut["down"], cut["head"]) == ("S(2)", "S(2)", "R")


@pytest.mark.parametrize(
    ("name", "graph", "axes", "told"),
    [
        ("pipeline", tiny_gpt, {"dp": 2}, "'pipeline' is no recipe: choose from data_parallel, fsdp, megatron"),
        ("megatron(tp)", tiny_gpt, {"dp": 2}, r"'megatron\(tp\)' names mesh axis 'tp', but the mesh has dp"),
        ("fsdp(dp)", tiny_gpt, {"dp": 2}, r"fsdp cuts the batch on every one that divides it"),
        ("data_parallel", tiny_gpt, {"dp": 3}, r"dp=3 does not divide the batch of ids int64\[8, 16\]"),
        ("megatron", normalized_convolution, {"tp": 2}, "no two matrix products in it follow each other"),
        ("megatron", tiny_gpt, {"tp": 5}, "no two matrix products in it follow each other with weights that tp=5"),
        ("megatron_sp", tiny_gpt, {"tp": 3}, r"no sum carries the sequence of ids int64\[8, 16\] in a dim that tp"),
        ("expert_parallel", tiny_gpt, {"ep": 2}, "it has no stacked weights, one for each expert"),
        ("expert_parallel", experts, {"ep": 8}, r"ep=8 does not divide the experts of down float32\[4, 8, 16\]"),
    ],
)
def test_what_does_not_fit_is_told(name: str, graph: Callable[[], Graph], axes: dict[str, int], told: str) -> None:
    with pytest.raises(ProblemError, match=told):
        recipe(name, graph(), Mesh(axes))


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("make", [lambda: gpt_training(1, "sgd", **SMALL), experts], ids=["gpt", "experts"])
def test_no_recipe_is_cheaper_than_the_optimum(name: str, make: Callable[[], Graph]) -> None:
    graph, mesh = make(), Mesh({"dp": 2, "tp": 2})
    try:
        pins = recipe(name, graph, mesh)
    except ProblemError:
        return
    best, found = plan(graph, mesh), plan(graph, mesh, pins=pins)
    assert best.status == found.status == "optimal"
    assert best.bound_ps <= best.evaluation.total <= found.evaluation.total
    assert found.check().ok
    assert found.simulate().ok


def test_a_bias_inside_a_product_by_rows_is_a_term_of_the_sum() -> None:
    g = Graph("biased")
    x = g.op("addmm", g.parameter("b1", (32,)), g.input("x", (8, 16)), g.parameter("w1", (16, 32)), name="up")
    x = g.op("addmm", g.parameter("b2", (16,)), g.op("relu", x), g.parameter("w2", (32, 16)), name="down")
    g.output(x)
    found = plan(g, Mesh({"tp": 4}), pins=recipe("megatron", g, Mesh({"tp": 4})))
    assert found.status == "optimal"
    assert str(found.made("down")["tp"]) == "P(sum)"
    assert found.layout("b1") == {"tp": Shard(0)}
    assert found.layout("b2") == {"tp": R}
    assert found.simulate().ok
