"""The tables of other frameworks' names, and the pages and commands that read them."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from ops import names, rule_for
from ops.registry import families
from solver.cli import main
from solver.report.coverage import FRAMEWORKS, Entry, framework
from solver.report.page import page
from solver.report.rules import specimen

PAGE = Path(__file__).resolve().parent.parent / "docs" / "ops.md"
ENTRIES = [pytest.param(entry, id=f"{key}:{entry.name}") for key in FRAMEWORKS for entry in framework(key).entries]
COUNTS = {"paddle": 187, "aten": 313, "onnx": 51, "jax": 125}


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_name_becomes_ops_or_has_a_reason(entry: Entry) -> None:
    known = set(names())
    assert known.issuperset(entry.ops)
    assert entry.ops or entry.note or entry.missing
    assert not (entry.ops and entry.missing)


@pytest.mark.parametrize("entry", ENTRIES)
def test_the_attributes_of_ours_exist(entry: Entry) -> None:
    taken = {attribute for name in entry.ops for attribute in rule_for(name).attrs}
    for ours in (entry.attributes or {}).values():
        assert taken.issuperset(ours.split(","))


def test_no_name_is_lost() -> None:
    assert {key: len(framework(key).entries) for key in FRAMEWORKS} == COUNTS


def test_the_onnx_table_is_what_the_importer_does() -> None:
    pytest.importorskip("onnx")
    from solver.importers.onnx_ops import TABLE

    entries = {entry.name: entry for entry in framework("onnx").entries}
    by_ops = {name for name, entry in entries.items() if entry.ops}
    assert by_ops <= TABLE.keys()
    assert {name for name in entries.keys() - by_ops if name in TABLE} == {"Dropout", "Identity"}


def test_each_family_is_a_file_with_a_title() -> None:
    assert sorted(name for members in families().values() for name in members) == names()
    for module in families():
        assert importlib.import_module(module).__doc__


def test_the_command_counts_every_framework(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "--coverage"]) == 0
    said = capsys.readouterr().out
    for key in FRAMEWORKS:
        found = framework(key)
        covered = len(found.covered()) + len(found.nothing())
        assert f"{found.name}: {covered} of {len(found.entries)} " in said
        assert all(entry.name in said for entry in found.missing())


def test_rows_for_given_shapes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "topk", "--shape", "x=4x6", "--attr", "k=2", "--attr", "axis=0", "--size", "3"]) == 0
    said = capsys.readouterr().out
    assert "c (dim 0 of x) is declared whole" in said
    assert "On a mesh axis of size 3, with x (4, 6), k=2, axis=0:" in said
    assert " S(1)   ->   S(1)   S(1)      cut b0" in said


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["topk", "--shape", "x=4xq"], "'x=4xq' is no shape: write NAME=4x6"),
        (["topk", "--shape", "x=4", "--attr", "k"], "'k' is no attribute: write NAME=VALUE"),
        (["topk", "--shape", "y=4", "--attr", "k=1"], "topk has no operand 'y': it takes x"),
        (["--shape", "x=4"], "--shape and --attr speak of an OP: name it"),
    ],
)
def test_what_cannot_be_shown_is_one_sentence(
    capsys: pytest.CaptureFixture[str], arguments: list[str], complaint: str
) -> None:
    assert main(["rules", *arguments]) == 2
    assert capsys.readouterr().err.strip() == f"shardproof: {complaint}"


def test_the_page_of_ops_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m solver.report.page docs/ops.md"


@pytest.mark.parametrize("name", names())
def test_every_op_can_be_shown(name: str) -> None:
    assert specimen(rule_for(name)) is not None, "give it an example in solver/report/examples.py"
