"""What kernels send themselves: priced as the reference prices it, run as it is priced."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops import rule_for
from ops.halo import Exchange
from ops.op import Op
from ops.placement import Replicate
from solver import plan
from solver.choice import Choice as Chosen
from solver.choice import Evaluation
from solver.cost.kernel_steps import KernelStep, kernel_steps
from solver.graph import Graph
from solver.mesh import Mesh
from solver.problem import CAPABILITIES, problem
from solver.program import lower
from solver.reference import Task, best
from solver.reference_kernel import inside
from solver.reference_task import Choice
from solver.simulate import simulate
from tests.graphs import COMMUNICATING, HARDWARE, ROUND, Case, random_graphs

MESHES = (
    Mesh({"dp": 4}, hardware=HARDWARE["bandwidth"]),
    Mesh({"dp": 2, "tp": 2}, hardware=HARDWARE["latency"]),
    Mesh({"dp": 2, "tp": 3}, hardware=HARDWARE["compute"]),
)
RUN = 12
"""Communicating choices of an op that are run, on each mesh; others are sampled."""

SENDING: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("conv1d", {"x": (2, 2, 12), "filter": (2, 2, 8)}, {"padding": [3, 4]}),
    ("conv2d", {"x": (1, 2, 12, 6), "filter": (2, 2, 3, 3), "bias": (2,)}, {"stride": [2, 1], "padding": 1}),
    ("conv2d", {"x": (2, 6, 4, 2), "filter": (2, 1, 2, 3)}, {"groups": 2, "padding": "SAME", "data_format": "NHWC"}),
    (
        "conv2d_transpose",
        {"x": (1, 2, 6, 4), "filter": (2, 2, 3, 3)},
        {"stride": [2, 1], "padding": 1, "output_padding": [1, 0]},
    ),
    ("max_pool2d", {"x": (1, 2, 12, 6)}, {"kernel_size": 3, "stride": [2, 1], "padding": 1}),
    ("avg_pool1d", {"x": (2, 2, 6)}, {"kernel_size": 5, "stride": 1, "padding": 2}),
    ("pad", {"x": (4, 6)}, {"pad": [1, 1, 4, 2]}),
    ("interpolate", {"x": (1, 2, 6, 4)}, {"size": [9, 8], "mode": "bilinear"}),
    ("roll", {"x": (6, 4)}, {"shifts": [5, 1], "axis": [0, 1]}),
    ("roll", {"x": (12, 2)}, {"shifts": 7}),
    ("c_softmax_with_cross_entropy", {"logits": (4, 12), "label": (4, 1)}, {}),
    ("cross_entropy_with_softmax", {"logits": (4, 12), "label": (4, 1)}, {}),
    ("nll_loss", {"input": (6, 4), "label": (6,), "weight": (4,)}, {}),
    ("sync_batch_norm", {"x": (4, 2, 6), "mean": (2,), "variance": (2,), "scale": (2,), "bias": (2,)}, {}),
    (
        "lamb",
        {
            **dict.fromkeys(("param", "grad", "moment1", "moment2"), (6, 4)),
            **dict.fromkeys(("learning_rate", "beta1_pow", "beta2_pow"), (1,)),
        },
        {},
    ),
]


def one_op(op: Op, shapes: Mapping[str, Any], attrs: Mapping[str, Any]) -> Graph:
    """Return a graph of one op."""
    g = Graph(op.name)
    inputs = [
        None
        if spec.name not in shapes
        else g.input(spec.name, shapes[spec.name], dtype="int64" if spec.name == "label" else "float32")
        for spec in op.operands
    ]
    made = g.op(op.name, *inputs, name="y", **attrs)
    g.output(*(made if isinstance(made, tuple) else (made,)))
    return g


def forward_and_grad(name: str, shapes: Mapping[str, Any], attrs: Mapping[str, Any]) -> list[Graph]:
    """Return the graph of an op and that of its grad op."""
    op = rule_for(name)
    found = [one_op(op, shapes, attrs)]
    if op.grad is not None:
        bound = op.bind({spec.name: shapes.get(spec.name) for spec in op.operands}, attrs)
        made = {slot.name: slot.shape for slot in bound.results}
        grads = {f"{result}_grad": shape for result, shape in made.items()}
        forward = tuple((spec.name, shapes.get(spec.name)) for spec in op.operands)
        found.append(
            one_op(rule_for(f"{name}_grad"), {**shapes, **made, **grads}, {**attrs, "forward_shapes": forward})
        )
    return found


GRAPHS = [graph for entry in SENDING for graph in forward_and_grad(*entry)]


def told(steps: tuple[KernelStep, ...]) -> list[tuple[str, int, int]]:
    return [(step.kind, step.bytes, step.time) for step in steps]


@pytest.mark.parametrize("index", range(len(GRAPHS)), ids=[f"{i}-{graph.name}" for i, graph in enumerate(GRAPHS)])
def test_every_choice_is_priced_as_the_reference_prices_it_and_sends_that(index: int) -> None:
    graph, sending = GRAPHS[index], 0
    for mesh in MESHES:
        task = Task(graph, mesh, capabilities=CAPABILITIES)
        asked = problem(graph, mesh, capabilities=CAPABILITIES)
        dtypes = {use.operand: graph.tensors[use.tensor].dtype for use in graph.operand_uses("y")}
        communicating = []
        for choice in task.choices("y"):
            cuts = tuple(row.cut for row in choice.rows)
            priced = kernel_steps(graph.nodes["y"], asked.bound["y"], cuts, dtypes, mesh)
            assert told(priced) == list(map(tuple, inside(task, choice)))
            communicating += [choice] if any(step.bytes for step in priced) else []
        sending += len(communicating)
        for choice in random.Random(index).sample(communicating, min(RUN, len(communicating))):
            evaluation = Evaluation(asked, replicated_otherwise(asked, choice))
            ran = simulate(lower(evaluation), seed=index)
            assert ran.ok, (choice.rows, str(ran))
            assert ran.bytes_sent == evaluation.sent
    silent = graph.name in ("c_softmax_with_cross_entropy_grad", "cross_entropy_with_softmax_grad", "nll_loss_grad")
    assert bool(sending) != silent


def replicated_otherwise(asked: Any, choice: Choice) -> Chosen:
    """Store every source whole, and let the only op take these rows."""
    bound, axes = asked.bound["y"], len(asked.mesh.sizes)
    rows = tuple(bound.rows.index(row) for row in choice.rows)
    stored = {t.name: (Replicate(),) * axes for t in asked.graph.tensors.values() if t.producer is None}
    return Chosen({"y": rows}, stored, {})


@settings(max_examples=40)
@given(random_graphs(max_ops=3, kinds=COMMUNICATING))
def test_plans_with_kernels_that_communicate_are_the_cheapest(case: Case) -> None:
    wishes = {"pins": case.pins, "communication": case.communication, "capabilities": case.capabilities}
    wanted = best(Task(case.graph, case.mesh, case.pins, case.communication, case.capabilities))
    found = plan(case.graph, case.mesh, **wishes)
    if wanted is None:
        assert found.status == "infeasible"
        return
    assert (found.status, found.cost_ps) == ("optimal", wanted[0])
    assert found.check().ok
    assert found.simulate().ok


# ------------------------------------------------------------------------------------------------------- the exchange


@st.composite
def borders(draw: Any) -> Exchange:
    """Draw what each of some blocks works on, round the ring and beyond a whole turn."""
    count, length = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    starts = st.integers(-count * length, count * length)
    firsts = draw(st.lists(starts, min_size=count, max_size=count))
    spans = [(first, first + draw(st.integers(0, 2 * count * length))) for first in firsts]
    return Exchange(0, draw(st.integers(0, 1)), "f", count * length, tuple(spans), False)


@settings(max_examples=60)
@given(borders(), st.integers(0, 5))
def test_adding_up_is_the_transpose_of_gathering(gather: Exchange, seed: int) -> None:
    rng = np.random.default_rng(seed)
    scatter, count = gather._replace(adds=True), len(gather.ranges)
    shape = [3, 3]
    shape[gather.dim] = gather.size
    blocks = np.split(rng.normal(size=shape), count, gather.dim)
    gathered = gather.run(blocks)
    for (first, end), array in zip(gather.ranges, gathered, strict=True):
        wanted = np.take(np.concatenate(blocks, gather.dim), [i % gather.size for i in range(first, end)], gather.dim)
        assert np.array_equal(array, wanted)
    worked = [rng.normal(size=array.shape) for array in gathered]
    sums = scatter.run(worked)
    forward = sum((a * b).sum() for a, b in zip(gathered, worked, strict=True))
    backward = sum((a * b).sum() for a, b in zip(blocks, sums, strict=True))
    assert np.isclose(forward, backward)
    assert [sent * 3 for sent in gather.sent()] == gather.elements(blocks)
    assert [sent * 3 for sent in scatter.sent()] == scatter.elements(worked)
    assert sum(gather.sent()) == sum(scatter.sent())
    assert gather.distances() == scatter.distances()


def test_the_example_of_the_page() -> None:
    g = Graph("page")
    g.output(g.op("conv2d", g.input("x", (1, 1, 8, 4)), g.input("w", (1, 1, 3, 3)), padding=1, name="y"))

    def sent(mesh: str, *cuts: str) -> list[tuple[str, int, int]]:
        axes = dict(zip(("dp", "tp"), map(int, mesh.split("x")), strict=False))
        asked = problem(g, Mesh(axes, hardware=ROUND), capabilities=CAPABILITIES)
        where = tuple((cut, 0) for cut in cuts)
        dtypes = {"x": "float32", "filter": "float32"}
        return told(kernel_steps(g.nodes["y"], asked.bound["y"], where, dtypes, asked.mesh))

    assert sent("2x2", "s0", "s1") == [("halo_exchange", 8, 10**6 + 80), ("halo_exchange", 20, 10**6 + 200)]
    assert sent("4", "s0") == [("halo_exchange", 32, 2 * 10**6 + 320)]
