"""What a program does with a repair that pads: the graph's JSON and the change are all that it has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from solver import Graph


def with_padding(graph: Graph, pad: Mapping[str, Any]) -> Graph:
    """Return a graph with every dim that a change names as large as it says."""
    data = graph.to_json()
    grown = {(one["tensor"], one["dim"]): one["size"] for one in (pad, *pad["also"])}
    for item in data["items"]:
        shape = graph.tensors[item["name"]].shape if item["role"] != "op" else ()
        if item["role"] == "op" and "shape" in item["attrs"]:
            (result,) = item["results"]
            shape = graph.tensors[result].shape
            item["attrs"]["shape"] = [grown.get((result, d), size) for d, size in enumerate(shape)]
        elif item["role"] not in ("op", "constant"):
            item["shape"] = [grown.get((item["name"], d), size) for d, size in enumerate(shape)]
    made = Graph.from_json(data)
    assert all(made.tensors[tensor].shape[dim] == size for (tensor, dim), size in grown.items())
    changed = sum(made.tensors[t].shape[d] != n for t in graph.tensors for d, n in enumerate(graph.tensors[t].shape))
    assert changed == len(grown)
    return made
