"""The executable meaning of memory and of a run: sections 5 and 6 of docs/semantics.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import ceil, prod
from typing import Any, NamedTuple

import numpy as np

from ops.placement import Partial
from ops.registry import rule_for
from ops.run import Device, steps
from solver.graph import Tensor
from solver.reference import OUTPUT, Plan
from solver.reference_kernel import Array, At, Blocks, combine, moved, together
from solver.reference_layout import Cut, Lie, Move, Path, Space, indices
from solver.reference_task import Task

# ---------------------------------------------------------------------------------------------------------- 5: memory


def peak_memory(plan: Plan) -> int:
    """Return the peak of the bytes that are alive on one device."""
    blocks: dict[tuple[str, str], int] = {}  # what is stored (tensor, what for) -> its bytes
    place: dict[tuple[str, str], tuple[str, str]] = {}  # ... -> where its bytes are: a view's are those of its operand
    program: list[tuple[set[tuple[str, str]], set[tuple[str, str]]]] = []  # per step, what it reads and writes

    def copy(tensor: str, user: str, source: tuple[str, str], lies: Lie) -> None:
        blocks[tensor, user] = plan.task.space(tensor).bytes(lies)
        place[tensor, user] = (tensor, user)
        program.append(({place[source]}, {(tensor, user)}))

    def read(tensor: str, user: str, needed: Lie) -> tuple[str, str]:
        found = plan.reader(tensor, needed, user)
        shared = found is not None and found[0] == plan.held[tensor] != plan.made[tensor]
        if shared and (tensor, "held") not in place:
            copy(tensor, "held", (tensor, "made"), plan.held[tensor])
        source = (tensor, "held" if shared else "made")
        if found is None or not found[1].moves:
            return place[source]
        copy(tensor, user, source, needed)
        return (tensor, user)

    for tensor, lies in plan.made.items():
        blocks[tensor, "made"] = plan.task.space(tensor).bytes(lies)
        place[tensor, "made"] = (tensor, "made")
    sources = {(tensor, "made") for tensor, fact in plan.task.graph.tensors.items() if fact.producer is None}
    for node in plan.task.graph.nodes.values():
        uses = plan.task.graph.operand_uses(node.name)
        reads = [read(use.tensor, use.name, plan.choices[node.name].needed[use.name]) for use in uses]
        if rule_for(node.op).view and reads:
            place |= {(tensor, "made"): reads[0] for tensor in node.results}
        writes = {(tensor, "made") for tensor in node.results if place[tensor, "made"] == (tensor, "made")}
        program.append((set(reads), writes))
        for tensor in node.results:
            if plan.held[tensor] != plan.made[tensor]:
                copy(tensor, "held", (tensor, "made"), plan.held[tensor])
    kept = {read(tensor, OUTPUT, lies) for tensor, lies in plan.delivered.items()}

    def alive_at(step: int) -> set[tuple[str, str]]:
        begun = {block for _, writes in program[: step + 1] for block in writes}
        wanted = {block for reads, _ in program[step:] for block in reads} | program[step][1] | kept
        return sources | (begun & wanted)

    steps_alive = [sources, *(alive_at(step) for step in range(len(program)))]
    return max(sum(blocks[block] for block in alive) for alive in steps_alive)


# ------------------------------------------------------------------------------------------------------------- 6: run


class Ran(NamedTuple):
    """The largest error of any tensor, relative to its largest value, and the bytes that a device sent, by move."""

    error: float
    bytes: Counter[str]


def run(plan: Plan, seed: int = 0) -> Ran:
    """Run a plan on simulated devices and compare every tensor with the unsharded run.

    Parameters
    ----------
    plan : Plan
    seed : int, optional
        Of the values of inputs, parameters and states.

    Returns
    -------
    Ran
    """
    task, sent = plan.task, Counter[str]()
    whole = unsharded(task, seed)
    made = {
        tensor: cut(whole[tensor], plan.made[tensor], task)
        for tensor, fact in task.graph.tensors.items()
        if fact.producer is None
    }
    errors = [0.0]

    def read(tensor: str, user: str, needed: Lie) -> Blocks:
        found = plan.reader(tensor, needed, user)
        assert found is not None, "a plan has a way to everything that it needs"
        source, path = found
        return follow(path, held[tensor] if source == plan.held[tensor] else made[tensor], task.space(tensor), sent)

    held: dict[str, Blocks] = {}

    def hold(tensor: str) -> None:
        space = task.space(tensor)
        held[tensor] = follow(space.paths(plan.made[tensor])[plan.held[tensor]], made[tensor], space, sent)
        errors.append(error(made[tensor], plan.made[tensor], whole[tensor], task))
        errors.append(error(held[tensor], plan.held[tensor], whole[tensor], task))

    for tensor in list(made):
        hold(tensor)
    for node in task.graph.nodes.values():
        uses = task.graph.operand_uses(node.name)
        given = {use.slot: read(use.tensor, use.name, plan.choices[node.name].needed[use.name]) for use in uses}
        results, inside = together(task, plan.choices[node.name], given)
        made |= dict(zip(node.results, results, strict=True))
        for one in inside:
            sent[one.kind] += one.bytes
        for tensor in node.results:
            hold(tensor)
    errors += [error(read(tensor, OUTPUT, lies), lies, whole[tensor], task) for tensor, lies in plan.delivered.items()]
    return Ran(max(errors), +sent)


def unsharded(task: Task, seed: int) -> dict[str, Array]:
    """Return every tensor of the graph, computed without a mesh in float64."""
    values: dict[str, Array] = {}
    random = np.random.default_rng(seed)
    for tensor in task.graph.tensors.values():
        if tensor.producer is None:
            values[tensor.name] = random_value(task, tensor, random)
    for node in task.graph.nodes.values():
        bound = task.bound[node.name]
        given: list[Array | None] = [None] * len(bound.operands)
        for use in task.graph.operand_uses(node.name):
            given[use.slot] = values[use.tensor]
        running = steps(rule_for(node.op), bound, given, node.attrs, Device(bound))
        values |= dict(zip(node.results, alone(running), strict=True))
    return values


def alone(running: Any) -> tuple[Array, ...]:
    """Run a kernel on one device: there is nobody to reduce with."""
    try:
        array, _ = next(running)
        while True:
            array, _ = running.send(array)
    except StopIteration as stop:
        returned: tuple[Array, ...] = stop.value
        return returned


def random_value(task: Task, tensor: Tensor, random: np.random.Generator) -> Array:
    """Return a value that every use of a source can read."""
    if tensor.value is not None:
        return np.asarray(tensor.value, float if "float" in tensor.dtype else None)
    below, positive = [5], False
    for use in task.graph.uses(tensor.name):
        domain = rule_for(task.graph.nodes[use.op].op).domain.get(use.operand.split(".")[0], "")
        factors = task.bound[use.op].factors
        below += [factors[domain].size] if domain in factors else []
        positive |= domain == "positive"
    if "float" in tensor.dtype:
        drawn = random.normal(size=tensor.shape)
        return np.abs(drawn) + 0.5 if positive else drawn
    whole = random.integers(0, min(below), tensor.shape)
    return whole.astype(bool) if tensor.dtype == "bool" else whole


def cut(value: Array, lies: Lie, task: Task) -> Blocks:
    """Deal a whole tensor to the devices."""
    sizes = task.mesh.sizes
    return {at: value[np.ix_(*indices(lies, value.shape, sizes, at))] for at in task.mesh.coordinates()}


def error(blocks: Blocks, lies: Lie, whole: Array, task: Task) -> float:
    """Return how far the blocks are from being the whole tensor: all terms combined, in every replica."""
    sizes = task.mesh.sizes
    terms = [(axis, p.kind) for axis, p in enumerate(lies) if isinstance(p, Partial)]
    worst = 0.0
    for at in blocks:
        if any(at[axis] for axis, _ in terms):
            continue
        combined = combine(blocks, at, terms)
        wanted = whole[np.ix_(*indices(lies, whole.shape, sizes, at))]
        if combined.shape != wanted.shape:
            return float("inf")
        if wanted.size:
            difference = np.abs(np.asarray(combined, float) - np.asarray(wanted, float)).max()
            worst = max(worst, float(difference / max(1.0, np.abs(np.asarray(whole, float)).max())))
    return worst


# ------------------------------------------------------------------------------------------------- 6: the moves, done


def follow(path: Path, blocks: Blocks, space: Space, sent: Counter[str]) -> Blocks:
    """Run the moves of a path, and count what the busiest device sends in each."""
    for move in path.moves:
        blocks, counts = perform(move, blocks, space)
        sent[move.kind] += max(counts.values(), default=0) * space.itemsize
    return blocks


def perform(move: Move, blocks: Blocks, space: Space) -> tuple[Blocks, dict[At, int]]:
    """Run one move on all devices; also return the elements that each device sends."""
    sizes, axis, counts = space.mesh.sizes, move.axes[0], dict.fromkeys(blocks, 0)
    n = sizes[axis]

    def held(lies: Lie, at: At) -> list[list[int]]:
        return indices(lies, space.shape, sizes, at)

    def peers(at: At) -> list[At]:
        return [moved(at, axis, place) for place in range(n)]

    after: Blocks = {}
    if move.kind == "permute":
        owners = pair(move, blocks, space)
        for at, owner in owners.items():
            after[at] = blocks[owner]
            counts[owner] += blocks[owner].size if owner != at else 0
        return after, counts
    for at, block in blocks.items():
        target = held(move.target, at)
        match move.kind:
            case "all_reduce" | "reduce_scatter":
                placed = move.source[axis]
                assert isinstance(placed, Partial)
                total = combine(blocks, at, [(axis, placed.kind)])
                after[at] = pick(target, [(held(move.source, at), total)])
                rounds = 2 if move.kind == "all_reduce" else 1
                counts[at] = rounds * (n - 1) * ceil(block.size / n)
            case "all_gather":
                after[at] = pick(target, [(held(move.source, peer), blocks[peer]) for peer in peers(at)])
                counts[at] = (n - 1) * block.size
            case "all_to_all":
                after[at] = pick(target, [(held(move.source, peer), blocks[peer]) for peer in peers(at)])
                mine = held(move.source, at)
                counts[at] = sum(common(mine, held(move.target, peer)) for peer in peers(at) if peer != at)
            case "slice":
                after[at] = pick(target, [(held(move.source, at), block)])
            case "zero_fill":
                mine = held(move.source, at)
                keeps = isinstance(move.source[axis], Cut) or at[axis] == 0
                after[at] = pick(target, [(mine, block)]) if keeps else np.zeros_like(block)
            case "relabel":
                after[at] = block
            case "scale":
                after[at] = block * n if move.target[axis] == Partial("avg") else block / n
    return after, counts


def common(one: list[list[int]], other: list[list[int]]) -> int:
    """Count the elements that two devices both hold."""
    return prod(len(set(mine) & set(theirs)) for mine, theirs in zip(one, other, strict=True))


def pick(target: list[list[int]], pieces: Iterable[tuple[list[list[int]], Array]]) -> Array:
    """Put together a block from pieces, zero where no piece has the element."""
    pieces = list(pieces)
    block = np.zeros([len(wanted) for wanted in target], np.result_type(*(array for _, array in pieces)))
    for held, array in pieces:
        both = [[x for x in wanted if x in mine] for wanted, mine in zip(target, held, strict=True)]
        into = np.ix_(*([wanted.index(x) for x in xs] for wanted, xs in zip(target, both, strict=True)))
        block[into] = array[np.ix_(*([mine.index(x) for x in xs] for mine, xs in zip(held, both, strict=True)))]
    return block


def pair(move: Move, blocks: Blocks, space: Space) -> dict[At, At]:
    """Return for each device the one from which it gets its new block: itself where it has it, else one to one."""

    def content(lies: Lie, at: At) -> tuple[Any, ...]:
        terms = tuple(at[axis] for axis, p in enumerate(lies) if isinstance(p, Partial))
        return terms, indices(lies, space.shape, space.mesh.sizes, at)

    owners = {at: at for at in blocks if content(move.source, at) == content(move.target, at)}
    free = [at for at in blocks if at not in owners]
    for at in blocks:
        if at not in owners:
            owner = next(other for other in free if content(move.source, other) == content(move.target, at))
            free.remove(owner)
            owners[at] = owner
    return owners
