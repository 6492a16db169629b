"""The proof of a bound as a tree: messages at its leaves; at every other node the values of one variable are parted, or
those are taken out that are in no assignment that is cheap enough. Parts of the network may have trees of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from solver.search.bound import Dual, Messages, certified_bound
from solver.search.flat import SCALE_BITS
from solver.search.network import INF, Domains, IntArray


@dataclass(frozen=True, eq=False)
class Block:
    """Some variables, and a proof of what they and the edges between them pay at least.

    Parameters
    ----------
    variables, edges : tuple of int
        Indices in the whole network. Of the edges, all between these variables.
    tree : Tree
        Its leaves have messages for these edges, in this order; the other edges keep those of where the block is.
    units : int
        What it proves, in 1/4096 ps; own prices with the messages of the other edges, and the prices of these edges.
    gain : int
        How much more that is than what the messages prove without it.
    """

    variables: tuple[int, ...]
    edges: tuple[int, ...]
    tree: Tree
    units: int
    gain: int


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
    blocks : tuple of Block
        They have no variable in common.
    """

    messages: Messages | None
    units: int
    infeasible: bool = False
    blocks: tuple[Block, ...] = ()


@dataclass(frozen=True, eq=False)
class Split:
    """The values of one variable in two parts.

    Parameters
    ----------
    variable : int
        Index of the variable.
    left_values, right_values : int64 arrays
        Its values that are left at this point, in two disjoint parts, both with something in them.
    left, right : Tree
        What is proved on each part.
    """

    variable: int
    left_values: IntArray
    right_values: IntArray
    left: Tree
    right: Tree


@dataclass(frozen=True, eq=False)
class Narrowed:
    """The values that are left where an assignment may cost no more than some price.

    Parameters
    ----------
    messages : Messages
    blocks : tuple of Block
        With the messages they prove of every other value that each assignment with it costs more.
    within : int
        That price in 1/4096 ps.
    rest : Tree
        What is proved of the values that are left.
    """

    messages: Messages
    blocks: tuple[Block, ...]
    within: int
    rest: Tree


Tree: TypeAlias = Leaf | Split | Narrowed


NOTHING = Leaf(None, INF << SCALE_BITS, infeasible=True)
"""What is proved where nothing is allowed."""


def parts(tree: Tree) -> Iterator[Tree]:
    """Yield every node of a tree, parents first; not those of its blocks."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, Split):
            waiting += [node.left, node.right]
        elif isinstance(node, Narrowed):
            waiting.append(node.rest)


def least_units(tree: Tree) -> int:
    """Return what a tree proves, in 1/4096 ps."""
    return min(
        node.units if isinstance(node, Leaf) else node.within + 1 for node in parts(tree) if not isinstance(node, Split)
    )


class Part:
    """A node of the tree while it grows.

    Parameters
    ----------
    domains : tuple of bool arrays
        The values that are left here.
    dual : Dual or None
        Their messages; None where nothing is allowed, and once the part is split or narrowed.

    Attributes
    ----------
    units : int
        The bound in 1/4096 ps by the messages alone.
    alone : Leaf or None
        A proof of the part as a whole, where there is one beside `dual`: with blocks, or what it was narrowed by.
    """

    def __init__(self, domains: Domains, dual: Dual | None) -> None:
        self.domains, self.dual = domains, dual
        self.units = INF << SCALE_BITS if dual is None else 0
        self.alone: Leaf | None = None
        self.split: tuple[int, IntArray, IntArray, Part, Part] | None = None
        self.narrowed: tuple[int, Part] | None = None

    @property
    def below(self) -> tuple[Part, ...]:
        """The parts that it was divided into."""
        if self.narrowed is not None:
            return (self.narrowed[1],)
        return () if self.split is None else self.split[3:]


def grown(root: Part) -> Tree:
    """Return a tree as it will be read, equal messages stored once."""
    shared: dict[bytes, IntArray] = {}
    done: dict[int, Tree] = {}
    stack = [root]
    while stack:
        part = stack.pop()
        if all(id(child) in done for child in part.below):
            tree = _tree(part, done, shared)
            done[id(part)] = tree if part.alone is None or part.alone.units < least_units(tree) else _kept(part, shared)
        else:
            stack += [part, *part.below]
    return done[id(root)]


def _tree(part: Part, done: dict[int, Tree], shared: dict[bytes, IntArray]) -> Tree:
    """Return a part whose children are trees already."""
    if part.narrowed is not None:
        leaf, (within, rest) = _kept(part, shared), part.narrowed
        assert leaf.messages is not None
        return Narrowed(leaf.messages, leaf.blocks, within, done[id(rest)])
    if part.split is not None:
        variable, left_values, right_values, left, right = part.split
        return Split(variable, left_values, right_values, done[id(left)], done[id(right)])
    if part.dual is None:
        return NOTHING if part.alone is None else _kept(part, shared)
    messages = _shared(part.dual.messages(), shared)
    if part.dual.network.shift == SCALE_BITS:
        return Leaf(messages, part.units)
    return Leaf(messages, min(part.units, certified_bound(part.dual.network.network, messages, part.domains)))


def _kept(part: Part, shared: dict[bytes, IntArray]) -> Leaf:
    """Return the proof that a part has as a whole."""
    assert part.alone is not None
    assert part.alone.messages is not None
    return replace(part.alone, messages=_shared(part.alone.messages, shared))


def _shared(messages: Messages, shared: dict[bytes, IntArray]) -> Messages:
    """Return messages with equal arrays stored once."""
    return tuple((shared.setdefault(a.tobytes(), a), shared.setdefault(b.tobytes(), b)) for a, b in messages)
