"""Plans of the reference, held against hand computation, against plain enumeration, and against runs on devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from graphs import (
    HAND_MADE,
    HARDWARE,
    ROUND,
    Case,
    biased,
    diamond,
    flattened,
    merged,
    mlp,
    random_graphs,
    shared,
    squared,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ops.placement import Replicate, layout_text
from solver.cost.memory import Stored, plan_memory
from solver.graph import Graph
from solver.mesh import Mesh
from solver.reference import Plan, best, plans, price
from solver.reference_layout import Cut
from solver.reference_run import cut, error, peak_memory, run
from solver.reference_task import Task

SHARED_PINS = {"x": "tp=S(1)", "w": "tp=S(0)", "p/x": "tp=S(1)", "relu/x": "tp=R", "exp/x": "tp=R", "tanh/x": "tp=R"}


def task_of(case: Case) -> Task:
    return Task(case.graph, case.mesh, case.pins, case.communication, case.capabilities)


def cheapest(
    graph: Graph,
    mesh: str,
    pins: Any = None,
    communication: str = "any",
    hardware: Any = ROUND,
    capabilities: frozenset[str] = frozenset({"masked_lookup"}),
) -> Plan | None:
    found = best(Task(graph, Mesh.parse(mesh, hardware), pins, communication, capabilities))
    return None if found is None else found[1]


def moves_of(plan: Plan) -> list[tuple[str, str, list[str]]]:
    assert plan.reshards is not None
    return [(r.tensor, r.user, [move.kind for move in r.path.moves]) for r in plan.reshards]


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(random_graphs(max_ops=1, max_axes=1))
def test_the_cheapest_is_the_cheapest_of_all_plans(case: Case) -> None:
    task = task_of(case)
    prices = [price(plan).time for plan in plans(task)]
    found = best(task)
    assert (found is None) == (not prices)
    if found is not None:
        assert found[0] == min(prices) == price(found[1]).time


@settings(max_examples=50, suppress_health_check=list(HealthCheck))
@given(random_graphs())
def test_the_cheapest_plan_runs_right_and_sends_what_it_says(case: Case) -> None:
    found = best(task_of(case))
    if found is None:
        return
    cost, plan = found
    priced, ran = price(plan), run(plan)
    assert priced.time == cost
    assert ran.error < 1e-9
    assert ran.bytes == priced.bytes


@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(random_graphs(max_ops=3, max_axes=2), st.data())
def test_any_plan_runs_right(case: Case, data: Any) -> None:
    """Not the cheapest: any rows, storages and copies."""
    task = task_of(case)
    choices = {}
    for node in case.graph.nodes:
        offered = list(task.choices(node))
        if not offered:
            return
        choices[node] = data.draw(st.sampled_from(offered))
    made = {tensor: lies for choice in choices.values() for tensor, lies in choice.made.items()}
    for tensor, fact in case.graph.tensors.items():
        if fact.producer is None:
            if not task.storages(tensor):
                return
            made[tensor] = data.draw(st.sampled_from(task.storages(tensor)))
    if not all(task.holdings(tensor) for tensor in made):
        return
    held = {tensor: data.draw(st.sampled_from(task.holdings(tensor))) for tensor in made}
    delivered = {tensor: data.draw(st.sampled_from(task.deliveries(tensor))) for tensor in case.graph.outputs}
    plan = Plan(task, choices, made, held, delivered)
    if plan.reshards is not None:
        ran = run(plan)
        assert ran.error < 1e-9
        assert ran.bytes == price(plan).bytes
        assert peak_memory(plan) == peak_by_the_planner(plan)


def peak_by_the_planner(plan: Plan) -> int:
    """Ask the planner's own account of memory, which is another program."""
    task = plan.task
    size = {tensor: task.space(tensor).bytes for tensor in plan.made}
    copied = {tensor for tensor in plan.made if plan.held[tensor] != plan.made[tensor]}
    needed, outputs, made_reads, made_outputs = {}, {}, set(), set()
    for tensor in plan.made:
        for user, lies in plan.reads(tensor):
            read = plan.reader(tensor, lies)
            assert read is not None
            if tensor in copied and read[0] != plan.held[tensor]:
                (made_outputs if user == "output" else made_reads).add(tensor if user == "output" else user)
            if read[1].moves:
                (outputs if user == "output" else needed)[tensor if user == "output" else user] = size[tensor](lies)
    return plan_memory(
        task.graph,
        Stored(
            {tensor: size[tensor](lies) for tensor, lies in plan.made.items()},
            {tensor: size[tensor](plan.held[tensor]) for tensor in copied},
            needed,
            outputs,
            frozenset(made_reads),
            frozenset(made_outputs),
        ),
    ).peak


