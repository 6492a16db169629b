"""Matrix products that follow each other: where a network can be cut as Megatron does, found from its rules alone.

The first weight of a pair is cut by columns, so that its product comes out cut; what lies between carries the cut on,
by rows that the ops have; the second weight is cut by rows, so that its product is a sum over devices. Source: Shoeybi
et al., "Megatron-LM", 2019, section 3; nothing here knows what an attention or an MLP is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ops.bind import Row
from ops.placement import Partial, Placement, Replicate, Shard
from solver.graph import Node, Use
from solver.layout import legal
from solver.problem import Problem

PRODUCTS = frozenset({"matmul", "addmm", "linear", "bmm", "baddbmm", "einsum", "grouped_mm"})
"""The ops whose weights are cut by columns or by rows."""
VIEWS = frozenset({"transpose", "cast", "assign"})
"""Ops of one operand through which a weight may be read."""
SPLITS = frozenset({"split"})
"""Ops that take a fused product apart; its pieces go on cut, whatever has to be sent for that."""
SCORES = frozenset({"softmax", "log_softmax", "cross_entropy_with_softmax"})
"""The ops that read the logits of a vocabulary."""
AHEAD = 24
"""Ops that are looked at to see how far a cut is carried."""
WHOLE = Replicate()


@dataclass
class Pairs:
    """What comes of the walk over a network.

    Parameters
    ----------
    weights : dict
        Parameter -> how it is cut, or whole.
    sums : dict
        Result of a product by rows, or of a lookup in a cut table -> the op that makes it.
    paired : set of str
        The weights cut by columns whose cut reaches a weight that is cut by rows.
    """

    weights: dict[str, Placement] = field(default_factory=dict)
    sums: dict[str, str] = field(default_factory=dict)
    paired: set[str] = field(default_factory=set)


def find_pairs(problem: Problem, size: int) -> Pairs:
    """Walk a network in program order and decide of each parameter, where it is first read, how it is cut.

    Parameters
    ----------
    problem : Problem
        A question without wishes; its rules are bound to parts.
    size : int
        Of the mesh axis that cuts.

    Returns
    -------
    Pairs
        Columns whose cut comes to nothing are whole again, but for those of logits: wider than what they read, and read
        by a softmax or by nobody.
    """
    walk = _Walk(problem, size)
    for node in problem.graph.nodes.values():
        walk.take(node)
    return walk.settled()


class _Walk:
    """How each tensor is cut so far, and by which columns."""

    def __init__(self, problem: Problem, size: int) -> None:
        self.problem, self.graph, self.size = problem, problem.graph, size
        self.found = Pairs()
        self.cut: dict[str, Shard] = {}
        self.by: dict[str, frozenset[str]] = {}
        """Tensor or parameter -> the columns that its cut comes from."""
        self.wide: set[str] = set()
        """Columns that are wider than what they read."""
        self.logits: set[str] = set()
        """Those of them that make logits."""
        tensors = self.graph.tensors.values()
        self.read_as: dict[str, str] = {one.name: one.name for one in tensors if one.role == "parameter"}
        """A parameter, or a view of one -> the parameter."""
        self.fed = {one.name for one in tensors if one.role == "input"}
        """What comes from the data."""

    def take(self, node: Node) -> None:
        """Decide of the weights that an op reads, and carry the cut to its results."""
        uses = self.graph.operand_uses(node.name)
        if node.op in VIEWS and len(uses) == 1 and uses[0].tensor in self.read_as:
            self.read_as[node.results[0]] = self.read_as[uses[0].tensor]
            return
        if any(use.tensor in self.fed for use in uses):
            self.fed.update(node.results)
        new = [use for use in uses if self.read_as.get(use.tensor, "") not in self.found.weights]
        new = [use for use in new if use.tensor in self.read_as]
        known = self._known(uses)
        if node.op == "embedding" and new:
            self._look_up(node, new[0], uses)
        elif node.op in PRODUCTS and (of := self._weight(new)) is not None:
            self._multiply(node, uses, of, known)
        else:
            self._carry(node, uses, known)
        for use in new:
            self.found.weights.setdefault(self.read_as[use.tensor], WHOLE)

    def settled(self) -> Pairs:
        """Return what was found, without the columns that come to nothing and what follows them."""
        for output in self.graph.outputs:
            self.logits |= self.by.get(output, frozenset()) & self.wide
        lost = {
            weight
            for weight, columns in self.by.items()
            if weight in self.found.weights and columns and not columns & (self.found.paired | self.logits)
        }
        for weight in lost:
            self.found.weights[weight] = WHOLE
        return self.found

    # ------------------------------------------------------------------------------------------------------ decisions

    def _weight(self, new: list[Use]) -> Use | None:
        ranks = [(use, len(self.graph.tensors[use.tensor].shape)) for use in new]
        return next((use for use, rank in ranks if rank >= 2), None)

    def _look_up(self, node: Node, table: Use, uses: list[Use]) -> None:
        """Cut a table of words by words; one that the data do not reach, as of positions, is small and stays whole."""
        by_words = [
            row
            for row in self._rows(node, {table.slot: Shard(0)})
            if isinstance(row.results[0], Partial) and all(row.operands[u.slot] == WHOLE for u in uses if u != table)
        ]
        if by_words and any(use.tensor in self.fed for use in uses):
            self._decide(table, Shard(0), frozenset())
            self.found.sums[node.results[0]] = node.name

    def _multiply(self, node: Node, uses: list[Use], of: Use, known: dict[int, Placement]) -> None:
        """Cut a weight by rows where what it multiplies is cut so, else by columns."""
        rows = self._matching(node, uses, known)
        if any(isinstance(placement, Shard) for placement in known.values()):
            summed = [row for row in rows if isinstance(row.operands[of.slot], Shard) and self._sums(row)]
            if summed:
                columns = self._columns(uses)
                self.found.paired |= columns
                self._decide(of, summed[0].operands[of.slot], columns)
                self.found.sums[node.results[0]] = node.name
                return
            if beside := [row for row in rows if row.operands[of.slot] == WHOLE and isinstance(row.results[0], Shard)]:
                self._follow(node, uses, beside[0])
                return
            rows = self._matching(node, uses, dict.fromkeys(known, WHOLE))
        read = {use.slot for use in uses if use.tensor not in self.read_as}
        wide = [
            row
            for row in rows
            if self._takes_apart(of, row.operands[of.slot])
            and isinstance(row.results[0], Shard)
            and all(row.operands[slot] == WHOLE for slot in read)
        ]
        if wide:
            best = max(wide, key=lambda row: self._carried(node.results[0], row.results[0]))
            weight = self.read_as[of.tensor]
            self._decide(of, best.operands[of.slot], frozenset({weight}))
            if self._is_wider(of, best.operands[of.slot]):
                self.wide.add(weight)
            self._follow(node, uses, best, frozenset({weight}))

    def _takes_apart(self, of: Use, placement: Placement | None) -> bool:
        """Tell whether a cut of columns leaves whole what belongs together: the minor part of several is one head."""
        if not isinstance(placement, Shard):
            return False
        parts = self.problem.parts(of.tensor)[placement.dim]
        return len(parts) == 1 or placement.part < len(parts) - 1

    def _is_wider(self, of: Use, placement: Placement | None) -> bool:
        shape = self.graph.tensors[of.tensor].shape
        return isinstance(placement, Shard) and shape[placement.dim] > max(
            size for dim, size in enumerate(shape[-2:], len(shape) - 2) if dim != placement.dim
        )

    def _carry(self, node: Node, uses: list[Use], known: dict[int, Placement]) -> None:
        """Carry a cut on by the first row that takes it as it is; where there is none it ends here."""
        if not any(isinstance(placement, Shard) for placement in known.values()):
            return
        if rows := self._matching(node, uses, known):
            self._follow(node, uses, rows[0])
        elif node.op in SCORES:
            self.logits |= self._columns(uses) & self.wide
        elif node.op in SPLITS:
            columns = self._columns(uses)
            placement = self.cut[uses[0].tensor]
            for tensor in node.results:
                if self._possible(tensor, placement):
                    self.cut[tensor], self.by[tensor] = placement, columns

    def _follow(self, node: Node, uses: list[Use], row: Row, columns: frozenset[str] = frozenset()) -> None:
        """Let results, and parameters that nothing was said of, be cut as a row has them."""
        columns |= self._columns(uses)
        for use in uses:
            if use.tensor in self.read_as and self.read_as[use.tensor] not in self.found.weights:
                self._decide(use, row.operands[use.slot], columns)
        for tensor in node.results:
            placement = row.results[self.graph.tensors[tensor].slot]
            if isinstance(placement, Shard):
                self.cut[tensor], self.by[tensor] = placement, columns

    def _decide(self, use: Use, placement: Placement | None, columns: frozenset[str]) -> None:
        """Say how a parameter is cut, given how the view of it that an op reads is."""
        parameter, tensor = self.read_as[use.tensor], use.tensor
        while tensor != parameter:
            view = self.graph.nodes[self.graph.tensors[tensor].producer or ""]
            back = (row for row in self.problem.bound[view.name].rows if row.results[0] == placement)
            placement, tensor = next(back).operands[0], self.graph.operand_uses(view.name)[0].tensor
        self.found.weights[parameter] = placement if isinstance(placement, Shard) else WHOLE
        self.by[parameter] = columns

    # ----------------------------------------------------------------------------------------------------------- rows

    def _known(self, uses: list[Use]) -> dict[int, Placement]:
        """Return how the operands are cut, as far as it is known: results so far, and parameters decided before."""
        found: dict[int, Placement] = {}
        for use in uses:
            if use.tensor in self.cut:
                found[use.slot] = self.cut[use.tensor]
            elif self.read_as.get(use.tensor) in self.found.weights and (cut := self._viewed(use.tensor)) is not None:
                found[use.slot] = cut
        return found

    def _viewed(self, tensor: str) -> Placement | None:
        """Return how a decided parameter, or a view of it, is cut; None where it is whole."""
        if tensor == self.read_as[tensor]:
            placement = self.found.weights[tensor]
            return placement if isinstance(placement, Shard) else None
        view = self.graph.nodes[self.graph.tensors[tensor].producer or ""]
        source = self._viewed(self.graph.operand_uses(view.name)[0].tensor)
        if source is None:
            return None
        return next((row.results[0] for row in self.problem.bound[view.name].rows if row.operands[0] == source), None)

    def _columns(self, uses: list[Use]) -> frozenset[str]:
        return frozenset().union(*(self.by.get(use.tensor, frozenset()) for use in uses))

    def _sums(self, row: Row) -> bool:
        return isinstance(row.results[0], Partial) and row.results[0].kind == "sum"

    def _matching(self, node: Node, uses: list[Use], known: Mapping[int, Placement]) -> list[Row]:
        """Return the rows that take what is known as it is and slice none of the data, those first that slice least."""
        data = [use.slot for use in uses if use.slot not in known and use.tensor in self.fed]
        return [row for row in self._least(node, uses, known) if all(row.operands[slot] == WHOLE for slot in data)]

    def _least(self, node: Node, uses: list[Use], known: Mapping[int, Placement]) -> list[Row]:
        """Return the rows that take what is known as it is, those first that slice least of the rest."""
        others = [use.slot for use in uses if use.slot not in known]
        return sorted(self._rows(node, known), key=lambda row: sum(row.operands[slot] != WHOLE for slot in others))

    def _rows(self, node: Node, known: Mapping[int, Placement]) -> Iterator[Row]:
        """Yield the rows with some placements whose cuts the mesh axis can make."""
        names = [(use.slot, use.tensor) for use in self.graph.operand_uses(node.name)]
        for row in self.problem.bound[node.name].rows:
            if all(row.operands[slot] == placement for slot, placement in known.items()):
                placed = [(tensor, row.operands[slot]) for slot, tensor in names]
                placed += zip(node.results, row.results, strict=True)
                if all(self._possible(tensor, placement) for tensor, placement in placed):
                    yield row

    def _possible(self, tensor: str, placement: Placement | None) -> bool:
        """Tell whether the mesh axis can make a cut."""
        if not isinstance(placement, Shard):
            return True
        return legal((placement,), self.graph.tensors[tensor].shape, self.problem.parts(tensor), (self.size,))

    def _carried(self, tensor: str, placement: Placement) -> int:
        """Return how many results near a tensor would be cut if it were, and all that goes with it."""
        near, cuts, count = [tensor], {tensor: placement}, 0
        for made in near:
            for use in self.graph.uses(made):
                node = self.graph.nodes[use.op]
                if count == AHEAD or node.results[0] in cuts:
                    continue
                uses = self.graph.operand_uses(node.name)
                rows = self._least(node, uses, {u.slot: cuts[u.tensor] for u in uses if u.tensor in cuts})
                for result, cut in zip(node.results, rows[0].results if rows else (), strict=bool(rows)):
                    if isinstance(cut, Shard):
                        cuts[result] = cut
                        near.append(result)
                count += any(result in cuts for result in node.results)
        return count
