"""Ask one op for the layouts nearest to given ones: what a framework would call op by op."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

from ops.op import Op
from ops.placement import (
    PARTIAL_KINDS,
    DimsMapping,
    Layout,
    Partial,
    Placement,
    Shard,
    layout_text,
    to_dims_mapping,
)
from ops.registry import rule_for
from solver.cost.traffic import traffic
from solver.explain.core import FeasibleError, find_core
from solver.explain.tell import tell
from solver.explanation import Explanation, Fact, told_once
from solver.graph import Graph
from solver.graph_values import frozen, plain
from solver.infer_layouts import InferError, Side, Written, named
from solver.layout import one_part
from solver.mesh import Mesh
from solver.parts import Refinement, bind_refined, refine
from solver.problem import CAPABILITIES, DEFAULT_CAPABILITIES, Pin, Problem
from solver.search.one_op import OneOp

ITEMSIZE = 4
"""Bytes of an element, whatever the dtype: the layouts of an op do not hang on it."""
ByAxis: TypeAlias = dict[str, Placement]


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """One operand or result of an inferred op.

    Parameters
    ----------
    name : str
        ``x``, or ``xs.0`` of a variadic one.
    shape : tuple of int
    given : Layout or None
        What was asked for; None where nothing was.
    layout : Layout
        What the op needs of an operand, or makes of a result.
    bytes : int
        What a device sends for the difference.
    """

    name: str
    shape: tuple[int, ...]
    given: Layout | None
    layout: Layout
    bytes: int

    @property
    def changed(self) -> int:
        """The number of mesh axes on which it differs from what was asked for."""
        return 0 if self.given is None else _differences(self.given, self.layout)


@dataclass(frozen=True)
class Inference:
    """The layouts of one op nearest to given ones; made by `infer`.

    Parameters
    ----------
    op : str
    mesh : Mesh
    operands : tuple
        Per operand of the op: mesh axis -> placement; a list of those for a variadic operand, None for an absent one.
    results : tuple
        The same for the results, as the op makes them.
    rows : mapping
        Mesh axis -> why the op may lie so there: the clause of its rule.
    tensors : tuple of TensorLayout
        All present operands, then all results.
    made : int
        The number of results among them.
    question : Problem
        The op alone, nothing asked of it.
    """

    op: str
    mesh: Mesh
    operands: tuple[ByAxis | list[ByAxis] | None, ...]
    results: tuple[ByAxis | list[ByAxis] | None, ...]
    rows: Mapping[str, str]
    tensors: tuple[TensorLayout, ...] = field(repr=False)
    made: int = field(repr=False)
    question: Problem = field(repr=False, compare=False)

    @cached_property
    def explanation(self) -> Explanation | None:
        """Why the op cannot lie as it was asked to; None where it does.

        As for a plan: the given layouts that cannot stand together, the rule that keeps them apart, and how.
        """
        return _why_not_as_given(self) if self.changed else None

    @property
    def bytes(self) -> int:
        """What a device sends in all, with items of 4 bytes."""
        return sum(tensor.bytes for tensor in self.tensors)

    @property
    def changed(self) -> int:
        """The number of placements, over tensors and mesh axes, that differ from what was asked for."""
        return sum(tensor.changed for tensor in self.tensors)

    def layout(self, name: str) -> ByAxis:
        """Return the layout of an operand or result, mesh axis -> placement; ``xs.0`` is a variadic one's first."""
        return dict(zip(self.mesh.axes, self._tensor(name).layout, strict=True))

    def dims_mapping(self, name: str) -> DimsMapping:
        """Return the layout of an operand or result as Paddle's dims_mapping.

        Raises
        ------
        PlacementError
            For a layout on parts, which has none.
        """
        tensor = self._tensor(name)
        return to_dims_mapping(tensor.layout, len(tensor.shape))[0]

    def partial(self, name: str) -> dict[int, str]:
        """Return the partial state of an operand or result: index of the mesh axis -> kind."""
        return {axis: p.kind for axis, p in enumerate(self._tensor(name).layout) if isinstance(p, Partial)}

    def _tensor(self, name: str) -> TensorLayout:
        for tensor in self.tensors:
            if tensor.name == name:
                return tensor
        known = ", ".join(tensor.name for tensor in self.tensors)
        raise InferError(f"{self.op} has no operand or result {name!r} here: it has {known}")

    def __str__(self) -> str:
        lines = [f"{self.op} on {self.mesh}: {self.bytes} bytes moved, {self.changed} placements changed"]
        lines += [f"  {axis}: {why}" for axis, why in self.rows.items()]
        width = max((len(tensor.name) for tensor in self.tensors), default=0)
        for number, tensor in enumerate(self.tensors):
            ends = [tensor.layout] if tensor.given in (None, tensor.layout) else [tensor.given, tensor.layout]
            if number >= len(self.tensors) - self.made:
                ends.reverse()
            told = " -> ".join(layout_text(end) for end in ends if end is not None)
            lines.append(f"  {tensor.name:{width}} {told}" + (f", {tensor.bytes} bytes" if len(ends) > 1 else ""))
        return "\n".join(lines)


