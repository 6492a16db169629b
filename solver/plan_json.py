"""Plans as JSON: the question, the answer, what follows from it, the proof, and a hash over all of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from functools import cache
from typing import Any, get_args

from ops.placement import Layout, layout_text, parse_placement
from solver import explanation_json
from solver.choice import Choice, Evaluation, Reshard
from solver.constraints.policy import policy_from_json
from solver.cost.kernel_steps import KernelStep
from solver.cost.tariff import MOST_LEVY
from solver.explanation import Explanation
from solver.formula import Expression
from solver.graph import Graph
from solver.mesh import Mesh
from solver.plan import Closest, Plan, Status
from solver.problem import Pin, Problem, problem

FORMAT = "shardproof plan 1"
PROOFS = ("certificate", "certificate+z3", "none")
DAMAGE = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    AssertionError,
    MemoryError,
)
"""What reading or computing from a file that somebody has altered may raise."""


CHANGED = "the hash is not that of the content: something was changed after the file was written"


class PlanFileError(ValueError):
    """A file that holds no plan."""


@contextmanager
def reading(part: str) -> Iterator[None]:
    """Turn whatever damaged content raises into one sentence that names the part.

    Raises
    ------
    PlanFileError
    """
    try:
        yield
    except PlanFileError:
        raise
    except DAMAGE as error:
        raise PlanFileError(f"{part} of this plan file cannot be read: {told(error)}") from error


def told(error: BaseException) -> str:
    """Return what an error says, in one line."""
    if isinstance(error, KeyError):
        return f"there is no {error.args[0]!r}" if error.args else "something is missing"
    return " ".join(str(error).split()) or type(error).__name__


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
        "compute_bound": plan.compute_bound_ps,
        "proof": plan.proof,
        "stages": dict(plan.stages),
        "losses": dict(plan.losses),
        "certificate": plan.certificate,
        "explanation": plan.explanation.to_json() if plan.explanation else None,
        "choice": None,
        "consequences": None,
    }
    if plan.choice is not None:
        data["choice"] = written_choice(plan.choice)
        data["consequences"] = consequences(plan.evaluation)
    if (known := plan.closest) is not None:
        smallest = None if known.smallest is None else written_choice(known.smallest)
        data["closest"] = {"least": known.least, "smallest": smallest, "late": known.late}
    return data


def written_choice(choice: Choice) -> dict[str, Any]:
    """Return a choice as plain JSON values."""
    return {
        "rows": {op: list(rows) for op, rows in choice.rows.items()},
        "stored": {tensor: layout_text(layout) for tensor, layout in choice.stored.items()},
        "held": {tensor: layout_text(layout) for tensor, layout in choice.held.items()},
        "reads": dict(choice.reads),
        "levy": choice.levy,
    }


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
        "objective": asked.objective,
        "capabilities": sorted(asked.capabilities),
        "policy": [one.to_json() for one in asked.policy],
        "constraints": [one.to_json() for one in asked.expressions],
        "overlap": {kind: str(part) for kind, part in asked.overlap},
        "memory": asked.memory,
    }


def consequences(found: Evaluation) -> dict[str, Any]:
    """Return all that follows from a choice as plain JSON values: layouts, reshards, prices, bytes, memory."""
    graph, memory, text = found.problem.graph, found.memory, cache(layout_text)
    return {
        "made": {tensor: text(found.made(tensor)) for tensor in graph.tensors},
        "held": {tensor: text(found.held(tensor)) for tensor in graph.tensors},
        "needed": {use.name: text(found.needed(use)) for node in graph.nodes for use in graph.operand_uses(node)},
        "delivered": {tensor: text(found.delivered(tensor)) for tensor in graph.outputs},
        "compute": {node: found.compute(node) for node in graph.nodes},
        "kernels": {
            node: [kernel_json(step, found.problem) for step in steps] for node, steps in found.kernels.items()
        },
        "reshards": [reshard_json(reshard, found.problem) for reshard in found.reshards],
        "cost": found.total,
        "bytes": found.sent,
        "bytes_by_axis": dict(found.sent_by_axis),
        "memory": {"peak": memory.peak, "parts": dict(memory.parts), "at": memory.at},
    }


def kernel_json(step: KernelStep, asked: Problem) -> dict[str, Any]:
    """Return one collective of a kernel as plain JSON values."""
    return {
        "kind": step.kind,
        "axes": [asked.mesh.axes[axis] for axis in step.axes],
        "of": step.tensor,
        "bytes": step.bytes,
        "time": step.time,
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
    """Read the text of a plan file as JSON values, and hold its format; line breaks and indents are free.

    Raises
    ------
    PlanFileError
        Where it is no JSON, not of this format, not whole, or not written as JSON is written here: a number spelled
        in another way or a key that stands twice would not show in the hash.
    """
    try:
        data = json.loads(text, parse_constant=_no_number)
        bare = "".join(text.split())
        same = any(bare == "".join(json.dumps(data, ensure_ascii=ascii).split()) for ascii in (True, False))
    except RecursionError as error:
        raise PlanFileError("this is no plan file: its lists are nested too deep") from error
    except ValueError as error:
        raise PlanFileError(f"this is no plan file: it is not JSON ({error})") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        found = data.get("format") if isinstance(data, dict) else type(data).__name__
        raise PlanFileError(f"this is no plan file: its format is {short(found)}, not {FORMAT!r}")
    if not isinstance(data.get("sha256"), str):
        raise PlanFileError("this plan file is damaged: it has no 'sha256'")
    if not same:
        raise PlanFileError("this plan file was changed after it was written: a key or a number stands in another way")
    return data


def _no_number(text: str) -> float:
    raise PlanFileError(f"this is no plan file: it is not JSON ({text} is no number)")


def short(value: Any) -> str:
    """Return a value as a sentence can hold it."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def read_figures(data: Mapping[str, Any]) -> tuple[Status, int, int, str, dict[str, float]]:
    """Read status, bound, solver_bound, proof and stages of a plan file.

    Raises
    ------
    PlanFileError
    """
    with reading("the verdict"):
        status, proof, stages = data["status"], data["proof"], data["stages"]
        for name, value, choices in (("status", status, get_args(Status)), ("proof", proof, PROOFS)):
            if value not in choices:
                raise PlanFileError(f"the {name} is {short(value)}: it should be one of {', '.join(choices)}")
        for name, value in (*((name, data[name]) for name in ("bound", "solver_bound")), compute_bound(data)):
            if type(value) is not int or value < 0:
                raise PlanFileError(f"the {name} is {short(value)}: it should be whole picoseconds, 0 or more")
        if not isinstance(stages, dict) or not all(type(seconds) in (int, float) for seconds in stages.values()):
            raise PlanFileError(f"the stages are {short(stages)}: they should be seconds by name")
        return status, data["bound"], data["solver_bound"], proof, stages


