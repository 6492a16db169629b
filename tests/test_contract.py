"""What other people's scripts rely on, word for word."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ops import Partial, Replicate, Shard, names, rows
from solver import Graph, Mesh, Plan, explain, infer, load, plan


def model() -> Graph:
    g = Graph("mlp")
    x = g.input("x", (32, 64), dtype="float32")
    w = g.parameter("w", (64, 16))
    y = g.op("matmul", x, w, name="y")
    g.output(y)
    return g


def test_a_plan_answers() -> None:
    mesh = Mesh({"dp": 2, "tp": 4}, hardware="h100", devices=None)
    p = plan(
        model(),
        mesh,
        pins={"x": {"dp": Shard(0), "tp": Shard(1)}, "w*": "tp=S(0)", "y/x": "tp=S1"},
        communication="any",
        objective="time",
        memory=None,
        constraints=(),
        policy=(),
        capabilities=frozenset({"masked_lookup"}),
        overlap=None,
        timeout=60,
        gap=0.0,
    )
    assert p.status == "optimal"
    assert p.cost == p.bound == p.solver_bound > 0
    assert (p.gap, p.proof) == (0.0, "certificate")
    assert p.certificate is not None
    assert p.layout("x") == {"dp": Shard(0), "tp": Shard(1)}
    assert p.made("y") == {"dp": Shard(0), "tp": Partial("sum")}
    assert p.held("w") == {"dp": Replicate(), "tp": Shard(0)}
    assert p.needed("y/x") == {"dp": Shard(0), "tp": Shard(1)}
    assert p.dims_mapping("x") == [0, 1]
    assert p.partial("x") == {}
    (reshard,) = p.reshards
    assert (reshard.tensor, reshard.uses) == ("y", ("output",))
    assert reshard.source == (Shard(0), Partial("sum"))
    assert reshard.target == (Shard(0), Shard(0))
    ((kind, axis, sent, seconds),) = reshard.collectives
    assert (kind, axis, sent) == ("reduce_scatter", "tp", 3 * 4 * 16 * 4)
    assert seconds == reshard.time / 1e12
    assert p.memory.peak == sum(p.memory.parts.values())
    assert p.explanation is None


def test_a_plan_is_checked_run_written_and_read() -> None:
    p = plan(model(), Mesh({"dp": 2}), pins={"x": "dp=S(0)"})
    checked = p.check()
    assert checked.ok
    assert list(checked.findings) == []
    assert checked.bound == p.bound_ps
    ran = p.simulate(seed=0)
    assert ran.ok
    assert ran.max_error.keys() == {"y"}
    assert ran.bytes_sent == sum(reshard.bytes for reshard in p.reshards)
    assert ran.peak_memory == p.memory.peak
    assert Plan.from_json(p.to_json()).to_json() == p.to_json()
    assert str(p.program)


def test_no_plan_is_explained() -> None:
    p = plan(model(), Mesh({"dp": 2}), pins={"x": "dp=S(0)", "y": "dp=S(1)"}, communication="frozen")
    assert p.status == "infeasible"
    assert p.explanation is not None
    assert {reason.kind for reason in p.explanation.core} == {"pin", "communication"}
    for reason in p.explanation.core:
        assert reason.text
        assert reason.source
        assert isinstance(reason.subject, str)
    assert p.explanation.minimal
    assert str(p.explanation).startswith(p.explanation.story)
    for repair in p.explanation.repairs:
        assert repair.text
        assert repair.change
        assert repair.cost > 0
        assert repair.memory > 0
    assert json.loads(json.dumps(p.explanation.to_json()))["minimal"]


@pytest.mark.parametrize("wish", [{"nothing": "dp=R"}, {"x": "pp=R"}, {"x": "dp=S(7)"}])
def test_a_wish_that_names_nothing(wish: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="pin on"):
        plan(model(), Mesh({"dp": 2}), pins=wish)


def test_one_op() -> None:
    found = rows("matmul", [(8, 4), (4, 6)], {}, size=2, dtypes=None)
    assert found[0].operands == (Replicate(), Replicate())
    assert all(row.why and isinstance(row.needs, frozenset) and row.results for row in found)
    assert "matmul" in names()
    mesh = Mesh({"dp": 2, "tp": 4})
    layout, whole = {"dp": Shard(0), "tp": Shard(1)}, {"dp": Replicate(), "tp": Replicate()}
    got = infer("matmul", mesh, operands=[layout, whole], results=None, shapes=[(8, 4), (4, 6)], attrs={})
    assert got is not None


def test_a_graph_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(model().to_json()), encoding="utf-8")
    assert load(path).to_json() == model().to_json()


def test_a_plan_tells_why() -> None:
    p = plan(model(), Mesh({"tp": 4}), pins={"x": "tp=S(1)"})
    for told in (p.why("w"), p.why_not("x", {"tp": Shard(0)}), explain(model(), Mesh({"tp": 4}))):
        assert told.text
        assert isinstance(told.core, tuple)
        assert isinstance(told.support, tuple)
        assert isinstance(told.minimal, bool)
        assert told.cost_delta is None or isinstance(told.cost_delta, float)
        assert told.text in str(told)
