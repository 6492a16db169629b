"""The reference is held against hand computation, against its own plain enumeration, and against numeric truth."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest
from graphs import HAND_MADE, HARDWARE, Case, biased, diamond, flattened, merged, mlp, random_graphs, shared, squared
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ops.placement import Layout, Partial, Parts, Replicate, Shard, layout_text, parse_placement
from solver.cost.memory import Stored, plan_memory
from solver.graph import Graph
from solver.layout import canonical, legal, legal_layouts
from solver.mesh import Mesh
from solver.reference import Plan, best, plans, price
from solver.reference_layout import IMPOSSIBLE, Cut, Lie, Space, indices, lie
from solver.reference_run import cut, error, peak_memory, perform, run
from solver.reference_task import Task

ROUND = {
    "name": "round",
    "peak": {"float32": 10**12},
    "memory_bandwidth": 10**12,
    "memory": 10**9,
    "node_size": 64,
    "inside": {"bandwidth": 10**11, "latency": 10**6},
    "network": {"bandwidth": 10**10, "latency": 10**7},
}
"""The hardware of the examples in docs/semantics.md: a byte takes 10 ps on a link and 1 ps in memory."""
SHARED_PINS = {"x": "tp=S(1)", "w": "tp=S(0)", "p/x": "tp=S(1)", "relu/x": "tp=R", "exp/x": "tp=R", "tanh/x": "tp=R"}
MESHES_AND_PARTS: list[tuple[tuple[int, ...], Parts]] = [
    ((2,), ((4,), (2,))),
    ((3,), ((6,), (4,))),
    ((2, 2), ((8,),)),
    ((2, 2), ((2, 4),)),
    ((2, 4), ((4, 2), (4,))),
    ((2, 3), ((3, 2), (2,))),
    ((2, 2), ((2, 2), (4,))),
    ((1, 4), ((4,), (2, 4))),
    ((2, 2, 2), ((2, 2, 2),)),
    ((2, 2, 2), ((4, 2), (2,))),
    ((4, 2, 2), ((4, 4),)),
]


def layout(text: str) -> Layout:
    return (
        tuple(
            parse_placement(piece) for piece in text.strip("[]").replace(",part", ";part").replace(" ", "").split(",")
        )
        if ("part" not in text)
        else tuple(
            parse_placement(piece.replace(";", ",")) for piece in text.strip("[]").replace(",part", ";part").split(", ")
        )
    )


def space_of(
    sizes: tuple[int, ...], parts: Parts, itemsize: int = 4, kinds: tuple[str, ...] = ("sum", "avg"), **mode: str
) -> Space:
    mesh = Mesh(dict(zip(("dp", "tp", "pp"), sizes, strict=False)), hardware=ROUND)
    return Space([prod(split) for split in parts], itemsize, parts, mesh, kinds, **mode)


# ---------------------------------------------------------------------------------------------------------- 1: layouts


@pytest.mark.parametrize(
    ("parts", "sizes", "text", "steps", "held"),
    [
        ((8,), (2, 2), "[S(0), R]", (4, None), [4, 5, 6, 7]),
        ((8,), (2, 2), "[S(0), S(0)]", (4, 2), [4, 5]),
        ((2, 4), (2, 2), "[R, S(0,part=1)]", (None, 2), [0, 1, 4, 5]),
        ((2, 4), (2, 2), "[S(0), S(0,part=1)]", (4, 2), [4, 5]),
        ((4, 2), (2, 2), "[S(0), S(0,part=1)]", (4, 1), [4, 6]),
        ((2, 4), (2, 2), "[S(0,part=1), S(0)]", (2, 4), [2, 3]),
    ],
)
def test_the_table_of_cuts(
    parts: tuple[int, ...], sizes: tuple[int, ...], text: str, steps: tuple[int | None, ...], held: list[int]
) -> None:
    lies = lie(layout(text), (parts,), sizes)
    assert lies == tuple(Replicate() if step is None else Cut(0, step) for step in steps)
    assert lies is not None
    assert indices(lies, (8,), sizes, (1, 0)) == [held]


@pytest.mark.parametrize(
    ("parts", "sizes", "text"),
    [
        (((6,),), (4,), "[S(0)]"),
        (((8,),), (4, 4), "[S(0), S(0)]"),
        (((2, 4),), (4, 2), "[S(0), S(0,part=1)]"),
        (((8,),), (2,), "[S(0,part=1)]"),
        (((8,),), (2, 2), "[P(sum), P(max)]"),
    ],
)
def test_what_is_not_legal(parts: Parts, sizes: tuple[int, ...], text: str) -> None:
    assert lie(layout(text), parts, sizes) is None


def test_a_mesh_axis_of_size_1_does_nothing() -> None:
    assert lie(layout("[S(0), P(sum)]"), ((3,),), (1, 2)) == (Replicate(), Partial("sum"))
    assert lie(layout("[P(max), P(sum)]"), ((3,),), (1, 2)) == (Replicate(), Partial("sum"))


@pytest.mark.parametrize(("sizes", "parts"), MESHES_AND_PARTS)
def test_cuts_are_the_contiguous_blocks_of_spans(sizes: tuple[int, ...], parts: Parts) -> None:
    """The block by the definition (reshape to parts, cut each span contiguously) is the block by steps."""
    space = space_of(sizes, parts)
    whole = np.arange(prod(space.shape)).reshape(space.shape)
    for lies, written in space.written.items():
        for way, at in product(written, space.mesh.coordinates()):
            by_spans = block_by_spans(whole, way, parts, sizes, at)
            by_steps = whole[np.ix_(*indices(lies, space.shape, sizes, at))]
            assert np.array_equal(by_spans, by_steps), (layout_text(way), at)


def block_by_spans(
    whole: np.ndarray[Any, Any], way: Layout, parts: Parts, sizes: tuple[int, ...], at: tuple[int, ...]
) -> Any:
    """Reshape to parts, merge the parts of each span, slice it contiguously, reshape back."""
    block = whole
    for dim, split in enumerate(parts):
        named = sorted({p.part for p in way if isinstance(p, Shard) and p.dim == dim})
        starts = sorted({0, *named})
        shape = [prod(split[a:b]) for a, b in zip(starts, [*starts[1:], len(split)], strict=True)]
        before, after = block.shape[:dim], block.shape[dim + 1 :]
        spans = block.reshape(*before, *shape, *after)
        for place, start in enumerate(starts):
            for axis, p in enumerate(way):
                if isinstance(p, Shard) and (p.dim, p.part) == (dim, start):
                    spans = np.split(spans, sizes[axis], axis=dim + place)[at[axis]]
        block = spans.reshape(*before, -1, *after)
    return block


@pytest.mark.parametrize(("sizes", "parts"), MESHES_AND_PARTS)
def test_canonical_form_and_order_are_those_of_the_planner(sizes: tuple[int, ...], parts: Parts) -> None:
    """Two definitions: the smallest part numbers of all ways to write, and the merging of groups from left to right."""
    space = space_of(sizes, parts)
    assert tuple(written[0] for written in space.written.values()) == legal_layouts(
        space.shape, parts, sizes, ("sum", "avg")
    )
    placements = [Replicate(), *(Shard(d, i) for d, split in enumerate(parts) for i in range(len(split)))]
    for way in product(placements, repeat=len(sizes)):
        lies = lie(way, parts, sizes)
        assert (lies is not None) == legal(way, space.shape, parts, sizes)
        if lies is not None:
            assert space.written[lies][0] == canonical(way, parts, sizes)


@pytest.mark.parametrize(("sizes", "parts"), MESHES_AND_PARTS)
def test_layouts_are_different_where_the_devices_hold_different_data(sizes: tuple[int, ...], parts: Parts) -> None:
    space = space_of(sizes, parts, kinds=())
    held = [
        tuple(map(str, (indices(lies, space.shape, sizes, at) for at in space.mesh.coordinates())))
        for lies in space.written
    ]
    assert len(set(held)) == len(held)


# --------------------------------------------------------------------------------------------------------- 3: reshards


def path_between(space: Space, source: str, target: str) -> tuple[list[str], int, int]:
    ways = {layout_text(way): lies for lies, written in space.written.items() for way in written}
    path = space.paths(ways[source])[ways[target]]
    return [move.kind for move in path.moves], path.bytes, path.time


@pytest.mark.parametrize(
    ("source", "target", "moves", "sent", "time"),
    [
        ("[P(sum)]", "[R]", ["all_reduce"], 12288, 4_122_880),
        ("[P(sum)]", "[S(0)]", ["reduce_scatter"], 6144, 2_061_440),
        ("[P(sum)]", "[S(1)]", ["reduce_scatter"], 6144, 2_061_440 + 8192),
        ("[S(0)]", "[R]", ["all_gather"], 6144, 2_061_440),
        ("[S(1)]", "[R]", ["all_gather"], 6144, 2_061_440 + 8192),
        ("[S(0)]", "[S(1)]", ["all_gather", "slice"], 6144, 2_061_440),
        ("[R]", "[S(1)]", ["slice"], 0, 0),
        ("[R]", "[P(sum)]", ["zero_fill"], 0, 8192),
        ("[R]", "[P(avg)]", ["relabel"], 0, 0),
        ("[S(1)]", "[P(sum)]", ["zero_fill"], 0, 8192),
        ("[S(1)]", "[P(avg)]", ["zero_fill", "scale"], 0, 2 * 8192),
        ("[P(avg)]", "[P(sum)]", ["scale"], 0, 8192),
        ("[S(1)]", "[S(1)]", [], 0, 0),
    ],
)
def test_the_prices_of_the_page(source: str, target: str, moves: list[str], sent: int, time: int) -> None:
    space = space_of((4,), ((32,), (64,)))
    assert path_between(space, source, target) == (moves, sent, time)


@pytest.mark.parametrize(
    ("sizes", "parts", "source", "target", "moves"),
    [
        ((2, 2), ((8,), (4,)), "[S(0), R]", "[R, S(0)]", ["permute"]),
        ((2, 2), ((8,), (4,)), "[S(0), S(1)]", "[S(1), S(0)]", ["permute"]),
        ((2, 2), ((8,), (4,)), "[P(sum), S(0)]", "[S(0), P(sum)]", ["permute"]),
        ((2, 4), ((4, 2),), "[S(0), S(0)]", "[S(0,part=1), S(0)]", ["permute"]),
        # dp cannot leave one part before tp does; on parts it can.
        ((2, 2), ((8,),), "[S(0), S(0)]", "[R, S(0)]", ["all_gather", "permute"]),
        ((2, 4), ((2, 4),), "[S(0), S(0)]", "[R, S(0,part=1)]", ["all_gather"]),
        ((2, 2), ((8,), (8,)), "[P(sum), R]", "[S(0), S(1)]", ["slice", "reduce_scatter"]),
    ],
)
def test_moves_of_several_mesh_axes(
    sizes: tuple[int, ...], parts: Parts, source: str, target: str, moves: list[str]
) -> None:
    assert path_between(space_of(sizes, parts), source, target)[0] == moves


def test_all_to_all_is_the_move_where_latency_is_small() -> None:
    mesh = Mesh({"tp": 4}, hardware={**ROUND, "inside": {"bandwidth": 10**11, "latency": 1}})
    space = Space((32, 64), 4, ((32,), (64,)), mesh, ("sum",))
    assert path_between(space, "[S(0)]", "[S(1)]") == (["all_to_all"], 1536, 3 + 15_360 + 2_048)


@pytest.mark.parametrize(("sizes", "parts"), MESHES_AND_PARTS)
def test_prices_obey_the_triangle_and_are_those_of_their_paths(sizes: tuple[int, ...], parts: Parts) -> None:
    space = space_of(sizes, parts)
    times = space.times
    assert (times[:, :, None] + times[None, :, :] >= times[:, None, :]).all()
    assert (np.diag(times) == 0).all()
    for source, target in product(space.written, repeat=2):
        path = space.paths(source)[target]
        assert path.time == times[space.rank[source], space.rank[target]] == sum(move.time for move in path.moves)
        assert path.bytes == sum(move.bytes for move in path.moves)
        assert [move.source for move in path.moves] == [source, *(move.target for move in path.moves)][
            : len(path.moves)
        ]


def test_prices_do_not_fall_with_the_item_size() -> None:
    small, large = (space_of((2, 2), ((4,), (2, 2)), itemsize).times for itemsize in (2, 4))
    assert (small <= large).all()
    assert (small < large).any()


@pytest.mark.parametrize(("sizes", "parts"), MESHES_AND_PARTS)
def test_without_communication_nothing_is_sent_and_frozen_means_nothing_moves(
    sizes: tuple[int, ...], parts: Parts
) -> None:
    silent, frozen = (space_of(sizes, parts, communication=mode) for mode in ("none", "frozen"))
    assert all(path.bytes == 0 for lies in silent.written for path in silent.paths(lies).values())
    assert (silent.times >= space_of(sizes, parts).times).all()
    assert (frozen.times == np.where(np.eye(len(frozen.written), dtype=bool), 0, IMPOSSIBLE)).all()


@pytest.mark.parametrize(("sizes", "parts"), MESHES_AND_PARTS)
def test_every_move_carries_the_tensor_and_sends_the_bytes_of_its_price(sizes: tuple[int, ...], parts: Parts) -> None:
    """Every move is run on devices; partial layouts start from unequal terms, so that nothing is right by luck."""
    space = space_of(sizes, parts)
    graph = Graph()
    graph.output(graph.input("x", space.shape))
    task = Task(graph, space.mesh)
    whole = np.random.default_rng(0).normal(size=space.shape)
    for source in space.written:
        blocks = unequal_terms(whole, source, task)
        assert error(blocks, source, whole, task) < 1e-12
        for move in space.moves[source]:
            after, counts = perform(move, blocks, space)
            assert error(after, move.target, whole, task) < 1e-12, move
            assert max(counts.values()) * space.itemsize == move.bytes


def unequal_terms(whole: np.ndarray[Any, Any], lies: Lie, task: Task) -> dict[tuple[int, ...], Any]:
    """Deal random terms that combine to the whole: the last one makes up for the others."""
    sizes, random = task.mesh.sizes, np.random.default_rng(1)
    axes = [axis for axis, placement in enumerate(lies) if isinstance(placement, Partial)]
    count = prod(sizes[axis] for axis in axes if lies[axis] == Partial("avg"))
    places = list(product(*(range(sizes[axis]) for axis in axes)))
    terms = {place: random.normal(size=whole.shape) for place in places[:-1]}
    terms[places[-1]] = whole * count - sum(terms.values())
    return {at: cut(terms[tuple(at[axis] for axis in axes)], lies, task)[at] for at in task.mesh.coordinates()}


# ----------------------------------------------------------------------------------------------- 2 and 4: whole plans


def task_of(case: Case) -> Task:
    return Task(case.graph, case.mesh, case.pins, case.communication, case.capabilities)


def cheapest(
    graph: Graph, mesh: str, pins: Any = None, communication: str = "any", hardware: Any = ROUND
) -> Plan | None:
    found = best(Task(graph, Mesh.parse(mesh, hardware), pins, communication))
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


@settings(max_examples=100, suppress_health_check=list(HealthCheck))
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
    plan = cheapest(graph, "tp=4", pins, communication)
    assert plan is not None
    assert price(plan).kernels == 2 * (4 * 10**6 + 24 * 10)
    assert price(plan).bytes["all_reduce"] == 48
    assert run(plan).bytes == price(plan).bytes
    assert run(plan).error < 1e-12
    assert cheapest(graph, "tp=4", pins, "none") is None
