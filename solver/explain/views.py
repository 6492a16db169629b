"""A problem on some of its mesh axes only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from itertools import combinations

from solver.constraints.policy_kinds import Forbid
from solver.constraints.reason import Reason
from solver.explain.facts import WRITTEN, Facts, TooLargeError
from solver.explain.propagate import Propagator, Settled, Trail
from solver.mesh import Mesh
from solver.problem import Problem


class View:
    """What can be told of a problem by looking at some mesh axes.

    What contradicts itself on some mesh axes does so on all of them. What holds together there holds on all of them,
    replicated on the others, as long as nothing is asked of these.

    Parameters
    ----------
    problem : Problem
        On the mesh axes looked at.
    whole : bool
        Whether these are all mesh axes of size 2 or more.
    """

    def __init__(self, problem: Problem, whole: bool) -> None:
        self.problem = problem
        self.facts = Facts(problem)
        self._propagator = Propagator(self.facts)
        parts = not all(map(problem.one_way, problem.graph.tensors))
        self._loose = parts and not whole  # the mesh axes that are not looked at may cut parts of dims

    def among(self, reasons: Sequence[Reason]) -> View:
        """Return the same, quicker, for questions about some facts only."""
        narrow = copy(self)
        narrow._propagator = Propagator(self.facts, reasons)
        return narrow

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """All facts, in order."""
        return tuple(
            reason
            for number, reason in enumerate(self.facts.reasons)
            if reason is not WRITTEN and number not in self.facts.several
        )

    def follow(self, active: Sequence[Reason]) -> Trail | Settled:
        """Find what follows from some facts, beginning at the pins, in the order of the program."""
        pins = sorted((r for r in active if r.kind == "pin"), key=lambda reason: self._order[reason.subject])
        return self._propagator.follow(active, pins, loose=self._loose)

    @cached_property
    def _order(self) -> dict[str, int]:
        return {name: i for i, name in enumerate((*self.problem.graph.tensors, *self.problem.use_named))}

    def replicated(self, active: Sequence[Reason]) -> bool:
        """Tell whether some facts hold together with everything replicated."""
        return self._propagator.replicated(active)

    def holds(self, active: Sequence[Reason], settled: Settled) -> bool | None:
        """Tell whether facts hold together that propagation does not refute; None where that was not found out."""
        again = self._propagator.follow(active) if self._loose else settled
        return True if isinstance(again, Settled) and again.example() is not None else None


def views(problem: Problem, most: int | None = None) -> Iterator[View]:
    """Yield a problem on each mesh axis that something is asked of, then on more of them together, at most so many.

    The last one has them all, unless too much would have to be looked at. Where nothing is asked of any it has one.
    A person's own expressions are in none of them.
    """
    large = [axis for axis, size in enumerate(problem.mesh.sizes) if size > 1]
    asked = sorted(_asked(problem)) or large[:1] or [0]
    for count in range(1, min(len(asked), most or len(asked)) + 1):
        for axes in combinations(asked, count):
            try:
                whole = len(axes) == len(large)
                view = View(_on(problem, axes, whole), whole)
            except TooLargeError:
                return
            yield view


def whole_view(problem: Problem) -> View | None:
    """Return a problem on all mesh axes that something is asked of; None where too much would have to be looked at."""
    view = None
    for view in views(problem):  # noqa: B007
        pass
    return view if view is not None and len(view.problem.mesh.axes) >= len(_asked(problem)) else None


def _asked(problem: Problem) -> set[int]:
    """Return the mesh axes of size 2 or more that a wish speaks of, so that not all may be replicated there."""
    pins = {pin.axis for pin in problem.pins if problem.mesh.sizes[pin.axis] > 1}
    if any(isinstance(one, Forbid) and not _projects(one) for one in problem.policy):  # only on all axes together
        pins.update(axis for axis, size in enumerate(problem.mesh.sizes) if size > 1)
    return pins | {demand.axis for demanded in problem.demands_on.values() for demand in demanded}


def _projects(policy: Forbid) -> bool:
    """Tell whether what a policy forbids on a mesh axis can be looked at on that axis alone.

    Where a permute may run a cut may go to another mesh axis and come back: on one axis that is a gather.
    """
    return "permute" in policy.kinds


def _on(problem: Problem, axes: Sequence[int], whole: bool) -> Problem:
    mesh = problem.mesh
    names = [mesh.axes[axis] for axis in axes]
    small = Mesh({name: mesh.sizes[axis] for name, axis in zip(names, axes, strict=True)}, hardware=mesh.hardware)
    pins = tuple(replace(pin, axis=axes.index(pin.axis)) for pin in problem.pins if pin.axis in axes)
    policy = tuple(
        one
        for one in problem.policy
        if getattr(one, "axis", None) in (None, *names) and (whole or not isinstance(one, Forbid) or _projects(one))
    )
    return replace(problem, mesh=small, pins=pins, policy=policy, expressions=())
