"""The page docs/ops.md, made from the ops and the coverage tables: ``python -m solver.report.page docs/ops.md``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from ops.registry import families, names, rule_for
from solver.report.coverage import FRAMEWORKS, Entry, framework
from solver.report.rules import family_title, op_lines

INTRODUCTION = """# The ops

Made by `python -m solver.report.page docs/ops.md`; do not edit. How a rule is read: [notation.md](notation.md).
All rows of one op, on given shapes: `shardproof rules topk --shape x=4x6 --attr k=2`.

The rule of an op that depends on shapes or attributes is that of its defaults, or of a small example.
*grad*: there is an op `NAME_grad`, and its rows are derived."""

COVERAGE = """## Names of other frameworks

What each name becomes here, as tables that the command `shardproof rules --coverage` reads too. A name may become one
of several ops, by its attributes, or several ops together. A table is no importer: it says that the ops are there."""


def page() -> str:
    """Return the page."""
    return "\n\n".join([INTRODUCTION, *map(_family, families()), COVERAGE, *map(_framework, FRAMEWORKS)]) + "\n"


def _family(module: str) -> str:
    known = set(names())
    members = [name for name in families()[module] if rule_for(name).forward is None]
    lines = [f"## {module.removeprefix('ops.')}", "", family_title(module), "", "| op | rule | clauses | grad |"]
    lines.append("|---|---|---|---|")
    for name, text, clauses in op_lines(members):
        grad = "yes" if f"{name}_grad" in known else ""
        lines.append(f"| {name} | {_code(text)} | {_cell(clauses)} | {grad} |")
    return "\n".join(lines)


def _framework(key: str) -> str:
    found = framework(key)
    lines = [f"### {found.name}", "", f"{len(found.entries)} {found.names}.", "", "| name | becomes | note |"]
    lines.append("|---|---|---|")
    lines += [f"| {_code(entry.name)} | {', '.join(entry.ops) or '-'} | {_note(entry)} |" for entry in found.entries]
    return "\n".join(lines)


def _note(entry: Entry) -> str:
    return _cell("; ".join(_remarks(entry)))


def _remarks(entry: Entry) -> Iterator[str]:
    if entry.missing:
        yield f"left out: {entry.missing}"
    if entry.attributes:
        yield ", ".join(f"{theirs} is {ours}" for theirs, ours in entry.attributes.items())
    if entry.note:
        yield entry.note


def _code(text: str) -> str:
    return f"`{_cell(text)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
