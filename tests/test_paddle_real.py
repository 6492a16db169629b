"""Our `paddle` beside PaddlePaddle itself: its own completion of the same programs, op by op."""

from __future__ import annotations

from collections import defaultdict
from fnmatch import fnmatchcase
from typing import Any

import pytest

paddle = pytest.importorskip("paddle", reason="PaddlePaddle is not installed: pip install 'shardproof[paddle]'")
import paddle_programs as programs  # noqa: E402
from paddle_networks import NETWORKS  # noqa: E402
from paddle_real_differences import DIFFERENCES, REFUSALS  # noqa: E402

from benchmarks import paddle_nets as nets  # noqa: E402
from benchmarks.agreement import compared  # noqa: E402
from benchmarks.paddle_real import Completed, complete, read  # noqa: E402
from ops import Replicate, Shard  # noqa: E402
from solver import Mesh  # noqa: E402
from solver.greedy.paddle import paddle as ours  # noqa: E402
from solver.greedy.walk import StuckError  # noqa: E402
from solver.plan import Plan  # noqa: E402

BATCH = {"x": "dp=S(0)", "ids": "dp=S(0)", "labels": "dp=S(0)"}
COLUMNS = {"w0": "tp=S(1)", "b0": "tp=S(0)", "w1": "tp=S(0)"}
STORED = {"w0": "dp=S(0)", "w1": "dp=S(0)", "b0": "dp=S(0)"}
PROGRAMS: dict[str, tuple[Any, dict[str, int], dict[str, str]]] = {
    "mlp, nothing": (nets.mlp(), {"dp": 2, "tp": 2}, {}),
    "mlp, batch": (nets.mlp(), {"dp": 4}, BATCH),
    "mlp, batch, columns, rows": (nets.mlp(), {"dp": 2, "tp": 4}, BATCH | COLUMNS),
    "mlp, batch, weights stored in pieces": (nets.mlp(), {"dp": 8}, BATCH | STORED),
    "mlp, columns alone": (nets.mlp(), {"tp": 4}, {"w0": "tp=S(1)", "w1": "tp=S(1)"}),
    "mlp, features": (nets.mlp(), {"tp": 4}, {"x": "tp=S(1)"}),
    "mlp, four layers": (nets.mlp(widths=(32, 64, 32, 64, 16)), {"dp": 2, "tp": 2}, BATCH | COLUMNS),
    "convolutions, batch": (nets.convolutions(), {"dp": 4}, BATCH),
    "convolutions, filters": (nets.convolutions(), {"tp": 2}, {"conv0": "tp=S(0)", "head": "tp=S(1)"}),
    "convolutions, both": (nets.convolutions(), {"dp": 2, "tp": 2}, BATCH | {"conv1": "tp=S(0)"}),
    "gpt, batch": (nets.gpt(24), {"dp": 8}, BATCH),
    "gpt, megatron": (nets.gpt(24), {"dp": 2, "tp": 4}, BATCH | nets.megatron(24)),
    "gpt, megatron on three axes": (nets.gpt(4), {"node": 2, "dp": 2, "tp": 2}, BATCH | nets.megatron(4)),
    "gpt, first layer": (nets.gpt(4), {"tp": 4}, nets.megatron(1)),
    "gpt, words": (nets.gpt(4), {"dp": 2, "tp": 2}, BATCH | {"wte": "tp=S(0)", "head": "tp=S(1)"}),
    "gpt, sequence": (nets.gpt(4), {"tp": 4}, {"ids": "tp=S(1)", "labels": "tp=S(1)"}),
}
MET: dict[str, set[str]] = defaultdict(set)
RUN: set[str] = set()


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_layout_is_the_one_that_paddle_completes(name: str) -> None:
    write, axes, placements = PROGRAMS[name]
    mesh = Mesh(axes)
    theirs = complete(write, mesh, placements)
    question = theirs.problem(mesh)
    found = ours(question)
    made = {tensor: question.canonical(tensor, layout) for tensor, layout in theirs.made.items()}
    assert made == {tensor: found.evaluation.made(tensor) for tensor in made}
    uses = {name: question.use_named[name] for name in theirs.needed}
    needed = {name: question.canonical(uses[name].tensor, layout) for name, layout in theirs.needed.items()}
    assert needed == {name: found.evaluation.needed(use) for name, use in uses.items()}
    unmade = theirs.graph.tensors.keys() - made.keys()
    assert all(theirs.graph.tensors[tensor].role == "constant" or "x_grad" in tensor for tensor in unmade)
    followed = theirs.plan(mesh)
    assert followed.unlike == ()
    assert followed.plan.cost == found.cost
    assert followed.plan.check().ok


