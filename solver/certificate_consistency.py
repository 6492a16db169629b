"""Values that cannot be part of a plan, found by plain deduction (docs/certificate.md, Consistency)."""

from __future__ import annotations

from collections import deque
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
    waiting = deque(range(len(links)) if changed is None else at[changed])
    queued = set(waiting)
    known: dict[tuple[int, ...], tuple[tuple[Bools, Bools], tuple[Bools, Bools]]] = {}
    while waiting:
        queued.remove(number := waiting.popleft())
        link = links[number]
        if link.allowed is None:  # every value has a partner
            continue
        before = alive[link.tail], alive[link.head]
        key = *map(id, (link.allowed, link.offers, link.asks)), *map(id, before)
        if key not in known:
            known[key] = before, _left(link, link.allowed, *before)  # with what the numbers of the key stand for
        for name, mask, left in zip((link.tail, link.head), before, known[key][1], strict=True):
            if left is not mask:
                if not left.any():
                    return None
                alive[name] = left
                more = [one for one in at[name] if one not in queued]
                waiting.extend(more)
                queued.update(more)
    return alive


def _left(link: Link, allowed: Bools, tail: Bools, head: Bools) -> tuple[Bools, Bools]:
    """Return what is left of the values at both ends: those that have a partner, the same object where that is all."""
    offered, asked = link.sides({link.tail: tail, link.head: head})
    reaches: Bools = np.logical_or.reduce(allowed[:, asked], axis=1)
    reached: Bools = np.logical_or.reduce(allowed[offered], axis=0)
    partners = reaches[link.offers[:, 0]] | reaches[link.offers[:, 1]], reached[link.asks]
    kept_tail, kept_head = (mask & with_one for mask, with_one in zip((tail, head), partners, strict=True))
    return tail if (kept_tail == tail).all() else kept_tail, head if (kept_head == head).all() else kept_head
