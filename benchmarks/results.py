"""What the benchmarks share: rows in a CSV, tables in marked regions of a page, runs in processes of their own."""

from __future__ import annotations

import csv
import importlib.metadata
import json
import os
import platform
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DATA, IMAGES = ROOT / "benchmarks" / "data", ROOT / "docs" / "images"
KILLED = 30.0
"""Seconds after its limit when a run is ended from outside."""
SPARED = 2 * 2**30
"""Bytes of the free memory that a run may not take."""
Row = dict[str, str]


def begin_plots() -> None:
    """Set matplotlib up for plots that are the same each time; without it say how to get it."""
    try:
        import matplotlib
    except ImportError as error:
        raise SystemExit("the plots need matplotlib: pip install 'shardproof[report]'") from error
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "shardproof", "font.size": 9, "axes.spines.top": False})
    matplotlib.rcParams["axes.spines.right"] = False
    IMAGES.mkdir(parents=True, exist_ok=True)


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a CSV; none where there is no file."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write_rows(path: Path, columns: Sequence[str], rows: Iterable[dict[str, Any]]) -> None:
    """Write a CSV."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def table(names: Sequence[str], lines: Iterable[Sequence[str]], texts: int = 1) -> str:
    """Return a table of Markdown whose first columns are texts and whose others are numbers."""
    heads = [f"| {' | '.join(names)} |", f"|{'---|' * texts}{'--:|' * (len(names) - texts)}"]
    return "\n".join([*heads, *(f"| {' | '.join(line)} |" for line in lines)])


def _region(name: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)


def write_region(page: Path, name: str, text: str) -> None:
    """Write a text between ``<!-- name -->`` and ``<!-- end -->`` of a page."""
    whole, count = _region(name).subn(lambda found: f"{found[1]}{text}\n{found[2]}", page.read_text(encoding="utf-8"))
    if not count:
        raise SystemExit(f"{page} has no region <!-- {name} -->")
    page.write_text(whole, encoding="utf-8")


def written(page: Path, name: str) -> str:
    """Return what stands in a region of a page."""
    found = _region(name).search(page.read_text(encoding="utf-8"))
    return "" if found is None else found[0].removeprefix(found[1]).removesuffix(f"\n{found[2]}")


def in_a_process(module: str, arguments: Sequence[str], limit: float) -> dict[str, Any]:
    """Run a module that prints one line of JSON last; what fails or takes much longer than its limit says so.

    Parameters
    ----------
    module : str
    arguments : sequence of str
    limit : float
        Seconds, all work that has no limit of its own included.

    Returns
    -------
    dict
        What was printed, or ``failed`` alone.
    """
    command = [sys.executable, "-m", module, *arguments]
    memory = free_memory() - SPARED
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (memory, memory)),
    ) as run:
        try:
            said, complaint = run.communicate(timeout=limit + KILLED)
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)  # the group is that of this run alone
            run.communicate()
            return {"failed": f"ended from outside after {limit + KILLED:.0f} s"}
        except BaseException:
            os.killpg(run.pid, signal.SIGKILL)
            raise
    if run.returncode or not said.strip():
        last = (complaint.strip().splitlines() or ["nothing said"])[-1]
        if "MemoryError" in last or "bad_alloc" in last:
            return {"failed": f"more than {memory >> 30} GiB of memory"}
        ended = f"exit code {run.returncode}" if run.returncode > 0 else f"signal {-run.returncode}"
        return {"failed": f"{ended}, {memory >> 30} GiB of memory: {last[:150]}"}
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    return found


def free_memory() -> int:
    """Return the bytes of memory that are free on this machine."""
    lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))


def machine() -> str:
    """Return the processor, the cores that a run may use, and the version of Python."""
    name = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), name)
    except OSError:  # not Linux: what Python knows must do
        pass
    return f"{name}, {len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}"


def version(package: str) -> str:
    """Return the version of a package; empty where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
