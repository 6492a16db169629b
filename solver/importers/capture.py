"""The capture format: a graph of aten ops as PyTorch traced it, written down without PyTorch.

A capture is JSON, as a rule gzipped: ``{"model": name, "nodes": [...], "notes": [...]}``; the notes are
sentences, and may be absent. The nodes stand in the order in which they run, the last one is the output. A node has

| key | |
|---|---|
| name, op | ``"mm_3"``, ``"aten.mm.default"``; ``placeholder``, ``constant``, ``getitem``, ``output`` are ops too |
| args, kwargs | JSON values; ``{"n": name}`` a node, ``{"s": text}`` a dtype or device, ``{"f": "-inf"}`` a float |
| | of a constant its values in one list, in row-major order |
| val | ``[shape, dtype]`` of its result, ``{"t": [...]}`` of several |
| role, target | of a placeholder: what it is, and the name of the parameter or buffer |
| mod, bw | the module path; 1 in the backward pass |
| outs | of the output: per entry what it is, ``[role, name of the placeholder it belongs to]`` |

Where ``outs`` is absent the outputs are those of the forward pass, then a gradient (or null) for each placeholder that
is no tangent, in their order.
"""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

from solver.garbage import collecting_later
from solver.importers.errors import UnreadableModelError

PARAMETER, BUFFER, INPUT, TANGENT = "ParamAOTInput", "BufferAOTInput", "PlainAOTInput", "TangentAOTInput"
"""The roles of placeholders."""
RESULT, GRADIENT, MUTATION = "PlainAOTOutput", "GradAOTOutput", "InputMutationAOTOutput"
"""The roles of outputs."""
_ROLES = {"placeholder": (PARAMETER, BUFFER, INPUT, TANGENT), "outs": (RESULT, GRADIENT, MUTATION)}
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_NONE = {"s": "NoneType"}


@dataclass(frozen=True, slots=True, repr=False)
class Ref:
    """An argument that is the result of a node."""

    name: str

    def __repr__(self) -> str:
        return f"node {self.name!r}"


@dataclass(frozen=True, slots=True)
class Spec:
    """What is known of a tensor: its shape, and its dtype as in ``float32``."""

    shape: tuple[int, ...]
    dtype: str


Val: TypeAlias = "Spec | tuple[Spec | None, ...] | None"
"""What a node gives: a tensor, several (None for one that is none), or nothing that is known."""


@dataclass(frozen=True, slots=True)
class CapturedNode:
    """One node of a capture.

    Parameters
    ----------
    name : str
    op : str
        ``placeholder``, ``output``, ``getitem``, or the name of an overload, as ``aten.mm.default``.
    args : tuple
        `Ref` for a node, and None, bool, int, float, str (a dtype as ``torch.float32``, a device), and lists of these.
    kwargs : mapping
    val : Spec, tuple of Spec or None
    role : str
        Of a placeholder: `PARAMETER`, `BUFFER`, `INPUT` or `TANGENT`.
    target : str
        The name of the parameter or buffer in its module, or of the argument.
    module : str
        The module path.
    backward : bool
    outs : tuple of (str, str)
        Of the output node: per entry its role (`RESULT`, `GRADIENT` or `MUTATION`) and the placeholder it belongs to.
    """

    name: str
    op: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    val: Val = None
    role: str = ""
    target: str = ""
    module: str = ""
    backward: bool = False
    outs: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"node {self.name!r} ({self.op})" + (f" in module {self.module!r}" if self.module else "")


@dataclass(frozen=True)
class Capture:
    """A captured model.

    Parameters
    ----------
    model : str
        Its name.
    nodes : sequence of CapturedNode
        In the order in which they run; the last one is the output.
    notes : sequence of str, optional
        What was changed while it was traced, a sentence each.
    """

    model: str
    nodes: Sequence[CapturedNode]
    notes: Sequence[str] = ()


@collecting_later()
def read_capture(path: str | Path) -> Capture:
    """Read a capture from a file, gzipped or not.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    Capture

    Raises
    ------
    UnreadableModelError
        One sentence that says what is wrong, with the node where it is one.
    """
    path = Path(path)
    try:
        raw = path.read_bytes()
        text = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
        data = json.loads(text)
    except OSError as error:
        raise UnreadableModelError(f"{path} cannot be read: {error.strerror or error}") from None
    except (EOFError, zlib.error):
        raise UnreadableModelError(f"{path} cannot be read: it is cut off or damaged") from None
    except RecursionError:
        raise UnreadableModelError(f"{path} cannot be read: its lists and objects are nested too deep") from None
    except ValueError as error:
        raise UnreadableModelError(f"{path} is no JSON text: {error}") from None
    try:
        return capture_from(data)
    except UnreadableModelError as error:
        raise UnreadableModelError(f"{path}: {error}") from None


def write_capture(capture: Capture, path: str | Path) -> None:
    """Write a capture to a file, gzipped where its name ends in ``.gz``; `read_capture` gives an equal capture.

    Parameters
    ----------
    capture : Capture
    path : str or Path
    """
    path = Path(path)
    data: dict[str, Any] = {"model": capture.model, "nodes": [_written(node) for node in capture.nodes]}
    if capture.notes:
        data["notes"] = list(capture.notes)
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).encode()
    path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)


def is_capture(data: Any) -> bool:
    """Say whether JSON values look like a capture."""
    return isinstance(data, dict) and isinstance(data.get("nodes"), list) and "format" not in data


