"""PaddlePaddle's dynamic completion: forward in program order, each op's rule run once on its operands' layouts.

Source: PaddlePaddle's `spmd_rules` and the dist branch of its generated API. A rule merges the dims_mappings of the
operands per factor: -1 yields to a mesh axis, and where two operands disagree the first one has its way; operands that
differ from what comes of it are resharded at the op. Partial results are reduced where they are made.
"""

from __future__ import annotations

import numpy as np

from ops.bind import BoundRule
from ops.placement import Layout, Partial, Placement, Replicate, Shard
from solver.cost.reshard import INF
from solver.greedy.walk import Bools, StuckError, Walk
from solver.plan import Plan
from solver.problem import Problem


def paddle(problem: Problem) -> Plan:
    """Plan as PaddlePaddle's rules complete a program.

    Parameters
    ----------
    problem : Problem

    Returns
    -------
    Plan
        Status ``feasible``, without a bound.

    Raises
    ------
    StuckError
        Where no row of an op can be reached.
    """
    walk = Walk(problem)
    for node in problem.graph.nodes:
        walk.take(node, _merged(walk, node))
        for tensor in problem.graph.nodes[node].results:
            if problem.pinned(tensor, tensor) is None:
                _reduce(walk, tensor)
    return walk.plan()


def _merged(walk: Walk, node: str) -> int:
    """Return the joint row that is nearest to what the operands ask for, first come first served."""
    problem, joint = walk.problem, walk.joint(node)
    bound = problem.bound[node]
    price = walk.price_of_operands(node)
    possible = price < INF
    if not possible.any():
        raise StuckError(f"{problem.graph.nodes[node]} has no row that its operands can be brought to")
    for axis, size in enumerate(problem.mesh.sizes):
        for wanted in _asked_for(walk, node, bound, axis) if size > 1 else ():
            keeps: Bools = possible & (joint.rows[:, axis] == wanted)
            if keeps.any():
                possible = keeps
                break
        else:
            whole: Bools = possible & (joint.rows[:, axis] == 0)
            possible = whole if whole.any() else possible
    left = np.flatnonzero(possible)
    return int(left[np.argmin(price[left])])


def _asked_for(walk: Walk, node: str, bound: BoundRule, axis: int) -> list[int]:
    """Return the rows that keep an operand cut on a mesh axis where it is, the first operand first."""
    found: list[int] = []
    for use in walk.problem.graph.operand_uses(node):
        here = walk.held[use.tensor][axis]
        if isinstance(here, Shard):
            found += [
                k for k, row in enumerate(bound.rows) if row.operands[use.slot] == here and _whole_sums(row.operands)
            ]
    return found


def _whole_sums(operands: tuple[Placement | None, ...]) -> bool:
    return not any(isinstance(placement, Partial) for placement in operands)


def _reduce(walk: Walk, tensor: str) -> None:
    """Let uses read a result after its partial terms were reduced."""
    made = walk.made[tensor]
    if any(isinstance(placement, Partial) for placement in made):
        whole: Layout = tuple(Replicate() if isinstance(p, Partial) else p for p in made)
        walk.hold(tensor, walk.problem.canonical(tensor, whole))
