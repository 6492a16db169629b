"""An irreducible set of a person's own wishes that cannot hold together, and the rules that make it so."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from solver.constraints.check import Checker
from solver.constraints.model import whole_graph
from solver.constraints.reason import Reason
from solver.explain.propagate import Trail
from solver.explain.views import View, views
from solver.problem import Problem

Group = tuple[Reason, ...]
"""Facts that are equal but for where they stand, as those of the same op in each layer."""
Member = TypeVar("Member")
Answer: TypeAlias = Sequence[Reason] | bool | None
"""Of facts that contradict each other those that this hangs on; True where they hold; None where neither was shown."""
Ask = Callable[[Sequence[Reason]], Answer]
MOST_OPS = 400
"""Ops of a graph up to which Z3 is asked where propagation leaves open whether a fact is needed."""
READABLE = 8
"""Groups of a support that a person reads."""
MOST_CORES = 5
"""Further cores that are looked for."""
SETTINGS = ("communication", "policy")
"""Kinds of wishes that speak of a whole graph: several contradictions may hang on one of them."""


class FeasibleError(RuntimeError):
    """There is nothing to explain: the problem has a plan."""


@dataclass(frozen=True, slots=True)
class Core:
    """Why a model is infeasible.

    Parameters
    ----------
    chosen : tuple of Reason
        Wishes that cannot hold together; none where the graph has no plan on the mesh at all.
    support : tuple of Group
        Rules and sizes that, with them, have no solution.
    minimal : bool
        Whether each wish and each group is proved to be needed.
    view : View or None
        The mesh axes on which propagation alone finds it; None where Z3 did.
    trail : Trail or None
        How they end in a contradiction, step by step, from the core and the support alone.
    """

    chosen: tuple[Reason, ...]
    support: tuple[Group, ...]
    minimal: bool
    view: View | None = None
    trail: Trail | None = None

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """All facts of it."""
        return (*self.chosen, *(reason for group in self.support for reason in group))


def find_core(problem: Problem, seconds: float = 10.0) -> Core:
    """Find what cannot hold together: first of what the person chose, with all rules hard, then of the rules.

    Parameters
    ----------
    problem : Problem
        Without a plan.
    seconds : float, optional
        After this time what is left is returned, and not called minimal.

    Returns
    -------
    Core

    Raises
    ------
    FeasibleError
        Where the problem has a plan after all.

    Notes
    -----
    Propagation is asked first, on each mesh axis alone, then on several; where it ends in a contradiction the steps
    that this hangs on name the facts that are used. Z3 is asked where it ends in none. Either way a member is left out
    where the rest alone has no solution (deletion with clause-set refinement, Marques-Silva and Lynce, SAT 2011); a
    member is proved to be needed by an example that meets the rest, found by propagation or by Z3.
    """
    deadline = time.monotonic() + seconds
    if (core := refuted(problem, deadline)) is not None:
        return core
    checker = Checker(whole_graph(problem, explaining=True))
    core = _by_z3(problem, checker, deadline)
    if core is None and checker.search(seconds=max(0.001, deadline - time.monotonic())).status == "sat":
        raise FeasibleError("a problem without a plan has one once it is written for explaining")
    return core or Core(tuple(reason for reason in checker.clauses.reasons if reason.chosen), (), minimal=False)


def refuted(problem: Problem, deadline: float, quick: bool = False) -> Core | None:
    """Find a core by propagation; None where it finds no contradiction.

    Parameters
    ----------
    problem : Problem
    deadline : float
        A time of `time.monotonic`: what is left then is returned, and not called minimal.
    quick : bool, optional
        Whether to look at each mesh axis alone only.
    """
    if quick and not problem.pins:
        return None
    for view in views(problem, most=1 if quick else None):
        trail = view.follow(view.reasons)
        if isinstance(trail, Trail):
            return _by_propagation(view, trail, view.reasons, deadline)
        if time.monotonic() > deadline:
            return None
    return None


def other_cores(problem: Problem, core: Core, deadline: float) -> tuple[list[Core], bool]:
    """Find cores that share no pin, tie or expression with one, nor with each other; at most some.

    Parameters
    ----------
    problem : Problem
    core : Core
    deadline : float
        A time of `time.monotonic`.

    Returns
    -------
    list of Core, bool
        And whether the search ended early: there may be more.
    """
    found: list[Core] = []
    taken = set(_own(core))
    for view in views(problem) if core.chosen else ():
        while True:
            active = [reason for reason in view.reasons if reason not in taken]
            trail = view.follow(active)
            if not isinstance(trail, Trail):
                break
            if len(found) == MOST_CORES or time.monotonic() > deadline:
                return found, True
            found.append(_by_propagation(view, trail, active, deadline))
            taken.update(_own(found[-1]))
    if not problem.expressions or len(problem.graph.nodes) > MOST_OPS:
        return found, False
    return _others_by_z3(problem, found, taken, deadline)


def _own(core: Core) -> tuple[Reason, ...]:
    """Return the wishes of a core that no other core may have: not those about a whole graph, if it has others."""
    return tuple(reason for reason in core.chosen if reason.kind not in SETTINGS) or core.chosen


def _others_by_z3(problem: Problem, found: list[Core], taken: set[Reason], deadline: float) -> tuple[list[Core], bool]:
    """Find the cores that only Z3 sees, as those of a person's own expressions."""
    checker = Checker(whole_graph(problem, explaining=True))
    while True:
        if len(found) == MOST_CORES or time.monotonic() > deadline:
            return found, True
        core = _by_z3(problem, checker, deadline, taken)
        if core is None or not core.chosen:
            return found, False
        found.append(core)
        taken.update(_own(core))


