from __future__ import annotations

import numpy as np
from truth import Case

_ONE_BAD = np.where(np.arange(24).reshape(4, 6) == 9, np.inf, np.linspace(-1, 2, 24).reshape(4, 6))
_GOOD, _BAD = np.array([False]), np.array([True])
_STEPS = {"prev_loss_scaling": (1,), "in_good_steps": np.array([4]), "in_bad_steps": np.array([1])}
_EVERY = {"incr_every_n_steps": 5, "decr_every_n_nan_or_inf": 2}
_NUMBERS = {
    "* P(* -> *": "the scale that grows passes a sum, the one that falls does not: it is not below 1",
}
_OVERFLOW = {"P(sum) R -> P(sum) P(any)": "terms may each be finite where their sum is not"}

CASES = [
    Case("check_finite_and_unscale", {"x": _ONE_BAD, "scale": (1,)}, missing=_OVERFLOW),
    Case("update_loss_scaling", {"x": (4, 6), "found_infinite": _GOOD, **_STEPS}, _EVERY, _NUMBERS),
    Case("update_loss_scaling", {"x": (4, 6), "found_infinite": _BAD, **_STEPS}, _EVERY),
    Case("update_loss_scaling", {"x": (4, 6), "found_infinite": _GOOD, **_STEPS}, {"stop_update": True}, _NUMBERS),
]
