"""The command: exit codes, one clear line for bad input, outputs that are whole or absent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import solver
from ops import names, rule_for
from solver import cli, cli_terminal
from solver.search.ready import make_ready

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """Compile the loops of the search first: on a fresh machine that takes seconds, and the command says so."""
    make_ready()


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command in this process: exit code, stdout, stderr."""

    def command(*arguments: object) -> tuple[int, str, str]:
        code = cli.main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


MESH = ("--mesh", "dp=2,tp=4")


def test_a_plan_is_made_written_and_confirmed(run: Run, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    code, said, complaint = run("plan", model, *MESH, "--json", out, "--verify")
    assert (code, complaint) == (0, "")
    assert "optimal" in said
    assert run("check", out)[0] == 0


def test_a_training_step_is_planned(run: Run, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    step = ("--loss", "y", "--optimizer", "adamw", "--clip-norm", "1")
    code, said, complaint = run("plan", model, *MESH, *step, "--json", out, "--verify")
    assert (code, complaint) == (0, "")
    assert "optimal" in said
    graph = solver.Plan.from_json(out.read_text(encoding="utf-8")).problem.graph
    assert graph.ties["down.adamw.param_out"] == "down"
    assert run("plan", model, *MESH, "--training", "--json", out)[0] == 0
    graph = solver.Plan.from_json(out.read_text(encoding="utf-8")).problem.graph
    assert sorted(graph.gradients.values()) == ["down", "up"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--loss", "z"), "the loss 'z' is no tensor of graph 'mlp'; its outputs are 'y'"),
        (("--optimizer", "sdg"), "'sdg' is no optimizer: choose from sgd, momentum, adam, adamw, lamb"),
        (("--clip-norm", "1"), "clip_norm is given, but no optimizer: choose one"),
        (("--optimizer", "sgd", "--clip-norm", "-1"), "clip_norm is -1.0: give a number above 0, at most 3.4e+38"),
    ],
)
def test_a_training_step_that_cannot_be(run: Run, model: Path, options: tuple[str, ...], told: str) -> None:
    assert run("plan", model, *MESH, *options) == (2, "", f"shardproof: {told}\n")


def test_a_plan_is_confirmed_where_z3_is_not_installed(run: Run, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    assert run("plan", model, *MESH, "--json", out)[0] == 0
    code = f"import sys; sys.modules['z3'] = None; from solver.cli import main; sys.exit(main(['check', {str(out)!r}]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("checked without the solver")


def test_pins_are_kept(run: Run, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    code, _, complaint = run(
        "plan", model, *MESH, "--pin", "x:dp=S0", "--pin", "x:tp=R", "--pin", "h/y:tp=S(1)", "--json", out
    )
    assert (code, complaint) == (0, "")
    found = solver.Plan.from_json(out.read_text(encoding="utf-8"))
    assert {axis: str(placement) for axis, placement in found.layout("x").items()} == {"dp": "S(0)", "tp": "R"}
    assert str(found.needed("h/y")["tp"]) == "S(1)"


def test_every_tampering_is_refused(run: Run, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    assert run("plan", model, *MESH, "--json", out)[0] == 0
    text = out.read_text(encoding="utf-8")
    digits = [index for index, letter in enumerate(text) if letter.isdecimal()]
    for index in digits[:: max(1, len(digits) // 25)]:
        changed = text[:index] + str((int(text[index]) + 1) % 10) + text[index + 1 :]
        out.write_text(changed, encoding="utf-8")
        code, said, complaint = run("check", out)
        assert code in (1, 2), f"changed at {index}: ...{changed[index - 60 : index + 20]}..."
        assert (said if code == 1 else complaint).strip()


BAD = [
    (("plan", "nowhere.onnx", *MESH), "nowhere.onnx"),
    (("plan", "{model}"), "--mesh"),
    (("plan", "{model}", "--mesh", "dp"), "'dp' is not written as AXIS=SIZE"),
    (("plan", "{model}", "--mesh", "dp=0"), "dp"),
    (("plan", "{model}", "--mesh", "dp=-2"), "'dp=-2' is not written as AXIS=SIZE"),
    (("plan", "{model}", "--mesh", "dp=2,dp=4"), "more than one size"),
    (("plan", "{model}", "--mesh", ""), "is not written as AXIS=SIZE"),
    (("plan", "{model}", *MESH, "--hardware", "abacus"), "abacus"),
    (("plan", "{model}", *MESH, "--pin", "x"), "NAME:dp=S(0),tp=R"),
    (("plan", "{model}", *MESH, "--pin", "x:pp=S(0)"), "pp"),
    (("plan", "{model}", *MESH, "--pin", "x:dp=Q"), "Q"),
    (("plan", "{model}", *MESH, "--pin", "x:dp=S(7)"), "7"),
    (("plan", "{model}", *MESH, "--pin", "nobody:dp=S(0)"), "nobody"),
    (("plan", "{model}", *MESH, "--dim", "batch"), "NAME=SIZE"),
    (("plan", "{model}", *MESH, "--dim", "nobody=8"), "nobody"),
    (("plan", "{model}", *MESH, "--input-shape", "x=8xq"), "NAME=8x3x224x224"),
    (("plan", "{model}", *MESH, "--input-shape", "nobody=8x8"), "nobody"),
    (("plan", "{model}", *MESH, "--communication", "shouting"), "shouting"),
    (("plan", "{model}", *MESH, "--gap", "-1"), "-1"),
    (("plan", "{model}", *MESH, "--gap", "nan"), "nan"),
    (("plan", "{model}", *MESH, "--gap", "1"), "1 is not a number from 0 up to"),
    (("plan", "{model}", *MESH, "--dim", "b=2", "--dim", "b=2"), "'b' is given more than once"),
    (("plan", "{model}", *MESH, "--input-shape", "x=2x2", "--input-shape", "x=4x4"), "'x' is given more than once"),
    (("plan", "{model}", *MESH, "--json", ""), "the name of the file is empty"),
    (("plan", "{model}", *MESH, "--json", "{dangling}"), "leads to '/nowhere/plan.json', but there is no directory"),
    (("plan", "{model}", *MESH, "--hardware", "{binary}"), "is not JSON"),
    (("plan", "{model}", *MESH, "--hardware", "{deep}"), "deep.json is not JSON that can be read"),
    (("plan", "{deep}", *MESH), "deep.json is no JSON text that can be read"),
    (("check", "{deep}"), "nested too deep"),
    (("plan", "{model}", *MESH, "--timeout", "soon"), "soon"),
    (("plan", "{model}", *MESH, "--json", "/nowhere/plan.json"), "/nowhere"),
    (("plan", "{model}", *MESH, "--json", "/"), "directory"),
    (("compare", "{model}", *MESH, "--recipe", "foo"), "'foo' is no recipe: choose from data_parallel, fsdp, megatron"),
    (("compare", "{model}", *MESH, "--recipe", "megatron(ep)"), "mesh axis 'ep', but the mesh has dp, tp"),
    (("plan", "{model}", *MESH, "--nonsense"), "--nonsense"),
    (("check", "nowhere.json"), "nowhere.json"),
    (("check", "{model}"), "mlp.json"),
    (("check", "{binary}"), "binary.json is no plan file: it is not a text"),
    (("plan", "{binary}", *MESH), "binary.json"),
    (("check", "{cut}"), "cut.json"),
    (("plan", "{cut}", *MESH), "cut.json"),
    (("rules", "relu", "--shape", "x=2x2", "--shape", "x=4x4"), "operand 'x' of relu is given a shape more than once"),
    (("rules", "softmax", "--attr", "axis=0", "--attr", "axis=1"), "attribute 'axis' of softmax is given more than"),
    (("rules", "matmull"), "did you mean 'matmul'"),
    (("nonsense",), "nonsense"),
]


@pytest.mark.parametrize(("arguments", "named"), BAD, ids=[" ".join(arguments) for arguments, _ in BAD])
def test_bad_input_gets_one_clear_line(run: Run, model: Path, arguments: tuple[str, ...], named: str) -> None:
    binary, cut = model.with_name("binary.json"), model.with_name("cut.json")
    binary.write_bytes(bytes(range(256)))
    cut.write_text(model.read_text(encoding="utf-8")[:200], encoding="utf-8")
    dangling, deep = model.with_name("dangling.json"), model.with_name("deep.json")
    dangling.symlink_to("/nowhere/plan.json")
    deep.write_text("[" * 100_000, encoding="utf-8")
    files = {"model": model, "binary": binary, "cut": cut, "dangling": dangling, "deep": deep}
    code, said, complaint = run(*(word.format(**files) for word in arguments))
    assert (code, said) == (2, "")
    assert complaint.startswith("shardproof: ")
    assert complaint.count("\n") == 1
    assert named in complaint


def test_a_recipe_that_is_none_is_refused_before_any_plan(
    run: Run, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solver, "plan", lambda *_, **__: pytest.fail("it was planned"))
    assert run("compare", model, *MESH, "--recipe", "fsdp", "--recipe", "foo")[0] == 2


@pytest.mark.parametrize("kind", ["text", "cut", "empty"])
def test_a_file_that_is_no_model_is_refused(run: Run, tmp_path: Path, kind: str) -> None:
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    value = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [8, 8])
    result = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [8, 8])
    whole = helper.make_model(helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [value], [result]))
    content = whole.SerializeToString()
    path = tmp_path / "model.onnx"
    path.write_bytes({"text": b"This is no model.\n", "cut": content[: len(content) // 2], "empty": b""}[kind])
    code, said, complaint = run("plan", path, *MESH)
    assert (code, said) == (2, "")
    assert "model.onnx" in complaint
    assert complaint.count("\n") == 1


def test_a_dynamic_dim_is_asked_for(run: Run, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    value = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 8])
    result = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch", 8])
    path = tmp_path / "model.onnx"
    onnx.save(
        helper.make_model(helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [value], [result])), path
    )
    code, _, complaint = run("plan", path, *MESH)
    assert code == 2
    assert "batch" in complaint
    assert "--dim" in complaint
    assert run("plan", path, *MESH, "--dim", "batch=8")[0] == 0


@pytest.mark.parametrize(
    "pins", [("x:dp=S(0)", "h/x:dp=R"), ("down:dp=S(1),tp=S(1)",)], ids=["contradiction", "division"]
)
def test_wishes_that_cannot_be_met_are_infeasible(run: Run, model: Path, pins: tuple[str, ...]) -> None:
    mesh = ("--mesh", "dp=2,tp=4") if len(pins) > 1 else ("--mesh", "dp=8,tp=4")
    code, said, complaint = run(
        "plan", model, *mesh, "--communication", "frozen", *(word for pin in pins for word in ("--pin", pin))
    )
    assert (code, complaint) == (3, "")
    assert all(pin.partition(":")[0] in said for pin in pins)


@pytest.mark.parametrize(("status", "code"), [("optimal", 0), ("feasible", 0), ("infeasible", 3), ("unknown", 4)])
def test_every_outcome_has_its_exit_code(
    run: Run, model: Path, monkeypatch: pytest.MonkeyPatch, status: str, code: int
) -> None:
    class Found:
        def __init__(self) -> None:
            self.status = status

        def text(self, *, whole: bool) -> str:
            return f"the plan is {status}{', whole' * whole}"

    monkeypatch.setattr(solver, "plan", lambda *_, **__: Found())
    assert run("plan", model, *MESH) == (code, f"the plan is {status}\n", "")
    assert run("plan", model, *MESH, "--full") == (code, f"the plan is {status}, whole\n", "")


@pytest.mark.parametrize(("checked", "ran", "code"), [(True, True, 0), (False, True, 1), (True, False, 1)])
def test_verify_refuses_what_does_not_hold(
    run: Run, model: Path, monkeypatch: pytest.MonkeyPatch, checked: bool, ran: bool, code: int
) -> None:
    found = SimpleNamespace(
        status="optimal",
        text=lambda whole: "a plan",
        problem=SimpleNamespace(mesh=solver.Mesh({"dp": 2})),
        check=lambda: SimpleNamespace(ok=checked),
        simulate=lambda seed, tell: SimpleNamespace(ok=ran),
    )
    monkeypatch.setattr(solver, "plan", lambda *_, **__: found)
    assert run("plan", model, *MESH, "--verify")[0] == code


def test_a_bug_is_no_refusal(run: Run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(solver, "plan", broken)
    code, _, complaint = run("plan", model, *MESH)
    assert code == 70
    assert "internal error, please report it" in complaint


def test_too_little_memory_is_no_bug(run: Run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def large(*_: Any, **__: Any) -> None:
        raise MemoryError("Unable to allocate 74.5 GiB")

    monkeypatch.setattr(solver, "plan", large)
    told = "shardproof: there is not enough memory for this: Unable to allocate 74.5 GiB\n"
    assert run("plan", model, *MESH) == (2, "", told)


def test_stopping_before_there_is_a_plan(run: Run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(solver, "plan", stopped)
    assert run("plan", model, *MESH) == (4, "", "\nshardproof: stopped before there was a plan\n")


def test_rules_lists_every_forward_op(run: Run) -> None:
    code, said, _ = run("rules")
    assert code == 0
    listed = {line.split()[0] for line in said.splitlines() if line.strip()}
    assert {name for name in names() if rule_for(name).forward is None} <= listed


@pytest.mark.parametrize("name", names())
def test_rules_of_every_op(run: Run, name: str) -> None:
    code, said, complaint = run("rules", name)
    assert (code, complaint) == (0, "")
    assert said.startswith(f"{name}(")


def test_rules_of_one_op_in_full(run: Run) -> None:
    said = run("rules", "matmul")[1]
    assert said.startswith("matmul(x, y, transpose_x=False, transpose_y=False) -> out\n")
    assert "  rule         x[... m k], y[... k n] -> out[... m n]\n" in said
    assert "  clauses      sum k\n               linear x*y\n" in said
    assert " S(1)     S(0)     ->   P(sum)   sum over k\n" in said


def test_writing_is_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "plan.json"
    target.write_text("before", encoding="utf-8")
    target.chmod(0o640)
    cli.write_whole(target, "after")
    assert target.read_text(encoding="utf-8") == "after"
    assert target.stat().st_mode & 0o777 == 0o640

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        cli.write_whole(target, "never")
    assert target.read_text(encoding="utf-8") == "after"
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_writing_through_a_link_and_to_no_file(tmp_path: Path) -> None:
    real, link, pipe = tmp_path / "real.json", tmp_path / "link.json", tmp_path / "pipe"
    link.symlink_to(real)
    cli.write_whole(link, "text")
    assert link.is_symlink()
    assert real.read_text(encoding="utf-8") == "text"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        cli.write_whole(pipe, "text")
        assert os.read(reader, 100) == b"text"
    finally:
        os.close(reader)
    assert not pipe.is_file()


def test_a_full_disk_is_named(run: Run, model: Path) -> None:
    code, said, complaint = run("plan", model, "--mesh", "dp=2", "--json", "/dev/full")
    assert (code, complaint) == (2, "shardproof: /dev/full cannot be written: No space left on device\n")
    assert "optimal" in said


def test_no_plan_does_not_replace_a_file(
    run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = SimpleNamespace(status="unknown", text=lambda whole: "none", to_json=lambda: "no plan")
    monkeypatch.setattr(solver, "plan", lambda *_, **__: found)
    out = tmp_path / "plan.json"
    assert run("plan", model, *MESH, "--json", out)[0] == 4
    assert out.read_text(encoding="utf-8") == "no plan"
    out.write_text("a plan", encoding="utf-8")
    code, _, complaint = run("plan", model, *MESH, "--json", out)
    assert (code, complaint) == (4, f"shardproof: no plan was found, so {out} is left as it was\n")
    assert out.read_text(encoding="utf-8") == "a plan"


def test_without_arguments_the_help_is_shown(run: Run) -> None:
    code, said, complaint = run()
    assert (code, said) == (2, "")
    assert complaint.startswith("Usage: shardproof")


def test_progress_without_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with cli.stage("working") as tell:
        tell("soon over")
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(cli_terminal, "QUIET", 0.01)
    seen = ""
    with cli.stage("working") as tell:
        while "working, 0 s\n" not in seen:  # before anything is told
            seen += capsys.readouterr().err
        tell("half of it")
        while "working, 0 s: half of it\n" not in seen:
            seen += capsys.readouterr().err
    time.sleep(0.05)
    capsys.readouterr()
    time.sleep(0.05)
    assert capsys.readouterr() == ("", "")


def test_ties_are_let_go(run: Run, model: Path, tmp_path: Path) -> None:
    step = ("plan", model, "--mesh", "dp=2", "--optimizer", "momentum", "--json", tmp_path / "plan.json")
    code, said, _ = run(*step, "--untie", "*.velocity")
    assert code == 0
    assert " let go;" in said
    assert json.loads((tmp_path / "plan.json").read_text())["question"]["policy"] == [{"untie": ["*.velocity"]}]
    assert run("check", tmp_path / "plan.json")[0] == 0
    code, _, said = run(*step, "--untie", "nothing")
    assert code == 2
    assert "untie('nothing') lets no tie of graph" in said


def test_policies_constraints_objective_and_overlap(run: Run, model: Path, tmp_path: Path) -> None:
    step = ("plan", model, "--mesh", "dp=2,tp=2", "--optimizer", "adamw")
    wishes = ("--policy", "zero(1, dp)", "--policy", "batch_stays('dp')", "--overlap", "all_gather=0.5")
    path = tmp_path / "plan.json"
    code, said, _ = run(*step, *wishes, "--constraint", "(not (partial x dp))", "--json", path)
    assert code == 0
    assert "policy  zero(1, 'dp'); batch_stays('dp')" in said
    assert "hidden  50% of all_gather" in said
    assert run("check", path)[0] == 0
    code, said, _ = run(*step, "--objective", "communication", "--json", path)
    assert code == 0
    assert "communication first" in said
    assert run("check", path)[0] == 0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--policy", "zero(1,ep)"), "zero(1, 'ep') names mesh axis 'ep', but the mesh has dp, tp"),
        (("--policy", "ones(1)"), "'ones(1)' is no policy: write NAME(ARGUMENT, ...) with a name from"),
        (("--constraint", "(sharded v 0 dp)"), "sharded(v, 0, dp) names no tensor"),
        (("--constraint", "(and)"), "constraint '(and)': 'and' takes one or more, and is given none"),
        (("--constraint", "3"), "constraint '3': it is a number, and a demand is a Boolean"),
        (("--constraint", "(not " * 3000 + "true" + ")" * 3000), "it nests more than 300 deep"),
        (("--constraint", "(sharded 0 dp)"), "write (sharded TENSOR DIM AXIS) and (partial TENSOR AXIS)"),
        (("--overlap", "all_gather"), "is not written as KIND=FRACTION, as in all_gather=0.5"),
        (("--overlap", "all_gather=2"), "overlap of all_gather: 2.0 is no fraction of its time"),
    ],
)
def test_wishes_that_name_nothing_are_bad_input(run: Run, model: Path, options: tuple[str, ...], told: str) -> None:
    code, _, said = run("plan", model, "--mesh", "dp=2,tp=2", *options)
    assert code == 2
    assert told in said
