"""DTensor: eager, each op takes the strategy with the cheapest redistribution of its operands, in program order.

Source: PyTorch 2.13, `torch.distributed.tensor`. `ShardingPropagator` computes the redistribute cost of every strategy
of an op with a cost model of its own (`_collective_utils.redistribute_cost`: rings of NVLink inside a host and of
Ethernet between them; taking a part of what is whole, and adding zeros to it, costs nothing) and takes the least. A
strategy that redistributes nothing goes before one that costs nothing. Results keep the layout in which they are made,
partial sums included, until an op asks for another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ops.bind import Row
from ops.placement import Layout, Partial, Placement, Replicate, Shard
from solver.graph import Node
from solver.greedy.walk import Bools, StuckError, Walk
from solver.plan import Plan
from solver.problem import Problem

Costs: TypeAlias = NDArray[np.float64]

HOST = 8
"""Devices of a host."""
BANDWIDTH, LATENCY, START = 87.7, 0.6, 6.6
"""Gigabytes a second and microseconds a hop inside a host, microseconds to begin."""
ETHERNET_SHARE, ETHERNET_LATENCY = 0.22, 2.7
"""The bandwidth between hosts as a share of that inside, and the microseconds of a hop."""
SHUFFLE = 1.0
"""What moving a cut to another dim costs beside a gather, which is said to be preferred."""
FOLLOWING = {
    "softmax": "x",
    "log_softmax": "x",
    "softmax_grad": "out_grad",
    "log_softmax_grad": "out_grad",
    "layer_norm": "x",
    "nll_loss": "input",
}
"""Ops of one strategy, which keeps the cuts of this operand where the op allows them, and gathers the others."""
NEVER_CUT = {
    **dict.fromkeys(("conv2d", "conv2d_grad"), frozenset({"c", "m", "g", "s0", "s1"})),
    "take_along_axis": frozenset({"v"}),
}
"""Ops that are not cut on these factors."""
REDUCED = frozenset({"assign"})
"""Ops that take no partial operand, though they would let it pass; grad ops do not either, but for a few."""
MASKED = frozenset({"embedding"})
"""Ops whose partial results no op takes: a masked lookup is reduced with its mask."""
LINEAR_GRADS = frozenset({"embedding_grad", "matmul_grad"})


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
    choosing = Choosing(walk)
    for node in problem.graph.nodes.values():
        walk.take(node.name, choosing.choice(node))
    walk.share()
    return walk.plan()


@dataclass
class Choosing:
    """What DTensor would take at each op of a walk.

    Parameters
    ----------
    walk : Walk
    """

    walk: Walk
    _known: dict[tuple[object, ...], Costs] = field(default_factory=dict)

    def choice(self, node: Node) -> int:
        """Return the joint row of an op that redistributes nothing, costs nothing, or costs least.

        Raises
        ------
        StuckError
            Where there is none.
        """
        joint, allowed = self.walk.joint(node.name), self.walk.allowed(node.name) & self._offered(node)
        cost, still = np.where(allowed, 0.0, math.inf), allowed.copy()
        for use in self.walk.problem.graph.operand_uses(node.name):
            cost = cost + self._from_held(use.tensor)[joint.operands[use.slot]]
            still &= joint.operands[use.slot] == self.walk.number(use.tensor, self.walk.held[use.tensor])
        if still.any():
            return int(np.flatnonzero(still)[0])
        best = int(np.argmin(cost))
        if math.isinf(cost[best]):
            raise StuckError(f"{self.walk.stuck(node.name)}: DTensor has no strategy that they can be brought to")
        return best

    def _offered(self, node: Node) -> Bools:
        """Return which joint rows of an op DTensor has a strategy for, as the operands lie."""
        problem, joint = self.walk.problem, self.walk.joint(node.name)
        bound, uses = problem.bound[node.name], problem.graph.operand_uses(node.name)
        lies = [self.walk.held[use.tensor] for use in uses]
        fits = np.ones(len(joint.rows), np.bool_)
        rows = np.array([self._has(node.op, row) for row in bound.rows])
        if not any(isinstance(placement, Shard) for layout in lies for placement in layout):
            rows &= np.array([row.cut is None for row in bound.rows])
        for use in uses:
            maker = problem.graph.nodes.get(problem.graph.tensors[use.tensor].producer or "")
            if maker is not None and maker.op in MASKED:
                rows &= np.array([not isinstance(row.operands[use.slot], Partial) for row in bound.rows])
        if node.op in FOLLOWING:
            leader = next(use for use in uses if use.operand == FOLLOWING[node.op])
            for axis, placement in enumerate(self.walk.held[leader.tensor]):
                cut = [k for k, row in enumerate(bound.rows) if row.cut and row.operands[leader.slot] == placement]
                fits &= np.isin(joint.rows[:, axis], cut or [0])
        return fits & rows[joint.rows].all(axis=1)

    @staticmethod
    def _has(op: str, row: Row) -> bool:
        if row.cut is not None:
            return row.cut[0] not in NEVER_CUT.get(op, ())
        partial = any(isinstance(placement, Partial) for placement in row.operands)
        return not (partial and (op in REDUCED or (op.endswith("_grad") and op not in LINEAR_GRADS)))

    def _from_held(self, tensor: str) -> Costs:
        """Return what bringing a tensor to each of its layouts costs, in microseconds of DTensor's model."""
        problem, held = self.walk.problem, self.walk.held[tensor]
        fact = problem.graph.tensors[tensor]
        key = (fact.shape, fact.itemsize, problem.parts(tensor), held)
        if key not in self._known:
            size = math.prod(fact.shape) * fact.itemsize
            layouts = self.walk.layouts(tensor)
            self._known[key] = np.array([redistribute_cost(held, one, size, problem.mesh.sizes) for one in layouts])
        return self._known[key]


