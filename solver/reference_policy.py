"""The executable meaning of policies: section 2 of docs/semantics.md."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase, translate

from ops.bind import BoundRule
from ops.placement import Parts, Placement, Replicate, Shard
from solver.constraints.policy_kinds import Batch, Equal, Expert, Forbid, Policy, Sequence, Untie, Zero
from solver.graph import Graph
from solver.mesh import Mesh
from solver.reference_layout import lie

PLACEWISE = {"layer_norm", "rms_norm", "dropout", "fused_dropout_add"}
PLACEWISE |= {f"{op}_grad" for op in PLACEWISE}


@dataclass
class Wishes:
    """What policies come to.

    Parameters
    ----------
    untied : set of str
        Followers whose ties are let go.
    forbidden : mapping
        Tensor, or None for kernels -> kinds of collective with the mesh axes on which they may not run.
    wanted : list of (str, int, tuple of Placement)
        A tensor or use, a mesh axis, and what it may be there.
    alike : mapping
        Op -> the op as which it lies.
    """

    untied: set[str] = field(default_factory=set)
    forbidden: dict[str | None, set[tuple[str, int]]] = field(default_factory=dict)
    wanted: list[tuple[str, int, tuple[Placement, ...]]] = field(default_factory=list)
    alike: dict[str, str] = field(default_factory=dict)


def wishes(
    graph: Graph, mesh: Mesh, parts: Mapping[str, Parts], bound: Mapping[str, BoundRule], policies: Iterable[Policy]
) -> Wishes:
    """Read policies, one after the other."""
    found = Wishes()
    for policy in policies:
        match policy:
            case Untie(patterns):
                found.untied |= set(_fitting(patterns, graph.ties))
            case Forbid(kinds, tensors, axis):
                everything: list[str | None] = [None] if tensors == ("*",) else []
                for subject in [*everything, *_fitting(tensors, graph.tensors)]:
                    axes = [i for i, name in enumerate(mesh.axes) if axis in (None, name)]
                    found.forbidden.setdefault(subject, set()).update((kind, i) for kind in kinds for i in axes)
            case Zero(stage, axis):
                _zero(found, graph, mesh, parts, stage, mesh.axis(axis))
            case Batch(axis, dim, ()) | Sequence(axis, dim, ()):
                some = None if isinstance(policy, Batch) else PLACEWISE
                wanted = _carried(graph, bound, dim, some)
                found.wanted += [(subject, mesh.axis(axis), (placement,)) for subject, placement in wanted.items()]
            case Batch(axis, dim, tensors) | Sequence(axis, dim, tensors):
                _cut_at(found, graph, mesh.axis(axis), dim, _fitting(tensors, graph.tensors))
            case Expert(axis, ()):
                for node in graph.nodes.values():
                    for use in graph.operand_uses(node.name):
                        stacked = node.op == "grouped_mm" and use.operand == "mat_b"
                        if stacked and len(graph.tensors[use.tensor].shape) == 3:
                            found.wanted.append((use.name, mesh.axis(axis), (Shard(0),)))
                            if graph.tensors[use.tensor].producer is None:
                                found.wanted.append((use.tensor, mesh.axis(axis), (Shard(0),)))
            case Expert(axis, tensors):
                _cut_at(found, graph, mesh.axis(axis), 0, _fitting(tensors, graph.tensors))
            case Equal(patterns):
                for pattern in patterns:
                    found.alike |= _fellows(graph, parts, bound, pattern)
    return found


def _fitting(patterns: Iterable[str], names: Iterable[str]) -> list[str]:
    return [name for name in names if any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)]


def _cut_at(found: Wishes, graph: Graph, axis: int, dim: int, tensors: Iterable[str]) -> None:
    """Want tensors, constants aside, and every use of them cut at a dim."""
    for tensor in tensors:
        stored = [] if graph.tensors[tensor].role == "constant" else [tensor]
        subjects = [*stored, *(use.name for use in graph.uses(tensor))]
        found.wanted += [(subject, axis, (Shard(dim),)) for subject in subjects]


def _zero(found: Wishes, graph: Graph, mesh: Mesh, parts: Mapping[str, Parts], stage: int, axis: int) -> None:
    """Want states (stage 1), gradients (2) and parameters (3) cut, wherever the mesh axis alone divides them."""
    role = {tensor.name: tensor.role for tensor in graph.tensors.values()}
    states = [one for one, of in graph.ties.items() if (role[one], role[of]) == ("state", "parameter")]
    gradients = list(graph.gradients) if stage >= 2 else []
    parameters = [name for name in role if role[name] == "parameter"] if stage == 3 else []
    if stage < 3:
        found.untied |= {*states, *(one for one in graph.gradients if one in graph.ties)}
    for name in [*states, *gradients, *parameters]:
        shards = [Shard(dim, part) for dim, split in enumerate(parts[name]) for part in range(len(split))]
        alone = {shard: [shard if i == axis else Replicate() for i in range(len(mesh.axes))] for shard in shards}
        cuts = tuple(shard for shard in shards if lie(alone[shard], parts[name], mesh.sizes) is not None)
        if cuts:
            found.wanted.append((name, axis, cuts))


def _carried(graph: Graph, bound: Mapping[str, BoundRule], dim: int, some: set[str] | None) -> dict[str, Placement]:
    """Follow a dim of the inputs from op to op: the first row that cuts it in every operand that has it says where."""
    inputs = [tensor for tensor in graph.tensors.values() if tensor.role == "input" and len(tensor.shape) > dim]
    where: dict[str, Placement] = {t.name: Shard(dim) for t in inputs if t.shape[dim] == inputs[0].shape[dim]}
    wanted: dict[str, Placement] = dict(where) if some is None else {}
    for node in graph.nodes.values():
        uses = {use.name: use for use in graph.operand_uses(node.name) if use.tensor in where}
        for row in bound[node.name].rows if uses else ():
            if any(row.operands[use.slot] != where[use.tensor] for use in uses.values()):
                continue
            made = {tensor: row.results[slot] for slot, tensor in enumerate(node.results)}
            made = {tensor: placement for tensor, placement in made.items() if isinstance(placement, Shard)}
            where |= made
            if some is None or node.op in some:
                wanted |= {name: where[use.tensor] for name, use in uses.items()} | made
            break
    return wanted


def _fellows(graph: Graph, parts: Mapping[str, Parts], bound: Mapping[str, BoundRule], pattern: str) -> dict[str, str]:
    """Pair each op of a later layer with that of the first layer of its name and structure, the n-th with the n-th."""
    begin, end = pattern.split("*", 1)
    shape = re.compile(rf"((?s:.*?)\.)?{re.escape(begin)}([0-9]+)({translate(end)}|{translate(end + '.*')})")
    layers: dict[str, dict[str, list[str]]] = {}
    for node in graph.nodes.values():
        label = node.name if shape.match(node.name) else node.module
        if match := shape.match(label):
            slots = [*((use.operand, use.tensor) for use in graph.operand_uses(node.name)), *enumerate(node.results)]
            facts = [(slot, str(graph.tensors[t]).partition(" ")[2], parts[t]) for slot, t in slots]
            kind = repr((label[: match.start(2)], label[match.end(2) :], node.op, facts, bound[node.name].rows))
            layers.setdefault(kind, {}).setdefault(match[2], []).append(node.name)
    pairs: dict[str, str] = {}
    for by_layer in layers.values():
        first, *others = by_layer.values()
        for layer in others:
            pairs |= dict(zip(layer, first, strict=False))
    return {node: of for node, of in pairs.items() if node not in graph.repeats}
