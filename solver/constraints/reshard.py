"""How made, held and needed layouts hang together where communication is restricted."""

from __future__ import annotations

from itertools import product

import numpy as np

from solver.choice import table
from solver.constraints.layouts import Layouts, Place, Reach
from solver.constraints.reason import Reason
from solver.constraints.variables import FALSE, negation
from solver.cost.reshard import INF, ReshardTable
from solver.layout import placements
from solver.problem import Problem

_TEXT = {
    "none": 'communication="none" lets no byte leave a device',
    "frozen": 'communication="frozen" keeps every tensor in one layout for its producer and all its uses',
}


def source_of(problem: Problem, tensor: str) -> Place:
    """Return the place where a tensor comes to be."""
    return ("made", tensor) if problem.graph.tensors[tensor].producer is not None else ("held", tensor)


def targets_of(problem: Problem, tensor: str) -> list[Place]:
    """Return the places that a tensor has to reach from there."""
    needed: list[Place] = [("needed", use.op, use.slot) for use in problem.uses[tensor]]
    if tensor in problem.pins_on and problem.graph.tensors[tensor].producer is not None:
        needed.append(("held", tensor))
    return [*needed, ("delivered", tensor)] if problem.delivered_as(tensor) is not None else needed


def _free_to_leave(problem: Problem, tensor: str) -> bool:
    """Tell whether a tensor is a graph output that is delivered in whatever layout without P is cheapest."""
    return tensor in problem.graph.outputs and problem.delivered_as(tensor) is None


class Communication:
    """Writes what ``communication="none"`` or ``"frozen"`` demands of every tensor; ``"any"`` demands nothing.

    Parameters
    ----------
    layouts : Layouts
        The placements of made, held, needed and delivered must be written already.
    """

    def __init__(self, layouts: Layouts) -> None:
        self.layouts, self.clauses, self.problem = layouts, layouts.clauses, layouts.problem
        self._reached: dict[int, tuple[ReshardTable, Reach]] = {}

    def add(self) -> None:
        """Write it, all under one reason."""
        wish = self.problem.communication
        if wish == "any":
            return
        self.clauses.under(Reason("communication", "", _TEXT[wish], f'communication="{wish}"'))
        for tensor in self.problem.graph.tensors:
            if wish == "frozen":
                self._freeze(tensor)
            else:
                self._keep_local(tensor)

    def _freeze(self, tensor: str) -> None:
        problem = self.problem
        source = source_of(problem, tensor)
        for target in targets_of(problem, tensor):
            self.layouts.same(tensor, source, target)
        if _free_to_leave(problem, tensor):
            self.layouts.only(tensor, source, lambda axis, label: problem.may_deliver(tensor, axis, label))

    def _keep_local(self, tensor: str) -> None:
        """Demand that what is needed can be reached from what was made by moves that send nothing.

        A copy changes nothing here: what is reachable through it is reachable from what was made.
        """
        problem = self.problem
        source, reach = source_of(problem, tensor), self._local_reach(tensor)
        for target in targets_of(problem, tensor):
            self.layouts.lead(tensor, source, target, reach)
        if _free_to_leave(problem, tensor):
            delivered = frozenset(problem.delivered(tensor))
            for layout, ways in self.layouts.ways(tensor, source).items():
                if not reach[layout] & delivered:
                    for way in ways:
                        self.clauses.clause(*map(negation, way))
            self._deliver_no_illegal_sum(tensor, source)

    def _deliver_no_illegal_sum(self, tensor: str, source: Place) -> None:
        """Demand that what an illegal layout leaves as P is wanted so; nothing that sends no byte makes it whole."""
        problem = self.problem
        for clash in self.layouts.illegal(tensor, source):
            for axis, label in product(
                range(len(problem.mesh.sizes)), placements(problem.parts(tensor), problem.kinds)
            ):
                here = self.clauses.known(*source, axis, label)
                if here != FALSE and not problem.may_deliver(tensor, axis, label):
                    self.clauses.clause(*map(negation, clash), negation(here))

    def _local_reach(self, tensor: str) -> Reach:
        """Return per layout of a tensor those that moves which send nothing lead to."""
        prices = table(self.problem, tensor)
        if id(prices) not in self._reached:
            near = prices.time < INF
            reach = {
                layout: frozenset(prices.layouts[n] for n in np.flatnonzero(near[i]))
                for i, layout in enumerate(prices.layouts)
            }
            self._reached[id(prices)] = prices, reach
        return self._reached[id(prices)][1]
