"""Greedy planners beside the proved plan, on the same graph, pins and prices."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from solver.greedy.dtensor import dtensor
from solver.greedy.paddle import paddle
from solver.greedy.paddle_fixpoint import paddle_fixpoint
from solver.greedy.shardy import shardy
from solver.greedy.walk import StuckError
from solver.plan import Plan
from solver.problem import Problem
from solver.words import duration

GREEDY: dict[str, Callable[[Problem], Plan]] = {
    "paddle": paddle,
    "paddle-fixpoint": paddle_fixpoint,
    "shardy": shardy,
    "dtensor": dtensor,
}
MOST = 5
"""Places where a greedy planner went wrong that are told."""


@dataclass(frozen=True)
class Compared:
    """One planner's answer.

    Parameters
    ----------
    name : str
    plan : Plan or None
        None where it got stuck.
    stuck : str
        Where and why.
    seconds : float
        Of planning.
    """

    name: str
    plan: Plan | None
    stuck: str
    seconds: float


def compare(best: Plan) -> list[Compared]:
    """Run every greedy planner on the question of a plan.

    Parameters
    ----------
    best : Plan

    Returns
    -------
    list of Compared
        The given plan first.
    """
    found = [Compared("shardproof", best if best.choice is not None else None, "", sum(best.stages.values()))]
    for name, planner in GREEDY.items():
        begin = time.monotonic()
        try:
            made: Plan | None = planner(best.problem)
            stuck = ""
        except StuckError as error:
            made, stuck = None, str(error)
        found.append(Compared(name, made, stuck, time.monotonic() - begin))
    return found


def went_wrong(greedy: Plan, best: Plan) -> list[str]:
    """Return where a greedy plan takes longer than the best one, the longest first, a sentence each.

    Parameters
    ----------
    greedy, best : Plan
        For the same question.

    Returns
    -------
    list of str
    """
    sent, needed = _collectives(greedy), _collectives(best)
    found = [
        (spent * count, f"{kind} of {tensor}" + (f", {count} times" if count > 1 else ""))
        for (kind, tensor, spent), count in (sent - needed).items()
    ]
    for node in best.problem.graph.nodes.values():
        more = greedy.evaluation.compute(node.name) - best.evaluation.compute(node.name)
        found.append((more, f"{node.op} {node.name!r} is cut less, or not at all"))
    found.sort(key=lambda one: (-one[0], one[1]))
    return [f"{text}: {duration(more)}" for more, text in found[:MOST] if more > 0]


def _collectives(plan: Plan) -> Counter[tuple[str, str, int]]:
    return Counter(
        (f"{told.kind}[{told.axis}]", reshard.tensor, move.time)
        for reshard in plan.reshards
        for told, move in zip(reshard.collectives, reshard.moves, strict=True)
    )
