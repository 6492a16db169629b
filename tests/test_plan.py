"""A plan as a value, and as JSON: what it says, what goes in and out without loss, and what is no plan file."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from ops.placement import Partial, Replicate, Shard, layout_text
from solver import Graph, Mesh, Plan, plan
from solver.explanation import Explanation, Fact
from solver.plan import SECONDS
from solver.plan_json import CHANGED, FORMAT, PlanFileError, digest, loads, parse, parse_layout, read_choice, told
from solver.problem import ProblemError
from solver.verify import verify
from tests.graphs import flattened, mlp
from tests.plans import FAST, communicating, every_plan, planned, split_plans

R, S0 = Replicate(), Shard(0)


def infeasible() -> Plan:
    return plan(mlp(), Mesh({"tp": 3}), pins={"x": "tp=S(0)"})


# ------------------------------------------------------------------------------------------------------------ values


def test_figures() -> None:
    found = communicating()
    assert found.cost == found.bound == found.solver_bound == 1056001955 / SECONDS
    assert (found.cost_ps, found.gap, found.proof, found.status) == (1056001955, 0.0, "certificate", "optimal")
    assert found.memory.peak == sum(found.memory.parts.values())
    assert dataclasses.replace(found, bound_ps=0).gap == 1.0


def test_no_plan_has_no_figures() -> None:
    found = infeasible()
    assert (found.cost, found.cost_ps, found.gap, found.bound) == (None, None, None, 0.0)
    assert found.explanation is not None
    with pytest.raises(ProblemError, match="there is no plan to ask: the status is infeasible"):
        found.layout("x")


def test_layouts_by_mesh_axis() -> None:
    found = planned(mlp(), FAST, pins={"x": "dp=S(0),tp=R", "h": "dp=S(0),tp=S(1)", "h/y": "tp=S(1)"})
    assert found.layout("x") == found.made("x") == {"dp": S0, "tp": R}
    assert found.layout("h") == found.held("h") == {"dp": S0, "tp": Shard(1)}
    assert found.needed("h/y")["tp"] == Shard(1)
    assert found.dims_mapping("h") == [0, 1]
    assert found.partial("h") == {}


def test_a_partial_layout_has_a_mapping() -> None:
    found = planned(mlp(), FAST, pins={"h": "tp=P(sum),dp=R"}, communication="any")
    assert found.held("h") == {"dp": R, "tp": Partial("sum")}
    assert found.dims_mapping("h") == [-1, -1]
    assert found.partial("h") == {1: "sum"}


def test_a_layout_on_parts_has_no_mapping() -> None:
    found = planned(flattened(), FAST, pins={"flat": {"dp": Shard(0), "tp": Shard(0, part=1)}, "x": "dp=S(0),tp=S(1)"})
    if layout_text(tuple(found.layout("flat").values())) == "[S(0), S(0,part=1)]":
        with pytest.raises(ValueError, match="part"):
            found.dims_mapping("flat")


@pytest.mark.parametrize("ask", ["layout", "made", "held", "dims_mapping", "partial"])
def test_a_tensor_that_is_not_there(ask: str) -> None:
    with pytest.raises(ProblemError, match=r"there is no tensor 'q' in graph 'tower'"):
        getattr(communicating(), ask)("q")


@pytest.mark.parametrize("use", ["q", "h0", "h0/q", ""])
def test_a_use_that_is_not_there(use: str) -> None:
    with pytest.raises(ProblemError, match=f"there is no use {use!r} in graph 'tower': write op/operand"):
        communicating().needed(use)


def test_a_plan_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        communicating().status = "feasible"  # type: ignore[misc]


def test_an_explanation_as_json() -> None:
    pin = Fact("pin", "x", "you pinned `x` to S(0) on tp", "x:tp=S(0)")
    written = {"kind": "pin", "subject": "x", "text": pin.text, "source": pin.source, "place": "", "alike": []}
    told = Explanation((pin,), (), True).to_json()
    assert told.pop("text") == Explanation((pin,), (), True).story
    nothing = {"support": [], "story": [], "where": "", "by": "propagation", "others": [], "beside": [], "more": False}
    nothing |= {"repairs": [], "findings": []}
    known = {"core": [written], "minimal": True, "cost_delta": None, **nothing}
    assert {key: told[key] for key in known} == known
    assert pin.text in str(Explanation((pin,), (), True))


# -------------------------------------------------------------------------------------------------------------- JSON


def test_json_in_and_out_is_the_identity() -> None:
    for found in (*every_plan(), *split_plans(), infeasible()):
        text = found.to_json()
        read = Plan.from_json(text)
        assert read.to_json() == text
        assert (read.status, read.cost_ps, read.bound_ps, read.proof) == (
            found.status, found.cost_ps, found.bound_ps, found.proof,
        )  # fmt: skip
        assert read.choice == found.choice
        assert read.explanation == found.explanation


def test_names_of_any_letters_are_kept() -> None:
    g = Graph('né "q" \\ \u2028 \U0001f600 \x01')
    g.output(g.op("relu", g.input('ein/g "ang" \\', (4,)), name="aus gang\n"))
    found = planned(g, FAST)
    assert Plan.from_json(found.to_json()).to_json() == found.to_json()
    assert found.check().ok


def test_a_file_that_was_indented_is_the_same_file() -> None:
    data = json.loads(communicating().to_json())
    for text in (json.dumps(data, indent=2), json.dumps(data, ensure_ascii=False), f"  {json.dumps(data)}\n"):
        assert parse(text) == data
        assert Plan.from_json(text).check().ok


NOT_A_FILE = [
    ("", "it is not JSON"),
    ("{", "it is not JSON"),
    ("\x00\x01", "it is not JSON"),
    ("NaN", "it is not JSON (NaN is no number)"),
    ('{"format": Infinity}', "it is not JSON (Infinity is no number)"),
    ("1" * 5000, "it is not JSON"),
    ("[" * 100_000, "nested too deep"),
    ("null", "its format is 'NoneType'"),
    ("[]", "its format is 'list'"),
    ("{}", "its format is None"),
    ('{"format": "shardproof plan 2"}', "its format is 'shardproof plan 2', not 'shardproof plan 1'"),
    ('{"format": {"a": 1}}', "its format is {'a': 1}"),
    (json.dumps({"format": "x" * 500}), "its format is 'xxxx"),
    (json.dumps({"format": FORMAT}), "it has no 'sha256'"),
    (json.dumps({"format": FORMAT, "sha256": 5}), "it has no 'sha256'"),
    (f'{{"format": "{FORMAT}", "sha256": "x", "a": 1e5}}', "a key or a number stands in another way"),
    (f'{{"format": "{FORMAT}", "sha256": "x", "a": 1, "a": 1}}', "a key or a number stands in another way"),
    (f'{{"format": "{FORMAT}", "sha256": "x", "a": "\\u0061"}}', "a key or a number stands in another way"),
    (json.dumps({"format": FORMAT, "sha256": "x"}), "the hash is not that of the content"),
]


@pytest.mark.parametrize(("text", "sentence"), NOT_A_FILE, ids=[text[:30] for text, _ in NOT_A_FILE])
def test_what_is_no_plan_file_is_refused_in_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(PlanFileError) as refused:
        loads(text)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 250


def test_every_cut_file_is_refused() -> None:
    text = communicating().to_json()
    for end in range(0, len(text) - 1, 97):
        with pytest.raises(PlanFileError, match="it is not JSON"):
            loads(text[:end])


KEYS = ["question", "status", "bound", "solver_bound", "proof", "stages", "certificate", "explanation", "choice"]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("value", [..., [1], {"x": [None]}, "text", -3, 1.5, True], ids=repr)
def test_a_missing_or_damaged_key_is_refused(key: str, value: Any) -> None:
    data = json.loads(communicating().to_json())
    if value is ...:
        del data[key]
    else:
        data[key] = value
    text = json.dumps({**data, "sha256": digest(data)})
    if (key, value) == ("certificate", {"x": [None]}):
        assert not loads(text).check().ok
        return
    with pytest.raises(PlanFileError) as refused:
        loads(text)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 250


def test_where_a_plan_loses_goes_in_and_out_and_is_told() -> None:
    """Equal layers are one place; files of earlier versions say nothing of it."""
    losing = dataclasses.replace(communicating(), losses={"h0/x": 3, "h11/x": 5, "loss": 2})
    data = json.loads(losing.to_json())
    assert Plan.from_json(losing.to_json()).losses == losing.losses
    assert "pays 10 ps above" in losing.text()
    assert "80% at 'h11/x' and 1 like it, 20% at 'loss'" in losing.text()
    assert not communicating().losses
    del data["losses"]
    assert not loads(json.dumps({**data, "sha256": digest(data)})).losses
    for damaged in ([1], {"h0/x": "3"}, {"h0/x": -1}, {"h0/x": True}):
        data["losses"] = damaged
        with pytest.raises(PlanFileError, match="they should be picoseconds by name"):
            loads(json.dumps({**data, "sha256": digest(data)}))


def test_a_file_of_an_earlier_version_says_nothing_of_axes() -> None:
    data = json.loads(communicating().to_json())
    del data["consequences"]["bytes_by_axis"]
    assert loads(json.dumps({**data, "sha256": digest(data)})).check().ok
    assert verify({**data, "sha256": digest(data)}).ok


def test_a_tiny_gap_does_not_read_as_none() -> None:
    made = communicating()
    assert made.cost_ps is not None
    close = dataclasses.replace(made, status="feasible", bound_ps=made.cost_ps - 1)
    assert "feasible, gap <0.01%" in close.text()
    assert "gap <0.01%, proof:" in close.text()


def test_a_changed_file_is_not_read() -> None:
    data = json.loads(communicating().to_json())
    data["consequences"]["cost"] += 1
    with pytest.raises(PlanFileError, match=CHANGED):
        Plan.from_json(json.dumps(data))


CHOICES: list[tuple[Any, str]] = [
    (5, "the choice of this plan file cannot be read"),
    ({}, "the choice of this plan file cannot be read: there is no 'rows'"),
    ({"rows": [], "stored": {}, "held": {}}, "the choice of this plan file cannot be read"),
    ({"rows": {"h": 1}, "stored": {}, "held": {}}, "the rows of op 'h' are 1: they should be whole numbers"),
    ({"rows": {"h": [1.0]}, "stored": {}, "held": {}}, "the rows of op 'h' are [1.0]"),
    ({"rows": {"h": [True]}, "stored": {}, "held": {}}, "the rows of op 'h' are [True]"),
    ({"rows": {}, "stored": {"x": 1}, "held": {}}, "the choice of this plan file cannot be read"),
    ({"rows": {}, "stored": {"x": "R"}, "held": {}}, "the layout 'R' cannot be read"),
    ({"rows": {}, "stored": {}, "held": {"x": "[R,S(0)]"}}, "cannot be read"),
    ({"rows": {}, "stored": {}, "held": {"x": "[Q]"}}, "the choice of this plan file cannot be read"),
]


@pytest.mark.parametrize(("answer", "sentence"), CHOICES, ids=[sentence[-30:] for _, sentence in CHOICES])
def test_a_choice_that_cannot_be_read(answer: Any, sentence: str) -> None:
    with pytest.raises(PlanFileError) as refused:
        read_choice(answer)
    assert sentence in str(refused.value)


@pytest.mark.parametrize("text", ["[]", "[R]", "[S(0,part=1), P(max), R]"])
def test_layouts_as_text(text: str) -> None:
    assert layout_text(parse_layout(text)) == text


def test_what_an_error_says_is_one_line() -> None:
    assert told(KeyError("x")) == "there is no 'x'"
    assert told(KeyError()) == "something is missing"
    assert told(ValueError("a\n  b")) == "a b"
    assert told(RecursionError()) == "RecursionError"


@pytest.mark.parametrize("name", [[1], 3, None])
def test_what_is_no_name_is_refused(name: Any) -> None:
    found = communicating()
    for ask in (found.layout, found.made, found.held, found.dims_mapping, found.partial):
        with pytest.raises(ProblemError, match="there is no tensor "):
            ask(name)
    with pytest.raises(ProblemError, match="there is no use "):
        found.needed(name)