def test_the_plan_of_their_layouts_runs() -> None:
    write, axes, placements = PROGRAMS["mlp, batch, columns, rows"]
    followed = complete(write, Mesh(axes), placements).plan(Mesh(axes))
    assert followed.plan.simulate().ok


def test_their_passes_write_the_collectives_of_data_parallelism() -> None:
    write, axes, placements = PROGRAMS["mlp, batch"]
    # The grad of the mean asks for its forward operand whole, of which it reads no number: ours has no such use.
    assert complete(write, Mesh(axes), placements).collectives == {"all_gather": 1}


def asked(name: str, given: dict[str, Any], mesh: Mesh) -> tuple[Completed, str]:
    """A network as Paddle completes it; where it refuses, the network with nothing cut, and what it said."""
    try:
        return read(programs.program(name, given), len(mesh.sizes)), ""
    except (ValueError, RuntimeError) as error:
        whole = {key: tuple(Replicate() for _ in placed) for key, placed in given.items()}
        completed = read(programs.program(name, whole), len(mesh.sizes))
        placed = {key: layout for key, layout in given.items() if key in completed.placed}
        return Completed(**{**vars(completed), "placed": placed}), str(error)


def planned(completed: Completed, mesh: Mesh) -> tuple[Plan | None, str]:
    try:
        return ours(completed.problem(mesh)), ""
    except StuckError as error:
        return None, str(error)


@pytest.mark.parametrize("name", NETWORKS)
def test_each_op_does_of_its_operands_what_theirs_does_or_the_difference_is_known(name: str) -> None:
    RUN.add(name)
    mesh = Mesh({"a": programs.MESHES[1].shape[0]})
    told = 0
    for given in programs.placings(name):
        completed, refused = asked(name, given, mesh)
        found, stuck = planned(completed, mesh)
        if found is None or refused:
            assert (found is None) == bool(refused) or name in REFUSALS, f"{given}: theirs {refused!r}, ours {stuck!r}"
            MET["refusals"].update({name} if (found is None) != bool(refused) else ())
            continue
        for op in compared(found, completed.made, completed.needed, completed.held):
            told += 1
            if not op.same:
                known = [one for one in DIFFERENCES.get(op.node.op, {}) if fnmatchcase(op.text, one)]
                assert known, f"{op.node.op} {op.text}"
                MET[op.node.op].update(known)
    assert told


def test_every_known_difference_is_met() -> None:
    if NETWORKS.keys() != RUN:
        pytest.skip("not all networks have run")
    apart = {"matmul", "matmul_grad", "conv2d_grad"}  # two mesh axes, or operands that no network of one op has
    assert MET.pop("refusals") == REFUSALS.keys()
    assert {op: set(known) for op, known in DIFFERENCES.items() if op not in apart} == MET


def test_a_refusal_says_where() -> None:
    mesh = Mesh({"tp": 2})
    completed = complete(nets.convolutions(), mesh, {})
    placed = {**completed.placed, "conv1": (Shard(1),)}
    with pytest.raises(StuckError) as told:
        ours(Completed(**{**vars(completed), "placed": placed}).problem(mesh))
    assert str(told.value) == (
        "op 'conv2d_2' (conv2d) is stuck on x 'pool2d.max_pool2d' [R], filter 'conv1' [S(1)]: PaddlePaddle's rule "
        "refuses, because x and filter are cut apart on c"
    )
