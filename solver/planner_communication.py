"""The objective "communication": least communication time, and of these plans one of least compute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from solver.choice import Evaluation
from solver.choice_tables import table
from solver.plan import UNPROVED, Plan
from solver.problem import Problem
from solver.search.joint import JointTable
from solver.search.network import INF

LARGEST = 2**44
"""Where a weight makes the dearest price larger than this, prices are searched in coarser units."""
MOST = 2**56
"""A weighted price never grows beyond this."""
STEP = 2**8
"""By how much a weight grows that was too small."""


def communication_first(asked: Problem, search: Callable[[Problem], Plan]) -> Plan:
    """Plan by communication, then by compute.

    Parameters
    ----------
    asked : Problem
    search : callable
        Finds a plan of least ``counted`` time.

    Returns
    -------
    Plan

    Notes
    -----
    First compute counts nothing: this gives the least communication C and its proof. Then communication counts W times:
    a plan of least ``W * communication + compute`` whose communication is C has the least compute of all such plans,
    whatever W is, and its bound less ``W * C`` is what their compute takes at least. With a large W it has
    that communication; where it has not, W was too small.
    """
    first = search(replace(asked, counted=(1, 0)))
    if first.choice is None and asked.memory is not None:  # the least memory is found where compute has its price
        plain = search(replace(asked, counted=(1, 1)))
        first = plain if plain.status == "infeasible" else first
    if first.choice is None:
        return replace(first, problem=asked)
    best, stages = first, first.stages
    weight, enough, dearest = _weights(asked)
    while True:
        second = search(replace(asked, counted=(weight, 1)))
        stages = {name: stages.get(name, 0.0) + second.stages.get(name, 0.0) for name in {**stages, **second.stages}}
        if second.choice is None or _communication(asked, second) <= _communication(asked, first):
            break
        if weight >= enough or weight * STEP * dearest > MOST:
            break
        weight = min(enough, weight * STEP)
    if second.choice is not None and _communication(asked, second) <= _communication(asked, first):
        best = second
    found = Evaluation(asked, best.choice) if best.choice is not None else None
    assert found is not None
    spent = weight * found.communication
    certificate = {"communication": first.certificate, "both": second.certificate or UNPROVED, "weight": weight}
    done = first.status == second.status == "optimal" and best is second
    return Plan(
        asked,
        "optimal" if done else "feasible",
        best.choice,
        certificate,
        first.bound_ps,
        first.solver_bound_ps,
        "certificate+z3" if "certificate+z3" in (first.proof, second.proof) else "certificate",
        stages=stages,
        compute_bound_ps=max(0, second.solver_bound_ps - spent),
    )


def _communication(asked: Problem, found: Plan) -> int:
    assert found.choice is not None
    return Evaluation(asked, found.choice).communication


def _weights(asked: Problem) -> tuple[int, int, int]:
    """Return the weight to begin with, one that is large enough in any case, and the dearest price without weight."""
    joint, dearest, compute = JointTable(replace(asked, counted=(1, 1))), 1, 1
    for node in asked.graph.nodes:
        slowest = int(joint.of(node).time.max(initial=0))
        dearest, compute = max(dearest, slowest), compute + slowest
    for tensor in asked.graph.tensors if asked.communication != "frozen" else ():
        times = table(asked, tensor).time
        dearest = max(dearest, int(np.max(times, initial=0, where=times < INF)))
    return min(compute, max(1, LARGEST // dearest)), compute, dearest
