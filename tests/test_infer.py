"""One op at a time: the nearest layouts, held against every choice there is."""

from __future__ import annotations

import heapq
import itertools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import pytest
from cases import CASES
from hypothesis import given, settings
from hypothesis import strategies as st
from truth import Case

from ops import Layout, Partial, Replicate, Shard, composes, rule_for
from ops.bind import BoundRule
from ops.placement import PlacementError, layout_text
from solver import Mesh, infer
from solver.cost.reshard import reshard_table
from solver.cost.traffic import traffic
from solver.infer import Inference
from solver.layout import canonical, legal, legal_layouts, one_part
from solver.reference_layout import Space, lie
from solver.search.one_op import OneOp

R = Replicate()
Question = tuple[str, list[Any], dict[str, Any]]
QUESTIONS: list[Question] = [
    ("matmul", [(8, 12), (12, 16)], {}),
    ("matmul", [(4, 6, 8), (6, 8)], {"transpose_y": True}),
    ("addmm", [(8, 16), (8, 12), (12, 16)], {}),
    ("add", [(8, 12), (12,)], {}),
    ("multiply", [(8, 12), (8, 1)], {}),
    ("relu", [(8, 6)], {}),
    ("max", [(8, 12)], {"axis": 1}),
    ("mean", [(8, 12)], {"axis": [0]}),
    ("softmax", [(8, 12)], {}),
    ("layer_norm", [(8, 12), (12,), None], {}),
    ("embedding", [(8, 4), (24, 12)], {}),
    ("concat", [[(8, 12), (8, 4), (8, 8)]], {"axis": 1}),
    ("split", [(8, 12)], {"num_or_sections": 2}),
    ("transpose", [(8, 12, 4)], {"perm": [2, 0, 1]}),
    ("reshape", [(8, 12)], {"shape": [96]}),
    ("reshape", [(96,)], {"shape": [8, 12]}),
    ("matmul_grad", [(8, 12), (12, 16), (8, 16)], {}),
    ("softmax_grad", [(8, 12), (8, 12)], {"forward_shapes": (("x", (8, 12)),)}),
    ("matmul", [(8192, 28672), (28672, 8192)], {}),
    ("matmul", [(50256, 1030), (1030, 30)], {}),
]
MESHES = [
    Mesh(dict(zip("abc", sizes, strict=False)))
    for sizes in [(2,), (3,), (2, 4), (4, 2), (2, 1, 2), (2, 2), (2, 3), (2, 2, 2), (2, 2, 3)]
]


@lru_cache
def bound_of(number: int) -> BoundRule:
    name, shapes, attrs = QUESTIONS[number]
    op = rule_for(name)
    return op.bind(dict(zip([spec.name for spec in op.operands], shapes, strict=True)), attrs)


@lru_cache(maxsize=4096)
def fewest(shape: tuple[int, ...], mesh: Mesh, kinds: tuple[str, ...], source: Layout) -> dict[Layout, int]:
    """Bytes of the way that sends least from one layout to each, move by move."""
    parts = one_part(shape)
    leaving = defaultdict(list)
    for move in reshard_table(shape, 4, parts, mesh, kinds).moves:
        ends = (canonical(end, parts, mesh.sizes) for end in (move.source, move.target))
        leaving[next(ends)].append((next(ends), move.bytes))
    found: dict[Layout, int] = {}
    heap = [(0, 0, source)]
    while heap:
        sent, _, layout = heapq.heappop(heap)
        if layout not in found:
            found[layout] = sent
            for number, (target, more) in enumerate(leaving[layout]):
                heapq.heappush(heap, (sent + more, 1000 * len(found) + number, target))
    return found