def infer(
    name: str,
    mesh: Mesh,
    operands: Sequence[Written | Sequence[Written | None] | None] | None = None,
    results: Sequence[Written | Sequence[Written | None] | None] | None = None,
    shapes: Sequence[Any] = (),
    attrs: Mapping[str, Any] | None = None,
    *,
    dtypes: Sequence[Any] | None = None,
    capabilities: Set[str] = DEFAULT_CAPABILITIES,
) -> Inference:
    """Find the layouts of one op nearest to given ones.

    With ``results=None`` it goes forward: which layouts do the operands need, and what is made of them? With results it
    goes backward: which layouts of the operands make results that are nearest to the wanted ones?

    Parameters
    ----------
    name : str
        The op.
    mesh : Mesh
        Of any number of mesh axes.
    operands : sequence, optional
        A layout per operand of the op, as ``{"dp": Shard(0)}``, ``"dp=S(0),tp=R"``, a tuple of one placement per mesh
        axis, or ``(dims_mapping, partial)``; a mesh axis that is not named is R. A list of layouts for a variadic
        operand. None for an absent operand, and for one that may lie in any way at no price; None in all for all.
    results : sequence, optional
        The same for the results.
    shapes : sequence
        A shape per operand, a list of shapes for a variadic one, None for an absent one.
    attrs : mapping, optional
        The attributes of the op. A grad op that does not read every forward operand needs all their shapes, as
        ``forward_shapes=(("x", (8, 4)), ...)``.
    dtypes : sequence, optional
        A dtype per operand, where the rule depends on it; float32 by default, int64 for indices.
    capabilities : set of str, optional
        What the runtime can do beyond plain local ops.

    Returns
    -------
    Inference

    Raises
    ------
    InferError, RuleError, GraphError
        All of them are a ValueError: for an unknown op, mesh axis or attribute, shapes that do not fit the op, a
        missing operand, and a layout that the tensor cannot have.

    Notes
    -----
    Allowed is one row of the op per mesh axis, where the rows go together (docs/semantics.md, section 2). Of these
    choices the one is taken that

    1. moves the fewest bytes: the sum, over the operands and results with a given layout, of what a device sends on
       the way that sends least, from the given layout of an operand to the needed one, and from the made layout of a
       result to the wanted one. The moves are those of docs/semantics.md, section 3; an item has 4 bytes. Time is not
       looked at, nor what a kernel sends itself. So a block may well be padded with zeros, S -> P(sum), which sends
       nothing, and the sum be left to the ops that follow;
    2. then changes the fewest placements, counted over these tensors and all mesh axes, in canonical form;
    3. then comes first in the order of the op's rows, mesh axis by mesh axis.

    Z3 decides, on the constraints of that op alone; that nothing is nearer is its ``unsat``.

    Layouts are plain, ``S(d)`` cuts a whole dim, unless a given one names a part of a dim: then the dims have the parts
    that the op itself asks for when it stands alone, as a reshape does, and the answer may name parts, too.

    Examples
    --------
    Both operands are cut on the summed dim, by the same mesh axis; nothing moves and a sum is left to do:

    >>> mesh = Mesh({"dp": 2, "tp": 4})
    >>> shapes = [(32, 64), (64, 16)]
    >>> print(infer("matmul", mesh, operands=["dp=S(0),tp=S(1)", "tp=S(0)"], shapes=shapes))
    matmul on dp=2, tp=4: 0 bytes moved, 0 placements changed
      dp: cut m
      tp: sum over k
      x   [S(0), S(1)]
      y   [R, S(0)]
      out [S(0), P(sum)]

    Backward, in Paddle's form. The product is wanted whole along ``tp``. y is cut anew, on the summed dim, and the
    product, the smallest of the three, is reduced; to gather x or y would send more:

    >>> found = infer("matmul", mesh, [([0, 1], {}), ([-1, 1], {})], [([0, -1], {})], shapes)
    >>> found.dims_mapping("x"), found.dims_mapping("y"), found.dims_mapping("out"), found.partial("out"), found.bytes
    ([0, 1], [1, -1], [0, -1], {1: 'sum'}, 2304)
    """
    op = rule_for(name)
    call = _read_call(op, shapes, attrs, dtypes)
    if not isinstance(mesh, Mesh):
        raise InferError(f"the mesh is a {type(mesh).__name__}: write Mesh({{'dp': 2, 'tp': 4}})")
    if operands is None and results is None and call.shapes:
        raise InferError(f"{name}: give the layouts of its operands, of its results, or both")
    if unknown := sorted(set(capabilities) - CAPABILITIES):
        raise InferError(f"capability {unknown[0]!r} is unknown: choose from {', '.join(sorted(CAPABILITIES))}")
    bound = _graph(call).bind(call.op)
    sides = (
        Side(name, "operands", op.operands, bound.operands),
        Side(name, "results", op.results, bound.results, len(bound.operands)),
    )
    written = sides[0].read(operands, mesh) | sides[1].read(results, mesh)
    kinds = {p.kind for layout in written.values() for p in layout if isinstance(p, Partial)}
    on_parts = any(isinstance(p, Shard) and p.part for layout in written.values() for p in layout)
    named_kinds = tuple(kind for kind in PARTIAL_KINDS if kind in kinds)
    return _solve(_question(call, mesh, frozenset(capabilities), named_kinds, on_parts), sides, written)


