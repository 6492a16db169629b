"""From a core to an explanation: facts and steps in words."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import networkx as nx

from solver.constraints.reason import Reason
from solver.explain.core import Core, Group, kind_of, refuted
from solver.explain.facts import Facts, Rows
from solver.explain.own import settle
from solver.explain.propagate import Step
from solver.explain.story import Words
from solver.explain.walk import Again, walk
from solver.explanation import ORDER, Explanation, Fact, StoryStep
from solver.problem import Problem
from solver.problem_wishes import place_of
from solver.words import all_of

OWN_SECONDS = 1.0
"""For the story of what a person's own expressions ask of tensors."""


def tell(problem: Problem, core: Core, others: Sequence[Core] = (), more: bool = False) -> Explanation:
    """Put a core into words.

    Parameters
    ----------
    problem : Problem
    core : Core
    others : sequence of Core
        Further ones, which share no wish with it.
    more : bool, optional
        Whether there may be more of these.

    Returns
    -------
    Explanation
    """
    places = _Places(problem)

    def wishes(reasons: Sequence[Reason]) -> tuple[Fact, ...]:
        facts = (_fact(reason, places.of(reason)) for reason in reasons)
        return tuple(sorted(facts, key=lambda one: ORDER.index(one.kind) if one.kind in ORDER else len(ORDER)))

    refused = dict(reversed(list(_refused(core))))  # of equal layers the first one that is told
    support = tuple(refused.get(group[0], _of_group(problem, group)) for group in core.support)
    steps, where, by = _steps(problem, core, places)
    return Explanation(
        wishes(core.chosen),
        support,
        core.minimal,
        steps=steps,
        where=where,
        by=by,
        beside=tuple(tell(problem, other) for other in others),
        more=more,
    )


class _Places:
    """Knows where wishes were set."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._pins = {(pin.subject, pin.source): pin.place for pin in problem.pins}

    def of(self, reason: Reason) -> str:
        """Return where a wish was set; nothing for a fact of the graph."""
        pinned = self._pins.get((reason.subject, reason.source)) if reason.kind == "pin" else None
        return place_of(self._problem.place, reason.kind) if pinned is None else pinned


def _of_group(problem: Problem, group: Group) -> Fact:
    """Return the fact of a group by its first; of a module of different ops it says so."""
    fact = _fact(group[0], alike=group[1:])
    if len({kind_of(problem, reason) for reason in group}) == 1:
        return fact
    node = problem.graph.nodes.get(fact.subject)
    where = f" in {node.module}" if node is not None and node.module else ""
    return replace(fact, text=f"{fact.text}, with the rules of the {len(fact.alike)} ops that it goes on to{where}")


def _fact(reason: Reason, place: str = "", alike: Sequence[Reason] = ()) -> Fact:
    subjects = tuple(dict.fromkeys(other.subject for other in alike))
    return Fact(reason.kind, reason.subject, reason.text, reason.source, place, subjects)


def _refused(core: Core) -> Iterator[tuple[Reason, Fact]]:
    """Yield what the rules of ops refuse whatever else holds, in the words of the rule, by the first of their group."""
    if core.trail is None or core.view is None:
        return
    words = Words(core.view.facts)
    groups: dict[Reason, Group] = {reason: group for group in core.support for reason in group}
    for step in core.trail.steps:
        if not isinstance(step.constraint, Rows) or step.because or len(step.reasons) > 1:
            continue
        (reason,) = step.reasons
        text, capability = words.refused(step, step.constraint)
        fact = _fact(reason, alike=[one for one in groups[reason] if one.subject != reason.subject])
        kind, source = ("capability", capability) if capability else (fact.kind, fact.source)
        yield groups[reason][0], Fact(kind, fact.subject, text, source, alike=fact.alike)


def _steps(problem: Problem, core: Core, places: _Places) -> tuple[tuple[StoryStep, ...], str, str]:
    """Return the steps, the mesh axes that they speak of, and whether they follow by ``propagation`` or by ``z3``."""
    if any(reason.kind == "expression" for reason in core.chosen):
        return _by_own(problem, core, places)
    if core.trail is None or core.view is None:
        return tuple(_met(problem, core)), "", "z3"
    facts = core.view.facts
    words = Words(facts)
    steps = []
    for beat in walk(facts, core.trail):
        if isinstance(beat, Again):
            steps.append(StoryStep(words.tell(beat), facts.tensor[beat.end], beat.times, "again"))
        else:
            text = words.tell(beat) if steps else words.tell(beat).removeprefix("so ").removeprefix("but ")
            by = _follows_by(facts, beat.step)
            subject = _subject(facts.tensor[beat.step.place], beat.step)
            steps.append(StoryStep(text, subject, kind=by.kind, source=by.source, place=places.of(by)))
    return tuple(steps), words.where, "propagation"


def _by_own(problem: Problem, core: Core, places: _Places) -> tuple[tuple[StoryStep, ...], str, str]:
    """Tell what a person's own expressions settle, and how that ends in a contradiction."""
    found = settle(problem, core.chosen, places.of)
    if found.fails:
        return found.steps, "", "propagation"
    other = refuted(found.asked, time.monotonic() + OWN_SECONDS)
    asked = set() if other is None else set(other.chosen) - set(core.chosen)
    if other is not None and all(reason.source in {pin.source for pin in found.asked.pins} for reason in asked):
        steps, where, by = _steps(found.asked, other, places)
        for reason in asked:
            plain = reason.text.replace("you pinned ", "", 1).replace(" to ", " has to be ", 1)
            steps = tuple(replace(step, text=step.text.replace(reason.text, plain)) for step in steps)
        return (*found.steps, *steps), where, by
    own = [reason for reason in core.chosen if reason.kind == "expression"]
    so, hold = "so " if found.steps or core.support else "", "hold together" if len(own) > 1 else "holds"
    end = StoryStep(
        f"{so}no layouts are left in which {all_of([reason.source for reason in own])} {hold}",
        own[0].subject,
        kind=own[0].kind,
        source=own[0].source,
        place=places.of(own[0]),
    )
    return (*found.steps, *_met(problem, core), end), "", "z3"


