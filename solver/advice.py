"""What a plan comes from: why there is none, or what dominates it, what the wishes cost, and what would pay."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ops.bind import BoundRule, composes
from ops.placement import Replicate, Shard
from solver.explanation import Explanation, Finding
from solver.graph import Graph
from solver.mesh import Mesh
from solver.parts import bind_refined
from solver.plan import SECONDS, Plan
from solver.planner import nonnegative, plan, plan_problem
from solver.prices import prices, saved
from solver.problem import CAPABILITIES, Problem
from solver.words import all_of, duration, size

MOST = 5
"""Lines of one kind; what is left out is counted."""
PRICING = 0.75
"""The part of the time in which wishes are priced; what is left of it goes to capabilities."""
LARGE = 0.01
"""A tensor that takes this fraction of the peak memory is worth a line."""
DEAR = 0.02
"""Collectives or ops that take this fraction of the time are worth a line."""
SPENT = {"compute": "compute", "collective": "communication"}
"""What time is spent on, by the kind of its findings."""


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
        Where there is no plan its core and repairs. Where there is one: the collectives and the ops that dominate, the
        price of each wish, large tensors that stay whole on every device, ops that nothing can cut, and capabilities
        that would pay.

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
      compute of matmul 'y': 1.987 ns, 100% of the time
      the pin x:tp=S(0) costs nothing
      parameter 'w' is whole on every device: 4.096 kB
    """
    seconds = nonnegative("timeout", timeout)
    deadline = time.monotonic() + seconds
    return explain_plan(plan(graph, mesh, timeout=seconds / 2, **wishes), max(0.0, deadline - time.monotonic()))


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
        return replace(nothing, minimal=False, answer="Neither a plan nor a proof that there is none was found.")
    deadline = time.monotonic() + seconds
    pins, others = prices(found, time.monotonic() + PRICING * seconds)
    dear, busy = list(_dear(found)), list(_busy(found))
    rest = _rest(found, [*dear[:MOST], *busy[:MOST]])
    kinds = (
        dear,
        busy,
        rest,
        pins,
        _undone(found),
        others,
        _whole(found),
        _forced(found),
        _capabilities(found, deadline),
    )
    each = [list(findings) for findings in kinds]
    lines = [_headline(found)]
    for findings in each:
        lines += [f"  {finding.text}" for finding in findings[:MOST]]
        if len(findings) > MOST:
            lines.append(f"  and {len(findings) - MOST} more like it")
    told = tuple(finding for findings in each for finding in findings)
    return replace(nothing, answer="\n".join(lines), findings=told)


def _headline(found: Plan) -> str:
    asked = found.problem
    axes = ", ".join(f"{axis}={size}" for axis, size in zip(asked.mesh.axes, asked.mesh.sizes, strict=True))
    takes = f"{asked.graph.name} on {axes}: the plan takes {duration(found.evaluation.total)}"
    best = found.status == "optimal"
    if asked.objective == "communication":
        sent = duration(found.evaluation.communication)
        proved = "none communicates less" if best else f"none for less than {_least(found)}"
        return f"{takes}, of which it communicates for {sent}, and {proved}."
    return f"{takes}, and {'none is cheaper' if best else f'none takes less than {_least(found)}'}."


def _least(found: Plan) -> str:
    return duration(max(found.bound_ps, found.solver_bound_ps))


