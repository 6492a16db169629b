"""Run a program on simulated devices and hold it against the unsharded run."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

from ops.registry import rule_for
from ops.run import flat_results
from solver.collectives import Array, Devices
from solver.program import Borders, BufferNames, LocalOp, Program, Transfer
from solver.simulate_memory import Stored, free_bytes, read_by, run_bytes
from solver.values import KERNEL_ERRORS, ValuesError, call, given_values, random_values, run_whole, started
from solver.words import sizes_apart

TOLERANCE = 1e-9
"""The largest difference of an output from the unsharded run, relative to its largest value, in float64."""
ROUNDING = 100
"""What cancels to nothing is compared with so many times that by which rounding alone moves it."""


@dataclass(frozen=True)
class Run:
    """What a simulated run found.

    Parameters
    ----------
    max_error : mapping
        Output -> the largest difference from the unsharded run, relative to its largest value, or, where its terms
        cancel, to what rounding makes of it; inf where devices that should agree do not, or where the run has stopped.
    bytes_sent, predicted_bytes : int
        Per device: counted as they were sent, and what the plan says.
    peak_memory, predicted_memory : int
        Bytes per device: counted as arrays came and went, and what the plan says.
    devices : int
    stopped : str or None
        Why the run has stopped before its end.
    """

    max_error: Mapping[str, float]
    bytes_sent: int
    predicted_bytes: int
    peak_memory: int
    predicted_memory: int
    devices: int
    stopped: str | None = None
    tolerance: float = field(default=TOLERANCE, repr=False)

    @property
    def findings(self) -> list[str]:
        """What is wrong, a sentence each."""
        if self.stopped is not None:
            return [self.stopped]
        found = [
            f"output {name!r} differs from the unsharded run by {error:.2e} of its largest value"
            if math.isfinite(error)
            else f"output {name!r} has no one value: devices disagree, or hold what the unsharded run does not"
            for name, error in self.max_error.items()
            if not error <= self.tolerance
        ]
        if self.bytes_sent != self.predicted_bytes:
            found.append(f"{_count(self.bytes_sent, 'byte')} sent per device, the plan says {self.predicted_bytes:,}")
        if self.peak_memory != self.predicted_memory:
            found.append(
                f"{_count(self.peak_memory, 'byte')} stored at the peak, the plan says {self.predicted_memory:,}"
            )
        return found

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    def __str__(self) -> str:
        if not self.ok:
            return "\n".join(["the simulated run is wrong:", *(f"  {finding}" for finding in self.findings)])
        worst = max(self.max_error.values(), default=0.0)
        agree = "agrees" if len(self.max_error) == 1 else "agree"
        return (
            f"simulated on {_count(self.devices, 'device')}: {_count(len(self.max_error), 'output')} {agree} with the "
            f"unsharded run (largest relative difference {worst:.1e}), {_count(self.bytes_sent, 'byte')} sent per "
            "device as predicted"
        )


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


class RunTooLargeError(MemoryError):
    """A run that would fill more memory than there is."""


class _StoppedError(Exception):
    """A step of a program that cannot run."""


def simulate(
    program: Program,
    seed: int = 0,
    values: Mapping[str, Any] | None = None,
    memory: int | None = None,
    tell: Callable[[str], object] | None = None,
) -> Run:
    """Run a program in numpy, collectives included, and compare every graph output with the unsharded run.

    Parameters
    ----------
    program : Program
    seed : int, optional
        Of the values drawn for inputs, parameters and states.
    values : mapping, optional
        Source -> array, instead of drawn ones; constants may be left out.
    memory : int, optional
        Bytes that the run may fill, by default what is free.
    tell : callable, optional
        Called with how many ops have run, of all, as a text.

    Returns
    -------
    Run

    Raises
    ------
    ValuesError
        Where the values do not fit the graph, and for a seed that is no whole number from 0 up.
    RunTooLargeError
        Before anything runs, where it would fill more memory than it may.
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ValuesError(f"seed={seed!r}: give a whole number from 0 up")
    graph = program.problem.graph
    _hold_room(program, memory)
    numbers = count(1)

    def done() -> None:
        if tell is not None:
            tell(f"{next(numbers):,} of {2 * len(graph.nodes):,} ops")

    given = random_values(graph, seed) if values is None else given_values(graph, values)
    whole = run_whole(graph, given, done)
    machine = _Machine(program, done)
    stopped: str | None = None
    errors = dict.fromkeys(graph.outputs, math.inf)
    try:
        made = machine.run(given)
        errors = {name: relative_error(made[name], whole[name]) for name in graph.outputs}
        if any(TOLERANCE < error < math.inf for error in errors.values()):
            shaken = run_whole(graph, _shaken(given))
            errors = {name: relative_error(made[name], whole[name], shaken[name]) for name in graph.outputs}
    except _StoppedError as error:
        stopped = str(error)
    return Run(
        errors,
        machine.sent,
        program.plan.sent,
        machine.memory.peak,
        program.plan.memory.peak,
        math.prod(program.problem.mesh.sizes),
        stopped,
    )


def _hold_room(program: Program, memory: int | None) -> None:
    """Refuse a run for which there is no room, before it takes the room of others."""
    needed, room = run_bytes(program), free_bytes() if memory is None else memory
    if room is not None and needed > room:
        wanted, there = sizes_apart(needed, room)
        where = f"on {_count(math.prod(program.problem.mesh.sizes), 'simulated device')}"
        limit = "free" if memory is None else "allowed"
        raise RunTooLargeError(
            f"running the plan {where} takes about {wanted}, and {there} are {limit}: "
            "plan a smaller batch or fewer layers, or check the proof alone (--check, or check() of a plan)"
        )


