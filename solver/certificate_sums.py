"""What the messages of a leaf leave, added up (docs/certificate.md, What it proves).

Edges that join equal layouts at equal prices are one class and are computed together, as rows of arrays. Every sum is
exact: where one may leave 64 bits, Python's integers are added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    tails, heads : list of int
        The numbers of the variables of each edge.
    pairs : list of (int, int)
        The numbers of the message vectors of each edge; none where the leaf names none.
    """

    link: Link
    offers: Ints
    asks: Ints
    tails: list[int] = field(default_factory=list)
    heads: list[int] = field(default_factory=list)
    pairs: list[tuple[int, int]] = field(default_factory=list)

    def messages(self, read: Messages, end: int, dtype: Any) -> Ints:
        """Return the vectors of one end, a row an edge; one row of zeros where there are none."""
        layouts = self.link.price.shape[end]
        if not self.pairs:
            return np.zeros((1, layouts), dtype)
        return read.stacked([pair[end] for pair in self.pairs], layouts, dtype)


def total(
    choices: Mapping[Name, Choices],
    links: Sequence[Link],
    alive: Alive,
    read: Messages,
    given: Mapping[str, Any],
    counting: Counting,
) -> int:
    """Add the least of every variable and of every edge, over the values that are left.

    Parameters
    ----------
    choices : mapping
        The variables.
    links : sequence of Link
    alive : dict
        Every variable has a value.
    read : Messages
    given : mapping
        Edge -> the numbers of its two message vectors.
    counting : Counting

    Returns
    -------
    int

    Raises
    ------
    CertificateError
        Where the leaf names vectors that do not fit.
    """
    number = {name: i for i, name in enumerate(choices)}
    reach = [counting.most(one.most, one.stored) for one in choices.values()]
    masks = [alive[name].tobytes() for name in choices]
    classes: dict[Any, _Class] = {}
    for link in links:
        pair, tail, head = given.get(link.name), number[link.tail], number[link.head]
        alike = id(link.price), id(link.allowed), id(link.offers), id(link.asks), id(link.stored)
        key = *alike, masks[tail], masks[head], pair is None
        if key not in classes:
            classes[key] = _Class(link, link.offers[alive[link.tail]], link.asks[alive[link.head]])
        found = classes[key]
        found.tails.append(tail)
        found.heads.append(head)
        if pair is not None:
            vectors = read.pair(link, pair)
            found.pairs.append(vectors)
            reach[tail] += read.largest[vectors[0]]
            reach[head] += read.largest[vectors[1]]
    dtype = np.int64 if max(reach, default=0) < LARGEST else object
    return _of_variables(choices, alive, read, classes.values(), counting, dtype) + sum(
        _of_edges(one, read, counting) for one in classes.values()
    )


def _of_variables(
    choices: Mapping[Name, Choices],
    alive: Alive,
    read: Messages,
    classes: Any,
    counting: Counting,
    dtype: Any,
) -> int:
    """Add the least of every variable: own price, and the messages of its edges."""
    values = [
        counting.counted(one.price[alive[name]], None if one.stored is None else one.stored[:, alive[name]], dtype)
        for name, one in choices.items()
    ]
    sums, starts = np.concatenate(values), np.cumsum([0, *map(len, values)])[:-1]
    for one in classes:
        if one.pairs:
            tails, heads = (one.messages(read, end, dtype) for end in (0, 1))
            offered = np.minimum(tails[:, one.offers[:, 0]], tails[:, one.offers[:, 1]])
            np.add.at(sums, starts[one.tails, None] + np.arange(len(one.offers)), offered)
            np.add.at(sums, starts[one.heads, None] + np.arange(len(one.asks)), heads[:, one.asks])
    return sum(np.minimum.reduceat(sums, starts).tolist())


def _of_edges(one: _Class, read: Messages, counting: Counting) -> int:
    """Add the least of every edge of a class: price - A - B over what is offered and asked for, where it is allowed."""
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
    return sum(found) * (1 if one.pairs else len(one.tails))


def _named(layouts: Ints, link: Link, end: int) -> Bools:
    """Return which layouts are named at one end of an edge."""
    found = np.zeros(link.price.shape[end], np.bool_)
    found[layouts] = True
    return found
