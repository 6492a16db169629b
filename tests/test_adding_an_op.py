"""docs/adding_an_op.md: the op that it adds is added here as the page says, and does what the page says."""

from __future__ import annotations

import importlib
import math
import re
import textwrap
from pathlib import Path

import numpy as np
import pytest
from rule_tables import rows_text
from truth import Case
from truth_check import Verdict, check

from ops import names, rule_for
from ops.registry import _FAMILIES, _OPS
from solver import Graph, Mesh, plan

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "adding_an_op.md").read_text("utf-8")
DECLARATION, CASE = [textwrap.dedent(block) for block in re.findall(r"\n\n((?: {4}.*\n)+)", PAGE)[:2]]
TABLES = [block.strip() for block in re.findall(r"```rows\n(.*?)```", PAGE, re.DOTALL)]
MOST = 15
"""An op takes fewer lines than this, all told."""


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> Case:
    """The op of the page, declared where the page says, and its case."""
    monkeypatch.setattr("ops.registry._OPS", dict(_OPS))
    monkeypatch.setattr("ops.registry._FAMILIES", dict(_FAMILIES))
    module = importlib.import_module("ops.unary")
    exec(DECLARATION, dict(vars(module)))
    return eval(CASE.strip().rstrip(","), vars(importlib.import_module("cases.unary")))


def test_it_takes_few_lines() -> None:
    assert "In `ops/unary.py`:" in PAGE
    assert "and in `tests/cases/unary.py`:" in PAGE
    assert len((DECLARATION + CASE).strip().splitlines()) < MOST


def test_its_rows_are_the_truth_and_its_grad_is_right(added: Case) -> None:
    assert check(added) == Verdict()
    assert rule_for(added.op).kernel(np.array([0.0, 1.0])) == pytest.approx([0.0, math.log(math.cosh(1.0))])
    assert f"{added.op}_grad" in names()


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.splitlines()[0])
def test_its_tables_of_rows(added: Case, table: str) -> None:
    assert rows_text(table) == table


def test_it_is_planned_checked_and_run(added: Case) -> None:
    g = Graph()
    x = g.input("x", (4, 6))
    g.output(g.op(added.op, g.op("matmul", x, g.parameter("w", (6, 8))), name="y"))
    p = plan(g, Mesh({"tp": 2}), pins={"w": "tp=S(1)"})
    assert p.status == "optimal"
    assert p.check().ok
    assert p.simulate(seed=0).ok


def test_an_op_is_not_added_twice(added: Case) -> None:
    with pytest.raises(ValueError, match="op 'log_cosh' is registered twice"):
        exec(DECLARATION, dict(vars(importlib.import_module("ops.unary"))))


def test_the_commands_of_the_page_are_there() -> None:
    targets = re.findall(r"(?:`| {4})make ([a-z-]+)", PAGE)
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert targets
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)
