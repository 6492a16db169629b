"""A plan computed again, without the solver: layouts, reshards, prices, memory, pins, and the bound."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ops.bind import BoundRule, composes
from ops.placement import Layout, Partial, layout_text
from solver.certificate import CertificateError, certified_bound
from solver.certificate_rows import offered
from solver.certificate_traffic import levied_bound
from solver.choice import HELD, MADE, Choice, Evaluation
from solver.cost.reshard import INF
from solver.garbage import collecting_later
from solver.layout import legal
from solver.plan_json import (
    CHANGED,
    DAMAGE,
    PlanFileError,
    compute_bound,
    consequences,
    digest,
    read_choice,
    read_explanation,
    read_figures,
    read_problem,
    short,
    told,
)
from solver.problem import Problem

MOST_WEIGHT = 2**44
"""Weighted prices stay within 64 bits."""
MOST_TOLD = 20
"""Findings that `str` of a check lists."""
RESTS_ON_Z3 = "not confirmed: that no plan exists rests on Z3's word"
NOTHING_SAID = "not confirmed: there is no plan, and deduction does not show that none exists"


@dataclass(frozen=True, slots=True)
class Check:
    """What a check found.

    Parameters
    ----------
    findings : tuple of str
        What is wrong, a sentence each; also that no plan exists, where deduction alone does not show it.
    bound : int or None
        The bound in picoseconds that the certificate proves; None where there is none, or it could not be read.
    cost : int or None
        The price in picoseconds, computed anew; None where there is no plan, or it could not be computed.
    unchecked : tuple of str
        What the file claims and no check without a solver can confirm, a sentence each.
    """

    findings: tuple[str, ...]
    bound: int | None = None
    cost: int | None = None
    unchecked: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the verdict is confirmed."""
        return not self.findings

    def __str__(self) -> str:
        if not self.ok:
            left = len(self.findings) - MOST_TOLD
            lines = [f"  {finding}" for finding in self.findings[:MOST_TOLD]]
            return "\n".join(["refused:", *lines, *([f"  and {left} more"] if left > 0 else [])])
        if self.cost is not None:
            figures = f"cost {self.cost} ps, bound {self.bound} ps"
            done = f"checked without the solver: every layout, reshard and price holds; {figures}"
        else:
            done = "checked without the solver: deduction alone shows that no plan exists"
        return "\n".join([done, *(f"not checked: {claim}" for claim in self.unchecked)])


def verify(data: Any) -> Check:
    """Compute a plan again from its question and its choice, and hold the result against what the file says.

    Parameters
    ----------
    data : mapping
        A plan file as `solver.plan_json.parse` reads it; where it has a hash, the hash is held too.

    Returns
    -------
    Check
        Whatever is given: what cannot be read is a finding.
    """
    findings: list[str] = []
    try:
        with collecting_later():
            return _Checking(data, findings).done()
    except PlanFileError as error:
        return Check((*findings, str(error)))
    except DAMAGE as error:
        return Check((*findings, f"the plan cannot be computed again: {told(error)}"))


