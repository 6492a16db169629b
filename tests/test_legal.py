"""A second opinion on rows: our rows are those of the tables in tests/data/legal, and every difference is argued."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from legal_differences import DIFFERENCES
from legal_names import EMPTY, NAMES
from legal_tables import Beside, cases, differences, tables

import ops

COMPARED = [table for table in tables() if table in NAMES]


def test_every_table_is_named() -> None:
    assert sorted([*NAMES, *EMPTY]) == tables()
    assert DIFFERENCES.keys() <= NAMES.keys()


@pytest.mark.parametrize("table", COMPARED)
def test_rows_are_those_of_the_table(table: str) -> None:
    found = sorted(set(differences(table)))
    argued = DIFFERENCES.get(table, {})
    unargued = [line for line in found if not any(fnmatchcase(line, pattern) for pattern in argued)]
    assert not unargued, "\n".join([f"{table} differs and no line argues it:", *unargued])
    stale = [pattern for pattern in argued if not any(fnmatchcase(line, pattern) for line in found)]
    assert not stale, f"{table} does not differ in {stale}: take the line out"


def test_nearly_all_rows_of_the_tables_are_ours() -> None:
    """Products that underflow aside, hardly a row of a table is none of ours."""
    found = [
        bool(meanings & beside.ours())
        for table in COMPARED
        if table != "prod"
        for beside in (Beside(case, NAMES[table]) for case in cases(table))
        for _, meanings in beside.theirs()
    ]
    assert len(found) > 700
    assert sum(found) > 0.96 * len(found)


@pytest.mark.parametrize("table", sorted(EMPTY))
def test_an_empty_table_says_what_it_means_here(table: str) -> None:
    assert not cases(table)
    means = EMPTY[table].partition(";")[0]
    assert means.startswith("no op:") or all(word in ops.names() for word in means.split(", then "))


def test_a_wrong_row_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Beside.ours
    monkeypatch.setattr(Beside, "ours", lambda beside: real(beside) - {(("S0",), ("S0",))} | {(("S1",), ("R",))})
    assert list(differences("tanh"))[:2] == ["forward theirs: S0 -> S0", "forward ours: S1 -> R"]
