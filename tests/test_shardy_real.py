"""Our Shardy beside Shardy itself, run by jaxlib on StableHLO written from our graph and on what JAX writes by itself.

Every tensor is propagated to the same axes, and ops run cut as Shardy's explicit reshards have it. A plan has layouts,
which cannot say all of it: what they leave out is counted by class, and the classes stand in DIFFERENCES with reasons.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("jaxlib.mlir")

from benchmarks import shardy_real
from benchmarks.captures import batch_pins
from benchmarks.models import gpt, gpt_training
from benchmarks.stablehlo import Module
from ops import Partial, Replicate, Shard
from ops.placement import Layout
from solver import Graph, Mesh
from solver.greedy.flows import MOVED
from solver.greedy.propagation import Axes, Units
from solver.greedy.shardy import as_layout, shardy, shardy_axes
from solver.importers.aten import lower
from solver.importers.capture import read_capture
from solver.problem import Problem, problem
from tests.graphs import Case, mlp, random_graphs
from tests.test_constraints import MANY

CAPTURES = Path(__file__).parents[1] / "benchmarks" / "data" / "captures"

DIFFERENCES = {
    "sub-axis": "a reshape cuts an axis in two: of tp=8 over 768 = (12, 64) the heads take 4, and 2 are left for 64. "
    "A layout has whole axes, so the axis is left out of that tensor; around it ops run otherwise.",
    "uneven": "an axis that does not divide a dim cuts it all the same, and Shardy pads. A layout has equal shards.",
    "order": "two axes cut one dim in another order than they have in the mesh. A layout has them in mesh order.",
    "permutation": "a slice or concatenation runs with the dim cut that it moves along, and Shardy permutes the shards "
    "after it. No row of ours does so: the dim is gathered.",
    "several": "an op of several results is one op here, and cut once. In StableHLO each result has an op of its own, "
    "which reads what its dims come from: the one of the gradient of a scale is not cut where that of the input is.",
    "term": "a bias inside a product that is cut inside. Ours reads it as one term of the sum, which costs nothing; "
    "for Shardy it lies whole, and a compiler adds it after the sum.",
}
"""What a plan cannot say of what Shardy does, by class; the first three are of a sharding, the others of an op. What is
left open beyond it: an axis whose size has two primes (6) may be split the other way round (`Units` has the smaller one
first), and pins to a partial sum or to a later part of a dim cannot be asked of Shardy. Constants have no layout to
compare: every use has a copy of its own."""
Runs: TypeAlias = Mapping[str, tuple[list[tuple[str, Layout]], Layout]]

NORMAL = (
    r"(q_proj|k_proj|v_proj|gate_proj|up_proj|query|key|value|fc1|intermediate\.dense|wi_?\d?|\.q|\.k|\.v)\.weight$"
)
ROWS = r"(o_proj|down_proj|fc2|output\.dense|wo|\.o)\.weight$"


def megatron(graph: Graph, mesh: Mesh) -> dict[str, Any]:
    """Pin the batch on the first axis; columns, then rows of the products of each layer on the last."""
    pins: dict[str, Any] = dict(batch_pins(graph, mesh))
    for name, tensor in graph.tensors.items():
        if tensor.role == "parameter" and len(tensor.shape) == 2:
            turned = re.search(r"c_(attn|fc|proj)\.weight$", name) is not None  # GPT-2 stores (in, out)
            columns = re.search(NORMAL, name) or re.search(r"c_(attn|fc)\.weight$", name)
            rows = re.search(ROWS, name) or re.search(r"c_proj\.weight$", name)
            dim = int(turned) if columns else 1 - int(turned)
            if (columns or rows) and tensor.shape[dim] % mesh.sizes[-1] == 0:
                pins[name] = {mesh.axes[-1]: Shard(dim)}
    return pins


def left_out(asked: Problem, tensor: str, placed: list[Axes]) -> str | None:
    """Return the class of what the layout of a tensor does not say of its sharding; None where it says all."""
    units = Units(asked.mesh.sizes)
    layout = as_layout(asked, tensor, placed)
    said: list[Axes] = [()] * len(placed)
    for axis, placement in enumerate(layout):
        if isinstance(placement, Shard):
            said[placement.dim] += units.of(axis)
    if said == placed:
        return None
    if said == [tuple(sorted(axes)) for axes in placed]:
        return "order"
    whole = all(set(units.of(k)) <= set(axes) or not set(units.of(k)) & set(axes)
                for axes in placed for k in range(len(asked.mesh.sizes)))  # fmt: skip
    return "uneven" if whole else "sub-axis"


def agreed(asked: Problem) -> dict[str, list[Axes]]:
    """Hold our axes of every tensor against Shardy's, and return them."""
    ours, theirs = shardy_axes(asked), shardy_real.axes(asked)
    assert ours == theirs, {name: (ours[name], theirs[name]) for name in ours if ours[name] != theirs.get(name)}
    return ours


