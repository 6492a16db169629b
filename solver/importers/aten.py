"""aten ops, as PyTorch traces them, lowered to ours: a capture becomes a graph, without PyTorch.

Each overload is a row of a table: its name, and a function with the parameters of the overload that writes our ops. The
tables are the modules ``aten_*``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from solver.garbage import collecting_later
from solver.graph import Graph
from solver.importers.aten_aliases import Aliases, functional
from solver.importers.aten_creation import CREATION
from solver.importers.aten_grids import GRIDS
from solver.importers.aten_images import IMAGES
from solver.importers.aten_indexing import INDEXING
from solver.importers.aten_losses import LOSSES
from solver.importers.aten_norms import NORMS
from solver.importers.aten_pointwise import POINTWISE
from solver.importers.aten_products import PRODUCTS
from solver.importers.aten_reductions import REDUCTIONS
from solver.importers.aten_site import Lowering, Result, Saved, Site, alike, signature_of, told
from solver.importers.aten_strided import STRIDED
from solver.importers.aten_views import VIEWS
from solver.importers.capture import (
    BUFFER,
    GRADIENT,
    MUTATION,
    PARAMETER,
    RESULT,
    TANGENT,
    Capture,
    CapturedNode,
    Ref,
    Spec,
)
from solver.importers.errors import ImporterError, UnsupportedNodeError
from solver.importers.sketch import Sketch, Value

TABLE: dict[str, Lowering] = {
    **VIEWS,
    **POINTWISE,
    **PRODUCTS,
    **NORMS,
    **LOSSES,
    **REDUCTIONS,
    **INDEXING,
    **CREATION,
    **IMAGES,
    **GRIDS,
    **STRIDED,
}
"""Overload -> its lowering."""

_STRUCTURE = ("placeholder", "getitem", "output")
_IDLE = frozenset({"device", "layout", "pin_memory", "non_blocking"})
"""Arguments that say where memory lies, which is no matter of layout."""
_ROLES: dict[str, Any] = {PARAMETER: "weight", BUFFER: "state"}
_WRAPPER = "m."
"""What a capture that does not say what its outputs are puts before every name: it wraps the module."""
_LISTED = 8
"""Of more names than this a note lists the first ones."""


@collecting_later()
def lower(capture: Capture) -> Graph:
    """Lower a capture to a graph of our ops.

    Parameters
    ----------
    capture : Capture

    Returns
    -------
    Graph
        Parameters, buffers (as states) and inputs carry their names in the module; a result that of its node.
        Gradients, and new values of buffers, are outputs that lie as their parameter or buffer is stored. `Graph.notes`
        say what was folded.

    Raises
    ------
    UnsupportedNodeError
        For ops that have no lowering, all of them, with the line that would add each; and for a node that asks for what
        no op here does.
    """
    unknown = _unknown(capture)
    if unknown:
        raise UnsupportedNodeError(unknown)
    return _Reading(capture).run()


def lowering_of(op: str) -> Lowering:
    """Return the lowering of an overload; one in place computes what it writes.

    Raises
    ------
    KeyError
        Where there is none.
    """
    return TABLE[op] if op in TABLE else TABLE[functional(op)]


class _Reading:
    """One pass over a capture."""

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self.sketch = Sketch(capture.model)
        self.scope: dict[str, Any] = {}
        self.folded: list[str] = []
        self.views: dict[Any, tuple[Value, ...]] = {}
        self.sources: dict[str, Value] = {}
        self.aliases = Aliases(self.scope, self._value, self._site)
        named = [node.target for node in capture.nodes if node.role in _ROLES and node.target]
        wrapped = named and not capture.nodes[-1].outs and all(name.startswith(_WRAPPER) for name in named)
        self.prefix = _WRAPPER if wrapped else ""

    def run(self) -> Graph:
        """Read every node, and write down what the outputs need."""
        for node in self.capture.nodes:
            if node.op == "placeholder":
                self.scope[node.name] = self._source(node)
            elif node.op == "output":
                self._outputs(node)
            else:
                with self._telling(node):
                    self.scope[node.name] = made = self._value(node)
                    self.aliases.share(node)
                    if isinstance(made, Value) and functional(node.op) != node.op:
                        self.aliases.write(node, made)
        try:
            graph, _ = self.sketch.to_graph()
        except ValueError as error:
            raise UnsupportedNodeError(f"{self.capture.model} cannot be written as a graph: {error}") from error
        graph.notes += [*self.capture.notes, *self._notes(graph)]
        return graph

    # ------------------------------------------------------------------------------------------------------- the ends

    def _source(self, node: CapturedNode) -> Value:
        assert isinstance(node.val, Spec)
        name = node.target.removeprefix(self.prefix) if node.role in _ROLES else node.target
        twin = next(
            (one for one, at in self.sources.items() if at.role in ("weight", "state") and at.name == name), None
        )
        if node.role in _ROLES and node.target and twin:
            raise UnsupportedNodeError(
                f"{node}: its target {node.target!r} is that of {twin!r} too: a tensor that is used in two places has "
                "one placeholder"
            )
        value = Value(node.val.shape, node.val.dtype, _ROLES.get(node.role, "input"), name or node.name)
        if node.role == TANGENT and not node.val.shape:
            value.role, value.data = "known", np.ones((), np.float32)
        elif value.role == "input":
            self.sketch.inputs.append(value)
        self.sources[node.name] = value
        return value

    def _outputs(self, node: CapturedNode) -> None:
        entries = node.args[0] if len(node.args) == 1 and isinstance(node.args[0], list) else list(node.args)
        for entry, (role, of) in zip(entries, self._output_roles(node, entries), strict=True):
            if entry is None:
                continue
            value, source = self._output(entry, node), self.sources.get(of)
            if role == MUTATION and value is source:
                continue
            if role == GRADIENT and source is not None and source.role == "weight":
                self.sketch.gradients[len(self.sketch.outputs)] = source
            elif role == MUTATION and source is not None:
                self.sketch.ties[len(self.sketch.outputs)] = source
            self.sketch.outputs.append(("", value))
        for name, source in self.sources.items():
            if source.role == "state" and self.scope[name] is not source:
                self.sketch.ties[len(self.sketch.outputs)] = source
                self.sketch.outputs.append(("", self.scope[name]))

    def _output(self, entry: Any, node: CapturedNode) -> Value:
        found = self.scope[entry.name] if isinstance(entry, Ref) else None
        if isinstance(found, Saved) and found.make is not None:
            found = found.make()
        if not isinstance(found, Value):
            raise UnsupportedNodeError(
                f"{node}: its output {told(entry.name if isinstance(entry, Ref) else entry)} is no tensor here"
            )
        return found

    def _output_roles(self, node: CapturedNode, entries: Sequence[Any]) -> Sequence[tuple[str, str]]:
        """Say what each output is; by the order of the format where the capture does not."""
        if node.outs:
            if len(node.outs) != len(entries):
                raise UnsupportedNodeError(
                    f"{node}: it says of {len(node.outs)} outputs what they are, and has {len(entries)}"
                )
            known = {one.name for one in self.capture.nodes if one.op in ("placeholder", "constant")}
            for role, of in node.outs:
                if role != RESULT and of not in known:
                    raise UnsupportedNodeError(f"{node}: an output is the {role} of {of!r}, which is no placeholder")
            return node.outs
        places = [one for one in self.capture.nodes if one.op == "placeholder"]
        owners = [one.name for one in places if one.role != TANGENT]
        if len(owners) == len(places):
            owners = []
        front = len(entries) - len(owners)
        if front < 0:
            raise UnsupportedNodeError(
                f"{node}: it has {len(entries)} outputs, fewer than the {len(owners)} placeholders that have a place "
                "for a gradient each"
            )
        late = {one.name for one in self.capture.nodes if one.backward} if owners else set()
        odd = [one.name for one in entries[:front] if isinstance(one, Ref) and one.name in late]
        if odd:
            raise UnsupportedNodeError(
                f"{node}: it has more gradients than the {len(owners)} placeholders that have a place for one each: "
                f"{odd[0]!r} stands among the results of the forward pass, and is made in the backward pass"
            )
        return [(RESULT, "")] * front + [(GRADIENT, name) for name in owners]

    # ------------------------------------------------------------------------------------------------------ the nodes

    def _value(self, node: CapturedNode) -> Any:
        """What a node gives, read at this point."""
        return self._item(node) if node.op == "getitem" else self._lowered(node)

    def _site(self, node: CapturedNode) -> Site:
        return Site(node, self.sketch, self.folded, self.views)

    def _item(self, node: CapturedNode) -> Any:
        if len(node.args) != 2 or not isinstance(node.args[0], Ref):
            raise UnsupportedNodeError(f"{node}: getitem takes (a node, an index), and is given {told(node.args)}")
        several, index = self._argument(node.args[0], node), node.args[1]
        count = len(several) if isinstance(several, list | tuple) else 0
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < count:
            raise UnsupportedNodeError(
                f"{node}: it asks for result {told(index)} of {node.args[0]!r}, which has "
                + (f"{count} results, counted from 0" if count else "no several results")
            )
        return several[index]

    def _lowered(self, node: CapturedNode) -> Result:
        site = self._site(node)
        args = [self._argument(arg, node) for arg in node.args]
        kwargs = {key: self._argument(arg, node) for key, arg in node.kwargs.items() if key not in _IDLE}
        with self._telling(node):
            made = lowering_of(node.op)(site, *args, **kwargs)
        if isinstance(made, Value):
            return self._finished(site, made, node.val, node.name)
        if isinstance(made, list | tuple):
            specs = node.val if isinstance(node.val, tuple) else (None,) * len(made)
            return [
                self._finished(site, one, spec, f"{node.name}.{index}") if isinstance(one, Value) else one
                for index, (one, spec) in enumerate(zip(made, specs, strict=False))
            ]
        return made

    @contextmanager
    def _telling(self, node: CapturedNode) -> Iterator[None]:
        """Say of whatever fails in here that the arguments of the node do not fit its op."""
        try:
            yield
        except ImporterError:
            raise
        except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
            takes = "(a node, an index)" if node.op == "getitem" else signature_of(lowering_of(node.op))
            given = [told(self._argument(arg, node)) for arg in node.args]
            given += [f"{key}={told(self._argument(arg, node))}" for key, arg in node.kwargs.items()]
            raise UnsupportedNodeError(
                f"{node}: its arguments do not fit {node.op}: it takes {takes}, and is given ({', '.join(given)})"
            ) from error

    def _argument(self, arg: Any, node: CapturedNode) -> Any:
        if isinstance(arg, Ref):
            found = self.scope[arg.name]
            if found is None:
                raise UnsupportedNodeError(f"{node}: it reads {arg.name!r}, which is no tensor")
            return found
        return [None if one is None else self._argument(one, node) for one in arg] if isinstance(arg, list) else arg

    @staticmethod
    def _finished(site: Site, value: Value, spec: Any, name: str) -> Value:
        """Hold a result against what the capture says of it, and name it."""
        if isinstance(spec, Spec):
            if value.shape != spec.shape:
                raise site.refuse(f"it is lowered to shape {value.shape}, and the capture says {spec.shape}")
            if not alike(value.dtype, spec.dtype):
                raise site.refuse(f"it is lowered to dtype {value.dtype}, and the capture says {spec.dtype}")
            value = site.cast(value, spec.dtype)
        if not value.name and (value.maker is None or len(value.maker.results) == 1):
            value.name = name
        return value

    def _notes(self, graph: Graph) -> Iterator[str]:
        if self.folded:
            yield f"folded into constants: {_some(self.folded)}"
        written = {tensor.name for tensor in graph.tensors.values()}
        idle = [value.name for value in self.sources.values() if value.role != "known" and value.name not in written]
        if idle:
            yield f"left out, as nothing reads them: {_some(idle)}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


def _unknown(capture: Capture) -> str:
    """Say which ops have no lowering, and the line that would add each; empty where there are none."""
    first: dict[str, CapturedNode] = {}
    known = {*TABLE, *_STRUCTURE}
    counts = Counter(node.op for node in capture.nodes if not known & {node.op, functional(node.op)})
    for node in capture.nodes:
        if node.op in counts:
            first.setdefault(node.op, node)
    told = []
    for op, node in first.items():
        times = f", {counts[op]} times" if counts[op] > 1 else ""
        own = op.split(".")[1] if "." in op else op
        told.append(
            f"{op} at {node.name!r}{f' in module {node.module!r}' if node.module else ''}{times}: "
            f'aten.TABLE["{op}"] = lambda site, x: site.emit("{own}", x)'
        )
    if not told:
        return ""
    return (
        f"{capture.model} has {len(told)} {'ops' if len(told) > 1 else 'op'} without a lowering; add a row to the "
        f"table of solver.importers.aten for each, by an op of ours or by one declared with "
        f'ops.replicate_only("name", "x[a*] -> out[a*]", kernel=...): {"; ".join(told)}'
    )
