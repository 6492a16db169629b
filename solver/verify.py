"""A plan computed again, without the solver: layouts, reshards, prices, memory, pins, and the bound."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ops.bind import composes
from ops.placement import Layout, Partial, layout_text
from solver.certificate import CertificateError, certified_bound
from solver.choice import Choice, Evaluation
from solver.layout import legal
from solver.plan_json import consequences, digest, read_choice, read_problem
from solver.problem import Problem


@dataclass(frozen=True, slots=True)
class Check:
    """What a check found.

    Parameters
    ----------
    findings : tuple of str
        What is wrong, a sentence each.
    bound : int or None
        The bound in picoseconds that the certificate proves; None where there is none, or it could not be read.
    cost : int or None
        The price in picoseconds, computed anew.
    """

    findings: tuple[str, ...]
    bound: int | None = None
    cost: int | None = None

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    def __str__(self) -> str:
        if not self.ok:
            return "refused:\n" + "\n".join(f"  {finding}" for finding in self.findings)
        if self.cost is None:
            return "checked: the file is whole; it holds no plan, and a verdict without a plan is not checked here"
        return f"checked without the solver: every layout, reshard and price holds; cost {self.cost} ps, bound {self.bound} ps"


def verify(data: Mapping[str, Any]) -> Check:
    """Compute a plan again from its question and its choice, and hold the result against what the file says.

    Parameters
    ----------
    data : mapping
        A plan file as `solver.plan_json.parse` reads it; where it has a hash, the hash is held too.

    Returns
    -------
    Check
    """
    findings: list[str] = []
    if "sha256" in data and data["sha256"] != digest(data):
        findings.append("the hash is not that of the file: something in it was changed after it was written")
    try:
        asked = read_problem(data["question"])
        if data["choice"] is None:
            return Check((*findings, *_without_plan(data)))
        choice = read_choice(data["choice"])
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        return Check((*findings, f"the plan cannot be read: {error}"))
    findings += _choice_findings(asked, choice)
    if findings and not _readable(asked, choice):
        return Check(tuple(findings))
    found = Evaluation(asked, choice)
    findings += _pin_findings(asked, found)
    findings += _communication_findings(asked, found)
    findings += _differences("", consequences(found), data["consequences"])
    bound = _bound(asked, data, findings)
    findings += _status_findings(data, found.total, bound)
    return Check(tuple(findings), bound, found.total)


def _without_plan(data: Mapping[str, Any]) -> Iterator[str]:
    if data["status"] not in ("infeasible", "unknown"):
        yield f"the status is {data['status']!r}, but there is no plan"


def _choice_findings(asked: Problem, choice: Choice) -> Iterator[str]:
    """Hold the choice against the rules: rows that exist and go together, storage and copies that are legal."""
    graph, sizes = asked.graph, asked.mesh.sizes
    for what, given, wanted in (
        ("rows of ops", set(choice.rows), set(graph.nodes)),
        ("storage of tensors", set(choice.stored), {t.name for t in graph.tensors.values() if t.producer is None}),
    ):
        for name in sorted(given ^ wanted):
            yield f"{what}: {name!r} is {'missing' if name in wanted else 'not in the graph'}"
    for node, rows in choice.rows.items():
        if node not in graph.nodes:
            continue
        bound = asked.bound[node]
        if len(rows) != len(sizes) or not all(isinstance(k, int) and 0 <= k < len(bound.rows) for k in rows):
            yield f"op {node!r}: rows {list(rows)} are not one of its {len(bound.rows)} rows for each of {len(sizes)} mesh axes"
            continue
        chosen = [bound.rows[k] for k in rows]
        if any(size == 1 and k for k, size in zip(rows, sizes, strict=True)):
            yield f"op {node!r}: a mesh axis of size 1 takes row 0"
        kinds = {p.kind for row in chosen for p in row.operands + row.results if isinstance(p, Partial)}
        if not composes(bound, chosen, sizes) or not kinds <= set(asked.kinds):
            yield f"op {node!r}: its rows {list(rows)} do not go together on these mesh axes"
    for where, layouts in (("stored", choice.stored), ("held", choice.held)):
        for tensor, layout in layouts.items():
            if tensor not in graph.tensors:
                yield f"{where} {tensor!r} is not in the graph"
            elif not _is_a_layout(asked, tensor, layout):
                yield f"{where} {tensor!r}: {layout_text(layout)} is not a layout of it"


def _is_a_layout(asked: Problem, tensor: str, layout: Layout) -> bool:
    fact = asked.graph.tensors[tensor]
    kinds = {p.kind for p in layout if isinstance(p, Partial)}
    return (
        legal(layout, fact.shape, asked.parts(tensor), asked.mesh.sizes)
        and asked.canonical(tensor, layout) == layout
        and kinds <= set(asked.kinds)
    )


def _readable(asked: Problem, choice: Choice) -> bool:
    return not list(_choice_findings(asked, choice))


def _pin_findings(asked: Problem, found: Evaluation) -> Iterator[str]:
    """Hold storage, held and needed layouts against the pins, and the kinds of tensors against what they may be."""
    graph = asked.graph
    for tensor in graph.tensors.values():
        if tensor.producer is None and found.made(tensor.name) not in asked.stored(tensor.name):
            yield f"{tensor.role} {tensor.name!r} may not be stored as {layout_text(found.made(tensor.name))}"
        allowed = asked.pinned(tensor.name, tensor.name)
        if tensor.producer is not None and allowed is not None and found.held(tensor.name) not in allowed:
            yield f"{tensor.name!r} is held as {layout_text(found.held(tensor.name))}, against its pins"
    for node in graph.nodes:
        for use in graph.operand_uses(node):
            allowed = asked.pinned(use.name, use.tensor)
            if allowed is not None and found.needed(use) not in allowed:
                yield f"use {use.name!r} needs {layout_text(found.needed(use))}, against its pins"


def _communication_findings(asked: Problem, found: Evaluation) -> Iterator[str]:
    for reshard in found.reshards:
        if asked.communication == "frozen":
            yield f'{reshard.tensor!r} is resharded, against communication="frozen"'
        elif asked.communication == "none" and reshard.bytes:
            yield f'the reshard of {reshard.tensor!r} sends {reshard.bytes} bytes, against communication="none"'


def _differences(where: str, wanted: Any, given: Any) -> Iterator[str]:
    """Yield each place where the file says something else than the computation."""
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
        yield f"{where} is {given!r} in the file, but {wanted!r} when computed again"


def _bound(asked: Problem, data: Mapping[str, Any], findings: list[str]) -> int | None:
    try:
        bound = certified_bound(asked, data["certificate"])
    except CertificateError as error:
        findings.append(f"the certificate cannot be read: {error}")
        return None
    if bound < data["bound"]:
        findings.append(f"the bound is {data['bound']} ps in the file, but the certificate proves {bound} ps")
    return bound


def _status_findings(data: Mapping[str, Any], cost: int, bound: int | None) -> Iterator[str]:
    """Hold status and proof against cost and bound; Z3's word is reported, not re-checked."""
    claimed = data["solver_bound"]
    if data["proof"] == "certificate" and claimed != data["bound"]:
        yield f"the proof is a certificate alone, but the bound is {data['bound']} ps and the solver's {claimed} ps"
    if data["proof"] not in ("certificate", "certificate+z3"):
        yield f"the proof is {data['proof']!r}: it should be certificate or certificate+z3"
    if bound is not None and max(bound, claimed) > cost:
        yield f"a bound of {max(bound, claimed)} ps is above the cost of the plan, {cost} ps"
    proved = cost <= max(data["bound"], claimed)
    if data["status"] != ("optimal" if proved else "feasible"):
        yield f"the status is {data['status']!r}, but cost {cost} ps and bound {max(data['bound'], claimed)} ps say otherwise"
