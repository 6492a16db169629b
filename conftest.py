"""A file called after an optional package, as `jax_views.py`, imports it: it is not collected where that is missing."""

from __future__ import annotations

import importlib.util
from pathlib import Path

MISSING = frozenset(
    name for name in ("onnx", "torch", "jax", "paddle", "matplotlib") if importlib.util.find_spec(name) is None
)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out files whose package is missing; those of tests say so themselves."""
    package = collection_path.stem.partition("_")[0]
    return True if collection_path.suffix == ".py" and package in MISSING else None
