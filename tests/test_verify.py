"""The re-check of plans: every alteration is refused and named, whatever the hash says; nothing makes it crash."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from solver import Mesh, Plan, plan
from solver.cost.reshard import INF
from solver.plan_json import PlanFileError, digest, parse
from solver.verify import Check, verify
from tests.graphs import mlp, squared
from tests.plans import FAST, biased_product, communicating, every_plan, planned, split_plans

ROOT = Path(__file__).resolve().parent.parent
Data = dict[str, Any]


def data_of(found: Plan) -> Data:
    return parse(found.to_json())


def rehashed(data: Data) -> Data:
    return {**data, "sha256": digest(data)}


def put(*path: Any) -> Callable[[Data], None]:
    """Write the last of a path at the place that the others name."""
    *where, last, value = path

    def change(data: Any) -> None:
        for key in where:
            data = data[key]
        assert data[last] != value, "the alteration changes nothing"
        data[last] = value

    return change


def added(*path: Any) -> Callable[[Data], None]:
    *where, last, amount = path

    def change(data: Any) -> None:
        for key in where:
            data = data[key]
        data[last] += amount

    return change


def gone(*path: Any) -> Callable[[Data], None]:
    *where, last = path

    def change(data: Any) -> None:
        for key in where:
            data = data[key]
        del data[last]

    return change


def test_plans_are_confirmed() -> None:
    for found in (*every_plan(), *split_plans()):
        checked = found.check()
        assert checked.ok, f"{found}\n{checked}"
        assert checked.bound == checked.cost == found.cost_ps
        assert verify(data_of(found)) == checked
        assert str(checked) == (
            f"checked without the solver: every layout, reshard and price holds; "
            f"cost {found.cost_ps} ps, bound {found.bound_ps} ps"
        )


ALTERED: dict[str, tuple[Callable[[Data], None], str]] = {
    "made": (
        put("consequences", "made", "h1", "[R, R]"),
        "'made' 'h1' is '[R, R]' in the file, but '[P(sum), P(sum)]'",
    ),
    "held": (put("consequences", "held", "h0", "[R, R]"), "'held' 'h0' is '[R, R]' in the file, but '[S(0), S(1)]'"),
    "needed": (put("consequences", "needed", "s0/x", "[R, R]"), "'needed' 's0/x' is '[R, R]' in the file"),
    "delivered": (put("consequences", "delivered", "x2", "[R, R]"), "'delivered' 'x2' is '[R, R]' in the file"),
    "missing": (gone("consequences", "made", "h1"), "'made' 'h1' is missing"),
    "invented": (put("consequences", "made", {}), "'made' 'x' is missing"),
    "compute": (added("consequences", "compute", "h1", -1), "'compute' 'h1' is 255999999 in the file"),
    "cost": (added("consequences", "cost", -1), "'cost' is "),
    "bytes": (added("consequences", "bytes", 1), "'bytes' is "),
    "bytes by axis": (added("consequences", "bytes_by_axis", "tp", 1), "'bytes_by_axis' 'tp' is "),
    "peak": (added("consequences", "memory", "peak", 1), "'memory' 'peak' is "),
    "memory part": (added("consequences", "memory", "parts", "inputs", 1), "'memory' 'parts' 'inputs' is "),
    "reshard tensor": (put("consequences", "reshards", 0, "tensor", "w0"), "'tensor' is 'w0'"),
    "reshard uses": (put("consequences", "reshards", 0, "uses", []), "'uses' is []"),
    "reshard source": (put("consequences", "reshards", 0, "source", "[P(sum), R]"), "'source' is '[P(sum), R]'"),
    "reshard shared": (put("consequences", "reshards", 0, "shared", None), "'shared' is None"),
    "reshard gone": (gone("consequences", "reshards", 0), "'reshards' is ["),
    "collective": (put("consequences", "reshards", 0, "moves", 0, "kind", "permute"), "'kind' is 'permute'"),
    "collective axes": (put("consequences", "reshards", 0, "moves", 0, "axes", []), "'axes' is []"),
    "collective bytes": (added("consequences", "reshards", 0, "moves", 0, "bytes", 8), "'bytes' is"),
    "collective time": (added("consequences", "reshards", 0, "moves", 0, "time", 8), "'time' is"),
    "collective target": (
        put("consequences", "reshards", 0, "moves", 0, "target", "[P(sum), R]"),
        "'target' is '[P(sum), R]'",
    ),
    "row": (put("choice", "rows", "h1", [0, 0]), "'made' 'h1' is '[P(sum), P(sum)]' in the file, but '[R, R]'"),
    "row that is none": (put("choice", "rows", "h1", [0, 99]), "op 'h1': rows [0, 99] are not one of its"),
    "row below 0": (put("choice", "rows", "h1", [0, -1]), "op 'h1': rows [0, -1] are not one of its"),
    "rows too few": (put("choice", "rows", "h1", [0]), "op 'h1': rows [0] are not one of its"),
    "row that is no number": (put("choice", "rows", "h1", [0, True]), "the rows of op 'h1' are [0, True]"),
    "row of nobody": (
        put("choice", "rows", "nobody", [0, 0]) if False else lambda d: d["choice"]["rows"].update(q=[0, 0]),
        "rows of ops: 'q' is not in the graph",
    ),
    "row gone": (gone("choice", "rows", "h1"), "rows of ops: 'h1' is missing"),
    "stored": (put("choice", "stored", "w0", "[S(0), R]"), "'made' 'w0' is '[R, R]' in the file, but '[S(0), R]'"),
    "stored as a sum": (
        put("choice", "stored", "w0", "[P(sum), R]"),
        "parameter 'w0' may not be stored as [P(sum), R]",
    ),
    "stored gone": (gone("choice", "stored", "w0"), "storage of tensors: 'w0' is missing"),
    "stored nowhere": (put("choice", "stored", "w0", "[S(7), R]"), "stored 'w0': [S(7), R] is not a layout of it"),
    "stored short": (put("choice", "stored", "w0", "[R]"), "stored 'w0': [R] is not a layout of it"),
    "stored in other words": (put("choice", "stored", "w0", "[S0, R]"), "the layout '[S0, R]' cannot be read"),
    "choice of held": (
        put("choice", "held", "h0", "[R, R]"),
        "'held' 'h0' is '[S(0), S(1)]' in the file, but '[R, R]'",
    ),
    "held gone": (gone("choice", "held", "x2"), "'x2' is held as [S(1), S(1)], against its pins"),
    "held of nobody": (lambda d: d["choice"]["held"].update(q="[R, R]"), "held 'q' is not in the graph"),
    "pin": (put("question", "pins", 0, "placement", "S(1)"), "'h0' is held as [S(0), S(1)], against its pins"),
    "pin on a use": (put("question", "pins", 2, "placement", "R"), "use 's0/x' needs [S(1), S(1)], against its pins"),
    "pin of nobody": (put("question", "pins", 0, "subject", "q"), "the pin on 'q' names no tensor and no use"),
    "pin axis": (put("question", "pins", 0, "axis", "q"), "has no axis 'q'"),
    "communication": (put("question", "communication", "none"), "no moves that send nothing lead from"),
    "frozen": (put("question", "communication", "frozen"), "no moves that send nothing lead from"),
    "no such communication": (put("question", "communication", "q"), "communication='q'"),
    "capability": (put("question", "capabilities", ["q"]), "capability 'q' is unknown"),
    "mesh size": (put("question", "mesh", "axes", 0, 1, 4), "the device ids have the shape (2, 2)"),
    "mesh": (
        lambda d: d["question"]["mesh"].update(axes=[["dp", 4], ["tp", 2]], devices=[[0, 1], [2, 3], [4, 5], [6, 7]]),
        "in the file, but",
    ),
    "no devices": (put("question", "mesh", "devices", None), "the mesh has the devices None"),
    "bandwidth": (added("question", "mesh", "hardware", "inside", "bandwidth", -(10**10)), "'time' is "),
    "latency": (added("question", "mesh", "hardware", "inside", "latency", 1), "'cost' is "),
    "peak flops": (added("question", "mesh", "hardware", "peak", "float32", 1), "'compute' 'h0' is "),
    "hardware that is none": (
        put("question", "mesh", "hardware", "memory_bandwidth", 0),
        "the question of this plan file",
    ),
    "shape": (put("question", "graph", "items", 0, "shape", [8, 16]), "the question of this plan file cannot be read"),
    "dtype": (
        put("question", "graph", "items", 0, "dtype", "float64"),
        "[all_gather] 'bytes' is 64 in the file, but 128",
    ),
    "attribute": (put("question", "graph", "items", 3, "attrs", "axis", 1), "in the file, but"),
    "output": (put("question", "graph", "outputs", ["h0"]), "'delivered' 'h0' is missing"),
    "status": (
        put("status", "infeasible"),
        "the status is 'infeasible', but there is a plan",
    ),
    "no such status": (put("status", "perfect"), "the status is 'perfect': it should be one of optimal, feasible"),
    "proof": (put("proof", "none"), "there is a plan, but the proof is 'none'"),
    "no such proof": (
        put("proof", "word"),
        "the proof is 'word': it should be one of certificate, certificate+z3, none",
    ),
    "bound": (added("bound", 1), "but the certificate proves 1056001955 ps"),
    "bound below": (added("bound", -1), "the proof is a certificate alone, but the bound is 1056001954 ps"),
    "both bounds": (
        lambda d: d.update(bound=d["bound"] + 1, solver_bound=d["bound"] + 1),
        "a bound of 1056001956 ps is above the cost of the plan, 1056001955 ps",
    ),
    "both bounds below": (lambda d: d.update(bound=5, solver_bound=5), "the status is 'optimal', but the cost is"),
    "solver_bound": (added("solver_bound", 1), "and the solver_bound 1056001956 ps"),
    "solver_bound below": (
        lambda d: d.update(solver_bound=5, proof="certificate+z3"),
        "the solver_bound, 5 ps, is below",
    ),
    "bound that is no number": (put("bound", "9"), "the bound is '9': it should be whole picoseconds"),
    "bound below 0": (put("bound", -1), "the bound is -1: it should be whole picoseconds"),
    "bound with a point": (put("bound", 1.5), "the bound is 1.5: it should be whole picoseconds"),
    "stages": (put("stages", []), "the stages are []"),
    "certificate": (put("certificate", None), "the certificate cannot be read: it should be an object"),
    "bits": (put("certificate", "bits", 11), "but the certificate proves"),
    "tree": (put("certificate", "tree", {}), "the certificate cannot be read: a leaf of the tree is {}"),
    "arrays": (put("certificate", "arrays", []), "the certificate cannot be read: edge "),
    "no messages": (put("certificate", "tree", {"messages": {}}), "but the certificate proves"),
    "choice gone": (put("choice", None), "the status is 'optimal', but there is no plan"),
    "consequences gone": (put("consequences", None), " is None in the file, but {"),
    "explanation": (
        put("explanation", {"core": [1], "support": [], "minimal": True}),
        "the explanation of this plan file",
    ),
    "key gone": (gone("certificate"), "this plan file is damaged: it has no 'certificate'"),
    "question gone": (put("question", None), "the question of this plan file cannot be read"),
}


@pytest.mark.parametrize("name", ALTERED)
def test_an_alteration_is_refused_and_named(name: str) -> None:
    change, sentence = ALTERED[name]
    data = data_of(communicating())
    change(data)
    kept = verify(data)
    assert not kept.ok
    assert kept.findings[0].startswith("the hash is not that of the content")
    again = verify(rehashed(data))
    assert not again.ok
    assert any(sentence in finding for finding in again.findings), again
    assert not any("hash" in finding for finding in again.findings)
    assert all("\n" not in finding for finding in again.findings)


def test_a_plan_without_a_proof_of_the_whole_is_no_optimum() -> None:
    """A weaker certificate makes a weaker claim, which is no lie where the claim says so."""
    data = data_of(communicating())
    data["certificate"]["tree"] = {"messages": {}}
    data.update(bound=0, solver_bound=0, status="feasible")
    assert verify(rehashed(data)).ok
    data["status"] = "optimal"
    assert not verify(rehashed(data)).ok


def test_the_solvers_word_is_told_apart_from_what_is_checked() -> None:
    data = data_of(communicating())
    data["certificate"]["tree"] = {"messages": {}}
    data.update(bound=0, proof="certificate+z3")
    checked = verify(rehashed(data))
    assert checked.ok
    assert checked.unchecked == (f"that no plan costs less than {data['solver_bound']} ps, which rests on Z3's word",)
    assert "not checked: that no plan costs less than" in str(checked)


def test_a_tree_without_one_of_its_sides_proves_less() -> None:
    for found in split_plans():
        data = data_of(found)
        tree = data["certificate"]["tree"]
        while "rest" in tree:
            tree = tree["rest"]
        for side in ("left", "right"):
            altered = json.loads(json.dumps(data))
            altered["certificate"]["tree"] = tree[side]
            assert "but the certificate proves" in str(verify(rehashed(altered)))
            altered["certificate"]["tree"] = {**tree, side: {"infeasible": True}}
            assert "but the certificate proves" in str(verify(rehashed(altered)))
        for values in ([], tree["left_values"][1:]):
            altered = json.loads(json.dumps(data))
            altered["certificate"]["tree"] = {**tree, "left_values": values}
            checked = verify(rehashed(altered))
            assert checked.bound is not None
            assert checked.bound <= found.bound_ps


# ---------------------------------------------------------------------------------------- plan files without a plan


def test_a_verdict_that_rests_on_the_solver_says_so() -> None:
    found = plan(squared(), FAST, pins={"y": "dp=S(0)", "y/x": "dp=R,tp=R", "a": "dp=R"}, communication="frozen")
    assert found.status == "infeasible"
    checked = verify(data_of(found))
    assert checked.cost is None
    assert checked == Check((), INF) if checked.ok else "Z3's word" in str(checked)


def test_a_verdict_that_deduction_gives_is_proved_again() -> None:
    found = plan(mlp(), Mesh({"tp": 3}), pins={"x": "tp=S(0)"})
    assert found.status == "infeasible"
    checked = verify(data_of(found))
    assert checked == Check((), INF)
    assert str(checked) == "checked without the solver: deduction alone shows that no plan exists"
    assert verify(rehashed({**data_of(found), "status": "unknown"})).ok


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"status": "optimal"}, "the status is 'optimal', but there is no plan"),
        ({"status": "feasible"}, "the status is 'feasible', but there is no plan"),
        ({"bound": 5}, "there is no plan, but a bound and its proof are claimed"),
        ({"proof": "certificate"}, "there is no plan, but a bound and its proof are claimed"),
        ({"certificate": {}}, "there is no plan, but 'certificate' is {}"),
        ({"consequences": {}}, "there is no plan, but 'consequences' is {}"),
    ],
)
def test_what_no_plan_can_have_is_refused(change: Data, sentence: str) -> None:
    data = data_of(plan(mlp(), Mesh({"tp": 3}), pins={"x": "tp=S(0)"}))
    assert sentence in verify(rehashed({**data, **change})).findings
    assert not verify({**data, **change}).ok


@pytest.mark.parametrize(
    ("status", "finding"),
    [
        ("infeasible", "not confirmed: that no plan exists rests on Z3's word"),
        ("unknown", "not confirmed: there is no plan, and deduction does not show that none exists"),
    ],
)
def test_a_feasible_question_is_not_called_infeasible(status: str, finding: str) -> None:
    """A verdict without a plan that deduction does not give is not confirmed, whoever wrote it."""
    data = data_of(planned(mlp(), FAST))
    data.update(status=status, choice=None, consequences=None, certificate=None, bound=0, solver_bound=0, proof="none")
    assert not verify(data).ok
    for explanation in (None, {"core": [], "support": [], "minimal": True}):
        assert verify(rehashed({**data, "explanation": explanation})) == Check((finding,))


# ------------------------------------------------------------------------------------------------------------ fuzzing

NONSENSE: list[Any] = [
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**70, 10**40, 0.5, -1e300, "", "x", "[R, R]", "tp"),
    *([], {}, [[]], [0, 0], [None], {"x": 1}, [[[1]]], ["a", "b"], {"dict": {}}),
]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place of a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in inner for place in places(item, (*path, key)))]


def test_whatever_is_given_is_refused_in_words() -> None:
    rng = random.Random(3)
    accepted = 0
    for found in (communicating(), planned(biased_product(), pins={"p": "tp=R"}), split_plans()[0]):
        text = found.to_json()
        every = [place for place in places(json.loads(text)) if place]
        for _ in range(100):
            data = json.loads(text)
            *where, last = rng.choice(every)
            target = data
            for key in where:
                target = target[key]
            if rng.random() < 0.1:
                del target[last]
            else:
                target[last] = rng.choice(NONSENSE)
            checked = verify(rehashed(data))
            assert isinstance(checked, Check)
            assert all(len(finding) < 600 for finding in checked.findings)
            if checked.ok:  # what no verdict depends on: a name, the source of a pin, a device id, the time of a stage
                accepted += 1
                assert checked.cost == found.cost_ps
                assert (checked.bound or 0) <= (found.cost_ps or 0)
    assert accepted < 80


@pytest.mark.parametrize("value", [*NONSENSE, float("nan"), {"format": "shardproof plan 1"}], ids=repr)
def test_nonsense_is_a_finding(value: Any) -> None:
    checked = verify(value)
    assert not checked.ok
    assert len(checked.findings) == 1


@pytest.mark.parametrize(
    "step", [pytest.param(4, id="every fourth"), pytest.param(1, id="every one", marks=pytest.mark.slow)]
)
def test_every_changed_character_is_noticed(step: int) -> None:
    rng = random.Random(5)
    text = planned(biased_product(), pins={"p": "tp=R"}).to_json()
    letters = '0123456789abcdefABCDEFxyz"{}[]:,.-+ \\/_()é\x00'
    silent = []
    for position in range(0, len(text), step):
        letter = rng.choice([other for other in letters if other != text[position]])
        changed = text[:position] + letter + text[position + 1 :]
        try:
            if verify(parse(changed)).ok:
                silent.append(changed[max(0, position - 20) : position + 20])
        except PlanFileError:
            continue
    assert not silent


def test_a_long_list_of_findings_is_cut() -> None:
    told = str(Check(tuple(f"finding {i}" for i in range(30)))).splitlines()
    assert told[0] == "refused:"
    assert told[-1] == "  and 10 more"
    assert len(told) == 22


def test_the_check_runs_where_the_solver_cannot_be_imported(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(communicating().to_json(), encoding="utf-8")
    code = f"""
        import sys
        sys.modules["z3"] = None
        from solver.cli import main
        code = main(["check", {str(path)!r}])
        places = ("solver.constraints", "solver.search", "solver.explain")
        wishes = ("solver.constraints", "solver.constraints.policy", "solver.constraints.policy_kinds")
        loaded = [name for name in sys.modules if name.startswith(places) and name not in wishes]
        assert not loaded, loaded
        sys.exit(code)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "checked without the solver" in done.stdout
