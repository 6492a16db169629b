"""What Z3 does, pinned, so that an upgrade that changes it is noticed; and what its decision adds to a search."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest
import z3
from hypothesis import HealthCheck, assume, given, settings

from solver import Mesh, plan, planner, reference
from solver.constraints.check import Checker, Verdict
from solver.constraints.model import whole_graph
from solver.constraints.reason import Reason
from solver.constraints.variables import BIG, Clauses, negation
from solver.problem import problem
from solver.reference_task import Task
from solver.search.branch import Result, solve
from solver.search.build import Built, build
from solver.search.smt import decide
from tests.graphs import Case, random_graphs, shared, squared

SOME = settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)

# ------------------------------------------------------------------------------------------------------- traps of Z3


def asked(text: str, *assumptions: str) -> str:
    solver = z3.SolverFor("QF_FD")
    solver.from_string(text)
    return str(solver.check(*map(z3.Bool, assumptions)))


def test_numbers_from_2_to_the_31_in_text_are_cut_without_a_word() -> None:
    demand = "(declare-const a Bool)(declare-const b Bool)(assert a)(assert b)(assert ((_ pble {} {} 1) a b))"
    assert asked(demand.format(5, BIG - 1)) == "unsat"
    assert asked(demand.format(5, BIG)) == "sat", "Z3 no longer cuts weights: BIG may go"
    assert asked(demand.format(BIG - 1, BIG - 2)) == "sat"
    assert asked(demand.format(BIG, BIG - 1)) == "unsat", "Z3 no longer cuts limits: BIG may go"


def test_python_refuses_such_a_weight() -> None:
    with pytest.raises(z3.Z3Exception):
        z3.PbLe([(z3.Bool("a"), 2**32)], 5)


def test_a_name_may_be_declared_once_and_stays_declared() -> None:
    solver = z3.SolverFor("QF_FD")
    solver.from_string("(declare-const a Bool)(assert a)")
    solver.from_string("(assert (not a))")
    assert str(solver.check()) == "unsat"
    with pytest.raises(z3.Z3Exception, match="already declared"):
        solver.from_string("(declare-const a Bool)")


@pytest.mark.parametrize("name", ["a|b", "a\\b"])
def test_a_name_with_a_bar_or_a_backslash_breaks_the_text(name: str) -> None:
    with pytest.raises(z3.Z3Exception):
        asked(f"(declare-const |{name}| Bool)(assert |{name}|)")


def test_z3_catches_ctrl_c_itself_and_only_says_why_it_does_not_know() -> None:
    solver = z3.SolverFor("QF_FD")
    solver.from_string(pigeons(12))
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    assert str(solver.check()) == "unknown"
    assert "interrupted" in solver.reason_unknown()


def pigeons(holes: int) -> str:
    """One pigeon too many: true and hard."""
    text = [f"(declare-const p{i}_{j} Bool)" for i in range(holes + 1) for j in range(holes)]
    text += [f"(assert (or {' '.join(f'p{i}_{j}' for j in range(holes))}))" for i in range(holes + 1)]
    text += [
        f"(assert (or (not p{a}_{j}) (not p{b}_{j})))" for j in range(holes) for a in range(holes + 1) for b in range(a)
    ]
    return "\n".join(text)


# -------------------------------------------------------------------------------------------- clauses and the checker


def test_weights_beyond_the_limit_never_reach_z3() -> None:
    clauses = Clauses()
    a, b, c = (clauses.symbol(name) for name in "abc")
    clauses.clause(a)
    clauses.weighted_at_most([(2**40, b), (3, a), (3, c), (0, b)], 5)
    verdict = Checker(clauses).check()
    assert verdict.true == {a}
    with pytest.raises(ValueError, match="too large"):
        clauses.weighted_at_most([(1, a)], BIG)


def test_a_persons_names_never_reach_z3() -> None:
    clauses = Clauses()
    clauses.clause(clauses.symbol("held", "a|b\\c (assert false)", 0))
    clauses.under(Reason("pin", "|x|", "|x| is \\"))
    assert "|" not in "".join(clauses._lines)
    assert Checker(clauses).check().status == "sat"


def test_what_is_added_in_a_scope_holds_to_its_end() -> None:
    clauses = Clauses()
    a = clauses.symbol("a")
    checker = Checker(clauses)
    for _ in range(2):
        with checker.scope() as inside:
            inside.clause(negation(a))
            inside.clause(a, inside.symbol("a"))
            checker.add(inside)
            assert a not in checker.check().true
            inside.clause(a)
            checker.add(inside)
            assert checker.check().status == "unsat"
        with checker.scope() as inside:
            inside.clause(a)
            checker.add(inside)
            assert checker.check().true == {a}


def test_the_checker_stops_in_time_and_does_not_say_unsat() -> None:
    checker = Checker(Clauses())
    checker._solver.from_string(pigeons(12))
    begin = time.monotonic()
    assert checker.check(seconds=0.3).status == "unknown"
    assert time.monotonic() - begin < 2


def test_ctrl_c_in_z3_is_ctrl_c() -> None:
    checker = Checker(Clauses())
    checker._solver.from_string(pigeons(12))
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        checker.check(seconds=30)


def test_a_search_from_suggestions_gives_up_what_is_to_blame() -> None:
    clauses = Clauses()
    a, b, c = (clauses.symbol(name) for name in "abc")
    clauses.suggested += [a, b, c]
    clauses.clause(negation(a), negation(b))
    clauses.under(Reason("pin", "c", "not c"))
    clauses.clause(negation(c))
    clauses.under(Reason("pin", "c", "c"))
    clauses.clause(c)
    checker = Checker(clauses)
    verdict = checker.search([0])
    assert verdict.status == "sat"
    assert len(verdict.true & {a, b, c}) <= 1
    assert checker.search().core == (0, 1)


# -------------------------------------------------------------------------------------------------------- the decision


def stopped_early(case: Case) -> tuple[Built, Result, Checker] | None:
    """Search for one sweep only, so that the bound stays open."""
    wishes = problem(
        case.graph, case.mesh, pins=case.pins, communication=case.communication, capabilities=case.capabilities
    )
    checker = Checker(whole_graph(wishes))
    if checker.search().status == "unsat":
        return None
    built = build(wishes)
    found = solve(built.network, progress=lambda state: True, nodes=1)
    return None if found.assignment is None else (built, found, checker)


@SOME
@given(case=random_graphs())
def test_where_the_bound_is_open_z3_finds_the_optimum_and_proves_it(case: Case) -> None:
    early = stopped_early(case)
    assume(early is not None)
    assert early is not None
    built, found, checker = early
    decision = decide(built, found, checker, 30)
    wanted = reference.best(Task(case.graph, case.mesh, case.pins, case.communication, case.capabilities))
    assert wanted is not None
    assert decision.confirmed
    assert decision.cost == wanted[0]
    assert max(found.bound, decision.bound) == wanted[0]


@SOME
@given(case=random_graphs())
def test_without_time_the_bound_stays_what_it_was(case: Case) -> None:
    early = stopped_early(case)
    assume(early is not None)
    assert early is not None
    built, found, checker = early
    decision = decide(built, found, checker, 0)
    assert decision.cost == found.cost
    assert decision.bound <= max(found.bound, 0) or found.bound == found.cost
    assert decision.confirmed == (found.bound == found.cost)


@SOME
@given(case=random_graphs())
def test_within_the_gap_z3_is_not_asked(case: Case) -> None:
    early = stopped_early(case)
    assume(early is not None)
    assert early is not None
    decision = decide(*early, 30, gap=1.0)
    assert decision.bound == 0
    assert decision.cost == early[1].cost


def test_only_z3s_word_beyond_the_certificate_is_called_so(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = Mesh({"dp": 2, "tp": 2})
    best = plan(squared(), mesh)
    assert (best.status, best.proof) == ("optimal", "certificate")
    assert best.bound_ps == best.solver_bound_ps == best.cost_ps

    monkeypatch.setattr(planner, "solve", lambda network, *rest: solve(network, progress=lambda state: True, nodes=1))
    loose = plan(squared(), mesh)
    assert (loose.status, loose.proof) == ("optimal", "certificate+z3")
    assert loose.bound_ps < loose.solver_bound_ps == loose.cost_ps == best.cost_ps
    assert loose.check().bound == loose.bound_ps

    monkeypatch.setattr("solver.constraints.check.Checker._ask", lambda *_: (Verdict("unknown"), []))
    assert plan(squared(), mesh).status == "unknown"


def test_a_cheaper_plan_that_z3_finds_at_the_certified_bound_needs_no_word_of_z3(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(planner, "solve", lambda network, *rest: solve(network, progress=lambda state: True, nodes=1))
    found = plan(shared(), Mesh({"dp": 2, "tp": 2}))
    assert (found.status, found.proof) == ("optimal", "certificate")
    assert found.check().ok
