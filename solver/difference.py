"""What another plan does otherwise, and what each change takes: the parts add up to the difference in time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from solver.explanation_plan import Part
from solver.plan import SECONDS, Plan
from solver.words import duration

MOST_CHANGES = 6
"""Collectives that are told one by one of those that come, and of those that go."""


def parts(plan: Plan, other: Plan) -> tuple[Part, ...]:
    """Return what another plan takes more and less: collectives that come, then those that go, then compute.

    Parameters
    ----------
    plan, other : Plan
        With a choice, under the same hardware.
    """
    before, after = _collectives(plan), _collectives(other)
    found = []
    for sign, one, two in ((1, after, before), (-1, before, after)):
        changed = sorted((one - two).items(), key=lambda item: (-item[0][1] * item[1], item[0]))
        for (text, time), count in changed:
            if time:
                many = f", {count} of them" if count > 1 else ""
                found.append(Part("collective", text + many, sign * time * count / SECONDS))
    computing = other.evaluation.computing - plan.evaluation.computing
    return (*found, Part("compute", "compute", computing / SECONDS)) if computing else tuple(found)


def told(changes: Sequence[Part]) -> list[str]:
    """Return parts as lines; of many collectives the dearest, and what the others take together."""
    lines = []
    for word, sign in (("then", 1), ("no longer", -1)):
        some = [one for one in changes if one.kind == "collective" and one.seconds * sign > 0]
        lines += [f"  {word} {one.text}: {_time(one.seconds)}" for one in some[:MOST_CHANGES]]
        if rest := some[MOST_CHANGES:]:
            lines.append(f"  {word} {len(rest)} more: {_time(sum(one.seconds for one in rest))}")
    for one in changes:
        if one.kind == "compute":
            lines.append(f"  {'more' if one.seconds > 0 else 'less'} compute: {_time(one.seconds)}")
    return lines


def difference(more: int, before: int) -> str:
    """Return how much more or less time that is, in picoseconds.

    Examples
    --------
    >>> difference(-500, 2000), difference(0, 7)
    ('500 ps less (-25.0%)', 'as much')
    """
    share = f" ({more / before:+.1%})" if before else ""
    return "as much" if not more else f"{duration(abs(more))} {'more' if more > 0 else 'less'}{share}"


def _time(seconds: float) -> str:
    return duration(round(abs(seconds) * SECONDS))


def _collectives(plan: Plan) -> Counter[tuple[str, int]]:
    """Return what a plan sends: a text and a time for each collective, of reshards and of kernels."""
    axes = plan.problem.mesh.axes
    found = Counter(
        (f"{told.kind}[{told.axis}] of {reshard.tensor}", move.time)
        for reshard in plan.reshards
        for told, move in zip(reshard.collectives, reshard.moves, strict=True)
    )
    for node, steps in plan.kernels.items():
        found.update((f"{one.kind}[{','.join(axes[axis] for axis in one.axes)}] in {node}", one.time) for one in steps)
    return found
