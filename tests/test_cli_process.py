"""The command as a process: readers that go away, full disks, and Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def test_a_plan_may_go_down_a_pipe(model: Path) -> None:
    command = f"{sys.executable} -m solver.cli plan {model} --mesh dp=2 --json /dev/stdout | cat"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert json.JSONDecoder().raw_decode(done.stdout)[0]["status"] == "optimal"


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = f"{sys.executable} -m solver.cli rules | head -c 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("closed", ["| true", ">&-"])
@pytest.mark.parametrize(("pin", "code"), [("x:dp=R", 0), ("x:dp=S(0),dp=R", 3)])
def test_a_plan_is_written_though_nobody_reads_what_is_said(
    model: Path, tmp_path: Path, closed: str, pin: str, code: int
) -> None:
    out = tmp_path / "plan.json"
    planning = f"{sys.executable} -m solver.cli plan {model} --mesh dp=2 --pin '{pin}' --json {out} --verify"
    command = f"({planning}; echo $? >&2) {closed}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == f"{code}\n"
    assert json.loads(out.read_text(encoding="utf-8"))["status"] == {0: "optimal", 3: "infeasible"}[code]


def test_a_full_stdout_is_told(model: Path) -> None:
    command = f"{sys.executable} -m solver.cli plan {model} --mesh dp=2 > /dev/full"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "shardproof: nothing can be printed: No space left on device\n")


STOPPED = """
import os, signal, sys, solver
from types import SimpleNamespace
from solver import cli

def plan(*_, progress, **__):
    for _ in range({times}):
        os.kill(os.getpid(), signal.SIGINT)
    assert progress("searching", None)
    done = SimpleNamespace(ok=True)
    mesh = solver.Mesh({{"dp": 2}})
    return SimpleNamespace(
        status="feasible", problem=SimpleNamespace(mesh=mesh),
        text=lambda whole: "a plan", check=lambda: done, simulate=lambda seed, tell: done,
    )

solver.plan = plan
sys.exit(cli.main(["plan", {model!r}, "--mesh", "dp=2", "--verify"]))
"""


@pytest.mark.parametrize(
    ("times", "code", "last"),
    [(1, 0, "the plan that was found is verified now; Ctrl-C ends that"), (2, 4, "shardproof: stopped without a plan")],
)
def test_ctrl_c_once_and_twice(model: Path, times: int, code: int, last: str) -> None:
    program = STOPPED.format(times=times, model=str(model))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    told = [line for line in done.stderr.splitlines() if line]
    assert (done.returncode, told[1:]) == (code, [last])
    assert told[0].startswith("stopping with the best plan so far")


def test_ctrl_c_while_the_packages_load(tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text(f"open({str(tmp_path / 'begun')!r}, 'w').close()\nimport time\ntime.sleep(60)")
    paths = os.pathsep.join([str(tmp_path), str(ROOT)])
    with subprocess.Popen(
        [sys.executable, "-m", "shardproof", "rules"], env={**os.environ, "PYTHONPATH": paths}, stderr=subprocess.PIPE
    ) as running:
        while not (tmp_path / "begun").exists():
            time.sleep(0.01)
        running.send_signal(signal.SIGINT)
        told = running.communicate(timeout=30)[1]
    assert (running.returncode, told) == (4, b"\nshardproof: stopped before there was a plan\n")


def test_the_module_runs_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "shardproof", "rules", "matmull"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "did you mean 'matmul'" in done.stderr
