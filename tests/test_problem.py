"""Wishes that cannot be read, or that name nothing: one clear sentence each."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ops.placement import Partial, Replicate, Shard
from solver import Graph, Mesh, plan
from solver.constraints.policy import untie
from solver.problem import Pin, ProblemError, problem
from tests.graphs import flattened, mlp

MESH = Mesh({"dp": 2, "tp": 2})

PINS = [
    ({"nothing": "dp=R"}, "pin on 'nothing' names no tensor and no use of graph 'mlp'"),
    ({"hh": "dp=R"}, "did you mean 'h'?"),
    ({"h/nothing": "dp=R"}, "pin on 'h/nothing' names no tensor and no use"),
    ({"mm/x": "dp=R"}, "'mlp'; a use is op/operand, where an op is called as its result is: h/x, a/x, y/x"),
    ({"*.weight": "dp=R"}, "pin on '*.weight' names no tensor and no use"),
    ({"x": "pp=S(0)"}, "pin on 'x' names mesh axis 'pp', but the mesh has dp, tp"),
    ({"x": {0: Shard(0)}}, "pin on 'x' names mesh axis 0, but the mesh has dp, tp"),
    ({"x": "dp=S(2)"}, "S(2) names dim 2, but 'x' has rank 2 and shape (8, 4): dims count from 0"),
    ({"h/x": "dp=S(2)"}, "S(2) names dim 2, but 'x', which 'h/x' reads, has rank 2"),
    ({"x": "dp=S(0,part=1)"}, "names part 1, but dim 0 of 'x' is one part of size 8: parts count from 0"),
    ({"x": "dp=S(-1)"}, "'S(-1)' is not a placement: write R, S(0), S(0,part=1) or P(sum)"),
    ({"x": "dp=Q"}, "pin on 'x': 'Q' is not a placement"),
    ({"x": "dp"}, "pin on 'x': cannot read 'dp': write AXIS=PLACEMENT, as dp=S(0)"),
    ({"x": "dp=R,,tp=R"}, "pin on 'x': cannot read '': write AXIS=PLACEMENT"),
    ({"x": "=R"}, "pin on 'x': cannot read '=R'"),
    ({"x": "dp=S(0,part=1"}, "is not a placement"),
    ({"x": "dp=P(product)"}, "the kind is one of sum, avg"),
    ({"x": ""}, "pin on 'x' names no mesh axis: write {'dp': Shard(0)} or 'dp=S(0),tp=R', or leave it out"),
    ({"x": {}}, "pin on 'x' names no mesh axis"),
    ({"x": 3}, "pin on 'x' is 3: write {'dp': Shard(0)} or 'dp=S(0),tp=R'"),
    ({"x": [Shard(0)]}, "pin on 'x' is [Shard(dim=0, part=0)]: write"),
    ({"x": {"dp": 0}}, "pin on 'x': 0 is not a placement: use Replicate(), Shard(0) or Partial('sum')"),
    ({3: "dp=R"}, "pin on 3: write the name of a tensor, a glob, or op/operand"),
    ([("x", "dp=R")], "pins=[('x', 'dp=R')] is no mapping: write {'x': 'dp=S(0)'}"),
    ("x:dp=R", "pins='x:dp=R' is no mapping"),
]


@pytest.mark.parametrize(("pins", "told"), PINS)
def test_a_pin_that_cannot_be_read_is_refused_in_one_sentence(pins: object, told: str) -> None:
    with pytest.raises(ProblemError) as refused:
        plan(mlp(), MESH, pins=pins)  # type: ignore[arg-type]
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


WISHES = [
    ({"communication": "some"}, "communication='some': choose from any, none, frozen"),
    ({"communication": None}, "communication=None: choose from any, none, frozen"),
    ({"communication": ["any"]}, "communication=['any']: choose from"),
    (
        {"capabilities": "masked_lookup"},
        "capabilities='masked_lookup' is not a set of names: choose from halo_exchange, masked_lookup, ",
    ),
    ({"capabilities": None}, "capabilities=None is not a set of names"),
    ({"capabilities": [1]}, "capabilities=[1] is not a set of names"),
    ({"capabilities": {"flight"}}, "capability 'flight' is unknown: choose from halo_exchange, masked_lookup"),
    ({"timeout": -1}, "timeout=-1: give seconds, a number from 0 up"),
    ({"timeout": math.nan}, "timeout=nan: give seconds"),
    ({"timeout": math.inf}, "timeout=inf: give seconds"),
    ({"timeout": 10**400}, "timeout=1000"),
    ({"gap": 10**400}, "gap=1000"),
    ({"timeout": "60"}, "timeout='60': give seconds"),
    ({"timeout": True}, "timeout=True: give seconds"),
    ({"gap": -0.1}, "gap=-0.1: give a fraction of the cost, a number from 0 up"),
    ({"gap": math.nan}, "gap=nan: give a fraction"),
    ({"gap": None}, "gap=None: give a fraction"),
    ({"objective": "bytes"}, "objective='bytes': choose from time, communication"),
    ({"memory": 0}, "memory=0: give whole bytes, 1 or more, or a number with a unit, as '80GB' (10^9)"),
    ({"memory": True}, "memory=True: give whole bytes"),
    ({"memory": "80XB"}, "memory='80XB': give whole bytes"),
    ({"constraints": [1]}, "constraints: 1 is no Boolean of Z3"),
    ({"constraints": 1}, "constraints=1: give a list of Z3 expressions over"),
    ({"policy": ["x"]}, "policy='x' is no policy: give what solver.constraints.policy makes"),
    ({"policy": "x"}, "policy='x' is no policy"),
    ({"policy": untie("w*")}, "untie('w*') lets no tie of graph 'mlp' go: it has none"),
    ({"overlap": {"gather": 0.5}}, "overlap names 'gather', no kind of collective: choose from all_reduce"),
    ({"overlap": {"all_gather": 1.5}}, "overlap of all_gather: 1.5 is no fraction of its time: give a number from 0"),
    ({"overlap": 0.5}, "overlap=0.5 is no mapping: write {'all_gather': 0.5}"),
]


@pytest.mark.parametrize(("wishes", "told"), WISHES)
def test_any_other_wish_that_cannot_be_read_is_refused_in_one_sentence(wishes: dict[str, object], told: str) -> None:
    with pytest.raises(ProblemError) as refused:
        plan(mlp(), MESH, **wishes)  # type: ignore[arg-type]
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_what_is_no_graph_and_what_is_no_mesh_is_refused() -> None:
    with pytest.raises(ValueError, match=r"the graph is a str: build a solver.Graph or load\(...\) one"):
        plan("mlp", MESH)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"the mesh is a dict: write Mesh\(\{'dp': 2, 'tp': 4\}\)"):
        plan(mlp(), {"dp": 2})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="has no output"):
        plan(Graph("empty"), MESH)


def test_no_pins_is_no_wish_and_lists_of_nothing_are_none() -> None:
    assert plan(mlp(), MESH, pins=None, constraints=[], policy=[], timeout=60).status == "optimal"
    assert plan(mlp(), MESH, pins={}, capabilities=["masked_lookup"]).status == "optimal"


def test_an_input_that_is_an_output_is_planned() -> None:
    graph = Graph("through")
    graph.output(graph.input("x", (4,)))
    assert plan(graph, MESH).cost_ps == 0


def test_pins_are_read_in_every_way_they_are_written() -> None:
    read = problem(flattened(), MESH, pins={"flat": "dp=S0,tp = S(0,part=1)", "x": {"dp": "P", "tp": Replicate()}})
    assert [(pin.subject, pin.axis, pin.placement) for pin in read.pins] == [
        ("flat", 0, Shard(0)),
        ("flat", 1, Shard(0, 1)),
        ("x", 0, Partial("sum")),
        ("x", 1, Replicate()),
    ]


def test_a_glob_pins_tensors_and_only_where_there_are_none_uses() -> None:
    assert {pin.subject for pin in problem(mlp(), MESH, pins={"w*": "dp=R"}).pins} == {"w1", "w2"}
    assert {pin.subject for pin in problem(mlp(), MESH, pins={"*/y": "dp=R"}).pins} == {"h/y", "y/y"}
    graph = Graph("mixed")
    graph.output(graph.op("add", graph.parameter("a", (2, 2)), graph.parameter("b", (2,))))
    with pytest.raises(ProblemError, match="'b' has rank 1"):
        problem(graph, MESH, pins={"[ab]": "dp=S(1)"})


def test_an_axis_named_twice_is_wished_for_twice_and_the_same_wish_counts_once() -> None:
    twice = problem(mlp(), MESH, pins={"x": "dp=S(0),dp=R,dp=R"})
    assert twice.pins == (Pin("x", 0, Shard(0), "x:dp=S(0)"), Pin("x", 0, Replicate(), "x:dp=R"))
    assert plan(mlp(), MESH, pins={"x": "dp=S(0),dp=R"}).status == "infeasible"


STORIES = [
    (
        {"x": "dp=S(0)", "[x]": "dp=R"},
        {},
        (
            "No plan satisfies these 2 requests together:\n"
            "  you pinned 'x' to S(0) on dp\n"
            "  you pinned 'x' to R on dp (by [x]:dp=R)\n"
            "because, on dp:\n"
            "  'x' cannot be S(0) and R at once\n"
            "hint: drop any one of them, and this contradiction is gone."
        ),
    ),
    (
        {"w2": "pp=S(1)"},
        {"pp": 3},
        (
            "No plan satisfies this:\n"
            "  you pinned 'w2' to S(1) on pp\n"
            "because, on pp:\n"
            "  'w2': dim 1 of size 4 cannot be cut by pp=3: 3 does not divide 4\n"
            "hint: drop this pin; or choose mesh axes of sizes that divide."
        ),
    ),
    (
        {"x": "dp=P"},
        {"dp": 2},
        (
            "No plan satisfies this:\n"
            "  you pinned 'x' to P(sum) on dp\n"
            "because, on dp:\n"
            "  input 'x' is never stored as an unreduced sum\n"
            "hint: drop this pin."
        ),
    ),
]


@pytest.mark.parametrize(("pins", "axes", "story"), STORIES)
def test_wishes_that_cannot_be_met_are_infeasible_and_told(
    pins: dict[str, str], axes: dict[str, int], story: str
) -> None:
    found = plan(mlp(), Mesh(axes) if axes else MESH, pins=pins)
    assert found.status == "infeasible"
    assert found.explanation is not None
    assert found.explanation.story == story


def test_a_pin_on_a_constant_cannot_cut_it() -> None:
    graph = Graph("constant")
    graph.output(graph.op("add", graph.input("x", (4,)), graph.constant("one", np.ones((4,), np.float32)), name="y"))
    assert "constant 'one' is stored whole on every device" in str(
        plan(graph, MESH, pins={"one": "tp=S(0)"}).explanation
    )
    assert plan(graph, MESH, pins={"one": "tp=R"}).status == "optimal"


def test_equal_rules_are_told_once() -> None:
    graph = Graph("deep")
    x = graph.input("x", (4,))
    for _ in range(6):
        x = graph.op("exp", x)
    graph.output(x)
    found = plan(graph, MESH, communication="frozen", pins={"x": "dp=S(0)", "exp_6": "dp=R"})
    assert found.explanation is not None
    assert len(found.explanation.core) == 3
    assert [(fact.subject, len(fact.alike)) for fact in found.explanation.support] == [("exp_1", 5)]
    assert [step.text for step in found.explanation.steps] == [
        "exp 'exp_1' reads 'x' as S(0) and so can only make 'exp_1' S(0)",
        "and so in 4 more exps, to 'exp_5'",
        "exp 'exp_6' reads 'exp_5' as S(0) and so can only make 'exp_6' S(0)",
        "so, as nothing is resharded, 'exp_6' can only be kept S(0)",
        "but you pinned 'exp_6' to R on dp",
    ]