# ----------------------------------------------------------------------------------------------------- by propagation


def _by_propagation(view: View, trail: Trail, active: Sequence[Reason], deadline: float) -> Core:
    hard = [reason for reason in active if not reason.chosen]
    ask = _Asking(view, deadline)
    named = set(trail.reasons)
    chosen: list[Group] = [(reason,) for reason in active if reason.chosen and reason in named]
    chosen, needed = shrink(chosen, hard, ask, deadline)
    wishes = [reason for group in chosen for reason in group]
    final = ask.trail or trail
    near = view.among(final.reasons)
    support = groups(view.problem, final.reasons)
    support, proved = shrink(support, wishes, _Asking(near, deadline), deadline)
    told = near.follow([*wishes, *(reason for group in support for reason in group)])
    assert isinstance(told, Trail)
    return Core(tuple(wishes), tuple(support), needed and proved, view, told)


class _Asking:
    """Refutes facts by propagation, or shows that they hold: by an example, or by Z3 where the graph is small."""

    def __init__(self, view: View, deadline: float) -> None:
        self._view, self._deadline = view, deadline
        self._checker: Checker | None = None
        self._index: dict[Reason, int] = {}
        self.trail: Trail | None = None
        """The last refutation."""

    def __call__(self, reasons: Sequence[Reason]) -> Answer:
        """Ask propagation, and whether what it does not refute holds."""
        if self._view.replicated(reasons):
            return True
        found = self._view.follow(reasons)
        if isinstance(found, Trail):
            self.trail = found
            return found.reasons
        return self._view.holds(reasons, found) or self._by_z3(reasons)

    def _by_z3(self, reasons: Sequence[Reason]) -> bool | None:
        if len(self._view.problem.graph.nodes) > MOST_OPS:
            return None
        if self._checker is None:
            self._checker = Checker(whole_graph(self._view.problem, explaining=True))
            self._index = {reason: i for i, reason in enumerate(self._checker.clauses.reasons)}
        status = self._checker.search(
            [self._index[reason] for reason in reasons if reason in self._index],
            max(0.001, self._deadline - time.monotonic()),
        ).status
        return True if status == "sat" else None


def shrink(
    members: Sequence[Group],
    hard: Sequence[Reason],
    ask: Ask,
    deadline: float,
) -> tuple[list[Group], bool]:
    """Leave out of an unsatisfiable set, with some hard facts, what it does not need.

    Parameters
    ----------
    members : sequence of Group
    hard : sequence of Reason
    ask : callable
        Facts -> `Answer`.
    deadline : float
        A time of `time.monotonic`.

    Returns
    -------
    list of Group, bool
        What is left, and whether all of it is proved to be needed.
    """
    kept: list[Group] = []
    waiting = list(members)
    proved = True
    while waiting:
        candidate = waiting.pop(0)
        if time.monotonic() > deadline:
            return [*kept, candidate, *waiting], False
        rest = [*hard, *(reason for group in (*kept, *waiting) for reason in group)]
        answer = ask(rest)
        if answer is None or isinstance(answer, bool):
            proved = proved and answer is True
            kept.append(candidate)
        else:
            named = set(answer)
            waiting = [group for group in waiting if not named.isdisjoint(group)]
    return kept, proved


