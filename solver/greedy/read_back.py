"""From a layout of every tensor, as a propagation or a foreign planner names them, to a plan that can be priced."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ops.placement import Layout
from solver.cost.reshard import INF
from solver.greedy.walk import StuckError, Walk
from solver.plan import Plan
from solver.problem import Problem


def read_back(problem: Problem, layouts: Mapping[str, Layout]) -> Plan:
    """Return the plan that brings every tensor to its layout, each op taking the row nearest to what surrounds it.

    Sources are stored as named where their pins and ties allow it, results are held as named where no pin speaks of
    them; what is not named is stored as a framework would, or held as it is made.

    Parameters
    ----------
    problem : Problem
    layouts : mapping
        Tensor -> layout, in any legal way to write it.

    Returns
    -------
    Plan
        Status ``feasible``, without a bound.

    Raises
    ------
    StuckError
        Where no row of an op lies between the layouts of its operands and results.
    """
    walk = Walk(problem)
    named = {tensor: problem.canonical(tensor, layout) for tensor, layout in layouts.items()}
    for tensor, layout in named.items():
        leads = problem.graph.tensors[tensor].producer is None and tensor not in problem.ties
        if leads and layout in walk.storages(tensor):
            walk.store(tensor, layout)
    for node in problem.graph.nodes:
        walk.take(node, _nearest(walk, node, named))
        for tensor in problem.graph.nodes[node].results:
            if tensor in named and problem.pinned(tensor, tensor) is None:
                walk.hold(tensor, named[tensor])
    return walk.plan()


def _nearest(walk: Walk, node: str, layouts: Mapping[str, Layout]) -> int:
    """Return the joint row that costs least between the layouts of operands and results."""
    joint, price = walk.joint(node), walk.price_of_operands(node)
    for slot, tensor in enumerate(walk.problem.graph.nodes[node].results):
        if tensor in layouts:
            back = walk.prices(tensor)[:, walk.number(tensor, layouts[tensor])]
            price = np.minimum(INF, price + back[joint.results[slot]])
    best = int(np.argmin(price))
    if price[best] >= INF:
        raise StuckError(f"{walk.problem.graph.nodes[node]} has no row between the layouts of its tensors")
    return best
