"""The peak of an assignment by numbers of layouts: what `solver.choice.Evaluation.memory` says of it, sooner."""

from __future__ import annotations

from solver.choice import MADE
from solver.choice_tables import block_bytes, table
from solver.cost.memory import Memory, Stored, plan_memory
from solver.search.build import Built
from solver.search.joint import JointTable


class Peaks:
    """Computes the memory of assignments of a network.

    Parameters
    ----------
    built : Built
    """

    def __init__(self, built: Built) -> None:
        self.built, problem = built, built.problem
        self.graph = problem.graph
        self._prices = {tensor: table(problem, tensor).time for tensor in self.graph.tensors}
        self._local = {tensor: block_bytes(problem, tensor).tolist() for tensor in self.graph.tensors}
        index = JointTable(problem).layout_index
        self._delivered = {
            tensor: [index(tensor)[layout] for layout in problem.delivered(tensor)]
            for tensor in self.graph.outputs
            if problem.delivered_as(tensor) is None
        }

    def of(self, assignment: tuple[int, ...]) -> Memory:
        """Return the memory of an assignment."""
        made, held, needed = self._layouts(assignment)
        told = self.built.reads(assignment)
        graph, local = self.graph, self._local
        copies: dict[str, int] = {}
        own: dict[str, int] = {}
        outputs: dict[str, int] = {}
        past: list[str] = []
        past_outputs: list[str] = []
        delivered = set(graph.outputs)
        for tensor in graph.tensors:
            m, h = made[tensor], held[tensor]
            if m != h:
                copies[tensor] = local[tensor][h]
            for use in self.built.problem.uses[tensor]:
                n = needed[use.name]
                source = self._source(tensor, m, h, n, told.get(use.name))
                if source != n:
                    own[use.name] = local[tensor][n]
                if m != h and source != h:
                    past.append(use.name)
            if tensor in delivered:
                n = self._leaves(tensor, m, h, made)
                source = self._source(tensor, m, h, n)
                if source != n:
                    outputs[tensor] = local[tensor][n]
                if m != h and source != h:
                    past_outputs.append(tensor)
        stored = {tensor: local[tensor][made[tensor]] for tensor in graph.tensors}
        return plan_memory(graph, Stored(stored, copies, own, outputs, frozenset(past), frozenset(past_outputs)))

    def _layouts(self, assignment: tuple[int, ...]) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
        """Return what is made and held of each tensor, and what each use needs."""
        made: dict[str, int] = {}
        held: dict[str, int] = {}
        needed: dict[str, int] = {}
        built = self.built
        for variable, value in zip(built.network.variables, assignment, strict=True):
            name = variable.name
            if variable.kind == "op":
                joint, row = built.joint[name], built.kept[name][value]
                for tensor, column in zip(self.graph.nodes[name].results, joint.results, strict=True):
                    made[tensor] = held[tensor] = int(column[row])
                for use in self.graph.operand_uses(name):
                    needed[use.name] = int(joint.operands[use.slot][row])
            else:
                pairs = built.pairs[name]
                if name not in made:
                    made[name] = int(pairs.made[value])
                held[name] = int(pairs.held[value])
        return made, held, needed

    def _source(self, tensor: str, made: int, held: int, needed: int, told: str | None = None) -> int:
        """Return what a use reads (`solver.choice.Evaluation.source_of`)."""
        if made == held:
            return held
        if told is not None:
            return made if told == MADE else held
        if needed in (made, held):
            return needed
        prices = self._prices[tensor]
        return held if prices[held, needed] <= prices[made, needed] else made

    def _leaves(self, tensor: str, made: int, held: int, stored: dict[str, int]) -> int:
        """Return the layout in which an output is delivered (`solver.choice.Evaluation.delivered`)."""
        if (leader := self.built.problem.delivered_as(tensor)) is not None:
            return stored[leader]
        allowed, prices = self._delivered[tensor], self._prices[tensor]
        if allowed[0] in (held, made):
            return allowed[0]
        return min(allowed, key=lambda n: prices[self._source(tensor, made, held, n), n])
