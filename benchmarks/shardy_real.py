"""Shardy itself, through jaxlib's MLIR bindings: what it propagates over a graph, and the collectives that follow.

The module comes from `benchmarks.stablehlo`, is run through Shardy's own passes and read back onto the graph's tensors.
Needs jaxlib (`pip install 'shardproof[jax]'`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.stablehlo import Module
from solver.greedy.propagation import Axes, Units
from solver.greedy.read_back import read_back
from solver.greedy.shardy import as_layout
from solver.mesh import Mesh
from solver.plan import Plan
from solver.problem import Problem

PROPAGATION = "sdy-import-pipeline,sdy-user-priority-propagate"
"""What comes in is made ready (constants apart, constraints applied), then propagated by priority."""
RESHARDS = (
    f"{PROPAGATION},sdy-close-shardings,func.func(sdy-insert-explicit-reshards{{enable-full-version=true}},"
    "sdy-reshard-to-collectives),canonicalize"
)
"""Then what differs is resharded, by collectives; a sum that is sliced becomes a reduce_scatter."""
COLLECTIVES = r"sdy\.(all_reduce|reduce_scatter|all_gather|all_to_all|all_slice|collective_permute) (.*?) %"


def plan(problem: Problem) -> Plan:
    """Return the plan that lies as Shardy propagates, as far as layouts can say it.

    Parameters
    ----------
    problem : Problem

    Returns
    -------
    Plan
        Status ``feasible``, without a bound.

    Raises
    ------
    StuckError
        Where no row of an op lies between the layouts of its operands and results.
    """
    return read_back(problem, {name: as_layout(problem, name, placed) for name, placed in axes(problem).items()})


def axes(problem: Problem) -> dict[str, list[Axes]]:
    """Return the units of mesh axes that cut each dim of every tensor after the propagation.

    Parameters
    ----------
    problem : Problem

    Returns
    -------
    dict
        Tensor -> per dim its units (`solver.greedy.propagation.Units`), major first; constants are not in it.
    """
    module = Module(problem)
    graph, of = problem.graph, module.flows.of
    with context():
        propagated = run(parse(module.text()), PROPAGATION)
        main = main_of(propagated)
        found = {}
        sources = [name for name in of if graph.tensors[name].producer is None]
        for name, sharding in zip(sources, shardings(main.arg_attrs), strict=True):
            found[name] = read(problem.mesh, len(graph.tensors[name].shape), sharding)
        for op in main.body.blocks[0].operations:
            if "mhlo.frontend_attributes" in op.attributes:
                value = module.flows.values[int(op.attributes["mhlo.frontend_attributes"]["value"].value)]
                if value.role == "tensor":
                    found[value.tensor] = read(problem.mesh, len(value.shape), _of_op(op))
    return found


def collectives(problem: Problem) -> Counter[tuple[str, str]]:
    """Count the collectives that Shardy inserts.

    Custom calls are not resharded by it, so this says all of a graph only whose ops StableHLO has.

    Parameters
    ----------
    problem : Problem

    Returns
    -------
    Counter
        (kind, mesh axes with commas between them) -> how many.
    """
    with context():
        text = str(run(parse(Module(problem).text()), RESHARDS))
    found = re.findall(COLLECTIVES, text)
    return Counter((kind, ",".join(sorted(set(re.findall(r'"(\w+)"', where))))) for kind, where in found)


@contextmanager
def context() -> Iterator[None]:
    """Enter an MLIR context that knows what a module is made of.

    Raises
    ------
    ModuleNotFoundError
        Without jaxlib.
    """
    try:
        from jaxlib.mlir import ir
        from jaxlib.mlir._mlir_libs import _jax_mlir_ext
        from jaxlib.mlir.dialects import chlo, sdy, stablehlo
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("Shardy itself is run by jaxlib: pip install 'shardproof[jax]'") from error
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    with ir.Context() as entered:
        entered.append_dialect_registry(registry)
        entered.load_all_available_dialects()
        for dialect in (sdy, stablehlo, chlo):
            dialect.register_dialect(entered)
        yield


def parse(text: str) -> Any:
    """Return the module of a text."""
    from jaxlib.mlir import ir

    return ir.Module.parse(text)


def run(module: Any, pipeline: str) -> Any:
    """Run MLIR passes over a module in place, and return it."""
    from jaxlib.mlir import passmanager

    passmanager.PassManager.parse(f"builtin.module({pipeline})").run(module.operation)
    return module


def main_of(module: Any) -> Any:
    """Return the function ``main`` of a module."""
    functions = [op for op in module.body.operations if op.OPERATION_NAME == "func.func"]
    return next(op for op in functions if op.name.value == "main")


def shardings(attributes: Any) -> list[Any]:
    """Return the sharding of every argument or result of a function, None where there is none."""
    return [one["sdy.sharding"] if "sdy.sharding" in one else None for one in attributes]  # noqa: SIM401


def _of_op(op: Any) -> Any:
    from jaxlib.mlir.dialects import sdy

    if "sdy.sharding" not in op.attributes:
        return None
    return sdy.TensorShardingPerValueAttr(op.attributes["sdy.sharding"]).shardings[0]


def read(mesh: Mesh, rank: int, sharding: Any) -> list[Axes]:
    """Return the units that a sharding, or none, puts on each dim of a tensor.

    Parameters
    ----------
    mesh : Mesh
    rank : int
    sharding : Attribute or None

    Returns
    -------
    list of Axes
    """
    from jaxlib.mlir.dialects import sdy

    if sharding is None:
        return [()] * rank
    dims = map(sdy.DimensionShardingAttr, sdy.TensorShardingAttr(sharding).dimension_shardings)
    return [tuple(unit for axis in dim.axes for unit in _units(mesh, sdy.AxisRefAttr(axis))) for dim in dims]


def _units(mesh: Mesh, axis: Any) -> Axes:
    """Return the units of a mesh axis or of a sub-axis: those that lie within it."""
    from jaxlib.mlir.dialects import sdy

    units = Units(mesh.sizes)
    whole = units.of(mesh.axes.index(axis.name))
    if axis.sub_axis_info is None:
        return whole
    part = sdy.SubAxisInfoAttr(axis.sub_axis_info)
    before = [units.size(whole[:k]) for k in range(len(whole))]
    return tuple(u for u, size in zip(whole, before, strict=True) if part.pre_size <= size < part.pre_size * part.size)
