"""Random numbers in a jaxpr: what is drawn from a key that is not known is drawn by our counter instead.

A key is no tensor and has no layout. Two draws from one key are the same draw, as in JAX: they share a seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from solver.importers.jax_fold import OPAQUE, number_of
from solver.importers.jax_site import Site
from solver.importers.sketch import CONSTANT_LIMIT, Value

_RAW = f"{OPAQUE}raw>"
"""The dtype that stands for the numbers of a key."""
_DRAWN = "random numbers are drawn by a counter: a run agrees with JAX in distribution, not in values"


def is_opaque(value: Value) -> bool:
    """Tell whether a value is a random key."""
    return value.dtype.startswith(OPAQUE)


def drawing_call(site: Site) -> Callable[[Site], Value] | None:
    """Return the translation of a call of `jax.random` that draws from a key; None for another call."""
    found = _CALLS.get(str(site.params.get("name", "")))
    if found is None or not site.operands or not is_opaque(site.operands[0]):
        return None
    kept = site.operands[0].data is not None and math.prod(site.shape) <= CONSTANT_LIMIT
    return None if kept else found


def key_results(site: Site) -> list[Value] | None:
    """Return the keys that an equation makes of others, None where it makes none.

    What is made alike of the same keys is the same key.
    """
    names = [str(aval.dtype.name) for aval in site.results]
    opaque = any(map(is_opaque, site.operands))
    if site.name == "random_bits" or not (opaque or any(name.startswith(OPAQUE) for name in names)):
        return None
    told = (site.name, *(id(value) for value in site.operands), str(sorted(site.params.items(), key=str)))
    if told not in site.drawing.keys:
        site.drawing.keys[told] = [
            Value(tuple(aval.shape), name if name.startswith(OPAQUE) else _RAW, "result")
            for aval, name in zip(site.results, names, strict=True)
        ]
        site.drawing.kept += site.operands
    return site.drawing.keys[told]


def _seed(site: Site) -> int:
    """The number that stands for a key."""
    key = site.operands[0]
    told: Any = id(key)
    if key.data is not None:
        told = np.asarray(jax.random.key_data(key.data)).tobytes()
    site.drawing.kept.append(key)
    return site.drawing.seeds.setdefault(told, len(site.drawing.seeds) + 1)


def _uniform(site: Site) -> Value:
    _, low, high = site.operands
    site.note(_DRAWN)
    bounds = [number_of(low), number_of(high)]
    attrs: dict[str, Any] = {"shape": list(site.shape), "dtype": site.dtype, "seed": _seed(site)}
    if None not in bounds:
        return site.emit("uniform", min=bounds[0], max=bounds[1], **attrs)
    drawn = site.emit("uniform", min=0.0, max=1.0, **attrs)
    spread = site.pointwise("multiply", drawn, site.pointwise("subtract", high, low))
    return site.pointwise("add", spread, low)


def _randint(site: Site) -> Value:
    bounds = [number_of(value) for value in site.operands[1:3]]
    if None in bounds:
        raise site.refuse("it draws whole numbers between bounds that are computed from data: give known ones")
    site.note(_DRAWN)
    attrs = {"shape": list(site.shape), "dtype": site.dtype, "seed": _seed(site)}
    return site.emit("randint", low=int(bounds[0]), high=int(bounds[1]), **attrs)


def _bits(site: Site) -> Value:
    site.note(_DRAWN)
    width = int(site.params["bit_width"])
    return site.emit("randint", low=0, high=2**width, shape=list(site.shape), dtype=site.dtype, seed=_seed(site))


_CALLS: dict[str, Callable[[Site], Value]] = {"_uniform": _uniform, "_randint": _randint}

RANDOM: dict[str, Callable[[Site], Value | Sequence[Value]]] = {"random_bits": _bits}
"""Primitives that draw numbers."""
