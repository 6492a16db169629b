"""Networks with levies on the bytes over a mesh axis, and what plans read off them send and take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TypeAlias

import numpy as np

from solver.choice import Choice, Evaluation
from solver.cost.tariff import LEVIED
from solver.deadline import keep_time
from solver.problem import Problem
from solver.search.bound import Dual
from solver.search.build import Built, build
from solver.search.coarse import coarser
from solver.search.flat import FlatNetwork, flatten
from solver.search.network import INF, BoolArray, Domains, IntArray, arc_consistency
from solver.search.shares import BY_SPAN, EVENLY, PATIENT

Masks: TypeAlias = dict[int, BoolArray]
"""Variable -> which of its keys are left: of an op its joint rows, of a source the layouts in which it is stored."""
NEAR = Fraction(5, 4)
"""A multiplier within this factor of a known one is as good."""
HASTY, STEADY = 6, 10
ENOUGH = 0.0005
"""No more sweeps over everything when so many of them gained less than this fraction, hastily and patiently."""
MOST_NETWORKS = 64
"""No more networks are built than so many."""


class Levied:
    """The cost network with one multiplier.

    Parameters
    ----------
    built : Built
    multiplier : int
        Picoseconds for every KiB over the mesh axis.
    """

    def __init__(self, built: Built, multiplier: int) -> None:
        self.built, self.multiplier = built, multiplier
        self.whole: Domains = arc_consistency(built.network).domains
        self.flat: FlatNetwork = flatten(built.network, self.whole)
        self.root = Dual(self.flat)
        self._raise_root()

    def _raise_root(self) -> None:
        """Sweep over everything: all parts begin with these messages."""
        for ways, window in (((BY_SPAN, EVENLY), HASTY), ((PATIENT,), STEADY)):
            history: list[int] = []
            while len(history) <= window or history[-1] - history[-1 - window] > ENOUGH * history[-1]:
                keep_time()
                changed = self.root.sweep(ways[len(history) % len(ways)])
                history.append(self.root.bound)
                if not changed and len(history) > 1:
                    break

    def domains(self, masks: Masks) -> Domains:
        """Return the values that masks leave."""
        found = list(self.whole)
        for i, mask in masks.items():
            variable = self.built.network.variables[i]
            made = None if variable.kind == "op" else self.built.pairs[variable.name].made
            found[i] = found[i] & (mask if made is None else mask[made])
        return tuple(found)

    def keys_of(self, i: int, values: BoolArray, count: int) -> BoolArray:
        """Return which of a variable's keys some values have."""
        variable = self.built.network.variables[i]
        if variable.kind == "op":
            return values
        found = np.zeros(count, np.bool_)
        found[self.built.pairs[variable.name].made[values]] = True
        return found


@dataclass(frozen=True, eq=False)
class Seen:
    """A plan that was read off.

    Parameters
    ----------
    choice : Choice
    time, sent : int
        Picoseconds, and bytes over the mesh axis.
    keys : dict
        Variable -> its key.
    by : dict
        Variable -> the bytes that it has to do with.
    """

    choice: Choice
    time: int
    sent: int
    keys: Mapping[int, int]
    by: Mapping[int, int]


