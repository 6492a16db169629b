"""The executable meaning of what a kernel sends itself: one op on all devices, which reduce and exchange together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import reduce
from math import ceil, prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ops.halo import Exchange
from ops.op import promote
from ops.registry import rule_for
from ops.run import Device, steps
from solver.graph_values import ITEMSIZE
from solver.reference_layout import all_reduce, indices, picoseconds
from solver.reference_task import Choice, Task, factor_cuts

Array: TypeAlias = np.ndarray[Any, Any]
At: TypeAlias = tuple[int, ...]
Blocks: TypeAlias = dict[At, Array]
"""What each device holds of one tensor."""
COMBINE: dict[str, Callable[[Sequence[Array]], Array]] = {
    "sum": lambda terms: reduce(np.add, terms),
    "avg": lambda terms: reduce(np.add, terms) / len(terms),
    "max": lambda terms: reduce(np.maximum, terms),
    "min": lambda terms: reduce(np.minimum, terms),
    "any": lambda terms: reduce(np.logical_or, terms),
    "all": lambda terms: reduce(np.logical_and, terms),
}


class Sent(NamedTuple):
    """One collective of a kernel: the bytes that a device sends, and the time."""

    kind: str
    bytes: int
    time: int


def together(task: Task, choice: Choice, given: Mapping[int, Blocks]) -> tuple[list[Blocks], list[Sent]]:
    """Run the kernel of an op on every device, all of them in step; return its results, and what was sent.

    Parameters
    ----------
    task : Task
    choice : Choice
    given : mapping
        Operand slot -> what each device holds of it.
    """
    node, bound = task.graph.nodes[choice.node], task.bound[choice.node]
    running: dict[At, Any] = {}
    for at in task.mesh.coordinates():
        arrays = [given[slot][at] if slot in given else None for slot in range(len(bound.operands))]
        device = Device(bound, factor_cuts(task, choice, at))
        running[at] = steps(rule_for(node.op), bound, arrays, node.attrs, device)
    answers: dict[At, Any] = dict.fromkeys(running)
    done: dict[At, tuple[Array, ...]] = {}
    sent: list[Sent] = []
    with np.errstate(all="ignore"):
        while not done:
            asked: dict[At, tuple[Array, Any]] = {}
            for at, kernel in running.items():
                try:
                    asked[at] = kernel.send(answers[at])
                except StopIteration as stop:
                    done[at] = stop.value
            if asked:
                answers = _answered(task, choice, asked, sent)
    return [{at: results[slot] for at, results in done.items()} for slot in range(len(node.results))], sent


def inside(task: Task, choice: Choice) -> list[Sent]:
    """Return what the kernel of an op sends; it depends on what the rows cut only."""
    cut = tuple(row.cut for row in choice.rows)
    key = "inside", choice.node, cut
    kinds = {task.bound[choice.node].factors[one[0]].kind for one in cut if one}
    if kinds.isdisjoint({"synced", "halo"}):
        return []
    if key not in task.known:
        given: dict[int, Blocks] = {}
        for name, lies in choice.needed.items():
            tensor = task.graph.tensors[task.uses[name].tensor]
            dtype = float if "float" in tensor.dtype else int
            given[task.uses[name].slot] = {
                at: np.zeros([len(held) for held in indices(lies, tensor.shape, task.mesh.sizes, at)], dtype)
                for at in task.mesh.coordinates()
            }
        left = {kind: 1 - part for kind, part in task.hidden.items()}
        sent = together(task, choice, given)[1]
        task.known[key] = [
            one._replace(time=task.counted[0] * ceil(one.time * left.get(one.kind, Fraction(1)))) for one in sent
        ]
    found: list[Sent] = task.known[key]
    return found


def dtype_of(task: Task, node: str) -> str:
    """Return the dtype whose peak counts for an op."""
    operands = [task.graph.tensors[use.tensor].dtype for use in task.graph.operand_uses(node)]
    floating = [dtype for dtype in operands if dtype.startswith(("float", "bfloat"))]
    results = [task.graph.tensors[tensor].dtype for tensor in task.graph.nodes[node].results]
    return promote(floating) if floating else [*operands, *results][0]


def combine(blocks: Blocks, at: At, terms: Sequence[tuple[int, str]]) -> Array:
    """Combine the terms along some mesh axes, each of its kind, seen from one device."""
    if not terms:
        return blocks[at]
    axis, kind = terms[0]
    places = sorted({other[axis] for other in blocks})
    return COMBINE[kind]([combine(blocks, moved(at, axis, place), terms[1:]) for place in places])


def moved(device: At, axis: int, place: int) -> At:
    """Return the device that stands elsewhere along one mesh axis."""
    return (*device[:axis], place, *device[axis + 1 :])


def _answered(task: Task, choice: Choice, asked: Mapping[At, tuple[Array, Any]], sent: list[Sent]) -> dict[At, Any]:
    """Do what all devices ask for, and note what it takes."""
    arrays, wish = {at: array for at, (array, _) in asked.items()}, next(iter(asked.values()))[1]
    if isinstance(wish, Exchange):
        return _exchanged(task, choice, arrays, wish, sent)
    for axis in _cutting(task, choice, lambda factor: task.bound[choice.node].factors[factor].kind == "synced"):
        elements = next(iter(arrays.values())).size
        sent.append(Sent("all_reduce", *all_reduce(task.mesh, axis, elements, ITEMSIZE[dtype_of(task, choice.node)])))
        arrays = {at: combine(arrays, at, [(axis, wish)]) for at in arrays}
    return arrays


def _cutting(task: Task, choice: Choice, wanted: Callable[[str], bool]) -> list[int]:
    """Return the mesh axes whose rows cut a factor that is wanted."""
    rows = enumerate(zip(choice.rows, task.mesh.sizes, strict=True))
    return [axis for axis, (row, n) in rows if row.cut and n > 1 and wanted(row.cut[0])]


def _exchanged(task: Task, choice: Choice, arrays: Blocks, wish: Exchange, sent: list[Sent]) -> Blocks:
    """Let every device have, or give away, the indices that it works on and another one holds, index by index."""
    axes = _cutting(task, choice, lambda factor: factor == wish.factor)
    sizes = [task.mesh.sizes[axis] for axis in axes]
    made: Blocks = {}
    counts: dict[At, int] = defaultdict(int)
    distances: set[int] = set()
    for at in arrays:
        line = [_on(at, axes, place) for place in np.ndindex(*sizes)]
        mine, length = line.index(at), wish.size // len(line)
        for block, device in enumerate(line):
            worked = [index % wish.size for index in range(*wish.ranges[block])]
            others = prod(size for dim, size in enumerate(arrays[device].shape) if dim != wish.dim)
            for holder in (index // length for index in worked):
                sender = block if wish.adds else holder
                if holder != block and sender == mine:
                    counts[at] += others
                    distances.add((block - holder) % len(line))
        made[at] = _own(wish, [arrays[device] for device in line], mine)
    tensor = task.graph.nodes[choice.node].results[wish.slot] if wish.adds else _read(task, choice, wish.slot)
    size = max(counts.values(), default=0) * task.graph.tensors[tensor].itemsize
    links = [task.mesh.links[axis] for axis in axes]
    wait = len(distances) * max(link.latency for link in links)
    wire = picoseconds(size, min(link.bandwidth for link in links))
    kind = str(task.bound[choice.node].factors[wish.factor].capability)
    sent.append(Sent(kind, size, wait + wire))
    return made


def _own(wish: Exchange, line: Sequence[Array], mine: int) -> Array:
    """Return what one device of a line has afterwards."""
    length = wish.size // len(line)
    worked = [[index % wish.size for index in range(*span)] for span in wish.ranges]
    if not wish.adds:
        whole = np.concatenate(line, axis=wish.dim)
        return np.take(whole, worked[mine], axis=wish.dim)
    shape = list(line[mine].shape)
    shape[wish.dim] = wish.size
    total = np.zeros(shape, line[mine].dtype)
    for array, places in zip(line, worked, strict=True):
        np.add.at(np.moveaxis(total, wish.dim, 0), places, np.moveaxis(array, wish.dim, 0))
    return np.take(total, range(mine * length, (mine + 1) * length), axis=wish.dim)


def _on(at: At, axes: Sequence[int], place: Sequence[int]) -> At:
    for axis, coordinate in zip(axes, place, strict=True):
        at = moved(at, axis, int(coordinate))
    return at


def _read(task: Task, choice: Choice, slot: int) -> str:
    return next(use.tensor for use in task.graph.operand_uses(choice.node) if use.slot == slot)
