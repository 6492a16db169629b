"""Reshard tables against the reference, which enumerates plainly, and every move of them done on real arrays."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reshard_run import Case, holds, run, spread, whole_tensor

from ops.placement import Layout, layout_text, parse_placement
from solver.cost import reshard
from solver.cost.hardware import load
from solver.cost.reshard import INF, ReshardError, ReshardTable, reshard_table
from solver.layout import LayoutError, legal_layouts, one_part
from solver.mesh import Mesh
from solver.reference_layout import Space


def grid(*sizes: int, ring: bool = False) -> Mesh:
    """A mesh on which every axis has its own link, so that no two of them can be mistaken."""
    links = {f"a{i}": {"bandwidth": 10**9 * (i + 2), "latency": 10**6 // (i + 1), "ring": ring} for i in range(9)}
    return Mesh({f"a{i}": n for i, n in enumerate(sizes)}, hardware=load("cpu").to_json() | {"axes": links})


CASES = {
    "one axis": Case(((8,), (6,)), grid(2), ("sum",)),
    "scalar": Case((), grid(2, 3), ("sum", "avg", "max")),
    "two axes": Case(((8,), (4,)), grid(2, 2), ("sum", "avg")),
    "unequal axes": Case(((12,), (4,)), grid(2, 3), ("max",)),
    "parts": Case(((2, 4),), grid(2, 2, 2), ("sum",)),
    "three parts": Case(((2, 2, 3),), grid(2, 2), ("any", "all")),
    "a cut ends inside a part": Case(((2, 8),), grid(4, 2), ("sum",)),
    "parts of size 1": Case(((1, 4, 1, 2), (2,)), grid(2, 2), ("min",)),
    "unequal axes change their order": Case(((4, 2, 2),), grid(2, 4), ("sum",)),
    "unequal in a group": Case(((16,),), grid(2, 4, 2), ()),
    "ring": Case(((6,), (3, 2)), grid(3, 1, 2, ring=True), ("sum", "max")),
    "nothing divides": Case(((7,), (5,)), grid(2, 4), ("sum",)),
    "empty": Case(((0,), (4,)), grid(2, 2), ("sum",)),
    "local": Case(((4,), (2, 2)), grid(2, 2), ("sum", "avg", "max"), local_only=True),
}
ALL = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


@st.composite
def cases(draw: st.DrawFn) -> Case:
    split = st.lists(st.sampled_from([1, 2, 2, 3, 4]), min_size=1, max_size=3).map(tuple)
    sizes = draw(st.lists(st.sampled_from([1, 2, 2, 2, 3, 4]), min_size=1, max_size=3))
    kinds = draw(st.sampled_from([(), ("sum",), ("sum", "avg"), ("max",), ("any",), ("sum", "min")]))
    ring, local_only = draw(st.booleans()), draw(st.booleans())
    parts = tuple(draw(st.lists(split, min_size=0, max_size=2)))
    return Case(parts, grid(*sizes, ring=ring), kinds, draw(st.sampled_from([1, 2, 8])), local_only)


def table_of(case: Case, **changes: Any) -> ReshardTable:
    wanted = {"itemsize": case.itemsize, "kinds": case.kinds, "local_only": case.local_only} | changes
    return reshard_table(case.shape, parts=case.parts, mesh=case.mesh, **wanted)


def read(text: str) -> Layout:
    return tuple(parse_placement(word) for word in text.split())


# --- the table against the reference


def check_against_the_reference(case: Case) -> None:
    table = table_of(case)
    communication = "none" if case.local_only else "any"
    space = Space(case.shape, case.itemsize, case.parts, case.mesh, case.kinds, communication=communication)
    names = {lies: written[0] for lies, written in space.written.items()}
    assert table.layouts == tuple(names.values()) == legal_layouts(case.shape, case.parts, case.sizes, case.kinds)
    single = [(names[m.source], names[m.target], m) for moves in space.moves.values() for m in moves]
    assert [(case.name(m.source), case.name(m.target), m.kind, m.axes, m.bytes, m.time) for m in table.moves] == [
        (source, target, move.kind, move.axes, move.bytes, move.time) for source, target, move in single
    ]
    for lies, source in names.items():
        paths = {names[end]: path for end, path in space.paths(lies).items()}
        for target in table.layouts:
            time = table.time[table.index[source], table.index[target]]
            if target not in paths:
                assert time == INF
                with pytest.raises(ReshardError, match="no moves that send nothing lead from"):
                    table.path(source, target)
                continue
            assert time == paths[target].time
            told = [(m.kind, m.axes, case.name(m.source), case.name(m.target)) for m in table.path(source, target)]
            assert told == [(m.kind, m.axes, names[m.source], names[m.target]) for m in paths[target].moves]


@ALL
def test_moves_prices_and_paths_are_the_reference_s(case: Case) -> None:
    check_against_the_reference(case)


@settings(max_examples=40)
@given(cases())
def test_moves_prices_and_paths_are_the_reference_s_everywhere(case: Case) -> None:
    if len(table_of(case).layouts) <= 60:
        check_against_the_reference(case)


# --- every move is executable


@ALL
def test_every_move_makes_the_target(case: Case) -> None:
    check_every_move(case)


@settings(max_examples=25)
@given(cases())
def test_every_move_makes_the_target_everywhere(case: Case) -> None:
    if len(table_of(case).layouts) <= 60:
        check_every_move(case)


def check_every_move(case: Case) -> None:
    rng = np.random.default_rng(7)
    array = whole_tensor(case, rng)
    for move in table_of(case).moves:
        state = spread(case, move.source, array, rng)
        assert holds(case, move.source, state, array)
        result, sent = run(case, move, state)
        assert holds(case, move.target, result, array), move
        assert sent * case.itemsize == move.bytes, move


def test_a_wrong_result_is_seen() -> None:
    case = CASES["two axes"]
    rng = np.random.default_rng(7)
    array = whole_tensor(case, rng)
    state = spread(case, read("P S0"), array, rng)
    assert not holds(case, read("R S0"), state, array)
    assert not holds(case, read("S0 P"), state, array)


@settings(max_examples=30)
@given(cases(), st.data())
def test_a_whole_path_makes_the_target(case: Case, data: st.DataObject) -> None:
    table = table_of(case)
    source, target = (data.draw(st.sampled_from(table.layouts)) for _ in range(2))
    if table.time[table.index[source], table.index[target]] < INF:
        rng = np.random.default_rng(11)
        array = whole_tensor(case, rng)
        state = spread(case, source, array, rng)
        for move in table.path(source, target):
            state, _ = run(case, move, state)
        assert holds(case, target, state, array)


# --- laws of prices


@given(cases())
def test_laws(case: Case) -> None:
    table = table_of(case)
    time = table.time
    assert (np.diag(time) == 0).all()
    assert (time >= 0).all()
    assert (time <= INF).all()
    for middle in range(len(time)):  # triangle inequality
        assert (time <= np.minimum(time[:, middle, None] + time[None, middle], INF)).all()
    larger = table_of(case, itemsize=case.itemsize * 2)
    assert (larger.time >= time).all()
    assert (table_of(case, local_only=True).time >= table_of(case, local_only=False).time).all()
    columns = np.random.default_rng(3).permutation(len(time))[: max(1, len(time) // 2)]
    np.testing.assert_array_equal(table.times_to(columns.tolist()), time[:, columns])
    assert table.times_to([]).shape == (len(time), 0)


@given(cases())
def test_axes_of_size_1_change_nothing(case: Case) -> None:
    sizes = [n for n in case.sizes if n > 1]
    links = [link for link, n in zip(case.mesh.links, case.sizes, strict=True) if n > 1]
    if sizes:
        axes = {f"b{i}": {"bandwidth": k.bandwidth, "latency": k.latency, "ring": k.ring} for i, k in enumerate(links)}
        mesh = Mesh({f"b{i}": n for i, n in enumerate(sizes)}, hardware=load("cpu").to_json() | {"axes": axes})
        thin = reshard_table(case.shape, case.itemsize, case.parts, mesh, case.kinds, case.local_only)
        np.testing.assert_array_equal(thin.time, table_of(case).time)


def test_the_uncompiled_loop_gives_the_same() -> None:
    from solver.cost.shortest import relax

    case = CASES["parts"]
    table = table_of(case)
    starts = np.searchsorted(table._sources, np.arange(len(table.layouts) + 1))
    times = np.where(np.eye(len(table.layouts), dtype=bool), 0, INF)
    relax.py_func(starts, table._targets, table._moves.time, times)
    np.testing.assert_array_equal(times, table.time)


# --- what falls out of the shortest path, by hand

LINE = Mesh({"tp": 8}, hardware="h100")
NODE = Mesh({"dp": 2, "tp": 4}, hardware="h100")  # inside one node: equal links
CLUSTER = Mesh({"dp": 2, "tp": 8}, hardware="h100")  # dp goes over the network
BY_HAND = [  # mesh, shape, source, target, moves
    (NODE, (4096, 4096), "R R", "R R", []),
    (LINE, (4096, 4096), "P", "R", ["all_reduce tp"]),
    (LINE, (4096, 4096), "P", "S0", ["reduce_scatter tp"]),
    # Two replicas of a reduction do it in halves, and exchange these.
    (NODE, (4096, 4096), "R P", "R R", ["slice dp", "all_reduce tp", "all_gather dp"]),
    (NODE, (64, 64), "R P", "R R", ["all_reduce tp"]),
    (NODE, (4096, 4096), "R S0", "R R", ["all_gather tp"]),
    (NODE, (4096, 4096), "R S0", "R S1", ["all_to_all tp"]),
    (NODE, (4096, 4096), "R R", "S0 S1", ["slice dp", "slice tp"]),
    (NODE, (4096, 4096), "R R", "R P", ["zero_fill tp"]),
    (NODE, (4096, 4096), "R R", "R P(max)", ["relabel tp"]),
    (NODE, (4096, 4096), "R P", "R P(avg)", ["scale tp"]),
    (NODE, (4096, 4096), "R P", "S0 S1", ["slice dp", "reduce_scatter tp"]),  # slicing first halves the reduction
    (NODE, (4096, 4096), "R P", "S0 R", ["slice dp", "all_reduce tp"]),
    (NODE, (4096, 4096), "S0 S0", "R R", ["all_gather tp", "all_gather dp"]),
    (NODE, (4096, 4096), "S0 S1", "R S1", ["all_gather dp"]),
    (NODE, (7,), "P P", "R R", ["all_reduce dp", "all_reduce tp"]),
    # Over the slow axis an eighth is enough: the fast axis scatters before and gathers after.
    (CLUSTER, (2**22,), "P P", "R R", ["reduce_scatter tp", "all_reduce dp", "all_gather tp"]),
    (CLUSTER, (4096, 4096), "S0 R", "R R", ["slice tp", "all_gather dp", "all_gather tp"]),
    (CLUSTER, (64,), "S0 R", "R R", ["all_gather dp"]),  # too small to be worth two
]


@pytest.mark.parametrize(("mesh", "shape", "source", "target", "moves"), BY_HAND)
def test_by_hand(mesh: Mesh, shape: tuple[int, ...], source: str, target: str, moves: list[str]) -> None:
    table = reshard_table(shape, 2, one_part(shape), mesh, ("sum", "avg", "max"))
    path = table.path(read(source), read(target))
    assert [f"{move.kind} {' '.join(mesh.axes[axis] for axis in move.axes)}" for move in path] == moves


def test_permute_moves_a_cut_to_another_axis() -> None:
    mesh = Mesh({"a": 4, "b": 4}, hardware="h100")
    table = reshard_table((64, 64), 4, one_part((64, 64)), mesh, ())
    assert [move.kind for move in table.path(read("S0 R"), read("R S0"))] == ["permute"]
    (move,) = table.path(read("S0 S1"), read("S1 S0"))
    assert (move.kind, move.axes, move.bytes) == ("permute", (0, 1), 16 * 16 * 4)
    assert move.time == mesh.links[0].latency + -(-1024 * 10**12 // mesh.links[0].bandwidth)  # a is the slower axis


def test_a_permute_past_a_third_axis_of_the_same_cut_names_it() -> None:
    table = reshard_table((16,), 4, ((16,),), grid(2, 4, 2), ())
    (move,) = table.path(read("S0 S0 R"), read("R S0 S0"))
    assert (move.kind, move.axes) == ("permute", (0, 1, 2))


def test_mesh_axes_change_their_order_in_a_dim_by_a_permute() -> None:
    table = reshard_table((8,), 4, ((4, 2),), NODE, ())
    (move,) = table.path(read("S0 S0"), read("S(0,part=1) S0"))
    assert (move.kind, move.axes, move.bytes) == ("permute", (0, 1), 4)
    assert [move.sender((2, 4), (dp, tp)) for dp in range(2) for tp in range(4)] == [
        (0, 0),
        (0, 2),
        (1, 0),
        (1, 2),
        (0, 1),
        (0, 3),
        (1, 1),
        (1, 3),
    ]


def test_an_outer_axis_comes_off_alone_on_its_own_part() -> None:
    split = reshard_table((2 * 1024,), 4, ((2, 1024),), NODE, ())
    assert [move.kind for move in split.path(read("S0 S0"), read("R S(0,part=1)"))] == ["all_gather"]
    (move,) = split.path(read("S0 S0"), read("R S(0,part=1)"))
    assert layout_text(move.source) == "[S(0), S(0,part=1)]"
    assert [move.kind for move in split.path(read("S0 S(0,part=1)"), read("S0 S0"))] == []


def test_only_the_innermost_axis_of_a_cut_comes_off() -> None:
    table = reshard_table((64,), 4, ((64,),), grid(2, 4), ())
    path = table.path(read("S0 S0"), read("R S0"))
    assert [move.kind for move in path] == ["all_gather", "all_gather", "slice"]


def test_a_dim_that_is_not_leading_adds_a_copy() -> None:
    mesh = Mesh({"tp": 4}, hardware="h100")
    table = reshard_table((64, 64), 4, one_part((64, 64)), mesh, ("sum",))
    copy = -(-64 * 64 * 4 * 10**12 // mesh.hardware.memory_bandwidth)
    first, second = (table.time[table.place(read(cut)), table.place(read("R"))] for cut in ("S0", "S1"))
    assert second - first == copy
    thin = reshard_table((1, 64), 4, one_part((1, 64)), mesh, ("sum",))
    flat = reshard_table((64,), 4, one_part((64,)), mesh, ("sum",))
    assert (
        thin.time[thin.place(read("S1")), thin.place(read("R"))]
        == flat.time[flat.place(read("S0")), flat.place(read("R"))]
    )


def test_local_only() -> None:
    table = reshard_table((8, 8), 4, one_part((8, 8)), grid(2, 2), ("sum",), local_only=True)
    time = {
        (a, b): int(table.time[table.place(read(a)), table.place(read(b))])
        for a, b in permutations(("R R", "S0 R", "S0 P"), 2)
    }
    assert time["R R", "S0 R"] == 0
    assert time["S0 R", "R R"] == INF
    assert 0 < time["S0 R", "S0 P"] < INF
    with pytest.raises(ReshardError) as caught:
        table.path(read("S0 R"), read("R R"))
    assert str(caught.value) == (
        "no moves that send nothing lead from [S(0), R] to [R, R]: allow communication, or keep the layout"
    )


def test_buckets_share_latency() -> None:
    mesh = Mesh({"dp": 8}, hardware="h100")
    layouts = read("P"), read("R")
    alone = reshard_table((64,), 4, ((64,),), mesh, ("sum",))
    shared = reshard_table((64,), 4, ((64,),), mesh, ("sum",), bucket=25_000_000)
    (one,), (other,) = alone.path(*layouts), shared.path(*layouts)
    assert (one.kind, one.bytes) == (other.kind, other.bytes)
    assert other.time < one.time / 100


# --- one table a class, and what it refuses


def test_tables_are_shared_by_class_and_not_by_the_way_they_are_asked_for() -> None:
    mesh = grid(2, 2)
    one = reshard_table((8, 4), 4, ((8,), (4,)), mesh, ("avg", "sum"))
    assert reshard_table([8, 4], 4, ((8,), (4,)), grid(2, 2), ("sum", "avg", "sum")) is one
    assert reshard_table((8, 4), 2, ((8,), (4,)), mesh, ("avg", "sum")) is not one
    assert reshard_table((8, 4), 4, ((2, 4), (4,)), mesh, ("avg", "sum")) is not one
    assert reshard_table((8, 4), 4, ((8,), (4,)), grid(2, 2, ring=True), ("avg", "sum")) is not one
    assert reshard_table((8, 4), 4, ((8,), (4,)), mesh, ("sum",)) is not one
    assert not one.time.flags.writeable


def test_the_cache_keeps_few_large_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reshard, "_CACHE", reshard._Cache())
    ask = {n: lambda n=n: reshard_table((n,), 4, ((n,),), grid(2, 2), ("sum",)) for n in (8, 16, 32)}
    first, second = ask[8](), ask[16]()
    monkeypatch.setattr(reshard, "CACHE_BYTES", first.bytes + second.bytes)
    assert ask[8]() is first  # used again: the other one is older now
    ask[32]()
    assert ask[8]() is first
    assert ask[16]() is not second


@settings(max_examples=10)
@given(cases(), st.randoms(use_true_random=False))
def test_paths_do_not_depend_on_what_was_asked_before(case: Case, random: Any) -> None:
    tensor = table_of(case).tensor
    fresh, used = ReshardTable(tensor), ReshardTable(tensor)
    pairs = [(a, b) for a in fresh.layouts[:12] for b in fresh.layouts[:12]]
    pairs = [(a, b) for a, b in pairs if fresh.time[fresh.index[a], fresh.index[b]] < INF]
    shuffled = random.sample(pairs, len(pairs))
    found = {pair: used.path(*pair) for pair in shuffled}
    assert all(fresh.path(*pair) == found[pair] for pair in pairs)


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        (
            lambda: reshard_table((8,), 0, ((8,),), CLUSTER, ()),
            ReshardError,
            "an item has at least one byte, and so has a bucket: itemsize=0, bucket=None",
        ),
        (
            lambda: reshard_table((8,), 4, ((8,),), CLUSTER, (), bucket=0),
            ReshardError,
            "an item has at least one byte, and so has a bucket: itemsize=4, bucket=0",
        ),
        (
            lambda: reshard_table((8,), 4, ((4,),), CLUSTER, ()),
            LayoutError,
            "the parts (4,) of dim 0 do not multiply to its size 8",
        ),
        (
            lambda: reshard_table((8,), 4, ((8,),), CLUSTER, ("mean",)),
            LayoutError,
            "'mean' is not a partial kind: use some of sum, avg, max, min, any, all",
        ),
        (
            lambda: reshard_table((6,), 4, ((6,),), CLUSTER, ()).place(read("R S0")),
            ReshardError,
            (
                "a tensor of shape (6,) cannot have the layout [R, S(0)]: "
                "dim 0 of size 6 cannot be cut by mesh axis 1=8: 8 does not divide 6"
            ),
        ),
        (
            lambda: reshard_table((8,), 4, ((8,),), CLUSTER, ("max",)).path(read("R P"), read("R R")),
            ReshardError,
            "[R, P(sum)] has a partial kind that this table leaves out (kinds: max)",
        ),
    ],
)
def test_refusals(ask: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        ask()
    assert str(caught.value) == message


def test_four_mesh_axes_take_less_than_seconds() -> None:
    mesh = Mesh({"a": 2, "b": 4, "c": 4, "d": 4}, hardware="h100")
    shape = (64, 32, 128, 256)
    table = reshard_table(shape, 2, one_part(shape), mesh, ("sum",))
    assert len(table.layouts) == 1289
    assert (table.time < INF).all()
    assert table.path(read("P P S0 S0"), read("R S1 R S2"))
