"""Products that sum over an index: matmul and its relatives, einsum."""

from __future__ import annotations

from typing import Any

import numpy as np

from ops.registry import family
from ops.rule import Rule, rule

Array = np.ndarray[Any, Any]


def _matmul_kernel(x: Array, y: Array, transpose_x: bool, transpose_y: bool) -> Array:
    left = np.swapaxes(x, -1, -2) if transpose_x and x.ndim > 1 else x
    right = np.swapaxes(y, -1, -2) if transpose_y and y.ndim > 1 else y
    return np.asarray(left @ right)


@family("matmul", "x[], y[] -> out[]", kernel=_matmul_kernel)
def matmul(x: tuple[int, ...], y: tuple[int, ...], transpose_x: bool = False, transpose_y: bool = False) -> Rule:
    """Batched matrix product; a vector on either side loses its dim."""
    left = "k" if len(x) == 1 else "... k m" if transpose_x else "... m k"
    right = "k" if len(y) == 1 else "... n k" if transpose_y else "... k n"
    out = " ".join(["..."] * (len(x) > 1 or len(y) > 1) + ["m"] * (len(x) > 1) + ["n"] * (len(y) > 1))
    return rule(f"x[{left}], y[{right}] -> out[{out}]", sum="k", linear="x*y")
