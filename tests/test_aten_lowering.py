"""Each aten overload, run by PyTorch and through its lowering in numpy: equal results."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from aten_cases import CASES
from aten_cases.case import Case, Item, Node, T, X

from solver.importers.aten import TABLE, lower
from solver.importers.aten_aliases import functional
from solver.importers.aten_site import Site
from solver.importers.capture import INPUT, Capture, CapturedNode, Ref, Spec
from solver.importers.errors import UnsupportedNodeError
from solver.report.coverage import framework
from solver.values import given_values, run_whole

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'shardproof[torch]'")
pytest.importorskip("torch._inductor.inductor_prims", reason="declares the prims of pooling")

ELSEWHERE = {
    "constant",
    "transformers.grouped_mm_fallback.default",
    "transformers.grouped_mm_fallback_backward.default",
}
"""No ops of PyTorch itself: the models of test_importer_torch.py and test_importer_transformers.py have them."""
EMITTED: dict[str, set[str]] = defaultdict(set)
"""Overload -> the ops that its cases became, those folded into constants too."""


def drawn(spec: T, index: int) -> Any:
    """Draw a tensor; what it holds depends on what it is, and on its place in the call."""
    rng = np.random.default_rng([zlib.crc32(repr(spec).encode()), index])
    if spec.dtype == "bool":
        mask = rng.random(spec.shape) < 0.5
        return torch.tensor(mask | (np.arange(spec.shape[-1]) == 0) if spec.kind == "mask" else mask)
    if spec.kind == "ends":
        return torch.tensor(np.linspace(0, spec.high, spec.shape[0] + 1)[1:].astype(spec.dtype))
    if spec.kind == "order":
        high = max(spec.high, spec.shape[-1])
        rows = [rng.permutation(high)[: spec.shape[-1]] for _ in range(int(np.prod(spec.shape[:-1])))]
        return torch.tensor(np.reshape(rows, spec.shape).astype(spec.dtype))
    if "int" in spec.dtype:
        return torch.tensor(rng.integers(spec.low, spec.high, spec.shape).astype(spec.dtype))
    values = rng.standard_normal(spec.shape)
    if spec.kind == "positive":
        values = np.abs(values) + 0.5
    elif spec.kind == "large":
        values = np.abs(values) + 1.5
    elif spec.kind == "unit":
        values = np.clip(values / 3, -0.9, 0.9)
    elif spec.kind == "chance":
        values = rng.random(spec.shape)
    elif spec.kind == "whole":
        values = rng.integers(spec.low, spec.high, spec.shape)
    elif spec.kind == "masked":
        values[rng.random(spec.shape) < 0.4] = -np.inf
        values[1] = values[:, 2] = -np.inf
    return torch.tensor(values, dtype=getattr(torch, spec.dtype))


class Call:
    """A case run by PyTorch, and written down as a capture on the way."""

    def __init__(self, case: Case) -> None:
        self.tensors: dict[T, Any] = {}
        self.made: dict[str, Any] = {}
        self.nodes: list[CapturedNode] = []
        for name, op, args, *kwargs in case.before:
            self.run(name, op, args, kwargs[0] if kwargs else {})
        self.result = self.run("made", case.op, case.args, case.kwargs)
        several = isinstance(self.result, Sequence)
        results = list(self.result) if several else [self.result]
        wanted = range(len(results)) if not case.results else case.results
        self.wanted: dict[str, Any] = {}
        for index in wanted:
            if results[index] is not None:
                name = f"made_{index}" if several else "made"
                self.wanted[name] = results[index]
                if several:
                    self.nodes.append(CapturedNode(name, "getitem", (Ref("made"), index), val=val_of(results[index])))
        self.nodes.append(CapturedNode("output", "output", ([Ref(name) for name in self.wanted],)))

    def run(self, name: str, op: str, args: Any, kwargs: Any) -> Any:
        """Run one op, after the placeholders that it reads."""
        captured = tuple(self.captured(arg) for arg in args), {key: self.captured(arg) for key, arg in kwargs.items()}
        namespace, packet, overload = op.split(".")
        call = getattr(getattr(getattr(torch.ops, namespace), packet), overload)
        given = {key: self.real(arg) for key, arg in kwargs.items()}
        result = call(*self.copies([self.real(arg) for arg in args]), **given)
        self.made[name] = result
        val = tuple(map(val_of, result)) if isinstance(result, list | tuple) else val_of(result)
        self.nodes.append(CapturedNode(name, op, *captured, val=val))
        return result

    def copies(self, args: list[Any]) -> list[Any]:
        """An op in place writes into a copy."""
        return [arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in args]

    def captured(self, arg: Any) -> Any:
        if isinstance(arg, T):
            if arg not in self.tensors:
                self.tensors[arg] = drawn(arg, len(self.tensors))
                place = f"x{len(self.tensors)}"
                self.nodes.append(CapturedNode(place, "placeholder", val=val_of(self.tensors[arg]), role=INPUT))
                self.made[place] = arg
            return Ref(f"x{list(self.tensors).index(arg) + 1}")
        if isinstance(arg, Item):
            name = f"{arg.node}_{arg.index}"
            if name not in self.made:
                self.made[name] = self.made[arg.node][arg.index]
                self.nodes.append(
                    CapturedNode(name, "getitem", (Ref(arg.node), arg.index), val=val_of(self.made[name]))
                )
            return Ref(name)
        if isinstance(arg, Node):
            return Ref(arg.node)
        return [self.captured(one) for one in arg] if isinstance(arg, list | tuple) else arg

    def real(self, arg: Any) -> Any:
        if isinstance(arg, T):
            return self.tensors[arg]
        if isinstance(arg, Item):
            return self.made[arg.node][arg.index]
        if isinstance(arg, Node):
            return self.made[arg.node]
        if isinstance(arg, str) and arg.startswith("torch."):
            return getattr(torch, arg.removeprefix("torch."))
        return [self.real(one) for one in arg] if isinstance(arg, list | tuple) else arg

    @property
    def values(self) -> dict[str, Any]:
        """What the placeholders hold, by name."""
        return {f"x{index}": as_array(tensor) for index, tensor in enumerate(self.tensors.values(), 1)}


def val_of(result: Any) -> Any:
    if not isinstance(result, torch.Tensor):
        return None
    return Spec(tuple(result.shape), str(result.dtype).removeprefix("torch."))


def as_array(tensor: Any) -> Any:
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


@pytest.fixture
def emitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep in mind which ops each overload becomes."""
    emit_all = Site.emit_all

    def noted(site: Site, op: str, *operands: Any, **attrs: Any) -> Any:
        EMITTED[site.node.op].add(op)
        return emit_all(site, op, *operands, **attrs)

    monkeypatch.setattr(Site, "emit_all", noted)


