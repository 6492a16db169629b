"""einsum: the equation is the rule."""

from __future__ import annotations

import string
from collections.abc import Sequence

import numpy as np

from ops.bind import Shape
from ops.dims import Array, sum_to
from ops.grad import Grad
from ops.notation import RuleError
from ops.op import REQUIRED
from ops.registry import family
from ops.rule import Rule, rule


def _sides(equation: str, count: int) -> tuple[list[str], str]:
    """Split an equation in the indices of its operands and of its result."""
    left, arrow, out = equation.replace(" ", "").partition("->")
    subscripts = left.split(",")
    if len(subscripts) != count:
        raise RuleError(f"einsum equation {equation!r} names {len(subscripts)} operands, but {count} are given")
    letters = left.replace("...", "").replace(",", "")
    for letter in letters + out.replace("...", ""):
        if letter not in string.ascii_letters:
            raise RuleError(f"einsum equation {equation!r} has {letter!r}, which is no index: use letters")
    if not arrow:
        once = sorted(letter for letter in set(letters) if letters.count(letter) == 1)
        out = "..." * ("..." in left) + "".join(once)
    for letter in out.replace("...", ""):
        if letter not in letters or out.count(letter) > 1:
            raise RuleError(
                f"einsum equation {equation!r} has {letter!r} in its result, which must come from an operand, once"
            )
    if "..." in left and "..." not in out:
        raise RuleError(f"einsum equation {equation!r} sums over '...': name these indices")
    return subscripts, out


def _factor(letter: str) -> str:
    """Name the factor of an index: factors are written small, so A becomes a_."""
    return letter if letter.islower() else f"{letter.lower()}_"


def _dims(subscript: str) -> str:
    before, dots, after = subscript.partition("...")
    return " ".join([*map(_factor, before), *([dots] if dots else []), *map(_factor, after)])


def _explicit(subscripts: Sequence[str], out: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Write the dims of '...' as letters that the equation does not use, right-aligned."""
    used = set("".join([*subscripts, out]))
    counts = [rank - len(s.replace("...", "")) for s, rank in zip(subscripts, ranks, strict=True) if "..." in s]
    names = "".join(c for c in string.ascii_letters if c not in used)[: max(counts, default=0)]
    spelled = [
        s.replace("...", names[len(names) - (rank - len(s.replace("...", ""))) :]) if "..." in s else s
        for s, rank in zip(subscripts, ranks, strict=True)
    ]
    return spelled, out.replace("...", names)


def _einsum(operands: list[Array], equation: str) -> Array:
    return np.asarray(np.einsum(equation, *operands, optimize=len(operands) > 2))


def _einsum_grad(operands: list[Array], out_grad: Array, equation: str) -> list[Array]:
    subscripts, out = _explicit(*_sides(equation, len(operands)), [x.ndim for x in operands])
    return [_operand_grad(i, operands, subscripts, out, out_grad) for i in range(len(operands))]


def _operand_grad(index: int, operands: list[Array], subscripts: list[str], out: str, out_grad: Array) -> Array:
    mine, shape = subscripts[index], operands[index].shape
    if len(set(mine)) < len(mine):
        raise RuleError(f"the grad of einsum over a diagonal ({mine!r} of operand {index}) is not supported")
    others = [(s, x) for i, (s, x) in enumerate(zip(subscripts, operands, strict=True)) if i != index]
    others.append((out, out_grad))
    known = set("".join(s for s, _ in others))
    others += [
        (letter, np.ones(size, out_grad.dtype)) for letter, size in zip(mine, shape, strict=True) if letter not in known
    ]
    grad = np.einsum(f"{','.join(s for s, _ in others)}->{mine}", *(x for _, x in others))
    return sum_to(np.asarray(grad), shape)


@family("einsum", "*operands[] -> out[]", kernel=_einsum, grad=Grad(_einsum_grad))
def einsum(operands: Sequence[Shape], equation: str = REQUIRED) -> Rule:
    """Multiply the operands, and sum over the indices that the result lacks."""
    subscripts, out = _sides(equation, len(operands))
    names = [f"operands.{i}" for i in range(len(operands))]
    left = ", ".join(f"{name}[{_dims(s)}]" for name, s in zip(names, subscripts, strict=True))
    summed = sorted({c for s in subscripts for c in s.replace("...", "")} - set(out))
    return rule(
        f"{left} -> out[{_dims(out)}]",
        sum=" ".join(map(_factor, summed)),
        linear="*".join(names),
        monotone="operands.0" if len(names) == 1 and not summed else "",
    )
