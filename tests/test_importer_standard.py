# ruff: noqa: E402
"""The cases with which the ONNX standard tests every op: each is computed right, or refused in one sentence."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from models import Array, evaluate, relative_error
from onnx import numpy_helper

from solver.importers import ImporterError
from solver.importers.onnx import read_onnx

TOLERANCE = {"bfloat16": 2e-2, "float16": 4e-3}
READ = 1200
"""At least so many cases of onnx 1.23 are read and computed; the others ask for ops that are not there."""


def _cases() -> Iterator[tuple[str, Any, list[Array], list[Array]]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        cases = collect_testcases(None)
    for case in cases:
        inputs, outputs = case.data_sets[0] if case.data_sets else ((), ())
        if outputs and all(isinstance(value, np.ndarray | np.generic) for value in (*inputs, *outputs)):
            yield case.name, case.model, [*map(np.asarray, inputs)], [*map(np.asarray, outputs)]


def _compute(model: Any, inputs: list[Array], known: bool, path: Path) -> list[tuple[Array, str]]:
    """Run a case; where ``known``, all inputs but the first are tensors of the file."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    made.ir_version = max(made.ir_version, 8)
    feeds = {info.name: value for info, value in zip(model.graph.input, inputs, strict=False)}
    if known:
        tables = list(feeds)[1:]
        made.graph.initializer.extend(numpy_helper.from_array(feeds.pop(name), name) for name in tables)
        del made.graph.input[1:]
    onnx.save(made, path)
    read = read_onnx(path, input_shapes={name: value.shape for name, value in feeds.items() if value.ndim})
    plain = {k: v if v.dtype.isbuiltin == 1 else v.astype(np.float32) for k, v in {**read.weights, **feeds}.items()}
    return [(value, read.graph.tensors[name].dtype) for name, value in evaluate(read.graph, plain).items()]


def _wrong(ours: list[tuple[Array, str]], theirs: list[Array]) -> str:
    for (mine, dtype), other in zip(ours, theirs, strict=False):
        if (mine.shape, dtype) != (other.shape, str(other.dtype)):
            return f"{dtype}{list(mine.shape)} is not {other.dtype}{list(other.shape)}"
        if np.isfinite(other.astype(np.float64)).all():
            error = relative_error(mine, other.astype(mine.dtype))
        else:
            error = float(not np.allclose(mine.astype(np.float64), other.astype(np.float64), equal_nan=True))
        if not error <= TOLERANCE.get(dtype, 1e-3):
            return f"the error is {error:.1e}"
    return ""


@pytest.mark.slow
def test_the_cases_of_the_standard(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    wrong = []
    for name, model, inputs, outputs in _cases():
        for known in (False, True):
            try:
                mistake = _wrong(_compute(model, inputs, known, tmp_path / "case.onnx"), outputs)
            except ImporterError as error:
                wrong += [f"{name}: {error}"] * ("\n" in str(error))
                continue
            counts["right"] += not mistake
            wrong += [f"{name}: {mistake}"] * bool(mistake)
            break
        else:
            counts["refused"] += 1
    assert wrong == []
    assert counts["right"] >= READ, counts