def run_otherwise(asked: Problem, theirs: Runs) -> list[str]:
    """Return the tensors whose ops run otherwise in our plan than after Shardy's explicit reshards."""
    ours, found = shardy(asked).evaluation, []
    for tensor, (reads, made) in theirs.items():
        needed: dict[str, list[Layout]] = {}
        for use in asked.graph.operand_uses(str(asked.graph.tensors[tensor].producer)):
            whole = [Replicate() if isinstance(one, Partial) else one for one in ours.needed(use)]  # "term"
            needed.setdefault(use.tensor, []).append(tuple(whole))
        makes = [
            Partial("sum") if one == Partial("avg") else one for one in ours.made(tensor)
        ]  # a mean is divided last
        if list(made) != makes or any(layout not in needed[name] for name, layout in reads):
            found.append(tensor)
    return found


def convolutions() -> Graph:
    """Two convolutions with statistics between them, pooled, and a head."""
    g = Graph("convolutions")
    x = g.input("x", (8, 3, 16, 16))
    x = g.op("conv2d", x, g.parameter("conv1", (8, 3, 3, 3)), padding=1, name="c1")
    x = g.op("relu", x, name="a1")
    x = g.op("conv2d", x, g.parameter("conv2", (16, 8, 3, 3)), padding=1, stride=2, name="c2")
    x = g.op("mean", g.op("relu", x, name="a2"), axis=[2, 3], name="pooled")
    g.output(g.op("matmul", x, g.parameter("head", (16, 4)), name="logits"))
    return g


SMALL = {"hidden": 64, "heads": 4, "batch": 8, "sequence": 16, "vocabulary": 128}
GPT_PINS = {
    **{f"*.{name}.weight": "tp=S(1)" for name in ("q", "k", "v", "up")},
    **{f"*.{name}.weight": "tp=S(0)" for name in ("out", "down")},
}
OWN: Mapping[str, tuple[Graph, dict[str, str]]] = {
    "mlp": (mlp(), {"x": "dp=S(0)", "w1": "tp=S(1)"}),
    "gpt": (gpt(2, **SMALL), {"ids": "dp=S(0)", **GPT_PINS}),
    "gpt-step": (gpt_training(2, **SMALL), {"ids": "dp=S(0)"}),
    "gpt-step-megatron": (gpt_training(2, **SMALL), {"ids": "dp=S(0)", **GPT_PINS, "wte": "tp=S(0)"}),
    "gpt-fsdp": (gpt_training(1, **SMALL), {"ids": "dp=S(0)", "*.weight": "dp=S(0)"}),
    "convolutions": (convolutions(), {"x": "dp=S(0)", "conv1": "tp=S(0)"}),
    "space": (convolutions(), {"x": "tp=S(2)"}),
}


@pytest.mark.parametrize("name", OWN)
def test_own_graphs_are_propagated_alike(name: str) -> None:
    graph, pins = OWN[name]
    agreed(problem(graph, Mesh({"dp": 2, "tp": 2}), pins=pins))


@pytest.mark.parametrize("model", sorted(path.name.removesuffix(".json.gz") for path in CAPTURES.glob("*.json.gz")))
def test_captures_are_propagated_alike_and_layouts_say_nearly_all(model: str) -> None:
    graph, mesh = lower(read_capture(CAPTURES / f"{model}.json.gz")), Mesh({"dp": 8, "tp": 8})
    asked = problem(graph, mesh, pins=megatron(graph, mesh))
    axes = agreed(asked)
    assert sum(any(placed) for placed in axes.values()) > len(axes) / 3
    missing = {name: left_out(asked, name, placed) for name, placed in axes.items()}
    assert set(missing.values()) <= {None, *DIFFERENCES}
    assert sum(one is None for one in missing.values()) >= 0.9 * len(axes)


