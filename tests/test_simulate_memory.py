"""What a simulated run fills: an estimate beforehand, a refusal where there is no room, and progress."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from solver import Graph, Mesh, Plan, cli, plan
from solver.simulate_memory import free_bytes, run_bytes
from solver.training import training_step


def step() -> Graph:
    """Return a step that trains two layers: some megabytes."""
    g = Graph("step")
    x, labels = g.input("x", (256, 256)), g.input("labels", (256, 1), dtype="int64")
    wide = g.op("relu", g.op("matmul", x, g.parameter("up", (256, 1024))))
    logits = g.op("matmul", wide, g.parameter("down", (1024, 256)))
    g.output(g.op("mean", g.op("cross_entropy_with_softmax", logits, labels)[1], name="loss"))
    return training_step(g, "loss", "adamw")


PINS = {"cut": "dp=S(0),tp=R", "whole": "dp=R,tp=R"}


@pytest.mark.parametrize("pin", PINS)
def test_the_estimate_is_near_what_a_run_takes(pin: str) -> None:
    found = plan(step(), Mesh({"dp": 2, "tp": 4}), pins={"x": PINS[pin]}, timeout=20)
    expected = run_bytes(found.program)
    tracemalloc.start()
    try:
        assert found.simulate().ok
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert expected > 10**7
    assert 0.6 < expected / peak < 1.6


def test_a_run_without_room_is_refused_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    found = plan(step(), Mesh({"tp": 2}), timeout=20)
    expected = run_bytes(found.program)
    monkeypatch.setattr("solver.simulate.random_values", lambda *_: pytest.fail("it runs"))
    with pytest.raises(MemoryError, match=r"on 2 simulated devices takes about .* MB, and 1 MB are allowed: plan a "):
        found.simulate(memory=10**6)
    monkeypatch.setattr("solver.simulate.free_bytes", lambda: expected - 1)
    with pytest.raises(
        MemoryError, match=r"B are free: plan a smaller batch or fewer layers, or check the proof alone"
    ):
        found.simulate()
    monkeypatch.undo()
    assert found.simulate(memory=expected).ok


def test_the_command_refuses_it_after_the_proof_has_been_checked(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("solver.simulate.free_bytes", lambda: 1000)
    assert cli.main(["plan", str(model), "--mesh", "tp=2", "--verify"]) == 2
    said, complaint = capsys.readouterr()
    assert "checked without the solver" in said
    assert complaint.startswith("shardproof: there is not enough memory for this: running the plan on 2 simulated")
    assert complaint.count("\n") == 1


def test_the_proof_can_be_checked_alone(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Plan, "simulate", lambda *_, **__: pytest.fail("it runs"))
    assert cli.main(["plan", str(model), "--mesh", "tp=2", "--check"]) == 0
    assert "checked without the solver" in capsys.readouterr().out


def test_a_run_tells_how_many_ops_are_done() -> None:
    told: list[str] = []
    found = plan(step(), Mesh({"tp": 2}), timeout=20)
    found.simulate(tell=told.append)
    total = 2 * len(found.problem.graph.nodes)
    assert told == [f"{done} of {total} ops" for done in range(1, total + 1)]


def test_what_is_free_is_what_the_system_and_the_container_leave(tmp_path: Path) -> None:
    known = free_bytes()
    assert known is None or known > 0
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    4096 kB\nBuffers: 1 kB\n")
    assert free_bytes(tmp_path) == 4096 * 1024
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    for name, text in (
        ("memory.max", "max\n"),
        ("memory.current", "900\n"),
        ("memory.stat", "anon 5\ninactive_file 300\n"),
    ):
        (group / name).write_text(text)
    assert free_bytes(tmp_path) == 4096 * 1024
    (group / "memory.max").write_text("1000\n")
    assert free_bytes(tmp_path) == 400
