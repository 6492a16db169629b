"""Plans within a memory budget, held against the enumeration of every plan."""

from __future__ import annotations

import copy
import json
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import count, islice, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from benchmarks.models import gpt_training
from solver import Mesh, plan
from solver.certificate import CertificateError, certified_bound
from solver.choice import Evaluation
from solver.cli import main
from solver.constraints.policy import traffic
from solver.cost.reshard import INF
from solver.frontier import Frontier, frontier
from solver.graph import Graph
from solver.memory_budget import Searches
from solver.plan import Closest, Plan
from solver.planner import plan_problem
from solver.problem import ProblemError, problem
from solver.reference_memory import peaks, plans_with_copies
from solver.reference_task import Task
from solver.report.frontier import frontier_csv, frontier_json, frontier_text, plot
from solver.search.branch import solve
from solver.search.memory_dual import Priced
from solver.search.memory_network import storing
from solver.search.memory_peak import Peaks
from solver.search.multipliers import Multipliers, Plane
from tests.graphs import HARDWARE, Case, random_graphs
from tests.plans import FAST
from tests.steps import mlp_step
from tests.test_policy import overlaps, policies

FEW = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
MOST_PLANS = 1000
"""Of a graph that is enumerated."""
TINY = {"hidden": 64, "heads": 4, "batch": 4, "sequence": 32, "vocabulary": 128, "dtype": "float32"}


def wishes(case: Case) -> dict[str, Any]:
    return {"pins": case.pins, "communication": case.communication, "capabilities": case.capabilities}


@FEW
@given(random_graphs(max_ops=2, max_axes=1))
def test_a_budget_gives_what_the_enumeration_gives(case: Case) -> None:
    """At the least peak, and below it."""
    every = list(islice(plans_with_copies(Task(case.graph, case.mesh, **wishes(case))), MOST_PLANS + 1))
    assume(0 < len(every) <= MOST_PLANS)
    time, least = peaks(every)[-1]
    found = plan(case.graph, case.mesh, memory=max(1, least), **wishes(case))
    assert (found.status, found.cost_ps, found.bound_ps, found.check().findings) == ("optimal", time, time, ())
    assert found.memory.peak <= max(1, least)
    assume(least > 1)
    below = plan(case.graph, case.mesh, memory=least - 1, timeout=5, **wishes(case))
    assert below.status in ("infeasible", "unknown")
    assert below.check().ok == (below.status == "infeasible")


@settings(FEW, max_examples=70)
@given(data=st.data())
def test_budgets_and_policies_together_give_what_the_enumeration_gives(data: Any) -> None:
    """At any plan that no other one beats in both, and a byte below it."""
    case = data.draw(random_graphs(max_ops=2, max_axes=1, tied=data.draw(st.booleans())))
    wished = {**wishes(case), "policy": data.draw(policies(case)), "overlap": data.draw(overlaps())}
    every = list(islice(plans_with_copies(Task(case.graph, case.mesh, **wished)), MOST_PLANS + 1))
    assume(0 < len(every) <= MOST_PLANS)
    known = peaks(every)
    memory = max(1, data.draw(st.sampled_from(known))[1] - data.draw(st.integers(0, 1)))
    best = min((time for time, peak in known if peak <= memory), default=None)
    found = plan(case.graph, case.mesh, memory=memory, timeout=20, **wished)
    if best is None:
        assert found.status in ("infeasible", "unknown")
        assert found.check().ok == (found.status == "infeasible")
    else:
        assert (found.status, found.cost_ps, found.bound_ps) == ("optimal", best, best)
        assert found.check().findings == ()
        assert found.memory.peak <= memory


def test_multipliers_are_those_where_the_lowest_plane_is_highest() -> None:
    """10 - 5 m and 2 + 10 m meet at m = 8/15; a moment that never fills more than another one has none."""
    planes = [Plane(10, (3, 5, 5)), Plane(2, (3, 20, 20)), Plane(30, (1, 5, 5))]
    bound, multipliers = Multipliers().highest(planes, 10, Fraction(100))
    assert (bound, sum(multipliers), multipliers[0]) == (Fraction(22, 3), Fraction(8, 15), 0)
    assert Multipliers().highest(planes[:1], 10, Fraction(100)) == (10, (0, 0, 0))
    weighed = Multipliers().highest(planes, 0, Fraction(1), convex=True, timed=False)
    assert (weighed[0], sum(weighed[1])) == (5, 1)


