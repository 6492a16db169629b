"""What the messages of a leaf leave, added up (docs/certificate.md, What it proves).

Edges that join equal layouts at equal prices are one class and are computed together, as rows of arrays. Every sum is
exact: where one may leave 64 bits, Python's integers are added.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from solver.certificate_choices import Alive, Bools, Choices, Ints, Link, Name
from solver.certificate_messages import LARGEST, Messages


@dataclass(frozen=True)
class Counting:
    """How the prices and bytes of a leaf are counted together.

    Parameters
    ----------
    bits : int or None
        Prices are in units of 2^-bits ps; None where time does not count.
    multipliers : int array
        Of the bytes at each moment, as Python integers.
    """

    bits: int | None
    multipliers: Ints

    def most(self, price: int, stored: Ints | None) -> int:
        """Return what prices up to this one and these bytes may reach."""
        priced = 0 if self.bits is None else price << self.bits
        if stored is None:
            return priced
        most = stored.reshape(len(stored), -1).max(axis=1, initial=1)  # a multiplier itself is to fit, too
        beside = zip(self.multipliers.tolist(), most.tolist(), strict=True)
        return priced + int(sum(multiplier * bytes for multiplier, bytes in beside))

    def counted(self, price: Ints, stored: Ints | None, dtype: Any) -> Ints:
        """Return prices, 0 where forbidden, with the bytes beside them."""
        found: Ints = np.zeros(price.shape, dtype) if self.bits is None else price.astype(dtype) << self.bits
        if stored is not None:
            found = found + np.tensordot(self.multipliers.astype(dtype), stored.astype(dtype), 1)
        return found


@dataclass
class _Class:
    """Edges between equal layouts at equal prices, with what is left of the values at both ends.

    Parameters
    ----------
    link : Link
        Any of them.
    offers, asks : int array
        As those of the link, for the values that are left.
    links : list of Link
        The edges.
    tails, heads : list of int
        The numbers of the variables of each edge; -1 of one that is not added up.
    pairs : list of (int, int)
        The numbers of the message vectors of each edge; none where the leaf names none.
    """

    link: Link
    offers: Ints
    asks: Ints
    links: list[Link] = field(default_factory=list)
    tails: list[int] = field(default_factory=list)
    heads: list[int] = field(default_factory=list)
    pairs: list[tuple[int, int]] = field(default_factory=list)

    def messages(self, read: Messages, end: int, dtype: Any) -> Ints:
        """Return the vectors of one end, a row an edge; one row of zeros where there are none."""
        layouts = self.link.price.shape[end]
        if not self.pairs:
            return np.zeros((1, layouts), dtype)
        return read.stacked([pair[end] for pair in self.pairs], layouts, dtype)


@dataclass(frozen=True)
class Sums:
    """What messages leave.

    Parameters
    ----------
    values : dict
        Of each variable what each value that is left costs, with the messages to it.
    edges : dict
        Of each edge the least of price - A - B.
    """

    values: dict[Name, Ints]
    edges: dict[Link, int]

    def least(self, variables: Iterable[Name], edges: Iterable[Link]) -> int:
        """Return the least that some variables and edges pay."""
        return sum(int(self.values[name].min()) for name in variables) + sum(self.edges[link] for link in edges)

    @property
    def total(self) -> int:
        """The least that all pay."""
        return self.least(self.values, self.edges)


def sums(
    choices: Mapping[Name, Choices],
    links: Sequence[Link],
    alive: Alive,
    read: Messages,
    given: Mapping[str, Any],
    counting: Counting,
    outer: Sequence[Link] = (),
    around: Mapping[str, Any] | None = None,
) -> Sums:
    """Add messages to the variables and take them off the edges, over the values that are left.

    Parameters
    ----------
    choices : mapping
        The variables.
    links : sequence of Link
        The edges between them.
    alive : dict
        Every variable has a value, those at the other ends of `outer` too.
    read : Messages
    given : mapping
        Name of an edge -> the numbers of its two message vectors.
    counting : Counting
    outer : sequence of Link, optional
        Edges between one of the variables and another one: their messages count, they do not.
    around : mapping, optional
        As `given`, for these; an edge between the variables may have the same name.

    Returns
    -------
    Sums

    Raises
    ------
    CertificateError
        Where the leaf names vectors that do not fit.
    """
    number = {name: i for i, name in enumerate(choices)}
    reach = [counting.most(one.most, one.stored) for one in choices.values()] + [0]
    known = {id(mask): mask.tobytes() for mask in alive.values()}
    masks = {name: known[id(mask)] for name, mask in alive.items()}
    classes: dict[Any, _Class] = {}
    named = [(link, given.get(link.name), True) for link in links]
    named += [(link, (around or {}).get(link.name), False) for link in outer]
    for link, pair, inner in named:
        tail, head = number.get(link.tail, -1), number.get(link.head, -1)
        alike = id(link.price), id(link.allowed), id(link.offers), id(link.asks), id(link.stored)
        key = *alike, masks[link.tail], masks[link.head], pair is None, inner
        if key not in classes:
            classes[key] = _Class(link, link.offers[alive[link.tail]], link.asks[alive[link.head]])
        found = classes[key]
        found.links.append(link)
        found.tails.append(tail)
        found.heads.append(head)
        if pair is not None:
            vectors = read.pair(link, pair)
            found.pairs.append(vectors)
            for end, vector in ((tail, vectors[0]), (head, vectors[1])):
                size = read.largest[vector]
                reach[end] = max(reach[end], size) if end < 0 else reach[end] + size  # read, but not added up
    dtype = np.int64 if max(reach) < LARGEST else object
    own = _own(choices, alive, masks, counting, dtype)
    values = dict(zip(choices, _with_messages(own, read, classes.values(), dtype), strict=True))
    edges = {
        link: least
        for key, one in classes.items()
        if key[-1]
        for link, least in zip(one.links, _of_edges(one, read, counting), strict=True)
    }
    return Sums(values, edges)


def _own(
    choices: Mapping[Name, Choices], alive: Alive, masks: Mapping[Name, bytes], counting: Counting, dtype: Any
) -> list[Ints]:
    """Return what the values that are left of each variable cost by themselves; equal variables share it."""
    known: dict[tuple[int, int, bytes], Ints] = {}
    found = []
    for name, one in choices.items():
        alike = id(one.price), id(one.stored), masks[name]
        if alike not in known:
            stored = None if one.stored is None else one.stored[:, alive[name]]
            known[alike] = counting.counted(one.price[alive[name]], stored, dtype)
        found.append(known[alike])
    return found


def _with_messages(own: Sequence[Ints], read: Messages, classes: Iterable[_Class], dtype: Any) -> Sequence[Ints]:
    """Return the own price of every value, with the messages of its edges."""
    if not own:
        return []
    found, starts = np.concatenate(own), np.cumsum([0, *map(len, own)])
    for one in classes:
        if one.pairs:
            tails, heads = (one.messages(read, end, dtype) for end in (0, 1))
            offered = np.minimum(tails[:, one.offers[:, 0]], tails[:, one.offers[:, 1]])
            for ends, felt in ((one.tails, offered), (one.heads, heads[:, one.asks])):
                at = np.array(ends)
                np.add.at(found, starts[at[at >= 0], None] + np.arange(felt.shape[1]), felt[at >= 0])
    return np.split(found, starts[1:-1])


def _of_edges(one: _Class, read: Messages, counting: Counting) -> list[int]:
    """Return the least of every edge of a class: price - A - B over what is offered and asked for, where allowed."""
    link, offered, asked = one.link, _named(one.offers, one.link, 0), _named(one.asks, one.link, 1)
    price = link.price[offered][:, asked]
    stored = None if link.stored is None else link.stored[:, offered][:, :, asked]
    forbidden = None if link.allowed is None else ~link.allowed[offered][:, asked]
    if forbidden is not None:
        price = np.where(forbidden, 0, price)
    largest = max((read.largest[tail] + read.largest[head] for tail, head in one.pairs), default=0)
    reach = counting.most(int(price.max(initial=0)), stored) + largest
    dtype = np.int64 if reach < LARGEST else object
    prices = counting.counted(price, stored, dtype)
    if forbidden is not None:
        prices[forbidden] = 2 * max(reach, LARGEST)
    tails, heads = one.messages(read, 0, dtype)[:, offered], one.messages(read, 1, dtype)[:, asked]
    least = prices[:, 0] - heads[:, :1]
    for column in range(1, heads.shape[1]):
        np.minimum(least, prices[:, column] - heads[:, column : column + 1], out=least)
    found: list[int] = (least - tails).min(axis=1).tolist()
    return found if one.pairs else found * len(one.links)


def _named(layouts: Ints, link: Link, end: int) -> Bools:
    """Return which layouts are named at one end of an edge."""
    found = np.zeros(link.price.shape[end], np.bool_)
    found[layouts] = True
    return found
