"""A second opinion on grads: what each op of PaddlePaddle's programs says, forward and backward, beside our rows."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest

pytest.importorskip("paddle", reason="PaddlePaddle is not installed: pip install 'shardproof[paddle]'")
import paddle_programs as programs
from paddle_differences import PROGRAM_FAULTS
from paddle_networks import NETWORKS, UNWRITABLE

MET: set[tuple[str, str]] = set()
"""Op and pattern of each known fault that was met."""


@pytest.mark.parametrize("name", NETWORKS)
def test_what_the_ops_of_a_program_say_is_ours_or_a_known_fault(name: str) -> None:
    found, spoken = programs.findings(name)
    assert spoken, f"no program of {name} can be written"
    wrong = []
    for op, differing in found.items():
        for finding in differing:
            argued = [pattern for pattern in PROGRAM_FAULTS.get(op, {}) if fnmatchcase(str(finding), pattern)]
            MET.update((op, pattern) for pattern in argued)
            if not argued or finding.fault is None:
                told = finding.fault or "holds, and no row of ours says so"
                wrong.append(f"{op} {finding} ({finding.case}): {told}")
    assert not wrong, "\n".join(wrong)


def test_every_known_fault_is_met() -> None:
    known = {(op, pattern) for op, faults in PROGRAM_FAULTS.items() for pattern in faults}
    assert not UNWRITABLE.keys() & NETWORKS.keys()
    if MET:
        assert known == MET, f"take out: {sorted(known - MET)}"
