"""Greedy planners: never better than the optimum, right when run, and what each of them is known to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import assume, given, settings

from ops.placement import Partial, Replicate, Shard
from solver import Graph, Mesh, plan
from solver.cli import main
from solver.compare import GREEDY, compare, went_wrong
from solver.greedy.backward import backward
from solver.greedy.follow import follow
from solver.greedy.walk import StuckError
from solver.problem import problem
from solver.recipes import RECIPES
from solver.report.comparison import figures
from solver.training import training_step
from tests.graphs import Case, mlp, random_graphs
from tests.test_constraints import MANY
from tests.training_models import tiny_gpt

FEW = settings(MANY, max_examples=30)
R = Replicate()


@FEW
@given(case=random_graphs(max_ops=6, max_axes=2))
def test_no_greedy_plan_or_recipe_is_better_than_the_optimum_and_all_are_right(case: Case) -> None:
    asked = {"pins": case.pins, "communication": case.communication, "capabilities": case.capabilities}
    best = plan(case.graph, case.mesh, **asked)
    assume(best.status != "unknown")
    if best.status == "optimal":
        assert best.bound_ps <= best.evaluation.total
        for one in compare(best, tuple(RECIPES)):
            assert one.plan is None or one.plan.evaluation.total >= best.evaluation.total, one.name
            assert one.plan is None or figures(one, best)["above_bound"] >= 0
    question = problem(case.graph, case.mesh, **asked)
    for planner in GREEDY.values():
        try:
            found = planner(question)
        except StuckError:
            continue
        assert best.status == "optimal"
        assert found.evaluation.total >= best.evaluation.total
        assert found.check().ok
        assert found.simulate().ok


@FEW
@given(case=random_graphs(max_ops=6, max_axes=2))
def test_a_plan_that_follows_the_layouts_of_another_costs_the_same(case: Case) -> None:
    asked = {"pins": case.pins, "communication": case.communication, "capabilities": case.capabilities}
    best = plan(case.graph, case.mesh, **asked)
    assume(best.status == "optimal")
    tensors, found = best.problem.graph.tensors, best.evaluation
    needed = {name: found.needed(use) for name, use in best.problem.use_named.items()}
    followed = follow(
        best.problem, {name: found.made(name) for name in tensors}, needed, {name: found.held(name) for name in tensors}
    )
    assert followed.unlike == ()
    assert followed.plan.evaluation.total == found.total


def test_where_no_row_does_what_was_said_the_nearest_is_taken_and_told() -> None:
    question = problem(chain(), Mesh({"tp": 4}))
    followed = follow(question, {"up": (Shard(0),), "act": (Shard(1),)}, {"up/x": (R,), "act/x": (Shard(1),)})
    assert followed.unlike == ("up",)
    assert followed.plan.made("act") == {"tp": Shard(1)}
    assert followed.plan.check().ok


def test_gradients_know_their_tensors() -> None:
    step = training_step(tiny_gpt(), optimizer="adamw")
    found = backward(step).slopes
    made = [tensor for node in step.nodes.values() if node.op.endswith("_grad") for tensor in node.results]
    assert set(made) - found.keys() == {"loss_grad"}, "it reads the first slope alone, and that is a constant"
    assert step.gradients.items() <= found.items()
    assert all(step.tensors[gradient].shape == step.tensors[tensor].shape for gradient, tensor in found.items())


def chain() -> Graph:
    g = Graph("chain")
    x = g.input("x", (8, 16))
    h = g.op("matmul", x, g.parameter("w1", (16, 32)), name="up")
    g.output(g.op("matmul", g.op("relu", h, name="act"), g.parameter("w2", (32, 16)), name="down"))
    return g


def test_without_pins_nothing_is_cut() -> None:
    question = problem(chain(), Mesh({"tp": 4}))
    for planner in GREEDY.values():
        found = planner(question)
        assert all(placed == {"tp": R} for placed in map(found.made, question.graph.tensors))


@pytest.mark.parametrize("name", GREEDY)
def test_a_cut_batch_spreads(name: str) -> None:
    found = GREEDY[name](problem(chain(), Mesh({"dp": 4}), pins={"x": "dp=S(0)"}))
    assert found.made("down") == {"dp": Shard(0)}
    assert found.layout("w1") == {"dp": R}


@pytest.mark.parametrize("name", GREEDY)
def test_columns_then_rows(name: str) -> None:
    found = GREEDY[name](problem(chain(), Mesh({"tp": 4}), pins={"w1": "tp=S(1)", "w2": "tp=S(0)"}))
    assert found.made("up") == {"tp": Shard(1)}
    assert found.made("down") == {"tp": Partial("sum")}


def test_paddle_reduces_where_a_partial_result_is_made() -> None:
    g = Graph("partial")
    x, w = g.input("x", (8, 16)), g.parameter("w", (16, 8))
    y = g.op("matmul", x, w, name="y")
    g.output(g.op("scale", y, scale=2.0, name="z"), g.op("relu", y, name="r"))
    pins = {"x": "tp=S(1)", "w": "tp=S(0)"}
    ours = GREEDY["paddle"](problem(g, Mesh({"tp": 4}), pins=pins))
    assert ours.held("y") == {"tp": R}
    assert GREEDY["dtensor"](problem(g, Mesh({"tp": 4}), pins=pins)).held("y") == {"tp": Partial("sum")}


def test_shardy_carries_backwards() -> None:
    pins = {"down": "tp=S(1)"}
    assert GREEDY["shardy"](problem(chain(), Mesh({"tp": 4}), pins=pins)).layout("w2") == {"tp": Shard(1)}
    assert GREEDY["paddle"](problem(chain(), Mesh({"tp": 4}), pins=pins)).layout("w2") == {"tp": R}


def test_shardy_cuts_a_product_inside_though_a_bias_is_added() -> None:
    """As it does with a product and a sum, which is what a compiler makes of it; the bias is one term of the sum."""
    g = Graph("biased")
    x, w, bias = g.input("x", (8, 16)), g.parameter("w", (16, 8)), g.parameter("b", (8,))
    g.output(g.op("addmm", bias, x, w, name="y"))
    found = GREEDY["shardy"](problem(g, Mesh({"tp": 4}), pins={"x": "tp=S(1)", "w": "tp=S(0)"}))
    assert found.made("y") == {"tp": Partial("sum")}
    assert {reshard.collectives[0].kind for reshard in found.reshards if reshard.bytes} == {"all_reduce"}
    assert found.simulate().ok


@pytest.mark.parametrize("name", GREEDY)
def test_a_planner_that_cannot_go_on_says_where(name: str) -> None:
    g = Graph("softmax")
    g.output(g.op("softmax", g.input("x", (4, 8)), name="y"))
    question = problem(g, Mesh({"tp": 4}), pins={"x": "tp=S(1)"}, communication="none")
    with pytest.raises(StuckError) as told:
        GREEDY[name](question)
    where = "cannot be brought from [S(1)] to y/x as [R]" if name == "dtensor" else "'y' (softmax)"
    assert where in str(told.value)


def test_what_went_wrong_is_told() -> None:
    best = plan(chain(), Mesh({"dp": 4}))
    greedy = GREEDY["dtensor"](best.problem)
    assert str(went_wrong(greedy, best)[0]).startswith("relu 'act' is cut less, or not at all")
    assert went_wrong(best, best) == []


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, out = tmp_path / "mlp.json", tmp_path / "figures.json"
    model.write_text(json.dumps(mlp().to_json()), encoding="utf-8")
    assert main(["compare", str(model), "--mesh", "dp=2", "--json", str(out)]) == 0
    said = capsys.readouterr().out
    for name in ("shardproof", *GREEDY):
        assert name in said
    facts = json.loads(out.read_text(encoding="utf-8"))
    assert [one["planner"] for one in facts] == ["shardproof", *GREEDY]
    assert all(one["ratio"] >= 1 for one in facts)
    assert "paddle, paddle-fixpoint, shardy and dtensor take longer by\n" in said
    assert "there is none: pin an input, as --pin 'x:dp=S(0)'" in said
    assert main(["compare", str(model), "--mesh", "dp=2", "--pin", "x:dp=S(0)"]) == 0
    assert "pin an input" not in capsys.readouterr().out
    assert main(["compare", str(model), "--mesh", "dp=3", "--pin", "x:dp=S(0)"]) == 3


def test_equal_places_of_equal_layers_are_told_once() -> None:
    graph = Graph("layers")
    x = graph.input("x", (4, 256))
    for layer in range(3):
        x = graph.op("softmax", graph.op("matmul", x, graph.parameter(f"w{layer}", (256, 256))), axis=1)
    graph.output(x)
    question = {f"w{layer}": "tp=S(1)" for layer in range(3)}
    best = plan(graph, Mesh({"tp": 4}))
    wrong = went_wrong(GREEDY["dtensor"](problem(graph, Mesh({"tp": 4}), pins=question)), best)
    assert any(one.at == ("matmul_1", "matmul_2", "matmul_3") for one in wrong)
    told = "gathers 'matmul_1' (cut at dim 1) over tp for softmax, and 2 more like it: "
    assert any(str(one).startswith(told) for one in wrong)


def test_recipes_stand_beside_greedy_planners(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, out = tmp_path / "mlp.json", tmp_path / "figures.json"
    model.write_text(json.dumps(chain().to_json()), encoding="utf-8")
    asked = ["compare", str(model), "--mesh", "tp=4", "--json", str(out)]
    assert main([*asked, "--recipe", "megatron", "--recipe", "expert_parallel"]) == 0
    said = capsys.readouterr().out
    assert "expert_parallel is stuck: recipe 'expert_parallel' does not fit graph 'chain': it has no stacked" in said
    megatron, stuck = json.loads(out.read_text(encoding="utf-8"))[-2:]
    assert megatron["planner"] == "megatron"
    assert megatron["time_ps"] == megatron["compute_ps"] + sum(megatron["ps_by_collective"].values())
    assert megatron["above_bound"] >= 0
    assert megatron["bytes"] == sum(megatron["bytes_by_collective"].values())
    assert all(set(one) == {"what", "at", "text", "more"} for one in megatron["went_wrong"])
    assert set(stuck) == {"planner", "stuck", "seconds"}
    assert main([*asked, "--pin", "w1:tp=R", "--recipe", "megatron"]) == 0
    assert "megatron is stuck: recipe 'megatron' stands against what else is asked" in capsys.readouterr().out


def test_the_plan_asked_for_comes_first() -> None:
    best = plan(mlp(), Mesh({"dp": 2}))
    found = compare(best)
    assert found[0].plan is best
    assert [one.name for one in found[1:]] == list(GREEDY)