def nearest(number: int, mesh: Mesh, wishes: Mapping[int, Layout]) -> tuple[int, int, list[str]]:
    """Bytes, changes and rows of the nearest choice, found by looking at all of them; wishes by slot."""
    bound = bound_of(number)
    slots = [*bound.operands, *bound.results]
    first = len(bound.operands)
    named = {p.kind for layout in wishes.values() for p in layout if isinstance(p, Partial)}
    kinds = (
        "sum",
        *sorted({factor.kind for factor in bound.factors.values()} & {"avg", "max", "min"} | named - {"sum"}),
    )
    offered = [
        k
        for k, row in enumerate(bound.rows)
        if row.needs <= {"masked_lookup"}
        and not any(isinstance(p, Shard) and p.part for p in (*row.operands, *row.results))
        and all(p.kind in kinds for p in (*row.operands, *row.results) if isinstance(p, Partial))
    ]
    best: tuple[int, int, tuple[int, ...]] | None = None
    for rows in itertools.product(*(offered if size > 1 else [0] for size in mesh.sizes)):
        picked = [bound.rows[k] for k in rows]
        if not composes(bound, picked, mesh.sizes):
            continue
        moved = changed = 0
        for slot, wish in wishes.items():
            shape = slots[slot].shape
            parts = one_part(shape)
            here = canonical(tuple((row.operands + row.results)[slot] for row in picked), parts, mesh.sizes)
            ends = (wish, here) if slot < first else (here, wish)
            moved += fewest(shape, mesh, kinds, ends[0])[ends[1]]
            changed += sum(p != q for p, q in zip(wish, here, strict=True))
        best = min(best or (moved, changed, rows), (moved, changed, rows))
    assert best is not None
    return best[0], best[1], [bound.rows[k].why for k in best[2]]


def nested(number: int, by_slot: Mapping[int, Any], results: bool) -> list[Any]:
    """Arrange something by slot as the op lists its operands or results."""
    bound, op = bound_of(number), rule_for(QUESTIONS[number][0])
    first = len(bound.operands) if results else 0
    specs, slots = (op.results, bound.results) if results else (op.operands, bound.operands)
    if any(spec.variadic for spec in specs):
        return [[by_slot.get(first + i) for i in range(len(slots))]]
    return [by_slot.get(first + i) for i in range(len(slots))]


@st.composite
def asked(draw: st.DrawFn) -> tuple[int, Mesh, dict[int, Layout]]:
    number, mesh = draw(st.integers(0, len(QUESTIONS) - 1)), draw(st.sampled_from(MESHES))
    bound = bound_of(number)
    kinds = draw(st.sampled_from([("sum",), ("sum",), ("sum", "avg"), ("sum", "max")]))
    backward = draw(st.booleans())
    wishes = {}
    for slot, tensor in enumerate([*bound.operands, *bound.results]):
        wished = slot < len(bound.operands) or backward
        if tensor is not None and wished and draw(st.integers(0, 5)):
            layouts = legal_layouts(tensor.shape, one_part(tensor.shape), mesh.sizes, kinds)
            wishes[slot] = draw(st.sampled_from(layouts))
    return number, mesh, wishes


@given(asked())
@settings(max_examples=60)
def test_nothing_is_nearer(question: tuple[int, Mesh, dict[int, Layout]]) -> None:
    number, mesh, wishes = question
    name, shapes, attrs = QUESTIONS[number]
    found = infer(name, mesh, nested(number, wishes, False), nested(number, wishes, True), shapes, attrs)
    moved, changed, why = nearest(number, mesh, wishes)
    assert (found.bytes, found.changed, list(found.rows.values())) == (moved, changed, why), str(found)


@given(asked())
@settings(max_examples=40)
def test_z3_finds_the_nearest_by_itself(question: tuple[int, Mesh, dict[int, Layout]]) -> None:
    number, mesh, wishes = question
    name, shapes, attrs = QUESTIONS[number]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OneOp, "_descend", lambda self, criteria: (0,) * len(mesh.sizes))
        found = infer(name, mesh, nested(number, wishes, False), nested(number, wishes, True), shapes, attrs)
    assert str(found) == str(
        infer(name, mesh, nested(number, wishes, False), nested(number, wishes, True), shapes, attrs)
    )


