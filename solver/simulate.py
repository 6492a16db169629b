"""Run a program on simulated devices and hold it against the unsharded run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ops.registry import rule_for
from solver.collectives import Array, Devices
from solver.program import BufferNames, LocalOp, Program, Transfer
from solver.values import call, random_values, run_whole

TOLERANCE = 1e-9
"""The largest difference of an output from the unsharded run, relative to its largest value, in float64."""


@dataclass(frozen=True)
class Run:
    """What a simulated run found.

    Parameters
    ----------
    max_error : mapping
        Output -> the largest difference from the unsharded run, relative to its largest value; inf where devices that
        should agree do not.
    bytes_sent, predicted_bytes : int
        Per device: counted as they were sent, and what the plan says.
    peak_memory, predicted_memory : int
        Bytes per device: counted as buffers came and went, and what the plan says.
    devices : int
    """

    max_error: Mapping[str, float]
    bytes_sent: int
    predicted_bytes: int
    peak_memory: int
    predicted_memory: int
    devices: int
    tolerance: float = field(default=TOLERANCE, repr=False)

    @property
    def findings(self) -> list[str]:
        """What is wrong, a sentence each."""
        found = [
            f"output {name!r} differs from the unsharded run by {error:.2e} of its largest value"
            for name, error in self.max_error.items()
            if not error <= self.tolerance
        ]
        if self.bytes_sent != self.predicted_bytes:
            found.append(f"{self.bytes_sent} bytes were sent per device, the plan says {self.predicted_bytes}")
        if self.peak_memory != self.predicted_memory:
            found.append(f"{self.peak_memory} bytes were stored at the peak, the plan says {self.predicted_memory}")
        return found

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    def __str__(self) -> str:
        worst = max(self.max_error.values(), default=0.0)
        told = (
            f"simulated on {self.devices} devices: {len(self.max_error)} outputs agree with the unsharded run "
            f"(largest relative difference {worst:.1e}), {self.bytes_sent:,} bytes sent per device as predicted"
        )
        return (
            told
            if self.ok
            else "the simulated run is wrong:\n" + "\n".join(f"  {finding}" for finding in self.findings)
        )


def simulate(program: Program, seed: int = 0, values: Mapping[str, Array] | None = None) -> Run:
    """Run a program in numpy, collectives included, and compare every graph output with the unsharded run.

    Parameters
    ----------
    program : Program
    seed : int, optional
        Of the values drawn for inputs, parameters and states.
    values : mapping, optional
        Source -> array, instead of drawn ones.

    Returns
    -------
    Run
    """
    graph = program.problem.graph
    given = random_values(graph, seed) if values is None else dict(values)
    machine = _Machine(program)
    made = machine.run(given)
    whole = run_whole(graph, given)
    return Run(
        {name: relative_error(made[name], whole[name]) for name in graph.outputs},
        machine.sent,
        sum(reshard.bytes for reshard in program.plan.reshards),
        machine.memory.peak,
        program.plan.memory.peak,
        math.prod(program.problem.mesh.sizes),
    )


def relative_error(made: Array | None, wanted: Array) -> float:
    """Return the largest difference relative to the largest value; inf for another shape, or for no array."""
    if made is None or made.shape != wanted.shape:
        return math.inf
    if wanted.dtype.kind not in "fc":
        return 0.0 if np.array_equal(made, wanted) else math.inf
    if not np.array_equal(np.isnan(made), np.isnan(wanted)):
        return math.inf
    same = (made == wanted) | np.isnan(wanted)
    with np.errstate(invalid="ignore"):
        difference = np.where(same, 0.0, np.abs(made - wanted))
    largest = float(np.max(np.abs(wanted), initial=0.0, where=np.isfinite(wanted)))
    return float(np.max(difference, initial=0.0)) / (largest or 1.0)


class _Machine:
    """All devices of the mesh: per buffer one array each."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.sent = 0
        self.alive: dict[str, list[Array]] = {}
        self.memory = _Memory(program)
        self._devices: dict[str, Devices] = {}

    def devices(self, tensor: str) -> Devices:
        """Return what a tensor is to the devices."""
        if tensor not in self._devices:
            problem = self.program.problem
            fact = problem.graph.tensors[tensor]
            self._devices[tensor] = Devices(problem.mesh.sizes, fact.shape, problem.parts(tensor), fact.itemsize)
        return self._devices[tensor]

    def run(self, values: Mapping[str, Array]) -> dict[str, Array | None]:
        """Run every step; return the outputs put together, None where devices that should agree do not."""
        program = self.program
        for tensor, name in program.sources.items():
            self.alive[name] = self.devices(tensor).cut(values[tensor], program.buffers[name].layout)
        for step in program.steps:
            if isinstance(step, Transfer):
                self._transfer(step)
            else:
                self._op(step)
            self.memory.after(step)
            for name in self.memory.unread(step):
                self.alive.pop(name, None)
        return {
            tensor: self.devices(tensor).assemble(self.alive[name], program.buffers[name].layout)
            for tensor, name in program.outputs.items()
        }

    def _transfer(self, step: Transfer) -> None:
        tensor = self.program.buffers[step.source].tensor
        self.alive[step.target], sent = self.devices(tensor).move(self.alive[step.source], step.move)
        self.sent += sent

    def _op(self, step: LocalOp) -> None:
        """Run an op on every device; devices that hold the very same arrays share the work."""
        kernel = rule_for(step.op).kernel
        count = len(step.attrs)
        operands = [[self._read(names, rank) for names in step.operands] for rank in range(count)]
        shared: dict[Any, list[Array]] = {}
        made: list[list[Array]] = []
        for rank in range(count):
            key = (id(step.attrs[rank]), *(_identity(operand) for operand in operands[rank]))
            if key not in shared:
                shared[key] = call(kernel, operands[rank], step.attrs[rank])
            made.append(shared[key])
        for slot, name in enumerate(step.results):
            self.alive[name] = [results[slot] for results in made]
            wanted = self.program.buffers[name].shape
            if self.alive[name][0].shape != wanted:
                raise RuntimeError(
                    f"{step.op} {step.node!r} made {self.alive[name][0].shape} on a device, not {wanted}"
                )

    def _read(self, names: BufferNames, rank: int) -> Any:
        if names is None:
            return None
        return self.alive[names][rank] if isinstance(names, str) else [self.alive[name][rank] for name in names]


