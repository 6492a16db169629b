"""Plans of networks whose kernels communicate: granted, priced, proved, run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from solver import Graph, Mesh, plan
from solver.autodiff import add_gradients
from solver.cli import command
from solver.plan import Plan
from solver.plan_json import digest
from solver.problem import CAPABILITIES
from solver.program import Borders, LocalOp
from solver.verify import verify
from tests.graphs import HARDWARE

SLOW = {**HARDWARE["compute"], "peak": {"float32": 10**8}, "memory_bandwidth": 10**9}
"""Computing and memory are so slow that every plan cuts what it can."""
SQUARE = Mesh({"dp": 2, "tp": 2}, hardware=SLOW)


def image_net(batch: int = 1, channels: int = 3, depth: int = 3) -> Graph:
    """Convolutions that keep the size of an image, of so few channels that nothing else can be cut."""
    g = Graph("image_net")
    x = g.input("x", (batch, channels, 16, 8))
    for i in range(depth):
        x = g.op("conv2d", x, g.parameter(f"w{i}", (channels, channels, 3, 3)), padding=1, name=f"c{i}")
        x = g.op("relu", x, name=f"r{i}")
    g.output(g.op("max_pool2d", x, kernel_size=3, stride=2, padding=1, name="pool"))
    return g


def confirmed(graph: Graph, mesh: Mesh, **wishes: Any) -> Plan:
    """Plan with every capability; the plan is proved, checked, and runs as it is priced."""
    found = plan(graph, mesh, **{"capabilities": CAPABILITIES, **wishes})
    assert found.status == "optimal", found
    checked, ran = found.check(), found.simulate()
    assert checked.ok, checked
    assert ran.ok, ran
    assert ran.bytes_sent == found.evaluation.sent
    assert Plan.from_json(found.to_json()).kernels == found.kernels
    return found


def kinds(found: Plan) -> dict[str, list[str]]:
    return {node: [step.kind for step in steps if step.bytes] for node, steps in found.kernels.items()}


def test_an_image_is_cut_in_space_and_its_borders_are_exchanged() -> None:
    found = confirmed(image_net(), SQUARE)
    assert kinds(found) == dict.fromkeys(["c0", "c1", "c2", "pool"], ["halo_exchange"] * 2)
    assert not any(reshard.bytes for reshard in found.reshards)
    steps = [step for step in found.program.steps if isinstance(step, Borders)]
    assert [step.node for step in steps] == ["c0", "c0", "c1", "c1", "c2", "c2", "pool", "pool"]
    assert {step.groups for step in steps} == {((0, 2), (1, 3)), ((0, 1), (2, 3))}
    lines = str(found.program).splitlines()
    assert lines[0].startswith("x with borders = halo_exchange[")
    assert lines[2] == "c0 = conv2d(x with borders', w0, None)"
    shown = str(found)
    assert "halo_exchange[dp] of x, halo_exchange[tp] of x" in shown
    assert f"sent    {found.evaluation.sent} B per device: halo_exchange {found.evaluation.sent} B" in shown


def test_space_beats_replication_where_the_batch_is_one() -> None:
    bound = plan(image_net(), SQUARE)
    assert bound.cost_ps is not None
    assert not bound.kernels
    free = confirmed(image_net(), SQUARE)
    assert free.cost_ps is not None
    assert free.cost_ps < bound.cost_ps / 2
    silent = confirmed(image_net(), SQUARE, communication="none")
    assert not silent.kernels


def test_a_training_step_exchanges_borders_both_ways() -> None:
    g = Graph("step")
    x = g.op("conv2d", g.input("x", (1, 2, 16, 8)), g.parameter("w0", (3, 2, 3, 3)), padding=1, name="c0")
    y = g.op("conv2d", g.op("relu", x, name="r"), g.parameter("w1", (3, 3, 3, 3)), padding=1, stride=[2, 1], name="c1")
    loss = g.op("sum", g.op("avg_pool2d", y, kernel_size=3, stride=1, padding=1, name="p"), name="loss")
    g.output(loss)
    step = add_gradients(g, loss)
    found = confirmed(
        step, SQUARE, pins={"c0/x": "dp=S(2),tp=S(3)", "c1/x": "dp=S(2),tp=S(3)", "p/x": "dp=S(2),tp=S(3)"}
    )
    backward = {node: steps for node, steps in kinds(found).items() if step.nodes[node].op.endswith("_grad")}
    assert any("halo_exchange" in steps for steps in backward.values())
    added = [one for one in found.program.steps if isinstance(one, Borders) and one.exchange.adds]
    assert {one.target for one in added} & set(step.tensors)


def test_a_borders_wish_is_told_which_capability_would_meet_it() -> None:
    found = plan(image_net(), SQUARE, pins={"c1/x": "dp=S(2)"})
    assert found.status == "infeasible"
    assert found.explanation is not None
    granted = [repair for repair in found.explanation.repairs if "capabilities" in repair.change]
    assert [repair.change["capabilities"] for repair in granted] == [["halo_exchange"]]


def test_classes_are_cut_where_a_softmax_may_reduce() -> None:
    g = Graph("vocabulary")
    logits = g.op("matmul", g.input("x", (6, 8)), g.parameter("w", (8, 12)), name="logits")
    g.output(g.op("c_softmax_with_cross_entropy", logits, g.input("label", (6, 1), dtype="int64"), name="l")[1])
    pins = {"w": "tp=S(1)", "l/logits": "tp=S(1)"}
    found = confirmed(g, Mesh({"tp": 4}, hardware=SLOW), pins=pins, capabilities={"parallel_softmax"})
    assert kinds(found) == {"l": ["all_reduce"] * 3}
    assert [step.bytes for step in found.kernels["l"]] == [2 * 3 * 2 * 4] * 3
    told = next(line for line in str(found.program).splitlines() if "c_softmax" in line)
    assert told.endswith(", ".join(["all_reduce[tp] 48 bytes sent"] * 3))
    assert plan(g, Mesh({"tp": 4}, hardware=SLOW), pins=pins).status == "infeasible"


def test_batch_statistics_are_those_of_all_devices() -> None:
    g = Graph("normed")
    source = {name: g.state(name, (3,)) for name in ("mean", "variance")}
    x = g.op("exp", g.input("x", (8, 3, 4)), name="e")
    g.output(g.op("sync_batch_norm", x, *source.values(), g.parameter("scale", (3,)), None, name="y")[0])
    mesh = Mesh({"dp": 4}, hardware=SLOW)
    found = confirmed(g, mesh, capabilities={"sync_batch_norm"})
    assert found.made("y.out") == {"dp": found.held("e")["dp"]}
    assert [step.bytes for step in found.kernels["y"]] == [2 * 3 * 1 * 4] * 2
    cut = next(step for step in found.program.steps if isinstance(step, LocalOp) and step.node == "y")
    assert cut.reduces == (0,)
    apart = plan(g, mesh)
    assert apart.cost_ps is not None
    assert found.cost_ps is not None
    assert found.cost_ps < apart.cost_ps


def test_a_cut_dim_is_rolled_round_the_ring() -> None:
    g = Graph("rolled")
    x = g.op("exp", g.input("x", (12, 2)), name="e")
    g.output(g.op("tanh", g.op("roll", x, shifts=4, axis=0, name="y"), name="t"))
    pins = {"y/x": "tp=S(0)", "t/x": "tp=S(0)"}
    found = confirmed(g, Mesh({"tp": 4}, hardware=SLOW), pins=pins, capabilities={"shift"})
    (step,) = found.kernels["y"]
    assert (step.kind, step.bytes) == ("shift", 3 * 2 * 4)
    assert plan(g, Mesh({"tp": 4}, hardware=SLOW), pins=pins, capabilities={"halo_exchange"}).status == "infeasible"


@pytest.mark.parametrize("what", ["bytes", "time"])
def test_a_plan_file_that_tells_another_price_of_a_kernel_is_refused(what: str) -> None:
    data = json.loads(confirmed(image_net(depth=1), SQUARE).to_json())
    data["consequences"]["kernels"]["c0"][0][what] += 1
    data["sha256"] = digest(data)
    checked = verify(data)
    assert not checked.ok
    assert any("'kernels' 'c0'" in finding for finding in checked.findings), checked


def test_the_command_grants_capabilities(tmp_path: Path) -> None:
    model = tmp_path / "net.json"
    model.write_text(json.dumps(image_net(depth=1).to_json()), encoding="utf-8")
    asked = ["plan", str(model), "--mesh", "dp=2", "--pin", "c0/x:dp=S(2)"]
    runner = CliRunner()
    assert (
        runner.invoke(
            command, [*asked, "--capability", "halo_exchange", "--verify"], standalone_mode=False
        ).return_value
        == 0
    )
    assert runner.invoke(command, asked, standalone_mode=False).return_value == 3
