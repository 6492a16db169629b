"""Policies as values; `solver.constraints.policy` makes them, `solver.problem_policy` reads them against a graph."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import Any, ClassVar

KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "permute", "halo_exchange", "shift")
"""The kinds of collective that a policy may forbid."""


def fitting(patterns: Iterable[str], names: Iterable[str]) -> list[str]:
    """Return the names that one of some patterns fits, or is.

    Examples
    --------
    >>> fitting(("*.m", "new_w"), ["w.m", "new_w", "w.v"])
    ['w.m', 'new_w']
    """
    wanted = tuple(patterns)
    return [name for name in names if any(name == one or fnmatchcase(name, one) for one in wanted)]


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy; made by the functions of this module."""

    name: ClassVar[str] = ""
    usual_dim: ClassVar[int] = 0

    def to_json(self) -> dict[str, Any]:
        """Return the policy as plain JSON values, under the name of the function that makes it."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {self.name: {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}}

    def __str__(self) -> str:
        """Return the call that makes it."""
        told: list[str] = []
        named: list[str] = []
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "dim":
                named = [] if value == self.usual_dim else [f"dim={value}"]
                continue
            told += map(repr, value) if isinstance(value, tuple) else [repr(value)]
        return f"{self.name}({', '.join([*told, *named])})"


@dataclass(frozen=True, slots=True)
class Untie(Policy):
    """Ties that are let go; made by `solver.constraints.policy.untie`.

    Parameters
    ----------
    patterns : tuple of str
        Names of followers, or globs over them.
    """

    name: ClassVar[str] = "untie"
    patterns: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the policy as plain JSON values."""
        return {"untie": list(self.patterns)}

    def followers(self, names: Iterable[str]) -> list[str]:
        """Return the names that a pattern fits.

        Examples
        --------
        >>> Untie(("*.m",)).followers(["w.m", "new_w", "w.v"])
        ['w.m']
        """
        return fitting(self.patterns, names)


@dataclass(frozen=True, slots=True)
class Forbid(Policy):
    """Collectives that may not run; made by `forbid` and `no_communication`.

    Parameters
    ----------
    kinds : tuple of str
    tensors : tuple of str
        Names of tensors, or globs over them; ``("*",)`` speaks of every tensor, and of what kernels send, too.
    axis : str or None
        The mesh axis; None for every one.
    """

    name: ClassVar[str] = "forbid"
    kinds: tuple[str, ...]
    tensors: tuple[str, ...]
    axis: str | None

    def __str__(self) -> str:
        tensors = [repr(pattern) for pattern in self.tensors if self.tensors != ("*",)]
        axis = [] if self.axis is None else [f"axis={self.axis!r}"]
        if self.kinds == KINDS and self.axis is not None:
            return f"no_communication({', '.join([repr(self.axis), *tensors])})"
        kinds = repr(self.kinds[0]) if len(self.kinds) == 1 else repr(self.kinds)
        return f"forbid({', '.join([kinds, *tensors, *axis])})"


@dataclass(frozen=True, slots=True)
class Batch(Policy):
    """A batch that stays cut; made by `batch_stays`.

    Parameters
    ----------
    axis : str
    dim : int
        The tensor dim of the inputs, or of what `tensors` names.
    tensors : tuple of str
    """

    name: ClassVar[str] = "batch_stays"
    axis: str
    dim: int
    tensors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Zero(Policy):
    """What an optimizer keeps is cut; made by `zero`.

    Parameters
    ----------
    stage : int
    axis : str
    """

    name: ClassVar[str] = "zero"
    stage: int
    axis: str


@dataclass(frozen=True, slots=True)
class Sequence(Policy):
    """The sequence is cut where ops work on each of its places; made by `sequence_parallel`.

    Parameters
    ----------
    axis : str
    dim : int
    tensors : tuple of str
    """

    name: ClassVar[str] = "sequence_parallel"
    usual_dim: ClassVar[int] = 1
    axis: str
    dim: int
    tensors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Expert(Policy):
    """Experts lie on different devices; made by `expert_parallel`.

    Parameters
    ----------
    axis : str
    tensors : tuple of str
    """

    name: ClassVar[str] = "expert_parallel"
    axis: str
    tensors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Traffic(Policy):
    """A budget of what is sent over a mesh axis; made by `traffic`.

    Parameters
    ----------
    axis : str
    most : int
        Bytes per device in the whole step.
    """

    name: ClassVar[str] = "traffic"
    axis: str
    most: int


@dataclass(frozen=True, slots=True)
class Equal(Policy):
    """Layers that lie alike; made by `equal_layers`.

    Parameters
    ----------
    patterns : tuple of str
    """

    name: ClassVar[str] = "equal_layers"
    patterns: tuple[str, ...]