class _Checking:
    """One check: what was read of the file, and what is wrong so far."""

    def __init__(self, data: Any, findings: list[str]) -> None:
        if not isinstance(data, Mapping):
            raise PlanFileError(f"a plan file holds an object, not {short(data)}")
        self.data, self.findings = data, findings
        if "sha256" in data and data["sha256"] != digest(data):
            findings.append(CHANGED)
        for key in ("question", "choice", "consequences", "certificate", "explanation"):
            if key not in data:
                raise PlanFileError(f"this plan file is damaged: it has no {key!r}")
        self.status, self.claimed, self.solver_bound, self.proof, _ = read_figures(data)
        read_explanation(data["explanation"])
        self.asked = read_problem(data["question"])

    def done(self) -> Check:
        """Check everything."""
        if self.data["choice"] is None:
            return self._without_plan()
        choice = read_choice(self.data["choice"])
        self.findings += _choice_findings(self.asked, choice)
        if any(finding != CHANGED for finding in self.findings):
            return Check(tuple(self.findings))
        found = Evaluation(self.asked, choice)
        self.findings += _pin_findings(self.asked, found)
        self.findings += _tie_findings(self.asked, found)
        self.findings += _repeat_findings(self.asked, found)
        self.findings += _communication_findings(self.asked, found)
        self.findings += [
            f"the plan does not do what was asked for: {one.text}"
            for one in self.asked.expressions
            if found.holds(one) is False
        ]
        self.findings += _memory_findings(self.asked, found)
        wanted, given = consequences(found), self.data["consequences"]
        if isinstance(given, dict) and "bytes_by_axis" not in given:  # files of earlier versions do not say
            del wanted["bytes_by_axis"]
        self.findings += _differences("", wanted, given)
        bound = self._bound()
        self.findings += self._verdict(found.cost, bound)
        open_claims = tuple(self._compute_bound(found))
        open_ones = [one.text for one in self.asked.expressions if one.others and found.holds(one) is None]
        unchecked = [f"that the plan does what was asked for: {text}" for text in open_ones]
        return Check(tuple(self.findings), bound, found.cost, (*self._solver_word(), *open_claims, *unchecked))

    def _without_plan(self) -> Check:
        """Hold what is said where there is no plan; deduction may show by itself that there is none."""
        if self.status not in ("infeasible", "unknown"):
            self.findings.append(f"the status is {self.status!r}, but there is no plan")
        given = self.data["certificate"] if self.asked.memory is not None else None
        for key in ("consequences", "certificate") if given is None else ("consequences",):
            if self.data[key] is not None:
                self.findings.append(f"there is no plan, but {key!r} is {short(self.data[key])}")
        if self.claimed or self.solver_bound or self.proof != "none":
            self.findings.append("there is no plan, but a bound and its proof are claimed")
        if self.findings:
            return Check(tuple(self.findings))
        nothing = {"bits": 0, "arrays": [], "tree": {"infeasible": True}}
        try:
            if certified_bound(self.asked, nothing if given is None else given) == INF:
                return Check((), INF)
        except CertificateError as error:
            return Check((f"the certificate cannot be read: {error}",))
        return Check((RESTS_ON_Z3 if self.status == "infeasible" else NOTHING_SAID,))

    def _bound(self) -> int | None:
        certificate, asked = self.data["certificate"], self.asked
        if asked.objective == "communication":
            if not isinstance(certificate, Mapping) or set(certificate) != {"communication", "both", "weight"}:
                self.findings.append("the certificate cannot be read: it should speak of communication, and of both")
                return None
            certificate, asked = certificate["communication"], replace(asked, counted=(1, 0))
        try:
            if asked.budget is not None:
                bound = levied_bound(asked, asked.budget, certificate)
            else:
                bound = max(0, certified_bound(asked, certificate))
        except CertificateError as error:
            self.findings.append(f"the certificate cannot be read: {error}")
            return None
        if bound < self.claimed:
            self.findings.append(f"the bound is {self.claimed} ps in the file, but the certificate proves {bound} ps")
        return bound

    def _compute_bound(self, found: Evaluation) -> Iterator[str]:
        """Hold what is said of compute where communication comes first; yield what rests on Z3's word."""
        certificate, claimed = self.data["certificate"], compute_bound(self.data)[1]
        if self.asked.objective != "communication" or self.findings:
            return
        weight = certificate["weight"]
        if type(weight) is not int or not 1 <= weight <= MOST_WEIGHT:
            self.findings.append(f"the weight of communication is {short(weight)}, not a whole number from 1 up")
            return
        bound = certified_bound(replace(self.asked, counted=(weight, 1)), certificate["both"])
        bound = max(0, bound - weight * found.communication)
        if claimed > found.computing:
            self.findings.append(f"a compute_bound of {claimed} ps is above the compute, {found.computing} ps")
        if self.status == "optimal" and found.computing > claimed:
            self.findings.append(
                f"the status is 'optimal', but compute is {found.computing} ps and its bound {claimed} ps"
            )
        if claimed > bound and self.proof == "certificate":
            self.findings.append(f"the compute_bound is {claimed} ps, but the certificate proves {bound} ps")
        elif claimed > bound:
            yield f"that no plan with so little communication computes less than {claimed} ps, which rests on Z3's word"

    def _verdict(self, cost: int, bound: int | None) -> Iterator[str]:
        """Hold status and proof against cost and bound."""
        if self.proof == "none":
            yield "there is a plan, but the proof is 'none'"
        if self.proof == "certificate" and self.solver_bound != self.claimed:
            yield (
                f"the proof is a certificate alone, but the bound is {self.claimed} ps "
                f"and the solver_bound {self.solver_bound} ps"
            )
        if self.solver_bound < self.claimed:
            yield f"the solver_bound, {self.solver_bound} ps, is below the bound, {self.claimed} ps"
        highest = max(bound or 0, self.claimed, self.solver_bound)
        if highest > cost:
            yield f"a bound of {highest} ps is above the cost of the plan, {cost} ps"
        if self.status not in ("optimal", "feasible"):
            yield f"the status is {self.status!r}, but there is a plan"
        if self.status == "optimal" and cost > max(self.claimed, self.solver_bound):
            yield f"the status is 'optimal', but the cost is {cost} ps and the bound {highest} ps"

    def _solver_word(self) -> Iterator[str]:
        if self.solver_bound > self.claimed:
            yield f"that no plan costs less than {self.solver_bound} ps, which rests on Z3's word"


