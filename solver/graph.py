"""A network: named tensors, the ops between them, and what leaves it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, NamedTuple

import networkx as nx
from numpy.typing import NDArray

from ops.bind import BoundRule
from ops.notation import RuleError
from ops.registry import rule_for
from solver.graph_digraph import digraph_of
from solver.graph_operands import check_uses, operand_names
from solver.graph_ties import check_gradient, check_order, check_repeat, check_tie
from solver.graph_values import (
    GraphError,
    Node,
    Place,
    Role,
    Shape,
    Signature,
    Tensor,
    Use,
    checked_array,
    checked_dtype,
    checked_name,
    checked_shape,
    flat,
    per_operand,
    plain,
    signature_of,
)

__all__ = ["Graph", "GraphError", "Node", "Tensor", "Use", "flat"]


class _Inferred(NamedTuple):
    """What all ops of one signature share: the rule, and name, shape and dtype of each result slot."""

    bound: BoundRule
    results: tuple[tuple[str, Shape, str], ...]


class Graph:
    """A network under construction, in program order.

    Parameters
    ----------
    name : str, optional

    Examples
    --------
    >>> g = Graph("mlp")
    >>> x = g.input("x", (32, 64))
    >>> w = g.parameter("w", (64, 16))
    >>> y = g.op("matmul", x, w, name="y")
    >>> g.output(y)
    >>> str(y), [use.name for use in g.uses("w")]
    ('y float32[32, 16]', ['y/y'])
    >>> g.op("matmul", w, x, name="z")
    Traceback (most recent call last):
    solver.graph_values.GraphError: op 'z' (matmul) does not fit w float32[64, 16], x float32[32, 64]: factor 'k' ...
    """

    def __init__(self, name: str = "graph") -> None:
        self.name = name
        self.tensors: dict[str, Tensor] = {}
        self.nodes: dict[str, Node] = {}
        self.outputs: list[str] = []
        self.ties: dict[str, str] = {}
        """Follower -> leader."""
        self.gradients: dict[str, str] = {}
        """Final gradient -> its parameter."""
        self.repeats: dict[str, str] = {}
        """Op -> the op whose layouts it takes."""
        self.notes: list[str] = []
        """What an importer changed on the way in, a sentence each."""
        self._signatures: dict[str, Signature] = {}
        self._inferred: dict[Signature, _Inferred] = {}
        self._bound: dict[tuple[Any, ...], BoundRule] = {}
        self._counts: dict[str, int] = {}
        self._uses: dict[str, list[Use]] = {}
        self._readers: dict[str, list[Use]] = {}
        self._digraph: nx.MultiDiGraph | None = None
        self._leaving: set[str] = set()

    def __repr__(self) -> str:
        return f"Graph({self.name!r}: {len(self.nodes)} ops, {len(self.tensors)} tensors, {len(self.outputs)} outputs)"

    # ------------------------------------------------------------------------------------------------------ building

    def input(self, name: str, shape: Sequence[int], dtype: str = "float32") -> Tensor:
        """Add a tensor that comes with every step: data.

        Raises
        ------
        GraphError
            For a name already taken, a dtype that is unknown, or a size below 1.
        """
        return self._source(name, shape, dtype, "input")

    def parameter(self, name: str, shape: Sequence[int], dtype: str = "float32") -> Tensor:
        """Add a tensor that is learned and stored: a weight. Raises as `input` does."""
        return self._source(name, shape, dtype, "parameter")

    def state(self, name: str, shape: Sequence[int], dtype: str = "float32") -> Tensor:
        """Add a tensor that is stored but not learned: running statistics, optimizer state. Raises as `input` does."""
        return self._source(name, shape, dtype, "state")

    def constant(self, name: str, value: Any, dtype: str | None = None) -> Tensor:
        """Add a tensor of known values.

        Parameters
        ----------
        name : str
        value : array_like
            Copied.
        dtype : str, optional
            Where the tensor has a dtype that numpy lacks (``bfloat16``); that of the array otherwise.

        Raises
        ------
        GraphError
            As `input` does, and for rows of unequal length, and values that a dtype of whole numbers cannot hold.
        """
        array = checked_array(value, dtype, f"constant {checked_name(name)!r}")
        array.flags.writeable = False
        return self._source(name, array.shape, dtype or str(array.dtype), "constant", array)

    def op(self, type: str, /, *operands: Any, name: str | None = None, module: str = "", **attrs: Any) -> Any:
        """Add an op on tensors of this graph.

        Parameters
        ----------
        type : str
            The name in the registry of ops.
        *operands : Tensor, list of Tensor, or None
            In the order of the rule; a list for a variadic operand, None for an absent one. Absent ones at the end
            may be left out.
        name : str, optional
            By default ``matmul_1``, ``matmul_2``, ...
        module : str, optional
            Where in the model it stands.
        **attrs
            The attributes of the op.

        Returns
        -------
        Tensor or tuple of Tensor
            A tensor named like the op where it has one result, else a tuple named ``op.result``.

        Raises
        ------
        GraphError
            Where op, operands, shapes or attributes do not fit, or a name is taken.
        """
        if not isinstance(type, str):
            raise GraphError(f"{type!r} is no name of an op: give a text, as 'matmul'")
        name = self._auto_name(type) if name is None else checked_name(name)
        node = Node(name, type, (), (), {}, module)
        if name in self.nodes:
            raise GraphError(f"{node}: graph {self.name!r} has an op {name!r} already; choose another name")
        try:
            rule_for(type)
        except RuleError as error:
            raise GraphError(f"{node}: {error}") from error
        given = {key: plain(value, Place("attribute", key, node)) for key, value in attrs.items()}
        names = operand_names(node, operands, self._own)
        node = Node(name, type, names, (), given, module)
        signature = signature_of(node, self.tensors)
        inferred = self._infer(node, signature)
        made = self._results(node, inferred.results)
        self._signatures[name] = signature
        results = tuple(tensor.name for tensor in made)
        self._add_node(Node(name, type, names, results, given, module), inferred.bound, made)
        return made[0] if len(made) == 1 else made

    def output(self, *tensors: Tensor) -> None:
        """Mark tensors as leaving the graph.

        Raises
        ------
        GraphError
            For a tensor that is none, belongs to another graph, or is an output already.
        """
        for tensor in tensors:
            self._own(tensor, f"output of graph {self.name!r}")
            if tensor.name in self._leaving:
                raise GraphError(f"{tensor.name!r} is an output of graph {self.name!r} already")
            self.outputs.append(tensor.name)
            self._leaving.add(tensor.name)

    def tie(self, follower: Tensor, leader: Tensor) -> None:
        """Let one tensor lie as another is stored (docs/semantics.md, section 2).

        Parameters
        ----------
        follower : Tensor
            An input, parameter or state: its storage is that of the leader. Or an output that an op makes, as a new
            parameter or state: it is delivered in the storage layout of the leader.
        leader : Tensor
            An input, parameter or state of the same shape.

        Raises
        ------
        GraphError
            For tensors that cannot be tied, and a follower that has a leader already.

        Examples
        --------
        >>> g = Graph()
        >>> w, m = g.parameter("w", (4, 4)), g.state("m", (4, 4))
        >>> new = g.op("add", w, m, name="new_w")
        >>> g.output(new)
        >>> g.tie(m, w)
        >>> g.tie(new, w)
        >>> g.ties
        {'m': 'w', 'new_w': 'w'}
        """
        names = self._own(follower, "follower of a tie"), self._own(leader, "leader of a tie")
        check_tie(self, *names)
        self.ties[names[0]] = names[1]

    def gradient(self, tensor: Tensor, of: Tensor) -> None:
        """Mark a result as the final gradient of a parameter: its reshards pay their latency per bucket.

        Raises
        ------
        GraphError
            Where one is no result, the other no parameter, they differ in shape, or one has its match already.
        """
        names = self._own(tensor, "gradient"), self._own(of, "parameter of a gradient")
        check_gradient(self, *names)
        self.gradients[names[0]] = names[1]

    def repeat(self, node: str, of: str) -> None:
        """Let an op lie as another one does, as in the next trip of a loop (docs/semantics.md, section 2).

        Parameters
        ----------
        node, of : str
            Names of equal ops; attributes that do not change the rows, as where a slice starts, may differ.

        Raises
        ------
        GraphError
            Where one is no op, they are not equal, or the first one repeats another op already.
        """
        check_repeat(self, node, of)
        self.repeats[node] = of

    # ------------------------------------------------------------------------------------------------------- reading

    def uses(self, tensor: str) -> list[Use]:
        """Return the uses of a tensor, in program order; being an output is no use in this list."""
        if not isinstance(tensor, str) or tensor not in self.tensors:
            raise GraphError(f"graph {self.name!r} has no tensor {tensor!r}")
        return list(self._readers[tensor])

    def is_output(self, tensor: str) -> bool:
        """Tell whether a tensor leaves the graph."""
        return tensor in self._leaving

    def operand_uses(self, node: str) -> list[Use]:
        """Return the uses that an op makes, by slot; absent operands are left out."""
        self._known(node)
        return list(self._uses[node])

    @property
    def digraph(self) -> nx.MultiDiGraph:
        """Nodes ``("op", name)`` and ``("tensor", name)`` with ``payload`` a `Node` or `Tensor`; an edge from a tensor
        to an op has ``payload`` a `Use`, one from an op to a tensor the result slot. It is written when asked for.
        """
        if self._digraph is None:
            self._digraph = digraph_of(self)
        return self._digraph

    @property
    def unused(self) -> list[str]:
        """Inputs, parameters, states and constants that no op reads and that are no output: worth a warning."""
        sources = (tensor.name for tensor in self.tensors.values() if tensor.producer is None)
        return [name for name in sources if name not in self._leaving and not self.uses(name)]

    def bind(
        self,
        node: str,
        factor_parts: Mapping[str, tuple[int, ...]] | None = None,
        capabilities: frozenset[str] | None = None,
    ) -> BoundRule:
        """Bind the rule of an op to the shapes of its operands; equal ops share one `BoundRule`.

        Parameters
        ----------
        node : str
        factor_parts : mapping, optional
            Factor -> the parts it may be cut on, as `solver.parts` finds them.
        capabilities : frozenset of str, optional
            What the runtime can do; rows that need more are left out. None leaves all.
        """
        self._known(node)
        signature = self._signatures[node]
        if not factor_parts and capabilities is None:
            return self._inferred[signature].bound
        key = (signature, tuple(sorted((factor_parts or {}).items())), capabilities)
        if key not in self._bound:
            bound = self._bind(self.nodes[node], factor_parts or {})
            if capabilities is not None:
                bound = replace(bound, rows=tuple(row for row in bound.rows if row.needs <= capabilities))
            self._bound[key] = bound
        return self._bound[key]

    def validate(self) -> None:
        """Hold the graph against what building alone cannot see.

        Raises
        ------
        GraphError
            Where nothing leaves the graph, an op repeats a later one, or a use (``op/operand``) is called as a tensor.
        """
        check_order(self)
        check_uses((use for uses in self._uses.values() for use in uses), self.tensors)
        if not self.outputs:
            raise GraphError(f"graph {self.name!r} has no output: call output(tensor) on what it is to compute")

    def to_json(self) -> dict[str, Any]:
        """Return the graph as plain JSON values; `from_json` gives an equal graph."""
        from solver.graph_json import write

        return write(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | str) -> Graph:
        """Build a graph from what `to_json` gave, or from its text.

        Raises
        ------
        GraphError
            Where it is no such JSON, has a cycle, or is wrong as a graph built by hand can be.
        """
        from solver.graph_json import read

        return read(data, cls)

    # ------------------------------------------------------------------------------------------------------ the parts

    def _source(
        self, name: str, shape: Sequence[int], dtype: str, role: Role, value: NDArray[Any] | None = None
    ) -> Tensor:
        where = f"{role} {checked_name(name)!r}"
        self._check_free(name, where)
        tensor = Tensor(name, checked_shape(shape, where), checked_dtype(dtype, where), role, value=value)
        self._add_tensor(tensor)
        return tensor

    def _add_tensor(self, tensor: Tensor) -> None:
        self.tensors[tensor.name] = tensor
        self._readers[tensor.name] = []
        self._digraph = None

    def _add_node(self, node: Node, bound: BoundRule, results: Sequence[Tensor]) -> None:
        self.nodes[node.name] = node
        self._uses[node.name] = [
            Use(node.name, slot.name, index, tensor)
            for index, (slot, tensor) in enumerate(zip(bound.operands, flat(node.operands), strict=True))
            if slot is not None and tensor is not None
        ]
        for use in self._uses[node.name]:
            self._readers[use.tensor].append(use)
        for tensor in results:
            self._add_tensor(tensor)

    def _infer(self, node: Node, signature: Signature) -> _Inferred:
        """Bind a new node without parts, and find what its results are."""
        if signature not in self._inferred:
            try:
                bound = self._bind(node, {})
                given = per_operand(node, self.tensors, attrgetter("dtype"))
                dtypes = rule_for(node.op).infer_dtypes(given, node.attrs, len(bound.results))
            except (ValueError, TypeError, LookupError, ArithmeticError) as error:
                read = ", ".join(str(self.tensors[name]) for name in flat(node.operands) if name is not None)
                raise GraphError(f"{node} does not fit {read or 'no operands'}: {_told(error)}") from error
            results = tuple(
                (slot.name, checked_shape(slot.shape, place), checked_dtype(dtype, place))
                for slot, dtype in zip(bound.results, dtypes, strict=True)
                for place in [Place("result", slot.name, node)]
            )
            self._inferred[signature] = _Inferred(bound, results)
        return self._inferred[signature]

    def _results(self, node: Node, facts: Sequence[tuple[str, Shape, str]]) -> tuple[Tensor, ...]:
        made = []
        for index, (slot, shape, dtype) in enumerate(facts):
            name = node.name if len(facts) == 1 else f"{node.name}.{slot}"
            self._check_free(name, Place("result", slot, node))
            made.append(Tensor(name, shape, dtype, "result", node.name, index))
        return tuple(made)

    def _bind(self, node: Node, factor_parts: Mapping[str, tuple[int, ...]]) -> BoundRule:
        shapes, dtypes = (per_operand(node, self.tensors, attrgetter(fact)) for fact in ("shape", "dtype"))
        return rule_for(node.op).bind(shapes, node.attrs, factor_parts, dtypes)

    def _own(self, tensor: Any, where: str | Place) -> str:
        if not isinstance(tensor, Tensor):
            raise GraphError(f"{where} is {tensor!r}: make a tensor with input, parameter, state, constant or op")
        if self.tensors.get(tensor.name) is not tensor:
            raise GraphError(f"{where} is {tensor.name!r} of another graph: use a tensor of graph {self.name!r}")
        return tensor.name

    def _known(self, node: str) -> None:
        if not isinstance(node, str) or node not in self.nodes:
            raise GraphError(f"graph {self.name!r} has no op {node!r}")

    def _auto_name(self, type: str) -> str:
        while True:
            self._counts[type] = self._counts.get(type, 0) + 1
            name = f"{type}_{self._counts[type]}"
            if name not in self.nodes and name not in self.tensors:
                return name

    def _check_free(self, name: str, where: str | Place) -> None:
        if name in self.tensors:
            raise GraphError(f"{where}: graph {self.name!r} has a tensor {name!r} already; choose another name")


def _told(error: Exception) -> str:
    """Tell what an op says against its operands; what is no sentence of its own is told with its type."""
    return str(error) if isinstance(error, RuleError) else f"{type(error).__name__}: {error}"
