"""A graph in StableHLO, for Shardy itself: one function, an op for every flow, mesh and pins as `sdy` attributes.

What a propagation looks at is how dims flow, so an op without a counterpart is a stand-in of the same flow: pointwise
ops are sums of their operands, all others custom calls with the sharding rule that follows from ours. Matrix products,
reductions, lookups, reshapes, transposes, broadcasts, slices and concatenations are StableHLO's own, and so are their
rules. The text is made where an MLIR context is entered (`benchmarks.shardy_real`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from solver.greedy.flows import Flow, Flows, Value
from solver.greedy.propagation import Axes, Units
from solver.greedy.shardy import pinned_axes
from solver.problem import Problem

TYPES = {
    "float32": "f32",
    "float64": "f64",
    "float16": "f16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "f8E4M3FN",
    "float8_e5m2": "f8E5M2",
    "bool": "i1",
    "complex64": "complex<f32>",
    "complex128": "complex<f64>",
    **{f"int{bits}": f"i{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"ui{bits}" for bits in (8, 16, 32, 64)},
}
SAME = {
    "add": "add", "subtract": "subtract", "multiply": "multiply", "divide": "divide", "maximum": "maximum",
    "minimum": "minimum", "pow": "power", "tanh": "tanh", "exp": "exponential", "log": "log", "rsqrt": "rsqrt",
    "sqrt": "sqrt", "neg": "negate", "abs": "abs", "cos": "cosine", "sin": "sine", "sigmoid": "logistic",
    "logical_and": "and", "logical_or": "or", "logical_not": "not",
}  # fmt: skip
"""Pointwise ops that StableHLO has too."""
UNARY = frozenset(SAME.values()) - {"add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "and", "or"}


class Module:
    """The text of a graph as one StableHLO function.

    Parameters
    ----------
    problem : Problem
    """

    def __init__(self, problem: Problem) -> None:
        self.problem, self.flows, self.units = problem, Flows(problem), Units(problem.mesh.sizes)
        self.fresh = 0

    def text(self) -> str:
        """Return the module; every op says the value that it makes in its frontend attributes."""
        axes = ", ".join(
            f'"{name}"={size}' for name, size in zip(self.problem.mesh.axes, self.problem.mesh.sizes, strict=True)
        )
        graph, of = self.problem.graph, self.flows.of
        sources = [name for name in of if graph.tensors[name].producer is None]
        arguments = ", ".join(f"{self._typed(of[name])}{self._argument(name)}" for name in sources)
        body = [line for index, value in enumerate(self.flows.values) for line in self._constant(index, value)]
        body += self._groups(sources)
        body += [line for flow in self.flows.flows for line in self._op(flow)]
        used = {value for flow in self.flows.flows for value in flow.operands}
        leaving = [of[name] for name in graph.outputs if name in of]
        leaving += [index for index in of.values() if index not in used and index not in leaving]
        results = ", ".join(f"{self._type(index)}{self._result(index)}" for index in leaving)
        returned = ", ".join(f"%v{index}" for index in leaving)
        types = ", ".join(self._type(index) for index in leaving)
        lines = "\n    ".join([*body, f"return {returned} : {types}"])
        return f"sdy.mesh @mesh = <[{axes}]>\nfunc.func @main({arguments}) -> ({results}) {{\n    {lines}\n}}\n"

    def _type(self, index: int, shape: Sequence[int] | None = None) -> str:
        value = self.flows.values[index]
        sizes = value.shape if shape is None else shape
        return f"tensor<{''.join(f'{size}x' for size in sizes)}{TYPES[value.dtype]}>"

    def _typed(self, index: int) -> str:
        return f"%v{index}: {self._type(index)}"

    def sharding(self, subject: str, rank: int) -> str:
        """Return what pins say of a tensor or use, every dim open; nothing where there is no pin."""
        placed, whole = pinned_axes(self.problem, self.units, subject, rank)
        if subject not in self.problem.pins_on:
            return ""
        dims = ", ".join("{" + ", ".join([*self._names(axes), "?"]) + "}" for axes in placed)
        replicated = f", replicated={{{', '.join(self._names(tuple(sorted(whole))))}}}" if whole else ""
        return f"<@mesh, [{dims}]{replicated}>"

    def _names(self, axes: Axes) -> list[str]:
        return [f'"{name}"' for k, name in enumerate(self.problem.mesh.axes) if set(self.units.of(k)) & set(axes)]

    def _argument(self, tensor: str) -> str:
        sharding = self.sharding(tensor, len(self.problem.graph.tensors[tensor].shape))
        return f" {{sdy.sharding = #sdy.sharding{sharding}}}" if sharding else ""

    def _result(self, index: int) -> str:
        leader = self.problem.delivered_as(self.flows.values[index].tensor)
        return "" if leader is None else self._argument(leader)

    def _groups(self, sources: Sequence[str]) -> Iterator[str]:
        groups = [group for group in dict.fromkeys(map(self.problem.stored_alike, sources)) if len(group) > 1]
        for number, group in enumerate(groups):
            for name in group:
                value = self.flows.of[name]
                yield f"sdy.sharding_group %v{value} group_id = {number} : {self._type(value)}"

    def _constant(self, index: int, value: Value) -> Iterator[str]:
        if value.role == "constant":
            yield f"%v{index} = stablehlo.constant {_zeros(value)} : {self._type(index)}"

    def _op(self, flow: Flow) -> Iterator[str]:
        if flow.op == "constraint":
            (source,), use = flow.operands, self.flows.constraints[flow.result]
            sharding = self.sharding(use, len(self.flows.values[source].shape))
            yield f"%v{flow.result} = sdy.sharding_constraint %v{source} {sharding} : {self._type(source)}"
        elif not flow.operands:
            zeros, of = _zeros(self.flows.values[flow.result]), self._type(flow.result)
            yield f"%v{flow.result} = stablehlo.constant {{{self._tags(flow)}}} {zeros} : {of}"
        elif flow.kind == "pointwise":
            yield from self._pointwise(flow)
        else:
            yield self._other(flow)

    def _tags(self, flow: Flow) -> str:
        """Return the attributes of an op that makes a value: which one, and the pins on it."""
        value = self.flows.values[flow.result]
        found = f'mhlo.frontend_attributes = {{value = "{flow.result}"}}'
        sharding = self.sharding(value.tensor, len(value.shape)) if value.role == "tensor" else ""
        return found + (f", sdy.sharding = #sdy.sharding_per_value<[{sharding}]>" if sharding else "")

    def _pointwise(self, flow: Flow) -> Iterator[str]:
        """Write an op that StableHLO has, or the sum of the operands, converted where dtypes differ."""
        target, dtype = self._type(flow.result), self.flows.values[flow.result].dtype
        same = all(self.flows.values[k].dtype == dtype for k in flow.operands)
        names = ", ".join(f"%v{k}" for k in flow.operands)
        types = [self._type(k) for k in flow.operands]
        head, tags = f"%v{flow.result} = stablehlo.", f"{{{self._tags(flow)}}}"
        if flow.op in SAME and same and len(flow.operands) == (1 if SAME[flow.op] in UNARY else 2):
            yield f"{head}{SAME[flow.op]} {names} {tags} : {target}"
        elif flow.op == "where" and [self.flows.values[k].dtype for k in flow.operands] == ["bool", dtype, dtype]:
            yield f"{head}select {names} {tags} : {types[0]}, {target}"
        elif len(flow.operands) == 1 and not same:
            yield f"{head}convert {names} {tags} : ({types[0]}) -> {target}"
        elif len(flow.operands) == 1:
            yield f"{head}{'not' if dtype == 'bool' else 'negate'} {names} {tags} : {target}"
        else:
            yield from self._sum(flow, dtype)

    def _sum(self, flow: Flow, dtype: str) -> Iterator[str]:
        target, tags = self._type(flow.result), f" {{{self._tags(flow)}}}"
        terms = []
        for k in flow.operands:
            terms.append(f"%v{k}")
            if self.flows.values[k].dtype != dtype:
                terms[-1] = self._name()
                yield f"{terms[-1]} = stablehlo.convert %v{k} : ({self._type(k)}) -> {target}"
        total = terms[0]
        for number, term in enumerate(terms[1:], 2):
            last = number == len(terms)
            made = f"%v{flow.result}" if last else self._name()
            yield f"{made} = stablehlo.add {total}, {term}{tags if last else ''} : {target}"
            total = made

    def _name(self) -> str:
        self.fresh += 1
        return f"%t{self.fresh}"

    def _other(self, flow: Flow) -> str:
        """Write a flow that is not pointwise."""
        shapes = [self.flows.values[k].shape for k in flow.values]
        moved = [dim for dim, names in enumerate(flow.dims[-1]) if names[0].startswith("moved")]
        if flow.kind == "broadcast":
            skipped = len(shapes[1]) - len(shapes[0])
            dims = list(range(skipped, len(shapes[1])))
            return self._written(flow, "broadcast_in_dim", f", dims = {dims}")
        if flow.kind == "transpose":
            return self._written(flow, "transpose", f", dims = {[flow.dims[0].index(names) for names in flow.dims[1]]}")
        if flow.kind == "reshape":
            return self._written(flow, "reshape", "")
        if moved and len(flow.operands) > 1 and len(moved) == 1:
            return self._written(flow, "concatenate", f", dim = {moved[0]}")
        if moved and len(flow.operands) == 1 and all(a >= b for a, b in zip(*shapes, strict=True)):
            starts = ", ".join(f"0:{size}" for size in shapes[1])
            return self._written(flow, "slice", f" [{starts}]")
        return self._lookup(flow) or self._product(flow) or self._reduction(flow) or self._custom(flow)

    def _written(self, flow: Flow, op: str, rest: str) -> str:
        names = ", ".join(f"%v{k}" for k in flow.operands)
        return f"%v{flow.result} = stablehlo.{op} {names}{rest} {{{self._tags(flow)}}} : {self._signature(flow)}"

    def _signature(self, flow: Flow) -> str:
        return f"({', '.join(self._type(k) for k in flow.operands)}) -> {self._type(flow.result)}"

    def _lookup(self, flow: Flow) -> str | None:
        """Write the rows of a table that indices name."""
        if flow.op != "embedding":
            return None
        ids, table = flow.operands
        rank, width = len(self.flows.values[ids].shape), self.flows.values[table].shape[1]
        numbers = (
            f"offset_dims = [{rank}], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = {rank}"
        )
        return (
            f'%v{flow.result} = "stablehlo.gather"(%v{table}, %v{ids}) <{{dimension_numbers = '
            f"#stablehlo.gather<{numbers}>, slice_sizes = array<i64: 1, {width}>}}> {{{self._tags(flow)}}} : "
            f"({self._type(table)}, {self._type(ids)}) -> {self._type(flow.result)}"
        )

    def _product(self, flow: Flow) -> str | None:
        """Write a sum of products of two operands."""
        single = all(len(names) == 1 for of in flow.dims for names in of)
        if len(flow.operands) != 2 or not single or "replication" in flow.types.values():
            return None
        left, right, made = ([names[0] for names in of] for of in flow.dims)
        batch = [name for name in left if name in right and name in made]
        summed = [name for name in left if name in right and name not in made]
        alone = [name for name in left if name not in right] + [name for name in right if name not in left]
        if not summed or made != [*batch, *alone]:
            return None
        pairs = [[of.index(name) for name in names] for names in (batch, summed) for of in (left, right)]
        batching = f"batching_dims = {pairs[0]} x {pairs[1]}, " if batch else ""
        return self._written(flow, "dot_general", f", {batching}contracting_dims = {pairs[2]} x {pairs[3]}")

    def _reduction(self, flow: Flow) -> str | None:
        """Write a reduction of one operand that leaves its other dims in order."""
        if len(flow.operands) != 1 or set(flow.types.values()) - {"pass", "reduction"}:
            return None
        gone = [dim for dim, names in enumerate(flow.dims[0]) if names not in flow.dims[1]]
        left = tuple(names for names in flow.dims[0] if names in flow.dims[1])
        if not gone or left != flow.dims[1] or "reduction" not in flow.types.values():
            return None
        (source,), start = flow.operands, self._name()
        scalar, signature = (
            self._type(source, ()),
            self._signature(flow).replace(")", f", {self._type(source, ())})", 1),
        )
        op = "or" if self.flows.values[source].dtype == "bool" else "add"
        if self.flows.values[source].dtype != self.flows.values[flow.result].dtype:
            return None
        return (
            f"{start} = stablehlo.constant {_zeros(self.flows.values[source])} : {scalar}\n    "
            f"%v{flow.result} = stablehlo.reduce(%v{source} init: {start}) applies stablehlo.{op} "
            f"across dimensions = {gone} {{{self._tags(flow)}}} : {signature}"
        )

    def _custom(self, flow: Flow) -> str:
        names = ", ".join(f"%v{k}" for k in flow.operands)
        tags = f"{self._tags(flow)}, sdy.sharding_rule = {rule_of(flow)}"
        return f"%v{flow.result} = stablehlo.custom_call @{flow.op}({names}) {{{tags}}} : {self._signature(flow)}"


def rule_of(flow: Flow) -> str:
    """Return the sharding rule of a flow as Shardy writes it, for a custom call; an MLIR context must be entered."""
    from jaxlib.mlir.dialects import sdy

    numbers = {name: number for number, name in enumerate(flow.sizes)}
    of_type = [
        [numbers[name] for name in flow.sizes if flow.types[name] == kind]
        for kind in ("reduction", "replication", "permutation")
    ]
    mappings = [
        sdy.TensorMappingAttr.get([sdy.DimMappingAttr.get([numbers[name] for name in names]) for names in of])
        for of in flow.dims
    ]
    sizes = list(flow.sizes.values())
    return str(sdy.OpShardingRuleAttr.get(sizes, mappings[:-1], mappings[-1:], *of_type, is_custom=True))


def _zeros(value: Value) -> str:
    kind = "false" if value.dtype == "bool" else "(0.0, 0.0)" if "complex" in value.dtype else "0"
    return f"dense<{'0.0' if 'float' in value.dtype else kind}>"
