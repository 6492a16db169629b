"""What a plan stores on a device while chosen ops run, as sums over what ops and tensors choose (docs/memory.md).

A **moment** is the step of one op, or the step before it in which one of its uses gets a copy of its own. The bytes
of a moment are a sum over tensors, uses and results, never more than what is alive there (`solver.cost.memory`), and
mostly exactly that. So they can be priced like everything else that a plan chooses, and what multiplies them proves a
bound on the plans within a budget.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ops.bind import BoundRule
from ops.placement import Shard
from ops.registry import rule_for
from solver.graph import Graph, Use

Ints: TypeAlias = NDArray[Any]
OUTPUT = "output"
"""What stands for the use that a graph output is."""
START = "before everything"
"""The moment before the first op, when sources alone are stored."""
FIRST = ""
"""What stands for an op there: no op has this name."""
NEVER = -1
"""The class of readers where nobody reads."""


def step_of(op: str) -> str:
    """Return the moment in which an op runs: its name, with ``at`` before it where it may be read as another moment.

    Examples
    --------
    >>> step_of("h"), step_of("before everything"), step_of("at h")
    ('h', 'at before everything', 'at at h')
    """
    return f"at {op}" if op.startswith(("at ", "before ")) else op


class Moments:
    """The moments of a graph, and what is stored there.

    Parameters
    ----------
    graph : Graph
    bound : mapping
        Op -> its rule, bound to shapes.
    names : sequence of str
        The moments: those of ops (`step_of`), ``before op/operand``, or `START`.

    Raises
    ------
    KeyError
        Where a name is that of no op and no use.

    Notes
    -----
    The ops of the moments are numbered from 1 in program order. A reader has the **class** ``2 * (such ops before it) +
    (1 where it is one of them)``: what is read by class c or a later one is alive at op k, beside what the op itself
    reads, where c >= 2k.
    """

    def __init__(self, graph: Graph, bound: Mapping[str, BoundRule], names: Sequence[str]) -> None:
        self.graph, self.bound, self.names = graph, bound, tuple(names)
        self._position = {FIRST: -1} | {node: i for i, node in enumerate(graph.nodes)}
        known: dict[str, tuple[str, Use | None]] = {START: (FIRST, None)}
        known |= {step_of(node): (node, None) for node in graph.nodes}
        known |= {f"before {use.name}": (use.op, use) for node in graph.nodes for use in graph.operand_uses(node)}
        self.before: tuple[Use | None, ...] = tuple(known[name][1] for name in names)
        """Per moment the use that gets its copy; None where the op runs."""
        found = [known[name][0] for name in names]
        self.ops = tuple(sorted(set(found), key=self._position.__getitem__))
        self.number = {op: k for k, op in enumerate(self.ops, 1)}
        self.numbers = tuple(self.number[op] for op in found)
        """Per moment the number of its op."""
        self._at = np.array([self._position[op] for op in self.ops], np.int64)

    # ------------------------------------------------------------------------------------------------------- readers

    def _class(self, position: int) -> int:
        before = int(np.searchsorted(self._at, position))
        return 2 * before + int(before < len(self._at) and self._at[before] == position)

    def classes(self, tensor: str) -> dict[str, int]:
        """Return the class of every use of a tensor, by name, that of its delivery as a graph output included."""
        if tensor not in self._classes:
            found = {use.name: self._class(self._position[use.op]) for use in self.graph.uses(tensor)}
            if self.graph.is_output(tensor):
                found[OUTPUT] = 2 * len(self.ops)
            self._classes[tensor] = found
        return self._classes[tensor]

    @cached_property
    def _classes(self) -> dict[str, dict[str, int]]:
        return {}

    def birth(self, tensor: str) -> int:
        """Return twice the number of moments that are no later than the op that makes a tensor; 0 for a source."""
        producer = self.graph.tensors[tensor].producer
        return 0 if producer is None else 2 * int(np.searchsorted(self._at, self._position[producer], "right"))

    def crosses(self, tensor: str) -> bool:
        """Tell whether it matters at some moment which readers read the shared copy of a tensor."""
        classes = self.classes(tensor).values()
        if not classes:
            return False
        first = min(classes) if self.graph.tensors[tensor].producer is None else self.birth(tensor)
        return max(classes) // 2 > first // 2

    def alone(self, tensor: str) -> tuple[int, int]:
        """Return the spell of a tensor without a shared copy (see `spells`)."""
        source = self.graph.tensors[tensor].producer is None
        return (NEVER if source else max(self.classes(tensor).values(), default=NEVER)), NEVER

    def spells(self, tensor: str, *, unread: bool) -> list[tuple[int, int]]:
        """Return how long a tensor and its shared copy may be kept: a pair of classes each.

        Of a result: the last reader of what was made (`NEVER`: none), and the last one of the copy. Of a source, which
        is always stored: the first reader of the copy and the last one. Classes between the same moments store alike:
        of these the one that lets most readers read is there.

        Parameters
        ----------
        tensor : str
        unread : bool
            Whether there may be a copy that nobody reads, as where a pin asks for one.
        """
        classes = sorted(set(self.classes(tensor).values()))
        ends = [one for one, after in zip(classes, [*classes[1:], NEVER], strict=True) if one // 2 != after // 2]
        if self.graph.tensors[tensor].producer is None:
            starts = [one for before, one in zip([NEVER, *classes], classes, strict=False) if one // 2 != before // 2]
            return [(first, last) for first in starts for last in ends if first <= last]
        last = max(classes, default=NEVER)
        made = ends if classes and classes[0] // 2 <= self.birth(tensor) // 2 else [NEVER, *ends]
        found = [(one, other) for one in made for other in ends if max(one, other) == last]
        return [*found, (last, NEVER)] if unread else found

    def reads(self, tensor: str, reader: str, first: Ints, second: Ints) -> tuple[Ints, Ints]:
        """Tell for spells whether a reader may read what was made, and whether it may read the copy."""
        at = self.classes(tensor)[reader]
        if self.graph.tensors[tensor].producer is None:
            return np.ones(len(first), np.bool_), (first <= at) & (at <= second)
        return at <= first, at <= second

    # --------------------------------------------------------------------------------------------- blocks and views

    @cached_property
    def root(self) -> dict[str, str]:
        """For each tensor the one whose memory it may be: a view's is that of its first operand."""
        found: dict[str, str] = {}
        for name, tensor in self.graph.tensors.items():
            above = None if tensor.producer is None else self._viewed(tensor.producer)
            found[name] = name if above is None else found[above]
        return found

    def _viewed(self, node: str) -> str | None:
        uses = self.graph.operand_uses(node)
        return uses[0].tensor if uses and rule_for(self.graph.nodes[node].op).view else None

    @cached_property
    def _members(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for tensor, root in self.root.items():
            found.setdefault(root, []).append(tensor)
        return found

    def counted(self, tensor: str, k: int) -> str | None:
        """Return the one of the tensors that may share memory with this one whose own is counted at a moment.

        It is the one that is read last; None where none is read after it, and for a source, whose storage counts.
        """
        root = self.root[tensor]
        if self.graph.tensors[root].producer is None:
            return None
        best, latest = None, 2 * k - 1
        for member in self._members[root]:
            last = max(self.classes(member).values(), default=NEVER)
            if self.birth(member) < 2 * k and last > latest:
                best, latest = member, last
        return best

    def _above(self, tensor: str, view: str | None) -> bool:
        """Tell whether a tensor is what a view is a view of, directly or not."""
        while view is not None and view != self.root[view]:
            producer = self.graph.tensors[view].producer
            view = None if producer is None else self._viewed(producer)
            if view == tensor:
                return True
        return False

    def _fits(self, tensor: str) -> bool:
        """Tell whether no layout of a view has more local bytes than what it is a view of."""
        fact = self.graph.tensors[tensor]
        if fact.producer is None or self.root[tensor] == tensor:
            return True
        use = self.graph.operand_uses(fact.producer)[0]
        rows = self.bound[fact.producer].rows
        cut = all(isinstance(r.results[fact.slot], Shard) for r in rows if isinstance(r.operands[use.slot], Shard))
        return cut and fact.bytes <= self.graph.tensors[use.tensor].bytes

    # ---------------------------------------------------------------------------------------------------- the bytes

    def of_tensor(self, tensor: str, made: Ints, held: Ints, first: Ints, second: Ints, local: Ints) -> Ints:
        """Return what a tensor and its copy store at each moment, beside what the op of the moment reads itself.

        Parameters
        ----------
        tensor : str
        made, held : int array
            Numbers of layouts, equal where there is no copy, for each value.
        first, second : int array
            The spell of each value.
        local : int array
            The bytes of one device's block in each layout.

        Returns
        -------
        int array, shape (moments, values)
        """
        source, birth = self.graph.tensors[tensor].producer is None, self.birth(tensor)
        found = np.zeros((len(self.names), len(made)), np.int64)
        copied = made != held
        for row, k in zip(found, self.numbers, strict=True):
            if source:
                row += local[made]
                row += np.where(copied & (first < 2 * k) & (second >= 2 * k), local[held], 0)
            elif 2 * k > birth:
                counted = self.counted(tensor, k)
                if counted == tensor and self._fits(tensor):
                    row += np.where(first >= 2 * k, local[made], 0)
                if not self._above(tensor, counted):
                    row += np.where(copied & (second >= 2 * k), local[held], 0)
        return found

    def of_use(self, use: Use, local: Ints) -> Ints:
        """Return what a use by the op of a moment stores, beside what is counted with its tensor.

        Parameters
        ----------
        use : Use
        local : int array
            The bytes of one device's block in each layout.

        Returns
        -------
        int array, shape (moments, 2 * layouts, layouts)
            By what it reads and what it needs; the second half of the rows is for what it reads `free`.
        """
        layouts = len(local)
        found = np.zeros((len(self.names), 2 * layouts, layouts), np.int64)
        same = np.eye(layouts, dtype=np.bool_)
        needed, read = np.broadcast_to(local, (layouts, layouts)), np.broadcast_to(local[:, None], (layouts, layouts))
        copy = np.where(same, 0, needed)
        for number, before in enumerate(self.before):
            if self.numbers[number] != self.number.get(use.op):
                continue
            if before is None or use.slot < before.slot:
                found[number] = np.concatenate([needed, copy])
            elif use.slot == before.slot:
                found[number] = np.concatenate([copy + read, copy])
            else:
                found[number, :layouts] = read
        return found

    def free(self, use: Use, first: Ints, second: Ints) -> tuple[Ints, Ints]:
        """Tell for a use by the op of a moment what it reads without adding to the bytes, where it needs no own copy.

        Parameters
        ----------
        use : Use
        first, second : int array
            The spell of each value of its tensor.

        Returns
        -------
        two bool arrays
            Of what was made, and of the shared copy: True where these bytes are counted with the tensor, or may be
            counted with another use of the op.
        """
        k, tensor = self.number[use.op], use.tensor
        root, counted = self.root[tensor], self.counted(tensor, k)
        alike = [other for other in self.graph.operand_uses(use.op) if self.root[other.tensor] == root]
        later = np.full(len(first), alike[0].slot != use.slot)
        made = later.copy()
        if self.graph.tensors[root].producer is None or counted not in (None, tensor) or not self._fits(tensor):
            made[:] = True
        elif counted == tensor:
            made |= first >= 2 * k
        held = later | (second >= 2 * k)
        if self._above(tensor, counted):
            held[:] = True
        return made, held

    def of_results(self, node: str, made: Sequence[Ints]) -> Ints:
        """Return what the results of an op store at each moment while it runs.

        Parameters
        ----------
        node : str
        made : sequence of int array
            The bytes of one device's block of each result, per value.

        Returns
        -------
        int array, shape (moments, values)
        """
        found = np.zeros((len(self.names), len(made[0])), np.int64)
        for row, k, before in zip(found, self.numbers, self.before, strict=True):
            if before is None and k == self.number.get(node) and self._viewed(node) is None:
                row += sum(made)
        return found
