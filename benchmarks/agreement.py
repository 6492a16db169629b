"""A planner of ours beside the real one: op by op, what each reads and makes of the same operands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ops.placement import Layout
from solver.graph import Node
from solver.plan import Plan


@dataclass(frozen=True)
class Told:
    """One op whose operands lie in both planners' answers alike.

    Parameters
    ----------
    node : Node
    text : str
        ``in OPERANDS | theirs NEEDED -> MADE | ours NEEDED -> MADE``, a layout as ``[S(0),R]``, ``-`` where they say
        nothing.
    same : bool
    """

    node: Node
    text: str
    same: bool


def compared(
    plan: Plan, made: Mapping[str, Layout], needed: Mapping[str, Layout], held: Mapping[str, Layout]
) -> Iterator[Told]:
    """Yield what both say of each op whose operands lie alike: the others only show where they parted before.

    Parameters
    ----------
    plan : Plan
        Ours.
    made, needed, held : mapping
        Theirs: tensor, use and tensor -> layout. What is missing is not compared.
    """
    problem, evaluation = plan.problem, plan.evaluation
    for node in problem.graph.nodes.values():
        uses = problem.graph.operand_uses(node.name)
        lies = {use: held.get(use.tensor, evaluation.made(use.tensor)) for use in uses}
        alike = [
            problem.canonical(use.tensor, lies[use]) in (evaluation.made(use.tensor), evaluation.held(use.tensor))
            for use in uses
        ]
        if not all(alike):
            continue
        theirs = [(use.tensor, needed.get(use.name)) for use in uses], [(one, made.get(one)) for one in node.results]
        ours = [evaluation.needed(use) for use in uses], [evaluation.made(tensor) for tensor in node.results]
        same = all(
            layout is None or problem.canonical(tensor, layout) == own
            for said, owns in zip(theirs, ours, strict=True)
            for (tensor, layout), own in zip(said, owns, strict=True)
        )
        reads, makes = ([layout for _, layout in said] for said in theirs)
        text = f"in {told(lies.values())} | theirs {told(reads)} -> {told(makes)} | "
        yield Told(node, text + f"ours {told(ours[0])} -> {told(ours[1])}", same)


def told(layouts: Iterable[Layout | None]) -> str:
    """Write layouts, ``[S(0),R] -``."""
    return " ".join("-" if layout is None else f"[{','.join(map(str, layout))}]" for layout in layouts)
