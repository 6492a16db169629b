"""Rule text -> rows, as tables that a person can check; and what is said of rules that cannot be read or bound."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rule_tables import error_text, rows_text

import ops
from ops import Partial, Replicate, RuleError, Shard, composes, rows, rule_for
from ops.notation import parse
from ops.registry import family, op, replicate_only
from ops.rule import rule

NOTATION = Path(__file__).resolve().parent.parent / "docs" / "notation.md"

TABLES = Path(__file__).with_name("rule_tables.txt").read_text("utf-8").strip().split("\n\n")
"""One block per op and shapes; a person has read them."""


def message_of(call: Callable[[], object]) -> str:
    """What a RuleError says."""
    with pytest.raises(RuleError) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.splitlines()[0])
def test_rows_of_an_op(table: str) -> None:
    assert rows_text(table) == table


def blocks(kind: str) -> list[str]:
    return [block.strip() for block in re.findall(rf"```{kind}\n(.*?)```", NOTATION.read_text("utf-8"), re.DOTALL)]


@pytest.mark.parametrize("block", blocks("rows"), ids=lambda block: block.splitlines()[0])
def test_every_table_of_the_page_on_the_notation_is_what_the_code_gives(block: str) -> None:
    assert rows_text(block) == block


@pytest.mark.parametrize("block", blocks("error"), ids=lambda block: block.splitlines()[0])
def test_every_message_of_the_page_on_the_notation_is_what_the_code_says(block: str) -> None:
    assert error_text(block) == block


def test_the_page_on_the_notation_names_every_clause() -> None:
    text = NOTATION.read_text("utf-8")
    kinds = ("sum", "avg", "max", "min", "any", "all", "whole", "halo", "synced")
    assert all(f"{clause}=" in text for clause in (*kinds, "needs", "linear", "monotone", "antitone", "major", "sizes"))


# ---------------------------------------------------------------------------- what cannot be read

UNREADABLE = {
    "x[a] out[a]": "rule 'x[a] out[a]' has no '->' between operands and results",
    "x[a -> out[a]": "cannot read 'x[a' in rule 'x[a -> out[a]': expected name[dims]",
    "x[a] y[a] -> out[a]": "expected ',' before 'y[a]' in rule 'x[a] y[a] -> out[a]'",
    "x[a], x[a] -> out[a]": "rule 'x[a], x[a] -> out[a]' names tensor 'x' twice",
    "x[A] -> out[A]": "cannot read 'A' in x[A] of rule 'x[A] -> out[A]': expected a factor, a*, ..., (f g), _ or 1",
    "x[2] -> out[]": "cannot read '2' in x[2] of rule 'x[2] -> out[]': expected a factor, a*, ..., (f g), _ or 1",
    "x[... ...] -> out[...]": "x[... ...] of rule 'x[... ...] -> out[...]' has '...' twice",
    "x[()] -> out[]": "x of rule 'x[()] -> out[]' has an empty dim '()'",
    "x[(a* b)] -> out[]": "cannot read 'a*' in (a* b) of x in rule 'x[(a* b)] -> out[]': expected factors",
}


@pytest.mark.parametrize("text", UNREADABLE)
def test_what_cannot_be_read_is_named(text: str) -> None:
    assert message_of(lambda: parse(text)) == UNREADABLE[text]


BROKEN = (
    (
        ("x[a] -> out[]", {"add": "a"}),
        (
            "'add' is not a factor kind (rule 'x[a] -> out[]'): "
            "choose from sum, avg, max, min, any, all, whole, halo, synced"
        ),
    ),
    (
        ("x[a] -> out[a]", {"linear": "x*z"}),
        "linear names 'z', which is no operand of rule 'x[a] -> out[a]': the operands are x",
    ),
    (
        ("x[a] -> out[a]", {"antitone": "out"}),
        "antitone names 'out', which is no operand of rule 'x[a] -> out[a]': the operands are x",
    ),
    (
        ("x[a] -> out[a]", {"needs": {"b": "magic"}}),
        "factor 'b' is declared (needs) but stands nowhere in rule 'x[a] -> out[a]'",
    ),
    (
        ("x[...], y[a] -> out[a]", {}),
        (
            "rule 'x[...], y[a] -> out[a]' has '...' on the left but not in every result: "
            "name the dims with a run such as a*"
        ),
    ),
)


@pytest.mark.parametrize(("given", "message"), BROKEN)
def test_a_broken_static_law_is_named(given: tuple[str, dict[str, Any]], message: str) -> None:
    text, clauses = given
    assert message_of(lambda: rule(text, **clauses)) == message


# ---------------------------------------------------------------------------- what does not fit

UNFIT = {
    "matmul takes vectors and matrices, but y is a scalar: use multiply": ("matmul", [(4, 6), ()], {}),
    "matmul has no attribute 'transpose'; did you mean 'transpose_y'?": (
        "matmul",
        [(4, 6), (6, 4)],
        {"transpose": True},
    ),
    "relu has no attribute 'slope': it takes none": ("relu", [(4,)], {"slope": 1}),
    "full needs the attribute 'fill_value'": ("full", [], {"shape": [2]}),
    "matmul needs the operand 'y'": ("matmul", [(4, 6)], {}),
    "sum: axis=2 names no dim of a tensor of rank 2": ("sum", [(4, 6)], {"axis": 2}),
    "sum: axis=[0, -2] names a dim of a tensor of rank 2 twice": ("sum", [(4, 6)], {"axis": [0, -2]}),
    "cross_entropy_with_softmax: axis=5 names no dim of logits, which has rank 2 and shape (4, 6)": (
        "cross_entropy_with_softmax",
        [(4, 6), (4, 1)],
        {"axis": 5},
    ),
    "add: batch dims do not broadcast: y has 5 where another operand has 6 (rule 'x[...], y[...] -> out[...]')": (
        "add",
        [(4, 6), (5,)],
        {},
    ),
    "cross_entropy_with_softmax: label must have size 1 where rule "
    "'logits[a* c@axis b*], label[a* 1 b*] -> softmax[a* c b*], loss[a* 1 b*]' writes 1, not 6": (
        "cross_entropy_with_softmax",
        [(4, 6), (4, 6)],
        {},
    ),
    "operand inputs of add_n is []: it takes a list of one or more shapes, as [(4, 6), (4, 6)]": ("add_n", [[]], {}),
    "einsum equation 'ij,jk->ik' names 2 operands, but 1 are given": ("einsum", [[(4, 6)]], {"equation": "ij,jk->ik"}),
    "einsum equation '...i->i' sums over '...': name these indices": ("einsum", [[(4, 6)]], {"equation": "...i->i"}),
    "einsum equation 'i2->i' has '2', which is no index: use letters": ("einsum", [[(4, 6)]], {"equation": "i2->i"}),
    "einsum equation 'ij->ik' has 'k' in its result, which must come from an operand, once": (
        "einsum",
        [[(4, 6)]],
        {"equation": "ij->ik"},
    ),
    "the input of addmm has rank 3 and shape (1, 4, 8), its result has rank 2": (
        "addmm",
        [(1, 4, 8), (4, 6), (6, 8)],
        {},
    ),
    "pow takes either the operand y or the attribute factor": ("pow", [(4, 6)], {}),
    "dropout has no mode 'halve': choose upscale_in_train or downscale_in_infer": (
        "dropout",
        [(4,)],
        {"mode": "halve"},
    ),
    "mse_loss has no reduction 'max': choose from mean, sum, none": ("mse_loss", [(4,), (4,)], {"reduction": "max"}),
    "arange needs a step other than 0": ("arange", [], {"end": 4, "step": 0}),
    "zeros: shape=[4, -1] has a negative size": ("zeros", [], {"shape": [4, -1]}),
}


@pytest.mark.parametrize("message", UNFIT)
def test_what_does_not_fit_is_named(message: str) -> None:
    name, shapes, attrs = UNFIT[message]
    assert message_of(lambda: rows(name, shapes, attrs)) == message


def test_an_operand_that_the_op_does_not_have_is_named() -> None:
    call = {"x": (4,), "y": (4,), "z": (4,)}
    assert message_of(lambda: rule_for("add").bind(call, {})) == "add has no operand 'z': it takes x, y"


def test_a_rule_that_does_not_give_a_shape_asks_for_it() -> None:
    made = rule("x[a] -> out[_]", whole="a")
    unshaped = ops.Op("unshaped", lambda *_: made, made.signature.operands, made.signature.results, print, {})
    message = "rule 'x[a] -> out[_]' does not give the shape of out: the op needs shape="
    assert message_of(lambda: unshaped.bind({"x": (4,)}, {})) == message


# ---------------------------------------------------------------------------- the registry


def test_an_op_is_registered_once() -> None:
    again = message_of(lambda: op("relu", "x[a*] -> out[a*]", kernel=print))
    assert again == "op 'relu' is registered twice"


def test_a_domain_must_name_an_operand() -> None:
    said = message_of(lambda: op("strange", "x[a*] -> out[a*]", kernel=print, domain={"ids": "a"}))
    assert said == "domain of 'strange' names 'ids', which is no operand"
    assert "strange" not in ops.names()


def test_a_family_takes_shapes_dtypes_and_attributes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ops.registry._OPS", {})

    @family("choosy", "x[], y?[] -> out[]", kernel=print, attrs={"extra": 3})
    def choosy(x: tuple[int, ...], y: Any, x_dtype: Any, flag: bool = False) -> Any:
        """A family for this test."""
        assert (x, y, x_dtype) == ((4,), None, "int64")
        return rule("x[a], y?[a] -> out[a]", linear="x" * flag)

    assert choosy.attrs == {"flag": False, "extra": 3}
    assert len(choosy.bind({"x": (4,)}, {"flag": True}, dtypes={"x": "int64"}).rows) == 4
    assert len(choosy.bind({"x": (4,)}, {}, dtypes={"x": "int64"}).rows) == 2


def test_an_op_that_only_replicates_has_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ops.registry._OPS", {})
    made = replicate_only("lonely", "x[a* _] -> out[a* _]", kernel=print, shape=lambda shapes, attrs: [shapes["x"]])
    assert [row.why for row in made.bind({"x": (4, 6)}, {}).rows] == ["replicate"]


# ---------------------------------------------------------------------------- rows() of the contract


def test_rows_come_as_the_operands_were_given() -> None:
    listed = rows("add_n", [[(4,), (4,)]], {}, size=2)[1]
    assert (listed.operands, listed.results) == (([Shard(0), Shard(0)],), (Shard(0),))
    absent = rows("linear", [(4, 6), (6, 8)], {}, size=2)[2]
    assert (absent.operands, absent.results) == ((Shard(1), Shard(0), None), (Partial("sum"),))


def test_rows_that_the_axis_does_not_divide_are_left_out() -> None:
    assert [row.why for row in rows("relu", [(4, 6)], {}, size=4)][:2] == ["replicate", "cut a0"]
    assert all(row.why != "cut a1" for row in rows("relu", [(4, 6)], {}, size=4))
    assert all(Shard(0) not in row.operands for row in rows("relu", [(1, 1)], {}, size=1))


def test_a_mesh_axis_that_cuts_nothing_may_follow_any_row() -> None:
    bound = rule_for("matmul").bind({"x": (4, 6), "y": (6, 8)}, {})
    first = bound.rows[0]
    assert first.operands == (Replicate(), Replicate())
    assert all(composes(bound, [row, first], [2, 64]) for row in bound.rows)


def test_two_axes_may_cut_one_factor_where_their_product_divides_it() -> None:
    bound = rule_for("matmul").bind({"x": (4, 6), "y": (6, 8)}, {}, factor_parts={"n": (2, 4)})
    plain = next(row for row in bound.rows if row.cut == ("n", 0))
    minor = next(row for row in bound.rows if row.cut == ("n", 1))
    assert composes(bound, [plain, plain], [2, 4])
    assert not composes(bound, [plain, plain], [2, 8])
    assert composes(bound, [plain], [8])
    assert composes(bound, [plain, minor], [2, 4])
    assert not composes(bound, [plain, minor], [4, 2])


def test_a_window_that_strides_must_divide_on_both_sides() -> None:
    """A factor that windows move along has a size per tensor, and each must be divided."""
    needing = [
        row for row in rows("conv1d", [(2, 4, 8), (6, 4, 3), None], {"padding": 1, "stride": 2}, size=4) if row.needs
    ]
    assert len(needing) == 1
    assert not any(
        row.needs for row in rows("conv1d", [(2, 4, 8), (6, 4, 3), None], {"padding": 1, "stride": 2}, size=8)
    )
