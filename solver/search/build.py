"""From a problem to its cost network, and from an assignment back to a choice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ops.placement import Layout
from solver.choice import HELD, MADE, Choice
from solver.problem import Problem
from solver.search.builder import Builder, IntArray
from solver.search.copies import Pairs
from solver.search.joint import JointRows
from solver.search.network import Network


@dataclass(frozen=True, eq=False)
class Built:
    """The cost network of a problem.

    Parameters
    ----------
    problem : Problem
    network : Network
    joint : dict
        Op -> its joint rows; the values of the op's variable are their kept indices in `kept`.
    kept : dict
        Op -> indices of the joint rows that the pins leave.
    pairs : dict
        Tensor with a variable of its own -> the (made, held) layout indices of its values.
    spells : dict
        Of a tensor whose copy matters to a memory budget how long it and its copy are kept, per value
        (`solver.cost.moments`).
    """

    problem: Problem
    network: Network
    joint: dict[str, JointRows]
    kept: dict[str, IntArray]
    pairs: dict[str, Pairs]
    spells: Mapping[str, tuple[IntArray, IntArray]] = field(default_factory=dict)

    def choice(self, assignment: tuple[int, ...]) -> Choice:
        """Read an assignment of the network as a choice."""
        rows: dict[str, tuple[int, ...]] = {}
        stored: dict[str, Layout] = {}
        held: dict[str, Layout] = {}
        chosen: dict[str, int] = {}
        known: dict[tuple[int, int], tuple[tuple[int, ...], tuple[int, ...]]] = {}
        for variable, value in zip(self.network.variables, assignment, strict=True):
            name = variable.name
            if variable.kind == "op":
                joint, row = self.joint[name], self.kept[name][value]
                if (key := (id(joint), int(row))) not in known:
                    made = tuple(int(column[row]) for column in joint.results)
                    known[key] = tuple(joint.rows[row].tolist()), made
                rows[name], made = known[key]
                chosen.update(zip(self.problem.graph.nodes[name].results, made, strict=True))
                continue
            layouts, pairs, producer = self.problem.layouts(name), self.pairs[name], chosen.get(name)
            before = pairs.made[value] if producer is None else producer
            if self.problem.graph.tensors[name].producer is None:
                stored[name] = layouts[before]
            if before != pairs.held[value]:
                held[name] = layouts[pairs.held[value]]
        return Choice(rows, stored, held, self.reads(assignment))

    def reads(self, assignment: tuple[int, ...]) -> dict[str, str]:
        """Return which of made and held the uses are told to read: those whose tensor is not kept for them as both."""
        found: dict[str, str] = {}
        for edge in self.network.edges if self.spells else ():
            tensor, value = self.network.variables[edge.tail].name, assignment[edge.tail]
            if tensor in self.spells and edge.name in self.problem.use_named:
                pairs, (one, other) = self.pairs[tensor], edge.tail_index[value]
                if one == other and pairs.made[value] != pairs.held[value]:
                    found[edge.name] = MADE if one == pairs.made[value] else HELD
        return found


def build(problem: Problem) -> Built:
    """Write a problem as a cost network in factored form.

    Parameters
    ----------
    problem : Problem

    Returns
    -------
    Built

    Raises
    ------
    OutOfTimeError
        Where there is no room for its tables, or no time (see `solver.deadline`).
    PriceError
        Where a price is longer than can be counted.

    Notes
    -----
    One variable per op (its joint row), per source (storage, held copy), and per result of several uses or with a pin:
    (made, held), or what is held alone where it is read twice. Every use is an edge; a result of one use goes straight
    from op to op. A tie is an edge between the
    storage of the leader and that of the follower, which must be equal, or what a tied output is delivered from.
    """
    builder = Builder(problem)
    builder.add_everything()
    return written(builder)


def written(builder: Builder) -> Built:
    """Return what a builder has written.

    Parameters
    ----------
    builder : Builder

    Returns
    -------
    Built
    """
    network = Network(tuple(builder.variables), tuple(builder.edges))
    return Built(builder.problem, network, builder.joint, builder.kept, builder.pairs)
