"""Bringing a model in: one door for every kind of file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from solver.graph import Graph
from solver.importers.aten import lower
from solver.importers.capture import is_capture, read_capture
from solver.importers.errors import ImporterError, UnreadableModelError, UnsupportedNodeError

__all__ = ["ImporterError", "load"]


def load(
    path: str | Path, dims: Mapping[str, int] | None = None, input_shapes: Mapping[str, Sequence[int]] | None = None
) -> Graph:
    """Read a model from a file: ONNX (``.onnx``), a capture of PyTorch (``.json.gz``), or a graph of ours (``.json``).

    Parameters
    ----------
    path : str or Path
        A file whose name says nothing is judged by its first bytes.
    dims : mapping, optional
        Sizes of dynamic dims by name, ``{"batch": 8}``.
    input_shapes : mapping, optional
        Whole shapes by the name of the input, ``{"x": (8, 3, 224, 224)}``.

    Returns
    -------
    Graph

    Raises
    ------
    ImporterError
        One sentence that says what is wrong and what to do.
    """
    path = Path(path)
    kind = _kind(path)
    if kind == "onnx":
        return _onnx(path, dims, input_shapes)
    if kind in ("json", "gz"):
        given = ", ".join(map(repr, [*(dims or {}), *(input_shapes or {})]))
        if given:
            raise ImporterError(
                f"{path} is a graph whose shapes are fixed: sizes ({given}) can be given for ONNX files only"
            )
        return _json(path) if kind == "json" else _capture(path)
    raise UnreadableModelError(
        f"{path} is no model of a kind that can be read: give an ONNX file (.onnx), a capture (.json.gz) or a graph "
        "of this package (.json)"
    )


def _kind(path: Path) -> str:
    if path.is_dir():
        raise UnreadableModelError(f"{path} is a directory: give the file of a model")
    try:
        with path.open("rb") as stream:
            start = stream.read(64).lstrip()
    except OSError as error:
        raise UnreadableModelError(f"{path} cannot be read: {error.strerror or error}") from None
    suffix = path.suffix.lower()
    if suffix in (".onnx", ".json"):
        return suffix[1:]
    if start[:2] == b"\x1f\x8b":
        return "gz"
    if start[:1] == b"{":
        return "json"
    return "onnx" if start[:1] == b"\x08" else ""


def _onnx(path: Path, dims: Mapping[str, int] | None, input_shapes: Mapping[str, Sequence[int]] | None) -> Graph:
    try:
        from solver.importers.onnx import read_onnx
    except ImportError as error:
        raise UnreadableModelError(
            f"{path}: reading ONNX files needs the extra onnx ({error}): pip install 'shardproof[onnx]'"
        ) from error
    return read_onnx(path, dims, input_shapes).graph


def _capture(path: Path) -> Graph:
    try:
        return lower(read_capture(path))
    except UnsupportedNodeError as error:
        raise UnsupportedNodeError(f"{path}: {error}") from error


def _json(path: Path) -> Graph:
    try:
        text = path.read_text(encoding="utf-8")
        data = json.loads(text)
    except RecursionError:
        raise UnreadableModelError(f"{path} is no JSON text that can be read: it is nested too deep") from None
    except UnicodeDecodeError:
        raise UnreadableModelError(f"{path} is no JSON text: it is not a text at all") from None
    except json.JSONDecodeError as error:
        raise UnreadableModelError(f"{path} is no JSON text: {error}") from None
    if isinstance(data, dict) and "graph" in data:
        raise UnreadableModelError(
            f"{path} is a plan, not a model: give it to `shardproof check`, or give the model's own file"
        )
    if is_capture(data):
        return _capture(path)
    try:
        return Graph.from_json(data)
    except ValueError as error:
        raise UnreadableModelError(f"{path}: {error}") from error