def groups(problem: Problem, reasons: Iterable[Reason]) -> list[Group]:
    """Put facts of the graph together that are equal but for where they stand: by structure, never by name.

    Where there are more than a person reads, what stands in one module of the model is put together, and then modules
    whose facts are equal.
    """
    facts = [reason for reason in reasons if not reason.chosen]
    found = _together(facts, lambda reason: kind_of(problem, reason))
    if len(found) > READABLE:
        modules = _together(facts, lambda reason: _module(problem, reason))
        shapes = {id(group): frozenset(kind_of(problem, reason) for reason in group) for group in modules}
        found = [
            tuple(reason for module in alike for reason in module)
            for alike in _together(modules, lambda group: shapes[id(group)])
        ]
    return sorted(found, key=lambda group: all(reason.kind != "divisibility" for reason in group))


def _together(members: Sequence[Member], kind: Callable[[Member], Hashable]) -> list[tuple[Member, ...]]:
    found: dict[Hashable, list[Member]] = {}
    for member in members:
        found.setdefault(kind(member), []).append(member)
    return [tuple(group) for group in found.values()]


def _module(problem: Problem, reason: Reason) -> Hashable:
    """Return the module that a fact stands in."""
    node = problem.graph.nodes.get(reason.subject)
    return reason.kind != "rule", "" if node is None else node.module


def kind_of(problem: Problem, reason: Reason) -> Hashable:
    """Return what is equal of facts that differ only in where they stand."""
    said = reason.text.replace(repr(reason.subject), "")
    if reason.subject in problem.bound:
        return reason.kind, id(problem.bound[reason.subject]), said
    tensor = problem.graph.tensors.get(reason.subject)
    return (reason.kind, said) if tensor is None else (reason.kind, tensor.role, tensor.shape, tensor.dtype, said)


# ------------------------------------------------------------------------------------------------------------- by Z3


def _by_z3(problem: Problem, checker: Checker, deadline: float, without: Collection[Reason] = ()) -> Core | None:
    """Find a core, some wishes left out; None where the others hold together, or where nothing is told in time."""
    reasons = checker.clauses.reasons
    index = {reason: i for i, reason in enumerate(reasons)}
    hard = [reason for reason in reasons if not reason.chosen]
    asked = [i for i, reason in enumerate(reasons) if reason not in without]
    first = checker.search(asked, max(0.001, deadline - time.monotonic()))
    if first.status != "unsat":
        return None

    def ask(some: Sequence[Reason]) -> Answer:
        verdict = checker.search([index[reason] for reason in some], max(0.001, deadline - time.monotonic()))
        if verdict.status == "unsat":
            return [reasons[i] for i in verdict.core]
        return True if verdict.status == "sat" else None

    members = [(reasons[i],) for i in first.core if reasons[i].chosen]
    chosen, needed = shrink(members, hard, ask, deadline)
    wishes = [reason for group in chosen for reason in group]
    used = [reasons[i] for i in first.core if not reasons[i].chosen]
    for offered in ([reason for reason in hard if reason.kind != "divisibility"], hard):
        answer = ask([*wishes, *offered])
        if answer is not None and not isinstance(answer, bool):
            used = [reason for reason in answer if not reason.chosen]
            break
    modules, _ = shrink(_by_module(problem, used), wishes, ask, deadline)
    support = groups(problem, (reason for module in modules for reason in module))
    support, proved = shrink(support, wishes, ask, deadline)
    return Core(tuple(wishes), tuple(support), needed and proved)


def _by_module(problem: Problem, reasons: Sequence[Reason]) -> list[Group]:
    """Put facts of one module of the model together: what is not needed goes in large pieces first."""
    return _together(reasons, lambda reason: _module(problem, reason))