class Levies:
    """The networks of a problem with levies, and the plans that were seen.

    Parameters
    ----------
    asked : Problem
        With a budget of traffic.
    keep : callable
        Told of every plan; returns the picoseconds of the best one within the budget, INF where there is none.
    cost : int, optional
        Those of the best one that is known before.
    """

    def __init__(self, asked: Problem, keep: Callable[[Evaluation], int], cost: int = INF) -> None:
        assert asked.budget is not None
        self.asked, self.keep, self.cost = asked, keep, cost
        self.most, self.axis = asked.budget.most, asked.mesh.axis(asked.budget.axis)
        self.known: dict[int, Levied] = {}
        self.seen: list[Seen] = []
        self._told: dict[tuple[int, tuple[int, ...]], Seen] = {}

    def levied(self, multiplier: int, near: Fraction = NEAR) -> Levied | None:
        """Return the network with a multiplier, or with one within a factor; None where its prices are too large."""
        known = min(self.known, key=lambda one: abs(one - multiplier), default=None)
        if known is not None:
            apart = Fraction(max(known, multiplier), max(1, min(known, multiplier)))
            if apart <= near or len(self.known) >= MOST_NETWORKS:
                return self.known[known]
        built = build(replace(self.asked, levy=((self.axis, multiplier),)))
        if coarser(built.network).shift:
            return None
        self.known[multiplier] = Levied(built, multiplier)
        return self.known[multiplier]

    def spared(self, time: int, multiplier: int) -> int:
        """Return the picoseconds of a plan within the budget whose price with a levy is at least some time."""
        return time - multiplier * self.most // LEVIED

    @property
    def first(self) -> Levied:
        """Any of the networks."""
        return next(iter(self.known.values()))

    @cached_property
    def splittable(self) -> tuple[int, ...]:
        """The ops, and the sources."""
        tensors = self.asked.graph.tensors
        return tuple(
            i
            for i, one in enumerate(self.first.built.network.variables)
            if one.kind == "op" or tensors[one.name].producer is None
        )

    @cached_property
    def _place(self) -> dict[str, int]:
        return {self.first.built.network.variables[i].name: i for i in self.splittable}

    def everything(self, i: int) -> BoolArray:
        """Return a mask of all keys of a variable."""
        variable = self.first.built.network.variables[i]
        count = len(variable) if variable.kind == "op" else len(self.asked.layouts(variable.name))
        return np.ones(count, np.bool_)

    def side(self, i: int, one: int, other: int) -> BoolArray:
        """Return the keys that are as one is where another differs: on the budget's mesh axis, if it does there."""
        digits = self._digits(i)
        differs = np.flatnonzero(digits[one] != digits[other])
        axis = self.axis if self.axis in differs else differs[0]
        side: BoolArray = digits[:, axis] == digits[one, axis]
        return side

    def _digits(self, i: int) -> IntArray:
        """Return per key of a variable what it is on each mesh axis."""
        variable = self.first.built.network.variables[i]
        if variable.kind == "op":
            rows: IntArray = self.first.built.joint[variable.name].rows[self.first.built.kept[variable.name]]
            return rows
        layouts = self.asked.layouts(variable.name)
        kinds = {placement: n for n, placement in enumerate(dict.fromkeys(p for one in layouts for p in one))}
        return np.array([[kinds[placement] for placement in one] for one in layouts], np.int64)

    def see(self, levied: Levied, assignment: tuple[int, ...]) -> Seen:
        """Work out what a plan sends and takes, once."""
        told = levied.multiplier, assignment
        if told in self._told:
            return self._told[told]
        choice = replace(levied.built.choice(assignment), levy=levied.multiplier)
        plan = Evaluation(self.asked, choice)
        self.cost = self.keep(plan)
        variables = levied.built.network.variables
        keys = {
            i: assignment[i]
            if variables[i].kind == "op"
            else int(levied.built.pairs[variables[i].name].made[assignment[i]])
            for i in self.splittable
        }
        seen = Seen(choice, plan.total, plan.sent_over(self.axis), keys, self._by(plan))
        self.seen.append(seen)
        self._told[told] = seen
        return seen

    def _by(self, plan: Evaluation) -> dict[int, int]:
        """Return the bytes that each variable has to do with, as a maker or a user."""
        found: Counter[int] = Counter()
        for reshard in plan.reshards:
            sent = sum(move.bytes for move in reshard.moves if self.axis in move.axes)
            producer = self.asked.graph.tensors[reshard.tensor].producer
            ends = {reshard.tensor if producer is None else producer}
            ends.update(self.asked.use_named[use].op for use in reshard.uses if use in self.asked.use_named)
            for end in ends:
                found[self._place[end]] += sent
        for op, steps in plan.kernels.items():
            found[self._place[op]] += sum(step.bytes for step in steps if self.axis in step.axes)
        return dict(found)

    def inside(self, masks: Masks) -> Iterator[Seen]:
        """Yield the plans that were seen and that masks leave."""
        for one in self.seen:
            if all(mask[one.keys[i]] for i, mask in masks.items()):
                yield one
