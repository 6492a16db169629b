"""Mixed precision: gradients that were scaled are checked and scaled back, and the scale follows what was found."""

from __future__ import annotations

import numpy as np

from ops.dims import Array
from ops.registry import family, op
from ops.rule import Rule, rule


def _check(x: Array, scale: Array) -> tuple[Array, Array]:
    return np.asarray(x / scale, x.dtype), np.array([not np.isfinite(x).all()])


# Paddle's ops take a list of gradients. Here an op speaks of one, so that each may be cut in its own way; what is found
# of all of them is put together with logical_or.
op(
    "check_finite_and_unscale",
    "x[a*], scale[1] -> out[a*], found_infinite[1]",
    any="a*",
    kernel=_check,
    dtype=lambda dtypes, attrs: (str(dtypes["x"]), "bool"),
    domain={"scale": "positive"},
)


def _update(
    x: Array,
    found_infinite: Array,
    prev_loss_scaling: Array,
    in_good_steps: Array,
    in_bad_steps: Array,
    incr_every_n_steps: int,
    decr_every_n_nan_or_inf: int,
    incr_ratio: float,
    decr_ratio: float,
    stop_update: bool,
) -> tuple[Array, ...]:
    """After so many good steps the scale grows, after so many bad ones it falls, not below 1; a bad x becomes zeros."""
    bad = found_infinite.astype(bool)
    out = np.where(bad.all(), np.zeros((), x.dtype), x)
    if stop_update:
        return out, prev_loss_scaling, in_good_steps, in_bad_steps
    good_steps, bad_steps = np.where(bad, 0, in_good_steps + 1), np.where(bad, in_bad_steps + 1, 0)
    grows, falls = good_steps == incr_every_n_steps, bad_steps == decr_every_n_nan_or_inf
    grown = prev_loss_scaling * incr_ratio
    scale = np.where(
        falls,
        np.maximum(prev_loss_scaling * decr_ratio, 1),
        np.where(grows & np.isfinite(grown), grown, prev_loss_scaling),
    )
    return (
        out,
        np.asarray(scale, prev_loss_scaling.dtype),
        np.where(grows, 0, good_steps).astype(in_good_steps.dtype),
        np.where(falls, 0, bad_steps).astype(in_bad_steps.dtype),
    )


_SCALED = "x[{}], found_infinite[{}], prev_loss_scaling[{}], in_good_steps[{}], in_bad_steps[{}]"
_UPDATED = "out[{}], loss_scaling[{}], out_good_steps[{}], out_bad_steps[{}]"


@family(
    "update_loss_scaling",
    f"{_SCALED} -> {_UPDATED}".format(*[""] * 9),
    kernel=_update,
    dtype=lambda dtypes, attrs: tuple(
        str(dtypes[name]) for name in ("x", "prev_loss_scaling", "in_good_steps", "in_bad_steps")
    ),
    domain={"prev_loss_scaling": "positive"},
    attrs={
        "incr_every_n_steps": 1000,
        "decr_every_n_nan_or_inf": 2,
        "incr_ratio": 2.0,
        "decr_ratio": 0.5,
    },
)
def update_loss_scaling(stop_update: bool = False) -> Rule:
    """A gradient as it is, or zeros; the scale and the counts of steps follow, or stay as they are."""
    stay = {"loss_scaling": "prev_loss_scaling", "out_good_steps": "in_good_steps", "out_bad_steps": "in_bad_steps"}
    dims = ["a*", *"1111"]
    return rule(
        f"{_SCALED} -> {_UPDATED}".format(*dims, *dims[:4]), linear={"out": "x"} | (stay if stop_update else {})
    )
