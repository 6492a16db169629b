"""A second opinion on rows: PaddlePaddle's own rules are asked, and each answer is a row of ours or a known fault."""

from __future__ import annotations

import re
import struct
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

paddle = pytest.importorskip("paddle", reason="PaddlePaddle is not installed: pip install 'shardproof[paddle]'")
import paddle_rules as rules  # noqa: E402
from paddle.base import core, libpaddle  # noqa: E402
from paddle_differences import FAULTS, RIGHT  # noqa: E402
from paddle_registry import NO_REVERSE, REGISTRY, UNCALLED  # noqa: E402

from solver.report.coverage import framework  # noqa: E402

ASKED = sorted(REGISTRY.keys() - UNCALLED.keys())
TWO_AXES = 8
"""Questions a case on two mesh axes, a sample."""


def rodata() -> bytes:
    """The constants of Paddle's library, where the names of its rules are."""
    data = Path(libpaddle.__file__).read_bytes()
    (at,) = struct.unpack_from("<Q", data, 0x28)
    size, count, names = struct.unpack_from("<HHH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQ", data, at + index * size) for index in range(count)]
    table = sections[names][4]
    for name, _, _, _, offset, length in sections:
        if data[table + name :].startswith(b".rodata\0") if name else False:
            return data[offset : offset + length]
    raise AssertionError("libpaddle has no .rodata")


def test_the_table_of_coverage_holds_every_rule_of_the_wheel() -> None:
    """Names are looked for in the library; one that the compiler wrote into its code is found by being in our table."""
    ours = {entry.name for entry in framework("paddle").entries}
    words = {word.decode() for word in re.findall(rb"[a-z][a-z0-9_]{2,50}(?=\0)", rodata())}
    tried = {word[start:] for word in words for start in range(len(word) - 1)} | ours
    assert {name for name in tried if core.contains_spmd_rule(name)} == ours
    assert REGISTRY.keys() == ours


def argued(table: dict[str, dict[str, str]], name: str, line: str) -> list[str]:
    return [pattern for pattern in table.get(name, {}) if fnmatchcase(line, pattern)]


@pytest.mark.parametrize("name", ASKED)
def test_answers_of_a_rule_are_our_rows_or_known_faults(name: str) -> None:
    found, answers, _ = rules.findings(name)
    assert answers
    wrong = []
    for finding in found:
        table = RIGHT if finding.fault is None else FAULTS
        if not argued(table, name, str(finding)):
            wrong.append(f"{finding} ({finding.case}): {finding.fault or 'holds, and no row of ours says so'}")
    assert not wrong, "\n".join(wrong)
    for table, holds in ((FAULTS, False), (RIGHT, True)):
        met = [str(finding) for finding in found if (finding.fault is None) is holds]
        stale = [pattern for pattern in table.get(name, {}) if not any(fnmatchcase(line, pattern) for line in met)]
        assert not stale, f"{name} gives no such answer: take {stale} out"


@pytest.mark.parametrize("name", ASKED)
def test_answers_on_two_mesh_axes_are_our_rows_or_wrong(name: str) -> None:
    found, _, _ = rules.findings(name, axes=2, limit=TWO_AXES)
    assert not found or name in FAULTS or name in RIGHT
    for finding in found:
        assert finding.fault is not None or name in RIGHT, f"{finding} ({finding.case}) holds, and no row says so"


def test_what_is_not_asked_is_named() -> None:
    assert UNCALLED.keys() | NO_REVERSE <= REGISTRY.keys()
    assert FAULTS.keys() | RIGHT.keys() <= REGISTRY.keys()


def test_a_wrong_answer_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def moved(attr: Any, axes: int) -> Any:
        real = placements_of(attr, axes)
        return (rules.Replicate(),) if real == (rules.Shard(1),) and len(attr.dims_mapping) == 2 else real

    placements_of = rules.placements_of
    monkeypatch.setattr(rules, "placements_of", moved)
    found, _, _ = rules.findings("triu")
    assert not found
    monkeypatch.setattr(rules, "placements_of", lambda attr, axes: (rules.Shard(0),) if len(attr.dims_mapping) else ())
    found, _, _ = rules.findings("softmax")
    assert {str(finding) for finding in found} == {"forward S(0) -> S(0)", "reverse S(0) -> S(0)"}
    assert all(finding.fault for finding in found)
