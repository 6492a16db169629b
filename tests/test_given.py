"""What an op is given: shapes and attributes that cannot be are refused in one sentence that names them."""

from __future__ import annotations

from typing import Any

import pytest

from ops import RuleError, rows, rule_for

REFUSED: dict[str, tuple[Any, ...]] = {
    "operand x of matmul has shape 4: give a tuple of whole numbers, as (4, 6)": ("matmul", (4, 6)),
    "operand x of matmul has shape (4.5, 6): give a tuple of whole numbers": ("matmul", [(4.5, 6), (6, 8)]),
    "operand x of relu has shape -5: give a tuple of whole numbers": ("relu", [-5]),
    "operand x of relu has shape '4x6': give a tuple of whole numbers": ("relu", ["4x6"]),
    "operand x of relu has shape ('4',): give a tuple of whole numbers": ("relu", [("4",)]),
    "operand x of relu has shape (True,): give a tuple of whole numbers": ("relu", [(True,)]),
    "operand x of relu has shape (0, 4): dim 0 has size 0, and a dim is at least 1": ("relu", [(0, 4)]),
    "operand y of add has shape (4, -1): dim 1 has size -1, and a dim is at least 1": ("add", [(4, 4), (4, -1)]),
    "operand x of concat is (4, 6): it takes a list of one or more shapes": ("concat", [(4, 6)]),
    "operand x of concat has shape (4, -6): dim 1 has size -6": ("concat", [[(4, 6), (4, -6)]]),
    "relu takes the operands x, and 2 shapes are given: [(4,), (5,)]": ("relu", [(4,), (5,)]),
    "the shapes of relu are None: give a list, one for each of x": ("relu", None),
    "the dtypes of relu are 3: give a list, one for each of x": ("relu", [(4,)], {}, 2, 3),
    "the attributes of softmax are [1]: give a mapping of names to values": ("softmax", [(4, 6)], [1]),
    "None is no name of an op: give a text, as 'matmul'": (None, []),
    "['relu'] is no name of an op": (["relu"], [(4,)]),
    "size=0: a mesh axis has at least one device": ("relu", [(4,)], {}, 0),
    "size='2': give a whole number": ("relu", [(4,)], {}, "2"),
    "reshape: shape='24': give a list of whole numbers": ("reshape", [(4, 6)], {"shape": "24"}),
    "reshape: shape=[24.0]: give a list of whole numbers": ("reshape", [(4, 6)], {"shape": [24.0]}),
    "reshape: shape=None: give a list of whole numbers": ("reshape", [(4, 6)], {"shape": None}),
    "reshape: shape=24: give a list of whole numbers": ("reshape", [(4, 6)], {"shape": 24}),
    "cannot reshape (4, 6) to [-24]: a size is -1, for what is left, or not negative": (
        "reshape",
        [(4, 6)],
        {"shape": [-24]},
    ),
    "cannot reshape (4, 6) to [-1, -1]: at most one size may be -1": ("reshape", [(4, 6)], {"shape": [-1, -1]}),
    "expand: shape='46': give a list": ("expand", [(1, 6)], {"shape": "46"}),
    "transpose: perm=None: give a list of whole numbers": ("transpose", [(4, 6)], {"perm": None}),
    "transpose: perm=[0.5, 1]: give a list of whole numbers": ("transpose", [(4, 6)], {"perm": [0.5, 1]}),
    "squeeze: axis=True: give a whole number, a list of whole numbers or None": ("squeeze", [(1, 6)], {"axis": True}),
    "softmax: axis='x': give a whole number": ("softmax", [(4, 6)], {"axis": "x"}),
    "sum: axis=1.5: give a whole number, a list of whole numbers or None": ("sum", [(4, 6)], {"axis": 1.5}),
    "conv2d: stride=-1 is not one positive number": ("conv2d", [(1, 3, 8, 8), (4, 3, 3, 3)], {"stride": -1}),
    "conv2d: stride=None: give a whole number or a list of whole numbers": (
        "conv2d",
        [(1, 3, 8, 8), (4, 3, 3, 3)],
        {"stride": None},
    ),
    "conv2d: stride=[1.5, 1]: give a whole number or a list of whole numbers": (
        "conv2d",
        [(1, 3, 8, 8), (4, 3, 3, 3)],
        {"stride": [1.5, 1]},
    ),
    "conv2d: padding=-1 does not give one or two widths": ("conv2d", [(1, 3, 8, 8), (4, 3, 3, 3)], {"padding": -1}),
    "conv2d: padding=1.5: give a whole number, a text or a list": (
        "conv2d",
        [(1, 3, 8, 8), (4, 3, 3, 3)],
        {"padding": 1.5},
    ),
    "tile: repeat_times=-1: give a list of whole numbers": ("tile", [(1, 6)], {"repeat_times": -1}),
    "zeros: shape=[1.5]: give a list of whole numbers": ("zeros", [], {"shape": [1.5]}),
}


@pytest.mark.parametrize("told", REFUSED)
def test_what_cannot_be_is_refused(told: str) -> None:
    with pytest.raises(RuleError) as caught:
        rows(*REFUSED[told])
    assert str(caught.value).startswith(told)
    assert "\n" not in str(caught.value)


def test_a_shape_may_be_a_list() -> None:
    assert [row.results for row in rows("relu", [[4, 6]])] == [row.results for row in rows("relu", [(4, 6)])]


def test_an_attribute_that_the_dtypes_do_not_fit_is_named() -> None:
    with pytest.raises(RuleError, match=r"^return_index='x': give True or False$"):
        rule_for("unique").infer_dtypes({"x": "float32"}, {"return_index": "x"}, 1)