@pytest.mark.parametrize("model", ["bert", "gpt2", "hf_resnet50", "mixtral_grouped"])
def test_captures_run_alike_but_for_what_a_plan_cannot_say(model: str) -> None:
    graph, mesh = lower(read_capture(CAPTURES / f"{model}.json.gz")), Mesh({"dp": 8, "tp": 8})
    asked = problem(graph, mesh, pins=megatron(graph, mesh))
    axes, theirs = shardy_axes(asked), shardy_real.reads_and_makes(asked)
    unlike = run_otherwise(asked, theirs)
    for tensor in unlike:
        node = graph.nodes[str(graph.tensors[tensor].producer)]
        around = {use.tensor for use in graph.operand_uses(node.name)} | {tensor}
        said_less = any(left_out(asked, one, axes[one]) for one in around if one in axes)
        assert said_less or node.op in MOVED or len(node.results) > 1, node
    assert len(unlike) <= 0.2 * len(theirs)


@st.composite
def pinned(draw: Any, case: Case) -> dict[str, Any]:
    """Pin a third of the tensors, on axes that divide, and some axes to R."""
    pins: dict[str, Any] = {}
    for name, tensor in case.graph.tensors.items():
        left, pin = list(tensor.shape), {}
        for axis, size in zip(case.mesh.axes, case.mesh.sizes, strict=True):
            dim = draw(st.integers(-2, len(left) - 1))
            if dim == -1:
                pin[axis] = Replicate()
            elif dim >= 0 and left[dim] % size == 0:
                left[dim] //= size
                pin[axis] = Shard(dim)
        if pin and tensor.role != "constant" and draw(st.integers(0, 2)) == 0:
            pins[name] = pin
    return pins


@settings(MANY, max_examples=60)
@given(case=random_graphs(max_ops=8, max_axes=3), data=st.data())
def test_random_graphs_are_propagated_alike(case: Case, data: st.DataObject) -> None:
    agreed(problem(case.graph, case.mesh, pins=data.draw(pinned(case))))


@st.composite
def products(draw: Any) -> tuple[Graph, dict[str, str]]:
    """Products, sums, transposes and functions of matrices, pinned here and there."""
    g, pins = Graph("products"), {}
    pool = [g.input("x", (8, 16))]
    for number in range(draw(st.integers(2, 6))):
        x = draw(st.sampled_from([pool[-1], *pool]))
        alike = [one for one in pool if one.shape == x.shape and one is not x]
        kinds = ["matmul", "matmul", "relu", "tanh", "transpose", "expand", "sum", *(["add"] if alike else [])]
        kind = draw(st.sampled_from(kinds))
        if kind == "matmul":
            fitting = [one for one in pool if one.shape[0] == x.shape[1]]
            fresh = g.parameter(f"w{number}", (x.shape[1], draw(st.sampled_from([8, 16, 32]))))
            pool.append(g.op(kind, x, draw(st.sampled_from([fresh, *fitting]))))
        elif kind == "add":
            pool.append(g.op(kind, x, draw(st.sampled_from(alike))))
        elif kind == "expand":
            g.output(g.op(kind, x, shape=[8, *x.shape], name=f"wide{number}"))
        elif kind == "sum":
            g.output(g.op(kind, x, axis=draw(st.integers(0, 1)), name=f"total{number}"))
        else:
            pool.append(g.op(kind, x, perm=[1, 0]) if kind == "transpose" else g.op(kind, x))
    g.output(*(one for one in pool if one.producer and not g.uses(one.name)))
    for name in (name for name, one in g.tensors.items() if len(one.shape) > 1):
        axes = {axis: draw(st.sampled_from([None, None, "S(0)", "S(1)"])) for axis in ("dp", "tp")}
        if draw(st.integers(0, 2)) == 0 and any(axes.values()):
            pins[name] = ",".join(f"{axis}={dim}" for axis, dim in axes.items() if dim)
    return g, pins


@settings(MANY, max_examples=60)
@given(drawn=products())
def test_products_run_alike(drawn: tuple[Graph, dict[str, str]]) -> None:
    graph, pins = drawn
    question = problem(graph, Mesh({"dp": 2, "tp": 4}), pins=pins)
    assert run_otherwise(question, shardy_real.reads_and_makes(question)) == []


