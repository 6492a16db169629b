"""A plan as text: an argument for itself."""

from __future__ import annotations

import io
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from ops.placement import layout_text
from solver.choice import Evaluation
from solver.report.remarks import remarks
from solver.words import duration, percent, printable, size, size_up, sizes_apart

if TYPE_CHECKING:
    from solver.plan import Plan

MOST_ROWS = 12
"""Rows of the longer tables, unless the whole is asked for; what is left out is counted."""
WIDTH = 110


def plan_text(plan: Plan, *, whole: bool = False) -> str:
    """Return a plan as text.

    Parameters
    ----------
    plan : Plan
    whole : bool, optional
        Whether to leave nothing out: every source, every op, every reshard that has a price, every remark.

    Returns
    -------
    str
        The verdict, the totals with the bound, where the time goes, the dear reshards, and what is worth a look.
    """
    lines = [headline(plan)]
    if plan.explanation is not None:
        lines.append(str(plan.explanation))
    lines.append(closest(plan))
    if plan.choice is not None:
        most = sys.maxsize if whole else MOST_ROWS
        lines += [
            totals(plan),
            wishes(plan),
            stored(plan, most),
            tied(plan),
            rendered(_op_table(plan, most)),
            _reshards(plan, most),
        ]
        lines.append(_kernels(plan, most))
        lines += remarks(plan, sys.maxsize) if whole else remarks(plan)
    return "\n".join(line for line in lines if line)


def headline(plan: Plan) -> str:
    """Return the verdict in one line."""
    graph, mesh = plan.problem.graph, plan.problem.mesh
    axes = ", ".join(f"{axis}={size}" for axis, size in zip(mesh.axes, mesh.sizes, strict=True))
    ops = f"{len(graph.nodes)} op{'s' * (len(graph.nodes) != 1)}"
    asked = f"{printable(graph.name)}: {ops} on {axes} ({mesh.hardware.name})"
    verdict = {
        "optimal": "optimal",
        "feasible": f"feasible, gap {percent(plan.gap or 0)}",
        "infeasible": "infeasible: no plan exists",
        "unknown": "unknown: neither a plan nor a proof that there is none was found",
    }[plan.status]
    return f"{asked}: {verdict}"


def closest(plan: Plan) -> str:
    """Return what is known where a search within a memory budget ended without an answer."""
    known = plan.closest
    if known is None or plan.status != "unknown":
        return ""
    least = f"every plan fills at least {size(known.least)} of each device" if known.least else ""
    lines = [f"  known   {'; '.join(filter(None, ('time ran out' if known.late else 'the search ended', least)))}"]
    if known.smallest is not None:
        peak = size_up(Evaluation(plan.problem, known.smallest).memory.peak)
        lines.append(f"  hint    the smallest plan found fills {peak} of each device: allow that much, or more time")
    return "\n".join(lines)


def totals(plan: Plan) -> str:
    """Return time, bound, bytes and memory, a line each."""
    found = plan.evaluation
    sent = sorted(found.sent_by_kind.items(), key=lambda one: -one[1])
    kinds = ", ".join(f"{kind} {size(count)}" for kind, count in sent)
    parts = ", ".join(f"{part} {size(count)}" for part, count in plan.memory.parts.items() if count)
    allowed = "" if plan.problem.memory is None else f" (of {size(plan.problem.memory)})"
    spent = f"{duration(found.computing)} compute + {duration(found.communication)}"
    bound = f"bound {duration(plan.bound_ps)}, gap {percent(plan.gap or 0)}, proof: {plan.proof}"
    if plan.problem.objective == "communication":
        bound = f"communication first: {bound}; then compute: bound {duration(plan.compute_bound_ps)}"
    if plan.solver_bound_ps > plan.bound_ps:
        bound += f" (Z3 adds: nothing below {duration(plan.solver_bound_ps)})"
    return "\n".join(
        (
            f"  time    {duration(found.total)} = {spent} communication",
            f"  proved  {bound}",
            f"  sent    {size(found.sent)} per device" + (f": {kinds}" if kinds else ""),
            *_over_axes(plan),
            f"  memory  {size(plan.memory.peak)}{allowed} per device at the peak" + (f": {parts}" if parts else ""),
        )
    )


def _over_axes(plan: Plan) -> Iterator[str]:
    """Tell over which mesh axes a device sends how much, a budget beside it; nothing where there is none of both."""
    sent, budget = plan.evaluation.sent_by_axis, plan.problem.budget
    if any(sent.values()) or budget is not None:
        told = [
            " of ".join(sizes_apart(count, budget.most)) if budget is not None and axis == budget.axis else size(count)
            for axis, count in sent.items()
        ]
        yield "  axes    " + ", ".join(f"{count} over {axis}" for count, axis in zip(told, sent, strict=True))


def wishes(plan: Plan) -> str:
    """Return the policies, the constraints and the overlap that the plan was asked for, a line each kind."""
    asked = plan.problem
    hidden = ", ".join(f"{float(part):.0%} of {kind}" for kind, part in asked.overlap)
    lines = [f"  policy  {'; '.join(map(str, asked.policy))}"] if asked.policy else []
    lines += [f"  wanted  {printable(one.text)}" for one in asked.expressions]
    lines += [f"  hidden  {hidden}: runs beside compute, and is in no time here"] if hidden else []
    return "\n".join(lines)


