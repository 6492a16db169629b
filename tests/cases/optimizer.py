from __future__ import annotations

from truth import Case

_RATE = {"learning_rate": (1,)}
_SGD = {"param": (4, 6), **_RATE, "grad": (4, 6)}
_MOMENTUM = {"param": (4, 6), "grad": (4, 6), "velocity": (4, 6), **_RATE}
_ADAM = {
    "param": (4, 6),
    "grad": (4, 6),
    **_RATE,
    "moment1": (4, 6),
    "moment2": (4, 6),
    "beta1_pow": (1,),
    "beta2_pow": (1,),
}

_NUMBER: dict[str, dict[str, tuple[int, ...]]] = {
    op: {name: () if shape == (4, 6) else shape for name, shape in shapes.items()}
    for op, shapes in {"sgd": _SGD, "momentum": _MOMENTUM, "adamw": _ADAM, "lamb": _ADAM}.items()
}
"""The same with a parameter that is one number."""

_FINAL = {"*P(* -> *": "a gradient is final when an update reads it, and no parameter or state is partial"}

CASES = [
    Case("sgd", _SGD, missing=_FINAL),
    Case("momentum", _MOMENTUM, missing=_FINAL),
    Case("momentum", _MOMENTUM, {"use_nesterov": True, "mu": 0.5, "rescale_grad": 0.25}, _FINAL),
    Case("momentum", _MOMENTUM, {"regularization_method": "l2_decay", "regularization_coeff": 0.1}, _FINAL),
    Case("adam", _ADAM, missing=_FINAL),
    Case("adam", _ADAM, {"beta1": 0.5, "epsilon": 0.1}, _FINAL),
    Case("adamw", _ADAM, {"coeff": 0.1, "lr_ratio": 0.5}),
    Case("adamw", _ADAM, {"with_decay": False}, _FINAL),
    Case("lamb", _ADAM),
    Case("lamb", _ADAM, {"weight_decay": 0.0, "always_adapt": True}),
    Case("lamb", _ADAM, {"weight_decay": 0.0}, _FINAL),
    *(Case(op, shapes, missing=_FINAL) for op, shapes in _NUMBER.items()),
]