def _dear(found: Plan) -> Iterator[Finding]:
    """Tell the collectives that take most of the time, those alike together."""
    total = found.evaluation.total
    times: dict[str, list[int]] = {}
    names: dict[str, dict[str, None]] = {}
    for reshard in found.reshards:
        for told, move in zip(reshard.collectives, reshard.moves, strict=True):
            source = found.problem.graph.tensors[reshard.tensor].producer
            role = "stored tensors" if source is None else f"what {found.problem.graph.nodes[source].op} makes"
            what = f"{told.kind}[{told.axis}] of {role}"
            times.setdefault(what, []).append(move.time)
            names.setdefault(what, {})[reshard.tensor] = None
    for node, steps in found.kernels.items():
        for step in steps:
            axes = ",".join(found.problem.mesh.axes[axis] for axis in step.axes)
            role = f"inside {found.problem.graph.nodes[node].op}"
            times.setdefault(f"{step.kind}[{axes}] {role}", []).append(step.time)
    for what, spent in sorted(times.items(), key=lambda item: -sum(item[1])):
        if sum(spent) >= DEAR * total:
            many = f", {len(spent)} of them" if len(spent) > 1 else ""
            (first, *others) = names.get(what, {"": None})
            named = f" ({first!r})" if first and not others else ""
            text = f"{what}{named}: {duration(sum(spent))}, {sum(spent) / total:.0%} of the time{many}"
            yield Finding("collective", what, text, sum(spent) / SECONDS)


def _busy(found: Plan) -> Iterator[Finding]:
    """Tell the ops that compute longest, those of a kind together; of these the shape that takes most."""
    asked, total = found.problem, found.evaluation.total
    kinds: dict[str, dict[int, list[str]]] = {}
    for name, node in asked.graph.nodes.items():
        kinds.setdefault(node.op, {}).setdefault(id(asked.bound[name]), []).append(name)
    lines = []
    for kind, alike in kinds.items():
        times = [(sum(map(found.evaluation.compute, nodes)), nodes) for nodes in alike.values()]
        spent, count = sum(time for time, _ in times), sum(len(nodes) for _, nodes in times)
        most, (first, *others) = max(times, key=lambda one: one[0])
        if spent and spent >= DEAR * total:
            text = f"{duration(spent)}, {spent / total:.0%} of the time" + (f", {count} of them" if count > 1 else "")
            if len(times) > 1:
                text += f", {most / total:.0%} in {first!r}" + (
                    f" and {len(others)} more of its shape" if others else ""
                )
            name = f"compute of {kind}" + ("" if count > 1 else f" {first!r}")
            lines.append(Finding("compute", kind, f"{name}: {text}", spent / SECONDS))
    yield from sorted(lines, key=lambda one: -(one.seconds or 0))


def _rest(found: Plan, told: Sequence[Finding]) -> Iterator[Finding]:
    """Tell what part of the time is in neither of the lines about collectives and ops."""
    evaluation = found.evaluation
    named = {kind: sum(round((one.seconds or 0) * SECONDS) for one in told if one.kind == kind) for kind in SPENT}
    left = {
        "collective": evaluation.communication - named["collective"],
        "compute": evaluation.computing - named["compute"],
    }
    spent = sum(left.values())
    if spent >= DEAR * evaluation.total:
        parts = all_of([f"{duration(left[kind])} of {word}" for kind, word in SPENT.items() if left[kind]])
        text = f"all else: {duration(spent)}, {spent / evaluation.total:.0%} of the time ({parts})"
        yield Finding("rest", "", text, spent / SECONDS)


def _undone(found: Plan) -> Iterator[Finding]:
    """Tell the cuts that were pinned and that no op reads: the tensor is sent before each use."""
    asked, graph = found.problem, found.problem.graph
    for pin in asked.pins:
        uses = asked.uses.get(pin.subject, ())
        if not isinstance(pin.placement, Shard) or asked.mesh.sizes[pin.axis] == 1 or not uses:
            continue
        if any(found.evaluation.needed(use)[pin.axis] == pin.placement for use in uses):
            continue
        moves = [move for one in found.reshards if one.tensor == pin.subject for move in one.moves]
        sending = [move for move in moves if pin.axis in move.axes and move.time]
        if sending:
            at = all_of([f"{graph.nodes[use.op].op} {use.op!r}" for use in uses[:MOST]])
            spent = sum(move.time for move in sending)
            kinds = all_of(list(dict.fromkeys(move.kind for move in sending)))
            sent = f"{kinds} of {pin.subject!r} before it is read, {duration(spent)}"
            text = f"the pin {pin.source} is undone at {at}: {sent}"
            yield Finding("undone", pin.source, text, spent / SECONDS, place=pin.place)


