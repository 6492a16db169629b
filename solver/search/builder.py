"""The variables and edges of a cost network, written in program order."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from solver.choice_tables import price_class, table
from solver.cost.collectives import PriceError
from solver.cost.compute import MOST_COUNTED, refuse_beyond_counting
from solver.cost.reshard import ReshardTable
from solver.deadline import OutOfTimeError, keep_time
from solver.graph import Use
from solver.problem import Problem
from solver.search.copies import Pairs, relayed, useful_pairs
from solver.search.joint import JointRows, JointTable
from solver.search.network import INF, Edge, Variable

IntArray: TypeAlias = NDArray[np.int64]
IdArray: TypeAlias = NDArray[np.int32]
A = TypeVar("A", bound=NDArray[Any])
MOST_BYTES = 2**30
"""The bytes that the tables of a network may take in all; the search holds them three times more."""


def _refuse_what_cannot_be_counted(problem: Problem) -> None:
    known: set[int] = set()
    for name, node in problem.graph.nodes.items():
        bound = problem.bound[name]
        if id(bound) not in known:  # equal ops take equal time
            known.add(id(bound))
            dtypes = {use.operand: problem.graph.tensors[use.tensor].dtype for use in problem.graph.operand_uses(name)}
            refuse_beyond_counting(node, bound, dtypes, problem.mesh)
    for tensor in problem.graph.tensors.values():
        size = math.prod(tensor.shape) * tensor.itemsize
        if size >= MOST_COUNTED:
            raise PriceError(f"tensor {tensor.name!r} has {size} bytes: check its shape")


class Builder:
    """Builds a network variable by variable, in program order.

    Parameters
    ----------
    problem : Problem
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.joint_table = JointTable(problem)
        self.variables: list[Variable] = []
        self.edges: list[Edge] = []
        self.joint: dict[str, JointRows] = {}
        self.kept: dict[str, IntArray] = {}
        self.pairs: dict[str, Pairs] = {}
        self.position: dict[tuple[str, str], int] = {}
        self.shared: dict[tuple[object, ...], Any] = {}
        self.identities: dict[int, IntArray] = {}
        self.columns: dict[tuple[object, ...], Any] = {}
        self.tables: dict[str, ReshardTable] = {}
        self.alike: dict[tuple[object, ...], ReshardTable] = {}
        self.counted: set[int] = set()
        self.turned: dict[int, IntArray] = {}
        self.bytes = 0
        self.useful: dict[tuple[object, ...], tuple[Pairs, IntArray]] = {}
        self.tied: dict[str, list[tuple[str, str]]] = {}
        for follower, leader in problem.ties.items():
            if problem.graph.tensors[follower].producer is None:
                self.tied.setdefault(follower, []).append((follower, leader))
                self.tied.setdefault(leader, []).append((follower, follower))

    def add_everything(self) -> None:
        """Add all variables and edges."""
        _refuse_what_cannot_be_counted(self.problem)
        for tensor in self.problem.graph.tensors.values():
            if tensor.producer is None and not self.problem.uses[tensor.name]:
                self.add_source(tensor.name)
        for name in self.problem.graph.nodes:
            self.add_op(name)

    def prices(self, tensor: str) -> IntArray:
        """Return the prices that uses of a tensor pay: none but staying the same where nothing may be resharded."""
        keep_time()
        if self.problem.communication == "frozen":
            return self.identity(len(self.problem.layouts(tensor)))
        if tensor not in self.tables:
            alike = price_class(self.problem, tensor)
            if alike not in self.alike:
                self.alike[alike] = self._table(tensor)
            self.tables[tensor] = self.alike[alike]
        return self.tables[tensor].time

    def _table(self, tensor: str) -> ReshardTable:
        found = table(self.problem, tensor)
        if id(found) not in self.counted:
            self._make_room(len(found.layouts))
            self.counted.add(id(found))
        return found

    def prices_back(self, tensor: str) -> IntArray:
        """Return the same prices with what is needed as rows: the tail of a tie is the leader."""
        prices = self.prices(tensor)
        if id(prices) not in self.turned:
            self._make_room(len(prices))
            self.turned[id(prices)] = np.ascontiguousarray(prices.T)
        return self.turned[id(prices)]

    def _make_room(self, layouts: int) -> None:
        """Give up where the tables would take more memory than there should be for them."""
        self.bytes += 8 * layouts**2
        if self.bytes > MOST_BYTES:
            raise OutOfTimeError("the tables of prices are too large")

    def identity(self, size: int) -> IntArray:
        """Return the table that allows equal layouts only."""
        if size not in self.identities:
            self._make_room(size)
            self.identities[size] = np.where(np.eye(size, dtype=bool), 0, INF).astype(np.int64)
        return self.identities[size]

    def joint_of(self, node: str) -> JointRows:
        """Return the joint rows of an op."""
        if node not in self.joint:
            self.joint[node] = self.joint_table.of(node)
        return self.joint[node]

    # ---------------------------------------------------------------------------------------------------- variables

    def add_op(self, name: str) -> None:
        """Add the variable of an op, the sources that it is the first to use, its edges, and its results."""
        problem = self.problem
        uses = problem.graph.operand_uses(name)
        for use in uses:
            if problem.graph.tensors[use.tensor].producer is None:
                self.add_source(use.tensor)
        for tensor in problem.graph.nodes[name].results:
            if (leader := problem.delivered_as(tensor)) is not None:
                self.add_source(leader)
        joint = self.joint_of(name)
        kept = self._kept(name, uses, joint)
        self.kept[name] = kept
        cost = self._taken(joint.time, kept, "cost")
        node = problem.graph.nodes[name]
        for slot, tensor in enumerate(node.results):
            delivery = self._delivery(tensor)
            if delivery is not None and not self._has_variable(tensor):
                cost = self._share("cost", np.minimum(INF, cost + delivery[joint.results[slot][kept]]))
        self._add(Variable(name, "op", cost))
        if name in problem.repeats:
            self._add_repeat(name, problem.repeats[name])
        for use in uses:
            self._add_use(use)
        for slot, tensor in enumerate(node.results):
            if self._has_variable(tensor):
                self.add_tensor(tensor)
                self._add_made(name, slot, tensor)
            if (leader := problem.delivered_as(tensor)) is not None:
                self._add_delivery(name, slot, tensor, leader)

    def add_source(self, tensor: str) -> None:
        """Add the variable of a source where it is not there yet, and its ties to those that are."""
        if ("tensor", tensor) in self.position:
            return
        self.add_tensor(tensor)
        for follower, other in self.tied.get(tensor, ()):
            if ("tensor", other) in self.position:
                tail, head = self.pairs[other], self.pairs[tensor]
                ends = self.position["tensor", other], self.position["tensor", tensor]
                same = self.identity(len(self.problem.layouts(tensor)))
                self.edges.append(Edge(f"tie:{follower}", *ends, same, tail.stored, head.made))

    def add_tensor(self, tensor: str) -> None:
        """Add the variable of a source, or of a result that has several uses or a pin."""
        pairs = self._relayed(tensor) if self._is_relayed(tensor) else self._paired(tensor)
        self.pairs[tensor] = pairs
        self._add(Variable(tensor, "tensor", pairs.cost))

    def _relayed(self, tensor: str) -> Pairs:
        count, tied = len(self.problem.layouts(tensor)), self.problem.delivered_as(tensor) is not None
        delivery = self._delivery(tensor)
        key = ("relayed", count, tied, None if delivery is None else delivery.tobytes())
        if key not in self.useful:
            self.useful[key] = relayed(count, delivery, tied=tied), self.prices(tensor)
        return self.useful[key][0]

    def _paired(self, tensor: str) -> Pairs:
        problem = self.problem
        index = self.joint_table.layout_index(tensor)
        fact = problem.graph.tensors[tensor]
        held_by_pin = problem.pinned(tensor, tensor)
        if fact.producer is None:
            made, allowed = self._storages(tensor), None
        else:
            made = self._layouts_of(self.joint_of(fact.producer).results[fact.slot])
            allowed = (
                None if held_by_pin is None else np.array(sorted(index[layout] for layout in held_by_pin), np.int32)
            )
        delivery, tied = self._delivery(tensor), problem.delivered_as(tensor) is not None
        needs = [self._layouts_of(self.joint_of(use.op).operands[use.slot]) for use in problem.uses[tensor]]
        if tied:
            needs.append(self._storages(problem.ties[tensor]))
        prices = self.prices(tensor)
        key = (id(prices), id(made), None if allowed is None else allowed.tobytes(), delivery is not None, tied)
        key = (*key, *sorted(map(id, needs)), *(() if delivery is None else (delivery.tobytes(),)))
        if key not in self.useful:
            copies = problem.communication != "frozen"
            useful = useful_pairs(made, allowed, prices, needs, delivery, copies=copies)
            self.useful[key] = useful.leaving() if tied else useful, prices
        return self.useful[key][0]

    def _storages(self, tensor: str) -> IdArray:
        """Return the layouts in which a source may be stored; equal sources without a wish share them."""
        problem, index = self.problem, self.joint_table.layout_index(tensor)
        wished = tensor if tensor in problem.spoken_of else None

        def numbers() -> IdArray:
            return self._share("layouts", np.array([index[layout] for layout in problem.stored(tensor)], np.int32))

        return self._once(("stored", id(index), problem.graph.tensors[tensor].role, wished), numbers)

    def _add(self, variable: Variable) -> None:
        self.position[variable.kind, variable.name] = len(self.variables)
        self.variables.append(variable)

    def _has_variable(self, tensor: str) -> bool:
        return self._reads(tensor) > 1 or tensor in self.problem.spoken_of

    def _is_relayed(self, tensor: str) -> bool:
        made = self.problem.graph.tensors[tensor].producer is not None
        return made and self._reads(tensor) == 2 and tensor not in self.problem.spoken_of

    def _reads(self, tensor: str) -> int:
        return len(self.problem.uses[tensor]) + self.problem.graph.is_output(tensor)

    def _kept(self, name: str, uses: list[Use], joint: JointRows) -> IntArray:
        """Return the joint rows that meet the pins on the uses of an op; equal ops without a pin share them."""
        if not any(use.name in self.problem.spoken_of for use in uses):
            return self._once(("every row", id(joint)), lambda: np.arange(len(joint.rows)))
        keep = np.ones(len(joint.rows), bool)
        for use in uses:
            allowed = self.problem.pinned(use.name, use.tensor)
            if allowed is not None:
                index = self.joint_table.layout_index(use.tensor)
                keep &= np.isin(joint.operands[use.slot], [index[layout] for layout in allowed])
        return np.flatnonzero(keep)

    def _layouts_of(self, column: IdArray) -> IdArray:
        """Return the layouts in a column of joint rows, each once; equal ops share their columns."""
        return self._once(("layouts", id(column)), lambda: self._share("layouts", np.unique(column)))

    def _delivery(self, tensor: str) -> IntArray | None:
        """Return per layout of a graph output the price of delivering it; None where it is none, or tied."""
        if not self.problem.graph.is_output(tensor) or self.problem.delivered_as(tensor) is not None:
            return None
        index = self.joint_table.layout_index(tensor)
        targets = [index[layout] for layout in self.problem.delivered(tensor)]
        found: IntArray = self.prices(tensor)[:, targets].min(axis=1)
        return found

    # -------------------------------------------------------------------------------------------------------- edges

    def _add_use(self, use: Use) -> None:
        problem = self.problem
        head = self.position["op", use.op]
        needed = self._taken(self.joint[use.op].operands[use.slot], self.kept[use.op], "needed")
        producer = problem.graph.tensors[use.tensor].producer
        if ("tensor", use.tensor) in self.position:
            tail = self.position["tensor", use.tensor]
            offered = self._offered(use)
        else:
            assert producer is not None  # a source always has a variable
            tail = self.position["op", producer]
            offered = self._made_columns(producer, problem.graph.tensors[use.tensor].slot)
        self.edges.append(Edge(use.name, tail, head, self.prices(use.tensor), offered, needed))

    def _offered(self, use: Use) -> IdArray:
        """Return the two layouts that each value of a tensor offers to a use."""
        return self.pairs[use.tensor].columns

    def _add_repeat(self, node: str, of: str) -> None:
        """Demand that an op needs and makes the layouts of an earlier one."""
        tail, head = self.position["op", of], self.position["op", node]
        graph = self.problem.graph
        for use in graph.operand_uses(node):
            first, second = (self.joint[name].operands[use.slot][self.kept[name]] for name in (of, node))
            self._add_equal(f"repeat:{use.name}", tail, head, use.tensor, first, second)
        for slot, tensor in enumerate(graph.nodes[node].results):
            first, second = (self.joint[name].results[slot][self.kept[name]] for name in (of, node))
            self._add_equal(f"repeat:{node}>{tensor}", tail, head, tensor, first, second)

    def _add_equal(self, name: str, tail: int, head: int, tensor: str, first: IdArray, second: IdArray) -> None:
        same = self.identity(len(self.problem.layouts(tensor)))
        twice = self._share("made", np.stack([first, first], axis=1))
        self.edges.append(Edge(name, tail, head, same, twice, self._share("needed", second)))

    def _add_made(self, node: str, slot: int, tensor: str) -> None:
        tail, head = self.position["op", node], self.position["tensor", tensor]
        pairs = self.pairs[tensor]
        table = self.prices(tensor) if pairs.relay else self.identity(len(self.problem.layouts(tensor)))
        self.edges.append(Edge(f"made:{tensor}", tail, head, table, self._made_columns(node, slot), pairs.made))

    def _add_delivery(self, node: str, slot: int, tensor: str, leader: str) -> None:
        """Add the edge from the storage of a leader to what a tied output is delivered from."""
        tail, head = self.position["tensor", leader], self.position.get(("tensor", tensor), self.position["op", node])
        if tensor in self.pairs:
            read = self.pairs[tensor].left
            assert read is not None  # a tied output with a variable says what it is delivered from
            left = self._once(("left", id(read)), lambda: self._share("left", np.ascontiguousarray(read)))
        else:
            left = self._taken(self.joint[node].results[slot], self.kept[node], "left")
        prices = self.prices_back(tensor)
        self.edges.append(Edge(f"tie:{tensor}", tail, head, prices, self.pairs[leader].stored, left))

    def _made_columns(self, node: str, slot: int) -> IdArray:
        column, kept = self.joint[node].results[slot], self.kept[node]

        def twice() -> IdArray:
            return self._share("made", np.stack([column[kept], column[kept]], axis=1))

        return self._once(("made", id(column), id(kept)), twice)

    def _taken(self, column: NDArray[Any], kept: IntArray, what: str) -> NDArray[Any]:
        """Return the entries of a column of joint rows that are kept."""
        return self._once((what, id(column), id(kept)), lambda: self._share(what, column[kept]))

    def _once(self, key: tuple[object, ...], make: Callable[[], A]) -> A:
        """Return what was made before under a key, by the arrays of which equal ops are known."""
        if key not in self.columns:
            self.columns[key] = make()
        found: A = self.columns[key]
        return found

    def _share(self, what: str, array: A) -> A:
        """Return an equal array that exists already, so that equal layers share their arrays."""
        shared: A = self.shared.setdefault((what, array.shape, array.tobytes()), array)
        return shared
