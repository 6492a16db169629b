"""A person's own Z3 expressions over `sharded` and `partial`: read, and written into the whole-graph model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import z3

from ops.placement import Replicate
from solver.constraints.layouts import Layouts
from solver.constraints.reason import Reason
from solver.constraints.variables import FALSE, Literal
from solver.formula import Atom, Expression
from solver.graph import Tensor
from solver.layout import placements
from solver.problem import ProblemError
from solver.terms import FormulaError, shortened


def sharded(tensor: str | Tensor, dim: int, axis: str) -> z3.BoolRef:
    """Return the Boolean that a mesh axis cuts a dim of a tensor: of its storage, or of what is held of a result.

    Parameters
    ----------
    tensor : str or Tensor
    dim : int
        The tensor dim; any of its parts counts.
    axis : str
        The mesh axis.

    Returns
    -------
    z3.BoolRef
        For ``plan(..., constraints=[z3.Implies(sharded("x", 0, "dp"), sharded("w", 0, "dp"))])``.

    Raises
    ------
    ValueError
        Where an argument is of no use.
    """
    if not isinstance(dim, int) or isinstance(dim, bool) or dim < 0:
        raise ProblemError(f"sharded(..., {dim!r}, ...): a dim is a number, 0 for the first")
    return z3.Bool(str(Atom("sharded", _name(tensor), dim, _axis(axis))))


def partial(tensor: str | Tensor, axis: str) -> z3.BoolRef:
    """Return the Boolean that a tensor holds partial terms along a mesh axis, of whatever kind.

    Parameters
    ----------
    tensor : str or Tensor
    axis : str
        The mesh axis.

    Returns
    -------
    z3.BoolRef

    Raises
    ------
    ValueError
        Where an argument is of no use.
    """
    return z3.Bool(str(Atom("partial", _name(tensor), None, _axis(axis))))


def _name(tensor: Any) -> str:
    name = tensor.name if isinstance(tensor, Tensor) else tensor
    if not isinstance(name, str):
        raise ProblemError(f"{tensor!r} is no tensor: give its name")
    return name


def _axis(axis: Any) -> str:
    if not isinstance(axis, str):
        raise ProblemError(f"{axis!r} is no mesh axis: give its name, as 'dp'")
    return axis


# ------------------------------------------------------------------------------------------------------------- reading


def read_expressions(constraints: Any) -> tuple[Expression, ...]:
    """Read Z3 expressions as formulas that no solver is needed for.

    Parameters
    ----------
    constraints : z3.BoolRef or Expression, or a sequence of them

    Returns
    -------
    tuple of Expression

    Raises
    ------
    ProblemError
        For what is no Boolean of Z3, or is made of more than what `solver.formula` evaluates.
    """
    given = constraints
    if constraints is None or isinstance(constraints, z3.ExprRef | Expression):
        given = [] if constraints is None else [constraints]
    if not isinstance(given, list | tuple):
        raise ProblemError(
            f"constraints={constraints!r}: give a list of Z3 expressions over sharded(...), partial(...)"
        )
    return tuple(one if isinstance(one, Expression) else _read(one) for one in given)


def _read(given: Any) -> Expression:
    if not isinstance(given, z3.BoolRef):
        raise ProblemError(f"constraints: {given!r} is no Boolean of Z3: write z3.Or(sharded('x', 0, 'dp'), ...)")
    text = " ".join(str(given).split())
    atoms: list[Atom] = []
    others: list[str] = []
    swaps = []
    for constant in _constants(given, text):
        name = constant.decl().name()
        if (atom := _atom(name)) is not None:
            swaps.append((constant, z3.Bool(f"a{len(atoms)}", given.ctx)))
            atoms.append(atom)
        else:
            swaps.append((constant, z3.Bool(f"b{len(others)}", given.ctx)))
            others.append(name)
    found = Expression(text, " ".join(z3.substitute(given, *swaps).sexpr().split()), tuple(atoms), tuple(others))
    try:
        found.check()
    except FormulaError as error:
        raise ProblemError(
            f"constraints: {shortened(text)}: {error}; use And, Or, Not, Implies, ==, If, PbLe and sums"
        ) from error
    return found


def _constants(given: z3.ExprRef, text: str) -> Iterator[z3.ExprRef]:
    """Yield the Booleans that an expression speaks of, each once."""
    waiting, seen = [given], set()
    while waiting:
        term = waiting.pop()
        if term.get_id() in seen:
            continue
        seen.add(term.get_id())
        if z3.is_quantifier(term) or z3.is_var(term):
            raise ProblemError(f"constraints: {text} has quantifiers: write out what it says of each tensor")
        waiting += reversed(term.children())
        if term.decl().kind() == z3.Z3_OP_UNINTERPRETED:
            if term.children() or not z3.is_bool(term):
                raise ProblemError(f"constraints: {text}: {term} is no Boolean, and a variable of your own must be one")
            yield term


def _atom(name: str) -> Atom | None:
    kind, opened, rest = name.partition("(")
    parts = rest[:-1].rsplit(", ", 2 if kind == "sharded" else 1)
    if not opened or not rest.endswith(")"):
        return None
    if kind == "sharded" and len(parts) == 3 and parts[1].isdecimal():
        return Atom("sharded", parts[0], int(parts[1]), parts[2])
    return Atom("partial", parts[0], None, parts[1]) if kind == "partial" and len(parts) == 2 else None


# ------------------------------------------------------------------------------------------------------------- writing


def add_expressions(layouts: Layouts) -> None:
    """Demand every expression, each under its own reason.

    Parameters
    ----------
    layouts : Layouts
        The placements of storage and of what is held of the tensors that they speak of must be written already.
    """
    clauses = layouts.clauses
    for expression in layouts.problem.expressions:
        clauses.always()
        meant = [f"(a{i} {_literal(layouts, atom)})" for i, atom in enumerate(expression.atoms)]
        meant += [f"(b{i} {clauses.symbol('own', name)})" for i, name in enumerate(expression.others)]
        clauses.under(expression_reason(expression))
        clauses.clause(f"(let ({' '.join(meant)}) {expression.smtlib})" if meant else expression.smtlib)


def expression_reason(expression: Expression) -> Reason:
    """Return the reason that an expression stands under."""
    return Reason("expression", "", f"you asked for {expression.text}", expression.text)


def _literal(layouts: Layouts, atom: Atom) -> Literal:
    """Return what says in the model what an atom says; on a mesh axis of size 1 it may be either way."""
    problem, clauses = layouts.problem, layouts.clauses
    axis = problem.mesh.axis(atom.axis)
    if problem.mesh.sizes[axis] == 1:
        return clauses.symbol("either", atom)
    layout = [Replicate()] * len(problem.mesh.sizes)
    labels = placements(problem.parts(atom.tensor), problem.kinds)
    meant = [label for label in labels if atom.holds((*layout[:axis], label, *layout[axis + 1 :]), axis)]
    literals = [clauses.known("held", atom.tensor, axis, label) for label in meant]
    told = " ".join(literal for literal in literals if literal != FALSE)
    return f"(or {told})" if told else FALSE