@pytest.mark.parametrize("make", HAND_MADE)
@pytest.mark.parametrize("mesh", ["tp=2", "dp=2,tp=2", "dp=1,tp=2", "dp=2,tp=4"])
@pytest.mark.parametrize("hardware", sorted(HARDWARE))
def test_graphs_made_by_hand(make: Any, mesh: str, hardware: str) -> None:
    plan = cheapest(make(), mesh, hardware=HARDWARE[hardware])
    assert plan is not None
    assert run(plan).error < 1e-12
    assert run(plan).bytes == price(plan).bytes


def test_on_one_device_only_computing_costs() -> None:
    plan = cheapest(mlp(), "dp=1,tp=1")
    assert plan is not None
    assert price(plan).time == price(plan).compute
    # matmul (8,4)x(4,8): 512 flops and 4 * (32 + 32 + 64) bytes, each 1 ps; relu; matmul with 8x8, 8x4, 8x4.
    assert price(plan).compute == max(512, 512) + max(64, 2 * 256) + max(512, 256 + 128 + 128)


def test_replicated_compute_is_paid_in_full_and_a_cut_shares_it() -> None:
    whole = cheapest(mlp(), "tp=2", {"h": "tp=R", "w1": "tp=R", "x": "tp=R", "w2": "tp=R", "y": "tp=R"}, "frozen")
    cut_rows = cheapest(mlp(), "tp=2", {"x": "tp=S(0)", "w1": "tp=R"}, "frozen")
    assert whole is not None
    assert cut_rows is not None
    assert price(whole).compute == 512 + 512 + 512
    assert price(cut_rows).compute == max(256, 64 + 128 + 128) + 256 + max(256, 128 + 128 + 64)


def test_a_bias_is_added_once() -> None:
    """Row-parallel product: the sum is reduced first, or the bias is made partial; both are right, and priced."""
    plan = cheapest(biased(), "tp=2", {"p/x": "tp=S(1)", "y/x": "tp=P(sum)"})
    assert plan is not None
    assert ("b", "y/y", ["zero_fill"]) in moves_of(plan)
    assert run(plan).error < 1e-12
    assert cheapest(biased(), "tp=2", {"y/x": "tp=P(sum)", "y/y": "tp=R"}) is None


def test_a_flattened_dim_keeps_its_cuts() -> None:
    pins = {"x": "dp=S(0),tp=S(1)", "w": "dp=R,tp=R", "y": "dp=S(0),tp=S(1)"}
    plan = cheapest(flattened(), "dp=2,tp=2", pins, "frozen")
    assert plan is not None
    assert layout_text(plan.layout("flat")) == "[S(0), S(0)]"
    assert not price(plan).bytes
    uneven = cheapest(flattened(), "dp=1,tp=4", {"x": "tp=S(1)", "w": "tp=R", "y": "tp=S(1)"}, "frozen")
    assert uneven is not None
    assert layout_text(uneven.layout("flat")) == "[R, S(0,part=1)]"
    assert run(uneven).error < 1e-12


def test_a_merge_in_another_order_is_a_permute_away() -> None:
    pins = {"x": "dp=S(0),tp=S(1)", "y": "dp=S(0),tp=S(0)"}
    plan = cheapest(merged(), "dp=2,tp=4", pins)
    assert plan is not None
    assert [moves for _, _, moves in moves_of(plan)] == [["permute"]]
    assert run(plan).error == 0


