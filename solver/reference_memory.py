"""The executable meaning of a memory budget: section 5 of docs/semantics.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product

from solver.reference import Plan, lies_so, nearer, price
from solver.reference_layout import IMPOSSIBLE, Lie
from solver.reference_run import peak_memory
from solver.reference_task import Task


def peaks(plans: Iterable[Plan]) -> list[tuple[int, int]]:
    """Return the time and the peak of the plans that no other one beats in both, the quickest first."""
    found: list[tuple[int, int]] = []
    for plan in sorted(plans, key=lambda plan: price(plan).time):
        peak = peak_memory(plan)
        if not found or peak < found[-1][1]:
            found.append((price(plan).time, peak))
    return found


def plans_with_copies(task: Task) -> Iterator[Plan]:
    """Yield every plan whose shared copies may be worth making, and whose outputs leave the cheapest way."""
    graph = task.graph
    sources = [tensor.name for tensor in graph.tensors.values() if tensor.producer is None]
    for picked in product(*(list(task.choices(node)) for node in graph.nodes)):
        lying = {choice.node: lies_so(task, choice) for choice in picked}
        if any(lying[node] != lying[of] for node, of in task.repeats.items()):
            continue
        results = {tensor: lies for choice in picked for tensor, lies in choice.made.items()}
        for stored in product(*map(task.storages, sources)):
            made = {**dict(zip(sources, stored, strict=True)), **results}
            if any(made[follower] != made[leader] for follower, leader in task.ties.items() if follower in sources):
                continue
            for held in product(*(copies(task, tensor, lies) for tensor, lies in made.items())):
                kept = dict(zip(made, held, strict=True))
                delivered = {tensor: leaves(task, tensor, made, kept[tensor]) for tensor in graph.outputs}
                uses = [use.name for tensor in made if made[tensor] != kept[tensor] for use in graph.uses(tensor)]
                for told in product(("made", "held"), repeat=len(uses)):
                    reading = dict(zip(uses, told, strict=True))
                    plan = Plan(task, {choice.node: choice for choice in picked}, made, kept, delivered, reading)
                    if plan.reshards is not None:
                        yield plan


def copies(task: Task, tensor: str, made: Lie) -> list[Lie]:
    """Return the held layouts worth having: made itself, what may save time, and, of a result, what is smaller."""
    key = "copies", tensor, made
    if key not in task.known:
        space = task.space(tensor)
        result = task.graph.tensors[tensor].producer is not None
        allowed = [lies for lies in task.holdings(tensor) if lies in space.paths(made)]
        wanted = {*task.pins, *(subject for subject, _, _ in task.wishes.wanted)}
        if not (result and tensor in wanted):
            allowed = [
                held
                for held in allowed
                if held == made
                or saved(task, tensor, made, held) > space.paths(made)[held].time
                or (result and space.bytes(held) < space.bytes(made))
            ]
        task.known[key] = allowed
    found: list[Lie] = task.known[key]
    return found


def saved(task: Task, tensor: str, made: Lie, held: Lie) -> int:
    """Return the most that all users of a tensor together can save when they may read a copy."""
    times, rank = task.space(tensor).times, task.space(tensor).rank
    asked = [{choice.needed[use.name] for choice in task.choices(use.op)} for use in task.graph.uses(tensor)]
    total = 0
    if tensor in task.graph.outputs:
        if tensor in task.ties and task.graph.tensors[tensor].producer is not None:
            asked.append(set(task.storages(task.ties[tensor])))
        else:
            ends = [rank[lies] for lies in task.deliveries(tensor)]
            total += max(0, int(times[rank[made], ends].min()) - int(times[rank[held], ends].min()))
    for needs in asked:
        total += max([0, *(int(times[rank[made], rank[n]]) - int(times[rank[held], rank[n]]) for n in needs)])
    return total


def leaves(task: Task, tensor: str, made: dict[str, Lie], held: Lie) -> Lie:
    """Return the layout in which an output leaves: that of its leader, else the cheapest one, the first of equals."""
    if tensor in task.ties and task.graph.tensors[tensor].producer is not None:
        return made[task.ties[tensor]]

    def dear(lies: Lie) -> int:
        way = nearer(task, tensor, made[tensor], held, lies)
        return int(IMPOSSIBLE) if way is None else way[1].time

    return min(task.deliveries(tensor), key=dear)
