"""What a person may allow or forbid beside pins."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class Untie:
    """Ties that are let go; made by `untie`.

    Parameters
    ----------
    patterns : tuple of str
        Names of followers, or globs over them.
    """

    patterns: tuple[str, ...]

    def followers(self, names: Iterable[str]) -> list[str]:
        """Return the names that a pattern fits.

        Examples
        --------
        >>> untie("*.m").followers(["w.m", "new_w", "w.v"])
        ['w.m']
        """
        return [name for name in names if any(name == one or fnmatchcase(name, one) for one in self.patterns)]


def untie(*patterns: str) -> Untie:
    """Let ties go: what follows is stored, or delivered, as the plan chooses.

    Parameters
    ----------
    *patterns : str
        Names of followers, or globs over them: ``untie("*.moment1", "*.moment2")`` lets an optimizer's state be cut
        otherwise than its parameter.

    Returns
    -------
    Untie
        For ``plan(..., policy=(untie("*"),))``.

    Raises
    ------
    ValueError
        Where no pattern is given, or one is no text.
    """
    if not patterns or not all(isinstance(pattern, str) for pattern in patterns):
        raise ValueError(f"untie{patterns!r}: give the name of a follower, or a glob, as untie('*.moment1')")
    return Untie(patterns)
