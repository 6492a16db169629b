"""What is legal for each op, and what it computes."""

from ops import (  # noqa: F401 (a family registers its ops where it is imported)
    amp,
    attention,
    channel_normalization,
    contraction,
    convolution,
    counting,
    creation,
    einsum,
    elementwise,
    fused,
    grids,
    indexing,
    loss,
    moe,
    normalization,
    optimizer,
    padding,
    parallel,
    patches,
    pooling,
    random,
    rearrange,
    reduction,
    regions,
    rotary,
    scan,
    scattering,
    shape,
    slicing,
    sorting,
    special,
    unary,
    vision,
)
from ops.bind import BoundRule, Factor, Row, composes
from ops.notation import RuleError
from ops.op import REQUIRED, Op
from ops.placement import Layout, Partial, Parts, Placement, PlacementError, Replicate, Shard, parse_placement
from ops.query import OpRow, rows
from ops.registry import names, rule_for

__all__ = [
    "REQUIRED",
    "BoundRule",
    "Factor",
    "Layout",
    "Op",
    "OpRow",
    "Partial",
    "Parts",
    "Placement",
    "PlacementError",
    "Replicate",
    "Row",
    "RuleError",
    "Shard",
    "composes",
    "names",
    "parse_placement",
    "rows",
    "rule_for",
]
