"""The benchmark against greedy planners: no row beats a proof, and the README's table is that of the CSV."""

from __future__ import annotations

import pytest

from benchmarks.greedy import COLUMNS, Case, broken, cases, main, measure, quick_cases, read_rows, told
from benchmarks.greedy_figures import IMAGES, ratio, table, written_table
from solver.compare import GREEDY


def test_no_row_is_below_a_bound_or_better_than_the_optimum() -> None:
    rows = read_rows()
    assert rows
    assert list(rows[0]) == list(COLUMNS)
    assert list(broken(rows)) == []


def test_every_quick_case_was_measured() -> None:
    measured = {Case(row["model"], row["mesh"], row["pins"]) for row in read_rows()}
    assert set(quick_cases()) <= measured <= set(cases())


def test_the_table_of_the_readme_is_that_of_the_rows() -> None:
    assert written_table() == table(read_rows())
    assert {path.name for path in IMAGES.glob("greedy_*.svg")} == {
        "greedy_ratio.svg",
        "greedy_collectives.svg",
        "greedy_seconds.svg",
    }


def test_a_row_that_beats_a_proof_is_found() -> None:
    row = {"model": "m", "mesh": "8", "pins": "batch", "planner": "shardproof", "status": "optimal", "note": ""}
    best = {**row, "time_ps": "10", "bound_ps": "9"}
    free = {**best, "pins": "none", "time_ps": "8", "bound_ps": "8"}
    assert list(broken([best, free, {**best, "planner": "paddle", "time_ps": "11"}])) == []
    (told,) = broken([best, {**best, "planner": "paddle", "time_ps": "9"}])
    assert told == "m on 8 with pins batch, paddle: 9 ps is better than the plan found with pins batch"
    (told,) = broken([{**best, "time_ps": "7", "bound_ps": "7"}, free])
    assert "7 ps is below the bound with pins none" in told


@pytest.mark.parametrize("pins", ["none", "batch", "first", "fsdp", "megatron"])
def test_the_optimum_is_never_worse(pins: str) -> None:
    rows = [{key: str(value) for key, value in row.items()} for row in measure(Case("gpt-1", "2x4", pins))]
    rows += [{key: str(value) for key, value in row.items()} for row in measure(Case("gpt-1", "2x4", "none"))]
    rows = [{column: row.get(column, "") for column in COLUMNS} for row in rows]
    assert [row["planner"] for row in rows[: len(GREEDY) + 1]] == ["shardproof", *GREEDY]
    assert rows[0]["status"] == "optimal"
    assert list(broken(rows)) == []


def test_what_does_not_fit_is_a_row() -> None:
    (row,) = measure(Case("gpt-1", "8x8", "expert_parallel"))
    assert row["status"] == "does not fit"
    assert "it has no stacked weights" in row["note"]


def test_every_case_is_told_in_a_line() -> None:
    case = {"model": "m", "mesh": "8", "pins": "batch"}
    best = {**case, "planner": "shardproof", "time_ps": "2000000000", "bound_ps": "1500000000", "seconds": "0.50"}
    others = [{**case, "planner": "paddle", "time_ps": "3000000000"}, {**case, "planner": "dtensor", "status": "stuck"}]
    assert told([best, *others]) == "m 8 batch: 2.000 ms, gap 25.00%, in 0.50 s; paddle 1.50, dtensor stuck"
    assert told([{**case, "status": "does not fit", "note": "why"}]) == "m 8 batch: does not fit, why"


@pytest.mark.parametrize("wrong", [["gpt-5"], ["gpt2", "bert"], ["--workers", "0"]])
def test_what_names_no_case_is_refused(wrong: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(wrong)
    assert ended.value.code == 2


def test_ratios_are_over_the_bound_too_where_a_plan_is_not_proved() -> None:
    best = {"planner": "shardproof", "time_ps": "100", "bound_ps": "80"}
    assert ratio({"planner": "paddle", "time_ps": "200", "bound_ps": "80"}, best) == "2.00–2.50"
    assert ratio({"planner": "shardproof", "time_ps": "120", "bound_ps": "90"}, best) == "1.00–1.50"
    proved = {**best, "bound_ps": "100"}
    assert ratio({"planner": "paddle", "time_ps": "200", "bound_ps": "100"}, proved) == "2.00"
    assert ratio(None, best) == "–"