def _choice_findings(asked: Problem, choice: Choice) -> Iterator[str]:
    """Hold the choice against the rules: rows that exist and go together, storage and copies that are legal."""
    graph = asked.graph
    for what, given, wanted in (
        ("rows of ops", set(choice.rows), set(graph.nodes)),
        ("storage of tensors", set(choice.stored), {t.name for t in graph.tensors.values() if t.producer is None}),
    ):
        for name in sorted(given ^ wanted):
            yield f"{what}: {name!r} is {'missing' if name in wanted else 'not in the graph'}"
    known: dict[tuple[int, tuple[int, ...]], list[str]] = {}  # equal ops share the object that their rule is bound to
    for node, rows in choice.rows.items():
        if node in graph.nodes:
            key = id(asked.bound[node]), rows
            if key not in known:
                known[key] = list(_row_findings(asked, asked.bound[node], rows))
            yield from (f"op {node!r}: {finding}" for finding in known[key])
    if choice.levy and asked.budget is None:
        yield f"ways are chosen by a levy of {choice.levy}, but there is no budget of traffic"
    for use, block in choice.reads.items():
        if use not in asked.use_named or block not in (MADE, HELD):
            yield f"use {short(use)} is told to read {short(block)}: a use of the graph reads 'made' or 'held'"
    for where, layouts in (("stored", choice.stored), ("held", choice.held)):
        for tensor, layout in layouts.items():
            if tensor not in graph.tensors:
                yield f"{where} {tensor!r} is not in the graph"
            elif not _is_a_layout(asked, tensor, layout):
                yield f"{where} {tensor!r}: {layout_text(layout)} is not a layout of it"


def _row_findings(asked: Problem, bound: BoundRule, rows: Sequence[int]) -> Iterator[str]:
    sizes = asked.mesh.sizes
    if len(rows) != len(sizes) or not all(0 <= k < len(bound.rows) for k in rows):
        yield f"rows {list(rows)} are not one of its {len(bound.rows)} rows for each mesh axis"
        return
    if any(size == 1 and k for k, size in zip(rows, sizes, strict=True)):
        yield "a mesh axis of size 1 takes row 0"
    may = offered(bound, asked)
    if not composes(bound, [bound.rows[k] for k in rows], sizes) or not all(k in may[i] for i, k in enumerate(rows)):
        yield f"its rows {list(rows)} do not go together on these mesh axes"


def _is_a_layout(asked: Problem, tensor: str, layout: Layout) -> bool:
    fact = asked.graph.tensors[tensor]
    kinds = {p.kind for p in layout if isinstance(p, Partial)}
    return (
        kinds <= set(asked.kinds)
        and legal(layout, fact.shape, asked.parts(tensor), asked.mesh.sizes)
        and asked.canonical(tensor, layout) == layout
    )


