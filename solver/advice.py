"""What a plan comes from: why there is none, or what dominates it, what the wishes cost, and what would pay."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ops.placement import Replicate
from solver.explanation import Explanation
from solver.graph import Graph
from solver.mesh import Mesh
from solver.parts import bind_refined
from solver.plan import Plan
from solver.planner import plan, plan_problem
from solver.problem import CAPABILITIES, Problem
from solver.words import duration, size

MOST = 5
"""Lines of one kind; what is left out is counted."""
LARGE = 0.01
"""A tensor that takes this fraction of the peak memory is worth a line."""
DEAR = 0.02
"""A collective that takes this fraction of the time is worth a line."""


def explain(graph: Graph, mesh: Mesh, *, timeout: float = 60.0, **wishes: Any) -> Explanation:
    """Plan, and say what the answer comes from.

    Parameters
    ----------
    graph : Graph
    mesh : Mesh
    timeout : float, optional
        Seconds: half for the plan, half for the plans that the prices of wishes and capabilities take.
    **wishes
        As for `plan`.

    Returns
    -------
    Explanation
        Where there is no plan its core and repairs. Where there is one: the collectives that dominate, the price of
        each pin, large tensors that stay whole on every device, and capabilities that would pay.

    Raises
    ------
    ValueError
        As `plan` does.

    Examples
    --------
    >>> g = Graph("mlp")
    >>> x = g.input("x", (32, 64))
    >>> g.output(g.op("matmul", x, g.parameter("w", (64, 16)), name="y"))
    >>> print(explain(g, Mesh({"tp": 4}), pins={"x": "tp=S(0)"}))
    mlp on tp=4: the plan takes 1.987 ns, and none is cheaper.
      the pin x:tp=S(0) costs nothing
      parameter 'w' is whole on every device: 4.096 kB
    """
    deadline = time.monotonic() + timeout
    return explain_plan(plan(graph, mesh, timeout=timeout / 2, **wishes), max(0.0, deadline - time.monotonic()))


def explain_plan(found: Plan, seconds: float) -> Explanation:
    """Say what a plan, or the absence of one, comes from.

    Parameters
    ----------
    found : Plan
    seconds : float
        For the plans that the prices take; what there is no time for is left out, and counted.

    Returns
    -------
    Explanation
    """
    if found.explanation is not None:
        return found.explanation
    nothing = Explanation((), (), minimal=True)
    if found.choice is None:
        return replace(nothing, minimal=False, answer="There was no time to find a plan, or that there is none.")
    deadline = time.monotonic() + seconds
    lines = [
        _headline(found),
        *_shortened(list(_dear(found))),
        *_pins(found, deadline),
        *_shortened(list(_whole(found))),
        *_capabilities(found, deadline),
    ]
    return replace(nothing, answer="\n".join(lines))


def _headline(found: Plan) -> str:
    asked = found.problem
    axes = ", ".join(f"{axis}={size}" for axis, size in zip(asked.mesh.axes, asked.mesh.sizes, strict=True))
    proved = "and none is cheaper" if found.status == "optimal" else f"and none takes less than {_least(found)}"
    return f"{asked.graph.name} on {axes}: the plan takes {duration(found.evaluation.total)}, {proved}."


def _least(found: Plan) -> str:
    return duration(max(found.bound_ps, found.solver_bound_ps))


def _shortened(lines: list[str]) -> list[str]:
    return lines if len(lines) <= MOST else [*lines[:MOST], f"  and {len(lines) - MOST} more like it"]


def _dear(found: Plan) -> Iterator[str]:
    """Tell the collectives that take most of the time, those alike together."""
    total = found.evaluation.total
    times: dict[str, list[int]] = {}
    for reshard in found.reshards:
        for told, move in zip(reshard.collectives, reshard.moves, strict=True):
            source = found.problem.graph.tensors[reshard.tensor].producer
            role = "stored tensors" if source is None else f"what {found.problem.graph.nodes[source].op} makes"
            times.setdefault(f"{told.kind}[{told.axis}] of {role}", []).append(move.time)
    for node, steps in found.kernels.items():
        for step in steps:
            axes = ",".join(found.problem.mesh.axes[axis] for axis in step.axes)
            role = f"inside {found.problem.graph.nodes[node].op}"
            times.setdefault(f"{step.kind}[{axes}] {role}", []).append(step.time)
    for what, spent in sorted(times.items(), key=lambda item: -sum(item[1])):
        if sum(spent) >= DEAR * total:
            times_told = f", {len(spent)} of them" if len(spent) > 1 else ""
            yield f"  {what}: {duration(sum(spent))}, {sum(spent) / total:.0%} of the time{times_told}"


def _pins(found: Plan, deadline: float) -> list[str]:
    """Tell what each pin costs: the price of the plan against that of the best plan without it."""
    asked = found.problem
    lines: list[str] = []
    sources = list(dict.fromkeys(pin.source for pin in asked.pins))
    for number, source in enumerate(sources):
        if number == MOST:
            return [*lines, f"  and {len(sources) - MOST} more pins, not priced"]
        without = asked.with_pins(tuple(pin for pin in asked.pins if pin.source != source))
        saved = _saved(found, without, deadline)
        if saved is None:
            lines.append(f"  the pin {source} is not priced: there was no time")
        else:
            lines.append(f"  the pin {source} costs {duration(saved) if saved > 0 else 'nothing'}")
    return lines


def _saved(found: Plan, asked: Problem, deadline: float) -> int | None:
    """Return what the best plan for another question saves in picoseconds; None where it was not found in time."""
    left = deadline - time.monotonic()
    if left <= 0:
        return None
    other = plan_problem(asked, left)
    return found.evaluation.total - other.evaluation.total if other.status == "optimal" else None


def _whole(found: Plan) -> Iterator[str]:
    """Tell the large tensors that every device holds whole."""
    evaluation, graph = found.evaluation, found.problem.graph
    if all(size == 1 for size in found.problem.mesh.sizes):
        return
    stored = sorted(graph.tensors.values(), key=lambda tensor: -tensor.bytes)
    for tensor in stored:
        if tensor.bytes < LARGE * found.memory.peak:
            return
        if all(placement == Replicate() for placement in evaluation.made(tensor.name)):
            yield f"  {tensor.role} {tensor.name!r} is whole on every device: {size(tensor.bytes)}"


def _capabilities(found: Plan, deadline: float) -> Iterator[str]:
    """Tell which capabilities that are not granted would save time."""
    asked = found.problem
    for name in sorted(CAPABILITIES - asked.capabilities):
        offered = asked.capabilities | {name}
        bound = bind_refined(asked.graph, asked.refinement.parts, offered)
        if all(len(bound[node].rows) == len(asked.bound[node].rows) for node in bound):
            continue
        saved = _saved(found, replace(asked, capabilities=offered, bound=bound).with_pins(asked.pins), deadline)
        if saved:
            yield f"  the capability {name} would save {duration(saved)}"
