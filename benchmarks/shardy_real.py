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
from ops.placement import Layout, Partial
from solver.greedy.propagation import Axes, Units
from solver.greedy.shardy import as_layout, plan_of
from solver.mesh import Mesh
from solver.plan import Plan
from solver.problem import Problem

PROPAGATION = "sdy-import-pipeline,sdy-user-priority-propagate"
"""What comes in is made ready (constants apart, constraints applied), then propagated by priority."""
RESHARDS = "sdy-close-shardings,func.func(sdy-insert-explicit-reshards{enable-full-version=true})"
"""Then what differs is resharded (`resharded`)."""
COLLECTED = "func.func(sdy-reshard-to-collectives),canonicalize"
"""Then by collectives; a sum that is sliced becomes a reduce_scatter."""
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
        Where an op has no row that its operands can be brought to.
    """
    return plan_of(problem, axes(problem))


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

    Parameters
    ----------
    problem : Problem

    Returns
    -------
    Counter
        (kind, mesh axes with commas between them) -> how many.
    """
    with context():
        text = str(run(resharded(Module(problem).text()), COLLECTED))
    found = re.findall(COLLECTIVES, text)
    return Counter((kind, ",".join(sorted(set(re.findall(r'"(\w+)"', where))))) for kind, where in found)


def reads_and_makes(problem: Problem) -> dict[str, tuple[list[tuple[str, Layout]], Layout]]:
    """Return in which layouts ops run after Shardy's explicit reshards.

    Parameters
    ----------
    problem : Problem

    Returns
    -------
    dict
        Tensor -> what its op reads, as (tensor, layout), and the layout in which it makes it. Sums of more than two
        operands are not in it.
    """
    module = Module(problem)
    found = {}
    with context():
        ready = resharded(module.text())  # what is read below lives as long as this
        main = main_of(ready)
        flows = {flow.result: flow for flow in module.flows.flows}
        for op in main.body.blocks[0].operations:
            flow = flows.get(_value(op, module))
            if flow is None or len(op.operands) < len(flow.operands) or op.OPERATION_NAME == "sdy.sharding_constraint":
                continue
            read_first = reversed(flow.operands) if op.OPERATION_NAME == "stablehlo.gather" else flow.operands
            values = [module.flows.values[k] for k in read_first]
            if any(value.role != "tensor" for value in values):
                continue
            lies = [_lies(problem, main, v.tensor, given) for v, given in zip(values, op.operands, strict=False)]
            tensor = module.flows.values[flow.result].tensor
            made = list(_lies(problem, main, tensor, op.results[0]))
            for axis in _reduced(problem, op):
                made[axis] = Partial("sum")
            reads = list(zip((value.tensor for value in values), lies, strict=True))
            found[tensor] = reads, problem.canonical(tensor, made)
    return found


def _value(op: Any, module: Module) -> int:
    """Return which value an op makes, if it is a tensor; -1 else."""
    if "mhlo.frontend_attributes" not in op.attributes:
        return -1
    value = int(op.attributes["mhlo.frontend_attributes"]["value"].value)
    return value if module.flows.values[value].role == "tensor" else -1


def _lies(problem: Problem, main: Any, tensor: str, value: Any) -> Layout:
    """Return the layout of a value that is a tensor of the graph, resharded or not."""
    from jaxlib.mlir import ir

    owner = value.owner
    if isinstance(owner, ir.Block):
        sharding = shardings(main.arg_attrs)[ir.BlockArgument(value).arg_number]
    else:
        own = next((owner.attributes[name] for name in ("sharding", "out_sharding") if name in owner.attributes), None)
        sharding = _of_op(owner) if own is None else own
    return as_layout(problem, tensor, read(problem.mesh, len(value.type.shape), sharding))


def _reduced(problem: Problem, op: Any) -> set[int]:
    """Return the mesh axes over which the result of an op is summed by what follows it."""
    sums = [use.owner for use in op.results[0].uses if use.owner.name == "sdy.all_reduce"]
    told = [str(one.attributes["reduction_axes"]) for one in sums]
    return {axis for axis, name in enumerate(problem.mesh.axes) for text in told if f'"{name}"' in text}


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


def resharded(text: str) -> Any:
    """Propagate a module and reshard what differs; return it.

    Shardy propagates by a custom rule, that of a custom call, but does not yet reshard by it ("TODO: Enable explicit
    reshards on custom sharding rules" in its insert_explicit_reshards.cc). Once it has propagated, our stand-ins are
    told to have rules of Shardy's own, which they stand for; so they are resharded as all other ops are.
    """
    propagated = str(run(parse(text), PROPAGATION))
    return run(parse(propagated.replace(", custom>", ">")), RESHARDS)


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
