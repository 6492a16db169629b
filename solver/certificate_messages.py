"""The message vectors of a certificate, read: whole numbers of any size, held against the edges that name them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from solver.certificate_choices import Ints, Link

LARGEST = 2**61
"""Sums that may reach this are added as Python integers, smaller ones in 64 bits."""


class CertificateError(ValueError):
    """A certificate that does not have the form of docs/certificate.md."""


class Messages:
    """All vectors of a certificate.

    Parameters
    ----------
    arrays : list of list of int
        As a plan file holds them.

    Attributes
    ----------
    largest : list of int
        The largest absolute value of each vector.

    Raises
    ------
    CertificateError
        Where one of them is no list of whole numbers.
    """

    def __init__(self, arrays: Any) -> None:
        if not isinstance(arrays, list):
            raise CertificateError("arrays should be a list of message vectors")
        for number, array in enumerate(arrays):
            if not isinstance(array, list) or not {int}.issuperset(map(type, array)):
                raise CertificateError(f"message vector {number} should be a list of whole numbers")
        self.largest = [max(map(abs, array), default=0) for array in arrays]
        self._sizes = [len(array) for array in arrays]
        self._starts = np.cumsum([0, *self._sizes], dtype=np.int64)[:-1]
        fits = max(self.largest, default=0) < LARGEST
        self._numbers = np.array(list(chain.from_iterable(arrays)), np.int64 if fits else object)

    def pair(self, link: Link, pair: Any) -> tuple[int, int]:
        """Return the numbers of the two vectors that a leaf names for an edge.

        Raises
        ------
        CertificateError
            Where there are none such, or they are not as long as the edge has layouts.
        """
        if not isinstance(pair, list) or len(pair) != 2 or not all(type(number) is int for number in pair):
            raise CertificateError(f"edge {link.name!r} should name two message vectors, not {short(pair)}")
        tail, head = pair
        if not (0 <= tail < len(self._sizes) and 0 <= head < len(self._sizes)):
            raise CertificateError(f"edge {link.name!r} names the vectors {pair}, but there are {len(self._sizes)}")
        if (self._sizes[tail], self._sizes[head]) != link.price.shape:
            raise CertificateError(
                f"edge {link.name!r} has vectors of {self._sizes[tail]} and {self._sizes[head]} entries, "
                f"but its tensor has {len(link.price)} layouts"
            )
        return tail, head

    def stacked(self, numbers: Sequence[int], layouts: int, dtype: Any) -> Ints:
        """Return vectors of equal length as the rows of an array."""
        found: Ints = self._numbers[self._starts[list(numbers), None] + np.arange(layouts)].astype(dtype, copy=False)
        return found


def of_leaf(links: Sequence[Link], given: Any) -> Mapping[str, Any]:
    """Return what a leaf says of edges, by their names; an edge that it leaves out has no messages.

    Raises
    ------
    CertificateError
        Where it speaks of something that is no edge.
    """
    if not isinstance(given, Mapping) or not {link.name for link in links}.issuperset(given):
        raise CertificateError(f"the messages of a leaf name something that is no edge: {short(given)}")
    return given


def short(value: Any) -> str:
    """Return a value as a sentence can hold it."""
    text = repr(value)
    return text if len(text) < 60 else f"{text[:57]}..."
