"""Values that cannot be part of a plan, found by plain deduction (docs/certificate.md, Consistency)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from solver.certificate_choices import Alive, Bools, Link, Name


def consistent(
    links: Sequence[Link], at: Mapping[Name, Sequence[int]], alive: Alive, changed: Name | None = None
) -> Alive | None:
    """Take out values that have no partner on one of their edges, until none is left.

    Parameters
    ----------
    links : sequence of Link
    at : mapping
        Variable -> the numbers of its edges.
    alive : dict
    changed : Name, optional
        The only variable that has lost values since all was consistent.

    Returns
    -------
    dict or None
        What is left; None where a variable has no value left.
    """
    alive = dict(alive)
    if not all(mask.any() for mask in {id(mask): mask for mask in alive.values()}.values()):
        return None
    waiting = dict.fromkeys(range(len(links)) if changed is None else at[changed])
    while waiting:
        link = links[next(iter(waiting))]
        del waiting[next(iter(waiting))]
        for name, supported in _supported(link, alive):
            left = alive[name] & supported
            if not left.any():
                return None
            if left.sum() < alive[name].sum():
                alive[name] = left
                waiting |= dict.fromkeys(at[name])
    return alive


def _supported(link: Link, alive: Alive) -> list[tuple[Name, Bools]]:
    """Return for both ends which values have a partner; nothing where every value has one."""
    if link.allowed is None:
        return []
    offered, asked = link.sides(alive)
    reaches: Bools = np.logical_or.reduce(link.allowed[:, asked], axis=1)
    reached: Bools = np.logical_or.reduce(link.allowed[offered], axis=0)
    return [(link.tail, reaches[link.offers[:, 0]] | reaches[link.offers[:, 1]]), (link.head, reached[link.asks])]
