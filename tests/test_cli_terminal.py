"""What the command says while it works."""

from __future__ import annotations

from solver import cli_terminal
from solver.search.limits import Progress


def test_the_gap_is_a_part_of_the_progress() -> None:
    told = [cli_terminal.state_text("bound", Progress(1, 1, bound, cost, 0.1)) for bound, cost in ((-1, None), (9, 10))]
    assert told[0] == "no plan yet, every plan takes at least 0 ms"
    assert told[1] == "a plan of 1e-08 ms, every plan takes at least 9e-09 ms, gap 10.00%"
    close = cli_terminal.state_text("bound", Progress(1, 1, 10**9 - 1, 10**9, 0.1))
    assert close == "a plan of 1 ms, every plan takes at least 1 ms, gap <0.01%"
