"""Layouts and reshards of the reference, held against hand computation, other definitions, and runs on devices."""

from __future__ import annotations

import re
from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest
from graphs import ROUND

from ops.placement import Layout, Partial, Parts, Replicate, Shard, layout_text, parse_placement
from solver.cost.reshard import INF, reshard_table
from solver.graph import Graph
from solver.layout import canonical, legal, legal_layouts
from solver.mesh import Mesh
from solver.reference_layout import IMPOSSIBLE, Cut, Lie, Space, indices, lie
from solver.reference_run import cut, error, perform
from solver.reference_task import Task

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
    return tuple(map(parse_placement, re.split(r", (?=[RSP])", text.strip("[]"))))


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


@pytest.mark.parametrize(("sizes", "parts"), MESHES_AND_PARTS)
def test_prices_and_paths_are_those_of_the_planner(sizes: tuple[int, ...], parts: Parts) -> None:
    kinds = ("sum", "avg") if len(sizes) < 3 else ("sum",)
    for communication in ("any", "none"):
        space = space_of(sizes, parts, kinds=kinds, communication=communication)
        table = reshard_table(space.shape, 4, parts, space.mesh, kinds, local_only=communication == "none")
        assert (np.where(space.times >= IMPOSSIBLE, INF, space.times) == table.time).all()
        for source in space.written:
            for target, path in space.paths(source).items():
                theirs = table.path(space.written[source][0], space.written[target][0])
                assert [(m.kind, m.axes, m.bytes, m.time) for m in theirs] == [
                    (m.kind, m.axes, m.bytes, m.time) for m in path.moves
                ]
