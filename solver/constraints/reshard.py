"""How made, held and needed layouts hang together where communication is restricted."""

from __future__ import annotations

from functools import partial

import numpy as np

from solver.choice import table
from solver.constraints.layouts import Layouts, Place, Reach
from solver.constraints.reason import Reason
from solver.cost.reshard import INF, ReshardTable
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
    tied = problem.delivered_as(tensor) is not None
    return [*needed, ("delivered", tensor)] if tied or tensor in problem.graph.outputs else needed


def delivery_reason(problem: Problem, tensor: str) -> Reason:
    """Return the fact that a graph output leaves without partial sums, but where a pin asks for them."""
    return Reason("delivery", tensor, f"output {tensor!r} must not leave as an unreduced sum")


def communication_reason(problem: Problem) -> Reason:
    """Return the fact that a wish about communication is."""
    wish = problem.communication
    return Reason("communication", "", _TEXT[wish], f'communication="{wish}"')


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
        """Write it, all under one reason; what outputs may leave as is a reason each."""
        problem, wish = self.problem, self.problem.communication
        if wish == "any":
            return
        leaving = [tensor for tensor in problem.graph.outputs if problem.delivered_as(tensor) is None]
        for tensor in leaving:
            self.layouts.free(tensor, ("delivered", tensor), legal=False)
        self.clauses.under(communication_reason(problem))
        for tensor in problem.graph.tensors:
            source = source_of(problem, tensor)
            for target in targets_of(problem, tensor):
                if wish == "frozen":
                    self.layouts.same(tensor, source, target)
                else:
                    self.layouts.lead(tensor, source, target, self._local_reach(tensor))
        for tensor in leaving:
            self.clauses.under(delivery_reason(problem, tensor))
            place: Place = ("delivered", tensor)
            self.layouts.only(tensor, place, partial(problem.may_deliver, tensor))

    def _local_reach(self, tensor: str) -> Reach:
        """Return per layout of a tensor those that moves which send nothing lead to.

        A copy changes nothing here: what is reachable through it is reachable from what was made.
        """
        prices = table(self.problem, tensor)
        if id(prices) not in self._reached:
            self._reached[id(prices)] = prices, local_reach(prices)
        return self._reached[id(prices)][1]


def local_reach(prices: ReshardTable) -> Reach:
    """Return per layout those that moves which send nothing lead to, given the prices of such moves."""
    near = prices.time < INF
    return {
        layout: frozenset(prices.layouts[n] for n in np.flatnonzero(near[i])) for i, layout in enumerate(prices.layouts)
    }
