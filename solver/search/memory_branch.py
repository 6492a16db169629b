"""Branching within a memory budget, where one set of multipliers leaves a gap: each part has its own."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from solver.search.certify import certificate
from solver.search.memory_dual import Priced, Raised, within
from solver.search.multipliers import Multipliers, Plane
from solver.search.network import INF, BoolArray, Domains, IntArray, arc_consistency
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
        What proves it, with multipliers or weights; None where no assignment is allowed at all.
    split : tuple or None
        The variable, the values of both sides, and the two parts.
    """

    domains: Domains
    bound: int = 0
    raised: Raised | None = None
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
        self._bits: int | None = None

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
            raised = self._raised(part, k, time=True)
            bound = within(raised.leaf.units, raised, self.budget)
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
            raised = self._raised(part, k, time=False)
            if raised.leaf.units > raised.paid * self.budget:
                part.bound, part.raised = INF, raised
                return
            for assignment in raised.assignments:
                planes.append(Plane(0, tuple(int(one) for one in self.storing.bytes(assignment))))

    def _raised(self, part: Part, k: IntArray, *, time: bool) -> Raised:
        """Raise the bound of a part; the messages of all parts are written in one unit."""
        raised = self.priced.raised(k, time=time, over=self.over, domains=part.domains, bits=self._bits)
        self._bits = raised.bits
        return raised

    def _divide(self, part: Part) -> list[Part]:
        """Split a part by a variable; nothing where there is nothing to split."""
        found = self._choose(part)
        if found is None or part.raised is None:
            return []
        i, side = found
        start = part.raised.whole
        halves = []
        for mask in (side, part.domains[i] & ~side):
            domains = (*part.domains[:i], mask, *part.domains[i + 1 :])
            consistent = arc_consistency(self.storing.built.network, domains, [i])
            child = Part(consistent.domains if consistent.feasible else domains)
            if consistent.feasible:
                self._raise(child, start)
                if child.bound < part.bound:  # what proves the whole proves its half
                    child.bound, child.raised = part.bound, part.raised
            else:
                child.bound = INF
            halves.append(child)
        part.split = i, np.flatnonzero(side), np.flatnonzero(part.domains[i] & ~side), halves[0], halves[1]
        return halves

    def _choose(self, part: Part) -> tuple[int, BoolArray] | None:
        """Return a variable and some of its values, so that what is too large and what fits come apart.

        Where both were read off, it is the variable in which they differ most in bytes at the moment of the peak;
        else the one with the widest choice there.
        """
        free = [i for i, domain in enumerate(part.domains) if domain.sum() > 1]
        if not free or not part.seen:
            return None
        found = {one: self.storing.bytes(one) for one in part.seen if self._inside(part, one)}
        large = [one for one, sizes in found.items() if sizes.max() > self.budget]
        fitting = [one for one, sizes in found.items() if sizes.max() <= self.budget]
        cost = self.storing.built.network.cost
        chosen = min(large or fitting or part.seen, key=cost)
        moment = int(self.storing.bytes(chosen).argmax())
        own = [sizes[moment] for sizes in self.storing.own]
        if large and fitting:
            other = min(fitting, key=cost)
            apart = [i for i in free if own[i][chosen[i]] != own[i][other[i]]]
            if apart:
                i = max(apart, key=lambda i: abs(int(own[i][chosen[i]] - own[i][other[i]])))
                middle = (own[i][chosen[i]] + own[i][other[i]]) / 2
                return i, part.domains[i] & (own[i] > middle)
        i = max(free, key=lambda i: (np.ptp(own[i][part.domains[i]]), part.domains[i].sum()))
        side = part.domains[i] & (own[i] > np.median(own[i][part.domains[i]]))
        if not side.any():
            side[chosen[i] if part.domains[i][chosen[i]] else np.flatnonzero(part.domains[i])[0]] = True
        return i, side

    def _inside(self, part: Part, assignment: tuple[int, ...]) -> bool:
        return all(domain[value] for domain, value in zip(part.domains, assignment, strict=True))

    def proved(self) -> int:
        """Return the picoseconds that the certificate proves, exactly."""
        leaves: dict[int, Part] = {}
        _tree(self.root, leaves)
        return min(map(self._proved, leaves.values()))

    def _proved(self, part: Part) -> int:
        raised = part.raised
        if raised is None or not raised.timed:
            return INF
        return within(self.priced.proved(raised, part.domains), raised, self.budget)

    def certificate(self) -> dict[str, Any]:
        """Return the proof of the bound: a tree whose leaves have multipliers of their own."""
        leaves: dict[int, Part] = {}
        tree = _tree(self.root, leaves)
        written = certificate(self.storing.built, tree, self._bits or 0)
        waiting: list[tuple[Tree, dict[str, Any]]] = [(tree, written["tree"])]
        while waiting:
            node, said = waiting.pop()
            if isinstance(node, Split):
                waiting += [(node.left, said["left"]), (node.right, said["right"])]
            elif (raised := leaves[id(node)].raised) is not None:
                said["multipliers" if raised.timed else "weights"] = [int(one) for one in raised.multipliers]
        return {**written, "moments": list(self.storing.moments.names)}


def _tree(part: Part, leaves: dict[int, Part]) -> Tree:
    """Return a part as a tree, and note which part each leaf is."""
    if part.split is not None:
        i, left, right, one, other = part.split
        return Split(i, left, right, _tree(one, leaves), _tree(other, leaves))
    leaf = Leaf(None, 0, infeasible=True) if part.raised is None else part.raised.leaf
    leaves[id(leaf)] = part
    return leaf
