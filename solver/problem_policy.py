"""Policies read against a graph and a mesh: what they demand of layouts, forbid to send, let go and make alike."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import translate
from typing import Any

from ops.bind import BoundRule
from ops.placement import Parts, Placement, Replicate, Shard
from solver.constraints.policy_kinds import Batch, Equal, Expert, Forbid, Policy, Traffic, Untie, Zero, fitting
from solver.constraints.policy_kinds import Sequence as SequencePolicy
from solver.graph import Graph
from solver.layout import legal, placements
from solver.mesh import Mesh
from solver.problem_pins import ProblemError

PLACEWISE = ("layer_norm", "rms_norm", "dropout", "fused_dropout_add")
"""The ops that sequence parallelism speaks of, with their grad ops."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What a policy wants of one tensor or use on one mesh axis.

    Parameters
    ----------
    subject : str
        A tensor, or a use written ``op/operand``.
    axis : int
    placements : tuple of Placement
        One of these it has.
    policy : str
        The policy as it was written.
    """

    subject: str
    axis: int
    placements: tuple[Placement, ...]
    policy: str


@dataclass(frozen=True, eq=False)
class Setting:
    """What policies are read against: a graph on a mesh, with its rules bound to parts.

    Parameters
    ----------
    graph : Graph
    mesh : Mesh
    bound : mapping
    parts : mapping
    """

    graph: Graph
    mesh: Mesh
    bound: Mapping[str, BoundRule]
    parts: Mapping[str, Parts]


def read_policy(graph: Graph, mesh: Mesh, policy: Any) -> tuple[Policy, ...]:
    """Check that policies name what the graph and the mesh have.

    Parameters
    ----------
    graph : Graph
    mesh : Mesh
    policy : Policy, or sequence of them

    Returns
    -------
    tuple of Policy

    Raises
    ------
    ProblemError
        Where something is no policy, or names nothing.
    """
    given = [] if policy is None else policy if isinstance(policy, list | tuple) else [policy]
    for one in given:
        if not isinstance(one, Policy):
            raise ProblemError(
                f"policy={one!r} is no policy: give what solver.constraints.policy makes, as no_communication('dp')"
            )
        axis, tensors = getattr(one, "axis", None), getattr(one, "tensors", ())
        if axis is not None and axis not in mesh.axes:
            raise ProblemError(f"{one} names mesh axis {axis!r}, but the mesh has {', '.join(mesh.axes)}")
        for pattern in tensors:
            if not fitting((pattern,), graph.tensors):
                raise ProblemError(f"{one}: {pattern!r} names no tensor of graph {graph.name!r}{_near(pattern, graph)}")
        _check(graph, one)
    budgets = [str(one) for one in given if isinstance(one, Traffic)]
    if len(budgets) > 1:
        raise ProblemError(f"{' and '.join(budgets)}: one budget of traffic can be planned with")
    return tuple(given)


def _near(pattern: str, graph: Graph) -> str:
    import difflib

    near = difflib.get_close_matches(pattern, graph.tensors, 3)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


def _check(graph: Graph, one: Policy) -> None:
    """Refuse a policy that speaks of nothing in a graph."""
    for pattern in one.patterns if isinstance(one, Untie) else ():
        if not fitting((pattern,), graph.ties):
            followers = ", ".join(list(graph.ties)[:3]) + (", ..." if len(graph.ties) > 3 else "")
            raise ProblemError(
                f"untie({pattern!r}) lets no tie of graph {graph.name!r} go: "
                + (f"its followers are {followers}" if graph.ties else "it has none")
            )
    if isinstance(one, Zero) and not states_of(graph):
        raise ProblemError(
            f"{one}: graph {graph.name!r} has no optimizer states, which are states tied to parameters: plan a step "
            "with an update, as training_step(graph, optimizer='adamw')"
        )
    if isinstance(one, Zero) and one.stage > 1 and not graph.gradients:
        raise ProblemError(f"{one}: graph {graph.name!r} marks no gradients")
    if isinstance(one, Batch | SequencePolicy):
        if not one.tensors and not _first_inputs(graph, one.dim):
            raise ProblemError(f"{one}: no input of graph {graph.name!r} has a dim {one.dim}")
        for name in fitting(one.tensors, graph.tensors):
            if len(graph.tensors[name].shape) <= one.dim:
                raise ProblemError(f"{one}: {graph.tensors[name]} has no dim {one.dim}; dims count from 0")
    if isinstance(one, Expert) and not one.tensors and not list(_grouped(graph)):
        raise ProblemError(f"{one}: graph {graph.name!r} has no grouped_mm of stacked matrices: name the weights")


# ----------------------------------------------------------------------------------------------------- what they mean


def let_go(graph: Graph, policy: Sequence[Policy]) -> frozenset[str]:
    """Return the followers whose ties policies let go."""
    found: set[str] = set()
    for one in policy:
        if isinstance(one, Untie):
            found.update(one.followers(graph.ties))
        elif isinstance(one, Zero) and one.stage < 3:
            found.update(states_of(graph))
            found.update(name for name in graph.gradients if name in graph.ties)
    return frozenset(found)


def forbidden(mesh: Mesh, policy: Sequence[Policy], tensor: str | None) -> frozenset[tuple[str, int]]:
    """Return the kinds that may not run, each with the mesh axis: on a tensor, or (None) inside kernels."""
    found: set[tuple[str, int]] = set()
    for one in policy:
        if isinstance(one, Forbid) and (one.tensors == ("*",) or (tensor and fitting(one.tensors, (tensor,)))):
            axes = range(len(mesh.axes)) if one.axis is None else [mesh.axis(one.axis)]
            found.update((kind, axis) for kind in one.kinds for axis in axes)
    return frozenset(found)


def demands(setting: Setting, policy: Sequence[Policy]) -> tuple[Demand, ...]:
    """Return what policies want of layouts, axis by axis of size 2 or more."""
    found: dict[Demand, None] = {}
    for one in policy:
        axis = getattr(one, "axis", None)
        if axis is not None and setting.mesh.sizes[setting.mesh.axis(axis)] > 1:
            for subject, wanted in _wanted(setting, one):
                found[Demand(subject, setting.mesh.axis(axis), wanted, str(one))] = None
    return tuple(found)


def _wanted(setting: Setting, one: Policy) -> Iterator[tuple[str, tuple[Placement, ...]]]:
    graph = setting.graph
    if isinstance(one, Zero):
        kept = [*states_of(graph), *(graph.gradients if one.stage > 1 else ())]
        kept += [t.name for t in graph.tensors.values() if t.role == "parameter" and one.stage > 2]
        for name in kept:
            if cuts := _cuts(setting, name, setting.mesh.axis(one.axis)):
                yield name, cuts
    elif isinstance(one, Expert):
        if not one.tensors:
            for use, tensor in _grouped(graph):
                yield use, (Shard(0),)
                if graph.tensors[tensor].producer is None:
                    yield tensor, (Shard(0),)
        yield from _everywhere(graph, {name: Shard(0) for name in fitting(one.tensors, graph.tensors)})
    elif isinstance(one, Batch | SequencePolicy) and one.tensors:
        yield from _everywhere(graph, {name: Shard(one.dim) for name in fitting(one.tensors, graph.tensors)})
    elif isinstance(one, Batch | SequencePolicy):
        yield from _carried_along(setting, one)


def _everywhere(graph: Graph, placed: Mapping[str, Placement]) -> Iterator[tuple[str, tuple[Placement, ...]]]:
    """Yield a tensor, as it is stored or held, and all its uses; a constant is stored whole."""
    for name, placement in placed.items():
        if graph.tensors[name].role != "constant":
            yield name, (placement,)
        for use in graph.uses(name):
            yield use.name, (placement,)


def _cuts(setting: Setting, tensor: str, axis: int) -> tuple[Placement, ...]:
    """Return the cuts that a mesh axis alone can make of a tensor."""
    parts, sizes, shape = setting.parts[tensor], setting.mesh.sizes, setting.graph.tensors[tensor].shape
    found = []
    for placement in placements(parts, ()):
        layout = [placement if at == axis else Replicate() for at in range(len(sizes))]
        if isinstance(placement, Shard) and legal(layout, shape, parts, sizes):
            found.append(placement)
    return tuple(found)


def states_of(graph: Graph) -> list[str]:
    """Return the states that are tied to parameters: those of an optimizer."""
    roles = {name: tensor.role for name, tensor in graph.tensors.items()}
    return [name for name, leader in graph.ties.items() if roles[name] == "state" and roles[leader] == "parameter"]


def _grouped(graph: Graph) -> Iterator[tuple[str, str]]:
    """Yield the uses, and their tensors, where grouped_mm reads a matrix for each group."""
    for node in graph.nodes.values():
        for use in graph.operand_uses(node.name) if node.op == "grouped_mm" else ():
            if use.operand == "mat_b" and len(graph.tensors[use.tensor].shape) == 3:
                yield use.name, use.tensor


def _first_inputs(graph: Graph, dim: int) -> list[str]:
    """Return the inputs that are as long at a dim as the first one that has it."""
    having = [t for t in graph.tensors.values() if t.role == "input" and len(t.shape) > dim]
    return [tensor.name for tensor in having if tensor.shape[dim] == having[0].shape[dim]]


def _carried_along(setting: Setting, one: Batch | SequencePolicy) -> Iterator[tuple[str, tuple[Placement, ...]]]:
    """Yield the tensors and uses that carry a dim of the inputs; of the sequence those of placewise ops only."""
    graph, whole = setting.graph, isinstance(one, Batch)
    carried: dict[str, Placement] = {name: Shard(one.dim) for name in _first_inputs(graph, one.dim)}
    if whole:
        yield from ((name, (placement,)) for name, placement in carried.items())
    for name, node in graph.nodes.items():
        uses = [use for use in graph.operand_uses(name) if use.tensor in carried]
        rows = setting.bound[name].rows if uses else ()
        keeping = [row for row in rows if all(row.operands[use.slot] == carried[use.tensor] for use in uses)]
        if not keeping:
            continue
        made = {tensor: keeping[0].results[graph.tensors[tensor].slot] for tensor in node.results}
        carried |= {tensor: placement for tensor, placement in made.items() if isinstance(placement, Shard)}
        if whole or node.op.removesuffix("_grad") in PLACEWISE:
            yield from ((use.name, (carried[use.tensor],)) for use in uses)
            yield from ((tensor, (carried[tensor],)) for tensor in node.results if tensor in carried)


# ------------------------------------------------------------------------------------------------------- equal layers


def alike(setting: Setting, policy: Sequence[Policy]) -> dict[str, tuple[str, str]]:
    """Return, for each op of a later layer, its fellow in the first one, and the policy.

    Raises
    ------
    ProblemError
        Where a pattern finds no two layers that have an op in common.
    """
    found: dict[str, tuple[str, str]] = {}
    for one in policy:
        for pattern in one.patterns if isinstance(one, Equal) else ():
            pairs = dict(_fellows(setting, pattern))
            if not pairs:
                raise ProblemError(
                    f"{one}: {pattern!r} finds no op of a later layer that is as one of the first layer in graph "
                    f"{setting.graph.name!r}"
                )
            found |= {node: (of, str(one)) for node, of in pairs.items() if node not in setting.graph.repeats}
    return found


def _fellows(setting: Setting, pattern: str) -> Iterator[tuple[str, str]]:
    """Yield ops of later layers with those of the first that have the same rest of the name and are of one structure.

    Of several of one structure under one name that with the same place among them is meant.
    """
    before, _, after = pattern.partition("*")
    layer = re.compile(rf"(?s:.*?\.)?{re.escape(before)}(\d+)(?:{translate(after)}|{translate(after + '.*')})")
    rows = _numbered_rows(setting)
    first: dict[Hashable, tuple[str, str]] = {}
    seen: Counter[Hashable] = Counter()
    for name, node in setting.graph.nodes.items():
        where = name if layer.match(name) else node.module
        if (match := layer.match(where)) is None:
            continue
        kind = (
            where[: match.start(1)],
            where[match.end(1) :],
            node.op,
            rows[id(setting.bound[name])],
            _slots(setting, name),
        )
        known = first.setdefault((kind, seen[match[1], kind]), (match[1], name))
        seen[match[1], kind] += 1
        if known[0] != match[1]:
            yield name, known[1]


def _numbered_rows(setting: Setting) -> dict[int, int]:
    """Return a number for the rows of each bound rule; equal rows have one number."""
    numbers: dict[Hashable, int] = {}
    rules = {id(bound): bound for bound in setting.bound.values()}
    return {key: numbers.setdefault(bound.rows, len(numbers)) for key, bound in rules.items()}


def _slots(setting: Setting, node: str) -> Hashable:
    """Return shape, dtype and parts of what an op reads and makes, slot by slot."""
    graph = setting.graph
    uses = [(use.slot, use.tensor) for use in graph.operand_uses(node)]
    tensors = [*uses, *enumerate(graph.nodes[node].results)]
    return tuple((slot, graph.tensors[t].dtype, graph.tensors[t].shape, setting.parts[t]) for slot, t in tensors)
