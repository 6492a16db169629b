"""What greedy planners share: layouts that are settled one after the other, and the plan that comes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ops.placement import Layout, Placement, Replicate
from solver.choice import Choice
from solver.choice_tables import table
from solver.cost.reshard import INF
from solver.graph import Use
from solver.plan import Plan
from solver.problem import Problem
from solver.search.joint import JointRows, JointTable

Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
NOTHING_PROVED = {"bits": 0, "arrays": [], "tree": {"unproved": True}}
"""The certificate of a plan that comes without a bound."""


class StuckError(ValueError):
    """A greedy planner that cannot go on: the sentence names the op or tensor."""


class Walk:
    """The layouts settled so far.

    Parameters
    ----------
    problem : Problem

    Raises
    ------
    StuckError
        Where a source has no layout that its pins allow.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.rows: dict[str, tuple[int, ...]] = {}
        self.stored: dict[str, Layout] = {}
        self.made: dict[str, Layout] = {}
        self.held: dict[str, Layout] = {}
        """What uses read: the stored, made or pinned layout, or that of a copy."""
        self._joint = JointTable(problem)
        self._listed: dict[int, tuple[Layout, ...]] = {}
        for tensor in problem.graph.tensors.values():
            if tensor.producer is None:
                self.store(tensor.name, self.plainest(tensor.name))

    def plainest(self, tensor: str) -> Layout:
        """Return the storage that a framework gives a source: as pinned, and whole where nothing is said."""
        allowed = self.storages(tensor)
        if not allowed:
            raise StuckError(f"{tensor!r} has no storage that its pins and ties allow")
        return min(allowed, key=lambda layout: sum(placement != Replicate() for placement in layout))

    def storages(self, tensor: str) -> list[Layout]:
        """Return the storage layouts that the pins on a source, and on all that is stored as it is, allow."""
        alike = [set(self.problem.stored(other)) for other in self.problem.stored_alike(tensor)]
        return [layout for layout in self.problem.stored(tensor) if all(layout in others for others in alike)]

    def store(self, tensor: str, layout: Layout) -> None:
        """Settle the storage of a source, and of all that is stored as it is."""
        for one in self.problem.stored_alike(tensor):
            self.stored[one] = self.made[one] = self.held[one] = layout

    def joint(self, node: str) -> JointRows:
        """Return the joint rows of an op."""
        return self._joint.of(node)

    def number(self, tensor: str, layout: Layout) -> int:
        """Return the number of a layout of a tensor."""
        return self._joint.layout_index(tensor)[layout]

    def layouts(self, tensor: str) -> tuple[Layout, ...]:
        """Return the layouts of a tensor, by their numbers."""
        index = self._joint.layout_index(tensor)
        return self._listed.setdefault(id(index), tuple(index))

    def known(self, tensor: str, layout: Sequence[Placement]) -> Layout | None:
        """Return the one name of a layout that somebody gave; None where the tensor cannot have it."""
        named = self.problem.canonical(tensor, layout)
        return named if named in self._joint.layout_index(tensor) else None

    def prices(self, tensor: str) -> Ints:
        """Return what it costs to bring a tensor from one layout to another."""
        count = len(self._joint.layout_index(tensor))
        if self.problem.communication == "frozen":
            return np.where(np.eye(count, dtype=bool), 0, INF)
        return table(self.problem, tensor).time

    def allowed(self, node: str) -> Bools:
        """Return which joint rows of an op meet the pins on its uses."""
        joint = self.joint(node)
        meets = np.ones(len(joint.rows), np.bool_)
        for use in self.problem.graph.operand_uses(node):
            pinned = self.problem.pinned(use.name, use.tensor)
            if pinned is not None:
                meets &= np.isin(joint.operands[use.slot], [self.number(use.tensor, layout) for layout in pinned])
        return meets

    def price_of_operands(self, node: str) -> Ints:
        """Return per joint row what bringing the operands there costs; INF or more where it cannot be or is not met."""
        joint = self.joint(node)
        total = np.where(self.allowed(node), 0, INF).astype(np.int64)
        for use in self.problem.graph.operand_uses(node):
            total = np.minimum(INF, total + self._to(use, joint))
        return total

    def _to(self, use: Use, joint: JointRows) -> Ints:
        start = self.number(use.tensor, self.held[use.tensor])
        found: Ints = self.prices(use.tensor)[start][joint.operands[use.slot]]
        return found

    def take(self, node: str, choice: int) -> None:
        """Settle the row of an op, and what its results are made and held in."""
        problem, joint = self.problem, self.joint(node)
        self.rows[node] = tuple(int(row) for row in joint.rows[choice])
        for slot, tensor in enumerate(problem.graph.nodes[node].results):
            made = self.layouts(tensor)[joint.results[slot][choice]]
            self.made[tensor] = self.held[tensor] = made
            pinned = problem.pinned(tensor, tensor)
            if pinned is not None and made not in pinned:
                self.hold(tensor, self.nearest(tensor, made, pinned))

    def nearest(self, tensor: str, made: Layout, among: frozenset[Layout]) -> Layout:
        """Return the layout that is cheapest to reach, the first of equals."""
        row = self.prices(tensor)[self.number(tensor, made)]
        known = [layout for layout in self.layouts(tensor) if layout in among]
        if not known:
            raise StuckError(f"{tensor!r} has no layout that its pins allow")
        best = min(known, key=lambda layout: int(row[self.number(tensor, layout)]))
        if row[self.number(tensor, best)] >= INF:
            raise StuckError(f"{tensor!r} cannot be brought from {_text(made)} to where it is pinned")
        return best

    def hold(self, tensor: str, layout: Layout) -> None:
        """Let uses of a tensor read a copy in another layout."""
        self.held[tensor] = layout

    def share(self) -> None:
        """Let the uses of a tensor share the reshard that several of them ask for, where that saves most."""
        for tensor in self.problem.graph.tensors:
            if self.held[tensor] != self.made[tensor] or self.problem.pinned(tensor, tensor) is not None:
                continue
            needed = [self.number(tensor, layout) for layout in self._needed(tensor)]
            prices, start = self.prices(tensor), self.number(tensor, self.made[tensor])
            apart = sum(int(prices[start, end]) for end in needed)
            best, cost = start, apart
            for end in dict.fromkeys(needed):
                shared = int(prices[start, end])
                shared += sum(min(int(prices[end, other]), int(prices[start, other])) for other in needed)
                if shared < cost:
                    best, cost = end, shared
            self.hold(tensor, self.layouts(tensor)[best])

    def _needed(self, tensor: str) -> list[Layout]:
        """Return what the uses of a tensor ask for, by the rows that are settled."""
        found = []
        for use in self.problem.uses[tensor]:
            rows = self.problem.bound[use.op].rows
            asked = [rows[k].operands[use.slot] for k in self.rows[use.op]]
            found.append(self.problem.canonical(tensor, [placement for placement in asked if placement is not None]))
        return found

    def stuck(self, node: str) -> str:
        """Return the beginning of a sentence on an op that cannot go on: what it is, and how its operands lie."""
        told = ", ".join(
            f"{use.operand} {use.tensor!r} {_text(self.held[use.tensor])}"
            for use in self.problem.graph.operand_uses(node)
        )
        return f"{self.problem.graph.nodes[node]} is stuck on {told or 'no operands'}"

    def plan(self) -> Plan:
        """Return the plan: feasible, with nothing proved about it.

        Raises
        ------
        StuckError
            Where a reshard that it asks for is not possible.
        """
        held = {tensor: layout for tensor, layout in self.held.items() if layout != self.made[tensor]}
        found = Plan(
            self.problem,
            "feasible",
            Choice(self.rows, self.stored, held),
            NOTHING_PROVED,
            proof="certificate",
        )
        self._refuse_impossible(found)
        return found

    def _refuse_impossible(self, found: Plan) -> None:
        evaluation = found.evaluation
        for tensor in self.problem.graph.tensors:
            prices = self.prices(tensor)
            made = evaluation.made(tensor)
            reads: list[tuple[str, Layout, Layout]] = [("its copy", made, evaluation.held(tensor))]
            reads += evaluation.reads(tensor)
            for reader, source, target in reads:
                if prices[self.number(tensor, source), self.number(tensor, target)] >= INF:
                    raise StuckError(
                        f"{tensor!r} cannot be brought from {_text(source)} to {reader} as {_text(target)} with "
                        f'communication="{self.problem.communication}"'
                    )


def _text(layout: Layout) -> str:
    return f"[{', '.join(map(str, layout))}]"
