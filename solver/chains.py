"""Which reshapes may split the dims: boundaries that form chains of divisors, at the least cost of what is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import networkx as nx

Class: TypeAlias = int
"""Dims that must have the same boundaries, as one number."""
Member: TypeAlias = tuple[Class | None, int]
"""One factor of a compound dim: its class, or None where it must stay in one piece, and its size."""
Equation: TypeAlias = tuple[Class, tuple[Member, ...]]
"""A compound dim: its class and its factors, major first."""
Boundary: TypeAlias = tuple[Class, int]
"""A class and the number of elements behind the boundary."""
Asks: TypeAlias = frozenset[int]

ROUNDS = 50
"""After so many choices of what to refuse, what still contradicts is refused as well."""
STEPS = 4_000


@dataclass(frozen=True, slots=True)
class Ask:
    """Compound dims that are granted or refused together.

    Parameters
    ----------
    equations : tuple of Equation
    weight : int
        What refusing it costs.
    """

    equations: tuple[Equation, ...]
    weight: int

    @property
    def classes(self) -> list[Class]:
        """All classes that it ties."""
        return [
            one
            for whole, members in self.equations
            for one in (whole, *(factor for factor, _ in members))
            if one is not None
        ]


def settle(asks: Sequence[Ask]) -> tuple[dict[Class, frozenset[int]], dict[int, int]]:
    """Grant the asks that go together and weigh most.

    Parameters
    ----------
    asks : sequence of Ask
        At equal weight an earlier one is preferred.

    Returns
    -------
    boundaries : dict
        Class -> the boundaries of its dims, as the number of elements behind them; they form a chain of divisors.
    lost : dict
        Each ask that was refused -> one that was granted and does not go with it; itself, where it contradicts itself.

    Examples
    --------
    >>> four_six, six_four = Ask(((0, ((1, 4), (2, 6))),), 10), Ask(((0, ((3, 6), (4, 4))),), 7)
    >>> settle([six_four, four_six])
    ({0: frozenset({6})}, {0: 1})
    """
    joined = nx.Graph()
    for index, ask in enumerate(asks):
        joined.add_node(("ask", index))
        joined.add_edges_from((("ask", index), one) for one in ask.classes)
    boundaries: dict[Class, frozenset[int]] = {}
    lost: dict[int, int] = {}
    for component in nx.connected_components(joined):
        mine = sorted(name[1] for name in component if isinstance(name, tuple))
        chains, refused = _settle_component(asks, mine)
        boundaries |= {one: frozenset(found) for one, found in chains.found.items() if found}
        lost |= refused
    return boundaries, lost


def _settle_component(asks: Sequence[Ask], mine: Sequence[int]) -> tuple[Chains, dict[int, int]]:
    """Refuse the cheapest asks that break every contradiction, until no new contradiction turns up."""
    order = sorted(mine, key=lambda index: (-asks[index].weight, index))
    # Refusing an earlier ask costs the more the earlier it is, but never as much as a byte.
    count = len(mine)
    costs = {index: (asks[index].weight << count) + (1 << (count - 1 - place)) for place, index in enumerate(mine)}
    contradictions: list[Asks] = []
    for _ in range(ROUNDS):
        refused = cheapest_hitting_set(contradictions, costs)
        chains, fresh = _grant(asks, [index for index in order if index not in refused])
        contradictions += fresh.values()
        if not fresh:
            break
    else:
        refused |= fresh.keys()
    return chains, {index: _winner(index, contradictions, refused, order) for index in sorted(refused)}


def _grant(asks: Sequence[Ask], order: Sequence[int]) -> tuple[Chains, dict[int, Asks]]:
    """Grant asks one by one; those that contradict the ones before are skipped, with the contradiction."""
    chains = Chains()
    fresh: dict[int, Asks] = {}
    for index in order:
        if contradiction := chains.grant(index, asks[index]):
            fresh[index] = contradiction
    return chains, fresh


def _winner(loser: int, contradictions: Sequence[Asks], refused: Asks, order: Sequence[int]) -> int:
    against = frozenset().union(*(asks for asks in contradictions if loser in asks))
    return next((index for index in order if index in against and index not in refused), loser)


def cheapest_hitting_set(sets: Sequence[Asks], costs: Mapping[int, int]) -> Asks:
    """Find the cheapest choice of numbers with at least one of every set.

    Parameters
    ----------
    sets : sequence of frozenset of int
    costs : mapping

    Returns
    -------
    frozenset of int
        The cheapest, or the best that ``STEPS`` steps of the search have found.

    Examples
    --------
    >>> sorted(cheapest_hitting_set([frozenset({0, 1}), frozenset({0, 2})], {0: 5, 1: 3, 2: 3}))
    [0]
    """
    joined = nx.Graph()
    for one in sets:
        nx.add_path(joined, one)
        joined.add_nodes_from(one)
    chosen: set[int] = set()
    for component in nx.connected_components(joined):
        chosen |= _Hitting(costs).best([one for one in dict.fromkeys(sets) if one <= component])
    return frozenset(chosen)


class _Hitting:
    """Branch and bound on one set at a time; what was tried for a set is not tried for a later one."""

    def __init__(self, costs: Mapping[int, int]) -> None:
        self.costs = costs
        self.steps = 0
        self.found: tuple[int, Asks] | None = None

    def best(self, sets: Sequence[Asks]) -> Asks:
        self._search(list(sets), frozenset(), 0)
        return self.found[1] if self.found else frozenset()

    def _search(self, sets: list[Asks], chosen: Asks, cost: int) -> None:
        self.steps += 1
        if self.found and (self.steps > STEPS or cost + self._least(sets) >= self.found[0]):
            return
        if not sets:
            self.found = cost, chosen
            return
        barred: set[int] = set()
        smallest = min(sets, key=lambda other: (len(other), *sorted(other)))
        for one in sorted(smallest, key=lambda name: self.costs[name]):
            rest = [other - barred for other in sets if one not in other]
            if all(rest):
                self._search(rest, chosen | {one}, cost + self.costs[one])
            barred.add(one)

    def _least(self, sets: Sequence[Asks]) -> int:
        """What sets that share nothing must cost at least."""
        seen: set[int] = set()
        least = 0
        for one in sorted(sets, key=len):
            if seen.isdisjoint(one):
                seen |= one
                least += min(self.costs[name] for name in one)
        return least


@dataclass
class Chains:
    """The boundaries of every class, each with the asks that it follows from."""

    found: dict[Class, dict[int, Asks]] = field(default_factory=dict)
    _equations: dict[Class, list[tuple[int, Equation]]] = field(default_factory=dict)

    def grant(self, index: int, ask: Ask) -> Asks | None:
        """Add what an ask wants and all that follows.

        Returns
        -------
        frozenset of int or None
            The asks that contradict each other, this one among them; then nothing has changed.
        """
        trail: list[Boundary] = []
        contradiction = self._grant_all(index, ask, trail)
        if contradiction is None:
            return None
        for one, boundary in trail:
            del self.found[one][boundary]
        for one in ask.classes:
            self._equations[one] = [(owner, equation) for owner, equation in self._equations[one] if owner != index]
        return contradiction

    def _grant_all(self, index: int, ask: Ask, trail: list[Boundary]) -> Asks | None:
        before = [(one, boundary) for one in dict.fromkeys(ask.classes) for boundary in self.found.get(one, ())]
        for equation in ask.equations:
            for one in dict.fromkeys(Ask((equation,), 0).classes):
                self._equations.setdefault(one, []).append((index, equation))
        for whole, members in ask.equations:
            behind = 1
            for _, size in reversed(members[1:]):
                behind *= size
                if contradiction := self._add(whole, behind, frozenset({index}), trail):
                    return contradiction
        # What was there before flows through the new equations only; the trail grows while it is walked.
        for one, boundary in before:
            if contradiction := self._flow(one, boundary, [(index, equation) for equation in ask.equations], trail):
                return contradiction
        for one, boundary in trail:
            if contradiction := self._flow(one, boundary, self._equations.get(one, ()), trail):
                return contradiction
        return None

    def _flow(
        self, one: Class, boundary: int, equations: Sequence[tuple[int, Equation]], trail: list[Boundary]
    ) -> Asks | None:
        """Carry a boundary from a factor to the dims made of it, and from a dim to its factors."""
        for owner, (whole, members) in equations:
            because = self.found[one][boundary] | {owner}
            behind = 1
            for factor, size in reversed(members):
                contradiction = None
                if one == whole and behind < boundary < behind * size:
                    contradiction = because if factor is None else self._add(factor, boundary // behind, because, trail)
                elif one == factor:
                    contradiction = self._add(whole, boundary * behind, because, trail)
                if contradiction:
                    return contradiction
                behind *= size
        return None

    def _add(self, one: Class, boundary: int, because: Asks, trail: list[Boundary]) -> Asks | None:
        known = self.found.setdefault(one, {})
        if boundary not in known:
            for other, reason in known.items():
                if boundary % other and other % boundary:
                    return because | reason
            known[boundary] = because
            trail.append((one, boundary))
        return None