def capture_from(data: Any) -> Capture:
    """Read a capture from JSON values.

    Raises
    ------
    UnreadableModelError
        Where they are none: the sentence names the node.
    """
    if not is_capture(data):
        raise UnreadableModelError('it is no capture: a capture is {"model": name, "nodes": [...]}')
    nodes: list[CapturedNode] = []
    names: set[str] = set()
    for index, item in enumerate(data["nodes"]):
        node = _node(item, index)
        if node.name in names:
            raise UnreadableModelError(f"two nodes are called {node.name!r}")
        for ref in references((node.args, list(node.kwargs.values()))):
            if ref not in names:
                raise UnreadableModelError(f"{node} reads {ref!r}, which no node before it makes")
        names.add(node.name)
        nodes.append(node)
    if not nodes or nodes[-1].op != "output" or sum(node.op == "output" for node in nodes) != 1:
        raise UnreadableModelError("a capture ends with its one output node, and this one does not: it is cut off")
    notes = data.get("notes", [])
    if not isinstance(notes, list) or not all(isinstance(note, str) for note in notes):
        raise UnreadableModelError(f"its notes are {notes!r}, not a list of texts")
    return Capture(str(data.get("model", "capture")), nodes, tuple(notes))


def references(args: Any) -> list[str]:
    """Return the names of the nodes that arguments refer to, in order."""
    if isinstance(args, Ref):
        return [args.name]
    return [name for arg in args for name in references(arg)] if isinstance(args, list | tuple) else []


def _node(item: Any, index: int) -> CapturedNode:
    if not isinstance(item, dict) or not all(isinstance(item.get(key), str) and item[key] for key in ("name", "op")):
        raise UnreadableModelError(f"node {index} has no name or no op")
    where = f"node {item['name']!r} ({item['op']})"
    args, kwargs = item.get("args", []), item.get("kwargs", {})
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        raise UnreadableModelError(f"{where} has args that are no list, or kwargs that are no object")
    role = item.get("role") or ""
    if item["op"] == "placeholder" and role not in _ROLES["placeholder"]:
        raise UnreadableModelError(f"{where} has role {role!r}: choose from {', '.join(_ROLES['placeholder'])}")
    val = _val(item.get("val"), where)
    if item["op"] == "placeholder" and not isinstance(val, Spec):
        raise UnreadableModelError(f"{where} has no shape and dtype: val is [shape, dtype]")
    return CapturedNode(
        item["name"],
        item["op"],
        tuple(_argument(arg, where) for arg in args),
        {key: _argument(arg, where) for key, arg in kwargs.items()} if kwargs else _NOTHING,
        val,
        role,
        str(item.get("target") or ""),
        str(item.get("mod") or ""),
        bool(item.get("bw", 0)),
        _outs(item.get("outs", []), where),
    )


def _argument(arg: Any, where: str) -> Any:
    if isinstance(arg, dict) and len(arg) == 1:
        ((kind, value),) = arg.items()
        if kind == "n" and isinstance(value, str):
            return Ref(value)
        if kind == "s" and isinstance(value, str):
            return value
        if kind == "f" and value in ("inf", "-inf", "nan"):
            return float(value)
    if isinstance(arg, list):
        return [_argument(one, where) for one in arg]
    if arg is None or isinstance(arg, bool | int | float | str):
        return arg
    raise UnreadableModelError(f'{where} has the argument {arg!r}, which is none of {{"n"}}, {{"s"}} and {{"f"}}')


def _val(val: Any, where: str) -> Val:
    if val in (None, _NONE):
        return None
    if isinstance(val, dict) and isinstance(val.get("t"), list):
        return tuple(None if one in (None, _NONE) else _spec(one, where) for one in val["t"])
    return _spec(val, where)


def _spec(val: Any, where: str) -> Spec:
    if isinstance(val, list) and len(val) == 2 and isinstance(val[0], list) and isinstance(val[1], str):
        shape, dtype = val
        if all(isinstance(size, int) and size >= 0 for size in shape):
            return Spec(tuple(shape), dtype)
    raise UnreadableModelError(f"{where} has val {val!r}: give [shape, dtype] with sizes that are whole numbers")


def _outs(outs: Any, where: str) -> tuple[tuple[str, str], ...]:
    fits = isinstance(outs, list) and all(
        isinstance(one, list) and len(one) == 2 and one[0] in _ROLES["outs"] and isinstance(one[1], str) for one in outs
    )
    if not fits:
        raise UnreadableModelError(f"{where} has outs that are no list of [role, name]: roles are {_ROLES['outs']}")
    return tuple((role, of) for role, of in outs)


def _written(node: CapturedNode) -> dict[str, Any]:
    item: dict[str, Any] = {"name": node.name, "op": node.op}
    if node.args:
        item["args"] = [_coded(arg) for arg in node.args]
    if node.kwargs:
        item["kwargs"] = {key: _coded(arg) for key, arg in node.kwargs.items()}
    if isinstance(node.val, Spec):
        item["val"] = _coded_spec(node.val)
    elif node.val is not None:
        item["val"] = {"t": [None if one is None else _coded_spec(one) for one in node.val]}
    given = {"role": node.role, "target": node.target, "mod": node.module, "bw": int(node.backward)}
    item.update({key: value for key, value in given.items() if value})
    return {**item, "outs": [list(one) for one in node.outs]} if node.outs else item


def _coded_spec(spec: Spec) -> list[Any]:
    return [list(spec.shape), spec.dtype]


def _coded(arg: Any) -> Any:
    if isinstance(arg, Ref):
        return {"n": arg.name}
    if isinstance(arg, str):
        return {"s": arg}
    if isinstance(arg, float) and not math.isfinite(arg):
        return {"f": str(arg)}
    return [_coded(one) for one in arg] if isinstance(arg, list | tuple) else arg