def test_both_uses_of_one_tensor_are_priced() -> None:
    """y = a @ a with all of the one and columns of the other: each use is a reshard of its own."""
    pins = {"a": "tp=S(0)", "a/x": "tp=S(0)", "x": "tp=S(0)", "y/x": "tp=R", "y/y": "tp=S(1)", "y": "tp=S(1)"}
    plan = cheapest(squared(), "tp=2", pins)
    assert plan is not None
    assert moves_of(plan) == [("a", "y/x", ["all_gather"]), ("a", "y/y", ["all_to_all"])]
    # 32 local bytes go to the other device, or half of them, which need a copy.
    assert price(plan).reshards == (10**6 + 32 * 10) + (10**6 + 16 * 10 + 32)
    copied = cheapest(squared(), "tp=2", {name: pin for name, pin in pins.items() if name != "a"})
    assert copied is not None
    assert moves_of(copied) == [("a", "held", ["all_gather"]), ("a", "y/y", ["slice"])]


def test_a_shared_copy_is_paid_once() -> None:
    plan = cheapest(shared(), "tp=4", SHARED_PINS)
    assert plan is not None
    assert moves_of(plan) == [("p", "held", ["all_reduce"])]
    # 16 elements of 4 bytes on 4 devices: 4 steps of 10^6 ps, and 2 * 3 * 4 * 4 bytes.
    assert price(plan).reshards == 4 * 10**6 + 96 * 10
    # Pinned to be held partial, it is reduced for each use.
    each = cheapest(shared(), "tp=4", SHARED_PINS | {"p": "tp=P(sum)"})
    assert each is not None
    assert price(each).reshards == 3 * price(plan).reshards


def test_a_use_may_read_what_was_made() -> None:
    """With a copy held for three uses, the fourth takes the terms as they were made."""
    graph = shared()
    graph.output(graph.op("neg", graph.tensors["p"], name="neg"))
    plan = cheapest(graph, "tp=4", SHARED_PINS | {"neg/x": "tp=P(sum)", "neg": "tp=P(sum)"})
    assert plan is not None
    assert moves_of(plan) == [("p", "held", ["all_reduce"])]


def test_an_output_leaves_without_partials_unless_it_is_pinned_so() -> None:
    plan = cheapest(biased(), "tp=2", {"p/x": "tp=S(1)", "y/x": "tp=P(sum)"})
    assert plan is not None
    assert price(plan).bytes
    pinned = cheapest(biased(), "tp=2", {"p/x": "tp=S(1)", "y": "tp=P(sum)"})
    assert pinned is not None
    assert not price(pinned).bytes


@pytest.mark.parametrize(
    ("pins", "communication", "possible"),
    [
        ({"x": "tp=S(1)", "w": "tp=S(0)", "p": "tp=R"}, "any", True),
        # An output is made without P, and the bias is stored without P.
        ({"x": "tp=S(1)", "w": "tp=S(0)", "p": "tp=P(sum)"}, "frozen", False),
        ({"x": "tp=S(1)", "w": "tp=S(0)", "p": "tp=P(sum)", "y": "tp=P(sum)"}, "frozen", False),
        ({"x": "tp=S(1)", "w": "tp=S(0)", "p": "tp=R"}, "frozen", False),
        ({"x": "tp=S(1)", "w": "tp=S(0)", "p": "tp=R"}, "none", False),
        ({"x": "tp=S(1)", "w": "tp=R", "p": "tp=P(sum)"}, "none", False),
        ({"x": "tp=S(1)", "w": "tp=R", "p": "tp=P(sum)", "y": "tp=P(sum)"}, "none", True),
        ({"x": "tp=P(sum)"}, "any", False),
        ({"p/x": "tp=S(1)", "p/y": "tp=S(1)"}, "any", False),
        ({"b": "tp=S(0)"}, "any", True),
    ],
)
def test_what_pins_and_communication_allow(pins: Any, communication: str, possible: bool) -> None:
    assert (cheapest(biased(), "tp=2", pins, communication) is not None) == possible


