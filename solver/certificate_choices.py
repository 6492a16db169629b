"""What the checker chooses among: the values of one variable, and one edge between two (docs/certificate.md)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from solver.cost.reshard import INF

Ints: TypeAlias = NDArray[Any]
Bools: TypeAlias = NDArray[np.bool_]
Name: TypeAlias = tuple[str, str]
"""``("op", name)`` or ``("tensor", name)``."""
Alive: TypeAlias = dict[Name, Bools]
"""Which values of each variable are left."""
Prices: TypeAlias = tuple[Ints, Bools | None]
"""Prices, and where they are allowed; None where that is everywhere."""


@dataclass(frozen=True, eq=False)
class Choices:
    """The values of one variable; equal variables may share one object.

    Parameters
    ----------
    price : int array
        Of each value, in picoseconds; INF where it is forbidden.
    keys : int array, shape (values, ...)
        Each value as a certificate names it: rows per mesh axis, or (made, held), of a tied output also which of
        the two it is delivered from. Of a relayed tensor what is held stands in all places.
    stored : int array, shape (moments, values), or None
        The bytes that each value stores at the moments of a certificate with a memory budget; None where it is none.
    """

    price: Ints
    keys: Ints
    stored: Ints | None = None

    @cached_property
    def most(self) -> int:
        """The largest price that is not forbidden."""
        return int(self.price.max(where=self.price < INF, initial=0))

    @cached_property
    def allowed(self) -> Bools:
        """Which values are not forbidden by themselves."""
        return self.price < INF

    # What a tensor's values offer its uses, its followers, and its producer: one array each, by which edges of equal
    # tensors are known to be alike.

    @cached_property
    def both(self) -> Ints:
        """What was made, and what is held."""
        return self.keys[:, :2]

    @cached_property
    def stored_twice(self) -> Ints:
        """The storage of a source, where no copy is offered."""
        return self.keys[:, [0, 0]]

    @cached_property
    def made(self) -> Ints:
        """What was made."""
        return self.keys[:, 0]

    @cached_property
    def left(self) -> Ints:
        """What a tied output is delivered from."""
        return self.keys[:, 2]


@dataclass(frozen=True, eq=False)
class Link:
    """One edge: what the tail offers and the head asks for, as numbers of layouts.

    Parameters
    ----------
    name : str
    tail, head : Name
    price : int array
        Between the layouts of the tensor; INF where forbidden.
    allowed : bool array or None
        Where the price is not forbidden; None where that is everywhere.
    offers : int array, shape (values of the tail, 2)
    asks : int array, shape (values of the head,)
    stored : int array, shape (moments, *price), or None
        The bytes that are stored along the edge at the moments of a certificate with a memory budget.
    """

    name: str
    tail: Name
    head: Name
    price: Ints
    allowed: Bools | None
    offers: Ints
    asks: Ints
    stored: Ints | None = None

    @property
    def ends(self) -> tuple[Name, Name]:
        """The tail and the head."""
        return self.tail, self.head

    def sides(self, alive: Alive) -> tuple[Bools, Bools]:
        """Return which layouts the values that are left offer and ask for."""
        offered, asked = np.zeros(self.price.shape[0], np.bool_), np.zeros(self.price.shape[1], np.bool_)
        offered[self.offers[alive[self.tail]]] = True
        asked[self.asks[alive[self.head]]] = True
        return offered, asked


def with_mask(price: Ints) -> Prices:
    """Return prices, and where they are allowed."""
    allowed = price < INF
    return price, None if allowed.all() else allowed


def added(price: Ints, more: Ints) -> Ints:
    """Return sums of prices; what is forbidden stays so."""
    found: Ints = np.minimum(INF, price + more)
    return found
