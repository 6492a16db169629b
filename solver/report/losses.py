"""Where a plan with a gap pays above its bound, equal layers together."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple


class Place(NamedTuple):
    """What is lost at ops, tensors and edges whose names differ in numbers only.

    Parameters
    ----------
    part : float
        Of all that is lost.
    worst : str
        Where most is lost of them.
    many : int
        How many they are.
    """

    part: float
    worst: str
    many: int


def places(losses: Mapping[str, int]) -> list[Place]:
    """Fold the losses of a plan, the largest part first.

    Parameters
    ----------
    losses : mapping
        As `Plan.losses`: picoseconds by name.

    Returns
    -------
    list of Place

    Examples
    --------
    >>> places({"h0.mm": 3, "h11.mm": 5, "loss": 2})
    [Place(part=0.8, worst='h11.mm', many=2), Place(part=0.2, worst='loss', many=1)]
    """
    alike: dict[str, list[str]] = {}
    for name in losses:
        alike.setdefault(re.sub(r"\d+", "*", name), []).append(name)
    whole = sum(losses.values())
    found = [
        Place(sum(losses[name] for name in names) / whole, max(names, key=losses.__getitem__), len(names))
        for names in alike.values()
    ]
    return sorted(found, key=lambda place: -place.part)
