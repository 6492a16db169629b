"""Parts: what reshapes ask for, what is refused, and that rows and tensors speak of the same parts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.bind import BoundRule, BoundTensor, composes
from ops.placement import PARTIAL_KINDS, Parts, Shard
from solver.graph import Graph, Tensor
from solver.layout import block
from solver.parts import Refinement, bind_refined, node_factor_parts, refine

# ----------------------------------------------------------------------------------------------------------- by hand


def test_flat_batch_and_sequence_keep_their_parts_through_a_product() -> None:
    g = Graph()
    x = g.input("x", (8, 16, 32))
    flat = g.op("reshape", x, shape=(128, 32), name="flat")
    y = g.op("matmul", flat, g.parameter("w", (32, 64)), name="y")
    g.output(g.op("reshape", y, shape=(8, 16, 64), name="back"))
    found = refine(g)
    assert found.refused == ()
    assert found.parts == {
        "x": ((8,), (16,), (32,)),
        "flat": ((8, 16), (32,)),
        "w": ((32,), (64,)),
        "y": ((8, 16), (64,)),
        "back": ((8,), (16,), (64,)),
    }
    bound = bind_refined(g, found.parts)
    assert [bound[name].factors[factor].parts for name, factor in (("y", "m"), ("y", "n"))] == [(8, 16), (64,)]
    assert [str(row.results[0]) for row in bound["flat"].rows if row.cut][:2] == ["S(0)", "S(0,part=1)"]


def test_a_head_split_reaches_back_to_the_weight() -> None:
    g = Graph()
    x, w = g.input("x", (4, 32)), g.parameter("w", (32, 64))
    y = g.op("matmul", x, w, name="y")
    g.output(g.op("reshape", y, shape=(4, 8, 8), name="heads"))
    assert refine(g).parts["w"] == ((32,), (8, 8))
    assert refine(g).parts["y"] == ((4,), (8, 8))


def test_parts_travel_through_parts() -> None:
    g = Graph()
    x = g.input("x", (2, 3, 4))
    a = g.op("reshape", x, shape=(6, 4), name="a")
    b = g.op("reshape", a, shape=(24,), name="b")
    g.output(g.op("reshape", b, shape=(2, 12), name="c"))
    parts = refine(g).parts
    assert (parts["a"], parts["b"], parts["c"]) == (((2, 3), (4,)), ((2, 3, 4),), ((2,), (3, 4)))


def test_a_tensor_without_reshapes_has_one_part_a_dim_and_size_one_is_a_part() -> None:
    g = Graph()
    x = g.input("x", (1, 6))
    g.output(g.op("reshape", g.op("transpose", x, perm=[1, 0], name="t"), shape=(6, 1, 1), name="r"))
    assert refine(g).parts == {"x": ((1,), (6,)), "t": ((6,), (1,)), "r": ((6,), (1,), (1,))}


def test_scalars_and_empty_graphs() -> None:
    g = Graph()
    assert refine(g) == Refinement({}, ())
    g.output(g.input("x", ()))
    assert refine(g).parts == {"x": ()}


def test_boundaries_that_do_not_form_a_chain_cost_the_lighter_reshape() -> None:
    g = Graph()
    x = g.input("x", (24,), dtype="float64")
    g.op("reshape", x, shape=(4, 6), name="first")
    second = g.op("reshape", x, shape=(6, 4), name="second")
    g.output(g.op("reshape", second, shape=(24,), name="third"))
    found = refine(g)
    assert found.parts["x"] == ((4, 6),)
    assert found.parts["third"] == ((6, 4),)
    (refusal,) = found.refused
    assert refusal.node == "second"
    assert refusal.why == (
        "'second' cannot use dim 0 of 'x' as 6 x 4, since 'first' uses dim 0 of 'x' as 4 x 6 and that saves more: "
        "it keeps its plain row"
    )


def test_the_refused_reshape_keeps_the_plain_row() -> None:
    g = Graph()
    x = g.input("x", (24,))
    g.op("reshape", x, shape=(4, 6), name="first")
    g.output(g.op("reshape", x, shape=(6, 4), name="second"))
    found = refine(g)
    bound = bind_refined(g, found.parts)
    assert [(str(row.operands[0]), str(row.results[0])) for row in bound["first"].rows if row.cut] == [
        ("S(0)", "S(0)"),
        ("S(0,part=1)", "S(1)"),
    ]
    assert [(str(row.operands[0]), str(row.results[0])) for row in bound["second"].rows if row.cut] == [
        ("S(0)", "S(0)")
    ]


def test_two_light_reshapes_outweigh_a_heavier_one() -> None:
    g = Graph()
    x = g.input("x", (48,), dtype="float32")
    heavy = g.op("reshape", g.op("cast", x, dtype="float64", name="wide"), shape=(8, 6), name="heavy")
    fine = g.op("reshape", x, shape=(12, 4), name="fine")
    finer = g.op("reshape", x, shape=(6, 8), name="finer")
    finest = g.op("reshape", x, shape=(24, 2), name="both")
    g.output(heavy, fine, finer, finest)
    # 8 x 6 weighs 8 bytes an element; 12 x 4 and 6 x 8 go together and weigh 4 + 4; 24 x 2 goes with both sides.
    found = refine(g)
    assert {refusal.node for refusal in found.refused} == {"fine", "finer"}
    g.output(g.op("reshape", x, shape=(12, 4), name="more"))
    assert {refusal.node for refusal in refine(g).refused} == {"heavy"}
    assert refine(g).parts["x"] == ((6, 2, 2, 2),)


def test_a_factor_that_is_cut_on_its_major_part_only_does_not_hand_parts_on() -> None:
    g = Graph()
    image = g.op("reshape", g.input("raw", (1, 3, 2, 4, 6)), shape=(1, 3, 8, 6), name="image")
    g.output(g.op("conv2d", image, g.parameter("w", (4, 3, 3, 3)), padding=1, name="c"))
    parts = refine(g).parts
    assert (parts["image"], parts["c"]) == (((1,), (3,), (2, 4), (6,)), ((1,), (4,), (8,), (6,)))
    bound = bind_refined(g, parts)["c"]
    assert {factor.parts for factor in bound.factors.values() if factor.capability} == {(8,), (6,)}


def test_a_whole_dim_does_not_hand_parts_on() -> None:
    g = Graph()
    x = g.op("reshape", g.input("x", (4, 2, 6)), shape=(4, 12), name="flat")
    g.output(g.op("softmax", x, axis=-1, name="p"))
    parts = refine(g).parts
    assert (parts["flat"], parts["p"]) == (((4,), (2, 6)), ((4,), (12,)))


def test_a_factor_of_size_one_has_no_part() -> None:
    g = Graph()
    x = g.input("x", (1, 6))
    g.output(g.op("reshape", x, shape=(6,), name="r"))
    found = refine(g)
    for row in bind_refined(g, found.parts)["r"].rows:
        assert Shard(0, 1) not in (*row.operands, *row.results)


def test_fixed_point_on_a_deep_graph() -> None:
    g = Graph()
    x = g.input("x", (8, 128, 64))
    for _ in range(600):
        flat = g.op("reshape", x, shape=(1024, 64))
        y = g.op("matmul", flat, g.parameter(f"w{len(g.tensors)}", (64, 64)))
        heads = g.op("reshape", y, shape=(8, 128, 8, 8))
        x = g.op("reshape", heads, shape=(8, 128, 64))
    g.output(x)
    found = refine(g)
    assert found.refused == ()
    assert found.parts[x.name] == ((8,), (128,), (8, 8))


# ------------------------------------------------------------------------------------------------- the naive twin


def slots_of(g: Graph, node: str) -> list[tuple[str, BoundTensor]]:
    found, bound = g.nodes[node], g.bind(node)
    names = [n for names in found.operands for n in (names if isinstance(names, tuple) else (names,))]
    pairs = zip([*names, *found.results], [*bound.operands, *bound.results], strict=True)
    return [(name, slot) for name, slot in pairs if name is not None and slot is not None]


def large(names: Iterable[str], bound: BoundRule) -> list[str]:
    return [name for name in names if bound.factors[name].size > 1]


def movable(name: str, bound: BoundRule) -> bool:
    factor = bound.factors[name]
    return factor.kind in ("pass", *PARTIAL_KINDS) and factor.capability is None and name not in bound.rule.major


def units_of(g: Graph) -> dict[tuple[str, frozenset[str]], int]:
    """Every set of factors joined by compound dims with a movable minor one, and the bytes of its largest tensor."""
    found: dict[tuple[str, frozenset[str]], int] = {}
    for node in g.nodes:
        bound = g.bind(node)
        dims = [
            (tensor, large(names, bound))
            for tensor, slot in slots_of(g, node)
            for names in slot.dims
            if len(large(names, bound)) > 1
        ]
        units = [set(names) for _, names in dims]
        while pair := next(((a, b) for a, b in itertools.combinations(units, 2) if a & b), None):
            units = [unit for unit in units if unit not in pair] + [pair[0] | pair[1]]
        for unit in units:
            mine = [(tensor, names) for tensor, names in dims if names[0] in unit]
            if any(movable(name, bound) for _, names in mine for name in names[1:]):
                found[node, frozenset(unit)] = max(g.tensors[tensor].bytes for tensor, _ in mine)
    return found


def naive(g: Graph, granted: Iterable[tuple[str, frozenset[str]]]) -> dict[str, Any] | None:
    """What follows from granted units, by passing over all ops until nothing changes; None where they clash."""
    dims = {(tensor.name, dim): set[int]() for tensor in g.tensors.values() for dim in range(len(tensor.shape))}
    granted = list(granted)
    before = -1
    while before != (before := sum(map(len, dims.values()))):
        for node in g.nodes:
            bound = g.bind(node)
            inside = {name for owner, unit in granted if owner == node for name in unit}
            factors = {name: set[int]() for name in bound.factors}
            for write in (False, True):
                for tensor, slot in slots_of(g, node):
                    for dim, names in enumerate(slot.dims):
                        ends = dims[tensor, dim]
                        many = large(names, bound)
                        if len(many) == 1 and (many[0] in inside or movable(many[0], bound)):
                            if write:
                                ends |= factors[many[0]]
                            else:
                                factors[many[0]] |= ends
                        elif len(many) > 1 and many[0] in inside:
                            behind = 1
                            for name in reversed(many):
                                size = bound.factors[name].size
                                if write:
                                    ends |= {behind * end for end in factors[name]} | ({behind} - {1})
                                else:
                                    mine = {end for end in ends if behind < end < behind * size}
                                    if any(end % behind for end in mine):
                                        return None
                                    factors[name] |= {end // behind for end in mine}
                                behind *= size
        for ends in dims.values():
            if any(b % a for a, b in itertools.pairwise(sorted(ends))):
                return None
    return {
        tensor.name: tuple(parts_of(size, dims[tensor.name, dim]) for dim, size in enumerate(tensor.shape))
        for tensor in g.tensors.values()
    }


def parts_of(size: int, ends: set[int]) -> tuple[int, ...]:
    steps = [1, *sorted(ends), size]
    return tuple(after // before for before, after in itertools.pairwise(steps) if after > before)[::-1] or (1,)


SHAPES = [
    (24,),
    (4, 6),
    (6, 4),
    (2, 12),
    (12, 2),
    (3, 8),
    (8, 3),
    (2, 3, 4),
    (2, 2, 6),
    (4, 3, 2),
    (3, 4, 2),
    (2, 2, 2, 3),
]


@st.composite
def reshaped(draw: st.DrawFn, steps: int = 6) -> Graph:
    """Graphs full of reshapes of 24 elements, some of which cannot go together."""
    g = Graph()
    pool: list[Tensor] = [
        g.input("in", draw(st.sampled_from(SHAPES)), dtype=draw(st.sampled_from(["int8", "float32"])))
    ]
    for step in range(draw(st.integers(3, steps))):
        x = draw(st.sampled_from(pool))
        kind = draw(st.sampled_from(["reshape"] * 6 + ["transpose", "matmul"]))
        if kind == "reshape":
            pool.append(g.op("reshape", x, shape=draw(st.sampled_from([s for s in SHAPES if s != x.shape]))))
        elif kind == "transpose":
            pool.append(g.op("transpose", x, perm=list(draw(st.permutations(range(len(x.shape)))))))
        elif len(x.shape) > 1:
            side = x.shape[-1]
            pool.append(g.op("matmul", x, g.parameter(f"w{step}", (side, side))))
    g.output(pool[-1])
    return g


@settings(max_examples=300)
@given(reshaped())
def test_refinement_is_the_best_that_enumeration_finds(g: Graph) -> None:
    units = units_of(g)
    found = refine(g)
    lost = {refusal.node for refusal in found.refused}
    per_node = {node: sum(weight for (owner, _), weight in units.items() if owner == node) for node, _ in units}
    best = max(
        sum(units[unit] for unit in granted)
        for count in range(len(units) + 1)
        for granted in itertools.combinations(units, count)
        if naive(g, granted) is not None
    )
    granted = [unit for unit in units if unit[0] not in lost or per_node[unit[0]] != units[unit]]
    if all(sum(owner == node for owner, _ in units) == 1 for node, _ in units):
        assert sum(units[unit] for unit in granted) == best
        assert found.parts == naive(g, granted)


@settings(max_examples=200)
@given(reshaped(steps=12))
def test_rows_and_tensors_speak_of_the_same_parts(g: Graph) -> None:
    found = refine(g)
    for tensor in g.tensors.values():
        assert tuple(map(math.prod, found.parts[tensor.name])) == tensor.shape
        assert all(
            part > 1 for split, n in zip(found.parts[tensor.name], tensor.shape, strict=True) if n > 1 for part in split
        )
    for node, bound in bind_refined(g, found.parts).items():
        check_alignment(g, node, bound, found.parts)


@pytest.mark.parametrize(
    ("op", "shape", "attrs"),
    [
        ("swiglu", (4, 24), {}),
        ("channel_shuffle", (2, 8, 3, 3), {"groups": 2}),
        ("channel_shuffle", (2, 8, 3, 3), {"groups": 1}),
        ("channel_shuffle", (2, 8, 3, 3), {"groups": 8}),
        ("pixel_shuffle", (2, 4, 3, 3), {"upscale_factor": 2}),
        ("pixel_unshuffle", (2, 4, 6, 6), {"downscale_factor": 2}),
        ("reshape", (1, 6, 1, 4), {"shape": (1, 24)}),
    ],
)
def test_every_op_with_compound_dims_counts_parts_as_its_tensors_do(
    op: str, shape: tuple[int, ...], attrs: dict[str, Any]
) -> None:
    g = Graph()
    volume = math.prod(shape)
    for name, source in (("plain", shape), ("halves", (2, volume // 2)), ("pairs", (volume // 2, 2))):
        g.op(op, g.op("reshape", g.input(name, source), shape=shape), **attrs)
    parts = refine(g).parts
    for node, bound in bind_refined(g, parts).items():
        check_alignment(g, node, bound, parts)


def check_alignment(g: Graph, node: str, bound: BoundRule, parts: Mapping[str, Parts]) -> None:
    for index, (tensor, slot) in enumerate(slots_of(g, node)):
        for row in bound.rows:
            placement = (row.operands + row.results)[index]
            if isinstance(placement, Shard):
                assert placement.part < len(parts[tensor][placement.dim])
                assert behind(placement, slot, bound) == math.prod(parts[tensor][placement.dim][placement.part :])


def behind(placement: Shard, slot: BoundTensor, bound: BoundRule) -> int:
    """The elements from the beginning of the named part to the end of the dim, as the bound rule counts parts."""
    parts = [part for name in slot.dims[placement.dim] for part in bound.factors[name].parts]
    assert placement.part == 0 or math.prod(parts) == slot.shape[placement.dim]
    return slot.shape[placement.dim] if placement.part == 0 else math.prod(parts[placement.part :])


@settings(max_examples=100)
@given(reshaped(steps=12))
def test_only_refused_reshapes_have_factors_that_may_not_be_cut(g: Graph) -> None:
    found = refine(g)
    lost = {refusal.node for refusal in found.refused}
    asking = {node for node, _ in units_of(g)}
    for name, node in g.nodes.items():
        bound = g.bind(name)
        uncut = {
            f
            for f, split in node_factor_parts(node, bound, found.parts).items()
            if not split and bound.factors[f].size > 1
        }
        if any(movable(factor, bound) for factor in uncut):
            assert name in lost
        if name in lost:
            assert name in asking


def test_a_factor_whose_positions_matter_is_not_cut_inside_a_dim_that_nothing_splits() -> None:
    """Halves of features are turned: the place in a half is no part of its own where no table asks for it."""
    g = Graph()
    q = g.input("q", (2, 16, 2, 16))
    g.output(g.op("fused_rotary_position_embedding", q, use_neox_rotary_style=False, name="rot"))
    parts = refine(g).parts
    assert parts["q"][3] == (16,)
    rows = bind_refined(g, parts)["rot"].rows
    assert {row.operands[0].dim for row in rows if isinstance(row.operands[0], Shard)} == {0, 1, 2}


@settings(max_examples=60)
@given(reshaped(), st.sampled_from([(2, 3), (3, 2), (2, 2), (4, 3), (6,), (2, 2, 3)]))
def test_a_row_on_parts_is_the_same_reshape_on_every_device(g: Graph, sizes: tuple[int, ...]) -> None:
    parts = refine(g).parts
    for name, bound in bind_refined(g, parts).items():
        node = g.nodes[name]
        if node.op == "matmul":
            continue
        source, target = g.tensors[str(node.operands[0])], g.tensors[name]
        whole = np.arange(24).reshape(source.shape)
        wanted = whole.reshape(target.shape) if node.op == "reshape" else whole.transpose(node.attrs["perm"])
        cutting = [row for row in bound.rows if row.cut or row is bound.rows[0]]
        for rows in itertools.product(cutting, repeat=len(sizes)):
            if not composes(bound, rows, sizes):
                continue
            before, after = tuple(row.operands[0] for row in rows), tuple(row.results[0] for row in rows)
            for coordinate in itertools.product(*map(range, sizes)):
                mine = block(whole, before, parts[source.name], sizes, coordinate)
                expected = block(wanted, after, parts[name], sizes, coordinate)
                made = mine.reshape(expected.shape) if node.op == "reshape" else mine.transpose(node.attrs["perm"])
                assert np.array_equal(made, expected), (rows, coordinate)