def _follows_by(facts: Facts, step: Step) -> Reason:
    """Return the fact by which a step follows: of an op what keeps it from its rows, where that is not its rule."""
    if isinstance(step.constraint, Rows):
        keeping = [reason for reason in step.reasons if reason.kind != "rule"]
        return keeping[0] if keeping else facts.reasons[step.constraint.reason]
    return facts.named(step.constraint.reason)[0]


def _subject(tensor: str, step: Step) -> str:
    return step.constraint.node if isinstance(step.constraint, Rows) else tensor


def _met(problem: Problem, core: Core) -> Iterator[StoryStep]:
    """Yield where the facts meet: the shortest way through the graph that joins the wishes, and what stands there."""
    way = list(_way(problem, [reason.subject for reason in core.chosen]))
    if len(way) > 1:
        yield StoryStep(f"they are joined by {' -> '.join(map(repr, way))}", way[0], kind="way")
    order = {name: i for i, name in enumerate((*problem.graph.tensors, *problem.graph.nodes))}
    for group in sorted(core.support, key=lambda one: order.get(one[0].subject, len(order))):
        more = len({reason.subject for reason in group}) - 1
        text = group[0].text + (f", and {more} more of which the same holds" if more else "")
        yield StoryStep(text, group[0].subject, kind=group[0].kind, source=group[0].source)


def _way(problem: Problem, subjects: Sequence[str]) -> Iterator[str]:
    """Yield the ops on the shortest way through the graph from the first subject in program order to the last."""
    graph = problem.graph
    named = {subject: ("tensor", subject) for subject in subjects if subject in graph.tensors}
    named |= {use.name: ("op", use.op) for use in map(problem.use_named.get, subjects) if use is not None}
    place = {("tensor", name): i for i, name in enumerate(graph.tensors)}
    place |= {("op", name): place["tensor", node.results[0]] for name, node in graph.nodes.items() if node.results}
    ends = sorted(set(named.values()), key=lambda end: place[end])
    if len(ends) < 2:
        return
    told = ""
    structure: object = None
    for kind, name in nx.shortest_path(graph.digraph.to_undirected(as_view=True), ends[0], ends[-1]):
        if kind != "op" and (kind, name) not in ends:
            continue
        shape = id(problem.bound[name]) if kind == "op" else name
        if shape != structure and name != told:
            yield name
        told, structure = name, shape
