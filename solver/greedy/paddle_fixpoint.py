"""PaddlePaddle's older completion: forward and backward over the forward program, again and again, to a fixed point.

Source: PaddlePaddle's `distributed/auto_parallel/static/completion.py` (`Completer._update_dims_mapping`) and its
`operators`. A walk carries the dims_mapping of tensors into ops and of ops into tensors, a whole tensor at once and
only where the two are compatible: -1 yields, two mesh axes for one dim do not. An op with a rule of its own or of the
element-wise kind carries factors; any other op falls back to data parallelism: the first dim of all that is no
parameter is cut alike, parameters are whole, and where that cannot be the op stays as it was. Then the backward pass
follows: a grad op reads and makes tensors as the op does that it differentiates, and gradients lie as their tensors do.
Partial terms are reduced in the op that makes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ops.bind import Row, composes
from ops.placement import Layout, Partial, Placement, Replicate, Shard
from solver.graph import Node
from solver.greedy.backward import Backward, backward
from solver.greedy.follow import follow
from solver.greedy.paddle_rules import PRODUCTS, product_rank
from solver.plan import Plan
from solver.problem import Problem

MOST = 500
"""Walks before Paddle gives up."""
RULED = frozenset(
    {
        *("matmul", "divide", "add", "multiply", "assign", "scale", "dropout", "sum", "layer_norm", "embedding"),
        *("reshape", "transpose", "split", "unsqueeze", "silu", "concat", "expand_as", "swiglu", "tile", "rms_norm"),
        *("strided_slice", "stack", "gather_nd"),
    }
)
"""Ops with a rule: what it cannot cut is gathered there."""
OWN = frozenset(
    {
        *("softmax", "slice", "cross_entropy_with_softmax", "p_norm", "flash_attention", "where", "tanh"),
        *("gelu", "relu", "cast", "subtract", "maximum", "minimum", "pow"),
    }
)
"""Ops with an implementation of their own, or an element-wise one: it is used where it can take all cuts, or not at
all."""


def paddle_fixpoint(problem: Problem) -> Plan:
    """Plan as PaddlePaddle's older engine completes a program.

    Parameters
    ----------
    problem : Problem

    Returns
    -------
    Plan
        Status ``feasible``, without a bound.

    Raises
    ------
    StuckError
        Where no row of an op can be reached.
    """
    found = _Completion(problem, backward(problem.graph))
    found.run()
    return follow(problem, found.stored(), found.needed(), found.held()).plan


class _Completion:
    """What tensors and ops have so far: a layout without partial terms per tensor, a row per op and mesh axis."""

    def __init__(self, problem: Problem, later: Backward) -> None:
        self.problem, self.later = problem, later
        whole = (Replicate(),) * len(problem.mesh.sizes)
        self.lies: dict[str, Layout] = dict.fromkeys(problem.graph.tensors, whole)
        self.fixed = {tensor for tensor in problem.graph.tensors if tensor in problem.pins_on}
        for tensor in self.fixed:
            for pin in problem.pins_on[tensor]:
                if isinstance(pin.placement, Shard):
                    self.lies[tensor] = _with(self.lies[tensor], pin.axis, pin.placement)
        self.nodes = [node for node in problem.graph.nodes.values() if node.name not in later.nodes]
        self.rows = {node.name: [0] * len(whole) for node in self.nodes}

    # ------------------------------------------------------------------------------------------------------ the walk

    def run(self) -> None:
        """Walk to a fixed point; then what an op makes lies as the op says."""
        for _ in range(MOST):
            changed = [self._into_op(node, of_results=False) | self._into_results(node) for node in self.nodes]
            changed += [
                self._into_op(node, of_results=True) | self._into_operands(node) for node in reversed(self.nodes)
            ]
            if not any(changed):
                break
        for node in self.nodes:
            for slot, tensor in enumerate(node.results):
                if tensor not in self.fixed:
                    self.lies[tensor] = self.made(node, slot)

    def _into_op(self, node: Node, *, of_results: bool) -> bool:
        """Carry the cuts of an op's operands, or of its results, into the op; tell whether anything came of it."""
        asked: list[tuple[int, int]] = []
        for slot, tensor in self._slots(node, of_results):
            here = self.lies[tensor]
            cuts = [(axis, placement) for axis, placement in enumerate(here) if isinstance(placement, Shard)]
            rows = [(axis, list(self._rows_with(node, slot, placement, of_results))) for axis, placement in cuts]
            if node.op not in RULED and not all(found for _, found in rows):
                return False
            if _merged(self._projected(node, slot, of_results), here) is not None or node.op in PRODUCTS:
                asked += [(axis, found[0]) for axis, found in rows if found]
        before = self.rows[node.name]
        for axis, k in sorted(asked, key=lambda one: self._rank(node, one[1])):
            now = self.rows[node.name]
            if now[axis] == 0 or (node.op in PRODUCTS and self._rank(node, k) < self._rank(node, now[axis])):
                tried = [*now[:axis], k, *now[axis + 1 :]]
                if composes(self.problem.bound[node.name], self._row(node, tried), self.problem.mesh.sizes):
                    self.rows[node.name] = tried
        return self.rows[node.name] != before

    def _rank(self, node: Node, k: int) -> tuple[int, int]:
        """Return which row of a product keeps a mesh axis, the first one lowest; for other ops all are alike."""
        row = self.problem.bound[node.name].rows[k]
        if node.op not in PRODUCTS or row.cut is None:
            return (0, 0)
        return product_rank(self.problem.bound[node.name].factors[row.cut[0]])

    def _row(self, node: Node, rows: Sequence[int]) -> list[Row]:
        return [self.problem.bound[node.name].rows[k] for k in rows]

    def _into_results(self, node: Node) -> bool:
        changed = False
        for slot, tensor in enumerate(node.results):
            changed |= self._give(tensor, [self.made(node, slot)])
        return changed

    def _into_operands(self, node: Node) -> bool:
        """Carry what all ops that read an operand say of it into the operand."""
        changed = False
        for use in self.problem.graph.operand_uses(node.name):
            readers = [one for one in self.problem.uses[use.tensor] if one.op in self.rows]
            said = [self._projected(self.problem.graph.nodes[one.op], one.slot, False) for one in readers]
            changed |= self._give(use.tensor, said)
        return changed

    def _give(self, tensor: str, said: Sequence[Layout]) -> bool:
        """Merge what ops say of a tensor into it, where all of them agree and the tensor can lie so."""
        now: Layout | None = self.lies[tensor]
        for layout in said if tensor not in self.fixed else ():
            now = None if now is None else _merged(now, layout)
        if now is None or now == self.lies[tensor] or now not in self.problem.written(tensor):
            return False
        self.lies[tensor] = now
        return True

    # ---------------------------------------------------------------------------------------------------------- ops

    def _slots(self, node: Node, of_results: bool) -> list[tuple[int, str]]:
        if of_results:
            return list(enumerate(node.results))
        return [(use.slot, use.tensor) for use in self.problem.graph.operand_uses(node.name)]

    def _projected(self, node: Node, slot: int, of_results: bool) -> Layout:
        rows = self._row(node, self.rows[node.name])
        return tuple(_whole_or_cut((row.results if of_results else row.operands)[slot]) for row in rows)

    def made(self, node: Node, slot: int) -> Layout:
        """Return how an op says that a result lies."""
        return self._projected(node, slot, True)

    def _rows_with(self, node: Node, slot: int, placement: Shard, of_results: bool) -> Iterator[int]:
        """Yield the rows of an op that cut a slot so: those of its rule, or of data parallelism."""
        for k, row in enumerate(self.problem.bound[node.name].rows):
            placed = row.results if of_results else row.operands
            if row.cut is None or placed[slot] != placement or not _plain(row):
                continue
            if node.op in RULED | OWN or self._is_data_parallel(node, row):
                yield k

    def _is_data_parallel(self, node: Node, row: Row) -> bool:
        """Tell whether a row cuts the first dim of all that is no parameter, and nothing else."""
        tensors = self.problem.graph.tensors
        of_data = [
            (tensors[use.tensor].role == "parameter", tensors[use.tensor].shape, row.operands[use.slot])
            for use in self.problem.graph.operand_uses(node.name)
        ]
        of_data += [
            (False, tensors[tensor].shape, placed) for tensor, placed in zip(node.results, row.results, strict=True)
        ]
        return all(
            placed == Replicate() if is_parameter or not shape else placed == Shard(0)
            for is_parameter, shape, placed in of_data
        )

    # ------------------------------------------------------------------------------------------------- what came of it

    def stored(self) -> dict[str, Layout]:
        """Return the storage of every source."""
        return {name: self.lies[name] for name, tensor in self.problem.graph.tensors.items() if tensor.producer is None}

    def needed(self) -> dict[str, Layout]:
        """Return what every op reads; a grad op reads what the op that it differentiates reads and makes."""
        graph, found = self.problem.graph, {}
        for node in self.nodes:
            for use in graph.operand_uses(node.name):
                found[use.name] = self._projected(node, use.slot, False)
        for name, forward in self.later.forward.items():
            of_forward = self._named(graph.nodes[forward])
            for use in graph.operand_uses(name):
                lies = of_forward.get(use.operand) or of_forward.get(use.operand.removesuffix("_grad"))
                found |= {use.name: lies} if lies is not None else {}
        return found

    def held(self) -> dict[str, Layout]:
        """Return where every result lies; a gradient lies as the op that it came by read its tensor."""
        graph = self.problem.graph
        found = {tensor: self.lies[tensor] for node in self.nodes for tensor in node.results}
        found |= {gradient: self.lies[tensor] for gradient, tensor in self.later.slopes.items()}
        for name, forward in self.later.forward.items():
            of_forward = self._named(graph.nodes[forward])
            slots = [slot.name.removesuffix("_grad") for slot in self.problem.bound[name].results]
            for tensor, slot in zip(graph.nodes[name].results, slots, strict=True):
                found |= {tensor: of_forward[slot]} if slot in of_forward else {}
        return found

    def _named(self, node: Node) -> dict[str, Layout]:
        """Return how a forward op says that its operands and results lie, by their names in its rule."""
        if node.name not in self.rows:
            return {}
        slots = self.problem.bound[node.name].results
        found = {slot.name: self.made(node, index) for index, slot in enumerate(slots)}
        uses = self.problem.graph.operand_uses(node.name)
        return found | {use.operand: self._projected(node, use.slot, False) for use in uses}


