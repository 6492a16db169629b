"""A scenario as it stands in its file, what the tool answers to it, and the same question with more or fewer wishes."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import z3

from ops import RuleError
from solver import Graph, Mesh, Plan, partial, plan, sharded
from solver.advice import explain_plan
from solver.constraints import policy as policies
from solver.constraints.expression import read_expressions
from solver.constraints.policy import untie
from solver.constraints.policy_kinds import Traffic
from solver.explanation import Explanation, Fact
from solver.problem import DEFAULT_CAPABILITIES, Problem, problem
from tests.explain.notation import graph_of

FOLDER = Path(__file__).parent / "scenarios"
FREE = "any"
"""What communication is where a person says nothing."""
TERMS = {"sharded": sharded, "partial": partial, "Not": z3.Not, "And": z3.And, "Or": z3.Or, "Implies": z3.Implies}
"""What a constraint in a scenario is written with."""
REPAIRS = {"drop", "pin", "communication", "untie", "drop_policy", "drop_constraint"}
REPAIRS |= {"traffic", "memory", "bound", "mesh", "capabilities", "pad"}
"""What a repair may change; the bound beside a memory only says what is proved of it."""
SECONDS = 60.0
"""For the prices of wishes; a scenario takes a fraction of one."""


@dataclass(frozen=True)
class Wishes:
    """What a person asks for, as `plan` takes it."""

    mesh: Mapping[str, int]
    pins: tuple[tuple[str, str], ...] = ()
    communication: str = FREE
    policy: tuple[Any, ...] = ()
    constraints: tuple[Any, ...] = ()
    memory: int | str | None = None
    capabilities: frozenset[str] = DEFAULT_CAPABILITIES

    def on(self, graph: Graph) -> Plan:
        return plan(graph, Mesh(self.mesh), **self.options())

    def options(self) -> dict[str, Any]:
        pins: dict[str, str] = {}
        for subject, placement in self.pins:
            pins[subject] = f"{pins[subject]},{placement}" if subject in pins else placement
        return {
            "pins": pins,
            "communication": self.communication,
            "policy": self.policy,
            "constraints": self.constraints,
            "memory": self.memory,
            "capabilities": self.capabilities,
        }

    @property
    def budgeted(self) -> bool:
        """Whether there is a budget, of which Z3 knows nothing."""
        return self.memory is not None or any(isinstance(one, Traffic) for one in self.policy)

    def asked(self, graph: Graph) -> Problem:
        """Return the question, without a budget of memory."""
        options = self.options()
        expressions = read_expressions(options.pop("constraints"))
        del options["memory"]
        return problem(graph, Mesh(self.mesh), **options, expressions=expressions)

    def only(self, facts: Iterable[Fact], graph: Graph) -> Wishes:
        """Return these wishes without all that a person chose and that is not among some facts."""
        kept = list(facts)
        tied = {fact.subject for fact in kept if fact.kind == "tie"}
        letting_go = [follower for follower in graph.ties if follower not in tied]
        kinds = {fact.kind for fact in kept}
        asked = {fact.source for fact in kept if fact.kind in ("policy", "expression")}
        return replace(
            self,
            pins=tuple((fact.subject, placed(fact)) for fact in kept if fact.kind == "pin"),
            communication=self.communication if "communication" in kinds else FREE,
            policy=(*(one for one in self.policy if str(one) in asked), *([untie(*letting_go)] if letting_go else [])),
            constraints=tuple(one for one in self.constraints if written(one) in asked),
            memory=self.memory if "budget" in kinds else None,
        )

    def repaired(self, change: Mapping[str, Any]) -> Wishes:
        """Return these wishes after a repair, which is read as a program would read it."""
        assert change.keys() <= REPAIRS, change.keys() - REPAIRS
        policy = [one for one in self.policy if str(one) not in change.get("drop_policy", ())]
        if "traffic" in change:
            policy = [replace(one, most=change["traffic"]) if isinstance(one, Traffic) else one for one in policy]
        pins = [pin for pin in self.sources() if pin not in change.get("drop", ())]
        assert len(self.sources()) - len(pins) == len(change.get("drop", ())), change
        return replace(
            self,
            mesh=change.get("mesh", self.mesh),
            pins=tuple((subject, placed) for subject, _, placed in map(split, (*pins, *change.get("pin", ())))),
            communication=change.get("communication", self.communication),
            policy=(*policy, *([untie(*change["untie"])] if "untie" in change else [])),
            constraints=tuple(one for one in self.constraints if written(one) not in change.get("drop_constraint", ())),
            memory=change.get("memory", self.memory),
            capabilities=self.capabilities | set(change.get("capabilities", ())),
        )

    def sources(self) -> list[str]:
        """Return the pins as they were written, one for each mesh axis."""
        return [f"{subject}:{axis}" for subject, placed in self.pins for axis in re.split(r",(?![^(]*\))", placed)]


def split(pin: str) -> tuple[str, str, str]:
    """Split a pin as it was written at the colon behind its name."""
    return pin.rpartition(":")


def written(constraint: Any) -> str:
    """Return a constraint as explanations write it."""
    return read_expressions([constraint])[0].text


def placed(fact: Fact) -> str:
    """Return what a pin asks for, as ``tp=S(0)``."""
    return fact.source.rpartition(":")[2]


def named(fact: Fact) -> str:
    """Return a fact as a scenario writes it: its kind and what it is about."""
    told = {"pin": f"{fact.subject}:{placed(fact)}", "policy": fact.source, "expression": fact.source}
    return f"{fact.kind} {told.get(fact.kind, fact.subject)}".strip()


@dataclass(frozen=True, eq=False)
class Answer:
    """What the tool says."""

    verdict: str
    text: str
    told: Explanation | None = None

    @property
    def core(self) -> list[str]:
        return [] if self.told is None else sorted(map(named, self.told.core))


@dataclass(frozen=True, eq=False)
class Scenario:
    """One file: what a person tried, and what the tool must answer.

    `ask` is ``explain``, ``why TENSOR`` or ``why_not TENSOR PLACEMENTS``. The verdict is one of those of a plan, or
    ``refused`` for what is no problem at all: the text is then the one sentence of the error.
    """

    name: str
    title: str
    prose: str
    sketch: str
    wishes: Wishes
    ask: str
    verdict: str
    core: list[str]
    text: str

    def graph(self) -> Graph:
        return graph_of(self.sketch, "model")

    def answer(self) -> Answer:
        """Ask the tool."""
        try:
            graph = self.graph()
            found = self.wishes.on(graph)
        except (ValueError, RuleError) as error:
            return Answer("refused", str(error))
        match self.ask.split(" "):
            case ["explain"]:
                told = explain_plan(found, SECONDS)
            case ["why", tensor]:
                told = found.why(tensor)
            case ["why_not", tensor, placements]:
                told = found.why_not(tensor, placements)
            case _:
                raise ValueError(f"{self.name}: ask {self.ask!r}: choose explain, why or why_not")
        return Answer(found.status, str(told), told)


def read(path: Path) -> Scenario:
    """Read a scenario; what is not known in a file is an error."""
    given = tomllib.loads(path.read_text(encoding="utf-8"))
    wishes = Wishes(
        mesh=mesh_of(given.pop("mesh")),
        pins=tuple(pin_of(one) for one in given.pop("pins", [])),
        communication=given.pop("communication", FREE),
        policy=tuple(policy_of(one) for one in given.pop("policy", [])),
        constraints=tuple(eval(one, dict(TERMS)) for one in given.pop("constraints", [])),
        memory=given.pop("memory", None),
        capabilities=frozenset(given.pop("capabilities", DEFAULT_CAPABILITIES)),
    )
    return Scenario(
        path.stem,
        sketch=given.pop("graph"),
        wishes=wishes,
        ask=given.pop("ask", "explain"),
        core=sorted(given.pop("core", [])),
        text=given.pop("text", "").strip("\n"),
        **given,
    )


def mesh_of(text: str) -> dict[str, int]:
    mesh = Mesh.parse(text)
    return dict(zip(mesh.axes, mesh.sizes, strict=True))


def pin_of(text: str) -> tuple[str, str]:
    """Split ``x:tp=S(0)``."""
    subject, _, placement = text.rpartition(":")
    return subject, placement


def policy_of(text: str) -> Any:
    """Read ``untie('*.moment1')``."""
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call), text
    assert isinstance(call.func, ast.Name), text
    options = {str(one.arg): ast.literal_eval(one.value) for one in call.keywords}
    return getattr(policies, call.func.id)(*map(ast.literal_eval, call.args), **options)


def warm() -> None:
    """Let the search compile its loops: repairs have seconds to be priced, compiling for the first time takes more."""
    for name in ("feasible_free", "feasible_data_parallel_step", "twenty_layers_later"):
        read(FOLDER / f"{name}.toml").answer()


def scenarios() -> list[Scenario]:
    """Return all of them, by name."""
    return [read(path) for path in sorted(FOLDER.glob("*.toml"))]
