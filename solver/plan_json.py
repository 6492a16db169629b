"""Plans as JSON: the question, the answer, what follows from it, the proof, and a hash over all of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from ops.placement import layout_text, parse_placement
from solver.choice import Choice, Evaluation, Reshard
from solver.graph import Graph
from solver.mesh import Mesh
from solver.plan import Explanation, Fact, Plan
from solver.problem import Pin, Problem, problem

FORMAT = "shardproof plan 1"


class PlanFileError(ValueError):
    """A file that holds no plan."""


def write(plan: Plan) -> dict[str, Any]:
    """Return a plan as plain JSON values; only the hash is missing.

    Parameters
    ----------
    plan : Plan

    Returns
    -------
    dict
    """
    data: dict[str, Any] = {
        "format": FORMAT,
        "question": question(plan.problem),
        "status": plan.status,
        "bound": plan.bound_ps,
        "solver_bound": plan.solver_bound_ps,
        "proof": plan.proof,
        "stages": dict(plan.stages),
        "certificate": plan.certificate,
        "explanation": plan.explanation.to_json() if plan.explanation else None,
        "choice": None,
        "consequences": None,
    }
    if plan.choice is not None:
        data["choice"] = {
            "rows": {op: list(rows) for op, rows in plan.choice.rows.items()},
            "stored": {tensor: layout_text(layout) for tensor, layout in plan.choice.stored.items()},
            "held": {tensor: layout_text(layout) for tensor, layout in plan.choice.held.items()},
        }
        data["consequences"] = consequences(plan.evaluation)
    return data


def question(asked: Problem) -> dict[str, Any]:
    """Return what was asked as plain JSON values."""
    return {
        "graph": asked.graph.to_json(),
        "mesh": asked.mesh.to_json(),
        "pins": [
            {
                "subject": pin.subject,
                "axis": asked.mesh.axes[pin.axis],
                "placement": str(pin.placement),
                "source": pin.source,
            }
            for pin in asked.pins
        ],
        "communication": asked.communication,
        "capabilities": sorted(asked.capabilities),
    }


def consequences(found: Evaluation) -> dict[str, Any]:
    """Return all that follows from a choice as plain JSON values: layouts, reshards, prices, bytes, memory."""
    graph = found.problem.graph
    memory = found.memory
    return {
        "made": {tensor: layout_text(found.made(tensor)) for tensor in graph.tensors},
        "held": {tensor: layout_text(found.held(tensor)) for tensor in graph.tensors},
        "needed": {
            use.name: layout_text(found.needed(use)) for node in graph.nodes for use in graph.operand_uses(node)
        },
        "delivered": {tensor: layout_text(found.delivered(tensor)) for tensor in graph.outputs},
        "compute": {node: found.compute(node) for node in graph.nodes},
        "reshards": [reshard_json(reshard, found.problem) for reshard in found.reshards],
        "cost": found.total,
        "bytes": sum(reshard.bytes for reshard in found.reshards),
        "memory": {"peak": memory.peak, "parts": dict(memory.parts), "at": memory.at},
    }


def reshard_json(reshard: Reshard, asked: Problem) -> dict[str, Any]:
    """Return a reshard as plain JSON values."""
    return {
        "tensor": reshard.tensor,
        "uses": list(reshard.uses),
        "source": layout_text(reshard.source),
        "target": layout_text(reshard.target),
        "shared": reshard.shared,
        "moves": [
            {
                "kind": move.kind,
                "axes": [asked.mesh.axes[axis] for axis in move.axes],
                "target": layout_text(move.target),
                "bytes": move.bytes,
                "time": move.time,
            }
            for move in reshard.moves
        ],
    }


def digest(data: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a plan's JSON without its hash, keys sorted."""
    kept = {key: value for key, value in data.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(kept, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def dumps(plan: Plan) -> str:
    """Return a plan as JSON text with its hash."""
    data = write(plan)
    return json.dumps({**data, "sha256": digest(data)}, separators=(",", ":"))


def parse(text: str) -> dict[str, Any]:
    """Read the text of a plan file as JSON values, and hold its format.

    Raises
    ------
    PlanFileError
        Where it is no JSON, or not of this format.
    """
    try:
        data = json.loads(text)
    except ValueError as error:
        raise PlanFileError(f"this is no plan file: it is not JSON ({error})") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        found = data.get("format") if isinstance(data, dict) else type(data).__name__
        raise PlanFileError(f"this is no plan file: its format is {found!r}, not {FORMAT!r}")
    return data


def read_problem(asked: Mapping[str, Any]) -> Problem:
    """Read the question of a plan file."""
    graph, mesh = Graph.from_json(asked["graph"]), Mesh.from_json(asked["mesh"])
    base = problem(graph, mesh, communication=asked["communication"], capabilities=frozenset(asked["capabilities"]))
    pins = tuple(
        Pin(pin["subject"], mesh.axes.index(pin["axis"]), parse_placement(pin["placement"]), pin["source"])
        for pin in asked["pins"]
    )
    return base.with_pins(pins)


def read_choice(answer: Mapping[str, Any]) -> Choice:
    """Read the choice of a plan file."""
    return Choice(
        {op: tuple(rows) for op, rows in answer["rows"].items()},
        {tensor: parse_layout(text) for tensor, text in answer["stored"].items()},
        {tensor: parse_layout(text) for tensor, text in answer["held"].items()},
    )


def parse_layout(text: str) -> tuple[Any, ...]:
    """Read a layout as `layout_text` wrote it.

    Examples
    --------
    >>> layout_text(parse_layout("[S(0,part=1), R]"))
    '[S(0,part=1), R]'
    """
    return tuple(parse_placement(piece) for piece in text[1:-1].split(", ") if piece)


def read_explanation(told: Mapping[str, Any] | None) -> Explanation | None:
    """Read the explanation of a plan file."""
    if told is None:
        return None
    core, support = (tuple(Fact(**fact) for fact in told[part]) for part in ("core", "support"))
    return Explanation(core, support, bool(told["minimal"]))


def loads(text: str) -> Plan:
    """Read a plan from JSON text.

    Raises
    ------
    PlanFileError
        Where the text is no plan, or lacks something.
    """
    data = parse(text)
    try:
        return Plan(
            read_problem(data["question"]),
            data["status"],
            None if data["choice"] is None else read_choice(data["choice"]),
            data["certificate"],
            data["bound"],
            data["solver_bound"],
            data["proof"],
            read_explanation(data["explanation"]),
            data["stages"],
        )
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise PlanFileError(f"this plan file is damaged: {type(error).__name__} {error}") from error
