"""A person's capabilities, overlap, memory budget and own expressions, read against a graph and a mesh."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from fractions import Fraction
from typing import Any

from solver.cost.tariff import SENDING
from solver.formula import Expression
from solver.graph import Graph
from solver.mesh import Mesh
from solver.problem_pins import ProblemError
from solver.words import read_size

CAPABILITIES = frozenset(
    {"masked_lookup", "halo_exchange", "shift", "synced_kernels", "sync_batch_norm", "parallel_softmax"}
)
"""What the program can run beyond plain local ops."""
DEFAULT_CAPABILITIES = frozenset({"masked_lookup"})
"""What every runtime can do; the others are a person's to grant."""
COMMAND = "command"
"""The place of what is asked for by the command."""
OPTIONS = {
    "pin": "--pin",
    "communication": "--communication",
    "policy": "--policy",
    "budget": "--memory",
    "expression": "--constraint",
}
"""The option of the command that sets a wish of a kind."""


def place_of(place: str, kind: str) -> str:
    """Return where a wish of a kind was set, where all of them were set at a place.

    Examples
    --------
    >>> place_of("train.py:12", "pin"), place_of(COMMAND, "pin"), place_of(COMMAND, "tie")
    ('train.py:12', '--pin', '')
    """
    return OPTIONS.get(kind, "") if place == COMMAND else place if kind in OPTIONS else ""


def read_expressions(graph: Graph, mesh: Mesh, expressions: Sequence[Expression]) -> tuple[Expression, ...]:
    """Check that expressions name what the graph and the mesh have.

    Raises
    ------
    ProblemError
        Where an atom names no tensor, dim or mesh axis.
    """
    for one in expressions:
        for atom in one.atoms:
            tensor = graph.tensors.get(atom.tensor)
            if tensor is None:
                raise ProblemError(f"constraints: {atom} names no tensor of graph {graph.name!r}")
            if atom.axis not in mesh.axes:
                raise ProblemError(f"constraints: {atom} names no mesh axis: the mesh has {', '.join(mesh.axes)}")
            if atom.dim is not None and atom.dim >= len(tensor.shape):
                raise ProblemError(f"constraints: {atom}: {tensor} has no dim {atom.dim}; dims count from 0")
    return tuple(expressions)


def read_overlap(overlap: Any) -> tuple[tuple[str, Fraction], ...]:
    """Read what fraction of the time of each kind of collective is hidden, as it is written: 0.3 is 3/10.

    Raises
    ------
    ProblemError
        For what is no mapping of kinds to numbers from 0 to 1.
    """
    if overlap is None:
        return ()
    if not isinstance(overlap, Mapping):
        raise ProblemError(f"overlap={overlap!r} is no mapping: write {{'all_gather': 0.5}}")
    found = {}
    for kind, part in overlap.items():
        if kind not in SENDING:
            raise ProblemError(f"overlap names {kind!r}, no kind of collective: choose from {', '.join(SENDING)}")
        if isinstance(part, bool) or not isinstance(part, int | float | Fraction) or not 0 <= part <= 1:
            raise ProblemError(f"overlap of {kind}: {part!r} is no fraction of its time: give a number from 0 to 1")
        found[kind] = Fraction(str(part))
    return tuple(sorted((kind, part) for kind, part in found.items() if part))


def read_memory(memory: Any) -> int | None:
    """Read a memory budget in bytes.

    Raises
    ------
    ProblemError
        Where it is no size.
    """
    try:
        return None if memory is None else read_size(memory)
    except ValueError as error:
        raise ProblemError(f"memory={memory!r}: {error}") from error


def read_capabilities(capabilities: Any) -> frozenset[str]:
    """Read what the program may run beyond plain local ops.

    Raises
    ------
    ProblemError
        For what is no set of names, and for a name that is unknown.
    """
    choose = f"choose from {', '.join(sorted(CAPABILITIES))}"
    if not isinstance(capabilities, Set | list | tuple) or not all(isinstance(name, str) for name in capabilities):
        raise ProblemError(f"capabilities={capabilities!r} is not a set of names: {choose}")
    if unknown := sorted(set(capabilities) - CAPABILITIES):
        raise ProblemError(f"capability {unknown[0]!r} is unknown: {choose}")
    return frozenset(capabilities)
