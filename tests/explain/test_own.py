"""A person's own expressions in stories: each that matters is named, and what it makes of a tensor is told."""

from __future__ import annotations

from typing import Any

import pytest
import z3

from solver import Graph, Mesh, partial, plan, sharded
from solver.explanation import Explanation

X0, X1 = (sharded("x", dim, "tp") for dim in (0, 1))
W0, W1 = (sharded("w", dim, "tp") for dim in (0, 1))
Z1 = sharded("z", 1, "tp")


def graph() -> Graph:
    g = Graph("model")
    y = g.op("matmul", g.input("x", (8, 16)), g.parameter("w", (16, 8)), name="y")
    g.output(g.op("relu", y, name="z"))
    return g


def told(*constraints: z3.BoolRef, tp: int = 2, **wishes: Any) -> Explanation:
    found = plan(graph(), Mesh({"tp": tp}), constraints=constraints, **wishes)
    assert found.status == "infeasible"
    assert found.explanation is not None
    return found.explanation


CASES: dict[str, tuple[tuple[Any, ...], dict[str, Any], list[str]]] = {
    "one that pins deny": (
        (z3.Or(W1, W0),),
        {"pins": {"w": "tp=R"}},
        [
            (
                "Or(sharded(w, 1, tp), sharded(w, 0, tp)) does not hold where 'w' is not cut along dim 1 on tp and 'w' "
                "is not cut along dim 0 on tp"
            )
        ],
    ),
    "a chain": (
        (z3.Implies(X1, W0), z3.Not(z3.And(W0, X1))),
        {"pins": {"x": "tp=S(1)"}},
        [
            (
                "Implies(sharded(x, 1, tp), sharded(w, 0, tp)) asks that 'w' is cut along dim 0 on tp, where 'x' is "
                "cut along dim 1 on tp"
            ),
            (
                "but Not(And(sharded(w, 0, tp), sharded(x, 1, tp))) does not hold where 'w' is cut along dim 0 on tp "
                "and 'x' is cut along dim 1 on tp"
            ),
        ],
    ),
    "an and": (
        (z3.And(X0, W1),),
        {"pins": {"z": "tp=R"}, "communication": "none"},
        [
            (
                "And(sharded(x, 0, tp), sharded(w, 1, tp)) asks that both 'x' is cut along dim 0 on tp and 'w' is cut "
                "along dim 1 on tp"
            )
        ],
    ),
    "two that cut a tensor twice": (
        (W0, W1),
        {},
        [
            "sharded(w, 0, tp) asks that 'w' is cut along dim 0 on tp",
            "but sharded(w, 1, tp) does not hold where 'w' is not cut along dim 1 on tp",
        ],
    ),
    "what ops make of it": (
        (X0,),
        {"pins": {"z": "tp=S(1)"}, "communication": "none"},
        [
            "sharded(x, 0, tp) asks that 'x' is cut along dim 0 on tp",
            (
                "matmul 'y' reads 'x' as S(0), or padded with zeros as unreduced P(sum), and so can only make 'y' S(0) "
                "or unreduced P(sum)"
            ),
            "relu 'z' reads 'y' as S(0) and so can only make 'z' S(0)",
            "so, as nothing may be sent, 'z' can only be kept S(0) or unreduced P(sum)",
            "but you pinned 'z' to S(1) on tp",
        ],
    ),
    "both ends": (
        (X0, Z1),
        {"communication": "none"},
        ["sharded(z, 1, tp) asks that 'z' is cut along dim 1 on tp", "but 'z' has to be S(1) on tp"],
    ),
    "a size": (
        (z3.Or(X0, W1),),
        {"tp": 3},
        [
            "'x': dim 0 of size 8 cannot be cut by tp=3: 3 does not divide 8",
            "so no layouts are left in which Or(sharded(x, 0, tp), sharded(w, 1, tp)) holds",
        ],
    ),
    "a sum that is stored": (
        (partial("x", "tp"),),
        {},
        ["partial(x, tp) asks that 'x' is a partial sum on tp", "input 'x' is never stored as an unreduced sum"],
    ),
    "two that Z3 alone refutes": (
        (z3.Xor(X0, W1), X0 == W1),
        {},
        ["no layouts are left in which Xor(sharded(x, 0, tp), sharded(w, 1, tp)) and"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_an_expression_asks_is_told(name: str) -> None:
    constraints, wishes, expected = CASES[name]
    found = told(*constraints, **wishes)
    lines = [line.strip() for line in found.because()]
    at = 1
    for text in expected:
        at = next(i for i in range(at, len(lines)) if lines[i].startswith(text)) + 1
    assert lines[0].startswith("because")
    sources = {fact.source for fact in found.core if fact.kind == "expression"}
    named = {step.source for step in found.steps if step.kind == "expression"}
    assert named <= sources
    assert named
    assert all(any(source in line for line in lines) for source in sources)
    assert all(step.place for step in found.steps if step.kind == "expression")
