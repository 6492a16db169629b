"""A plan from layouts that another planner gave: the rows that make and read them, and reshards in between."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ops.placement import Layout
from solver.cost.reshard import INF
from solver.greedy.walk import Ints, StuckError, Walk
from solver.plan import Plan
from solver.problem import Problem


@dataclass(frozen=True)
class Followed:
    """Another planner's answer as a plan of ours.

    Parameters
    ----------
    plan : Plan
        Status ``feasible``, without a bound.
    unlike : tuple of str
        Ops of which no row reads and makes what the planner said: they take the row that is nearest.
    """

    plan: Plan
    unlike: tuple[str, ...]


def follow(
    problem: Problem,
    made: Mapping[str, Layout],
    needed: Mapping[str, Layout] | None = None,
    held: Mapping[str, Layout] | None = None,
) -> Followed:
    """Plan as somebody else decided.

    Parameters
    ----------
    problem : Problem
        The question, whose prices the plan gets.
    made : mapping
        Tensor -> the layout in which its op makes it, of a source its storage. What is not said is free: of the rows
        that agree most an op takes the one whose operands are brought there cheapest.
    needed : mapping, optional
        Use, as ``op/operand`` -> the layout in which the op reads it.
    held : mapping, optional
        Result -> the layout to which it is resharded at once. Where nothing is said, uses share the reshard that
        several of them ask for.

    Returns
    -------
    Followed

    Raises
    ------
    StuckError
        Where an op has no row that its operands can be brought to.
    """
    walk, unlike = Walk(problem), []
    for tensor, layout in made.items():
        source = tensor in problem.graph.tensors and problem.graph.tensors[tensor].producer is None
        asked = walk.known(tensor, layout) if source else None
        if asked is not None and asked in walk.storages(tensor):
            walk.store(tensor, asked)
    for node in problem.graph.nodes.values():
        apart, price = _apart(walk, node.name, made, needed or {}), walk.price_of_operands(node.name)
        if (price >= INF).all():
            raise StuckError(f"{walk.stuck(node.name)}: it has no row that they can be brought to")
        best = int(np.lexsort((price, np.where(price < INF, apart, len(node.results) + len(problem.graph.tensors))))[0])
        if apart[best]:
            unlike.append(node.name)
        walk.take(node.name, best)
        for tensor in node.results:
            asked = walk.known(tensor, (held or {}).get(tensor, walk.made[tensor]))
            if asked is not None and problem.pinned(tensor, tensor) is None:
                walk.hold(tensor, asked)
    walk.share()
    return Followed(walk.plan(), tuple(unlike))


def _apart(walk: Walk, node: str, made: Mapping[str, Layout], needed: Mapping[str, Layout]) -> Ints:
    """Return per joint row how many tensors it reads or makes otherwise than was said."""
    problem, joint = walk.problem, walk.joint(node)
    count = np.zeros(len(joint.rows), np.int64)
    for use in problem.graph.operand_uses(node):
        if use.name in needed:
            count += joint.operands[use.slot] != _number(walk, use.tensor, needed[use.name])
    for slot, tensor in enumerate(problem.graph.nodes[node].results):
        if tensor in made:
            count += joint.results[slot] != _number(walk, tensor, made[tensor])
    return count


def _number(walk: Walk, tensor: str, layout: Layout) -> int:
    """Return the number of a layout; -1 for one that the tensor cannot have."""
    asked = walk.known(tensor, layout)
    return -1 if asked is None else walk.number(tensor, asked)
