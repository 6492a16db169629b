"""What all tests share: one way of drawing examples, and a word about the frameworks that are not installed."""

from __future__ import annotations

import importlib.util

import pytest
from hypothesis import settings

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
