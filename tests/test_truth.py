"""Every row of every op holds, and none that holds is missing without a reason."""

from __future__ import annotations

import pytest
from cases import CASES
from truth import Case, check

import ops


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rows_hold_and_none_is_missing(case: Case) -> None:
    faults = check(case).faults
    if faults:
        pytest.fail("\n".join([str(case), *faults[:20]]), pytrace=False)


def test_every_op_has_a_case() -> None:
    covered = {case.op for case in CASES}
    forward = {name for name in ops.names() if ops.rule_for(name).forward is None}
    assert not forward - covered
