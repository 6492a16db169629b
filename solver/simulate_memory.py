"""What a simulated run stores: of one device, as a plan counts it, and of the process that simulates them all."""

from __future__ import annotations

import math
import os
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import compress
from pathlib import Path
from typing import TypeAlias

from ops.placement import Shard
from ops.registry import rule_for
from solver.graph import Graph, Tensor
from solver.graph_values import ITEMSIZE
from solver.program import Borders, LocalOp, Program, Step, Transfer
from solver.values import last_reads

Share: TypeAlias = tuple[int, ...]
"""A number for each device: those with the same one hold one array together."""


class Stored:
    """Counts what one device stores, as the program runs (docs/semantics.md, section 5)."""

    def __init__(self, program: Program) -> None:
        self.peak = 0
        self._root: dict[str, str] = {}
        self._becomes = {step.source for step in program.steps if isinstance(step, Borders) and step.exchange.adds}
        for step in program.steps:
            for name, root in _roots(step, program):
                self._root[name] = self._of(root)
        self._kept = {*program.outputs.values()}
        self._forever = {*program.sources.values(), *map(self._of, self._kept)}
        self._last: dict[str, int] = {}
        self._last_of_root: dict[str, int] = {}
        for position, step in enumerate(program.steps):
            for name in (*read_by(step), *written_by(step)):
                self._last[name] = self._last_of_root[self._of(name)] = position
        self._stored: dict[str, int] = {}
        self._position = -1

    def _of(self, name: str) -> str:
        """Return the buffer whose memory a buffer is."""
        while name in self._root:
            name = self._root[name]
        return name

    def write(self, name: str, size: int) -> None:
        """Count an array as it comes; what is made with borders takes the memory of the result that it becomes."""
        if name not in self._root or name in self._becomes:
            self._stored[self._of(name)] = size

    def begin(self) -> None:
        """Count what is stored before the first step."""
        self.peak = sum(self._stored.values())

    def after(self, step: Step) -> list[str]:
        """Count a step that has run, with what it reads and writes; return what nothing reads any more."""
        self._position += 1
        self.peak = max(self.peak, sum(self._stored.values()))
        for name in [name for name in self._stored if self._last_of_root.get(name, -1) <= self._position]:
            if name not in self._forever:
                del self._stored[name]
        touched = (*read_by(step), *written_by(step))
        return [name for name in touched if self._last[name] <= self._position and name not in self._kept]


def _roots(step: Step, program: Program) -> Iterator[tuple[str, str]]:
    """Yield the buffers that have no memory of their own, with the one whose memory they are or keep alive."""
    if isinstance(step, Borders) and step.exchange.adds:
        yield step.source, step.target
    elif not isinstance(step, LocalOp):
        if program.buffers[step.target].transient:
            yield step.target, step.source
    elif rule_for(step.op).view:
        read = next(read_by(step), None)
        if read is not None:
            yield from ((name, read) for name in step.results)


def read_by(step: Step) -> Iterator[str]:
    """Yield the buffers that a step reads, operand by operand."""
    if not isinstance(step, LocalOp):
        yield step.source
    else:
        for names in step.operands:
            yield from () if names is None else (names,) if isinstance(names, str) else names


def written_by(step: Step) -> tuple[str, ...]:
    """Return the buffers that a step writes."""
    return step.results if isinstance(step, LocalOp) else (step.target,)


def run_bytes(program: Program) -> int:
    """Return about how many bytes a simulated run fills at its peak.

    Everything floating is in float64. First one device runs the whole graph, then all devices run the program beside
    its values and results, and their own results are put together; what devices share is stored once.

    Parameters
    ----------
    program : Program

    Returns
    -------
    int
    """
    graph = program.problem.graph
    drawn = sum(_bytes(tensor) for tensor in graph.tensors.values() if tensor.producer is None)
    wanted = sum(_bytes(graph.tensors[name]) for name in graph.outputs)
    return drawn + max(_whole_bytes(graph), 2 * wanted + _devices_bytes(program))


