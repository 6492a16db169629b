"""The proof of a bound as a tree: messages at its leaves, the values of one variable parted at every other node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from solver.search.bound import Dual, Messages, certified_bound
from solver.search.flat import SCALE_BITS
from solver.search.network import INF, Domains, IntArray


@dataclass(frozen=True, eq=False)
class Leaf:
    """A part of the values whose bound is proved by messages.

    Parameters
    ----------
    messages : Messages or None
        They prove `units` on what arc consistency leaves of this part; None where it leaves nothing.
    units : int
        The bound in 1/4096 ps.
    infeasible : bool
        Arc consistency empties a domain, so no assignment is allowed here.
    """

    messages: Messages | None
    units: int
    infeasible: bool = False


@dataclass(frozen=True, eq=False)
class Split:
    """The values of one variable in two parts.

    Parameters
    ----------
    variable : int
        Index of the variable.
    left_values, right_values : int64 arrays
        Its values that are left at this point, in two disjoint parts, both with something in them.
    left, right : Leaf or Split
        What is proved on each part.
    """

    variable: int
    left_values: IntArray
    right_values: IntArray
    left: Tree
    right: Tree


Tree: TypeAlias = Leaf | Split


NOTHING = Leaf(None, INF << SCALE_BITS, infeasible=True)
"""What is proved where nothing is allowed."""


class Part:
    """A node of the tree while it grows.

    Parameters
    ----------
    domains : tuple of bool arrays
        The values that are left here.
    dual : Dual or None
        Their messages; None where nothing is allowed, and once the part is split.
    """

    def __init__(self, domains: Domains, dual: Dual | None) -> None:
        self.domains, self.dual = domains, dual
        self.units = INF << SCALE_BITS if dual is None else 0
        self.split: tuple[int, IntArray, IntArray, Part, Part] | None = None


def grown(root: Part) -> tuple[Tree, int]:
    """Return a tree as it will be read, equal messages stored once, and the least bound of its leaves in 1/4096 ps."""
    shared: dict[bytes, IntArray] = {}
    done: dict[int, Tree] = {}
    least = INF << SCALE_BITS
    stack = [root]
    while stack:
        part = stack.pop()
        if part.split is None:
            leaf = NOTHING if part.dual is None else _leaf(part, part.dual, shared)
            done[id(part)], least = leaf, min(least, leaf.units)
        else:
            variable, left_values, right_values, left, right = part.split
            if id(left) in done and id(right) in done:
                done[id(part)] = Split(variable, left_values, right_values, done[id(left)], done[id(right)])
            else:
                stack += [part, left, right]
    return done[id(root)], least


def _leaf(part: Part, dual: Dual, shared: dict[bytes, IntArray]) -> Leaf:
    messages = dual.messages()
    messages = tuple((shared.setdefault(a.tobytes(), a), shared.setdefault(b.tobytes(), b)) for a, b in messages)
    if dual.network.shift == SCALE_BITS:
        return Leaf(messages, part.units)
    return Leaf(messages, min(part.units, certified_bound(dual.network.network, messages, part.domains)))
