"""Plans near a budget of traffic, between a fast one that sends too much and a slow one that sends little.

With one multiplier both may be as good as each other, and nothing between them is: then all layers lie as in the one or
all as in the other. A plan near the budget lies as the fast one up to some depth of the graph and as the slow one from
there on, or the other way round. What is cheapest where the two meet is found by searches of regions.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import networkx as nx
import numpy as np

from solver.search.bound import Dual
from solver.search.branch import solve_hastily
from solver.search.incumbent import Incumbent, orders
from solver.search.levies import Levied, Levies, Seen
from solver.search.network import IdArray, IntArray, arc_consistency
from solver.search.region import improve

MOST_NEIGHBOURS = 8
"""A variable with more of them is where layers far from each other meet, and tells nothing of depth."""
NEAR = 32
"""Depths are told apart as long as more variables than so many lie between."""
MOST_REGIONS = 24
"""Regions of a mixture that are solved anew: without an end to it, one plan would push back the other everywhere."""


class Mixing:
    """Mixes plans of a network with one multiplier.

    Parameters
    ----------
    levies : Levies
        Sees every mixture.
    levied : Levied
        The network.
    over : callable
        Whether there is no more time.
    """

    def __init__(self, levies: Levies, levied: Levied, over: Callable[[], bool]) -> None:
        self.levies, self.levied, self.over = levies, levied, over
        self.depth = depths(levied)

    def run(self, fast: Seen, slow: Seen) -> None:
        """Look for mixtures near the budget, the fast plan in front and then the slow one."""
        one, other = self._choice(fast), self._choice(slow)
        if one is not None and other is not None:
            self._bisect(one, other, fast_in_front=True)
            self._bisect(other, one, fast_in_front=False)

    def _bisect(self, front: IdArray, behind: IdArray, *, fast_in_front: bool) -> None:
        low, high = 0, int(self.depth.max(initial=0))
        before: Seen | None = None
        while high - low > NEAR and not self.over():
            middle = (low + high) // 2
            assignment = self._mended(np.where(self.depth < middle, front, behind))
            seen = None if assignment is None else self.levies.see(self.levied, assignment)
            if seen is None or seen is before:
                return
            before, fits = seen, seen.sent <= self.levies.most
            low, high = (middle, high) if fits == fast_in_front else (low, middle)

    def _mended(self, choice: IdArray) -> tuple[int, ...] | None:
        """Return a mixture with the regions solved anew that pay most; None where it is not allowed."""
        incumbent = Incumbent(self.levied.root)
        incumbent.offer(choice)
        if incumbent.choice is not None:
            tried = count()
            improve(incumbent, self.levied.root, solve_hastily, lambda: next(tried) >= MOST_REGIONS or self.over())
        return incumbent.assignment

    def _choice(self, seen: Seen) -> IdArray | None:
        """Return the flat values of this network that stand for a plan that was seen with any multiplier."""
        levied = self.levied
        masks = {i: np.arange(len(self.levies.everything(i))) == key for i, key in seen.keys.items()}
        found = arc_consistency(levied.built.network, levied.domains(masks))
        if not found.feasible:
            return None
        dual = Dual(levied.flat, levied.flat.restrict(levied.flat.cost, levied.whole, found.domains), levied.root)
        incumbent = Incumbent(dual)
        for order in orders(len(dual.state.choice), range(1)):
            incumbent.read(dual, order)
        return incumbent.choice


def depths(levied: Levied) -> IntArray:
    """Return how deep in the graph each variable lies, so that neighbours are near each other.

    Parameters
    ----------
    levied : Levied

    Returns
    -------
    int64 array
        Per variable its place by the algorithm of Cuthill and McKee (1969), as networkx has it. Those with very many
        neighbours are behind all others.
    """
    flat, many = levied.flat.flat, len(levied.flat.values)
    beside = nx.Graph()
    beside.add_nodes_from(range(many))
    beside.add_edges_from(zip(flat.tail.tolist(), flat.head.tolist(), strict=True))
    beside.remove_nodes_from([i for i, neighbours in beside.degree() if neighbours > MOST_NEIGHBOURS])
    order = list(nx.utils.cuthill_mckee_ordering(beside))
    found = np.full(many, len(order), np.int64)
    found[order] = np.arange(len(order))
    return found