def test_a_pin_that_does_not_divide_or_sits_on_an_axis_of_size_1() -> None:
    assert cheapest(diamond(), "dp=4,tp=1", {"x": "dp=S(1)"}) is None
    assert cheapest(diamond(), "dp=4,tp=1", {"x": "tp=S(1)"}) is not None
    assert cheapest(diamond(), "dp=4,tp=1", {"x": "tp=P(max)"}) is not None


def test_a_pin_on_parts_means_the_cut_and_not_the_words() -> None:
    for flat in ("dp=S(0),tp=S(0)", "dp=S(0),tp=S(0,part=1)"):
        plan = cheapest(flattened(), "dp=2,tp=2", {"flat": flat, "x": "dp=S(0),tp=S(1)"}, "frozen")
        assert plan is not None
        assert layout_text(plan.layout("flat")) == "[S(0), S(0)]"


def test_a_constant_is_stored_whole() -> None:
    graph = Graph()
    graph.output(graph.op("exp", graph.constant("c", np.ones(4, np.float32)), name="y"))
    assert cheapest(graph, "tp=2", {"c": "tp=S(0)"}) is None
    assert cheapest(graph, "tp=2", {"y/x": "tp=S(0)"}, "frozen") is None
    assert cheapest(graph, "tp=2", {"y/x": "tp=S(0)"}, "none") is not None


def test_a_kind_that_no_op_produces_and_no_pin_names_is_not_there() -> None:
    assert Task(mlp(), Mesh({"tp": 2})).kinds == ["sum"]
    assert Task(mlp(), Mesh({"tp": 2}), {"h": "tp=P(max)"}).kinds == ["sum", "max"]


def test_a_pin_on_what_is_not_there_is_an_error() -> None:
    with pytest.raises(KeyError, match="no tensors and no uses"):
        Task(mlp(), Mesh({"tp": 2}), {"nothing": "tp=R"})


def test_memory_by_hand() -> None:
    """x 8x4 and w 4x8 stay; h, a, y come and go: 128 + 128 + 128 bytes of sources, then 256 + 256, then 256 + 128."""
    plan = cheapest(mlp(), "tp=1")
    assert plan is not None
    assert peak_memory(plan) == 3 * 128 + 256 + 256


def test_a_wrong_plan_is_seen() -> None:
    """A sum that is taken for the whole, and blocks that are taken for others: the run says that they are wrong."""
    plan = cheapest(mlp(), "tp=2", {"x": "tp=S(1)", "w1": "tp=S(0)", "h/x": "tp=S(1)", "h": "tp=R"})
    assert plan is not None
    assert run(plan).error < 1e-12
    forgotten = Plan(plan.task, plan.choices, plan.made | {"h": (Replicate(),)}, plan.held, plan.delivered)
    assert run(forgotten).error > 0.1
    whole = np.arange(16.0).reshape(4, 4)
    blocks = cut(whole, (Cut(0, 2),), plan.task)
    assert error(blocks, (Cut(0, 2),), whole, plan.task) == 0
    assert error({(0,): blocks[1,], (1,): blocks[0,]}, (Cut(0, 2),), whole, plan.task) > 0.1


@pytest.mark.parametrize("communication", ["any", "frozen"])
def test_what_a_kernel_reduces_inside_is_priced_and_counted(communication: str) -> None:
    """The weighted mean of a loss adds up the loss and the weights over the devices: two all_reduces of one element."""
    graph = Graph()
    loss = graph.op("nll_loss", graph.input("x", (8, 4)), graph.input("label", (8,), dtype="int64"), name="loss")
    graph.output(*loss)
    pins = {"x": "tp=S(0)", "loss/input": "tp=S(0)"}
    able = frozenset({"synced_kernels"})
    plan = cheapest(graph, "tp=4", pins, communication, capabilities=able)
    assert plan is not None
    assert price(plan).kernels == 2 * (4 * 10**6 + 24 * 10)
    assert price(plan).bytes["all_reduce"] == 48
    assert run(plan).bytes == price(plan).bytes
    assert run(plan).error < 1e-12
    assert cheapest(graph, "tp=4", pins, "none", capabilities=able) is None
    assert cheapest(graph, "tp=4", pins, communication) is None
