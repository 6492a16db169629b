"""A plan as text: an argument for itself."""

from __future__ import annotations

import io
from collections import Counter
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from ops.placement import layout_text
from solver.report.remarks import remarks

if TYPE_CHECKING:
    from solver.plan import Plan

MOST_ROWS = 12
"""Rows of the longer tables; what is left out is counted."""
WIDTH = 110


def plan_text(plan: Plan) -> str:
    """Return a plan as text.

    Parameters
    ----------
    plan : Plan

    Returns
    -------
    str
        The verdict, the totals with the bound, where the time goes, the dear reshards, and what is worth a look.
    """
    lines = [headline(plan)]
    if plan.explanation is not None:
        lines.append(plan.explanation.story)
    if plan.choice is not None:
        lines += [totals(plan), stored(plan), rendered(_op_table(plan)), _reshards(plan), *remarks(plan)]
    return "\n".join(line for line in lines if line)


def headline(plan: Plan) -> str:
    """Return the verdict in one line."""
    graph, mesh = plan.problem.graph, plan.problem.mesh
    axes = ", ".join(f"{axis}={size}" for axis, size in zip(mesh.axes, mesh.sizes, strict=True))
    asked = f"{printable(graph.name)}: {len(graph.nodes)} ops on {axes} ({mesh.hardware.name})"
    verdict = {
        "optimal": "optimal",
        "feasible": f"feasible, gap {plan.gap or 0:.2%}",
        "infeasible": "infeasible: no plan exists",
        "unknown": "unknown: out of time with no plan",
    }[plan.status]
    return f"{asked}: {verdict}"


def totals(plan: Plan) -> str:
    """Return time, bound, bytes and memory, a line each."""
    found = plan.evaluation
    compute = sum(found.compute(node) for node in plan.problem.graph.nodes)
    sent: Counter[str] = Counter()
    for reshard in plan.reshards:
        for move in reshard.moves:
            sent[move.kind] += move.bytes
    kinds = ", ".join(f"{kind} {size(count)}" for kind, count in sent.most_common() if count)
    parts = ", ".join(f"{part} {size(count)}" for part, count in plan.memory.parts.items() if count)
    spent = f"{duration(compute)} compute + {duration(found.total - compute)}"
    bound = f"bound {duration(plan.bound_ps)}, gap {plan.gap or 0:.2%}, proof: {plan.proof}"
    if plan.solver_bound_ps > plan.bound_ps:
        bound += f" (Z3 adds: nothing below {duration(plan.solver_bound_ps)})"
    return "\n".join(
        (
            f"  time    {duration(found.total)} = {spent} communication",
            f"  proved  {bound}",
            f"  sent    {size(sum(sent.values()))} per device" + (f": {kinds}" if kinds else ""),
            f"  memory  {size(plan.memory.peak)} per device at the peak" + (f": {parts}" if parts else ""),
        )
    )


def stored(plan: Plan) -> str:
    """Return how the sources are stored, those alike told together."""
    alike: dict[tuple[str, str], list[str]] = {}
    for tensor in plan.problem.graph.tensors.values():
        if tensor.producer is None and tensor.role != "constant":
            layout = layout_text(plan.evaluation.made(tensor.name))
            alike.setdefault((tensor.role, layout), []).append(tensor.name)
    told = [
        f"{layout} {role} {printable(names[0])}" if len(names) == 1 else f"{layout} {len(names)} {role}s"
        for (role, layout), names in alike.items()
    ]
    more = [f"and {len(told) - MOST_ROWS} more layouts"] if len(told) > MOST_ROWS else []
    return "  stored  " + "; ".join([*told[:MOST_ROWS], *more]) if told else ""


def _op_table(plan: Plan) -> Table:
    found, graph = plan.evaluation, plan.problem.graph
    shown = Table("op", "kind", "result", "made", "compute", box=box.SIMPLE_HEAD, title=None)
    shown.columns[-1].justify = "right"
    dearest = sorted(graph.nodes.values(), key=lambda node: -found.compute(node.name))
    listed = {node.name for node in dearest[:MOST_ROWS]}
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


def _reshards(plan: Plan) -> str:
    dear = sorted((r for r in plan.reshards if r.time), key=lambda reshard: -reshard.time)
    if not dear:
        return "  nothing is resharded at a price"
    shown = Table("reshard", "from", "to", "moves", "sent", "time", box=box.SIMPLE_HEAD)
    for column in shown.columns[-2:]:
        column.justify = "right"
    for reshard in dear[:MOST_ROWS]:
        moves = ", ".join(f"{m.kind}[{','.join(plan.problem.mesh.axes[a] for a in m.axes)}]" for m in reshard.moves)
        shown.add_row(
            Text(printable(reshard.tensor)), Text(layout_text(reshard.source)), Text(layout_text(reshard.target)),
            Text(moves), size(reshard.bytes), duration(reshard.time),
        )  # fmt: skip
    if len(dear) > MOST_ROWS:
        shown.caption = f"the {MOST_ROWS} dearest reshards, of {len(dear)}"
    return rendered(shown)


def rendered(shown: RenderableType) -> str:
    """Return what rich would draw, as plain text."""
    drawn = io.StringIO()  # a console of its own file: rich would touch stdout, which may be closed or full
    Console(file=drawn, width=WIDTH, color_system=None, force_terminal=False).print(shown)
    return "\n".join(line.rstrip() for line in drawn.getvalue().splitlines() if line.strip())


def printable(name: str) -> str:
    r"""Return a name with what cannot be printed in a line written as an escape.

    Examples
    --------
    >>> printable("new" + chr(10) + "line")
    'new\\nline'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


def duration(picoseconds: int) -> str:
    """Return a time in the unit that reads best.

    Examples
    --------
    >>> duration(1_234_500_000), duration(7_000)
    ('1.234 ms', '7 ns')
    """
    for unit, factor in (("s", 10**12), ("ms", 10**9), ("us", 10**6), ("ns", 10**3)):
        if picoseconds >= factor:
            return f"{picoseconds / factor:.4g} {unit}"
    return f"{picoseconds} ps"


def size(count: int) -> str:
    """Return bytes in the unit that reads best (1 GB = 10^9).

    Examples
    --------
    >>> size(3_145_728), size(12)
    ('3.146 MB', '12 B')
    """
    for unit, factor in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= factor:
            return f"{count / factor:.4g} {unit}"
    return f"{count} B"
