"""PaddlePaddle's completion of a program: forward in program order, each op's rule run once on its operands' layouts.

Source: PaddlePaddle 3.3, `spmd_rules` and the dist branch of its generated API for programs (PIR). Operands that differ
from what comes of the rule are resharded at the op, partial terms among them: an op that cannot take them asks for the
whole, so that they are reduced where they are first read. What an op of the backward pass makes is resharded at once to
where the tensor lies that it is the gradient of, where it is cut otherwise. Equal reshards of one tensor run once.
"""

from __future__ import annotations

import numpy as np

from ops.placement import Layout, Placement, Shard
from solver.cost.reshard import INF
from solver.graph import Node
from solver.greedy.backward import backward
from solver.greedy.paddle_rules import Merging
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
        Where a rule of PaddlePaddle refuses, or no row of an op can be reached.
    """
    walk, gradient_of = Walk(problem), backward(problem.graph).slopes
    for node in problem.graph.nodes.values():
        walk.take(node.name, _choice(walk, node))
        for tensor in node.results:
            if tensor in gradient_of and problem.pinned(tensor, tensor) is None:
                walk.hold(tensor, _as_forward(walk, tensor, gradient_of[tensor]))
    walk.share()
    return walk.plan()


def _choice(walk: Walk, node: Node) -> int:
    """Return the joint row that is nearest to what the rule says."""
    joint, price, rule = walk.joint(node.name), walk.price_of_operands(node.name), Merging(walk, node)
    rule.refuse()
    possible: Bools = price < INF
    if not possible.any():
        raise StuckError(f"{walk.stuck(node.name)}: it has no row that they can be brought to")
    for axis, size in enumerate(walk.problem.mesh.sizes):
        for wanted in rule.rows(axis) if size > 1 else ():
            keeps: Bools = possible & (joint.rows[:, axis] == wanted)
            if keeps.any():
                possible = keeps
                break
    left = np.flatnonzero(possible)
    return int(left[np.argmin(price[left])])


def _as_forward(walk: Walk, gradient: str, tensor: str) -> Layout:
    """Return where a gradient is held: as it is made where that is cut like its tensor, else as the tensor is."""
    made, lies = walk.made[gradient], walk.held[tensor]
    alike = [_cut(placement) for placement in made] == [_cut(placement) for placement in lies]
    return made if alike else walk.known(gradient, lies) or made


def _cut(placement: Placement) -> Shard | None:
    return placement if isinstance(placement, Shard) else None