def _identity(operand: Any) -> Any:
    return tuple(map(id, operand)) if isinstance(operand, list) else id(operand)


class _Memory:
    """Counts what one device stores, as the program runs (docs/semantics.md, section 5)."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._root: dict[str, str] = {}
        self._stored = {name: self._bytes(name) for name in program.sources.values()}
        self._forever = set(self._stored)
        for step in program.steps:
            for name, root in _roots(step, program):
                self._root[name] = self._root.get(root, root)
        self._forever |= {self._root.get(name, name) for name in program.outputs.values()}
        self._last_read: dict[str, int] = {}
        self._last_touched: dict[str, int] = {}
        for position, step in enumerate(program.steps):
            for name in (*_read_by(step), *_written_by(step)):
                self._last_read[self._root.get(name, name)] = position
                self._last_touched[name] = position
        self._position = 0
        self.peak = sum(self._stored.values())

    def after(self, step: LocalOp | Transfer) -> None:
        """Count a step that has run: what it read and wrote was stored together."""
        for name in _written_by(step):
            if name not in self._root:
                self._stored[name] = self._bytes(name)
        self.peak = max(self.peak, sum(self._stored.values()))
        for name in [name for name in self._stored if self._last_read.get(name, -1) <= self._position]:
            if name not in self._forever:
                del self._stored[name]
        self._position += 1

    def unread(self, step: LocalOp | Transfer) -> Iterator[str]:
        """Yield the buffers that no later step reads and that are no output."""
        kept = set(self.program.outputs.values())
        for name in (*_read_by(step), *_written_by(step)):
            if self._last_touched[name] < self._position and name not in kept:
                yield name

    def _bytes(self, name: str) -> int:
        buffer = self.program.buffers[name]
        return math.prod(buffer.shape) * self.program.problem.graph.tensors[buffer.tensor].itemsize


def _roots(step: LocalOp | Transfer, program: Program) -> Iterator[tuple[str, str]]:
    """Yield the buffers that have no memory of their own, with the one whose memory they are or keep alive."""
    if isinstance(step, Transfer):
        if program.buffers[step.target].transient:
            yield step.target, step.source
    elif rule_for(step.op).view:
        read = next(iter(_read_by(step)), None)
        if read is not None:
            yield from ((name, read) for name in step.results)


def _read_by(step: LocalOp | Transfer) -> Iterator[str]:
    if isinstance(step, Transfer):
        yield step.source
    else:
        for names in step.operands:
            yield from () if names is None else (names,) if isinstance(names, str) else names


def _written_by(step: LocalOp | Transfer) -> tuple[str, ...]:
    return (step.target,) if isinstance(step, Transfer) else step.results