def _solve(question: OneOp, sides: tuple[Side, Side], written: Mapping[int, Layout]) -> Inference:
    """Weigh the layouts of each slot against the given ones, and let Z3 find the rows."""
    problem, results = question.problem, sides[1].sites
    sites = sides[0].sites | results
    parts = {slot: problem.parts(tensor) for slot, tensor in question.tensors.items()}
    given = {slot: named(sites[slot], layout, parts[slot], problem.mesh) for slot, layout in written.items()}
    moved: dict[int, Mapping[Layout, int]] = {}
    for slot, layout in given.items():
        sent = traffic(ITEMSIZE, parts[slot], problem.mesh, problem.kinds)
        moved[slot] = sent.into(layout) if slot in results else sent.out_of(layout)
    changed = {slot: {to: _differences(given[slot], to) for to in weights} for slot, weights in moved.items()}
    rows = question.nearest([moved, changed])
    tensors: dict[int, TensorLayout] = {}
    for slot, site in sites.items():
        layout = question.layout(slot, rows)
        sent_bytes = moved[slot][layout] if slot in moved else 0
        tensors[slot] = TensorLayout(site.name, site.shape, given.get(slot), layout, sent_bytes)
    axes = problem.mesh.axes
    placed = {slot: dict(zip(axes, tensor.layout, strict=True)) for slot, tensor in tensors.items()}
    return Inference(
        sides[0].op,
        problem.mesh,
        sides[0].grouped(placed),
        sides[1].grouped(placed),
        {axis: question.bound.rows[k].why for axis, k in zip(axes, rows, strict=True)},
        tuple(tensors.values()),
        len(results),
        problem,
    )


def _why_not_as_given(found: Inference) -> Explanation | None:
    """Ask for the given layouts as for pins, where nothing is resharded; None where each of them can be had."""
    asked, pins = found.question, []
    (node,) = asked.graph.nodes
    operands = len(found.tensors) - found.made
    uses = [use.name for use in asked.graph.operand_uses(node)]
    for number, tensor in enumerate(found.tensors):
        subject = uses[number] if number < operands else asked.graph.nodes[node].results[number - operands]
        for axis, placement in enumerate(tensor.given or ()):
            pins.append(Pin(subject, axis, placement, f"{tensor.name}:{asked.mesh.axes[axis]}={placement}"))
    strict = replace(asked, communication="frozen").with_pins(tuple(pins))
    try:
        told = tell(strict, find_core(strict))
    except FeasibleError:
        return None
    given = tuple(
        replace(fact, text=_as_given(fact.text, told.core), subject=_slot(fact.source))
        for fact in told.core
        if fact.kind == "pin"
    )
    steps = tuple(replace(step, text=_as_given(step.text, told.core)) for step in told.steps)
    told = replace(told, core=given, steps=steps, beside=())
    lines = [f"{found.op} cannot lie as it was given:", *told_once(given), *told.because()]
    return replace(told, answer="\n".join(lines))