@cache
def refused() -> Plan:
    """The training step with a budget that no plan keeps to."""
    return plan(gpt_training(1, **TINY), Mesh({"dp": 2, "tp": 2}, hardware=HARDWARE["bandwidth"]), memory=20_000)


@cache
def tight() -> tuple[Plan, ...]:
    """A small training step within budgets that the plan without one breaks."""
    graph, mesh = gpt_training(1, **TINY), Mesh({"dp": 2, "tp": 2}, hardware=HARDWARE["bandwidth"])
    free = plan(graph, mesh)
    return tuple(plan(graph, mesh, memory=int(free.memory.peak * share)) for share in (0.95, 0.85))


def test_a_training_step_keeps_to_its_budget_at_a_small_gap() -> None:
    for found in tight():
        assert found.status in ("optimal", "feasible")
        assert found.problem.memory is not None
        assert found.memory.peak <= found.problem.memory
        assert found.gap is not None
        assert found.gap < 0.01
        checked = found.check()
        assert (checked.findings, checked.bound) == ((), found.bound_ps)
        assert Plan.from_json(found.to_json()).check().ok


def test_the_reported_peak_is_the_measured_one() -> None:
    for found in tight():
        ran = found.simulate()
        assert ran.ok
        assert ran.peak_memory == found.memory.peak


def test_less_memory_costs_no_less() -> None:
    costs = [found.cost_ps for found in tight()]
    assert costs == sorted(costs)


def test_altered_multipliers_and_messages_prove_nothing_false() -> None:
    rng = random.Random(3)
    for found in tight():
        for _ in range(12):
            altered = copy.deepcopy(dict(found.certificate or {}))
            nodes = [altered["tree"]]
            while "left" in nodes[-1]:
                nodes.append(nodes[-1]["left"])
            leaf = nodes[-1]
            if "multipliers" in leaf and rng.random() < 0.7:
                k = rng.randrange(len(leaf["multipliers"]))
                leaf["multipliers"][k] = rng.choice([0, leaf["multipliers"][k] * 2, rng.randrange(10**9), 10**25])
            else:
                vector = rng.choice(altered["arrays"])
                vector[rng.randrange(len(vector))] += rng.choice([-1, 1]) * 10 ** rng.randrange(12)
            assert certified_bound(found.problem, altered) <= (found.cost_ps or 0)


def test_a_budget_that_is_too_small_is_proved_so_and_the_least_is_told() -> None:
    graph, mesh = gpt_training(1, **TINY), Mesh({"dp": 2, "tp": 2}, hardware=HARDWARE["bandwidth"])
    found = refused()
    assert found.status == "infeasible"
    assert found.check().ok
    assert Plan.from_json(found.to_json()).check().ok
    assert found.explanation is not None
    assert [fact.kind for fact in found.explanation.core] == ["budget"]
    repair = next(one for one in found.explanation.repairs if "memory" in one.change)
    least = repair.change["memory"]
    assert repair.text.startswith("least memory that works: ")
    works = plan(graph, mesh, memory=least)
    assert works.status in ("optimal", "feasible")
    assert plan(graph, mesh, memory=int(least * 0.98)).status == "infeasible"


def test_the_least_memory_works_as_it_is_told_and_reads_as_more_than_what_was_allowed() -> None:
    graph = Graph("odd")
    graph.output(graph.op("relu", graph.input("x", (3949,)), name="y"))
    mesh = Mesh({"tp": 1})
    peak = plan(graph, mesh).memory.peak
    told = {peak - 1: ("31591 B", "31592 B"), 31_580: ("31.58 kB", "31.59 kB"), "31.58 kB": ("31.58 kB", "31.59 kB")}
    for allowed, (budget, least) in told.items():
        found = plan(graph, mesh, memory=allowed)
        assert (peak, found.status) == (31_592, "infeasible")
        assert found.explanation is not None
        text = next(one.text for one in found.explanation.repairs if "memory" in one.change)
        assert plan(graph, mesh, memory=text.removeprefix("least memory that works: ")).status == "optimal"
        assert found.explanation.core[-1].text == f"you allow {budget} of memory per device"
        assert found.explanation.steps[0].text == f"every plan fills at least {least} of each device"


