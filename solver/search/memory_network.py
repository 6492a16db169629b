"""The cost network of a problem with what it stores at chosen moments (docs/memory.md)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from solver.choice_tables import block_bytes
from solver.cost.moments import NEVER, OUTPUT, Moments
from solver.graph import Use
from solver.problem import Problem
from solver.search.build import Built, written
from solver.search.builder import Builder
from solver.search.copies import Pairs
from solver.search.flat import scaled
from solver.search.network import INF, BoolArray, Edge, IdArray, IntArray, Network, Variable


@dataclass(frozen=True, eq=False)
class Operand:
    """A use by the op of a moment.

    Parameters
    ----------
    edge : int
    rows : int32 array, shape (values of the tail, 2)
        Rows of `stored`: a layout, and beyond the layouts where reading it as it is adds nothing.
    stored : int64 array, shape (moments, rows, layouts)
        The bytes that the use adds, by what is read and what is needed.
    """

    edge: int
    rows: IdArray
    stored: IntArray


@dataclass(frozen=True, eq=False)
class Storing:
    """A cost network and what its values store at some moments.

    Parameters
    ----------
    built : Built
        With prices in picoseconds alone.
    moments : Moments
    own : tuple of int64 arrays, shape (moments, values)
        Per variable the bytes that it stores by itself.
    operands : tuple of Operand
    """

    built: Built
    moments: Moments
    own: tuple[IntArray, ...]
    operands: tuple[Operand, ...]

    def priced(self, multipliers: IntArray, bits: int, *, time: bool = True) -> Network:
        """Return the network whose prices are those in time plus those of the bytes, in units of ``2**-bits`` ps.

        Parameters
        ----------
        multipliers : int64 array
            Per moment the price of a byte in these units.
        bits : int
            Where it is negative, times are rounded down; nothing else is.
        time : bool, optional
            Whether time has a price at all.

        Returns
        -------
        Network
        """
        network = self.built.network
        known: dict[int, IntArray] = {}

        def timed(prices: IntArray) -> IntArray:
            if id(prices) not in known:
                known[id(prices)] = scaled(prices, bits) if time else np.where(prices < INF, 0, INF)
            return known[id(prices)]

        variables = tuple(
            Variable(v.name, v.kind, _add(timed(v.cost), multipliers @ own) if own.any() else timed(v.cost))
            for v, own in zip(network.variables, self.own, strict=True)
        )
        edges = [Edge(e.name, e.tail, e.head, timed(e.table), e.tail_index, e.head_index) for e in network.edges]
        for one in self.operands:
            edge = edges[one.edge]
            table = _add(np.concatenate([edge.table, edge.table]), np.tensordot(multipliers, one.stored, 1))
            edges[one.edge] = Edge(edge.name, edge.tail, edge.head, table, one.rows, edge.head_index)
        return Network(variables, tuple(edges))

    def bytes(self, assignment: tuple[int, ...]) -> IntArray:
        """Return what an assignment stores at each moment, as the network counts it."""
        return self.bytes_of(range(len(assignment)), assignment)

    def bytes_of(self, group: Iterable[int], assignment: tuple[int, ...]) -> IntArray:
        """Return what some variables and the uses at them store at each moment."""
        found, chosen = np.zeros(len(self.moments.names), np.int64), set(group)
        for i in chosen:
            found += self.own[i][:, assignment[i]]
        for one in self.operands:
            edge = self.built.network.edges[one.edge]
            if edge.tail in chosen or edge.head in chosen:
                rows, column = one.rows[assignment[edge.tail]], edge.head_index[assignment[edge.head]]
                price = edge.table[rows % len(edge.table), column]
                found += one.stored[:, rows[price == price.min()], column].min(axis=1)
        return found

    def plainer(self, network: Network, assignment: tuple[int, ...]) -> tuple[int, ...]:
        """Give up every shared copy that an assignment can do without at no higher price.

        A use that finds a copy nearer than what was made reads it, so a copy that saves nothing would only be kept for
        longer than was paid for.

        Parameters
        ----------
        network : Network
            As `priced` made it.
        assignment : tuple of int
        """
        found = list(assignment)
        for i, variable in enumerate(network.variables):
            if variable.kind != "tensor" or (pairs := self.built.pairs[variable.name]).relay:
                continue
            made = pairs.made[found[i]]
            if made == pairs.held[found[i]]:
                continue
            for value in np.flatnonzero((pairs.made == made) & (pairs.held == made)).tolist():
                tried = [*found[:i], value, *found[i + 1 :]]
                if self._local(network, i, tried) <= self._local(network, i, found):
                    found = tried
        return tuple(found)

    def _local(self, network: Network, i: int, assignment: Sequence[int]) -> int:
        """Return what a variable and the edges at it cost."""
        edges = (network.edges[e] for e in self.edges_at[i])
        total = int(network.variables[i].cost[assignment[i]])
        return min(INF, total + sum(edge.value(assignment[edge.tail], assignment[edge.head]) for edge in edges))

    @cached_property
    def edges_at(self) -> list[list[int]]:
        """Per variable the edges at it."""
        found: list[list[int]] = [[] for _ in self.built.network.variables]
        for e, edge in enumerate(self.built.network.edges):
            found[edge.tail].append(e)
            found[edge.head].append(e)
        return found


def _add(prices: IntArray, more: IntArray) -> IntArray:
    return np.where(prices < INF, prices + more, INF)


def storing(problem: Problem, moments: Sequence[str]) -> Storing:
    """Write a problem as a cost network that tells what is stored at some moments.

    Parameters
    ----------
    problem : Problem
    moments : sequence of str

    Returns
    -------
    Storing

    Raises
    ------
    OutOfTimeError, PriceError
        As `solver.search.build.build`.
    """
    builder = StoringBuilder(problem, Moments(problem.graph, problem.bound, moments))
    return builder.storing()


class StoringBuilder(Builder):
    """Builds a network in which every tensor that crosses a moment says how long it and its copy are kept."""

    def __init__(self, problem: Problem, moments: Moments) -> None:
        super().__init__(problem)
        self.moments = moments
        self.spells: dict[str, tuple[IntArray, IntArray]] = {}
        """Of the tensors that cross a moment the spells of their values."""

    def storing(self) -> Storing:
        """Build everything."""
        self.add_everything()
        edges = {edge.name: i for i, edge in enumerate(self.edges)}
        uses = [use for op in self.problem.graph.nodes for use in self.problem.graph.operand_uses(op)]
        operands = [self._operand(edges[use.name], use) for use in uses if use.op in self.moments.number]
        own = tuple(self._own(variable) for variable in self.variables)
        return Storing(replace(written(self), spells=self.spells), self.moments, own, tuple(operands))

    # ------------------------------------------------------------------------------------------------------ the values

    def _has_variable(self, tensor: str) -> bool:
        return super()._has_variable(tensor) or self.moments.crosses(tensor)

    def _is_relayed(self, tensor: str) -> bool:
        return super()._is_relayed(tensor) and not self.moments.crosses(tensor)

    def _paired(self, tensor: str) -> Pairs:
        if not self.moments.crosses(tensor):
            return super()._paired(tensor)
        pairs = self._copies(tensor)
        alone, copied = np.flatnonzero(pairs.made == pairs.held), np.flatnonzero(pairs.made != pairs.held)
        result = self.problem.graph.tensors[tensor].producer is not None
        spells = self.moments.spells(tensor, unread=result and tensor in self.problem.spoken_of)
        values = np.concatenate([alone, np.repeat(copied, len(spells))])
        first, second = (
            np.concatenate([np.full(len(alone), single), np.tile(np.array(part, np.int64), len(copied))])
            for single, part in zip(self.moments.alone(tensor), zip(*spells, strict=True), strict=True)
        )
        made, held, left = pairs.made[values], pairs.held[values], None
        cost = self.prices(tensor)[made, held]
        tied = self.problem.delivered_as(tensor) is not None
        if (delivery := self._delivery(tensor)) is not None or tied:
            from_made, from_held = self.moments.reads(tensor, OUTPUT, first, second)
            from_held &= made != held
            if delivery is not None:
                leaving = np.where(from_made, delivery[made], INF), np.where(from_held, delivery[held], INF)
                cost = np.minimum(INF, cost + np.minimum(*leaving))
            else:
                each = np.concatenate([np.flatnonzero(from_made), np.flatnonzero(from_held)])
                left = np.concatenate([made[from_made], held[from_held]])
                made, held, cost, first, second = (part[each] for part in (made, held, cost, first, second))
        self.spells[tensor] = first, second
        return Pairs(made, held, cost, left)

    def _copies(self, tensor: str) -> Pairs:
        """Return what may be made and held: beside the copies that can save time those smaller than what was made."""
        useful = super()._paired(tensor)
        fact = self.problem.graph.tensors[tensor]
        pinned = tensor in self.problem.spoken_of
        if fact.producer is None or pinned or self.problem.communication == "frozen":
            return useful
        local, prices = block_bytes(self.problem, tensor), self.prices(tensor)
        made = self._layouts_of(self.joint_of(fact.producer).results[fact.slot])
        wanted = np.zeros((len(prices), len(prices)), np.bool_)
        wanted[useful.made, useful.held] = True
        wanted[made] |= (local[None, :] < local[made][:, None]) & (prices[made] < INF)
        one, other = (part.astype(np.int32) for part in np.nonzero(wanted))
        return Pairs(one, other, prices[one, other])

    def _offered(self, use: Use) -> IdArray:
        pairs = self.pairs[use.tensor]
        if use.tensor not in self.spells:
            return pairs.columns
        made, held = self.moments.reads(use.tensor, use.name, *self.spells[use.tensor])
        held &= pairs.made != pairs.held
        first = np.where(made, pairs.made, pairs.held)
        return np.stack([first, np.where(held, pairs.held, first)], axis=1)

    # ------------------------------------------------------------------------------------------------------- the bytes

    def _own(self, variable: Variable) -> IntArray:
        name, moments = variable.name, self.moments
        if variable.kind == "tensor":
            pairs, local = self.pairs[name], block_bytes(self.problem, name)
            if pairs.relay:
                return np.zeros((len(moments.names), len(pairs.made)), np.int64)
            return moments.of_tensor(name, pairs.made, pairs.held, *self._spell(name), local)
        joint, kept, results = self.joint[name], self.kept[name], self.problem.graph.nodes[name].results
        made = [
            block_bytes(self.problem, tensor)[column[kept]]
            for tensor, column in zip(results, joint.results, strict=True)
        ]
        return moments.of_results(name, made)

    def _spell(self, tensor: str) -> tuple[IntArray, IntArray]:
        """Return the spells of the values of a tensor; all alike where nothing crosses a moment."""
        if tensor in self.spells:
            return self.spells[tensor]
        pairs = self.pairs[tensor]
        last = max(self.moments.classes(tensor).values(), default=NEVER)
        source = self.problem.graph.tensors[tensor].producer is None
        return np.full(len(pairs.made), NEVER if source else last), np.full(len(pairs.made), last)

    def _operand(self, number: int, use: Use) -> Operand:
        edge, local = self.edges[number], block_bytes(self.problem, use.tensor)
        columns = [edge.tail_index[:, side] + len(local) * free for side, free in enumerate(self._free(edge, use))]
        return Operand(number, np.stack(columns, axis=1).astype(np.int32), self.moments.of_use(use, local))

    def _free(self, edge: Edge, use: Use) -> tuple[BoolArray, BoolArray]:
        """Tell for the two layouts that each tail value offers whether reading them as they are adds nothing."""
        tail = self.variables[edge.tail]
        if tail.kind == "op":
            last = max(self.moments.classes(use.tensor).values())
            made, _ = self.moments.free(use, np.full(len(tail), last), np.full(len(tail), NEVER))
            return made, made
        pairs = self.pairs[use.tensor]
        made, held = self.moments.free(use, *self._spell(use.tensor))
        if pairs.relay:
            return made | held, made | held
        copied = pairs.made != pairs.held
        held = np.where(copied, held, made)
        if use.tensor in self.spells:
            reads_made, reads_held = self.moments.reads(use.tensor, use.name, *self.spells[use.tensor])
            return np.where(reads_made, made, held), np.where(
                reads_held & copied, held, np.where(reads_made, made, held)
            )
        return made, held