JAX_PINS = {
    "mlp": {"params.0.w": "tp=S(1)", "params.1.w": "tp=S(0)"},
    "gpt": {
        **{f"h.*.{name}.weight": "tp=S(1)" for name in ("attn.q", "attn.k", "attn.v", "mlp.up")},
        **{f"h.*.{name}.weight": "tp=S(0)" for name in ("attn.proj", "mlp.down")},
    },
    "convolved": {"params.conv0": "tp=S(3)", "params.conv1": "tp=S(2)"},
    "vmapped": {"params.heads.*": "tp=S(0)"},
    "scanned": {},
}


@pytest.mark.parametrize("name", JAX_PINS)
@pytest.mark.parametrize("weights", [False, True])
def test_what_jax_writes_by_itself_ends_alike(name: str, weights: bool) -> None:
    """JAX's own StableHLO of a step, with the same shardings on its arguments: arguments and outputs lie alike."""
    jax = pytest.importorskip("jax")
    from solver.importers.jax import from_jax
    from tests.jax_models import MODELS

    model = MODELS[name]
    graph, mesh = from_jax(model.fn, *model.args, **model.declared), Mesh({"dp": 2, "tp": 2})
    pins = dict.fromkeys(model.batch, "dp=S(0)") | (JAX_PINS[name] if weights else {})
    asked = problem(graph, mesh, pins=pins)
    ours = shardy_axes(asked)
    with jax.enable_x64(True):
        written = jax.jit(model.fn).lower(*model.args).compiler_ir("stablehlo")
    arguments, results = shard_module(asked, str(written))
    assert arguments == {one: ours[one] for one in arguments}
    assert results == [ours[one] for one in graph.outputs]


def shard_module(asked: Problem, text: str) -> tuple[dict[str, list[Axes]], list[list[Axes]]]:
    """Put pins on the arguments of a module, propagate, and return how its arguments and results lie."""
    from jaxlib.mlir import ir

    ours, mesh = Module(asked), asked.mesh
    sources = [one for one in asked.graph.tensors.values() if one.producer is None and one.role != "constant"]
    sizes = ", ".join(f'"{axis}"={size}' for axis, size in zip(mesh.axes, mesh.sizes, strict=True))
    with shardy_real.context():
        module = shardy_real.parse(text)
        main = shardy_real.main_of(module)
        given = [ours.sharding(one.name, len(one.shape)).replace("@mesh", f"mesh<[{sizes}]>") for one in sources]
        assert [tuple(kind.shape) for kind in main.type.inputs] == [one.shape for one in sources]
        main.arg_attrs = ir.ArrayAttr.get([
            ir.DictAttr.get({"sdy.sharding": ir.Attribute.parse(f"#sdy.sharding{one}")} if one else {}) for one in given
        ])  # fmt: skip
        shardy_real.run(module, shardy_real.PROPAGATION)
        found = zip(sources, shardy_real.shardings(main.arg_attrs), strict=True)
        left = zip(main.type.results, shardy_real.shardings(main.result_attrs), strict=True)
        return (
            {one.name: shardy_real.read(mesh, len(one.shape), sharding) for one, sharding in found},
            [shardy_real.read(mesh, len(kind.shape), sharding) for kind, sharding in left],
        )


def test_shardy_itself_gives_a_plan_that_holds() -> None:
    graph, pins = OWN["mlp"]
    asked = problem(graph, Mesh({"dp": 2, "tp": 2}), pins={**pins, "w2": "tp=S(0)"})
    found = shardy_real.plan(asked)
    assert found.check().ok
    assert found.simulate().ok
    assert found.evaluation.total == shardy(asked).evaluation.total


def test_its_collectives_are_those_of_the_plan() -> None:
    graph, pins = OWN["mlp"]
    mesh = Mesh({"dp": 2, "tp": 2})
    for out, kind in ((Replicate(), "all_reduce"), (Shard(1), "reduce_scatter")):
        asked = problem(graph, mesh, pins={**pins, "w2": "tp=S(0)", "y": {"tp": out}})
        told = Counter((move.kind, move.axis) for reshard in shardy(asked).reshards for move in reshard.collectives)
        assert shardy_real.collectives(asked) == told == {(kind, "tp"): 1}
