"""Every op refuses what it cannot be given in one sentence: bad attributes, wrong ranks, missing operands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from cases import CASES
from truth import Case, Subject, subject

from ops import RuleError, rows, rule_for
from ops.attributes import DTYPES
from solver.graph_values import ITEMSIZE

BAD: tuple[Any, ...] = (
    *(None, -7, 99, 2.5, "nonsense", True, float("nan"), {}),
    *([], [99], [0, 0], ["a"], [1.5], (0, 99)),
)
FIRST = {case.op: case for case in reversed(CASES)}
"""Op -> its first case."""
NUMBERS = "epsilon momentum alpha beta scale negative_slope threshold p"
"""Attributes of many ops that must be numbers."""


def shapes_of(on: Subject) -> list[Any]:
    return [on.shapes.get(spec.name) for spec in on.op.operands]


def grad_shapes(on: Subject) -> list[Any]:
    """The shapes that rows() of the grad op takes."""
    grad = on.op.grad
    assert grad is not None
    given = shapes_of(on)
    for spec in on.op.results:
        made = [slot.shape for slot in on.bound.results if slot.name.partition(".")[0] == spec.name]
        if spec.name in grad.receiving(on.op):
            given.append(made if spec.variadic else made[0] if made else None)
    return given


def altered(shape: Any) -> Iterator[Any]:
    """Shapes of another rank, of other sizes, and none."""
    if isinstance(shape, list):
        yield from ([(), *shape[1:]], [one[1:] for one in shape], [(*shape[0], 2), *shape[1:]], shape[:1], [])
    else:
        yield from ((), (*shape, 2), shape[1:], (5, *shape), tuple(reversed(shape)), tuple(n + 1 for n in shape))
        yield (7,) * 7
    yield None


def refusal(name: str, shapes: list[Any], attrs: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the way in which an op is refused; None where it is right, or takes what is given."""
    try:
        rows(name, shapes, attrs)
    except RuleError as error:
        told: str = str(error)
        causes: list[BaseException] = [error]
        while causes[-1].__cause__ is not None:
            causes.append(causes[-1].__cause__)
        slipped = not all(isinstance(cause, RuleError) for cause in causes)
        if "\n" in told or name not in told or len(told) < 15:
            return f"{name} {shapes} {attrs}: {told!r} is no sentence that names the op"
        return f"{name} {shapes} {attrs}: Python speaks: {told}" if slipped and "does not fit" in told else None
    except Exception as error:
        return f"{name} {shapes} {attrs}: {type(error).__name__}: {error}"
    return None


@pytest.mark.parametrize("case", FIRST.values(), ids=lambda case: case.op)
def test_what_an_op_cannot_take_is_told(case: Case) -> None:
    on = subject(case)
    asked = [(case.op, shapes_of(on))]
    if on.op.grad is not None:
        asked.append((f"{case.op}_grad", grad_shapes(on)))
    faults = []
    for name, shapes in asked:
        for attribute in (*on.op.attrs, "no_such_attribute"):
            faults += [refusal(name, shapes, {**case.attrs, attribute: bad}) for bad in BAD]
        for place, shape in enumerate(shapes):
            if shape is not None:
                for other in altered(shape):
                    faults.append(refusal(name, [*shapes[:place], other, *shapes[place + 1 :]], case.attrs))
        faults += [refusal(name, shapes[:place], case.attrs) for place in range(len(shapes))]
    assert not list(filter(None, faults))


@pytest.mark.parametrize("name", sorted(FIRST))
def test_a_text_is_no_number(name: str) -> None:
    on = subject(FIRST[name])
    for attribute in set(NUMBERS.split()) & on.op.attrs.keys():
        with pytest.raises(RuleError, match=rf"^{name}: {attribute}='nonsense': give "):
            rows(name, shapes_of(on), {**FIRST[name].attrs, attribute: "nonsense"})


SENTENCES = {
    "softmax: axis=0.5: give a whole number": ("softmax", [(4, 6)], {"axis": 0.5}),
    "sum: axis='0': give a whole number, a list of whole numbers or None": ("sum", [(4, 6)], {"axis": "0"}),
    "sum: keepdim=1: give True or False": ("sum", [(4, 6)], {"keepdim": 1}),
    "layer_norm: epsilon=None: give a number": ("layer_norm", [(4, 6), None, None], {"epsilon": None}),
    "batch_norm: data_format='NWHC' is not one of NC, NCL, NCHW, NCDHW, NLC, NHWC, NDHWC": (
        "batch_norm",
        [(4, 6), (6,), (6,), None, None],
        {"data_format": "NWHC"},
    ),
    "conv2d: filter has shape (6, 4): a window over 2 space dims needs rank 4": (
        "conv2d",
        [(2, 4, 6, 6), (6, 4), None],
        {},
    ),
    "linspace with start=0, stop=1, num=-3, dtype='float32' makes out of shape (-3,)": (
        "linspace",
        [],
        {"start": 0, "stop": 1, "num": -3},
    ),
    "softmax_grad needs the operand 'out_grad'": ("softmax_grad", [(4, 6)], {}),
    "softmax_grad: axis=2 names no dim of x, which has rank 2 and shape (4, 6)": (
        "softmax_grad",
        [(4, 6), (4, 6)],
        {"axis": 2},
    ),
}


@pytest.mark.parametrize("sentence", SENTENCES)
def test_the_sentence_names_op_operand_and_values(sentence: str) -> None:
    with pytest.raises(RuleError) as caught:
        rows(*SENTENCES[sentence])
    assert str(caught.value) == sentence


def test_an_unknown_dtype_is_named() -> None:
    with pytest.raises(RuleError, match=r"^cast: dtype='float31' is no dtype: choose from bool, int8, "):
        rows("cast", [(4,)], {"dtype": "float31"})
    assert set(DTYPES) == set(ITEMSIZE)


def test_attributes_say_their_types() -> None:
    types = {name: rule_for(name).attribute_types for name in ("cumsum", "dropout", "topk")}
    assert types["topk"]["axis"] is int
    assert types["dropout"]["p"] is float
    assert types["cumsum"]["axis"] == int | None
