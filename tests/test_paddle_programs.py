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
RUN: set[str] = set()
"""Networks that were asked."""


def judged(name: str, axes: int) -> None:
    RUN.add(name)
    found, spoken = programs.findings(name, axes)
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


@pytest.mark.parametrize("name", NETWORKS)
def test_what_the_ops_of_a_program_say_is_ours_or_a_known_fault(name: str) -> None:
    judged(name, 1)


@pytest.mark.parametrize("name", ["matmul", "linear", "layer_norm", "embedding", "reshape", "sum_1"])
def test_what_they_say_on_two_mesh_axes_is_ours_or_a_known_fault(name: str) -> None:
    judged(name, 2)


def test_every_known_fault_is_met() -> None:
    known = {(op, pattern) for op, faults in PROGRAM_FAULTS.items() for pattern in faults}
    assert not UNWRITABLE.keys() & NETWORKS.keys()
    if NETWORKS.keys() == RUN:
        assert known == MET, f"take out: {sorted(known - MET)}"
