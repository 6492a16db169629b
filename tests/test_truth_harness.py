"""The harness itself: wrong rules are caught, missing rows are found, wrong grads and dtypes are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from truth import Array, Case, Subject, backward, subject
from truth_check import Verdict, composed, derivative, dtypes, examine, holding, missing, sound, wrong
from truth_mesh import agree, assemble, indices, split, term_list

from ops import Op, Partial, Replicate, Shard, composes
from ops.grad import Grad
from ops.notation import parse
from ops.rule import rule


def an_op(text: str, kernel: Callable[..., Any], **facts: Any) -> Op:
    """An op that stands in no table."""
    clauses = {name: facts.pop(name) for name in list(facts) if name not in Op.__dataclass_fields__}
    fixed, shell = rule(text, **clauses), parse(text)
    return Op("an_op", lambda shapes, attrs, dtypes: fixed, shell.operands, shell.results, kernel, {}, **facts)


def drawn(op: Op, seed: int = 0, **shapes: Any) -> Subject:
    return subject(Case(op.name, shapes), seed, op)


def layer_norm(x: Array, scale: Array, bias: Array) -> tuple[Array, Array, Array]:
    mean, variance = x.mean(-1), x.var(-1)
    return (x - mean[..., None]) / np.sqrt(variance + 1e-5)[..., None] * scale + bias, mean, variance


def batch_norm(x: Array, scale: Array, bias: Array) -> Array:
    mean, variance = x.mean((0, 2), keepdims=True), x.var((0, 2), keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-5) * scale[:, None] + bias[:, None]


def addmm(bias: Array, x: Array, y: Array) -> Array:
    return bias + x @ y


NORM = {"x": (4, 12), "scale": (12,), "bias": (12,)}
ADDMM = {"bias": (4, 12), "x": (4, 6), "y": (6, 12)}

WRONG = {
    "layer_norm cut along what it normalizes": (
        an_op("x[a c], scale[c], bias[c] -> out[a c], mean[a], variance[a]", layer_norm, avg="c"),
        NORM,
        "S(1) S(0) S(0) -> S(1) P(avg) P(avg)",
    ),
    "batch_norm whose scale is whole": (
        an_op("x[n c l], scale[_], bias[_] -> out[n c l]", batch_norm, whole="n l"),
        {"x": (4, 6, 2), "scale": (6,), "bias": (6,)},
        "S(1) R R -> S(1)",
    ),
    "addmm that forgets its bias": (
        an_op("bias[m n], x[m k], y[k n] -> out[m n]", addmm, sum="k", linear="x*y"),
        ADDMM,
        "R S(1) S(0) -> P(sum)",
    ),
    "addmm with no linear form": (
        an_op("bias[m n], x[m k], y[k n] -> out[m n]", addmm, sum="k"),
        ADDMM,
        "R S(1) S(0) -> P(sum)",
    ),
    "a partial sum through relu": (
        an_op("x[a b] -> out[a b]", lambda x: np.maximum(x, 0), linear="x"),
        {"x": (4, 6)},
        "P(sum) -> P(sum)",
    ),
    "a maximum through abs": (
        an_op("x[a b] -> out[a b]", np.abs, monotone="x"),
        {"x": (4, 6)},
        "P(max) -> P(max)",
    ),
    "a partial sum through a product taken as a sum": (
        an_op("x[a], y[a] -> out[a]", np.multiply, linear="x + y"),
        {"x": (12,), "y": (12,)},
        "P(sum) P(sum) -> P(sum)",
    ),
    "softmax cut along its dim": (
        an_op("x[a c] -> out[a c]", lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True)),
        {"x": (4, 6)},
        "S(1) -> S(1)",
    ),
    "logsumexp taken as a sum": (
        an_op("x[a c] -> out[a]", lambda x: np.log(np.exp(x).sum(-1)), sum="c"),
        {"x": (4, 6)},
        "S(1) -> P(sum)",
    ),
    "a lookup that does not know where its block starts": (
        an_op(
            "ids[i], weight[v d] -> out[i d]",
            lambda ids, weight: weight[ids % len(weight)],
            sum="v",
            needs={"v": "masked_lookup"},
            domain={"ids": "v"},
        ),
        {"ids": (6,), "weight": (12, 4)},
        "R S(0) -> P(sum)",
    ),
    "a part of a dim whose order matters": (
        an_op("x[a] -> out[a]", lambda x: np.cumsum(x)),
        {"x": (12,)},
        "S(0,part=1) -> S(0,part=1)",
    ),
    "a result that differs between devices": (
        an_op("x[a c] -> out[a c], top[]", lambda x: (x, np.asarray(x.max()))),
        {"x": (4, 6)},
        "S(0) -> S(0) R",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_rule_is_caught(what: str) -> None:
    op, shapes, row = WRONG[what]
    faults = list(sound(drawn(op, **shapes)))
    assert any(f"ranks: {row} (" in fault for fault in faults), faults


def test_the_right_rules_of_the_same_ops_are_not_accused() -> None:
    right = an_op("x[a c], scale[c], bias[c] -> out[a c], mean[a], variance[a]", layer_norm, whole="c")
    assert not list(sound(drawn(right, **NORM)))
    right = an_op("bias[m n], x[m k], y[k n] -> out[m n]", addmm, sum="k", linear="x*y + bias")
    on, again = drawn(right, **ADDMM), drawn(right, seed=1, **ADDMM)
    assert not [*sound(on), *composed(on), *missing(on, again)]


def test_a_rule_that_says_too_little_has_missing_rows() -> None:
    shy = an_op("x[m k], y[k n] -> out[m n]", np.matmul, whole="m k")
    found = set(missing(drawn(shy, x=(4, 6), y=(6, 12)), drawn(shy, seed=1, x=(4, 6), y=(6, 12))))
    assert {"S(0) R -> S(0)", "S(1) S(0) -> P(sum)", "P(sum) R -> P(sum)", "R P(sum) -> P(sum)"} <= found
    assert "P(sum) P(sum) -> P(sum)" not in found


def test_what_follows_from_a_row_for_nothing_is_not_missing() -> None:
    right = an_op("x[a b] -> out[a b]", np.exp, monotone="x")
    assert not list(missing(drawn(right, x=(4, 6)), drawn(right, seed=1, x=(4, 6))))


def test_an_operand_that_is_not_read_counts_once_however_it_lies() -> None:
    shapes = {"x": (12,), "y": (12,)}
    of_x = an_op("x[a], y[a] -> out[a]", lambda x, y: np.exp(x))
    on, again = drawn(of_x, **shapes), drawn(of_x, seed=1, **shapes)
    assert on.read == [True, False]
    assert len(list(holding(on, again))) == 2  # R -> R and S(0) -> S(0), whether y is R or S(0)
    assert not list(missing(on, again))
    shy = an_op("x[a], y[a] -> out[a]", lambda x, y: np.exp(x), whole="a")
    assert list(missing(drawn(shy, **shapes), drawn(shy, seed=1, **shapes))) == ["S(0) R -> S(0)"]


def test_whole_numbers_that_are_no_indices_are_seen_to_be_read() -> None:
    op = an_op("x[a], steps[1] -> out[a], next[1]", lambda x, steps: (x, steps + 1), dtype="first")
    assert drawn(op, x=(4,), steps=np.array([3])).reading == [[True, False], [False, True]]


def test_zeros_are_not_counted_as_partial() -> None:
    op = an_op("x[a] -> out[a]", np.zeros_like)
    held = holding(drawn(op, x=(12,)), drawn(op, seed=1, x=(12,)))
    assert [*held] == [((place,), (place,)) for place in (Replicate(), Shard(0))]


def test_an_argued_row_is_met_and_its_reason_is_remembered() -> None:
    shy = an_op("x[a b] -> out[a b]", np.negative, antitone="x")
    verdict = Verdict()
    examine(verdict, drawn(shy, x=(4, 6)), drawn(shy, seed=1, x=(4, 6)), {"P(sum) *": "to see it"})
    assert verdict.argued == {("an_op", "P(sum) *")}
    assert verdict.faults == []


def test_kinds_that_do_not_commute_never_share_a_tensor() -> None:
    """Law 7, and why: a sum of maxima is not the maximum of sums, in either order."""
    op = an_op("x[a b] -> out[a b]", np.positive, linear="x", monotone="x")
    on = drawn(op, x=(4, 6))
    by_kind = {row.results[0]: row for row in on.bound.rows}
    added, largest, mean = (by_kind[Partial(kind)] for kind in ("sum", "max", "avg"))
    assert not composes(on.bound, [added, largest], [2, 2])
    assert composes(on.bound, [added, mean], [2, 2])
    assert wrong(on, on.bound, [added, mean], (2, 2)) is None
    top = an_op("x[a b] -> out[]", lambda x: np.asarray(x.max()), max="a b", linear="x")
    on = drawn(top, x=(4, 6))
    cut = next(row for row in on.bound.rows if row.operands == (Shard(0),))
    summed = next(row for row in on.bound.rows if row.operands == (Partial("sum"),))
    assert not composes(on.bound, [cut, summed], [2, 3])
    assert wrong(on, on.bound, [cut, summed], (2, 3))


def test_a_contraction_cut_by_two_axes_on_two_operands_is_no_row() -> None:
    """x cut on k by one mesh axis and y cut on k by the other: no pair of rows says so."""
    op = an_op("x[m k], y[k n] -> out[m n]", np.matmul, sum="k", linear="x*y")
    for row in drawn(op, x=(4, 6), y=(6, 12)).bound.rows:
        assert (row.operands[0] == Shard(1)) == (row.operands[1] == Shard(0))


def test_a_wrong_derivative_is_told() -> None:
    wrong = Grad(lambda x, out_grad: out_grad * np.cos(x) * 1.001)
    right = Grad(lambda x, out_grad: out_grad * np.cos(x))
    for grad, count in ((wrong, 1), (right, 0)):
        forward = drawn(an_op("x[a b] -> out[a b]", np.sin, grad=grad), x=(4, 6))
        assert len(list(derivative(forward, backward(forward)))) == count


def test_a_wrong_dtype_is_told() -> None:
    op = an_op("x[a b] -> out[a b]", lambda x: x * np.ones(1), dtype="first")
    (fault,) = dtypes(drawn(op, x=(4, 6)))
    assert "announces ('float32',)" in fault
    assert "['float64']" in fault


def test_a_kernel_whose_devices_do_not_meet_is_told() -> None:
    def kernel(x: Array) -> Any:
        if x[0] > 0:
            x = yield x, "sum"
        return x

    op = an_op("x[a] -> out[a]", kernel, synced="a")
    on = Subject(op, {"x": (4,)}, {}, [np.array([1.0, 1.0, -1.0, 1.0])])
    assert any("wait for an all_reduce" in fault for fault in sound(on))


# ------------------------------------------------------------------------------------------------- the devices


@pytest.mark.parametrize("kind", ["sum", "avg", "max", "min"])
@pytest.mark.parametrize("dtype", ["float64", "int64"])
@pytest.mark.parametrize("size", [2, 3])
def test_terms_reduce_to_the_whole_and_none_is_the_whole(kind: str, dtype: str, size: int) -> None:
    whole = np.arange(24).reshape(4, 6).astype(dtype)
    rng = np.random.default_rng(0)
    layout = (Partial(kind),)
    terms = split(whole, layout, (size,), rng)
    assert len(terms) == size
    assert agree(assemble(terms, layout, ((4,), (6,)), (size,), whole), whole) is None
    assert all(agree(term, whole) for term in terms.values())


@pytest.mark.parametrize("kind", ["any", "all"])
def test_logical_terms_reduce_to_the_whole(kind: str) -> None:
    whole = np.arange(24).reshape(4, 6) % 3 == 0
    terms = term_list(whole, kind, 3, np.random.default_rng(0))
    assert ((np.any if kind == "any" else np.all)(terms, axis=0) == whole).all()
    assert all(agree(term, whole) for term in terms)


def test_a_maximum_of_inf_or_nan_comes_from_some_devices_only() -> None:
    whole = np.array([np.inf, np.nan, -np.inf, 1.0] * 6)
    terms = term_list(whole, "max", 2, np.random.default_rng(0))
    assert agree(np.maximum(*terms), whole) is None
    assert any(np.isfinite(term[0::4]).any() for term in terms)
    assert any(np.isfinite(term[1::4]).any() for term in terms)
    assert all((term[2::4] == -np.inf).all() for term in terms)


def test_a_device_holds_the_indices_of_its_parts() -> None:
    part = (Shard(0, 1),)
    assert indices(0, part, (2, 6), (2,), (0,)).tolist() == [0, 1, 2, 6, 7, 8]
    both = (Shard(0), Shard(0, 1))
    assert indices(0, both, (2, 6), (2, 3), (1, 2)).tolist() == [10, 11]
    nested = (Shard(0), Shard(0))
    assert indices(0, nested, (12,), (2, 3), (1, 0)).tolist() == [6, 7]


def test_a_replicated_result_must_be_equal_everywhere() -> None:
    local = {(0,): np.zeros(2), (1,): np.ones(2)}
    got = assemble(local, (Replicate(),), ((2,),), (2,), np.zeros(2))
    assert got == "differs between the devices of mesh axis 0"
