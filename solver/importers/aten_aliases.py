"""Writing in place: the tensor that is written to, and every view that shares its memory, get new values.

A graph has no memory, so a node that writes makes a new tensor. From there on its target stands for that tensor, what
the target is a view of stands for itself with the new values in their place, and other views of it are taken anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from solver.importers.aten_site import Lowering, Site
from solver.importers.aten_views import VIEWS
from solver.importers.capture import CapturedNode, Ref
from solver.importers.sketch import Value

_RENAMING = {
    f"aten.{name}"
    for name in (
        "alias.default",
        "detach.default",
        "view.default",
        "_unsafe_view.default",
        "reshape.default",
        "flatten.using_ints",
        "squeeze.default",
        "squeeze.dim",
        "squeeze.dims",
        "unsqueeze.default",
    )
}
_REORDERING = {"aten.t.default", "aten.transpose.int", "aten.permute.default"}
_PARTS = {"aten.slice.Tensor": "aten.slice_scatter.default", "aten.select.int": "aten.select_scatter.default"}
_OTHERS = {
    "aten.expand.default",
    "aten.split.Tensor",
    "aten.split_with_sizes.default",
    "aten.chunk.default",
    "aten.unbind.int",
    "aten.as_strided.default",
}
_SHARING = _RENAMING | _REORDERING | _PARTS.keys() | _OTHERS
"""Ops whose results lie in the memory of their first argument."""


def functional(op: str) -> str:
    """Return the overload that computes what one in place writes; the name itself where it writes nothing.

    Examples
    --------
    >>> functional("aten.add_.Tensor"), functional("aten.__and__.Tensor")
    ('aten.add.Tensor', 'aten.__and__.Tensor')
    """
    namespace, _, rest = op.partition(".")
    name, _, overload = rest.partition(".")
    if not name.endswith("_") or name.endswith("__"):
        return op
    return f"{namespace}.{name[:-1]}.{overload}"


class Aliases:
    """Which nodes of a capture share memory.

    Parameters
    ----------
    scope : dict
        Node -> its value at this point.
    lower : callable
        Lowers a node at this point.
    site : callable
        Makes the site of a node.
    """

    def __init__(
        self,
        scope: dict[str, Any],
        lower: Callable[[CapturedNode], Any],
        site: Callable[[CapturedNode], Site],
    ) -> None:
        self._scope, self._lower, self._site = scope, lower, site
        self._views: dict[str, CapturedNode] = {}
        self._children: dict[str, list[CapturedNode]] = {}

    def share(self, node: CapturedNode) -> None:
        """Take note of a node whose result lies in the memory of another one."""
        shares = node.op in _SHARING or (node.op == "getitem" and node.args[0].name in self._views)
        if shares and node.args and isinstance(node.args[0], Ref):
            self._views[node.name] = node
            self._children.setdefault(node.args[0].name, []).append(node)

    def write(self, node: CapturedNode, value: Value) -> None:
        """Let the first argument of a node, and what shares its memory, stand for new values."""
        if not node.args or not isinstance(node.args[0], Ref):
            raise self._site(node).refuse("it writes in place, and its first argument is no tensor")
        name, written = node.args[0].name, set()
        while True:
            self._scope[name] = value
            written.add(name)
            view = self._views.get(name)
            if view is None:
                break
            name, value = view.args[0].name, self._put_back(node, view, value)
        self._refresh(name, written)

    def _refresh(self, name: str, written: set[str]) -> None:
        """Take the views of a node anew."""
        for view in self._children.get(name, ()):
            if view.name not in written:
                self._scope[view.name] = self._lower(view)
            self._refresh(view.name, written)

    def _put_back(self, node: CapturedNode, view: CapturedNode, value: Value) -> Value:
        """Return what a view is a view of, with new values where the view lies."""
        site, base = self._site(view), self._scope[view.args[0].name]
        if view.op in _RENAMING:
            return site.reshape(value, base.shape)
        if view.op in _REORDERING:
            order = _order(view, len(base.shape))
            return site.transpose(value, [order.index(dim) for dim in range(len(order))])
        if view.op in _PARTS:
            scatter: Lowering = VIEWS[_PARTS[view.op]]
            made = scatter(site, base, value, *view.args[1:], **_dims(view.kwargs))
            assert isinstance(made, Value)
            return made
        raise self._site(node).refuse(f"it writes into {view.name!r}, a part of {view.args[0].name!r} by {view.op}")


def _order(view: CapturedNode, rank: int) -> list[int]:
    """Return the order of dims that a transposing node makes."""
    order = list(range(rank))
    if view.op == "aten.permute.default":
        return [dim % rank for dim in view.args[1]]
    first, second = (0, rank - 1) if view.op == "aten.t.default" else (dim % rank for dim in view.args[1:3])
    order[first], order[second] = order[second], order[first]
    return order


def _dims(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return {key: kwargs[key] for key in ("dim", "start", "end", "step", "index") if key in kwargs}
