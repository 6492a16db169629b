"""DTensor: eager, each op takes the strategy with the cheapest redistribution of its operands, in program order.

Source: PyTorch's `torch.distributed.tensor`, whose propagator computes the redistribute cost of every strategy of an
op and takes the least. Results keep the layout in which they are made, partial sums included, until an op asks for
another.
"""

from __future__ import annotations

import numpy as np

from solver.cost.reshard import INF
from solver.greedy.walk import StuckError, Walk
from solver.plan import Plan
from solver.problem import Problem


def dtensor(problem: Problem) -> Plan:
    """Plan as DTensor runs.

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
        Where no strategy of an op can be reached.
    """
    walk = Walk(problem)
    for node in problem.graph.nodes:
        price = walk.price_of_operands(node)
        best = int(np.argmin(price))
        if price[best] >= INF:
            raise StuckError(f"{problem.graph.nodes[node]} has no row that its operands can be brought to")
        walk.take(node, best)
    return walk.plan()
