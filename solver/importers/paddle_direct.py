"""Ops of Paddle that one of ours is, and their grads: names of operands, attributes and results side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ops.registry import rule_for
from solver.importers.paddle_site import Found, Site
from solver.importers.sketch import Value

Read: TypeAlias = Callable[[Site], Any]

LOCAL = frozenset({"forward_shapes", "block", "blocks", "spans", "even_boxes"})
"""Attributes of ours that say what one device holds."""


@dataclass(frozen=True)
class Direct:
    """One op of ours that does what an op of Paddle does.

    Parameters
    ----------
    op : str
        Ours.
    operands : mapping
        Our operand -> theirs, where the names differ.
    attrs : mapping
        Our attribute -> theirs, where the names differ, or how to read it.
    results : mapping
        Our result -> theirs, where the order differs.
    drop : str
        Operands and attributes of theirs that change nothing here.
    needs : mapping
        Their attribute -> the only value of it that is known here.
    shape : callable or None
        For a grad op that takes no forward operand: the shape of the first one. That of the first out_grad otherwise.
    """

    op: str
    operands: Mapping[str, str] = field(default_factory=dict)
    attrs: Mapping[str, str | Read] = field(default_factory=dict)
    results: Mapping[str, str] = field(default_factory=dict)
    drop: str = ""
    needs: Mapping[str, Any] = field(default_factory=dict)
    shape: Read | None = None

    def attributes(self, site: Site) -> dict[str, Any]:
        """Read the attributes of our op off theirs."""
        site.read.update(self.drop.split())
        for name, wanted in self.needs.items():
            site.need(name, wanted, f"only {wanted!r} is known here")
        read = {}
        for name in rule_for(self.op).attrs:
            how = self.attrs.get(name, name)
            if callable(how):
                read[name] = how(site)
            elif name not in LOCAL and site.has(how):
                read[name] = site.attr(how)
        return read

    def write(self, site: Site) -> None:
        """Write the op, and bind its results."""
        operands = [site.found(self.operands.get(spec.name, spec.name)) for spec in rule_for(self.op).operands]
        made = grouped(site.emit_slots(self.op, *operands, **self.attributes(site)))
        for name, found in made.items():
            site.bind(**{self._result(site, name): found})

    def write_grad(self, site: Site) -> None:
        """Write the grad op, and bind its results."""
        rule = rule_for(f"{self.op}_grad")
        operands = [self._grad_operand(site, spec.name, spec.optional) for spec in rule.operands]
        shapes = tuple(self._forward_shapes(site, operands))
        made = site.emit_slots(rule.name, *operands, **self.attributes(site), forward_shapes=shapes)
        for name, found in grouped(made).items():
            ours = name.removesuffix("_grad")
            site.bind(**{f"{self.operands.get(ours, ours)}_grad": found})

    def _result(self, site: Site, name: str) -> str:
        """Return what theirs calls a result of ours: by the table, else the one at its place."""
        if name in self.results:
            return self.results[name]
        theirs, ours = site.op.get_output_names(), [spec.name for spec in rule_for(self.op).results]
        return str(theirs[ours.index(name)]) if ours.index(name) < len(theirs) else name

    def _grad_operand(self, site: Site, name: str, optional: bool) -> Found:
        base = name.removesuffix("_grad")
        results = [spec.name for spec in rule_for(self.op).results]
        theirs = self.operands.get(base, base)
        if base in results:
            theirs = self.results.get(base, base) if site.forward is None else self._result(site.forward, base)
        found = site.found(theirs + name[len(base) :])
        if found is None and not optional:
            raise site.refuse(f"{theirs + name[len(base) :]} is missing, and {self.op}_grad reads it")
        return found

    def _forward_shapes(self, site: Site, operands: list[Found]) -> Iterator[tuple[str, Any]]:
        for index, spec in enumerate(rule_for(self.op).operands):
            found = site.found(self.operands.get(spec.name, spec.name))
            if isinstance(found, list):
                yield spec.name, [value.shape for value in found]
            elif found is not None:
                yield spec.name, found.shape
            elif index or spec.optional:
                yield spec.name, None
            else:
                yield spec.name, self.shape(site) if self.shape else _first_shape(operands)


def _first_shape(operands: list[Found]) -> tuple[int, ...]:
    """The shape of the last operand of a grad op, an out_grad: for ops that change no shape."""
    last = operands[-1]
    return last.shape if isinstance(last, Value) else ()


def grouped(made: Mapping[str, Value]) -> dict[str, Found]:
    """Put the slots of a variadic result together: ``out.0, out.1`` is the list ``out``.

    Examples
    --------
    >>> one = Value((2,), "float32", "result")
    >>> [(name, len(found)) for name, found in grouped({"out.0_grad": one, "out.1_grad": one}).items()]
    [('out_grad', 2)]
    """
    found: dict[str, Any] = {}
    for name, value in made.items():
        base, dot, rest = name.partition(".")
        if dot:
            found.setdefault(base + rest.lstrip("0123456789"), []).append(value)
        else:
            found[name] = value
    return found
