"""The time and the bytes of one move on one mesh axis: one collective, or one local step.

Time is in integer picoseconds, rounded up. Bytes are what one device sends. A ring cuts a tensor into n chunks of
ceil(elements / n) whole elements; the bytes that are priced are the bytes that a run sends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from solver.cost.hardware import Link

PICOSECONDS = 10**12
LONGEST = 2**50
"""The longest time of one op, transfer or wait, 18 minutes: sums of many still fit into 64 bits."""
BUCKET = 25 * 2**20
"""The bytes into which frameworks coalesce the collectives of gradients and of new parameters."""
LOCAL = ("slice", "relabel", "zero_fill", "scale")
"""The moves that send nothing."""


class PriceError(ValueError):
    """A time that is longer than can be counted."""


class Price(NamedTuple):
    """What a move costs: the bytes that one device sends, and picoseconds."""

    bytes: int
    time: int


def ceil_div(numerator: int, denominator: int) -> int:
    """Divide and round up.

    Examples
    --------
    >>> ceil_div(7, 2), ceil_div(6, 2)
    (4, 3)
    """
    return -(-numerator // denominator)


def transfer_time(size: int, bandwidth: int) -> int:
    """Give the picoseconds that some bytes take.

    Raises
    ------
    PriceError
        Where that is more than 18 minutes.

    Examples
    --------
    >>> transfer_time(100, 10**12)
    100
    """
    time = ceil_div(size * PICOSECONDS, bandwidth)
    if time > LONGEST:
        raise PriceError(f"{size} bytes at {bandwidth} bytes/s take over 18 minutes: check the shape and the hardware")
    return time


def steps(link: Link, n: int) -> int:
    """Count the steps of a gather or a reduction over n devices: ceil(log2 n), or n - 1 around a ring.

    Examples
    --------
    >>> steps(Link(1, 1), 6), steps(Link(1, 1, ring=True), 6)
    (3, 5)
    """
    return n - 1 if link.ring else (n - 1).bit_length()


def latency_time(link: Link, count: int, size: int, bucket: int | None) -> int:
    """Give the picoseconds that some steps wait; collectives coalesced into buckets of bytes share this wait.

    Parameters
    ----------
    link : Link
        The link of the mesh axis.
    count : int
        The number of steps.
    size : int
        The local bytes of the tensor, before or after, whichever are more.
    bucket : int or None
        The bytes of a bucket; None for a collective of its own.

    Raises
    ------
    PriceError
        Where that is more than 18 minutes.

    Examples
    --------
    >>> latency_time(Link(1, 500), 2, 100, None), latency_time(Link(1, 500), 2, 100, 1000)
    (1000, 100)
    """
    wait = count * link.latency
    time = wait if bucket is None else ceil_div(wait * size, bucket)
    if time > LONGEST:
        each = "" if bucket is None else f" for each {bucket} of {size} bytes"
        raise PriceError(f"waiting {count} times {link.latency} ps{each} takes over 18 minutes: check the hardware")
    return time


def all_reduce(link: Link, n: int, elements: int, itemsize: int, bucket: int | None = None) -> Price:
    """P -> R: every device gets the reduction of all terms.

    Parameters
    ----------
    link : Link
        The link of the mesh axis.
    n : int
        The size of the mesh axis.
    elements : int
        What one device holds before.
    itemsize : int
        The bytes of an element.
    bucket : int, optional
        The bytes of a bucket of coalesced collectives.

    Returns
    -------
    Price

    Examples
    --------
    >>> all_reduce(Link(bandwidth=10**12, latency=1000), n=4, elements=10, itemsize=4)
    Price(bytes=72, time=4072)
    """
    sent = 2 * (n - 1) * ceil_div(elements, n) * itemsize
    return _price(link, 2 * steps(link, n), sent, elements * itemsize, bucket)


def reduce_scatter(link: Link, n: int, elements: int, itemsize: int, bucket: int | None = None) -> Price:
    """P -> S: every device gets its block of the reduction; parameters as for `all_reduce`.

    Examples
    --------
    >>> reduce_scatter(Link(bandwidth=10**12, latency=1000), n=4, elements=8, itemsize=4)
    Price(bytes=24, time=2024)
    """
    sent = (n - 1) * ceil_div(elements, n) * itemsize
    return _price(link, steps(link, n), sent, elements * itemsize, bucket)


def all_gather(link: Link, n: int, elements: int, itemsize: int, bucket: int | None = None) -> Price:
    """S -> R: every device gets all blocks; parameters as for `all_reduce`.

    Examples
    --------
    >>> all_gather(Link(bandwidth=10**12, latency=1000), n=4, elements=2, itemsize=4)
    Price(bytes=24, time=2024)
    """
    return _price(link, steps(link, n), (n - 1) * elements * itemsize, n * elements * itemsize, bucket)


def all_to_all(link: Link, n: int, elements: int, itemsize: int, bucket: int | None = None) -> Price:
    """S -> S': every device sends every other a piece of its block; parameters as for `all_reduce`.

    Examples
    --------
    >>> all_to_all(Link(bandwidth=10**12, latency=1000), n=4, elements=8, itemsize=4)
    Price(bytes=24, time=3024)
    """
    return _price(link, n - 1, (n - 1) * ceil_div(elements, n) * itemsize, elements * itemsize, bucket)


def permute(link: Link, n: int, elements: int, itemsize: int, bucket: int | None = None) -> Price:
    """Send a whole block to one other device; parameters as for `all_reduce`, with the slowest link involved.

    Examples
    --------
    >>> permute(Link(bandwidth=10**12, latency=1000), n=4, elements=8, itemsize=4)
    Price(bytes=32, time=1032)
    """
    return _price(link, 1, elements * itemsize, elements * itemsize, bucket)


Collective: TypeAlias = Callable[[Link, int, int, int, int | None], Price]
COLLECTIVES: dict[str, Collective] = {
    "all_reduce": all_reduce,
    "reduce_scatter": reduce_scatter,
    "all_gather": all_gather,
    "all_to_all": all_to_all,
    "permute": permute,
}
KINDS = (*LOCAL, *COLLECTIVES)
"""Every kind of move."""


def slowest(links: list[Link]) -> Link:
    """Give the link that a move over several mesh axes is priced by.

    Examples
    --------
    >>> slowest([Link(bandwidth=5, latency=1), Link(bandwidth=9, latency=3)])
    Link(bandwidth=5, latency=3, ring=False)
    """
    return Link(min(link.bandwidth for link in links), max(link.latency for link in links))


def _price(link: Link, count: int, sent: int, size: int, bucket: int | None) -> Price:
    return Price(sent, latency_time(link, count, size, bucket) + transfer_time(sent, link.bandwidth))