def check(case: Case, call: Call) -> None:
    """Hold what a graph computes against what PyTorch did."""
    graph = lower(Capture("case", call.nodes))
    given = {name: value for name, value in call.values.items() if name in graph.tensors}
    found = run_whole(graph, given_values(graph, given))
    for output, (name, expected) in zip(graph.outputs, call.wanted.items(), strict=True):
        tensor, wanted = graph.tensors[output], as_array(expected)
        assert (tensor.shape, tensor.dtype) == (tuple(expected.shape), str(expected.dtype).removeprefix("torch."))
        if case.results == ():
            continue
        tolerance = {"bfloat16": 2e-2, "float32": 1e-5}.get(tensor.dtype, 1e-9)
        if wanted.dtype.kind == "f":
            np.testing.assert_allclose(found[output], wanted, rtol=tolerance, atol=tolerance, err_msg=name)
        else:
            np.testing.assert_array_equal(found[output], wanted, err_msg=name)


@pytest.mark.usefixtures("emitted")
@pytest.mark.parametrize("case", CASES, ids=[f"{index}-{case.op}" for index, case in enumerate(CASES)])
def test_a_lowering_computes_what_pytorch_does(case: Case) -> None:
    for op in (case.op, *(op for _, op, *_ in case.before)):
        EMITTED[op] |= set()
    check(case, Call(case))


class InPlace(Call):
    """A case whose ops write where PyTorch does."""

    def copies(self, args: list[Any]) -> list[Any]:
        return args


def row(base: str, index: int = 1) -> tuple[Any, ...]:
    return ("row", "aten.select.int", (Node(base), 0, index))


COPY, TURNED = ("y", "aten.clone.default", (X,)), ("t", "aten.t.default", (Node("y"),))
PLACES = T((4, 2), "int64", kind="order", high=6)
WRITES = {
    "a view of what is written": (COPY, TURNED, ("w", "aten.relu_.default", (Node("y"),))),
    "what a view of is written": (COPY, TURNED, row("y"), ("w", "aten.mul_.Tensor", (Node("row"), 2.0))),
    "a view of a view": (
        COPY,
        ("flat", "aten.view.default", (Node("y"), [24])),
        ("part", "aten.slice.Tensor", (Node("flat"), 0, 3, 9, 2)),
        ("t", "aten.permute.default", (Node("y"), [1, 0])),
        ("w", "aten.copy_.default", (Node("part"), T((3,)))),
    ),
    "through a transpose": (
        COPY,
        ("t", "aten.transpose.int", (Node("y"), 0, 1)),
        ("part", "aten.slice.Tensor", (Node("t"), 0, 1, 3)),
        ("w", "aten.add_.Tensor", (Node("part"), 1)),
    ),
    "twice": (
        COPY,
        row("y"),
        ("v", "aten.relu_.default", (Node("row"),)),
        TURNED,
        ("w", "aten.sub_.Tensor", (Node("y"), 1)),
    ),
    "a scatter": (COPY, TURNED, ("w", "aten.scatter_.value", (Node("y"), 1, PLACES, 0.5))),
}


@pytest.mark.parametrize("what", WRITES)
@pytest.mark.parametrize("read", ["y", "t", "row", "w"])
def test_what_is_written_in_place_is_read_through_every_view(what: str, read: str) -> None:
    before = WRITES[what]
    if read in {name for name, *_ in before}:
        case = Case("aten.add.Tensor", (Node(read), Node(read)), before=before)
        check(case, InPlace(case))


def test_a_part_that_cannot_be_put_back_is_refused() -> None:
    before = (COPY, ("parts", "aten.split.Tensor", (Node("y"), 2)), ("w", "aten.relu_.default", (Item("parts", 0),)))
    case = Case("aten.add.Tensor", (Node("y"), Node("y")), before=before)
    with pytest.raises(UnsupportedNodeError, match=r"'w' .* writes into 'parts_0', a part of 'parts' by"):
        check(case, InPlace(case))


def test_every_lowering_is_tried_and_stands_in_the_table_of_names() -> None:
    entries = {entry.name: entry for entry in framework("aten").entries}
    assert TABLE.keys() - entries.keys() == {"constant"}
    assert {name for name in entries if functional(name) not in TABLE} == {"py:getitem"}
    if {case.op for case in CASES} > EMITTED.keys():
        pytest.skip("only some of the cases were run")
    assert TABLE.keys() - EMITTED.keys() == ELSEWHERE
    told = {name: set(entry.ops) - {"cast"} for name, entry in entries.items() if name in EMITTED}
    assert told == {name: ops - {"cast"} for name, ops in EMITTED.items()}
