"""The one way to register an op, and the table of all of them."""

from __future__ import annotations

import difflib
import inspect
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ops.grad import Grad
from ops.notation import RuleError, parse
from ops.op import REQUIRED, Attrs, Dtypes, Kernel, Op, Shapes
from ops.rule import FACTOR_KINDS, Rule, rule

_OPS: dict[str, Op] = {}
_FAMILIES: dict[str, str] = {}
_RULE_CLAUSES = (*tuple(inspect.signature(rule).parameters)[1:-1], *FACTOR_KINDS)


def op(name: str, text: str, *, kernel: Kernel, attrs: Attrs | None = None, flops: Any = None, **clauses: Any) -> Op:
    """Register an op whose rule is one text.

    Parameters
    ----------
    name : str
    text : str
        The signature (see `ops.rule.rule`).
    kernel : callable
    attrs : mapping, optional
    flops : callable, optional
        ``(shapes, attrs) -> int``; by default the volume of the factors.
    **clauses
        Rule clauses (``sum=``, ``linear=``, ...) and the fields of `Op` (``shape=``, ``dtype=``, ``view=``, ``local=``,
        ``reach=``, ``reduces=``, ``domain=``, ``grad=``).

    Returns
    -------
    Op
    """
    fixed = rule(text, **{key: clauses.pop(key) for key in _RULE_CLAUSES if key in clauses})
    return _register(
        Op(
            name,
            lambda shapes, given, dtypes: fixed,
            fixed.signature.operands,
            fixed.signature.results,
            kernel,
            dict(attrs or {}),
            flops_of=flops,
            **clauses,
        )
    )


def family(
    name: str, text: str, *, kernel: Kernel, attrs: Attrs | None = None, flops: Any = None, **facts: Any
) -> Callable[[Callable[..., Rule]], Op]:
    """Register an op whose rule depends on shapes or attributes.

    Parameters
    ----------
    name : str
    text : str
        The operands and results by name, dims left empty: ``x[], y[], bias?[] -> out[]``.
    kernel : callable
    attrs : mapping, optional
        Attributes beyond those that the decorated function takes.
    flops : callable, optional
    **facts
        As for `op`.

    Returns
    -------
    callable
        A decorator for a function that returns the `Rule`. Its parameters named like operands receive shapes, those
        named ``<operand>_dtype`` the dtype (None where unknown), the others attributes, whose defaults are the
        attribute defaults (none: required).
    """
    shell = rule(text)

    def register(make: Callable[..., Rule]) -> Op:
        parameters = inspect.signature(make).parameters
        tensors = {spec.name for spec in shell.signature.operands}
        asked = {f"{name}_dtype": name for name in tensors}
        own = {
            key: REQUIRED if parameter.default is inspect.Parameter.empty else parameter.default
            for key, parameter in parameters.items()
            if key not in tensors and key not in asked
        }

        def rule_for(shapes: Shapes, given: Attrs, dtypes: Dtypes) -> Rule:
            known = {
                **given,
                **{key: shapes.get(key) for key in tensors},
                **{key: dtypes.get(name) for key, name in asked.items()},
            }
            return make(**{key: known[key] for key in parameters})

        return _register(
            Op(
                name,
                rule_for,
                shell.signature.operands,
                shell.signature.results,
                kernel,
                {**own, **(attrs or {})},
                flops_of=flops,
                made_by=make,
                **facts,
            )
        )

    return register


def replicate_only(name: str, text: str, *, kernel: Kernel, **facts: Any) -> Op:
    """Register an op that every device does as a whole: the explicit choice, never a default.

    Parameters
    ----------
    name : str
    text : str
        The signature with ``_`` or whole runs only; every run is declared whole.
    kernel : callable
    **facts
        As for `op`.
    """
    signature = parse(text)
    names = {name for tensor in signature.operands + signature.results for name in tensor.factors}
    return op(name, text, kernel=kernel, whole=" ".join(sorted(names)), **facts)


def _register(made: Op) -> Op:
    if made.name in _OPS:
        raise RuleError(f"op {made.name!r} is registered twice")
    for operand in made.domain:
        if operand not in {spec.name for spec in made.operands}:
            raise RuleError(f"domain of {made.name!r} names {operand!r}, which is no operand")
    _OPS[made.name] = made
    _FAMILIES[made.name] = _importing()
    if made.grad is not None:
        _register(grad_op(made, made.grad))
    return made


def _importing() -> str:
    """Return the name of the module that is being imported: the family file of what it registers."""
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", ""))


def grad_op(forward: Op, grad: Grad) -> Op:
    """Build NAME_grad: the forward operands and results that it reads, then the out_grads -> the operand grads.

    What may be absent forward may be absent here.

    Parameters
    ----------
    forward : Op
    grad : Grad

    Returns
    -------
    Op
        It is not registered; registering the forward op registers its grad op as well.
    """
    by_name = {spec.name: spec for spec in forward.operands + forward.results}
    operands = [by_name[name] for name in grad.reading(forward)]
    out_grads = [replace(by_name[name], name=f"{name}_grad") for name in grad.receiving(forward)]
    results = tuple(
        replace(by_name[name], name=f"{name}_grad", optional=False) for name in grad.differentiable(forward)
    )
    return Op(
        f"{forward.name}_grad",
        forward.rule_for,
        (*operands, *out_grads),
        results,
        grad.kernel,
        {**forward.attrs, "forward_shapes": ()},
        dtype="first",
        view=forward.view,
        flops_of=grad.flops,
        local=forward.local,
        reduces=grad.reduces,
        domain={name: factor for name, factor in forward.domain.items() if name in grad.reading(forward)},
        forward=forward,
    )


def rule_for(name: str) -> Op:
    """Return the op of a name.

    Raises
    ------
    RuleError
        For an unknown op, with the nearest names, and for what is no name.
    """
    if not isinstance(name, str):
        raise RuleError(f"{name!r} is no name of an op: give a text, as 'matmul'")
    if name not in _OPS:
        near = difflib.get_close_matches(name, _OPS, 3)
        raise RuleError(f"unknown op {name!r}" + (f"; did you mean {' or '.join(map(repr, near))}?" if near else ""))
    return _OPS[name]


def names() -> list[str]:
    """Return the names of all ops, sorted."""
    return sorted(_OPS)


def families() -> dict[str, list[str]]:
    """Return the names of all ops, sorted, by the module that registers them.

    Examples
    --------
    >>> families()["ops.scan"][:2]
    ['cummax', 'cummax_grad']
    """
    found: dict[str, list[str]] = {}
    for name in names():
        found.setdefault(_FAMILIES[name], []).append(name)
    return dict(sorted(found.items()))