def test_other_weights_never_prove_that_a_plan_does_not_exist() -> None:
    graph, mesh = gpt_training(1, **TINY), Mesh({"dp": 2, "tp": 2}, hardware=HARDWARE["bandwidth"])
    fits = problem(graph, mesh, memory=plan(graph, mesh).memory.peak)
    certificate = refused().certificate
    assert certificate is not None
    assert certified_bound(refused().problem, certificate) == INF
    assert certified_bound(fits, certificate) < INF
    for weights in ([0] * len(certificate["moments"]), [10**30] * len(certificate["moments"])):
        altered = copy.deepcopy(dict(certificate))
        altered["tree"]["weights"] = weights
        assert certified_bound(fits, altered) < INF


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"moments": 3}, "moments should be a list of names"),
        ({"moments": ["nothing"]}, "there is no moment"),
        ({"moments": ["y", "y"]}, "each once"),
        ({"tree": {"messages": {}, "multipliers": [-1]}}, "whole numbers from 0 up"),
        ({"tree": {"messages": {}, "multipliers": [1, 2]}}, "there are 2 multipliers, but 1 moments"),
        ({"tree": {"messages": {}, "multipliers": [True]}}, "whole numbers from 0 up"),
        ({"tree": {"messages": {}, "weights": [1], "multipliers": [1]}}, "a leaf of the tree is"),
    ],
)
def test_another_form_of_multipliers_is_refused_in_words(change: dict[str, Any], sentence: str) -> None:
    g = Graph("tiny")
    g.output(g.op("relu", g.input("x", (4, 4)), name="y"))
    whole = {"bits": 0, "arrays": [], "tree": {"messages": {}}, "moments": ["y"], **change}
    with pytest.raises(CertificateError, match=sentence):
        certified_bound(problem(g, FAST, memory=100), whole)


@FEW
@given(random_graphs())
def test_the_peak_by_numbers_is_that_of_the_choice_and_what_is_counted_is_no_more(case: Case) -> None:
    asked = problem(case.graph, case.mesh, **wishes(case))
    assume(case.graph.nodes)
    moments = [
        *case.graph.nodes,
        *(f"before {use.name}" for n in case.graph.nodes for use in case.graph.operand_uses(n)),
    ]
    counted = storing(asked, moments)
    found = solve(counted.built.network, nodes=20)
    assume(found.assignment is not None)
    assert found.assignment is not None
    memory = Peaks(counted.built).of(found.assignment)
    assert memory == Evaluation(asked, counted.built.choice(found.assignment)).memory


@pytest.mark.parametrize("calls", [10, 100, 300, 1000])
def test_what_is_told_is_proved_wherever_the_search_is_stopped(calls: int) -> None:
    told = count()
    mesh = Mesh({"tp": 4}, hardware=HARDWARE["bandwidth"])
    found = plan(mlp_step(), mesh, memory=456, progress=lambda stage, state: next(told) >= calls)
    assert found.choice is None or found.check().ok, str(found.check())


# ------------------------------------------------------------------------------------------------------- the frontier


@cache
def drawn() -> Frontier:
    quickest = plan(mlp_step(), Mesh({"tp": 4}, hardware=HARDWARE["bandwidth"]))
    return frontier(quickest, points=2, timeout=20)


def test_a_frontier_falls_in_memory_and_rises_in_time() -> None:
    known = [point.plan for point in drawn().points if point.plan.choice is not None]
    assert len(known) > 1
    for quicker, smaller in pairwise(known):
        assert quicker.memory.peak > smaller.memory.peak
        assert (quicker.cost_ps or 0) <= (smaller.cost_ps or 0)
    assert all(found.check().ok for found in known)
    assert all(found.memory.peak >= (drawn().least or 0) for found in known)


def test_a_frontier_is_told_as_a_table_as_values_and_as_csv() -> None:
    lines = frontier_csv(drawn()).splitlines()
    assert lines[0] == "budget,status,peak,time_ps,bound_ps,gap"
    assert len(lines) == 1 + len(drawn().points)
    told = frontier_json(drawn())
    assert json.loads(json.dumps(told)) == told
    assert "every plan fills at least" in frontier_text(drawn())


