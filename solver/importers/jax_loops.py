"""JAX's loops and branches: a scan is written out trip by trip, what data decide is refused."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from solver.importers.jax_fold import known, number_of
from solver.importers.jax_site import MOST_OPS, Site
from solver.importers.sketch import Step, Value

Run: TypeAlias = Callable[[Any, Sequence[Value], str, str], list[Value]]
"""Translates a jaxpr at given operands, under a module path, called in a line of code."""


def _scan(site: Site, run: Run) -> list[Value]:
    """Write out the trips: the carry goes from one to the next, each reads its slices and makes its own."""
    params = site.params
    length, consts = int(params["length"]), int(params["num_consts"])
    carried = consts + int(params["num_carry"])
    each = count_equations(params["jaxpr"])
    if length * each > MOST_OPS:
        raise site.refuse(
            f"its {length:,} trips of {each:,} ops are {length * each:,} ops when they are written out, and "
            f"{MOST_OPS:,} are the most: scan over fewer trips, or plan the body by itself"
        )
    site.note(f"{site.where}: its {length} trips are written out, and lie as one")
    name = site.drawing.fresh("scan")
    fixed, carry = site.operands[:consts], site.operands[consts:carried]
    slices = [_slices(site, operand, length) for operand in site.operands[carried:]]
    made: list[list[Value]] = [[] for _ in range(len(site.results) - len(carry))]
    trips: list[list[Step]] = []
    for trip in reversed(range(length)) if params["reverse"] else range(length):
        module = ".".join(part for part in (site.module, name, str(trip)) if part)
        begin = len(site.drawing.sketch.steps)
        carry = [_entering(site, value) for value in carry]
        found = run(params["jaxpr"], [*fixed, *carry, *(parts[trip] for parts in slices)], module, site.line)
        trips.append(site.drawing.sketch.steps[begin:])
        carry = found[: len(carry)]
        for parts, value in zip(made, found[len(carry) :], strict=True):
            parts.append(value)
    _repeat(trips)
    return [*carry, *(_stacked(site, parts[::-1] if params["reverse"] else parts) for parts in made)]


def _entering(site: Site, carried: Value) -> Value:
    """What a trip begins with, as a view of its own: it has one layout in every trip."""
    if carried.data is not None or not carried.shape:
        return carried
    return site.emit("reshape", carried, shape=list(carried.shape))


def _repeat(trips: Sequence[Sequence[Step]]) -> None:
    """Let each trip lie as the first one does, step by step where they are equal."""
    kinds = [[f"{step.op} {[value.shape for value in step.inputs()]}" for step in trip] for trip in trips]
    for trip, kind in zip(trips[1:], kinds[1:], strict=True):
        matcher = difflib.SequenceMatcher(a=kinds[0], b=kind, autojunk=False)
        for first, again, count in matcher.get_matching_blocks():
            for step, of in zip(trip[again : again + count], trips[0][first : first + count], strict=True):
                step.repeats = of


def _slices(site: Site, x: Value, length: int) -> list[Value]:
    """The slices of x along dim 0; of what was stacked of slices, these."""
    if id(x) in site.drawing.parts:
        return site.drawing.parts[id(x)]
    if x.data is not None:
        return [known(x.data[trip], x.dtype) if number_of(x) is None else _part(x, trip) for trip in range(length)]
    return list(site.emit_all("unbind", x, axis=0))


def _part(x: Value, trip: int) -> Value:
    """A slice of equal elements, which takes no memory."""
    assert x.data is not None
    return Value(x.shape[1:], x.dtype, "known", "", x.data[trip])


def _stacked(site: Site, parts: list[Value]) -> Value:
    """Slices along a new dim 0; a loop that reads them again reads the slices."""
    made = site.emit("stack", parts, axis=0)
    site.drawing.parts[id(made)] = parts
    site.drawing.kept.append(made)
    return made


def _while(site: Site, run: Run) -> list[Value]:
    """Write out the trips where the condition can be computed beforehand, as in a loop that counts to a number."""
    params = site.params
    count = int(params["cond_nconsts"])
    tested, fixed = site.operands[:count], site.operands[count : count + int(params["body_nconsts"])]
    carry = site.operands[count + len(fixed) :]
    name, trip = site.drawing.fresh("while"), 0
    while True:
        module = ".".join(part for part in (site.module, name, str(trip)) if part)
        (goes_on,) = run(params["cond_jaxpr"], [*tested, *carry], module, site.line)
        if goes_on.data is None:
            raise site.refuse(
                "how often it runs is computed from data, and only a known number of trips can be planned: use "
                "fori_loop or scan with a number"
            )
        if not goes_on.data:
            break
        carry = run(params["body_jaxpr"], [*fixed, *carry], module, site.line)
        trip += 1
        if trip > MOST_OPS:
            raise site.refuse(f"it runs more than {MOST_OPS:,} trips, which is the most that is written out")
    site.note(f"{site.where}: its {trip} trips are written out")
    return list(carry)


def _cond(site: Site, run: Run) -> list[Value]:
    """Take the branch that is known to be taken."""
    which, *operands = site.operands
    branches = site.params["branches"]
    if which.data is None:
        raise site.refuse(
            "which branch it takes is computed from data, and only a known one can be planned: use jnp.where, which "
            "computes both, or make the condition a static argument"
        )
    taken = int(np.clip(int(which.data), 0, len(branches) - 1))
    return run(branches[taken], operands, site.module, site.line)


LOOPS: dict[str, Callable[[Site, Run], list[Value]]] = {"scan": _scan, "while": _while, "cond": _cond}
"""Primitives whose bodies are translated as often as they run."""


def count_equations(jaxpr: Any) -> int:
    """Return how many equations a jaxpr is when its calls are inlined and its scans written out."""
    body = getattr(jaxpr, "jaxpr", jaxpr)
    total = 0
    for equation in body.eqns:
        inner = [value for value in equation.params.values() if hasattr(value, "eqns") or hasattr(value, "jaxpr")]
        trips = int(equation.params["length"]) if equation.primitive.name == "scan" else 1
        total += trips * sum(map(count_equations, inner)) if inner else 1
    return total
