"""PaddlePaddle's rules in programs, forward and backward: what each op of a distributed program says of its tensors."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
from paddle_networks import NETWORKS
from paddle_rules import MESHES, Answer, Finding, Judge, Product, cuts
from truth import Case, Subject, backward, subject

from ops import Partial, Placement, Replicate, Shard, rule_for
from solver.importers.paddle_direct import Direct
from solver.importers.paddle_ops import DIRECT, GRADS, OTHERS, translate
from solver.importers.paddle_reading import STRUCTURE, Reading
from solver.importers.paddle_site import Site
from solver.importers.sketch import Operand, Step, Value

ONE = re.compile(r"dims_mappings:\[([-\d,]*)\](.*?)placements")
KIND = re.compile(r"partial\((\d+),(\w+)\)")


def placed(attr: Any, axes: int) -> list[tuple[Placement, ...]]:
    """The placements of a tensor, or of each tensor of a list, as an op of a program tells them."""
    found = []
    for mapping, partial in ONE.findall(str(attr)):
        one: list[Placement] = [Replicate()] * axes
        for dim, axis in enumerate(mapping.split(",") if mapping else []):
            if int(axis) >= 0:
                one[int(axis)] = Shard(dim)
        for axis, kind in KIND.findall(partial):
            one[int(axis)] = Product() if kind == "PRODUCT" else Partial(kind.lower())
        found.append(tuple(one))
    return found


def program(name: str, given: Mapping[str, Sequence[Placement]]) -> Any:
    """Write a network with its inputs placed, and its backward pass where it has one."""
    network = NETWORKS[name]
    axes = len(next(iter(given.values())))
    paddle.enable_static()
    made = paddle.static.Program()
    with paddle.static.program_guard(made, paddle.static.Program()), paddle.utils.unique_name.guard():
        inputs = {}
        for key, placements in given.items():
            shape = network.inputs[key].shape
            mapping = [-1] * len(shape)
            for axis, placement in enumerate(placements):
                if isinstance(placement, Shard):
                    mapping[placement.dim] = axis
            tensor = paddle.static.data(key, list(shape), str(network.inputs[key].dtype))
            tensor.update_dist_attr(paddle.base.libpaddle.pir.create_tensor_dist_attribute(MESHES[axes], mapping, {}))
            tensor.stop_gradient = network.inputs[key].dtype.kind != "f"
            inputs[key] = tensor
        out = network.write(**inputs)
        if network.backward:
            learned = [tensor for tensor in inputs.values() if not tensor.stop_gradient]
            outs = [one for one in (out if isinstance(out, list | tuple) else [out]) if "float" in str(one.dtype)]
            paddle.static.gradients([(one * one).mean() for one in outs], learned)
    return made


@dataclass
class Told:
    """What one op of a program says, beside our op."""

    case: Case
    grad: bool
    answer: Answer

    @property
    def subject(self) -> Subject:
        forward = subject(self.case)
        return backward(forward) if self.grad else forward

    @property
    def op(self) -> str:
        return f"{self.case.op}_grad" if self.grad else self.case.op


class Trace:
    """One pass over a program that keeps what each op says.

    Parameters
    ----------
    arrays : mapping
        The integers and truth values among the inputs.
    axes : int
    """

    def __init__(self, arrays: Mapping[str, Any], axes: int) -> None:
        self.arrays = arrays
        self.axes = axes
        self.reading = Reading("program", {}, {})
        self.cases: dict[int, Case] = {}

    def run(self, block: Any) -> Iterator[Told]:
        """Yield what each op says that becomes one of ours."""
        for op in block.ops:
            if op.name() in STRUCTURE:
                STRUCTURE[op.name()](self.reading, op)
                continue
            site, before = Site(op, self.reading), len(self.reading.sketch.steps)
            translate(site)
            direct = _direct(site)
            steps = self.reading.sketch.steps[before:]
            if direct is None or len(steps) != 1 or op.dist_attr is None:
                continue
            case = self._case(site, direct, steps[0])
            if case is not None:
                grad = steps[0].op != direct.op
                yield Told(case, grad, self._answer(site, direct, steps[0], grad))

    def _case(self, site: Site, direct: Direct, step: Step) -> Case | None:
        attrs = {name: value for name, value in step.attrs.items() if name != "forward_shapes"}
        if step.op == direct.op:
            operands = {
                spec.name: self._numbers(operand)
                for spec, operand in zip(rule_for(step.op).operands, step.operands, strict=False)
            }
        elif site.forward is not None:
            return self.cases.get(site.forward.op.id())
        else:
            operands = dict(step.attrs["forward_shapes"])
        if any(value is NotImplemented for value in operands.values()):
            return None
        self.cases[site.op.id()] = Case(direct.op, operands, attrs)
        return self.cases[site.op.id()]

    def _numbers(self, operand: Operand) -> Any:
        """A shape to be filled, or the array where the numbers mean something."""
        if operand is None:
            return None
        if not isinstance(operand, Value):
            return [self._numbers(one) for one in operand]
        if operand.data is not None:
            return np.array(operand.data)
        if operand.floating:
            return operand.shape
        return self.arrays.get(operand.name, NotImplemented)

    def _answer(self, site: Site, direct: Direct, step: Step, grad: bool) -> Answer:
        attr, rule = site.op.dist_attr, rule_for(step.op)
        inputs, outputs = site.op.get_input_names(), site.op.get_output_names()

        def told(theirs: str, names: list[str], of: Any, count: int) -> list[tuple[Placement, ...] | None]:
            found = placed(of(names.index(theirs)), self.axes) if theirs in names else []
            return [*found, *[None] * (count - len(found))] if len(found) <= count else [None] * count

        operands: list[Any] = []
        for spec, operand in zip(rule.operands, [*step.operands, *[None] * len(rule.operands)], strict=False):
            if operand is None:
                operands.append(None)
                continue
            base = spec.name.removesuffix("_grad")
            theirs = direct.operands.get(base, base)
            if grad and base in [one.name for one in rule_for(direct.op).results]:
                theirs = direct.results.get(base, base)
                theirs = theirs if site.forward is None else direct._result(site.forward, base)
            count = 1 if isinstance(operand, Value) else len(operand)
            operands += told(theirs + spec.name[len(base) :], inputs, attr.operand, count)
        results: list[Any] = []
        slots = [slot.name for slot in rule.bind(_shapes(rule, step), step.attrs).results]
        for name, group in itertools.groupby(slots, key=_base):
            base = name.removesuffix("_grad")
            theirs = f"{direct.operands.get(base, base)}_grad" if grad else direct._result(site, name)
            results += told(theirs, outputs, attr.result, len(list(group)))
        return Answer(tuple(operands), tuple(results))


def _base(slot: str) -> str:
    head, dot, tail = slot.partition(".")
    return head + tail.lstrip("0123456789") if dot else slot


def _shapes(rule: Any, step: Step) -> dict[str, Any]:
    return {
        spec.name: operand.shape if isinstance(operand, Value) else operand and [one.shape for one in operand]
        for spec, operand in zip(rule.operands, step.operands, strict=False)
    }


def _direct(site: Site) -> Direct | None:
    if site.kind in OTHERS:
        return None
    choice = GRADS.get(site.kind) or DIRECT.get(site.kind) or DIRECT[site.kind.removesuffix("_grad")]
    return choice(site) if callable(choice) else choice


def placings(name: str) -> Iterator[dict[str, tuple[Placement, ...]]]:
    """Yield where the inputs of a network lie: one of them cut, or all of them alike."""
    inputs = NETWORKS[name].inputs
    whole = {key: (Replicate(),) for key in inputs}
    yield whole
    for key, array in inputs.items():
        for cut in list(cuts(array.shape, 1))[1:]:
            yield {**whole, key: cut}
    for dim in range(max(array.ndim for array in inputs.values())):
        alike = {
            key: (Shard(dim),) if dim < array.ndim and array.shape[dim] % 2 == 0 else (Replicate(),)
            for key, array in inputs.items()
        }
        if sum(cut != (Replicate(),) for cut in alike.values()) > 1:
            yield alike


def on_two_axes(name: str) -> Iterator[dict[str, tuple[Placement, ...]]]:
    """Yield each pair of placings, one a mesh axis, where no dim is cut twice."""
    for first, second in itertools.product(placings(name), repeat=2):
        joint = {key: first[key] + second[key] for key in first}
        if not any(a == b and isinstance(a, Shard) for a, b in joint.values()):
            yield joint


def findings(name: str, axes: int = 1) -> tuple[dict[str, list[Finding]], int]:
    """Write a network with its inputs placed in every way, and return by op what differs, and how many ops spoke."""
    arrays = {key: value for key, value in NETWORKS[name].inputs.items() if value.dtype.kind != "f"}
    found: dict[str, dict[str, Finding]] = {}
    spoken = 0
    for given in placings(name) if axes == 1 else on_two_axes(name):
        try:
            written = program(name, given)
        except (ValueError, RuntimeError):  # Their rule refuses the placements.
            continue
        for told in Trace(arrays, axes).run(written.global_block()):
            spoken += 1
            judge = Judge(told.subject)
            if not judge.is_ours(told.answer):
                finding = Finding("grad" if told.grad else "forward", told.answer, told.case, judge.fault(told.answer))
                found.setdefault(told.op, {}).setdefault(str(finding), finding)
    return {op: list(them.values()) for op, them in found.items()}, spoken
