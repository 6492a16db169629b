"""The recipes that people write by hand, as pins: data parallel, FSDP, Megatron, expert parallel.

A recipe is derived from the graph alone: from the roles of tensors, the ties, the kinds of ops and their rules. What it
does not name is free, and is planned as is best for it; so its price is the least that the recipe can cost.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import networkx as nx

from ops.placement import Placement, Replicate, Shard
from solver.graph import Graph, Tensor
from solver.layout import legal
from solver.mesh import Mesh
from solver.pairs import PRODUCTS, VIEWS, find_pairs
from solver.problem import Problem, ProblemError, problem

Pins: TypeAlias = dict[str, dict[str, Placement]]
"""Tensor, or use written ``op/operand`` -> mesh axis -> placement."""
WHOLE = Replicate()


def recipe(name: str, graph: Graph, mesh: Mesh) -> Pins:
    """Return the pins of a recipe on a graph.

    Parameters
    ----------
    name : str
        ``data_parallel``: inputs are cut by the batch, parameters are whole, where they are read, too. ``fsdp``:
        inputs so, parameters are stored in pieces and read whole, but by the update. ``megatron``: weights of matrix
        products are cut by columns, then by rows, and their sums are reduced at once; tables are cut by words.
        ``megatron_sp``: so, but the sums are scattered over the sequence. ``expert_parallel``: stacked weights are cut
        by experts, the rest is data parallel. The last three speak of the last mesh axis, or of the one that is named,
        as in ``megatron(tp)``; the others carry the batch.
    graph : Graph
    mesh : Mesh

    Returns
    -------
    dict
        For ``plan(graph, mesh, pins=recipe("megatron", graph, mesh))``.

    Raises
    ------
    ProblemError
        Where there is no such recipe, the mesh has no such axis, or the graph nothing that the recipe speaks of.

    Examples
    --------
    >>> g = Graph()
    >>> x = g.op("matmul", g.input("x", (8, 16)), g.parameter("up", (16, 32)), name="wide")
    >>> g.output(g.op("matmul", x, g.parameter("down", (32, 16)), name="y"))
    >>> pins = recipe("megatron", g, Mesh({"tp": 4}))
    >>> {name: str(pins[name]["tp"]) for name in ("up", "down", "y")}
    {'up': 'S(1)', 'down': 'S(0)', 'y': 'R'}
    """
    kind, axis = read_recipe(name, tuple(mesh.axes))
    return RECIPES[kind](_Kitchen(name, problem(graph, mesh), axis))


def read_recipe(name: str, axes: Sequence[str]) -> tuple[str, str]:
    """Read the name of a recipe: its kind, and the mesh axis that cuts the model.

    Parameters
    ----------
    name : str
    axes : sequence of str
        The mesh axes.

    Raises
    ------
    ProblemError
        Where there is no such recipe, or the mesh has no such axis.

    Examples
    --------
    >>> read_recipe("megatron(tp)", ["tp", "pp"]), read_recipe("megatron", ["tp", "pp"])
    (('megatron', 'tp'), ('megatron', 'pp'))
    """
    known = re.fullmatch(r"\s*(\w+)\s*(?:\(\s*([^)]*?)\s*\))?\s*", name)
    if known is None or known[1] not in RECIPES:
        raise ProblemError(f"{name!r} is no recipe: choose from {', '.join(RECIPES)}")
    if known[2] is not None and known[1] in ("data_parallel", "fsdp"):
        raise ProblemError(f"recipe {name!r} names a mesh axis: {known[1]} cuts the batch on every one that divides it")
    axis = known[2] or axes[-1]
    if axis not in axes:
        raise ProblemError(f"recipe {name!r} names mesh axis {axis!r}, but the mesh has {', '.join(axes)}")
    return known[1], axis


@dataclass(frozen=True)
class _Kitchen:
    """What every recipe works with."""

    name: str
    asked: Problem
    axis: str

    @property
    def graph(self) -> Graph:
        return self.asked.graph

    @property
    def mesh(self) -> Mesh:
        return self.asked.mesh

    @property
    def size(self) -> int:
        return self.mesh.sizes[self.mesh.axis(self.axis)]

    def refuse(self, why: str) -> ProblemError:
        return ProblemError(f"recipe {self.name!r} does not fit graph {self.graph.name!r}: {why}")

    def batch(self, axes: Iterable[str]) -> Pins:
        """Cut the inputs by the batch on the mesh axes that divide it, one after the other."""
        inputs = [tensor for tensor in self.graph.tensors.values() if tensor.role == "input" and tensor.shape]
        if not inputs:
            raise self.refuse("it has no input with a dim for the batch")
        batch, taken = inputs[0].shape[0], list[str]()
        for axis in axes:
            if batch % math.prod(self._size(one) for one in [*taken, axis]) == 0:
                taken.append(axis)
        if all(self._size(axis) == 1 for axis in taken) and any(self._size(axis) > 1 for axis in axes):
            sizes = ", ".join(f"{axis}={self._size(axis)}" for axis in axes)
            raise self.refuse(f"{sizes} does not divide the batch of {inputs[0]}")
        placed = {axis: Shard(0) if axis in taken else WHOLE for axis in self.mesh.axes}
        return {one.name: dict(placed) for one in inputs if one.shape[0] == batch}

    def _size(self, axis: str) -> int:
        return self.mesh.sizes[self.mesh.axis(axis)]

    def parameters(self) -> list[Tensor]:
        """Return the parameters that follow no other tensor."""
        ties, tensors = self.graph.ties, self.graph.tensors.values()
        return [tensor for tensor in tensors if tensor.role == "parameter" and tensor.name not in ties]

    def read(self, tensor: str, placed: dict[str, Placement]) -> Pins:
        """Pin how the forward and the backward pass read a parameter, in the ops that can read it so."""
        found: Pins = {}
        for use in self.graph.uses(tensor):
            rows = self.asked.bound[use.op].rows
            if use.op not in self._update and set(placed.values()) <= {row.operands[use.slot] for row in rows}:
                found[use.name] = dict(placed)
        return found

    @cached_property
    def _update(self) -> set[str]:
        """Return the ops that work on final gradients."""
        begin = [("tensor", name) for name in self.graph.gradients]
        reached = nx.multi_source_dijkstra_path_length(self.graph.digraph, begin) if begin else {}
        return {name for kind, name in reached if kind == "op"}

    def whole(self) -> dict[str, Placement]:
        return dict.fromkeys(self.mesh.axes, WHOLE)

    def fits(self, tensor: Tensor, placed: dict[str, Placement]) -> bool:
        return legal(tuple(placed.values()), tensor.shape, self.asked.parts(tensor.name), self.mesh.sizes)


def _data_parallel(at: _Kitchen) -> Pins:
    pins = at.batch(at.mesh.axes)
    for tensor in at.parameters():
        pins[tensor.name] = at.whole()
        pins |= at.read(tensor.name, at.whole())
    return pins


def _fsdp(at: _Kitchen) -> Pins:
    pins = at.batch(at.mesh.axes)
    first = next(iter(pins.values()))
    axes = [axis for axis, placement in first.items() if placement != WHOLE]
    cut = 0
    for tensor in at.parameters():
        placed = _in_pieces(at, tensor, axes)
        cut += any(isinstance(placement, Shard) for placement in placed.values())
        pins[tensor.name] = placed
        pins |= at.read(tensor.name, at.whole())
    if not cut:
        raise at.refuse("no parameter has a dim that the mesh axes of the batch divide")
    return pins


def _in_pieces(at: _Kitchen, tensor: Tensor, axes: list[str]) -> dict[str, Placement]:
    """Cut a parameter on the first dim that all mesh axes divide, or as many of them as can be."""
    for count in range(len(axes), 0, -1):
        for dim in range(len(tensor.shape)):
            placed: dict[str, Placement] = {
                axis: Shard(dim) if axis in axes[:count] else WHOLE for axis in at.mesh.axes
            }
            if at.fits(tensor, placed):
                return placed
    return at.whole()


def _megatron(at: _Kitchen) -> Pins:
    return _columns_then_rows(at, {})


def _megatron_sp(at: _Kitchen) -> Pins:
    first = next((t for t in at.graph.tensors.values() if t.role == "input" and len(t.shape) > 1), None)
    if first is None:
        raise at.refuse("it has no input with a batch and a sequence")
    placed: dict[str, Placement] = {}
    for tensor in at.graph.tensors.values():
        cut = _sequence(at, tensor, *first.shape[:2]) if tensor.role == "result" else None
        if cut is not None and at.fits(tensor, at.whole() | {at.axis: cut}):
            placed[tensor.name] = cut
    return _columns_then_rows(at, placed, f"no sum carries the sequence of {first} in a dim that {at.axis} divides")


def _sequence(at: _Kitchen, tensor: Tensor, batch: int, length: int) -> Shard | None:
    """Return the cut of the sequence where a tensor begins with the batch and then has it, in one dim or in two."""
    if tensor.shape[:2] == (batch, length):
        return Shard(1)
    parts = at.asked.parts(tensor.name)[0] if tensor.shape else ()
    for part in range(1, len(parts)):
        if math.prod(parts[:part]) == batch and tensor.shape[0] == batch * length:
            return Shard(0, part)
    return None


def _columns_then_rows(at: _Kitchen, scattered: dict[str, Placement], refusal: str = "") -> Pins:
    """Cut pairs of weights; their sums are held whole, or scattered where that is asked for."""
    others = [axis for axis in at.mesh.axes if axis != at.axis]
    pins = at.batch(others)
    pairs = find_pairs(at.asked, at.size)
    if not pairs.paired and at.size > 1:
        raise at.refuse(f"no two matrix products in it follow each other with weights that {at.axis}={at.size} divides")
    for tensor in at.parameters():
        pins[tensor.name] = at.whole() | {at.axis: pairs.weights.get(tensor.name, WHOLE)}
        if len(tensor.shape) > 1:  # a whole bias of a product by rows is read as one term of the sum
            pins |= at.read(tensor.name, pins[tensor.name])
    if refusal and not scattered.keys() & pairs.sums.keys():
        raise at.refuse(refusal)
    return pins | {name: {at.axis: scattered.get(name, WHOLE)} for name in pairs.sums}


def _expert_parallel(at: _Kitchen) -> Pins:
    stacked = _stacked(at.graph)
    if not stacked:
        raise at.refuse("it has no stacked weights, one for each expert, in a matrix product")
    by_expert: dict[str, Placement] = at.whole() | {at.axis: Shard(0)}
    for name in sorted(stacked):
        if not at.fits(at.graph.tensors[name], by_expert):
            raise at.refuse(f"{at.axis}={at.size} does not divide the experts of {at.graph.tensors[name]}")
    pins = at.batch(at.mesh.axes)
    for tensor in at.parameters():
        pins[tensor.name] = by_expert if tensor.name in stacked else at.whole()
        pins |= at.read(tensor.name, pins[tensor.name])
    return pins


def _stacked(graph: Graph) -> set[str]:
    """Return the parameters of rank 3 that a product reads as a matrix for each expert, as they are or as a view."""
    read_as = {tensor.name: tensor.name for tensor in graph.tensors.values() if tensor.role == "parameter"}
    found = set()
    for node in graph.nodes.values():
        for use in graph.operand_uses(node.name):
            if use.tensor in read_as and node.op in VIEWS and node.attrs.get("perm", [0])[0] == 0:
                read_as[node.results[0]] = read_as[use.tensor]
            elif use.tensor in read_as and node.op in PRODUCTS and len(graph.tensors[use.tensor].shape) == 3:
                found.add(read_as[use.tensor])
    return found


RECIPES = {
    "data_parallel": _data_parallel,
    "fsdp": _fsdp,
    "megatron": _megatron,
    "megatron_sp": _megatron_sp,
    "expert_parallel": _expert_parallel,
}
"""Every recipe by its name."""
