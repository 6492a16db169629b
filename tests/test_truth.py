"""Every row of every op holds, and none that holds is missing without a reason."""

from __future__ import annotations

import pytest
from cases import CASES
from truth import Case
from truth_check import Verdict, check

import ops

LEFT_OUT = 0.03
"""The part of the placements that hold that the rules may leave out, all of it argued."""
VERDICTS: dict[int, Verdict] = {}
"""Case -> its verdict, as far as the cases have run."""


@pytest.mark.parametrize("index", range(len(CASES)), ids=[str(case) for case in CASES])
def test_rows_hold_and_none_is_missing(index: int) -> None:
    VERDICTS[index] = verdict = check(CASES[index])
    if verdict.faults:
        pytest.fail("\n".join([str(CASES[index]), *verdict.faults[:20]]), pytrace=False)


def test_every_reason_for_a_missing_row_is_needed() -> None:
    if len(VERDICTS) < len(CASES):
        pytest.skip("not all cases have run")
    met = set().union(*(verdict.argued for verdict in VERDICTS.values()))
    stale = {
        (name, pattern)
        for case in CASES
        for name, patterns in ((case.op, case.missing), (f"{case.op}_grad", case.grad_missing))
        for pattern in patterns
        if (name, pattern) not in met
    }
    assert not stale


def test_few_rows_that_hold_are_left_out() -> None:
    if len(VERDICTS) < len(CASES):
        pytest.skip("not all cases have run")
    left = sum(verdict.left_out.total() for verdict in VERDICTS.values())
    assert left / sum(verdict.held for verdict in VERDICTS.values()) < LEFT_OUT


def test_every_op_has_a_case() -> None:
    covered = {case.op for case in CASES}
    forward = {name for name in ops.names() if ops.rule_for(name).forward is None}
    assert not forward - covered


def test_a_case_is_told_by_its_shapes() -> None:
    assert str(Case("add", {"x": (4, 6), "y": None}, {"a": 1})) == "add(x=(4,6), y=None, a=1)"