def _whole(found: Plan) -> Iterator[Finding]:
    """Tell the large tensors that every device holds whole."""
    evaluation, graph = found.evaluation, found.problem.graph
    if all(size == 1 for size in found.problem.mesh.sizes):
        return
    for tensor in sorted(graph.tensors.values(), key=lambda tensor: -tensor.bytes):
        if tensor.bytes < LARGE * found.memory.peak:
            return
        if all(placement == Replicate() for placement in evaluation.made(tensor.name)):
            text = f"{tensor.role} {tensor.name!r} is whole on every device: {size(tensor.bytes)}"
            yield Finding("whole", tensor.name, text, bytes=tensor.bytes)


def _forced(found: Plan) -> Iterator[Finding]:
    """Tell the ops whose rules leave no mesh axis anything to cut, those that take longest first."""
    asked, evaluation = found.problem, found.evaluation
    if all(size == 1 for size in asked.mesh.sizes):
        return
    times = {node: evaluation.compute(node) for node, bound in asked.bound.items() if not _cuts(asked, bound)}
    for node, spent in sorted(times.items(), key=lambda item: -item[1]):
        if spent and spent >= DEAR * evaluation.total:
            bound = asked.bound[node]
            text = (
                f"{asked.graph.nodes[node].op} {node!r} runs whole on every device, {duration(spent)}: "
                f"{_uncut(asked, bound)} ({bound.rule.text})"
            )
            yield Finding("forced", node, text, spent / SECONDS)


def _uncut(asked: Problem, bound: BoundRule) -> str:
    """Say why nothing of an op is cut: its rule keeps all of it whole, or the sizes do not divide."""
    cuts = [row.cut for k in asked.offered(bound) if (row := bound.rows[k]).cut is not None]
    axes = [f"{axis}={size}" for axis, size in zip(asked.mesh.axes, asked.mesh.sizes, strict=True) if size > 1]
    if not cuts:
        return "nothing of it can be cut"
    sizes = {min(bound.most_blocks(bound.factors[f]), math.prod(bound.factors[f].parts[part:])) for f, part in cuts}
    fits = "divides none of" if len(axes) == 1 else "divide none of"
    none = (
        f"does not divide {min(sizes)}"
        if len(sizes) == len(axes) == 1
        else f"{fits} {all_of([*map(str, sorted(sizes))])}"
    )
    return f"its rule allows a cut, but {all_of(axes)} {none}"


def _cuts(asked: Problem, bound: BoundRule) -> bool:
    """Tell whether some mesh axis may cut an op."""
    for axis_size in asked.mesh.sizes:
        if axis_size > 1:
            rows = (bound.rows[k] for k in asked.offered(bound))
            if any(row.cut is not None and composes(bound, [row], [axis_size]) for row in rows):
                return True
    return False


def _capabilities(found: Plan, deadline: float) -> Iterator[Finding]:
    """Tell which capabilities that are not granted would save time."""
    asked = found.problem
    for name in sorted(CAPABILITIES - asked.capabilities):
        offered = asked.capabilities | {name}
        bound = bind_refined(asked.graph, asked.refinement.parts, offered)
        if all(len(bound[node].rows) == len(asked.bound[node].rows) for node in bound):
            continue
        if (left := deadline - time.monotonic()) <= 0:
            return
        other = plan_problem(replace(asked, capabilities=offered, bound=bound).with_pins(asked.pins), left)
        least, _ = saved(found, other) if other.choice is not None else (0, 0)
        if least > 0:
            most = "" if other.status == found.status == "optimal" else " or more"
            text = f"the capability {name} would save {duration(least)}{most}"
            yield Finding("capability", name, text, least / SECONDS)
