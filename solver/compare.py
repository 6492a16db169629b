"""Greedy planners and recipes beside the proved plan, on the same graph, pins and prices."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from ops.placement import Shard
from solver.cost.reshard import Move
from solver.greedy.dtensor import dtensor
from solver.greedy.paddle import paddle
from solver.greedy.paddle_fixpoint import paddle_fixpoint
from solver.greedy.shardy import shardy
from solver.greedy.walk import StuckError
from solver.plan import Plan
from solver.planner import plan_problem
from solver.problem import Problem, ProblemError
from solver.problem_pins import read_pins
from solver.recipes import read_recipe, recipe
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


def compare(best: Plan, recipes: Sequence[str] = (), timeout: float = 60.0) -> list[Compared]:
    """Run every greedy planner on the question of a plan, and plan recipes beside its pins.

    Parameters
    ----------
    best : Plan
    recipes : sequence of str, optional
        As `solver.recipes.recipe` names them.
    timeout : float, optional
        Seconds to search for each recipe.

    Returns
    -------
    list of Compared
        The given plan first.

    Raises
    ------
    ProblemError
        Where there is no such recipe, or the mesh has no axis that one names.
    """
    for name in recipes:
        read_recipe(name, best.problem.mesh.axes)
    found = [Compared("shardproof", best if best.choice is not None else None, "", sum(best.stages.values()))]
    for name, planner in GREEDY.items():
        found.append(_ran(name, planner, best.problem))
    for name in recipes:
        found.append(_ran(name, partial(by_recipe, name=name, timeout=timeout), best.problem))
    return found


def _ran(name: str, planner: Callable[[Problem], Plan], asked: Problem) -> Compared:
    begin = time.monotonic()
    try:
        made: Plan | None = planner(asked)
        stuck = ""
    except (StuckError, ProblemError) as error:
        made, stuck = None, str(error)
    return Compared(name, made, stuck, time.monotonic() - begin)


def by_recipe(asked: Problem, name: str, timeout: float) -> Plan:
    """Plan a question with the pins of a recipe beside its own.

    Parameters
    ----------
    asked : Problem
    name : str
        As `solver.recipes.recipe` names them.
    timeout : float
        Seconds to search.

    Returns
    -------
    Plan
        The best that the recipe can do.

    Raises
    ------
    ProblemError
        Where the recipe does not fit, stands against the pins, or time ran out.
    """
    pins = recipe(name, asked.graph, asked.mesh)
    read = read_pins(asked.graph, asked.mesh, asked.refinement, pins, f"recipe {name}")
    made = plan_problem(asked.with_pins((*asked.pins, *read)), timeout)
    if made.choice is None:
        why = "stands against what else is asked" if made.status == "infeasible" else f"has no plan after {timeout:g} s"
        raise ProblemError(f"recipe {name!r} {why}")
    return made


@dataclass(frozen=True)
class Excess:
    """Where a plan takes longer than the best one; equal places of equal layers are one.

    Parameters
    ----------
    what : str
        A collective with its mesh axis, or ``compute``.
    at : tuple of str
        The tensors that are sent, or the ops that are cut less; the first in program order comes first.
    text : str
    more : int
        Picoseconds.
    """

    what: str
    at: tuple[str, ...]
    text: str
    more: int

    def __str__(self) -> str:
        others = len(self.at) - 1
        return f"{self.text}{f', and {others} more like it' if others else ''}: {duration(self.more)}"


def went_wrong(greedy: Plan, best: Plan) -> list[Excess]:
    """Return where a greedy plan takes longer than the best one, the longest first.

    Parameters
    ----------
    greedy, best : Plan
        For the same question, or for one with more pins.

    Returns
    -------
    list of Excess
    """
    sent, needed = _collectives(greedy), _collectives(best)
    found = []
    for place, sending in sent.items():
        spared = sum(needed[place].times.values()) if place in needed else 0
        more = sum(sending.times.values()) - spared
        found.append(Excess(place[0], tuple(sending.times), sending.text, more))
    less: dict[tuple[str, ...], dict[str, int]] = {}
    graph = best.problem.graph
    for node in graph.nodes.values():
        more = greedy.evaluation.compute(node.name) - best.evaluation.compute(node.name)
        place = (node.op, *(str(graph.tensors[tensor].shape) for tensor in node.results))
        less.setdefault(place, {})[node.name] = more
    for (op, *_), times in less.items():
        at = tuple(name for name, more in times.items() if more > 0)
        if at:
            text = f"{op} {at[0]!r} is cut less, or not at all"
            found.append(Excess("compute", at, text, sum(times.values())))
    found.sort(key=lambda one: (-one.more, one.text))
    return [one for one in found[:MOST] if one.more > 0]


@dataclass(frozen=True)
class _Sending:
    """What is sent at one kind of place: in words for the first tensor, and the picoseconds of each."""

    text: str
    times: dict[str, int]


VERBS = {
    "all_gather": "gathers {}",
    "all_reduce": "reduces {}",
    "reduce_scatter": "reduces and scatters {}",
    "all_to_all": "cuts {} otherwise",
    "permute": "swaps blocks of {}",
}
"""What a collective does with a tensor."""


def _collectives(plan: Plan) -> dict[tuple[str, ...], _Sending]:
    """Return what is sent by kind of place: the collective, the tensor's shape and maker, and who reads it."""
    found: dict[tuple[str, ...], _Sending] = {}
    graph = plan.problem.graph
    for reshard in plan.reshards:
        tensor = graph.tensors[reshard.tensor]
        maker = graph.nodes[tensor.producer].op if tensor.producer is not None else tensor.role
        readers = dict.fromkeys(graph.nodes[use.partition("/")[0]].op for use in reshard.uses if "/" in use)
        words = f" for {', '.join(readers)}" if readers else ", which leaves" if "output" in reshard.uses else ""
        for told, move in zip(reshard.collectives, reshard.moves, strict=True):
            place = f"{told.kind}[{told.axis}]", str(tensor.shape), maker, words
            did = VERBS.get(told.kind, f"{told.kind} of {{}}").format(f"{tensor.name!r}{_cut(move)}")
            sending = found.setdefault(place, _Sending(f"{did} over {told.axis}{words}", {}))
            sending.times[tensor.name] = sending.times.get(tensor.name, 0) + move.time
    return found


def _cut(move: Move) -> str:
    """Say at which dims a tensor is cut that a collective gathers, or cuts at others."""
    dims = dict.fromkeys(one.dim for axis in move.axes if isinstance(one := move.source[axis], Shard))
    return f" (cut at dim {', '.join(map(str, dims))})" if dims else ""
