"""The cost network says what a plan costs: of any assignment, not of the best only; useless copies are useless."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from solver import Mesh, reference
from solver.choice import Choice, Evaluation
from solver.cost.reshard import reshard_table
from solver.layout import one_part
from solver.problem import Problem, problem
from solver.reference_layout import lie
from solver.reference_task import Task
from solver.search.build import Built, build
from solver.search.copies import relayed, useful_pairs
from solver.search.network import INF, arc_consistency
from tests.graphs import HARDWARE, Case, random_graphs

SOME = settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


def priced_by_the_reference(case: Case, wishes: Problem, choice: Choice) -> int | None:
    """Return what the reference says of a choice, delivered in the cheapest way; None where it is no plan."""
    task = Task(case.graph, case.mesh, case.pins, case.communication, case.capabilities)
    found = Evaluation(wishes, choice)
    tensors = case.graph.tensors
    made = {t: lie(found.made(t), wishes.parts(t), case.mesh.sizes) for t in tensors}
    held = {t: lie(found.held(t), wishes.parts(t), case.mesh.sizes) for t in tensors}
    choices = {
        node: next(picked for picked in task.choices(node) if list(picked.rows) == list(found.rows(node)))
        for node in case.graph.nodes
    }
    tied = {t: [made[task.ties[t]]] for t in task.ties if tensors[t].producer is not None}
    prices = []
    for delivered in product(*(tied.get(t) or task.deliveries(t) for t in case.graph.outputs)):
        plan = reference.Plan(task, choices, made, held, dict(zip(case.graph.outputs, delivered, strict=True)))  # type: ignore[arg-type]
        if plan.reshards is not None:
            prices.append(reference.price(plan).time)
    return min(prices, default=None)


def drawn(built: Built, seed: int) -> tuple[int, ...] | None:
    """Draw an assignment from what arc consistency leaves."""
    left = arc_consistency(built.network)
    draw = np.random.default_rng(seed)
    return tuple(int(draw.choice(np.flatnonzero(mask))) for mask in left.domains) if left.feasible else None


@SOME
@given(case=random_graphs(max_ops=4), seed=st.integers(0, 2**32 - 1))
def test_an_assignment_costs_what_its_plan_costs(case: Case, seed: int) -> None:
    wishes = problem(
        case.graph, case.mesh, pins=case.pins, communication=case.communication, capabilities=case.capabilities
    )
    built = build(wishes)
    for again in range(4):
        assignment = drawn(built, seed + again)
        if assignment is None:
            return
        cost, choice = built.network.cost(assignment), built.choice(assignment)
        if cost < INF:
            total = Evaluation(wishes, choice).total
            assert priced_by_the_reference(case, wishes, choice) == total
            drawn_far = wishes.ties or any(pairs.relay and name in choice.held for name, pairs in built.pairs.items())
            assert total <= cost if drawn_far else total == cost  # a read may be drawn from the farther copy


@pytest.mark.parametrize("hardware", sorted(HARDWARE))
@pytest.mark.parametrize("local_only", [False, True])
def test_a_copy_that_is_left_out_is_never_better(hardware: str, local_only: bool) -> None:
    mesh = Mesh({"dp": 2, "tp": 2}, hardware=HARDWARE[hardware])
    table = reshard_table((4, 4), 4, one_part((4, 4)), mesh, ("sum",), local_only)
    prices, every = table.time, np.arange(len(table.layouts), dtype=np.int32)
    for seed in range(30):
        draw = np.random.default_rng(seed)
        made = np.sort(draw.choice(every, int(draw.integers(1, 5)), replace=False))
        needs = [
            np.sort(draw.choice(every, int(draw.integers(1, 3)), replace=False)) for _ in range(draw.integers(0, 4))
        ]
        delivery = prices[:, : int(draw.integers(1, 4))].min(axis=1) if draw.random() < 0.5 else None
        pairs = useful_pairs(made, None, prices, needs, delivery, copies=True)
        for m in made:
            useful = pairs.held[pairs.made == m]
            assert m in useful
            for wanted in product(*needs):
                assert cheapest(prices, m, useful, wanted, delivery) == cheapest(prices, m, every, wanted, delivery)


@pytest.mark.parametrize("hardware", sorted(HARDWARE))
@pytest.mark.parametrize("local_only", [False, True])
def test_what_is_read_twice_is_read_from_what_is_held(hardware: str, local_only: bool) -> None:
    """Two reads cost as much where both must read the copy as where each may read what was made."""
    mesh = Mesh({"dp": 2, "tp": 2}, hardware=HARDWARE[hardware])
    prices = reshard_table((4, 4), 4, one_part((4, 4)), mesh, ("sum",), local_only).time
    every = np.arange(len(prices), dtype=np.int32)
    relay = relayed(len(prices), None, tied=False)
    assert relay.made.tolist() == relay.held.tolist() == every.tolist()
    for m, *wanted in product(every, repeat=3):
        both = np.minimum(INF, prices[m] + prices[:, wanted[0]] + prices[:, wanted[1]]).min()
        assert both == cheapest(prices, m, every, tuple(wanted), None)


def cheapest(prices: np.ndarray, m: int, held: np.ndarray, wanted: tuple[int, ...], delivery: np.ndarray | None) -> int:
    """Return the least price of a tensor made as m over some held layouts."""
    best = INF
    for h in held:
        parts = [prices[m, h], *(min(prices[m, n], prices[h, n]) for n in wanted)]
        parts += [] if delivery is None else [min(delivery[m], delivery[h])]
        best = min(best, INF if max(parts) >= INF else int(sum(parts)))
    return best


def test_pins_leave_only_what_they_allow() -> None:
    table = reshard_table((4, 4), 4, one_part((4, 4)), Mesh({"tp": 2}), ("sum",))
    allowed = np.array([1], np.int32)
    pairs = useful_pairs(np.array([0, 1], np.int32), allowed, table.time, [], None, copies=True)
    assert list(zip(pairs.made.tolist(), pairs.held.tolist(), strict=True)) == [(1, 1), (0, 1)]
    frozen = useful_pairs(np.array([0, 1], np.int32), allowed, table.time, [], None, copies=False)
    assert list(zip(frozen.made.tolist(), frozen.held.tolist(), strict=True)) == [(1, 1)]
