"""A graph as plain JSON values and back, without loss.

Sources and ops stand in one list in the order in which they were added. JSON has fewer kinds of values than attributes:
a tuple is ``{"tuple": [...]}``, a dict ``{"dict": {...}}``, and a float that JSON cannot say ``{"float": "inf"}``.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from solver.graph_values import GraphError, OperandNames, Tensor, flat

if TYPE_CHECKING:
    from solver.graph import Graph

FORMAT = "shardproof.graph"
VERSION = 1


def write(graph: Graph) -> dict[str, Any]:
    """Return a graph as plain JSON values (see `Graph.to_json`)."""
    items = []
    for tensor in graph.tensors.values():
        if tensor.producer is None:
            items.append(_source_item(tensor))
        elif tensor.slot == 0:
            node = graph.nodes[tensor.producer]
            item = {
                "role": "op",
                "name": node.name,
                "op": node.op,
                "operands": [list(names) if isinstance(names, tuple) else names for names in node.operands],
                "results": list(node.results),
                "attrs": {key: encode(value) for key, value in node.attrs.items()},
            }
            items.append({**item, "module": node.module} if node.module else item)
    data = {"format": FORMAT, "version": VERSION, "name": graph.name, "items": items, "outputs": list(graph.outputs)}
    more = {
        "ties": dict(graph.ties),
        "gradients": dict(graph.gradients),
        "repeats": dict(graph.repeats),
        "notes": list(graph.notes),
    }
    return data | {key: value for key, value in more.items() if value}


def read(data: Mapping[str, Any] | str, graph_type: type[Graph]) -> Graph:
    """Build a graph from plain JSON values or their text (see `Graph.from_json`)."""
    if isinstance(data, str):
        try:
            data = json.loads(data)
        except json.JSONDecodeError as error:
            raise GraphError(f"the graph is no JSON: {error}") from error
        except RecursionError:
            raise GraphError("the graph cannot be read: its lists and objects are nested too deep") from None
    if not isinstance(data, Mapping) or data.get("format") != FORMAT:
        raise GraphError(f'the JSON is no graph: it must have "format": "{FORMAT}"')
    if data.get("version") != VERSION:
        raise GraphError(f"the graph has version {data.get('version')!r}, and this program reads version {VERSION}")
    graph = graph_type(_field(data, "name", str, "the graph"))
    items = _field(data, "items", list, "the graph")
    outputs = _field(data, "outputs", list, "the graph")
    for item in _ordered(items, graph.name):
        _add(graph, item)
    for name in outputs:
        if name not in graph.tensors:
            raise GraphError(f"output {name!r} of graph {graph.name!r} is no tensor of it")
        graph.output(graph.tensors[name])
    for kind, add in (("ties", graph.tie), ("gradients", graph.gradient)):
        for pair in _field({kind: {}, **data}, kind, dict, "the graph").items():
            for name in pair:
                if not isinstance(name, str) or name not in graph.tensors:
                    raise GraphError(f"{kind} of graph {graph.name!r} name {name!r}, which is no tensor of it")
            add(*(graph.tensors[name] for name in pair))
    for node, of in _field({"repeats": {}, **data}, "repeats", dict, "the graph").items():
        graph.repeat(node, of)
    notes = _field({"notes": [], **data}, "notes", list, "the graph")
    for note in notes:
        if not isinstance(note, str):
            raise GraphError(f"the graph has the note {note!r}: a note is a text")
    graph.notes += notes
    return graph


def _source_item(tensor: Tensor) -> dict[str, Any]:
    item = {"role": tensor.role, "name": tensor.name, "shape": list(tensor.shape), "dtype": tensor.dtype}
    return item if tensor.value is None else {**item, "value": encode_array(tensor.value)}


def _add(graph: Graph, item: Mapping[str, Any]) -> None:
    role, name = item["role"], item["name"]
    if role == "op":
        _add_op(graph, item)
        return
    where = f"{role} {name!r}"
    shape, dtype = _field(item, "shape", list, where), _field(item, "dtype", str, where)
    if role != "constant":
        {"input": graph.input, "parameter": graph.parameter, "state": graph.state}[role](name, shape, dtype)
        return
    made = graph.constant(name, decode_array(_field(item, "value", dict, where), where), dtype)
    if list(made.shape) != shape:
        raise GraphError(f"{where} is written with shape {shape}, but its value has shape {list(made.shape)}")


def _add_op(graph: Graph, item: Mapping[str, Any]) -> None:
    where = f"op {item['name']!r}"
    attrs = {key: decode(value, f"{key} of {where}") for key, value in _field(item, "attrs", dict, where).items()}
    clash = sorted(attrs.keys() & {"name", "module"})
    if clash:
        raise GraphError(f"{where} cannot have an attribute {clash[0]!r}")
    operands: list[Any] = [
        [graph.tensors[name] for name in names] if isinstance(names, tuple) else names and graph.tensors[names]
        for names in _operands(item)
    ]
    module = _field(item, "module", str, where) if "module" in item else ""
    made = graph.op(_field(item, "op", str, where), *operands, name=item["name"], module=module, **attrs)
    names = [tensor.name for tensor in (made if isinstance(made, tuple) else (made,))]
    if names != item["results"]:
        raise GraphError(f"{where} is written with results {item['results']}, but makes {names}")


def _operands(item: Mapping[str, Any]) -> list[OperandNames]:
    where = f"op {item['name']!r}"
    read: list[OperandNames] = []
    for names in _field(item, "operands", list, where):
        if names is None or isinstance(names, str):
            read.append(names)
        elif isinstance(names, list) and names and all(isinstance(name, str) for name in names):
            read.append(tuple(names))
        else:
            raise GraphError(f"{where} has operand {names!r}: write a tensor's name, a list of names, or null")
    return read


def _ordered(items: Sequence[Any], graph: str) -> list[Mapping[str, Any]]:
    """Return the items so that each op stands after what it reads: as they are, where that holds already."""
    maker: dict[str, int] = {}
    for index, item in enumerate(items):
        for name in _made(item):
            if name in maker:
                raise GraphError(f"graph {graph!r} has two tensors named {name!r}")
            maker[name] = index
    edges = []
    for index, item in enumerate(items):
        for read in flat(_operands(item)) if item["role"] == "op" else ():
            if read is not None and read not in maker:
                raise GraphError(f"op {item['name']!r} reads {read!r}, which is no tensor of graph {graph!r}")
            if read is not None:
                edges.append((maker[read], index))
    if all(before < after for before, after in edges):
        return list(items)
    order = nx.DiGraph(edges)
    order.add_nodes_from(range(len(items)))
    try:
        return [items[index] for index in nx.lexicographical_topological_sort(order)]
    except nx.NetworkXUnfeasible:
        cycle = [items[before]["name"] for before, _ in nx.find_cycle(order)]
        told = " -> ".join([*cycle, cycle[0]])
        raise GraphError(f"graph {graph!r} has a cycle, each op reading what the one before makes: {told}") from None


def _made(item: Any) -> list[str]:
    """Return the tensors that an item makes, after a look at what every item must have."""
    if not isinstance(item, Mapping):
        raise GraphError(f"the graph has an item {item!r}, where an object with role and name is needed")
    role, name = _field(item, "role", str, "an item of the graph"), _field(item, "name", str, "an item of the graph")
    if role not in ("op", "input", "parameter", "state", "constant"):
        raise GraphError(f"{name!r} has role {role!r}: choose from op, input, parameter, state, constant")
    return [name] if role != "op" else [str(made) for made in _field(item, "results", list, f"op {name!r}")]


def _field(item: Mapping[str, Any], key: str, kind: type, where: str) -> Any:
    if not isinstance(item.get(key), kind):
        given = f"{item[key]!r}" if key in item else "nothing"
        raise GraphError(f"{where} must have {key!r} ({kind.__name__}) and has {given}")
    return item[key]


def encode(value: Any) -> Any:
    """Return an attribute as plain JSON values.

    Examples
    --------
    >>> encode((1, [2.0, float("-inf")], None))
    {'tuple': [1, [2.0, {'float': '-inf'}], None]}
    """
    if isinstance(value, tuple):
        return {"tuple": [encode(item) for item in value]}
    if isinstance(value, list):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        return {"dict": {key: encode(item) for key, item in value.items()}}
    return {"float": repr(value)} if isinstance(value, float) and not math.isfinite(value) else value


def decode(value: Any, where: str) -> Any:
    """Return the attribute that `encode` wrote.

    Raises
    ------
    GraphError
        For an object that `encode` does not write.

    Examples
    --------
    >>> decode({"tuple": [1, {"float": "inf"}]}, "axis of op 'y'")
    (1, inf)
    """
    if isinstance(value, list):
        return [decode(item, where) for item in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"tuple": list(items), **rest} if not rest:
            return tuple(decode(item, where) for item in items)
        case {"dict": dict(items), **rest} if not rest:
            return {key: decode(item, where) for key, item in items.items()}
        case {"float": ("inf" | "-inf" | "nan") as text, **rest} if not rest:
            return float(text)
    known = '{"tuple": []}, {"dict": {}} or {"float": "inf"}'
    raise GraphError(f"attribute {where} is {value!r}: an object here is {known}")


def encode_array(array: NDArray[Any]) -> dict[str, Any]:
    """Return an array as plain JSON values: its bytes, little end first, in base64.

    Examples
    --------
    >>> encode_array(np.array([1, 2], dtype="int16"))
    {'dtype': 'int16', 'shape': [2], 'base64': 'AQACAA=='}
    """
    raw = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    return {"dtype": str(array.dtype), "shape": list(array.shape), "base64": base64.b64encode(raw).decode()}


def decode_array(data: Mapping[str, Any], where: str) -> NDArray[Any]:
    """Return the array that `encode_array` wrote.

    Raises
    ------
    GraphError
        Where dtype, shape and bytes do not fit.
    """
    shape = _field(data, "shape", list, where)
    try:
        dtype = np.dtype(_field(data, "dtype", str, where))
        raw = base64.b64decode(_field(data, "base64", str, where), validate=True)
        return np.frombuffer(raw, dtype.newbyteorder("<")).astype(dtype).reshape(shape)
    except (TypeError, ValueError, binascii.Error) as error:
        raise GraphError(f"the value of {where} cannot be read: {error}") from error
