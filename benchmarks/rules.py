"""How much of the truth the rules say: the rows of every case of the truth harness, and those that are left out.

python -m benchmarks.rules             every case; some minutes
python -m benchmarks.rules softmax     the cases of some ops, by name

What is counted is a placement of the operands and results. Those that differ in nothing that an op can tell count once:
an operand whose values no result depends on (absent from the expression, or read for its shape) is tried whole and cut,
never partial, and placements that differ in it alone are one; what is replicated is not counted again as P(max) and the
like of itself; a result of zeros is not counted as P of zeros.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from cases import CASES
from truth_check import Verdict, check


def total(verdicts: list[Verdict]) -> Verdict:
    """Add up what was found."""
    summed = Verdict()
    for verdict in verdicts:
        summed.faults += verdict.faults
        summed.tried += verdict.tried
        summed.held += verdict.held
        summed.left_out += verdict.left_out
    return summed


def show(found: Verdict, cases: int, seconds: float) -> None:
    """Print the figures, and for which reasons rows that hold are left out."""
    left = found.left_out.total()
    part = left / max(1, found.held)
    print(
        f"{cases} cases, their grads included: {found.tried} placements run on 2 and 3 devices in "
        f"{seconds:.0f} s; {found.held} hold, {len(found.faults)} faults; {left} that hold are left out, {part:.2%}"
    )
    table = Table("left out", "reason", box=box.SIMPLE_HEAD)
    for reason, count in found.left_out.most_common():
        table.add_row(str(count), reason)
    Console(width=140).print(table)


def main(arguments: list[str]) -> int:
    """Check the cases of the ops that are named, or all."""
    cases = [case for case in CASES if not arguments or case.op in arguments]
    begin = time.perf_counter()
    verdicts = []
    kinds: Counter[str] = Counter()
    for index, case in enumerate(cases, 1):
        verdicts.append(check(case))
        kinds[case.op] += verdicts[-1].left_out.total()
        if sys.stderr.isatty():
            print(f"{index} of {len(cases)}: {case}"[:120].ljust(120), end="\r", file=sys.stderr, flush=True)
    found = total(verdicts)
    show(found, len(cases), time.perf_counter() - begin)
    told = [f"{count} {op}" for op, count in kinds.most_common(12) if count]
    print("most of them: " + ", ".join(told) if told else "none is left out")
    for fault in found.faults:
        print(fault)
    return 1 if found.faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
