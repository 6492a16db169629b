"""What a plan chooses, and what follows from it: layouts, reshards and the price."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from ops.bind import Row
from ops.placement import Layout, Parts
from solver.choice_tables import price_class, table, table_with
from solver.cost.compute import compute_time
from solver.cost.kernel_steps import KernelStep, kernel_steps
from solver.cost.memory import Memory, Stored, plan_memory
from solver.cost.reshard import INF, Move, ReshardTable
from solver.cost.tariff import Tariff
from solver.formula import Atom, Expression
from solver.graph import Use
from solver.layout import local_shape
from solver.problem import Problem


@dataclass(frozen=True, slots=True)
class Choice:
    """The free decisions of a plan (docs/semantics.md, section 2).

    Parameters
    ----------
    rows : mapping
        Op -> per mesh axis the index of its row.
    stored : mapping
        Input, parameter, state or constant -> storage layout.
    held : mapping
        Tensor -> held layout, where it differs from what was made.
    reads : mapping
        Use -> ``made`` or ``held``: of a tensor with a shared copy which of the two it reads, where it is told to; the
        others read the nearer one.
    levy : int
        By which ways are chosen within a budget of traffic: the picoseconds that every KiB over its mesh axis counts
        more where paths are compared, and what is nearer. What is paid are the picoseconds of the path.
    """

    rows: Mapping[str, tuple[int, ...]]
    stored: Mapping[str, Layout]
    held: Mapping[str, Layout]
    reads: Mapping[str, str] = field(default_factory=dict)
    levy: int = 0


class Collective(NamedTuple):
    """One move of a reshard as it is told: several mesh axes of a permute with commas between them."""

    kind: str
    axis: str
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Reshard:
    """One change of layout that runs: a shared copy, or the copy of one use.

    Parameters
    ----------
    tensor : str
    uses : tuple of str
        The uses it serves: all that read a shared copy, one, or none (an output's own copy is ``"output"``).
    source, target : Layout
    shared : bool
        Whether it makes the held layout.
    moves : tuple of Move
        Its collectives and local moves, in order.
    collectives : tuple of Collective
        The same, with the names of the mesh axes, the bytes sent per device and the seconds.
    """

    tensor: str
    uses: tuple[str, ...]
    source: Layout
    target: Layout
    shared: bool
    moves: tuple[Move, ...]
    collectives: tuple[Collective, ...]

    @property
    def time(self) -> int:
        """Picoseconds."""
        return sum(move.time for move in self.moves)

    @property
    def bytes(self) -> int:
        """Bytes sent per device."""
        return sum(move.bytes for move in self.moves)


MADE, HELD = "made", "held"
"""What a use may be told to read."""
OUTPUT = "output"
"""What stands for the use that a graph output is."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What follows from a choice.

    Parameters
    ----------
    problem : Problem
    choice : Choice
    """

    problem: Problem
    choice: Choice

    def rows(self, node: str) -> tuple[Row, ...]:
        """Return the chosen row of an op, one per mesh axis."""
        rows = self.problem.bound[node].rows
        return tuple(rows[index] for index in self.choice.rows[node])

    def made(self, tensor: str) -> Layout:
        """Return the layout in which a result is produced; of a source its storage."""
        if tensor not in self._made:
            producer = self.problem.graph.tensors[tensor].producer
            if producer is None:
                return self.choice.stored[tensor]
            self._place(producer)
        return self._made[tensor]

    @cached_property
    def _made(self) -> dict[str, Layout]:
        return {}

    def held(self, tensor: str) -> Layout:
        """Return the layout in which a tensor is kept for its uses."""
        return self.choice.held.get(tensor) or self.made(tensor)

    def needed(self, use: Use) -> Layout:
        """Return the layout that a use reads."""
        place = use.op, use.slot
        if place not in self._needed:
            self._place(use.op)
        return self._needed[place]

    @cached_property
    def _needed(self) -> dict[tuple[str, int], Layout]:
        return {}

    def _place(self, node: str) -> None:
        """Work out what an op needs and makes; ops of one class share it where their tensors have equal parts."""
        asked = self.problem
        uses, results = asked.graph.operand_uses(node), asked.graph.nodes[node].results
        tensors = *(use.tensor for use in uses), *results
        key = *self._class(node), *map(asked.parts, tensors)
        if key not in self._placed:
            rows = self.rows(node)
            columns = [[row.operands[use.slot] for row in rows] for use in uses]
            columns += [[row.results[slot] for row in rows] for slot in range(len(results))]
            self._placed[key] = [
                asked.canonical(tensor, [p for p in column if p is not None])
                for tensor, column in zip(tensors, columns, strict=True)
            ]
        layouts = self._placed[key]
        self._needed.update(zip(((node, use.slot) for use in uses), layouts, strict=False))
        self._made.update(zip(results, layouts[len(uses) :], strict=True))

    @cached_property
    def _placed(self) -> dict[tuple[object, ...], list[Layout]]:
        return {}

    def compute(self, node: str) -> int:
        """Return the compute time of an op in picoseconds."""
        asked, known = self.problem, self._class(node)
        if known not in self._computed:
            fact, bound = asked.graph.nodes[node], asked.bound[node]
            time = compute_time(fact, bound, self.rows(node), self.dtypes(node), asked.mesh)
            self._computed[known] = asked.counted[1] * time
        return self._computed[known]

    @cached_property
    def _computed(self) -> dict[tuple[int, tuple[int, ...]], int]:
        return {}

    def _class(self, node: str) -> tuple[int, tuple[int, ...]]:
        """Return what ops of equal price share: the object that their rule is bound to, and the chosen rows."""
        return id(self.problem.bound[node]), self.choice.rows[node]

    def dtypes(self, node: str) -> Mapping[str, str]:
        """Return the dtype of each operand slot of an op."""
        graph = self.problem.graph
        return {use.operand: graph.tensors[use.tensor].dtype for use in graph.operand_uses(node)}

    def kernel(self, node: str) -> tuple[KernelStep, ...]:
        """Return what the kernel of an op sends itself, in order."""
        return self.kernels.get(node, ())

    @cached_property
    def kernels(self) -> Mapping[str, tuple[KernelStep, ...]]:
        """What kernels send themselves, op by op; an op whose kernel sends nothing is not there."""
        asked, found = self.problem, {}
        known: dict[tuple[int, tuple[int, ...]], tuple[KernelStep, ...]] = {}
        for name, node in asked.graph.nodes.items():
            if (key := self._class(name)) not in known:
                cuts = tuple(row.cut for row in self.rows(name))
                given = asked.bound[name], cuts, self.dtypes(name), asked.mesh, asked.tariff()
                known[key] = kernel_steps(node, *given)
            if known[key]:
                found[name] = known[key]
        return found

    @property
    def sent(self) -> int:
        """Bytes sent per device: by reshards and by kernels."""
        return sum(self.sent_by_kind.values())

    def sent_over(self, axis: int) -> int:
        """Return the bytes sent per device by collectives that involve a mesh axis."""
        moves = (move for reshard in self.reshards for move in reshard.moves)
        steps = (step for steps in self.kernels.values() for step in steps)
        return sum(one.bytes for some in (moves, steps) for one in some if axis in one.axes)

    @cached_property
    def sent_by_axis(self) -> Mapping[str, int]:
        """Bytes sent per device over each mesh axis; what involves several counts for each of them."""
        return {axis: self.sent_over(index) for index, axis in enumerate(self.problem.mesh.axes)}

    @cached_property
    def sent_by_kind(self) -> Mapping[str, int]:
        """Bytes sent per device by each kind of collective that sends any, of reshards and of kernels."""
        found: Counter[str] = Counter()
        for reshard in self.reshards:
            for move in reshard.moves:
                found[move.kind] += move.bytes
        for steps in self.kernels.values():
            for step in steps:
                found[step.kind] += step.bytes
        return +found

    @cached_property
    def reshards(self) -> tuple[Reshard, ...]:
        """Every reshard of the plan, tensor by tensor in program order."""
        return tuple(reshard for tensor in self.problem.graph.tensors for reshard in self._of_tensor(tensor))

    def table(self, tensor: str) -> ReshardTable:
        """Return the prices between the layouts of a tensor by which ways are chosen."""
        if self._levy == self.problem.levy:
            return table(self.problem, tensor)
        return table_with(self.problem, tensor, replace(self.problem.tariff(tensor), levy=self._levy))

    def path(self, tensor: str, source: Layout, target: Layout) -> tuple[Move, ...]:
        """Return the moves of a reshard, with the picoseconds that are paid for them."""
        moves = self.table(tensor).path(source, target)
        if self._levy == self.problem.levy:
            return moves
        levied = Tariff(levy=self._levy).levied
        return tuple(replace(move, time=move.time - levied(move.bytes, move.axes)) for move in moves)

    @cached_property
    def _levy(self) -> tuple[tuple[int, int], ...]:
        """What bytes cost more where ways are chosen: a search's own multipliers, or what the choice says."""
        asked = self.problem
        if asked.budget is None or not self.choice.levy:
            return asked.levy
        return ((asked.mesh.axis(asked.budget.axis), self.choice.levy),)

    def source_of(self, tensor: str, target: Layout, use: str = OUTPUT) -> Layout:
        """Return which of made and held a use that needs `target` reads.

        What it is told to; else what is `target` itself, else the nearer one, else held.
        """
        made, held = self.made(tensor), self.held(tensor)
        if made == held:
            return held
        if (told := self.choice.reads.get(use)) is not None:
            return made if told == MADE else held
        if target in (made, held):
            return target
        prices = self.table(tensor)
        return held if prices.between(held, target) <= prices.between(made, target) else made

    def delivered(self, tensor: str) -> Layout:
        """Return the layout in which a graph output leaves: the cheapest it may have, the first of equals.

        What is tied leaves as its leader is stored.
        """
        if (leader := self.problem.delivered_as(tensor)) is not None:
            return self.made(leader)
        allowed = self.problem.delivered(tensor)
        if allowed[0] in (self.held(tensor), self.made(tensor)):  # free, and the first
            return allowed[0]
        prices = self.table(tensor)
        return min(allowed, key=lambda target: prices.between(self.source_of(tensor, target), target))

    def reads(self, tensor: str) -> list[tuple[str, Layout, Layout]]:
        """Return per use of a tensor, delivery as a graph output last, what it reads and what it needs."""
        wanted = [(use.name, self.needed(use)) for use in self.problem.uses[tensor]]
        if self.problem.graph.is_output(tensor):
            wanted.append((OUTPUT, self.delivered(tensor)))
        return [(name, self.source_of(tensor, target, name), target) for name, target in wanted]

    def _of_tensor(self, tensor: str) -> list[Reshard]:
        made, held, reads = self.made(tensor), self.held(tensor), self.reads(tensor)
        found: list[Reshard] = []
        if held != made:
            served = tuple(name for name, source, _ in reads if source == held)
            found.append(self._reshard(tensor, served, made, held, shared=True))
        found += [
            self._reshard(tensor, (name,), source, target, shared=False)
            for name, source, target in reads
            if source != target
        ]
        return found

    def _reshard(self, tensor: str, uses: tuple[str, ...], source: Layout, target: Layout, *, shared: bool) -> Reshard:
        key = *price_class(self.problem, tensor), source, target
        if key not in self._ways:
            moves, axes = self.path(tensor, source, target), self.problem.mesh.axes
            self._ways[key] = (
                moves,
                tuple(
                    Collective(move.kind, ",".join(axes[axis] for axis in move.axes), move.bytes, move.time / 10**12)
                    for move in moves
                ),
            )
        return Reshard(tensor, uses, source, target, shared, *self._ways[key])

    @cached_property
    def _ways(self) -> dict[tuple[object, ...], tuple[tuple[Move, ...], tuple[Collective, ...]]]:
        return {}

    @cached_property
    def memory(self) -> Memory:
        """Peak bytes per device, by liveness over the order of the graph."""
        graph = self.problem.graph
        own = [reshard for reshard in self.reshards if not reshard.shared]
        copied = {
            reshard.tensor: self.bytes(reshard.tensor, reshard.target) for reshard in self.reshards if reshard.shared
        }
        past = [
            (tensor, name) for tensor in copied for name, source, _ in self.reads(tensor) if source != self.held(tensor)
        ]
        return plan_memory(
            graph,
            Stored(
                made={tensor: self.bytes(tensor, self.made(tensor)) for tensor in graph.tensors},
                held=copied,
                needed={r.uses[0]: self.bytes(r.tensor, r.target) for r in own if r.uses[0] != OUTPUT},
                outputs={r.tensor: self.bytes(r.tensor, r.target) for r in own if r.uses[0] == OUTPUT},
                made_reads=frozenset(name for _, name in past if name != OUTPUT),
                made_outputs=frozenset(tensor for tensor, name in past if name == OUTPUT),
            ),
        )

    def holds(self, expression: Expression) -> bool | None:
        """Tell whether a person's own expression holds; None where that hangs on a Boolean of the person's."""
        graph = self.problem.graph

        def truth(atom: Atom) -> bool | None:
            source = graph.tensors[atom.tensor].producer is None
            return self.problem.holds(atom, self.made(atom.tensor) if source else self.held(atom.tensor))

        return expression.value(truth)

    def bytes(self, tensor: str, layout: Layout) -> int:
        """Return the bytes of one device's block of a tensor."""
        fact, parts = self.problem.graph.tensors[tensor], self.problem.parts(tensor)
        key = parts, layout
        if key not in self._elements:
            self._elements[key] = math.prod(local_shape(layout, fact.shape, parts, self.problem.mesh.sizes))
        return self._elements[key] * fact.itemsize

    @cached_property
    def _elements(self) -> dict[tuple[Parts, Layout], int]:
        return {}

    @cached_property
    def total(self) -> int:
        """The price of the plan in picoseconds; `INF` where a reshard does not exist."""
        return min(INF, self.computing + self.communication)

    @cached_property
    def computing(self) -> int:
        """Picoseconds of compute."""
        return sum(self.compute(node) for node in self.problem.graph.nodes)

    @cached_property
    def communication(self) -> int:
        """Picoseconds of reshards, their local moves included, and of what kernels send."""
        inside = sum(step.time for steps in self.kernels.values() for step in steps)
        return inside + sum(reshard.time for reshard in self.reshards)

    @property
    def cost(self) -> int:
        """What was to be least, in picoseconds: the price, or communication alone."""
        return self.communication if self.problem.objective == "communication" else self.total
