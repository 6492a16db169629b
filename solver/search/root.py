"""The bound of a whole network: sweeps, a better assignment, fewer values, blocks; all that comes before branching."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from solver.search.arrays import State
from solver.search.block import Blocks
from solver.search.bound import Dual, Messages, picoseconds
from solver.search.flat import SCALE_BITS, FlatNetwork, flatten
from solver.search.incumbent import Incumbent, dive, orders
from solver.search.lean import leaning
from solver.search.limits import Limits, Progress
from solver.search.narrow import continued, narrowed
from solver.search.network import INF, Domains, IntArray, Network, arc_consistency
from solver.search.region import improve, with_edges
from solver.search.shares import BY_SPAN, EVENLY, PATIENT
from solver.search.split import tension
from solver.search.tree import Block, Leaf, Part, Tree

SEEDS = range(8)
"""Seeds of the random orders in which assignments are read off."""

HASTY = 12, 0.02
AT_ROOT = 30, 0.01
"""No more sweeps when so many of them gained less than this fraction of what is missing."""

LEAP_AFTER = 10
"""Patient sweeps at the root whose direction is tried out further."""

FARTHEST = 16
"""The farthest leap, as a multiple of that direction."""

DIVE_AFTER = 10
"""Sweeps at the root after which something allowed is looked for, where none was read off."""

NEAREST, FARTHER = 16, 3
"""What is looked at first may cost 2**-NEAREST of the bound above it, each time 2**FARTHER times as much."""

LEANING_SWEEPS = 20
"""Sweeps with leaning prices."""

NARROWER = 0.5
"""What is taken out is left out of the sweeps once no more than this fraction of the values is left."""

BLOCK = 80
"""How many variables a block has at first."""

IDLE, LITTLE = 2, 0.01
"""No larger blocks when the last IDLE sizes each gained less than this fraction of what is missing."""

REGION_NODES = 8
BLOCK_NODES = 100
REGION_SWEEPS = 150
BLOCK_SWEEPS = 10_000
"""Limits of the search in a region and in a block; they count work, so that the same input gives the same result."""


class Root(ABC):
    """The work of a search before it branches.

    Parameters
    ----------
    network : Network
    flat : FlatNetwork
        Its arrays, for the values that are left.
    domains : tuple of bool arrays
        Arc-consistent.
    limits : Limits
    depth : int
        0 for a whole network; searches of its parts are deeper.
    messages : Messages, optional
        What to begin with.
    """

    def __init__(
        self,
        network: Network,
        flat: FlatNetwork,
        domains: Domains,
        limits: Limits,
        depth: int,
        messages: Messages | None = None,
    ) -> None:
        self.network, self.limits, self.depth = network, limits, depth
        self._begin(flat, domains, messages)
        self.start = self.root
        self.sweeps, self.nodes, self.stopped = 0, 0, False
        self.losses: dict[str, int] = {}
        self.near: Part | None = None
        self.proved = 0
        """What blocks prove, in 1/4096 ps."""

    @abstractmethod
    def run(self) -> None:
        """Search."""

    @abstractmethod
    def tree(self) -> Tree:
        """Return the proof."""

    @property
    def _dual(self) -> Dual:
        """The messages of the root."""
        assert self.root.dual is not None
        return self.root.dual

    @property
    def _missing(self) -> int:
        """What the incumbent costs above what is proved, in 1/4096 ps."""
        return (self.incumbent.cost << SCALE_BITS) - max(self.root.units, self.proved)

    @property
    def _exact(self) -> bool:
        """Whether prices are not rounded, and there is something to compare with."""
        return self.flat.shift == SCALE_BITS and self.incumbent.choice is not None

    def _finished(self, units: int) -> bool:
        """Whether a part with this bound needs no more work, or gets none."""
        return self.stopped or self._met(max(units, self.proved))

    def _met(self, units: int) -> bool:
        """Whether a bound is near enough to the incumbent."""
        cost = self.incumbent.cost
        return cost < INF and cost - picoseconds(units) <= self.limits.gap * cost

    def _told_to_stop(self) -> bool:
        self._tell(self.root.units)
        return self._finished(self.root.units)

    def _tell(self, units: int) -> None:
        """Report, and notice when to stop."""
        self.stopped |= self.limits.over or self.sweeps >= self.limits.sweeps
        if self.limits.progress is not None:
            cost = self.incumbent.cost
            bound = min(picoseconds(max(units, self.proved)), cost)
            known = cost if cost < INF else None
            self.stopped |= bool(
                self.limits.progress(Progress(self.sweeps, self.nodes, bound, known, self.limits.seconds))
            )

    # --------------------------------------------------------------------------------------------------- the stages

    def _raise_root(self) -> None:
        """Sweep over the whole network, look for better assignments, and leave values out, while that helps."""
        self._raise(self.root, *HASTY, (BY_SPAN, EVENLY))
        self._look()
        self._narrow()
        self._raise_slowly()
        if self.depth == 0 and self._exact and len(self.network.variables) > BLOCK:
            self._divide_and_conquer()
        if self.root.units >= self.proved:
            self.losses = self._losses(())

    def _divide_and_conquer(self) -> None:
        """Bound blocks by searches of their own, then what two neighbours are together, and so on, while that helps."""
        blocks, idle = Blocks(self._dual, self.root.domains), 0
        regions = list(blocks.around(self._paid(blocks), BLOCK))
        while regions and idle < IDLE and not self._finished(self.root.units):
            missing = self._missing
            self._bound_blocks(blocks, regions)
            idle = 0 if missing - self._missing > LITTLE * missing else idle + 1
            if self._narrow():
                self._raise_slowly()
                blocks = Blocks(self._dual, self.root.domains)
            regions = blocks.joined(regions)

    def _paid(self, blocks: Blocks) -> NDArray[np.float64]:
        """Return what the incumbent pays above the bound at each variable, with half of what it pays at its edges."""
        choice = self.incumbent.choice
        assert choice is not None
        return with_edges(self.flat.flat, *tension(self._dual, choice, blocks.closed))

    def _raise_slowly(self) -> None:
        while not self._finished(self.root.units):
            self._raise(self.root, *AT_ROOT)
            better = self._look(long=True)
            if not (self._narrow() or better):
                break

    def _raise(self, part: Part, window: int, enough: float, ways: tuple[int, ...] = (PATIENT,)) -> None:
        """Sweep until the part needs no more, or gained less than `enough` of what is missing in `window` sweeps."""
        assert part.dual is not None
        dual, history = part.dual, list[int]()
        before: State | None = None
        changed = True
        while changed and not self._finished(part.units):
            changed = self._sweep(part, dual, ways[len(history) % len(ways)])
            history.append(part.units)
            if part is self.root and (len(history) <= 5 or len(history) % 5 == 0):
                self.incumbent.offer(dual.state.choice)
                if self.incumbent.choice is None and len(history) == DIVE_AFTER:
                    self._dive()
            self._tell(part.units)
            if part is self.root and ways == (PATIENT,) and len(history) % LEAP_AFTER == 0:
                if before is not None:
                    self._leap(part, dual, before, history[-1] - history[-LEAP_AFTER])
                before = dual.snapshot()
            if len(history) > window and self._slow(part.units - history[-1 - window], part.units, enough):
                break
        self.incumbent.offer(dual.state.choice)

    def _sweep(self, part: Part, dual: Dual, way: int) -> bool:
        """Sweep once; return whether anything changed. Ctrl-C is heard after a sweep, which counts."""
        try:
            changed = dual.sweep(way)
        finally:
            part.units = dual.units
        self.sweeps += 1
        return changed

    def _leap(self, part: Part, dual: Dual, before: State, gained: int) -> None:
        """Follow the direction of the last sweeps, farther each time, while that gains more than a sweep does."""
        now, times = dual.snapshot(), 1
        best = now
        try:
            while times <= FARTHEST and not self._finished(part.units):
                least = part.units + gained // LEAP_AFTER
                dual.leap(before, now, times)
                self._sweep(part, dual, PATIENT)
                self._tell(part.units)
                if part.units <= least:
                    break
                best, times = dual.snapshot(), 2 * times
        finally:  # after Ctrl-C, too: right after a leap the messages may prove nothing
            dual.restore(best)
            part.units = dual.units

    def _slow(self, gained: int, units: int, enough: float) -> bool:
        cost = self.incumbent.cost
        missing = (cost << SCALE_BITS) - units if cost < INF else units // 100
        return gained <= enough * missing

    # ----------------------------------------------------------------------------------------------- fewer values

    def _narrow(self) -> bool:
        """Take out what is in no better assignment, where that is most; what is left is the root then."""
        if self._finished(self.root.units) or self.nodes + 1 >= self.limits.nodes or not self._exact:
            return False
        part, cost = self.root, self.incumbent.cost
        leaf = part.alone or Leaf(self._dual.messages(), part.units)
        assert leaf.messages is not None
        spend = (cost << SCALE_BITS) - leaf.units
        kept = narrowed(self._dual, part.domains, self._dual.closed(), spend, leaf.blocks)
        if _count(kept) > NARROWER * _count(part.domains):
            return False
        left, skeletons = arc_consistency(self.network, kept).domains, self.flat.skeletons
        part.alone, part.dual = leaf, None
        del self.flat, self.incumbent.network, self.incumbent.state  # these may be large, and go before there is more
        self._begin(flatten(self.network, left, skeletons), left, leaf.messages, self.incumbent.assignment)
        part.narrowed = cost << SCALE_BITS, self.root
        self.nodes += 1
        return True

    def _begin(
        self,
        flat: FlatNetwork,
        domains: Domains,
        messages: Messages | None = None,
        assignment: tuple[int, ...] | None = None,
    ) -> None:
        """Make a part of the network the root, with messages of the network and an assignment to begin with."""
        dual = Dual(flat) if messages is None else continued(flat, messages)
        incumbent = Incumbent(dual)
        if assignment is not None:
            incumbent.offer(flat.choice(assignment))
        self.flat, self.root, self.incumbent = flat, Part(domains, dual), incumbent

    def _bound_blocks(self, blocks: Blocks, regions: Sequence[IntArray]) -> None:
        """Bound blocks of the network each by a search of its own; keep them where they prove more than others did."""
        part, choice = self.root, self.incumbent.choice
        assert choice is not None
        found: list[Block] = []
        together, units = choice.copy(), part.units
        for region in regions:
            if self._told_to_stop():
                break
            solved = blocks.solve(region, self._search_block)
            if solved is not None:
                found.append(solved.block)
                units += solved.block.gain
                self.proved = max(self.proved, units)
                if solved.choice is not None:
                    together[region] = solved.choice
        if units > (part.units if part.alone is None else part.alone.units):
            part.alone = Leaf(blocks.messages, units, blocks=tuple(found))
        self.incumbent.offer(together)
        if units >= self.proved:
            self.losses = self._losses(found)

    def _search_block(self, network: Network) -> tuple[Tree, tuple[int, ...] | None]:
        start = arc_consistency(network)
        limits = replace(self.limits, gap=0.0, progress=None, nodes=BLOCK_NODES, sweeps=BLOCK_SWEEPS)
        search = self._deeper(network, flatten(network, start.domains, finest=0), start.domains, limits)
        return search.tree(), search.incumbent.assignment

    # --------------------------------------------------------------------------------------------- better assignments

    def _look(self, *, long: bool = False) -> bool:
        """Look for a better assignment, also by sweeps of its own; return whether there is one."""
        improved = self.incumbent.choice is None and self._dive()
        for order in orders(len(self.network.variables), SEEDS):
            if self._finished(self.root.units):
                break
            improved |= self.incumbent.read(self._dual, order)
            self._tell(self.root.units)
        if self.depth == 0 and self.incumbent.choice is not None and not self._told_to_stop():
            improved |= self._look_nearby()
        if long and self.depth == 0 and self.incumbent.choice is not None and not self._told_to_stop():
            improved |= self._look_leaning()
        if self.depth == 0 and self.incumbent.choice is not None and not self._told_to_stop():
            improved |= improve(self.incumbent, self._dual, self._solve_region, self._told_to_stop)
        return improved

    def _look_leaning(self) -> bool:
        """Look where equal parts decide alike; return whether there is something better."""
        cost, dual = self.incumbent.cost, leaning(self._dual)
        for sweep in range(LEANING_SWEEPS):
            if self._told_to_stop():
                break
            dual.sweep((BY_SPAN, EVENLY)[sweep % 2])
            self.incumbent.offer(dual.state.choice)
        return self.incumbent.cost < cost

    def _look_nearby(self) -> bool:
        """Look, once a root, among the values that pay least above the bound; return whether something is better."""
        if not self._exact or self.near is self.root:
            return False
        self.near = self.root
        cost, dual, domains, messages = self.incumbent.cost, self._dual, self.root.domains, self._dual.messages()
        closed, spend = dual.closed(), max(1, self.root.units >> NEAREST)
        while spend < self._missing and not self._told_to_stop():
            found = arc_consistency(self.network, narrowed(dual, domains, closed, spend))
            if _count(found.domains) > NARROWER * _count(domains):
                break
            if found.feasible:
                flat = flatten(self.network, found.domains, self.flat.skeletons)
                limits = self._region_limits
                assignment = self._deeper(self.network, flat, found.domains, limits, messages).incumbent.assignment
                if assignment is not None:
                    self.incumbent.offer(self.flat.choice(assignment))
            spend <<= FARTHER
        return self.incumbent.cost < cost

    @property
    def _region_limits(self) -> Limits:
        return replace(self.limits, gap=0.0, progress=None, nodes=REGION_NODES, sweeps=REGION_SWEEPS)

    def _solve_region(self, network: Network) -> tuple[int, ...] | None:
        """Return a good assignment of a part of the network."""
        start = arc_consistency(network)
        flat = flatten(network, start.domains, self.flat.skeletons)
        return self._deeper(network, flat, start.domains, self._region_limits).incumbent.assignment

    def _deeper(
        self, network: Network, flat: FlatNetwork, domains: Domains, limits: Limits, messages: Messages | None = None
    ) -> Root:
        """Search a smaller network, or this one with fewer values and with its messages to begin with."""
        search = type(self)(network, flat, domains, limits, self.depth + 1, messages)
        search.run()
        return search

    def _dive(self) -> bool:
        """Look for anything allowed at all; return whether there is an incumbent now."""
        choice = dive(self._dual, self.root.domains, self._told_to_stop)
        return choice is not None and self.incumbent.offer(choice)

    def _losses(self, blocks: Sequence[Block]) -> dict[str, int]:
        """Return where the incumbent pays above the bound of the root and some blocks, in picoseconds."""
        choice = self.incumbent.choice
        if self.depth > 0 or choice is None or self._met(max(self.root.units, self.proved)):
            return {}
        paid = np.concatenate(tension(self._dual, choice, self._dual.closed())).astype(object)
        count = len(self.network.variables)
        for block in blocks:  # what its proof gained is lost nowhere, so that each place has less of what is left
            inside = [*block.variables, *(count + e for e in block.edges)]
            whole = paid[inside].sum()
            paid[inside] = paid[inside] * (whole - block.gain) // max(1, whole)
        shift = self.flat.shift
        names = [variable.name for variable in self.network.variables] + [edge.name for edge in self.network.edges]
        found: Counter[str] = Counter()
        for name, units in zip(names, paid.tolist(), strict=True):
            found[name] += units >> shift if shift > 0 else units << -shift
        return {name: lost for name, lost in found.items() if lost > 0}


def _count(domains: Domains) -> int:
    """Return how many values are left."""
    return sum(int(np.count_nonzero(domain)) for domain in domains)
