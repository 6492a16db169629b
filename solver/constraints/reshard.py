"""How made, held and needed layouts hang together where communication is restricted."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import partial
from itertools import combinations

import numpy as np

from ops.placement import Partial, Placement
from solver.choice_tables import table, table_with
from solver.constraints.layouts import Layouts, Place, Reach, Stays, always
from solver.constraints.policy_kinds import Policy
from solver.constraints.reason import Reason, policy_reason
from solver.cost.reshard import INF, ReshardTable
from solver.cost.tariff import Tariff
from solver.problem import Problem
from solver.problem_policy import forbidden

_FEW = 2
"""So many policies may be to blame together, or all of them."""
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
    if tensor in problem.spoken_of and problem.graph.tensors[tensor].producer is not None:
        needed.append(("held", tensor))
    tied = problem.delivered_as(tensor) is not None
    return [*needed, ("delivered", tensor)] if tied or problem.graph.is_output(tensor) else needed


def delivery_reason(problem: Problem, tensor: str) -> Reason:
    """Return the fact that a graph output leaves without partial sums, but where a pin asks for them."""
    return Reason("delivery", tensor, f"output {tensor!r} must not leave as an unreduced sum")


def communication_reason(problem: Problem) -> Reason:
    """Return the fact that a wish about communication is."""
    wish = problem.communication
    return Reason("communication", "", _TEXT[wish], f'communication="{wish}"')


def confined(problem: Problem) -> frozenset[str]:
    """Return the tensors that may not be brought from every layout to every other.

    Where any communication is allowed, these are the ones that policies cut off from some layout.
    """
    if problem.communication != "any":
        return frozenset(problem.graph.tensors)
    limited = (tensor for tensor in problem.graph.tensors if problem.tariff(tensor).forbidden)
    return frozenset(tensor for tensor in limited if not (table(problem, tensor).time < INF).all())


def staying(tariff: Tariff) -> Stays:
    """Tell what no collective takes off a mesh axis: a sum, and a cut."""

    def stays(axis: int, label: Placement) -> bool:
        kinds = ("all_reduce", "reduce_scatter") if isinstance(label, Partial) else ("all_gather", "all_to_all")
        return not any(tariff.allows(kind, (axis,)) for kind in (*kinds, "permute"))

    return stays


class Communication:
    """Writes what restricts communication demands of every tensor that it confines.

    Parameters
    ----------
    layouts : Layouts
        The placements of made, held, needed and delivered of these tensors must be written already.
    tensors : collection of str
        Those of `confined`.
    """

    def __init__(self, layouts: Layouts, tensors: Collection[str]) -> None:
        self.layouts, self.clauses, self.problem = layouts, layouts.clauses, layouts.problem
        self.tensors = [tensor for tensor in self.problem.graph.tensors if tensor in tensors]
        self._reached: dict[int, tuple[ReshardTable, Reach]] = {}

    def add(self) -> None:
        """Write it under the wish, or under the policies that confine a tensor; how outputs leave is a reason each."""
        problem = self.problem
        outputs = [tensor for tensor in self.tensors if problem.graph.is_output(tensor)]
        leaving = [tensor for tensor in outputs if problem.delivered_as(tensor) is None]
        for tensor in leaving:
            self.layouts.free(tensor, ("delivered", tensor), legal=False)
        for tensor in self.tensors:
            if problem.communication == "any":
                for together in confining(problem, tensor, self.layouts.explaining):
                    tariff = Tariff(forbidden(problem.mesh, together, tensor))
                    self.clauses.under(*map(policy_reason, together))
                    self._lead(tensor, self._reach(table_with(problem, tensor, tariff)), staying(tariff))
                continue
            self.clauses.under(communication_reason(problem))
            if problem.communication == "none":
                self._lead(tensor, self._reach(table(problem, tensor)), always)
                continue
            for target in targets_of(problem, tensor):
                self.layouts.same(tensor, source_of(problem, tensor), target)
        for tensor in leaving:
            self.clauses.under(delivery_reason(problem, tensor))
            place: Place = ("delivered", tensor)
            self.layouts.only(tensor, place, partial(problem.may_deliver, tensor))

    def _lead(self, tensor: str, reach: Reach, stays: Stays) -> None:
        """Demand that what is needed can be reached from what was made by moves that may run.

        A copy changes nothing here: what is reachable through it is reachable from what was made.
        """
        source = source_of(self.problem, tensor)
        for target in targets_of(self.problem, tensor):
            self.layouts.lead(tensor, source, target, reach, stays)

    def _reach(self, prices: ReshardTable) -> Reach:
        if id(prices) not in self._reached:
            self._reached[id(prices)] = prices, local_reach(prices)
        return self._reached[id(prices)][1]


def confining(problem: Problem, tensor: str, explaining: bool) -> Iterator[tuple[Policy, ...]]:
    """Yield the policies that confine a tensor together; where explaining, any few of them, too.

    What two policies leave is less than what each leaves: a way may lead round the one and not round both.
    """
    every = tuple(one for one in problem.policy if forbidden(problem.mesh, [one], tensor))
    if explaining:
        few = range(1, min(_FEW, len(every) - 1) + 1)
        yield from (some for count in few for some in combinations(every, count))
    yield every


def local_reach(prices: ReshardTable) -> Reach:
    """Return per layout those that moves which may run lead to, given the prices of such moves."""
    near = prices.time < INF
    return {
        layout: frozenset(prices.layouts[n] for n in np.flatnonzero(near[i])) for i, layout in enumerate(prices.layouts)
    }