def redistribute_cost(source: Layout, target: Layout, size: int, axes: Sequence[int]) -> float:
    """Return what DTensor says that bringing a tensor from one layout to another costs.

    Parameters
    ----------
    source, target : Layout
    size : int
        Bytes of the whole tensor.
    axes : sequence of int
        The sizes of the mesh axes.

    Returns
    -------
    float
        Microseconds; infinite where it does not do that.
    """
    if any(
        isinstance(after, Shard) and after.part and after != before
        for before, after in zip(source, target, strict=True)
    ):
        return math.inf
    if source == target or all(placement == Replicate() for placement in source):
        return 0.0
    shards = math.prod(n for n, placement in zip(axes, source, strict=True) if isinstance(placement, Shard))
    local, cost = size / shards / 2**30, 0.0
    for axis, before, after in _steps(source, target):
        step, local = _step(before, after, local, axis, axes)
        cost += step
    return cost


def _steps(source: Layout, target: Layout) -> list[tuple[int, Placement, Placement]]:
    """Return the changes of one placement each, as the greedy planner of DTensor orders them.

    From the inner mesh axis outwards, a dim that outer axes cut otherwise before is gathered first.
    """
    now, steps = list(source), []
    if any(isinstance(placement, Shard) for placement in source):
        for axis in reversed(range(len(now))):
            wanted = target[axis]
            if isinstance(wanted, Shard):
                before = [i for i in range(axis) if now[i] == wanted]
                after = [i for i in range(axis) if target[i] == wanted]
                wanted = wanted if before == after else Replicate()
            if now[axis] != wanted:
                steps.append((axis, now[axis], wanted))
                now[axis] = wanted
    for axis, wanted in enumerate(target):
        if now[axis] != wanted:
            steps.append((axis, now[axis], wanted))
    return steps


def _step(before: Placement, after: Placement, local: float, axis: int, axes: Sequence[int]) -> tuple[float, float]:
    """Return what one change costs, and the gigabytes that a device has after it."""
    n = axes[axis]
    away = math.prod(axes[axis:]) > HOST
    bandwidth, hop = BANDWIDTH * (ETHERNET_SHARE if away else 1), ETHERNET_LATENCY if away else LATENCY

    def ring(gigabytes: float, hops: int) -> float:
        return START + hops * hop + gigabytes * hops / n / bandwidth * 1e6

    if isinstance(before, Shard):
        if isinstance(after, Partial):
            return math.inf, local
        if isinstance(after, Shard):
            return ring(local, n - 1) + SHUFFLE, local
        return ring(local * n, n - 1), local * n
    if isinstance(before, Partial):
        if isinstance(after, Partial):
            return math.inf, local
        return (ring(local, n - 1), local / n) if isinstance(after, Shard) else (ring(local, 2 * (n - 1)), local)
    return 0.0, local / n if isinstance(after, Shard) else local
