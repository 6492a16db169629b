"""Changes of what was asked after which there is a plan, each planned and priced."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from ops.placement import Partial, Shard
from solver.constraints.check import Checker
from solver.constraints.policy import untie
from solver.constraints.reason import Reason
from solver.deadline import leaving_at
from solver.explain.core import Core
from solver.explain.correction import Feasible, corrections
from solver.explanation import Repair
from solver.graph import Graph
from solver.mesh import Mesh
from solver.padding import Cell, Padded, first_dim, padded
from solver.parts import bind_refined, refine
from solver.plan import SECONDS, Plan
from solver.problem import CAPABILITIES, Pin, Problem
from solver.words import all_of, size_up

MOST = 5
"""Repairs of one kind."""
MOST_DIMS = 12
"""Dims that a sentence names."""


@dataclass(frozen=True, eq=False)
class Change:
    """A change of what was asked.

    Parameters
    ----------
    text, change
        See `solver.explanation.Repair`.
    asked : Problem
        What is asked then.
    """

    text: str
    change: Mapping[str, Any]
    asked: Problem


def find_repairs(
    asked: Problem, checker: Checker | None, core: Core, seconds: float, solve: Callable[[Problem, float], Plan | None]
) -> tuple[tuple[Repair, ...], str]:
    """Find what would make an infeasible problem feasible, and what the plans then cost.

    Parameters
    ----------
    asked : Problem
    checker : Checker or None
        Holds its model.
    core : Core
    seconds : float
        Half of it finds changes, the rest prices them; what there is no time for is not priced, or not told.
    solve : callable
        ``(problem, seconds) -> plan``; None where there was no time for it.

    Returns
    -------
    tuple of Repair, str
        The cheapest plan first, those without a price last; and why there are none, or that there may be more.
    """
    begin = time.monotonic()
    changes, cut = _changes(asked, checker, core, begin, seconds / 2)
    priced = []
    for number, change in enumerate(changes):
        left = seconds - (time.monotonic() - begin)
        priced.append(_priced(change, solve, left / (len(changes) - number)))
    known = [one for one in priced if one is not None]
    repairs = tuple(sorted(known, key=lambda one: (one.cost is None, one.cost or 0.0)))
    if not repairs:
        return (), _none_found(changes, cut)
    return repairs, "There may be other repairs: there was no time to look for all." if cut else ""


def _none_found(changes: Sequence[Change], out_of_time: bool) -> str:
    """Say why there are no repairs."""
    if changes:
        tried = all_of([change.text for change in changes[:MOST]])
        return f"No repair was found: after this no plan within the budget was found in the time there was: {tried}."
    if out_of_time:
        return "No repair was found in the time there was."
    return "No repair was found: no other mesh size, padding or capability that was tried gives a plan."


def repair(text: str, change: Mapping[str, Any], found: Plan) -> Repair:
    """Return a change with the time of the plan that was found with it, whatever was to be least.

    Parameters
    ----------
    text, change
        See `solver.explanation.Repair`.
    found : Plan
        With a choice.
    """
    return Repair(text, change, found.evaluation.total / SECONDS, found.memory.peak, found.status == "optimal")


def _priced(change: Change, solve: Callable[[Problem, float], Plan | None], seconds: float) -> Repair | None:
    """Plan with a change, and with more of a budget where all plans need it; None where that gives no plan."""
    budgets = change.asked.budget is not None or change.asked.memory is not None
    found = solve(change.asked, seconds) if seconds > 0 else None
    if found is not None and found.status == "infeasible":
        return _with_more(change, found)
    if found is None or found.choice is None:
        return None if budgets else Repair(change.text, change.change)
    return repair(change.text, change.change, found)


def _with_more(change: Change, found: Plan) -> Repair | None:
    """Return a change together with the least budget that its plans need; None where it is no budget that they lack."""
    for more in found.explanation.repairs if found.explanation is not None else ():
        told = _allowing(more.change, change.asked)
        if told:
            both = dict(change.change)
            for key, value in more.change.items():
                both[key] = [*both[key], *value] if key in both and isinstance(value, list) else value
            return replace(more, text=f"{change.text}, and {told}", change=both)
    return None


def _allowing(change: Mapping[str, Any], asked: Problem) -> str:
    """Say how much more of a budget a change allows; nothing where it is no such change."""
    if "memory" in change:
        dropped = "".join(f", without the policy {policy}" for policy in change.get("drop_policy", ()))
        return f"allow {size_up(change['memory'])} of memory per device{dropped}"
    if "traffic" in change and asked.budget is not None:
        return f"allow {size_up(change['traffic'])} over {asked.budget.axis}"
    return ""


def _changes(
    asked: Problem, checker: Checker | None, core: Core, begin: float, seconds: float
) -> tuple[list[Change], bool]:
    """Return changes, and whether there was no time to look for all: half of it is for the wishes."""
    found: list[Change] = []
    ended = 0
    half, end = begin + seconds / 2, begin + seconds
    for kind, deadline in (
        (_wishes_given_up(asked, checker, core, half), half),
        (_other_changes(asked, core, end), end),
    ):
        with leaving_at(deadline):
            for change in kind:
                found.append(change)
            ended += time.monotonic() <= deadline
    return found, ended < 2


def _other_changes(asked: Problem, core: Core, deadline: float) -> Iterator[Change]:
    if any(reason.kind == "divisibility" for group in core.support for reason in group):
        yield from _other_meshes(asked, core, deadline)
        yield from _padded_sizes(asked, core, deadline)
    if any(reason.kind == "rule" for group in core.support for reason in group):
        yield from more_capabilities(asked, deadline)
    yield from _partial_deliveries(asked, core, deadline)


# -------------------------------------------------------------------------------------------------------- the wishes


def _wishes_given_up(asked: Problem, checker: Checker | None, core: Core, deadline: float) -> Iterator[Change]:
    for given_up in corrections(core.chosen, Feasible(asked, checker), deadline, MOST):
        pins = tuple(pin for pin in asked.pins if not any(_speaks_of(reason, pin) for reason in given_up))
        changed = asked.with_pins(pins)
        dropped = [_pin_text(reason) for reason in given_up if reason.kind == "pin"]
        told = [f"drop the pin{'s' * (len(dropped) > 1)} {all_of(dropped)}"] if dropped else []
        change: dict[str, Any] = dict(_pins_changed(asked, changed))
        if any(reason.kind == "communication" for reason in given_up):
            changed = replace(changed, communication="any")
            told.append('let communication be "any"')
            change["communication"] = "any"
        if refused := {reason.source for reason in given_up if reason.kind == "policy"}:
            changed = replace(changed, policy=tuple(one for one in changed.policy if str(one) not in refused))
            told += [f"drop the policy {policy}" for policy in sorted(refused)]
            change["drop_policy"] = sorted(refused)
        if unsaid := {reason.source for reason in given_up if reason.kind == "expression"}:
            changed = replace(changed, expressions=tuple(one for one in changed.expressions if one.text not in unsaid))
            told += [f"drop the constraint {text}" for text in sorted(unsaid)]
            change["drop_constraint"] = sorted(unsaid)
        if followers := [reason.subject for reason in given_up if reason.kind == "tie"]:
            changed = replace(changed, policy=(*changed.policy, untie(*followers)))
            told += [f"let the tie of {follower!r} go (--untie {shlex.quote(follower)})" for follower in followers]
            change["untie"] = followers
        yield Change(", and ".join(told), {key: value for key, value in change.items() if value}, changed)


def _pins_changed(asked: Problem, changed: Problem) -> Iterator[tuple[str, list[str]]]:
    """Yield which pins to drop, as they were written, and which to set: those of a dropped glob that remain."""
    kept = set(changed.pins)
    dropped = dict.fromkeys(pin.source for pin in asked.pins if pin not in kept)
    yield "drop", list(dropped)
    axes = asked.mesh.axes
    remaining = (pin for pin in changed.pins if pin.source in dropped)
    yield "pin", [f"{pin.subject}:{axes[pin.axis]}={pin.placement}" for pin in remaining]


def _speaks_of(reason: Reason, pin: Any) -> bool:
    return reason.kind == "pin" and (reason.subject, reason.source) == (pin.subject, pin.source)


def _pin_text(reason: Reason) -> str:
    """Return a pin as it was written; one of many that a glob pinned with its own subject."""
    written, _, placed = reason.source.rpartition(":")
    return reason.source if written == reason.subject else f"{reason.subject}:{placed} (of {written})"


# ---------------------------------------------------------------------------------------------------------- the mesh


def _other_meshes(asked: Problem, core: Core, deadline: float) -> Iterator[Change]:
    """Yield for each mesh axis of a core the nearest sizes that have a plan, and with as many devices the nearest one.

    Size 1, which gives an axis up, is offered where no size between gives a plan; none more than twice as large is.
    """
    mesh = asked.mesh
    lengths = _lengths(asked, core)
    for axis in mesh.axes if core.view is None else core.view.problem.mesh.axes:
        size = mesh.sizes[mesh.axes.index(axis)]
        whole = {**dict(_sizes(mesh)), axis: size}
        smaller = [n for n in range(size - 1, 1, -1) if any(length % n == 0 for length in (size, *lengths))]
        larger = [n for n in range(size + 1, 2 * size + 1) if any(length % n == 0 for length in lengths)]
        offers = [
            [[{**whole, axis: n}] for n in smaller],
            [_regrouped(whole, axis, n) for n in range(size - 1, 1, -1) if size % n == 0],
        ]
        below = [change for tries in offers for change in _first(asked, tries, deadline)]
        yield from below or _first(asked, [[{**whole, axis: 1}, *_regrouped(whole, axis, 1)]], deadline)
        yield from _first(asked, [[{**whole, axis: n}] for n in larger], deadline)


def _lengths(asked: Problem, core: Core) -> set[int]:
    """Return the sizes that a core says a mesh axis does not divide, with those of other dims of the same tensors."""
    found: set[int] = set()
    for reason in (reason for group in core.support for reason in group if reason.kind == "divisibility"):
        if reason.subject in asked.graph.tensors and not reason.source:
            found.update(asked.graph.tensors[reason.subject].shape)
        elif reason.source:
            found.add(int(reason.source.partition("=")[2]))
    return found


def _regrouped(sizes: Mapping[str, int], axis: str, smaller: int) -> list[dict[str, int]]:
    """Return the meshes of as many devices on which one other axis has what one loses."""
    freed = sizes[axis] // smaller
    return [{**sizes, axis: smaller, other: sizes[other] * freed} for other in sizes if other != axis]


def _first(asked: Problem, tries: Sequence[Sequence[Mapping[str, int]]], deadline: float) -> list[Change]:
    """Return those of the first meshes that have a plan."""
    for meshes in tries:
        if time.monotonic() > deadline:
            break
        if found := [change for sizes in meshes if (change := _on_mesh(asked, sizes)) is not None]:
            return found
    return []


def _on_mesh(asked: Problem, sizes: Mapping[str, int]) -> Change | None:
    changed = replace(asked, mesh=Mesh(sizes, hardware=asked.mesh.hardware))
    if not Feasible(changed)():
        return None
    told = [f"{axis} {old} -> {sizes[axis]}" for axis, old in _sizes(asked.mesh) if old != sizes[axis]]
    return Change(f"mesh {', '.join(told)}", {"mesh": dict(sizes)}, changed)


def _sizes(mesh: Mesh) -> Iterator[tuple[str, int]]:
    return zip(mesh.axes, mesh.sizes, strict=True)


# --------------------------------------------------------------------------------------------------------- the sizes


def _padded_sizes(asked: Problem, core: Core, deadline: float) -> Iterator[Change]:
    """Yield for each dim that does not divide the next size that does, with all that has to be as large."""
    for tensor, dim, blocks in dict.fromkeys(_indivisible(asked, core)):
        size = asked.graph.tensors[tensor].shape[dim]
        more = -(-size // blocks) * blocks
        if more == size or time.monotonic() > deadline:
            continue
        made = padded(asked.graph, tensor, dim, more)
        if made is None or (changed := _on_graph(asked, made.graph)) is None or not Feasible(changed)():
            continue
        also = [(name, d, size) for (name, d), size in made.sizes.items() if (name, d) != (tensor, dim)]
        also.sort(key=lambda one: asked.graph.tensors[one[0]].producer is not None)  # first what a person makes larger
        pad = {
            "tensor": tensor,
            "dim": dim,
            "size": more,
            "also": [{"tensor": name, "dim": d, "size": grown} for name, d, grown in also],
            "mask": list(made.masked),
        }
        yield Change(_pad_text(asked.graph, made, (tensor, dim), [one[:2] for one in also]), {"pad": pad}, changed)


def _pad_text(graph: Graph, made: Padded, first: Cell, also: Sequence[Cell]) -> str:
    """Say which dims grow, those of the same number and sizes together, and which ops need a mask."""
    alike: dict[tuple[int, int, int], list[str]] = {}
    for tensor, dim in also[:MOST_DIMS]:
        alike.setdefault((dim, graph.tensors[tensor].shape[dim], made.sizes[tensor, dim]), []).append(tensor)
    size, more = graph.tensors[first[0]].shape[first[1]], made.sizes[first]
    told = [
        f"dim {dim} of {all_of(list(map(repr, names)))}"
        + (f" from {old} to {new}" if (old, new) != (size, more) else "")
        for (dim, old, new), names in alike.items()
    ]
    told += [f"{len(also) - MOST_DIMS} more dims, which the JSON names"] if len(also) > MOST_DIMS else []
    text = f"pad dim {first[1]} of {first[0]!r} from {size} to {more}"
    text += f", with it {'; '.join(told)}" if told else ""
    if made.masked:
        left = [f"{len(made.masked) - MOST} more ops"] if len(made.masked) > MOST else []
        text += f", and mask what is padded in {all_of([*map(repr, made.masked[:MOST]), *left])}"
    return text


def _indivisible(asked: Problem, core: Core) -> Iterator[tuple[str, int, int]]:
    """Yield the dims that the sizes of a core speak of, and in how many blocks the wishes cut them."""
    sizes = asked.mesh.sizes if core.view is None else core.view.problem.mesh.sizes
    cut = {(reason.subject, reason.source) for reason in core.chosen if reason.kind == "pin"}
    for reason in (reason for group in core.support for reason in group if reason.kind == "divisibility"):
        if reason.subject in asked.bound and reason.source:
            factor = reason.source.partition("=")[0]
            cell = first_dim(asked.graph, reason.subject, factor)
            if cell is not None:
                yield *cell, prod(sizes)
            continue
        for pin in asked.pins:
            if (pin.subject, pin.source) in cut and pin.subject == reason.subject and isinstance(pin.placement, Shard):
                yield reason.subject, pin.placement.dim, prod(sizes)


def _on_graph(asked: Problem, graph: Graph) -> Problem | None:
    """Return the same question about a graph of other sizes; None where a pin names a part that it has not."""
    refinement = refine(graph)
    for pin in asked.pins:
        tensor = pin.subject if pin.subject in graph.tensors else asked.use_named[pin.subject].tensor
        parts = refinement.parts[tensor]
        if isinstance(pin.placement, Shard) and pin.placement.part >= len(parts[pin.placement.dim]):
            return None
    bound = bind_refined(graph, refinement.parts, asked.capabilities)
    return replace(asked, graph=graph, refinement=refinement, bound=bound).with_pins(asked.pins)


# -------------------------------------------------------------------------------------------------- the capabilities


def more_capabilities(asked: Problem, deadline: float) -> Iterator[Change]:
    """Yield each capability that alone makes a plan possible.

    Parameters
    ----------
    asked : Problem
        Without a plan.
    deadline : float
        A time of `time.monotonic`, after which no further one is tried.
    """
    for name in sorted(CAPABILITIES - asked.capabilities):
        if time.monotonic() > deadline:
            return
        offered = asked.capabilities | {name}
        bound = bind_refined(asked.graph, asked.refinement.parts, offered)
        if all(bound[node] == asked.bound[node] for node in bound):
            continue
        changed = replace(asked, capabilities=offered, bound=bound).with_pins(asked.pins)
        if Feasible(changed)():
            yield Change(f"grant the capability {name} (--capability {name})", {"capabilities": [name]}, changed)


# ---------------------------------------------------------------------------------------------------- the deliveries


def _partial_deliveries(asked: Problem, core: Core, deadline: float) -> Iterator[Change]:
    """Yield for each output of the core that must not leave as a sum the pins that let it, where these are enough."""
    outputs = [reason.subject for group in core.support for reason in group if reason.kind == "delivery"]
    graph = asked.graph
    for output in dict.fromkeys(outputs):
        producer = graph.tensors[output].producer
        results = graph.nodes[producer].results if producer is not None else ()
        together = [result for result in results if result in graph.outputs]
        for axis, name in enumerate(asked.mesh.axes):
            for leaving in ([output], together):  # of an op with several results it may take the pins of all of them
                if asked.mesh.sizes[axis] == 1 or time.monotonic() > deadline:
                    continue
                pins = [Pin(one, axis, Partial("sum"), f"{one}:{name}=P(sum)") for one in leaving]
                if set(pins) & set(asked.pins) or not Feasible(changed := asked.with_pins((*asked.pins, *pins)))():
                    continue
                written = [pin.source for pin in pins]
                text = f"let {all_of(list(map(repr, leaving)))} leave unreduced: pin {all_of(written)}"
                yield Change(text, {"pin": written}, changed)
                break
