"""A person's own Z3 expressions: the optimum of exhaustive enumeration, the checker's verdict, and what is said."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import pytest
import z3
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from solver import Mesh, partial, plan, reference, sharded
from solver.constraints.expression import read_expressions
from solver.formula import evaluate, read_formula
from solver.plan import Plan
from solver.plan_json import digest
from solver.plan_json import parse as parsed
from solver.problem import ProblemError
from solver.reference_task import Fact, Task
from solver.terms import DEEPEST, FormulaError, parse, sort_of
from solver.verify import verify
from tests.graphs import Case, mlp, random_graphs
from tests.test_planner import EVERY

MESH = Mesh({"dp": 2, "tp": 2})
Truth: TypeAlias = Mapping[Fact, bool]
Drawn: TypeAlias = "tuple[Any, Callable[[Truth], Any]]"
"""A Z3 expression, and the same as a function of what is true."""


def of_fact(fact: Fact) -> Drawn:
    _, tensor, dim, axis = fact
    made = partial(tensor, axis) if dim is None else sharded(tensor, dim, axis)
    return made, lambda truth: truth[fact]


@st.composite
def facts(draw: Any, case: Case) -> list[Fact]:
    """Draw what an expression may speak of."""
    found: list[Fact] = []
    cutting = [axis for axis, size in zip(case.mesh.axes, case.mesh.sizes, strict=True) if size > 1]
    assume(cutting)
    for _ in range(draw(st.integers(2, 4))):
        tensor = draw(st.sampled_from(sorted(case.graph.tensors)))
        rank, axis = len(case.graph.tensors[tensor].shape), draw(st.sampled_from(cutting))
        if rank and draw(st.integers(0, 3)):
            found.append(("sharded", tensor, draw(st.integers(0, rank - 1)), axis))
        else:
            found.append(("partial", tensor, None, axis))
    return list(dict.fromkeys(found))


@st.composite
def expressions(draw: Any, spoken_of: list[Fact], depth: int = 2) -> Drawn:
    """Draw an expression over facts, with every operator."""
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        return of_fact(draw(st.sampled_from(spoken_of)))
    parts = [draw(expressions(spoken_of, depth - 1)) for _ in range(3)]
    (a, one), (b, two), (c, three) = parts
    weights = [draw(st.integers(1, 3)) for _ in parts]
    limit = draw(st.integers(1, 4))

    def count(truth: Truth) -> int:
        return sum(weight * bool(value(truth)) for weight, (_, value) in zip(weights, parts, strict=True))

    pairs = [(term, weight) for weight, (term, _) in zip(weights, parts, strict=True)]
    number = z3.Sum([z3.If(term, weight, 0) for term, weight in pairs])
    return draw(
        st.sampled_from(
            [
                (z3.And(a, b), lambda truth: one(truth) and two(truth)),
                (z3.Or(a, b, c), lambda truth: one(truth) or two(truth) or three(truth)),
                (z3.Not(a), lambda truth: not one(truth)),
                (z3.Implies(a, b), lambda truth: not one(truth) or two(truth)),
                (a == b, lambda truth: bool(one(truth)) == bool(two(truth))),
                (z3.Xor(a, c), lambda truth: bool(one(truth)) != bool(three(truth))),
                (z3.If(a, b, c), lambda truth: two(truth) if one(truth) else three(truth)),
                (z3.PbLe(pairs, limit), lambda truth: count(truth) <= limit),
                (z3.PbGe(pairs, limit), lambda truth: count(truth) >= limit),
                (z3.PbEq(pairs, limit), lambda truth: count(truth) == limit),
                (number <= limit, lambda truth: count(truth) <= limit),
                (z3.AtMost(a, b, c, 1), lambda truth: sum(bool(f(truth)) for f in (one, two, three)) <= 1),
            ]
        )
    )


@settings(EVERY, max_examples=80, phases=[Phase.generate])
@given(data=st.data())
def test_the_plan_under_expressions_is_the_optimum_of_the_reference(data: Any) -> None:
    case = data.draw(random_graphs(max_ops=4, tied=data.draw(st.booleans())))
    spoken_of = data.draw(facts(case))
    drawn = [data.draw(expressions(spoken_of)) for _ in range(data.draw(st.integers(1, 2)))]
    task = Task(case.graph, case.mesh, case.pins, case.communication, case.capabilities)
    wanted = reference.best_where(task, spoken_of, lambda truth: all(value(truth) for _, value in drawn))
    found = plan(
        case.graph,
        case.mesh,
        pins=case.pins,
        communication=case.communication,
        capabilities=case.capabilities,
        constraints=[term for term, _ in drawn],
    )
    if wanted is None:
        assert found.status == "infeasible"
        return
    assert found.status == "optimal"
    assert found.cost_ps == wanted[0]
    assert found.bound_ps == wanted[0]
    checked = verify(parsed(found.to_json()))
    assert checked.ok, checked
    assert not checked.unchecked
    assert Plan.from_json(found.to_json()).to_json() == found.to_json()


def mlp_plan(*constraints: Any, **wishes: Any) -> Plan:
    return plan(mlp(), MESH, constraints=constraints, **wishes)


def test_an_expression_that_is_met_anyway_costs_nothing() -> None:
    free = plan(mlp(), MESH)
    found = mlp_plan(z3.Or(sharded("w1", 0, "tp"), z3.Not(sharded("w1", 0, "tp"))))
    assert (found.cost_ps, found.proof) == (free.cost_ps, "certificate")


def test_tensors_are_named_or_given() -> None:
    graph = mlp()
    assert str(sharded(graph.tensors["w1"], 1, "tp")) == "sharded(w1, 1, tp)"
    assert str(partial("h", "dp")) == "partial(h, dp)"


def test_an_expression_speaks_of_what_is_held() -> None:
    found = mlp_plan(partial("h", "dp"), sharded("w2", 1, "tp"))
    assert str(found.layout("h")["dp"]) == "P(sum)"
    assert str(found.layout("w2")["tp"]) == "S(1)"
    assert found.check().ok


def test_expressions_that_contradict_each_other_are_the_core() -> None:
    w1, w2 = sharded("w1", 0, "tp"), sharded("w2", 0, "tp")
    found = mlp_plan(z3.Implies(w1, w2), w1, z3.Not(w2), sharded("x", 0, "dp"))
    assert found.status == "infeasible"
    assert found.explanation is not None
    core = {fact.source for fact in found.explanation.core}
    assert core == {"Implies(sharded(w1, 0, tp), sharded(w2, 0, tp))", "sharded(w1, 0, tp)", "Not(sharded(w2, 0, tp))"}
    assert {fact.kind for fact in found.explanation.core} == {"expression"}
    assert any(repair.text.startswith("drop the constraint") for repair in found.explanation.repairs)


def test_an_expression_and_a_pin_contradict_each_other() -> None:
    found = mlp_plan(z3.Not(sharded("x", 0, "dp")), pins={"x": "dp=S(0)"})
    assert found.status == "infeasible"
    assert found.explanation is not None
    assert {fact.kind for fact in found.explanation.core} == {"pin", "expression"}


def test_booleans_of_ones_own_tie_tensors_together_and_rest_on_z3() -> None:
    columns = z3.Bool("columns")
    found = mlp_plan(
        columns == sharded("w1", 1, "tp"), columns != sharded("w2", 1, "tp"), z3.Or(columns, partial("y", "tp"))
    )
    assert found.status == "optimal"
    w1, w2 = (str(found.layout(name)["tp"]) == "S(1)" for name in ("w1", "w2"))
    assert w1 != w2
    checked = found.check()
    assert checked.ok
    assert len(checked.unchecked) >= 3
    task = Task(mlp(), MESH)
    spoken_of: list[Fact] = [
        ("sharded", "w1", 1, "tp"),
        ("sharded", "w2", 1, "tp"),
        ("partial", "y", None, "tp"),
    ]
    wanted = reference.best_where(
        task, spoken_of, lambda t: t[spoken_of[0]] != t[spoken_of[1]] and (t[spoken_of[0]] or t[spoken_of[2]])
    )
    assert wanted is not None
    assert found.cost_ps == wanted[0]


def test_on_a_mesh_axis_of_size_1_a_fact_may_be_taken_either_way() -> None:
    for wish in (sharded("x", 0, "dp"), z3.Not(sharded("x", 0, "dp"))):
        found = plan(mlp(), Mesh({"dp": 1, "tp": 2}), constraints=[wish])
        assert found.status == "optimal"
        checked = found.check()
        assert checked.ok
        assert not checked.unchecked


def test_an_altered_expression_is_refused() -> None:
    data = json.loads(mlp_plan(sharded("w1", 1, "tp")).to_json())
    data["question"]["constraints"][0]["smtlib"] = "(not a0)"
    data["sha256"] = digest(data)
    checked = verify(parsed(json.dumps(data)))
    assert not checked.ok
    data["question"]["constraints"][0]["smtlib"] = "(forall a0)"
    data["sha256"] = digest(data)
    assert not verify(parsed(json.dumps(data))).ok


def test_an_altered_case_is_refused() -> None:
    w1, w2, y = sharded("w1", 0, "tp"), sharded("w2", 0, "dp"), sharded("y", 1, "dp")
    found = mlp_plan(z3.PbEq([(w1, 1), (w2, 1), (y, 1)], 2), z3.Xor(w1, y))
    assert "atom" in (found.certificate or {})
    data = json.loads(found.to_json())
    data["certificate"]["atom"] = ["sharded", "x", 0, "dp"]
    data["sha256"] = digest(data)
    checked = verify(parsed(json.dumps(data)))
    assert any("which no expression speaks of" in finding for finding in checked.findings)


REFUSED = [
    (lambda: sharded("v", 0, "dp"), "constraints: sharded(v, 0, dp) names no tensor of graph 'mlp'"),
    (lambda: sharded("x", 3, "dp"), "has no dim 3; dims count from 0"),
    (lambda: sharded("x", 0, "ep"), "names no mesh axis: the mesh has dp, tp"),
    (lambda: sharded("x", -1, "dp"), "a dim is a number, 0 for the first"),
    (lambda: partial("x", 3), "3 is no mesh axis: give its name, as 'dp'"),
    (lambda: sharded(3, 0, "dp"), "3 is no tensor: give its name"),
    (lambda: z3.Int("n") > 3, "n is no Boolean, and a variable of your own must be one"),
    (lambda: z3.ForAll([z3.Bool("b")], z3.Bool("b")), "has quantifiers: write out what it says of each tensor"),
    (lambda: "x", "'x' is no Boolean of Z3"),
]


@pytest.mark.parametrize(("make", "told"), REFUSED)
def test_what_is_no_expression_is_refused_in_one_sentence(make: Callable[[], Any], told: str) -> None:
    with pytest.raises(ProblemError) as refused:
        mlp_plan(make())
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


TERMS = [
    ("(let ((a!1 (and x y))) (or a!1 (not a!1)))", True),
    ("(=> x y false)", True),
    ("((_ at-least 2) x x y)", True),
    ("((_ pbge 3 1 2 4) y x unknown)", None),
    ("((_ pble 3 1 2 4) y x x)", False),
    ("(and unknown y)", False),
    ("(or unknown x)", True),
    ("(ite unknown x x)", True),
    ("(<= (+ (ite x 1 0) (* 2 3) (- 4)) 3)", True),
    ("(distinct x y)", True),
    ("(= unknown x)", None),
    ("(xor x x)", False),
]


@pytest.mark.parametrize(("text", "value"), TERMS)
def test_terms_are_evaluated_as_far_as_is_known(text: str, value: bool | None) -> None:
    assert evaluate(parse(text), {"x": True, "y": False, "unknown": None}) == value


@pytest.mark.parametrize(
    "text", ["(and x", "x)", "", "(f x)", "()", "((_ pble 1 1) x x)", "(let x y)", "(not x x)", "z"]
)
def test_what_is_no_term_is_refused(text: str) -> None:
    with pytest.raises(FormulaError):
        sort_of(parse(text), {"x": bool})


SHARDED = "(sharded w1 0 tp)"
MISTAKEN = [
    ("(and)", "'and' takes one or more, and is given none"),
    ("(or)", "'or' takes one or more, and is given none"),
    ("(distinct)", "'distinct' takes one or more, and is given none"),
    ("3", "it is a number, and a demand is a Boolean"),
    ("(+ 1 2)", "it is a number, and a demand is a Boolean"),
    ("(and 1 2)", "'and' takes Booleans, not whole numbers"),
    (f"(+ {SHARDED} 1)", "'+' takes whole numbers, not Booleans"),
    (f"(=> {SHARDED})", "'=>' takes two or more, and is given 1"),
    (f"(= {SHARDED})", "'=' takes two or more, and is given 1"),
    (f"(xor {SHARDED})", "'xor' takes two or more, and is given 1"),
    ("(< 1)", "'<' takes two or more, and is given 1"),
    ("(not)", "'not' takes one term, and is given none"),
    (f"(ite {SHARDED} true)", "'ite' takes three terms, and is given 2"),
    (f"(ite {SHARDED} true 1)", "'ite' takes terms that are alike, not Booleans and whole numbers"),
    (f"(= {SHARDED} 1)", "'=' takes terms that are alike, not Booleans and whole numbers"),
    ("((_ at-most 1))", "'at-most' takes one or more, and is given none"),
    (f"((_ at-most -1) {SHARDED})", "at-most has a limit from 0 up, and no weights"),
    (f"((_ pble 1 1 1) {SHARDED})", "has 2 weights for 1 terms"),
    (f"((_ pble 1 4294967297) {SHARDED})", "limit and weights are whole numbers up to 2147483647"),
    (f"(let ((and {SHARDED})) and)", "'and' cannot be bound by let"),
    ("(< 1 " + "9" * 5000 + ")", "is too large a number"),
    ("(sharded w1 " + "9" * 5000 + " tp)", "write (sharded TENSOR DIM AXIS)"),
    ("(not " * 3000 + SHARDED + ")" * 3000, f"it nests more than {DEEPEST} deep"),
    ("(" * 3000 + ")" * 3000, f"it nests more than {DEEPEST} deep"),
    (f"(and {SHARDED}", "is not one term of SMT-LIB"),
    (f"{SHARDED})", "closes more than it opens"),
]


@pytest.mark.parametrize(("text", "told"), MISTAKEN, ids=[text[:30] for text, _ in MISTAKEN])
def test_a_formula_that_means_nothing_is_refused_in_one_sentence(text: str, told: str) -> None:
    with pytest.raises(FormulaError) as refused:
        read_formula(text)
    assert told in str(refused.value)
    assert str(refused.value).startswith("constraint '")
    assert len(str(refused.value)) < 500


def test_what_nests_less_deep_than_may_be_is_evaluated() -> None:
    deep = DEEPEST // 2 * 2 - 2
    assert read_formula("(not " * deep + SHARDED + ")" * deep).value(lambda atom: True) is True


def test_an_expression_of_python_that_nests_too_deep_is_refused() -> None:
    term = sharded("w1", 0, "tp")
    for _ in range(2000):
        term = z3.Not(term)
    with pytest.raises(ProblemError, match="nests more than"):
        read_expressions([term])


def test_what_is_let_pass_is_read_by_z3() -> None:
    """Whatever is made of operators and terms at random: where the sorts are right, Z3 takes it."""
    rng, passed = random.Random(0), 0
    heads = ["and", "or", "not", "=>", "=", "distinct", "xor", "ite", "+", "-", "*", "<=", ">", "(_ pble 2 1 1)"]
    heads += ["(_ at-most 1)", "(_ pbeq 1 -1)", "(_ at-least 0)"]

    def drawn(depth: int) -> str:
        if depth == 0 or rng.random() < 0.2:
            return rng.choice(["a0", "a1", "true", "1", "-2"])
        return f"({rng.choice(heads)}{''.join(' ' + drawn(depth - 1) for _ in range(rng.randrange(4)))})"

    for _ in range(3000):
        text = drawn(2)
        try:
            boolean = sort_of(parse(text), {"a0": bool, "a1": bool}) is bool
        except FormulaError:
            continue
        passed += boolean
        if boolean:
            z3.parse_smt2_string(f"(declare-const a0 Bool)(declare-const a1 Bool)(assert {text})")
    assert passed > 300


def test_a_formula_of_the_command_is_the_expression_of_python() -> None:
    written = read_formula("(=> (sharded w1 1 tp) (and (partial h dp) (sharded w1 1 tp)))")
    (read,) = read_expressions([z3.Implies(sharded("w1", 1, "tp"), z3.And(partial("h", "dp"), sharded("w1", 1, "tp")))])
    assert (written.smtlib, written.atoms) == (read.smtlib, read.atoms)
    for text in ("(sharded w1 tp)", "(partial w1 0 tp)", "(or (sharded w1 1 tp) other)"):
        with pytest.raises(FormulaError):
            read_formula(text)