@pytest.mark.parametrize("sizes", [(2,), (2, 3), (2, 2), (4, 2)])
@pytest.mark.parametrize(
    ("shape", "parts"), [((12,), ((12,),)), ((12, 8), ((3, 4), (8,))), ((4, 6, 2), ((4,), (6,), (2,)))]
)
def test_traffic_is_that_of_the_reference(
    shape: tuple[int, ...], parts: tuple[tuple[int, ...], ...], sizes: tuple[int, ...]
) -> None:
    mesh = Mesh(dict(zip("ab", sizes, strict=False)))
    space, sent = Space(shape, 4, parts, mesh, ("sum", "max")), traffic(4, parts, mesh, ("sum", "max"))
    layouts = legal_layouts(shape, parts, sizes, ("sum", "max"))
    lies = {layout: lie(layout, parts, sizes) for layout in layouts}
    weights = {(move.source, move.target): move.bytes for moves in space.moves.values() for move in moves}
    expected = {(a, b): 0 if a == b else weights.get((a, b), math.inf) for a in lies.values() for b in lies.values()}
    for through, a, b in itertools.product(lies.values(), repeat=3):
        expected[a, b] = min(expected[a, b], expected[a, through] + expected[through, b])
    for source, target in itertools.product(layouts, repeat=2):
        assert sent.out_of(source)[target] == sent.into(target)[source] == expected[lies[source], lies[target]]


def shapes_of(case: Case) -> list[Any]:
    def one(value: Any) -> Any:
        return value if value is None or isinstance(value, tuple) else tuple(value.shape)

    listed = [case.operands.get(spec.name) for spec in rule_for(case.op).operands]
    return [[one(v) for v in value] if isinstance(value, list) else one(value) for value in listed]


def answers_itself(found: Inference, op: str, mesh: Mesh, shapes: Sequence[Any], attrs: Any, dtypes: Any) -> None:
    forward = infer(op, mesh, found.operands, None, shapes, attrs, dtypes=dtypes)
    assert (forward.bytes, forward.changed) == (0, 0)
    again = infer(op, mesh, found.operands, found.results, shapes, attrs, dtypes=dtypes)
    assert (again.bytes, again.changed, again.operands, again.results) == (0, 0, found.operands, found.results)


@pytest.mark.parametrize("case", {case.op: case for case in reversed(CASES)}.values(), ids=str)
def test_every_op_answers_and_agrees_with_its_answer(case: Case) -> None:
    mesh, shapes = Mesh({"dp": 2, "tp": 3}), shapes_of(case)
    listed = [case.dtypes.get(spec.name) for spec in rule_for(case.op).operands]
    dtypes = [[d] * len(s) if isinstance(s, list) else d for d, s in zip(listed, shapes, strict=True)]

    def wish(shape: Any) -> Any:
        fitting = (layout for d in (0, 1) for layout in [(R, Shard(d)), (Shard(d), R)] if d < len(shape))
        return next((y for y in fitting if legal(y, shape, one_part(shape), mesh.sizes)), (R, R))

    operands = [
        [wish(s) for s in shape] if isinstance(shape, list) else None if shape is None else wish(shape)
        for shape in shapes
    ]
    found = infer(case.op, mesh, operands, None, shapes, case.attrs, dtypes=dtypes)
    answers_itself(found, case.op, mesh, shapes, case.attrs, dtypes)


MESH = Mesh({"dp": 2, "tp": 4})
SHAPES = [(32, 64), (64, 16)]


def test_layouts_may_be_written_in_every_form() -> None:
    forms = [
        {"tp": Shard(1)},
        {"dp": "R", "tp": "S1"},
        "tp=S(1)",
        " dp = R , tp=S(1)",
        (R, Shard(1)),
        ["R", "S1"],
        ([-1, 1], {}),
        ([-1, [1]], {}),
    ]
    found = [infer("matmul", MESH, [form, ([-1, -1], {0: "sum"})], shapes=SHAPES) for form in forms]
    assert {str(one) for one in found} == {str(found[0])}
    assert found[0].tensors[0].given == (R, Shard(1))
    assert found[0].tensors[1].given == (Partial("sum"), R)


def test_an_answer_is_told_in_every_form() -> None:
    found = infer("matmul", MESH, ["dp=S(0),tp=S(1)", "tp=S(0)"], shapes=SHAPES)
    assert found.operands == ({"dp": Shard(0), "tp": Shard(1)}, {"dp": R, "tp": Shard(0)})
    assert found.results == ({"dp": Shard(0), "tp": Partial("sum")},)
    assert found.layout("out") == found.results[0]
    assert (found.dims_mapping("out"), found.partial("out")) == ([0, -1], {1: "sum"})
    assert (found.dims_mapping("x"), found.partial("x")) == ([0, 1], {})
    assert found.rows == {"dp": "cut m", "tp": "sum over k"}
    with pytest.raises(ValueError, match="matmul has no operand or result 'z' here: it has x, y, out"):
        found.layout("z")