def compute_bound(data: Mapping[str, Any]) -> tuple[str, Any]:
    """Return what a plan file says of compute under the objective ``communication``, with its name."""
    return "compute_bound", data.get("compute_bound", 0)


def read_losses(data: Mapping[str, Any]) -> dict[str, int]:
    """Return where a plan with a gap pays above its bound; files of earlier versions do not say.

    Raises
    ------
    PlanFileError
    """
    losses = data.get("losses", {})
    if not isinstance(losses, dict) or not all(type(paid) is int and paid > 0 for paid in losses.values()):
        raise PlanFileError(f"the losses are {short(losses)}: they should be picoseconds by name")
    return losses


def read_problem(asked: Any) -> Problem:
    """Read the question of a plan file.

    Raises
    ------
    PlanFileError
    """
    with reading("the question"):
        if not isinstance(asked["mesh"]["devices"], list):
            raise PlanFileError(f"the mesh has the devices {short(asked['mesh']['devices'])}: they should be a list")
        graph, mesh = Graph.from_json(asked["graph"]), Mesh.from_json(asked["mesh"])
        base = problem(
            graph,
            mesh,
            communication=asked["communication"],
            objective=asked.get("objective", "time"),
            capabilities=frozenset(asked["capabilities"]),
            policy=[policy_from_json(one) for one in asked.get("policy", [])],
            expressions=[Expression.from_json(one) for one in asked.get("constraints", [])],
            overlap={kind: Fraction(part) for kind, part in asked.get("overlap", {}).items()},
            memory=asked.get("memory"),
        )
        subjects = {*graph.tensors, *(use.name for uses in base.uses.values() for use in uses)}
        return base.with_pins(tuple(_read_pin(pin, mesh, subjects) for pin in asked["pins"]))


