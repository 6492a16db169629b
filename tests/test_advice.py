"""What a plan comes from, in words: what dominates, what pins cost, what stays whole, what would pay."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from solver import Graph, Mesh, explain, plan
from solver.advice import explain_plan
from solver.cli import main

MESH = Mesh({"dp": 2, "tp": 4})


def mlp() -> Graph:
    g = Graph("mlp")
    x = g.input("x", (4096, 4096), dtype="bfloat16")
    up = g.op("matmul", x, g.parameter("w1", (4096, 16384), "bfloat16"), name="up")
    g.output(g.op("matmul", g.op("relu", up, name="act"), g.parameter("w2", (16384, 4096), "bfloat16"), name="down"))
    return g


def test_pins_are_priced() -> None:
    wishes = {"x": "dp=S(0),tp=R", "w1": "tp=S(1)", "w2": "tp=S(0)"}
    found = plan(mlp(), MESH, pins=wishes)
    told = explain_plan(found, 60.0).text.splitlines()
    assert told[0].endswith("and none is cheaper.")
    for source in ("x:dp=S(0)", "w1:tp=S(1)", "w2:tp=S(0)"):
        written = source.partition(":")[0]
        left = {name: wish for name, wish in wishes.items() if name != written}
        if written == "x":
            left["x"] = "tp=R"
        without = plan(mlp(), MESH, pins=left)
        assert found.cost_ps is not None
        assert without.cost_ps is not None
        (line,) = [line for line in told if f"the pin {source} " in line]
        assert line.endswith("nothing") == (without.cost_ps == found.cost_ps)
    assert any("reduce_scatter[tp] of what matmul makes" in line for line in told)


def test_what_stays_whole_is_told() -> None:
    told = explain(mlp(), MESH, pins={"w*": "dp=R,tp=R"}).text
    assert "parameter 'w1' is whole on every device: 134.2 MB" in told


def test_a_capability_that_pays_is_told() -> None:
    g = Graph("lookup")
    ids, table = g.input("ids", (64,), dtype="int64"), g.parameter("table", (50304, 4096))
    g.output(g.op("embedding", ids, table, name="y"))
    wish = {"ids": "tp=R", "table": "tp=S(0)"}
    found = plan(g, Mesh({"tp": 4}), pins=wish, capabilities=frozenset())
    better = plan(g, Mesh({"tp": 4}), pins=wish, capabilities=frozenset({"masked_lookup"}))
    assert found.cost_ps is not None
    assert better.cost_ps is not None
    assert better.cost_ps < found.cost_ps
    assert "the capability masked_lookup would save" in explain_plan(found, 60.0).text


def test_an_op_that_nothing_can_cut_is_told() -> None:
    g = Graph("sorted")
    g.output(g.op("sort", g.input("x", (3, 1_000_000)), name="y"))
    told = explain(g, Mesh({"tp": 2}))
    (finding,) = [one for one in told.findings if one.kind == "forced"]
    assert finding.subject == "y"
    assert finding.text.startswith("sort 'y' runs whole on every device, ")
    assert finding.text in told.text


def test_the_sizes_that_forbid_every_cut_are_told() -> None:
    told = explain(mlp(), Mesh({"tp": 3}))
    finding = next(one for one in told.findings if (one.kind, one.subject) == ("forced", "up"))
    assert "its rule allows a cut, but tp=3 divides none of 4096 and 16384 (" in finding.text


def test_compute_is_told_beside_collectives_and_nothing_is_left_out() -> None:
    found = plan(mlp(), MESH)
    spent = [one for one in explain_plan(found, 0.0).findings if one.kind in ("collective", "compute", "rest")]
    assert {one.subject for one in spent if one.kind == "compute"} >= {"matmul"}
    assert found.cost is not None
    least = found.cost - sum(one.seconds or 0 for one in spent)
    assert 0 <= round(least * 1e12) < 0.02 * found.cost * 1e12


def test_a_wish_about_communication_is_priced() -> None:
    told = explain(mlp(), Mesh({"tp": 2}), communication="frozen", pins={"x": "tp=R"})
    wishes = {finding.subject: finding for finding in told.findings if finding.kind == "wish"}
    assert set(wishes) == {"x:tp=R", 'communication="frozen"'}
    free = plan(mlp(), Mesh({"tp": 2}), pins={"x": "tp=R"})
    bound = plan(mlp(), Mesh({"tp": 2}), communication="frozen", pins={"x": "tp=R"})
    assert free.cost is not None
    assert bound.cost is not None
    assert wishes['communication="frozen"'].seconds == pytest.approx(bound.cost - free.cost, abs=1e-12)


def test_without_time_nothing_is_priced() -> None:
    found = plan(mlp(), MESH, pins={"x": "dp=S(0)"})
    assert "the pin x:dp=S(0) is not priced: there was no time" in explain_plan(found, 0.0).text


def test_no_plan_gives_its_core() -> None:
    told = explain(mlp(), Mesh({"tp": 3}), pins={"x": "tp=S(0)"})
    assert told.core
    assert told.repairs
    assert told.text.startswith("No plan satisfies this:")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "mlp.json"
    path.write_text(json.dumps(mlp().to_json()), encoding="utf-8")
    return path


def test_the_command(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "told.json"
    assert main(["explain", str(model), "--mesh", "dp=2,tp=4", "--pin", "x:dp=S(0)", "--json", str(out)]) == 0
    said = capsys.readouterr().out
    assert "the pin x:dp=S(0) costs" in said
    written = json.loads(out.read_text(encoding="utf-8"))
    assert written["text"] == said.rstrip("\n")
    assert [one["subject"] for one in written["findings"] if one["kind"] == "wish"] == ["x:dp=S(0)"]
    assert main(["explain", str(model), "--mesh", "dp=2,tp=4", "--why", "w1"]) == 0
    assert capsys.readouterr().out.startswith("'w1' lies [")
    assert main(["explain", str(model), "--mesh", "tp=3", "--pin", "x:tp=S(0)"]) == 3
    assert "There is a plan after one of these" in capsys.readouterr().out
    assert main(["explain", str(model), "--mesh", "tp=2", "--why", "nobody"]) == 2
    assert "there is no tensor 'nobody'" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--why w1", "--mesh dp=2", "--memory 1GB", "--timeout 3", "--communication none"])
def test_an_option_of_which_one_can_be_taken_is_not_given_twice(
    option: str, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, value = option.split()
    for second in ([name, value], [f"{name}={value}"]):
        mesh = [] if name == "--mesh" else ["--mesh", "dp=2"]
        assert main(["explain", str(model), *mesh, name, value, *second]) == 2
        assert capsys.readouterr().err == f"shardproof: {name} is given 2 times: give it once\n"


def test_an_argument_of_a_policy_is_not_given_twice(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--mesh", "dp=2", "--policy", "forbid(kind=all_gather, kind=all_reduce)"]
    assert main(["explain", str(model), *asked]) == 2
    assert "gives kind twice: give it once" in capsys.readouterr().err


def test_a_pinned_cut_that_no_op_reads_is_told_as_undone() -> None:
    pins = {"w1": "tp=S(0)", "up/y": "tp=S(1)", "w2": "tp=S(0)"}
    told = explain(mlp(), Mesh({"tp": 4}), pins=pins)
    (finding,) = [one for one in told.findings if one.kind == "undone"]
    assert finding.subject == "w1:tp=S(0)"
    assert finding.text.startswith(
        "the pin w1:tp=S(0) is undone at matmul 'up': all_to_all of 'w1' before it is read, "
    )
    assert finding.text in told.text


SET = {
    "--pin": ("x:dp=S(0)", "pin"),
    "--policy": ("no_communication(dp)", "policy"),
    "--constraint": ("(sharded x 1 dp)", "expression"),
    "--communication": ("none", "communication"),
    "--memory": ("1kB", "budget"),
}
"""What each option of the command sets, so that there is no plan with all of them, nor with some."""


@pytest.mark.parametrize(
    "options", [["--memory"], ["--pin", "--constraint"], ["--pin", "--communication"], ["--policy", "--pin"]]
)
def test_where_a_wish_was_set_is_the_option_of_the_command(options: list[str], model: Path, tmp_path: Path) -> None:
    out = tmp_path / "told.json"
    wishes = [word for option in options for word in (option, SET[option][0])]
    more = [] if len(options) < 2 or "--constraint" in options else ["--pin", "down:dp=S(1)"]
    assert main(["explain", str(model), "--mesh", "dp=2,tp=4", *wishes, *more, "--json", str(out)]) == 3
    told = json.loads(out.read_text(encoding="utf-8"))
    core = {fact["kind"]: fact["place"] for fact in told["core"]}
    assert core == {SET[option][1]: option for option in options}
    assert all(fact["place"] == "" for fact in told["support"])
    for step in told["story"]:
        assert step["place"] == core.get(step["kind"], "")


@pytest.mark.parametrize("timeout", ["x", None, True, -1, float("nan"), float("inf")])
def test_a_time_that_is_none_is_told_as_it_was_given(timeout: Any) -> None:
    with pytest.raises(ValueError, match=re.escape(f"timeout={timeout!r}: give seconds, a number from 0 up")):
        explain(mlp(), MESH, timeout=timeout)