def test_two_mesh_axes_on_one_dim() -> None:
    found = infer("relu", MESH, [([[0, 1], -1], {})], shapes=[(32, 64)])
    assert found.dims_mapping("out") == [[0, 1], -1]


def test_an_operand_without_a_wish_lies_as_the_others_like() -> None:
    found = infer("matmul", MESH, ["tp=S(1)", None], shapes=SHAPES)
    assert (found.layout("y"), found.bytes, found.changed) == ({"dp": R, "tp": Shard(0)}, 0, 0)


def test_backward_from_the_results_alone() -> None:
    found = infer("matmul", MESH, results=["dp=S(0),tp=S(1)"], shapes=SHAPES)
    assert found.operands == ({"dp": Shard(0), "tp": R}, {"dp": R, "tp": Shard(1)})
    assert (found.bytes, found.changed) == (0, 0)


def test_what_is_made_is_priced_on_its_way_to_what_is_wanted() -> None:
    mesh = Mesh({"tp": 4})
    found = infer("matmul", mesh, ["tp=S(1)", "tp=S(0)"], ["tp=R"], [(8, 64), (64, 8)])
    assert (found.layout("out"), found.bytes, found.changed) == ({"tp": Partial("sum")}, 2 * 3 * (8 * 8 // 4) * 4, 1)
    assert "out [P(sum)] -> [R], 384 bytes" in str(found)


def test_variadic_operands_are_lists_and_absent_ones_none() -> None:
    found = infer("concat", MESH, [["dp=S(0)", None]], shapes=[[(8, 4), (8, 2)]], attrs={"axis": 1})
    assert found.operands == ([{"dp": Shard(0), "tp": R}] * 2,)
    assert found.layout("x.1") == {"dp": Shard(0), "tp": R}
    found = infer("layer_norm", MESH, ["dp=S(0)", "tp=R", None], shapes=[(8, 4), (4,), None])
    assert found.operands[2] is None
    found = infer("split", MESH, ["dp=S(0)"], shapes=[(8, 4)], attrs={"num_or_sections": 2, "axis": 1})
    assert found.results == ([{"dp": Shard(0), "tp": R}] * 2,)


def test_layouts_on_parts_stay_on_parts() -> None:
    found = infer("reshape", MESH, results=["dp=S0,tp=S(0,part=1)"], shapes=[(8, 12)], attrs={"shape": [96]})
    assert (found.dims_mapping("x"), found.bytes) == ([0, 1], 0)
    with pytest.raises(PlacementError, match="mesh axis 1 cuts part 1 of dim 0"):
        found.dims_mapping("out")
    plain = infer("reshape", MESH, results=["dp=S0,tp=S0"], shapes=[(8, 12)], attrs={"shape": [96]})
    assert plain.dims_mapping("out") == [[0, 1]]


def test_mesh_axes_of_size_1_change_nothing() -> None:
    narrow, wide = Mesh({"tp": 4}), Mesh({"one": 1, "tp": 4})
    found = infer("matmul", narrow, ["tp=S(0)", "tp=S(0)"], shapes=SHAPES)
    same = infer("matmul", wide, ["one=S(1),tp=S(0)", "tp=S(0)"], shapes=SHAPES)
    assert (same.bytes, same.changed, same.rows["tp"]) == (found.bytes, found.changed, found.rows["tp"])
    assert same.rows["one"] == "replicate"
    assert same.layout("x")["one"] == R


def test_a_row_is_offered_with_its_capability_only() -> None:
    shapes = [(8, 4), (24, 12)]
    able = infer("embedding", Mesh({"tp": 4}), ["tp=R", "tp=S(0)"], shapes=shapes)
    unable = infer("embedding", Mesh({"tp": 4}), ["tp=R", "tp=S(0)"], shapes=shapes, capabilities=frozenset())
    assert (able.rows, able.changed) == ({"tp": "sum over v"}, 0)
    # What is cut becomes a sum of padded blocks, which sends nothing.
    assert (unable.rows, unable.changed, unable.bytes) == ({"tp": "P(sum) passes through weight"}, 1, 0)


def test_ops_without_operands_and_tensors_without_dims() -> None:
    assert infer("relu", MESH, ["tp=P(sum)"], shapes=[()]).layout("x") == {"dp": R, "tp": R}
    found = infer("full", MESH, [], ["tp=S(0)"], attrs={"shape": [8, 4], "fill_value": 1.0})
    assert found.operands == ()
    assert found.bytes == 0


def test_indices_are_integers_without_a_word() -> None:
    found = infer("index_put", MESH, ["dp=S1", ["dp=R"], "dp=S1"], shapes=[(8, 4), [(3,)], (3, 4)])
    assert (found.layout("out"), found.bytes, found.changed) == ({"dp": Shard(1), "tp": R}, 0, 0)


def test_a_grad_that_does_not_read_its_operands_is_told_their_shapes() -> None:
    attrs = {"forward_shapes": (("x", (8, 12)), ("y", (12,)))}
    found = infer("add_grad", MESH, ["dp=S(0)"], shapes=[(8, 12)], attrs=attrs)
    assert [layout_text(tuple(one.values())) for one in found.results] == ["[S(0), R]", "[P(sum), R]"]


def test_four_mesh_axes() -> None:
    mesh = Mesh({"pp": 2, "dp": 2, "cp": 2, "tp": 2})
    found = infer("matmul", mesh, ["pp=S0,dp=S1,tp=S2", "pp=S0,cp=S2,tp=S1"], shapes=[(4, 8, 16), (4, 16, 8)])
    assert (found.bytes, found.changed) == (0, 0)
    assert found.dims_mapping("out") == [0, 1, 2]
    assert found.partial("out") == {3: "sum"}


MISTAKES = {
    "unknown op 'matmull'; did you mean 'matmul'": lambda: infer("matmull", MESH, [], shapes=[]),
    "the mesh is a dict: write Mesh": lambda: infer("relu", {"tp": 2}, ["tp=R"], shapes=[(4,)]),  # type: ignore[arg-type]
    "x of relu names mesh axis 'pp', but the mesh has dp, tp": lambda: infer("relu", MESH, ["pp=S0"], shapes=[(4,)]),
    "x of relu names mesh axis 'tp' twice": lambda: infer("relu", MESH, ["tp=S0,tp=R"], shapes=[(4,)]),
    "matmul has no attribute 'transpose_z'; did you mean 'transpose_": lambda: infer(
        "matmul", MESH, ["tp=R", "tp=R"], shapes=SHAPES, attrs={"transpose_z": True}
    ),
    "operand y of op 'matmul' .matmul. is missing: matmul takes .x, y.": lambda: infer(
        "matmul", MESH, ["tp=R"], shapes=[(4, 4)]
    ),
    "matmul has the operands x, y, but 1 layouts are given": lambda: infer("matmul", MESH, ["tp=R"], shapes=SHAPES),
    "relu takes x, but shapes has 2 entries": lambda: infer("relu", MESH, ["tp=R"], shapes=SHAPES),
    "factor 'k' .* has two sizes, 4 and 6": lambda: infer("matmul", MESH, [None, None], shapes=[(8, 4), (6, 8)]),
    "dim 0 of size 6 cannot be cut by tp=4: 4 does not divide 6": lambda: infer("relu", MESH, ["tp=S0"], shapes=[(6,)]),
    "S.2. on tp names dim 2 of a tensor of rank 1": lambda: infer("relu", MESH, ["tp=S2"], shapes=[(8,)]),
    "P.sum. on dp and P.max. on tp do not mix": lambda: infer("relu", MESH, ["dp=P,tp=P(max)"], shapes=[(8,)]),
    "names part 1 of dim 0, whose parts are .8,.": lambda: infer("relu", MESH, ["tp=S(0,part=1)"], shapes=[(8,)]),
    "dims_mapping .0. of x of relu has 1 entries, but the shape .8, 4. has rank 2": lambda: infer(
        "relu", MESH, [([0], {})], shapes=[(8, 4)]
    ),
    "mesh axis 5 does not exist: the mesh has 2 axes": lambda: infer("relu", MESH, [([5], {})], shapes=[(8,)]),
    "mesh axis 0 is used twice": lambda: infer("relu", MESH, [([0], {0: "sum"})], shapes=[(8,)]),
    "mesh axes .1, 0. cut one dim: list them in mesh order": lambda: infer(
        "relu", MESH, [([[1, 0]], {})], shapes=[(8,)]
    ),
    "x of relu: 'x' is no mesh axis": lambda: infer("relu", MESH, [(["x"], {})], shapes=[(8,)]),
    "x of relu has 1 placements for the mesh dp=2, tp=4": lambda: infer("relu", MESH, [(R,)], shapes=[(8,)]),
    "x of relu: 7 is not a placement": lambda: infer("relu", MESH, [{"tp": 7}], shapes=[(8,)]),
    "x of relu: cannot read 'S0': write": lambda: infer("relu", MESH, ["S0"], shapes=[(8,)]),
    "x of relu has the layout 7: write": lambda: infer("relu", MESH, [7], shapes=[(8,)]),
    "'Q' is not a placement": lambda: infer("relu", MESH, ["tp=Q"], shapes=[(8,)]),
    "the operands of relu are 'tp=S0': write a list": lambda: infer("relu", MESH, "tp=S0", shapes=[(8,)]),
    "bias of layer_norm is absent, but has the layout": lambda: infer(
        "layer_norm", MESH, ["tp=R", "tp=R", "tp=R"], shapes=[(8, 4), (4,), None]
    ),
    "x of concat is 2 tensors: write a list of 2 layouts": lambda: infer(
        "concat", MESH, [["tp=R"]], shapes=[[(8, 4), (8, 4)]]
    ),
    "relu: give the layouts of its operands, of its results, or both": lambda: infer("relu", MESH, shapes=[(8,)]),
    "capability 'magic' is unknown": lambda: infer("relu", MESH, ["tp=R"], shapes=[(8,)], capabilities={"magic"}),
    "the attributes of relu are 3": lambda: infer("relu", MESH, ["tp=R"], shapes=[(8,)], attrs=3),  # type: ignore[arg-type]
    "softmax_grad does not read x: give the shapes of all forward operands": lambda: infer(
        "softmax_grad", MESH, [None, None], shapes=[(8, 4), (8, 4)]
    ),
    "the shapes of relu are 8: write a list": lambda: infer("relu", MESH, ["tp=R"], shapes=8),  # type: ignore[arg-type]
    "input 'x' has shape": lambda: infer("relu", MESH, ["tp=R"], shapes=[(0,)]),
}


@pytest.mark.parametrize("sentence", MISTAKES)
def test_mistakes_get_one_sentence(sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as caught:
        MISTAKES[sentence]()
    assert "\n" not in str(caught.value)


MESH_2_4 = Mesh({"dp": 2, "tp": 4})


def test_what_was_given_and_cannot_be_is_explained() -> None:
    shapes = [(32, 64), (64, 16)]
    found = infer("matmul", MESH_2_4, operands=["dp=S(0),tp=S(0)", "tp=S(0)"], shapes=shapes)
    assert found.explanation is not None
    assert str(found.explanation) == (
        "matmul cannot lie as it was given:\n"
        "  'x' is given as S(0) on tp\n"
        "  'y' is given as S(0) on tp\n"
        "because, on tp:\n"
        "  matmul 'matmul' reads 'x' as S(0) and so can only read 'y' as R (x[... m k], y[... k n] -> out[... m n])\n"
        "  but 'y' is given as S(0) on tp"
    )
    assert found.explanation.minimal
    assert [fact.subject for fact in found.explanation.core] == ["x", "y"]


def test_what_was_given_and_is_kept_has_no_explanation() -> None:
    assert infer("relu", MESH_2_4, operands=["tp=S(0)"], shapes=[(8, 8)]).explanation is None


def test_a_result_that_cannot_be_made_is_explained() -> None:
    found = infer("softmax", MESH_2_4, results=["tp=S(1)"], shapes=[(8, 8)], attrs={"axis": 1})
    assert found.explanation is not None
    assert "softmax 'softmax' cannot make 'softmax' S(1): it keeps dim 1 of 'softmax' whole" in str(found.explanation)
