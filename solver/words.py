"""How names, times and sizes read."""

from __future__ import annotations


def printable(name: str) -> str:
    r"""Return a name with what cannot be printed in a line written as an escape.

    Examples
    --------
    >>> printable("new" + chr(10) + "line")
    'new\\nline'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


def duration(picoseconds: int) -> str:
    """Return a time in the unit that reads best.

    Examples
    --------
    >>> duration(1_234_500_000), duration(7_000)
    ('1.234 ms', '7 ns')
    """
    for unit, factor in (("s", 10**12), ("ms", 10**9), ("us", 10**6), ("ns", 10**3)):
        if picoseconds >= factor:
            return f"{picoseconds / factor:.4g} {unit}"
    return f"{picoseconds} ps"


def size(count: int) -> str:
    """Return bytes in the unit that reads best (1 GB = 10^9).

    Examples
    --------
    >>> size(3_145_728), size(12)
    ('3.146 MB', '12 B')
    """
    for unit, factor in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= factor:
            return f"{count / factor:.4g} {unit}"
    return f"{count} B"
