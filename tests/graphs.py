"""Tiny graphs: some by hand, each with its point, and a strategy of random ones with meshes and wishes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias

import numpy as np
from hypothesis import strategies as st

from ops import names
from ops.placement import Partial, Placement, Replicate, Shard
from solver.graph import Graph, Tensor
from solver.mesh import Mesh
from solver.parts import refine
from solver.problem import CAPABILITIES
from tests.graph_relations import draw_repeats, draw_ties
from tests.kernel_growth import KERNEL_SHAPES, LARGEST, loss, moved, windowed

# Links so slow and so quick that now latency decides, now bandwidth, now computing. No number divides another.
HARDWARE: dict[str, dict[str, Any]] = {
    name: {
        "name": name,
        "peak": {"float32": peak},
        "memory_bandwidth": memory,
        "memory": 10**9,
        "node_size": 4,
        "inside": {"bandwidth": inside, "latency": latency},
        "network": {"bandwidth": network, "latency": 3 * latency, "ring": ring},
    }
    for name, peak, memory, inside, network, latency, ring in [
        ("latency", 10**13, 3 * 10**12, 7 * 10**11, 3 * 10**11, 100_000, False),
        ("bandwidth", 10**12, 9 * 10**11, 11 * 10**10, 4 * 10**10, 13, True),
        ("compute", 2 * 10**10, 10**11, 10**12, 7 * 10**11, 41, False),
    ]
}

ROUND = {
    "name": "round",
    "peak": {"float32": 10**12},
    "memory_bandwidth": 10**12,
    "memory": 10**9,
    "node_size": 64,
    "inside": {"bandwidth": 10**11, "latency": 10**6},
    "network": {"bandwidth": 10**10, "latency": 10**7},
}
"""The hardware of the examples in docs/semantics.md: a byte takes 10 ps on a link and 1 ps in memory."""


@dataclass
class Case:
    """A graph, a mesh and wishes."""

    graph: Graph
    mesh: Mesh
    pins: dict[str, dict[str, Placement]] = field(default_factory=dict)
    communication: str = "any"
    capabilities: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        lines = [
            f"{tensor.role} {tensor.name}{list(tensor.shape)} {tensor.dtype}"
            for tensor in self.graph.tensors.values()
            if tensor.producer is None
        ]
        lines += [
            f"{', '.join(node.results)} = {node.op}{node.operands} {dict(node.attrs)} -> "
            + ", ".join(str(list(self.graph.tensors[result].shape)) for result in node.results)
            for node in self.graph.nodes.values()
        ]
        wishes = "; ".join(
            f"{name}: {', '.join(f'{a}={p}' for a, p in pin.items())}" for name, pin in self.pins.items()
        )
        mesh = ",".join(f"{axis}={size}" for axis, size in zip(self.mesh.axes, self.mesh.sizes, strict=True))
        lines += [
            f"outputs {self.graph.outputs}, ties {self.graph.ties}, gradients {self.graph.gradients}",
            f"mesh {mesh} {self.mesh.hardware.name}, {self.communication}, pins {wishes}",
        ]
        return "\n".join(["", *lines])


# ------------------------------------------------------------------------------------------------------------ by hand


def mlp() -> Graph:
    """Two matmuls with something between them that no partial passes."""
    g = Graph("mlp")
    hidden = g.op("matmul", g.input("x", (8, 4)), g.parameter("w1", (4, 8)), name="h")
    out = g.op("matmul", g.op("relu", hidden, name="a"), g.parameter("w2", (8, 4)), name="y")
    g.output(out)
    return g


def biased() -> Graph:
    """A bias after a product whose contracted index may be cut: reduced before, or the bias partial, never wrong."""
    g = Graph("biased")
    product = g.op("matmul", g.input("x", (4, 8)), g.parameter("w", (8, 4)), name="p")
    g.output(g.op("add", product, g.parameter("b", (4,)), name="y"))
    return g


def flattened() -> Graph:
    """(batch, sequence) flattened, multiplied and split again: with parts the cut survives."""
    g = Graph("flattened")
    x = g.input("x", (2, 4, 6))
    flat = g.op("reshape", x, shape=[8, 6], name="flat")
    product = g.op("matmul", flat, g.parameter("w", (6, 3)), name="p")
    g.output(g.op("reshape", product, shape=[2, 4, 3], name="y"))
    return g


def squared() -> Graph:
    """One tensor in both slots of one op: two uses."""
    g = Graph("squared")
    x = g.op("relu", g.input("x", (4, 4)), name="a")
    g.output(g.op("matmul", x, x, name="y"))
    return g


def shared() -> Graph:
    """One sum that several ops need whole: a shared copy is paid once."""
    g = Graph("shared")
    total = g.op("matmul", g.input("x", (4, 8)), g.parameter("w", (8, 4)), name="p")
    g.output(*(g.op(op, total, name=op) for op in ("relu", "exp", "tanh")))
    return g


def diamond() -> Graph:
    """Two ways from one tensor meet again."""
    g = Graph("diamond")
    x = g.input("x", (4, 6))
    left = g.op("relu", x, name="left")
    right = g.op("transpose", g.op("exp", x, name="e"), perm=[1, 0], name="right")
    g.output(g.op("matmul", left, right, name="y"))
    return g


def merged() -> Graph:
    """A transpose before a flatten: the mesh axes cut the flat dim in another order than they stand."""
    g = Graph("merged")
    x = g.op("transpose", g.input("x", (2, 4)), perm=[1, 0], name="t")
    g.output(g.op("reshape", x, shape=[8], name="y"))
    return g


def leftovers() -> Graph:
    """A result that nobody uses, an input that nobody reads, an input that leaves as it came, and a constant."""
    g = Graph("leftovers")
    x, passing = g.input("x", (4,)), g.input("passing", (2,))
    g.input("unread", (4,))
    g.op("exp", x, name="unused")
    g.output(g.op("add", x, g.constant("one", np.ones((4,), np.float32)), name="y"), passing)
    return g


def scalar() -> Graph:
    """A tensor without dims."""
    g = Graph("scalar")
    g.output(g.op("exp", g.input("x", ()), name="y"))
    return g


HAND_MADE: tuple[Callable[[], Graph], ...] = (
    mlp,
    biased,
    flattened,
    squared,
    shared,
    diamond,
    merged,
    leftovers,
    scalar,
)

# ------------------------------------------------------------------------------------------------------------- random

SIZES = (1, 2, 2, 3, 4, 4, 6, 8)
MESHES: dict[int, list[tuple[int, ...]]] = {
    1: [(2,), (2,), (3,), (4,), (1,), (6,)],
    2: [(2, 2), (2, 2), (2, 4), (4, 2), (2, 3), (1, 2), (2, 1), (3, 2)],
    3: [(2, 2, 2), (2, 1, 2), (1, 2, 3), (2, 2, 1), (2, 3, 2)],
}
MOST_CHOICES = 12_000
"""With more rows to choose from in all there are no ties: the reference tries each with every storage of a leader."""


class _Growing:
    """A graph that grows op by op, as Hypothesis draws."""

    def __init__(self, draw: Any, kinds: Sequence[Growth] | None = None) -> None:
        self.draw = draw
        self.graph = Graph("random")
        self.kinds = [kind for kind, needs in GROWTH.items() if set(needs) <= set(names())] if kinds is None else kinds
        if kinds is not None:
            self.pool = [self.graph.input("x", draw(st.sampled_from(KERNEL_SHAPES)))]
            return
        rank = draw(st.integers(0, 3), label="rank")
        shape = draw(
            st.lists(st.sampled_from(SIZES), min_size=rank, max_size=rank).filter(lambda s: prod(s) <= LARGEST)
        )
        self.pool = [self.graph.input("x", tuple(shape))]

    def pick(self) -> Tensor:
        """Choose a tensor, the last one most often."""
        recent = [self.pool[-1]] * 2 + self.pool
        return self.draw(st.sampled_from(recent))

    def source(self, shape: tuple[int, ...]) -> Tensor:
        """Add a parameter or a constant."""
        name = f"w{len(self.graph.tensors)}"
        if self.draw(st.integers(0, 5)) == 0:
            return self.graph.constant(name, np.linspace(-1, 1, prod(shape), dtype=np.float32).reshape(shape))
        made = self.draw(st.sampled_from([self.graph.parameter, self.graph.input, self.graph.state]))(name, shape)
        self.pool.append(made)
        return made

    def alike(self, shape: tuple[int, ...]) -> Tensor:
        """Choose a tensor of a shape, an existing one where there is one and chance wants it."""
        found = [tensor for tensor in self.pool if tensor.shape == shape]
        return self.draw(st.sampled_from(found)) if found and self.draw(st.booleans()) else self.source(shape)

    def grow(self) -> None:
        """Add one op."""
        kind = self.draw(st.sampled_from(self.kinds))
        made = kind(self, self.pick())
        self.pool += made if isinstance(made, tuple) else [] if made is None else [made]

    def unary(self, x: Tensor) -> Any:
        op = self.draw(st.sampled_from(["relu", "exp", "neg", "assign", "abs"]))
        return self.graph.op(op, x)

    def binary(self, x: Tensor) -> Any:
        op = self.draw(st.sampled_from(["add", "multiply", "maximum", "subtract", "divide"]))
        how = self.draw(st.sampled_from(["same", "alike", "broadcast"]))
        if how == "same":
            return self.graph.op(op, x, x)
        if how == "alike":
            return self.graph.op(op, x, self.alike(x.shape))
        shape = tuple(size if self.draw(st.booleans()) else 1 for size in x.shape)
        y = self.alike(shape[self.draw(st.integers(0, len(shape))) :])
        return self.graph.op(op, *((x, y) if self.draw(st.booleans()) else (y, x)))

    def matmul(self, x: Tensor) -> Any:
        if not x.shape:
            return None
        if len(x.shape) > 1 and self.draw(st.integers(0, 3)) == 0:
            return self.graph.op("matmul", x, x, **{self.draw(st.sampled_from(["transpose_x", "transpose_y"])): True})
        columns = self.draw(st.sampled_from([size for size in SIZES if prod(x.shape[:-1]) * size <= LARGEST]))
        return self.graph.op("matmul", x, self.alike((x.shape[-1], columns)))

    def reduction(self, x: Tensor) -> Any:
        op = self.draw(st.sampled_from([op for op in ("sum", "mean", "max", "min") if op in names()]))
        if not x.shape:
            return None
        axis = self.draw(st.integers(0, len(x.shape) - 1))
        return self.graph.op(op, x, axis=axis, keepdim=self.draw(st.booleans()))

    def softmax(self, x: Tensor) -> Any:
        return self.graph.op("softmax", x, axis=self.draw(st.integers(0, len(x.shape) - 1))) if x.shape else None

    def transpose(self, x: Tensor) -> Any:
        return self.graph.op("transpose", x, perm=self.draw(st.permutations(range(len(x.shape)))))

    def reshape(self, x: Tensor) -> Any:
        """Cut the elements in row-major order anew: merge neighbours, split a dim, or both."""
        shape: list[int] = []
        left = prod(x.shape)
        while left > 1 and len(shape) < 3:
            divisors = [size for size in range(2, left + 1) if left % size == 0]
            shape.append(self.draw(st.sampled_from(divisors)))
            left //= shape[-1]
        return self.graph.op("reshape", x, shape=[*shape, *([left] if left > 1 else [])])

    def joined(self, x: Tensor) -> Any:
        several = [x, *(self.alike(x.shape) for _ in range(self.draw(st.integers(1, 2))))]
        if "concat" in names() and x.shape and prod(x.shape) * len(several) <= LARGEST and self.draw(st.booleans()):
            return self.graph.op("concat", several, axis=self.draw(st.integers(0, len(x.shape) - 1)))
        return self.graph.op("add_n", several)

    def updated(self, x: Tensor) -> Any:
        """Make a state or a parameter anew from itself and from something of its shape."""
        kind, name = self.draw(st.sampled_from(["state", "parameter"])), f"s{len(self.graph.tensors)}"
        stored = getattr(self.graph, kind)(name, x.shape)
        self.pool.append(stored)
        return self.graph.op("add", stored, x)

    def split(self, x: Tensor) -> Any:
        even = [axis for axis, size in enumerate(x.shape) if size % 2 == 0]
        return self.graph.op("split", x, num_or_sections=2, axis=self.draw(st.sampled_from(even))) if even else None

    def embedding(self, x: Tensor) -> Any:
        ids = self.graph.input(f"ids{len(self.graph.tensors)}", (self.draw(st.sampled_from(SIZES)),), dtype="int64")
        return self.graph.op("embedding", ids, self.alike((4, 4)))


Growth: TypeAlias = Callable[[_Growing, Tensor], Any]
GROWTH: dict[Growth, tuple[str, ...]] = {
    _Growing.unary: (),
    _Growing.binary: (),
    _Growing.matmul: (),
    _Growing.reduction: ("sum",),
    _Growing.softmax: ("softmax",),
    _Growing.transpose: (),
    _Growing.reshape: (),
    _Growing.joined: (),
    _Growing.updated: (),
    _Growing.split: ("split",),
    _Growing.embedding: ("embedding",),
    windowed: ("conv1d",),
    moved: ("roll", "pad"),
    loss: ("nll_loss",),
}


COMMUNICATING: tuple[Growth, ...] = (
    windowed,
    windowed,
    windowed,
    moved,
    moved,
    loss,
    loss,
    _Growing.unary,
    _Growing.binary,
)
"""What grows a graph of ops whose kernels communicate."""


@st.composite
def random_graphs(
    draw: Any, max_ops: int = 6, max_axes: int = 3, tied: bool = False, kinds: Sequence[Growth] | None = None
) -> Case:
    """Draw a small graph with fan-out, diamonds, repeated operands, reshapes, a mesh of 1 to 3 axes, and pins.

    The more mesh axes, the fewer ops, so that every plan can be looked at. Some have ties and gradients; with `tied`
    nearly all do, and what is made anew leaves in the end. With `kinds` it grows of these alone, and every capability
    is granted.
    """
    axes = draw(st.integers(1, max_axes), label="mesh axes")
    growing = _Growing(draw, kinds)
    most = min(max_ops, {1: 6, 2: 5, 3: 3}[axes])
    most = max(1, most - 2 * tied)
    for _ in range(draw(st.sampled_from([*range(1, most + 1), *range(most // 2 + 1, most + 1)]), label="ops")):
        growing.grow()
    fresh = [growing.updated(growing.pick()) for _ in range(draw(st.integers(1, 2)) if tied else 0)]
    if fresh and draw(st.booleans()):
        growing.unary(fresh[0])
    graph = growing.graph
    ends = [tensor for tensor in graph.tensors.values() if tensor.producer and not graph.uses(tensor.name)]
    leaving = [tensor for tensor in ends if draw(st.integers(0, 7))]
    also = draw(st.lists(st.sampled_from(sorted(graph.tensors)), max_size=1))
    ends = [*leaving, *fresh, *(graph.tensors[name] for name in also)]
    graph.output(*{tensor.name: tensor for tensor in ends}.values())
    if not graph.outputs:
        graph.output(growing.pool[-1])
    sizes = draw(st.sampled_from(MESHES[axes]), label="mesh")
    cut = sum(size > 1 for size in sizes)
    if prod(len(graph.bind(node).rows) ** cut for node in graph.nodes) < MOST_CHOICES and (tied or draw(st.booleans())):
        draw_ties(draw, graph)
    if draw(st.integers(0, 3)) == 0:
        draw_repeats(draw, graph)
    hardware = HARDWARE[draw(st.sampled_from(sorted(HARDWARE)))]
    mesh = Mesh(dict(zip(("dp", "tp", "pp"), sizes, strict=False)), hardware=hardware)
    return Case(
        graph,
        mesh,
        draw(pins(graph, mesh)),
        draw(st.sampled_from(["any"] * 6 + ["none", "frozen"])),
        CAPABILITIES if kinds else draw(st.sampled_from([frozenset(), frozenset({"masked_lookup"}), CAPABILITIES])),
    )


@st.composite
def pins(draw: Any, graph: Graph, mesh: Mesh) -> dict[str, dict[str, Placement]]:
    """Draw pins on tensors and uses: on parts, P, on axes of size 1, contradictory ones and such as divide nothing."""
    uses = {use.name: use.tensor for node in graph.nodes for use in graph.operand_uses(node)}
    subjects = {**{name: name for name in graph.tensors}, **uses}
    parts = refine(graph).parts
    chosen = draw(st.lists(st.sampled_from(sorted(subjects)), max_size=3, unique=True)) if draw(st.booleans()) else []
    wishes: dict[str, dict[str, Placement]] = {}
    for name in chosen:
        shards = [Shard(d, i) for d, split in enumerate(parts[subjects[name]]) for i in range(len(split))]
        placements: list[Placement] = [
            Replicate(),
            *shards,
            *shards,
            Partial(draw(st.sampled_from(["sum", "sum", "max", "avg"]))),
        ]
        on = draw(st.lists(st.sampled_from(mesh.axes), min_size=1, unique=True))
        wishes[name] = {axis: draw(st.sampled_from(placements)) for axis in on}
    return wishes