def _shaken(values: Mapping[str, Array]) -> dict[str, Array]:
    """Return the values moved by some units in the last place."""
    rng = np.random.default_rng(0)
    last = 4 * float(np.finfo(np.float64).eps)
    return {
        name: value * (1 + last * rng.uniform(-1, 1, value.shape)) if value.dtype.kind == "f" else value
        for name, value in values.items()
    }


def relative_error(made: Array | None, wanted: Array, shaken: Array | None = None) -> float:
    """Return the largest difference relative to the largest value; inf for another shape, or for no array.

    Terms that cancel leave nothing but rounding, which differs from run to run. With ``shaken``, the same on values
    moved by a last place, the difference is relative to what a difference of `ROUNDING` times that is `TOLERANCE` of,
    where this is larger.
    """
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
    if shaken is not None:
        both = np.isfinite(wanted) & np.isfinite(shaken)
        with np.errstate(invalid="ignore"):
            moved = float(np.max(np.abs(shaken - wanted), initial=0.0, where=both))
        largest = max(largest, ROUNDING * moved / TOLERANCE)
    return float(np.max(difference, initial=0.0)) / (largest or 1.0)


class _Machine:
    """All devices of the mesh: per buffer one array each."""

    def __init__(self, program: Program, done: Callable[[], None]) -> None:
        self.program = program
        self.done = done
        self.sent = 0
        self.alive: dict[str, Sequence[Array]] = {}
        self.memory = Stored(program)
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
            self._write(name, self.devices(tensor).cut(values[tensor], program.buffers[name].layout))
        self.memory.begin()
        for step in program.steps:
            what = step.node if isinstance(step, LocalOp) else step.target
            if missing := sorted({*read_by(step)} - self.alive.keys()):
                raise _StoppedError(f"{what!r} reads {missing[0]!r}, which is not there")
            try:
                self._op(step) if isinstance(step, LocalOp) else self._transfer(step)
            except KERNEL_ERRORS as error:
                raise _StoppedError(f"{what!r} cannot run on the devices: {error}") from error
            if isinstance(step, LocalOp):
                self.done()
            for name in self.memory.after(step):
                self.alive.pop(name, None)
        if missing := sorted({*program.outputs.values()} - self.alive.keys()):
            raise _StoppedError(f"nothing has made {missing[0]!r}")
        return {
            tensor: self.devices(tensor).assemble(self.alive[name], program.buffers[name].layout)
            for tensor, name in program.outputs.items()
        }

    def _write(self, name: str, arrays: Sequence[Array]) -> None:
        buffer = self.program.buffers[name]
        for device, array in enumerate(arrays):
            shape = buffer.shapes[device] if buffer.shapes else buffer.shape
            if array.shape != shape:
                raise _StoppedError(f"{name!r} has shape {array.shape} on device {device}, not {shape}")
        self.alive[name] = arrays
        most = math.prod(buffer.shape) if buffer.shapes else max(array.size for array in arrays)
        self.memory.write(name, most * self.devices(buffer.tensor).itemsize)

    def _transfer(self, step: Transfer | Borders) -> None:
        devices, held = self.devices(self.program.buffers[step.source].tensor), self.alive[step.source]
        if isinstance(step, Transfer):
            arrays, sent = devices.move(held, step.move)
        else:
            arrays, sent = devices.exchange(held, step.exchange, step.step.axes)
        self.sent += sent
        self._write(step.target, arrays)

    def _op(self, step: LocalOp) -> None:
        """Run an op on every device; devices that hold the very same arrays share the work, but where they reduce."""
        kernel = rule_for(step.op).kernel
        operands = [[self._read(names, rank) for names in step.operands] for rank in range(len(step.attrs))]
        if step.reduces:
            running = [started(kernel, mine, attrs) for mine, attrs in zip(operands, step.attrs, strict=True)]
            made = self._together(running, step)
        else:
            shared: dict[Any, list[Array]] = {}
            made = []
            for mine, attrs in zip(operands, step.attrs, strict=True):
                key = (id(attrs), *map(_identity, mine))
                if key not in shared:
                    shared[key] = call(kernel, mine, attrs)
                made.append(shared[key])
        for name, arrays in zip(step.results, zip(*made, strict=True), strict=True):
            self._write(name, arrays)

    def _together(self, running: list[Generator[tuple[Array, str], Array, Any]], step: LocalOp) -> list[list[Array]]:
        """Drive kernels that hand over arrays to be reduced, all devices at once, until each has its results."""
        line = Devices(self.program.problem.mesh.sizes, (), (), step.itemsize)
        answers: list[Any] = [None] * len(running)
        while True:
            asked: list[tuple[Array, str]] = []
            done: list[list[Array]] = []
            for kernel, answer in zip(running, answers, strict=True):
                try:
                    asked.append(kernel.send(answer))
                except StopIteration as end:
                    done.append(list(flat_results(end.value)))
            if not asked:
                return done
            if done or len({kind for _, kind in asked}) > 1:
                raise _StoppedError(f"op {step.node!r}: the devices do not reduce the same arrays")
            answers = [array for array, _ in asked]
            for axis in step.reduces:
                answers, sent = line.all_reduce(answers, axis, asked[0][1])
                self.sent += sent

    def _read(self, names: BufferNames, rank: int) -> Any:
        if names is None:
            return None
        return self.alive[names][rank] if isinstance(names, str) else [self.alive[name][rank] for name in names]


def _identity(operand: Any) -> Any:
    return tuple(map(id, operand)) if isinstance(operand, list) else id(operand)
