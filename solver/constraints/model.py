"""A problem as one Z3 model, and its models as choices."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ops.placement import Partial, Placement, Replicate
from solver.choice import Choice
from solver.constraints.expression import add_expressions
from solver.constraints.layouts import Layouts, Place
from solver.constraints.op_rules import OpRules
from solver.constraints.pins import add_pins
from solver.constraints.reason import Reason
from solver.constraints.repeats import add_repeats, repeated_places
from solver.constraints.reshard import Communication, confined
from solver.constraints.ties import add_ties
from solver.constraints.variables import Clauses
from solver.deadline import keep_time
from solver.problem import Problem


def whole_graph(problem: Problem, *, explaining: bool = False) -> Clauses:
    """Write the whole-graph model without costs.

    Parameters
    ----------
    problem : Problem
    explaining : bool, optional
        Whether reasons will be left out to see which are needed. Then a use or result gets a Boolean for each of its
        placements, also for those that no row of its op offers: without its rule it may lie in any way.

    Returns
    -------
    Clauses
        Booleans ``row(op, axis, k)``, and ``held(tensor, axis, placement)`` for sources and pinned tensors; every hard
        group under its reason. ``made(tensor, axis, placement)`` and ``needed(op, slot, axis, placement)`` follow from
        the rows and are there where something else speaks of them: where communication is restricted, and for the
        uses that are pinned. Where it is restricted tied outputs have ``delivered(tensor, axis, placement)``, too.
        Elsewhere any layout can be brought to any other, so nothing hangs on them.

    Notes
    -----
    Rows are told only what they exclude, so where several rows of an op are true on a mesh axis each of them will do;
    only where explaining they are kept apart. Only there rules and shapes stand under reasons, too.
    """
    clauses = Clauses(lean=not explaining)
    layouts, rules = Layouts(clauses, problem, explaining), OpRules(clauses, problem, explaining)
    near = confined(problem)
    for tensor in problem.graph.tensors:
        _add_held(layouts, tensor, near)
    for node in problem.graph.nodes:
        keep_time()
        rules.add(node, spoken_of(problem, node, near))
    Communication(layouts, near).add()
    add_repeats(layouts)
    add_pins(layouts)
    add_ties(layouts, near)
    add_expressions(layouts)
    return clauses


def _add_held(layouts: Layouts, tensor: str, near: Collection[str]) -> None:
    """Add the storage of a source, or the held layout of a pinned result."""
    clauses, problem = layouts.clauses, layouts.problem
    fact, place, pinned = problem.graph.tensors[tensor], ("held", tensor), tensor in problem.spoken_of
    if fact.producer is not None:
        if pinned:
            layouts.free(tensor, place)
        if tensor in near and problem.delivered_as(tensor) is not None:
            layouts.free(tensor, ("delivered", tensor), partial=layouts.explaining, legal=False)
        return
    partial = pinned or (layouts.explaining and tensor in near)
    layouts.free(tensor, place, partial=partial)
    clauses.under(storage_reason(problem, tensor))
    layouts.only(tensor, place, lambda axis, label: may_be_stored(problem, tensor, label))


def storage_reason(problem: Problem, tensor: str) -> Reason:
    """Return the fact that a source is stored whole, where it is a constant, or at least without partial sums."""
    role = problem.graph.tensors[tensor].role
    how = "is stored whole on every device" if role == "constant" else "is never stored as an unreduced sum"
    return Reason("storage", tensor, f"{role} {tensor!r} {how}")


def may_be_stored(problem: Problem, tensor: str, placement: Placement) -> bool:
    """Tell whether a source may be stored so on a mesh axis."""
    if problem.graph.tensors[tensor].role == "constant":
        return placement == Replicate()
    return not isinstance(placement, Partial)


def spoken_of(problem: Problem, node: str, near: Collection[str]) -> list[tuple[Place, str]]:
    """Return the uses and results of an op on which something hangs, and their tensors; `near` are those confined."""
    if node in problem.repeating:
        return repeated_places(problem, node)
    every = problem.graph.operand_uses(node)
    uses = [use for use in every if use.tensor in near or use.name in problem.spoken_of]
    places: list[tuple[Place, str]] = [(("needed", node, use.slot), use.tensor) for use in uses]
    results = [tensor for tensor in problem.graph.nodes[node].results if tensor in near]
    return places + [
        (("made", tensor), tensor)
        for tensor in results
        if problem.uses[tensor] or tensor in problem.spoken_of or problem.graph.is_output(tensor)
    ]


def read_choice(clauses: Clauses, problem: Problem, true: Iterable[str]) -> Choice:
    """Read a model as a choice.

    Parameters
    ----------
    clauses : Clauses
    problem : Problem
    true : iterable of str
        The symbols that the model makes true.

    Returns
    -------
    Choice
        With the held layouts of pinned results.
    """
    rows: dict[str, dict[int, int]] = {}
    held: dict[str, dict[int, Placement]] = {}
    for fact in clauses.facts(true):
        if fact[0] == "row":
            by_axis = rows.setdefault(fact[1], {})
            by_axis[fact[2]] = min(fact[3], by_axis.get(fact[2], fact[3]))
        elif fact[0] == "held":
            held.setdefault(fact[1], {})[fact[2]] = fact[3]
    layouts = {
        tensor: problem.canonical(tensor, [placed[axis] for axis in sorted(placed)]) for tensor, placed in held.items()
    }
    stored = {tensor: layout for tensor, layout in layouts.items() if problem.graph.tensors[tensor].producer is None}
    chosen = {node: tuple(by_axis[axis] for axis in sorted(by_axis)) for node, by_axis in rows.items()}
    return Choice(chosen, stored, {tensor: layout for tensor, layout in layouts.items() if tensor not in stored})
