"""Peak bytes of one device: what is alive at each step of a program.

A program is a list of steps; a step reads stored tensors and writes new ones. The planner, the lowered program and the
simulator write the same list, so the peak that a plan predicts is the peak that a run counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ops.registry import rule_for
from solver.graph import Graph, Node, Use

MEMORY_PARTS = ("parameters", "inputs", "activations", "buffers")
_ROLE_PART = {"parameter": "parameters", "state": "parameters", "constant": "parameters", "input": "inputs"}


class StepError(ValueError):
    """A list of steps that no program can have."""


@dataclass(frozen=True, slots=True)
class Storage:
    """Memory that holds one tensor in one layout on every device.

    Parameters
    ----------
    name : str
        Unique in the program.
    bytes : int
        Local bytes, those of one device.
    part : str
        One of ``MEMORY_PARTS``: ``parameters`` (states and constants too), ``inputs``, ``activations`` (what ops made),
        ``buffers`` (copies made by reshards).
    """

    name: str
    bytes: int
    part: str


@dataclass(frozen=True, slots=True)
class Step:
    """One op or one reshard: what it reads and writes lies in memory together while it runs.

    Parameters
    ----------
    name : str
        The op, or what is resharded.
    reads : tuple of str
        Names of storages.
    writes : tuple of Storage
    """

    name: str
    reads: tuple[str, ...] = ()
    writes: tuple[Storage, ...] = ()


@dataclass(frozen=True, slots=True)
class Memory:
    """The peak of a program on one device.

    Parameters
    ----------
    peak : int
        Bytes.
    parts : mapping
        The bytes of each of ``MEMORY_PARTS`` at the peak; they sum to it.
    at : str or None
        The first step where the peak is reached; None for a program without steps.
    """

    peak: int
    parts: Mapping[str, int]
    at: str | None = None


def peak_memory(steps: Sequence[Step], resident: Iterable[Storage] = (), kept: Iterable[str] = ()) -> Memory:
    """Return the peak bytes of a program by the liveness of what it stores.

    Parameters
    ----------
    steps : sequence of Step
        In the order in which they run.
    resident : iterable of Storage
        Alive throughout: inputs, parameters, states and constants.
    kept : iterable of str
        Written storages that live to the end: graph outputs.

    Returns
    -------
    Memory

    Raises
    ------
    StepError
        Where a step reads what no earlier step wrote, or two steps write one storage.

    Examples
    --------
    >>> first = Step("a", ("x",), (Storage("y", 4, "activations"),))
    >>> second = Step("b", ("y",), (Storage("z", 2, "activations"),))
    >>> peak_memory([first, second], [Storage("x", 8, "inputs")], ["z"]).peak
    14
    """
    alive = dict.fromkeys(MEMORY_PARTS, 0)
    known: set[str] = set()
    for storage in resident:
        _declare(storage, "the resident storages", known)
        alive[storage.part] += storage.bytes
    dying = _dying(steps, known, frozenset(kept))
    peak, parts, at = sum(alive.values()), dict(alive), steps[0].name if steps else None
    for step, dead in zip(steps, dying, strict=True):
        for storage in step.writes:
            alive[storage.part] += storage.bytes
        if (total := sum(alive.values())) > peak:
            peak, parts, at = total, dict(alive), step.name
        for storage in dead:
            alive[storage.part] -= storage.bytes
    return Memory(peak, parts, at)


def _declare(storage: Storage, place: str, known: set[str]) -> None:
    if storage.part not in MEMORY_PARTS:
        raise StepError(f"storage {storage.name!r} counts as {storage.part!r}: choose from {', '.join(MEMORY_PARTS)}")
    if storage.name in known:
        raise StepError(f"storage {storage.name!r} is written twice, the second time by {place}")
    known.add(storage.name)


def _dying(steps: Sequence[Step], known: set[str], kept: frozenset[str]) -> list[list[Storage]]:
    """Return for each step the storages that nobody needs after it."""
    written: dict[str, Storage] = {}
    last: dict[str, int] = {}
    for index, step in enumerate(steps):
        for name in step.reads:
            if name not in known:
                raise StepError(f"step {step.name!r} reads {name!r}, which no earlier step wrote")
            last[name] = index
        for storage in step.writes:
            _declare(storage, f"step {step.name!r}", known)
            written[storage.name] = storage
            last[storage.name] = index
    dying: list[list[Storage]] = [[] for _ in steps]
    for name, storage in written.items():
        if name not in kept:
            dying[last[name]].append(storage)
    return dying


@dataclass(frozen=True, slots=True)
class Stored:
    """The local bytes of all that a plan stores on one device.

    Parameters
    ----------
    made : mapping
        Every tensor of the graph, as its producer makes it, or as an input, parameter, state or constant is stored.
    held : mapping
        The tensors that have a shared copy, and its bytes.
    needed : mapping
        The uses (by `Use.name`) that reshard what they read into a copy of their own.
    outputs : mapping
        The graph outputs that are resharded for the end.
    made_reads, made_outputs : frozenset of str
        Uses and outputs that read what was made although there is a shared copy.
    """

    made: Mapping[str, int]
    held: Mapping[str, int] = field(default_factory=dict)
    needed: Mapping[str, int] = field(default_factory=dict)
    outputs: Mapping[str, int] = field(default_factory=dict)
    made_reads: frozenset[str] = frozenset()
    made_outputs: frozenset[str] = frozenset()


def plan_memory(graph: Graph, stored: Stored) -> Memory:
    """Return the peak bytes of a plan on one device.

    A shared copy is made right after its tensor, that of an input, parameter, state or constant right before the first
    op that reads it; a use's own copy right before its op. The result of a view is the memory of its first operand.

    Parameters
    ----------
    graph : Graph
    stored : Stored

    Returns
    -------
    Memory
    """
    return peak_memory(*_Program(graph, stored).written())


class _Program:
    """Writes the steps of a plan in program order."""

    def __init__(self, graph: Graph, stored: Stored) -> None:
        self.graph = graph
        self.stored = stored
        self.steps: list[Step] = []
        self.memory_of: dict[str, str] = {}

    def written(self) -> tuple[list[Step], list[Storage], list[str]]:
        """Return the steps, the resident storages and the names of those kept to the end."""
        resident = []
        for tensor in self.graph.tensors.values():
            if tensor.producer is None:
                name = f"made {tensor.name}"
                self.memory_of[name] = name
                resident.append(Storage(name, self.stored.made[tensor.name], _ROLE_PART[tensor.role]))
        for node in self.graph.nodes.values():
            self._op(node)
        kept = [self._output(tensor) for tensor in self.graph.outputs]
        return self.steps, resident, kept

    def _op(self, node: Node) -> None:
        reads = [self._read(use) for use in self.graph.operand_uses(node.name)]
        writes = []
        for tensor in node.results:
            name = f"made {tensor}"
            if reads and rule_for(node.op).view:
                self.memory_of[name] = reads[0]
            else:
                self.memory_of[name] = name
                writes.append(Storage(name, self.stored.made[tensor], "activations"))
        self.steps.append(Step(node.name, tuple(reads), tuple(writes)))
        for tensor in node.results:
            if tensor in self.stored.held:
                self._copy(f"made {tensor}", f"held {tensor}", self.stored.held[tensor])

    def _read(self, use: Use) -> str:
        """Return the memory that a use reads, after the copies it asks for."""
        source = self._source(use.tensor, use.name in self.stored.made_reads)
        if use.name in self.stored.needed:
            source = self._copy(source, f"needed {use.name}", self.stored.needed[use.name])
        return self.memory_of[source]

    def _output(self, tensor: str) -> str:
        source = self._source(tensor, tensor in self.stored.made_outputs)
        if tensor in self.stored.outputs:
            source = self._copy(source, f"output {tensor}", self.stored.outputs[tensor])
        return self.memory_of[source]

    def _source(self, tensor: str, made: bool) -> str:
        if made or tensor not in self.stored.held:
            return f"made {tensor}"
        held = f"held {tensor}"
        return held if held in self.memory_of else self._copy(f"made {tensor}", held, self.stored.held[tensor])

    def _copy(self, source: str, target: str, size: int) -> str:
        self.memory_of[target] = target
        self.steps.append(Step(f"reshard {target}", (self.memory_of[source],), (Storage(target, size, "buffers"),)))
        return target
