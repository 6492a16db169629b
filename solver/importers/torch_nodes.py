"""A joint graph of PyTorch, node by node, as the capture format writes it."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._functorch._aot_autograd import descriptors as aot
from torch.fx import GraphModule, Node

from solver.importers.capture import (
    BUFFER,
    GRADIENT,
    INPUT,
    MUTATION,
    PARAMETER,
    RESULT,
    TANGENT,
    Capture,
    CapturedNode,
    Ref,
    Spec,
)
from solver.importers.errors import UnsupportedNodeError

__all__ = ["capture_of", "own_name"]

_ROLES = {
    aot.ParamAOTInput: PARAMETER,
    aot.BufferAOTInput: BUFFER,
    aot.PlainAOTInput: INPUT,
    aot.TangentAOTInput: TANGENT,
}

_MOST_VALUES = 4096


def own_name(path: str) -> str:
    """Name a parameter or a module as the traced model does: the step that was wrapped around it is no part of it."""
    return path.removeprefix("model").removeprefix(".")


def capture_of(
    graph_module: GraphModule,
    model: str,
    names: Sequence[str],
    constants: Mapping[str, torch.Tensor],
    firsts: Mapping[str, str],
) -> Capture:
    """Write a joint graph down.

    Parameters
    ----------
    graph_module : GraphModule
        Of ``aot_export_joint_with_descriptors``.
    model : str
        Its name.
    names : sequence of str
        Of the inputs.
    constants : mapping
        Values of buffers that are known.
    firsts : mapping
        The name to use for a parameter or buffer, by the others that it has.

    Raises
    ------
    UnsupportedNodeError
        For a node that reads a part of the graph, or whose shape depends on data.
    """
    nodes = list(graph_module.graph.nodes)
    targets = [getattr(node.meta["desc"], "target", "") for node in nodes if node.op == "placeholder"]
    own = {own_name(firsts.get(target, target)) for target in targets}
    names = [f"input.{name}" if name in own else name for name in names]
    sources = {node.meta["desc"]: node.name for node in nodes if node.op == "placeholder"}
    written: list[CapturedNode] = []
    for node in nodes:
        if node.op == "placeholder":
            written.append(_source(node, names, constants, firsts))
        elif node.op == "output":
            written.append(_output(node, sources))
        elif node.op == "get_attr":
            written.append(_constant(node, graph_module))
        else:
            written.append(_call(node))
    return Capture(model, written)


def _source(
    node: Node, names: Sequence[str], constants: Mapping[str, torch.Tensor], firsts: Mapping[str, str]
) -> CapturedNode:
    """Write an input, or the constant that it always is."""
    told = node.meta["desc"]
    if isinstance(told, aot.ForwardTokenAOTInput | aot.BackwardTokenAOTInput):
        raise _effect(node)
    if type(told) not in _ROLES:
        raise UnsupportedNodeError(f"input {node.name!r} of the traced graph is a {told}, which has no place in a step")
    target = getattr(told, "target", "")
    if target in constants and _small(constants[target]):
        return _known(node, constants[target])
    return CapturedNode(
        node.name,
        "placeholder",
        val=_val(node),
        role=_ROLES[type(told)],
        target=names[told.idx] if isinstance(told, aot.PlainAOTInput) else own_name(firsts.get(target, target)),
        backward=isinstance(told, aot.TangentAOTInput),
    )


def _effect(token: Node) -> UnsupportedNodeError:
    """Name the op for whose effect PyTorch threads a token through the graph."""
    user = next(iter(token.users), token)
    op = next((arg for arg in user.args if isinstance(arg, torch._ops.OpOverload)), user.target)
    where = f" in module {_module(user)!r}" if _module(user) else ""
    return UnsupportedNodeError(
        f"the op {op}{where} does something beside computing its result (it checks values, prints, or calls Python), "
        "which has no place in a step: take a form without it, as torch.linalg.inv_ex for torch.linalg.inv, with a row "
        "in the table of solver.importers.aten where it has none, or compute that part outside of the module"
    )


def _constant(node: Node, graph_module: GraphModule) -> CapturedNode:
    value = operator.attrgetter(str(node.target))(graph_module)
    if not isinstance(value, torch.Tensor):
        reader = next(iter(node.users), node)
        raise UnsupportedNodeError(
            f"{_told(reader)} runs a part of the model by itself: branches "
            "and loops that PyTorch keeps as such cannot be brought in"
        )
    return _known(node, value)


def _small(value: torch.Tensor) -> bool:
    """Say whether the values are written down; a large table is a buffer like those that the module names."""
    return value.numel() <= _MOST_VALUES and not value.is_complex()


def _known(node: Node, value: torch.Tensor) -> CapturedNode:
    return CapturedNode(node.name, "constant", ([*value.detach().cpu().flatten().tolist()],), val=_spec(value, node))


def _call(node: Node) -> CapturedNode:
    return CapturedNode(
        node.name,
        _op(node),
        tuple(_argument(arg, node) for arg in node.args),
        {key: _argument(arg, node) for key, arg in node.kwargs.items()},
        _val(node),
        module=_module(node),
        backward=bool(node.meta.get("partitioner_tag") == "is_backward"),
    )


def _output(node: Node, sources: Mapping[Any, str]) -> CapturedNode:
    """Write the output: the gradients of what is no parameter, and what a step does not change, are left out."""
    kept: list[Any] = []
    outs: list[tuple[str, str]] = []
    for result, told in zip(node.args[0], node.meta["desc"], strict=True):
        if result is None or told is None:
            continue
        if isinstance(told, aot.PlainAOTOutput):
            outs.append((RESULT, ""))
        elif isinstance(told, aot.GradAOTOutput):
            outs.append((GRADIENT, sources[told.grad_of]))
        elif isinstance(told, aot.InputMutationAOTOutput):
            outs.append((MUTATION, sources[told.mutated_input]))
        else:
            raise UnsupportedNodeError(f"output {result} of the traced graph is a {told}, which has no place in a step")
        kept.append(_argument(result, node))
    return CapturedNode(node.name, "output", (kept,), outs=tuple(outs))


def _op(node: Node) -> str:
    if node.target is operator.getitem:
        return "getitem"
    return str(node.target)


def _module(node: Node) -> str:
    """Return the path of the innermost module that a node stands in."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
    path = [*stack.values()][-1][0] if stack else ""
    return own_name(re.sub(r"@\d+", "", path))


