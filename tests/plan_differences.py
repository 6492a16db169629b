"""Two plans of one model, brought in on two ways, held against each other op by op."""

from __future__ import annotations

from collections import Counter, defaultdict

from solver import Plan

Row = tuple[str, int, int, int, int]
"""What is compared, how often it stands in one plan and in the other, and its picoseconds in each."""


def spent(plan: Plan) -> dict[str, tuple[int, int]]:
    """Kind of op or of collective -> how many there are, and their picoseconds; views are left out.

    The picoseconds add up to the cost of the plan.
    """
    count: Counter[str] = Counter()
    time: dict[str, int] = defaultdict(int)
    for node in plan.problem.graph.nodes.values():
        if found := plan.evaluation.compute(node.name):
            count[node.op] += 1
            time[node.op] += found
    for reshard in plan.reshards:
        for move in reshard.moves:
            count[f"({move.kind})"] += 1
            time[f"({move.kind})"] += move.time
    return {kind: (count[kind], time[kind]) for kind in count}


def differences(one: Plan, other: Plan) -> list[Row]:
    """What the plans spend unlike, the dearest difference first; the differences add up to that of the costs."""
    mine, theirs = spent(one), spent(other)
    rows = [
        (kind, *(part for pair in zip(mine.get(kind, (0, 0)), theirs.get(kind, (0, 0)), strict=True) for part in pair))
        for kind in {**mine, **theirs}
    ]
    found = [row for row in rows if row[1] != row[2] or row[3] != row[4]]
    return sorted(found, key=lambda row: (-abs(row[3] - row[4]), row[0]))


def told(one: Plan, other: Plan, names: tuple[str, str] = ("one", "other")) -> str:
    """The differences as a table, for a person to read."""
    lines = [f"{'':24}{names[0]:>20}{names[1]:>20}{'difference':>16}"]
    for kind, count, their_count, time, their_time in differences(one, other):
        lines.append(
            f"{kind:24}{count:6} {time / 1000:10.3f} ns{their_count:6} {their_time / 1000:10.3f} ns"
            f"{(time - their_time) / 1000:13.3f} ns"
        )
    total = [plan.cost_ps or 0 for plan in (one, other)]
    lines.append(
        f"{'cost':24}{total[0] / 1000:17.3f} ns{total[1] / 1000:17.3f} ns{(total[0] - total[1]) / 1000:13.3f} ns"
    )
    return "\n".join(lines)