def stored(plan: Plan, most: int) -> str:
    """Return how the sources are stored, those alike told together where they are many."""
    alike: dict[tuple[str, str], list[str]] = {}
    for tensor in plan.problem.graph.tensors.values():
        if tensor.producer is None and tensor.role != "constant":
            layout = layout_text(plan.evaluation.made(tensor.name))
            alike.setdefault((tensor.role, layout), []).append(tensor.name)
    told = [
        f"{layout} {role} {printable(names[0])}" if len(names) == 1 else f"{layout} {_counted(role, names, most)}"
        for (role, layout), names in alike.items()
    ]
    more = [f"and {len(told) - most} more layouts"] if len(told) > most else []
    return "  stored  " + "; ".join([*told[:most], *more]) if told else ""


def tied(plan: Plan) -> str:
    """Return how many tensors follow others, and what gradients and new tensors cost, whose latency is shared."""
    asked = plan.problem
    sources = sum(asked.graph.tensors[follower].producer is None for follower in asked.ties)
    told = []
    if asked.ties:
        kinds = ((sources, "stored"), (len(asked.ties) - sources, "delivered"))
        counted = ", ".join(f"{count} {what}" for count, what in kinds if count)
        told.append(f"{counted} as another tensor is stored")
    if untied := len(asked.graph.ties) - len(asked.ties):
        told.append(f"{untied} let go")
    if asked.bucketed:
        spent = sum(reshard.time for reshard in plan.reshards if reshard.tensor in asked.bucketed)
        told.append(f"{duration(spent)} for reshards of gradients and new tensors, in buckets")
    return "  tied    " + "; ".join(told) if told else ""


def _counted(role: str, names: Sequence[str], most: int) -> str:
    """Return how many sources there are, and their names where everything is told."""
    named = f" {', '.join(map(printable, names))}" if most == sys.maxsize else ""
    return f"{len(names)} {role}s{named}"


def _op_table(plan: Plan, most: int) -> Table:
    found, graph = plan.evaluation, plan.problem.graph
    shown = Table("op", "kind", "result", "made", "compute", box=box.SIMPLE_HEAD, title=None)
    shown.columns[-1].justify = "right"
    dearest = sorted(graph.nodes.values(), key=lambda node: -found.compute(node.name))
    listed = {node.name for node in dearest[:most]}
    for node in graph.nodes.values():
        if node.name in listed:
            first = node.results[0]
            shown.add_row(
                Text(printable(node.name)), node.op, Text(str(list(graph.tensors[first].shape))),
                Text(layout_text(found.made(first))), duration(found.compute(node.name)),
            )  # fmt: skip
    if len(graph.nodes) > len(listed):
        shown.caption = f"the {len(listed)} ops that compute longest, of {len(graph.nodes)}"
    return shown


def _reshards(plan: Plan, most: int) -> str:
    dear = sorted((r for r in plan.reshards if r.time), key=lambda reshard: -reshard.time)
    if not dear:
        return "  nothing is resharded at a price"
    shown = Table("reshard", "from", "to", "moves", "sent", "time", box=box.SIMPLE_HEAD)
    for column in shown.columns[-2:]:
        column.justify = "right"
    for reshard in dear[:most]:
        moves = ", ".join(f"{m.kind}[{','.join(plan.problem.mesh.axes[a] for a in m.axes)}]" for m in reshard.moves)
        shown.add_row(
            Text(printable(reshard.tensor)), Text(layout_text(reshard.source)), Text(layout_text(reshard.target)),
            Text(moves), size(reshard.bytes), duration(reshard.time),
        )  # fmt: skip
    if len(dear) > most:
        shown.caption = f"the {most} dearest reshards, of {len(dear)}"
    return rendered(shown)


def _kernels(plan: Plan, most: int) -> str:
    """Return what kernels send themselves, an op a row."""
    sending = {node: steps for node, steps in plan.kernels.items() if any(step.time for step in steps)}
    if not sending:
        return ""
    shown = Table("kernel", "kind", "sends", "sent", "time", box=box.SIMPLE_HEAD)
    for column in shown.columns[-2:]:
        column.justify = "right"
    for node in sorted(sending, key=lambda node: -sum(step.time for step in sending[node]))[:most]:
        steps = sending[node]
        axes = [",".join(plan.problem.mesh.axes[axis] for axis in step.axes) for step in steps]
        called = Counter(
            f"{step.kind}[{named}]" + f" of {step.tensor}" * bool(step.tensor)
            for step, named in zip(steps, axes, strict=True)
        )
        shown.add_row(
            Text(printable(node)), plan.problem.graph.nodes[node].op,
            Text(", ".join(name if count == 1 else f"{count} {name}" for name, count in called.items())),
            size(sum(step.bytes for step in steps)), duration(sum(step.time for step in steps)),
        )  # fmt: skip
    if len(sending) > most:
        shown.caption = f"the {most} kernels that send longest, of {len(sending)}"
    return rendered(shown)


def rendered(shown: RenderableType) -> str:
    """Return what rich would draw, as plain text."""
    drawn = io.StringIO()  # a console of its own file: rich would touch stdout, which may be closed or full
    Console(file=drawn, width=WIDTH, color_system=None, force_terminal=False).print(shown)
    return "\n".join(line.rstrip() for line in drawn.getvalue().splitlines() if line.strip())