def test_a_frontier_is_drawn_where_matplotlib_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ProblemError, match=r"a plot needs matplotlib: pip install 'shardproof\[report\]'"):
        plot(drawn(), tmp_path / "frontier.png")
    monkeypatch.undo()
    pytest.importorskip("matplotlib")
    plot(drawn(), tmp_path / "frontier.png")
    assert (tmp_path / "frontier.png").stat().st_size > 1000


@dataclass(frozen=True)
class Asked:
    memory: int | None = None
    objective: str = "time"


@dataclass(frozen=True)
class Stair:
    """Stands for a plan: its choice is a peak and a time."""

    problem: Any
    status: str
    choice: tuple[int, int] | None = None
    certificate: Any = None
    bound_ps: int = 0
    solver_bound_ps: int = 0
    proof: str = ""
    stages: Any = None
    compute_bound_ps: int = 0
    closest: Closest | None = None

    @property
    def evaluation(self) -> Any:
        assert self.choice is not None
        return SimpleNamespace(cost=self.choice[1], total=self.choice[1])

    @property
    def memory(self) -> Any:
        assert self.choice is not None
        return SimpleNamespace(peak=self.choice[0])

    @property
    def cost_ps(self) -> int | None:
        return None if self.choice is None else self.choice[1]


@dataclass
class Staged:
    """A frontier of stand-ins: what it asked for, with how many seconds, and what it said."""

    found: Frontier
    asked: list[int]
    seconds: list[float]
    said: list[str]


def staged(monkeypatch: pytest.MonkeyPatch, points: int, answer: Callable[[int], Stair]) -> Staged:
    """Draw a frontier of which every search takes all the time that it gets."""
    asked, seconds, said, now = [], [], [], [0.0]

    def planned(task: Any, timeout: float, progress: Callable[[str, Any], Any], searches: Any) -> Stair:
        now[0] += timeout
        seconds.append(timeout)
        if task.memory == 1:
            smallest: Any = 10, 9_000
            return Stair(task, "unknown", closest=Closest(9, smallest, late=True))
        asked.append(task.memory)
        return replace(answer(task.memory), problem=task)

    monkeypatch.setattr("solver.frontier.plan_problem", planned)
    monkeypatch.setattr("solver.frontier.Plan", Stair)
    monkeypatch.setattr("solver.frontier.time", SimpleNamespace(monotonic=lambda: now[0]))
    quickest: Any = Stair(Asked(), "optimal", (100, 1_000), {}, 1_000, 1_000)
    return Staged(frontier(quickest, points, 60.0, said.append), asked, seconds, said)


def test_a_frontier_spends_its_points_on_plans_that_it_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of stairs of peak and time the ones that differ most come first."""
    stairs = {100: 1_000, 80: 1_500, 70: 1_600, 30: 8_000, 10: 9_000}

    def answer(budget: int) -> Stair:
        peak = max(peak for peak in stairs if peak <= budget)
        return Stair(None, "optimal", (peak, stairs[peak]), {}, stairs[peak], stairs[peak])

    for points in (2, 3, 5, 12):
        drawn = staged(monkeypatch, points, answer)
        told = [point.plan.memory.peak for point in drawn.found.points]
        assert drawn.found.least == 9
        assert told == sorted(told, reverse=True)
        assert {100, 10} <= set(told)
        assert len(told) == len(drawn.asked) + 1 <= points
    assert set(told) == set(stairs)


def test_a_frontier_shares_its_time_and_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = staged(monkeypatch, 5, lambda budget: Stair(None, "unknown"))
    assert drawn.seconds == pytest.approx([20, 10, 10, 10, 10])
    assert drawn.said[0] == "the least memory, before the budgets"
    assert [text.partition(",")[0] for text in drawn.said[1:]] == [f"budget {number} of 4" for number in range(1, 5)]


def test_no_row_of_a_frontier_is_lost_and_none_is_worse_than_its_neighbours_allow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Budgets 31 and 55 end without a plan, then with a slow one; the smallest plan is found with the least memory."""
    answers = {
        10: Stair(None, "unknown"),
        31: Stair(None, "feasible", (30, 4_000), {}, 3_000, 3_000),
        55: Stair(None, "feasible", (50, 6_000), {}, 2_000, 2_000),
        54: Stair(None, "unknown"),
    }
    drawn = staged(monkeypatch, 4, lambda budget: answers[budget])
    told = [(point.budget, point.plan.choice, point.plan.bound_ps) for point in drawn.found.points]
    assert told == [
        (None, (100, 1_000), 1_000),
        (55, (30, 4_000), 2_000),
        (31, (30, 4_000), 3_000),
        (10, (10, 9_000), 3_000),
    ]
    settled = staged(monkeypatch, 2, lambda budget: Stair(None, "feasible", (10, 8_000), {}, 8_000, 8_000))
    assert [(point.plan.status, point.plan.cost_ps) for point in settled.found.points] == [
        ("optimal", 1_000),
        ("optimal", 8_000),
    ]


