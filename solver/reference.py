"""The executable meaning of docs/semantics.md: every plan of a tiny graph, and its price.

Nothing here searches and nothing is clever. It shares the rules of `ops` and the facts of graph, parts, mesh and
hardware with the planner, and no code. `solver.reference_layout` has layouts and reshards, `solver.reference_task`
what a plan may choose, `solver.reference_kernel` what kernels send, `solver.reference_run` runs a plan. Sections are
those of docs/semantics.md.

Examples
--------
>>> from solver.graph import Graph
>>> from solver.mesh import Mesh
>>> graph, mesh = Graph("one"), Mesh({"tp": 2})
>>> x = graph.input("x", (8, 4))
>>> w = graph.parameter("w", (4, 6))
>>> graph.output(graph.op("matmul", x, w, name="y"))
>>> cheapest, plan = best(Task(graph, mesh, pins={"x": "tp=S(1)", "w": "tp=S(0)"}))
>>> cheapest == min(price(plan).time for plan in plans(plan.task))
True
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import product
from math import ceil, prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ops.placement import Layout
from ops.registry import rule_for
from solver.reference_kernel import dtype_of, inside
from solver.reference_layout import IMPOSSIBLE, Lie, Path, levied, picoseconds
from solver.reference_task import Choice, Fact, Task

Needs: TypeAlias = tuple[Lie, ...]
OUTPUT = "output"
"""What stands for the use that a graph output is."""


class Reshard(NamedTuple):
    """A shared copy (its user is ``held``), the copy of one use (its name), or that of an output (``output``)."""

    tensor: str
    user: str
    source: Lie
    path: Path


@dataclass(frozen=True, eq=False)
class Plan:
    """Everything that a plan chooses; layouts are told as they lie.

    Parameters
    ----------
    task : Task
    choices : mapping
        Op -> its rows.
    made, held : mapping
        Tensor -> layout.
    delivered : mapping
        Graph output -> the layout in which it leaves.
    reading : mapping
        Use -> ``made`` or ``held``, where it is told which to read.
    """

    task: Task
    choices: Mapping[str, Choice]
    made: Mapping[str, Lie]
    held: Mapping[str, Lie]
    delivered: Mapping[str, Lie]
    reading: Mapping[str, str] = field(default_factory=dict)

    def layout(self, tensor: str) -> Layout:
        """Return, in canonical form, what a pin on the tensor speaks of: storage of a source, held of a result."""
        lies = self.made if self.task.graph.tensors[tensor].producer is None else self.held
        return self.task.space(tensor).written[lies[tensor]][0]

    def reads(self, tensor: str) -> list[tuple[str, Lie]]:
        """Return the users of a tensor and what they need."""
        uses = [(use.name, self.choices[use.op].needed[use.name]) for use in self.task.graph.uses(tensor)]
        return uses + ([(OUTPUT, self.delivered[tensor])] if tensor in self.delivered else [])

    def reader(self, tensor: str, needed: Lie, user: str = OUTPUT) -> tuple[Lie, Path] | None:
        """Return what a user reads, made or held, and the path from there; None where there is none."""
        made, held = self.made[tensor], self.held[tensor]
        if (told := self.reading.get(user)) is not None:
            made = held = made if told == "made" else held
        return nearer(self.task, tensor, made, held, needed)

    @cached_property
    def reshards(self) -> list[Reshard] | None:
        """Every reshard, or None where one of them is not possible: then this is no plan."""
        found = []
        for tensor, made in self.made.items():
            copy = self.task.space(tensor).paths(made).get(self.held[tensor])
            if copy is None:
                return None
            if copy.moves:
                found.append(Reshard(tensor, "held", made, copy))
            for user, needed in self.reads(tensor):
                if (read := self.reader(tensor, needed, user)) is None:
                    return None
                if read[1].moves:
                    found.append(Reshard(tensor, user, *read))
        return found


def nearer(task: Task, tensor: str, made: Lie, held: Lie, needed: Lie) -> tuple[Lie, Path] | None:
    """Return which of made and held is nearer to what is needed, and the path.

    Where both are as near it is the one that is what is needed, so that no copy is made; else held.
    """
    paths = [(source, task.space(tensor).paths(source).get(needed)) for source in (held, made)]
    ways = [(source, path) for source, path in paths if path is not None]
    return min(ways, key=lambda way: (way[1].time, bool(way[1].moves)), default=None)


def plans(task: Task) -> Iterator[Plan]:
    """Yield every plan of a task."""
    graph = task.graph
    sources = [tensor.name for tensor in graph.tensors.values() if tensor.producer is None]
    for picked in product(*(list(task.choices(node)) for node in graph.nodes)):
        lying = {choice.node: lies_so(task, choice) for choice in picked}
        if any(lying[node] != lying[of] for node, of in task.repeats.items()):
            continue
        results = {tensor: lies for choice in picked for tensor, lies in choice.made.items()}
        for stored in product(*map(task.storages, sources)):
            made = dict(zip(sources, stored, strict=True)) | results
            if any(made[follower] != made[leader] for follower, leader in task.ties.items() if follower in sources):
                continue
            tied = {follower: [made[leader]] for follower, leader in task.ties.items() if follower not in sources}
            for held in product(*map(task.holdings, made)):
                for delivered in product(*(tied.get(tensor) or task.deliveries(tensor) for tensor in graph.outputs)):
                    plan = Plan(
                        task,
                        {choice.node: choice for choice in picked},
                        made,
                        dict(zip(made, held, strict=True)),
                        dict(zip(graph.outputs, delivered, strict=True)),
                    )
                    if plan.reshards is not None:
                        yield plan


def lies_so(task: Task, choice: Choice) -> tuple[Lie, ...]:
    """Return all layouts that an op needs and makes, as an op that repeats it must."""
    return (*choice.needed.values(), *choice.made.values())


# ------------------------------------------------------------------------------------------------------- 4: the price


class Price(NamedTuple):
    """The price of a plan in picoseconds, what it is made of, and the bytes that a device sends, by kind of move."""

    time: int
    compute: int
    reshards: int
    kernels: int
    bytes: Counter[str]


def price(plan: Plan) -> Price:
    """Price a plan."""
    if plan.reshards is None:
        raise ValueError("this is no plan: a reshard that it asks for is not possible")
    moves = [move for reshard in plan.reshards for move in reshard.path.moves]
    kernels = [one for choice in plan.choices.values() for one in inside(plan.task, choice)]
    sent: Counter[str] = Counter()
    for kind, size in [*((one.kind, one.bytes) for one in moves), *((one.kind, one.bytes) for one in kernels)]:
        sent[kind] += size
    parts = (
        sum(compute(plan.task, choice) for choice in plan.choices.values()),
        sum(move.time - levied(move, plan.task.levy) for move in moves),
        sum(one.time for one in kernels),
    )
    return Price(sum(parts), *parts, +sent)


def compute(task: Task, choice: Choice) -> int:
    """Return the compute price of an op."""
    node, hardware = task.graph.nodes[choice.node], task.mesh.hardware
    op = rule_for(node.op)
    if op.view:
        return 0
    cuts = prod(n for row, n in zip(choice.rows, task.mesh.sizes, strict=True) if row.cut)
    placed = [(task.uses[name].tensor, lies) for name, lies in choice.needed.items()] + [*choice.made.items()]
    peak = hardware.peak.get(dtype_of(task, choice.node), hardware.peak["float32"])
    flops = ceil(Fraction(op.flops(task.bound[node.name], node.attrs) * 10**12, cuts * peak))
    return task.counted[1] * max(
        flops, picoseconds(sum(task.space(tensor).bytes(lies) for tensor, lies in placed), hardware.memory_bandwidth)
    )


# ------------------------------------------------------------------------------------------------ the cheapest of all


class Settled(NamedTuple):
    """The cheapest way to keep one tensor for given users."""

    time: int
    made: Lie
    held: Lie
    delivered: Lie | None


def settle(task: Task, tensor: str, made: Lie | None, needs: Needs, storage: Lie | None) -> Settled | None:
    """Return the cheapest way to keep a tensor: every storage (of a source), every held layout, every delivery.

    Parameters
    ----------
    task : Task
    tensor : str
    made : Lie or None
        None for a source.
    needs : tuple of Lie
        What its uses need.
    storage : Lie or None
        That of the source to which ties bind the tensor; None where it is bound to nothing, and all are tried.
    """
    space = task.space(tensor)
    stored = task.storages(tensor) if made is None and storage is None else [made or storage]
    made_in = [space.rank[lies] for lies in stored if lies is not None]
    held_in = [space.rank[lies] for lies in task.holdings(tensor)]
    users = [space.times[:, space.rank[needed]] for needed in needs]
    tied = made is not None and storage is not None
    delivered = [space.rank[lies] for lies in ([storage] if tied else task.deliveries(tensor)) if lies is not None]
    if tensor in task.graph.outputs:
        users.append(space.times[:, delivered].min(axis=1))
    if not made_in or not held_in:
        return None
    total = space.times[np.ix_(made_in, held_in)]
    for user in users:
        total = total + np.minimum(user[made_in][:, None], user[held_in][None, :])
    first, second = np.unravel_index(total.argmin(), total.shape)
    if total[first, second] >= IMPOSSIBLE:
        return None
    ends, ways = (made_in[first], held_in[second]), list(space.written)
    leaving = None
    if tensor in task.graph.outputs:
        leaving = ways[min(delivered, key=lambda end: min(space.times[source, end] for source in ends))]
    return Settled(int(total[first, second]), ways[ends[0]], ways[ends[1]], leaving)


Open: TypeAlias = dict[Any, tuple[Lie | None, Needs]]
"""The open tensors, as made and as needed so far; ``("stored", source)`` for what is tied to a source,
``("lies", op)`` for all that an op needs and makes which is repeated later."""


def best(task: Task) -> tuple[int, Plan] | None:
    """Return the price and one of the cheapest plans of a task, or None where there is no plan.

    Every combination of rows is tried, op by op, and every storage to which tensors are tied, where the first of them
    is met. Once all its users are chosen, a tensor is settled by itself. Until then it is open; of all beginnings that
    leave the open tensors made alike and needed alike, the cheapest is kept.
    """
    graph = task.graph
    last = {tensor: fact.producer for tensor, fact in graph.tensors.items()}
    last |= {use.tensor: use.op for use in task.uses.values()}
    order = {None: -1} | {node: index for index, node in enumerate(graph.nodes)}
    ends: dict[str, int] = {}
    for tensor, root in task.groups.items():
        ends[root] = max(ends.get(root, -1), order[last[tensor]])
    beginnings: dict[Any, tuple[int, Any]] = {(): (0, None)}
    for node, index in order.items():
        closing = [tensor for tensor, end in last.items() if end == node]
        touched = [use.tensor for use in graph.operand_uses(node)] + [*graph.nodes[node].results] if node else closing
        over = {*closing, *(("stored", root) for root, end in ends.items() if end == index)}
        over |= {("lies", of) for of in task.repeated if order[task.repeated[of]] == index}
        longer: dict[Any, tuple[int, Any]] = {}
        beginnings = with_storages(task, beginnings, touched)
        for cost, choice in cheapest_alike(task, node) if node else [(0, None)]:
            for opened, (before, history) in beginnings.items():
                open_now = use_and_make(task, dict(opened), choice) if choice else dict(opened)
                if choice and not repeats_well(task, open_now, choice):
                    continue
                closed = [settled(task, tensor, open_now) for tensor in closing]
                if None not in closed:
                    total = before + cost + sum(one.time for one in closed if one)
                    key = tuple(item for item in open_now.items() if item[0] not in over)
                    if key not in longer or total < longer[key][0]:
                        longer[key] = total, (history, choice)
        beginnings = longer
    if () not in beginnings:
        return None
    total, history = beginnings[()]
    return total, assemble(task, *unrolled(history))


def best_where(
    task: Task, facts: Sequence[Fact], holds: Callable[[Mapping[Fact, bool]], bool]
) -> tuple[int, Plan] | None:
    """Return the price and one of the cheapest plans that a person's own expressions hold for, None without any.

    Parameters
    ----------
    task : Task
    facts : sequence of Fact
        What the expressions speak of.
    holds : callable
        Whether they hold, given which facts do. On a mesh axis of size 1 a fact may be taken either way.
    """
    found = []
    for chosen in product((False, True), repeat=len(facts)):
        known = dict(zip(facts, chosen, strict=True))
        if holds(known) and (one := best(task.where(known))) is not None:
            found.append(one)
    return min(found, key=lambda one: one[0], default=None)


def repeats_well(task: Task, opened: Open, choice: Choice) -> bool:
    """Tell whether an op lies as the op that it repeats; note how it lies where it is repeated itself."""
    lying = lies_so(task, choice)
    if choice.node in task.repeated:
        opened["lies", choice.node] = None, lying
    of = task.repeats.get(choice.node)
    return of is None or opened["lies", of][1] == lying


def unrolled(history: Any) -> tuple[dict[str, Choice], dict[str, Lie]]:
    """Return the rows and the storages that were chosen on the way."""
    choices: dict[str, Choice] = {}
    storages: dict[str, Lie] = {}
    while history:
        history, chosen = history
        if isinstance(chosen, Choice):
            choices[chosen.node] = chosen
        elif chosen:
            storages |= dict([chosen])
    return choices, storages


def settled(task: Task, tensor: str, opened: Open) -> Settled | None:
    """Return the cheapest way to keep a tensor whose users are all chosen."""
    made, needs = opened.get(tensor, (None, ()))
    storage = opened["stored", task.groups[tensor]][0] if tensor in task.groups else None
    key = "settle", tensor, made, needs, storage
    if key not in task.known:
        task.known[key] = settle(task, tensor, made, needs, storage)
    found: Settled | None = task.known[key]
    return found


def with_storages(task: Task, beginnings: dict[Any, tuple[int, Any]], touched: Iterable[str]) -> dict[Any, Any]:
    """Go on from each beginning with every storage of the sources to which what is met now is tied."""
    for root in dict.fromkeys(task.groups[tensor] for tensor in touched if tensor in task.groups):
        members = [tensor for tensor, other in task.groups.items() if other == root]
        sources = [tensor for tensor in members if task.graph.tensors[tensor].producer is None]
        possible = [lies for lies in task.storages(root) if all(lies in task.storages(other) for other in sources)]
        longer: dict[Any, tuple[int, Any]] = {}
        for opened, (before, history) in beginnings.items():
            if ("stored", root) in dict(opened):
                longer[opened] = before, history
                continue
            for lies in possible:
                longer[*opened, (("stored", root), (lies, ()))] = before, (history, (root, lies))
        beginnings = longer
    return beginnings


def cheapest_alike(task: Task, node: str) -> list[tuple[int, Choice]]:
    """Return the choices of an op with their prices; of those that need and make the same, the cheapest."""
    alike: dict[Any, tuple[int, Choice]] = {}
    for choice in task.choices(node):
        cost = compute(task, choice) + sum(one.time for one in inside(task, choice))
        key = tuple(choice.needed.items()), tuple(choice.made.items())
        if key not in alike or cost < alike[key][0]:
            alike[key] = cost, choice
    return list(alike.values())


def use_and_make(task: Task, opened: Open, choice: Choice) -> Open:
    """Return the open tensors, as made and with what their uses need, after one more op."""
    for name, lies in choice.needed.items():
        tensor = task.uses[name].tensor
        made, needs = opened.get(tensor, (None, ()))
        opened[tensor] = made, tuple(sorted((*needs, lies), key=task.space(tensor).rank.__getitem__))
    return opened | {tensor: (lies, ()) for tensor, lies in choice.made.items()}


def assemble(task: Task, choices: Mapping[str, Choice], storages: Mapping[str, Lie]) -> Plan:
    """Return the cheapest plan with given rows, and given storages of the sources that others are tied to."""
    made: dict[str, Lie | None] = dict.fromkeys(task.graph.tensors)
    for choice in choices.values():
        made |= choice.made
    kept = {}
    for tensor, lies in made.items():
        needs = tuple(choices[use.op].needed[use.name] for use in task.graph.uses(tensor))
        kept[tensor] = settle(task, tensor, lies, needs, storages.get(task.groups.get(tensor, "")))
    settled = {tensor: one for tensor, one in kept.items() if one is not None}
    return Plan(
        task,
        choices,
        {tensor: one.made for tensor, one in settled.items()},
        {tensor: one.held for tensor, one in settled.items()},
        {tensor: one.delivered for tensor, one in settled.items() if one.delivered is not None},
    )
