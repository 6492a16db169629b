"""Placements: what they are made of, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ops.placement import Partial, Placement, PlacementError, Shard, from_dims_mapping, layout_text

WHOLE = "dim and part are whole numbers, and "
REFUSED: list[tuple[Callable[..., Placement], tuple[Any, ...], str]] = [
    (Shard, (True,), f"Shard(dim=True, part=0): {WHOLE}True is a bool"),
    (Shard, (1.0,), f"Shard(dim=1.0, part=0): {WHOLE}1.0 is a float"),
    (Shard, ("0",), f"Shard(dim='0', part=0): {WHOLE}'0' is a str"),
    (Shard, (None,), f"Shard(dim=None, part=0): {WHOLE}None is a NoneType"),
    (Shard, (np.bool_(True),), "is a bool"),
    (Shard, (np.float64(1),), "is a float64"),
    (Shard, (0, True), f"Shard(dim=0, part=True): {WHOLE}True is a bool"),
    (Shard, (0, 1.5), f"Shard(dim=0, part=1.5): {WHOLE}1.5 is a float"),
    (Shard, (0, "1"), f"Shard(dim=0, part='1'): {WHOLE}'1' is a str"),
    (Shard, (-1,), "Shard(dim=-1, part=0): dim and part count from 0 and are never negative"),
    (Partial, (3,), "Partial(3): the kind is one of sum, avg, max, min, any, all"),
    (Partial, (None,), "Partial(None): the kind is one of sum"),
    (Partial, (True,), "Partial(True): the kind is one of sum"),
    (Partial, (["sum"],), "Partial(['sum']): the kind is one of sum"),
]


@pytest.mark.parametrize(("make", "given", "told"), REFUSED, ids=str)
def test_what_is_no_placement_is_refused(make: Callable[..., Placement], given: tuple[Any, ...], told: str) -> None:
    with pytest.raises(PlacementError) as caught:
        make(*given)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_whole_numbers_of_numpy_are_those_of_python() -> None:
    made = Shard(np.int64(1), np.uint8(2))  # type: ignore[arg-type]
    assert made == Shard(1, 2)
    assert (type(made.dim), type(made.part)) == (int, int)
    assert (str(made), hash(made)) == ("S(1,part=2)", hash(Shard(1, 2)))


def test_a_dims_mapping_may_hold_whole_numbers_of_numpy() -> None:
    assert layout_text(from_dims_mapping(np.array([1, -1]), {}, axes=2)) == "[R, S(0)]"  # type: ignore[arg-type]