def _pin_findings(asked: Problem, found: Evaluation) -> Iterator[str]:
    """Hold storage, held and needed layouts against the pins, and the kinds of tensors against what they may be."""
    graph = asked.graph
    for tensor in graph.tensors.values():
        if tensor.producer is None and found.made(tensor.name) not in asked.stored(tensor.name):
            yield f"{tensor.role} {tensor.name!r} may not be stored as {layout_text(found.made(tensor.name))}"
        allowed = asked.pinned(tensor.name, tensor.name)
        if tensor.producer is not None and allowed is not None and found.held(tensor.name) not in allowed:
            yield f"{tensor.name!r} is held as {layout_text(found.held(tensor.name))}, against its pins and policies"
    for node in graph.nodes:
        for use in graph.operand_uses(node):
            allowed = asked.pinned(use.name, use.tensor)
            if allowed is not None and found.needed(use) not in allowed:
                yield f"use {use.name!r} needs {layout_text(found.needed(use))}, against its pins and policies"


def _tie_findings(asked: Problem, found: Evaluation) -> Iterator[str]:
    """Hold the storage of tied sources, and the layouts in which tied outputs are delivered, against their leaders'."""
    for follower, leader in asked.ties.items():
        source = asked.graph.tensors[follower].producer is None
        layout = found.made(follower) if source else found.delivered(follower)
        if layout != found.made(leader):
            yield (
                f"{follower!r} is {'stored' if source else 'delivered'} as {layout_text(layout)}, against its tie "
                f"to {leader!r}, which is stored as {layout_text(found.made(leader))}"
            )


def _repeat_findings(asked: Problem, found: Evaluation) -> Iterator[str]:
    for node, of in asked.repeats.items():
        if any(
            one != other for one, other in zip(_layouts(asked, found, node), _layouts(asked, found, of), strict=True)
        ):
            yield f"{node!r} does not lie as {of!r}, which it repeats"


def _layouts(asked: Problem, found: Evaluation, node: str) -> list[Layout]:
    """Return all that an op needs and makes."""
    needed = [found.needed(use) for use in asked.graph.operand_uses(node)]
    return needed + [found.made(tensor) for tensor in asked.graph.nodes[node].results]


def _communication_findings(asked: Problem, found: Evaluation) -> Iterator[str]:
    if asked.budget is not None and (sent := found.sent_over(asked.mesh.axis(asked.budget.axis))) > asked.budget.most:
        yield f"{sent} bytes are sent over {asked.budget.axis}, against {asked.budget}"
    for reshard in found.reshards:
        if asked.communication == "frozen":
            yield f'{reshard.tensor!r} is resharded, against communication="frozen"'
        elif asked.communication == "none" and reshard.bytes:
            yield f'the reshard of {reshard.tensor!r} sends {reshard.bytes} bytes, against communication="none"'
        for move in reshard.moves:
            if not asked.tariff(reshard.tensor).allows(move.kind, move.axes):
                yield f"the reshard of {reshard.tensor!r} takes an {move.kind} that a policy forbids"


def _memory_findings(asked: Problem, found: Evaluation) -> Iterator[str]:
    memory = found.memory
    if asked.memory is not None and memory.peak > asked.memory:
        at = f" at {memory.at!r}" if memory.at else ""
        yield f"{memory.peak} bytes are filled{at}, against the memory budget of {asked.memory} bytes"


def _differences(where: str, wanted: Any, given: Any) -> Iterator[str]:
    """Yield each place where the file says something else than the computation."""
    if repr(wanted) == repr(given):  # tells types apart, too: 1 from 1.0 and from true
        return
    if isinstance(wanted, dict) and isinstance(given, dict):
        for key in [*wanted, *(key for key in given if key not in wanted)]:
            inner = f"{where} {key!r}".strip()
            if key not in given or key not in wanted:
                yield f"{inner} is {'missing' if key in wanted else 'in the file, but follows from nothing'}"
            else:
                yield from _differences(inner, wanted[key], given[key])
    elif isinstance(wanted, list) and isinstance(given, list) and len(wanted) == len(given):
        for index, (one, other) in enumerate(zip(wanted, given, strict=True)):
            name = one.get("tensor", one.get("kind", index)) if isinstance(one, dict) else index
            yield from _differences(f"{where} [{name}]", one, other)
    elif type(wanted) is not type(given) or wanted != given:
        yield f"{where} is {short(given)} in the file, but {short(wanted)} when computed again"
