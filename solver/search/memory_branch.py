"""Branching within a memory budget, where one set of multipliers leaves a gap: each part has its own."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from solver.search.certify import certificate
from solver.search.memory_dual import Priced, Raised
from solver.search.multipliers import Multipliers, Plane
from solver.search.network import INF, Domains, IntArray, arc_consistency
from solver.search.tree import Leaf, Split, Tree

TRIES = 6
"""Multipliers that are tried on each part."""
MOST_PARTS = 400
"""Parts that are looked at."""
WEIGHT = 2**10
"""What the weights of a part that fits no budget sum to."""


@dataclass(eq=False)
class Part:
    """Some values of every variable, and what is proved of them.

    Parameters
    ----------
    domains : tuple of bool arrays
    bound : int
        Picoseconds that every plan within the budget costs there; INF where there is none.
    raised : Raised or None
        What proves it; None where no assignment is allowed at all.
    kind : str
        ``multipliers`` or ``weights``.
    split : tuple or None
        The variable, the values of both sides, and the two parts.
    """

    domains: Domains
    bound: int = 0
    raised: Raised | None = None
    kind: str = "multipliers"
    seen: list[tuple[int, ...]] = field(default_factory=list)
    split: tuple[int, IntArray, IntArray, Part, Part] | None = None


class Branching:
    """Splits the values of variables until the bound meets the best plan.

    Parameters
    ----------
    priced : Priced
    budget : int
        Bytes.
    see : callable
        Told of every assignment; returns the price of the best plan within the budget, INF where there is none.
    over : callable
        Whether there is no more time.
    """

    def __init__(
        self, priced: Priced, budget: int, see: Callable[[tuple[int, ...]], int], over: Callable[[], bool]
    ) -> None:
        self.priced, self.storing, self.budget, self.see, self.over = priced, priced.storing, budget, see, over
        self.best = INF
        self._multipliers = Multipliers()
        self.root = Part(priced.domains)

    def run(self, start: IntArray, cost: int) -> int:
        """Branch, beginning with some multipliers and the best price so far; return the bound, INF without a plan."""
        self.best = cost
        self._raise(self.root, start)
        waiting = [(self.root.bound, 0, self.root)]
        count = 1
        while waiting and waiting[0][0] < self.best and count < MOST_PARTS and not self.over():
            part = heapq.heappop(waiting)[2]
            for child in self._divide(part):
                heapq.heappush(waiting, (child.bound, count, child))
                count += 1
            if part.split is None:
                heapq.heappush(waiting, (part.bound, count, part))
                break
        return min((bound for bound, _, _ in waiting), default=INF)

    def _raise(self, part: Part, start: IntArray) -> None:
        """Try multipliers on a part; where all that is there is too large try to prove that."""
        planes: list[Plane] = []
        k = start
        for _ in range(TRIES):
            raised = self.priced.raised(k, time=True, over=self.over, domains=part.domains)
            paid = sum(int(one) for one in raised.multipliers)
            bound = -(-(raised.leaf.units - paid * self.budget) >> raised.bits)
            if part.raised is None or bound > part.bound:
                part.bound, part.raised = max(0, bound), raised
            for assignment in raised.assignments:
                part.seen.append(assignment)
                self.best = self.see(assignment)
                time = self.storing.built.network.cost(assignment)
                planes.append(Plane(time, tuple(int(one) for one in self.storing.bytes(assignment))))
            if part.bound >= self.best or self.over() or not planes:
                return
            most = Fraction(8 * max(1, max(plane.time for plane in planes)), self.budget) * (len(planes) + 1)
            promised, multipliers = self._multipliers.highest(planes, self.budget, most)
            if promised <= part.bound:
                break
            k = self.priced.whole(multipliers)
        if planes and all(max(plane.bytes) > self.budget for plane in planes):
            self._refute(part, planes)

    def _refute(self, part: Part, planes: list[Plane]) -> None:
        """Look for weights that show that nothing in a part fits the budget."""
        for _ in range(TRIES):
            promised, weights = self._multipliers.highest(planes, 0, Fraction(1), convex=True, timed=False)
            if promised <= self.budget or self.over():
                return
            k = np.array([int(one * WEIGHT) for one in weights], np.int64)
            raised = self.priced.raised(k, time=False, over=self.over, domains=part.domains)
            paid = sum(int(one) for one in raised.multipliers)
            if raised.leaf.units > paid * self.budget:
                part.bound, part.raised, part.kind = INF, raised, "weights"
                return
            for assignment in raised.assignments:
                planes.append(Plane(0, tuple(int(one) for one in self.storing.bytes(assignment))))

    def _divide(self, part: Part) -> list[Part]:
        """Split a part by a variable; nothing where there is nothing to split."""
        found = self._choose(part)
        if found is None or part.raised is None:
            return []
        i, side = found
        start = part.raised.multipliers << max(0, 12 - part.raised.bits)
        halves = []
        for mask in (side, part.domains[i] & ~side):
            domains = (*part.domains[:i], mask, *part.domains[i + 1 :])
            consistent = arc_consistency(self.storing.built.network, domains, [i])
            child = Part(consistent.domains if consistent.feasible else domains)
            if consistent.feasible:
                self._raise(child, start)
                if child.bound < part.bound:  # what proves the whole proves its half
                    child.bound, child.raised, child.kind = part.bound, part.raised, part.kind
            else:
                child.bound = INF
            halves.append(child)
        part.split = i, np.flatnonzero(side), np.flatnonzero(part.domains[i] & ~side), halves[0], halves[1]
        return halves

    def _choose(self, part: Part) -> tuple[int, np.ndarray[Any, np.dtype[np.bool_]]] | None:
        """Return a variable with a choice, and the values that are as large as what was read off."""
        free = [i for i, domain in enumerate(part.domains) if domain.sum() > 1]
        if not free or not part.seen:
            return None
        chosen = part.seen[-1]
        over = self.storing.bytes(chosen) - self.budget
        moment = int(over.argmax())

        def spread(i: int) -> int:
            own = self.storing.own[i][moment]
            return int(abs(own[part.domains[i]] - own[chosen[i]]).max())

        i = max(free, key=lambda i: (spread(i), int(part.domains[i].sum())))
        own = self.storing.own[i][moment]
        side = part.domains[i] & (own >= own[chosen[i]] if over[moment] > 0 else own <= own[chosen[i]])
        if not side.any() or (side == part.domains[i]).all():
            side = np.zeros_like(side)
            side[chosen[i] if part.domains[i][chosen[i]] else np.flatnonzero(part.domains[i])[0]] = True
        return i, side

    def certificate(self) -> dict[str, Any]:
        """Return the proof of the bound: a tree whose leaves have multipliers of their own."""
        leaves: dict[int, Part] = {}
        tree = _tree(self.root, leaves)
        bits = next((part.raised.bits for part in leaves.values() if part.raised is not None), 0)
        written = certificate(self.storing.built, tree, bits)
        waiting: list[tuple[Tree, dict[str, Any]]] = [(tree, written["tree"])]
        while waiting:
            node, said = waiting.pop()
            if isinstance(node, Split):
                waiting += [(node.left, said["left"]), (node.right, said["right"])]
            elif (raised := leaves[id(node)].raised) is not None:
                said[leaves[id(node)].kind] = [int(one) for one in raised.multipliers]
        return {**written, "moments": list(self.storing.moments.names)}


def _tree(part: Part, leaves: dict[int, Part]) -> Tree:
    """Return a part as a tree, and note which part each leaf is."""
    if part.split is not None:
        i, left, right, one, other = part.split
        return Split(i, left, right, _tree(one, leaves), _tree(other, leaves))
    leaf = Leaf(None, 0, infeasible=True) if part.raised is None else part.raised.leaf
    leaves[id(leaf)] = part
    return leaf
