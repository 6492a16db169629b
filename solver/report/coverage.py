"""How much of each framework the ops cover: a table per framework, one line a name, in coverage/*.json."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

FRAMEWORKS = ("paddle", "aten", "onnx", "jax")


@dataclass(frozen=True)
class Entry:
    """One name of a framework.

    Parameters
    ----------
    name : str
    ops : tuple of str
        The ops that it becomes, or is chosen from by its attributes; empty where nothing is computed.
    attributes : mapping
        Their attribute -> those of ours that it says, separated by commas, where the names differ.
    note : str
        What to know of a name that is covered, or why nothing is computed.
    missing : str
        Why it is left out; empty where it is covered.
    """

    name: str
    ops: tuple[str, ...] = ()
    attributes: Mapping[str, str] | None = None
    note: str = ""
    missing: str = ""


@dataclass(frozen=True)
class Framework:
    """The names of one framework: what they are names of, and what each becomes."""

    name: str
    names: str
    entries: tuple[Entry, ...]

    def covered(self) -> list[Entry]:
        """Return the names that become ops."""
        return [entry for entry in self.entries if entry.ops]

    def nothing(self) -> list[Entry]:
        """Return the names that compute nothing."""
        return [entry for entry in self.entries if not entry.ops and not entry.missing]

    def missing(self) -> list[Entry]:
        """Return the names that are left out."""
        return [entry for entry in self.entries if entry.missing]


@cache
def framework(key: str) -> Framework:
    """Read the table of a framework.

    Parameters
    ----------
    key : str
        One of `FRAMEWORKS`.

    Examples
    --------
    >>> next(entry.ops for entry in framework("jax").entries if entry.name == "exp")
    ('exp',)
    """
    read = json.loads((files("solver.report") / "coverage" / f"{key}.json").read_text(encoding="utf-8"))
    entries = (Entry(name, **{**found, "ops": tuple(found.get("ops", ()))}) for name, found in read["table"].items())
    return Framework(read["framework"], read["names"], tuple(entries))


def coverage_text() -> str:
    """Return how many names of each framework are covered, and which are not."""
    return "\n\n".join("\n".join(_lines(framework(key))) for key in FRAMEWORKS)


def _lines(found: Framework) -> Iterator[str]:
    covered, nothing, missing = len(found.covered()), len(found.nothing()), len(found.missing())
    yield (
        f"{found.name}: {covered + nothing} of {len(found.entries)} {found.names}: "
        f"{covered} by ops, {nothing} that compute nothing, {missing} left out"
    )
    for kind, listed in (("computes nothing", found.nothing()), ("left out", found.missing())):
        by_reason: dict[str, list[str]] = {}
        for entry in listed:
            by_reason.setdefault(entry.missing or entry.note, []).append(entry.name)
        for reason, names in by_reason.items():
            yield f"  {kind}: {' '.join(names)}: {reason}"
