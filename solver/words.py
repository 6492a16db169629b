"""How names, times and sizes read."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any


def printable(name: str) -> str:
    r"""Return a name with what cannot be printed in a line written as an escape.

    Examples
    --------
    >>> printable("new" + chr(10) + "line")
    'new\\nline'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


def all_of(words: Sequence[str]) -> str:
    """Join what is meant together; nothing for no words.

    Examples
    --------
    >>> all_of(["a", "b", "c"]), all_of(["a"]), all_of([])
    ('a, b and c', 'a', '')
    """
    return " and ".join([*filter(None, [", ".join(words[:-1])]), *words[-1:]])


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


def percent(fraction: float, digits: int = 2) -> str:
    """Return a fraction, as a gap is one, in percent; what is not nothing never reads as nothing.

    Examples
    --------
    >>> percent(0.0), percent(3e-8), percent(0.01234), percent(3e-8, digits=4)
    ('0.00%', '<0.01%', '1.23%', '<0.0001%')
    """
    least = 10.0**-digits
    return f"<{least:.{digits}f}%" if 0 < fraction * 100 < least else f"{fraction:.{digits}%}"


def size(count: int) -> str:
    """Return bytes in the unit that reads best (1 GB = 10^9).

    Examples
    --------
    >>> size(3_145_728), size(12)
    ('3.146 MB', '12 B')
    """
    for unit, factor in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= factor:
            return f"{count / factor:.4g} {unit}" if count < 9999 * 10**12 else f"{count / factor:.0f} {unit}"
    return f"{count} B"


def size_up(count: int) -> str:
    """Return bytes in the unit that reads best, never less than they are: a budget that reads so is enough.

    Examples
    --------
    >>> size(31_584), size_up(31_584), read_size(size_up(31_584))
    ('31.58 kB', '31.59 kB', 31590)
    """
    step = 10 ** max(0, len(str(count)) - 4)
    return size(-(-count // step) * step)


def sizes_apart(*counts: int) -> tuple[str, ...]:
    """Return bytes in the units that read best; whole bytes where different ones would read alike.

    Examples
    --------
    >>> sizes_apart(31_000, 31_584), sizes_apart(31_580, 31_584)
    (('31 kB', '31.58 kB'), ('31580 B', '31584 B'))
    """
    told = tuple(map(size, counts))
    return told if len(set(told)) == len(set(counts)) else tuple(f"{count} B" for count in counts)


UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
UNITS |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def read_size(given: Any, least: int = 1) -> int:
    """Read a size that a person wrote: bytes, or a number with a unit.

    Parameters
    ----------
    given : int or str
    least : int, optional
        Bytes.

    Raises
    ------
    ValueError
        Where it is neither, or less than that.

    Examples
    --------
    >>> read_size("80GB"), read_size("1.5 GiB"), read_size(1000)
    (80000000000, 1610612736, 1000)
    """
    units = {name.lower(): factor for name, factor in UNITS.items()}
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", given) if isinstance(given, str) else None
    if found is not None and (unit := units.get((found[2] or "B").lower())):
        given = math.floor(Fraction(found[1]) * unit)
    if isinstance(given, bool) or not isinstance(given, int) or given < least:
        raise ValueError(
            f"give whole bytes, {least} or more, or a number with a unit, as '80GB' (10^9) or '74.5GiB' (2^30)"
        )
    return given
