"""Our `paddle-fixpoint` beside PaddlePaddle's older completion itself, which still completes programs of its time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("paddle", reason="PaddlePaddle is not installed: pip install 'shardproof[paddle]'")
from benchmarks import paddle_nets as nets
from benchmarks.paddle_real import complete
from ops import Partial, Replicate, Shard
from solver import Graph, Mesh
from solver.greedy.paddle_fixpoint import paddle_fixpoint
from solver.plan import Plan
from solver.problem import problem

ROOT = Path(__file__).resolve().parent.parent
BATCH = {"x": "dp=S(0)"}
SIZES: dict[str, dict[str, Any]] = {
    "mlp": {"activation": "relu"},
    "gpt": {"layers": 2, "activation": "relu"},
    "convolutions": {},
}


@cache
def graph_of(net: str) -> Graph:
    """The forward pass of a network, by way of PIR: its ops are those of the older programs, in the same order."""
    return complete(getattr(nets, net)(**SIZES[net]), Mesh({"dp": 1}), {}, backward=False).graph


CASES: dict[str, tuple[str, dict[str, int], dict[str, str]]] = {
    "mlp, batch": ("mlp", {"dp": 4}, BATCH),
    "mlp, batch and columns": ("mlp", {"dp": 2, "tp": 2}, BATCH | {"w0": "tp=S(1)"}),
    "mlp, rows alone": ("mlp", {"tp": 4}, {"w1": "tp=S(0)"}),
    "mlp, columns twice": ("mlp", {"tp": 2}, {"w0": "tp=S(1)", "w1": "tp=S(1)"}),
    "mlp, classes cut": ("mlp", {"dp": 2, "tp": 2}, {"x": "dp=S(0)", "w1": "tp=S(1)"}),
    "gpt, batch": ("gpt", {"dp": 4}, {"ids": "dp=S(0)"}),
    "gpt, one weight": ("gpt", {"dp": 2, "tp": 2}, {"ids": "dp=S(0)", "h0.attn.q.weight": "tp=S(1)"}),
    "gpt, two weights": ("gpt", {"tp": 4}, {"h0.attn.q.weight": "tp=S(1)", "h1.up.weight": "tp=S(1)"}),
    "gpt, words": ("gpt", {"tp": 2}, {"head": "tp=S(1)"}),
    "convolutions, batch": ("convolutions", {"dp": 4}, BATCH),
    "convolutions, a cut filter": ("convolutions", {"dp": 2, "tp": 2}, {"x": "dp=S(0)", "conv0": "tp=S(0)"}),
    "convolutions, labels": ("convolutions", {"dp": 4}, {"labels": "dp=S(0)"}),
}


@cache
def answers() -> dict[str, dict[str, Any]]:
    """What the older completion says of every case."""
    return dict(zip(CASES, asked(list(CASES.values())), strict=True))


def asked(cases: list[tuple[str, dict[str, int], dict[str, str]]], *limit: str) -> list[dict[str, Any]]:
    """Ask the older completion, in a process of its own."""
    questions = [{"net": net, "sizes": SIZES[net], "mesh": mesh, "placements": placed} for net, mesh, placed in cases]
    told = subprocess.run(
        [sys.executable, "-m", "benchmarks.paddle_old", *limit],
        input=json.dumps(questions),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert told.returncode == 0, told.stderr
    answers: list[dict[str, Any]] = json.loads(told.stdout)
    return answers


def planned(name: str) -> Plan:
    net, mesh, placed = CASES[name]
    pins = {tensor: {axis: Replicate() for axis in mesh} for tensor in placed}
    for tensor, wish in placed.items():
        pins[tensor] |= {axis: Shard(int(cut[2:-1])) for axis, cut in (one.split("=") for one in wish.split(","))}
    return paddle_fixpoint(problem(graph_of(net), Mesh(mesh), pins=pins))


def mapping(layout: dict[str, Any], rank: int) -> list[int]:
    """A layout without its partial terms as a dims_mapping."""
    found = [-1] * rank
    for axis, placement in enumerate(layout.values()):
        if isinstance(placement, Shard):
            found[placement.dim] = axis
    return found


@pytest.mark.parametrize("name", CASES)
def test_every_tensor_lies_where_the_older_engine_puts_it(name: str) -> None:
    theirs, ours = answers()[name], planned(name)
    graph = ours.problem.graph
    ranks = {tensor.name: len(tensor.shape) for tensor in graph.tensors.values()}
    assert theirs["sources"] == {source: mapping(ours.layout(source), ranks[source]) for source in theirs["sources"]}
    kinds = [node.op for node in graph.nodes.values()]
    assert len(kinds) == len(theirs["ops"])
    first = {"cross_entropy_with_softmax": 1}  # theirs names the loss
    made = [node.results[first.get(node.op, 0)] for node in graph.nodes.values()]
    assert [told for _, told, _ in theirs["ops"]] == [mapping(ours.made(tensor), ranks[tensor]) for tensor in made]
    assert ours.check().ok
    assert not any(isinstance(one, Partial) for tensor in made for one in ours.held(tensor).values())


def test_a_completion_without_end_is_ended_and_the_next_case_is_answered() -> None:
    placed = {"wte": "tp=S(0)", "h0.attn.proj.weight": "tp=S(0)", "h0.attn.v.weight": "tp=S(1)", "labels": "tp=S(1)"}
    endless = placed | {"h1.attn.k.weight": "tp=S(0)"}
    told, next_one = asked([("gpt", {"tp": 2}, endless), CASES["mlp, batch"]], "3")
    assert told == {"refused": "PaddlePaddle's older completion had not come to an end after 3 s"}
    assert next_one == answers()["mlp, batch"]
