"""Layouts against their meaning: which index each device holds."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.placement import Layout, Partial, Parts, Shard, layout_text, parse_placement
from solver.layout import (
    LayoutError,
    block,
    canonical,
    cut_steps,
    groups,
    is_partial,
    legal,
    legal_layouts,
    local_shape,
    one_part,
    raw_layouts,
    why_illegal,
)


def read(text: str) -> Layout:
    return tuple(parse_placement(word) for word in text.split())


def shape_of(parts: Parts) -> tuple[int, ...]:
    return tuple(map(prod, parts))


def coordinates(sizes: tuple[int, ...]) -> list[tuple[int, ...]]:
    return list(product(*map(range, sizes)))


SMALL = [  # parts, mesh sizes, partial kinds
    (((8,),), (2, 2), ("sum", "avg")),
    (((2, 4),), (2, 2, 2), ("sum",)),
    (((2, 2, 2),), (2, 2, 2), ()),
    (((4, 3, 2),), (2, 3, 2), ("max",)),
    (((2, 6), (4,)), (2, 2), ("sum", "max", "avg")),
    (((1, 4, 1, 2),), (2, 4), ()),
    (((6,), (4, 2)), (3, 2, 1), ("any",)),
    (((4, 4),), (4, 2, 2), ()),
    ((), (2, 2), ("sum", "avg", "min")),
    (((1,), (5,)), (5, 1), ("all",)),
    (((3, 4),), (6, 2), ("sum",)),
]

GRIDS = st.lists(st.sampled_from([1, 2, 2, 3, 4]), min_size=1, max_size=3).map(tuple)
SPLITS = st.lists(st.sampled_from([1, 2, 2, 3, 4]), min_size=1, max_size=3).map(tuple)


@st.composite
def spaces(draw: st.DrawFn) -> tuple[Parts, tuple[int, ...], tuple[str, ...]]:
    parts = tuple(draw(st.lists(SPLITS, min_size=0, max_size=2)))
    kinds = tuple(draw(st.lists(st.sampled_from(["sum", "avg", "max"]), max_size=2, unique=True)))
    return parts, draw(GRIDS), kinds


@st.composite
def layouts(draw: st.DrawFn) -> tuple[Layout, Parts, tuple[int, ...]]:
    parts, sizes, kinds = draw(spaces())
    return draw(st.sampled_from(raw_layouts(parts, sizes, kinds))), parts, sizes


# --- legality: a sentence that a person can act on

ILLEGAL = [
    ("S(0)", ((6,),), (4,), "dim 0 of size 6 cannot be cut by dp=4: 4 does not divide 6"),
    ("S(0) S(0)", ((12,),), (4, 2), "dim 0 of size 12 cannot be cut by dp=4 times tp=2: 8 does not divide 12"),
    ("S(0) S(0,part=1)", ((2, 6),), (4, 2), "part 0 of dim 0, of size 2, cannot be cut by dp=4: 4 does not divide 2"),
    ("S(0,part=1)", ((2, 6),), (4,), "part 1 of dim 0, of size 6, cannot be cut by dp=4: 4 does not divide 6"),
    ("R S(1)", ((8,),), (2, 2), "S(1) on tp names dim 1 of a tensor of rank 1"),
    ("S(0,part=1) R", ((8,),), (2, 2), "S(0,part=1) on dp names part 1 of dim 0, whose parts are (8,)"),
    ("S(0)", (), (2,), "S(0) on dp names dim 0 of a tensor of rank 0"),
    (
        "P(max) P(sum)",
        ((8,),),
        (2, 2),
        (
            "P(max) on dp and P(sum) on tp do not mix: "
            "a tensor carries one partial kind, only sum and avg may stand together"
        ),
    ),
    ("R", ((8,),), (2, 2), "[R] has 1 placements for 2 mesh axes"),
]


@pytest.mark.parametrize(("text", "parts", "sizes", "reason"), ILLEGAL)
def test_a_reason_names_what_does_not_divide_what(text: str, parts: Parts, sizes: tuple[int, ...], reason: str) -> None:
    shape = shape_of(parts)
    assert why_illegal(read(text), shape, parts, sizes, ("dp", "tp")[: len(sizes)]) == reason
    assert not legal(read(text), shape, parts, sizes)
    with pytest.raises(LayoutError):
        local_shape(read(text), shape, parts, sizes)


@pytest.mark.parametrize(
    ("text", "parts", "sizes"),
    [
        ("S(0)", ((3, 4),), (6,)),  # the plain cut ends inside a part
        ("S(0) S(0,part=1)", ((4, 6),), (2, 3)),
        ("S(0) S(0)", ((12,),), (4, 3)),
        ("P(sum) P(avg)", ((7,),), (2, 2)),
        ("P(max) P(sum)", ((7,),), (2, 1)),  # a mesh axis of size 1 is free
        ("S(0)", ((7,),), (1,)),
    ],
)
def test_legal(text: str, parts: Parts, sizes: tuple[int, ...]) -> None:
    assert why_illegal(read(text), shape_of(parts), parts, sizes) is None


def test_without_names_a_reason_counts_mesh_axes() -> None:
    assert why_illegal(read("R S0"), (6,), ((6,),), (2, 4)) == (
        "dim 0 of size 6 cannot be cut by mesh axis 1=4: 4 does not divide 6"
    )


# --- canonical forms

CANONICAL = [
    ("S(0) S(0,part=1)", ((2, 6),), (2, 3), "[S(0), S(0)]"),  # the first part is completely cut: one cut of both
    ("S(0) S(0,part=1)", ((4, 6),), (2, 3), "[S(0), S(0,part=1)]"),
    ("S(0,part=1) S(0)", ((2, 6),), (3, 2), "[S(0,part=1), S(0)]"),  # not in mesh order
    ("S(0) S(0,part=1) S(0,part=2)", ((2, 2, 2),), (2, 2, 2), "[S(0), S(0), S(0)]"),
    ("S(0) S(0) S(0,part=2)", ((2, 2, 2),), (2, 2, 2), "[S(0), S(0), S(0)]"),
    ("S(0,part=1)", ((1, 8),), (2,), "[S(0)]"),
    ("S(0,part=2)", ((2, 1, 4),), (2,), "[S(0,part=1)]"),
    ("S(0) P(sum)", ((8,),), (1, 2), "[R, P(sum)]"),
    ("P(sum) S(0)", ((8,),), (1, 1), "[R, R]"),
]


@pytest.mark.parametrize(("text", "parts", "sizes", "wanted"), CANONICAL)
def test_canonical(text: str, parts: Parts, sizes: tuple[int, ...], wanted: str) -> None:
    assert layout_text(canonical(read(text), parts, sizes)) == wanted


@given(layouts())
def test_canonical_is_legal_and_idempotent(drawn: tuple[Layout, Parts, tuple[int, ...]]) -> None:
    layout, parts, sizes = drawn
    name = canonical(layout, parts, sizes)
    assert legal(name, shape_of(parts), parts, sizes)
    assert canonical(name, parts, sizes) == name


def device_data(layout: Layout, parts: Parts, sizes: tuple[int, ...]) -> object:
    """Which indices each device holds, and on which mesh axes these are terms of what reduction."""
    array = np.arange(prod(shape_of(parts))).reshape(shape_of(parts))
    held = tuple(block(array, layout, parts, sizes, at).tobytes() for at in coordinates(sizes))
    terms = tuple((a, p.kind) for a, p in enumerate(layout) if isinstance(p, Partial) and sizes[a] > 1)
    return held, terms


@pytest.mark.parametrize(("parts", "sizes", "kinds"), SMALL)
def test_equal_canonical_forms_are_equal_data(parts: Parts, sizes: tuple[int, ...], kinds: tuple[str, ...]) -> None:
    check_canonical_means_data(parts, sizes, kinds)


@given(spaces())
def test_equal_canonical_forms_are_equal_data_everywhere(
    space: tuple[Parts, tuple[int, ...], tuple[str, ...]],
) -> None:
    check_canonical_means_data(*space)


def check_canonical_means_data(parts: Parts, sizes: tuple[int, ...], kinds: tuple[str, ...]) -> None:
    raw = raw_layouts(parts, sizes, kinds)
    named = {layout: canonical(layout, parts, sizes) for layout in raw}
    data = {layout: device_data(layout, parts, sizes) for layout in raw}
    assert all(data[layout] == data[name] for layout, name in named.items())
    names = set(named.values())
    assert len({data[name] for name in names}) == len(names), "two canonical forms of the same data"


# --- enumeration


@pytest.mark.parametrize(("parts", "sizes", "kinds"), SMALL)
def test_legal_layouts_are_all_and_in_order(parts: Parts, sizes: tuple[int, ...], kinds: tuple[str, ...]) -> None:
    shards = [Shard(dim, part) for dim, split in enumerate(parts) for part in range(len(split))]
    choices = [
        parse_placement("R"),
        *shards,
        *(Partial(k) for k in ("sum", "avg", "max", "min", "any", "all") if k in kinds),
    ]
    every = [layout for layout in product(choices, repeat=len(sizes)) if legal(layout, shape_of(parts), parts, sizes)]
    wanted = [layout for layout in every if canonical(layout, parts, sizes) == layout]
    assert list(legal_layouts(shape_of(parts), parts, sizes, kinds)) == wanted
    assert legal_layouts(shape_of(parts), parts, sizes, tuple(reversed(kinds))) == tuple(wanted)


def test_legal_layouts_by_hand() -> None:
    found = legal_layouts((4, 3), one_part((4, 3)), (2, 3), ("sum",))
    assert [layout_text(layout) for layout in found] == [
        "[R, R]",
        "[R, S(1)]",
        "[R, P(sum)]",
        "[S(0), R]",
        "[S(0), S(1)]",
        "[S(0), P(sum)]",
        "[P(sum), R]",
        "[P(sum), S(1)]",
        "[P(sum), P(sum)]",
    ]


def test_a_scalar_and_an_empty_tensor() -> None:
    assert [layout_text(layout) for layout in legal_layouts((), (), (2,), ("sum",))] == ["[R]", "[P(sum)]"]
    assert [layout_text(layout) for layout in legal_layouts((0, 4), ((0,), (4,)), (2,), ())] == [
        "[R]",
        "[S(0)]",
        "[S(1)]",
    ]
    assert layout_text(canonical(read("S(0,part=1) S0"), ((2, 0),), (2, 2))) == "[S(0), S(0)]"
    assert block(np.zeros((0, 4)), read("S0"), ((0,), (4,)), (2,), (1,)).shape == (0, 4)
    assert block(np.zeros((0, 4)), read("S1"), ((0,), (4,)), (2,), (1,)).shape == (0, 2)
    assert block(np.float64(3.0).reshape(()), read("R"), (), (2,), (1,)) == 3.0


@pytest.mark.parametrize(
    ("shape", "parts", "message"),
    [
        ((8,), ((2, 3),), r"the parts \(2, 3\) of dim 0 do not multiply to its size 8"),
        ((8, 4), ((8,),), "1 dims of parts for a tensor of rank 2: give the parts of every dim"),
        ((1,), ((),), r"the parts \(\) of dim 0 do not multiply to its size 1"),
    ],
)
def test_wrong_parts(shape: tuple[int, ...], parts: Parts, message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        legal_layouts(shape, parts, (2,), ())


def test_a_wrong_kind() -> None:
    with pytest.raises(LayoutError, match="'mean' is not a partial kind: use some of sum, avg"):
        legal_layouts((8,), ((8,),), (2,), ("mean",))


# --- blocks


def test_cut_steps() -> None:
    assert cut_steps(read("S0 S0"), ((8,),), (2, 2)) == ((0, 4), (0, 2))
    assert cut_steps(read("R S(0,part=1)"), ((2, 4),), (2, 2)) == (None, (0, 2))
    assert cut_steps(read("S(0,part=1) S0"), ((2, 4),), (2, 2)) == ((0, 2), (0, 4))
    assert cut_steps(read("S1 P"), ((2,), (6,)), (3, 2)) == ((1, 2), None)


@given(spaces())
def test_cut_steps_do_not_depend_on_the_spelling(space: tuple[Parts, tuple[int, ...], tuple[str, ...]]) -> None:
    parts, sizes, kinds = space
    raw = raw_layouts(parts, sizes, kinds)
    terms = [tuple(p if isinstance(p, Partial) else None for p in layout) for layout in raw]
    lies = [(cut_steps(layout, parts, sizes), term) for layout, term in zip(raw, terms, strict=True)]
    names = [canonical(layout, parts, sizes) for layout in raw]
    assert len(set(lies)) == len(set(names)) == len(set(zip(lies, names, strict=True)))


@given(layouts())
def test_a_block_is_what_the_definition_says(drawn: tuple[Layout, Parts, tuple[int, ...]]) -> None:
    layout, parts, sizes = drawn
    shape = shape_of(parts)
    array = np.arange(prod(shape)).reshape(shape)
    for at in coordinates(sizes):
        cuts = [(axis, *cut) for axis, cut in enumerate(cut_steps(layout, parts, sizes)) if cut]
        held = [
            [i for i in range(n) if all(i // step % sizes[axis] == at[axis] for axis, d, step in cuts if d == dim)]
            for dim, n in enumerate(shape)
        ]
        found = block(array, layout, parts, sizes, at)
        assert found.shape == local_shape(layout, shape, parts, sizes)
        np.testing.assert_array_equal(found, array[np.ix_(*held)] if shape else array)


@given(layouts())
def test_every_element_has_the_same_number_of_owners(drawn: tuple[Layout, Parts, tuple[int, ...]]) -> None:
    layout, parts, sizes = drawn
    shape = shape_of(parts)
    array = np.arange(prod(shape)).reshape(shape)
    held = np.concatenate([block(array, layout, parts, sizes, at).ravel() for at in coordinates(sizes)])
    cuts = prod(sizes[axis] for axes in groups(layout, sizes).values() for axis in axes)
    assert set(np.bincount(held, minlength=array.size)) == {prod(sizes) // cuts}


def test_is_partial() -> None:
    assert is_partial(read("R P(max)"))
    assert not is_partial(read("R S(0)"))
