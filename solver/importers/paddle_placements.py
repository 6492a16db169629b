"""Placements that a program carries, as pins."""

from __future__ import annotations

from typing import Any

from ops.placement import Partial, Placement, Replicate, Shard

KINDS = {"kRedSum": "sum", "kRedAvg": "avg", "kRedMax": "max", "kRedMin": "min", "kRedAny": "any", "kRedAll": "all"}
"""Their kinds of partial tensors, and ours."""


def placement_of(value: Any) -> dict[str, Placement]:
    """Return the placements of a distributed value, by mesh axis.

    Parameters
    ----------
    value : paddle.pir.Value
    """
    return {
        axis: _ours(placement) for axis, placement in zip(value.process_mesh.dim_names, value.placements, strict=True)
    }


def _ours(placement: Any) -> Placement:
    if placement.is_shard():
        return Shard(placement.get_dim())
    if placement.is_partial():
        return Partial(KINDS[str(placement.reduce_type()).rpartition(".")[2]])
    return Replicate()