def _bytes(tensor: Tensor, shape: Sequence[int] | None = None) -> int:
    """Return the bytes of an array as it is simulated: of a tensor, or of a part of it."""
    wide = 16 if tensor.dtype.startswith("complex") else 8 if "float" in tensor.dtype else ITEMSIZE[tensor.dtype]
    return wide * math.prod(tensor.shape if shape is None else shape)


def _whole_bytes(graph: Graph) -> int:
    """Return the most bytes that results fill while one device runs a graph, those of an op that runs twice over.

    Views take no memory of their own, and what a kernel puts aside is about as large as what it makes.
    """
    dying = last_reads(graph)
    views = {name for node in graph.nodes.values() if rule_for(node.op).view for name in node.results}
    alive = peak = 0
    for node in graph.nodes.values():
        made = sum(_bytes(graph.tensors[name]) for name in node.results if name not in views)
        alive += made
        peak = max(peak, alive + made)
        gone = (name for name in dying.get(node.name, ()) if name not in views)
        alive -= sum(_bytes(graph.tensors[name]) for name in gone if graph.tensors[name].producer is not None)
    return peak


def _devices_bytes(program: Program) -> int:
    """Return the most bytes that the devices fill together beside the values: equal blocks are mostly one array."""
    stored, ranks = Stored(program), program.problem.mesh.coordinates()
    apart: Share = tuple(range(len(ranks)))
    shares: dict[str, Share] = {}
    for name in program.sources.values():  # blocks are views of the whole
        cut = [isinstance(placement, Shard) for placement in program.buffers[name].layout]
        shares[name] = _numbered(tuple(compress(rank, cut)) for rank in ranks)
    for step in program.steps:
        share = apart
        if isinstance(step, LocalOp) and not step.reduces:
            read = (shares.get(name, apart) for name in read_by(step))  # what is not there stops the run, not this
            share = _numbered(zip(map(id, step.attrs), *read, strict=True))
        elif isinstance(step, Transfer) and step.move.kind == "relabel":
            share = shares.get(step.source, apart)
        elif isinstance(step, Transfer) and step.move.kind in ("all_gather", "all_reduce"):
            (axis,) = step.move.axes
            share = _numbered((*rank[:axis], *rank[axis + 1 :]) for rank in ranks)
        for name in written_by(step):
            buffer, shares[name] = program.buffers[name], share
            tensor = program.problem.graph.tensors[buffer.tensor]
            most = max(_bytes(tensor, shape) for shape in buffer.shapes or (buffer.shape,))
            stored.write(name, most * len(set(share)))
        stored.after(step)
    return stored.peak


def _numbered(keys: Iterable[Hashable]) -> Share:
    """Return a number for each device: the same where the keys are."""
    numbers: dict[Hashable, int] = {}
    return tuple(numbers.setdefault(key, len(numbers)) for key in keys)


def free_bytes(root: Path = Path("/")) -> int | None:
    """Return the bytes of memory that this process may still fill; where no system says what is free, all there is.

    Parameters
    ----------
    root : Path, optional
        Where the files of the system lie.

    Returns
    -------
    int or None
        None where nothing is known.
    """
    try:
        told = (root / "proc/meminfo").read_text(encoding="ascii")
        free = int(told.partition("MemAvailable:")[2].split()[0]) * 1024
    except (OSError, LookupError, ValueError):
        try:
            return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (AttributeError, OSError, ValueError):
            return None
    group = root / "sys/fs/cgroup"
    try:  # a container may be allowed less; what it keeps of files is given up where memory is short
        most, used = (int((group / name).read_text(encoding="ascii")) for name in ("memory.max", "memory.current"))
        files = (group / "memory.stat").read_text(encoding="ascii").partition("inactive_file ")[2].split()[0]
        return min(free, max(0, most - used + int(files)))
    except (OSError, LookupError, ValueError):
        return free
