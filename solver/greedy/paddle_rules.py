"""PaddlePaddle's rules: the cuts of an op's operands, merged factor by factor, and what each rule does of its own.

Source: `paddle/phi/infermeta/spmd_rules` of PaddlePaddle 3.3. A rule merges the cuts of its operands factor by factor
(`ShardingMergeForTensors`): -1 yields to a mesh axis, a mesh axis that cuts two factors stays with the first of them,
and a factor that operands cut on different mesh axes is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TypeAlias

from ops.bind import BoundRule, Factor, Row
from ops.placement import Partial, Placement, Shard
from solver.graph import Node, Use
from solver.greedy.walk import StuckError, Walk

Claim: TypeAlias = tuple[str, int]
"""A factor, and the part of it that a mesh axis cuts."""

WITHOUT_RULE = frozenset(
    f"{name}{suffix}"
    for name in (
        *("max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "adaptive_max_pool2d", "gather", "expand", "scatter"),
        *("triu", "tril", "minimum", "kl_div", "amax", "amin", "prod", "digamma", "hardshrink", "leaky_relu"),
        *("relu6", "hardswish", "hardsigmoid", "hardtanh"),
    )
    for suffix in ("", "_grad")
)
"""Ops that have no rule in a program there: every operand is gathered, every result is whole."""
PRODUCTS = frozenset({"matmul", "matmul_grad", "bmm", "bmm_grad"})
"""A mesh axis stays with a batch factor before m and n, with the larger of m and n, and with k last; two mesh axes may
cut one factor (`ShardingMergeForTensorsMatmul`, as it answers)."""
GATHERED_AFTER = frozenset({"cross_entropy_with_softmax"})
"""A dim that the op keeps whole takes its mesh axis from other factors, and is gathered nevertheless."""
CARRIES = frozenset({"transpose", "reshape", "flatten", "flatten_grad", "cast", "assign", "add_n", "stack"})
"""Ops that let partial terms pass, where all operands have the same. Any other op asks for reduced operands."""
EXCLUSIVE = frozenset({"embedding", "embedding_grad"})
"""Ops that refuse a mesh axis that cuts two factors."""
GATHERED_BEFORE = {
    "embedding": "v",
    "index_select": "v",
    "index_put": "v0",
    "put_along_axis": "v",
    "group_norm": "g",
}
"""Ops that gather an operand that is cut on this factor, as if it were not."""
CHANNELS = {"conv2d": "c", "conv3d": "c", "conv2d_transpose": "c"}
"""Ops that refuse operands of which only one is cut on this factor."""
KEPT_WHOLE = frozenset({"whole", "synced"})


class Merging:
    """The cuts of an op's operands, merged as its rule does.

    Parameters
    ----------
    walk : Walk
    node : Node
        The next op of the walk.
    """

    def __init__(self, walk: Walk, node: Node) -> None:
        self.walk, self.node = walk, node
        self.bound: BoundRule = walk.problem.bound[node.name]
        self.uses: list[Use] = walk.problem.graph.operand_uses(node.name)

    def rows(self, axis: int) -> Iterator[int]:
        """Yield the rows that the rule would take on a mesh axis, the first choice first, and the whole one last."""
        if self.node.op not in WITHOUT_RULE:
            claims = self._merged(axis)
            for claim in claims:
                if self.bound.factors[claim[0]].kind in KEPT_WHOLE and self.node.op in GATHERED_AFTER:
                    break
                yield from (k for k, row in enumerate(self.bound.rows) if row.cut == claim and _plain(row))
            if not claims and self.node.op in CARRIES:
                yield from self._carrying(axis)
        yield 0

    def refuse(self) -> None:
        """Stop where the rule refuses the cuts of the operands.

        Raises
        ------
        StuckError
            With the op, how its operands lie, and why.
        """
        if self.node.op in WITHOUT_RULE | PRODUCTS:
            return
        for axis, name in enumerate(self.walk.problem.mesh.axes):
            if self.node.op in EXCLUSIVE and len(claims := self._merged(axis)) > 1:
                raise self._refused(f"mesh axis {name!r} cuts both {' and '.join(factor for factor, _ in claims)}")
        for factor in self.bound.factors:
            by_use = {use: self._axes(use, factor) for use in self.uses if self._has(use, factor)}
            apart = [(use, axes) for use, axes in by_use.items() if axes or CHANNELS.get(self.node.op) == factor]
            for use, axes in apart[1:]:
                if axes != apart[0][1]:
                    raise self._refused(f"{apart[0][0].operand} and {use.operand} are cut apart on {factor}")

    def _refused(self, why: str) -> StuckError:
        return StuckError(f"{self.walk.stuck(self.node.name)}: PaddlePaddle's rule refuses, because {why}")

    def _merged(self, axis: int) -> list[Claim]:
        """Return the factors that the operands have cut on a mesh axis, the one that keeps it first."""
        found = list(dict.fromkeys(claim for use in self.uses for claim in self._claims[use][axis]))
        if self.node.op not in PRODUCTS:
            return found
        return sorted(found, key=lambda claim: product_rank(self.bound.factors[claim[0]]))

    @cached_property
    def _claims(self) -> dict[Use, list[list[Claim]]]:
        """Per use and mesh axis the factors that it has cut, at most one."""
        return {use: [list(self._cut(use, placement)) for placement in self.walk.held[use.tensor]] for use in self.uses}

    def _cut(self, use: Use, placement: Placement) -> Iterator[Claim]:
        if not isinstance(placement, Shard):
            return
        rows = [row.cut for row in self.bound.rows if row.cut and row.operands[use.slot] == placement]
        yield from (cut for cut in rows[:1] if cut is not None and GATHERED_BEFORE.get(self.node.op) != cut[0])
        slot = self.bound.operands[use.slot]
        if not rows and slot is not None and self.node.op in GATHERED_AFTER:
            yield from ((factor, 0) for factor in slot.dims[placement.dim])

    def _axes(self, use: Use, factor: str) -> set[int]:
        return {axis for axis, claims in enumerate(self._claims[use]) if factor in {name for name, _ in claims}}

    def _has(self, use: Use, factor: str) -> bool:
        slot = self.bound.operands[use.slot]
        return slot is not None and slot.dim_of(factor) is not None

    def _carrying(self, axis: int) -> Iterator[int]:
        """Yield the row that lets the partial terms of the operands pass."""
        held: list[Placement] = [self.walk.held[use.tensor][axis] for use in self.uses]
        partial = any(isinstance(placement, Partial) for placement in held)
        for k, row in enumerate(self.bound.rows if partial else ()):
            if row.cut is None and [row.operands[use.slot] for use in self.uses] == held:
                yield k


def product_rank(factor: Factor) -> tuple[int, int]:
    """Return which factor of a product keeps a mesh axis that could cut several, the first one lowest."""
    if factor.kind == "sum":
        return 2, 0
    return (0, 0) if factor.name.startswith("batch") else (1, -factor.size)


def _plain(row: Row) -> bool:
    """Tell whether a row names no part of a dim: PaddlePaddle knows only contiguous cuts."""
    return not any(isinstance(placed, Shard) and placed.part for placed in (*row.operands, *row.results))
