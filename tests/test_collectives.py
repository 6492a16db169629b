"""Every move on simulated devices: the data is right afterwards, and the bytes counted are those of the move."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.placement import PARTIAL_KINDS, Layout, Partial, Parts, Replicate, Shard, layout_text
from solver.collectives import Devices, agree, combine, ring_all_reduce, ring_reduce_scatter
from solver.cost.moves import KIND
from solver.cost.reshard import reshard_table
from solver.mesh import Mesh
from tests.graphs import HARDWARE
from tests.reshard_run import Case, holds, spread, whole_tensor

R = Replicate()
REDUCE = {"sum": np.sum, "avg": np.mean, "max": np.max, "min": np.min, "any": np.any, "all": np.all}

MESHES = [(2, 3), (2, 2, 2), (4, 2)]
TENSORS: list[Parts] = [((12,), (6,)), ((2, 3, 4),), ((4, 2), (6,)), ((2, 3), (2, 2)), ((5,), (3,)), ()]
KINDS = [("sum", "avg"), ("max", "min"), ("any", "all")]


def mesh_of(sizes: tuple[int, ...]) -> Mesh:
    return Mesh(dict(zip("abc", sizes, strict=False)), hardware=HARDWARE["bandwidth"])


def on_devices(case: Case, layout: Layout, whole: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    placed = spread(case, layout, whole, rng)
    return [placed[at] for at in case.coordinates]


def right(case: Case, layout: Layout, blocks: list[np.ndarray], whole: np.ndarray) -> bool:
    return holds(case, layout, dict(zip(case.coordinates, blocks, strict=True)), whole)


ONE_KIND = [(parts, ("sum",)) for parts in TENSORS]
TWO_KINDS = [(parts, kinds) for parts in (((2, 4), (3,)), ((6,), (4,))) for kinds in KINDS]


@pytest.mark.parametrize(("parts", "kinds"), ONE_KIND + TWO_KINDS, ids=str)
@pytest.mark.parametrize("sizes", MESHES, ids=str)
def test_every_move_is_right_and_sends_what_it_says(
    sizes: tuple[int, ...], parts: Parts, kinds: tuple[str, ...]
) -> None:
    case = Case(parts, mesh_of(sizes), kinds)
    table = reshard_table(case.shape, 4, parts, case.mesh, kinds)
    devices = Devices(sizes, case.shape, parts, 4)
    rng = np.random.default_rng(0)
    whole = whole_tensor(case, rng)
    for move in table.moves:
        told = f"{move.kind} {layout_text(move.source)} -> {layout_text(move.target)}"
        made, sent = devices.move(on_devices(case, move.source, whole, rng), move)
        assert sent == move.bytes, told
        assert right(case, move.target, made, whole), told


@pytest.mark.parametrize("parts", [((12,), (4,)), ((2, 4),), ((4, 2), (6,))], ids=str)
@pytest.mark.parametrize("sizes", MESHES, ids=str)
def test_every_path_is_right_and_its_ends_meet(sizes: tuple[int, ...], parts: Parts) -> None:
    case = Case(parts, mesh_of(sizes), ("sum",))
    table = reshard_table(case.shape, 4, parts, case.mesh, case.kinds)
    devices = Devices(sizes, case.shape, parts, 4)
    rng = np.random.default_rng(1)
    whole = whole_tensor(case, rng)
    every = 1 + len(table.layouts) // 20  # all pairs where there are few, another share from each layout where many
    for i, source in enumerate(table.layouts):
        for target in table.layouts[i % every :: every]:
            blocks = on_devices(case, source, whole, rng)
            for move in table.path(source, target):
                blocks, sent = devices.move(blocks, move)
                assert sent == move.bytes
            assert right(case, target, blocks, whole), f"{layout_text(source)} -> {layout_text(target)}"


def test_the_moves_are_of_all_kinds() -> None:
    found = set()
    for sizes in MESHES:
        for parts in TENSORS:
            table = reshard_table(Case(parts, mesh_of(sizes), ()).shape, 4, parts, mesh_of(sizes), PARTIAL_KINDS)
            found |= {move.kind for move in table.moves}
    assert found == set(KIND)


@pytest.mark.parametrize("sizes", MESHES, ids=str)
@pytest.mark.parametrize("parts", TENSORS, ids=str)
def test_what_is_cut_is_put_together_again(sizes: tuple[int, ...], parts: Parts) -> None:
    case = Case(parts, mesh_of(sizes), ("sum", "avg"))
    devices = Devices(sizes, case.shape, parts, 4)
    rng = np.random.default_rng(2)
    whole = whole_tensor(case, rng)
    for layout in reshard_table(case.shape, 4, parts, case.mesh, case.kinds).layouts:
        together = devices.assemble(on_devices(case, layout, whole, rng), layout)
        assert together is not None
        np.testing.assert_allclose(together, whole, rtol=0, atol=1e-9)
        if not any(isinstance(p, Partial) for p in layout):
            blocks = devices.cut(whole, layout)
            assert right(case, layout, blocks, whole)
            for dim in range(len(case.shape)):
                for at in case.coordinates:
                    assert np.all(np.diff(devices.indices(layout, dim, at)) > 0), "indices ascend"


@given(st.integers(1, 6), st.integers(0, 13), st.sampled_from(PARTIAL_KINDS), st.integers(0, 99))
def test_a_ring_all_reduce_is_a_reduction(n: int, size: int, kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    held = [rng.integers(0, 2, size) > 0 if kind in ("any", "all") else rng.standard_normal(size) for _ in range(n)]
    whole, sent = ring_all_reduce(held, kind)
    np.testing.assert_allclose(np.asarray(whole, float), np.asarray(REDUCE[kind](np.array(held), axis=0), float))
    np.testing.assert_allclose(np.asarray(combine(kind, held), float), np.asarray(whole, float))
    assert sent == (2 * (n - 1) * -(-size // n) if n > 1 else 0)


@given(st.integers(1, 5), st.integers(0, 4), st.sampled_from(PARTIAL_KINDS), st.integers(0, 99))
def test_a_ring_reduce_scatter_gives_each_its_piece(n: int, size: int, kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    pieces = [[rng.integers(0, 2, size) > 0 if kind in ("any", "all") else rng.standard_normal(size) for _ in range(n)]
              for _ in range(n)]  # fmt: skip
    made, sent = ring_reduce_scatter(pieces, kind)
    assert sent == (n - 1) * size
    for i, mine in enumerate(made):
        wanted = REDUCE[kind](np.array([pieces[j][i] for j in range(n)]), axis=0)
        np.testing.assert_allclose(np.asarray(mine, float), np.asarray(wanted, float))


def test_devices_that_should_agree_and_do_not_have_no_value() -> None:
    devices = Devices((2,), (2,), ((2,),), 4)
    assert devices.assemble([np.zeros(2), np.ones(2)], (R,)) is None
    assert devices.assemble([np.zeros(2), np.zeros(2)], (Shard(0),)) is None, "blocks of another shape"
    assert devices.assemble([np.zeros(2), np.array([0.0, np.nan])], (R,)) is None


AGREE = [
    ([1.0, 2.0], [1.0, 2.0], True),
    ([1.0, 1e9], [1.0 + 1e-6, 1e9], True),
    ([1.0, 2.0], [1.0, 2.0 + 1e-9], False),
    ([np.nan, np.inf], [np.nan, np.inf], True),
    ([np.inf, 0.0], [-np.inf, 0.0], False),
    ([1, 2], [1, 2], True),
    ([1, 2], [1, 3], False),
    ([True], [False], False),
    ([1.0], [1.0, 1.0], False),
]


@pytest.mark.parametrize(("one", "other", "same"), AGREE)
def test_agreement(one: list[float], other: list[float], same: bool) -> None:
    assert agree(np.array(one), np.array(other)) is same
