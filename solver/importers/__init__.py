"""Bringing a model in: one door for every kind of file."""

from __future__ import annotations

import contextlib
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from solver.graph import Graph
from solver.importers.aten import lower
from solver.importers.capture import is_capture, read_capture
from solver.importers.errors import ImporterError, NoLossError, UnreadableModelError, UnsupportedNodeError
from solver.importers.torch import exported, from_torch

__all__ = ["ImporterError", "from_jax", "from_paddle", "from_paddle_layer", "from_torch", "load", "paddle_pins"]


def load(
    path: str | Path,
    dims: Mapping[str, int] | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    *,
    training: bool = False,
) -> Graph:
    """Read a model from a file.

    ONNX (``.onnx``), an exported program of PyTorch (``.pt2``), a capture of PyTorch (``.json.gz``), or a graph of this
    package (``.json``).

    Parameters
    ----------
    path : str or Path
        A file whose name says nothing is judged by its first bytes.
    dims : mapping, optional
        Sizes of dynamic dims by name, ``{"batch": 8}``; in an exported program by symbol, ``{"s77": 8}``.
    input_shapes : mapping, optional
        Whole shapes by the name of the input, ``{"x": (8, 3, 224, 224)}``.
    training : bool, optional
        Whether the graph is to become a training step (`solver.training.training_step`). An exported program that
        returns one number, or a ``loss``, then comes with the backward pass that PyTorch gives it; every other model
        comes as it is.

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
    if kind == "pt2":
        return _pt2(path, dims, input_shapes, training)
    if kind in ("json", "gz"):
        given = ", ".join(map(repr, [*(dims or {}), *(input_shapes or {})]))
        if given:
            raise ImporterError(
                f"{path} is a graph whose shapes are fixed: sizes ({given}) can be given for ONNX files and exported "
                "programs"
            )
        return _json(path) if kind == "json" else _capture(path)
    raise UnreadableModelError(
        f"{path} is no model of a kind that can be read: give an ONNX file (.onnx), an exported program of PyTorch "
        "(.pt2), a capture (.json.gz) or a graph of this package (.json)"
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
    if suffix in (".onnx", ".json", ".pt2"):
        return suffix[1:]
    if start[:4] == b"PK\x03\x04":
        return "pt2"
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


def _pt2(
    path: Path, dims: Mapping[str, int] | None, input_shapes: Mapping[str, Sequence[int]] | None, training: bool
) -> Graph:
    try:
        if training:
            with contextlib.suppress(NoLossError):
                return lower(exported(path, dims, input_shapes, training=True))
        return lower(exported(path, dims, input_shapes))
    except ImporterError as error:
        told = str(error)
        raise type(error)(told if told.startswith(str(path)) else f"{path}: {told}") from error


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


def from_jax(fn: Callable[..., Any], *args: Any, **options: Any) -> Graph:
    """Trace a JAX function: a model, its gradients, or a whole training step.

    Parameters
    ----------
    fn : callable
    *args
        Arrays, `jax.ShapeDtypeStruct` or pytrees of them.
    **options
        As `solver.importers.jax.from_jax` takes them: ``parameters`` and ``states``, positions of arguments; ``names``,
        a text for each argument; ``gradients`` and ``updates``, mappings from output to argument; ``ties``, a mapping
        from argument to argument; ``internal``, a sequence of outputs; ``name``, that of the graph.

    Returns
    -------
    Graph

    Raises
    ------
    ImporterError
        One sentence on what is wrong and what to do.
    """
    try:
        import solver.importers.jax as reader
    except ImportError as error:
        raise UnreadableModelError(
            f"functions of JAX need the extra jax ({error}): pip install 'shardproof[jax]'"
        ) from error
    known = [one.name for one in inspect.signature(reader.from_jax).parameters.values() if one.kind is one.KEYWORD_ONLY]
    for option in options:
        if option not in known:
            raise ImporterError(f"from_jax has no option {option!r}: choose from {', '.join(known)}")
    graph: Graph = reader.from_jax(fn, *args, **options)
    return graph


def from_paddle(program: Any, **options: Any) -> Graph:
    """Bring a PIR program of PaddlePaddle in: forward, with its backward pass, or a whole training step.

    Parameters
    ----------
    program : paddle.static.Program
    **options
        ``fetch``, ``gradients``, ``input_shapes``, ``name``: see `solver.importers.paddle.read_paddle`.

    Returns
    -------
    Graph
        New parameters and states of an optimizer's step leave it, tied to the old ones.

    Raises
    ------
    ImporterError
        One sentence on what is wrong and what to do.
    """
    graph: Graph = _paddle().read_paddle(program, **options).graph
    return graph


def paddle_pins(program: Any, **options: Any) -> dict[str, dict[str, Any]]:
    """Return the placements that a program carries as pins for `plan`.

    Parameters
    ----------
    program : paddle.static.Program
    **options
        As `from_paddle` was given them.

    Returns
    -------
    dict
        Tensor of the graph -> mesh axis -> placement, as ``paddle.distributed.shard_tensor`` and ``reshard`` asked for.

    Raises
    ------
    ImporterError
        As `from_paddle` does.
    """
    pins: dict[str, dict[str, Any]] = _paddle().read_paddle(program, **options).pins
    return pins


def from_paddle_layer(layer: Any, *inputs: Any) -> Graph:
    """Bring the forward pass of a ``paddle.nn.Layer`` in.

    Parameters
    ----------
    layer : paddle.nn.Layer
    *inputs : paddle.static.InputSpec, or array
        What it is called with; of an array shape and dtype count.

    Returns
    -------
    Graph
        Parameters carry the names that the layer gives them.

    Raises
    ------
    ImporterError
        As `from_paddle` does.
    """
    graph: Graph = _paddle().read_layer(layer, *inputs).graph
    return graph


def _paddle() -> ModuleType:
    try:
        import solver.importers.paddle as reader
    except ImportError as error:
        raise UnreadableModelError(
            f"programs of PaddlePaddle need the extra paddle ({error}): pip install 'shardproof[paddle]'"
        ) from error
    return reader
