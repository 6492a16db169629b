"""The checker of bounds (docs/certificate.md): plain integer arithmetic, nothing of the search, no solver.

What every op and tensor may choose is enumerated in solver/certificate_model.py; solver/certificate_tree.py takes out
the values that cannot be part of a plan and adds up what the messages of a certificate leave.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from solver.certificate_memory import StoringModel
from solver.certificate_messages import CertificateError, short
from solver.certificate_model import Model
from solver.certificate_tree import Scope, Written, bounds
from solver.cost.reshard import INF
from solver.problem import Problem

__all__ = ["CertificateError", "certified_bound", "proved"]


def certified_bound(problem: Problem, certificate: Any) -> int:
    """Compute the bound that a certificate proves.

    Parameters
    ----------
    problem : Problem
    certificate : mapping
        As a plan file holds it. Wrong numbers in it prove less, never something false.

    Returns
    -------
    int
        Picoseconds that no plan undercuts; INF where it proves that there is no plan.

    Raises
    ------
    CertificateError
        Where the certificate has another form.
    """
    if isinstance(certificate, Mapping) and set(certificate) == {"atom", "holds", "fails"}:
        return _in_both_cases(problem, certificate)
    written = Written(certificate)
    if written.tree == {"unproved": True}:  # claims nothing, which needs no enumeration of what there is to choose
        return 0
    if written.moments is None:
        return _proved(Model(problem), written)
    if problem.memory is None:
        raise CertificateError("it speaks of moments, but there is no memory budget")
    try:
        model = StoringModel(problem, written.moments)
    except KeyError as error:
        raise CertificateError(f"there is no moment {error}") from error
    return _proved(model, written)


def _in_both_cases(problem: Problem, certificate: Mapping[str, Any]) -> int:
    """Compute the bound of a problem that is split by an atom of a person's own expressions."""
    known = [atom for atoms in problem.atoms_on.values() for atom in atoms]
    named = [atom for atom in known if [atom.kind, atom.tensor, atom.dim, atom.axis] == certificate["atom"]]
    if not named:
        raise CertificateError(f"it splits by {short(certificate['atom'])}, which no expression speaks of")
    holds = certified_bound(problem.assuming(named[0], True), certificate["holds"])
    return min(holds, certified_bound(problem.assuming(named[0], False), certificate["fails"]))


def proved(model: Model, certificate: Any) -> int:
    """Compute the bound that a certificate proves for what is enumerated already (see `certified_bound`)."""
    return _proved(model, Written(certificate))


def _proved(model: Model, written: Written) -> int:
    leaves = list(bounds(Scope(model, written), written.tree, model.consistent_values))
    if not leaves:
        return INF
    return max(0, -(-min(leaves) >> written.bits))
