"""A second opinion: each strategy that DTensor lists for an aten call is one of our ways to run it, or argued."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from fnmatch import fnmatchcase

import pytest
from aten_cases import CASES
from aten_cases.case import Case
from dtensor_differences import FAULTS, LOOSER
from dtensor_strategies import holds, is_registered, lowered, our_ways, row_text, their_rows, torch
from test_aten_lowering import Call

ASKED = [case for case in CASES if is_registered(case.op)]
MET: dict[str, list[bool]] = defaultdict(list)
"""Pattern of a difference -> whether the rows that it was needed for hold, as far as the cases have run."""
RUN: list[int] = []
FEWEST = 2000
"""Strategies that DTensor lists over all calls, at least; fewer would mean that it was not asked rightly."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny tensors are slower on several."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("case", ASKED, ids=[f"{index}-{case.op}" for index, case in enumerate(ASKED)])
def test_its_strategies_are_ours(case: Case) -> None:
    call = Call(case)
    if not call.wanted or case.results == ():  # what is drawn, or not written at all, cannot be compared
        RUN.append(0)
        return
    ours = lowered(case, call)
    ways = our_ways(ours.graph)
    theirs = their_rows(case, call)
    unknown = []
    for row in theirs:
        if ours.allows(row, ways):
            continue
        text, true = row_text(case, call, row), holds(case, call, row)
        patterns = [pattern for pattern in (LOOSER if true else FAULTS) if fnmatchcase(text, pattern)]
        patterns = patterns or [pattern for pattern in FAULTS if fnmatchcase(text, pattern)]
        for pattern in patterns:
            MET[pattern].append(true)
        if not patterns:
            unknown.append(f"{text} {'holds: a row is missing' if true else 'does not hold'}")
    RUN.append(len(theirs))
    assert not unknown


def test_every_difference_is_met_and_every_fault_shown() -> None:
    if len(RUN) < len(ASKED):
        pytest.skip("not all calls have run")
    assert sum(RUN) > FEWEST
    assert not (FAULTS.keys() | LOOSER.keys()) - MET.keys()
    assert not [pattern for pattern in FAULTS if all(MET[pattern])]
    assert not [pattern for pattern in LOOSER if not all(MET[pattern])]
