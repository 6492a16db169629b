"""PaddlePaddle's SPMD rules, asked directly, and held against ours."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import paddle.distributed as dist
from paddle.base import core
from paddle.distributed.auto_parallel.static.dist_attribute import DistTensorSpec, TensorDistAttr
from paddle_registry import NO_REVERSE, REGISTRY, Ask
from truth import Subject, execute, parts_of, subject
from truth_check import implied_cuts
from truth_mesh import agree, assemble

from ops import Partial, Placement, Replicate, Shard, composes

Joint = tuple[tuple[Placement | None, ...], ...]
"""Placements of a tensor on the mesh axes, or None; a tuple of them for each slot."""

MESHES = {1: dist.ProcessMesh([0, 1], dim_names=["a"]), 2: dist.ProcessMesh([[0, 1], [2, 3]], dim_names=["a", "b"])}
PARTIAL = re.compile(r"Partial\(dims:(\d+), (\w+)\)")


class Product(Partial):
    """Their partial product, a kind that we do not have."""

    def __init__(self) -> None:
        super().__init__("sum")

    def __str__(self) -> str:
        return "P(product)"


@dataclass(frozen=True)
class Answer:
    """What a rule says: placements of operands and results by slot, one per mesh axis.

    Slots are those of our op; None stands for a tensor that ours does not have.
    """

    operands: tuple[tuple[Placement, ...] | None, ...]
    results: tuple[tuple[Placement, ...] | None, ...]

    def __str__(self) -> str:
        def text(slots: Sequence[tuple[Placement, ...] | None]) -> str:
            return " ".join("-" if s is None else ",".join(map(str, s)) for s in slots)

        return f"{text(self.operands)} -> {text(self.results)}"


def spec(shape: Sequence[int], placements: Sequence[Placement]) -> Any:
    """A tensor as their rules take it."""
    attr = TensorDistAttr()
    attr.process_mesh = MESHES[len(placements)]
    mapping = [-1] * len(shape)
    for axis, placement in enumerate(placements):
        if isinstance(placement, Shard):
            mapping[placement.dim] = axis
    attr.dims_mapping = mapping
    return DistTensorSpec(list(shape), attr)


def placements_of(attr: Any, axes: int) -> tuple[Placement, ...]:
    """The placements that their attribute stands for."""
    found: list[Placement] = [Replicate()] * axes
    for dim, axis in enumerate(attr.dims_mapping):
        if axis >= 0:
            found[axis] = Shard(dim)
    for axis, kind in PARTIAL.findall(str(attr)):
        found[int(axis)] = Product() if kind == "PRODUCT" else Partial(kind.lower())
    return tuple(found)


class Judge:
    """An op of ours with numbers, which an answer is held against.

    Parameters
    ----------
    on : Subject
    """

    def __init__(self, on: Subject) -> None:
        self.on = on
        self.bound = on.bound

    def is_ours(self, answer: Answer) -> bool:
        """Tell whether an answer is a row of ours on every mesh axis, and the rows go together."""
        axes = len(next(p for p in answer.operands + answer.results if p is not None))
        chosen = []
        for axis in range(axes):
            rows = [
                row
                for row in self.bound.rows
                if _fits(row.operands, answer.operands, axis) and _fits(row.results, answer.results, axis)
            ]
            if not rows:
                return False
            chosen.append(rows)
        return any(composes(self.bound, rows, [2] * axes) for rows in itertools.product(*chosen))

    def fault(self, answer: Answer) -> str | None:
        """Run the op with operands and results placed so; what is wrong with it, or None.

        What the answer does not speak of is whole.
        """
        axes = len(next(p for p in answer.operands + answer.results if p is not None))
        sizes = (2,) * axes
        taken = [
            (Replicate(),) * axes if told is None and slot is not None else told
            for told, slot in zip(answer.operands, self.bound.operands, strict=True)
        ]
        joint = [[None if p is None else p[axis] for p in taken] for axis in range(axes)]
        cut = [implied_cuts(self.bound, row) for row in joint]
        try:
            local = execute(self.on, self.bound, joint, cut, sizes)
            for index, (slot, whole) in enumerate(zip(self.bound.results, self.on.whole, strict=True)):
                layout = answer.results[index]
                if layout is None:
                    continue
                mine = {c: made[index] for c, made in local.items()}
                if isinstance(layout[0], Product) and axes == 1:
                    first, second = mine.values()
                    mine, layout = dict.fromkeys(mine, first * second), (Replicate(),)
                if wrong := agree(assemble(mine, layout, parts_of(slot, self.bound), sizes, whole), whole):
                    return f"{slot.name} {wrong}"
        except (ValueError, IndexError, TypeError, KeyError, ArithmeticError) as error:
            return f"{type(error).__name__}: {error}"
        return None


class Question(Judge):
    """One ask, bound to our op.

    Parameters
    ----------
    name : str
        Of their rule.
    ask : Ask
    """

    def __init__(self, name: str, ask: Ask) -> None:
        super().__init__(subject(ask.case))
        self.ask = ask
        self.rule = core.get_phi_spmd_rule(name)
        present = [spec.name for spec in self.on.op.operands if self.on.shapes.get(spec.name) is not None]
        self.tensors = ask.tensors.split() or present
        results = [spec.name for spec in self.on.op.results]
        self.results = ask.results.split() or results
        self.slots = {slot.name: i for i, slot in enumerate(self.bound.operands) if slot is not None}
        self.made = {slot.name: i for i, slot in enumerate(self.bound.results)}

    def given(self, axes: int) -> Iterator[tuple[tuple[Placement, ...] | None, ...]]:
        """Yield the placements of the operands to ask about: each is cut nowhere, or one dim on each mesh axis."""
        choices: list[list[tuple[Placement, ...] | None]] = []
        for slot in self.bound.operands:
            if slot is None:
                choices.append([None])
                continue
            shape = slot.shape[:1] if slot.name in self.ask.whole else slot.shape
            choices.append(list(cuts(shape, axes)))
        return itertools.product(*choices)

    def all(self, name: str, axes: int, limit: int) -> Iterator[tuple[str, Any]]:
        """Yield what to ask: placements of the operands, and placements of one result at a time, a sample of many."""
        for given in _sample(list(self.given(axes)), limit):
            yield "forward", given
        if name in NO_REVERSE:
            return
        for index, slot in enumerate(self.bound.results):
            for cut in _sample(list(cuts(slot.shape, axes)), limit):
                whole = [(Replicate(),) * axes] * len(self.bound.results)
                yield "reverse", [*whole[:index], cut, *whole[index + 1 :]]

    def forward(self, operands: Sequence[tuple[Placement, ...] | None]) -> Answer:
        """Ask which operands the rule takes, and what it makes of them."""
        axes = len(next(p for p in operands if p is not None))
        tensors = self._tensors(operands, axes)
        if self.ask.in_lists:
            made = [spec(slot.shape, (Replicate(),) * axes) for slot in self.bound.results]
            return self._read(self.rule.infer_forward(tensors, made), axes)
        return self._read(self.rule.infer_forward(*tensors, *self.ask.args), axes)

    def backward(self, results: Sequence[tuple[Placement, ...]]) -> Answer:
        """Ask which operands lead to results."""
        axes = len(results[0])
        whole = [None if s is None else (Replicate(),) * axes for s in self.bound.operands]
        outs: list[Any] = []
        for name in self.results:
            slots = _of(name, self.made)
            made = [spec(self.bound.results[i].shape, results[i]) for i in slots]
            outs.append(
                made if _variadic(self.on.op.results, name) else made[0] if made else spec((1,), (Replicate(),) * axes)
            )
        asked = self.rule.infer_backward(*self._tensors(whole, axes), *outs, *self.ask.args)
        return self._read(asked, axes)

    def _tensors(self, operands: Sequence[tuple[Placement, ...] | None], axes: int) -> list[Any]:
        extra = iter(self.ask.extra)
        found: list[Any] = []
        for name in self.tensors:
            if name == "_":
                found.append(spec(next(extra), (Replicate(),) * axes))
                continue
            made = [spec(self.bound.operands[i].shape, operands[i]) for i in _of(name, self.slots)]
            found.append(made if _variadic(self.on.op.operands, name) else made[0])
        return found

    def _read(self, asked: Any, axes: int) -> Answer:
        operands: list[tuple[Placement, ...] | None] = [None] * len(self.bound.operands)
        results: list[tuple[Placement, ...] | None] = [None] * len(self.bound.results)
        for names, known, found, into in (
            (self.tensors, self.slots, asked[0], operands),
            (self.results, self.made, asked[1], results),
        ):
            for name, told in zip(names, found, strict=False):
                for i, one in zip(_of(name, known), told if isinstance(told, list) else [told], strict=False):
                    into[i] = placements_of(one, axes)
        return Answer(tuple(operands), tuple(results))


def cuts(shape: Sequence[int], axes: int) -> Iterator[tuple[Placement, ...]]:
    dims: list[Placement] = [Replicate(), *(Shard(d) for d, size in enumerate(shape) if size % 2 == 0)]
    for chosen in itertools.product(dims, repeat=axes):
        cut = [p for p in chosen if isinstance(p, Shard)]
        if len(set(cut)) == len(cut):
            yield chosen


def _sample(items: list[Any], limit: int) -> list[Any]:
    return items if len(items) <= limit else random.Random(len(items)).sample(items, limit)


def _variadic(specs: Sequence[Any], name: str) -> bool:
    return any(one.name == name and one.variadic for one in specs)


def _of(name: str, slots: Mapping[str, int]) -> list[int]:
    return [i for slot, i in slots.items() if slot == name or slot.rpartition(".")[0] == name]


def _fits(ours: Sequence[Placement | None], theirs: Sequence[tuple[Placement, ...] | None], axis: int) -> bool:
    return all(t is None or o == t[axis] for o, t in zip(ours, theirs, strict=True))


@dataclass(frozen=True)
class Finding:
    """An answer that is no row of ours.

    Parameters
    ----------
    direction : {"forward", "reverse"}
    answer : Answer
    case : Case
    fault : str or None
        What is wrong when the op is run so; None where it holds.
    """

    direction: str
    answer: Answer
    case: Any
    fault: str | None

    def __str__(self) -> str:
        return f"{self.direction} {self.answer}"


def findings(name: str, axes: int = 1, limit: int = 10**6) -> tuple[list[Finding], int, int]:
    """Ask a rule everything; return what differs, how many answers there were, how many questions it refused."""
    found: dict[str, Finding] = {}
    answers = refused = 0
    for ask in REGISTRY[name]:
        question = Question(name, ask)
        for direction, given in question.all(name, axes, limit):
            try:
                answer = question.forward(given) if direction == "forward" else question.backward(given)
            except (ValueError, NotImplementedError, RuntimeError):  # PaddlePaddle's ways to refuse, all counted
                refused += 1
                continue
            answers += 1
            if not question.is_ours(answer):
                finding = Finding(direction, answer, ask.case, question.fault(answer))
                found.setdefault(f"{finding} {ask.case} ", finding)
    return list(found.values()), answers, refused
