"""Optimizer updates of Paddle, which write in place: what they return is stored as what they were given."""

from __future__ import annotations

from collections.abc import Callable

from ops.registry import rule_for
from solver.importers.paddle_direct import grouped
from solver.importers.paddle_site import Site
from solver.importers.sketch import Value

_BETAS = ("beta1", "beta2", "epsilon")
HYPER = {
    "sgd": (),
    "momentum": ("mu", "use_nesterov", "regularization_method", "regularization_coeff", "rescale_grad"),
    "adam": _BETAS,
    "adamw": (*_BETAS, "lr_ratio", "coeff", "with_decay"),
    "lamb": (*_BETAS, "weight_decay", "always_adapt"),
}
"""Optimizer -> its attributes, here and there."""
PLAIN = {"lazy_mode": False, "use_global_beta_pow": False, "amsgrad": False}
"""Attributes that must be as they are by default."""


def _update(site: Site) -> None:
    """One step of one parameter.

    Where the parameter is kept in a wider dtype (multi_precision), the step is of that master copy, and the parameter
    is its cast.
    """
    for name, wanted in PLAIN.items():
        if name in site.attrs:
            site.need(name, wanted, "no op here does that")
    if "skip_update" in site.inputs:
        raise site.refuse("its operand skip_update decides by data whether anything is done")
    param, grad = site.value("param"), site.value("grad")
    master = site.found("master_param") if site.attr("multi_precision", False) else None
    stepped = master if isinstance(master, Value) else param
    given: dict[str, Value] = {"param": stepped, "grad": _as(site, grad, stepped.dtype)}
    rule = rule_for(site.kind)
    operands = [given.get(spec.name) or _small(site, site.value(spec.name)) for spec in rule.operands]
    attrs = {name: site.attr(name) for name in HYPER[site.kind]}
    made = grouped(site.emit_slots(site.kind, *operands, name=f"{param.name}.{site.kind}", **attrs))
    site.reading.is_gradient(grad, param)
    for spec in rule.results:
        kept, new = spec.name.removesuffix("_out"), made[spec.name]
        old = site.value(kept)
        assert isinstance(new, Value)
        if kept == "param" and stepped is not param:
            site.reading.keep(stepped, new, site.inputs["master_param"])
            new = site.emit("cast", new, dtype=param.dtype)
        site.bind(**{spec.name: new})
        site.reading.keep(old, new, site.inputs[kept])
        if kept != "param" and old.shape == param.shape:
            site.reading.sketch.followers.append((old, param))
    if stepped is not param:
        site.bind(master_param_out=made["param_out"])
        site.reading.sketch.followers.append((stepped, param))


def _as(site: Site, value: Value, dtype: str) -> Value:
    return value if value.dtype == dtype else site.emit("cast", value, dtype=dtype)


def _small(site: Site, value: Value) -> Value:
    """One number as a tensor of one element, as our rules have it."""
    if value.shape != ():
        return value
    return site.reading.once(("one", id(value)), lambda: site.emit("reshape", value, shape=[1]))


def _check_finite(site: Site) -> None:
    """Theirs takes all gradients at once; here each is cut in its own way, and what is found is put together."""
    scale = site.value("scale")
    checked, found = [], None
    for grad in site.listed("x"):
        made = site.emit_slots("check_finite_and_unscale", grad, _small(site, scale))
        checked.append(made["out"])
        bad = made["found_infinite"]
        found = bad if found is None else site.emit("logical_or", found, bad)
    site.bind(out=checked, found_infinite=found)


def _update_scaling(site: Site) -> None:
    """The scale follows once what was found; the gradients of a bad step become zeros."""
    if site.attr("stop_update", False):
        raise site.refuse("stop_update is set: leave the op out of the program")
    names = ("found_infinite", "prev_loss_scaling", "in_good_steps", "in_bad_steps")
    state = [_small(site, site.value(name)) for name in names]
    hyper = ("incr_every_n_steps", "decr_every_n_nan_or_inf", "incr_ratio", "decr_ratio")
    attrs = {name: site.attr(name) for name in hyper}
    outs, made = [], {}
    for grad in site.listed("x"):
        made = site.emit_slots("update_loss_scaling", grad, *state, **attrs)
        outs.append(made["out"])
    site.bind(out=outs, loss_scaling=made["loss_scaling"], out_good_steps=made["out_good_steps"],
              out_bad_steps=made["out_bad_steps"])  # fmt: skip
    for kept, new in (("prev_loss_scaling", "loss_scaling"), ("in_good_steps", "out_good_steps"),
                      ("in_bad_steps", "out_bad_steps")):  # fmt: skip
        old = site.value(kept)
        if old.shape == made[new].shape:
            site.reading.keep(old, made[new], site.inputs[kept])


UPDATES: dict[str, Callable[[Site], None]] = {
    **dict.fromkeys(HYPER, _update),
    "check_finite_and_unscale": _check_finite,
    "update_loss_scaling": _update_scaling,
}
"""What each becomes, by the names of `solver.importers.paddle_ops`."""
