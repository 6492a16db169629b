"""The operands of a new op, as they are given, and how uses are called."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from itertools import zip_longest
from typing import Any

from ops.notation import TensorSpec
from ops.registry import rule_for
from solver.graph_values import GraphError, Node, OperandNames, Place, Use


def operand_names(node: Node, operands: Sequence[Any], own: Callable[[Any, Place], str]) -> tuple[OperandNames, ...]:
    """Return the names of the operands of a node: one, several (variadic), or None (absent).

    Parameters
    ----------
    node : Node
    operands : sequence
        What was given, in the order of the rule; absent ones at the end may be left out.
    own : callable
        Gives the name of a tensor of the graph, and raises for anything else.

    Raises
    ------
    GraphError
        For an operand too many, one that is missing, and one that is no list where the op takes a list.
    """
    specs = rule_for(node.op).operands
    if len(operands) > len(specs):
        raise GraphError(f"{node} got {len(operands)} operands, but takes {len(specs)}: ({_takes(specs)})")
    names: list[OperandNames] = []
    for spec, given in zip_longest(specs, operands):
        place = Place("operand", spec.name, node)
        if given is None:
            if not spec.optional:
                raise GraphError(f"{place} is missing: {node.op} takes ({_takes(specs)})")
            names.append(None)
        elif not spec.variadic:
            names.append(own(given, place))
        elif isinstance(given, list | tuple) and given:
            names.append(tuple(own(one, place) for one in given))
        else:
            raise GraphError(f"{place} is {given}: it takes a list of one or more tensors")
    return tuple(names)


def check_uses(uses: Iterable[Use], tensors: Container[str]) -> None:
    """Hold the names of uses against those of tensors: a wish names either.

    Raises
    ------
    GraphError
        Where a use is called as a tensor is.
    """
    for use in uses:
        if use.name in tensors:
            raise GraphError(
                f"{use.name!r} is the name of a tensor and of the use {use.operand!r} of op {use.op!r}, so that a wish "
                "would speak of both: give the tensor or the op another name"
            )


def _takes(specs: Sequence[TensorSpec]) -> str:
    return ", ".join(("*" if spec.variadic else "") + spec.name + ("?" if spec.optional else "") for spec in specs)
