"""From a forward graph to one with its backward pass: a grad op per op that lies between a parameter and the loss."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ops.op import Op
from ops.registry import rule_for
from solver.graph import Graph, GraphError, Node, Tensor, Use, flat
from solver.graph_copy import copy_of
from solver.graph_values import OperandNames

FLAT: Mapping[str, str] = {
    **dict.fromkeys(("bernoulli", "ceil", "floor", "poisson", "round", "sign", "trunc"), "x"),
    **dict.fromkeys(("full_like", "ones_like", "zeros_like"), "x"),
    **dict.fromkeys(("floor_divide", "trunc_divide"), "x y"),
    "expand_as": "y",
    "heaviside": "x",
    "moe_gate_dispatch": "corr_bias",
}
"""Op -> the floating operands that its results follow in steps only, or not at all: their gradient is nothing."""


class AutodiffError(GraphError):
    """A graph that cannot be differentiated: the sentence names the op, the parameter and what to do."""


def add_gradients(graph: Graph, loss: Tensor | str | None = None, parameters: Iterable[str] | None = None) -> Graph:
    """Return the graph with its backward pass.

    Parameters
    ----------
    graph : Graph
        A forward graph; it stays as it is.
    loss : Tensor or str, optional
        What is differentiated; by default the only floating output. Where it is not a single number, its gradient
        comes with every step, as an input ``NAME.grad`` of its shape.
    parameters : iterable of str, optional
        What is learned; by default every floating parameter, except such as ops read only where they define no
        gradient (running statistics). Of these, those from which no path leads to the loss have no gradient.

    Returns
    -------
    Graph
        Each gradient has the shape and dtype of its parameter, is an output, and is tied to it. Notes say which
        parameters have none.

    Raises
    ------
    AutodiffError
        Where the loss or a parameter is no such thing, the graph has gradients already, or a gradient is needed that
        an op does not define.

    Examples
    --------
    >>> g = Graph()
    >>> y = g.op("matmul", g.input("x", (8, 4)), g.parameter("w", (4, 2)), name="y")
    >>> g.output(g.op("mean", y, name="loss"))
    >>> step = add_gradients(g)
    >>> step.gradients, step.outputs
    ({'y_grad.y_grad': 'w'}, ['loss', 'y_grad.y_grad'])
    """
    if graph.gradients:
        raise AutodiffError(f"graph {graph.name!r} has gradients already, {next(iter(graph.gradients))!r} is one")
    made = copy_of(graph)
    goal = _loss(made, loss)
    learned = _learned(made) if parameters is None else _chosen(made, parameters)
    stored = [
        node.name for node in made.nodes.values() if node.attrs.get("is_test") or node.attrs.get("use_global_stats")
    ]
    backward = _Backward(made, learned)
    backward.run(goal)
    without = [name for name in learned if not backward.mark(name)]
    if without:
        made.notes.append(
            f"{_listed(without, 'is', 'are')} not learned: the loss {goal.name!r} does not depend on what they hold"
        )
    if stored:
        told = _listed(stored, "normalizes", "normalize")
        made.notes.append(f"{told} by stored statistics, which the step does not bring up to date")
    return made


def floating(tensor: Tensor) -> bool:
    """Tell whether a tensor holds floating numbers, and so can have a gradient."""
    return tensor.dtype.startswith(("float", "bfloat"))


def free_name(graph: Graph, name: str) -> str:
    """Return the name, with a number behind it where an op or a tensor of the graph has it."""
    count, tried = 1, name
    while tried in graph.tensors or tried in graph.nodes:
        count += 1
        tried = f"{name}_{count}"
    return tried


# ---------------------------------------------------------------------------------------------------- what is asked for


def _loss(graph: Graph, loss: Tensor | str | None) -> Tensor:
    if loss is None:
        candidates = [name for name in graph.outputs if floating(graph.tensors[name])]
        if not candidates:
            raise AutodiffError(f"graph {graph.name!r} has no floating output to differentiate: name the loss")
        if len(candidates) > 1:
            told = ", ".join(map(repr, candidates))
            raise AutodiffError(f"graph {graph.name!r} has several floating outputs ({told}): name the loss")
        loss = candidates[0]
    name = loss.name if isinstance(loss, Tensor) else loss
    if name not in graph.tensors:
        told = ", ".join(map(repr, graph.outputs))
        raise AutodiffError(f"the loss {name!r} is no tensor of graph {graph.name!r}; its outputs are {told or 'none'}")
    found = graph.tensors[name]
    if found.producer is None or not floating(found):
        what = f"is {found.dtype}" if found.producer else f"is of role {found.role}, made by no op"
        raise AutodiffError(f"the loss {name!r} {what}: name a floating result")
    return found


def _learned(graph: Graph) -> list[str]:
    """Return the floating parameters, but for those that ops read as what is not learned; notes tell of these."""
    learned: list[str] = []
    kept: dict[str, list[str]] = {}
    for tensor in graph.tensors.values():
        if tensor.role == "parameter" and floating(tensor):
            uses = graph.uses(tensor.name)
            if uses and all(_undefined(graph, use) for use in uses):
                kept.setdefault(f"{uses[0].operand} of {graph.nodes[uses[0].op].op}", []).append(tensor.name)
            else:
                learned.append(tensor.name)
    for where, names in kept.items():
        graph.notes.append(f"{_listed(names, 'is', 'are')} not learned: read as {where}, which has no gradient")
    return learned


def _listed(names: list[str], one: str, several: str) -> str:
    """Name a few, count the others, and add the verb that fits."""
    told = ", ".join(map(repr, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"{told} {one if len(names) == 1 else several}"


def _chosen(graph: Graph, parameters: Iterable[str]) -> list[str]:
    names = [parameters] if isinstance(parameters, str) else list(dict.fromkeys(parameters))
    for name in names:
        if name not in graph.tensors:
            raise AutodiffError(f"the parameter {name!r} is no tensor of graph {graph.name!r}")
        tensor = graph.tensors[name]
        if tensor.role != "parameter" or not floating(tensor):
            raise AutodiffError(f"{name!r} ({tensor.role}, {tensor.dtype}) is no floating parameter: it is not learned")
    return names


def _undefined(graph: Graph, use: Use) -> bool:
    """Tell whether an op that has a gradient has none for this operand, though its results may follow it."""
    op = rule_for(graph.nodes[use.op].op)
    operand = use.operand.split(".")[0]
    return op.grad is not None and operand not in op.grad.differentiable(op) and not _is_flat(op.name, operand)


def _is_flat(op: str, operand: str) -> bool:
    return operand in FLAT.get(op, "").split()


# ---------------------------------------------------------------------------------------------------- the backward pass


class _Backward:
    """The backward pass under construction.

    Parameters
    ----------
    graph : Graph
        Grows.
    learned : list of str
        The parameters whose gradients are wanted.
    """

    def __init__(self, graph: Graph, learned: list[str]) -> None:
        self.graph = graph
        self.forward = list(graph.nodes.values())
        self.behind = self._followers(learned)
        """Floating tensor -> the first learned parameter that it depends on."""
        self.terms: dict[str, list[Tensor]] = {}
        """Tensor -> what its gradient is the sum of."""

    def run(self, loss: Tensor) -> None:
        """Add the grad ops of all that lies between the parameters and the loss."""
        if loss.name not in self.behind:
            raise AutodiffError(f"the loss {loss.name!r} depends on no learned parameter of graph {self.graph.name!r}")
        self.terms[loss.name] = [self._seed(loss)]
        for node in reversed(self.forward):
            reached = any(name in self.terms for name in node.results)
            if reached and any(use.tensor in self.behind for use in self._live(node)):
                self._differentiate(node)

    def mark(self, parameter: str) -> bool:
        """Mark the final gradient of a parameter as one, and as an output tied to it; tell whether there is one."""
        found = self._total(parameter)
        if found is None:
            return False
        if found.producer is None or found.name in self.graph.gradients:
            found = self.graph.op("assign", found, name=free_name(self.graph, f"{parameter}.grad"))
        self.graph.gradient(found, of=self.graph.tensors[parameter])
        self.graph.output(found)
        self.graph.tie(found, self.graph.tensors[parameter])
        return True

    def _followers(self, learned: list[str]) -> dict[str, str]:
        found = {name: name for name in learned}
        for node in self.forward:
            first = next((found[use.tensor] for use in self._live(node) if use.tensor in found), None)
            if first is not None:
                found.update({name: first for name in node.results if floating(self.graph.tensors[name])})
        return found

    def _live(self, node: Node) -> list[Use]:
        """Return the uses of a node that a gradient may pass."""
        return [use for use in self.graph.operand_uses(node.name) if not _is_flat(node.op, use.operand.split(".")[0])]

    def _seed(self, loss: Tensor) -> Tensor:
        """Return the gradient of the loss: one where it is a number, else an input."""
        name = free_name(self.graph, f"{loss.name}.grad")
        if math.prod(loss.shape) > 1:
            return self.graph.input(name, loss.shape, loss.dtype)
        return self.graph.constant(name, np.ones(loss.shape), dtype=loss.dtype)

    def _total(self, name: str) -> Tensor | None:
        """Return the whole gradient of a tensor, the sum of its terms; None where there is none."""
        terms = self.terms.get(name, [])
        if len(terms) > 1:
            where = {"name": free_name(self.graph, f"{name}.grad"), "module": self._module(name)}
            two = len(terms) == 2
            total = self.graph.op("add", *terms, **where) if two else self.graph.op("add_n", terms, **where)
            terms = self.terms[name] = [total]
        return terms[0] if terms else None

    def _module(self, tensor: str) -> str:
        producer = self.graph.tensors[tensor].producer
        return self.graph.nodes[producer].module if producer else ""

    def _differentiate(self, node: Node) -> None:
        if node.op == "cast":
            found = self._total(node.results[0])
            self._add_terms(node, flat(node.operands), [found] if found else [])
            return
        op = rule_for(node.op)
        self._check(node, op)
        assert op.grad is not None
        operands = dict(zip((spec.name for spec in op.operands), node.operands, strict=True))
        results = self._results(node)
        read = [self._tensors({**operands, **results}.get(name)) for name in op.grad.reading(op)]
        out_grads = [self._out_grads(node, results.get(name)) for name in op.grad.receiving(op)]
        attrs = dict(node.attrs)
        if not set(operands) <= set(op.grad.reading(op)):
            attrs["forward_shapes"] = tuple((name, self._shapes(names)) for name, names in operands.items())
        made = self.graph.op(
            f"{node.op}_grad",
            *read,
            *out_grads,
            name=free_name(self.graph, f"{node.name}_grad"),
            module=node.module,
            **attrs,
        )
        differentiable = [operands[name] for name in op.grad.differentiable(op) if operands[name] is not None]
        self._add_terms(node, flat(differentiable), made if isinstance(made, tuple) else (made,))

    def _check(self, node: Node, op: Op) -> None:
        """Refuse a node through which a gradient must pass and cannot."""
        live = [use for use in self._live(node) if use.tensor in self.behind]
        parameter = self.behind[live[0].tensor]
        if op.grad is None:
            raise AutodiffError(f"{node} has no gradient, but parameter {parameter!r} needs one through it; {_REMEDY}")
        receiving = op.grad.receiving(op)
        for name, names in self._results(node).items():
            if name not in receiving and any(each in self.terms for each in flat([names])):
                raise AutodiffError(
                    f"{node} defines no gradient through its result {name}, but parameter {parameter!r} needs it; "
                    f"{_REMEDY}"
                )
        for use in live:
            if _undefined(self.graph, use):
                raise AutodiffError(
                    f"{node} defines no gradient of its operand {use.operand}, but parameter "
                    f"{self.behind[use.tensor]!r} needs it; {_REMEDY}"
                )

    def _results(self, node: Node) -> dict[str, OperandNames]:
        """Return the results of a node by their names in the rule."""
        single: dict[str, OperandNames] = {}
        listed: dict[str, tuple[str, ...]] = {}
        for slot, name in zip(self.graph.bind(node.name).results, node.results, strict=True):
            base, dot, _ = slot.name.partition(".")
            if dot:
                listed[base] = (*listed.get(base, ()), name)
            else:
                single[base] = name
        return single | listed

    def _tensors(self, names: OperandNames) -> Any:
        if names is None:
            return None
        return self.graph.tensors[names] if isinstance(names, str) else [self.graph.tensors[name] for name in names]

    def _shapes(self, names: OperandNames) -> Any:
        if names is None:
            return None
        if isinstance(names, str):
            return self.graph.tensors[names].shape
        return [self.graph.tensors[name].shape for name in names]

    def _out_grads(self, node: Node, names: OperandNames) -> Any:
        """Return the gradient of a result, zeros where nothing that leads to the loss reads it."""
        if names is None:
            return None
        if isinstance(names, tuple):
            return [self._out_grads(node, name) for name in names]
        found, result = self._total(names), self.graph.tensors[names]
        if found is not None:
            return found
        name = free_name(self.graph, f"{names}.grad")
        return self.graph.op("zeros", shape=list(result.shape), dtype=result.dtype, name=name, module=node.module)

    def _add_terms(self, node: Node, operands: Iterable[str | None], grads: Iterable[Tensor]) -> None:
        """Add to the gradients of the operands, in their dtypes."""
        for name, grad in zip(operands, grads, strict=True):
            if name is None or name not in self.behind:
                continue
            dtype = self.graph.tensors[name].dtype
            if grad.dtype != dtype:
                cast = free_name(self.graph, f"{grad.name}.cast")
                grad = self.graph.op("cast", grad, dtype=dtype, name=cast, module=node.module)
            self.terms.setdefault(name, []).append(grad)


_REMEDY = "leave the parameter out of parameters=, or write it with ops that have one"