def _told(node: Node) -> str:
    return f"node {node.name!r} ({node.target})" + (f" in module {_module(node)!r}" if _module(node) else "")


def _argument(arg: Any, node: Node) -> Any:
    """Return an argument as a capture has it."""
    if isinstance(arg, Node):
        return Ref(arg.name)
    if isinstance(arg, list | tuple):
        return [_argument(one, node) for one in arg]
    if arg is None or isinstance(arg, bool | int | float | str):
        return arg
    if isinstance(arg, torch.dtype | torch.device | torch.layout | torch.memory_format):
        return str(arg)
    if isinstance(arg, torch.SymInt | torch.SymFloat | torch.SymBool):
        raise UnsupportedNodeError(f"{_told(node)} takes the size {arg}, which depends on data")
    raise UnsupportedNodeError(f"{_told(node)} takes a {type(arg).__name__}, which cannot be written down")


def _val(node: Node) -> Any:
    val = node.meta.get("val")
    if isinstance(val, torch.Tensor):
        return _spec(val, node)
    if isinstance(val, list | tuple):
        return tuple(_spec(one, node) if isinstance(one, torch.Tensor) else None for one in val)
    return None


def _spec(tensor: torch.Tensor, node: Node) -> Spec:
    if not all(isinstance(size, int) for size in tensor.shape):
        raise UnsupportedNodeError(f"{_told(node)} gives the shape {list(tensor.shape)}, which depends on data")
    return Spec(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
