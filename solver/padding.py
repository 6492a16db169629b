"""The same network with one size rounded up, so that a mesh axis divides it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from ops.bind import BoundTensor
from ops.registry import rule_for
from solver.graph import Graph, GraphError
from solver.graph_values import OperandNames, flat

Cell = tuple[str, int]
"""One dim of one tensor."""


REDUCING = frozenset(
    {
        "softmax",
        "log_softmax",
        "layer_norm",
        "rms_norm",
        "logsumexp",
        "argmax",
        "argmin",
        "topk",
        "cross_entropy_with_softmax",
    }
)
"""Ops that compare all elements along a dim that they keep whole: with some left out, the others come out as before."""
BLOCKWISE = frozenset(
    {
        "embedding",
        "full",
        "zeros",
        "ones",
        "cross_entropy_with_softmax",
        "conv1d",
        "conv2d",
        "conv3d",
        "depthwise_conv2d",
        "avg_pool1d",
        "avg_pool2d",
        "avg_pool3d",
        "max_pool1d",
        "max_pool2d",
        "max_pool3d",
    }
)
"""Ops of which a block has attributes of its own, but none that hangs on the size of a dim that may grow."""
MEANS = frozenset(
    {
        "mean",
        "mean_all",
        "mse_loss",
        "l1_loss",
        "smooth_l1_loss",
        "binary_cross_entropy",
        "binary_cross_entropy_with_logits",
        "nll_loss",
    }
)
"""Ops that may divide by a number of elements: a mask helps them, but not their grad ops, which no longer see it."""
ATTENTION = {"flash_attention": "dropout", "scaled_dot_product_attention": "dropout_p"}
"""Ops that count queries, keys and features; and the attribute by which they draw at random, by index in the whole."""
ZERO_AT_ZERO = frozenset(
    {"relu", "gelu", "silu", "swish", "tanh", "abs", "square", "sin", "leaky_relu", "relu6", "elu"}
)
"""Elementwise ops that are not linear and make zeros of zeros."""


@dataclass(frozen=True, eq=False)
class Padded:
    """A graph with a dim padded by zeros at its end.

    Parameters
    ----------
    graph : Graph
    sizes : mapping
        Every dim, as (tensor, dim), that grows, and its new size.
    masked : tuple of str
        The ops that must leave out what is padded, so that all other elements are as before.
    """

    graph: Graph
    sizes: Mapping[Cell, int]
    masked: tuple[str, ...]


def padded(graph: Graph, tensor: str, dim: int, size: int) -> Padded | None:
    """Return a graph in which a dim, and every dim that must be as large, has another size.

    Parameters
    ----------
    graph : Graph
    tensor : str
    dim : int
    size : int

    Returns
    -------
    Padded or None
        None where the size is fixed by something else: known values, or an attribute that is no shape; and where it is
        not sure that the elements that were there before keep their values.

    Examples
    --------
    >>> g = Graph("mlp")
    >>> x = g.input("x", (8, 5))
    >>> g.output(g.op("matmul", x, g.parameter("w", (5, 4)), name="y"))
    >>> [str(t) for t in padded(g, "x", 1, 8).graph.tensors.values()]
    ['x float32[8, 8]', 'w float32[8, 4]', 'y float32[8, 4]']
    """
    sizes = _sizes(graph, (tensor, dim), size)
    if sizes is None:
        return None
    shapes = {
        name: tuple(sizes.get((name, d), old) for d, old in enumerate(fact.shape))
        for name, fact in graph.tensors.items()
    }
    if any(fact.role == "constant" and shapes[name] != fact.shape for name, fact in graph.tensors.items()):
        return None
    try:
        made = _rebuilt(graph, shapes)
    except GraphError:
        return None
    if any(made.tensors[name].shape != shape for name, shape in shapes.items()):
        return None
    masked = _masked(graph, made, sizes)
    return None if masked is None else Padded(made, sizes, masked)


def _masked(graph: Graph, made: Graph, sizes: Mapping[Cell, int]) -> tuple[str, ...] | None:
    """Return the ops that need a mask; None where one is not known to keep the values of what was there before."""
    zero = {name for name, _ in sizes if graph.tensors[name].producer is None}
    masked = []
    for node in graph.nodes:
        grown = _grown(graph, made, node, sizes)
        if grown is None or not _keeps(graph, node, grown):
            return None
        nothing = {factor for factor in grown if _nothing(graph, node, factor, zero)}
        kinds = graph.bind(node).factors
        if any(
            kinds[factor].kind != "pass" and (kinds[factor].kind != "sum" or factor not in nothing) for factor in grown
        ):
            masked.append(node)
        if _makes_zeros(graph, node, grown, nothing, zero):
            zero.update(graph.nodes[node].results)
    return tuple(masked)


def _grown(graph: Graph, made: Graph, node: str, sizes: Mapping[Cell, int]) -> set[str] | None:
    """Return the factors of an op that grow; None where zeros are not added at the end of each, or the op changes.

    In a dim of several factors only the major one may grow, and only where an op does nothing but rename memory: what
    others read off such a dim, as which query heads share a key head, hangs on the ratio of two sizes.
    """
    before, after = graph.bind(node), made.bind(node)
    slots = _slots(graph, node)
    if not any((tensor, d) in sizes for tensor, slot in slots for d in range(len(slot.dims))):
        return set()
    if [slot.dims for _, slot in slots] != [slot.dims for _, slot in _slots(made, node)]:
        return None
    kinds = [{name: factor.kind for name, factor in bound.factors.items()} for bound in (before, after)]
    if kinds[0] != kinds[1]:
        return None
    grown = {name for name, factor in before.factors.items() if factor.size != after.factors[name].size}
    for tensor, slot in slots:
        for d, names in enumerate(slot.dims):
            if (tensor, d) not in sizes:
                continue
            large = [name for name in names if before.factors[name].size > 1] or list(names[:1])
            if grown.intersection(names) != set(large[:1]) or not large:
                return None
            if len(names) > 1 and not rule_for(graph.nodes[node].op).view:
                return None
    return grown


def _keeps(graph: Graph, node: str, grown: set[str]) -> bool:
    """Whether an op computes what it did before from what was there before, where it leaves out what is padded.

    An op without `ops.op.Op.local` computes each block of a factor that passes as if it were all: no size counts.
    """
    fact, bound = graph.nodes[node], graph.bind(node)
    op, name = rule_for(fact.op), fact.op.removesuffix("_grad")
    kinds = {bound.factors[factor].kind for factor in grown}
    if not grown:
        return True
    if "halo" in kinds or (kinds & {"whole", "synced"} and name not in REDUCING):
        return False
    if (fact.attrs.get("padding_idx") or 0) < 0:
        return False  # counted from the end
    if name in ATTENTION:
        return grown <= set("bhge") and not fact.attrs.get(ATTENTION[name], 0)
    return op.local is None or op.view or name in BLOCKWISE or fact.op in MEANS


def _nothing(graph: Graph, node: str, factor: str, zero: Collection[str]) -> bool:
    """Whether every term of a linear op is zero where a factor is padded: its operands along the factor are."""
    bound = graph.bind(node)
    along = {
        slot.name: use.tensor in zero
        for use in graph.operand_uses(node)
        if (slot := bound.operands[use.slot]) is not None and slot.dim_of(factor) is not None
    }
    terms = () if bound.rule.forms else bound.terms
    return bool(terms) and all(along.values()) and all(any(name in along for name in term) for term in terms)


def _makes_zeros(graph: Graph, node: str, grown: set[str], nothing: set[str], zero: Collection[str]) -> bool:
    """Whether all results of an op are zero where they are padded."""
    bound = graph.bind(node)
    if graph.nodes[node].op in ZERO_AT_ZERO:
        return all(use.tensor in zero for use in graph.operand_uses(node))
    along = {factor for factor in grown for slot in bound.results if slot.dim_of(factor) is not None}
    return bool(along) and along <= nothing


def first_dim(graph: Graph, node: str, factor: str) -> Cell | None:
    """Return the first dim, as (tensor, dim), that holds a factor of an op alone; None where there is none."""
    cells = _cells(graph, node).get(factor)
    return cells[0] if cells else None


def _sizes(graph: Graph, first: Cell, size: int) -> dict[Cell, int] | None:
    """Return the new sizes of the dims that change with one: by the factors of ops, by ties; None where they disagree.

    A dim made of several factors has the size of their product.
    """
    found = {first: size}
    before = 0
    while len(found) > before:
        before = len(found)
        for node in graph.nodes:
            factors = {
                name: found[cell] for name, cells in _cells(graph, node).items() for cell in cells if cell in found
            }
            for tensor, slot in _slots(graph, node) if factors else ():
                for d, names in enumerate(slot.dims):
                    if not factors.keys().isdisjoint(names):
                        every = graph.bind(node).factors
                        product = prod(factors.get(name, every[name].size) for name in names)
                        if found.setdefault((tensor, d), product) != product:
                            return None
        for follower, leader in graph.ties.items():
            for d in range(len(graph.tensors[leader].shape)):
                for one, other in (((follower, d), (leader, d)), ((leader, d), (follower, d))):
                    if one in found and found.setdefault(other, found[one]) != found[one]:
                        return None
    return found


def _slots(graph: Graph, node: str) -> list[tuple[str, BoundTensor]]:
    bound = graph.bind(node)
    placed = [(use.tensor, bound.operands[use.slot]) for use in graph.operand_uses(node)]
    placed += list(zip(graph.nodes[node].results, bound.results, strict=True))
    return [(tensor, slot) for tensor, slot in placed if slot is not None]


def _cells(graph: Graph, node: str) -> dict[str, list[Cell]]:
    """Return per factor of an op the dims that hold it alone."""
    found: dict[str, list[Cell]] = {}
    for tensor, slot in _slots(graph, node):
        for d, names in enumerate(slot.dims):
            if len(names) == 1:
                found.setdefault(names[0], []).append((tensor, d))
    return found


def _rebuilt(graph: Graph, shapes: dict[str, tuple[int, ...]]) -> Graph:
    made = Graph(graph.name)
    for name, fact in graph.tensors.items():
        if fact.role == "constant":
            made.constant(name, fact.value, fact.dtype)
        elif fact.producer is None:
            getattr(made, fact.role)(name, shapes[name], fact.dtype)
        elif fact.producer not in made.nodes:
            node = graph.nodes[fact.producer]
            attrs = dict(node.attrs)
            if "shape" in attrs and len(node.results) == 1:
                attrs["shape"] = list(shapes[name])
            if "forward_shapes" in attrs:
                attrs["forward_shapes"] = _forward_shapes(graph, node.operands, attrs["forward_shapes"], shapes)
            operands = [_named(made, operand) for operand in node.operands]
            made.op(node.op, *operands, name=node.name, module=node.module, **attrs)
    made.output(*(made.tensors[name] for name in graph.outputs))
    for follower, leader in graph.ties.items():
        made.tie(made.tensors[follower], made.tensors[leader])
    for gradient, parameter in graph.gradients.items():
        made.gradient(made.tensors[gradient], made.tensors[parameter])
    for one, of in graph.repeats.items():
        made.repeat(one, of)
    made.notes.extend(graph.notes)
    return made


def _named(graph: Graph, operand: OperandNames) -> Any:
    if isinstance(operand, tuple):
        return [graph.tensors[name] for name in operand]
    return None if operand is None else graph.tensors[operand]


def _forward_shapes(
    graph: Graph, operands: tuple[OperandNames, ...], stated: Any, shapes: dict[str, tuple[int, ...]]
) -> Any:
    """Return the shapes of a forward op's operands, where these can be told from those that its grad op reads."""
    new = {graph.tensors[name].shape: shapes[name] for name in flat(operands) if name is not None}
    return tuple((name, new.get(tuple(shape), shape)) for name, shape in stated)
