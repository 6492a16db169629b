"""Branching within a budget of traffic, where one multiplier leaves a gap: each part has its own (docs/certificate.md).

The rows of ops are parted, and the layouts in which sources are stored; never what is held beside what is made. So what
a part says of its plans is true with every multiplier, though with each of them other copies pay.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from solver.cost.tariff import LEVIED
from solver.deadline import OutOfTimeError
from solver.search.bound import Dual, certified_bound, picoseconds
from solver.search.branch import TREE_BYTES
from solver.search.certify import certificate
from solver.search.flat import SCALE_BITS
from solver.search.incumbent import Incumbent, orders
from solver.search.levies import Levied, Levies, Masks, Seen
from solver.search.limits import Progress, Report
from solver.search.network import INF, BoolArray, arc_consistency
from solver.search.split import proposals
from solver.search.traffic_mix import Mixing
from solver.search.tree import Leaf, Split, Tree

LARGEST = 2**24
"""No multiplier is larger: bytes times it stay within 64 bits."""
FIRST_TRIES, TRIES = 12, 6
"""Multipliers that are tried on everything, and on each part."""
KEPT = 3
"""Messages of a part that are kept for its halves, each with another multiplier."""
MOST_PARTS = 4000
"""Parts that are looked at."""
WAYS = 4
"""Ways to split a part that are tried."""
NEAR = 0.0001
"""A bound is raised no further where less than this fraction of the cost can be gained."""
EQUAL = Fraction(101, 100)
"""A multiplier within this factor is as good as the very one that is wanted."""
MOST_IDLE = 150
"""Parts that are looked at whose bound cannot rise to the best cost: there may still be better plans."""
WINDOW, ENOUGH = 8, 0.03
"""No more sweeps when so many of them gained less than this fraction of what is missing."""


@dataclass(frozen=True, eq=False)
class Raised:
    """Messages of a part with one multiplier.

    Parameters
    ----------
    levied : Levied
    dual : Dual
    bound : int
        Picoseconds that every plan of the part takes that is within the budget.
    """

    levied: Levied
    dual: Dual
    bound: int


@dataclass(eq=False)
class Part:
    """Some rows of every op and some layouts of every source, and what is proved of the plans with them.

    Parameters
    ----------
    masks : dict
        Variable -> which of its keys are left; a variable that is not there has them all.
    proof : Raised or None
        What proves most; None where consistency leaves nothing, and before anything is known.
    known : dict
        Multiplier -> messages with it, of this part or of one above.
    refined : bool
        Whether the very multiplier was tried for which plans that choose alike promise most.
    split : tuple or None
        The variable, its keys on the left, and the two parts.
    """

    masks: Masks
    proof: Raised | None = None
    known: dict[int, Raised] = field(default_factory=dict)
    refined: bool = False
    split: tuple[int, BoolArray, Part, Part] | None = None

    @property
    def bound(self) -> int:
        """Picoseconds that every plan within the budget takes here, INF where there is none."""
        return INF if self.proof is None else self.proof.bound

    def learn(self, raised: Raised) -> None:
        """Take what messages prove, and keep the best of them."""
        self.known[raised.levied.multiplier] = raised
        if self.proof is None or raised.bound > self.proof.bound:
            self.proof = raised
        if len(self.known) > KEPT:
            del self.known[min(self.known, key=lambda k: self.known[k].bound)]


class Branching:
    """Splits what ops and sources may choose until the bound meets the best plan within the budget.

    Parameters
    ----------
    levies : Levies
    gap : float
        The fraction of the cost by which the bound may stay below it.
    over : callable
        Whether there is no more time.
    report : callable, optional
        Called with a `Progress` now and then; the search stops when it returns True.
    """

    def __init__(self, levies: Levies, gap: float, over: Callable[[], bool], report: Report | None = None) -> None:
        self.levies, self.gap = levies, gap
        self.root = Part({})
        self.waiting: list[tuple[int, int, Part]] = []
        self.parts, self.sweeps = 1, 0
        self._over, self._report, self._stopped, self._begin = over, report, False, time.monotonic()
        self._most_parts, self._idle = MOST_PARTS, 0

    def run(self, start: int) -> None:
        """Branch, beginning with some multiplier; Ctrl-C ends it."""
        with suppress(OutOfTimeError, KeyboardInterrupt):
            self._raise(self.root, start, FIRST_TRIES)
            if self.root.proof is None:
                return
            self._mix(self.root.proof)
            self.waiting.append((self.root.bound, 0, self.root))
            self._most_parts = min(MOST_PARTS, TREE_BYTES // self._bytes(self.root.proof.dual))
            while self.waiting and self.parts < self._most_parts and self._idle < MOST_IDLE:
                if self._met(self.waiting[0][0]) or self._over_now():
                    return
                part = self.waiting[0][2]
                halves = [part] if self._refined(part) else self._divide(part)
                if not halves:
                    return
                heapq.heappop(self.waiting)
                for half in halves:
                    self.parts += 1
                    if half.bound < self.levies.cost:
                        heapq.heappush(self.waiting, (half.bound, self.parts, half))
                    else:
                        half.known.clear()

    def _mix(self, proof: Raised) -> None:
        """Mix the two plans that promise most, one within the budget and one beyond it."""
        fast, slow = self._nearest(self.root, proof)
        if fast is not None and slow is not None and not self._met(self.root.bound):
            Mixing(self.levies, proof.levied, self._over_now).run(fast, slow)

    def _bytes(self, dual: Dual) -> int:
        """Return about how many bytes a part takes."""
        return KEPT * sum(array.nbytes for array in dual.state)

    def _met(self, bound: int) -> bool:
        return self.levies.cost < INF and self.levies.cost - bound <= self.gap * self.levies.cost

    def _over_now(self) -> bool:
        """Report how far the search is, and tell whether to stop."""
        if self._report is not None and not self._stopped:
            cost = self.levies.cost if self.levies.cost < INF else None
            bound = self.waiting[0][0] if self.waiting else 0 if self.root.proof is None else self.root.bound
            seconds = time.monotonic() - self._begin
            self._stopped = bool(self._report(Progress(self.sweeps, self.parts, max(0, bound), cost, seconds)))
        return self._stopped or self._over()

    # ------------------------------------------------------------------------------------------------------ a part

    def _raise(self, part: Part, start: int, tries: int) -> None:
        """Try multipliers on a part, each where the plans that were seen there promise most."""
        k, tried = start, set[int]()
        for _ in range(tries):
            levied = self.levies.levied(k)
            if levied is None or levied.multiplier in tried:
                return
            tried.add(levied.multiplier)
            if not self._sweep(part, levied):
                part.proof = None
                return
            if self._met(part.bound) or self._over_now():
                return
            k, promised = self._promising(list(self.levies.inside(part.masks)), levied.multiplier)
            if promised <= part.bound:
                return

    def _sweep(self, part: Part, levied: Levied) -> bool:
        """Sweep over a part with one multiplier while that helps; return whether anything is allowed there."""
        dual, history = self._begun(part, levied), list[int]()
        if dual is None:
            return False
        while not self._over_now():
            changed = dual.sweep()
            self.sweeps += 1
            history.append(self._bound(dual, levied))
            if not changed or self._met(history[-1]):
                break
            if len(history) > WINDOW:
                missing = self.levies.cost - history[-1] if self.levies.cost < INF else abs(history[-1]) // 100
                if history[-1] - history[-1 - WINDOW] <= ENOUGH * missing:
                    break
        part.learn(Raised(levied, dual, self._bound(dual, levied)))
        self._read(levied, dual)
        return True

    def _begun(self, part: Part, levied: Levied) -> Dual | None:
        """Return messages to begin with: what is known with this multiplier. None where nothing is allowed."""
        found = arc_consistency(levied.built.network, levied.domains(part.masks))
        if not found.feasible:
            return None
        known = part.known.get(levied.multiplier)
        cost = levied.flat.restrict(levied.flat.cost, levied.whole, found.domains)
        return Dual(levied.flat, cost, levied.root if known is None else known.dual)

    def _bound(self, dual: Dual, levied: Levied) -> int:
        return self.levies.spared(picoseconds(dual.units), levied.multiplier)

    def _read(self, levied: Levied, dual: Dual) -> None:
        """Read plans off messages, and see what they take and send."""
        incumbent = Incumbent(dual)
        incumbent.offer(dual.state.choice)
        for order in orders(len(dual.state.choice), range(1)):
            incumbent.read(dual, order)
        if incumbent.assignment is not None:
            self.levies.see(levied, incumbent.assignment)

    def _promising(self, seen: Sequence[Seen], now: int) -> tuple[int, int]:
        """Return the multiplier for which some plans leave the highest bound, and that bound."""
        most = self.levies.most
        small = min((one for one in seen if one.sent <= most), key=lambda one: one.time, default=None)
        large = min((one for one in seen if one.sent > most), key=lambda one: one.time, default=None)
        if small is None:
            return min(LARGEST, 4 * max(1, now)), INF
        if large is None or large.time >= small.time:
            return 0, small.time
        while True:
            k = Fraction((small.time - large.time) * LEVIED, large.sent - small.sent)
            best, promised = min(((one, _levied_time(one, k, most)) for one in seen), key=lambda pair: pair[1])
            if promised >= _levied_time(small, k, most):
                return min(LARGEST, round(k)), int(promised)
            small, large = (best, large) if best.sent <= most else (small, best)

    def _refined(self, part: Part) -> bool:
        """Look for plans that choose alike, but for copies and ways, and hold the bound of a part where it is.

        Returns
        -------
        bool
            Whether the bound is raised to there, by just the multiplier that does so.
        """
        alike: dict[tuple[int, ...], list[Seen]] = {}
        for one in self.levies.inside(part.masks):
            alike.setdefault(tuple(one.keys.values()), []).append(one)
        promises = [(promised, k) for k, promised in (self._promising(some, 0) for some in alike.values())]
        highest, k = min(promises, default=(INF, 0))
        if highest >= self.levies.cost:
            return False
        self._idle += 1
        if highest - part.bound <= NEAR * self.levies.cost or part.refined:
            return False
        part.refined = True
        levied = self.levies.levied(k, EQUAL)
        return levied is not None and self._sweep(part, levied)

    # ------------------------------------------------------------------------------------------------------- split

    def _divide(self, part: Part) -> list[Part]:
        """Split a part in the best of a few ways; nothing where there is none."""
        best: tuple[list[int], int, BoolArray, list[Part]] | None = None
        for variable, left in self._ways(part):
            sides = left, self._mask(part, variable) & ~left
            halves = [self._half(part, variable, side) for side in sides]
            gains = sorted(min(half.bound, self.levies.cost) for half in halves)
            if best is None or gains > best[0]:
                best = gains, variable, left, halves
            if self._over_now() or self._met(gains[0]):
                break
        if best is None:
            return []
        _, variable, left, halves = best
        for half in halves:
            if half.proof is not None and not self._met(half.bound):
                self._raise(half, half.proof.levied.multiplier, TRIES)
        part.split = variable, left, halves[0], halves[1]
        part.known.clear()
        return halves

    def _half(self, part: Part, variable: int, side: BoolArray) -> Part:
        """Return one side of a split after two sweeps."""
        assert part.proof is not None
        half = Part({**part.masks, variable: side}, part.proof, dict(part.known))
        levied = part.proof.levied
        dual = self._begun(half, levied)
        if dual is None:
            half.proof = None
            return half
        dual.sweep()
        dual.sweep()
        self.sweeps += 2
        half.learn(Raised(levied, dual, self._bound(dual, levied)))
        return half

    def _mask(self, part: Part, variable: int) -> BoolArray:
        """Return which keys of a variable are left in a part."""
        return part.masks.get(variable, self.levies.everything(variable))

    def _ways(self, part: Part) -> Iterator[tuple[int, BoolArray]]:
        """Yield a few variables, each with its keys on one side."""
        assert part.proof is not None
        given = 0
        for ways in (self._apart(part), self._by_tension(part, part.proof), self._widest(part)):
            for variable, side in ways:
                mask = self._mask(part, variable)
                left = side & mask
                if left.any() and not np.array_equal(left, mask):
                    yield variable, left
                    given += 1
                if given == WAYS:
                    return
            if given:
                return

    def _apart(self, part: Part) -> Iterator[tuple[int, BoolArray]]:
        """Yield where a plan that sends too much and one that fits come apart, what sends most first."""
        assert part.proof is not None
        levies = self.levies
        large, small = self._nearest(part, part.proof)
        if large is None or small is None:
            return
        for i in sorted(levies.splittable, key=lambda i: -abs(large.by.get(i, 0) - small.by.get(i, 0))):
            if large.keys[i] != small.keys[i]:
                yield i, levies.side(i, large.keys[i], small.keys[i])

    def _nearest(self, part: Part, proof: Raised) -> tuple[Seen | None, Seen | None]:
        """Return the plans that promise most with the multiplier of a part: one beyond the budget, one within it."""
        most, k = self.levies.most, proof.levied.multiplier
        seen = sorted(self.levies.inside(part.masks), key=lambda one: one.time + k * one.sent // LEVIED)
        large = next((one for one in seen if one.sent > most), None)
        return large, next((one for one in seen if one.sent <= most), None)

    def _by_tension(self, part: Part, proof: Raised) -> Iterator[tuple[int, BoolArray]]:
        """Yield where the messages disagree."""
        levied = proof.levied
        for i, chosen in proposals(proof.dual):
            if i in self.levies.splittable:
                values = np.isin(levied.flat.group[i], chosen)
                yield i, levied.keys_of(i, values, len(self.levies.everything(i)))

    def _widest(self, part: Part) -> Iterator[tuple[int, BoolArray]]:
        """Yield half of the widest choice."""
        i = max(self.levies.splittable, key=lambda i: int(self._mask(part, i).sum()), default=None)
        if i is not None:
            mask = self._mask(part, i)
            yield i, mask & (np.cumsum(mask) <= mask.sum() // 2)

    # --------------------------------------------------------------------------------------------------- the proof

    def proved(self) -> tuple[int, dict[str, Any]] | None:
        """Return the bound, exactly, and its proof: a tree whose leaves have multipliers. None where nothing is."""
        if self.root.split is None and self.root.proof is None:
            return None
        parts: dict[int, Part] = {}
        tree, bounds = self._tree(self.root, parts), [INF]
        written = certificate(self.levies.first.built, tree)
        waiting: list[tuple[Tree, dict[str, Any]]] = [(tree, written["tree"])]
        while waiting:
            node, said = waiting.pop()
            part = parts[id(node)]
            if isinstance(node, Split):
                if "tensor" in said and part.split is not None:
                    said["left_values"] = [[int(one)] for one in np.flatnonzero(part.split[1])]
                waiting += [(node.left, said["left"]), (node.right, said["right"])]
            elif isinstance(node, Leaf) and part.proof is not None:
                said["multiplier"] = part.proof.levied.multiplier
                bounds.append(self.levies.spared(picoseconds(node.units), part.proof.levied.multiplier))
        return max(0, min(bounds)), written

    def _tree(self, part: Part, parts: dict[int, Part]) -> Tree:
        """Return a part as a tree, and note which part each node is."""
        tree: Tree
        if part.split is not None:
            variable, left, *halves = part.split
            op = self.levies.first.built.network.variables[variable].kind == "op"
            rows = np.flatnonzero(left & op)
            tree = Split(variable, rows, rows[:0], *(self._tree(half, parts) for half in halves))
        elif part.proof is None:
            tree = Leaf(None, INF << SCALE_BITS, infeasible=True)
        else:
            tree = self._leaf(part, part.proof)
        parts[id(tree)] = part
        return tree

    def _leaf(self, part: Part, proof: Raised) -> Leaf:
        messages, units, levied = proof.dual.messages(), proof.dual.units, proof.levied
        if levied.flat.shift != SCALE_BITS:
            domains = arc_consistency(levied.built.network, levied.domains(part.masks)).domains
            units = min(units, certified_bound(levied.built.network, messages, domains))
        return Leaf(messages, units)


def _levied_time(one: Seen, k: Fraction, most: int) -> Fraction:
    """Return what a plan promises with a multiplier: no bound is above it."""
    return one.time + k * (one.sent - most) / LEVIED