def test_a_frontier_of_a_training_step_is_proved_row_by_row() -> None:
    """Every search begins with what the one before saw, and its answers hold without it."""
    first = plan(gpt_training(1, **TINY), Mesh({"dp": 2, "tp": 2}, hardware=HARDWARE["bandwidth"]))
    found = frontier(first, points=4, timeout=20)
    assert len(found.points) == 4
    for larger, smaller in pairwise(found.points):
        assert smaller.budget is not None
        assert smaller.plan.memory.peak <= smaller.budget
        assert (larger.plan.cost_ps or 0) <= (smaller.plan.cost_ps or 0)
        assert larger.plan.bound_ps <= smaller.plan.bound_ps
    assert [str(point.plan.check()) for point in found.points if not point.plan.check().ok] == []


@settings(FEW, max_examples=25)
@given(random_graphs(max_ops=2, max_axes=1))
def test_a_search_that_begins_with_that_of_another_budget_proves_nothing_false(case: Case) -> None:
    every = list(islice(plans_with_copies(Task(case.graph, case.mesh, **wishes(case))), MOST_PLANS + 1))
    assume(0 < len(every) <= MOST_PLANS)
    known, searches = peaks(every), Searches()
    asked = problem(case.graph, case.mesh, **wishes(case))
    sizes = sorted({max(1, peak) for _, peak in known})
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("solver.search.memory.SMALL", -1)
        for budget in (1, *sizes, *reversed(sizes)):
            found = plan_problem(replace(asked, memory=budget), 20, searches=searches)
            best = min((time for time, peak in known if peak <= budget), default=None)
            if found.status == "infeasible":
                assert best is None
            if found.choice is not None:
                assert best is not None
                assert found.bound_ps <= best <= (found.cost_ps or 0)
            assert found.status == "unknown" or found.check().ok, str(found.check())


