"""How many elements there are of each kind: counts of devices that hold different elements add up."""

from __future__ import annotations

import numpy as np

from ops.bind import Shape
from ops.dims import Array, elements_of
from ops.notation import RuleError
from ops.registry import family
from ops.rule import Rule, rule


def _histogram(input: Array, weight: Array | None, bins: int, min: float, max: float, density: bool) -> Array:
    given = None if weight is None else weight.ravel()
    span = None if min == max == 0 else (min, max)
    found, _ = np.histogram(input.ravel(), bins, span, weights=given, density=density)
    return np.asarray(found, (np.float32 if density else np.int64) if weight is None else weight.dtype)


@family(
    "histogram",
    "input[], weight?[] -> out[]",
    kernel=_histogram,
    shape=lambda shapes, attrs: ((attrs["bins"],),),
    dtype=lambda dtypes, attrs: (
        str(dtypes["weight"]) if dtypes.get("weight") else "float32" if attrs["density"] else "int64",
    ),
    flops=elements_of("input"),
)
def histogram(
    input: Shape, weight: Shape | None, bins: int = 100, min: float = 0, max: float = 0, density: bool = False
) -> Rule:
    """Counts by intervals of equal width; the range, where it is not given, and a density need all elements."""
    if bins < 1 or min > max:
        raise RuleError(f"histogram: bins={bins} from min={min} to max={max} are no intervals")
    weights = "weight[a*]" if weight is not None else "weight?[_]"
    if min == max or density:
        return rule(f"input[a*], {weights} -> out[_]", whole="a*")
    return rule(f"input[a*], {weights} -> out[_]", sum="a*", linear="weight" if weight is not None else "")


def _bincount(x: Array, weights: Array | None, minlength: int) -> Array:
    found = np.bincount(x.ravel(), weights, minlength)
    if len(found) > minlength:
        raise ValueError(
            f"bincount: x holds {len(found) - 1}, but minlength={minlength}: only smaller numbers have a place"
        )
    return np.asarray(found, np.int64 if weights is None else weights.dtype)


@family(
    "bincount",
    "x[], weights?[] -> out[]",
    kernel=_bincount,
    shape=lambda shapes, attrs: ((attrs["minlength"],),),
    dtype=lambda dtypes, attrs: (str(dtypes["weights"]) if dtypes.get("weights") else "int64",),
    domain={"x": "c"},
    flops=elements_of("x"),
)
def bincount(weights: Shape | None, minlength: int = 0) -> Rule:
    """Counts of each number below ``minlength``, which a static graph must give."""
    if minlength < 1:
        raise RuleError(
            "bincount makes as many counts as its largest element says, which only the data know: give minlength=, "
            "above all elements"
        )
    given = "weights[n]" if weights is not None else "weights?[_]"
    return rule(
        f"x[n], {given} -> out[c]",
        sum="n",
        whole="c",
        sizes={"c": minlength},
        linear="weights" if weights is not None else "",
    )
