"""What the command says while it works."""

from __future__ import annotations

import os
import signal
import time
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from solver import Plan, cli, cli_terminal
from solver.search.limits import Progress


def test_ctrl_c_ends_a_frontier_with_the_plans_so_far(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tries = count()

    def planned(asked: Any, timeout: float, progress: Any, searches: Any) -> Plan:
        os.kill(os.getpid(), signal.SIGINT)
        while not progress("bound", None):
            assert next(tries) < 100
            time.sleep(0.01)
        return Plan(asked, "unknown")

    monkeypatch.setattr("solver.frontier.plan_problem", planned)
    assert cli.main(["frontier", str(model), "--mesh", "tp=4"]) == 0
    said, complaint = capsys.readouterr()
    assert complaint == "\nstopping with the plans found so far; Ctrl-C again ends without\n"
    assert "budget" in said


def test_the_gap_is_a_part_of_the_progress() -> None:
    told = [cli_terminal.state_text("bound", Progress(1, 1, bound, cost, 0.1)) for bound, cost in ((-1, None), (9, 10))]
    assert told[0] == "no plan yet, every plan takes at least 0 ms"
    assert told[1] == "a plan of 1e-08 ms, every plan takes at least 9e-09 ms, gap 10.00%"
    close = cli_terminal.state_text("bound", Progress(1, 1, 10**9 - 1, 10**9, 0.1))
    assert close == "a plan of 1 ms, every plan takes at least 1 ms, gap <0.01%"
