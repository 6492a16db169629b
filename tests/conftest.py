"""What all tests share: one way of drawing examples, and a word about the frameworks that are not installed."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from hypothesis import settings

from solver import Graph

OPTIONAL = {"onnx": "onnx", "torch": "torch", "jax": "jax", "paddle": "paddle", "matplotlib": "report"}
"""Each optional package and the extra that brings it."""

# Every run draws the same examples, so that a failure is the change's and not the day's.
settings.register_profile("shardproof", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("shardproof")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say aloud which optional packages are missing: their tests were skipped."""
    missing = [f"{name} (extra {extra})" for name, extra in OPTIONAL.items() if importlib.util.find_spec(name) is None]
    if missing:
        terminalreporter.write_line(f"not installed, so what needs them was skipped: {', '.join(missing)}", yellow=True)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A small network as JSON: two matmuls with a relu between them."""
    graph = Graph("mlp")
    x = graph.input("x", (32, 64))
    hidden = graph.op("relu", graph.op("matmul", x, graph.parameter("up", (64, 128)), name="h"), name="a")
    graph.output(graph.op("matmul", hidden, graph.parameter("down", (128, 16)), name="y"))
    path = tmp_path / "mlp.json"
    path.write_text(json.dumps(graph.to_json()), encoding="utf-8")
    return path