def _read_pin(pin: Mapping[str, Any], mesh: Mesh, subjects: set[str]) -> Pin:
    if pin["subject"] not in subjects:
        raise PlanFileError(f"the pin on {short(pin['subject'])} names no tensor and no use of the graph")
    if not isinstance(pin["source"], str):
        raise PlanFileError(f"the pin on {pin['subject']!r} has the source {short(pin['source'])}: it should be a text")
    return Pin(pin["subject"], mesh.axis(pin["axis"]), parse_placement(pin["placement"]), pin["source"])


def read_choice(answer: Any) -> Choice:
    """Read the choice of a plan file.

    Raises
    ------
    PlanFileError
    """
    with reading("the choice"):
        for op, rows in answer["rows"].items():
            if not isinstance(rows, list) or not all(type(row) is int for row in rows):
                raise PlanFileError(f"the rows of op {op!r} are {short(rows)}: they should be whole numbers")
        levy = answer.get("levy", 0)
        if type(levy) is not int or not 0 <= levy <= MOST_LEVY:
            raise PlanFileError(f"the levy is {short(levy)}, not a whole number from 0 up")
        return Choice(
            {op: tuple(rows) for op, rows in answer["rows"].items()},
            {tensor: parse_layout(text) for tensor, text in answer["stored"].items()},
            {tensor: parse_layout(text) for tensor, text in answer["held"].items()},
            dict(answer.get("reads", {})),
            levy,
        )


def parse_layout(text: str) -> Layout:
    """Read a layout as `layout_text` wrote it.

    Raises
    ------
    PlanFileError
        Where it would be written in another way.

    Examples
    --------
    >>> layout_text(parse_layout("[S(0,part=1), R]"))
    '[S(0,part=1), R]'
    """
    layout = tuple(parse_placement(piece) for piece in text[1:-1].split(", ") if piece)
    if layout_text(layout) != text:
        raise PlanFileError(f"the layout {short(text)} cannot be read: it is written {layout_text(layout)}")
    return layout


def read_explanation(explained: Any) -> Explanation | None:
    """Read the explanation of a plan file; None where it has none.

    Raises
    ------
    PlanFileError
    """
    with reading("the explanation"):
        return None if explained is None else explanation_json.read(explained)


def read_closest(known: Any) -> Closest | None:
    """Read what was known where no plan within a memory budget was found; None where a file does not say it."""
    if known is None:
        return None
    smallest = None if known["smallest"] is None else read_choice(known["smallest"])
    if type(known["least"]) is not int or type(known["late"]) is not bool:
        raise PlanFileError("what is known of the least memory is no number of bytes, or has no end")
    return Closest(known["least"], smallest, known["late"])


def loads(text: str) -> Plan:
    """Read a plan from JSON text.

    Raises
    ------
    PlanFileError
        Where the text is no plan, lacks something, or was changed after it was written.
    """
    data = parse(text)
    if data["sha256"] != digest(data):
        raise PlanFileError(CHANGED)
    status, bound, solver_bound, proof, stages = read_figures(data)
    with reading("the answer"):
        choice = None if data["choice"] is None else read_choice(data["choice"])
        certificate = data["certificate"]
        if certificate is not None and not isinstance(certificate, dict):
            raise PlanFileError(f"the certificate is {short(certificate)}: it should be an object")
        explanation = read_explanation(data["explanation"])
        closest = read_closest(data.get("closest"))
    asked = read_problem(data.get("question"))
    figures = status, choice, certificate, bound, solver_bound, proof, explanation, stages, compute_bound(data)[1]
    return Plan(asked, *figures, read_losses(data), closest)