def test_prices_that_there_is_no_time_for_prove_no_more_than_their_messages() -> None:
    """Messages of other prices are there to begin with; what they proved of those is no bound of these."""
    asked = problem(mlp_step(), Mesh({"tp": 4}, hardware=HARDWARE["bandwidth"]), memory=456)
    priced = Priced(storing(asked, list(asked.graph.nodes)))
    dear = np.full(len(asked.graph.nodes), 2**20, np.int64)
    priced.raised(dear, time=True, over=lambda: False)
    late = priced.raised(dear // 2**10, time=True, over=lambda: True)
    assert late.leaf.units <= priced.proved(late)


def test_an_open_answer_about_a_budget_says_what_is_known() -> None:
    mesh = Mesh({"tp": 4}, hardware=HARDWARE["bandwidth"])
    stopped = plan(mlp_step(), mesh, memory=1, progress=lambda stage, state: stage == "memory")
    assert stopped.status == "unknown"
    assert stopped.closest is not None
    assert stopped.closest.smallest is not None
    assert "  known   time ran out" in stopped.text()
    free = plan(mlp_step(), mesh)
    found = replace(stopped, closest=Closest(456, free.choice, late=False))
    assert found.text().splitlines()[1:] == [
        "  known   the search ended; every plan fills at least 456 B of each device",
        "  hint    the smallest plan found fills 520 B of each device: allow that much, or more time",
    ]
    again = Plan.from_json(found.to_json())
    assert again.closest == found.closest
    assert again.text() == found.text()


@pytest.mark.parametrize("calls", [0, 1, 30, 100])
def test_a_frontier_that_is_stopped_tells_what_it_has(calls: int) -> None:
    told, begun = count(), time.monotonic()
    found = frontier(drawn().points[0].plan, 8, 600, lambda what: next(told) >= calls)
    assert time.monotonic() - begun < 60
    assert found.points[0].budget is None
    assert len(found.points) < 8
    assert all(point.plan.check().ok for point in found.points if point.plan.choice is not None)


def test_a_frontier_needs_a_plan_and_two_ends() -> None:
    first = drawn().points[0].plan
    for points in (1, "8", None, 2.5, True):
        with pytest.raises(ProblemError, match=f"points={points!r}: a frontier has two ends"):
            frontier(first, points=points)  # type: ignore[arg-type]
    with pytest.raises(ProblemError, match="begins with a plan without a memory budget"):
        frontier(drawn().points[-1].plan)


def test_the_command_knows_budgets_and_frontiers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    g = Graph("mlp")
    h = g.op("relu", g.op("matmul", g.input("x", (64, 64)), g.parameter("w", (64, 256)), name="up"), name="act")
    g.output(g.op("matmul", h, g.parameter("v", (256, 64)), name="down"))
    model = tmp_path / "mlp.json"
    model.write_text(json.dumps(g.to_json()))
    asked = [str(model), "--mesh", "tp=4"]
    assert main(["plan", *asked, "--memory", "1MiB", "--verify"]) == 0
    assert "(of 1.049 MB) per device" in capsys.readouterr().out
    assert main(["plan", *asked, "--memory", "1kB"]) == 3
    assert "least memory that works" in capsys.readouterr().out
    assert main(["plan", *asked, "--memory", "a lot"]) == 2
    assert "give whole bytes, 1 or more, or a number with a unit" in capsys.readouterr().err
    table = tmp_path / "frontier.csv"
    assert main(["frontier", *asked, "--points", "2", "--csv", str(table)]) == 0
    assert table.read_text().startswith("budget,status")
    assert main(["frontier", *asked, "--memory", "1GB"]) == 2


def small_mlp() -> Graph:
    g = Graph("m2")
    x = g.input("x", (12, 60))
    up = g.op("matmul", x, g.parameter("w1", (60, 212)), name="up")
    g.output(g.op("matmul", g.op("relu", up, name="act"), g.parameter("w2", (212, 60)), name="down"))
    return g


def test_the_least_memory_is_the_same_whatever_is_to_be_least() -> None:
    told = []
    for objective in ("time", "communication"):
        explained = plan(small_mlp(), Mesh({"tp": 4}), memory=8_000, objective=objective).explanation
        assert explained is not None
        told.append([repair.change["memory"] for repair in explained.repairs if "memory" in repair.change])
    assert told[0] == told[1] != []


def test_two_budgets_that_only_together_are_impossible_are_both_told() -> None:
    mesh, wished = Mesh({"tp": 4}), {"memory": 60_000, "policy": (traffic("tp", 2000),)}
    assert all(plan(small_mlp(), mesh, **{name: one}).status == "optimal" for name, one in wished.items())
    refused = plan(small_mlp(), mesh, **wished)
    assert refused.status == "infeasible"
    assert refused.explanation is not None
    told = refused.explanation
    assert told.minimal
    assert sorted(fact.kind for fact in told.core) == ["budget", "policy"]
    (memory,) = (repair for repair in told.repairs if "memory" in repair.change)
    mended = plan(small_mlp(), mesh, **{**wished, "memory": memory.change["memory"]})
    assert (mended.status, mended.cost) == ("optimal", memory.cost)


def test_a_memory_budget_that_is_impossible_alone_is_told_alone() -> None:
    wishes = {"memory": 8_000, "pins": {"x": "tp=R"}}
    refused = plan(small_mlp(), Mesh({"tp": 4}), policy=(traffic("tp", 0),), **wishes)
    assert refused.status == "infeasible"
    assert refused.explanation is not None
    assert [fact.kind for fact in refused.explanation.core] == ["budget"]
    for repair in refused.explanation.repairs:
        policy = () if "drop_policy" in repair.change else (traffic("tp", 0),)
        changed = {**wishes, "memory": repair.change["memory"]}
        assert plan(small_mlp(), Mesh({"tp": 4}), policy=policy, **changed).choice is not None, repair