def _slot(source: str) -> str:
    return source.rpartition(":")[0]


def _as_given(text: str, core: Sequence[Fact]) -> str:
    for fact in core:
        text = text.replace(f"you pinned {fact.subject!r} to", f"{_slot(fact.source)!r} is given as")
    return text


def _differences(first: Layout, second: Layout) -> int:
    return sum(one != other for one, other in zip(first, second, strict=True))


@dataclass(frozen=True)
class _Call:
    """One op on given shapes; equal calls share what is bound."""

    op: str
    shapes: tuple[Any, ...]
    dtypes: tuple[Any, ...]
    key: Any
    attrs: Mapping[str, Any] = field(compare=False)


def _read_call(op: Op, shapes: Any, attrs: Any, dtypes: Any) -> _Call:
    if not isinstance(attrs, Mapping | None):
        raise InferError(f"the attributes of {op.name} are {attrs!r}: write {{'axis': 0}}")
    given = {key: plain(value, f"attribute {key} of {op.name}") for key, value in (attrs or {}).items()}
    full = op.full_attrs(given)
    if op.forward is not None and not full["forward_shapes"]:
        read = {spec.name for spec in op.operands}
        if unread := [spec.name for spec in op.forward.operands if spec.name not in read and not spec.optional]:
            raise InferError(
                f"{op.name} does not read {unread[0]}: give the shapes of all forward operands, as "
                "attrs={'forward_shapes': (('" + unread[0] + "', (8, 4)), ...)}"
            )
    if not isinstance(shapes, tuple | list):
        raise InferError(f"the shapes of {op.name} are {shapes!r}: write a list, one each of its operands")
    return _Call(op.name, _hashable(shapes), _hashable(dtypes or ()), frozen(given), given)


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, Sequence) and not isinstance(value, str) else value


@lru_cache(maxsize=512)
def _graph(call: _Call) -> Graph:
    """Build the graph of one op, whose tensors are named like its slots."""
    op, graph = rule_for(call.op), Graph(call.op)
    if len(call.shapes) > len(op.operands):
        takes = ", ".join(spec.name for spec in op.operands) or "no operands"
        raise InferError(f"{call.op} takes {takes}, but shapes has {len(call.shapes)} entries")
    dtypes = [*call.dtypes, *[None] * (len(call.shapes) - len(call.dtypes))]
    operands: list[Any] = []
    for spec, shape, dtype in zip(op.operands, call.shapes, dtypes, strict=False):
        points = spec.name in ("index", "indices") or op.domain.get(spec.name, "unit") not in ("unit", "positive")
        usual = "int64" if points else "float32"
        if shape is None or not spec.variadic:
            operands.append(None if shape is None else graph.input(spec.name, shape, dtype or usual))
            continue
        each = dtype if isinstance(dtype, tuple) else (dtype,) * len(shape)
        pairs = enumerate(zip(shape, each, strict=False))
        operands.append([graph.input(f"{spec.name}.{i}", one, own or usual) for i, (one, own) in pairs])
    made = graph.op(call.op, *operands, name=call.op, **call.attrs)
    graph.output(*(made if isinstance(made, tuple) else (made,)))
    return graph


@lru_cache(maxsize=8)  # each holds a solver of Z3, which takes 20 MB
def _question(
    call: _Call, mesh: Mesh, capabilities: frozenset[str], named_kinds: tuple[str, ...], on_parts: bool
) -> OneOp:
    """Write the constraints of one op, once for all layouts that are asked about."""
    graph = _graph(call)
    whole = Refinement({tensor.name: one_part(tensor.shape) for tensor in graph.tensors.values()})
    refinement = refine(graph) if on_parts else whole
    bound = bind_refined(graph, refinement.parts, capabilities)
    made = {factor.kind for rule in bound.values() for factor in rule.factors.values()}
    kinds = tuple(kind for kind in PARTIAL_KINDS if kind == "sum" or kind in made or kind in named_kinds)
    return OneOp(Problem(graph, mesh, (), "any", capabilities, bound, refinement, kinds, ()))