def _with(layout: Layout, axis: int, placement: Placement) -> Layout:
    return (*layout[:axis], placement, *layout[axis + 1 :])


def _whole_or_cut(placement: Placement | None) -> Placement:
    return Replicate() if placement is None or isinstance(placement, Partial) else placement


def _plain(row: Row) -> bool:
    """Tell whether a row names no part of a dim and reads no partial terms."""
    parts = any(isinstance(placed, Shard) and placed.part for placed in (*row.operands, *row.results))
    return not parts and not any(isinstance(placed, Partial) for placed in row.operands)


def _merged(one: Layout, other: Layout) -> Layout | None:
    """Merge two layouts: what is whole yields; None where a dim or a mesh axis would be cut in two ways."""
    axes_of: dict[int, list[set[int]]] = {}
    for layout, which in ((one, 0), (other, 1)):
        for axis, placement in enumerate(layout):
            if isinstance(placement, Shard):
                axes_of.setdefault(placement.dim, [set(), set()])[which].add(axis)
    if any(first and second and first != second for first, second in axes_of.values()):
        return None
    merged: list[Placement] = []
    for first, second in zip(one, other, strict=True):
        if isinstance(first, Shard) and isinstance(second, Shard) and first != second:
            return None
        merged.append(first if isinstance(first, Shard) else second)
    return tuple(merged)
