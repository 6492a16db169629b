"""Where a framework is not installed, one sentence names the extra that brings it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from solver import from_torch
from solver.cli import main
from solver.importers import ImporterError


def test_without_torch_one_sentence_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith("solver.importers.torch_")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    path = tmp_path / "model.pt2"
    path.write_bytes(b"PK\x03\x04")
    assert main(["plan", str(path), "--mesh", "dp=2"]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "model.pt2" in told
    assert "pip install 'shardproof[torch]'" in told
    with pytest.raises(ImporterError, match=r"shardproof\[torch\]"):
        from_torch(None, ())
