"""Certificates of another form than docs/certificate.md gives them: each is refused in a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from solver.certificate import CertificateError, proved
from solver.certificate_model import Model
from solver.problem import problem
from tests.graphs import HAND_MADE
from tests.plans import FAST

NOTHING: Any = {"bits": 12, "arrays": [], "tree": {"messages": {}}}
LEAF = {"messages": {}}
SPLIT = {"op": "h", "left_values": [], "left": LEAF, "right": LEAF}
BLOCK = {"variables": [["op", "h"]], "tree": LEAF}


def blocked(*blocks: Any) -> Any:
    """A certificate of one leaf with blocks."""
    return {**NOTHING, "tree": {**LEAF, "blocks": list(blocks)}}


WRONG: list[tuple[Any, str]] = [
    (None, "it should be an object with bits, arrays and tree"),
    ([], "it should be an object with bits, arrays and tree"),
    ({"bits": 12, "arrays": []}, "it should be an object with bits, arrays and tree"),
    ({**NOTHING, "more": 1}, "it should be an object with bits, arrays and tree"),
    ({**NOTHING, "bits": -1}, "bits is -1"),
    ({**NOTHING, "bits": 33}, "bits is 33"),
    ({**NOTHING, "bits": True}, "bits is True"),
    ({**NOTHING, "bits": 12.0}, "bits is 12.0"),
    ({**NOTHING, "bits": "12"}, "bits is '12'"),
    ({**NOTHING, "bits": 10**60}, "bits is 1000"),
    ({**NOTHING, "arrays": {}}, "arrays should be a list"),
    ({**NOTHING, "arrays": [1]}, "message vector 0 should be a list of whole numbers"),
    ({**NOTHING, "arrays": [[], [1.5]]}, "message vector 1 should be a list of whole numbers"),
    ({**NOTHING, "arrays": [[float("nan")]]}, "message vector 0"),
    ({**NOTHING, "arrays": [["1"]]}, "message vector 0"),
    ({**NOTHING, "arrays": [[None]]}, "message vector 0"),
    ({**NOTHING, "arrays": [[True]]}, "message vector 0"),
    ({**NOTHING, "arrays": [[[1]]]}, "message vector 0"),
    ({**NOTHING, "tree": None}, "a node of the tree is None"),
    ({**NOTHING, "tree": []}, "a node of the tree is []"),
    ({**NOTHING, "tree": {}}, "a leaf of the tree is {}"),
    ({**NOTHING, "tree": {"unproved": False}}, "a leaf of the tree is {'unproved': False}"),
    ({**NOTHING, "tree": {**SPLIT, "right": {"unproved": True}}}, "a leaf of the tree is {'unproved': True}"),
    ({**NOTHING, "tree": {"infeasible": False}}, "a leaf of the tree is {'infeasible': False}"),
    ({**NOTHING, "tree": {**LEAF, "more": 1}}, "a leaf of the tree is"),
    ({**NOTHING, "tree": {"messages": []}}, "the messages of a leaf name something that is no edge: []"),
    ({**NOTHING, "tree": {"messages": {"nobody/x": [0, 0]}}}, "something that is no edge: {'nobody/x': [0, 0]}"),
    ({**NOTHING, "tree": {"messages": {"h/x": 1}}}, "edge 'h/x' should name two message vectors, not 1"),
    ({**NOTHING, "tree": {"messages": {"h/x": [0]}}}, "edge 'h/x' should name two message vectors, not [0]"),
    ({**NOTHING, "tree": {"messages": {"h/x": [0, "1"]}}}, "edge 'h/x' should name two message vectors"),
    ({**NOTHING, "tree": {"messages": {"h/x": [0, -1]}}}, "edge 'h/x' names the vectors [0, -1], but there are 0"),
    ({**NOTHING, "tree": {"messages": {"h/x": [0, 10**30]}}}, "edge 'h/x' names the vectors"),
    ({**NOTHING, "arrays": [[1]], "tree": {"messages": {"h/x": [0, 0]}}}, "edge 'h/x' has vectors of 1 and 1 entries"),
    ({**NOTHING, "tree": {**SPLIT, "op": "nobody"}}, "the tree splits op 'nobody', which has nothing to choose"),
    ({**NOTHING, "tree": {**SPLIT, "op": ["h"]}}, "a split of the tree is"),
    ({**NOTHING, "tree": {**SPLIT, "op": {}}}, "a split of the tree is"),
    ({**NOTHING, "tree": {**SPLIT, "tensor": "x"}}, "a split of the tree is"),
    ({**NOTHING, "tree": {"op": "h"}}, "a split of the tree is"),
    (
        {**NOTHING, "tree": {"tensor": "h", "left_values": [], "left": LEAF, "right": LEAF}},
        "the tree splits tensor 'h'",
    ),
    ({**NOTHING, "tree": {**SPLIT, "left_values": 1}}, "the split on op 'h' should list its left values"),
    ({**NOTHING, "tree": {**SPLIT, "left_values": [1]}}, "the split on op 'h' should list its left values"),
    ({**NOTHING, "tree": {**SPLIT, "left_values": [[0, True]]}}, "the split on op 'h' should list its left values"),
    (
        {**NOTHING, "tree": {**SPLIT, "left_values": [[0, 99]]}},
        "the split on op 'h' lists values that it does not have",
    ),
    (
        {**NOTHING, "tree": {**SPLIT, "left_values": [[-1, 0]]}},
        "the split on op 'h' lists values that it does not have",
    ),
    ({**NOTHING, "tree": {**SPLIT, "left_values": [[0]]}}, "the split on op 'h' lists values that it does not have"),
    ({**NOTHING, "tree": {**SPLIT, "left": None}}, "a node of the tree is None"),
    ({**NOTHING, "tree": {**LEAF, "within": 5}}, "a leaf of the tree is"),
    ({**NOTHING, "tree": {**LEAF, "within": 5, "rest": None}}, "a node of the tree is None"),
    ({**NOTHING, "tree": {**LEAF, "within": 5.0, "rest": LEAF}}, "within should be a whole number, not 5.0"),
    ({**NOTHING, "tree": {**LEAF, "within": True, "rest": LEAF}}, "within should be a whole number, not True"),
    ({**NOTHING, "tree": {"messages": 3, "within": 5, "rest": LEAF}}, "the messages of a leaf name something"),
    ({**NOTHING, "tree": {**LEAF, "blocks": {}}}, "blocks should be a list, not {}"),
    ({**NOTHING, "tree": {**LEAF, "blocks": [1]}}, "a block is 1: it should have variables and a tree"),
    ({**NOTHING, "tree": {**LEAF, "blocks": [{"variables": []}]}}, "it should have variables and a tree"),
    (blocked({"variables": 1, "tree": LEAF}), "a block should list its variables as pairs of a kind and a name"),
    (blocked({"variables": ["h"], "tree": LEAF}), "a block should list its variables as pairs of a kind and a name"),
    (blocked({"variables": [["op", 1]], "tree": LEAF}), "a block has ['op', 1], which has nothing to choose"),
    (blocked({"variables": [["op", []]], "tree": LEAF}), "a block has ['op', []], which has nothing to choose"),
    (
        blocked({"variables": [["op", "nobody"]], "tree": LEAF}),
        "a block has ['op', 'nobody'], which has nothing to choose",
    ),
    (blocked(BLOCK, BLOCK), "the blocks of a leaf share variables: [('op', 'h')]"),
    (blocked({"variables": [["op", "h"], ["op", "h"]], "tree": LEAF}), "the blocks of a leaf share variables"),
    (blocked({**BLOCK, "tree": None}), "a node of the tree is None"),
    (blocked({**BLOCK, "tree": {**LEAF, "blocks": [BLOCK]}}), "a block has no blocks of its own"),
    (blocked({**BLOCK, "tree": {**LEAF, "weights": []}}), "a budget is no matter of a block"),
    (blocked({**BLOCK, "tree": {**LEAF, "multipliers": []}}), "a budget is no matter of a block"),
    (blocked({**BLOCK, "tree": {"messages": {"h/x": [0, 0]}}}), "something that is no edge: {'h/x': [0, 0]}"),
    (
        blocked({**BLOCK, "tree": {"op": "y", "left_values": [], "left": LEAF, "right": LEAF}}),
        "the tree splits op 'y', which has nothing to choose",
    ),
]


@pytest.mark.parametrize(("certificate", "sentence"), WRONG, ids=[sentence[:50] for _, sentence in WRONG])
def test_another_form_is_refused_in_words(certificate: Any, sentence: str) -> None:
    model = Model(problem(HAND_MADE[0](), FAST))
    with pytest.raises(CertificateError) as refused:
        proved(model, certificate)
    assert sentence in str(refused.value)
    assert len(str(refused.value)) < 200
